# SPDX-License-Identifier: BSD-3-Clause
"""Particles in HDF5: datasets anywhere, trajectories of H5MD, and openPMD, which its root says."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from particlemesh.apps.files import boxes
from particlemesh.apps.files.hdf5 import opened, try_alone
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.openpmd import texts
from particlemesh.apps.files.particles.reader import Column, Reader, is_column

PLACES = ("", "Header", "header", "Cosmology")  # groups whose attributes may have the box
SHARED = "NumFilesPerSnapshot"  # attribute of a header: the files that together are a snapshot
ALIKE = (SHARED, "BoxSize", "Time", "Redshift", "NumPart_Total", "NumPart_Total_HighWord")  # in all of these files
NUMBER = re.compile(r"(.*\.)(\d+)(\.\w+)")  # snap_000.0.hdf5


class HDF5(Reader):
    """Datasets with one row per particle, by their path in the file.

    The box is a dataset ``box``, or an attribute ``box`` or ``BoxSize`` of the root or of a group ``Header``.
    ``origin`` and ``periodic`` are in either place. Of a snapshot in several files (``NumFilesPerSnapshot``) all are
    read.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5", ".hdf")
    module = "h5py"
    note = "openPMD, H5MD, snapshots"
    forms: ClassVar[list[Any]] = []  # with a layout of their own

    def __init_subclass__(cls) -> None:
        cls.forms.append(cls)

    @classmethod
    def of(cls, path: Path, topology: Path | None = None) -> Reader:
        """Return a reader of H5MD, openPMD or plain datasets."""
        reader = cls(path, topology)
        with reader.errors_name_file():
            form = next((form for form in cls.forms if form.matches(reader.file)), None)
        return reader if form is None else form(path, topology, reader.file)

    def __init__(self, path: Path, topology: Path | None = None, file: Any = None) -> None:
        self.file = file
        super().__init__(path, topology)

    def open(self) -> None:
        if self.file is None:
            self.file = opened(self.path)
        self.inspect()

    def inspect(self) -> None:
        """Set ``columns`` and ``frames``."""
        self._parts = self._snapshot()
        self._here: tuple[Path, Any] = (self.path, self.file)  # one part is open
        self._rows: list[dict[str, int]] = []  # of each part
        for path in self._parts:
            columns = self._columns(self._part(path))
            self._rows.append({name: column.rows or 0 for name, column in columns.items()})
            for name, column in columns.items():
                if self.columns.setdefault(name, column).tail != column.tail:
                    raise FileError(f"{name} has rows of another shape in {path.name}")
            for key in ALIKE:
                mine, theirs = (self._header(key, file) for file in (self.file, self._part(path)))
                if not np.array_equal(mine, theirs):
                    raise FileError(f"{key} is {mine}, and {theirs} in {path.name}: are these files of one snapshot?")
        if len(self._parts) > 1:
            for name, column in self.columns.items():
                self.columns[name] = Column(column.tail, sum(part.get(name, 0) for part in self._rows))
            self.notes.append(f"{len(self._parts)} files, {self._parts[0].name} to {self._parts[-1].name}")
            self._compare()
        for name, thing in self.file.items():
            is_array = isinstance(thing, self.library.Dataset) and thing.shape is not None
            if is_array and thing.dtype.kind in "iufb" and boxes.is_setting(name, thing.shape):
                self.settings[name] = thing.shape
        self.drop_settings()
        self.take_attributes()

    def take_attributes(self) -> None:
        """Add the attributes of the root and of headers that may be a box, an origin or flags to the settings."""
        for place in PLACES:
            attributes = self.file.attrs if not place else self.file[place].attrs if place in self.file else {}
            for key, value in attributes.items():
                numbers = np.asarray(value).dtype.kind in "iufb" or key.lower() in (*boxes.NAMES, "periodic")
                if boxes.is_setting(key, np.shape(value)) and numbers:
                    self.settings[f"{place}{boxes.ATTRIBUTE}{key}"] = np.shape(value)

    def _columns(self, file: Any) -> dict[str, Column]:
        columns = {}

        def visit(name: str, thing: Any) -> None:
            if isinstance(thing, self.library.Dataset) and thing.shape and is_column(thing.shape, thing.dtype):
                columns[name] = Column(thing.shape[1:], thing.shape[0])

        file.visititems(visit)
        return columns

    def _header(self, key: str, file: Any = None) -> Any:
        """Return an attribute of the root or of a header, or None; of another file, if one is given."""
        file = self.file if file is None else file
        for place in PLACES:
            thing = file if not place else file.get(place)
            if thing is not None and key in thing.attrs:
                return thing.attrs[key]
        return None

    def _snapshot(self) -> list[Path]:
        """Return the files of the snapshot that this one is of; a FileError if some are missing."""
        given = self._header(SHARED)
        count = 1 if given is None else int(np.ravel(given)[0])
        if count <= 1:
            return [self.path]
        match = NUMBER.fullmatch(self.path.name)
        if match is None:
            raise FileError(f"it is one of {count} files of a snapshot, and its name has no number: give NAME.0.hdf5")
        paths, missing = list[Path](), list[str]()
        for number in range(count):
            path = self.path.with_name(f"{match[1]}{number}{match[3]}")
            paths.append(path)
            missing += [] if path.is_file() else [path.name]
            if len(missing) > 4:  # a damaged file may have any count
                break
        if missing:
            listed = ", ".join(missing[:4]) + (" and others" if len(missing) > 4 else "")
            raise FileError(f"it is one of {count} files of a snapshot, and {listed} are missing: put them beside it")
        try_alone(*(path for path in paths if path != self.path))
        return paths

    def _compare(self) -> None:
        """Compare the rows of all files with the numbers that the header has."""
        total, high = (self._header(f"NumPart_Total{key}") for key in ("", "_HighWord"))
        if total is None:
            return
        most = np.ravel(total).astype(np.int64) + (0 if high is None else np.ravel(high).astype(np.int64) << 32)
        for name, column in self.columns.items():
            match = re.match(r"PartType(\d+)/", name)
            if match and int(match[1]) < len(most) and column.rows != most[int(match[1])]:
                raise FileError(
                    f"its {len(self._parts)} files have {column.rows:,} rows of {name}, and the header says "
                    f"{most[int(match[1])]:,}: are they of one snapshot?"
                )

    def _part(self, path: Path) -> Any:
        """Return the open file of a part; that of the last call is closed."""
        if path == self.path:
            return self.file
        if self._here[0] != path:
            if self._here[1] is not self.file:
                self._here[1].close()
            self._here = path, self.library.File(path, "r")
        return self._here[1]

    def setting(self, name: str) -> Any:
        place, at, key = name.rpartition(boxes.ATTRIBUTE)
        return self.file[place or "/"].attrs[key] if at else self.file[name][()]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        rows = self.rows(names[0], frame)
        for start in range(0, rows, size):
            yield [self.part(name, start, min(start + size, rows), frame) for name in names]

    def rows(self, name: str, frame: int) -> int:
        """Return the number of particles of a frame."""
        return self.columns[name].rows or 0

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        """Return rows of a column."""
        pieces, first = [], 0
        for path, rows in zip(self._parts, self._rows, strict=True):
            last = first + rows.get(name, 0)
            if max(start, first) < min(stop, last):
                pieces.append(self._part(path)[name][max(start, first) - first : min(stop, last) - first])
            first = last
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            here = getattr(self, "_here", (None, self.file))[1]
            here.close()


class H5MD(HDF5):
    """Trajectories: ``particles/GROUP/ELEMENT/value`` (frames, N, ...), or the same without ``value`` at all times.

    Frames are those of the positions. Other elements and the box have the frame of the same step. Particles
    whose ``id`` is the fill value of its dataset are absent, so that their number may vary.
    """

    suffixes = ()

    @staticmethod
    def matches(file: Any) -> bool:
        """Return whether a file is of this kind."""
        return "h5md" in file and "particles" in file

    def inspect(self) -> None:
        for group, elements in self.file["particles"].items():
            for name, element in elements.items():
                if name == "box":
                    continue
                data, moving = _data(element)
                if data is not None and is_column(data.shape[moving:], data.dtype):
                    rows = data.shape[moving] if _absent(elements.get("id")) is None else None
                    self.columns[f"{group}/{name}"] = Column(data.shape[1 + moving :], rows)

    def select(self, chosen: tuple[str, ...], ndim: int) -> None:
        super().select(chosen, ndim)
        element = self.file["particles"][chosen[0]]
        data, moving = _data(element)
        self.frames, self.unit = len(data) if moving else 1, _unit(data)
        self._steps = _steps(element, chosen[0])
        group, there = chosen[0].partition("/")[0], self._boxed()
        if there not in (None, group):
            self.notes.append(f"the box is that of group {there}: {group} has none")

    def _at(self, element: Any, name: str, frame: int) -> Any:
        """Return the row of an element at a frame of the positions, or all of it if it has no times."""
        data, moving = _data(element)
        if not moving:
            return data
        steps, mine = _steps(element, name), self._steps
        if steps is None or mine is None:
            if not (steps is None and mine is None and len(data) == self.frames):
                raise FileError(f"{name} and {self.chosen[0]} cannot be matched: give both a dataset step")
            return _Row(data, frame)
        if len(steps) == len(mine) and np.array_equal(steps, mine):
            return _Row(data, frame)
        (places,) = np.nonzero(steps == mine[frame])
        if len(places) != 1:
            few = ", ".join(map(str, steps[:6])) + (", ..." if len(steps) > 6 else "")
            many = "no value" if not len(places) else f"{len(places)} values"
            raise FileError(f"{name} has {many} at step {mine[frame]} of this frame; it has the steps {few}")
        return _Row(data, int(places[0]))

    def box(self, frame: int) -> boxes.Cell | None:
        group = self._boxed()
        if group is None:
            return None
        box = self.file["particles"][group]["box"]
        names = [name.strip().lower() for name in texts(attribute(box, "boundary"))]
        if set(names) - {"periodic", "none"} or len(names) not in (1, self.ndim):
            raise FileError(f"the boundary of {group} is {', '.join(names)}; periodic or none for each axis is needed")
        periodic = [name == "periodic" for name in names]
        if "edges" not in box:
            edges = np.zeros(self.ndim)
            return boxes.cell_of(edges, self.ndim, None, periodic) if any(periodic) else None
        data = self._at(box["edges"], f"{group}/box/edges", frame)
        unit = _unit(_data(box["edges"])[0])
        if None not in (unit, self.unit) and unit != self.unit:
            raise FileError(f"positions are in {self.unit} and the box in {unit}: give --box")
        return boxes.cell_of(data[()], self.ndim, box.attrs.get("origin"), periodic)

    def _boxed(self) -> str | None:
        """Return the group that has the box: that of the positions, or the first one."""
        groups, mine = self.file["particles"], self.chosen[0].partition("/")[0] if self.chosen else ""
        return next((group for group in sorted(groups, key=lambda name: name != mine) if "box" in groups[group]), None)

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        """Yield parts without the rows whose ``id`` is the fill value of its dataset: the standard's placeholders."""
        name = f"{names[0].partition('/')[0]}/id"
        absent = _absent(self.file["particles"].get(name))
        start = 0
        for parts in super().chunks(names, size, frame):
            stop = start + len(parts[0])
            there = slice(None) if absent is None else self.part(name, start, stop, frame) != absent
            yield [part[there] for part in parts]
            start = stop

    def rows(self, name: str, frame: int) -> int:
        data, moving = _data(self.file["particles"][name])
        return data.shape[moving]

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        return self._at(self.file["particles"][name], name, frame)[start:stop]


class _Row:
    """One row of a dataset along its first axis, of which parts are read."""

    def __init__(self, data: Any, row: int) -> None:
        if not row < len(data):
            raise FileError(f"{data.name} has {len(data)} values, and fewer than steps")
        self.data, self.row = data, row

    def __getitem__(self, key: Any) -> np.ndarray:
        return self.data[self.row][key] if key == () else self.data[self.row, key]


def _data(element: Any) -> tuple[Any, int]:
    """Return the dataset of an element, and whether its first axis is time."""
    if hasattr(element, "keys"):
        return (element["value"], 1) if "value" in element else (None, 0)
    return element, 0


def _absent(element: Any) -> Any:
    """Return the number that stands for no particle in an element ``id``, if its dataset defines one."""
    data = None if element is None else _data(element)[0]
    if data is None:
        return None
    h5d = importlib.import_module("h5py").h5d
    return data.fillvalue if data.id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED else None


def _steps(element: Any, name: str) -> np.ndarray | None:
    """Return the steps of an element, None if it has none: a list, or a distance of equal ones and an offset."""
    if not hasattr(element, "keys") or "step" not in element:
        return None
    step = element["step"]
    if step.shape == ():
        return int(step.attrs.get("offset", 0)) + int(step[()]) * np.arange(len(element["value"]))
    steps = np.asarray(step[()])
    if steps.ndim != 1 or len(steps) < len(element["value"]):
        raise FileError(f"{name} has {len(element['value'])} values and steps {steps.shape}")
    return steps


def _unit(data: Any) -> str | None:
    """Return the unit of a dataset, if it says one."""
    unit = data.attrs.get("unit")
    return None if unit is None else texts(unit)[0].strip() or None


def attribute(thing: Any, name: str) -> Any:
    """Return an attribute of HDF5; a FileError if it is not there."""
    if name not in thing.attrs:
        raise FileError(f"{thing.name} has no attribute {name}")
    return thing.attrs[name]
