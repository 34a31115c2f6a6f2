# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists of clouds that a dense grid does not suit, beside a uniform cloud of as many particles.

Writes ``results/grid-cliffs-DEVICE.csv``. float64, whole calls of ``neighbour_list`` from arrays on the host: medians
after a first call, which may compile.

    python benchmarks/grid/cliffs.py [--backend cpu] [--small] [--count 100000] [--repeats 5]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.clock import turns
from harness.place import Place
from harness.tables import short


def clouds(count: int) -> dict[str, tuple[np.ndarray, bool, Any]]:
    """Return positions in a unit box, whether it repeats, and radii, by name."""
    rng = np.random.default_rng(1)
    x = rng.random((count, 3))
    radius = 0.03 * (1e5 / count) ** (1 / 3)
    far, two = x.copy(), x.copy()
    far[0] = 1e6, -1e7, 1e12
    two[count // 2 :] += 1e4
    clusters = (x * 1e-3 + rng.random((50, 3))[rng.integers(0, 50, count)]) % 1
    one = np.full(count, radius / 3)
    one[count // 2] = 0.2
    return {
        "uniform": (x, True, radius), "uniform, open": (x, False, radius), "one far away": (far, False, radius),
        "two clusters": (two, False, radius), "50 clusters": (clusters, True, radius / 300),
        "one large radius": (x, True, one), "radii of all sizes": (x, True, 10 ** rng.uniform(-4, -1.5, count)),
        "few in reach": (x, True, radius / 30),
    }  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend="cpu")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    count, repeats = (1000, 1) if asked.small else (asked.count, asked.repeats)
    cases = clouds(count)

    def rows_of(name: str) -> Iterator[dict[str, Any]]:
        x, periodic, radius = cases[name]

        def call() -> Any:
            return pm.neighbour_list("ij", x, (1.0,) * 3, radius, periodic=periodic, backend=asked.backend)

        pairs = len(call()[0])
        yield dict(cloud=name, N=count, pairs=pairs, seconds=short(turns(repeats, call)[0]))

    with runs.Run(Place(asked.backend), asked.out) as run:
        run.write("grid-cliffs", run.measure("clouds", cases, rows_of))
    run.finish()


if __name__ == "__main__":
    main()
