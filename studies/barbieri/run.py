# SPDX-License-Identifier: BSD-3-Clause
"""Measure the simulation of Barbieri et al. (2013): their figures 2 and 3, by every builder and by fused kernels.

Writes ``benchmarks/results/barbieri-column-DEVICE.csv``. A row is one design and one number of spheres. Spheres start
in the left half of 64^3 cells, fall, make a wave and settle. Above a few spheres per cell the paper's forces push them
through each other; the rates are those of this motion.

Three numbers stand in every row: ``build_s``, ``broad_s`` (build and count of the spheres in reach), ``step_s`` (whole
step). The last is the mean over all steps, launches included, by events around runs of captured graphs. The first two
are medians of captured calls in states along the run: their mean, and the slowest. ``insertions`` are those of the
slowest build (figure 3), ``mpups`` millions of particle updates per second (figure 2). Above 2^20 spheres ``steps`` are
fewer, the same for all designs. A run that would take longer than ``--case`` seconds is left out. Designs:

- ``storage NAME``: a kernel walks what the builder stored, as in the paper. ``storage fixed row`` has row-major cells.
- ``stream NAME``: ``UniformGrid.stream``.
- ``fused ...``: forces, motion and the next build in one to three kernels; on the CPU sorted rows are swept.
- ``peer cKDTree``: a Numba loop over SciPy's pairs, on the CPU, in turn with the library's steps.

    python studies/barbieri/run.py --backend cuda [--powers 14 16 18 20] [--only fused storage]
        [--steps 2000] [--case 10] [--budget 100] [--small] [--out DIR]

``--budget`` ends the measurements after so many seconds; rows that a former run has written stay in the file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # when this file runs: the folder of studies, that of benchmarks
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from harness import runs
from harness.clock import NO_TIME
from harness.place import Place
from harness.tables import read, short, slug
from studies.barbieri.column import BUILDERS, Column
from studies.barbieri.peer import Peer

NAME = "barbieri-column"
PARTS = ("fused", "storage", "stream", "peer")
STATES = 10  # along a run, in which builds are timed; and the start
WHOLE = 2**20  # spheres; more take fewer steps, the same for all designs
SHORT = 1.0  # seconds: shorter runs are repeated as a whole
CHUNK = 48  # steps of a captured graph: runs between two states are multiples of it
ROW_MAJOR = {"builder": "fixed", "layout": "row"}
FUSED: dict[str, dict[str, Any]] = {
    "auto": {},
    "sort": {"builder": "scan", "lanes": 1, "queue": 0},
    "sort queue": {"builder": "scan", "lanes": 1, "queue": 32},
    "sort queue 64": {"builder": "scan", "lanes": 1, "queue": 64},
    "sort queue 2 lanes": {"builder": "scan", "lanes": 2, "queue": 32},
    **{f"list {n} lanes": {"builder": "linked_list_packed", "lanes": n} for n in (1, 2, 4, 8)},
}


@dataclass(frozen=True)
class Case:
    """A design and a number of spheres."""

    part: str
    name: str
    count: int
    cells: int
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def design(self) -> str:
        """Return the name in the file."""
        return f"{self.part} {self.name}"

    def __str__(self) -> str:
        return f"{self.design}, N = {self.count:,}"

    def column(self, backend: str) -> Column:
        """Return the spheres at their start."""
        return Column(self.count, cells=self.cells, search=self.part, backend=backend, **self.options)


def designs(backend: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield part, name and options of all designs of a backend."""
    fused = {"auto": {}} if backend == "cpu" else FUSED
    yield from (("fused", name, options) for name, options in fused.items())
    yield from (("storage", name, {"builder": name}) for name in BUILDERS)
    yield "storage", "fixed row", ROW_MAJOR
    yield from (("stream", name, {"builder": name}) for name in BUILDERS)
    if backend == "cpu":
        yield "peer", "cKDTree", {}


class Columns:
    """A device, and what the command line asked for."""

    def __init__(self, place: Place, steps: int, longest: float, budget: float, small: bool) -> None:
        self.place, self.clock, self.small = place, place.clock, small
        self.steps, self.longest = steps, longest
        self.say: Callable[[str], None] = print
        self.end = time.perf_counter() + budget

    def rows(self, case: Case) -> Iterable[dict[str, Any]]:
        """Return the row of a case, none if there is no time left."""
        if time.perf_counter() > self.end:
            return []
        return [self._peer(case)] if case.part == "peer" else self._column(case)

    def _seconds(self, call: Callable[[], Any]) -> float:
        begin = self.clock.mark()
        call()
        return float(self.clock.between(begin, self.clock.mark()))

    def _captured(self, call: Callable[[], Any]) -> float:
        """Return the seconds of a call: in a captured graph on CUDA, else of the fastest of three."""
        call()
        once = min(self._seconds(call) for _ in range(2 if self.small else 3))
        graph = self.clock.captured(call, once, 10, 3)
        return once if np.isnan(graph) else graph

    def _segments(self, column: Column, count: int) -> tuple[list[int], float]:
        """Return the steps between states, and the predicted seconds of the run."""
        trial = min(CHUNK, self.steps)
        column.prepare(trial)
        each = self._seconds(lambda: column.run(trial)) / trial
        steps = max(min(self.steps, 10 * CHUNK), int(self.steps * min(1.0, WHOLE / count)))
        length = -(-steps // STATES)
        if length > CHUNK:
            length = round(length / CHUNK) * CHUNK
        lengths = [length] * (steps // length) + [steps % length]
        return [n for n in lengths if n], each * steps

    def _column(self, case: Case) -> Iterator[dict[str, Any]]:
        column = case.column(self.place.name)
        segments, predicted = self._segments(column, case.count)
        steps = sum(segments)
        if predicted > self.longest:
            self.say(f"{case}: not measured, {steps} steps would take {predicted:.3g} s")
            return
        for _ in range(5):  # until no cell overflows: room that a run has made stays
            column.prepare(*segments)
            times, builds, broads, near = [], [], [], 0.0
            for n in (0, *segments):
                times += [self._seconds(lambda n=n: column.run(n)) / n] if n else []
                builds.append(self._captured(column.build))
                broads.append(self._captured(column.broad_phase))
                near = float(column.in_reach.mean())
            if not column.repeated:
                break
        repeated = column.repeated
        mean = sum(n * t for n, t in zip(segments, times, strict=True)) / steps
        if predicted < SHORT:  # the looks at the status between two states would count
            column.prepare(steps)
            mean = min(mean, self._seconds(lambda: column.run(steps)) / steps)
        yield self.row(case, steps, mean, max(times), builds, broads, near, repeated)

    def _peer(self, case: Case) -> dict[str, Any]:
        """Measure SciPy's tree in turn with the library's steps, from states along the library's run."""
        column, peer = Column(case.count, cells=case.cells), Peer(case.cells)
        column.run(1)
        peer.step(column.positions, column.velocities)  # compiles
        states, every = (2, 2) if self.small else (5, self.steps // 5)
        ours, theirs, builds, broads = [], [], [], []
        for _ in range(states):
            before = column.positions, column.velocities
            ours.append(self._seconds(lambda: column.run(1)))
            theirs.append(self._seconds(lambda before=before: peer.step(*before)))
            builds.append(peer.build_s)
            broads.append(peer.build_s + peer.pairs_s)
            if time.perf_counter() < self.end:
                column.run(min(every - 1, max(1, int(self.longest / states / ours[-1]))))
        note = f"the library's step in the same run: {short(float(np.mean(ours)))} s"
        near = 2 * peer.pairs / case.count
        ratio = float(np.mean(theirs) / np.mean(ours))
        return self.row(case, states, float(np.mean(theirs)), max(theirs), builds, broads, near, 0, note, ratio)

    def row(
        self, case: Case, steps: int, mean: float, slowest: float, builds: list[float], broads: list[float],
        near: float, repeated: int, note: str = "", ratio: float = NO_TIME,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the columns of the CSV file."""
        return dict(
            part=case.part, design=case.design, N=case.count, cells=case.cells, dtype="float32", steps=steps,
            build_s=short(float(np.mean(builds))), broad_s=short(float(np.mean(broads))), step_s=short(mean),
            mpups=short(case.count / mean / 1e6), slowest_build_s=short(max(builds)),
            slowest_broad_s=short(max(broads)), slowest_step_s=short(slowest),
            insertions=short(case.count / max(builds)), in_reach=short(near), repeated=repeated,
            threads=self.place.threads, over_ours=short(ratio), note=note, **self.place.facts,
        )  # fmt: skip


def merged(path: Path, fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return fresh rows, and those of a file whose cases were not measured again, by size and design."""

    def key(row: dict[str, Any]) -> tuple[str, int, int]:
        return row["design"], int(row["N"]), int(row["cells"])

    rows = {key(row): row for row in read(path) if fresh and set(row) == set(fresh[0])}
    rows |= {key(row): row for row in fresh}
    return sorted(rows.values(), key=lambda row: (int(row["cells"]), int(row["N"]), row["design"]))


def main() -> None:
    """Measure what the command line names."""
    parser = runs.parser(__doc__, PARTS)
    parser.add_argument("--powers", nargs="+", type=int, default=list(range(7, 23)), help="of two: numbers of spheres")
    parser.add_argument("--cells", type=int, default=64, help="along each axis")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--case", type=float, default=10.0, help="most seconds of the run of one case")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which no case begins")
    asked = parser.parse_args()
    place = Place(asked.backend)
    powers, cells, steps = (range(7, 11, 3), 8, 6) if asked.small else (asked.powers, asked.cells, asked.steps)
    columns = Columns(place, steps, asked.case, asked.budget, asked.small)
    cases = [
        Case(part, name, 2**power, cells, options)
        for power in powers
        for part, name, options in designs(place.name)
        if part in asked.only
    ]
    with runs.Run(place, asked.out) as run:
        columns.say = run.say
        fresh = run.measure("column", cases, columns.rows)
        file = place.file(NAME.split("-", maxsplit=1)[0], NAME.split("-")[1])
        if fresh:
            run.write(file, merged(asked.out / f"{file}-{slug(place.device)}.csv", fresh))
    run.finish()


if __name__ == "__main__":
    main()
