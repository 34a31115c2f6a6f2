# SPDX-License-Identifier: BSD-3-Clause
"""How much slower ``method="auto"`` is than the best choice, on problems that no table of times has.

Sixty problems, drawn at random but always the same: particles, nodes along an axis (odd ones, too), nodes of a window,
precision, real or complex, where the particles lie, how often values are spread or interpolated. Every method that
might be the best is timed (``trial.seconds``); the regret of a choice is its total time over the least, less one:
that of ``auto`` with what is known of the device (``particlemesh tune`` on a new one), and that of the methods' own
models alone, as if no device had been measured (``untuned``). Both are judged by the same times. Writes
``results/regret-DEVICE.csv``, whose column ``seconds`` adds up to what measuring took.

    python benchmarks/regret.py [--backend cuda] [--problems 60] [--most 1e7]
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from typing import Any, NamedTuple

import numpy as np

from guo.cases import positions
from measure import device_name, facts, write
from particlemesh import backends
from particlemesh.choosing import candidates, predict, trial
from particlemesh.choosing.choice import METHODS
from particlemesh.command import survey
from particlemesh.command.tune import Case, plan_of

SEED = 60  # not that of any table: those have Halton's sequence
CLOUDS = ("uniform", "uniform", "clustered", "lattice")  # anywhere; in 1 % of the volume; in order, evenly
HOPELESS = 20  # times the best prediction of both kinds: who is beyond is not timed
MOST = {
    "cpu": 1e6
}  # particles, 1e7 elsewhere: the choice between methods of the processor hangs on nothing from 1e5 on
LONGEST = 5.0  # predicted seconds of ten applications: who takes longer is timed only where it is chosen


class Problem(NamedTuple):
    """One problem and what is done with it."""

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


def measure(backend: Any, problem: Problem) -> list[dict[str, Any]]:
    """Return a row for each direction; ``seconds`` is what measuring took since the row before, or the beginning."""
    case, rows, begin = problem.case, [], time.perf_counter()
    tuned = predict.known(backend).predict
    x = positions(problem.cloud, case.particles, case.dtype)
    with plan_of(backend, case, x, problem.applications) as plan:
        asked = plan.problem()
        for direction, methods in METHODS.items():
            costs = {"auto": functools.partial(tuned, direction), "untuned": candidates.modelled}
            chosen = {kind: candidates.choose(methods, asked, "auto", cost) for kind, cost in costs.items()}
            times: dict[Any, tuple[float, float]] = {}
            for method in hopeful(methods, asked, costs) | set(chosen.values()):
                try:
                    times[method] = trial.seconds(plan.workspace, direction, method)
                except MemoryError as error:
                    print(f"  {method.name}: {error}")
            totals = {m: prepare + problem.applications * apply for m, (prepare, apply) in times.items()}
            if not totals:
                continue
            best = min(totals, key=lambda m: totals[m])
            row = case.seen(asked)._asdict()
            row |= dict(cloud=problem.cloud, applications=problem.applications, direction=direction)
            row |= dict(best=best.name, best_s=totals[best])
            for kind, method in chosen.items():
                total = totals.get(method, math.nan)  # its trial, a second plan beside the first, may find no memory
                row |= {kind: method.name, f"{kind}_s": total, f"{kind}_regret": total / totals[best] - 1}
            row["times"] = " ".join(f"{m.name}:{p:.4g}:{a:.4g}" for m, (p, a) in times.items())
            now = time.perf_counter()
            rows.append({**row, "seconds": float(f"{now - begin:.4g}")})
            begin = now
    return rows


def hopeful(methods: tuple[Any, ...], problem: Any, costs: dict[str, Any]) -> set[Any]:
    """Return the methods that either kind of prediction does not rule out."""
    found = set()
    for cost in costs.values():
        able = [c for c in (candidates.ask(m, problem, cost) for m in methods) if c.reason is None]
        least = min(c.total(problem.applications) for c in able)
        free = problem.backend.free_bytes()
        found |= {
            c.method for c in able
            if c.total(problem.applications) <= HOPELESS * least and c.total(10) <= LONGEST and 3 * c.bytes <= free
        }  # fmt: skip
    return found


def summary(rows: list[dict[str, Any]], kind: str) -> str:
    """Return the mean and the worst regret in words."""
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
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--backend", choices=backends.NAMES)
    arguments.add_argument("--problems", type=int, default=60)
    arguments.add_argument("--most", type=float, help="particles of the largest problem")
    chosen = arguments.parse_args()
    usable = survey.usable()
    name = chosen.backend or next(n for n in ("cuda", "cpu") if n in usable)
    backend, begin = usable[name], time.perf_counter()
    known = predict.known(backend)
    print(f"{backend.name}: {backend.device}\nauto: {known.source}\n{known.hint}".rstrip())
    rows: list[dict[str, Any]] = []
    for n, problem in enumerate(problems(chosen.problems, chosen.most or MOST.get(name, 1e7)), 1):
        for row in measure(backend, problem):
            rows.append({**row, **facts(backend)})
            print(
                f"{n:3d} {row['direction']:11s} {row['particles']:10,d} {row['cloud']:9s} {row['nodes']:3d}^3 "
                f"p={row['support']} {row['dtype']} x{row['components']} {row['applications']:4d} times "
                f"best {row['best']:13s} {row['best_s'] * 1e3:9.3f} ms  "
                f"auto {row['auto']:13s} {row['auto_regret']:6.1%}  "
                f"untuned {row['untuned']:13s} {row['untuned_regret']:6.1%}",
                flush=True,
            )
    for kind in ("auto", "untuned"):
        print(summary(rows, kind))
        for cloud in dict.fromkeys(CLOUDS):
            some = [row[f"{kind}_regret"] for row in rows if row["cloud"] == cloud]
            some = [regret for regret in some if not math.isnan(regret)]
            if some:
                print(f"  {cloud:9s} mean {np.mean(some):6.1%}, worst {1 + max(some):.2f}, {len(some)} rows")
    print(write("regret", device_name() if name == "cpu" else backend.device, rows))
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
