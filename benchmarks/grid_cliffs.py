# SPDX-License-Identifier: BSD-3-Clause
"""Times neighbour lists of clouds that a dense grid does not suit, beside a uniform one of as many particles.

python benchmarks/grid_cliffs.py --particles 100000 --backend cpu
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import particlemesh as pm
from measure import device_name, write


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
    """Time and print; write a file if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", choices=("cpu", "cuda", "opencl"), default="cpu")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/grid-cliffs-DEVICE.csv")
    chosen = parser.parse_args()
    rows = []
    for name, (x, periodic, radius) in clouds(chosen.particles).items():
        seconds = []
        for turn in range(chosen.repeats + 1):
            begin = time.perf_counter()
            i, _ = pm.neighbour_list("ij", x, (1.0,) * 3, radius, periodic=periodic, backend=chosen.backend)
            if turn:  # the first may compile
                seconds.append(time.perf_counter() - begin)
        rows.append(dict(cloud=name, N=chosen.particles, pairs=len(i), seconds=round(statistics.median(seconds), 5)))
        print(f"{name:20s} {len(i):>12,} pairs {rows[-1]['seconds'] * 1e3:10.2f} ms")
    if chosen.write:
        print(write("grid-cliffs", device_name(), rows))


if __name__ == "__main__":
    main()
