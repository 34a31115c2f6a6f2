# SPDX-License-Identifier: BSD-3-Clause
"""The commands on files: ``spread``, ``interpolate``, ``neighbours``, ``spectrum`` and ``view``."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps import files, progress
from particlemesh.apps.files.accumulate import power_factors
from particlemesh.apps.files.boxes import lattice
from particlemesh.apps.files.particles import CHUNK
from particlemesh.apps.files.replacing import together
from particlemesh.command import pictures
from particlemesh.command.consoles import (
    check_backend,
    check_choice,
    check_outputs,
    refuse_idle,
    say,
    say_written,
    table,
)
from particlemesh.fourier import Spectrum, Transform, binned_power
from particlemesh.window import WINDOWS, Window, window_of

OVER_RANKS = ("spread", "interpolate", "spectrum")  # whose parts of a file ranks share
AXES = "xyz"
LONGEST = 64  # default nodes along the longest axis
MOST_NODES = 2**33  # of a mesh: 64 GiB in double precision
FARTHEST = 2**40  # lengths of the box between 0 and its origin: 12 bits of a position are left
ROWS = 12  # of the table of a spectrum
METHOD = re.compile(r"^([* ]) (\w+) .*?([\d.e+-]+) (us|ms|s)  +[\d.]+ \wiB +(.+)$", re.MULTILINE)
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def _check(o: Any) -> None:
    check_backend(o.backend)
    check_choice("dtype", o.dtype, ("float32", "float64"))
    check_choice("outside", getattr(o, "outside", None), ("error", "lose"))


def spread(console: Any, stated: set[str], o: Any, world: Any = None) -> None:
    """Spread the particles of a file and write the field; over ranks the first one writes."""
    with contextlib.ExitStack() as stack:
        with together(world, _said("spread", stated, o)):
            _check(o)
            _check_picture(o, stated)
            check_outputs((o.file, o.topology), {"--out": o.out, "--picture": o.picture}, o.overwrite)
            shape_function = summing(window_named(o.window, o.order))
            particles = stack.enter_context(
                files.open_particles(o.file, positions=o.positions, values=o.values, topology=o.topology)
            )
            chosen = frames_of(particles, o.frames)
            domain, where = box_of(particles, chosen, o.box, o.origin, o.periodic, o.chunk, o.dtype)
            mesh, why = mesh_of(domain, o.shape, o.spacing, o.offset)
            files.check_field(o.out, mesh, particles.components, float, o.overwrite)
            _check_picture(o, stated, mesh.ndim)
            refuse_idle(stated, "outside", not all(mesh.periodic), "the box is periodic along all axes")
        total = None if particles.count is None else particles.count * len(chosen)
        with progress.bar("spreading", total, console) as advance:
            field, account = files.spread_particles(
                particles, mesh, shape_function, frames=chosen, size=o.chunk, progress=advance, dtype=o.dtype,
                backend=o.backend, method=o.method, deterministic=o.deterministic, outside=o.outside, world=world,
            )  # fmt: skip
        stack.enter_context(together(world, "writing a field"))
        if world is not None and world.rank:
            return
        axes = tuple(range(field.ndim - mesh.ndim, field.ndim))
        double = np.complex128 if np.iscomplexobj(field) else np.float64
        with np.errstate(all="ignore"):
            sums = field.sum(axis=axes, dtype=double)
            if o.density:
                field /= mesh.node_volume
        if not np.isfinite(field).all() or not np.isfinite(sums).all():
            advice = "Give --dtype float64" if field.dtype.itemsize < double().itemsize else "Choose another unit"
            raise ValueError(f"the field or its sum is not finite: values are too large for {field.dtype}. {advice}.")
        name = "density" if o.density else "field"
        drawing = {n: getattr(o, n) for n in ("kind", "at", "level", "scale")} | {"length_units": particles.unit or ""}
        drawing["axis"] = o.axis if mesh.ndim == 3 else -1
        real, shown = pictures.real(files.Field(field, mesh, name))
        with _drawn(o, lambda path: pictures.save_picture(path, real, mesh, name=shown, **drawing)):
            files.write_field(o.out, field, mesh, name=name, overwrite=o.overwrite)
        _say_particles(console, "spread", particles, chosen, account)
        _say_box(console, domain, where, particles.unit)
        _say_mesh(console, mesh, why, _called(o, shape_function), shape_function)
        _say_method(console, account, "spread")
        _say_sums(console, account, sums, mesh)
        _say_time(console, account)
        mean = f", mean of {len(chosen)} frames" if len(chosen) > 1 else ""
        say_written(console, o.out, f"{name}, {'values per volume' if o.density else 'sums at nodes'}{mean}")
        if o.picture is not None:
            say_written(console, o.picture, f"picture, {o.kind}" if mesh.ndim == 3 else "picture")


def interpolate(console: Any, stated: set[str], o: Any, world: Any = None) -> None:
    """Interpolate a field at the particles of a file and write a table; over ranks the first one writes."""
    with contextlib.ExitStack() as stack:
        with together(world, _said("interpolate", stated, o)):
            _check(o)
            check_outputs((o.file, o.topology, o.field), {"--out": o.out}, o.overwrite)
            shape_function = summing(window_named(o.window, o.order))
            if o.gradient and not shape_function.derivative_weights(np.linspace(-0.5, 0.5, 33)).any():
                raise ValueError(
                    f"--window is {shape_function.name}, whose slope is zero: --gradient needs cic or a smoother one."
                )
            files.check_table(o.out, o.overwrite)
            values, mesh, name = files.read_field(o.field)
            refuse_idle(stated, "outside", not all(mesh.periodic), "the mesh is periodic along all axes")
            particles = stack.enter_context(files.open_particles(o.file, positions=o.positions, topology=o.topology))
            frame = one_frame(particles, o.frames)
            if particles.ndim != mesh.ndim:
                raise ValueError(
                    f"{o.file} has positions of {particles.ndim} axes and {o.field} {mesh.ndim}: give --positions."
                )
        account = files.Account()
        low, high, total = np.inf, -np.inf, 0.0
        first = world is None or not world.rank
        with contextlib.ExitStack() as outputs:
            with together(world, "opening a table"):
                rows = outputs.enter_context(files.writing_table(o.out, o.overwrite)) if first else None
            advance = outputs.enter_context(progress.bar("interpolating", particles.count, console))
            parts = files.interpolate_particles(
                particles, values, mesh, shape_function, frame=frame, size=o.chunk, gradient=o.gradient, dtype=o.dtype,
                account=account, outside=o.outside, backend=o.backend, interpolation=o.method, world=world,
            )  # fmt: skip

            def written(columns: dict[str, np.ndarray]) -> None:
                nonlocal low, high, total
                assert rows is not None
                rows.append(columns)
                results = columns["value"]
                size = abs(results) if np.iscomplexobj(results) else results
                low, high, total = min(low, size.min()), max(high, size.max()), total + size.sum(dtype=np.float64)
                advance(len(results))

            if world is None:
                for part in parts:
                    written(_columns(*part))
            else:
                _write_in_turn(parts, written, world)
            with together(world, "writing a table"):
                outputs.close()  # now the file appears
        if world is not None:
            account.add_up(world)
        if not first:
            return
        _say_particles(console, "interpolate", particles, (frame,), account)
    say(console, "field", f"{name} of {o.field}, {values.dtype}")
    _say_box(console, mesh.box, "from the field", None)
    _say_mesh(console, mesh, "from the field", _called(o, shape_function), shape_function)
    _say_method(console, account, "interpolate")
    what = "magnitudes" if np.iscomplexobj(values) else "values"
    mean = total / account.particles / max(1, values.size // mesh.size)
    say(console, what, f"{low:.6g} to {high:.6g}, mean {mean:.6g}")
    if not all(mesh.periodic):
        beyond = float(np.real(account.lost))
        say(console, "", f"weight beyond open faces: that of {beyond:.6g} particles")
    _say_time(console, account)
    say_written(console, o.out, "position, value" + (", gradient" if o.gradient else ""))


def _said(command: str, stated: set[str], o: Any) -> str:
    """Return a command as it was given, for the agreement of ranks."""
    return " ".join([command, str(o.file), *(f"--{name} {getattr(o, name)}" for name in sorted(stated - {"file"}))])


def _columns(part: files.Chunk, results: np.ndarray, slope: np.ndarray | None) -> dict[str, np.ndarray]:
    columns = {"position": part.positions, "value": _rows(results)}
    return columns if slope is None else columns | {"gradient": _rows(slope, 2)}


def _write_in_turn(parts: Iterator[Any], write: Callable[[dict[str, np.ndarray]], None], world: Any) -> None:
    """Write the parts of all ranks on the first one, in the order of the file."""
    waiting: list[dict[str, np.ndarray]] = []
    while True:
        with together(world, "a part of a table"):
            for columns in waiting:
                write(columns)
            part = next(parts, None)
            mine = {} if part is None else {name: np.ascontiguousarray(a) for name, a in _columns(*part).items()}
        kinds = world.allgather({name: (array.shape, array.dtype.str) for name, array in mine.items()})
        if not any(kinds):
            return
        waiting = [
            {name: np.empty(*kind) for name, kind in kinds[n].items()} for n in range(world.size) if not world.rank
        ]
        for name in kinds[0]:  # the first rank has a part if any has
            receives = {n: columns[name] for n, columns in enumerate(waiting) if columns}
            world.exchange({0: mine[name]} if mine else {}, receives)
        waiting = [columns for columns in waiting if columns]


def _rows(results: np.ndarray, axes: int = 1) -> np.ndarray:
    """Return results (..., n) or, with axes = 2, (..., n, d), as rows (n,) or (n, c), each of d numbers."""
    batch, rest = results.shape[: results.ndim - axes], results.shape[results.ndim - axes :]
    flat = results.reshape(-1, *rest)
    return np.ascontiguousarray(np.moveaxis(flat, 0, 1)) if batch else results


def neighbours(console: Any, stated: set[str], o: Any) -> None:
    """List the pairs of particles within a radius, and write them as a table."""
    check_backend(o.backend)
    if not set(o.quantities) <= set("ijdDS") or not o.quantities or len(set(o.quantities)) < len(o.quantities):
        raise ValueError(f"--quantities is {o.quantities!r}; give letters of ijdDS, each at most once.")
    refuse_idle(stated, "quantities overwrite", o.out is not None, "this needs --out")
    check_outputs((o.file, o.topology), {"--out": o.out}, o.overwrite)
    bonded = o.out is not None and files.check_pairs(o.out, o.overwrite)
    refuse_idle(stated, "quantities", not bonded, "these are the columns of a table, and this file has bonds")
    half, letters = o.half or bonded, "ij" if bonded else o.quantities
    with files.open_particles(o.file, positions=o.positions, topology=o.topology) as particles:
        frame = one_frame(particles, o.frames)
        domain, where = box_of(particles, (frame,), o.box, o.origin, o.periodic, o.chunk)
        refuse_idle(stated, "origin", not all(domain.periodic), "pairs in a periodic box do not depend on the origin")
        account, total, sides, parts = files.Account(), 0, 0, 0
        low, high, fewest, most = np.inf, 0.0, np.iinfo(np.int64).max, 0
        bonds: list[Any] = []
        writing = files.writing_table(o.out, o.overwrite) if o.out is not None and not bonded else None
        with (
            _advised(),
            writing or contextlib.nullcontext() as rows,
            progress.bar("searching", particles.count, console) as advance,
        ):
            for pairs, counts in files.particles_pairs(
                particles, domain, o.radius, "".join(dict.fromkeys(f"{letters}d")), frame=frame, size=o.chunk,
                half=half, backend=o.backend, progress=advance, account=account,
                folder=None if o.out is None else o.out.parent,
            ):  # fmt: skip
                if rows is not None:
                    rows.append({letter: pairs[letter] for letter in o.quantities})
                if bonded:
                    bonds.append((pairs["i"], pairs["j"]))
                total, parts = total + len(pairs["d"]), parts + 1
                sides, fewest, most = sides + counts.sum(), min(fewest, counts.min()), max(most, counts.max())
                if len(pairs["d"]):
                    low, high = min(low, pairs["d"].min()), max(high, pairs["d"].max())
        _say_particles(console, "neighbours", particles, (frame,), account)
        _say_box(console, domain, where, particles.unit)
        if bonded:
            points = np.concatenate([chunk.positions for chunk in particles.chunks(o.chunk, frame)])
            i, j = map(np.concatenate, zip(*bonds, strict=True))
            files.write_bonds(o.out, points, domain, i, j, overwrite=o.overwrite)
    how = "each pair once" if half else "each pair from both sides"
    say(console, "pairs", f"{total:,} within {o.radius:g}, {how}")
    slabs = f", in {parts} slabs" if parts > 1 else ""
    say(console, "cells", f"fitted to particles and radius, on {o.backend or 'cpu'}{slabs}")
    mean = sides / account.particles
    say(console, "neighbours", f"{mean:.6g} on average, {fewest} to {most} per particle")
    if total:
        say(console, "distances", f"{low:.6g} to {high:.6g}")
    _say_time(console, account)
    if o.out is not None:
        say_written(console, o.out, "particles and bonds" if bonded else ", ".join(o.quantities))


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    """Say what takes less memory, where pairs take more than there is."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{error} Give a smaller --chunk or --radius.") from error


def spectrum(console: Any, stated: set[str], o: Any, world: Any = None) -> None:
    """Print and write the power spectrum of the particles of a file, or of a field; over ranks the first one does."""
    with contextlib.ExitStack() as stack:
        _spectrum(console, stated, o, world, stack)


def _check_spectrum(stated: set[str], o: Any, world: Any) -> None:
    _check(o)
    if o.picture is not None:
        pictures.check_picture(o.picture)
    refuse_idle(stated, "overwrite", bool(o.out or o.picture), "it needs --out or --picture")
    refuse_idle(stated, "line_of_sight", o.multipoles is not None, "it needs --multipoles")
    check_outputs((o.file, o.topology, o.other), {"--out": o.out, "--picture": o.picture}, o.overwrite)
    if o.out is not None:
        files.check_table(o.out, o.overwrite)
    if o.of_field and world is not None:
        raise ValueError("--field is one array, which ranks do not share: start the command without mpiexec.")


def _spectrum(console: Any, stated: set[str], o: Any, world: Any, stack: contextlib.ExitStack) -> None:
    with together(world, _said("spectrum", stated, o)):
        _check_spectrum(stated, o, world)
    if o.of_field:
        of_particles = (
            "positions values topology frames box origin shape spacing interlaced dtype method chunk other other_values"
        )
        refuse_idle(stated, of_particles, False, "with --field there are no particles")
        spread_by = window_named(o.window, o.order) if stated & {"window", "order"} else None
        refuse_idle(
            stated, "compensation", spread_by is not None, "it needs the --window that the field was spread with"
        )
        field = files.read_field(o.file)
        began = time.perf_counter()
        power = field_power(field, spread_by, o.compensation, o.backend, **angles(o, field.mesh.ndim))
        seconds = time.perf_counter() - began
        console.print(f"particlemesh spectrum {o.file}\n", markup=False, soft_wrap=True)
        say(console, "field", f"{field.name}, {field.values.dtype}; its power, not that of its contrast")
        _say_box(console, field.mesh.box, "from the field", None)
        none = "none: give the --window that it was spread with"
        say(console, "modes", f"compensation: {f'{o.compensation}, {_called(o, spread_by)}' if spread_by else none}")
    else:
        with together(world, "particles of a spectrum"):
            shape_function = window_named(o.window, o.order)
            refuse_idle(stated, "other_values", o.other is not None, "it needs --other")
            particles = stack.enter_context(
                files.open_particles(o.file, positions=o.positions, values=o.values, topology=o.topology)
            )
            frame = one_frame(particles, o.frames)
            other = None
            if o.other is not None:
                weights = o.values if o.other_values is None else o.other_values
                other = stack.enter_context(files.open_particles(o.other, positions=o.positions, values=weights))
                one_frame(other, o.frames)
            domain, where = box_of(particles, (frame,), o.box, o.origin, None, o.chunk, o.dtype)
            mesh, why = mesh_of(domain, o.shape, o.spacing, 0.0)
        account = files.Account()
        with progress.bar("spreading", particles.count, console) as advance:
            power = files.particles_spectrum(
                particles, mesh, shape_function, frame=frame, size=o.chunk, interlaced=o.interlaced,
                compensation=o.compensation, progress=advance, dtype=o.dtype, account=account, backend=o.backend,
                method=o.method, other=other, world=world, **angles(o, mesh.ndim),
            )  # fmt: skip
        stack.enter_context(together(world, "writing a spectrum"))
        if world is not None and world.rank:
            return
        _say_particles(console, "spectrum", particles, (frame,), account)
        if other is not None:
            values = ", ".join(other.values) if other.values else f"{other.constant:g} for each"
            say(console, "other", files.plain(f"{o.other}; values: {values}; power is that of both sets"))
        _say_box(console, domain, where, particles.unit)
        _say_mesh(console, mesh, why, _called(o, shape_function), shape_function)
        means = "interlaced, on two meshes: the nearest aliases cancel"
        means = means if o.interlaced else "not interlaced: aliases remain"
        _say_method(console, account, "spread")
        say(console, "modes", f"{means}; compensation: {o.compensation}")
        if o.other is None:
            say(console, "shot noise", f"{power.shot_noise[power.modes > 0][:1].mean():.6g}, included in the power")
    columns = {
        "k": power.k, "power": power.power, "error": power.error, "modes": power.modes, "shot_noise": power.shot_noise,
        **{f"power_{order}": pole for order, pole in power.multipoles.items()},
        **{f"shot_noise_{order}": noise for order, noise in power.multipole_noise.items()},
        "k_low": power.edges[:-1], "k_high": power.edges[1:],
    }  # fmt: skip
    with _drawn(o, lambda path: pictures.save_spectrum(path, power.k, power.power, power.shot_noise)):
        if o.out is not None:
            with files.writing_table(o.out, o.overwrite) as rows:
                rows.append(columns)
    if o.of_field:
        say(console, "time", f"{seconds:.3g} s with compiling or loading, for {field.mesh.size:,} nodes")
    else:
        _say_time(console, account)
    if o.out is not None:
        say_written(console, o.out, ", ".join(columns))
    if o.picture is not None:
        say_written(console, o.picture, "picture")
    console.print()
    console.print(_spectrum_table(power, o.out))


def angles(o: Any, ndim: int) -> dict[str, Any]:
    """Return orders of multipoles and the line of sight."""
    given: dict[str, Any] = {}
    if o.multipoles is not None:
        try:
            given["multipoles"] = [int(word) for word in o.multipoles.split(",")]
        except ValueError:
            raise ValueError(f"--multipoles is {o.multipoles!r}; give even orders, such as 0,2,4.") from None
    if o.line_of_sight is not None:
        axis = AXES[:ndim].find(o.line_of_sight) if len(o.line_of_sight) == 1 else -1
        given["line_of_sight"] = (
            np.eye(ndim)[axis] if axis >= 0 else numbers(o.line_of_sight, "--line-of-sight", (ndim,))
        )
    return given


def field_power(
    field: files.Field, window: Window | None, compensation: str, backend: str | None, **angles: Any
) -> Spectrum:  # fmt: skip
    """Return the power of a field per mode, times the volume, in bins of k.

    It is compensated for the window with which the field was spread, unless that is None.
    """
    mesh = field.mesh
    if np.iscomplexobj(field.values) or field.values.ndim > mesh.ndim:
        raise ValueError("the field is complex or has components; a spectrum needs one real value per node.")
    if not all(mesh.periodic):
        raise ValueError("the field has open axes; a spectrum needs a mesh that is periodic along all axes.")
    if not np.isfinite(field.values).all():
        raise ValueError("the field has values that are not finite, and a spectrum needs all of them.")
    values = np.asarray(field.values, np.float64)
    transform = Transform(mesh, "ngp" if window is None else window, backend=backend)
    power = mesh.box.volume * abs(np.asarray(transform.forward(values)) / mesh.size) ** 2
    if window is not None:
        power *= power_factors(transform, compensation)
    return binned_power(transform, power, **angles)


def _spectrum_table(power: Spectrum, out: Path | None) -> Any:
    """Return all bins with modes, or some of them if a file has all."""
    orders = [order for order in power.multipoles if order]
    rows = table(">k", ">power", ">error", *(f">power {order}" for order in orders), ">shot noise", ">modes")
    there = np.flatnonzero(power.modes)
    shown = len(there) if out is None else min(ROWS, len(there))
    chosen = there[np.unique(np.linspace(0, len(there) - 1, shown).round().astype(int))]
    columns = [power.k, power.power, power.error, *(power.multipoles[order] for order in orders), power.shot_noise]
    for n in chosen:
        rows.add_row(*(f"{column[n]:.5g}" for column in columns), f"{power.modes[n]:,.6g}")
    if shown < len(there):
        rows.caption = f"{shown} of {len(there)} bins with modes; all are in {out}"
    return rows


# ---- from options to frames, boxes, meshes and windows -----------------------------------------------------


def numbers(text: str, option: str, allowed: tuple[int, ...]) -> np.ndarray:
    """Return numbers with commas between them."""
    try:
        values = np.array([float(word) for word in text.split(",")])
    except ValueError:
        values = np.array([math.nan])
    if not np.isfinite(values).all() or len(values) not in allowed:
        many = " or ".join(map(str, allowed))
        raise ValueError(f"{option} is {text!r}; give {many} numbers with commas between them.")
    return values


def periodic_axes(text: str, ndim: int) -> tuple[bool, ...]:
    """Return which axes repeat, from letters of x, y and z, or none."""
    letters = "" if text == "none" else text
    if (not letters and text != "none") or set(letters) - set(AXES[:ndim]) or len(set(letters)) < len(letters):
        raise ValueError(f"--periodic is {text!r}; give letters of {AXES[:ndim]}, or none.")
    return tuple(axis in letters for axis in AXES[:ndim])


def box_of(
    particles: files.Particles, frames: tuple[int, ...], box: str | None, origin: str | None, periodic: str | None,
    size: int = CHUNK, dtype: str | None = None,
) -> tuple[Box, str]:  # fmt: skip
    """Return the box of frames, and where it is from.

    ``box`` has lengths, lengths and angles, the rows of a matrix, or "fit" for the bounds of the particles. What is
    fitted holds positions as ``dtype`` rounds them, and has at most ``size`` particles in memory at once.
    """
    ndim = particles.ndim
    flags = None if periodic is None else periodic_axes(periodic, ndim)
    corner = None if origin is None else numbers(origin, "--origin", (ndim,))
    if box == "fit":
        if corner is not None:
            raise ValueError("--box fit has an origin of its own: leave out --origin.")
        low, high = particles.bounds(frames, size, dtype)
        flags = flags or (False,) * ndim
        return Box(high - low, origin=low, periodic=flags), "fitted to the particles"
    if box is None:
        stored = particles.box(frames, periodic=flags, origin=corner)
        if stored is None:
            lengths = ",".join(["10"] * ndim)
            raise ValueError(f"{particles.path} has no box: give --box, such as {lengths}, or --box fit for open axes.")
        if stored.ndim != ndim:
            raise ValueError(
                f"{particles.path} has a box of {stored.ndim} axes and positions of {ndim}: give --box or --positions."
            )
        _check_near(corner, stored)
        if flags is None and corner is None:
            return stored, f"from the file{', which does not state the periodicity' if particles.unsaid else ''}"
        return stored, "from the file, but for --periodic or --origin"
    count = {1: (1,), 2: (2, 4), 3: (3, 6, 9)}[ndim]
    given = numbers(box, "--box", count)
    if ndim == 3 and len(given) == 6:
        given = lattice(given[:3], given[3:])
    elif len(given) == ndim * ndim > 1:
        given = given.reshape(ndim, ndim)
    domain = Box(given, origin=corner, periodic=True if flags is None else flags)
    _check_near(corner, domain)
    return domain, "from --box"


def _check_near(corner: np.ndarray | None, box: Box) -> None:
    """Raise an error if positions in a box whose origin was given would have no digits for its lengths."""
    if corner is not None and abs(corner).max() > FARTHEST * edges_of(box).min():
        raise ValueError(
            f"--origin is {','.join(f'{x:g}' for x in corner)}, too far for lengths of {edges_of(box).min():g}."
        )


def edges_of(box: Box) -> np.ndarray:
    """Return the lengths of the lattice vectors, also of those whose squares are beyond double precision."""
    return np.array([math.hypot(*row) for row in box.matrix.tolist()])


def mesh_of(box: Box, shape: str | None, spacing: str | None, offset: float) -> tuple[Mesh, str]:
    """Return the mesh of a box, and why it has these nodes."""
    edges = edges_of(box)
    ndim = box.ndim
    if shape is not None and spacing is not None:
        raise ValueError("--shape and --spacing are both given: give one of them.")
    if shape is not None:
        try:
            nodes = [int(word) for word in shape.replace("x", ",").split(",")]
        except ValueError:
            nodes = []
        if len(nodes) not in (1, ndim) or min(nodes) < 1:
            raise ValueError(f"--shape is {shape!r}; give 1 or {ndim} numbers of nodes, such as 64 or 64,64,32.")
        nodes, why = nodes * (ndim // len(nodes)), "given"
    else:
        if spacing is not None:
            step, why = numbers(spacing, "--spacing", (1, ndim)), f"for spacing up to {spacing}"
            if not (step > 0).all():
                raise ValueError(f"--spacing is {spacing!r}; give lengths above 0.")
        else:
            step, why = np.array([edges.max() / LONGEST]), f"{LONGEST} along the longest axis by default"
        if (edges / step > 2**31 - 2).any():
            raise ValueError(f"--spacing is {spacing!r}; the box has edges {edges.tolist()}: give a larger one.")
        between = np.ceil(edges / step * (1 - 1e-12)).astype(np.int64)
        ends = [0 if repeats or offset == 0.5 else 1 for repeats in box.periodic]  # open axes have nodes on both faces
        nodes = [max(1, int(n)) + more for n, more in zip(between, ends, strict=True)]
    if math.prod(nodes) > MOST_NODES:
        raise ValueError(f"the mesh has {' x '.join(map(str, nodes))} nodes; up to {MOST_NODES:,} are allowed.")
    return Mesh(nodes, box, offset=offset), why


def window_named(name: str, order: int | None) -> Window:
    """Return a window by its name and, for families, its order."""
    full = name if order is None else f"{name}{order}"
    if full in WINDOWS:
        return window_of(full)
    families = sorted({key.rstrip("0123456789") for key in WINDOWS if key[-1].isdigit() and key != "peskin4"})
    if order is None and name in families:
        raise ValueError(f"--window is {name!r}, which has many orders: give --order, such as 4.")
    named = name if order is None else f"{name} --order {order}"
    single = [key for key in WINDOWS if key.rstrip("0123456789") not in families]
    raise ValueError(f"--window is {named}; give {', '.join(single)}, or one of {', '.join(families)} with --order.")


def summing(window: Window) -> Window:
    """Return a window whose weights sum to 1 at every particle, so that sums are kept and constants reproduced."""
    sums = window.weights(np.linspace(-0.5, 0.5, 33)).sum(axis=-1)
    if abs(sums - 1).max() > 1e-6:
        raise ValueError(
            f"--window is {window.name}, whose weights sum to {sums.mean():.4g}: sums would not be conserved. "
            "Give a B-spline, m4prime or peskin4."
        )
    return window


def frames_of(particles: files.Particles, text: str) -> tuple[int, ...]:
    """Return frames from a number, a slice such as 10:20:2, or all."""
    try:
        if text == "all" or ":" in text:
            words = ["", ""] if text == "all" else text.split(":")
            chosen = range(particles.frames)[slice(*(int(word) if word else None for word in words))]
        else:
            number = int(text)
            chosen = range(number, number + 1)
            if not -particles.frames <= number < particles.frames:
                chosen = range(0)
    except (ValueError, TypeError):
        raise ValueError(f"--frames is {text!r}; give a number, a slice such as 10:20:2, or all.") from None
    if not chosen:
        raise ValueError(f"--frames is {text!r}, but {particles.path} has {particles.frames}: give some of 0 to "
                         f"{particles.frames - 1}, or -1 for the last.")  # fmt: skip
    return tuple(chosen)


def one_frame(particles: files.Particles, text: str) -> int:
    """Return a single frame."""
    frames = frames_of(particles, text)
    if len(frames) > 1:
        raise ValueError(f"--frames is {text!r}, which are {len(frames)} frames; give one number here.")
    return frames[0]


# ---- pictures ---------------------------------------------------------------------------------------------


def _check_picture(o: Any, stated: set[str], ndim: int | None = None) -> None:
    """Raise errors of the options of a picture before anything is computed; ``ndim`` is None before it is known."""
    refuse_idle(stated, "kind axis at level scale", o.picture is not None, "this needs --picture")
    if o.picture is not None:
        pictures.check_picture(o.picture, o.kind, o.scale)
        refuse_idle(stated, "kind axis at level", ndim in (None, 3), "this needs a mesh with 3 axes")
        refuse_idle(stated, "at", o.kind == "slice", "it needs --kind slice")
        refuse_idle(stated, "level", o.kind == "isosurface", "it needs --kind isosurface")
        refuse_idle(stated, "axis scale", o.kind != "isosurface", "an isosurface has neither")


@contextlib.contextmanager
def _drawn(o: Any, draw: Callable[[Path], None]) -> Iterator[None]:
    """Draw a picture, if one is asked for; it appears after the other outputs, which the caller writes inside.

    Drawing comes first, since it may fail.
    """
    if o.picture is None:
        yield
        return
    with files.replacing(o.picture, overwrite=True) as part:
        draw(part)
        yield


# ---- lines of the report: a label and its text ----------------------------------------------------------


def _say_particles(
    console: Any, command: str, particles: files.Particles, frames: tuple[int, ...], account: files.Account
) -> None:
    """Print the command, the number of particles, and which columns were taken of those that the file has."""
    console.print(f"particlemesh {command} {particles.path}\n", markup=False, soft_wrap=True)
    some = f"frame {frames[0]}" if len(frames) == 1 else f"{len(frames)} frames"
    of = "" if particles.frames == 1 else f" in {some} of {particles.frames}"
    values = ", ".join(particles.values) if particles.values else f"{particles.constant:g} for each"
    text = f"{account.particles:,}{of}, {account.dtype}; positions: {', '.join(particles.positions)}; values: {values}"
    rest = [name for name in particles.columns if name not in (*particles.positions, *particles.values)]
    say(console, "particles", files.plain(text))
    for note in particles.notes:
        say(console, "", note)
    if rest:
        say(console, "", files.plain(f"also in the file: {', '.join(rest)}"), "dim")


def _say_box(console: Any, box: Box, origin: str, unit: str | None) -> None:
    """Print a box and where it is from."""
    lengths = " x ".join(f"{n:.6g}" for n in edges_of(box)) + (f" {unit}" if unit else "")
    shape = "" if box.orthorhombic else ", triclinic"
    repeats = "".join(axis for axis, repeated in zip("xyz", box.periodic, strict=False) if repeated)
    axes = f"periodic along {repeats}" if repeats else "open"
    if repeats and not all(box.periodic):
        axes += f", open along {''.join(a for a, p in zip('xyz', box.periodic, strict=False) if not p)}"
    say(console, "box", f"{lengths}{shape}, {axes}, {origin}")


def _called(o: Any, window: Window) -> str:
    """Return the name that a window was given, and its other name if there is one."""
    name = o.window if o.order is None else f"{o.window}{o.order}"
    return name if name == window.name else f"{name} ({window.name})"


def _say_mesh(console: Any, mesh: Mesh, why: str, called: str, window: Window) -> None:
    """Print a mesh and a window."""
    nodes = " x ".join(map(str, mesh.shape))
    spacing = ", ".join(f"{h:.6g}" for h in sorted(set(mesh.spacing.tolist())))
    say(console, "mesh", f"{nodes} nodes ({why}), spacing {spacing}")
    say(console, "window", f"{called}, support {window.support}")


def _say_method(console: Any, account: files.Account, direction: str) -> None:
    """Print the method that a plan chose, and why."""
    rows = _methods(account.explanation, direction)
    chosen = next((row for row in rows if row[0] == "*"), None)
    if chosen is None:
        say(console, "method", f"on {account.device}")
        return
    _, name, number, unit, how = chosen
    others = [f"; next is {row[1]} with {row[2]} {row[3]}" for row in rows if row is not chosen]
    say(console, "method", f"{name} on {account.device}: {how} {number} {unit}{''.join(others[:1])}")


def _methods(explanation: str, direction: str) -> list[tuple[str, ...]]:
    """Return mark, name, time, unit and "measured" of the methods of a direction that are able, the fastest first."""
    part = re.search(rf"^{direction} .*\n(?:[* ].*\n?)*", explanation, re.MULTILINE)
    return sorted(METHOD.findall(part[0] if part else ""), key=lambda row: float(row[2]) * SECONDS[row[3]])


def _say_sums(console: Any, account: files.Account, field_sum: np.ndarray, mesh: Mesh) -> None:
    """Print the sum of the values, that of the field, and what was lost beyond open faces."""
    values, lost = np.atleast_1d(account.values), np.atleast_1d(account.lost)
    field_sum = np.atleast_1d(field_sum)
    several = len(values) > 1
    for k, total in enumerate(values):
        name = f" {k}" if several else ""
        say(console, f"sum{name}", f"values {_number(total)}, field {_number(field_sum[k])}")
        if not all(mesh.periodic):
            part = f" ({abs(lost[k] / total):.2%})" if total else ""
            gap = total - lost[k] - field_sum[k]
            say(console, "", f"lost beyond open faces {_number(lost[k])}{part}, not accounted for {abs(gap):.1e}")
            if account.beyond:
                say(console, "", f"{account.beyond:,} particles were beyond open faces")
        else:
            say(console, "", f"difference {abs(total - field_sum[k]):.1e}: spreading conserves the sum")


def _number(x: Any) -> str:
    return f"{x:.10g}" if not np.iscomplexobj(x) else f"{x.real:.8g}{x.imag:+.8g}j"


def _say_time(console: Any, account: files.Account) -> None:
    """Print how long the computation took, the rate, and how long the first call took that compiled or loaded code."""
    rate = account.particles / account.seconds if account.seconds > 0 else 0.0
    how = f"{progress.quantity(rate)} particles/s, without files; {account.start:.3g} s to compile or load"
    say(console, "time", f"{account.seconds:.3g} s, {how}")
