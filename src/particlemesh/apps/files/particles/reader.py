# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a format of particles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.libraries import library

WIDEST = 64  # numbers per particle in a column: more is another kind of array
NUMBERS = "iufc"


class Column(NamedTuple):
    """What is known of a column before it is read."""

    tail: tuple[int, ...] = ()  # shape of one particle's entry
    rows: int | None = None  # None: known once the file has been read


class Reader:
    """An open file of particles. A format fills in what raises NotImplementedError, and says what differs.

    Attributes
    ----------
    path : Path
    columns : dict of str to Column
        Numbers that the file has for every particle, by name.
    frames : int
        Number of configurations.
    unit : str or None
        Unit of lengths, if the format has one.
    chosen : tuple of str
        Columns that are positions and values; `Particles` sets it.
    ndim : int
        Number of axes of the positions; `Particles` sets it.
    """

    suffixes: ClassVar[tuple[str, ...]]
    module: ClassVar[str | None] = None  # library of the extra ``files``
    takes_topology: ClassVar[bool] = False  # a second file, with what does not change
    unit: ClassVar[str | None] = None

    def __init__(self, path: Path, topology: Path | None = None) -> None:
        self.path, self.topology = path, topology
        self.library: Any = None if self.module is None else library(self.module, path.suffix, "files")
        self.columns: dict[str, Column] = {}
        self.frames = 1
        self.chosen: tuple[str, ...] = ()
        self.ndim = 3
        try:
            with self.blame():
                self.open()
        except BaseException:
            with contextlib.suppress(AttributeError):  # what has not been opened
                self.close()
            raise

    @classmethod
    def of(cls, path: Path, topology: Path | None = None) -> Reader:
        """Return an open reader; formats that share an ending look into the file."""
        return cls(path, topology)

    def frames_of(self, positions: str) -> int:
        """Return the number of configurations of a column of positions."""
        return self.frames

    def open(self) -> None:
        """Open the file; set ``columns`` and ``frames``."""
        raise NotImplementedError

    def box(self, frame: int) -> Box | None:
        """Return the box of a frame, or None if the file has none."""
        return None

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        """Yield arrays (n, *tail) of columns, at most ``size`` particles at a time, in order."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""

    @contextlib.contextmanager
    def blame(self) -> Iterator[None]:
        """Turn every error of a library into one that names the file.

        A damaged file makes libraries raise almost anything.
        """
        try:
            yield
        except ImportError:
            raise
        except FileError as error:  # what a reader of ours says of the file
            said = " ".join(str(error).split()).rstrip(".")
            if str(self.path) in said:
                raise
            raise FileError(f"{self.path}: {said}.") from error
        except Exception as error:
            text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            kind = self.path.suffix
            raise FileError(f"{self.path} cannot be read as {kind}: {text[:300]}. Is the file whole?") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class FileError(ValueError):
    """A file that is not what its name says, or lacks what is needed."""


def slices(columns: Sequence[np.ndarray], size: int) -> Iterator[list[np.ndarray]]:
    """Yield parts of arrays that are in memory already."""
    for start in range(0, len(columns[0]), size):
        yield [column[start : start + size] for column in columns]


def is_column(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether an array may hold one entry per particle."""
    tail = shape[1:]
    return dtype.kind in NUMBERS and len(shape) in (1, 2) and all(0 < n <= WIDEST for n in tail)
