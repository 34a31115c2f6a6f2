# SPDX-License-Identifier: BSD-3-Clause
"""Outliers, clusters, dilute and long boxes, and mixed sizes, beside even clouds: time and memory against N.

Writes ``results/app-cliffs-DEVICE.csv``. Each row is of one application, cloud and number of particles:

- pairs within the distance that the application searches, 0 if it searches none
- seconds of a call, or of ten steps with their lists (``Simulation``, ``BrownianDynamics``): medians after a first call
- the most memory that NumPy held meanwhile, in megabytes, without that of the arrays given

An application with ``O(N log N + pairs)`` has the same time per particle and pair for all N. Where a call takes long or
much memory, larger clouds of its kind are left out.

    python benchmarks/apps/cliffs.py [--small] [--repeats 3] [--only PME]
"""

from __future__ import annotations

import functools
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.clock import turns
from harness.place import Place
from harness.tables import short
from particlemesh.apps import nufft
from particlemesh.apps.brownian import RPY, WCA, BrownianDynamics, Drag, HarmonicBonds, Sum
from particlemesh.apps.dem import Hertz, Simulation
from particlemesh.apps.pme import PME, PMEBatch

NUMBERS = (12**3, 25**3, 50**3)
LONG, MUCH = 1.0, 100.0  # seconds and megabytes of a call: eight times as many particles may take 64 times as much
TOGETHER = 100  # particles in a system of a batch


class Call(NamedTuple):
    """What is measured, and what pairs are counted for it."""

    run: Callable[[], Any]
    pairs: Callable[[], int] = lambda: 0


def spheres(n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return centres (N, 3) and diameters (N,) in open boxes; most spheres have the diameter 1."""
    side = round(n ** (1 / 3))
    x = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3) * 1.01
    one = np.ones(len(x))
    far, heaps, large, wide = x.copy(), x.copy(), x.copy(), one.copy()
    far[0], large[0], wide[0] = 1e6, -10.0, 15.0
    heaps[len(x) // 2 :] += 1e4
    gas = np.random.default_rng(1).random((len(x), 3)) * 32 * side
    return {
        "packed": (x, one), "one far away": (far, one), "two heaps": (heaps, one), "dilute": (gas, one),
        "one 15 times larger": (large, wide),
    }  # fmt: skip


def touching(application: str, x: np.ndarray, diameters: np.ndarray) -> Call:
    """Return a call for spheres in an open box."""
    one, reach = len(set(diameters)) == 1, 0.55 * diameters
    box = pm.Box(x.max(0) - x.min(0) + 2, origin=x.min(0) - 1, periodic=False)

    def listed() -> Any:
        return pm.neighbour_list("i", x, box, reach, half=True)

    def soft() -> WCA:
        return WCA(box, 1.0, 1.0 if one else diameters)

    def granular() -> None:
        law = Hertz(1e6, 0.3, restitution=0.5, friction=0.3)
        Simulation(x, diameters / 2, density=1.0, contact=law, overlaps="allow", threads=1).run(10)

    def chain() -> None:
        bonds = HarmonicBonds(np.stack([np.arange(1, len(x) - 1), np.arange(2, len(x))], 1), 1.0, 1.0)
        BrownianDynamics(x, Drag(), Sum(bonds, soft()), time_step=1e-9, seed=1).run(10)

    calls = {"neighbour_list": listed, "WCA": lambda: soft()(x), "Simulation": granular, "BrownianDynamics": chain}
    return Call(calls[application], lambda: len(listed()))


def charges(n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return positions (N, 3) in periodic boxes, and the lengths of these."""
    x, cube = np.random.default_rng(1).random((n, 3)) * n ** (1 / 3), np.full(3, n ** (1 / 3))
    long = np.array([36.0, 1 / 6, 1 / 6])
    half = np.where(np.arange(n)[:, None] % 2, x, 20 * x)
    return {
        "uniform": (x, cube), "dilute": (20 * x, 20 * cube), "long": (long * x, long * cube),
        "one cluster": (x, 20 * cube), "half in a cluster": (half, 20 * cube),
    }  # fmt: skip


def periodic(application: str, x: np.ndarray, lengths: np.ndarray) -> Call:
    """Return a call for particles in a periodic box."""
    n, box = len(x), tuple(map(float, lengths))
    grid = pm.UniformGrid(box, cell_size=max(1.0, float(lengths.prod() / n) ** (1 / 3)))

    def within(radius: Callable[[], float]) -> Callable[[], int]:
        return lambda: int(grid.build(x).count(radius()).sum()) // 2

    q = np.where(np.arange(n) % 2, 1.0, -1.0)
    if application == "PME":
        pme = PME(box, accuracy=1e-3)
        return Call(lambda: pme(x, q), within(lambda: pme.parameters.cutoff))
    if application == "RPY":
        rpy = RPY(box, 0.25, accuracy=1e-3)
        velocities = q[:, None] * np.ones(3)
        return Call(lambda: rpy.set_positions(x).velocity(velocities), within(lambda: rpy.parameters.cutoff))
    return Call(lambda: grid.build(x).nearest(4, 2.0), within(lambda: 2.0))


def batch(n: int) -> dict[str, Call]:
    """Return calls of `PMEBatch`: many small systems, and as many of which one has half of the particles."""
    x, edge, systems = np.random.default_rng(1).random((n, 3)), TOGETHER ** (1 / 3), n // TOGETHER
    q, even = np.where(np.arange(n) % 2, 1.0, -1.0), np.arange(n) // TOGETHER % systems
    calls = {}
    for cloud, lengths, spread, system in (
        ("uniform", (edge,) * 3, 1.0, even), ("long", (36 * edge, edge / 6, edge / 6), 1.0, even),
        ("clusters", (20 * edge,) * 3, 0.05, even),
        ("half in one system", (edge,) * 3, 1.0, np.where(np.arange(n) < n // 2, 0, even)),
    ):  # fmt: skip
        pme = PMEBatch(lengths, systems, accuracy=1e-3)
        at = x * spread * lengths
        calls[cloud] = Call(lambda pme=pme, at=at, system=system: pme(at, q, system))
    return calls


def spread(n: int) -> dict[str, Call]:
    """Return calls of `Plan`: spread and interpolate, with all particles in one cell too."""
    x, values, nodes = np.random.default_rng(1).random((n, 3)), np.ones(n), max(8, round(n ** (1 / 3)))
    mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)

    def there_and_back(plan: pm.Plan, at: np.ndarray) -> Any:
        plan.set_positions(at)
        return plan.interpolate(plan.spread(values))

    return {
        f"{name}{', deterministic' * fixed}": Call(
            functools.partial(there_and_back, pm.Plan(mesh, "bspline4", deterministic=fixed), at)
        )
        for name, at in (("uniform", x), ("one cell", (x + 4) / nodes))
        for fixed in (False, True)
    }


def type_3(n: int) -> dict[str, Call]:
    """Return calls of a NUFFT of type 3 on a line; setpts refuses what needs more memory than there is."""
    random = np.random.default_rng(1)
    x, s, c = random.uniform(-np.pi, np.pi, n), random.uniform(-n / 2, n / 2, n), random.standard_normal(n) + 0j
    plan = nufft.Plan(3, 1, eps=1e-6)

    def sums(x: np.ndarray, s: np.ndarray) -> Any:
        plan.setpts(x, s=s)
        return plan.execute(c)

    far = np.where(np.arange(n) == 0, 1e3, 1.0)
    return {
        "uniform": Call(lambda: sums(x, s)), "one point far away": Call(lambda: sums(x * far, s)),
        "one frequency far away": Call(lambda: sums(x, s * far)),
    }  # fmt: skip


def calls(application: str, n: int) -> dict[str, Call]:
    """Return what is measured of an application, by clouds of n particles, a cube."""
    if application in ("neighbour_list", "WCA", "Simulation", "BrownianDynamics"):
        return {cloud: touching(application, *of) for cloud, of in spheres(n).items()}
    if application in ("PME", "RPY", "nearest"):
        return {cloud: periodic(application, *of) for cloud, of in charges(n).items()}
    return {"PMEBatch": batch, "Plan": spread, "nufft": type_3}[application](n)


APPLICATIONS = (
    "neighbour_list", "WCA", "Simulation", "BrownianDynamics", "nearest", "PME", "PMEBatch", "RPY", "Plan",
    "nufft",
)  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, APPLICATIONS, "cpu")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    numbers, repeats = ((6**3,), 1) if asked.small else (NUMBERS, asked.repeats)

    def rows_of(application: str) -> Iterator[dict[str, Any]]:
        left_out: set[str] = set()
        for n in numbers:
            for cloud, call in calls(application, n).items():
                if cloud in left_out:
                    continue
                seconds = turns(repeats, call.run)[0]
                tracemalloc.start()
                call.run()
                held = tracemalloc.get_traced_memory()[1] / 1e6
                tracemalloc.stop()
                if seconds > LONG or held > MUCH:
                    left_out.add(cloud)
                yield dict(
                    application=application, case=cloud, particles=n, pairs=call.pairs(), seconds=short(seconds),
                    megabytes=short(held),
                )  # fmt: skip

    with runs.Run(Place(asked.backend), asked.out) as run:
        run.write("app-cliffs", run.measure("applications", asked.only, rows_of, "app-cliffs"))
    run.finish()


if __name__ == "__main__":
    main()
