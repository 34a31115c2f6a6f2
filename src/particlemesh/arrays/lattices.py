# SPDX-License-Identifier: BSD-3-Clause
"""Boxes of systems on a GPU: whatever depends on them is derived there, from one table of numbers (lattices.h)."""

from __future__ import annotations

import functools
import math
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import adopt, converted, real_dtype
from particlemesh.arrays.positions import lattices
from particlemesh.backends.base import Backend, Record, kept
from particlemesh.box import Box

NUMBERS = 28  # of a box, as lattices.h has them
_FACTS = 10
_DOUBLE = np.dtype(np.float64)
_ROUNDING = 1e-9  # more than what a number of a box loses


class Bounds(NamedTuple):
    """What all boxes keep to, for each axis."""

    per: tuple[float, ...]  # the most fractions that a distance of one spans across the faces
    longest: tuple[float, ...]  # lattice vectors
    shortest: tuple[float, ...]

    @classmethod
    def of(cls, rows: np.ndarray) -> Bounds:
        """Return those of lattice vectors (S, d, d)."""
        lengths, per = np.linalg.norm(rows, axis=2), np.linalg.norm(np.linalg.inv(rows), axis=1)
        return cls(*(tuple(a.tolist()) for a in (per.max(0), lengths.max(0), lengths.min(0)))).rounded()

    def exceed(self, others: Bounds) -> bool:
        """Return whether a box is thinner than others are."""
        return any(a > b for a, b in zip(self.per, others.per, strict=True))

    def after(self, before: Bounds | None) -> Bounds:
        """Return these bounds, with the fractions of those before if they hold, and are the next larger ones at most.

        So boxes that change about a power have the same ones.
        """
        most = () if before is None else before.per
        near = most and all(b * 0.84 < a <= b for a, b in zip(self.per, most, strict=True))  # 2**-0.25
        return self._replace(per=most) if near else self

    def rounded(self) -> Bounds:
        """Return bounds that are powers of the fourth root of 2: boxes that change a little have the same ones."""

        def outwards(numbers: tuple[float, ...], towards: Any) -> tuple[float, ...]:
            return tuple(2 ** (towards(4 * math.log2(number)) / 4) for number in numbers)

        # Numbers at a power have the same bound, whichever way they were rounded.
        up = functools.partial(outwards, towards=lambda power: math.ceil(power - _ROUNDING))
        down = functools.partial(outwards, towards=lambda power: math.floor(power + _ROUNDING))
        return Bounds(up(self.per), up(self.longest), down(self.shortest))


class DeviceBoxes(checks.Fixed):
    """Boxes of systems on a GPU: what depends on them is derived there.

    `Plan.set_positions`, `UniformGrid.build` and `Solver.set_positions` take them as ``boxes``, and
    :class:`~particlemesh.apps.pme.PMEBatch` makes them of the arrays that it is given.
    Plans and grids decide some things on the host. For these they use ``bounds``, which a look at the device confirms
    afterwards.

    Parameters
    ----------
    backend : Backend
    box : Box
        Has the origin and the periodic axes of all.
    count : int
        Number S of systems.

    Attributes
    ----------
    numbers : native float64 array (S, 28)
        As ``arrays/lattices.h`` describes them.
    facts : native float64 array (10,)
        About all boxes: what :meth:`confirm` takes, downloaded.

    Raises
    ------
    ValueError
        If the device lacks double precision.

    Examples
    --------
    >>> from particlemesh.kernels import DeviceBoxes, backend
    >>> import particlemesh as pm
    >>> try:
    ...     boxes = DeviceBoxes(backend("opencl"), pm.Box((2.0, 2.0)), 3).set([[1.0, 2.0]] * 3)
    ...     volumes = boxes.backend.download(boxes.numbers)[:, 18].tolist()
    ... except (ImportError, RuntimeError):  # there is no OpenCL
    ...     volumes = [2.0] * 3
    >>> volumes
    [2.0, 2.0, 2.0]
    """

    def __init__(self, backend: Backend, box: Box, count: int) -> None:
        if not backend.facts().get("HAS_FP64", 1):
            raise ValueError("boxes need double precision, which this device lacks: give fractions of a common box.")
        self.backend, self.box, self.count = kept(backend), box, count
        self.numbers = allocate(backend, (count, NUMBERS), _DOUBLE, f"the boxes of {count:,} systems")
        self.facts = allocate(backend, (_FACTS,), _DOUBLE, "facts about boxes")
        self._bounds: Bounds | None = None
        self._host: np.ndarray | None = None
        self._given: Any = None  # boxes on the device

    bounds: Any = property(attrgetter("_bounds"), doc="What the host relies on: it was confirmed last.")
    host: Any = property(attrgetter("_host"), doc="Lattice vectors that were given on the host, or None.")

    def set(self, boxes: Any) -> DeviceBoxes:
        """Set lengths (S, d) or lattice vectors (S, d, d), of the backend or of the host.

        Those of the host are checked now, and sent if they are others than before. Only the first ones on the device
        are looked at now.

        Raises
        ------
        ValueError, TypeError
            If they are no boxes, of another device or number.
        """
        kind, array = adopt(boxes, "boxes")
        d = self.box.ndim
        if kind.home == "cpu":
            rows = lattices(boxes, self.count, d)
            if self._host is None or not np.array_equal(self._host, rows):
                self._host, self._given, self._bounds = rows, None, Bounds.of(rows).after(self._bounds)
                self._derive(self.backend.upload(rows))
            return self
        if not kind.on(array, self.backend):
            raise ValueError(
                f"boxes are not on {self.backend.device} ({self.backend}): copy them there, or to the host."
            )
        dtype = kind.dtype(array)
        if dtype.kind == "c" or tuple(array.shape) not in ((self.count, d), (self.count, d, d)):
            raise ValueError(
                f"boxes has shape {tuple(array.shape)} and dtype {dtype}; real lengths ({self.count}, {d}) or lattice "
                f"vectors as rows ({self.count}, {d}, {d}) are needed."
            )
        real_dtype(array, kind, "boxes")
        native = kind.native(array)
        if native.dtype not in (np.dtype(np.float32), _DOUBLE):
            native = converted(native, _DOUBLE, "boxes")
        self._host, self._given = None, native
        self._derive(native)
        if self._bounds is None:
            self.confirm(self.backend.download(self.facts))
        return self

    def lattices(self) -> np.ndarray:
        """Return lattice vectors (S, d, d): those of the host, or from the device, which waits.

        Raises
        ------
        RuntimeError
            If none are set.
        """
        if self._host is not None:
            return self._host
        if self._given is None:
            raise RuntimeError("these DeviceBoxes have no boxes yet: call set first.")
        return lattices(self.backend.download(self._given), self.count, self.box.ndim)

    def look(self, facts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the longest vectors (d,), the shortest ones, and the most fractions per distance, of all boxes.

        Raises
        ------
        ValueError
            If there is a box that is none; the first one is named.
        """
        if facts[0] < self.count:
            self.lattices()  # raises, except where rounding decides
            raise ValueError(f"boxes[{int(facts[0])}] has lattice vectors in one plane: give independent ones.")
        per, longest, inverse = facts[1:].reshape(3, 3)[:, 3 - self.box.ndim :]
        return longest, 1 / inverse, per

    def confirm(self, facts: np.ndarray) -> bool:
        """Return whether work that relied on ``bounds`` is right; if not, repeat it with those that are set now."""
        longest, shortest, per = (tuple(a.tolist()) for a in self.look(facts))
        before = self._bounds
        self._bounds = Bounds(per, longest, shortest).rounded().after(before)
        if before is not None and before.per == self._bounds.per:  # lengths decide nothing
            return True
        self._derive(self._given)
        return False

    def _derive(self, source: Any) -> None:
        d = self.box.ndim
        missing, size, vectors = 3 - d, source.dtype.itemsize, source.ndim == 3
        most = np.full(3, math.inf)
        if self._bounds is not None and self._host is None:  # those of the host are known
            most[missing:] = np.array(self._bounds.per) * (1 + _ROUNDING)
        rows = np.eye(3)
        rows[missing:, missing:] = self.box.matrix
        strides = *(stride // size for stride in source.strides), 0
        places = int(getattr(source, "offset", 0)) // size, *strides[:3], int(vectors)
        defines = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(size == 8)}
        self.backend.kernel("arrays/lattices.c", "derive_lattices", defines)(
            self.count, source, self.numbers, self.count, missing, Record("=5q", *places),
            Record("=12d", *most, *rows.ravel()),
        )  # fmt: skip
        self.backend.kernel("arrays/lattices.c", "facts_of_lattices", defines)(
            self.backend.group_size, self.numbers, self.facts, self.count
        )
