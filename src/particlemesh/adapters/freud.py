# SPDX-License-Identifier: BSD-3-Clause
"""Searches for neighbours with the arguments of freud's, whose results are freud's neighbour lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import library
from particlemesh.adapters.points import Points, completed

__all__ = ["AABBQuery", "LinkCell"]

_ARGUMENTS = ("mode", "r_max", "r_min", "num_neighbors", "exclude_ii", "r_guess", "scale")


class AABBQuery:
    """Points for searches, with the arguments and meaning of ``freud.locality.AABBQuery`` and ``LinkCell``.

    Parameters
    ----------
    box : freud.box.Box, or what it is made from
        Of two or three axes; its ``periodic`` says which repeat. A point counts once, at its nearest image.
    points : array_like (N, 3)
        In the box's unit, wherever they are, with z of 0 in a flat box. They are searched in float32, as in freud.
    cell_width : number, optional
        Of freud's ``LinkCell``; no effect.

    Attributes
    ----------
    box : freud.box.Box
    points : float32 array (N, 3)

    Raises
    ------
    ImportError
        If freud is not installed.
    ValueError, TypeError
        If an argument is not allowed, or a point is not finite.

    Examples
    --------
    >>> import freud
    >>> from particlemesh.adapters.freud import AABBQuery
    >>> box, points = freud.box.Box.cube(4.0), [[-1.9, 0.0, 0.0], [1.9, 0.0, 0.0], [0.0, 0.0, 0.0]]
    >>> made = AABBQuery(box, points).query(points, {"r_max": 1.0, "exclude_ii": True})
    >>> made.toNeighborList().distances.round(4)
    array([0.2, 0.2], dtype=float32)
    """

    def __init__(self, box: Any, points: Any, cell_width: Any = None) -> None:
        boxes = library("freud", "freud-analysis", "AABBQuery").box
        self.box = box if isinstance(box, boxes.Box) else boxes.Box.from_box(box)  # which makes all axes periodic
        self._axes = self.box.dimensions
        self._rows = np.array(self.box.to_matrix(), np.float64).T[: self._axes, : self._axes]
        self._flags = tuple(bool(flag) for flag in self.box.periodic[: self._axes])
        self.points = self._three(points, "points")
        self._search = Points(self.points[:, : self._axes].copy(), self._rows, self._flags, once=True)

    def query(self, query_points: Any, query_args: Mapping[str, Any]) -> Neighbours:
        """Return the neighbours of points.

        Parameters
        ----------
        query_points : array_like (M, 3) or (3,)
        query_args : dict
            ``r_max`` and ``r_min``: distances are below the first and not below the second. ``num_neighbors``: only
            so many of the nearest. ``exclude_ii``: whether pairs of one index are left out. ``mode``: "ball" or
            "nearest", which follows from the others. ``r_guess`` and ``scale`` have no effect.

        Returns
        -------
        Neighbours
            ``toNeighborList(sort_by_distance=False)`` returns a ``freud.locality.NeighborList``. It can be iterated:
            tuples of query point, point and distance.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed, or a point is not finite.
        """
        unknown = [name for name in query_args if name not in _ARGUMENTS]
        if unknown:
            raise ValueError(f"query_args has {unknown[0]!r}; allowed are {', '.join(_ARGUMENTS)}.")
        most, mode = query_args.get("num_neighbors"), query_args.get("mode")
        mode = ("ball" if most is None else "nearest") if mode in (None, "none") else mode
        common.one_of(mode, "mode", ("ball", "nearest"))
        if (mode == "ball") != (most is None) or (mode == "ball" and "r_max" not in query_args):
            raise ValueError(
                f"query_args is {dict(query_args)!r}; a ball needs r_max only, nearest need num_neighbors."
            )
        below, least = (np.float32(query_args.get(name, rest)) for name, rest in (("r_max", np.inf), ("r_min", 0)))
        if not 0 <= least < below:
            raise ValueError(f"r_max is {below}, r_min is {least}; 0 ≤ r_min < r_max is needed.")
        y = self._three(np.atleast_2d(query_points), "query_points")
        selves = not common.flag(query_args.get("exclude_ii", False), "exclude_ii")
        far = float(np.nextafter(below, np.float32(0))) if below < np.inf else math.inf
        if most is None:
            i, j, d = self._search.within(self._flat(y), far, "ijd").values()
        else:
            i, j, d = self._nearest(common.integer(most, "num_neighbors", 1, 2**31 - 1), y, far, float(least), selves)
        keep = (d >= least) & (selves | (i != j))
        return Neighbours(i[keep], j[keep], d[keep], self, y)

    def _nearest(
        self, most: int, y: np.ndarray, far: float, least: float, selves: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs of the nearest points of each of y that are not nearer than ``least``."""
        near = self._search.within(self._flat(y), float(least), "i")["i"] if least else np.zeros(0, np.int64)
        left = int(np.bincount(near).max(initial=0)) + (not selves)
        j, d = self._search.nearest(min(most + left, len(self.points)), self._flat(y), far)
        i = np.broadcast_to(np.arange(len(y))[:, None], j.shape)
        keep = (j >= 0) & (d >= least) & (selves | (i != j))
        keep &= np.cumsum(keep, 1) <= most
        return i[keep], j[keep], d[keep]

    def _three(self, points: Any, what: str) -> np.ndarray:
        array = np.asarray(points, np.float32)
        if array.shape[1:] != (3,) or array[:, self._axes :].any():
            raise ValueError(f"{what} have shape {array.shape}; (n, 3) is needed, with z of 0 in a flat box.")
        return array

    def _flat(self, y: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(y[:, : self._axes])

    def _vectors(self, i: np.ndarray, j: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the vectors from query points to the nearest images of points."""
        straight = self.points[j].astype(np.float64)[:, : self._axes] - y[i, : self._axes]
        rows = completed(self._rows, self._flags)
        turns = np.linalg.solve(rows.T, straight.T).T.round() * self._flags
        straight -= turns @ rows
        best, short = straight.copy(), (straight**2).sum(1)
        # The nearest image is no farther than the farthest of these: within so many cells of it, rounded.
        inverse = np.linalg.norm(np.linalg.inv(rows), axis=0)
        most = (math.sqrt(short.max(initial=0.0)) * inverse + 0.5).astype(int) * self._flags
        sides = [range(-n, n + 1) for n in most.tolist()]
        for turn in itertools.product(*sides):
            other = straight + np.array(turn) @ rows
            square = (other**2).sum(1)
            best, short = np.where((square < short)[:, None], other, best), np.minimum(square, short)
        return np.pad(best, ((0, 0), (0, 3 - self._axes)))


LinkCell = AABBQuery  # freud's other search, of the same arguments


class Neighbours:
    """The result of a query."""

    def __init__(self, i: np.ndarray, j: np.ndarray, d: np.ndarray, made: AABBQuery, y: np.ndarray) -> None:
        self._i, self._j, self._d, self._of, self._y = i, j, d, made, y

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        return zip(self._i.tolist(), self._j.tolist(), self._d.tolist(), strict=True)

    def toNeighborList(self, sort_by_distance: bool = False) -> Any:  # noqa: N802 - freud's name
        """Return a ``freud.locality.NeighborList``, for each query point by index, or by distance."""
        module = library("freud.locality", "freud-analysis", "toNeighborList")
        keys = (self._j, self._d, self._i) if sort_by_distance else (self._j, self._i)
        order = np.lexsort(keys)
        i, j = self._i[order], self._j[order]
        vectors = self._of._vectors(i, j, self._y).astype(np.float32)
        return module.NeighborList.from_arrays(len(self._y), len(self._of.points), i, j, vectors)
