# SPDX-License-Identifier: BSD-3-Clause
"""Each method under the roofline: useful flops and least bytes of the problem, and the method's time.

Work and bytes are the problem's (``bounds.py``), not the method's: a method that moves more or computes twice is lower
in the picture.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from core.bounds import bound, intensity, least_bytes, multiply_adds
from harness.bench import Bench
from harness.cases import DIRECTIONS, Case, Job
from harness.tables import short

FIGURE = "roofline"
NODES = 128
KINDS = (("float32", "complex"), ("float32", "real"), ("float64", "complex"))


def jobs(bench: Bench) -> list[Case]:
    """Return the cases: many particles and few, two supports, three kinds of values."""
    if bench.small:
        return [Case(d, 500, 16, 4) for d in DIRECTIONS]
    sizes, supports = (10**7, 10**6, 10**4), (4, 6)
    return [
        Case(d, n, NODES, p, dtype, values)
        for n, (dtype, values), p, d in itertools.product(sizes, KINDS, supports, DIRECTIONS)
    ]


def rows(bench: Bench, case: Case) -> Iterable[dict[str, Any]]:
    """Yield a row for walks, the automatic choice and two other methods."""
    auto, methods = bench.rivals(case, factor=20.0, most=2)
    methods += [name for name in ("particle",) if name in bench.names(case.direction) and name not in methods]
    flops, nbytes = 2 * multiply_adds(case), least_bytes(case)
    limit, seconds = bound(case, bench.ceilings)
    for method in methods:
        times = bench.measure(Job(case, method))
        yield dict(
            method=method, auto=int(method == auto), **case.columns(), seconds=short(times.least), flops=short(flops),
            least_bytes=short(nbytes), intensity=short(intensity(case)), gflops=short(flops / times.least / 1e9),
            gbytes=short(nbytes / times.least / 1e9), bound=limit, bound_s=short(seconds),
            of_bound=short(seconds / times.least), note=times.note, **bench.facts,
        )  # fmt: skip
