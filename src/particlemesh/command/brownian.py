# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh brownian``: a suspension of spheres that diffuse and interact through the fluid.

Lengths are in radii a, energies in kT, times in a^2 / D, where D is the diffusion coefficient of one sphere alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag
from particlemesh.apps.brownian.arrays import to_host
from particlemesh.apps.progress import bar
from particlemesh.command import consoles, pictures
from particlemesh.command.consoles import Saving, checkpoint_of

# What a checkpoint holds of the options.
STORED = ("count", "fraction", "time_step", "mobility", "integrator", "accuracy", "seed", "backend", "shear_rate")
DENSEST = 0.4  # volume fraction that spheres on a lattice with gaps can start from
MELTING = 1000  # steps, in which spheres alone move by 2.4 radii
MOST_TRACED = 2000  # particles whose path is kept
LAGS, ROWS = 24, 8  # that are measured, and that are printed


class Suspension(NamedTuple):
    """The results of a run."""

    edge: float  # of the cubic box
    axes: int  # along which displacements are measured: 3, or those across the flow, y and z
    law: float  # short-time diffusion coefficient / that of one sphere alone
    times: np.ndarray  # (K,)
    squared: np.ndarray  # (K,): mean square displacements
    errors: np.ndarray  # (K,): their standard errors
    folded: np.ndarray  # (N, 3) at the end
    moved: np.ndarray  # (N,): distances from the start, along those axes


def run(console: Any, options: Mapping[str, Any], given: set[str]) -> None:
    """Run a suspension, print its results, and draw it, from the options and those without their default."""
    if not 0 < options["fraction"] <= DENSEST:
        raise ValueError(f"--fraction is {options['fraction']:g}; give a number above 0, up to {DENSEST:g}.")
    consoles.check_positive(options, "time_step", "accuracy")
    if not options["accuracy"] < 1:
        raise ValueError(f"--accuracy is {options['accuracy']:g}; give a relative error above 0, below 1.")
    consoles.check_choice("mobility", options["mobility"], ("rpy", "drag"))
    consoles.check_choice("integrator", options["integrator"], ("euler", "midpoint"))
    consoles.check_ending(options["out"], ".png")
    consoles.check_backend(options["backend"])
    checkpoint, steps = checkpoint_of(options, given, STORED), options["steps"]
    consoles.refuse_idle(given, "accuracy", options["mobility"] == "rpy", "--mobility drag is exact")
    began = time.perf_counter()
    if options["restart"] is None:
        with bar("melting a lattice", None, console):
            try:
                motion = simulation(options)
            except KeyboardInterrupt:
                raise consoles.Stopped("interrupted before the first step; there is no checkpoint") from None
    else:
        motion = loaded(options["restart"])
    saving = Saving(motion, checkpoint, options["checkpoint_every"], consoles.again(options, given, STORED))
    trace, last = Trace(motion), motion.step + steps
    hydrodynamic = isinstance(motion.mobility, RPY)
    fraction = len(motion.positions) * 4 * math.pi / 3 / motion.box.volume
    title = f"{len(motion.positions):,} spheres, volume fraction {fraction:.3g}, "
    title += f"{'with' if hydrodynamic else 'without'} hydrodynamic interactions"
    title += f", shear rate {motion.shear_rate:g}" * bool(motion.shear_rate)
    console.print(title)
    with saving.stoppable("brownian", last) as interrupted, bar("Brownian dynamics", steps, console) as advance:
        while motion.step < last and not interrupted():
            motion.run(1)
            trace.take()
            advance()
            saving.due()
    spheres, seconds = trace.suspension(), time.perf_counter() - began
    console.print(f"box edge {spheres.edge:.4g} a, {steps} steps of {motion.time_step:g} a²/D, {seconds:.1f} s\n")
    table = consoles.table(">time", ">mean square displacement", ">law", ">measured / law", ">error")
    expected = 2 * spheres.axes * spheres.law * spheres.times
    for k in np.unique(np.linspace(0, len(expected) - 1, ROWS).round().astype(int)):
        cells = spheres.times[k], spheres.squared[k], expected[k]
        ratio, error = spheres.squared[k] / expected[k], spheres.errors[k] / expected[k]
        table.add_row(*(f"{x:.4g}" for x in cells), f"{ratio:.4f}", f"{error:.4f}")
    console.print(table)
    across = " across the flow, along y and z" if spheres.axes == 2 else ""
    console.print(
        f"law: {2 * spheres.axes} x {spheres.law:.5f} D t{across}, exact in the limit of short times and time steps;\n"
        "repulsion and hydrodynamic interactions slow the spheres at later times.\n"
        "a: radius, D: diffusion coefficient of a single sphere\n",
        style="dim",
    )
    if checkpoint is not None:
        console.print(f"checkpoint: {checkpoint}", markup=False, soft_wrap=True)
    out = options["out"]
    consoles.picture(console, out, lambda: pictures.brownian(out, spheres, title, hydrodynamic))


def start(count: int, fraction: float, seed: int) -> tuple[np.ndarray, float]:
    """Return positions (N, 3) of spheres that do not overlap much, in disorder, and the edge of their box.

    They begin on random sites of a face-centred lattice, which Brownian motion without hydrodynamic interactions melts.
    """
    edge = (count * 4 * math.pi / (3 * fraction)) ** (1 / 3)
    cells = math.ceil((count / 4) ** (1 / 3) - 1e-9)
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    sites = (corners + [[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]).reshape(-1, 3) * (edge / cells)
    chosen = np.random.default_rng(seed).choice(len(sites), count, replace=False)
    box = (edge,) * 3
    melting = BrownianDynamics(sites[chosen], Drag(box=box), WCA(box), time_step=0.001, seed=seed)
    melting.run(MELTING)
    return melting.folded, edge


def law(hydrodynamic: bool, edge: float) -> float:
    """Return the mobility of a sphere of radius 1 without neighbours in a periodic cube / that without images."""
    return 1.0 if not hydrodynamic else 1 - 2.83729747948062 / edge + 4 * math.pi / 3 / edge**3


def simulation(options: Mapping[str, Any]) -> BrownianDynamics:
    """Return the simulation of a start, from the options of the command by name."""
    positions, edge = start(options["count"], options["fraction"], options["seed"])
    box, backend = (edge,) * 3, options["backend"]
    where = "opencl" if backend == "opencl" else None  # NumPy arrays are copied there and back
    if backend == "cuda":
        import cupy

        positions = cupy.asarray(positions)
    spheres: Any = Drag(box=box)
    if options["mobility"] == "rpy":  # reproducible, also after a restart
        spheres = RPY(box, accuracy=options["accuracy"], backend=where, deterministic=True)
    forces = WCA(box, backend=where)
    others = {name: options[name] for name in ("time_step", "integrator", "seed", "shear_rate")}
    return BrownianDynamics(positions, spheres, forces, **others)


def loaded(path: Path) -> BrownianDynamics:
    """Return the simulation of a checkpoint, unless it has other spheres than this command."""
    motion = BrownianDynamics.load(path)
    spheres = motion.mobility
    radii = np.atleast_1d(spheres.radii if isinstance(spheres, RPY) else spheres.radius)
    rows = np.zeros((3, 3)) if motion.box is None else motion.box.matrix.copy()
    if motion.strain:
        rows[1, 0] = 0  # by as much the box leans
    cube = motion.box is not None and np.array_equal(rows, np.eye(3) * rows[0, 0])
    alone = np.allclose(6 * math.pi * spheres.viscosity, 1)
    if not ((radii == 1).all() and cube and alone and motion.temperature == 1):
        raise ValueError(
            f"{path} has other spheres, another box or another temperature than particlemesh brownian. Give a file "
            "that this command has written, or continue in Python with BrownianDynamics.load."
        )
    return motion


class Trace:
    """Where some of the spheres have been since the start of a run."""

    def __init__(self, motion: BrownianDynamics) -> None:
        self._motion = motion
        self._first = to_host(motion.positions)
        self._axes = 2 if motion.shear_rate else 3
        self._some = slice(None, None, max(1, math.ceil(len(self._first) / MOST_TRACED)))
        self._path = [self._first[self._some, -self._axes :]]

    def take(self) -> None:
        """Take the present positions."""
        self._path.append(to_host(self._motion.positions)[self._some, -self._axes :])

    def suspension(self) -> Suspension:
        """Return what the run did."""
        motion = self._motion
        edge, moved = float(motion.box.matrix[0, 0]), to_host(motion.positions) - self._first
        return Suspension(
            edge, self._axes, law(isinstance(motion.mobility, RPY), edge),
            *squared_displacements(np.array(self._path), motion.time_step),
            to_host(motion.folded), np.linalg.norm(moved[:, -self._axes :], axis=1),
        )  # fmt: skip


def squared_displacements(path: np.ndarray, time_step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, mean square displacements over all starts in a path (T, N, d), and standard errors.

    Displacements count as independent if they are of two particles, or do not overlap in time.
    """
    steps, count = len(path) - 1, path.shape[1]
    # Beyond half of the path the starts are few, and close to each other.
    lags = np.unique(np.geomspace(1, max(steps // 2, 1), LAGS).round().astype(int))
    means = np.array([np.mean(np.sum((path[lag:] - path[:-lag]) ** 2, axis=-1)) for lag in lags])
    independent = count * np.maximum(steps // lags, 1)
    return lags * time_step, means, means * np.sqrt(2 / (path.shape[2] * independent))
