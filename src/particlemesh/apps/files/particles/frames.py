# SPDX-License-Identifier: BSD-3-Clause
"""Formats that libraries read a frame at a time: those of ASE, HOOMD-blue and MDAnalysis, and points of VTK."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from particlemesh.apps.files.boxes import Cell, cell_of
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import Column, Reader, is_column

LOG, PERIODIC, ORIGIN = "particles/", "box/periodic", "box/origin"
GROUPS = ("particles", "bonds", "angles", "dihedrals", "impropers", "constraints", "pairs")
COLUMNS = ("charge", "mass", "diameter", "typeid", "velocity", "moment_inertia")


class FrameReader(Reader):
    """A format whose library reads a frame at a time; the last one is kept."""

    in_parts = False

    def start(self) -> int:
        """Open the file, and return the number of frames."""
        raise NotImplementedError

    def read(self, frame: int) -> Any:
        """Return a frame as the library has it."""
        raise NotImplementedError

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        """Return the columns of a frame, and whatever else is there; positions are the first."""
        raise NotImplementedError

    def open(self) -> None:
        self._kept: tuple[int, Any] = (-1, None)
        self.frames = self.start()
        if not self.frames:
            raise FileError("it has no frames")
        arrays = self.arrays(self.frames - 1)
        count = len(next(iter(arrays.values())))
        for name, data in arrays.items():
            if is_column(data.shape, data.dtype) and len(data) == count:
                self.columns[name] = Column(data.shape[1:])

    def frame(self, frame: int) -> Any:
        """Return a frame as the library has it; that of the last call is kept."""
        if self._kept[0] != frame:
            self._kept = (-1, None)  # should reading fail
            self._kept = (frame, self.read(frame))
        return self._kept[1]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        arrays = self.arrays(frame)
        missing = [name for name in names if name not in arrays]
        if missing:
            raise FileError(f"frame {frame} has no {', '.join(missing)}")
        columns = [arrays[name] for name in names]
        count = len(next(iter(arrays.values())))
        for name, data in zip(names, columns, strict=True):
            if len(data) != count:
                raise FileError(f"frame {frame} has {count} particles and {len(data)} rows of {name}")
        for start in range(0, count, size):
            yield [column[start : start + size] for column in columns]


class GSD(FrameReader):
    """A frame at a time. The box is centred at 0; in two dimensions z is left out.

    It repeats along all axes, as in HOOMD-blue, unless the log of the frame has ``box/periodic`` and ``box/origin``,
    as files of ours do. Then positions and the box are at their own place.
    """

    suffixes = (".gsd",)
    module = "gsd.hoomd"

    def start(self) -> int:
        self.file = self.library.open(self.path, "r")
        self.axes = 3
        if len(self.file):
            shot = self.frame(len(self.file) - 1)
            self.axes = int(shot.configuration.dimensions or 3) if _edges(shot).any() else 3
        return len(self.file)

    def read(self, frame: int) -> Any:
        """Return a frame. The library would fill memory with what a damaged number of particles asks for."""
        raw, most = self.file.file, self.path.stat().st_size
        for index in (0, frame):
            for group in GROUPS:
                if raw.chunk_exists(frame=index, name=f"{group}/N"):
                    count = int(raw.read_chunk(frame=index, name=f"{group}/N").ravel()[0])
                    if count > most:
                        raise FileError(f"frame {index} has {count:,} {group}, and the file {most:,} bytes")
        return self.file[frame]

    def box(self, frame: int) -> Cell | None:
        shot = self.frame(frame)
        rows, periodic, origin = self._rows(shot), shot.log.get(PERIODIC), shot.log.get(ORIGIN)
        if not rows.any():
            return None
        flags = [True] * 3 if periodic is None else np.ravel(periodic).tolist()
        corner = -rows.sum(axis=0) / 2 if origin is None else np.ravel(origin)[: self.axes]
        return Cell(rows, tuple(bool(flag) for flag in flags[: self.axes]), corner)

    def _rows(self, shot: Any) -> np.ndarray:
        lx, ly, lz, xy, xz, yz = _edges(shot)
        return np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])[: self.axes, : self.axes]

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        shot = self.frame(frame)
        position = np.asarray(shot.particles.position)[:, : self.axes]
        if len(position) != shot.particles.N:  # the library repeats what the first frame has
            raise FileError(f"frame {frame} has {shot.particles.N} particles and {len(position)} rows of position")
        if ORIGIN in shot.log:
            shift = np.ravel(shot.log[ORIGIN])[: self.axes] + self._rows(shot).sum(axis=0) / 2
            position = position + shift if shift.any() else position
        arrays = {"position": position, **{name: np.asarray(getattr(shot.particles, name)) for name in COLUMNS}}
        return arrays | {name: np.asarray(data) for name, data in shot.log.items() if name.startswith(LOG)}

    def close(self) -> None:
        self.file.close()


def _edges(shot: Any) -> np.ndarray:
    """Return lengths and tilts of a frame; zeros if it has no box."""
    box = shot.configuration.box
    return np.zeros(6) if box is None else np.asarray(box, np.float64)


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


class Molecules(FrameReader):
    """A frame at a time, in Å. A trajectory takes charges and masses from its topology."""

    suffixes = (".pdb", ".gro", ".xtc", ".trr", ".dcd")
    module = "MDAnalysis"
    alone = True
    takes_topology = True
    unit = "Å"
    structures = (".pdb", ".gro")  # which need no topology
    scalars = ("charges", "masses", "radii", "tempfactors", "occupancies")

    def start(self) -> int:
        ending = self.path.suffix.lower()
        if self.topology is None and ending not in self.structures:
            raise FileError(
                f"{self.path} has no topology: give --topology FILE (topology=), such as a .pdb, .gro, .tpr or .psf."
            )
        if ending == ".gro":
            self._one_frame()
        files = [self.path] if self.topology is None else [self.topology, self.path]
        with _quiet():
            self.universe = self.library.Universe(*map(str, files), **self._format())
        return len(self.universe.trajectory)

    def _format(self) -> dict[str, Any]:
        """Return a reader of .xtc and .trr that neither reads nor writes files of offsets beside the trajectory."""
        name = self.path.suffix[1:].upper()
        if name not in ("XTC", "TRR"):
            return {}
        form = getattr(importlib.import_module(f"MDAnalysis.coordinates.{name}"), f"{name}Reader")

        def read(reader: Any, store: bool = False) -> None:
            form._read_offsets(reader, store=False)

        return {"format": type(name, (form,), {"_load_offsets": read, "_read_offsets": read})}

    def _one_frame(self) -> None:
        """Refuse what MDAnalysis would leave out: the frames of a .gro behind the first one."""
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            next(lines, "")
            count = next(lines, "").strip()
            if not count.isdecimal():
                raise FileError(f"its second line is {count[:60]!r}; a number of atoms is needed")
            if sum(1 for _ in zip(range(int(count) + 1), lines, strict=False)) <= int(count):
                raise FileError("it ends early: atoms or the line of the box are missing")
            if any(line.strip() for line in lines):
                raise FileError("it has more than one frame, or lines behind it: give a file with one, or an .xtc")

    def read(self, frame: int) -> Any:
        """Return the state of a frame, which the universe then has."""
        with _quiet():
            if self.universe.trajectory.frame != frame:
                self.universe.trajectory[frame]
            return self.universe.trajectory.ts

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        step, atoms = self.frame(frame), self.universe.atoms
        names = ["positions", *self.scalars]
        names += [name for name in ("velocities", "forces") if getattr(step, f"has_{name}")]
        arrays = {}
        with _quiet():
            for name in names:
                with contextlib.suppress(AttributeError, self.library.exceptions.NoDataError):
                    arrays[name] = np.array(getattr(atoms, name))
        return arrays

    def box(self, frame: int) -> Cell | None:
        with _quiet():
            dimensions = self.frame(frame).dimensions
        return None if dimensions is None or not dimensions.any() else cell_of(dimensions, 3, periodic=True)

    def close(self) -> None:
        self.universe.trajectory.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MDAnalysis from warning of what files do not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Points(FrameReader):
    """Points with their data, a file per frame; ``NAME.vtu.series`` lists the frames of ParaView.

    The box is that of files of ours: arrays ``box``, ``origin`` and ``periodic`` of the whole file.
    """

    suffixes = (".vtu", ".vtk", ".series")
    module = "meshio"

    def start(self) -> int:
        self._files = [self.path]
        if self.path.suffix.lower() == ".series":
            listed = json.loads(self.path.read_text(encoding="utf-8"))["files"]
            self._files = [self.path.with_name(Path(file["name"]).name) for file in listed]
            missing = [file.name for file in self._files if not file.is_file()]
            if missing or not self._files:
                raise FileError(f"it lists {', '.join(missing[:4]) or 'no files'}, which are missing")
        return len(self._files)

    def read(self, frame: int) -> Any:
        file = self._files[frame]
        # The library's own function for all formats ends the program where it cannot read.
        form = importlib.import_module("meshio.vtu" if file.suffix.lower() == ".vtu" else "meshio.vtk")
        with contextlib.redirect_stderr(io.StringIO()):  # it warns of cells, which are not read
            return form.read(str(file))

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        mesh = self.frame(frame)
        return {"positions": mesh.points, **{k: v for k, v in mesh.point_data.items() if k != "positions"}}

    def box(self, frame: int) -> Cell | None:
        fields = self.frame(frame).field_data
        if not {"box", "origin", "periodic"} <= set(fields):
            return None
        box, origin, periodic = (np.ravel(fields[name]) for name in ("box", "origin", "periodic"))
        return cell_of(box.reshape(len(origin), -1), self.ndim, origin, periodic)
