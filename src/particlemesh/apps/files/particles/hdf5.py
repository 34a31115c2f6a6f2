# SPDX-License-Identifier: BSD-3-Clause
"""Particles in HDF5: datasets anywhere, trajectories of H5MD, and openPMD, which its root says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.hdf5 import opened
from particlemesh.apps.files.particles.reader import Column, FileError, Reader, box_of, is_column

BOXES = ("box", "cell", "lengths", "boxsize")
PLACES = ("", "Header", "header", "Cosmology")  # groups whose attributes may have the box


class HDF5(Reader):
    """Datasets with one row per particle, by their path in the file.

    The box is a dataset ``box``, or an attribute ``box`` or ``BoxSize`` of the root or of a group ``Header``, as
    simulations of cosmology have it.
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
        for form in cls.forms:
            if form.matches(reader.file):
                reader.close()
                return form(path, topology)
        return reader

    def open(self) -> None:
        self.file = opened(self.path)
        self.inspect()

    def inspect(self) -> None:
        """Set ``columns`` and ``frames``."""

        def visit(name: str, thing: Any) -> None:
            if isinstance(thing, self.library.Dataset) and thing.shape and is_column(thing.shape, thing.dtype):
                self.columns[name] = Column(thing.shape[1:], thing.shape[0])

        self.file.visititems(visit)
        for name in [n for n in self.columns if n.lower() in (*BOXES, "origin", "periodic")]:
            del self.columns[name]

    def box(self, frame: int) -> Box | None:
        there = {name.lower(): name for name in self.file if isinstance(self.file[name], self.library.Dataset)}
        for name in BOXES:
            if name in there:
                extra = (self.file[there[key]][()] if key in there else None for key in ("origin", "periodic"))
                return box_of(self.file[there[name]][()], *extra)
        for place in PLACES:
            attributes = self.file[place].attrs if place in self.file else self.file.attrs if not place else {}
            for key, value in attributes.items():
                if key.lower() in BOXES:
                    return box_of(self._lengths(value), attributes.get("origin"), attributes.get("periodic"))
        return None

    def _lengths(self, value: Any) -> Any:
        """Return lengths; a single one is that of a cube, if positions have three axes."""
        axes = max((column.tail[0] for column in self.columns.values() if column.tail), default=1)
        return np.full(axes, value) if np.size(value) == 1 and axes in (2, 3) else value

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        rows = self.columns[names[0]].rows
        assert rows is not None  # HDF5 has shapes
        for start in range(0, rows, size):
            yield [self.part(name, start, start + size, frame) for name in names]

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        """Return rows of a column."""
        return self.file[name][start:stop]

    def close(self) -> None:
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
        for group in self.file["particles"].values():
            if "box" in group and "edges" in group["box"]:
                box = group["box"]
                edges, moving = _data(box["edges"])
                boundary = [text if isinstance(text, str) else text.decode() for text in box.attrs["boundary"]]
                periodic = [text == "periodic" for text in boundary]
                return box_of(edges[frame] if moving else edges[()], box.attrs.get("origin"), periodic)
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
