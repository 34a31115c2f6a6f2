# SPDX-License-Identifier: BSD-3-Clause
"""Measure what Büyükkeçeci, Awile and Sbalzarini (2013) measured, on the CPU and on one device.

Writes ``benchmarks/results/buyukkececi-PART-DEVICE.csv`` for convergence, times, breakdown and tables (through OpenCL:
``buyukkececi-opencl-PART-DEVICE.csv``). ``--small`` takes a minute on two cores and shows that all of it works; its
times mean nothing. Afterwards ``benchmarks/report.py`` re-tests the claims and ``buyukkececi_pictures.py`` draws.

    python studies/buyukkececi/run.py --backend cuda [--only convergence times] [--small] [--out DIR]
    python studies/buyukkececi/run.py --backend opencl --only times
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # when this file runs: the folder of studies, that of benchmarks
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from harness import runs
from harness.place import Place
from studies.buyukkececi import breakdown, convergence, tables, times
from studies.buyukkececi.cases import DIRECTIONS, DTYPES, SEED, WINDOWS, Case, call_of, inputs

PARTS = ("convergence", "times", "breakdown")


class Problem(tuple[Case, float]):
    """A case of figure 11 and the width of its function."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self[0])


def compile_for(backend: str, part: int, parts: int) -> None:
    """Run every method once on a small problem; kernels and functions stay compiled on disk."""
    places = [Place("cpu")] if backend == "cpu" else [Place(backend), Place("cpu")]
    jobs = itertools.product(places, DIRECTIONS, (2, 3), WINDOWS, DTYPES)
    for place, direction, ndim, window, dtype in itertools.islice(jobs, part, None, parts):
        case = Case(direction, ndim, window, dtype, 32)
        x, source, _ = inputs(case)
        for method in case.candidates(place)[1]:
            with place.attempt(method), case.plan(method, place.name) as plan:
                plan.set_positions(place.upload(x))
                call_of(case, plan, place.upload(source))
                place.wait()


def main() -> None:
    """Measure the parts that the command line names."""
    parser = runs.parser(__doc__, PARTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--compile", type=int, nargs=2, help=runs.argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        compile_for(asked.backend, *asked.compile)
        return
    if asked.backend == "cuda":
        runs.compile_at_once(__file__, ["--backend", asked.backend], 8)
    cpu = Place("cpu")
    places = [cpu] if asked.backend == "cpu" else [cpu, Place(asked.backend)]
    device, small, known = places[-1], asked.small, dict[Any, float]()

    def converge(problem: Any) -> Any:
        return convergence.measure(places, *problem, asked.seed, convergence.all_methods(*problem, small))

    jobs: dict[str, tuple[list[Any], Any]] = {
        "convergence": (list(map(Problem, convergence.cases(small))), converge),
        "times": (times.cases(small), lambda case: times.measure(places, case, known, asked.seed)),
        "breakdown": (breakdown.cases(small), lambda case: breakdown.measure(device, case, asked.seed)),
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    with runs.Run(device, asked.out) as run:
        for part in asked.only:
            rows[part] = run.measure(part, *jobs[part])
        convergence.finish(rows.get("convergence", []))
        if "times" in rows:
            rows["tables"] = tables.rows(rows["times"], rows.get("breakdown", []))
        for part, measured in rows.items():
            run.write(device.file("buyukkececi", part), measured)
    run.finish(cpu.failed if cpu is not device else ())


if __name__ == "__main__":
    main()
