# SPDX-License-Identifier: BSD-3-Clause
"""Text that ASE reads: extended XYZ, dumps and data files of LAMMPS."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.boxes import Cell
from particlemesh.apps.files.particles.reader import Column, Reader, slices

LEFT_OUT = ("numbers",)
BOUNDS, TABLE = "ITEM: BOX BOUNDS", "ITEM: ATOMS"


class ExtendedXYZ(Reader):
    """Text of frames, each with its cell; a frame at a time. Masses follow from the elements if there are none.

    Empty lines may be between frames. Particles with other names than those of elements have the mass 1.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".xyz", ".extxyz")
    module = "ase.io"
    unit: str | None = "Å"

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

    def _text(self, frame: int) -> str:
        begin, end = self._places[frame]
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin).decode("utf-8-sig", errors="replace")

    def _atoms(self, frame: int) -> Any:
        """Return the atoms of a frame; those of the last call are kept."""
        if self._now[0] != frame:
            self._now = (frame, self._parsed(self._text(frame)))
        return self._now[1]

    def _parsed(self, text: str) -> Any:
        try:
            return self.library.read(io.StringIO(text), index=0, format="extxyz")
        except KeyError:  # of a name that is no element
            return self.library.read(io.StringIO(_of_elements(text)), index=0, format="extxyz")

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

    def box(self, frame: int) -> Cell | None:
        atoms = self._atoms(frame)
        if not atoms.cell.any() and not atoms.pbc.any():
            return None
        return Cell(atoms.cell.array, tuple(map(bool, atoms.pbc)), atoms.info.get("Origin"))

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        arrays = self._arrays(frame)
        missing = [name for name in names if name not in arrays]
        if missing:
            raise FileError(f"frame {frame} has no {', '.join(missing)}")
        yield from slices([arrays[name] for name in names], size)


class Dump(ExtendedXYZ):
    """Text dumps of LAMMPS: columns by their names there, and ``positions``; a frame at a time.

    Positions are x, xu, xs or xsu. Units are those of the simulation.
    """

    suffixes = (".dump", ".lammpstrj", ".lammpsdump")
    unit = None

    def _frames(self) -> list[tuple[int, int]]:
        begins, end = [], 0
        with self.path.open("rb") as lines:
            for line in lines:
                if line.startswith(b"ITEM: TIMESTEP"):
                    begins.append(end)
                end += len(line)
        if not begins or begins[0]:
            raise FileError("it does not begin with ITEM: TIMESTEP, as text dumps do")
        return list(zip(begins, [*begins[1:], end], strict=True))

    def _parsed(self, text: str) -> Any:
        text = text.replace(f"{BOUNDS}\n", f"{BOUNDS} pp pp pp\n")  # old versions wrote no flags, which ASE needs
        return self.library.read(io.StringIO(text), index=0, format="lammps-dump-text", order=False)

    def _arrays(self, frame: int) -> dict[str, np.ndarray]:
        atoms, lines = self._atoms(frame), self._text(frame).splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith(TABLE))
        names, row = lines[start].split()[2:], lines[start + 1].split() if len(atoms) else []
        places = [place for place, word in enumerate(row) if _is_real(word)]
        rows = np.loadtxt(lines[start + 1 : start + 1 + len(atoms)], usecols=places, ndmin=2)
        columns = {names[place]: rows[:, k] for k, place in enumerate(places)}
        for form in ("", "u", "s", "su"):
            if all(f"{axis}{form}" in columns for axis in "xyz"):
                x = np.stack([columns.pop(f"{axis}{form}") for axis in "xyz"], axis=1)
                return {**columns, "positions": _origin(atoms) + x @ atoms.cell.array if "s" in form else x}
        raise FileError(f"frame {frame} has no positions x, xu, xs or xsu, but {', '.join(names)}")

    def box(self, frame: int) -> Cell | None:
        atoms = self._atoms(frame)
        said = BOUNDS + "\n" not in self._text(frame).replace("\r", "")
        return Cell(atoms.cell.array, tuple(map(bool, atoms.pbc)) if said else None, _origin(atoms))


class Data(ExtendedXYZ):
    """Data files of LAMMPS, which do not say which axes repeat. Positions are unfolded by the counts of images."""

    suffixes = (".data", ".lmp")
    unit = None
    guessed = ("numbers", "momenta", "mmcharges")

    def _frames(self) -> list[tuple[int, int]]:
        return [(0, self.path.stat().st_size)]

    def _parsed(self, text: str) -> Any:
        return self.library.read(io.StringIO(text), format="lammps-data")

    def _arrays(self, frame: int) -> dict[str, np.ndarray]:
        atoms = self._atoms(frame)
        return {
            name: data for name, data in atoms.arrays.items() if name not in self.guessed and data.dtype.kind in "if"
        }

    def box(self, frame: int) -> Cell | None:
        atoms = self._atoms(frame)
        origin = _origin(atoms)
        for low, axis in re.findall(r"^\s*(\S+)\s+\S+\s+([xyz])lo\s+[xyz]hi", self._text(frame), re.MULTILINE):
            origin["xyz".index(axis)] = float(low)  # ASE leaves it out
        return Cell(atoms.cell.array, None, origin)


def _origin(atoms: Any) -> np.ndarray:
    return np.ravel(atoms.get_celldisp()).astype(np.float64)


def _is_real(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


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
