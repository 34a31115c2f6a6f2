# SPDX-License-Identifier: BSD-3-Clause
"""Measure how close spreading and interpolation come to what a device can do: a CSV for each part.

Writes ``benchmarks/results/limit-PART-DEVICE.csv`` (through OpenCL ``limit-opencl-PART-DEVICE.csv``: the GPU may have
the other from CUDA). A method that declines leaves a row with its reason. ``--small`` takes a minute on two cores and
shows that all of it works; its times mean nothing. Then ``claims.py`` judges; ``tools/docs/limit_pictures.py`` draws.

    python benchmarks/limit/run.py --backend cuda [--only rows peer] [--small] [--out DIR]
    python benchmarks/limit/run.py --backend opencl --only rows
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file is what runs

from limit import ceilings, density, peer, roofline, rows, thresholds
from limit.bench import WALK, Bench, Job
from limit.cases import DIRECTIONS, REALS, Case
from limit.device import Ceilings
from measure import RESULTS, device_slug, write
from particlemesh.backends.cpu import available_threads

PARTS: tuple[ModuleType, ...] = (rows, peer, density, roofline, thresholds)
PROCESSES = min(16, available_threads())  # a compiler takes a core


def file_of(part: str, backend: str) -> str:
    """Return how the file of a part begins."""
    return f"limit-{'opencl-' if backend == 'opencl' else ''}{part}"


def compile_for(backend: str, part: int, parts: int, only: list[str]) -> None:
    """Run methods once on small problems; kernels stay compiled on disk."""
    bench, jobs = Bench(backend), list[Job]()
    if {*only} - {"ceilings", thresholds.FIGURE}:
        kinds = itertools.product(DIRECTIONS, (4, 6), ("float32", "float64"), REALS)
        cases = [Case(d, 1000, 32, p, t, v) for d, p, t, v in kinds if (p, t) == (6, "float32") or v == "complex"]
        jobs += [job for case in cases for job in [*density.forms(bench, case), *_windows(bench, case)]]
    for job in itertools.islice(jobs, part, None, parts):
        with bench.place.attempt(str(job)), bench.setup(job.case, job.method, job.options) as made:
            made.call()
            bench.place.wait()
    tries = thresholds.tries(bench) if thresholds.FIGURE in only else []
    for scan, value in itertools.islice(tries, part, None, parts):
        with bench.place.attempt(f"{scan}, {value}"):
            thresholds.once(bench, scan, value)
    if bench.place.failed:
        raise SystemExit("\n".join(bench.place.failed))


def _windows(bench: Bench, case: Case) -> list[Job]:
    """Return walks with windows that they would not take for so small a problem."""
    walks = [name for name in bench.rivals(case)[1] if name.startswith(WALK)]
    return [Job(case, w, {"patch": v}) for w in walks for v in density.other_values(bench, case, w, "patch")]


def compile_all(backend: str, only: list[str]) -> None:
    """Compile in several processes at once: one after the other it takes minutes."""
    command = [sys.executable, __file__, "--backend", backend, "--only", *only, "--compile"]
    running = [subprocess.Popen([*command, str(n), str(PROCESSES)]) for n in range(PROCESSES)]
    if any(list(map(subprocess.Popen.wait, running))):  # all are waited for
        print("Some kernels were not compiled beforehand; what goes wrong is told when it is measured.")


def measured(bench: Bench, part: ModuleType, progress: Progress) -> list[dict[str, Any]]:
    """Return the rows of a part; what goes wrong is told, and the rest is measured all the same."""
    found: list[dict[str, Any]] = []
    jobs = part.jobs(bench)
    task = progress.add_task(part.FIGURE, total=len(jobs), what="")
    for job in jobs:
        progress.update(task, what=str(job))
        before = len(bench.place.failed)
        with bench.place.attempt(f"{part.FIGURE}: {job}"):
            found += part.rows(bench, job)
        for line in bench.place.failed[before:]:
            progress.console.print(line, markup=False)
        progress.advance(task)
    progress.update(task, what="")
    return found


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "opencl", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    names = ["ceilings", *(part.FIGURE for part in PARTS)]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--compile", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        compile_for(asked.backend, *asked.compile, asked.only)
        return
    started = time.perf_counter()
    if asked.backend == "cuda" and not asked.small:
        compile_all(asked.backend, asked.only)
        print(f"compiled: {time.perf_counter() - started:.0f} s")
    bench = Bench(asked.backend, asked.small)
    device = str(bench.facts["device"])
    columns = (TextColumn("{task.description:10s}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[what]}"))  # fmt: skip
    with Progress(*columns) as progress:
        say = progress.console.print
        for direction in DIRECTIONS:
            say(f"{device}, {direction}: {', '.join(bench.names(direction))}")
        if "ceilings" in asked.only:
            found = ceilings.rows(bench.place, asked.small)
            bench.ceilings = Ceilings.of(found, device)
            say(str(write(file_of("ceilings", asked.backend), device, found, asked.out)), soft_wrap=True)
        else:
            bench.ceilings = Ceilings.read(asked.out, device)
        for part in PARTS:
            if part.FIGURE not in asked.only:
                continue
            begin = time.perf_counter()
            found = measured(bench, part, progress)
            took = f"{part.FIGURE}: {time.perf_counter() - begin:.1f} s, {len(found)} rows"
            if found:
                took += f", {write(file_of(part.FIGURE, asked.backend), device, found, asked.out)}"
            say(took, soft_wrap=True)
            if part is thresholds and found:
                say("\n".join(thresholds.summary(found)), soft_wrap=True, markup=False)
    print(f"{time.perf_counter() - started:.0f} s in all; python benchmarks/limit/claims.py --device "
          f"{device_slug(device)} --results {asked.out} judges")  # fmt: skip
    if bench.place.failed:
        raise SystemExit("\n".join(["Failed:", *bench.place.failed]))


if __name__ == "__main__":
    main()
