# SPDX-License-Identifier: BSD-3-Clause
"""Extended XYZ, through ASE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.particles.reader import Column, FileError, Reader, slices

LEFT_OUT = ("numbers",)


class ExtendedXYZ(Reader):
    """Text of frames, each with its cell; a frame at a time. Masses follow from the elements if there are none."""

    suffixes = (".xyz", ".extxyz")
    module = "ase.io"
    unit = "Å"

    def open(self) -> None:
        self.frames = self._count()
        self._now: tuple[int, Any] = (-1, None)
        arrays = self._arrays(self.frames - 1)
        self.columns = {name: Column(data.shape[1:]) for name, data in arrays.items()}

    def _count(self) -> int:
        """Return the number of frames; each begins with its number of atoms."""
        frames = 0
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                if not line.strip() and frames:
                    break  # an empty line may end the file
                for _ in range(int(line) + 1):
                    if not next(lines, None):
                        raise FileError(f"frame {frames} ends early")
                frames += 1
        if not frames:
            raise FileError("it is empty")
        return frames

    def _atoms(self, frame: int) -> Any:
        if self._now[0] != frame:
            self._now = (frame, self.library.read(self.path, index=frame, format="extxyz"))
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


def _cell(rows: np.ndarray) -> np.ndarray:
    """Return lengths of a rectangular cell, rows of another one."""
    return (
        np.diagonal(rows) if (np.diagonal(rows) > 0).all() and not (rows - np.diag(np.diagonal(rows))).any() else rows
    )
