# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms on the CPU beside FINUFFT and ducc0, in the same run, with the errors reached.

Writes ``results/nufft-DEVICE.csv``, of other dimensions than 3 ``nufft-axes-DEVICE.csv``. Complex values, uniform
points, K modes an axis. ``reuse`` is ``execute`` alone, with ``out``; ``new`` is ``setpts`` and ``execute`` (ducc0's
one call). FINUFFT runs with its default oversampling and with 2. All libraries take turns, round by round. Times are
medians. ``ratio`` is the median over the rounds of the peer's time over ours: above 1 ours is faster. Errors are
relative l2 errors against a transform of ours with eps 1e-14. The rows ``particlemesh, real`` have real values at
points; their ratio is the complex time over theirs.

    python benchmarks/apps/nufft.py [--small] [--threads 2] [--dimensions 3] [--count 1000000] [--modes 64]
        [--eps 1e-6 1e-12] [--repeats 9] [--out DIR]
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

# OpenMP's threads would keep spinning after FINUFFT's calls, on the cores of ours.
os.environ["OMP_WAIT_POLICY"] = "passive"

from harness import runs
from harness.inside import available_threads
from harness.place import Place
from harness.tables import geometric_mean, show
from particlemesh.apps import nufft

Rounds = dict[str, tuple[list[float], list[float]]]  # by library: seconds of setpts and of execute


class Case(NamedTuple):
    """One problem on some threads."""

    dimensions: int
    count: int
    modes: int  # along each axis
    threads: int
    eps: float
    nufft_type: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of modes along each axis."""
        return (self.modes,) * self.dimensions


def plans(case: Case, x: list[np.ndarray], data: np.ndarray) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return for each library the calls that set points and that transform."""
    import ducc0
    import finufft

    shape, options = case.shape, {"eps": case.eps, "nthreads": case.threads}
    size = shape if case.nufft_type == 1 else (case.count,)
    made = {
        "particlemesh": nufft.Plan(case.nufft_type, shape, **options),
        "finufft": finufft.Plan(case.nufft_type, shape, **options),
        "finufft, upsampfac 2": finufft.Plan(case.nufft_type, shape, upsampfac=2.0, **options),
    }
    calls: dict[str, Any] = {}
    for name, plan in made.items():
        out = np.empty(size, np.complex128)
        calls[name] = (lambda p=plan: p.setpts(*x), lambda p=plan, out=out: p.execute(data, out=out))
    real = nufft.Plan(case.nufft_type, shape, real=True, **options)
    strengths = np.ascontiguousarray(data.real) if case.nufft_type == 1 else data
    values = np.empty(size, np.complex128 if case.nufft_type == 1 else np.float64)
    calls["particlemesh, real"] = (lambda: real.setpts(*x), lambda: real.execute(strengths, out=values))
    points, result = np.stack(x, axis=1), np.empty(size, np.complex128)
    more = dict(coord=points, epsilon=case.eps, nthreads=case.threads, periodicity=2 * np.pi, out=result)
    if case.nufft_type == 1:
        calls["ducc0"] = (lambda: None, lambda: ducc0.nufft.nu2u(points=data, forward=False, **more))
    else:
        calls["ducc0"] = (lambda: None, lambda: ducc0.nufft.u2nu(grid=data, forward=True, **more))
    return calls


def rows(case: Case, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each library."""
    rng = np.random.default_rng(1)
    x = [rng.uniform(-np.pi, np.pi, case.count) for _ in range(case.dimensions)]
    size = case.count if case.nufft_type == 1 else case.shape
    data = rng.normal(size=size) + 1j * rng.normal(size=size)
    exact = nufft.Plan(case.nufft_type, case.shape, eps=1e-14)
    exact.setpts(*x)
    reference = exact.execute(data)
    calls = plans(case, x, data)
    rounds: Rounds = {name: ([], []) for name in calls}
    errors = {}
    for turn in range(repeats + 1):
        for name, (set_points, execute) in calls.items():
            start = time.perf_counter()
            set_points()
            middle = time.perf_counter()
            result = execute()
            end = time.perf_counter()
            if turn:
                rounds[name][0].append(middle - start)
                rounds[name][1].append(end - middle)
            elif name == "particlemesh, real":
                expected = reference.real if case.nufft_type == 2 else exact.execute(data.real + 0j)
                errors[name] = np.linalg.norm(result - expected) / np.linalg.norm(expected)
            else:
                errors[name] = np.linalg.norm(result - reference) / np.linalg.norm(reference)
    ours = rounds["particlemesh"]
    for name, (points, executions) in rounds.items():
        new = [a + b for a, b in zip(points, executions, strict=True)]
        ours_new = [a + b for a, b in zip(*ours, strict=True)]
        # ducc0 has no points of its own to keep.
        reuse = ratio(executions, ours[1], name) if name != "ducc0" else ""
        yield {
            "type": case.nufft_type, "eps": f"{case.eps:g}", "library": name, "N": case.count,
            "modes": "x".join(map(str, case.shape)), "threads": case.threads,
            "error": f"{errors[name]:.2e}", "setpts_s": f"{statistics.median(points):.4e}",
            "execute_s": f"{statistics.median(executions):.4e}", "ratio_reuse": reuse,
            "ratio_new": ratio(new, ours_new, name),
        }  # fmt: skip


def ratio(theirs: list[float], ours: list[float], name: str) -> float:
    """Return the median over rounds of the ratio of times; for real values that of ours over theirs."""
    pairs = [(b, a) if name.endswith("real") else (a, b) for a, b in zip(theirs, ours, strict=True)]
    return round(statistics.median(a / b for a, b in pairs), 2)


def summary(table: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return mean and least ratio to each library."""
    lines = []
    for name, column in itertools.product(dict.fromkeys(row["library"] for row in table), ("ratio_reuse", "ratio_new")):
        ratios = [float(row[column]) for row in table if row["library"] == name and row[column] != ""]
        if ratios and name != "particlemesh":
            lines.append((name, column[6:], f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"))
    return lines


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend=None)
    parser.add_argument("--threads", type=int, nargs="+", default=[available_threads()])
    parser.add_argument("--count", type=int, nargs="+", default=[10**6])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[3])
    parser.add_argument("--modes", type=int, nargs="+", default=[64], help="of each axis; 0: a mode for each point")
    parser.add_argument("--eps", type=float, nargs="+", default=[1e-6, 1e-12])
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    for name in ("finufft", "ducc0"):
        if not importlib.util.find_spec(name):
            raise SystemExit(f"{name} is not installed: pip install {name}")
    counts, modes, repeats = ([1000], [8], 1) if asked.small else (asked.count, asked.modes, asked.repeats)
    cases = [
        Case(dim, count, k or round(count ** (1 / dim)), threads, eps, kind)
        for dim, count, k, threads, eps, kind in itertools.product(
            asked.dimensions, counts, modes, asked.threads, asked.eps, (1, 2)
        )
    ]
    with runs.Run(Place("cpu"), asked.out) as run:
        table = run.measure("NUFFT", cases, lambda case: rows(case, repeats))
        run.write("nufft" if asked.dimensions == [3] else "nufft-axes", table)
    show("Times of others over ours", ("library", "points", "mean", "least"), summary(table))
    run.finish()


if __name__ == "__main__":
    main()
