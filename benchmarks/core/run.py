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

import itertools
import sys
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from core import ceilings, density, peer, roofline, rows, thresholds
from core.device import Ceilings
from harness import runs
from harness.bench import WALK, Bench
from harness.cases import DIRECTIONS, Case, Job
from harness.inside import available_threads

PARTS: tuple[ModuleType, ...] = (rows, peer, density, roofline, thresholds)
KINDS = ("real", "complex", "4")  # of values in rows
NAMES = ["ceilings", *(part.FIGURE for part in PARTS)]


def compile_for(bench: Bench, part: int, parts: int, only: list[str]) -> None:
    """Run methods once on small problems; kernels stay compiled on disk."""
    if not {*only} - {"ceilings", thresholds.FIGURE}:
        return
    kinds = itertools.product(DIRECTIONS, (4, 6), ("float32", "float64"), KINDS)
    cases = [Case(d, 1000, 32, p, t, v) for d, p, t, v in kinds if (p, t) == (6, "float32") or v == "complex"]
    jobs = [job for case in cases for job in [*density.forms(bench, case), *_windows(bench, case)]]
    for job in itertools.islice(jobs, part, None, parts):
        with bench.place.attempt(str(job)), bench.setup(job) as made:
            made.call()
            bench.place.wait()
    if bench.place.failed:
        raise SystemExit("\n".join(bench.place.failed))


def _windows(bench: Bench, case: Case) -> list[Job]:
    """Return walks with windows that they do not take by default for so small a problem."""
    walks = [name for name in bench.rivals(case)[1] if name.startswith(WALK)]
    return [Job(case, w, {"patch": v}) for w in walks for v in density.other_values(bench, case, w, "patch")]


def main() -> None:
    """Measure the parts that the command line names."""
    parser = runs.parser(__doc__, NAMES)
    parser.add_argument("--compile", type=int, nargs=2, help=runs.argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        compile_for(Bench(asked.backend), *asked.compile, asked.only)
        return
    if asked.backend == "cuda" and not asked.small:  # a compiler takes a core
        arguments = ["--backend", asked.backend, "--only", *asked.only]
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
                measured = run.measure(part.FIGURE, part.jobs(bench), lambda case, part=part: part.rows(bench, case))
                run.write(place.file("limit", part.FIGURE), measured)
                for line in thresholds.summary(measured) if part is thresholds else ():
                    run.say(line)
    run.finish()


if __name__ == "__main__":
    main()
