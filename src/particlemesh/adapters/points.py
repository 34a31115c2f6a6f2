# SPDX-License-Identifier: BSD-3-Clause
"""Points in open or periodic boxes, searched around other points: what the searches of other packages share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import kind_of
from particlemesh.box import Box
from particlemesh.grid.neighbour_list import neighbour_list as search
from particlemesh.grid.uniform_grid import UniformGrid

_MOST_NEAREST = 128  # of UniformGrid.nearest
_POINTS_A_CELL = 2  # 10⁵ points, their 1 and 8 nearest ones: 1 to 4 are as fast (two cores)
_MOST_PAIRS = 2**24  # of a search on the host whose rows may see all points
_SMALLEST, _LARGEST = 1e-90, 1e100  # of lengths whose products of three float64 holds, thin boxes included
_NAMES = {"i": "i", "j": "j", "d": "distance", "S": "shift"}


class Points:
    """Points that are searched around other points, wherever these are.

    Parameters
    ----------
    x : array (N, d)
        The points, of 1 to 3 axes, in float32 or float64.
    lattice : (d, d) or (systems, d, d) ndarray
        Lattice vectors of the box as rows, or of the box of each system. Those of open axes have no effect.
    periodic : d bools
    system : int array (N,), optional
        The system of each point.
    systems : int, optional
    size : float
        The distance of the searches, if it is known.
    once : bool
        Whether a point counts once, at its nearest image; only NumPy's arrays in a box of other than right angles. By
        default all images count.

    Raises
    ------
    ValueError
        If a point is not finite, or float64 cannot hold the volume of the box; or if open axes of systems have
        different directions.
    """

    def __init__(
        self, x: Any, lattice: np.ndarray, periodic: tuple[bool, ...], *, system: Any = None,
        systems: int | None = None, size: float = 0.0, once: bool = False,
    ) -> None:  # fmt: skip
        self._made = lattice, periodic, systems, size, once
        self._x, self._system, self._once = x, system, once
        self._repeated = np.array(periodic, bool)
        self._ends = low, high = ends(x, "x")
        _held(lattice[..., self._repeated, :], low, high)
        self._rows = completed(lattice, periodic)
        first = self._rows.reshape(-1, *lattice.shape[-2:])[0]
        self._normals = first[~self._repeated]
        self._right = not np.count_nonzero(self._rows * (1 - np.eye(len(first))))
        heights = 1 / np.linalg.norm(np.linalg.inv(self._rows), axis=-2).reshape(-1, len(first))
        # Nearer than that, no point has two images.
        self._alone = float(heights[:, self._repeated].min(initial=math.inf)) * (0.5 - 1e-5)
        if not np.allclose(self._rows[..., ~self._repeated, :], self._normals, rtol=0, atol=1e-9):
            raise ValueError("the open axes of systems have different directions: search these systems one by one.")
        # More than is rounded in float32, and no box without a volume.
        slack = 1e-5 * (max(np.abs(low).max(), np.abs(high).max()) or 1.0)
        spans = np.abs(self._normals) @ (high - low) + slack
        boxes = self._rows.copy()
        boxes[..., ~self._repeated, :] *= spans[:, None]
        thickness = 1 / np.linalg.norm(np.linalg.inv(boxes), axis=-2)
        shape = _cells(thickness.reshape(-1, len(low)).mean(0), size, x.shape[0] / _POINTS_A_CELL / (systems or 1))
        # Outliers make the cells of all so large that neighbours are few among the points of a cell.
        self.coarse = bool(size and (thickness.reshape(-1, len(low)).mean(0) / shape > 2 * size).any())
        origin = (low + high) / 2 - spans @ self._normals / 2
        box = Box(boxes.reshape(-1, *first.shape)[0], origin, periodic=periodic)
        self._grid = UniformGrid(box, shape=shape, systems=systems, deterministic=True)
        each = None if systems is None else np.broadcast_to(boxes, (systems, *first.shape))
        self._grid.build(x, system=system, boxes=each)

    def within(self, y: Any, radius: float, letters: str, system: Any = None) -> dict[str, Any]:
        """Return the points within a distance of each of ``y`` as arrays by letter of "ijdS"; ``i`` ascends."""
        if self._once or not self._repeated.any():  # a radius may be any number that stands for all points
            radius = min(radius, self._reach(y, 1))
        several = bool(self._once and radius >= self._alone)
        asked = "".join(dict.fromkeys(letters + ("ijS" if self._right else "ijd") * several))
        pairs = self._grid.neighbours(y, radius, quantities=asked, system=system)
        arrays = {letter: getattr(pairs, _NAMES[letter]) for letter in asked}
        if several:
            keep = self._single(arrays, y, radius)
            arrays = {letter: array[keep] for letter, array in arrays.items()}
        return {letter: arrays[letter] for letter in letters}

    def _single(self, arrays: dict[str, Any], y: Any, radius: float) -> Any:
        """Return which pairs have the nearest image of a point; of images at one distance, a single one."""
        i, j, keep = arrays["i"], arrays["j"], True
        if not self._right:
            order = np.lexsort((arrays["d"], j, i))
            repeated = (np.diff(i[order], prepend=-1) == 0) & (np.diff(j[order], prepend=-1) == 0)
            return order[~repeated]
        for axis in np.flatnonzero(self._repeated).tolist():
            if 2 * radius >= self._rows[axis, axis] * (1 - 1e-5):
                turns = ((y[i, axis] - self._x[j, axis]) / float(self._rows[axis, axis])).round()
                keep = keep & (arrays["S"][:, axis] == turns)
        return keep

    def among(self, radius: float, letters: str) -> dict[str, Any]:
        """Return pairs of the points of one system with cells that hold points only, images of a point included."""
        box = Box(self._rows, periodic=tuple(self._repeated.tolist()))
        return dict(zip(letters, search(letters, self._x, box, radius), strict=True))

    def nearest(self, k: int, y: Any = None, radius: float = math.inf, system: Any = None) -> tuple[Any, Any]:
        """Return indices (M, k) and distances of the nearest points of ``y``, or of each point, itself not counted.

        They go by distance, then by index; -1 and infinity stand where there are no more. The host searches for k above
        128, and for points that count once and are half a box away.
        """
        queries, ids = (self._x, self._system) if y is None else (y, system)
        far = min(radius, self._reach(queries, k + 1))
        alone = min(far, self._alone) if self._once else far
        if k <= _MOST_NEAREST:
            indices, distances = self._grid.nearest(k, alone, y, system=system)
            if alone == far or not bool((indices < 0).any()):
                return indices, distances
        lattice, periodic, systems, size, once = self._made
        host = self if isinstance(self._x, np.ndarray) else Points(
            on_host(self._x), lattice, periodic, system=on_host(self._system), systems=systems, size=size, once=once
        )  # fmt: skip
        return as_kind(host._nearest(k, on_host(queries), far, on_host(ids), selves=y is None), queries)

    def _nearest(
        self, k: int, y: np.ndarray, far: float, system: Any, *, selves: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search within distances that grow for each row until it has k points, or nothing is farther away."""
        indices, distances = np.full((len(y), k), -1, np.int32), np.full((len(y), k), np.inf, y.dtype)
        count = max(1, self._x.shape[0])
        guess, waiting = np.full(len(y), far), np.ones(len(y), bool)
        if count > _MOST_NEAREST or (self._repeated.any() and not self._once):
            known = self._grid.nearest(_MOST_NEAREST, far / 2 if self._once else far, y, system=system)[1][:, -1]
            guess = np.minimum(far, known * 1.1 * (k / _MOST_NEAREST) ** (1 / y.shape[1]))
        while waiting.any():
            radius = min(far, 1.5 * float(guess[waiting].min()))
            rows = np.flatnonzero(waiting & (guess <= radius))[: max(1, _MOST_PAIRS // count)]
            near = self.within(y[rows], radius, "ijdS", None if system is None else system[rows])
            i, j, d = (near[letter] for letter in "ijd")
            if selves:
                other = (j != rows[i]) | near["S"].any(1)
                i, j, d = i[other], j[other], d[other]
            order = np.lexsort((j, d, i))
            i, j, d = i[order], j[order], d[order]
            counts = np.bincount(i, minlength=len(rows))
            column = np.arange(len(i)) - (np.cumsum(counts) - counts)[i]
            done = (counts >= k) | (radius >= far)
            keep = (column < k) & done[i]
            indices[rows[i[keep]], column[keep]], distances[rows[i[keep]], column[keep]] = j[keep], d[keep]
            waiting[rows[done]] = False
            guess[rows[~done]] = min(far, max(1.5 * radius, 1e-3 * far))
        return indices, distances

    def _reach(self, y: Any, k: int) -> float:
        """Return a distance within which each of ``y`` has all points, or k images of each."""
        low, high = ends(y, "the query")
        _held(low, high)
        spans = np.maximum(self._ends[1], high) - np.minimum(self._ends[0], low)
        count = int(self._repeated.sum())
        turns = 1 if self._once else math.ceil(k ** (1 / max(count, 1))) + 1
        lengths = np.linalg.norm(self._rows, axis=-1).reshape(-1, len(low)).max(0)[self._repeated]
        # With right angles a nearest image is half a box away at most; a bound of what is once is all that it needs.
        along = [*(np.abs(self._normals) @ spans), *(turns * lengths / (2 if self._once else 1))]
        right = (self._once and self._right) or not count
        return float(np.linalg.norm(along) if right else np.sum(along)) * (1 + 1e-5)


def completed(lattice: np.ndarray, periodic: tuple[bool, ...]) -> np.ndarray:
    """Return lattice vectors (..., d, d) whose rows of open axes are unit vectors normal to all others."""
    rows, flags = np.array(lattice, np.float64), np.array(periodic, bool)
    if flags.all():
        return rows
    normals = np.linalg.svd(rows[..., flags, :])[2][..., flags.sum() :, :] if flags.any() else np.eye(len(flags))
    largest = np.take_along_axis(normals, np.abs(normals).argmax(-1)[..., None], -1)
    rows[..., ~flags, :] = normals * np.sign(largest)  # one direction for all systems
    return rows


def systems_of(ids: Any, lattices: np.ndarray, flags: np.ndarray) -> dict[str, Any]:
    """Return arguments of a search: the system of each atom, and systems' lattice vectors and periodic axes (S, d)."""
    rows = np.empty(lattices.shape)
    for periodic in np.unique(flags, axis=0):
        members = (flags == periodic).all(1)
        rows[members] = completed(lattices[members], tuple(periodic.tolist()))
    if len(rows) == 1:  # cells of one system may be sparse
        return {"box": Box(rows[0], periodic=flags[0].tolist())}
    return {"box": (1.0, 1.0, 1.0), "system": ids, "boxes": rows, "periodic": flags}


def on_host(array: Any) -> Any:
    """Return the numbers of an array, or None, in the memory of the host; waits for them."""
    kind = kind_of(array)
    if array is None or kind is None:
        return array
    native, backend = kind.native(array), kind.backend(array)
    with kind.scope(array), backend.scope(native):
        return np.asarray(backend.download(native))


def as_kind(arrays: tuple[np.ndarray, ...], like: Any) -> tuple[Any, ...]:
    """Return NumPy arrays as the kind, and on the device, of another array."""
    kind = kind_of(like)
    assert kind is not None
    backend = kind.backend(like)
    with kind.scope(like), backend.scope(kind.native(like)):
        return tuple(kind.wrap(backend.upload(array)) for array in arrays)


def ends(x: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest coordinate along each axis; waits for the device."""
    axes = range(x.shape[1])
    if not x.shape[0]:
        return np.zeros(len(axes)), np.zeros(len(axes))
    low, high = (np.array([float(getattr(x[:, axis], end)()) for axis in axes]) for end in ("min", "max"))
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise ValueError(f"{what} has a coordinate that is NaN or infinite; all must be finite.")
    return low, high


def _held(*lengths: np.ndarray) -> None:
    """Check that float64 holds squares and volumes of lengths."""
    largest = max(float(np.abs(array).max(initial=0.0)) for array in lengths)
    if largest and not _SMALLEST <= largest <= _LARGEST:
        raise ValueError(
            f"coordinates or lattice vectors go up to {largest:g}; float64 holds volumes of lengths from {_SMALLEST:g} "
            f"to {_LARGEST:g}. Use another unit of length."
        )


def _cells(thickness: np.ndarray, size: float, most: float) -> tuple[int, ...]:
    """Return cells along axes of some thickness: not thinner than ``size``, and no more than ``most``."""
    size = max(size, float(thickness.max()) / max(most, 1.0))
    while True:
        shape = tuple(max(1, int(length / size)) for length in thickness)
        excess = math.prod(shape) / max(most, 1.0)
        if excess <= 1:
            return shape
        size *= max(excess ** (1 / len(shape)), 1.02)
