# SPDX-License-Identifier: BSD-3-Clause
"""Times of interpolation by ``tile``, ``ring`` and ``direct`` with other options, for few particles per node.

Lanes of a particle, work-items of a group, and the groups for which a multiprocessor has registers. Kernels compile in
many processes first. Writes ``results/forms-interpolate-DEVICE.csv``, each row as soon as it is measured.

    python benchmarks/core/forms.py [--backend cuda] [--small] [--out DIR]
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.bench import Bench
from harness.cases import Case, Job
from harness.inside import available_threads
from harness.tables import short

FILE = "forms"
CLOUDS = ((64, 10**4), (64, 10**5), (128, 10**5), (128, 10**6), (256, 10**5), (256, 10**6), (256, 10**7))
FORMS: dict[str, tuple[dict[str, Any], ...]] = {
    "direct": ({}, *({"groups": n} for n in (2, 4, 6, 8))),
    "tile": (
        {}, *({"groups": n} for n in (1, 2, 3, 4)), {"threads": 128, "groups": 3}, {"threads": 128, "groups": 4},
        {"threads": 256, "groups": 3}, {"lanes": 1, "reads": 2}, {"lanes": 4}, {"lanes": 8}, {"shape": (8, 8, 16)},
    ),
    "ring": (
        {}, *({"steps": n} for n in (8, 16, 32)), {"groups": 4}, {"threads": 96, "groups": 4}, {"threads": 192},
        {"shape": (2, 9, 11)}, {"shape": (4, 12, 11)}, {"shape": (8, 12, 22)},
    ),
}  # fmt: skip


def jobs(small: bool) -> list[Job]:
    """Return the forms of all cases; those with the same particles are neighbours."""
    clouds = ((20, 100),) if small else CLOUDS
    kinds = itertools.product(clouds, ("float32",) if small else ("float32", "float64"), (4,) if small else (4, 6))
    cases = [Case("interpolate", count, nodes, support, dtype) for (nodes, count), dtype, support in kinds]
    return [Job(case, name, form) for case in cases for name, forms in FORMS.items() for form in forms]


def rows(bench: Bench, job: Job) -> Iterator[dict[str, Any]]:
    """Yield the row of a form."""
    times = bench.measure(job)
    yield dict(
        method=job.method, options=job.chosen, **job.case.columns(), graph_s=short(times.least), note=times.note,
        **bench.facts,
    )  # fmt: skip


def main() -> None:
    """Measure all forms."""
    parser = runs.parser(__doc__)
    parser.add_argument("--compile", type=int, nargs=2, help=runs.argparse.SUPPRESS)
    asked = parser.parse_args()
    bench = Bench(asked.backend, asked.small)
    forms = jobs(asked.small)
    if asked.compile:
        share, shares = asked.compile
        for job in forms[share::shares]:
            with bench.place.attempt(str(job)), bench.setup(job) as made:
                made.call()
        return
    if asked.backend == "cuda" and not asked.small:
        runs.compile_at_once(__file__, ["--backend", asked.backend], min(16, available_threads()))
    with runs.Run(bench.place, asked.out) as run:
        file = bench.place.file(FILE, "interpolate")
        run.write(file, run.measure(FILE, forms, lambda job: rows(bench, job), file))
    run.finish()


if __name__ == "__main__":
    main()
