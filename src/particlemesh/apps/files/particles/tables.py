# SPDX-License-Identifier: BSD-3-Clause
"""Columns that are read in parts: NumPy's archives of arrays, text, and Apache Parquet."""

from __future__ import annotations

import codecs
import contextlib
import csv
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from particlemesh.apps.files import boxes
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import Column, Reader, is_column

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NPZ(Reader):
    """Arrays by name: one row per particle; a box, ``origin`` and ``periodic`` if they are there.

    The box is called ``box``, ``boxsize``, ``cell`` or ``lengths``. The latter two are columns if their numbers are as
    many as particles.

    Arrays are read from the archive a part at a time, unless they are in Fortran's order: NumPy reads whole ones only.
    Nothing is unpickled.
    """

    suffixes = (".npz",)

    def open(self) -> None:
        self.archive = zipfile.ZipFile(self.path)
        self._read: dict[str, np.ndarray] = {}  # settings
        for member in self.archive.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            with self.archive.open(member) as stream:
                shape, fortran, dtype = header(stream)
                kinds = "iufb" if name.lower() in boxes.NAMES else "iufbUS"
                if boxes.is_setting(name, shape) and dtype.kind in kinds:
                    data = np.frombuffer(_exactly(stream, int(np.prod(shape)) * dtype.itemsize, name), dtype)
                    self._read[name] = data.reshape(shape, order="F" if fortran else "C")
                    self.settings[name] = shape
                if is_column(shape, dtype):
                    self.columns[name] = Column(shape[1:], shape[0])
        self.drop_settings()

    def setting(self, name: str) -> np.ndarray:
        return self._read[name]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        with contextlib.ExitStack() as stack:
            parts = [
                _parts(name, stack.enter_context(self.archive.open(f"{name}.npy")), size, self._bytes(name))
                for name in names
            ]
            yield from map(list, zip(*parts, strict=True))

    def _bytes(self, name: str) -> int:
        return self.archive.getinfo(f"{name}.npy").file_size

    def close(self) -> None:
        self.archive.close()


def header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype of an array, and leave the stream at its data."""
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise FileError(f"an array has NumPy's format {version}; 1.0 or 2.0 is needed: write it with numpy.savez")
    return HEADERS[version](stream)


def _parts(name: str, stream: IO[bytes], size: int, total: int) -> Iterator[np.ndarray]:
    """Yield an array a part at a time; the archive compares a checksum after the last one."""
    shape, fortran, dtype = header(stream)
    row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    if stream.tell() + shape[0] * row != total:
        raise FileError(f"{name} has shape {shape}, which is not the number of its bytes")
    if fortran and len(shape) > 1:
        whole = np.frombuffer(_exactly(stream, shape[0] * row, name), dtype).reshape(shape, order="F")
        yield from (whole[start : start + size] for start in range(0, shape[0], size))
    else:
        for start in range(0, shape[0], size):
            count = min(size, shape[0] - start)
            yield np.frombuffer(_exactly(stream, count * row, name), dtype).reshape(count, *shape[1:])
    if stream.read(1):
        raise FileError(f"{name} has more bytes than its shape {shape} says")


def _exactly(stream: IO[bytes], count: int, name: str) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise FileError(f"{name} ends early")
    return data


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


class Parquet(Reader):
    """Columns of numbers, or of lists of one length, read by groups of rows."""

    suffixes = (".parquet",)
    module = "pyarrow.parquet"

    def open(self) -> None:
        self.file = self.library.ParquetFile(self.path)
        rows = self.file.metadata.num_rows
        names = self.file.schema_arrow.names
        for field in self.file.schema_arrow:
            width = getattr(field.type, "list_size", None)
            tail = () if width is None else (width,)
            kind = field.type if width is None else field.type.value_type
            if names.count(field.name) == 1 and _is_numeric(kind) and is_column((rows, *tail), np.dtype(float)):
                self.columns[field.name] = Column(tail, rows)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        for batch in self.file.iter_batches(batch_size=size, columns=list(names)):
            yield [self._numbers(name, batch.column(name)) for name in names]

    def _numbers(self, name: str, column: Any) -> np.ndarray:
        tail = self.columns[name].tail
        flat = column.flatten() if tail else column
        if column.null_count or flat.null_count:
            raise FileError(f"column {name} has rows without a value")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, *tail)

    def close(self) -> None:
        self.file.close()


def _is_numeric(kind: Any) -> bool:
    """Return whether Arrow's type is one of real numbers."""
    try:
        return np.dtype(kind.to_pandas_dtype()).kind in "iuf"
    except (NotImplementedError, TypeError):
        return False
