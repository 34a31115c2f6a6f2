# SPDX-License-Identifier: BSD-3-Clause
"""Where particles may be: axes that repeat, axes between walls, and axes without an end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.dem.walls import Plane
from particlemesh.kernels import checks


@dataclass(frozen=True)
class Domain:
    """Three axes from ``origin`` on: ``lengths`` are infinite where an axis has no end."""

    origin: tuple[float, ...]
    lengths: tuple[float, ...]
    periodic: tuple[bool, ...]

    @classmethod
    def of(cls, box: Any, periodic: Any) -> Domain:
        """Return the domain of a box, of lengths, or of None, which has no end.

        Raises
        ------
        ValueError, TypeError
            If it is no such box, or a skewed one.
        """
        if isinstance(box, cls):
            return box
        if isinstance(box, pm.Box):
            if box.ndim != 3 or not box.orthorhombic:
                raise ValueError(f"box is {box}; an orthorhombic box of 3 axes is needed.")
            if periodic is not False:
                raise ValueError(f"periodic is {periodic!r} beside a Box, which has its own: give it to the Box.")
            origin, lengths, flags = box.origin.tolist(), box.lengths.tolist(), box.periodic
        else:
            numbers = [math.inf] * 3 if box is None else list(box) if hasattr(box, "__len__") else [box] * 3
            if len(numbers) != 3:
                raise ValueError(f"box has {len(numbers)} lengths; 3 are needed, infinity where an axis has no end.")
            finite = checks.per_axis([1.0 if length == math.inf else length for length in numbers], 3, "box")
            lengths = [math.inf if given == math.inf else length for given, length in zip(numbers, finite, strict=True)]
            if min(lengths) <= 0:
                raise ValueError(f"box has lengths {tuple(lengths)}; every length must be positive.")
            flags, origin = checks.flags(periodic, 3, "periodic"), [0.0] * 3
        for axis in range(3):
            if flags[axis] and lengths[axis] == math.inf:
                raise ValueError(f"axis {axis} is periodic and of infinite length: give it a length.")
        return cls(tuple(origin), tuple(lengths), tuple(flags))

    def in_unit(self, length: float) -> Domain:
        """Return the domain in another unit of length."""
        origin, lengths = np.array(self.origin) / length, np.array(self.lengths) / length
        return Domain(tuple(origin.tolist()), tuple(lengths.tolist()), self.periodic)

    @property
    def walls(self) -> list[Plane]:
        """The faces across axes that have an end and do not repeat."""
        planes = []
        for axis in range(3):
            if math.isfinite(self.lengths[axis]) and not self.periodic[axis]:
                unit = np.eye(3)[axis]
                high = np.array(self.origin) + self.lengths[axis] * unit
                planes += [Plane(self.origin, unit.tolist()), Plane(high.tolist(), (-unit).tolist())]
        return planes

    def check_radius(self, radius: float) -> None:
        """Check that no sphere up to a radius touches another one twice, through an axis that repeats.

        Raises
        ------
        ValueError
            If one may.
        """
        for axis in range(3):
            if self.periodic[axis] and self.lengths[axis] < 4 * radius:
                raise ValueError(
                    f"the largest radius is {radius:g} and the box repeats after {self.lengths[axis]:g} along axis "
                    f"{axis}; at least four radii are needed, so that two particles touch once: give a larger box."
                )

    @property
    def periods(self) -> np.ndarray:
        """Lengths of the axes that repeat, 0 for others."""
        return np.where(self.periodic, self.lengths, 0.0)

    @property
    def origin_of_periods(self) -> np.ndarray:
        """Where the axes that repeat begin, 0 for others."""
        return np.where(self.periodic, self.origin, 0.0)

    @property
    def box(self) -> pm.Box:
        """Its box; the length of an axis without an end has no meaning."""
        lengths = np.where(np.isfinite(self.lengths), self.lengths, 1.0)
        return pm.Box(lengths, origin=self.origin, periodic=self.periodic)

    def fold(self, positions: np.ndarray) -> np.ndarray:
        """Return positions (N, 3) folded into the axes that repeat, below their ends in any type."""
        folded = self.box.fold(positions.astype(np.float64)).astype(positions.dtype)
        ends = np.where(self.periodic, np.add(self.origin, self.lengths), np.inf)
        return np.where(folded < ends, folded, np.array(self.origin, positions.dtype))

    def grid_box(self, positions: np.ndarray, reach: float) -> pm.Box:
        """Return the box of a grid that finds all pairs within ``reach``.

        All its axes repeat, so that it holds particles wherever they go: images that it adds are too far to touch.
        """
        low, high = np.array(self.origin), np.array(self.origin) + self.lengths
        if len(positions):
            ended = np.isfinite(self.lengths)
            low = np.where(ended, low, positions.min(0))
            high = np.where(ended, high, positions.max(0))
        else:
            high = np.where(np.isfinite(high), high, low + reach)
        return pm.Box(np.where(self.periodic, high - low, high - low + reach), origin=low, periodic=True)
