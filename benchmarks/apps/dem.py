# SPDX-License-Identifier: BSD-3-Clause
"""Granular matter: steps of spheres under Hertz's law with history, falling, and settled on a floor.

On the CPU beside a loop of Numba over pairs of SciPy's `cKDTree`, found anew in each step, with the same compiled law,
in turns within one run: both may use the same number of threads. The loop computes each pair once, in a share for each
thread, and finds histories by bisection. ``difference`` is the largest one of the positions of both at the end.
``updates_per_s`` are particles times steps in a second of wall-clock time, searches included; ``contacts`` is the mean
number of contacts of a particle. Writes ``results/dem-steps-DEVICE.csv``.

    python benchmarks/apps/dem.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from harness import runs
from harness.inside import contact_law
from harness.place import Place
from harness.tables import short
from particlemesh.apps.dem import Hertz, Simulation

LAW = Hertz(young=1e5, poisson=0.25, restitution=0.6, friction=0.4)
GRAVITY, SPACING, LAYERS, TURNS = 1.0, 1.1, 16, 4


@dataclass(frozen=True)
class Case:
    """A problem: how many spheres, in which type, after how many steps, for how many steps."""

    count: int
    dtype: str
    before: int
    steps: int

    def __str__(self) -> str:
        return f"{self.count:,} spheres, {self.dtype}, after {self.before:,} steps"


GPU = [
    Case(count, dtype, before, 2000)
    for count in (2**14, 2**17, 2**20)
    for dtype in ("float32", "float64")
    for before in (0, 20_000)
]
HOST = [Case(100_000, "float64", before, 60) for before in (0, 3000)]
SMALL = [Case(300, "float64", 400, 20)]


def heap(case: Case) -> dict[str, Any]:
    """Return the arguments of a bed of up to ``LAYERS`` layers that falls by half of its height."""
    rng = np.random.default_rng(1)
    side = max(2, round((case.count / LAYERS) ** 0.5))
    cells = np.stack(np.unravel_index(np.arange(case.count), (-(-case.count // side**2), side, side))[::-1], -1)
    x = SPACING * (cells + 0.5) + rng.uniform(-0.04, 0.04, cells.shape)
    width, height = SPACING * side, 1.5 * SPACING * (case.count / side**2 + 2)
    return dict(
        positions=x.astype(case.dtype), radii=rng.uniform(0.48, 0.5, case.count), density=6 / np.pi, contact=LAW,
        velocities=rng.normal(scale=0.3, size=x.shape), box=(width, width, height), periodic=(True, True, False),
        gravity=GRAVITY,
    )  # fmt: skip


class Loop:
    """The same motion by pairs of SciPy's tree, found anew in each step, and a loop of Numba over them."""

    def __init__(self, simulation: Simulation, threads: int) -> None:
        state = simulation.state()
        self.x, self.v, self.w = (np.array(state[name]) for name in ("positions", "velocities", "spins"))
        self.a, self.b = np.array(state["accelerations"]), np.array(state["angular_accelerations"])
        self.radii, self.masses, self.step = simulation.radii, simulation.masses, simulation.time_step
        self.box, self.threads, self.reach = np.array([*state["lengths"][:2], 0.0]), threads, 2 * self.radii.max()
        self.pool = ThreadPoolExecutor(threads)
        law = LAW.numbers()
        ratio = (law.tangential / (2 * law.normal)) ** 0.5
        numbers = (2 * law.normal, law.tangential, law.damping, law.friction, 2 / 3, ratio, 5 / 22)
        self.law, count = np.array(numbers, self.x.dtype), len(self.x)
        pair = state["contact_j"] >= 0
        history = np.column_stack([state["contact_force"], state["contact_stiffness"]])
        self.keys, self.history = (state["contact_i"] * count + state["contact_j"])[pair], history[pair]
        self.floor = np.zeros((count, 4), self.x.dtype)
        down = state["contact_j"] == -1 - [plane.normal for plane in simulation.walls].index((0.0, 0.0, 1.0))
        self.floor[state["contact_i"][down]] = history[down]

    def run(self, steps: int) -> None:
        """Make steps."""
        for _ in range(steps):
            half = self.step / 2
            u, s = self.v + half * self.a, self.w + half * self.b
            self.x += self.step * u
            self.x[:, :2] %= self.box[:2]
            tree = cKDTree(self.x, boxsize=self.box, balanced_tree=False, compact_nodes=False)
            pairs = tree.query_pairs(self.reach, output_type="ndarray")
            keys = np.sort(pairs[:, 0] * len(self.x) + pairs[:, 1])
            history = np.zeros((len(keys), 4), self.x.dtype)
            sums = np.zeros((self.threads, len(self.x), 6), self.x.dtype)
            arguments = (
                self.x, u, s, self.radii, self.masses, self.box, self.law, self.x.dtype.type(self.step), keys,
                self.keys, history, self.history, sums,
            )  # fmt: skip
            list(self.pool.map(lambda share, given=arguments: _pairs(share, *given), range(self.threads)))
            self.keys, self.history = keys, history
            _floor(self.x, u, s, self.radii, self.masses, self.law, self.x.dtype.type(self.step), self.floor, sums)
            total = sums.sum(0)
            self.a = total[:, :3] / self.masses[:, None] - (0, 0, GRAVITY)
            self.b = total[:, 3:] / (0.4 * self.masses * self.radii**2)[:, None]
            self.v, self.w = u + half * self.a, s + half * self.b


@njit(nogil=True, error_model="numpy")
def _pairs(t, x, u, s, radii, masses, box, law, step, keys, old_keys, history, old_history, sums):
    count, threads = len(x), len(sums)
    n = np.empty(3, x.dtype)
    for k in range(t * len(keys) // threads, (t + 1) * len(keys) // threads):
        i, j = keys[k] // count, keys[k] % count
        square = 0.0
        for c in range(3):
            n[c] = x[i, c] - x[j, c]
            if box[c] > 0:
                n[c] -= box[c] * np.rint(n[c] / box[c])
            square += n[c] * n[c]
        both = radii[i] + radii[j]
        if not square < both * both:
            continue
        distance = np.sqrt(square)
        arm, far = distance * radii[i] / both, distance * radii[j] / both
        n0, n1, n2 = n[0] / distance, n[1] / distance, n[2] / distance
        r0, r1, r2 = arm * s[i, 0] + far * s[j, 0], arm * s[i, 1] + far * s[j, 1], arm * s[i, 2] + far * s[j, 2]
        v0 = u[i, 0] - u[j, 0] - (r1 * n2 - r2 * n1)
        v1 = u[i, 1] - u[j, 1] - (r2 * n0 - r0 * n2)
        v2 = u[i, 2] - u[j, 2] - (r0 * n1 - r1 * n0)
        twist = ((s[i, 0] + s[j, 0]) * n0 + (s[i, 1] + s[j, 1]) * n1 + (s[i, 2] + s[j, 2]) * n2) / 2
        h0 = h1 = h2 = h3 = 0.0
        at = np.searchsorted(old_keys, keys[k])
        if at < len(old_keys) and old_keys[at] == keys[k]:
            h0, h1, h2, h3 = old_history[at]
        mass = masses[i] * masses[j] / (masses[i] + masses[j])
        f0, f1, f2, h0, h1, h2, h3 = contact_law(
            law, 1, both - distance, radii[i] * radii[j] / both, mass, n0, n1, n2, v0, v1, v2, twist, step, h0, h1,
            h2, h3,
        )  # fmt: skip
        history[k, 0], history[k, 1], history[k, 2], history[k, 3] = h0, h1, h2, h3
        t0, t1, t2 = n1 * f2 - n2 * f1, n2 * f0 - n0 * f2, n0 * f1 - n1 * f0
        for p, sign, lever in ((i, 1, arm), (j, -1, far)):
            sums[t, p, 0] += sign * f0
            sums[t, p, 1] += sign * f1
            sums[t, p, 2] += sign * f2
            sums[t, p, 3] -= lever * t0
            sums[t, p, 4] -= lever * t1
            sums[t, p, 5] -= lever * t2


@njit(nogil=True, error_model="numpy")
def _floor(x, u, s, radii, masses, law, step, history, sums):
    for i in range(len(x)):
        z, r = x[i, 2], radii[i]
        if not z < r:
            history[i] = 0
            continue
        h = history[i]
        f0, f1, f2, h[0], h[1], h[2], h[3] = contact_law(
            law, 1, r - z, r, masses[i], 0.0, 0.0, 1.0, u[i, 0] - z * s[i, 1], u[i, 1] + z * s[i, 0], u[i, 2],
            s[i, 2] / 2, step, h[0], h[1], h[2], h[3],
        )  # fmt: skip
        sums[0, i, 0] += f0
        sums[0, i, 1] += f1
        sums[0, i, 2] += f2
        sums[0, i, 3] += z * f1
        sums[0, i, 4] -= z * f0


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield the row of the simulation, and on the CPU that of the loop beside it."""
    simulation = Simulation(**heap(case), backend=place.name)
    simulation.run(case.before)

    def row(design: str, seconds: float, ratio: str = "", difference: Any = "") -> dict[str, Any]:
        return dict(
            place.facts, design=design, count=case.count, dtype=case.dtype, before=case.before, steps=case.steps,
            contacts=short(2 * len(simulation.contacts.i) / case.count), rebuilds=simulation.rebuilds,
            updates_per_s=short(case.count * case.steps / seconds), ratio=ratio, difference=difference,
        )  # fmt: skip

    if place.name != "cpu":
        simulation.run(100)  # compiles, and captures graphs of both lists
        yield row("simulation", timed(simulation.run, case.steps))
        return
    threads = place.threads
    loop = Loop(simulation, threads)
    Loop(simulation, threads).run(1)  # compiles
    seconds: dict[str, list[float]] = {"simulation": [], "loop": []}
    for _ in range(TURNS):
        for name, run in (("simulation", simulation.run), ("loop", loop.run)):
            seconds[name].append(timed(run, case.steps // TURNS))
    difference = short(float(np.abs(simulation.positions - loop.x).max()))
    ratio = sum(seconds["loop"]) / sum(seconds["simulation"])
    yield row("simulation", sum(seconds["simulation"]))
    yield row("loop over pairs of cKDTree", sum(seconds["loop"]), f"{ratio:.1f}", difference)


def timed(run: Callable[[int], None], steps: int) -> float:
    """Return the seconds of some steps; a run ends when the device has made them."""
    begin = time.perf_counter()
    run(steps)
    return time.perf_counter() - begin


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__).parse_args()
    place = Place(asked.backend)
    cases = SMALL if asked.small else HOST if place.name == "cpu" else GPU
    with runs.Run(place, asked.out) as run:
        run.write(place.file("dem", "steps"), run.measure("DEM", cases, lambda case: rows(place, case)))
    run.finish()


if __name__ == "__main__":
    main()
