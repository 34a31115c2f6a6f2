# SPDX-License-Identifier: BSD-3-Clause
"""How much slower ``method="auto"`` is than the best choice, on problems that no table of times has.

Sixty problems, drawn at random with a fixed seed: particles, nodes along an axis (also odd), nodes of a window,
precision, real or complex, the cloud, the number of applications. Every method that might be the best is timed
(``trial.seconds``). The regret of a choice is its total time over the least, less one. There are two choices: ``auto``
with the device's table of times (``particlemesh tune`` on a new device), and ``untuned`` by the methods' own models
alone. Both are judged by the same times. Writes ``results/regret-DEVICE.csv``; its column ``seconds`` adds up to the
time of measuring.

With ``--seconds`` the same problems are taken in their order for as long as the time lasts. On CUDA their kernels are
compiled first, by several processes. Only methods within a few times the best prediction are timed. Mean and worst
regret so far are printed after each problem, so that a run always ends with a number. It writes
``results/regret-sample-DEVICE.csv``.

    python benchmarks/core/regret.py [--backend cuda] [--small] [--problems 60] [--most 1e7] [--seconds S] [--out DIR]
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import inside, runs
from harness.clouds import positions
from harness.place import Place
from particlemesh.choosing import candidates, predict, trial
from particlemesh.choosing.choice import METHODS
from particlemesh.command.tune import Case, plan_of

SEED = 60  # tables of times have Halton's sequence instead
CLOUDS = ("uniform", "uniform", "clustered", "lattice")  # drawn with equal chances
HOPELESS = 20  # times the best prediction of both kinds: slower methods are not timed
MOST = {"cpu": 1e6}  # particles, 1e7 elsewhere: on the CPU nothing changes from 1e5 on
NEARLY_HOPELESS = 4  # the same, of a sample
AT_ONCE = 12  # processes that compile for a sample, at most
COMPILE = 0.5  # of the seconds of a sample, at most
LONGEST = 5.0  # predicted seconds of ten applications: slower methods are timed only if they are chosen


class Problem(NamedTuple):
    """One problem and its number of applications."""

    case: Case
    cloud: str
    applications: int


def problems(count: int, most: float) -> list[Problem]:
    """Return the first ``count`` problems."""
    rng = np.random.default_rng(SEED)
    drawn = []
    for _ in range(count):
        where = rng.random(3)
        particles, nodes = round(1e3 * (most / 1e3) ** where[0]), round(24 * (300 / 24) ** where[1])
        support, components = int(rng.integers(2, 9)), int(rng.integers(1, 3))
        dtype, cloud = str(rng.choice(["float32", "float64"])), str(rng.choice(CLOUDS))
        drawn.append(Problem(Case(nodes, support, dtype, components, particles, 1.0), cloud, round(1000 ** where[2])))
    return drawn


def measure(backend: Any, problem: Problem) -> Iterator[dict[str, Any]]:
    """Yield a row for each direction; ``seconds`` is the time of measuring since the row before."""
    with plan_on(backend, problem) as plan:
        for direction in METHODS:
            begin = time.perf_counter()
            row = measured(plan, problem, direction, HOPELESS)
            if row is not None:
                yield {**row, "seconds": float(f"{time.perf_counter() - begin:.4g}")}


def plan_on(backend: Any, problem: Problem) -> Any:
    """Return a plan with the positions of a problem."""
    case = problem.case
    return plan_of(backend, case, positions(problem.cloud, case.particles, case.dtype), problem.applications)


def choices(plan: Any, direction: str, hopeless: float) -> tuple[dict[str, Any], set[Any]]:
    """Return the method that each prediction chooses, and the methods to time."""
    asked, methods = plan.methods.problem(), METHODS[direction]
    tuned = functools.partial(predict.known(asked.backend).predict, direction)
    costs = {"auto": tuned, "untuned": candidates.modelled}
    chosen = {kind: candidates.choose(methods, asked, "auto", cost) for kind, cost in costs.items()}
    return chosen, hopeful(methods, asked, costs, hopeless) | set(chosen.values())


def measured(plan: Any, problem: Problem, direction: str, hopeless: float) -> dict[str, Any] | None:
    """Return the row of a direction, or None if there was no memory for any trial."""
    chosen, able = choices(plan, direction, hopeless)
    times: dict[Any, tuple[float, float]] = {}
    for method in able:
        try:
            times[method] = trial.seconds(plan.workspace, direction, method)
        except MemoryError as error:
            print(f"  {method.name}: {error}")
    totals = {m: prepare + problem.applications * apply for m, (prepare, apply) in times.items()}
    if not totals:
        return None
    best = min(totals, key=lambda m: totals[m])
    row = problem.case.measured(plan.methods.problem())._asdict()
    row |= dict(cloud=problem.cloud, applications=problem.applications, direction=direction)
    row |= dict(best=best.name, best_s=totals[best])
    for kind, method in chosen.items():
        total = totals.get(method, math.nan)  # NaN if there was no memory for its trial
        row |= {kind: method.name, f"{kind}_s": total, f"{kind}_regret": total / totals[best] - 1}
    return row | dict(times=" ".join(f"{m.name}:{p:.4g}:{a:.4g}" for m, (p, a) in times.items()))


def sample(backend: Any, drawn: list[Problem], stop: float) -> Iterator[dict[str, Any]]:
    """Yield rows of the first problems until the time is ``stop``, and one row at least."""
    begin, made = time.perf_counter(), False
    for problem, direction in itertools.product(drawn, METHODS):
        if made and time.perf_counter() > stop:
            return
        with plan_on(backend, problem) as plan:
            row = measured(plan, problem, direction, NEARLY_HOPELESS)
        if row is not None:
            made = True
            yield {**row, "seconds": float(f"{time.perf_counter() - begin:.4g}")}


def compile_for(backend: Any, drawn: list[Problem], stop: float) -> None:
    """Make each call of a sample once, until the time is ``stop``: kernels stay compiled on disk."""
    for problem, direction in itertools.product(drawn, METHODS):
        with contextlib.suppress(MemoryError), plan_on(backend, problem) as plan:
            for method in choices(plan, direction, NEARLY_HOPELESS)[1]:
                if time.perf_counter() > stop:
                    return
                with contextlib.suppress(MemoryError):
                    trial.once(plan.workspace, direction, method)


def hopeful(methods: tuple[Any, ...], problem: Any, costs: dict[str, Any], hopeless: float) -> set[Any]:
    """Return the methods that one of the predictions does not rule out."""
    methods_left = set()
    for cost in costs.values():
        able = [c for c in (candidates.ask(m, problem, cost) for m in methods) if c.reason is None]
        least = min(c.total(problem.applications) for c in able)
        free = problem.backend.free_bytes()
        methods_left |= {
            c.method for c in able
            if c.total(problem.applications) <= hopeless * least and c.total(10) <= LONGEST and 3 * c.bytes <= free
        }  # fmt: skip
    return methods_left


def summary(rows: list[dict[str, Any]], kind: str) -> str:
    """Return the mean and the worst regret as a sentence."""
    judged = [row for row in rows if not math.isnan(row[f"{kind}_regret"])]
    left_out = f"{len(rows) - len(judged)} of {len(rows)} not judged: no memory" if len(judged) < len(rows) else ""
    if not judged:
        return f"{kind:8s} {left_out or 'no rows'}"
    regrets = [row[f"{kind}_regret"] for row in judged]
    worst = judged[int(np.argmax(regrets))]
    return (
        f"{kind:8s} mean regret {100 * np.mean(regrets):5.1f} %, worst {1 + max(regrets):.2f} times the best: "
        f"{worst['direction']} {worst['particles']:,} {worst['cloud']}, {worst['nodes']}^3, p = {worst['support']}, "
        f"{worst['dtype']} x {worst['components']}, {worst['applications']} times: {worst[kind]}, not {worst['best']}"
        f"{'; ' if left_out else ''}{left_out}"
    )


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--most", type=float, help="particles of the largest problem")
    parser.add_argument("--seconds", type=float, help="measure problems in their order until this time is over")
    parser.add_argument("--compile", type=int, nargs=2, help=runs.argparse.SUPPRESS)
    asked = parser.parse_args()
    begin = time.perf_counter()
    place = Place(asked.backend)
    count = 2 if asked.small else asked.problems
    most = 2e3 if asked.small else asked.most or MOST.get(place.name, 1e7)
    drawn = problems(count, most)
    if asked.compile:
        share, shares = asked.compile
        compile_for(place.backend, drawn[share::shares], begin + COMPILE * asked.seconds)
        return
    if asked.seconds and place.name == "cuda":  # a compiler takes a core
        runs.compile_at_once(__file__, sys.argv[1:], min(AT_ONCE, inside.available_threads()))
    table = predict.known(place.backend)

    def rows_of(problem: Problem) -> Iterator[dict[str, Any]]:
        return ({**row, **place.facts} for row in measure(place.backend, problem))

    with runs.Run(place, asked.out) as run:
        run.say(f"auto: {table.source()}\n{table.hint}".rstrip())
        if asked.seconds is None:
            rows = run.measure("problems", drawn, rows_of)
        else:
            rows = []
            for row in sample(place.backend, drawn, begin + asked.seconds):
                rows.append({**row, **place.facts})
                run.say(f"{row['seconds']:6.1f} s, {len(rows)} rows: {summary(rows, 'auto')}")
        run.write("regret" if asked.seconds is None else "regret-sample", rows)
    for kind in ("auto", "untuned") if rows else ():
        print(summary(rows, kind))
    run.finish()


if __name__ == "__main__":
    main()
