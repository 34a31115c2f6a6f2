# SPDX-License-Identifier: BSD-3-Clause
"""The commands on files: ``spread``, ``interpolate``, ``neighbours``, ``spectrum`` and ``view``."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Box, Mesh
from particlemesh.apps import files, progress
from particlemesh.apps.files.accumulate import power_factors
from particlemesh.command import file_options as options
from particlemesh.command import pictures, view
from particlemesh.command.consoles import check_backend, check_choice, check_outputs, refuse_idle, say, table
from particlemesh.fourier import Spectrum, Transform, binned_power
from particlemesh.window import Window

ROWS = 12  # of the table of a spectrum
METHOD = re.compile(r"^(?P<chosen>[* ]) (?P<name>\w+) .*?(?P<total>[\d.e+-]+ (us|ms|s))  +[\d.]+ \wiB +(?P<how>.+)$")


def _check(o: Any) -> None:
    check_backend(o.backend)
    check_choice("dtype", o.dtype, ("float32", "float64"))
    check_choice("outside", getattr(o, "outside", None), ("error", "lose"))


def spread(console: Any, stated: set[str], o: Any) -> None:
    """Spread the particles of a file and write the field."""
    _check(o)
    _check_picture(o, stated)
    check_outputs((o.file, o.topology), {"--out": o.out, "--picture": o.picture}, o.overwrite)
    shape_function = options.summing(options.window_named(o.window, o.order))
    with files.open_particles(o.file, positions=o.positions, values=o.values, topology=o.topology) as particles:
        chosen = options.frames_of(particles, o.frames)
        domain, where = options.box_of(particles, chosen, o.box, o.origin, o.periodic, o.chunk, o.dtype)
        mesh, why = options.mesh_of(domain, o.shape, o.spacing, o.offset)
        files.check_field(o.out, mesh, particles.components, float, o.overwrite)
        _check_picture(o, stated, mesh.ndim)
        refuse_idle(stated, "outside", not all(mesh.periodic), "the box is periodic along all axes")
        total = None if particles.count is None else particles.count * len(chosen)
        with progress.bar("spreading", total, console) as advance:
            field, account = files.spread_particles(
                particles, mesh, shape_function, frames=chosen, size=o.chunk, progress=advance, dtype=o.dtype,
                backend=o.backend, method=o.method, deterministic=o.deterministic, outside=o.outside,
            )  # fmt: skip
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
        real, shown = _real(files.Field(field, mesh, name))
        with _drawn(o, lambda path: pictures.save_picture(path, real, mesh, name=shown, **drawing)):
            files.write_field(o.out, field, mesh, name=name, overwrite=o.overwrite)
        _say_particles(console, "spread", particles, chosen, account)
        _say_box(console, domain, where, particles.unit)
    _say_mesh(console, mesh, why, shape_function)
    _say_method(console, account, "spread")
    _say_sums(console, account, sums, mesh)
    _say_time(console, account)
    mean = f", mean of {len(chosen)} frames" if len(chosen) > 1 else ""
    _say_written(console, o.out, f"{name}, {'values per volume' if o.density else 'sums at nodes'}{mean}")
    if o.picture is not None:
        _say_written(console, o.picture, f"picture, {o.kind}" if mesh.ndim == 3 else "picture")


def interpolate(console: Any, stated: set[str], o: Any) -> None:
    """Interpolate a field at the particles of a file and write a table."""
    _check(o)
    check_outputs((o.file, o.topology, o.field), {"--out": o.out}, o.overwrite)
    shape_function = options.summing(options.window_named(o.window, o.order))
    files.check_table(o.out, o.overwrite)
    values, mesh, name = files.read_field(o.field)
    refuse_idle(stated, "outside", not all(mesh.periodic), "the mesh is periodic along all axes")
    account = files.Account()
    low, high, total = np.inf, -np.inf, 0.0
    with files.open_particles(o.file, positions=o.positions, topology=o.topology) as particles:
        frame = options.one_frame(particles, o.frames)
        if particles.ndim != mesh.ndim:
            raise ValueError(
                f"{o.file} has positions of {particles.ndim} axes and {o.field} {mesh.ndim}: give --positions."
            )
        with (
            files.writing_table(o.out, o.overwrite) as rows,
            progress.bar("interpolating", particles.count, console) as advance,
        ):
            for part, results, slope in files.interpolate_particles(
                particles, values, mesh, shape_function, frame=frame, size=o.chunk, gradient=o.gradient, dtype=o.dtype,
                account=account, outside=o.outside, backend=o.backend, interpolation=o.method,
            ):  # fmt: skip
                columns = {"position": part.positions, "value": _rows(results)}
                if slope is not None:
                    columns["gradient"] = _rows(slope, 2)
                rows.append(columns)
                size = abs(results) if np.iscomplexobj(results) else results
                low, high, total = min(low, size.min()), max(high, size.max()), total + size.sum(dtype=np.float64)
                advance(len(part.positions))
        _say_particles(console, "interpolate", particles, (frame,), account)
    say(console, "field", f"{name} of {o.field}, {values.dtype}")
    _say_box(console, mesh.box, "from the field", None)
    _say_mesh(console, mesh, "from the field", shape_function)
    _say_method(console, account, "interpolate")
    what = "magnitudes" if np.iscomplexobj(values) else "values"
    mean = total / account.particles / max(1, values.size // mesh.size)
    say(console, what, f"{low:.6g} to {high:.6g}, mean {mean:.6g}")
    if not all(mesh.periodic):
        beyond = float(np.real(account.lost))
        say(console, "", f"weight beyond open faces: that of {beyond:.6g} particles")
    _say_time(console, account)
    _say_written(console, o.out, "position, value" + (", gradient" if o.gradient else ""))


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
    if o.out is not None:
        files.check_table(o.out, o.overwrite)
    with files.open_particles(o.file, positions=o.positions, topology=o.topology) as particles:
        frame = options.one_frame(particles, o.frames)
        domain, where = options.box_of(particles, (frame,), o.box, o.origin, o.periodic, o.chunk)
        refuse_idle(stated, "origin", not all(domain.periodic), "pairs in a periodic box do not depend on the origin")
        account, total, sides, parts = files.Account(), 0, 0, 0
        low, high, fewest, most = np.inf, 0.0, np.iinfo(np.int64).max, 0
        writing = contextlib.nullcontext() if o.out is None else files.writing_table(o.out, o.overwrite)
        with _advised(), writing as rows, progress.bar("searching", particles.count, console) as advance:
            for pairs, counts in files.particles_pairs(
                particles, domain, o.radius, "".join(dict.fromkeys(f"{o.quantities}d")), frame=frame, size=o.chunk,
                half=o.half, backend=o.backend, progress=advance, account=account,
                folder=None if o.out is None else o.out.parent,
            ):  # fmt: skip
                if rows is not None:
                    rows.append({letter: pairs[letter] for letter in o.quantities})
                total, parts = total + len(pairs["d"]), parts + 1
                sides, fewest, most = sides + counts.sum(), min(fewest, counts.min()), max(most, counts.max())
                if len(pairs["d"]):
                    low, high = min(low, pairs["d"].min()), max(high, pairs["d"].max())
        _say_particles(console, "neighbours", particles, (frame,), account)
        _say_box(console, domain, where, particles.unit)
    how = "each pair once" if o.half else "each pair from both sides"
    say(console, "pairs", f"{total:,} within {o.radius:g}, {how}")
    slabs = f", in {parts} slabs" if parts > 1 else ""
    say(console, "cells", f"fitted to particles and radius, on {o.backend or 'cpu'}{slabs}")
    mean = sides / account.particles
    say(console, "neighbours", f"{mean:.6g} on average, {fewest} to {most} per particle")
    if total:
        say(console, "distances", f"{low:.6g} to {high:.6g}")
    _say_time(console, account)
    if o.out is not None:
        _say_written(console, o.out, ", ".join(o.quantities))


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    """Say what takes less memory, where pairs take more than there is."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{error} Give a smaller --chunk or --radius.") from error


def spectrum(console: Any, stated: set[str], o: Any) -> None:
    """Print and write the power spectrum of the particles of a file, or of a field."""
    _check(o)
    if o.picture is not None:
        pictures.check_picture(o.picture)
    refuse_idle(stated, "overwrite", bool(o.out or o.picture), "it needs --out or --picture")
    check_outputs((o.file, o.topology), {"--out": o.out, "--picture": o.picture}, o.overwrite)
    if o.out is not None:
        files.check_table(o.out, o.overwrite)
    if o.of_field:
        of_particles = "positions values topology frames box origin shape spacing interlaced dtype method chunk"
        refuse_idle(stated, of_particles, False, "with --field there are no particles")
        spread_by = options.window_named(o.window, o.order) if stated & {"window", "order"} else None
        refuse_idle(
            stated, "compensation", spread_by is not None, "it needs the --window that the field was spread with"
        )
        field = files.read_field(o.file)
        began = time.perf_counter()
        power = field_power(field, spread_by, o.compensation, o.backend)
        seconds = time.perf_counter() - began
        console.print(f"particlemesh spectrum {o.file}\n", markup=False, soft_wrap=True)
        say(console, "field", f"{field.name}, {field.values.dtype}; its power, not that of its contrast")
        _say_box(console, field.mesh.box, "from the field", None)
        none = "none: give the --window that it was spread with"
        say(console, "modes", f"compensation: {f'{o.compensation}, {spread_by.name}' if spread_by else none}")
    else:
        shape_function = options.window_named(o.window, o.order)
        with files.open_particles(o.file, positions=o.positions, values=o.values, topology=o.topology) as particles:
            frame = options.one_frame(particles, o.frames)
            domain, where = options.box_of(particles, (frame,), o.box, o.origin, None, o.chunk, o.dtype)
            mesh, why = options.mesh_of(domain, o.shape, o.spacing, 0.0)
            account = files.Account()
            with progress.bar("spreading", particles.count, console) as advance:
                power = files.particles_spectrum(
                    particles, mesh, shape_function, frame=frame, size=o.chunk, interlaced=o.interlaced,
                    compensation=o.compensation, progress=advance, dtype=o.dtype, account=account, backend=o.backend,
                    method=o.method,
                )  # fmt: skip
            _say_particles(console, "spectrum", particles, (frame,), account)
            _say_box(console, domain, where, particles.unit)
        _say_mesh(console, mesh, why, shape_function)
        means = "interlaced, on two meshes: the nearest aliases cancel"
        means = means if o.interlaced else "not interlaced: aliases remain"
        _say_method(console, account, "spread")
        say(console, "modes", f"{means}; compensation: {o.compensation}")
        say(console, "shot noise", f"{power.shot_noise[power.modes > 0][:1].mean():.6g}, included in the power")
    with _drawn(o, lambda path: pictures.save_spectrum(path, power.k, power.power, power.shot_noise)):
        if o.out is not None:
            with files.writing_table(o.out, o.overwrite) as rows:
                rows.append({
                    "k": power.k, "power": power.power, "modes": power.modes, "shot_noise": power.shot_noise,
                    "k_low": power.edges[:-1], "k_high": power.edges[1:],
                })  # fmt: skip
    if o.of_field:
        say(console, "time", f"{seconds:.3g} s with compiling or loading, for {field.mesh.size:,} nodes")
    else:
        _say_time(console, account)
    if o.out is not None:
        _say_written(console, o.out, "k, power, modes, shot_noise, k_low, k_high")
    if o.picture is not None:
        _say_written(console, o.picture, "picture")
    console.print()
    console.print(_spectrum_table(power))


def field_power(field: files.Field, window: Window | None, compensation: str, backend: str | None) -> Spectrum:
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
    return binned_power(transform, power)


def _spectrum_table(power: Spectrum) -> Any:
    rows = table(">k", ">power", ">shot noise", ">modes")
    there = np.flatnonzero(power.modes)
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(ROWS, len(there))).round().astype(int))]
    for n in chosen:
        noise = f"{power.shot_noise[n]:.6g}"
        rows.add_row(f"{power.k[n]:.6g}", f"{power.power[n]:.6g}", noise, f"{power.modes[n]:,.6g}")
    return rows


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


def _real(field: files.Field) -> tuple[np.ndarray, str]:
    """Return one real field and its name: the magnitude of complex values, the first of several components."""
    values, name = field.values, field.name
    if values.ndim > field.mesh.ndim:
        values, name = values.reshape(-1, *field.mesh.shape)[0], f"{name}[0]"
    return (np.abs(values), f"|{name}|") if np.iscomplexobj(values) else (values, name)


def show(console: Any, file: Path, out: Path | None, level: float | None) -> None:
    """Show the field of a file in a window or on a page."""
    view.pyvista()  # before a large file is read
    check_outputs((file,), {"--out": out})
    if file.suffix.lower() == ".vti":
        shown = view.read_vti(file)
    else:
        field = files.read_field(file)
        values, name = _real(field)
        shown = view.Shown(values, field.mesh, name)
    refuse_idle({"level"} if level is not None else set(), "level", shown.mesh.ndim == 3, "a surface needs 3 axes")
    page = view.show(shown, out, level=level)
    if page is not None:
        _say_written(console, page, "a page that any browser shows")


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
    lengths = " x ".join(f"{n:.6g}" for n in np.linalg.norm(box.matrix, axis=1)) + (f" {unit}" if unit else "")
    shape = "" if box.orthorhombic else ", triclinic"
    repeats = "".join(axis for axis, repeated in zip("xyz", box.periodic, strict=False) if repeated)
    axes = f"periodic along {repeats}" if repeats else "open"
    if repeats and not all(box.periodic):
        axes += f", open along {''.join(a for a, p in zip('xyz', box.periodic, strict=False) if not p)}"
    say(console, "box", f"{lengths}{shape}, {axes}, {origin}")


def _say_mesh(console: Any, mesh: Mesh, why: str, window: Window) -> None:
    """Print a mesh and a window."""
    nodes = " x ".join(map(str, mesh.shape))
    spacing = ", ".join(f"{h:.6g}" for h in sorted(set(mesh.spacing.tolist())))
    say(console, "mesh", f"{nodes} nodes ({why}), spacing {spacing}")
    say(console, "window", f"{window.name}, support {window.support}")


def _say_method(console: Any, account: files.Account, direction: str) -> None:
    """Print the method that a plan chose, and why."""
    rows = _methods(account.explanation, direction)
    chosen = next((row for row in rows if row["chosen"] == "*"), None)
    if chosen is None:
        say(console, "method", f"on {account.device}")
        return
    others = [row for row in rows if row is not chosen]
    reason = f"{chosen['how']} {chosen['total']}"
    if others:
        reason += f"; next is {others[0]['name']} with {others[0]['total']}"
    say(console, "method", f"{chosen['name']} on {account.device}: {reason}")


def _methods(explanation: str, direction: str) -> list[dict[str, str]]:
    """Return the methods of a direction that are able, the fastest first."""
    rows, inside = [], False
    for line in explanation.splitlines():
        if line[:1] not in ("*", " "):
            inside = line.split(maxsplit=1)[:1] == [direction]
        elif inside and (match := METHOD.match(line)):
            rows.append(match.groupdict())
    return sorted(rows, key=_seconds)


def _seconds(row: dict[str, str]) -> float:
    number, unit = row["total"].split()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


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
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    quantity = next((f"{rate / limit:.3g} {unit}" for limit, unit in units if rate >= limit), f"{rate:.3g}")
    text = f"{account.seconds:.3g} s, {quantity} particles/s, without files; {account.start:.3g} s to compile or load"
    say(console, "time", text)


def _say_written(console: Any, path: Path, what: str) -> None:
    """Print where the result is."""
    say(console, "written", f"{path} ({path.stat().st_size / 2**20:.3g} MiB): {what}")
