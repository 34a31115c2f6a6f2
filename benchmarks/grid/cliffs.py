# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists of clouds that a dense grid does not suit, beside a uniform cloud of as many particles.

Prints the pairs and the median time of ``neighbour_list`` for each cloud.

    python benchmarks/grid/cliffs.py [--backend cpu] [--small] [--particles 100000]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.clouds import SEED
from harness.place import Place


def clouds(count: int) -> dict[str, tuple[np.ndarray, bool, Any]]:
    """Return positions, whether the unit box is periodic, and radii, by name."""
    rng = np.random.default_rng(SEED)
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
        "few within the radius": (x, True, radius / 30),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = runs.parser(__doc__, backend="cpu")
    parser.add_argument("--particles", type=int, default=100_000)
    asked = parser.parse_args()
    place = Place(asked.backend)
    with runs.Run(place, asked.out) as run:
        for name, (x, periodic, radius) in clouds(1000 if asked.small else asked.particles).items():

            def listed(x: Any = x, radius: Any = radius, periodic: bool = periodic) -> Any:
                return pm.neighbour_list("i", x, (1.0,) * 3, radius, periodic=periodic, backend=place.name)

            with place.attempt(name):
                seconds = place.clock.wall(listed, 1 if asked.small else 5)
                run.say(f"{name:22s} {len(listed()):>12,} pairs {seconds * 1e3:10.2f} ms")
    run.finish()


if __name__ == "__main__":
    main()
