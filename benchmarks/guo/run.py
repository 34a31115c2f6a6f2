# SPDX-License-Identifier: BSD-3-Clause
"""Measure what Guo et al. (2015) measured: a CSV for each of their figures, and for what is added.

Writes ``benchmarks/results/guo-FIGURE-DEVICE.csv``. What several figures show is measured once. A method that declines,
or has no memory, leaves a row with its reason. ``--small`` takes a minute on two cores and shows that all of it works;
its times mean nothing. Afterwards ``claims.py`` judges and ``tools/docs/guo_pictures.py`` draws.

    python benchmarks/guo/run.py --backend cuda [--only fig3 fig8] [--small] [--out DIR]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file is what runs

from guo import (
    added_clouds,
    cusparse,
    fig3_compute_units,
    fig4_group_size,
    fig5_shuffle,
    fig6_atomics,
    fig7_gather,
    fig8_spreading,
    fig9_construction,
    long_construction,
    long_totals,
    long_totals_p4,
)
from guo.bench import Bench
from measure import RESULTS, write

# The broad figures come first: what they have measured, the others only look up.
FIGURES: tuple[ModuleType, ...] = (
    long_totals, long_construction, fig8_spreading, fig9_construction, fig7_gather, fig3_compute_units, fig4_group_size,
    fig5_shuffle, fig6_atomics, cusparse, added_clouds, long_totals_p4,
)  # fmt: skip


def measured(bench: Bench, figure: ModuleType, progress: Progress, failed: list[str]) -> list[dict[str, Any]]:
    """Return the rows of a figure; what goes wrong is told, and the rest is measured all the same."""
    rows: list[dict[str, Any]] = []
    jobs = figure.jobs(bench)
    task = progress.add_task(figure.FIGURE, total=len(jobs), what="")
    for job in jobs:
        progress.update(task, what=str(job))
        try:
            make = getattr(figure, "rows", None)
            rows += make(bench, job) if make else bench.rows(figure.FIGURE, job)
        except (ValueError, TypeError, RuntimeError, MemoryError, OSError, LookupError) as error:
            failed.append(f"{figure.FIGURE}: {job}: {type(error).__name__}: {error}"[:400])
            progress.console.print(failed[-1], markup=False)
        progress.advance(task)
    progress.update(task, what="")
    return rows


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "opencl", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[f.FIGURE for f in FIGURES], metavar="FIGURE")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    bench, failed, started = Bench(asked.backend, asked.small), [], time.perf_counter()
    columns = (TextColumn("{task.description:18s}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[what]}"))  # fmt: skip
    with Progress(*columns) as progress:
        progress.console.print(f"{bench.facts['device']}, {', '.join(bench.names())}")
        for figure in FIGURES:
            if asked.only and figure.FIGURE not in asked.only:
                continue
            begin = time.perf_counter()
            rows = measured(bench, figure, progress, failed)
            took = f"{figure.FIGURE}: {time.perf_counter() - begin:.1f} s"
            if not rows:
                progress.console.print(f"{took}, nothing to measure on {asked.backend}")
                continue
            path = write(f"guo-{figure.FIGURE}", bench.facts["device"], rows, asked.out)
            progress.console.print(f"{took}, {len(rows)} rows, {path}", soft_wrap=True)
    print(f"{time.perf_counter() - started:.0f} s in all")
    if failed:
        raise SystemExit("\n".join(["Failed:", *failed]))


if __name__ == "__main__":
    main()
