# SPDX-License-Identifier: BSD-3-Clause
"""The command line of all benchmarks, and the loop over their cases: one CSV file per part."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.place import Place
from harness.tables import RESULTS, Row, write

BACKENDS = ("cuda", "opencl", "cpu")


def parser(doc: str, parts: Sequence[str] = (), backend: str | None = "cuda") -> argparse.ArgumentParser:
    """Return the arguments that all benchmarks share; ``backend`` is the default, None if there is no choice."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if backend is not None:
        made.add_argument("--backend", choices=BACKENDS, default=backend)
    made.add_argument("--small", action="store_true", help="tiny cases, which show that all of it works")
    if parts:
        made.add_argument("--only", nargs="+", choices=parts, default=list(parts), metavar="PART",
                          help=f"some of {', '.join(parts)}")  # fmt: skip
    made.add_argument("--out", type=Path, default=RESULTS, help="folder of the CSV files")
    return made


class Run:
    """The parts of a benchmark, one after the other, with progress on the terminal."""

    def __init__(self, place: Place, out: Path) -> None:
        self.place, self.out, self.begin = place, out, time.perf_counter()
        self.paths: list[Path] = []
        self._progress = Progress(
            TextColumn("{task.description:12s}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )  # fmt: skip

    def __enter__(self) -> Run:
        self._progress.start()
        self.say(f"{self.place.device}, {self.place.name}")
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line above the progress."""
        self._progress.console.print(line, markup=False, soft_wrap=True)

    def measure(
        self, part: str, cases: Iterable[Any], rows_of: Callable[[Any], Iterable[Row]], file: str = ""
    ) -> list[Row]:
        """Return the rows of all cases; a case that fails is named and the others are measured.

        With ``file`` each row is written as soon as it is measured: a run that is cut short keeps what it has.
        """
        rows: list[Row] = []
        cases = list(cases)
        task = self._progress.add_task(part, total=len(cases), what="")
        for case in cases:
            self._progress.update(task, what=str(case))
            before = len(self.place.failed)
            with self.place.attempt(f"{part}: {case}"):
                for row in rows_of(case):
                    rows.append(row)
                    if file:
                        write(file, self.place.device, rows, self.out)
            for line in self.place.failed[before:]:
                self.say(line)
            self._progress.advance(task)
        self._progress.update(task, what="")
        return rows

    def write(self, name: str, rows: list[Row]) -> None:
        """Write a CSV file, if there are rows."""
        if not rows:
            self.say(f"{name}: nothing to measure on {self.place.name}")
            return
        self.paths.append(write(name, self.place.device, rows, self.out))
        self.say(f"{len(rows)} rows, {time.perf_counter() - self.begin:.0f} s, {self.paths[-1]}")

    def finish(self, failed: Sequence[str] = ()) -> None:
        """End the process with status 1 if a case failed."""
        lines = [*self.place.failed, *failed]
        if lines:
            raise SystemExit("\n".join(["Failed:", *lines]))


def compile_at_once(script: str, arguments: Sequence[str], processes: int) -> None:
    """Run a script's ``--compile N PROCESSES`` in several processes: one after the other takes minutes."""
    command = [sys.executable, script, *arguments, "--compile"]
    children = [subprocess.Popen([*command, str(n), str(processes)]) for n in range(processes)]
    codes = [child.wait() for child in children]
    if any(codes):
        print("Some kernels were not compiled beforehand; their errors are reported when they are measured.")
