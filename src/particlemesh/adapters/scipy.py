# SPDX-License-Identifier: BSD-3-Clause
"""Points in open or periodic boxes with the methods of SciPy's ``KDTree``, also on GPUs."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters.points import Points, as_kind, ends, on_host
from particlemesh.arrays.kinds import kind_of

__all__ = ["KDTree"]

_AT_ONCE = 4096  # rows of a list that is counted and dropped


class KDTree(common.Fixed):
    """Points for searches, with the arguments, results and meaning of ``scipy.spatial.KDTree``.

    Distances are Euclidean: p is 2 in all methods. Unlike SciPy's tree, only one thread at a time may use an object.

    Parameters
    ----------
    data : array_like (n, m)
        Points of 1 to 3 axes, in the user's length unit. NumPy arrays and lists are searched in float64, as in SciPy.
        Arrays of CuPy, torch and JAX keep their type, float32 or float64, and results are of their kind.
    leafsize, compact_nodes, copy_data, balanced_tree
        Of SciPy's tree; no effect here.
    boxsize : number or m numbers, optional
        Lengths along which the points repeat. A length of 0 is that of an open axis. Points must lie in [0, boxsize).
        Distances are those of the nearest images, so that each point counts once.

    Attributes
    ----------
    data : array (n, m)
        The points as they are searched.
    n, m : int
        Number of points and of axes.
    boxsize : ndarray (m,) or None
    mins, maxes : ndarray (m,)
        Least and largest coordinates.
    leafsize : int
        As given.

    Raises
    ------
    ValueError, TypeError
        If the points are not finite, not of 1 to 3 axes, or outside of a periodic box.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.scipy import KDTree
    >>> tree = KDTree([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]], boxsize=1.0)
    >>> tree.query([0.95, 0.5], k=2)
    (array([0.05, 0.15]), array([1, 0]))
    >>> tree.query_ball_point([0.0, 0.5], 0.2)
    [0, 1]
    >>> tree.query_pairs(0.25)
    {(0, 1)}
    """

    def __init__(
        self, data: Any, leafsize: int = 10, compact_nodes: bool = True, copy_data: bool = False,
        balanced_tree: bool = True, boxsize: Any = None,
    ) -> None:  # fmt: skip
        self.data = _numbers(data, "data")
        if self.data.ndim != 2 or not 1 <= self.data.shape[1] <= 3:
            raise ValueError(
                f"data has shape {tuple(self.data.shape)}; points (n, m) of 1 to 3 axes are searched. Use "
                "SciPy's KDTree."
            )
        self.n, self.m = map(int, self.data.shape)
        self.leafsize = leafsize
        self.mins, self.maxes = ends(self.data, "data")
        lengths = np.zeros(self.m)
        if boxsize is not None:
            lengths = np.broadcast_to(np.asarray(boxsize, np.float64), (self.m,)).copy()
        periodic = lengths > 0
        if not (np.isfinite(lengths) & (lengths >= 0)).all():
            raise ValueError(f"boxsize is {boxsize!r}; finite lengths are needed, 0 for an axis that does not repeat.")
        if self.n and (periodic & ((self.mins < 0) | (self.maxes >= lengths))).any():
            raise ValueError(f"data has points from {self.mins} to {self.maxes}; they must lie in [0, {lengths}).")
        self.boxsize = None if boxsize is None else lengths
        lattice = np.diag(np.where(periodic, lengths, 1.0))
        self._points = Points(self.data, lattice, tuple(periodic.tolist()), once=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), boxsize=self.boxsize), (self.data,)

    def query(
        self, x: Any, k: Any = 1, eps: float = 0.0, p: float = 2.0, distance_upper_bound: float = math.inf,
        workers: int = 1,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the nearest points.

        Parameters
        ----------
        x : array_like (..., m)
            Where to search, in the points' unit.
        k : int or sequence of int
            How many neighbours, or which: ``[2]`` is the second nearest. Above 128, and for neighbours half a box
            away, the host searches.
        eps : number
            Allowed error in SciPy; distances here are exact.
        p : {2}
        distance_upper_bound : number
            Only neighbours nearer than that are returned.
        workers : int
            Threads in SciPy; here they follow from the number of points.

        Returns
        -------
        d : array (..., k) or (...)
            Distances, ascending; infinity where there are no more. A single number for k of 1.
        i : int array like ``d``
            Indices of the points, the smaller one first at equal distances; n where there are no more. They are int64,
            those of JAX in its default integers.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed, or a point is not finite.
        """
        self._exact(eps, p)
        try:
            ranks = np.atleast_1d(np.asarray(k))
            if ranks.dtype.kind not in "iu" or ranks.ndim != 1 or not ranks.size or ranks.min() < 1:
                raise TypeError
        except TypeError:
            raise ValueError(f"k is {k!r}; k must be an integer or a sequence of integers of at least 1.") from None
        most = common.integer(ranks[0] if np.ndim(k) == 0 else ranks.max(), "k", 1, 2**31 - 1)
        if not distance_upper_bound >= 0:
            raise ValueError(f"distance_upper_bound is {distance_upper_bound}; a number of at least zero is needed.")
        y, shape = self._queries(x)
        real = _type(y)
        if distance_upper_bound:
            below = np.nextafter(real.type(distance_upper_bound), real.type(0), dtype=real)
            i, d = self._points.nearest(most, y, float(below) if math.isfinite(distance_upper_bound) else math.inf)
        else:
            absent = np.full((y.shape[0], most), -1, np.int32), np.full((y.shape[0], most), np.inf, real)
            i, d = as_kind(absent, y)
        i = i + (i < 0) * (self.n + 1)
        if np.ndim(k):
            (columns,) = as_kind((ranks.astype(np.int64) - 1,), y)
            return d[:, columns].reshape(*shape, len(ranks)), i[:, columns].reshape(*shape, len(ranks))
        if most > 1:
            return d.reshape(*shape, most), i.reshape(*shape, most)
        return (d.reshape(shape), i.reshape(shape)) if shape else (d[0, 0], i[0, 0])

    def query_ball_point(
        self, x: Any, r: Any, p: float = 2.0, eps: float = 0.0, workers: int = 1, return_sorted: bool | None = None,
        return_length: bool = False,
    ) -> Any:  # fmt: skip
        """Return the points within a distance of each of some points.

        Parameters
        ----------
        x : array_like (..., m)
        r : number or array_like (...)
            Points with distance ≤ r. One for each point of ``x``, or one for all.
        p, eps, workers
            As for :meth:`query`.
        return_sorted : bool, optional
            Whether indices ascend; by default those of several points do.
        return_length : bool
            Whether to return only how many there are.

        Returns
        -------
        list of int, object array (...) of lists, or int array (...)
            Lists are on the host. Numbers of points are of the kind of the data.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed, or a point is not finite.
        """
        self._exact(eps, p)
        common.flag(return_length, "return_length")
        y, shape = self._queries(x)
        radii = _radii(r)
        try:
            each = np.broadcast_to(radii, shape).reshape(-1)
        except ValueError:
            raise ValueError(f"r has shape {radii.shape}; a number, or one for each of {shape} is needed.") from None
        near = self._points.within(y, float(radii.max(initial=0.0)), "ijd")
        i, j, d = (on_host(near[letter]) for letter in "ijd")
        if radii.ndim:
            keep = d <= each.astype(d.dtype)[i]
            i, j = i[keep], j[keep]
        if return_length:
            (counts,) = as_kind((np.bincount(i, minlength=y.shape[0]).reshape(shape),), y)
            return counts if shape else int(counts)
        ascending = bool(shape) if return_sorted is None else common.flag(return_sorted, "return_sorted")
        lists = _lists(i, j, y.shape[0], ascending=ascending)
        if not shape:
            return lists[0]
        result = np.empty(len(lists), object)
        result[:] = lists
        return result.reshape(shape)

    def query_ball_tree(self, other: KDTree, r: float, p: float = 2.0, eps: float = 0.0) -> list[list[int]]:
        """Return the points of another tree within a distance of each point of this one, as ascending lists.

        Parameters
        ----------
        other : KDTree
            Of the same kind of arrays, with the same ``boxsize``.
        r : number
            Pairs with distance ≤ r.
        p, eps
            As for :meth:`query`.
        """
        near = self._pairs(other, r, p, eps, "ij")
        return _lists(on_host(near["i"]), on_host(near["j"]), self.n, ascending=True)

    def query_pairs(self, r: float, p: float = 2.0, eps: float = 0.0, output_type: str = "set") -> Any:
        """Return the pairs of points within a distance, each once, with the smaller index first.

        Parameters
        ----------
        r : number
            Pairs with distance ≤ r.
        p, eps
            As for :meth:`query`.
        output_type : {"set", "ndarray"}
            A set of tuples, or an array (P, 2) of the kind of the data.
        """
        common.one_of(output_type, "output_type", ("set", "ndarray"))
        near = self._pairs(self, r, p, eps, "ij")
        once = near["i"] < near["j"]
        i, j = near["i"][once], near["j"][once]
        if output_type == "set":
            return set(zip(on_host(i).tolist(), on_host(j).tolist(), strict=True))
        library: Any = i.__array_namespace__() if hasattr(i, "__array_namespace__") else sys.modules["torch"]
        pairs = library.stack([i, j], -1)
        return pairs.long() if hasattr(pairs, "long") else pairs.astype(int)

    def count_neighbors(
        self, other: KDTree, r: Any, p: float = 2.0, weights: Any = None, cumulative: bool = True
    ) -> Any:
        """Return how many pairs of a point of this tree and one of another are within each of some distances.

        Parameters
        ----------
        other : KDTree
            May be this tree: then each pair counts twice, and each point is a pair with itself.
        r : number or array_like (R,)
            Pairs with distance ≤ r.
        p
            As for :meth:`query`.
        weights : array_like (n,), or tuple of two of them or None, optional
            Weights of the points of both trees, whose products are added up; a single array only for one tree.
        cumulative : bool
            If False, pairs that are farther apart than one r and not farther than the next; r must not fall.

        Returns
        -------
        number or ndarray (R,)
            On the host: int64, or float64 with weights.
        """
        common.flag(cumulative, "cumulative")
        radii = _radii(r)
        edges = radii.reshape(-1)
        if radii.ndim > 1 or (not cumulative and (np.diff(edges) < 0).any()):
            raise ValueError(f"r is {r!r}; a number or one axis is needed, which does not fall if cumulative is False.")
        if weights is not None and not isinstance(weights, tuple) and other is not self:
            raise ValueError("weights is one array for two trees; give a tuple of two.")
        pair = weights if isinstance(weights, tuple) else (weights, weights)
        one, two = (_weights(w, tree.n) for w, tree in zip(pair, (self, other), strict=True))
        order = np.sort(edges)
        bins = np.zeros(len(order) + 1)
        for first in range(0, self.n if len(order) else 0, _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            near = self._pairs(other, order[-1], p, 0.0, "ijd", rows)
            i, j, d = (on_host(near[letter]) for letter in "ijd")
            product = None if weights is None else one[rows][i] * two[j]
            bins += np.bincount(np.searchsorted(order.astype(d.dtype), d), product, len(bins))
        totals = np.cumsum(bins[:-1])[np.searchsorted(order, edges, "right") - 1]
        if not cumulative:
            totals = np.diff(totals, prepend=0)
        totals = totals if weights is not None else np.rint(totals).astype(np.int64)
        return totals if radii.ndim else totals[0]

    def sparse_distance_matrix(
        self, other: KDTree, max_distance: float, p: float = 2.0, output_type: str = "dok_matrix"
    ) -> Any:
        """Return the distances between points of this tree and of another, up to a distance.

        Parameters
        ----------
        other : KDTree
        max_distance : number
        p
            As for :meth:`query`.
        output_type : {"dok_matrix", "coo_matrix", "dict", "ndarray"}
            Matrices of SciPy (n, other.n), a dict of pairs, or records ``i``, ``j``, ``v``; all on the host.
        """
        common.one_of(output_type, "output_type", ("dok_matrix", "coo_matrix", "dict", "ndarray"))
        near = self._pairs(other, max_distance, p, 0.0, "ijd")
        i, j, d = (on_host(near[letter]) for letter in "ijd")
        if output_type == "dict":
            return dict(zip(zip(i.tolist(), j.tolist(), strict=True), d.tolist(), strict=True))
        if output_type == "ndarray":
            records = np.empty(len(i), np.dtype([("i", np.intp), ("j", np.intp), ("v", np.float64)], align=True))
            records["i"], records["j"], records["v"] = i, j, d
            return records
        from scipy.sparse import coo_matrix

        matrix = coo_matrix((d.astype(np.float64), (i, j)), (self.n, other.n))
        return matrix if output_type == "coo_matrix" else matrix.todok()

    def _pairs(
        self, other: KDTree, r: Any, p: Any, eps: Any, letters: str, rows: slice = slice(None)
    ) -> dict[str, Any]:
        """Return pairs of a point of this tree and one of another."""
        self._exact(eps, p)
        if not isinstance(other, KDTree):
            raise TypeError(f"other is of type {type(other).__name__}; a particlemesh.adapters.scipy.KDTree is needed.")
        if kind_of(other.data) is not kind_of(self.data):
            raise TypeError("the trees have data of different kinds: give both in one kind.")
        one, two = (np.zeros(self.m) if tree.boxsize is None else tree.boxsize for tree in (self, other))
        if not np.array_equal(one, two):
            raise ValueError(
                f"the trees have the boxes {self.boxsize} and {other.boxsize}; give both the same boxsize."
            )
        radius = _radii(r)
        if radius.ndim:
            raise ValueError(f"r has shape {radius.shape}; one number is needed.")
        return other._points.within(self.data[rows], float(radius), letters)

    def _exact(self, eps: Any, p: Any) -> None:
        common.at_least_zero(eps, "eps")
        if p != 2:
            raise ValueError(f"p is {p}; only Euclidean distances are searched, p=2. Use SciPy's KDTree.")

    def _queries(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """Return points (N, m), and the shape of results."""
        kind, y = kind_of(self.data), _numbers(x, "x")
        assert kind is not None
        if isinstance(x, (list, tuple)) and kind.name != "NumPy":
            (y,) = as_kind((y.astype(_type(self.data)),), self.data)
        if (other := kind_of(y)) is not kind:
            raise TypeError(f"x is of {other and other.name}, and the data of {kind.name}: give both in one kind.")
        if not y.ndim or y.shape[-1] != self.m:
            raise ValueError(f"x has shape {tuple(y.shape)}; points in {self.m}-D are needed: (..., {self.m}).")
        shape = tuple(map(int, y.shape[:-1]))
        return y.reshape(math.prod(shape), self.m), shape


def _numbers(array: Any, what: str) -> Any:
    """Return an array that is searched: NumPy's in float64, reals of others as they are."""
    kind = kind_of(array)
    if kind is not None and kind.name != "NumPy":
        if kind.home == "opencl":
            raise TypeError(f"{what} is a {kind.name} array; give one of NumPy, CuPy, torch or JAX.")
        array = array.detach() if hasattr(array, "detach") else array
        if kind.dtype(array).kind in "iub":
            return array.double() if hasattr(array, "double") else array.astype(float)
        return array
    array = np.asarray(common.unmasked(array))
    if array.dtype.kind == "c":
        raise TypeError(f"{what} has dtype {array.dtype}; KDTree does not work with complex data.")
    return np.ascontiguousarray(array, np.float64)


def _type(array: Any) -> np.dtype[Any]:
    kind = kind_of(array)
    assert kind is not None
    return kind.dtype(array)


def _radii(r: Any) -> np.ndarray:
    radii = np.asarray(on_host(r), np.float64)
    if not (radii >= 0).all():
        raise ValueError(f"r is {r!r}; distances of at least zero are needed.")
    return radii


def _weights(weights: Any, count: int) -> np.ndarray:
    array = np.ones(count) if weights is None else np.asarray(on_host(weights), np.float64)
    if array.shape != (count,):
        raise ValueError(f"weights have shape {array.shape}; one for each point is needed: ({count},).")
    return array


def _lists(i: np.ndarray, j: np.ndarray, rows: int, *, ascending: bool) -> list[list[int]]:
    """Return the second numbers of pairs as a list for each first one."""
    j = j[np.lexsort((j, i))] if ascending else j
    ends = np.cumsum(np.bincount(i, minlength=rows)).tolist()
    flat = j.tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
