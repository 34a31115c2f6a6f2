# SPDX-License-Identifier: BSD-3-Clause
"""Particles in HDF5: datasets anywhere, trajectories of H5MD, and openPMD, which its root says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.hdf5 import opened
from particlemesh.apps.files.particles import boxes
from particlemesh.apps.files.particles.reader import Column, FileError, Reader, is_column

PLACES = ("", "Header", "header", "Cosmology")  # groups whose attributes may have the box


class HDF5(Reader):
    """Datasets with one row per particle, by their path in the file.

    The box is a dataset ``box``, or an attribute ``box`` or ``BoxSize`` of the root or of a group ``Header``.
    Simulations of cosmology have the latter.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5", ".hdf")
    module = "h5py"
    forms: ClassVar[list[Any]] = []  # with a layout of their own

    def __init_subclass__(cls) -> None:
        cls.forms.append(cls)

    @classmethod
    def of(cls, path: Path, topology: Path | None = None) -> Reader:
        """Return a reader of H5MD, openPMD or plain datasets."""
        reader = cls(path, topology)
        with reader.blame():
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

        def visit(name: str, thing: Any) -> None:
            if isinstance(thing, self.library.Dataset) and thing.shape and is_column(thing.shape, thing.dtype):
                self.columns[name] = Column(thing.shape[1:], thing.shape[0])

        self.file.visititems(visit)
        root = {name for name in self._settings() if name in self.columns}
        rows = {column.rows for name, column in self.columns.items() if name not in root}
        for name in root:
            if not boxes.is_shared(name, self.file[name].shape, rows):
                del self.columns[name]

    def _settings(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of datasets of the root that may be a box, an origin or flags."""
        datasets = {name: thing for name, thing in self.file.items() if isinstance(thing, self.library.Dataset)}
        return {
            name: thing.shape
            for name, thing in datasets.items()
            if thing.shape is not None and thing.dtype.kind in "iufb" and boxes.is_setting(name, thing.shape)
        }

    def box(self, frame: int) -> Box | None:
        stored = boxes.find(self._settings(), lambda name: self.file[name][()], self.columns, self.chosen, self.ndim)
        return self._attributes() if stored is None else stored

    def _attributes(self) -> Box | None:
        """Return the box among the attributes of the root or of a header."""
        for place in PLACES:
            attributes = self.file[place].attrs if place in self.file else self.file.attrs if not place else {}
            for key, value in attributes.items():
                if key.lower() in boxes.NAMES:
                    return boxes.box_of(value, self.ndim, attributes.get("origin"), attributes.get("periodic"))
        return None

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        rows = self.columns[names[0]].rows
        assert rows is not None  # HDF5 has shapes
        for start in range(0, rows, size):
            yield [self.part(name, start, start + size, frame) for name in names]

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        """Return rows of a column."""
        return self.file[name][start:stop]

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class H5MD(HDF5):
    """Trajectories: ``particles/GROUP/ELEMENT/value`` (frames, N, ...), or the same without ``value`` at all times."""

    suffixes = ()

    @staticmethod
    def matches(file: Any) -> bool:
        """Return whether a file is of this kind."""
        return "h5md" in file and "particles" in file

    def inspect(self) -> None:
        self._times: dict[str, int] = {}  # frames of columns that have a time
        for group, elements in self.file["particles"].items():
            for name, element in elements.items():
                if name == "box":
                    continue
                data, moving = _data(element)
                if data is None or not is_column(data.shape[moving:], data.dtype):
                    continue
                self.columns[f"{group}/{name}"] = Column(data.shape[1 + moving :], data.shape[moving])
                if moving:
                    self._times[f"{group}/{name}"] = data.shape[0]

    def frames_of(self, positions: str) -> int:
        return self._times.get(positions, 1)

    def box(self, frame: int) -> Box | None:
        groups = self.file["particles"]
        of_positions = self.chosen[0].partition("/")[0] if self.chosen else ""
        for group in sorted(groups, key=lambda name: name != of_positions):  # that of the positions, or the first
            if "box" in groups[group] and "edges" in groups[group]["box"]:
                box = groups[group]["box"]
                edges, moving = _data(box["edges"])
                if moving and not frame < len(edges):
                    raise FileError(f"the box of {group} has {len(edges)} frames, and frame {frame} is asked for")
                boundary = [text if isinstance(text, str) else text.decode() for text in box.attrs["boundary"]]
                periodic = [text == "periodic" for text in boundary]
                return boxes.box_of(edges[frame] if moving else edges[()], self.ndim, box.attrs.get("origin"), periodic)
        return None

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        moving = {name: self._times[name] for name in names if name in self._times}
        for name, frames in moving.items():
            if frames != moving.get(names[0], frames):
                raise FileError(f"{name} has {frames} frames and {names[0]} has {moving[names[0]]}: they do not match")
        return super().chunks(names, size, frame)

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        data, moving = _data(self.file["particles"][name])
        return data[frame, start:stop] if moving else data[start:stop]


def _data(element: Any) -> tuple[Any, int]:
    """Return the dataset of an element, and whether its first axis is time."""
    if hasattr(element, "keys"):
        return (element["value"], 1) if "value" in element else (None, 0)
    return element, 0


def attribute(thing: Any, name: str) -> Any:
    """Return an attribute of HDF5.

    Raises
    ------
    FileError
        If it is not there.
    """
    if name not in thing.attrs:
        raise FileError(f"{thing.name} has no attribute {name}")
    return thing.attrs[name]
