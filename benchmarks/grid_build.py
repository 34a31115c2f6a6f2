# SPDX-License-Identifier: BSD-3-Clause
"""Insertions a second of every builder of uniform grids on a CUDA device.

Writes ``results/grid-build-DEVICE.csv``. float32 positions in a unit box with open faces; ``graph`` is the GPU's time
of one whole build, reset included, captured and replayed; ``plain`` that of a call, back to back. Repeated inputs below
about 50 MB stay in the second-level cache, as they do in a simulation's loop. ``ids`` is the builder's own storage
(``queries=False``), ``records`` what queries read. The tight list gets particles as wide as a cell: 8 entries each.
``-reset`` is the build less the memset that it begins with, timed alone; ``stable`` is ``deterministic=True``.
Peers: CUB's and torch's sorts of keys that are ready, with their indices; published figures are marked so.

    python benchmarks/grid_build.py [--quick] [--only GROUP ...]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

import particlemesh as pm
from grid_cases import CLOUDS, cloud, keys
from grid_clock import NO_TIME, Clock, giga, micro, short
from grid_peers import Cub, published, torch_graph_seconds, torch_missing, torch_sorts
from measure import write
from particlemesh.grid.builders import METHODS

# Methods with an option that changes what is done have a builder for each; all others have one.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "fixed": {"fixed column": {"layout": "column"}, "fixed row": {"layout": "row"}},
    "sort": {"sort linear": {"curve": "linear"}, "sort morton": {"curve": "morton"}},
}
TIGHT, AUTO = "linked_list_tight", ("auto", "auto", {})
MEASURED = "measured"
# Insertions a second to reach on an H200, in units of 1e9, by (builder, storage, stable, cloud, cells, log2 N).
TO_REACH = {
    ("linked_list_loose", "ids", 0, "uniform", 64, 20): 55,
    ("linked_list_loose", "ids", 0, "uniform", 64, 22): 50,
    ("linked_list_loose", "ids", 0, "uniform", 64, 14): 16384 / 3.5e3,
    ("fixed column", "ids", 0, "uniform", 64, 20): 33,
    ("scan", "ids", 0, "uniform", 64, 20): 22,
    ("scan", "ids", 0, "uniform", 64, 22): 20,
    ("scan", "ids", 0, "uniform", 64, 14): 16384 / 8e3,
    ("scan", "records", 0, "uniform", 64, 20): 22,
    ("scan", "records", 0, "nearly sorted", 64, 22): 48,
    ("auto", "records", 1, "uniform", 64, 20): 17,
}


@dataclass(frozen=True)
class Case:
    """One builder on one cloud."""

    group: str
    builder: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    storage: str = "ids"
    stable: bool = False
    cloud: str = "uniform"
    ndim: int = 3
    cells: int = 64  # per axis
    power: int = 20  # 2**power particles
    plain: bool = False

    @property
    def count(self) -> int:
        """Return the number of particles."""
        return 2**self.power

    def __str__(self) -> str:
        return f"{self.builder} {self.storage}, {self.cloud}, {self.cells}^{self.ndim} cells, N = {self.count:,}"


def builders() -> list[tuple[str, str, dict[str, Any]]]:
    """Return (label, method, options) of every builder that runs on CUDA, and of the automatic choice."""
    names = [*(m.name for m in METHODS if "cuda" in m.backends), "auto"]
    return [(label, name, how) for name in names for label, how in VARIANTS.get(name, {name: {}}).items()]


def cases(quick: bool) -> Iterator[Case]:
    """Return all cases, those that share a cloud behind one another."""
    all_of_them = [Case("", *builder) for builder in builders()]
    stable = [replace(c, stable=True) for c in all_of_them if c.builder in ("scan", "sort linear", "auto")]
    with_records = [replace(c, storage="records") for c in all_of_them]
    stable_records = [replace(c, storage="records") for c in stable]
    for power in (14, 20) if quick else range(10, 25, 2):
        for case in all_of_them:
            yield replace(case, group="size", power=power, plain=power in (14, 20, 24))
        if power in (14, 18, 20, 22):
            for case in [*with_records, *stable, *stable_records]:
                yield replace(case, group="size", power=power, plain=power in (14, 20))
        for case in all_of_them if power >= 14 else ():
            yield replace(case, group="size", power=power, cells=128)
    for power, name in itertools.product((20,) if quick else (20, 22), CLOUDS[3:4] if quick else CLOUDS[1:]):
        some_records = [c for c in with_records if c.builder in ("scan", "sort linear", "auto")]
        for case in [*all_of_them, *some_records, *stable_records]:
            yield replace(case, group="cloud", cloud=name, power=power)
    if quick:
        return
    for power, cells in itertools.product((14, 20), (32, 256)):
        for case in all_of_them:
            yield replace(case, group="refined", cells=cells, power=power)
    for power, name in itertools.product((20,), ("uniform", "clustered", "nearly sorted")):
        for case in [*all_of_them, replace(with_records[0], builder="scan", method="scan", options={})]:
            yield replace(case, group="2-D", ndim=2, cells=512, cloud=name, power=power)


@lru_cache(maxsize=1)
def positions(name: str, power: int, ndim: int, cells: int) -> Any:
    """Return a cloud on the device; the last one is kept."""
    return cupy.asarray(cloud(name, 2**power, ndim, cells))


def reset_seconds(clock: Clock, case: Case, grid: Any) -> float:
    """Return the seconds of the memset that the build of a one-pass builder begins with, or NaN for others."""
    counters = {"fixed": 4, "linked_list_loose": 4, TIGHT: 4, "linked_list_packed": 4}
    if case.method not in counters:
        return NO_TIME
    room = cupy.empty(grid.cells * counters[case.method], np.uint8)
    return clock.graph_seconds(lambda: room.data.memset_async(0, room.nbytes))


def measured(clock: Clock, case: Case) -> dict[str, Any]:
    """Return the row of a case."""
    # What nearly sorted particles were sorted by does not depend on whose turn it is: cells are those of the case.
    x = positions(case.cloud, case.power, case.ndim, case.cells if case.cloud == "nearly sorted" else 0)
    grid = pm.UniformGrid(
        pm.Box((1.0,) * case.ndim, periodic=False), shape=(case.cells,) * case.ndim, method=case.method,
        deterministic=case.stable, queries=case.storage == "records", **case.options,
    )  # fmt: skip
    radii = (0.5 / case.cells,) if case.method == TIGHT else ()
    grid.build(x, *radii)  # checked: all memory comes here, and capacities grow
    build = lambda: grid.build(x, *radii, check=False)  # noqa: E731
    graph = clock.graph_seconds(build)
    plain = clock.plain_seconds(build) if case.plain else NO_TIME
    grid.check()
    reset = reset_seconds(clock, case, grid) if case.group in ("size", "refined") else NO_TIME
    bytes_of_grid = grid.nbytes
    grid.close()
    return row(case, graph, plain, graph - reset, bytes_of_grid)


def row(case: Case, graph: float, plain: float, insert: float = NO_TIME, nbytes: int = 0) -> dict[str, Any]:
    """Return the columns of the CSV."""
    return dict(
        group=case.group, builder=case.builder, storage=case.storage, stable=int(case.stable), cloud=case.cloud,
        ndim=case.ndim, cells=case.cells, N=case.count, graph_s=short(graph), plain_s=short(plain),
        insert_s=short(insert), rate=short(case.count / graph), nbytes=nbytes, source=MEASURED,
    )  # fmt: skip


HEAD = (
    f"{'case':>7s} {'cloud':13s} {'builder':18s} {'storage':10s} {'cells':>5s} {'N':>10s} "
    f"{'graph us':>8s} {'G/s':>6s} {'plain us':>8s} {'-reset':>6s}"
)


def show(place: str, case: Case, line: dict[str, Any]) -> None:
    """Print a row of the table."""
    how = {"records": "rec"}.get(case.storage, case.storage) + (" stable" if case.stable else "")
    print(
        f"{place:>7s} {case.cloud:13s} {case.builder:18.18s} {how:10.10s} {f'{case.cells}^{case.ndim}':>5s} "
        f"{case.count:10,d} {micro(line['graph_s']):>8s} {giga(line['rate']):>6s} {micro(line['plain_s']):>8s} "
        f"{micro(line['insert_s']):>6s}",
        flush=True,
    )


def peers(clock: Clock, cub: Cub, quick: bool) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Return the rows of what others offer for the same keys."""
    absent = cub.missing()
    for missing in filter(None, (absent, torch_missing())):
        print(missing)
    for power in (14, 20) if quick else (10, 14, 17, 20, 22, 24):
        for cells in (64,) if quick or power < 20 else (64, 128):
            key = cupy.asarray(keys(cloud("uniform", 2**power, 3), cells).astype(np.int32))
            case = Case("peer", "", "", storage="sorted", cells=cells, power=power, stable=True)
            bits = 3 * int(math.log2(cells))
            for width in () if absent else (bits, 32):
                call = cub.sorter(key.view(np.uint32), width)
                named = replace(case, builder=f"CUB {width} bits")
                yield named, row(named, clock.graph_seconds(call), clock.plain_seconds(call))
            for name, call in torch_sorts(key).items() if cells == 64 and not torch_missing() else ():
                named = replace(case, builder=name, stable=False)
                plain = clock.plain_seconds(call)
                yield named, row(named, torch_graph_seconds(call, max(2, int(min(20, 1e-3 / plain)))), plain)


def repeats_alike(builder: tuple[str, str, dict[str, Any]], stable: bool) -> int:
    """Return in how many of 10 repeated builds every particle had the place that it had in the first."""
    x = positions("uniform", 20, 3, 0)
    grid = pm.UniformGrid(
        pm.Box((1.0,) * 3, periodic=False), shape=(64,) * 3, method=builder[1], deterministic=stable, **builder[2]
    )
    grid.build(x)
    first = cupy.array(cupy.asarray(grid.order))
    alike = 0
    for _ in range(10):
        grid.build(x)
        alike += bool((cupy.asarray(grid.order) == first).all())
    grid.close()
    return alike


def repeated() -> Iterator[dict[str, Any]]:
    """Return rows that say how alike repeated builds are, in the column of rates."""
    print("\nRepeated builds of 1,048,576 uniform particles in which every particle had its first place, of 10:")
    for builder, stable in [*((b, False) for b in builders() if b[0] not in ("auto", TIGHT)), (AUTO, True)]:
        alike = repeats_alike(builder, stable)
        case = Case("repeat", *builder, storage="records", stable=stable)
        print(f"  {builder[0]:20s}{'stable' if stable else '':8s}{alike}")
        yield {**row(case, NO_TIME, NO_TIME), "rate": alike}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", help="groups: size cloud refined 2-D peer repeat published")
    asked = parser.parse_args()
    begin = time.perf_counter()
    wanted: Callable[[str], bool] = lambda group: not asked.only or group in asked.only  # noqa: E731
    device = cupy.cuda.Device()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    cub, clock, rows, failed = Cub(device.compute_capability), Clock(), [], []
    chosen = [case for case in cases(asked.quick) if wanted(case.group)]
    print(f"{name}\n{HEAD}")
    for turn, case in enumerate(chosen, 1):
        try:
            line = measured(clock, case)
        except pm.MethodNotSuitable as reason:
            print(f"  {case}: {reason}"[:300])
            continue
        except (ValueError, RuntimeError, MemoryError, OSError) as error:
            failed.append(f"{case}: {type(error).__name__}: {error}"[:300])
            print(f"  {failed[-1]}", flush=True)
            continue
        rows.append(line)
        show(f"{turn}/{len(chosen)}", case, line)
    try:
        for case, line in peers(clock, cub, asked.quick) if wanted("peer") else ():
            rows.append(line)
            show("peer", case, line)
        if wanted("repeat") and not asked.quick:
            rows += repeated()
    except (RuntimeError, MemoryError, OSError) as error:  # what is measured already is written all the same
        failed.append(f"peers or repeats: {type(error).__name__}: {error}"[:300])
    if wanted("published"):
        print("\nPublished, in units of 1e9 a second")
        for found in published("insertions"):
            rate = float(found["per_second"])
            source = f"published, {found['source']}"
            count = int(found["particles"] or 0)
            rows.append(dict.fromkeys(rows[0] if rows else (), "") | dict(
                group="published", builder=found["what"], cloud=found["hardware"], N=count or "", rate=rate,
                source=source,
            ))  # fmt: skip
            print(f"  {found['what']:38s}{found['hardware']:24s}{f'{count:,}' if count else '':>12s}{giga(rate):>7s}")
    report(rows)
    slow_choices(rows)
    print(f"{write('grid-build', name, rows)}, {time.perf_counter() - begin:.0f} s")
    if failed:
        raise SystemExit("\n".join(["Failed:", *failed]))


def report(rows: list[dict[str, Any]]) -> None:
    """Print what was to be reached."""
    print("\nTo reach on an H200, G insertions/s")
    for row in rows:
        if row["group"] not in ("size", "cloud") or row["ndim"] != 3:
            continue
        key = (row["builder"], row["storage"], row["stable"], row["cloud"], row["cells"], int(math.log2(row["N"])))
        if key in TO_REACH:
            rate = row["rate"] / 1e9
            print(f"  {row['builder']:18s} {row['storage']:8s}{'stable' if row['stable'] else '':7s}{row['cloud']:14s}"
                  f"{row['N']:10,d}  {rate:6.1f}  of {TO_REACH[key]:5.1f}  "
                  f"{'reached' if rate >= TO_REACH[key] else 'MISSED'}")  # fmt: skip


def slow_choices(rows: list[dict[str, Any]]) -> None:
    """Print where the automatic choice takes over 10 % longer than the best builder for the same storage."""
    same: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if row["group"] in ("size", "cloud", "refined", "2-D"):
            key = tuple(row[c] for c in ("group", "storage", "stable", "cloud", "ndim", "cells", "N"))
            same.setdefault(key, []).append(row)
    print("\nWhere the automatic choice takes over 10 % longer than the best")
    for alike in same.values():
        best = min(alike, key=lambda row: row["graph_s"])
        for row in alike:
            if row["builder"] == "auto" and row["graph_s"] > 1.1 * best["graph_s"]:
                print(f"  {row['storage']:8s}{row['cloud']:14s}{row['cells']}^{row['ndim']} {row['N']:10,d}  "
                      f"{micro(row['graph_s'])} us, {best['builder']} {micro(best['graph_s'])} us")  # fmt: skip


if __name__ == "__main__":
    main()
