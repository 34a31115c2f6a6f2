# SPDX-License-Identifier: BSD-3-Clause
"""Measure how close spreading and interpolation come to the limits of a device: a CSV file for each part.

Writes ``benchmarks/results/limit-PART-DEVICE.csv`` (through OpenCL: ``limit-opencl-PART-DEVICE.csv``). A method that
declines has a row with its reason. ``--small`` takes a minute on two cores and shows that all of it works; its times
mean nothing. Afterwards ``benchmarks/report.py`` writes the tables, and ``benchmarks/compare.py`` compares with the
committed files.

    python benchmarks/core/run.py --backend cuda [--only rows peer] [--small] [--out DIR]
    python benchmarks/core/run.py --backend opencl --only rows
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from core import ceilings, density, peer, roofline, rows, thresholds
from core.device import Ceilings
from harness import inside, runs
from harness.bench import Bench, Setup
from harness.cases import Case
from harness.inside import available_threads

PARTS: tuple[ModuleType, ...] = (rows, peer, density, roofline, thresholds)
NAMES = ["ceilings", *(part.FIGURE for part in PARTS)]


class Compiling(Bench):
    """A bench that makes each call once: kernels stay compiled on disk."""

    def seconds(self, call: Any) -> tuple[float, float]:
        """Make the call."""
        call()
        return 1.0, 1.0

    def preparing(self, made: Setup, direction: str) -> tuple[float, float, str]:
        """Prepare for the same positions once more."""
        made.plan.set_positions(made.positions, check=False)
        inside.prepare(made.plan, direction)
        return 1.0, 1.0, "calls"

    def error(self, case: Case, result: Any) -> float:
        """Return no error: the reference would take long."""
        return 0.0


def compile_for(bench: Bench, share: int, shares: int, only: list[str]) -> None:
    """Make the calls of one share of the cases; those with the same kernels are in few shares."""
    for part in PARTS:
        if part.FIGURE in only and part is not thresholds:  # which searches, so that its cases are not known before
            cases = sorted(part.jobs(bench), key=lambda job: _kernels(getattr(job, "case", job)))
            most = -(-len(cases) // shares)
            for case in cases[share * most : (share + 1) * most]:
                with bench.place.attempt(str(case)):
                    list(part.rows(bench, case))
                    bench.place.wait()
    if bench.place.failed:
        raise SystemExit("\n".join(bench.place.failed))


def _kernels(case: Any) -> tuple[str, ...]:
    return tuple(str(getattr(case, name, "")) for name in ("direction", "dtype", "support", "values"))


def main() -> None:
    """Measure the parts that the command line names."""
    parser = runs.parser(__doc__, NAMES)
    parser.add_argument("--compile", type=int, nargs=2, help=runs.argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        bench = Compiling(asked.backend)
        bench.ceilings = Ceilings.read(asked.out, bench.place.device)
        compile_for(bench, *asked.compile, asked.only)
        return
    if asked.backend == "cuda" and not asked.small:  # a compiler takes a core
        arguments = ["--backend", asked.backend, "--out", str(asked.out), "--only", *asked.only]
        runs.compile_at_once(__file__, arguments, min(16, available_threads()))
    bench = Bench(asked.backend, asked.small)
    place = bench.place
    with runs.Run(place, asked.out) as run:
        if "ceilings" in asked.only:
            made = ceilings.rows(place, asked.small)
            bench.ceilings = Ceilings.of(made, place.device)
            run.write(place.file("limit", "ceilings"), made)
        else:
            bench.ceilings = Ceilings.read(asked.out, place.device)
        for part in PARTS:
            if part.FIGURE in asked.only:
                file = place.file("limit", part.FIGURE)
                measured = run.measure(
                    part.FIGURE, part.jobs(bench), lambda case, part=part: part.rows(bench, case), file
                )
                run.write(file, measured)
                for line in thresholds.summary(measured) if part is thresholds else ():
                    run.say(line)
    run.finish()


if __name__ == "__main__":
    main()
