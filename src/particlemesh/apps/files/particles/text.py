# SPDX-License-Identifier: BSD-3-Clause
"""Tables in text: .csv, .tsv, .txt and .dat."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from particlemesh.apps.files.particles.reader import Column, FileError, Reader

DELIMITERS = (",", ";", "\t")
LONGEST = 65536  # characters of the first line


class Text(Reader):
    """Columns between commas, semicolons, tabs or blanks; the first line has their names.

    Lines that begin with # are comments, and a comment in front of the first row may have the names. A file of numbers
    only has the names 0, 1, 2, ... Only the columns that are needed are read, and must be numbers.
    """

    suffixes = (".csv", ".tsv", ".txt", ".dat")

    def open(self) -> None:
        self.before = 0  # lines in front of the first row
        comment = ""
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            while line := lines.readline(LONGEST):
                if line.strip() and not line.startswith("#"):
                    break
                comment = line.removeprefix("#").strip() or comment
                self.before += 1
        if not line:
            raise FileError("it has no rows")
        if len(line) >= LONGEST:
            raise FileError(f"its first line has more than {LONGEST} characters")
        self.delimiter = next((d for d in DELIMITERS if d in line), None)
        names = self._split(line)
        if all(map(_is_number, names)):
            told = self._split(comment) if comment else []
            names = told if len(told) == len(names) else [str(n) for n in range(len(names))]
        else:
            self.before += 1
        if len(set(names)) < len(names):
            raise FileError(f"two columns have one name: {', '.join(names)[:200]}")
        self.names = names
        self.columns = {name: Column() for name in names if name}

    def _split(self, line: str) -> list[str]:
        if self.delimiter is None:
            return line.split()
        return [word.strip() for word in next(csv.reader([line.strip()], delimiter=self.delimiter))]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        places = [self.names.index(name) for name in names]
        done = 0
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            for _ in range(self.before):
                next(lines)
            while True:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", UserWarning)  # of no rows
                        table = np.loadtxt(
                            lines, delimiter=self.delimiter, usecols=places, max_rows=size, ndmin=2, quotechar='"'
                        )
                except ValueError as error:
                    raise FileError(f"behind row {done}: {error}") from error
                if not len(table):
                    return
                done += len(table)
                yield list(np.ascontiguousarray(table.T))
                if len(table) < size:
                    return


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
