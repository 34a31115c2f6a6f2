# SPDX-License-Identifier: BSD-3-Clause
"""Measure what Guo et al. (2015) measured: a CSV file for each of their figures, and for additions.

Writes ``benchmarks/results/guo-FIGURE-DEVICE.csv``. Measurements that figures share are made once. A method that
declines, or lacks memory, has a row with its reason. ``--small`` takes a minute on two cores and shows that all of it
works; its times mean nothing. Afterwards ``benchmarks/report.py`` re-tests the claims and ``guo_pictures.py`` draws.

The time of spreading is that of ``plan.spread(values, out=field)``, which clears the field. The time of preparing is
that of all work between locating particles and spreading. Locating (``set_positions``) is the same for all methods and
belongs to neither. The columns ``*_by`` say how each was timed.

    python studies/guo/run.py --backend cuda [--only fig3 fig8] [--small] [--out DIR]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # when this file runs: the folder of studies, that of benchmarks
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import particlemesh as pm
from harness import inside, runs
from harness.bench import Bench, reason
from harness.cases import Case, Job
from harness.clock import NO_TIME
from harness.tables import short
from studies.guo import cusparse
from studies.guo.atomics import PlainAdds, PlainStores

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
MESHES = (32, 64, 128, 256)
SMALL_SIZES, SMALL_MESHES = (1_000, 4_000), (12, 24)
APPLICATIONS = (1, 20, 100, 1000)
TOO_LONG = 20.0  # seconds: a method that takes longer is not measured with more particles
CHECKED = 3_000_000  # particles from which fields are compared: entries pass 2^31
# The paper's construction of single mesh (count, scan, collect) beside the library's, which sorts particles.
PAPER = {"construction": "paper"}
MATRICES = tuple(m.name for m in inside.METHODS["spread"] if m.stores_weights)


# ---- figures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One CSV file: problems by methods by options."""

    name: str
    meshes: tuple[int, ...] = (128,)
    methods: tuple[str, ...] = ()  # all that run here, if none is named
    forms: tuple[dict[str, Any], ...] = ({},)  # options of every method
    small_forms: tuple[dict[str, Any], ...] = ()  # in a small run, if they differ
    paper: bool = False  # single mesh also in the paper's construction
    variants: tuple[Any, ...] = (None,)
    prepare: bool = True  # whether preparing is timed
    support: int = 6
    totals: bool = False  # whether rows have totals

    def cases(self, small: bool) -> list[Case]:
        """Return the problems, which overlap with those of other figures."""
        if self.name == "added_clouds":
            return _added(*((4_000, 24, 4) if small else (1_000_000, 128, 6)))[: 3 if small else None]
        if self.name == "cusparse":
            return [_case(4_000, 24, 4)] if small else [_case(1_000_000, 128)]
        meshes = self.meshes if not small else SMALL_MESHES if len(self.meshes) > 1 else SMALL_MESHES[-1:]
        sizes, support = (SMALL_SIZES, 4) if small else (SIZES, self.support)
        return [_case(n, k, support) for k in meshes for n in sizes]

    def jobs(self, bench: Bench) -> list[Job]:
        """Return the measurements."""
        here = bench.names("spread")
        names = [n for n in self.methods or here if n in here]
        forms = self.small_forms if bench.small and self.small_forms else self.forms
        return [
            Job(case, name, form, variant)
            for name in names
            for form in (*forms, *([PAPER] if self.paper and name == "single_mesh" else ()))
            for case in self.cases(bench.small)
            for variant in self.variants
        ]


def _case(count: int, nodes: int, support: int = 6, **kind: str) -> Case:
    return Case("spread", count, nodes, support, **{"values": "real", **kind})


def _added(count: int, nodes: int, support: int) -> list[Case]:
    """Return kinds of problems that the paper leaves out, the paper's own kind first."""
    kinds: tuple[dict[str, str], ...] = (
        {}, {"cloud": "clustered"}, {"cloud": "lattice"}, {"dtype": "float64"}, {"values": "complex"},
        {"values": "complex", "dtype": "float64"}, {"values": "3"}, {"values": "8"},
    )  # fmt: skip
    other = 4 if support == 6 else 3
    return [
        *(_case(count, nodes, support, **kind) for kind in kinds),
        *(_case(n, nodes, other) for n in (count // 100, count // 10, count)),
    ]


def _values_of(option: str, *values: Any, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({option: value, **more} for value in values)


SHUFFLE = {"reduction": "shuffle"}
# The broad figures come first: the others find most of their measurements there.
FIGURES = {
    figure.name: figure
    for figure in (
        Figure("long_totals", MESHES, paper=True, totals=True),
        Figure("long_construction", MESHES, ("single_mesh", "group_mesh"), paper=True),
        Figure("fig8"),
        Figure("fig9", methods=tuple(m.name for m in inside.METHODS["spread"] if m.name != "particle"), paper=True),
        Figure("fig7", (64,), ("particle", "gather", "gather_list")),
        Figure("fig3", MESHES, ("single_mesh",), _values_of("threads_per_row", 1, 2, 4, 8, 16, 32, **SHUFFLE),
               _values_of("threads_per_row", 1, 8, 32, **SHUFFLE), prepare=False),
        Figure("fig4", methods=("group_mesh",), forms=_values_of("group_size", 16, 32, 64, 128, 256),
               small_forms=_values_of("group_size", 16, 64), prepare=False),
        Figure("fig5", methods=("single_mesh",), forms=_values_of("reduction", "shuffle", "local"), prepare=False),
        Figure("fig6", (64,), ("particle",), variants=(None, PlainAdds, PlainStores), prepare=False),
        Figure("cusparse", methods=MATRICES, paper=True),
        Figure("added_clouds"),
        Figure("long_totals_p4", MESHES, paper=True, support=4, totals=True),
    )
}  # fmt: skip


# ---- measuring --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Seconds of preparing and of spreading; or in ``note`` the reason why there are none."""

    prepare: float = NO_TIME
    apply: float = NO_TIME
    prepare_by: str = ""
    apply_by: str = ""
    nbytes: int = 0
    note: str = ""
    difference: float = NO_TIME  # of the field from that of the particle method, relative, in the l2 norm


class Guo:
    """A device, and the times that were measured there."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._times: dict[Any, Times] = {}
        self._automatic: dict[tuple[Case, int], str] = {}
        self._slow: dict[Any, int] = {}  # particles that took too long

    def rows(self, figure: Figure, job: Job) -> Iterable[dict[str, Any]]:
        """Measure a job and return its row."""
        times, more = self.times(job, figure.prepare), {}
        if figure.totals:
            more = {f"total_{n}_s": short(times.prepare + n * times.apply) for n in APPLICATIONS}
            chosen = [n for n in APPLICATIONS if not job.options and self._auto(job.case, n) == job.method]
            more["auto"] = " ".join(map(str, chosen))
        return [self.row(figure.name, job, times, **more)]

    def row(self, figure: str, job: Job, times: Times, **more: Any) -> dict[str, Any]:
        """Return the columns of the CSV file; ``more`` are those of one figure."""
        case = job.case
        asm = case.count * (case.support / case.nodes) ** 3  # average spreading contributions per node
        return dict(
            figure=figure, method=job.name, options=job.chosen, N=case.count, K=case.nodes, p=case.support,
            dtype=case.dtype, values=case.values, cloud=case.cloud, asm=short(asm), prepare_s=short(times.prepare),
            apply_s=short(times.apply), prepare_by=times.prepare_by, apply_by=times.apply_by, nbytes=times.nbytes,
            note=times.note, difference=short(times.difference), **more, **self.bench.facts,
        )  # fmt: skip

    def times(self, job: Job, prepare: bool = True) -> Times:
        """Return the times of a job; nothing is measured twice."""
        key = (job.case, job.name, job.chosen)
        known = self._times.get(key)
        if known is None or (prepare and not known.note and math.isnan(known.prepare)):
            known = self._times[key] = self._measure(job, prepare)
            self.bench.tidy()
        return known

    def _measure(self, job: Job, prepare: bool) -> Times:
        case, bench = job.case, self.bench
        family = (case.nodes, case.support, case.dtype, case.values, case.cloud, job.name, job.chosen)
        if case.count > self._slow.get(family, case.count):
            return Times(note=f"not tried: {self._slow[family]:,} particles took more than {TOO_LONG:g} s")
        try:
            with bench.setup(job, applications=1) as made:
                nbytes = inside.ask(made.plan, inside.method_of(made.plan, "spread")).bytes
                if not bench.fits(nbytes):
                    return Times(note=f"would take {nbytes:,} bytes, more than half of the free memory")
                made.call()  # compiles, prepares, takes all memory
                preparing = (NO_TIME, "")
                if not inside.prepares(inside.method_of(made.plan, "spread")):
                    preparing = (0.0, "nothing to do")
                elif prepare:
                    preparing = bench.clock.least(lambda: inside.prepare_again(made.plan, "spread"))
                made.call()
                apply, apply_by = bench.clock.least(made.call)
                compared = bench.small or case.count >= CHECKED
                difference = self._difference(case, made.result()) if compared else NO_TIME
                result = Times(preparing[0], apply, preparing[1], apply_by, made.plan.nbytes, difference=difference)
        except (pm.MethodNotSuitable, MemoryError) as declined:
            return Times(note=reason(declined))
        if apply + np.nan_to_num(preparing[0]) > TOO_LONG:
            self._slow[family] = case.count
        return result

    def _difference(self, case: Case, field: np.ndarray) -> float:
        """Return the distance of a field from that of the first method, which is made once for all methods."""

        def reference() -> np.ndarray:
            with self.bench.setup(Job(case, self.bench.names("spread")[0])) as made:
                made.call()
                return made.result()

        exact = self.bench.hold("field", case, reference)
        return float(np.linalg.norm((field - exact).ravel()) / np.linalg.norm(exact.ravel()))

    def _auto(self, case: Case, applications: int) -> str:
        """Return the automatic choice."""
        key = (case, applications)
        if key not in self._automatic:
            with self.bench.plan(Job(case, "auto"), applications=applications) as (plan, _):
                self._automatic[key] = inside.automatic(plan, "spread")
        return self._automatic[key]


def main() -> None:
    """Measure the figures that the command line names."""
    asked = runs.parser(__doc__, list(FIGURES)).parse_args()
    bench = Bench(asked.backend, asked.small)
    guo = Guo(bench)
    with runs.Run(bench.place, asked.out) as run:
        for name, figure in FIGURES.items():
            if name not in asked.only:
                continue
            rows = run.measure(name, figure.jobs(bench), lambda job, figure=figure: guo.rows(figure, job))
            if name == "cusparse" and bench.place.name == "cuda":
                (case,) = figure.cases(bench.small)
                products: Callable[[Any], Any] = lambda case: cusparse.rows(guo, case, Times)  # noqa: E731
                rows += run.measure(name, [case], products)
            run.write(bench.place.file("guo", name), rows)
    run.finish()


if __name__ == "__main__":
    main()
