# SPDX-License-Identifier: BSD-3-Clause
"""Where each method is under the roofline: useful flops and least bytes of the problem, and the time that it took.

Work and bytes are the problem's (``bounds.py``), not the method's: one that moves more or computes twice is lower in
the picture, not elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from limit.bench import Bench, Job
from limit.bounds import bound, intensity, least_bytes, multiply_adds
from limit.cases import DIRECTIONS, Case
from place import short

FIGURE = "roofline"
NODES = 128
KINDS = (("float32", "complex"), ("float32", "real"), ("float64", "complex"))


def jobs(bench: Bench) -> list[Case]:
    """Return the cases: many particles and few, both widths, and what kinds of values there are."""
    if bench.small:
        return [Case(d, 500, 16, 4) for d in DIRECTIONS]
    sizes, supports = (10**7, 10**6, 10**4), (4, 6)
    return [
        Case(d, n, NODES, p, dtype, values)
        for n, (dtype, values), p, d in itertools.product(sizes, KINDS, supports, DIRECTIONS)
    ]


def rows(bench: Bench, case: Case) -> Iterable[dict[str, Any]]:
    """Yield a row for walks, the automatic choice and two others."""
    auto, methods = bench.rivals(case, factor=20.0, most=2)
    methods += [name for name in ("particle",) if name in bench.names(case.direction) and name not in methods]
    flops, nbytes = 2 * multiply_adds(case), least_bytes(case)
    limit, seconds = bound(case, bench.ceilings)
    for method in methods:
        found = bench.measure(Job(case, method))
        yield dict(
            method=method, auto=int(method == auto), **case.columns(), seconds=short(found.least), flops=short(flops),
            least_bytes=short(nbytes), intensity=short(intensity(case)), gflops=short(flops / found.least / 1e9),
            gbytes=short(nbytes / found.least / 1e9), bound=limit, bound_s=short(seconds),
            of_bound=short(seconds / found.least), note=found.note, **bench.facts,
        )  # fmt: skip
