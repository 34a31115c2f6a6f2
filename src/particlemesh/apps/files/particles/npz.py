# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's archives of arrays, read in parts."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from particlemesh.apps.files import boxes
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.particles.reader import Column, Reader, is_column

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NPZ(Reader):
    """Arrays by name: one row per particle; a box, ``origin`` and ``periodic`` if they are there.

    The box is called ``box``, ``boxsize``, ``cell`` or ``lengths``. The latter two are columns if their numbers are as
    many as particles.

    Arrays are read from the archive a part at a time, unless they are in Fortran's order: NumPy reads whole ones only.
    Nothing is unpickled.
    """

    suffixes = (".npz",)

    def open(self) -> None:
        self.archive = zipfile.ZipFile(self.path)
        self._read: dict[str, np.ndarray] = {}  # settings
        for member in self.archive.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            with self.archive.open(member) as stream:
                shape, fortran, dtype = header(stream)
                kinds = "iufb" if name.lower() in boxes.NAMES else "iufbUS"
                if boxes.is_setting(name, shape) and dtype.kind in kinds:
                    data = np.frombuffer(_exactly(stream, int(np.prod(shape)) * dtype.itemsize, name), dtype)
                    self._read[name] = data.reshape(shape, order="F" if fortran else "C")
                    self.settings[name] = shape
                if is_column(shape, dtype):
                    self.columns[name] = Column(shape[1:], shape[0])
        self.drop_settings()

    def setting(self, name: str) -> np.ndarray:
        return self._read[name]

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        with contextlib.ExitStack() as stack:
            parts = [
                _parts(name, stack.enter_context(self.archive.open(f"{name}.npy")), size, self._bytes(name))
                for name in names
            ]
            yield from map(list, zip(*parts, strict=True))

    def _bytes(self, name: str) -> int:
        return self.archive.getinfo(f"{name}.npy").file_size

    def close(self) -> None:
        self.archive.close()


def header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype of an array, and leave the stream at its data."""
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise FileError(f"an array has NumPy's format {version}; 1.0 or 2.0 is needed: write it with numpy.savez")
    return HEADERS[version](stream)


def _parts(name: str, stream: IO[bytes], size: int, total: int) -> Iterator[np.ndarray]:
    """Yield an array a part at a time; the archive compares a checksum after the last one."""
    shape, fortran, dtype = header(stream)
    row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    if stream.tell() + shape[0] * row != total:
        raise FileError(f"{name} has shape {shape}, which is not the number of its bytes")
    if fortran and len(shape) > 1:
        whole = np.frombuffer(_exactly(stream, shape[0] * row, name), dtype).reshape(shape, order="F")
        yield from (whole[start : start + size] for start in range(0, shape[0], size))
    else:
        for start in range(0, shape[0], size):
            count = min(size, shape[0] - start)
            yield np.frombuffer(_exactly(stream, count * row, name), dtype).reshape(count, *shape[1:])
    if stream.read(1):
        raise FileError(f"{name} has more bytes than its shape {shape} says")


def _exactly(stream: IO[bytes], count: int, name: str) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise FileError(f"{name} ends early")
    return data
