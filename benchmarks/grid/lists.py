# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists as users call them, beside other libraries: one system, and many; boxes, slabs, and no box.

Writes ``results/grid-lists-DEVICE.csv``. Uniform random positions in float32, lists with shifts of images. Ours is a
plain ``pm.neighbour_list("ijS", ...)``: it builds the grid, checks, allocates. nvalchemi-toolkit-ops gets a prepared
state with rows as long as the longest, for each of its methods and forms. vesin computes in float64, one system only.
Libraries take turns in one process; each time is a median with all work of the host. ``ratio`` is the other's time over
ours. A list of another library with another number of pairs is named on the terminal, and has no row.

On the CPU positions are float64, lists are full and have distances too, and the others are vesin, matscipy, ASE, freud
and SciPy's ``cKDTree``; the last two give no shifts, and systems are called one by one. A call of more than two seconds
has two turns.

    python benchmarks/grid/lists.py [--backend cuda] [--small] [--only GROUP ...] [--out DIR]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from grid.peers import host_lists, nvalchemi_lists, vesin_list
from harness import runs
from harness.clouds import side
from harness.place import ERRORS, Place
from harness.tables import short

GROUPS = ("single", "systems", "open", "slab")
TURNS, BATCH, LONG = 7, 0.02, 2.0  # turns of each call, seconds of the calls in a turn, and of a call with two turns
MOST = 7e5  # pairs of lists of ASE and freud, a tenth of those of cKDTree: longer ones take minutes


@dataclass(frozen=True)
class Case:
    """Lists of one cloud, or of many systems of random sizes within a range."""

    group: str
    neighbours: int
    count: int = 0
    half: bool = False
    systems: int = 1
    sizes: tuple[int, int] = (0, 0)

    @property
    def axes(self) -> tuple[bool, bool, bool]:
        """Which axes repeat; none of molecules without a box."""
        return (self.group != "open",) * 2 + (self.group not in ("open", "slab"),)

    def __str__(self) -> str:
        return f"{self.systems:,} systems of {self.sizes}" if self.systems > 1 else f"N = {self.count:,}"


def cases(small: bool, place: Place) -> Iterator[Case]:
    """Yield all cases."""
    if small:
        yield Case("single", 26, 2000)
        yield Case("systems", 26, systems=10, sizes=(50, 100))
        yield Case("open" if place.name == "cpu" else "slab", 26, 500)
        return
    if place.name == "cpu":
        for count, most in ((10**4, 1400), (10**5, 60)):
            for neighbours in (26, 60, 300, 1400):
                if neighbours <= most:
                    yield Case("single", neighbours, count)
        for neighbours in (26, 60):
            yield Case("systems", neighbours, systems=1000, sizes=(100, 100))
            yield Case("open", neighbours, systems=1000, sizes=(100, 100))
            yield Case("open", neighbours, 10**4)
        return
    clouds = [
        (10**4, 305),
        (10**5, 26),
        (10**5, 52),
        (10**5, 305),
        (10**5, 1414),
        (10**6, 26),
        (10**6, 52),
        (10**6, 305),
    ]
    for count, neighbours in clouds:
        for half in (False, True):
            yield Case("single", neighbours, count, half)
    for systems, sizes in ((1000, (100, 100)), (100, (1000, 1000)), (1000, (10, 1000))):
        for neighbours in (52, 90):
            yield Case("systems", neighbours, systems=systems, sizes=sizes)
    for group in ("open", "slab"):
        for count in (10**4, 10**5):
            yield Case(group, 52, count)
        for systems, sizes in ((1000, (100, 100)), (1000, (10, 1000))):
            yield Case(group, 52, systems=systems, sizes=sizes)


class Lists:
    """The device, and the lists of a case by each library."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def seconds(self, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
        """Return the median seconds of each call, back to back in turns; other libraries' that fail are left out."""
        batch, slow = {}, set()
        for name, call in calls.items():
            try:
                for _ in range(4):
                    self.place.wait()
                    begin = time.perf_counter()
                    call()
                    self.place.wait()
                    batch[name] = max(1, int(BATCH / (time.perf_counter() - begin)))
                    if time.perf_counter() - begin > LONG:
                        slow.add(name)
                        break
            except ERRORS as error:
                if name == "particlemesh":
                    raise
                print(f"{name}: {str(error)[:100]}")
        taken: dict[str, list[float]] = {name: [] for name in batch}
        for turn in range(TURNS):
            for name, count in batch.items():
                if turn > 1 and name in slow:
                    continue
                begin = time.perf_counter()
                for _ in range(count):
                    calls[name]()
                self.place.wait()
                taken[name].append((time.perf_counter() - begin) / count)
        return {name: statistics.median(times) for name, times in taken.items()}

    def rows(self, case: Case) -> Iterator[dict[str, Any]]:
        """Yield a row for each library."""
        random = np.random.default_rng(7)
        sizes = random.integers(case.sizes[0], case.sizes[1] + 1, case.systems) if case.systems > 1 else [case.count]
        lengths = np.array([side(int(n), case.neighbours) for n in sizes])
        system = np.repeat(np.arange(case.systems), sizes)
        on_host = self.place.name == "cpu"
        host = (random.random((len(system), 3)) * lengths[system, None]).astype("float64" if on_host else "float32")
        upload, download = self.place.upload, self.place.download
        x, index = upload(host), upload(system.astype("int32"))
        if case.systems > 1:
            boxes = upload(lengths[:, None].repeat(3, 1).astype(host.dtype))
            batch = dict(system=index, boxes=boxes)
        else:
            batch = {}
        box = (float(lengths[0]),) * 3

        def ours() -> Any:
            letters = "ijSd" if on_host else "ijS"
            return pm.neighbour_list(letters, x, box, 1.0, periodic=case.axes, half=case.half, **batch)

        i = ours()[0]
        pairs, longest = len(i), int(np.bincount(download(i)).max())
        calls = {"particlemesh": ours}
        theirs: dict[str, Callable[[], int]] = {}
        if on_host and not case.half:
            for name, call, number in host_lists(host, lengths, system, all(case.axes), 1.0, MOST):
                calls[name], theirs[name] = call, number
        elif case.systems == 1:
            try:
                vesin = vesin_list(
                    x.astype("float64"), upload(np.eye(3) * box[0]), case.axes, 1.0, not case.half, quantities="ijS"
                )
                calls["vesin"], theirs["vesin"] = vesin, lambda: len(vesin()[0])
            except ImportError as error:
                print(f"vesin is not measured: {error}.")
        try:
            for name, call, number in (
                ()
                if on_host
                else nvalchemi_lists(
                    x,
                    lengths,
                    case.axes,
                    index if case.systems > 1 else None,
                    1.0,
                    case.half,
                    longest + longest // 4 + 8,
                )
            ):
                calls[name], theirs[name] = call, number
        except ImportError as error:
            print(f"nvalchemi is not measured: {error}.")
        times = self.seconds(calls)
        for name, seconds in times.items():
            counted = pairs if name == "particlemesh" else theirs[name]()
            if abs(counted - pairs) > 1e-5 * pairs + 1:  # roundings at the radius
                print(f"{name}: {counted:,} pairs of {case}, not {pairs:,}.")
                continue
            yield dict(
                group=case.group, systems=case.systems, N=len(host), neighbours=case.neighbours, half=int(case.half),
                pairs=pairs, library=name, seconds=short(seconds), ratio=short(seconds / times["particlemesh"]),
            )  # fmt: skip


def main() -> None:
    """Measure the groups that the command line names."""
    asked = runs.parser(__doc__, GROUPS).parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        lists = Lists(run.place)
        rows = run.measure("lists", [c for c in cases(asked.small, run.place) if c.group in asked.only], lists.rows)
        run.write(run.place.file("grid", "lists"), rows)
    run.finish([])


if __name__ == "__main__":
    main()
