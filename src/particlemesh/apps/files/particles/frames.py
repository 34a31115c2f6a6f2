# SPDX-License-Identifier: BSD-3-Clause
"""Formats that libraries read a frame at a time: those of ASE, HOOMD-blue and MDAnalysis, and points of VTK."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
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


class ExtendedXYZ(FrameReader):
    """Text of frames, each with its cell; a frame at a time. Masses follow from the names if all are elements.

    Empty lines may be between frames.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".xyz", ".extxyz")
    in_lines = True
    module: ClassVar[str | None] = "ase.io"
    unit: str | None = "Å"
    missing: tuple[tuple[str, str], ...] = (("masses", "they follow from the names of particles if all are elements"),)

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
        masses = {"masses": atoms.get_masses()} if atoms.numbers.all() else {}  # the number 0 stands for other names
        return _reals({"positions": None, **masses, **results, **atoms.arrays}, "numbers")

    def box(self, frame: int) -> Cell | None:
        atoms = self.frame(frame)
        if not atoms.cell.any() and not atoms.pbc.any():
            return None
        return Cell(atoms.cell.array, tuple(map(bool, atoms.pbc)), atoms.info.get("Origin"))


class Dump(ExtendedXYZ):
    """Text dumps of LAMMPS: columns by their names there, and ``positions``; a frame at a time.

    Positions are x, xu, xs or xsu. Units are those of the simulation. Old versions wrote no flags of the axes.
    """

    suffixes = (".dump", ".lammpstrj", ".lammpsdump")
    note = "LAMMPS"
    module = unit = None
    missing = ()
    items = ("NUMBER OF ATOMS", "BOX BOUNDS", "ATOMS")

    def _frames(self) -> list[tuple[int, int]]:
        begins, end = [], 0
        with self.path.open("rb") as lines:
            for line in lines:
                if not end and not line.startswith(b"ITEM: "):
                    break
                if line.startswith(b"ITEM: TIMESTEP"):  # units and the time come in front of it
                    begins.append(end)
                end += len(line)
        if not begins:
            raise FileError("it does not begin with ITEM: and have an ITEM: TIMESTEP, as text dumps do")
        return list(zip(begins, [*begins[1:], end], strict=True))

    def read(self, frame: int) -> dict[str, tuple[list[str], list[str]]]:
        """Return the words behind the name of each item, and its lines."""
        items = {}
        for part in re.split("^ITEM: ", self._text(frame), flags=re.MULTILINE)[1:]:
            head, *lines = part.splitlines()
            for name in self.items:
                if head.startswith(name):
                    items[name] = head.removeprefix(name).split(), lines
        missing = [name for name in self.items if name not in items]
        if missing:
            raise FileError(f"frame {frame} has no ITEM: {missing[0]}, as dumps of atoms have")
        return items

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        items = self.frame(frame)
        (names, lines), (_, count) = items["ATOMS"], items["NUMBER OF ATOMS"]
        if count[:1] != [str(len(lines))]:
            raise FileError(f"it has {len(lines)} of {count[0] if count else 'an unknown number of'} atoms")
        row = lines[0].split() if lines else ["0"] * len(names)
        places = [place for place, word in enumerate(row) if _is_real(word)]
        rows = np.loadtxt(lines, usecols=places, ndmin=2) if lines else np.zeros((0, len(names)))
        columns = {names[place]: rows[:, k] for k, place in enumerate(places)}
        for form in ("", "u", "s", "su"):
            if all(f"{axis}{form}" in columns for axis in "xyz"):
                x = np.stack([columns.pop(f"{axis}{form}") for axis in "xyz"], axis=1)
                cell = self.box(frame)
                return {"positions": cell.origin + x @ cell.rows if "s" in form else x, **columns}
        raise FileError(f"frame {frame} has no positions x, xu, xs or xsu, but {', '.join(names)}")

    def box(self, frame: int) -> Cell:
        """Return the box. That of tilted axes is between the least and largest coordinates of its corners."""
        words, lines = self.frame(frame)["BOX BOUNDS"]
        form = next((form for form in ("xy xz yz", "abc origin") if " ".join(words).startswith(form)), "")
        flags, numbers = words[len(form.split()) :], np.loadtxt(lines, ndmin=2)
        if numbers.shape != (3, {"": 2, "xy xz yz": 3, "abc origin": 4}[form]) or len(flags) not in (0, 3):
            raise FileError(f"its ITEM: BOX BOUNDS {' '.join(words)} has numbers {numbers.shape}, which are no box")
        periodic = tuple("p" in flag for flag in flags) or None
        if form == "abc origin":
            return Cell(numbers[:, :3], periodic, numbers[:, 3])
        xy, xz, yz = numbers[:, 2] if form else (0.0,) * 3
        low = numbers[:, 0] - [min(0, xy, xz, xy + xz), min(0, yz), 0]
        high = numbers[:, 1] - [max(0, xy, xz, xy + xz), max(0, yz), 0]
        tilts = np.array([[0, 0, 0], [xy, 0, 0], [xz, yz, 0]])
        return Cell(np.diag(high - low) + tilts, periodic, low)


class Data(ExtendedXYZ):
    """Data files of LAMMPS, which do not say which axes repeat. Positions are unfolded by the counts of images."""

    suffixes = (".data", ".lmp")
    note = "LAMMPS"
    unit = None
    missing = ()
    styles = ("atomic", "charge", "bond", "angle", "molecular", "full")

    def _frames(self) -> list[tuple[int, int]]:
        return [(0, self.path.stat().st_size)]

    def read(self, frame: int) -> Any:
        style = re.search(r"^\s*Atoms[ \t]*#[ \t]*(\S.*?)\s*$", self._text(frame), re.MULTILINE)
        if style and style[1] not in self.styles:
            raise FileError(f"its atoms have the style {style[1]}; {', '.join(self.styles)} are read: write a .dump")
        # These units are not converted. Without a box ASE takes one of its own.
        atoms = self.library.read(
            io.StringIO(self._text(frame)),
            format="lammps-data",
            units="ASE",
            read_image_flags=bool(self._corner(frame)),
        )
        if not style:  # ASE goes by the number of words
            self.notes = [f"Atoms has no style: read as {'full' if 'initial_charges' in atoms.arrays else 'atomic'}"]
        return atoms

    def arrays(self, frame: int) -> dict[str, np.ndarray]:
        # ASE guesses the others.
        arrays = self.frame(frame).arrays
        return _reals({"positions": None, **arrays}, "numbers", "momenta", "mmcharges")

    def box(self, frame: int) -> Cell | None:
        corner = self._corner(frame)  # ASE leaves it out
        return Cell(self.frame(frame).cell.array, None, np.array(corner)) if corner else None

    def _corner(self, frame: int) -> list[float]:
        """Return the origin of the box; nothing if there is no box."""
        text = self._text(frame)
        vectors = re.search(r"^\s*(\S+)\s+(\S+)\s+(\S+)\s+abc\s+origin", text, re.MULTILINE)
        if vectors:
            return list(map(float, vectors.groups()))
        lows = {
            axis: float(low) for low, axis in re.findall(r"^\s*(\S+)\s+\S+\s+([xyz])lo\s+[xyz]hi", text, re.MULTILINE)
        }
        if len(lows) not in (0, 3):
            raise FileError(
                f"its box has the faces of {', '.join(lows)}; lines of xlo xhi, ylo yhi and zlo zhi are needed"
            )
        return [lows[axis] for axis in sorted(lows)]


def _reals(arrays: dict[str, Any], *left_out: str) -> dict[str, np.ndarray]:
    """Return arrays of real numbers but for some names."""
    return {
        name: data
        for name, data in arrays.items()
        if name not in left_out and isinstance(data, np.ndarray) and data.dtype.kind in "iuf" and data.ndim
    }


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
        if len(row) > before and row[before].capitalize() not in symbols:  # as ASE reads them
            row[before] = "X"
    return "\n".join([count, comment, *map(" ".join, words), ""])


class Molecules(FrameReader):
    """A frame at a time, in Å. A trajectory takes charges and masses from its topology.

    Masses are those of a topology, or follow from the elements of a .pdb. Names of atoms do not say them.
    """

    suffixes = (".pdb", ".gro", ".xtc", ".trr", ".dcd")
    module = "MDAnalysis"
    alone = True
    takes_topology = True
    unit = "Å"
    structures = (".pdb", ".gro")  # which need no topology
    scalars = ("charges", "masses", "radii", "tempfactors", "occupancies")
    # Of each frame of a .pdb: names in MDAnalysis, which reads numbers where the columns of the text are blank.
    of_frames: ClassVar = {"tempfactors": ("tempfactor", 60, 66), "occupancies": ("occupancy", 54, 60)}
    missing = (
        ("masses", "names of atoms do not say masses, but the elements of a .pdb, a .tpr or a .psf do"),
        ("tempfactors", "a .pdb has it if the field is blank for no atom"),
        ("occupancies", "a .pdb has it if the field is blank for no atom"),
    )

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
            self.universe = self.library.Universe(*map(str, files), to_guess=(), **self._format())
        self._blank = self._blank_fields() if ending == ".pdb" else set()
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

    def _blank_fields(self) -> set[str]:
        """Return the columns of a .pdb that are blank for some atom."""
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            atoms = [line.rstrip("\n") for line in lines if line.startswith(("ATOM", "HETATM"))]
        ends = self.of_frames.items()
        return {name for name, (_, begin, end) in ends if not all(line[begin:end].strip() for line in atoms)}

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
                self.universe.trajectory.ts.data.clear()  # those of another frame
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
            if self.path.suffix.lower() == ".pdb":
                arrays |= {name: step.data[key] for name, (key, *_) in self.of_frames.items() if key in step.data}
                arrays = {name: array for name, array in arrays.items() if name not in self._blank}
            if "masses" not in arrays and hasattr(atoms, "elements"):
                known = importlib.import_module("MDAnalysis.guesser.tables").masses
                masses = [known.get(element.upper(), 0.0) for element in atoms.elements]
                arrays |= {"masses": np.array(masses)} if all(masses) else {}
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
            names = [
                os.path.normpath(file["name"]) for file in json.loads(self.path.read_text(encoding="utf-8"))["files"]
            ]
            above = [name for name in names if Path(name).is_absolute() or Path(name).parts[0] == ".."]
            if above or not names:
                raise FileError(
                    f"it lists {above[0]}, which is in another folder: put it beside the series"
                    if above
                    else "it lists no files"
                )
            self._files = [self.path.parent / name for name in names]
            missing = [name for name, file in zip(names, self._files, strict=True) if not file.is_file()]
            if missing:
                raise FileError(f"it lists {', '.join(missing[:4])}, which are missing")
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
