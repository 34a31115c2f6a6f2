# SPDX-License-Identifier: BSD-3-Clause
"""The output of the commands: one table each of 80 columns, and the demo's picture."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import particlemesh as pm
from particlemesh import backends
from particlemesh.choosing import predict
from particlemesh.choosing.choice import METHODS
from particlemesh.command import demo as physics
from particlemesh.command import probe, survey
from particlemesh.command.caches import caches

# Distributions of each library, in order of preference: CuPy's name has its CUDA version.
LIBRARIES = {
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "numba": ("numba",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "pyopencl": ("pyopencl",),
    "pocl": ("pocl-binary-distribution",),
    "matplotlib": ("matplotlib",),
}
OK, FAILED = "[green]ok[/green]", "[bold red]FAILED[/bold red]"


# ---- info -------------------------------------------------------------------------------------------------


SECONDS = 8.0  # after which `info` begins no further test: with what is being compiled then, at most 20


def info(console: Console, everything: bool = False) -> bool:
    """Print the backends of this machine and their self tests as they end; return whether every test passed."""
    console.print(
        f"particlemesh {pm.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    console.print(", ".join(f"{name} {version}" for name, version in _versions().items()) + "\n")
    names = probe.names()
    for name in backends.NAMES:
        if name in names:
            console.print(f"{name}: {escape(describe(backends.current(name)))}", soft_wrap=True)
        else:
            reason = escape(str(backends.module(name).available()))
            console.print(f"{name}: [yellow]not available[/yellow], {reason}", soft_wrap=True)
    console.print(f"\n[bold]{_info_row('backend', 'operation', 'method', 'error', 'result')}[/bold]")
    passed, left = True, sum(map(probe.count, names))
    with console.status("compiling and testing") if console.is_terminal else contextlib.nullcontext():
        for backend, check in probe.rows(None if everything else SECONDS):
            passed, left = passed and check.wrong is None, left - 1
            result = OK if check.wrong is None else f"{FAILED} {escape(check.wrong)}"
            if check.declined is not None:
                result = f"[yellow]declined[/yellow] {escape(check.declined)}"
            cells = _info_row(backend, check.operation, check.method, _number(check.error), "")
            console.print(cells + result, soft_wrap=True)
    if left > 0 and not everything:
        console.print(
            f"{left} more were not begun after {SECONDS:.0f} s: [bold]particlemesh info --all[/bold] tests all."
        )
    console.print(
        "\nerror: relative error of <spread(q), f> = <q, interpolate(f)>, 1000 particles;\n"
        "for grids, error of distances / radius against all pairs of 500 particles\n",
        style="dim",
    )
    for cache in caches():
        size = f"{cache.bytes / 2**20:.1f} MiB in {cache.files} files" if cache.files else "empty"
        console.print(f"cache of {cache.owner}: {escape(str(cache.folder))} ({size})", soft_wrap=True)
    return passed


def _info_row(backend: str, operation: str, method: str, error: str, result: str) -> str:
    return f"{backend:<8} {operation:<12} {method:<20} {error:>6}  {result}"


def describe(backend: Any) -> str:
    """Return the name of a device and its driver."""
    if backend.name == "cuda":
        import cupy

        runtime = cupy.cuda.runtime
        versions = (f"{n // 1000}.{n % 1000 // 10}" for n in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
        cuda = "CUDA {} (driver) and {} (runtime)".format(*versions)
        return f"{backend.device}, compute capability {backend.compute / 10}, {cuda}"
    if backend.name == "opencl":
        kind = "GPU kernels emulated on the CPU, for tests" if survey.emulated(backend) else "GPU"
        return f"{backend.device}, {kind}, {backend.platform.split('  ')[0].split(',')[0]}"
    threads = backends.module("cpu").available_threads()
    return f"{backend.device}, {threads} thread{'s' if threads > 1 else ''}"


def _versions() -> dict[str, str]:
    versions = {}
    for name, distributions in LIBRARIES.items():
        versions[name] = "not installed"
        for distribution in distributions:
            try:
                versions[name] = importlib.metadata.version(distribution)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions


# ---- tune -------------------------------------------------------------------------------------------------


def _device(name: str | None) -> Any:
    """Return the backend of a name, or the fastest available one.

    Raises
    ------
    ValueError
        If the name is unknown, or the backend is not available.
    """
    usable = survey.usable()
    if name is None:
        return next(usable[n] for n in ("cuda", "opencl", "cpu") if n in usable and not survey.emulated(usable[n]))
    if name not in backends.NAMES:
        raise ValueError(f"--backend is {name!r}; give one of {', '.join(backends.NAMES)}.")
    if name not in usable:
        raise ValueError(f"{name} is not available: {backends.module(name).available()}.")
    return usable[name]


def tune(console: Console, name: str | None, quick: bool, changed: bool = False) -> None:
    """Measure a device, store its times for this user, and print them."""
    from particlemesh.command import tune

    backend = _device(name)
    seconds = tune.QUICK if quick else tune.SECONDS
    console.print(f"{backend.name}: {escape(describe(backend))}; at most {seconds:.0f} s", soft_wrap=True)
    with _bar(console) as bar:
        task = bar.add_task("starting", total=tune.PROBLEMS)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        _, path = tune.run(backend, seconds, progress, changed=changed)
    _known(console, backend)
    console.print(f"written to {escape(str(path))}", soft_wrap=True)


def timings(console: Console, name: str | None) -> None:
    """Print the stored times of a device, or of all available ones."""
    for backend in survey.usable().values() if name is None else [_device(name)]:
        console.print(f"{backend.name}: {escape(describe(backend))}", soft_wrap=True)
        _known(console, backend)
        console.print()


def _known(console: Console, backend: Any) -> None:
    times = predict.known(backend)
    console.print(f"predictions: {escape(times.source)}", soft_wrap=True)
    if times.hint:
        console.print(escape(times.hint), soft_wrap=True)
    if not times.rows:
        return
    table = _table("direction", "method", ">problems", ">prepare", ">apply")
    for direction, methods in METHODS.items():
        label = direction
        for method in methods:
            ratios = times.ratios(direction, method)
            if len(ratios):
                table.add_row(label, method.name, str(len(ratios)), *(f"{r:.2f}" for r in np.exp(np.median(ratios, 0))))
                label = ""
        table.add_section()
    console.print(table)
    console.print("prepare, apply: measured time / modelled time of the method, medians", style="dim")


# ---- demo -------------------------------------------------------------------------------------------------


def system(file: Path | None) -> dict[str, np.ndarray]:
    """Return the particles of an .npz, or the built-in water.

    Raises
    ------
    ValueError
        If the file does not exist, or has no positions, charges and box.
    """
    if file is None:
        return physics.water()
    unreadable = f"{file} cannot be read as an .npz of positions, charges and box"
    try:
        if not zipfile.is_zipfile(file):  # NumPy's error would be about pickles
            if not file.exists():
                raise ValueError(f"{file} does not exist.")
            raise ValueError(f"{unreadable}: write one with numpy.savez.")
        with np.load(file, allow_pickle=False) as arrays:
            # Only these: any other array of objects would raise an error.
            particles = {key: arrays[key] for key in ("positions", "charges", "box") if key in arrays.files}
            names = ", ".join(arrays.files) or "no arrays"
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{unreadable} ({error}).") from None
    missing = [key for key in ("positions", "charges", "box") if key not in particles]
    if missing:
        raise ValueError(f"{file} has {names}; {', '.join(missing)} must also be there.")
    for key, array in particles.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise ValueError(f"{key} of {file} must be finite real numbers; its dtype is {array.dtype}.")
        particles[key] = array.astype(np.float64)
    positions, charges, box = particles["positions"], particles["charges"], particles["box"]
    if positions.ndim != 2 or positions.shape[1] != 3 or not len(positions):
        raise ValueError(f"positions of {file} has shape {positions.shape}; (N, 3) with N > 0 is needed.")
    if charges.shape != positions.shape[:1]:
        raise ValueError(f"charges of {file} has shape {charges.shape}; {positions.shape[:1]} is needed.")
    if not charges.any():
        raise ValueError(f"charges of {file} are all zero; the demo needs a charge that is not.")
    if box.shape == (3,):
        particles["box"] = box = np.diag(box)
    if box.shape != (3, 3) or np.any(box != np.diag(np.diag(box))) or np.any(np.diag(box) <= 0):
        raise ValueError(f"box of {file} must be three lengths, or a diagonal matrix: the demo's map is rectangular.")
    return particles


def demo(
    console: Console,
    particles: dict[str, np.ndarray],
    windows: tuple[str, ...],
    nodes: int,
    sizes: tuple[int, ...],
    out: Path,
) -> bool:
    """Compare all methods on the particles and draw their field; return whether every check passed."""
    positions, charges, box = particles["positions"], particles["charges"], particles["box"]
    mesh = pm.Mesh(shape=(nodes,) * 3, box=box)
    edges = " x ".join(f"{edge:.3g}" for edge in np.diag(box))
    console.print(f"{len(charges):,} charges in {edges} nm on {nodes} x {nodes} x {nodes} nodes")
    draws = find_spec("matplotlib") is not None
    neighbours = probe.beside(survey.neighbours, positions, np.diag(box))
    total = survey.steps(windows) + (len(physics.WINDOWS) + 1 if draws else 0) + 1
    with _bar(console) as bar:
        task = bar.add_task("starting", total=total)

        def progress(what: str) -> None:
            bar.update(task, description=what, advance=1)

        runs = survey.agreement(positions, charges, mesh, windows, progress=progress)
        if draws:
            errors = _errors(particles, sizes, progress)
            _picture(particles, errors, out)
            progress("picture")
        progress("neighbours")
        same, words = neighbours()
    console.print(learnt(runs))
    console.print(words if same else f"[bold red]{words}[/bold red]")
    console.print()
    console.print(agreement_table(runs, windows))
    _notes(console, runs, windows[-1])
    if draws:
        console.print(f"picture: {escape(str(out))}", soft_wrap=True)
    else:
        console.print("no picture: matplotlib is not installed; run pip install matplotlib")
    return same and all(run.passed for run in runs)


def learnt(runs: list[survey.Run]) -> str:
    """Return what the comparison of all methods found, in a sentence."""
    failed = [run for run in runs if not run.passed]
    if failed:
        return f"[bold red]{len(failed)} of {len(runs)} methods differ or fail; the reasons are at the end.[/bold red]"
    ran = [run for run in runs if run.errors]
    error = max((max(run.errors.values()) for run in ran), default=0.0)
    charge = max((run.charge for run in ran), default=0.0)
    places = {_place(run.backend) for run in ran}
    return (
        f"All {len(ran)} methods on {', '.join(sorted(places))} agree to {_number(error)} of the largest result,\n"
        f"and conserve the charge to {_number(charge)}."
    )


def agreement_table(runs: list[survey.Run], windows: tuple[str, ...]) -> Table:
    """Return the table of all runs."""
    table = _table("method", "backend", *(f">{w}" for w in windows), ">charge", ">time")
    titles = {"spread": "spreading", "interpolate": "interpolating"}
    first: dict[str, survey.Run] = {}
    for run in runs:
        if run.direction not in first:
            first[run.direction] = run
            table.add_section()
            table.add_row(f"[bold]{titles[run.direction]}[/bold]")
        name, place = run.method, _place(run.backend)
        if run.failure is not None:
            table.add_row(name, place, FAILED)
            continue
        missing = "" if run.declined is None else "declined"
        cells = [_error(run.errors[w], run.tolerance) if w in run.errors else missing for w in windows]
        if run is first[run.direction]:
            cells = ["ref."] * len(windows)
        charge = _error(run.charge, run.tolerance) if run.direction == "spread" else ""
        table.add_row(name, place, *cells, charge, "" if run.seconds is None else _time(run.seconds))
    return table


def _notes(console: Console, runs: list[survey.Run], timed: str) -> None:
    console.print(
        "Differences from the reference (ref.), relative to its largest result. Charge:\n"
        "error of the field's sum, relative to the sum of |charges|.",
        style="dim",
    )
    if any(run.seconds is not None for run in runs):
        console.print(f"Time: one call with {timed}, without set_positions.", style="dim")
    if any(run.backend == "opencl" and run.seconds is None for run in runs):
        console.print(f"PoCL emulates GPU kernels on the CPU (with {timed} only); not timed.", style="dim")
    for run in runs:
        if run.declined is not None:
            console.print(f"{run.method} on {run.backend} declined: {run.declined}", markup=False)
        if not run.passed:
            reason = run.failure or f"differs by more than {run.tolerance:.0e}"
            console.print(f"{run.direction} {run.method} on {run.backend}: {reason}", style="red", markup=False)


def _errors(
    particles: dict[str, np.ndarray], sizes: tuple[int, ...], progress: Any
) -> dict[str, list[tuple[int, float]]]:
    # The screening length scales with the box: any system shows the same range of errors, and its explicit sum
    # has as many modes as that of the water.
    alpha = physics.ALPHA * WATER_EDGE / float(np.diag(particles["box"]).max())
    return physics.mesh_errors(particles, sizes=sizes, alpha=alpha, progress=progress)


WATER_EDGE = 3.18362  # nm, for which ALPHA was chosen


def _picture(particles: dict[str, np.ndarray], errors: dict[str, list[tuple[int, float]]], out: Path) -> None:
    from particlemesh.command.figures import density_and_error

    density, extent = physics.density_slab(particles)
    out.parent.mkdir(parents=True, exist_ok=True)
    title = f"{len(particles['charges']):,} charges, spread onto a mesh, and their interpolated potential"
    density_and_error(out, density, extent, errors, title, "e/nm³")


def _bar(console: Console) -> Progress:
    """Return a progress bar that is erased at the end."""
    columns = TextColumn("{task.description:<34}"), BarColumn(28), MofNCompleteColumn()
    return Progress(*columns, console=console, transient=True)


# ---- cells ------------------------------------------------------------------------------------------------


def _table(*columns: str) -> Table:
    """Return an empty table; columns with names that start with > are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in columns:
        justify: Any = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, no_wrap=name != "result")
    return table


def _place(name: str) -> str:
    return "PoCL" if name == "opencl" and survey.emulated(backends.current(name)) else name


def _error(error: float, tolerance: float) -> str:
    return _number(error) if error <= tolerance else f"[bold red]{_number(error)}[/bold red]"


def _number(error: float) -> str:
    return "0" if error == 0 else f"{error:.0e}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
