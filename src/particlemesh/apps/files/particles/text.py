# SPDX-License-Identifier: BSD-3-Clause
"""Tables in text: .csv, .tsv, .txt and .dat."""

from __future__ import annotations

import codecs
import csv
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import Column, Reader

DELIMITERS = ("\t", ";", ",")  # the first that a line has: commas may be in names
COMMENTS = ("#", "%", "!")  # in front of the first row
LONGEST = 65536  # characters of the first line
COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


class Text(Reader):
    """Columns between commas, semicolons, tabs or blanks; the first line has their names.

    NumPy reads the rows, so that no other library is needed. Names and separators are found here.

    Lines that begin with # are comments, and a comment in front of the first row may have the names. A file of numbers
    only has the names 0, 1, 2, ... Only the columns that are needed are read, and must be numbers.
    """

    suffixes = (".csv", ".tsv", ".txt", ".dat")
    in_lines = True

    def open(self) -> None:
        self.before = 0  # lines in front of the first row
        comment = ""
        with self._lines() as lines:
            while line := lines.readline(LONGEST):
                if line.strip() and not line.startswith(COMMENTS):
                    break
                comment = line.lstrip("".join(COMMENTS)).strip() or comment
                self.before += 1
            second = next((row for row in lines if row.strip() and not row.startswith(COMMENTS)), "")
        if not line:
            raise FileError("it has no rows")
        if len(line) >= LONGEST:
            raise FileError(f"its first line has more than {LONGEST} characters")
        bare = re.sub('"[^"]*"', "", line)
        self.delimiter = next((d for d in DELIMITERS if d in bare), None)
        names, row = self._split(line), self._split(second)
        if all(map(_is_number, names)) and not _are_counted(names, row):
            row, second = names, line
            labels = self._split(comment) if comment else []
            names = labels if len(labels) == len(names) else [str(n) for n in range(len(names))]
        else:
            self.before += 1
        if second and second.count('"') % 2 == 0:  # which may go on in the next line
            self._compare(names, row)
        if len(set(filter(None, names))) < len(list(filter(None, names))):
            raise FileError(f"two columns have one name: {', '.join(names)[:200]}")
        self.names = names
        self.columns = {name: Column() for name in names if name}

    def _lines(self) -> IO[str]:
        """Return the open file. Letters in another encoding may be in names, and do not matter to numbers."""
        with self.path.open("rb") as raw:
            if raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise FileError("it is text in UTF-16: write it in UTF-8")
        return self.path.open(encoding="utf-8-sig", errors="replace", newline="")

    def _split(self, line: str) -> list[str]:
        if self.delimiter is None:
            return line.split()
        return [word.strip() for word in next(csv.reader([line.strip("\r\n")], delimiter=self.delimiter), [])]

    def _compare(self, names: list[str], row: list[str]) -> None:
        """Compare the first row with the names: other columns would be read than those meant."""
        least, most = (len("\t".join(words).rstrip("\t").split("\t")) for words in (names, row))
        if len(row) < least or most > len(names):
            raise FileError(f"its first row has {len(row)} entries, and there are {len(names)} names")
        numbers = [_is_number(word) for word in names]
        if names != [str(n) for n in range(len(names))] and any(numbers) and numbers == [_is_number(w) for w in row]:
            raise FileError(f"its first line may be names or a row: {', '.join(names)[:200]}; put names in front of it")
        commas = [word for word in row if self.delimiter != "," and COMMA.fullmatch(word)]
        if commas:
            raise FileError(f"it has decimal commas, such as {commas[0]}: write decimal points")

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        places = [self.names.index(name) for name in names]
        done = 0
        with self._lines() as file:
            for _ in range(self.before):
                next(file)
            lines = (line for line in file if not line.isspace())
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
        float(re.sub("[dD]", "e", word))  # as Fortran writes them; they are refused when they are read
    except ValueError:
        return False
    return True


def _are_counted(names: list[str], row: list[str]) -> bool:
    """Return whether a line is 0, 1, 2, ... above rows of other numbers, as programs name columns without names."""
    reals = any(set(word) & set(".eE") for word in row)
    return len(names) > 2 and names == [str(n) for n in range(len(names))] and reals
