# SPDX-License-Identifier: BSD-3-Clause
"""Forces and steps of particles that a dense grid does not suit, beside a packing: time and memory against N.

Writes ``results/app-cliffs-DEVICE.csv``. Each row is of one application, cloud and number of particles: seconds of a
call (``neighbour_list``, ``WCA``) or of ten steps with their lists (``Simulation``), medians after a first call; and
the most memory that NumPy held meanwhile, without that of the arrays given.

    python benchmarks/apps/cliffs.py [--small] [--repeats 3]
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.clock import turns
from harness.place import Place
from harness.tables import short
from particlemesh.apps.brownian import WCA
from particlemesh.apps.dem import Hertz, Simulation

NUMBERS = (2_000, 16_000, 128_000)


def clouds(n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return centres (N, 3) and diameters (N,) by name; most spheres have the diameter 1."""
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


def calls(x: np.ndarray, diameters: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return what is measured, by the name of the application."""
    low, high = x.min(0) - 1, x.max(0) + 1
    sigma = 1.0 if len(set(diameters)) == 1 else diameters
    soft = WCA(pm.Box(high - low, origin=low), 1.0, sigma)
    law = Hertz(1e6, 0.3, restitution=0.5, friction=0.3)

    def steps() -> None:
        Simulation(x, diameters / 2, density=1.0, contact=law, threads=1).run(10)

    def listed() -> Any:
        return pm.neighbour_list("ij", x, (1.0,) * 3, 0.55 * diameters, periodic=False)

    return {"neighbour_list": listed, "WCA": lambda: soft(x), "Simulation": steps}


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    numbers, repeats = (NUMBERS[:1], 1) if asked.small else (NUMBERS, asked.repeats)
    cases = {f"{name}, {n}": clouds(n)[name] for name in clouds(8) for n in numbers}

    def rows_of(case: str) -> Iterator[dict[str, Any]]:
        x, diameters = cases[case]
        for application, call in calls(x, diameters).items():
            call()
            seconds = short(turns(repeats, call)[0])
            tracemalloc.start()
            call()
            held = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            yield dict(
                application=application, cloud=case.rsplit(",", 1)[0], N=len(x), seconds=seconds,
                megabytes=short(held / 1e6),
            )  # fmt: skip

    with runs.Run(Place(asked.backend), asked.out) as run:
        run.write("app-cliffs", run.measure("clouds", cases, rows_of))
    run.finish()


if __name__ == "__main__":
    main()
