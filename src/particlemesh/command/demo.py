# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh demo``: all methods on the charges of a box of salt water, and their electrostatic potential.

A mesh solver gives the reciprocal part of Ewald's potential, and an explicit sum over structure factors its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import backends
from particlemesh.apps.files import read_particles
from particlemesh.apps.progress import bar
from particlemesh.command import consoles, pictures, self_test
from particlemesh.command.info import number
from particlemesh.fourier import Solver

# Gaussians of 1/(sqrt(2) ALPHA) = 0.24 nm screen the charges, a usual choice for a real-space cutoff of 1 nm.
# In 3.2 nm the coarsest mesh then has errors of 2 per cent with bspline4, the finest of 1e-10 with bspline8.
ALPHA = 3.0  # 1/nm
WINDOWS = ("bspline2", "bspline4", "bspline6", "bspline8")
COMPARED = ("cic", "m4prime", "bspline4", "bspline6")  # by all methods
WATER_EDGE = 3.18362  # nm, for which ALPHA was chosen


def water() -> dict[str, np.ndarray]:
    """Return the box of salt water that comes with the library (arrays and units: data/README.md)."""
    with (files("particlemesh") / "data" / "water.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


def direct_potential(
    box: np.ndarray, positions: np.ndarray, charges: np.ndarray, alpha: float, kmax: int
) -> np.ndarray:
    """Return the reciprocal-space part of the potential at the charges, by explicit structure factors.

    It is a charge per length: multiply by Coulomb's constant for a potential. It includes each charge's Gaussian, which
    is 2 alpha/sqrt(pi) times the charge.

    Modes -kmax..kmax along each axis are summed. The others are below ``exp(-(pi kmax / (alpha edge))**2)`` of the
    leading ones.
    """
    reciprocal = 2 * np.pi * np.linalg.inv(box)  # columns are the reciprocal lattice vectors
    fractions = np.asarray(positions, float) @ np.linalg.inv(box)
    index = np.arange(-kmax, kmax + 1)
    first, second, third = (np.exp(2j * np.pi * np.outer(index, fractions[:, axis])) for axis in range(3))
    volume = abs(np.linalg.det(box))
    potential = np.zeros(len(charges))
    for i in range(kmax + 1):  # the modes -i are the complex conjugates of the modes i
        weighted = charges * first[kmax + i]
        factors = (second * weighted) @ third.T  # (2 kmax + 1, 2 kmax + 1)
        n = np.stack(np.broadcast_arrays(i, index[:, None], index), axis=-1)
        squared = np.sum((n @ reciprocal.T) ** 2, axis=-1)
        green = 4 * np.pi * np.exp(-squared / (4 * alpha**2)) / np.where(squared == 0, np.inf, squared)  # in tin foil
        factors *= green * (1 if i == 0 else 2)
        potential += (np.sum((factors.conj() @ third) * second, axis=0) * first[kmax + i]).real
    return potential / volume


def mesh_errors(
    system: dict[str, np.ndarray] | None = None,
    windows: Iterable[str] = WINDOWS,
    sizes: Iterable[int] = (16, 24, 32, 48, 64, 96),
    alpha: float = ALPHA,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, list[tuple[int, float]]]:
    """Return pairs (nodes per axis, error of the mesh potential) for each window.

    The error is the root-mean-square difference to `direct_potential` over the charges, divided by the
    root-mean-square of that potential. It falls as the p-th power of the spacing for a B-spline of order
    p, until rounding. ``progress`` is called after each window.
    """
    system = water() if system is None else system
    box, positions, charges = system["box"], system["positions"], system["charges"]
    longest = np.linalg.norm(box, axis=1).max()
    kmax = int(np.ceil(5.5 * alpha * longest / np.pi))  # exp(-5.5**2) = 7e-14
    exact = direct_potential(box, positions, charges, alpha, kmax)
    scale = np.sqrt(np.mean(exact**2))
    errors: dict[str, list[tuple[int, float]]] = {}
    for window in windows:
        errors[window] = []
        for size in sizes:
            mesh = pm.Mesh(shape=(size,) * 3, box=box)
            solver = Solver(mesh, window, green="ewald", alpha=alpha, gradient="ik").set_positions(positions)
            difference = 4 * np.pi * solver.potential(charges) - exact
            errors[window].append((size, float(np.sqrt(np.mean(difference**2)) / scale)))
        progress(f"error of the potential, {window}")
    return errors


def density_slab(
    system: dict[str, np.ndarray], size: int = 96, thickness: float = 0.3, window: str = "bspline6"
) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Return the charge density in e/nm^3, indexed [x, y], of a slab normal to z, and its borders (x0, x1, y0, y1).

    The slab is in the middle of a rectangular box, and the density is its mean along z.
    """
    edges = np.diag(system["box"])
    mesh = pm.Mesh(shape=(size,) * 3, box=system["box"], offset=0.5)  # nodes at the centres of pixels
    density = pm.spread(system["positions"], system["charges"], mesh, window=window) / mesh.node_volume
    layers = max(1, round(thickness / edges[2] * size))
    start = (size - layers) // 2
    return density[:, :, start : start + layers].mean(axis=2), (0.0, float(edges[0]), 0.0, float(edges[1]))


# ---- output -----------------------------------------------------------------------------------------------


def system(file: Path | None) -> dict[str, np.ndarray]:
    """Return the particles of a file with charges and a box, or the built-in water."""
    if file is None:
        return water()
    positions, charges, box = read_particles(file, values="charges")
    if positions.shape[1] != 3 or charges.ndim != 1 or np.iscomplexobj(charges):
        shapes = f"positions has shape {positions.shape} and charges {charges.shape}"
        raise ValueError(f"{file}: {shapes}; the demo needs real numbers (N, 3) and (N,).")
    if not charges.any():
        raise ValueError(f"charges of {file} are all zero; the demo needs a charge that is not.")
    if box is None or box.ndim != 3 or not box.orthorhombic:
        raise ValueError(f"box of {file} must be three lengths, or a diagonal matrix: the demo's map is rectangular.")
    return {"positions": positions.astype(float) - box.origin, "charges": charges.astype(float), "box": box.matrix}


def demo(
    console: Any, particles: dict[str, np.ndarray], nodes: int, sizes: tuple[int, ...], out: Path,
    windows: tuple[str, ...] = COMPARED,
) -> bool:  # fmt: skip
    """Compare all methods on the particles and draw their field; return whether every check passed."""
    positions, charges, box = particles["positions"], particles["charges"], particles["box"]
    mesh = pm.Mesh(shape=(nodes,) * 3, box=box)
    edges = " x ".join(f"{edge:.3g}" for edge in np.diag(box))
    console.print(f"{len(charges):,} charges in {edges} nm on {nodes} x {nodes} x {nodes} nodes")
    neighbours = self_test.beside(self_test.neighbours, positions, np.diag(box))
    draws, errors = consoles.can_draw(), dict[str, list[tuple[int, float]]]()
    with bar("running", self_test.steps(windows) + draws * len(WINDOWS) + 1, console) as advance:

        def progress(what: str) -> None:
            advance(1, what)

        runs = self_test.agreement(positions, charges, mesh, windows, progress=progress)
        if draws:
            # The screening length scales with the box: any system shows the same range of errors, and its explicit sum
            # has as many modes as that of the water.
            alpha = ALPHA * WATER_EDGE / float(np.diag(box).max())
            errors = mesh_errors(particles, sizes=sizes, alpha=alpha, progress=progress)
        same, words = neighbours()
        progress("neighbours")
    console.print(summary(runs))
    console.print(words if same else f"[bold red]{words}[/bold red]")
    console.print()
    console.print(agreement_table(runs, windows))
    _notes(console, runs, windows[-1])
    title = f"{len(charges):,} charges, spread onto a mesh, and their interpolated potential"
    consoles.picture(console, out, lambda: pictures.demo(out, *density_slab(particles), errors, title, "e/nm³"))
    return same and all(run.wrong is None for run in runs)


def summary(runs: list[self_test.Run]) -> str:
    """Return the result of the comparison of all methods, in a sentence."""
    failed = [run for run in runs if run.wrong is not None]
    if failed:
        return f"[bold red]{len(failed)} of {len(runs)} methods differ or fail; the reasons are at the end.[/bold red]"
    ran = [run for run in runs if run.errors]
    error = max((run.error for run in ran), default=0.0)
    charge = max((run.charge for run in ran), default=0.0)
    places = {_place(run.backend) for run in ran}
    return (
        f"All {len(ran)} methods on {', '.join(sorted(places))} agree to {number(error)} of the largest result,\n"
        f"and conserve the charge to {number(charge)}."
    )


def agreement_table(runs: list[self_test.Run], windows: tuple[str, ...]) -> Any:
    """Return the table of all runs."""
    table = consoles.table("method", "backend", *(f">{w}" for w in windows), ">charge", ">time")
    titles = {"spread": "spreading", "interpolate": "interpolating"}
    first: dict[str, self_test.Run] = {}
    for run in runs:
        if first.setdefault(run.operation, run) is run:
            table.add_section()
            table.add_row(f"[bold]{titles[run.operation]}[/bold]")
        name, place = run.method, _place(run.backend)
        if run.failure is not None:
            table.add_row(name, place, "[bold red]FAILED[/bold red]")
            continue
        missing = "" if run.declined is None else "declined"
        cells = [_error(run.errors[w], run.tolerance) if w in run.errors else missing for w in windows]
        if run is first[run.operation]:
            cells = ["ref."] * len(windows)
        charge = _error(run.charge, run.tolerance) if run.operation == "spread" else ""
        table.add_row(name, place, *cells, charge, "" if run.seconds is None else consoles.duration(run.seconds))
    return table


def _notes(console: Any, runs: list[self_test.Run], timed: str) -> None:
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
        if run.wrong is not None:
            console.print(f"{run.operation} {run.method} on {run.backend}: {run.wrong}", style="red", markup=False)


def _place(name: str) -> str:
    return "PoCL" if name == "opencl" and self_test.emulated(backends.current(name)) else name


def _error(error: float, tolerance: float) -> str:
    return number(error) if error <= tolerance else f"[bold red]{number(error)}[/bold red]"
