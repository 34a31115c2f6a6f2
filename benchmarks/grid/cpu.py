# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids on the CPU: builds, and neighbour lists beside SciPy and vesin in the same run.

Writes ``results/grid-cpu-DEVICE.csv``. float64, uniform random positions, 26 neighbours within the radius, open box
and periodic. Lists hold each pair once (``i < j``). All libraries build their structures anew in every call, as for
moving particles. Calls of all alternate; times are medians; ratios are a peer's time over ours: above 1 ours is faster.
SciPy's ``cKDTree`` runs on one thread. A peer that is not installed has no figures.

    python benchmarks/grid/cpu.py [--small] [--threads 2 16] [--count 10000 100000 1000000] [--repeats 7]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from grid.peers import vesin_list
from harness import runs
from harness.clock import turns
from harness.clouds import positions, side
from harness.inside import available_threads
from harness.place import Place
from harness.tables import short
from particlemesh.grid.builders import METHODS

NEIGHBOURS = 26
COLUMNS = ("group", "what", "storage", "stable", "cloud", "periodic", "N", "pairs", "threads",
           "ours_s", "scipy_s", "vesin_s", "scipy_ratio", "vesin_ratio", "particles_per_s")  # fmt: skip


def row(**known: Any) -> dict[str, Any]:
    """Return a row of the CSV file; unknown columns are empty."""
    known["ours_s"] = short(known["ours_s"])
    known["particles_per_s"] = short(known["N"] / known["ours_s"])
    return {name: known.get(name, "") for name in COLUMNS}


def cloud_of(count: int, name: str = "uniform") -> tuple[np.ndarray, float]:
    """Return positions whose neighbours within distance 1 are 26, and the side of their box."""
    length = side(count, NEIGHBOURS)
    return positions(name, count, "float64", 3, int(length)) * length, length


def builds(count: int, threads: int, repeats: int, clouds: list[str]) -> Iterator[dict[str, Any]]:
    """Return a row for every builder, storage and cloud; builders of a cloud alternate."""
    variants = [(m.name, storage, False) for m in METHODS if "cpu" in m.backends for storage in ("ids", "records")]
    variants += [(name, "records", True) for name in ("scan", "sort")]
    for name in clouds:
        x, length = cloud_of(count, name)
        calls, kept = [], []
        for method, storage, stable in variants:
            try:
                grid = pm.UniformGrid(
                    pm.Box((length,) * 3, periodic=False), cell_size=1.0, method=method, threads=threads,
                    queries=storage == "records", deterministic=stable,
                )  # fmt: skip
                radii = (0.5,) if method == "linked_list_tight" else ()
                grid.build(x, *radii)
            except (pm.MethodNotSuitable, NotImplementedError):  # the builder declines
                continue
            calls.append(lambda g=grid, r=radii: g.build(x, *r))
            kept.append((method, storage, stable))
        for (method, storage, stable), ours in zip(kept, turns(repeats, *calls), strict=True):
            yield row(group="build", what=method, storage=storage, stable=int(stable), cloud=name, periodic=0,
                      N=count, threads=threads, ours_s=ours)  # fmt: skip


def peers(x: np.ndarray, length: float, periodic: bool, threads: int) -> dict[str, Callable[[], Any]]:
    """Return the calls of the installed peers for the same pairs."""
    boxsize = length if periodic else None
    calls: dict[str, Callable[[], Any]] = {
        "scipy": lambda: cKDTree(x, boxsize=boxsize).query_pairs(1.0, output_type="ndarray")
    }
    if importlib.util.find_spec("vesin"):
        calls["vesin"] = vesin_list(x, np.eye(3) * length, periodic, 1.0, full=False, threads=threads)
    return calls


def lists(count: int, periodic: bool, threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Return a row for pairs in the caller's order beside the peers, and rows for the other forms of lists."""
    x, length = cloud_of(count)
    grid = pm.UniformGrid(pm.Box((length,) * 3, periodic=periodic), cell_size=1.0, threads=threads)

    def ours(**asked: Any) -> Callable[[], Any]:
        def call() -> Any:
            grid.build(x)
            return grid.pairs(1.0, **asked)

        return call

    half_pairs = ours(half=True, format="coo", quantities="ij")
    theirs = peers(x, length, periodic, threads)
    count_of_pairs = half_pairs().i.shape[0]
    for name, call in theirs.items():
        result = call()
        total = len(result) if name == "scipy" else len(result[0])
        if abs(total - count_of_pairs) > 1e-6 * count_of_pairs:  # a pair at the radius may be rounded to either side
            raise RuntimeError(f"{name} finds {total:,} pairs of {count:,} particles, not {count_of_pairs:,}.")
    seconds = turns(repeats, half_pairs, *theirs.values())
    line = row(group="pairs", what="half ij", cloud="uniform", periodic=int(periodic), N=count, pairs=count_of_pairs,
               threads=threads, ours_s=seconds[0])  # fmt: skip
    for name, peer in zip(theirs, seconds[1:], strict=True):
        line[f"{name}_s"], line[f"{name}_ratio"] = short(peer), round(peer / seconds[0], 2)
    yield line

    def counted() -> None:
        grid.build(x)
        grid.count(1.0)

    others = {
        "half csr": ours(half=True), "full csr": ours(), "full csr, grid order": ours(order="grid"),
        "half ijdDS": ours(half=True, format="coo", quantities="ijdDS"), "count": counted,
    }  # fmt: skip
    for (what, _), mine in zip(others.items(), turns(repeats, *others.values()), strict=True):
        twice = 2 if what.startswith(("full", "count")) else 1
        yield row(group="pairs", what=what, cloud="uniform", periodic=int(periodic), N=count,
                  pairs=twice * count_of_pairs, threads=threads, ours_s=mine)  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend=None)
    parser.add_argument("--threads", type=int, nargs="+", default=[available_threads()])
    parser.add_argument("--count", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    counts, repeats = ([1000], 1) if asked.small else (asked.count, asked.repeats)
    clouds = ["uniform"] if asked.small else ["uniform", "clustered", "nearly sorted"]
    place = Place("cpu")
    with runs.Run(place, asked.out) as run:
        if not importlib.util.find_spec("vesin"):
            run.say("vesin is not measured: it is not installed.")

        def rows_of(case: tuple[int, int, str]) -> Iterator[dict[str, Any]]:
            count, threads, kind = case
            if kind == "builds":
                return builds(count, threads, repeats, clouds)
            fewer = max(3, repeats // 2) if count >= 10**6 else repeats  # SciPy takes seconds
            return lists(count, kind == "periodic", threads, fewer)

        kinds = ("builds", "open", "periodic")
        rows = run.measure("CPU", [(c, t, k) for c in counts for t in asked.threads for k in kinds], rows_of)
        run.write("grid-cpu", rows)
    run.finish()


if __name__ == "__main__":
    main()
