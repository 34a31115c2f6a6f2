# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a format of particles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.apps.files import boxes
from particlemesh.apps.files.boxes import Cell
from particlemesh.apps.files.libraries import Format, errors_name_file

WIDEST = 64  # numbers per particle in a column: more is another kind of array
NUMBERS = "iufc"


class Column(NamedTuple):
    """What is known of a column before it is read."""

    tail: tuple[int, ...] = ()  # shape of one particle's entry
    rows: int | None = None  # None: known once the file has been read


class Reader(Format):
    """An open file of particles. A format fills in what raises NotImplementedError, and says what differs.

    Attributes
    ----------
    path : Path
    columns : dict of str to Column
        Numbers that the file has for every particle, by name.
    settings : dict of str to shape
        Arrays that may be a box, an origin or flags, by name; `setting` reads one.
    frames : int
        Number of configurations.
    unit : str or None
        Unit of lengths, if the format or the file has one.
    notes : list of str
        What was done to the numbers, because the file says so.
    chosen : tuple of str
        Columns that are positions and values.
    ndim : int
        Number of axes of the positions.
    """

    takes_topology: ClassVar[bool] = False  # a second file, with what does not change
    alone: ClassVar[bool] = False  # in a process of its own: the library crashes on some damaged files
    in_parts: ClassVar[bool] = True  # a file may be larger than the memory
    in_lines: ClassVar[bool] = False  # text, whose last line has an end unless the file was cut
    unit: str | None = None
    missing: tuple[tuple[str, str], ...] = ()  # columns that a file may lack, and why

    def __init__(self, path: Path, topology: Path | None = None) -> None:
        self.path, self.topology = path, topology
        self.library = self.load(path.suffix)
        self.columns: dict[str, Column] = {}
        self.settings: dict[str, tuple[int, ...]] = {}
        self.frames = 1
        self.notes: list[str] = []
        self.chosen: tuple[str, ...] = ()
        self.ndim = 3
        try:
            with self.errors_name_file():
                self.open()
        except BaseException:
            with contextlib.suppress(AttributeError):  # what has not been opened
                self.close()
            raise

    @classmethod
    def of(cls, path: Path, topology: Path | None = None) -> Reader:
        """Return an open reader; formats that share an ending look into the file."""
        return cls(path, topology)

    def select(self, chosen: tuple[str, ...], ndim: int) -> None:
        """Take note of the columns that are positions, the first of them, and values."""
        self.chosen, self.ndim = chosen, ndim

    def multiply(self, factors: tuple[str, ...]) -> None:
        """Raise an error if the product of these columns, which were selected, would count something twice."""

    def open(self) -> None:
        """Open the file; set ``columns`` and ``frames``."""
        raise NotImplementedError

    def box(self, frame: int) -> Cell | None:
        """Return what the file says of a frame's box, or None if it has none."""
        return boxes.find(self.settings, self.setting, self.columns, self.chosen, self.ndim)

    def setting(self, name: str) -> Any:
        """Return an array of ``settings``."""
        raise NotImplementedError

    def drop_settings(self) -> None:
        """Take settings out of the columns, but for those that may be both."""
        rows = {column.rows for name, column in self.columns.items() if name not in self.settings}
        for name, shape in self.settings.items():
            if not boxes.is_shared(name, shape, rows):
                self.columns.pop(name, None)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        """Yield arrays (n, *tail) of columns, at most ``size`` particles at a time, in order."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""

    def errors_name_file(self, frame: int | None = None) -> contextlib.AbstractContextManager[None]:
        """Turn every error of a library into one that names the file, and the frame if there are several."""
        return errors_name_file(self.path, "", None if self.frames == 1 else frame)


def is_column(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether an array may hold one entry per particle."""
    tail = shape[1:]
    return dtype.kind in NUMBERS and len(shape) in (1, 2) and all(0 < n <= WIDEST for n in tail)
