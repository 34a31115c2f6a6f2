# SPDX-License-Identifier: BSD-3-Clause
"""Text that ASE reads: extended XYZ, dumps and data files of LAMMPS."""

from __future__ import annotations

import importlib
import io
import re
from typing import Any, ClassVar

import numpy as np

from particlemesh.apps.files.boxes import Cell
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import FrameReader

BOUNDS, TABLE = "ITEM: BOX BOUNDS", "ITEM: ATOMS"


class ExtendedXYZ(FrameReader):
    """Text of frames, each with its cell; a frame at a time. Masses follow from the elements if there are none.

    Empty lines may be between frames. Particles with other names than those of elements have the mass 1.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".xyz", ".extxyz")
    in_lines = True
    module = "ase.io"
    unit: str | None = "Å"

    def start(self) -> int:
        self._places = self._frames()
        return len(self._places)

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
                if not re.fullmatch(r"\+?\d+", text):
                    raise FileError(f"frame {len(places)} begins with {text[:60]!r}; a number of atoms is needed")
                for _ in range(int(text) + 1):
                    more = next(lines, b"")
                    if not more:
                        raise FileError(f"frame {len(places)} ends early")
                    end += len(more)
                places.append((begin, end))
        return places

    def _text(self, frame: int) -> str:
        begin, end = self._places[frame]
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin).decode("utf-8-sig", errors="replace")

    def read(self, frame: int) -> Any:
        text = self._text(frame)
        try:
            return self.library.read(io.StringIO(text), index=0, format="extxyz")
        except KeyError:  # of a name that is no element
            return self.library.read(io.StringIO(_of_elements(text)), index=0, format="extxyz")

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        """Return arrays by name; ASE keeps some of them as results of a calculator."""
        atoms = self.frame(frame)
        results = {} if atoms.calc is None else atoms.calc.results
        return _reals({"positions": None, "masses": atoms.get_masses(), **results, **atoms.arrays}, "numbers")

    def box(self, frame: int) -> Cell | None:
        atoms = self.frame(frame)
        if not atoms.cell.any() and not atoms.pbc.any():
            return None
        return Cell(atoms.cell.array, tuple(map(bool, atoms.pbc)), atoms.info.get("Origin"))


class Dump(ExtendedXYZ):
    """Text dumps of LAMMPS: columns by their names there, and ``positions``; a frame at a time.

    Positions are x, xu, xs or xsu. Units are those of the simulation.
    """

    suffixes = (".dump", ".lammpstrj", ".lammpsdump")
    note = "LAMMPS"
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

    def read(self, frame: int) -> Any:
        # Old versions wrote no flags, which ASE needs.
        text = self._text(frame).replace(f"{BOUNDS}\n", f"{BOUNDS} pp pp pp\n")
        atoms = self.library.read(io.StringIO(text), index=0, format="lammps-dump-text", order=False)
        count = re.search(r"^ITEM: NUMBER OF ATOMS\s+(\d+)", text, re.MULTILINE)
        if count is None or int(count[1]) != len(atoms):
            raise FileError(f"it has {len(atoms)} of {count[1] if count else 'an unknown number of'} atoms")
        return atoms

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        atoms, lines = self.frame(frame), self._text(frame).splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith(TABLE))
        names, row = lines[start].split()[2:], lines[start + 1].split() if len(atoms) else []
        places = [place for place, word in enumerate(row) if _is_real(word)]
        rows = np.loadtxt(lines[start + 1 : start + 1 + len(atoms)], usecols=places, ndmin=2)
        columns = {names[place]: rows[:, k] for k, place in enumerate(places)}
        for form in ("", "u", "s", "su"):
            if all(f"{axis}{form}" in columns for axis in "xyz"):
                x = np.stack([columns.pop(f"{axis}{form}") for axis in "xyz"], axis=1)
                return {"positions": _origin(atoms) + x @ atoms.cell.array if "s" in form else x, **columns}
        raise FileError(f"frame {frame} has no positions x, xu, xs or xsu, but {', '.join(names)}")

    def box(self, frame: int) -> Cell | None:
        atoms = self.frame(frame)
        has_flags = BOUNDS + "\n" not in self._text(frame).replace("\r", "")
        return Cell(atoms.cell.array, tuple(map(bool, atoms.pbc)) if has_flags else None, _origin(atoms))


class Data(ExtendedXYZ):
    """Data files of LAMMPS, which do not say which axes repeat. Positions are unfolded by the counts of images."""

    suffixes = (".data", ".lmp")
    note = "LAMMPS"
    unit = None

    def _frames(self) -> list[tuple[int, int]]:
        return [(0, self.path.stat().st_size)]

    def read(self, frame: int) -> Any:
        return self.library.read(io.StringIO(self._text(frame)), format="lammps-data")

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        # ASE guesses the others.
        return _reals({"positions": None, **self.frame(frame).arrays}, "numbers", "momenta", "mmcharges")

    def box(self, frame: int) -> Cell | None:
        atoms = self.frame(frame)
        origin = _origin(atoms)
        for low, axis in re.findall(r"^\s*(\S+)\s+\S+\s+([xyz])lo\s+[xyz]hi", self._text(frame), re.MULTILINE):
            origin["xyz".index(axis)] = float(low)  # ASE leaves it out
        return Cell(atoms.cell.array, None, origin)


def _reals(arrays: dict[str, Any], *left_out: str) -> dict[str, np.ndarray]:
    """Return arrays of real numbers but for some names."""
    return {
        name: data
        for name, data in arrays.items()
        if name not in left_out and isinstance(data, np.ndarray) and data.dtype.kind in "iuf" and data.ndim
    }


def _origin(atoms: Any) -> np.ndarray:
    return np.ravel(atoms.get_celldisp()).astype(np.float64)


def _is_real(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


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
