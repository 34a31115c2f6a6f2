# SPDX-License-Identifier: BSD-3-Clause
"""What ``particlemesh spread``, ``interpolate``, ``neighbours`` and ``spectrum`` do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from particlemesh import backends
from particlemesh.apps import files, progress
from particlemesh.apps.files.power import power_factors
from particlemesh.command import file_options as options
from particlemesh.command import file_report as report
from particlemesh.command.consoles import check_outputs, refuse_idle
from particlemesh.command.file_pictures import Picture
from particlemesh.command.report import _table
from particlemesh.fourier import Spectrum, Transform, binned_power
from particlemesh.window import Window

ROWS = 12  # of the table of a spectrum


def spread(
    console: Console, stated: set[str], file: Path, out: Path, *, positions: str | None, values: str | None,
    topology: Path | None, frames: str, box: str | None, origin: str | None, periodic: str | None, shape: str | None,
    spacing: str | None, offset: float, window: str, order: int | None, density: bool, dtype: str | None,
    backend: str | None, method: str, deterministic: bool, outside: str, chunk: int, picture: Path | None, kind: str,
    axis: str, at: float | None, level: float | None, scale: str, overwrite: bool,
) -> files.Field:  # fmt: skip
    """Spread the particles of a file and write the field.

    Raises
    ------
    ImportError, ValueError, TypeError, OSError
        If an option is not allowed or a file cannot be read or written.
    """
    check_backend(backend)
    check_dtype(dtype)
    check_outside(outside)
    drawn = Picture(picture, kind, axis, at, level, scale)
    drawn.check(stated)
    check_outputs((file, topology), {"--out": out, "--picture": picture}, overwrite)
    shape_function = options.summing(options.window_named(window, order))
    with files.open_particles(file, positions=positions, values=values, topology=topology) as particles:
        chosen = options.frames_of(particles, frames)
        domain, where = options.box_of(particles, chosen, box, origin, periodic, chunk, dtype)
        mesh, why = options.mesh_of(domain, shape, spacing, offset)
        files.check_field(out, mesh, particles.components, float, overwrite)
        drawn.check(stated, mesh.ndim)
        refuse_idle(stated, "outside", not all(mesh.periodic), "the box repeats along all axes")
        total = None if particles.count is None else particles.count * len(chosen)
        with progress.bar("spreading", total, console) as advance:
            field, account = files.spread_particles(
                particles, mesh, shape_function, frames=chosen, size=chunk, progress=advance, dtype=dtype,
                backend=backend, method=method, deterministic=deterministic, outside=outside,
            )  # fmt: skip
        axes = tuple(range(field.ndim - mesh.ndim, field.ndim))
        double = np.complex128 if np.iscomplexobj(field) else np.float64
        with np.errstate(all="ignore"):
            sums = field.sum(axis=axes, dtype=double)
            if density:
                field /= mesh.node_volume
        if not np.isfinite(field).all() or not np.isfinite(sums).all():
            advice = "Give --dtype float64" if field.dtype.itemsize < double().itemsize else "Choose another unit"
            raise ValueError(f"the field or its sum is not finite: values are too large for {field.dtype}. {advice}.")
        name = "density" if density else "field"
        result = files.Field(field, mesh, name)
        with drawn.of_field(result, particles.unit):
            files.write_field(out, field, mesh, name=name, overwrite=overwrite)
        console.print(f"particlemesh spread {file}\n", markup=False, soft_wrap=True)
        report.say_particles(console, particles, chosen, account.particles, account.dtype)
        report.say_box(console, domain, where, particles.unit)
    report.say_mesh(console, mesh, why, shape_function)
    report.say_method(console, account, "spread")
    report.say_sums(console, account, sums, mesh)
    report.say_time(console, account.seconds, account.particles, account.start)
    mean = f", mean of {len(chosen)} frames" if len(chosen) > 1 else ""
    report.say_written(console, out, f"{name}, {'values per volume' if density else 'sums at nodes'}{mean}")
    drawn.say(console, mesh.ndim)
    return result


def interpolate(
    console: Console, stated: set[str], file: Path, field: Path, out: Path, *, positions: str | None,
    topology: Path | None, frames: str, window: str, order: int | None, gradient: bool, dtype: str | None,
    backend: str | None, method: str, outside: str, chunk: int, overwrite: bool,
) -> None:  # fmt: skip
    """Interpolate a field at the particles of a file and write a table.

    Raises
    ------
    ImportError, ValueError, TypeError, OSError
        If an option is not allowed or a file cannot be read or written.
    """
    check_backend(backend)
    check_dtype(dtype)
    check_outside(outside)
    check_outputs((file, topology, field), {"--out": out}, overwrite)
    shape_function = options.summing(options.window_named(window, order))
    files.check_table(out, overwrite)
    values, mesh, name = files.read_field(field)
    refuse_idle(stated, "outside", not all(mesh.periodic), "the mesh repeats along all axes")
    account = files.Account()
    low, high, total = np.inf, -np.inf, 0.0
    with files.open_particles(file, positions=positions, topology=topology) as particles:
        frame = options.one_frame(particles, frames)
        if particles.ndim != mesh.ndim:
            raise ValueError(
                f"{file} has positions of {particles.ndim} axes and {field} {mesh.ndim}: give --positions."
            )
        with (
            files.writing_table(out, overwrite) as table,
            progress.bar("interpolating", particles.count, console) as advance,
        ):
            for part, results, slope in files.interpolate_particles(
                particles, values, mesh, shape_function, frame=frame, size=chunk, gradient=gradient, dtype=dtype,
                account=account, outside=outside, backend=backend, interpolation=method,
            ):  # fmt: skip
                columns = {"position": part.positions, "value": _rows(results)}
                if slope is not None:
                    columns["gradient"] = _rows(slope, 2)
                table.append(columns)
                size = abs(results) if np.iscomplexobj(results) else results
                low, high, total = min(low, size.min()), max(high, size.max()), total + size.sum(dtype=np.float64)
                advance(len(part.positions))
        console.print(f"particlemesh interpolate {file}\n", markup=False, soft_wrap=True)
        report.say_particles(console, particles, (frame,), account.particles, account.dtype)
    report.say(console, "field", f"{name} of {field}, {values.dtype}")
    report.say_box(console, mesh.box, "from the field", None)
    report.say_mesh(console, mesh, "from the field", shape_function)
    report.say_method(console, account, "interpolate")
    what = "magnitudes" if np.iscomplexobj(values) else "values"
    mean = total / account.particles / max(1, values.size // mesh.size)
    report.say(console, what, f"{low:.6g} to {high:.6g}, mean {mean:.6g}")
    if not all(mesh.periodic):
        beyond = float(np.real(account.lost))
        report.say(console, "", f"weight beyond open faces: that of {beyond:.6g} particles")
    report.say_time(console, account.seconds, account.particles, account.start)
    report.say_written(console, out, "position, value" + (", gradient" if gradient else ""))


def _rows(results: np.ndarray, axes: int = 1) -> np.ndarray:
    """Return results (..., n) or, with axes = 2, (..., n, d), as rows (n,) or (n, c), each of d numbers."""
    batch, rest = results.shape[: results.ndim - axes], results.shape[results.ndim - axes :]
    flat = results.reshape(-1, *rest)
    return np.ascontiguousarray(np.moveaxis(flat, 0, 1)) if batch else results


def neighbours(
    console: Console, stated: set[str], file: Path, out: Path | None, radius: float, *, positions: str | None,
    topology: Path | None, frames: str, box: str | None, origin: str | None, periodic: str | None, quantities: str,
    half: bool, backend: str | None, chunk: int, overwrite: bool,
) -> None:  # fmt: skip
    """List the pairs of particles within a radius, and write them as a table.

    Raises
    ------
    ImportError, ValueError, TypeError, OSError
        If an option is not allowed or a file cannot be read or written.
    """
    check_backend(backend)
    if not set(quantities) <= set("ijdDS") or not quantities or len(set(quantities)) < len(quantities):
        raise ValueError(f"--quantities is {quantities!r}; give letters of ijdDS, each at most once.")
    refuse_idle(stated, "quantities overwrite", out is not None, "this needs --out")
    check_outputs((file, topology), {"--out": out}, overwrite)
    if out is not None:
        files.check_table(out, overwrite)
    with files.open_particles(file, positions=positions, topology=topology) as particles:
        frame = options.one_frame(particles, frames)
        domain, where = options.box_of(particles, (frame,), box, origin, periodic, chunk)
        refuse_idle(stated, "origin", not all(domain.periodic), "pairs of a box that repeats have no origin")
        account, total, sides, parts = files.Account(), 0, 0, 0
        low, high, fewest, most = np.inf, 0.0, np.iinfo(np.int64).max, 0
        writing = contextlib.nullcontext() if out is None else files.writing_table(out, overwrite)
        with _advised(), writing as table, progress.bar("searching", particles.count, console) as advance:
            for pairs, counts in files.particles_pairs(
                particles, domain, radius, "".join(dict.fromkeys(f"{quantities}d")), frame=frame, size=chunk, half=half,
                backend=backend, progress=advance, account=account, folder=None if out is None else out.parent,
            ):  # fmt: skip
                if table is not None:
                    table.append({letter: pairs[letter] for letter in quantities})
                total, parts = total + len(pairs["d"]), parts + 1
                sides, fewest, most = sides + counts.sum(), min(fewest, counts.min()), max(most, counts.max())
                if len(pairs["d"]):
                    low, high = min(low, pairs["d"].min()), max(high, pairs["d"].max())
        console.print(f"particlemesh neighbours {file}\n", markup=False, soft_wrap=True)
        report.say_particles(console, particles, (frame,), account.particles, account.dtype)
        report.say_box(console, domain, where, particles.unit)
    how = "each pair once" if half else "each pair from both sides"
    report.say(console, "pairs", f"{total:,} within {radius:g}, {how}")
    slabs = f", in {parts} slabs" if parts > 1 else ""
    report.say(console, "cells", f"fitted to particles and radius, on {backend or 'cpu'}{slabs}")
    mean = sides / account.particles
    report.say(console, "neighbours", f"{mean:.6g} on average, {fewest} to {most} per particle")
    if total:
        report.say(console, "distances", f"{low:.6g} to {high:.6g}")
    report.say_time(console, account.seconds, account.particles, account.start)
    if out is not None:
        report.say_written(console, out, ", ".join(quantities))


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    """Say what takes less memory, where pairs take more than there is."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{error} Give a smaller --chunk or --radius.") from error


def spectrum(
    console: Console, stated: set[str], file: Path, out: Path | None, *, of_field: bool, positions: str | None,
    values: str | None, topology: Path | None, frames: str, box: str | None, origin: str | None, shape: str | None,
    spacing: str | None, window: str, order: int | None, interlaced: bool, compensation: str, dtype: str | None,
    backend: str | None, method: str, chunk: int, picture: Path | None, overwrite: bool,
) -> None:  # fmt: skip
    """Print and write the power spectrum of the particles of a file, or of a field.

    Raises
    ------
    ImportError, ValueError, TypeError, OSError
        If an option is not allowed or a file cannot be read or written.
    """
    check_backend(backend)
    check_dtype(dtype)
    drawn = Picture(picture)
    drawn.check(set())
    refuse_idle(stated, "overwrite", bool(out or picture), "it needs --out or --picture")
    check_outputs((file, topology), {"--out": out, "--picture": picture}, overwrite)
    if out is not None:
        files.check_table(out, overwrite)
    if of_field:
        of_particles = "positions values topology frames box origin shape spacing interlaced dtype method chunk"
        refuse_idle(stated, of_particles, False, "with --field there are no particles")
        spread_by = options.window_named(window, order) if stated & {"window", "order"} else None
        refuse_idle(
            stated, "compensation", spread_by is not None, "it needs the --window that the field was spread with"
        )
        field = files.read_field(file)
        began = time.perf_counter()
        power = field_power(field, spread_by, compensation, backend)
        seconds = time.perf_counter() - began
        console.print(f"particlemesh spectrum {file}\n", markup=False, soft_wrap=True)
        report.say(console, "field", f"{field.name}, {field.values.dtype}; its power, not that of its contrast")
        report.say_box(console, field.mesh.box, "from the field", None)
        none = "none: give the --window that it was spread with"
        report.say(console, "modes", f"compensation: {f'{compensation}, {spread_by.name}' if spread_by else none}")
    else:
        shape_function = options.window_named(window, order)
        with files.open_particles(file, positions=positions, values=values, topology=topology) as particles:
            frame = options.one_frame(particles, frames)
            domain, where = options.box_of(particles, (frame,), box, origin, None, chunk, dtype)
            mesh, why = options.mesh_of(domain, shape, spacing, 0.0)
            account = files.Account()
            with progress.bar("spreading", particles.count, console) as advance:
                power = files.particles_spectrum(
                    particles, mesh, shape_function, frame=frame, size=chunk, interlaced=interlaced,
                    compensation=compensation, progress=advance, dtype=dtype, account=account, backend=backend,
                    method=method,
                )  # fmt: skip
            console.print(f"particlemesh spectrum {file}\n", markup=False, soft_wrap=True)
            report.say_particles(console, particles, (frame,), account.particles, account.dtype)
            report.say_box(console, domain, where, particles.unit)
        report.say_mesh(console, mesh, why, shape_function)
        means = (
            "interlaced, on two meshes: the nearest aliases cancel" if interlaced else "not interlaced: aliases remain"
        )
        report.say_method(console, account, "spread")
        report.say(console, "modes", f"{means}; compensation: {compensation}")
        report.say(console, "shot noise", f"{power.shot_noise[power.modes > 0][:1].mean():.6g}, included in the power")
    with drawn.of_spectrum(power):
        if out is not None:
            with files.writing_table(out, overwrite) as table:
                table.append({
                    "k": power.k, "power": power.power, "modes": power.modes, "shot_noise": power.shot_noise,
                    "k_low": power.edges[:-1], "k_high": power.edges[1:],
                })  # fmt: skip
    if of_field:
        report.say(console, "time", f"{seconds:.3g} s with compiling or loading, for {field.mesh.size:,} nodes")
    else:
        report.say_time(console, account.seconds, account.particles, account.start)
    if out is not None:
        report.say_written(console, out, "k, power, modes, shot_noise, k_low, k_high")
    drawn.say(console)
    console.print()
    console.print(_spectrum_table(power))


def field_power(field: files.Field, window: Window | None, compensation: str, backend: str | None) -> Spectrum:
    """Return the power of a field per mode, times the volume, in bins of k.

    Parameters
    ----------
    field : Field
    window : Window or None
        The one with which the field was spread, for which the power is compensated; None leaves it as it is.
    compensation : {"window", "aliases"}
    backend : str or None

    Raises
    ------
    ValueError
        If the field is complex, has components or is not finite, or an axis is open.
    """
    mesh = field.mesh
    if np.iscomplexobj(field.values) or field.values.ndim > mesh.ndim:
        raise ValueError("the field is complex or has components; a spectrum takes one real value per node.")
    if not all(mesh.periodic):
        raise ValueError("the field has open axes; a spectrum takes a mesh that repeats along all axes.")
    if not np.isfinite(field.values).all():
        raise ValueError("the field has values that are not finite, and a spectrum needs all of them.")
    values = np.asarray(field.values, np.float64)
    transform = Transform(mesh, "ngp" if window is None else window, backend=backend)
    power = mesh.box.volume * abs(np.asarray(transform.forward(values)) / mesh.size) ** 2
    if window is not None:
        power *= power_factors(transform, compensation)
    return binned_power(transform, power)


def _spectrum_table(power: Spectrum) -> Any:
    table = _table(">k", ">power", ">shot noise", ">modes")
    there = np.flatnonzero(power.modes)
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(ROWS, len(there))).round().astype(int))]
    for n in chosen:
        noise = f"{power.shot_noise[n]:.6g}"
        table.add_row(f"{power.k[n]:.6g}", f"{power.power[n]:.6g}", noise, f"{power.modes[n]:,.6g}")
    return table


def check_backend(name: str | None) -> None:
    """Raise an error if a backend is unknown or not here.

    Raises
    ------
    ValueError
        With its reason.
    """
    if name is None:
        return
    if name not in backends.NAMES:
        raise ValueError(f"--backend is {name!r}; give one of {', '.join(backends.NAMES)}.")
    reason = backends.module(name).available()
    if reason is not None:
        raise ValueError(f"{name} is not available: {reason}.")


def check_dtype(name: str | None) -> None:
    """Raise an error if this is no precision.

    Raises
    ------
    ValueError
        With those that are.
    """
    if name not in (None, "float32", "float64"):
        raise ValueError(f"--dtype is {name!r}; give float32 or float64.")


def check_outside(name: str) -> None:
    """Raise an error if this is no treatment of particles beyond open faces.

    Raises
    ------
    ValueError
        With those that are.
    """
    if name not in ("error", "lose"):
        raise ValueError(f"--outside is {name!r}; give error or lose.")
