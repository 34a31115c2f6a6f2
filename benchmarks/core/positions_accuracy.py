# SPDX-License-Identifier: BSD-3-Clause
"""How exactly float32 positions are located: interpolation in float32 against exact positions.

Writes ``results/positions-accuracy-DEVICE.csv`` and prints it as a table. One axis of length 0.7, a B-spline of order
6, random values at the nodes. The error is the largest of all particles, as a part of the largest value. The reference
takes the same float32 positions in extended precision and the same field in float64.

FINUFFT, where it can be imported, interpolates in float32 with its window of 6 nodes (``eps=1e-5``, upsampling 2).
Its box has the length 2 pi, and its positions are float32 angles, so that none scales them before. Its reference is
its own interpolation in float64 at the same angles.

    python benchmarks/core/positions_accuracy.py [--backend cpu] [--count 10000]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness.tables import RESULTS, facts, processor, write
from particlemesh import backends

LENGTH, SUPPORT, TOLERANCE = 0.7, 6, 1e-5
MESHES = (30, 100, 500, 1000, 4096)
AWAY = (0, 1000)


def fractions(count: int, away: int, seed: int) -> np.ndarray:
    """Return random fractions of the box, up to so many boxes away."""
    rng = np.random.default_rng(seed)
    return rng.random(count) + rng.integers(-away, away + 1, count)


def relative(values: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest error as a part of the largest value."""
    return float(np.abs(values - exact).max() / np.abs(exact).max())


def ours(nodes: int, away: int, count: int, backend: str) -> float:
    """Return the error of particlemesh."""
    x = (fractions(count, away, nodes) * LENGTH).astype(np.float32)
    field = np.random.default_rng(1).uniform(-1, 1, nodes).astype(np.float32)
    window = pm.bspline(SUPPORT)
    with pm.Plan(pm.Mesh(nodes, LENGTH), window, dtype="float32", backend=backend) as plan:
        plan.set_positions(x)
        values = plan.interpolate(field)
    s = x.astype(np.longdouble) / np.longdouble(LENGTH)
    u = (s - np.floor(s)) * nodes
    first = np.floor(u - SUPPORT / 2).astype(np.int64) + 1
    exact = np.zeros(count)
    for k in range(SUPPORT):
        exact += window((first + k - u).astype(np.float64)) * field[(first + k) % nodes]
    return relative(values, exact)


def finufft_error(nodes: int, away: int, count: int) -> float:
    """Return the error of FINUFFT."""
    import finufft

    angles = (fractions(count, away, nodes) * 2 * np.pi - np.pi).astype(np.float32)
    field = np.random.default_rng(1).uniform(-1, 1, nodes).astype(np.complex64)
    values = []
    for real, kind in ((np.float32, np.complex64), (np.float64, np.complex128)):
        options = {"eps": TOLERANCE, "dtype": np.dtype(kind).name, "spreadinterponly": 1, "upsampfac": 2.0}
        plan = finufft.Plan(2, (nodes,), nthreads=1, **options)
        plan.setpts(angles.astype(real))
        values.append(plan.execute(field.astype(kind)))
    return relative(*values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cpu", choices=backends.NAMES)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args()
    peer = importlib.util.find_spec("finufft") is not None
    version = importlib.metadata.version("finufft") if peer else ""
    backend = backends.current(options.backend)
    about = facts(backend) | {"finufft_version": version}
    print("nodes  boxes away  particlemesh  finufft" if peer else "nodes  boxes away  particlemesh (no finufft here)")
    rows = []
    for away in AWAY:
        for nodes in MESHES:
            error = ours(nodes, away, options.count, options.backend)
            theirs = f"{finufft_error(nodes, away, options.count):.1e}" if peer else ""
            print(f"{nodes:5}  {away:10}  {error:12.1e}  {theirs}", flush=True)
            rows.append(
                {"nodes": nodes, "boxes_away": away, "particlemesh": f"{error:.1e}", "finufft": theirs, **about}
            )
    device = processor() if options.backend == "cpu" else backend.device
    print(write("positions-accuracy", device, rows, options.folder))


if __name__ == "__main__":
    main()
