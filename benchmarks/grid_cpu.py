# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids on the CPU: builds, and neighbour lists beside SciPy and vesin in the same run.

Writes ``results/grid-cpu-DEVICE.csv``. float64, uniform random positions, 26 neighbours within the radius, open box
and periodic. Lists hold each pair once (``i < j``); all make what they search with anew in every call, as moving
particles ask for. Calls of all take turns; medians; ratios are a peer's time over ours: above 1 we are faster.
SciPy's ``cKDTree`` runs on one thread whatever is asked. A peer that is not installed has no figures.

    python benchmarks/grid_cpu.py [--quick] [--threads 2 16] [--count 10000 100000 1000000] [--repeats 7]
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import particlemesh as pm
from cpu import device_name, medians
from grid_cases import cloud, side
from grid_clock import short
from grid_peers import vesin_list
from measure import write
from particlemesh.backends.cpu import available_threads
from particlemesh.grid.builders import METHODS

NEIGHBOURS = 26
COLUMNS = ("group", "what", "storage", "stable", "cloud", "periodic", "N", "pairs", "threads",
           "ours_s", "scipy_s", "vesin_s", "scipy_ratio", "vesin_ratio", "particles_per_s")  # fmt: skip


def row(**known: Any) -> dict[str, Any]:
    """Return a row of the CSV; what is not known is empty."""
    known["ours_s"] = short(known["ours_s"])
    known["particles_per_s"] = short(known["N"] / known["ours_s"])
    return {name: known.get(name, "") for name in COLUMNS}


def place(count: int, name: str = "uniform") -> tuple[np.ndarray, float]:
    """Return positions whose neighbours within distance 1 are 26, and the side of their box."""
    length = side(count, NEIGHBOURS)
    return cloud(name, count, 3, int(length), "float64") * length, length


def builds(count: int, threads: int, repeats: int, clouds: list[str]) -> Iterator[dict[str, Any]]:
    """Return a row for every builder, storage and cloud; all of a cloud take turns."""
    variants = [(m.name, storage, False) for m in METHODS if "cpu" in m.backends for storage in ("ids", "records")]
    variants += [(name, "records", True) for name in ("scan", "sort")]
    for name in clouds:
        x, length = place(count, name)
        calls, kept = [], []
        for method, storage, stable in variants:
            try:
                grid = pm.UniformGrid(
                    pm.Box((length,) * 3, periodic=False), cell_size=1.0, method=method, threads=threads,
                    queries=storage == "records", deterministic=stable,
                )  # fmt: skip
                radii = (0.5,) if method == "linked_list_tight" else ()
                grid.build(x, *radii)
            except (ValueError, NotImplementedError) as error:  # what a builder declines, in its words
                print(f"  {method}, {storage}: {error}"[:300])
                continue
            calls.append(lambda g=grid, r=radii: g.build(x, *r))
            kept.append((method, storage, stable))
        for (method, storage, stable), ours in zip(kept, medians(repeats, *calls), strict=True):
            yield row(group="build", what=method, storage=storage, stable=int(stable), cloud=name, periodic=0,
                      N=count, threads=threads, ours_s=ours)  # fmt: skip


def peers(x: np.ndarray, length: float, periodic: bool, threads: int) -> dict[str, Callable[[], Any]]:
    """Return what the peers that are installed do for the same pairs."""
    boxsize = length if periodic else None
    calls: dict[str, Callable[[], Any]] = {
        "scipy": lambda: cKDTree(x, boxsize=boxsize).query_pairs(1.0, output_type="ndarray")
    }
    if importlib.util.find_spec("vesin"):
        calls["vesin"] = vesin_list(x, np.eye(3) * length, periodic, 1.0, full=False, threads=threads)
    return calls


def lists(count: int, periodic: bool, threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Return a row for pairs in the caller's order beside the peers, and rows for the other forms of lists."""
    x, length = place(count)
    grid = pm.UniformGrid(pm.Box((length,) * 3, periodic=periodic), cell_size=1.0, threads=threads)

    def ours(**asked: Any) -> Callable[[], Any]:
        def call() -> Any:
            grid.build(x)
            return grid.pairs(1.0, **asked)

        return call

    half_pairs = ours(half=True, format="coo", quantities="ij")
    theirs = peers(x, length, periodic, threads)
    found = half_pairs().i.shape[0]
    for name, call in theirs.items():
        result = call()
        total = len(result) if name == "scipy" else len(result[0])
        if abs(total - found) > 1e-6 * found:  # a pair at the radius itself may be rounded to either side
            raise SystemExit(f"{name} finds {total:,} pairs of {count:,} particles, not {found:,}.")
    seconds = medians(repeats, half_pairs, *theirs.values())
    line = row(group="pairs", what="half ij", cloud="uniform", periodic=int(periodic), N=count, pairs=found,
               threads=threads, ours_s=seconds[0])  # fmt: skip
    for name, peer in zip(theirs, seconds[1:], strict=True):
        line[f"{name}_s"], line[f"{name}_ratio"] = short(peer), round(peer / seconds[0], 2)
    yield line

    def counted() -> None:
        grid.build(x)
        grid.count(1.0)

    others = {
        "half csr": ours(), "full csr": ours(half=False), "full csr, grid order": ours(half=False, order="grid"),
        "half ijdDS": ours(format="coo", quantities="ijdDS"), "count": counted,
    }  # fmt: skip
    for (what, _), mine in zip(others.items(), medians(repeats, *others.values()), strict=True):
        twice = 2 if what.startswith(("full", "count")) else 1
        yield row(group="pairs", what=what, cloud="uniform", periodic=int(periodic), N=count, pairs=twice * found,
                  threads=threads, ours_s=mine)  # fmt: skip


HEAD = (
    f"{'cloud':18s}{'what':24s}{'N':>9s}{'thr':>4s}{'ours ms':>10s}"
    f"{'scipy ms':>10s}{'ratio':>7s}{'vesin ms':>10s}{'ratio':>7s}"
)


def show(line: dict[str, Any]) -> None:
    """Print a row of the table."""
    what = f"{line['what']} {line['storage']}{' stable' if line['stable'] == 1 else ''}".replace("linked_list", "list")
    where = line["cloud"] + (" periodic" if line["periodic"] else "")
    ratios = "".join(
        f"{line[f'{name}_s'] * 1e3:10.2f}{line[f'{name}_ratio']:7.2f}" if line[f"{name}_s"] else ""
        for name in ("scipy", "vesin")
    )
    print(f"{where:18s}{what:24s}{line['N']:9,d}{line['threads']:4d}{line['ours_s'] * 1e3:10.2f}{ratios}", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 and 100,000 uniform particles, fewer repeats")
    parser.add_argument("--threads", type=int, nargs="+", default=[available_threads()])
    parser.add_argument("--count", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    begin = time.perf_counter()
    counts = [10**4, 10**5] if asked.quick else asked.count
    repeats = min(asked.repeats, 3) if asked.quick else asked.repeats
    clouds = ["uniform"] if asked.quick else ["uniform", "clustered", "nearly sorted"]
    if not importlib.util.find_spec("vesin"):
        print("vesin is not measured: it is not installed.")
    print(f"{device_name()}\n{HEAD}")
    rows = []
    for count in counts:
        fewer = max(3, repeats // 2) if count >= 10**6 else repeats  # SciPy takes seconds there
        for threads in asked.threads:
            for line in builds(count, threads, repeats, clouds):
                rows.append(line)
                show(line)
            for periodic in (False, True):
                for line in lists(count, periodic, threads, fewer):
                    rows.append(line)
                    show(line)
    print(f"{write('grid-cpu', device_name(), rows, asked.out)}, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
