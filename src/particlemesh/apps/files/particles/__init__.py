# SPDX-License-Identifier: BSD-3-Clause
"""Particles in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.libraries import FileError, by_ending, listing, plain
from particlemesh.apps.files.particles.alone import Alone
from particlemesh.apps.files.particles.frames import GSD, Data, Dump, ExtendedXYZ, Molecules, Points
from particlemesh.apps.files.particles.hdf5 import HDF5
from particlemesh.apps.files.particles.openpmd import OpenPMD as OpenPMD  # a form of HDF5
from particlemesh.apps.files.particles.reader import Reader
from particlemesh.apps.files.particles.tables import NPZ, Parquet, Text

FORMATS: tuple[type[Reader], ...] = (
    NPZ, HDF5, GSD, ExtendedXYZ, Dump, Data, Molecules, Points, Text, Parquet,
)  # fmt: skip
IN_PARTS = tuple(form for form in FORMATS if form.in_parts)
MARGIN = 1e-6  # of the extent, between the outermost particles and open faces that are fitted
CHUNK = 2**21  # particles: 48 MiB of positions in double precision
POSITIONS = ("positions", "position", "pos", "coordinates", "coords", "xyz")
NAMES = ("x", "y", "z")
AXES = tuple(tuple(f"{stem}{x}" for x in NAMES[:n]) for n in (3, 2, 1) for stem in ("", "position_"))


class Configuration(NamedTuple):
    """All particles of a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.files import Configuration
    >>> configuration = Configuration(np.eye(3), np.array([1.0, 2.0, 3.0]), None)
    >>> configuration.positions.shape, float(configuration.values.sum())
    ((3, 3), 6.0)
    """

    positions: np.ndarray  # (N, d)
    values: np.ndarray  # (..., N)
    box: Box | None


class Chunk(NamedTuple):
    """Some of the particles of a file, in the file's order.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import open_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", positions=np.eye(3), charges=[1.0, 2.0, 3.0])
    ...     with open_particles(f"{folder}/few.npz", values="charges") as particles:
    ...         chunks = list(particles.chunks(size=2))
    >>> [len(chunk.positions) for chunk in chunks], chunks[1].values
    ([2, 1], array([3.]))
    """

    positions: np.ndarray  # (n, d), float32 or float64
    values: np.ndarray  # (..., n), real or complex


class Particles:
    """An open file of particles with positions and values chosen; made by :func:`open_particles`.

    Attributes
    ----------
    path : Path
    columns : dict of str to tuple of int
        All columns of numbers that the file has, and the shape of one particle's entry.
    positions : tuple of str
        Names of the columns of positions.
    values : tuple of str
        Names of the columns of values, or products such as ``charge*weighting``; none if all have the constant.
    constant : float
        The value of all particles, if no column was chosen.
    ndim : int
        Number of axes.
    components : tuple of int
        Shape of one particle's value.
    frames : int
        Number of configurations.
    unit : str or None
        Unit of lengths, if the format or the file has one.
    notes : list of str
        What was done to the numbers, because the file says so.
    unsaid : bool
        Whether the box that was returned last repeats along all axes because the file does not say.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import open_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", positions=np.eye(3), charges=[1.0, 2.0, 3.0])
    ...     with open_particles(f"{folder}/few.npz", values="charges") as particles:
    ...         facts = particles.values, particles.ndim, particles.frames
    >>> facts
    (('charges',), 3, 1)
    """

    def __init__(self, reader: Reader, positions: str | None, values: str | float | None) -> None:
        self._reader = reader
        self.path, self.unsaid = reader.path, False
        self.columns = {name: column.tail for name, column in reader.columns.items()}
        self.constant = 1.0
        self.values: tuple[str, ...] = ()
        self._factors: list[tuple[str, ...]] = []  # columns whose product is a value
        try:
            self.positions = self._positions(positions)
            self.ndim = self._width(self.positions, "positions")
            if not 1 <= self.ndim <= 3:
                raise FileError(f"{self.path} has positions of {self.ndim} axes; 1 to 3 are needed.")
            number = self._number(values) if isinstance(values, str) else values
            if isinstance(values, str) and number is None:
                self._factors = [self._product(word) for word in self._words(values, "values")]
                self.values = tuple("*".join(names) for names in self._factors)
            elif number is not None:
                self.constant = float(number)
                zero = isinstance(values, str) and not self.constant and re.search("[1-9]", re.split("[eE]", values)[0])
                if not math.isfinite(self.constant) or zero:  # such as 1e-400
                    small = ", which double precision has as 0" if zero else ""
                    raise ValueError(f"values is {values}{small}; give a finite number or names of columns.")
            self._same_rows()
            with reader.errors_name_file():
                reader.select(self._columns(), self.ndim)
                for factors in self._factors:
                    reader.multiply(factors)
            self.frames, self.unit, self.notes = reader.frames, reader.unit, reader.notes
            if reader.in_lines:
                _warn_of_cut(self.path)
        except BaseException:
            reader.close()
            raise
        self.components = (len(self.values),) if len(self.values) > 1 else self._tail()

    def _product(self, word: str) -> tuple[str, ...]:
        """Return the columns of a name, or of names with ``*`` between them, of which one may have several numbers."""
        words = [word] if word in self.columns else [factor.strip() for factor in word.split("*")]
        if not all(words):
            raise ValueError(f"values is {word!r}; give names of columns, or a product of names such as a*b.")
        names = tuple(self._named(name, "values") for name in words)
        wide = [name for name in names if self.columns[name]]
        if len(wide) > 1:
            raise FileError(f"values is {word!r}, and {' and '.join(wide)} have several numbers: give one of them.")
        return names

    def _tail(self) -> tuple[int, ...]:
        """Return the shape of one particle's value."""
        return next((self.columns[name] for names in self._factors for name in names if self.columns[name]), ())

    def _columns(self) -> tuple[str, ...]:
        """Return all columns that are read, each once."""
        return tuple(dict.fromkeys([*self.positions, *(name for names in self._factors for name in names)]))

    def _positions(self, given: str | None) -> tuple[str, ...]:
        if given is not None:
            return tuple(self._named(name, "positions") for name in self._words(given, "positions"))
        short = {name: name.rpartition("/")[2].lower() for name in self.columns}
        for known in POSITIONS:
            candidates = [name for name, last in short.items() if last == known]
            if len(candidates) > 1:
                raise FileError(
                    f"{self.path} has {', '.join(candidates)}: give one of them as positions (--positions)."
                )
            if candidates:
                return (candidates[0],)
        for axes in AXES:
            alike = tuple(name for name in map(self._like, axes) if name is not None)
            if len(alike) == len(axes):
                return alike
        raise FileError(
            f"{self.path} has no positions by a usual name, {self._there()}: give their name (--positions)."
        )

    def _like(self, axis: str) -> str | None:
        """Return the column of a name in small letters, or the only one in others; None if there is none."""
        alike = [name for name in self.columns if name.lower() == axis]
        return axis if axis in alike else alike[0] if len(alike) == 1 else None

    def _words(self, text: str, what: str) -> list[str]:
        """Return names from a text with commas between them, which a name may also have."""
        words = [text] if text in self.columns else [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise ValueError(f"{what} is {text!r}; give names of columns with commas between them.")
        return words

    def _named(self, name: str, what: str) -> str:
        """Return the column of a name, which may lack the group that positions are in."""
        if name in self.columns:
            return name
        group = self.positions[0].rpartition("/")[0] if what == "values" else ""
        short = f"{group}/{name}".strip("/")
        if short in self.columns:
            return short
        number = f", or {name}.0 for the number" if what == "values" and name.isdecimal() else ""
        why = "".join(f" ({reason})" for column, reason in self._reader.missing if column == name)
        raise FileError(
            f"{self.path} has no column {name}{why}, {self._there()}: give one of these as {what} (--{what}){number}."
        )

    def _number(self, text: str) -> float | None:
        """Return the number that a text is, None if it is the name of a column or no number."""
        text = text.strip()
        numbered = text.isdecimal() and any(name.isdecimal() for name in self.columns)
        if text in self.columns or numbered:  # 7 is no number where columns are called 0, 1, 2; but 7.0 is
            return None
        try:
            return float(text)
        except ValueError:
            return None

    def _there(self) -> str:
        return plain(f"but {', '.join(self.columns)}")[:400] if self.columns else "and no columns of numbers"

    def _width(self, names: tuple[str, ...], what: str) -> int:
        tails = [self.columns[name] for name in names]
        if len(names) > 1 and any(tails):
            wide = next(name for name in names if self.columns[name])
            raise FileError(f"{what} are {', '.join(names)}, and {wide} has several numbers: give it alone.")
        return tails[0][0] if tails[0] else len(names)

    def _same_rows(self) -> None:
        if len(self.values) > 1 and self._tail():
            raise FileError(f"values are {', '.join(self.values)}; give one column of several numbers, or single ones.")
        rows = {name: self._reader.columns[name].rows for name in self._columns()}
        known = {n for n in rows.values() if n is not None}
        if len(known) > 1:
            listed = ", ".join(f"{name}: {n}" for name, n in rows.items())
            raise FileError(f"{self.path} has columns of different lengths, {listed}: give columns of one kind.")

    @property
    def count(self) -> int | None:
        """Number of particles in a frame, if the file says so before it is read."""
        return self._reader.columns[self.positions[0]].rows

    def frame(self, frame: int) -> int:
        """Return the number of a frame from 0 on; -1 is the last.

        Raises
        ------
        ValueError
            If the file has no such frame.
        """
        if not -self.frames <= frame < self.frames:
            raise ValueError(f"frame is {frame}; {self.path} has {self.frames}, from 0 on, or from -1 backwards.")
        return frame % self.frames

    def box(
        self, frame: int | Sequence[int] = -1, *, periodic: Sequence[bool] | None = None, origin: Any = None
    ) -> Box | None:
        """Return the box of a frame, or of several, or None if the file has none.

        Open axes without a lattice vector hold all particles of these frames.

        Parameters
        ----------
        frame : int or sequence of int
        periodic, origin : sequence of d bools, sequence of d floats, optional
            Instead of what the file says.

        Raises
        ------
        ValueError
            If the file has no such frame, what it has is no box, or frames have different boxes.
        """
        frames = [self.frame(number) for number in ((frame,) if isinstance(frame, int) else frame)]
        cells = []
        for number in frames:
            with self._reader.errors_name_file(number):
                cell = self._reader.box(number)
            if cell is not None and len(cell.rows) == self.ndim:
                cell = cell._replace(
                    periodic=cell.periodic if periodic is None else tuple(map(bool, periodic)),
                    origin=cell.origin if origin is None else origin,
                )
            cells.append(cell)
            if not (cells[0] is cells[-1] is None or (cells[0] is not None and cells[0].same(cells[-1]))):
                raise FileError(
                    f"{self.path}, frame {number}: it has another box than frame {frames[0]}: give one frame, or --box "
                    "for all."
                )
        if cells[0] is None:
            return None
        with self._reader.errors_name_file(frames[0]):
            box = cells[0].box(lambda directions: self.bounds(frames, CHUNK, "float32", directions))
        self.unsaid = box is not None and cells[0].periodic is None
        return box

    def bounds(
        self, frames: Sequence[int] = (-1,), size: int = CHUNK, dtype: str | None = None, directions: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return corners between which all particles of some frames are, with a margin; reads them once, in parts.

        Parameters
        ----------
        frames : sequence of int
        size : int
            Most particles in memory at once.
        dtype : {"float32", "float64"}, optional
            Positions may be rounded to it; by default theirs.
        directions : (d, d) array, optional
            Coordinates are ``positions @ directions``; by default positions.

        Returns
        -------
        low, high : (d,) ndarray
        """
        low, high, largest, eps = np.inf, -np.inf, 0.0, 0.0
        for chunk in (chunk for frame in frames for chunk in self.chunks(size, frame)):
            x = chunk.positions if directions is None else chunk.positions @ directions
            low, high = np.minimum(low, x.min(axis=0)), np.maximum(high, x.max(axis=0))
            largest = np.maximum(largest, abs(x if directions is None else chunk.positions).max(axis=0))
            eps = np.finfo(dtype or chunk.positions.dtype).eps
        extent = np.asarray(high - low, np.float64)
        pad = np.where(extent > 0, MARGIN * extent, (extent.max() or 1.0) / 2)
        far = np.asarray(largest, np.float64)
        pad = np.maximum(pad, 2 * eps * (far if directions is None else far @ abs(directions)))
        return low - pad, high + pad

    def chunks(self, size: int = CHUNK, frame: int = -1) -> Iterator[Chunk]:
        """Yield the particles of a frame in parts, in the file's order.

        Parameters
        ----------
        size : int
            Most particles of a part.
        frame : int

        Yields
        ------
        Chunk
            With ``positions (n, d)`` and ``values (*components, n)``. float32 stays; other reals become float64.

        Raises
        ------
        ValueError
            If the file is damaged, or a value is not finite.
        """
        if size < 1:
            raise ValueError(f"size is {size}; give a number of particles above 0.")
        number, done = self.frame(frame), 0
        names = self._columns()
        with self._reader.errors_name_file(number):
            for parts in self._reader.chunks(names, size, number):
                count = len(parts[0])
                if not count:
                    continue
                chunk = self._chunk(dict(zip(names, parts, strict=True)), count)
                self._check(chunk, done)
                done += count
                yield chunk
        if not done:
            at = "" if self.frames == 1 else f", frame {number}"
            raise FileError(f"{self.path}{at} has no particles.")

    def _chunk(self, parts: dict[str, np.ndarray], count: int) -> Chunk:
        where = [parts[name] for name in self.positions]
        if np.iscomplexobj(where[0]):
            raise FileError(f"positions {', '.join(self.positions)} are complex; real numbers are needed.")
        positions = where[0] if where[0].ndim == 2 else np.stack(where, axis=1)
        positions = _native(positions)
        if not self._factors:
            values = np.full(count, self.constant, positions.dtype)
        else:
            rows = [[np.moveaxis(_native(parts[name]), 0, -1) for name in names] for names in self._factors]
            values = np.stack([math.prod(row[1:], start=row[0]) for row in rows])
            values = values if len(rows) > 1 else values[0]
        return Chunk(positions, np.ascontiguousarray(values))

    def _check(self, chunk: Chunk, done: int) -> None:
        for what, bad in (
            ("position", ~np.isfinite(chunk.positions).all(axis=1)),
            ("value", ~np.isfinite(chunk.values.reshape(-1, len(chunk.positions))).all(axis=0)),
        ):
            if bad.any():
                raise FileError(f"the {what} of particle {done + int(bad.argmax())} is not finite")

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _native(array: np.ndarray) -> np.ndarray:
    """Return float32, float64, complex64 or complex128 in the machine's order."""
    kept = array.dtype.newbyteorder("=")
    if kept in (np.float32, np.float64, np.complex64, np.complex128):
        return np.asarray(array, kept)
    return np.asarray(array, np.complex128 if array.dtype.kind == "c" else np.float64)


def _warn_of_cut(path: Path) -> None:
    """Warn if the last line of a text has no end: its last number may lack digits."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read() not in (b"", b"\n", b"\r"):
            warnings.warn(f"the last line of {path} has no end: it may be cut", stacklevel=4)


@listing(ENDINGS=FORMATS, PARTS=IN_PARTS)
def open_particles(
    path: Any, *, positions: str | None = None, values: str | float | None = None, topology: Any = None
) -> Particles:
    """Open a file of particles, to read it in parts.

    The ending of the name selects the format: ENDINGS.

    Files PARTS may be larger than the memory. Others are read a frame at a time.

    Parameters
    ----------
    path : path-like
    positions : str, optional
        Name of a column (N, d), or names of d columns with commas between them. By default the column with a usual
        name (positions, position, pos, coordinates, coords, xyz), or x, y and z.
    values : str or float, optional
        Name of a column (N,) or (N, c), names of several columns, or one number for all particles; 1 by default. A
        text that is a number is the column of that name, if there is one.
    topology : path-like, optional
        File with what a trajectory of molecules lacks: charges and masses.

    Returns
    -------
    Particles
        A context manager, which closes the file.

    Raises
    ------
    ImportError
        If the format's library is missing: ``pip install 'particlemesh[files]'``.
    ValueError
        If there is no such file or column, the ending is unknown, or the file is damaged.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import open_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", positions=np.eye(3), charges=[1.0, 2.0, 3.0], box=[2.0, 2.0, 2.0])
    ...     with open_particles(f"{folder}/few.npz", values="charges") as particles:
    ...         sums = [float(chunk.values.sum()) for chunk in particles.chunks(size=2)]
    ...         box = particles.box()
    >>> sums, box.lengths
    ([3.0, 3.0], array([2., 2., 2.]))
    """
    path = Path(path)
    form = by_ending(FORMATS, path, f"{path} has an unknown ending; particles are read from")
    for file in (path, topology):
        if file is not None and not Path(file).is_file():
            raise ValueError(f"{file} does not exist, or is no file.")
    if topology is not None and not form.takes_topology:
        raise ValueError(f"topology is {topology}; {path.suffix} has no other file beside it: leave it out.")
    other = None if topology is None else Path(topology)
    return Particles(Alone(form, path, other) if form.alone else form.of(path, other), positions, values)


def read_particles(
    path: Any, *, positions: str | None = None, values: str | float | None = None, topology: Any = None, frame: int = -1
) -> Configuration:
    """Return all particles of a frame.

    Parameters
    ----------
    path, positions, values, topology
        As for :func:`open_particles`.
    frame : int
        From 0 on, or from -1 backwards; the last by default.

    Returns
    -------
    Configuration
        With ``positions (N, d)``, ``values (..., N)`` and ``box``, None if the file has none.

    Raises
    ------
    ImportError, ValueError
        As for :func:`open_particles`; if the file has no such frame; if a number is not finite.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import read_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", positions=np.eye(3), charges=[1.0, 2.0, 3.0], box=[2.0, 2.0, 2.0])
    ...     configuration = read_particles(f"{folder}/few.npz", values="charges")
    >>> configuration.values, configuration.box.volume
    (array([1., 2., 3.]), 8.0)
    """
    with open_particles(path, positions=positions, values=values, topology=topology) as particles:
        chunks = list(particles.chunks(frame=frame))
        points = np.concatenate([chunk.positions for chunk in chunks])
        numbers = np.concatenate([chunk.values for chunk in chunks], axis=-1)
        return Configuration(points, numbers, particles.box(frame))
