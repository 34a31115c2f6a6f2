# SPDX-License-Identifier: BSD-3-Clause
"""Extended XYZ, through ASE."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.particles.reader import Column, FileError, Reader, slices

LEFT_OUT = ("numbers",)


class ExtendedXYZ(Reader):
    """Text of frames, each with its cell; a frame at a time. Masses follow from the elements if there are none.

    Empty lines may be between frames. Particles with other names than those of elements have the mass 1.
    """

    suffixes = (".xyz", ".extxyz")
    module = "ase.io"
    unit = "Å"

    def open(self) -> None:
        self._places = self._frames()
        self.frames = len(self._places)
        self._now: tuple[int, Any] = (-1, None)
        arrays = self._arrays(self.frames - 1)
        self.columns = {name: Column(data.shape[1:]) for name, data in arrays.items()}

    def _frames(self) -> list[tuple[int, int]]:
        """Return where frames begin and end in the file; each begins with its number of atoms."""
        places: list[tuple[int, int]] = []
        begin, end = 0, 0
        with self.path.open("rb") as lines:
            for line in lines:
                begin, end = end, end + len(line)
                text = line.decode("utf-8-sig" if not begin else "utf-8", errors="replace").strip()
                if not text:
                    continue
                for _ in range(_count(text, len(places)) + 1):
                    more = next(lines, b"")
                    if not more:
                        raise FileError(f"frame {len(places)} ends early")
                    end += len(more)
                places.append((begin, end))
        if not places:
            raise FileError("it is empty")
        return places

    def _atoms(self, frame: int) -> Any:
        if self._now[0] != frame:
            begin, end = self._places[frame]
            with self.path.open("rb") as file:
                file.seek(begin)
                text = file.read(end - begin).decode("utf-8-sig", errors="replace")
            try:
                atoms = self.library.read(io.StringIO(text), index=0, format="extxyz")
            except KeyError:  # of a name that is no element
                atoms = self.library.read(io.StringIO(_of_elements(text)), index=0, format="extxyz")
            self._now = (frame, atoms)
        return self._now[1]

    def _arrays(self, frame: int) -> dict[str, np.ndarray]:
        """Return arrays by name; ASE keeps some of them as results of a calculator."""
        atoms = self._atoms(frame)
        results = {} if atoms.calc is None else atoms.calc.results
        arrays = {"masses": atoms.get_masses(), **results, **atoms.arrays}
        return {
            name: data
            for name, data in arrays.items()
            if name not in LEFT_OUT
            and isinstance(data, np.ndarray)
            and data.dtype.kind in "iuf"
            and data.ndim in (1, 2)
            and len(data) == len(atoms)
        }

    def box(self, frame: int) -> Box | None:
        atoms = self._atoms(frame)
        if not atoms.cell.any():
            return None
        return Box(
            _cell(atoms.cell.complete().array), origin=atoms.info.get("Origin"), periodic=[*map(bool, atoms.pbc)]
        )

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        arrays = self._arrays(frame)
        missing = [name for name in names if name not in arrays]
        if missing:
            raise FileError(f"frame {frame} has no {', '.join(missing)}")
        yield from slices([arrays[name] for name in names], size)


def _count(text: str, frame: int) -> int:
    try:
        count = int(text)
    except ValueError:
        count = -1
    if count < 0:
        raise FileError(f"frame {frame} begins with {text[:60]!r}; a number of atoms is needed")
    return count


def _of_elements(text: str) -> str:
    """Return the text of a frame in which X stands for names that are no elements, such as types of particles."""
    symbols = importlib.import_module("ase.data").chemical_symbols
    count, comment, *rows = text.strip().split("\n")
    match = re.search(r"properties=\"?([^\s\"]+)", comment, re.IGNORECASE)
    fields = (match[1] if match else "species:S:1").split(":")
    before = 0
    for name, width in zip(fields[::3], fields[2::3], strict=False):
        if name.lower() in ("species", "element"):
            break
        before += int(width)
    words = [row.split() for row in rows]
    for row in words:
        if len(row) > before and row[before] not in symbols:
            row[before] = "X"
    return "\n".join([count, comment, *map(" ".join, words), ""])


def _cell(rows: np.ndarray) -> np.ndarray:
    """Return lengths of a rectangular cell, rows of another one."""
    return (
        np.diagonal(rows) if (np.diagonal(rows) > 0).all() and not (rows - np.diag(np.diagonal(rows))).any() else rows
    )
