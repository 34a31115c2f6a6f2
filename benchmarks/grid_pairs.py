# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists and counts of uniform grids on a CUDA device, the build of the grid included and not.

Writes ``results/grid-pairs-DEVICE.csv``. Uniform random positions in random order unless the group says otherwise,
radius 1, open box unless periodic. ``list`` is the GPU's time of the list alone, ``both`` of build and list, written
into reserved room, captured and replayed; ``call`` is build and list as users call them: checked, exact, allocating.
Rates are those of ``both``: particles a second, and pairs a second (a full list counts each pair twice, a half once).
Peer in the same run: vesin on the GPU (float64); published figures are marked so. Ends with status 1 if a case failed
or lists of one cloud disagree.

    python benchmarks/grid_pairs.py [--quick] [--only GROUP ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

import particlemesh as pm
from grid_cases import caesium_chloride, cloud, side
from grid_clock import NO_TIME, Clock, giga, micro, short
from grid_peers import published, vesin_list
from measure import write

MEASURED = "measured"
THIN = 1 / 4  # of the radius: cells along the last axis, in which a search reads one strip
# Particles a second to reach on an H200, build included, in units of 1e9, by (group, list, order, N).
TO_REACH = {
    ("size", "full", "grid", 2**17): 1.9,
    ("size", "full", "grid", 2**20): 2.7,
    ("size", "full", "grid", 2**22): 2.7,
    ("size", "full", "input", 2**20): 1.8,
    ("size", "half", "grid", 2**17): 3.0,
    ("size", "half", "grid", 2**20): 4.0,
    ("size", "half", "grid", 2**22): 4.0,
    ("size", "count", "input", 2**20): 5.0,
    ("2-D", "full", "grid", 2**20): 4.3,
}


@dataclass(frozen=True)
class Case:
    """One list of one cloud."""

    group: str
    kind: str  # full, half or count
    order: str = "grid"
    count: int = 2**20
    neighbours: int = 26  # far from open faces
    cloud: str = "uniform"
    periodic: bool = False
    ndim: int = 3
    dtype: str = "float32"
    quantities: str = "j"

    def __str__(self) -> str:
        return f"{self.group}: {self.kind} list in {self.order} order, {self.cloud}, N = {self.count:,}"


# ---- the calls that are timed ------------------------------------------------------------------------------


def grid_of(case: Case, length: float, radius: float) -> Any:
    """Return the grid that the case is searched with."""
    box = pm.Box((length,) * case.ndim, periodic=case.periodic)
    return pm.UniformGrid(box, cell_size=(*(radius,) * (case.ndim - 1), THIN * radius))


def exact_call(grid: Any, radius: float, case: Case) -> Callable[[], Any]:
    """Return the call as users make it: it allocates what it returns, and is exact."""
    if case.kind == "count":
        return lambda: grid.count(radius, order=case.order)
    return lambda: grid.pairs(radius, half=case.kind == "half", order=case.order, quantities=case.quantities)


def reserved_call(grid: Any, radius: float, case: Case, pairs: int) -> Callable[[], Any]:
    """Return the call into room for so many pairs: nothing is allocated and nothing is waited for."""
    if case.kind == "count":
        return lambda: grid.count(radius, order=case.order, check=False)
    asked = dict(half=case.kind == "half", order=case.order, quantities=case.quantities, capacity=pairs)
    return lambda: grid.pairs(radius, **asked, check=False)


def pairs_found(case: Case, found: Any) -> int:
    """Return how many pairs an exact call found."""
    return int(cupy.asarray(found).sum()) if case.kind == "count" else int(found.j.shape[0])


# ------------------------------------------------------------------------------------------------------------


def cases(quick: bool) -> Iterator[Case]:
    """Return all cases, those that share a cloud behind one another."""
    every_list = [("full", "grid"), ("full", "input"), ("half", "grid"), ("half", "input"), ("count", "input")]
    sizes = (2**17, 2**20) if quick else (2**14, 2**17, 2**20, 2**22)
    for count in sizes:
        for kind, order in every_list:
            yield Case("size", kind, order, count)
        for kind in ("full", "half", "count"):
            yield Case("periodic", kind, "input" if kind == "count" else "grid", count, periodic=True)
    for count in () if quick else (2**17, 2**20):
        for neighbours in (6, 100, 400):
            for kind in ("full", "half", "count"):
                yield Case("neighbours", kind, "input" if kind == "count" else "grid", count, neighbours)
    for count in (2**20,) if quick else (2**17, 2**20, 2**22):
        for kind in ("full", "half"):
            yield Case("2-D", kind, count=count, neighbours=19, ndim=2)
    crystal, _, _ = _crystal()
    for kind in ("full", "half"):
        yield Case("crystal", kind, count=len(crystal), cloud="CsCl", periodic=True)
    if quick:
        return
    for name in ("clustered", "settled", "nearly sorted", "lattice"):
        for kind in ("full", "half"):
            yield Case("cloud", kind, cloud=name)
    for kind in ("full", "half"):
        yield Case("float64", kind, dtype="float64")
        yield Case("quantities", kind, quantities="jd")
        yield Case("quantities", kind, quantities="ijdDS", periodic=True)


@lru_cache(maxsize=1)
def _crystal() -> tuple[Any, float, float]:
    return caesium_chloride(41)


@lru_cache(maxsize=1)
def positions(name: str, count: int, ndim: int, neighbours: int, dtype: str) -> tuple[Any, float, float]:
    """Return positions on the device, the side of their box and the radius; the last ones are kept.

    Clouds that do not fill the box lie in a larger one, so that neighbours are as many where there are any.
    """
    if name == "CsCl":
        x, length, radius = _crystal()
        return cupy.asarray(x.astype(dtype)), length, radius
    filled = {"clustered": 0.01, "settled": 0.125}.get(name, 1.0)
    length = side(count, neighbours, ndim) * filled ** (-1 / ndim)
    x = cloud(name, count, ndim, int(length), "float64")
    return cupy.asarray((x * length).astype(dtype)), length, 1.0


def measured(clock: Clock, case: Case) -> dict[str, Any]:
    """Return the row of a case."""
    x, length, radius = positions(case.cloud, case.count, case.ndim, case.neighbours, case.dtype)
    grid = grid_of(case, length, radius)
    grid.build(x)  # checked: all memory comes here
    exact = exact_call(grid, radius, case)
    pairs = pairs_found(case, exact())
    search = reserved_call(grid, radius, case, pairs)

    def build_and_search() -> None:
        grid.build(x, check=False)
        search()

    def as_users_do() -> None:
        grid.build(x)
        exact()

    alone = clock.graph_seconds(search)
    both = clock.graph_seconds(build_and_search)
    grid.check()
    again = search()
    listed = pairs if case.kind == "count" else int(again.start[-1:].get()[0])
    if listed != pairs:
        raise RuntimeError(f"{listed:,} pairs without a check, {pairs:,} with one.")
    call = clock.plain_seconds(as_users_do)
    grid.close()
    return row(case, pairs, alone, both, call)


def row(case: Case, pairs: int, alone: float, both: float, call: float, source: str = MEASURED) -> dict[str, Any]:
    """Return the columns of the CSV."""
    best = call if np.isnan(both) else both
    return dict(
        group=case.group, list=case.kind, order=case.order, cloud=case.cloud, periodic=int(case.periodic),
        ndim=case.ndim, dtype=case.dtype, quantities=case.quantities, N=case.count,
        neighbours=round(pairs / case.count * (2 if case.kind == "half" else 1), 2), pairs=pairs,
        list_s=short(alone), both_s=short(both), call_s=short(call), particles_per_s=short(case.count / best),
        pairs_per_s=short(pairs / best), source=source,
    )  # fmt: skip


HEAD = (
    f"{'case':>6s} {'group':10s} {'list':5s} {'order':5s} {'cloud':13s} {'N':>9s} {'nbrs':>5s} "
    f"{'list us':>7s} {'both us':>7s} {'call us':>7s} {'G part':>6s} {'G pair':>6s}"
)


def show(place: str, case: Case, line: dict[str, Any]) -> None:
    """Print a row of the table."""
    name = case.group if case.group != "quantities" else case.quantities
    print(
        f"{place:>6s} {name:10.10s} {case.kind:5s} {case.order:5s} {case.cloud:13.13s} {case.count:9,d} "
        f"{line['neighbours']:5.1f} {micro(line['list_s']):>7s} {micro(line['both_s']):>7s} "
        f"{micro(line['call_s']):>7s} {giga(line['particles_per_s']):>6s} {giga(line['pairs_per_s']):>6s}",
        flush=True,
    )


def vesin_rows(clock: Clock, quick: bool) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Return vesin's rows, or say why there are none."""
    for count in (2**14,) if quick else (2**14, 2**17, 2**20):
        for kind in ("full", "half"):
            case = Case("vesin", kind, "-", count, dtype="float64", quantities="ij")
            x, length, radius = positions(case.cloud, count, 3, case.neighbours, case.dtype)
            try:
                call = vesin_list(x, cupy.eye(3) * length, False, radius, kind == "full")
                pairs = int(call()[0].shape[0])
                yield case, row(case, pairs, NO_TIME, NO_TIME, clock.plain_seconds(call, repeats=3))
            except (ImportError, OSError, RuntimeError) as error:
                print(f"vesin is not measured at N = {count:,}: {str(error).splitlines()[0][:120]}")
                break


def disagreements(rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong: lists of one cloud that disagree, a crystal whose atoms have not 26 neighbours."""
    wrong, totals = [], {}
    for line in rows:
        cloud_of = tuple(line[c] for c in ("group", "cloud", "periodic", "ndim", "dtype", "N"))
        what = (*cloud_of, round(line["neighbours"] / 5))
        total = line["pairs"] * (2 if line["list"] == "half" else 1)
        first = totals.setdefault(what, total)
        if abs(total - first) > 1e-6 * first:  # a pair at the radius may be on either side, seen from either end
            wrong.append(
                f"{line['list']} list in {line['order']} order of {what[:-1]}: {total:,} pairs, not {first:,}."
            )
        if line["cloud"] == "CsCl" and line["neighbours"] != 26:
            wrong.append(f"The crystal has {line['neighbours']} neighbours an atom; 26 are right.")
    return wrong


def report(rows: list[dict[str, Any]]) -> None:
    """Print what was to be reached, and what periodic faces cost."""
    print("\nTo reach on an H200, G particles/s with the build")
    times = {}
    for line in rows:
        key = (line["group"], line["list"], line["order"], line["N"])
        times[key] = line["list_s"]
        if key in TO_REACH:
            rate = line["particles_per_s"] / 1e9
            verdict = "reached" if rate >= TO_REACH[key] else "MISSED"
            print(f"  {key[0]:8s}{key[1]:6s}{key[2]:6s}{key[3]:10,d}  {rate:5.2f} of {TO_REACH[key]:4.1f}  {verdict}")
    for (group, kind, order, count), seconds in times.items():
        if group == "periodic" and ("size", kind, order, count) in times:
            surcharge = seconds / times["size", kind, order, count] - 1
            print(f"  periodic faces, {kind} list, N = {count:,}: {surcharge:+.0%}")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    groups = "size periodic neighbours 2-D crystal cloud float64 quantities vesin"
    parser.add_argument("--only", nargs="+", help=f"groups: {groups}")
    asked = parser.parse_args()
    begin = time.perf_counter()
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    clock, rows, failed = Clock(), [], []
    chosen = [case for case in cases(asked.quick) if not asked.only or case.group in asked.only]
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
    failed += disagreements(rows)
    if not asked.only or "vesin" in asked.only:
        for case, line in vesin_rows(clock, asked.quick):
            rows.append(line)
            show("peer", case, line)
    report(rows)
    print("\nPublished, build included")
    template = replace(Case("published", "full", "-"), cloud="CsCl", periodic=True)
    for found in published("neighbours"):
        rate, neighbours = float(found["per_second"]), int(found["neighbours"] or 0)
        line = dict.fromkeys(row(template, 0, NO_TIME, NO_TIME, NO_TIME), "")
        line |= dict(
            group="published", list="full", cloud=found["hardware"], quantities=found["what"],
            N=found["particles"], neighbours=neighbours or "", particles_per_s=rate,
            pairs_per_s=rate * neighbours or "", source=f"published, {found['source']}",
        )  # fmt: skip
        rows.append(line)
        print(f"  {found['what']:40s}{found['hardware']:20s}{found['particles']:>8s} {neighbours or '':>5} neighbours "
              f"{giga(rate):>7s} G particles/s")  # fmt: skip
    print(f"{write('grid-pairs', name, rows)}, {time.perf_counter() - begin:.0f} s")
    if failed:
        raise SystemExit("\n".join(["Failed:", *failed]))


if __name__ == "__main__":
    main()
