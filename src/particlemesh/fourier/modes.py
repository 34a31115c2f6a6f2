# SPDX-License-Identifier: BSD-3-Clause
"""The wave vectors of a mesh's transform."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh.backends.cpu import available_threads
from particlemesh.fourier.bands import mode_numbers
from particlemesh.fourier.engines import good_size
from particlemesh.mesh import Mesh, mesh_of
from particlemesh.window import Window, window_of

Array = NDArray[np.float64]

_PART = 1 << 17  # modes whose numbers stay in a cache
_WHOLE = (slice(None),) * 3


def with_ghosts(mesh: Mesh, window: Window | str) -> Mesh:
    """Return a mesh with ghosts on open axes, which keep what spreads beyond the box."""
    if any(map(any, mesh_of(mesh).ghosts)):
        raise ValueError("the mesh has ghosts; give a mesh without: open axes get what they need.")
    reach = window_of(window).support // 2 + 1
    return Mesh(mesh.shape, mesh.box, offset=mesh.offset, ghosts=[0 if p else reach for p in mesh.periodic])


class Modes:
    """Mode numbers and wave vectors of a field's transform. Open axes are padded with zeros.

    Parameters
    ----------
    mesh : Mesh
        Its fields have ``mesh.field_shape``. Periodic axes have no ghosts.
    real : bool
        The last axis has the modes of ``rfftn``.
    part : sequence of (int, int), optional
        Range of the modes along each axis, such as those of one rank; by default all.
    margin : int
        Further nodes on each side of open axes: see :class:`particlemesh.fourier.Solver`.

    Attributes
    ----------
    shape : tuple of int
        Nodes per axis of the transform. These are the field's, and along open axes at least twice as many, so that a
        convolution does not wrap around.
    padded : bool
        Whether these are more nodes than a field has.
    """

    def __init__(
        self, mesh: Mesh, real: bool, part: Sequence[tuple[int, int]] | None = None, margin: int = 0
    ) -> None:  # fmt: skip
        for axis, widths in enumerate(mesh.ghosts):
            if mesh.periodic[axis] and any(widths):
                raise ValueError(
                    f"axis {axis} is periodic and has ghosts {widths}; a transform needs this axis without: call "
                    "fold_ghosts, and give the transform the mesh without ghosts."
                )
        self.mesh, self.real, self.margin = mesh, real, margin
        self.shape = tuple(
            n if periodic else good_size(2 * (n + margin))
            for n, periodic in zip(mesh.field_shape, mesh.periodic, strict=True)
        )
        self.padded = self.shape != mesh.field_shape
        last = len(self.shape) - 1
        self.half = tuple(real and axis == last for axis in range(len(self.shape)))
        whole = [n // 2 + 1 if h else n for n, h in zip(self.shape, self.half, strict=True)]
        self.part = tuple((0, n) for n in whole) if part is None else tuple(part)
        self.spectrum_shape = tuple(stop - start for start, stop in self.part)
        # Row a: the reciprocal lattice vector of axis a, of the padded box.
        scale = np.array(mesh.intervals) / np.array(self.shape)
        self.rows = 2 * np.pi * mesh.box.inverse * scale[:, None]

    def numbers(self, axis: int, sign: int = 1) -> Array:
        """Return the mode numbers of an axis, the highest of an even one times ``sign``."""
        n = self.shape[axis]
        numbers = mode_numbers(n, half=self.half[axis]).astype(np.float64)
        if n % 2 == 0:
            numbers[n // 2] *= sign
        return numbers[slice(*self.part[axis])]

    def along(self, axis: int, values: Any) -> Any:
        """Return values of an axis's modes so that they broadcast against those of other axes."""
        return values.reshape([-1 if a == axis else 1 for a in range(len(self.shape))])

    def signs(self, axes: Iterable[int]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Yield signs of the highest modes, one per axis, and the modes to which this combination of signs is new.

        The highest mode of each even axis is ``+k`` and ``-k``. A mean over these combinations, with the weights
        :meth:`share`, does not depend on the order and direction of axes. Axes other than ``axes`` keep 1.
        """
        even = [a for a in axes if self.shape[a] % 2 == 0]
        for flipped in itertools.chain.from_iterable(itertools.combinations(even, m) for m in range(len(even) + 1)):
            region = [slice(None)] * len(self.shape)
            for a in flipped:
                at, (start, stop) = self.shape[a] // 2, self.part[a]
                region[a] = slice(at - start, at - start + 1) if start <= at < stop else slice(0)
            yield tuple(-1 if a in flipped else 1 for a in range(len(self.shape))), tuple(region)

    def in_parts(self, axes: Iterable[int], write: Callable[[tuple[int, ...], tuple[slice, ...]], None]) -> None:
        """Call ``write`` with what `signs` yields, in parts that fit a cache, from several threads for one sign."""
        for signs, (first, *others) in self.signs(axes):
            rows, *more = (range(n)[along] for n, along in zip(self.spectrum_shape, (first, *others), strict=True))
            step = max(1, _PART // max(1, math.prod(map(len, more))))
            parts = [(slice(r, min(r + step, rows.stop)), *others) for r in range(rows.start, rows.stop, step)]
            with ThreadPoolExecutor(available_threads()) if len(parts) > 1 else contextlib.nullcontext() as pool:
                list((pool.map if pool else map)(functools.partial(write, signs), parts))

    def share(self, axes: Iterable[int]) -> Array:
        """Return the weight of each of a mode's signs, which broadcasts: a half for each highest mode."""
        halves = (self.along(a, np.where(2 * abs(self.numbers(a)) == self.shape[a], 0.5, 1.0)) for a in axes)
        return np.asarray(math.prod(halves, start=np.ones((1,) * len(self.shape))))

    @property
    def has_zero(self) -> bool:
        """Whether k = 0 is one of the modes, the first."""
        return all(start == 0 < stop for start, stop in self.part)

    @property
    def oblique(self) -> list[int]:
        """Axes whose signs change ``k**2``."""
        products = self.rows @ self.rows.T
        return np.flatnonzero((products - np.diag(np.diag(products))).any(1)).tolist()

    def vectors(self, signs: Sequence[int] = (1, 1, 1), region: Sequence[slice] = _WHOLE) -> tuple[Array, ...]:
        """Return the Cartesian components of k, which broadcast. For ``signs``, one per axis, see :meth:`numbers`."""
        ndim = len(self.shape)
        numbers = [self.along(a, self.numbers(a, signs[a])[region[a]]) for a in range(ndim)]
        components = []
        for b in range(ndim):
            terms = [self.rows[a, b] * numbers[a] for a in range(ndim) if self.rows[a, b]]
            components.append(np.asarray(sum(terms[1:], start=terms[0])))
        return tuple(components)

    @property
    def slopes(self) -> tuple[Array, ...]:
        """Components of k, for derivatives by ik: a highest mode has no slope along its axis."""
        return self.vectors((0, 0, 0))

    def squares(self, signs: Sequence[int] = (1, 1, 1), region: Sequence[slice] = _WHOLE) -> Array:
        """Return k**2 of modes, by default of all."""
        total = np.zeros([len(range(n)[piece]) for n, piece in zip(self.spectrum_shape, region, strict=False)])
        for component in self.vectors(signs, region):
            total += component**2
        return total

    @cached_property
    def k2(self) -> Array:
        """k**2, shape ``spectrum_shape``, read-only."""
        k2 = self.squares()
        k2.setflags(write=False)
        return k2

    def phases(self) -> list[NDArray[Any]] | None:
        """Return for each axis ``exp(-i k x_0)`` of the position of the field's first node, or None if all are 1."""
        first = [offset - lower for offset, (lower, _) in zip(self.mesh.offset, self.mesh.ghosts, strict=True)]
        if not any(first):
            return None
        return [
            np.exp(-2j * np.pi * np.fmod(self.numbers(a) * first[a], n) / n) for a, n in enumerate(self.shape)
        ]  # the origin of phases is the corner of the box
