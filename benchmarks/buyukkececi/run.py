# SPDX-License-Identifier: BSD-3-Clause
"""Measure what Büyükkeçeci, Awile and Sbalzarini (2013) measured, on the processor and one device.

Writes ``benchmarks/results/buyukkececi-WHAT-DEVICE.csv`` for convergence, times, breakdown and tables. ``--small``
takes a minute on two cores and shows that all of it works; its times mean nothing. Afterwards ``claims.py`` judges and
``tools/docs/buyukkececi_pictures.py`` draws.

    python benchmarks/buyukkececi/run.py --backend cuda [--only convergence times] [--small] [--out DIR]
    python benchmarks/buyukkececi/run.py --backend opencl --only times    # files of their own, to compare
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file is what runs

from buyukkececi import fig11_convergence, fig12_14_times, fig13_breakdown, tables
from buyukkececi.cases import DIRECTIONS, DTYPES, SEED, THEIR_WIDTH, WINDOWS, Case, call_of, inputs
from measure import RESULTS, write
from place import Place

WHAT = ("convergence", "times", "breakdown")
AGREE = 32  # nodes of an axis at which all methods are compared


def compile_for(backend: str, part: int, parts: int) -> None:
    """Run every method once on a small problem; kernels and functions stay compiled on disk."""
    places = [Place("cpu")] if backend == "cpu" else [Place(backend), Place("cpu")]
    jobs = itertools.product(places, DIRECTIONS, (2, 3), WINDOWS, DTYPES)
    for place, direction, ndim, window, dtype in itertools.islice(jobs, part, None, parts):
        case = Case(direction, ndim, window, dtype, 32)
        x, source, _ = inputs(case)
        for method in place.methods(direction):
            if case.declines(method, place.backend) is None:
                with place.attempt(method.name), case.plan(method.name, place.name) as plan:
                    plan.set_positions(place.upload(x))
                    call_of(case, plan, place.upload(source))
                    place.wait()


def compile_all(backend: str, processes: int) -> None:
    """Compile for ``backend`` in several processes at once: one after the other it takes minutes."""
    command = [sys.executable, __file__, "--backend", backend, "--compile"]
    running = [subprocess.Popen([*command, str(n), str(processes)]) for n in range(processes)]
    failed = [process.wait() for process in running]
    if any(failed):
        print("Some kernels were not compiled beforehand; what goes wrong is told when it is measured.")


def convergence(places: list[Place], small: bool, seed: int) -> tuple[list[Any], Callable[..., Iterable[Any]]]:
    """Return the problems of figure 11, and what measures one."""

    def one(problem: tuple[Case, float]) -> Iterable[dict[str, Any]]:
        case, width = problem
        methods = case.nodes == AGREE and width == THEIR_WIDTH
        if small:  # kernels take long to compile on two cores
            methods = methods and (case.ndim, case.window, case.dtype) == (2, "cic", "float32")
        return fig11_convergence.measure(places, case, width, seed, methods)

    problems = fig11_convergence.cases(small)
    if small:
        problems = [p for p in problems if p[0].dtype == "float64" or (p[0].ndim, p[0].window) == (2, "cic")]
    return problems, one


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "opencl", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--compile", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        compile_for(asked.backend, *asked.compile)
        return
    begin = time.perf_counter()
    if asked.backend == "cuda":
        compile_all(asked.backend, 8)
        print(f"compiled: {time.perf_counter() - begin:.0f} s")
    cpu = Place("cpu")
    places = [cpu] if asked.backend == "cpu" else [cpu, Place(asked.backend)]
    device, known = places[-1], dict[Any, float]()
    jobs: dict[str, tuple[list[Any], Callable[[Any], Iterable[dict[str, Any]]]]] = {
        "convergence": convergence(places, asked.small, asked.seed),
        "times": (
            few(fig12_14_times.cases(asked.small), asked.small),
            lambda case: fig12_14_times.measure(places, case, known, asked.small, asked.seed),
        ),
        "breakdown": (
            few(fig13_breakdown.cases(asked.small), asked.small),
            lambda case: fig13_breakdown.measure(device, case, asked.seed),
        ),
    }
    measured: dict[str, list[dict[str, Any]]] = {}
    columns = (TextColumn("{task.description:12s}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[what]}"))  # fmt: skip
    with Progress(*columns) as progress:
        progress.console.print(f"{device.device}; {cpu.device}")
        for what in asked.only:
            problems, one = jobs[what]
            rows = measured[what] = []
            task = progress.add_task(what, total=len(problems), what="")
            for problem in problems:
                progress.update(task, what=words(problem))
                with device.attempt(f"{what}: {words(problem)}"):
                    rows.extend(one(problem))
                progress.advance(task)
            if what == "convergence":
                fig11_convergence.finish(rows)
            progress.update(task, what="")
        if "times" in measured:
            measured["tables"] = tables.rows(measured["times"], measured.get("breakdown", []))
        for what, rows in measured.items():
            if rows:
                apart = "opencl-" if asked.backend == "opencl" else ""  # the GPU may have a file from CUDA
                path = write(f"buyukkececi-{apart}{what}", device.device, rows, asked.out)
                progress.console.print(f"{len(rows)} rows, {path}", soft_wrap=True)
    print(*fig11_convergence.report(measured.get("convergence", [])), sep="\n")
    print(f"{time.perf_counter() - begin:.0f} s")
    failed = [line for place in places for line in place.failed]
    if failed:
        raise SystemExit("\n".join(["Failed:", *failed]))


def few(cases: list[Case], small: bool) -> list[Case]:
    """Return the cases, of a small run only the cheapest and the dearest: compiling is what takes long there."""
    kinds = ((2, "cic", "float64"), (3, "m4prime", "float32"))  # the two of figure 13
    return [c for c in cases if not small or (c.ndim, c.window, c.dtype) in kinds]


def words(problem: Any) -> str:
    """Return a problem as it is told beside the progress."""
    return str(problem if isinstance(problem, Case) else problem[0])


if __name__ == "__main__":
    main()
