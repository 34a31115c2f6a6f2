# SPDX-License-Identifier: BSD-3-Clause
"""How evenly a mesh is cut for a clustered cloud: the fullest rank over the mean, without running the ranks.

Seven tenths of the particles are in 2,000 clusters, whose masses follow a power law. Equal blocks stand beside cuts by
recursive bisection on 32 boxes an axis, and on all planes of nodes, as ``Plan.balanced`` cuts. No cut of nodes gives
less than ``densest``, the particles of the fullest node. ``windows`` are the nodes of all parts with the ghosts of six
nodes, over those of the mesh. One mesh serves any number of ranks; then meshes have 256 nodes cubed for a rank.
Seconds are those of one process. Writes ``results/distributed-balance-DEVICE.csv``.

    python benchmarks/distributed/balance.py [--particles N] [--nodes K] [--out DIR]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness.place import Place
from harness.tables import RESULTS, short, write
from particlemesh.distributed import Domain
from particlemesh.distributed.domain import cut_by_particles
from particlemesh.distributed.windows import reach_of

RANKS, BOXES = (8, 64, 512, 1024, 4096), 32


def cloud(count: int) -> np.ndarray:
    """Return the positions of clusters in a uniform background, in a periodic box of length 1."""
    rng = np.random.default_rng(0)
    masses = rng.pareto(1.0, 2000) + 1
    cluster = rng.choice(masses.size, count * 7 // 10, p=masses / masses.sum())
    radii = 0.05 * (masses / masses.max()) ** (1 / 3)
    offsets = rng.standard_normal((cluster.size, 3)) * rng.pareto(2.5, cluster.size)[:, None]
    x = rng.random((masses.size, 3))[cluster] + radii[cluster, None] * offsets
    return np.concatenate([x, rng.random((count - cluster.size, 3))]) % 1.0


def main() -> None:
    """Cut a cloud for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=8_000_000)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    place, rows = Place("cpu"), []
    x = cloud(asked.particles)
    boxes = np.histogramdd(x, bins=[np.arange(BOXES + 1) / BOXES] * 3)[0]
    for ranks, nodes in [(ranks, asked.nodes) for ranks in RANKS] + [(n, round(256 * n ** (1 / 3))) for n in RANKS[2:]]:
        mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)
        cells = pm.locate(x, mesh, window="bspline6").cells % nodes
        filled = np.unique(np.ravel_multi_index(tuple(cells.T), mesh.shape), return_counts=True)[1]
        columns = tuple(np.ascontiguousarray(axis) for axis in cells.T)
        blocks, begin = Domain(mesh, ranks), time.perf_counter()
        planes = cut_by_particles(blocks, columns, lambda counts: counts.astype(np.int64), 1.0, 0.0)
        seconds = time.perf_counter() - begin
        for cut, domain in (("blocks", blocks), (f"{BOXES} boxes", blocks.balanced(boxes)), ("planes", planes)):
            held = np.bincount(domain.part_of(columns), minlength=ranks)
            windows = domain.windows(reach_of(6, 3))[1].prod(1).sum() / mesh.size
            rows.append(
                dict(
                    place.facts, ranks=ranks, cut=cut, particles=asked.particles, nodes=nodes,
                    densest=short(filled.max() / held.mean()), fullest=short(held.max() / held.mean()),
                    windows=short(windows), seconds=short(seconds) if cut == "planes" else "",
                )
            )  # fmt: skip
            print(
                "  ".join(f"{name} {value}" for name, value in rows[-1].items() if name not in place.facts), flush=True
            )
    print(write("distributed-balance", str(rows[0]["device"]), rows, asked.out))


if __name__ == "__main__":
    main()
