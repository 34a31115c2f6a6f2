# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists and counts of uniform grids, with and without the build of the grid.

Writes ``results/grid-pairs-DEVICE.csv``. Uniform random positions in random order unless the group says otherwise,
radius 1, open box unless periodic. ``list`` is the GPU's time of the list alone, ``both`` of build and list, written
into reserved room in a captured graph (on other backends: of calls); ``call`` is build and list as users call them:
checked, exact, allocating. Rates are those of ``both``: particles/s, and pairs/s (a full list counts each pair twice, a
half list once). Peer: vesin on the GPU (CUDA, float64); published figures are marked. The process ends with status 1
if a case failed or lists of one cloud disagree.

    python benchmarks/grid/pairs.py [--backend cuda] [--small] [--only GROUP ...] [--out DIR]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from grid.build import Builds
from grid.peers import published, vesin_list
from harness import runs
from harness.clock import NO_TIME
from harness.clouds import caesium_chloride, positions, side
from harness.place import Place
from harness.tables import short

THIN = 1 / 4  # of the radius: cells along the last axis, in which a search reads one strip
GROUPS = ("size", "periodic", "neighbours", "2-D", "crystal", "cloud", "float64", "quantities", "vesin", "published")
ORDER = {"full": "grid", "half": "grid", "count": "input"}  # of the kinds of lists, unless both are measured


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


def cases(small: bool) -> Iterator[Case]:
    """Yield all cases; those that share a cloud are neighbours."""
    for count in (2**10,) if small else (2**14, 2**17, 2**20, 2**22):
        for kind, order in (*ORDER.items(), ("full", "input"), ("half", "input")):
            yield Case("size", kind, order, count)
        for kind, order in ORDER.items():
            yield Case("periodic", kind, order, count, periodic=True)
    copies = 5 if small else 41
    for kind in ("full", "half"):
        yield Case("crystal", kind, count=2 * copies**3, cloud="CsCl", periodic=True)
    if small:
        return
    for count in (2**17, 2**20):
        for neighbours in (6, 100, 400):
            for kind, order in ORDER.items():
                yield Case("neighbours", kind, order, count, neighbours)
    for kind in ("full", "half"):
        for count in (2**17, 2**20, 2**22):
            yield Case("2-D", kind, count=count, neighbours=19, ndim=2)
        for name in ("clustered", "settled", "nearly sorted", "lattice"):
            yield Case("cloud", kind, cloud=name)
        yield Case("float64", kind, dtype="float64")
        yield Case("quantities", kind, quantities="jd")
        yield Case("quantities", kind, quantities="ijdDS", periodic=True)


def cloud_of(case: Case) -> tuple[np.ndarray, float, float]:
    """Return positions, the side of their box and the radius.

    Clouds that do not fill the box lie in a larger one, with as many neighbours inside the cloud.
    """
    if case.cloud == "CsCl":
        x, length, radius = caesium_chloride(round((case.count / 2) ** (1 / 3)))
        return x.astype(case.dtype), length, radius
    filled = {"clustered": 0.01, "settled": 0.125}.get(case.cloud, 1.0)
    length = side(case.count, case.neighbours, case.ndim) * filled ** (-1 / case.ndim)
    x = positions(case.cloud, case.count, "float64", case.ndim, int(length))
    return (x * length).astype(case.dtype), length, 1.0


class Lists(Builds):
    """The device, and the last cloud on it."""

    def cloud(self, case: Case) -> tuple[Any, float, float]:
        """Return positions on the device, the side of their box and the radius."""
        key = (case.cloud, case.count, case.ndim, case.neighbours, case.dtype)
        if self._cloud[0] != key:
            x, length, radius = cloud_of(case)
            self._cloud = key, (self.place.upload(x), length, radius)
        return self._cloud[1]

    def rows(self, case: Case) -> Iterator[dict[str, Any]]:
        """Yield the row of a case."""
        x, length, radius = self.cloud(case)
        box = pm.Box((length,) * case.ndim, periodic=case.periodic)
        cells = (*(radius,) * (case.ndim - 1), THIN * radius)
        grid = pm.UniformGrid(box, cell_size=cells, backend=self.place.name)
        grid.build(x)  # checked: all memory comes here
        exact = exact_call(grid, radius, case)
        pairs = self.pairs_of(case, exact())
        search = reserved_call(grid, radius, case, pairs)

        def build_and_search() -> None:
            grid.build(x, check=False)
            search()

        def as_users_do() -> None:
            grid.build(x)
            exact()

        alone, both = self.graph(search), self.graph(build_and_search)
        grid.check()
        again = search()
        listed = pairs if case.kind == "count" else int(self.place.download(again.start)[-1])
        if listed != pairs:
            raise RuntimeError(f"{listed:,} pairs without a check, {pairs:,} with one.")
        yield columns(case, pairs, alone, both, self.plain(as_users_do))
        grid.close()

    def pairs_of(self, case: Case, result: Any) -> int:
        """Return the number of pairs of an exact call."""
        if case.kind == "count":
            return int(self.place.download(result).sum())
        return int(result.j.shape[0])

    def vesin(self, case: Case) -> Iterator[dict[str, Any]]:
        """Yield vesin's row; CUDA only."""
        import cupy

        x, length, radius = self.cloud(case)
        call = vesin_list(x, cupy.eye(3) * length, False, radius, case.kind == "full")
        yield columns(case, int(call()[0].shape[0]), NO_TIME, NO_TIME, self.clock.calls(call, 2, 3))


def exact_call(grid: Any, radius: float, case: Case) -> Callable[[], Any]:
    """Return the call as users make it: it allocates its result, and is exact."""
    if case.kind == "count":
        return lambda: grid.count(radius, order=case.order)
    return lambda: grid.pairs(radius, half=case.kind == "half", order=case.order, quantities=case.quantities)


def reserved_call(grid: Any, radius: float, case: Case, pairs: int) -> Callable[[], Any]:
    """Return the call into room for a number of pairs, without allocations and without waiting."""
    if case.kind == "count":
        return lambda: grid.count(radius, order=case.order, check=False)
    options = dict(half=case.kind == "half", order=case.order, quantities=case.quantities, capacity=pairs)
    return lambda: grid.pairs(radius, **options, check=False)


def columns(case: Case, pairs: int, alone: float, both: float, call: float) -> dict[str, Any]:
    """Return the columns of the CSV file."""
    best = call if np.isnan(both) else both
    return dict(
        group=case.group, list=case.kind, order=case.order, cloud=case.cloud, periodic=int(case.periodic),
        ndim=case.ndim, dtype=case.dtype, quantities=case.quantities, N=case.count,
        neighbours=round(pairs / case.count * (2 if case.kind == "half" else 1), 2), pairs=pairs,
        list_s=short(alone), both_s=short(both), call_s=short(call), particles_per_s=short(case.count / best),
        pairs_per_s=short(pairs / best), source="measured",
    )  # fmt: skip


def figures_of_others() -> list[dict[str, Any]]:
    """Return the rows of published figures."""
    head = dict.fromkeys(columns(Case("", "full"), 1, 1.0, 1.0, 1.0), "")
    rows = []
    for figure in published("neighbours"):
        rate, neighbours = float(figure["per_second"]), int(figure["neighbours"] or 0)
        rows.append({
            **head, "group": "published", "list": "full", "order": "-", "cloud": figure["hardware"],
            "quantities": figure["what"], "N": figure["particles"], "neighbours": neighbours or "",
            "particles_per_s": rate, "pairs_per_s": rate * neighbours or "",
            "source": f"published, {figure['source']}",
        })  # fmt: skip
    return rows


def disagreements(rows: list[dict[str, Any]]) -> list[str]:
    """Return lists of one cloud with different pairs, and crystals whose atoms do not have 26 neighbours."""
    wrong, totals = [], {}
    for row in rows:
        case = (*(row[c] for c in ("group", "cloud", "periodic", "ndim", "dtype", "N")), round(row["neighbours"] / 5))
        total = row["pairs"] * (2 if row["list"] == "half" else 1)
        first = totals.setdefault(case, total)
        if abs(total - first) > 1e-6 * first:  # a pair at the radius may be rounded to either side
            wrong.append(f"{row['list']} list in {row['order']} order of {case[:-1]}: {total:,} pairs, not {first:,}.")
        if row["cloud"] == "CsCl" and row["neighbours"] != 26:
            wrong.append(f"The crystal has {row['neighbours']} neighbours per atom; 26 are right.")
    return wrong


def measure(run: runs.Run, small: bool, only: Collection[str] = GROUPS) -> list[str]:
    """Measure groups, write their file, and return lists that disagree."""
    place, lists, name = run.place, Lists(run.place), run.place.file("grid", "pairs")
    rows = run.measure("lists", [c for c in cases(small) if c.group in only], lists.rows)
    run.write(name, rows)  # the longest part: kept if the others are cut short
    wrong = disagreements(rows)
    if importlib.util.find_spec("vesin") and "vesin" in only and place.name == "cuda":
        template = Case("vesin", "full", "-", 2**14, dtype="float64", quantities="ij")
        peers = [replace(template, count=2**n, kind=k) for n in (14, 17, 20) for k in ("full", "half")]
        rows += run.measure("vesin", peers, lists.vesin)
    if "published" in only:
        rows += figures_of_others()
    run.write(name, rows)
    return wrong


def main() -> None:
    """Measure the groups that the command line names."""
    asked = runs.parser(__doc__, GROUPS).parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        wrong = measure(run, asked.small, asked.only)
    run.finish(wrong)


if __name__ == "__main__":
    main()
