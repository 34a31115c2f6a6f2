# SPDX-License-Identifier: BSD-3-Clause
"""Insertions per second of every builder of uniform grids.

Writes ``results/grid-build-DEVICE.csv``. float32 positions in a unit box with open faces. ``graph`` is the GPU's time
of a whole build in a captured graph, reset included (on other backends: of a call). ``plain`` is that of a call, back
to back. Repeated inputs below about 50 MB stay in the second-level cache, as they do in a simulation's loop. ``ids`` is
the builder's own storage (``queries=False``), ``records`` that of queries. The tight list gets particles as wide as a
cell: 8 entries each. ``insert`` is the build less the clearing at its beginning, timed alone; ``stable`` is
``deterministic=True``. Peer: CUB's sort of given keys with their indices; published figures are marked.

    python benchmarks/grid/build.py [--backend cuda] [--small] [--only GROUP ...] [--out DIR]
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from grid.peers import Cub, published
from harness import runs
from harness.clock import NO_TIME, Call
from harness.clouds import keys, positions
from harness.place import Place
from harness.tables import short, show
from particlemesh.grid.builders import METHODS

# Methods with an option that changes the build have a builder for each value; all others have one.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "fixed": {"fixed column": {"layout": "column"}, "fixed row": {"layout": "row"}},
    "sort": {"sort linear": {"curve": "linear"}, "sort morton": {"curve": "morton"}},
}
TIGHT, AUTO = "linked_list_tight", ("auto", "auto", {})
CLEARED = {"fixed": 4, "linked_list_loose": 4, TIGHT: 4, "linked_list_packed": 4}  # bytes per cell, at the beginning
CLOUDS = ("clustered", "settled", "nearly sorted", "lattice")
GROUPS = ("size", "cloud", "refined", "2-D", "peer", "repeat", "published")
BATCH = 50  # most calls in a graph


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
        stable = " stable" if self.stable else ""
        return f"{self.builder} {self.storage}{stable} {self.cloud} {self.cells}^{self.ndim} N = {self.count:,}"


def builders(place: Place) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (label, method, options) of every builder that runs here, and of the automatic choice."""
    names = [*(m.name for m in METHODS if place.name in m.backends), "auto"]
    return [(label, name, how) for name in names for label, how in VARIANTS.get(name, {name: {}}).items()]


def cases(place: Place, small: bool) -> Iterator[Case]:
    """Yield all cases; those that share a cloud are neighbours."""
    ids = [Case("size", *builder) for builder in builders(place)]
    stable = [replace(c, stable=True) for c in ids if c.builder in ("scan", "sort linear", "auto")]
    records = [replace(c, storage="records") for c in ids]
    stable_records = [replace(c, storage="records") for c in stable]
    if small:
        yield from (replace(c, power=10, cells=8, plain=True) for c in (*ids, *records, *stable_records))
        return
    for power in range(10, 25, 2):
        yield from (replace(c, power=power, plain=power in (14, 20, 24)) for c in ids)
        if power in (14, 18, 20, 22):
            yield from (replace(c, power=power, plain=power in (14, 20)) for c in (*records, *stable, *stable_records))
        yield from (replace(c, power=power, cells=128) for c in ids if power >= 14)
    fast_records = [c for c in records if c.builder in ("scan", "sort linear", "auto")]
    for power, name in itertools.product((20, 22), CLOUDS):
        yield from (replace(c, group="cloud", cloud=name, power=power) for c in (*ids, *fast_records, *stable_records))
    for power, cells in itertools.product((14, 20), (32, 256)):
        yield from (replace(c, group="refined", cells=cells, power=power) for c in ids)
    scanned = Case("2-D", "scan", "scan", storage="records")
    for name in ("uniform", "clustered", "nearly sorted"):
        yield from (replace(c, group="2-D", ndim=2, cells=512, cloud=name) for c in (*ids, scanned))


class Builds:
    """The device, and the last cloud on it."""

    def __init__(self, place: Place) -> None:
        self.place, self.clock = place, place.clock
        self._cloud: tuple[Any, Any] = (None, None)

    def positions(self, cloud: str, power: int, ndim: int, cells: int) -> Any:
        """Return a cloud on the device; ``cells`` counts for nearly sorted particles only."""
        key = (cloud, 2**power, "float32", ndim, cells if cloud == "nearly sorted" else 0)
        if self._cloud[0] != key:
            self._cloud = key, self.place.upload(positions(*key))
        return self._cloud[1]

    def plain(self, call: Call) -> float:
        """Return the seconds of a plain call."""
        return self.clock.calls(call, self._batch(call, 20), 5)

    def graph(self, call: Call) -> float:
        """Return the seconds of a captured call; without graphs those of a plain one."""
        captured = self.clock.captured(call, self.clock.calls(call, 2, 1), BATCH, 5)
        return captured if self.place.name == "cuda" else self.plain(call)

    def _batch(self, call: Call, most: int) -> int:
        return int(min(most, max(2, 2e-3 / self.clock.calls(call, 2, 1))))

    def row(self, case: Case) -> Iterator[dict[str, Any]]:
        """Yield the row of a case, or none if the builder declines."""
        x = self.positions(case.cloud, case.power, case.ndim, case.cells)
        try:
            grid = pm.UniformGrid(
                pm.Box((1.0,) * case.ndim, periodic=False), shape=(case.cells,) * case.ndim, method=case.method,
                deterministic=case.stable, queries=case.storage == "records", backend=self.place.name, **case.options,
            )  # fmt: skip
            radii = (0.5 / case.cells,) if case.method == TIGHT else ()
            grid.build(x, *radii)  # checked: all memory comes here, and capacities grow
        except (pm.MethodNotSuitable, NotImplementedError):
            return
        build = lambda: grid.build(x, *radii, check=False)  # noqa: E731
        graph = self.graph(build)
        plain = self.plain(build) if case.plain else NO_TIME
        grid.check()
        clearing = NO_TIME
        if case.method in CLEARED and case.group in ("size", "refined"):
            room = self.place.backend.empty((grid.cells * CLEARED[case.method],), np.uint8)
            clearing = self.graph(lambda: self.place.backend.clear(room))
        yield columns(case, graph, plain, graph - clearing, grid.nbytes)
        grid.close()

    def identical(self, builder: tuple[str, str, dict[str, Any]], stable: bool, power: int) -> Iterator[dict[str, Any]]:
        """Yield in how many of 10 repeated builds every particle has its first place, in the column of rates."""
        x = self.positions("uniform", power, 3, 0)
        with pm.UniformGrid(pm.Box((1.0,) * 3, periodic=False), shape=(2 ** (power // 3),) * 3, method=builder[1],
                            deterministic=stable, backend=self.place.name, **builder[2]) as grid:  # fmt: skip
            orders = []
            for _ in range(11):
                grid.build(x)
                orders.append(np.array(self.place.download(grid.order)))
        case = Case("repeat", *builder, storage="records", stable=stable, power=power)
        yield {**columns(case, NO_TIME, NO_TIME), "rate": sum(bool((o == orders[0]).all()) for o in orders[1:])}


def columns(case: Case, graph: float, plain: float, insert: float = NO_TIME, nbytes: int = 0) -> dict[str, Any]:
    """Return the columns of the CSV file."""
    return dict(
        group=case.group, builder=case.builder, storage=case.storage, stable=int(case.stable), cloud=case.cloud,
        ndim=case.ndim, cells=case.cells, N=case.count, graph_s=short(graph), plain_s=short(plain),
        insert_s=short(insert), rate=short(case.count / graph), nbytes=nbytes, source="measured",
    )  # fmt: skip


def peers(builds: Builds, run: runs.Run) -> Iterator[dict[str, Any]]:
    """Yield the rows of CUB's sort of the same keys; CUDA only."""
    import cupy

    cub = Cub(cupy.cuda.Device().compute_capability)
    if absent := cub.missing():
        run.say(absent)
        return
    for power, cells in itertools.product((10, 14, 17, 20, 22, 24), (64, 128)):
        key = cupy.asarray(keys(positions("uniform", 2**power), cells).astype(np.uint32))
        for width in (3 * int(math.log2(cells)), 32) if cells == 64 or power >= 20 else ():
            call = cub.sorter(key, width)
            case = Case("peer", f"CUB {width} bits", "", storage="sorted", cells=cells, power=power, stable=True)
            yield columns(case, builds.graph(call), builds.plain(call))


def figures_of_others() -> list[dict[str, Any]]:
    """Return the rows of published figures."""
    head = dict.fromkeys(columns(Case("", "", ""), 1.0, 1.0), "")
    return [
        {**head, "group": "published", "builder": figure["what"], "cloud": figure["hardware"],
         "N": int(figure["particles"] or 0) or "", "rate": float(figure["per_second"]),
         "source": f"published, {figure['source']}"}
        for figure in published("insertions")
    ]  # fmt: skip


def slow_choices(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return where the automatic choice takes over 10 % longer than the best builder for the same storage."""
    by_case: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        case = tuple(row[c] for c in ("group", "storage", "stable", "cloud", "ndim", "cells", "N"))
        by_case.setdefault(case, []).append(row)
    slow = []
    for same in by_case.values():
        best = min(same, key=lambda row: row["graph_s"])
        slow += [
            (row["storage"], row["cloud"], f"{row['cells']}^{row['ndim']}", f"{row['N']:,}",
             f"{row['graph_s'] * 1e6:.1f}", f"{best['builder']} {best['graph_s'] * 1e6:.1f}")
            for row in same if row["builder"] == "auto" and row["graph_s"] > 1.1 * best["graph_s"]
        ]  # fmt: skip
    return slow


def measure(run: runs.Run, small: bool, only: Collection[str] = GROUPS) -> None:
    """Measure groups and write their file."""
    place, builds, name = run.place, Builds(run.place), run.place.file("grid", "build")
    rows = run.measure("builds", [c for c in cases(place, small) if c.group in only], builds.row)
    run.write(name, rows)  # the longest part: kept if the others are cut short
    slow = slow_choices(rows)
    if "repeat" in only:
        repeated = [*((b, False) for b in builders(place) if b[0] not in ("auto", TIGHT)), (AUTO, True)]
        rows += run.measure("repeat", repeated, lambda job: builds.identical(*job, 10 if small else 20))
    if "peer" in only and place.name == "cuda" and not small:
        rows += run.measure("peer", ["sorts of given keys"], lambda _: peers(builds, run))
    if "published" in only:
        rows += figures_of_others()
    run.write(name, rows)
    if slow:
        head = ("storage", "cloud", "cells", "N", "auto, µs", "best, µs")
        show("auto takes over 10 % longer than the best", head, slow)


def main() -> None:
    """Measure the groups that the command line names."""
    asked = runs.parser(__doc__, GROUPS).parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        measure(run, asked.small, asked.only)
    run.finish()


if __name__ == "__main__":
    main()
