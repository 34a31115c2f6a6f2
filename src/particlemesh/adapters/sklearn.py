# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours of samples with the methods of scikit-learn's ``NearestNeighbors``, also in periodic boxes and on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters.points import on_host
from particlemesh.adapters.scipy import KDTree

__all__ = ["NearestNeighbors"]

_ALGORITHMS = ("auto", "ball_tree", "kd_tree", "brute")
_MODES = ("connectivity", "distance")


class NearestNeighbors(common.Fixed):
    """Samples for searches, with the arguments, results and meaning of ``sklearn.neighbors.NearestNeighbors``.

    Parameters
    ----------
    n_neighbors : int
        How many neighbours, if a method is not told.
    radius : number
        Within which distance, if a method is not told, in the samples' unit.
    algorithm, leaf_size, n_jobs
        Of scikit-learn; no effect here.
    metric : {"minkowski", "euclidean"}
        Distances are Euclidean.
    p : {2}
    metric_params : None
    boxsize : number or d numbers, optional
        Lengths along which the samples repeat, as for :class:`particlemesh.adapters.scipy.KDTree`.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.adapters.sklearn import NearestNeighbors
    >>> samples = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> neighbours = NearestNeighbors(n_neighbors=1).fit(samples)
    >>> distances, indices = neighbours.kneighbors([[0.0, 0.8]])
    >>> distances.round(3), indices
    (array([[0.2]]), array([[1]]))
    >>> neighbours.radius_neighbors_graph(radius=1.5).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 0.]])
    """

    def __init__(
        self, *, n_neighbors: int = 5, radius: float = 1.0, algorithm: str = "auto", leaf_size: int = 30,
        metric: str = "minkowski", p: float = 2, metric_params: None = None, n_jobs: int | None = None,
        boxsize: Any = None,
    ) -> None:  # fmt: skip
        common.one_of(algorithm, "algorithm", _ALGORITHMS)
        common.one_of(metric, "metric", ("minkowski", "euclidean"))
        if p != 2 or metric_params is not None:
            raise ValueError(f"p is {p} and metric_params {metric_params}; only Euclidean distances are searched, p=2.")
        self.n_neighbors = common.integer(n_neighbors, "n_neighbors", 1, 2**31 - 1)
        self.radius = common.at_least_zero(radius, "radius")
        self.algorithm, self.leaf_size, self.metric, self.p = algorithm, leaf_size, metric, p
        self.metric_params, self.n_jobs, self.boxsize = metric_params, n_jobs, boxsize
        self._tree: KDTree | None = None

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:  # noqa: N803 - scikit-learn's name
        """Take the samples that are searched from now on.

        Parameters
        ----------
        X : array_like (n, d)
            At least one sample, of 1 to 3 features. NumPy arrays are searched in float64. Others keep their type, and
            :meth:`kneighbors` returns their kind.
        y
            Ignored, as in scikit-learn.

        Returns
        -------
        NearestNeighbors
            This object.

        Raises
        ------
        ValueError, TypeError
            As for :class:`particlemesh.adapters.scipy.KDTree`.
        """
        tree = KDTree(X, boxsize=self.boxsize)
        if not tree.n:
            raise ValueError(f"X has shape {tuple(tree.data.shape)}; at least one sample is needed.")
        self._tree = tree
        return self

    @property
    def n_samples_fit_(self) -> int:
        """Number of samples."""
        return self._fitted().n

    @property
    def n_features_in_(self) -> int:
        """Number of features, which are axes here."""
        return self._fitted().m

    def kneighbors(
        self,
        X: Any = None,  # noqa: N803
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Any:
        """Return the nearest samples.

        Parameters
        ----------
        X : array_like (m, d), optional
            Where to search; by default at the samples, which are then no neighbours of themselves.
        n_neighbors : int, optional
        return_distance : bool

        Returns
        -------
        distances : array (m, n_neighbors)
            Ascending; with ``return_distance``.
        indices : int array (m, n_neighbors)
            Of equal distances the smaller index comes first.

        Raises
        ------
        ValueError, TypeError
            If there are fewer samples, or an argument is not allowed.
        """
        tree, k = self._fitted(), self.n_neighbors if n_neighbors is None else n_neighbors
        common.flag(return_distance, "return_distance")
        k = common.integer(k, "n_neighbors", 1, 2**31 - 1)
        most = tree.n - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors is {k}; {most} samples can be neighbours: give fewer.")
        if X is None:
            indices, distances = tree._points.nearest(k)
            indices = indices + (indices < 0) * (tree.n + 1)
        else:
            distances, indices = tree.query(X, [*range(1, k + 1)])
        return (distances, indices) if return_distance else indices

    def radius_neighbors(
        self,
        X: Any = None,  # noqa: N803
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> Any:
        """Return the samples within a distance, as arrays of several lengths.

        Parameters
        ----------
        X : array_like (m, d), optional
            As for :meth:`kneighbors`.
        radius : number, optional
            Samples with distance ≤ radius.
        return_distance : bool
        sort_results : bool
            Whether the nearest come first; otherwise indices ascend.

        Returns
        -------
        distances : object array (m,) of float arrays
            With ``return_distance``.
        indices : object array (m,) of int64 arrays
            Both on the host.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed.
        """
        if common.flag(sort_results, "sort_results") and not common.flag(return_distance, "return_distance"):
            raise ValueError("sort_results is True and return_distance False: ask for distances, too.")
        starts, indices, distances = self._within(X, radius, sort_results)
        pieces = [_objects(np.split(array, starts[1:])[:-1]) for array in (distances, indices)]
        return (pieces[0], pieces[1]) if return_distance else pieces[1]

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:  # noqa: N803
        """Return the nearest samples as a sparse matrix.

        Parameters
        ----------
        X, n_neighbors
            As for :meth:`kneighbors`.
        mode : {"connectivity", "distance"}
            Whether entries are ones or distances.

        Returns
        -------
        scipy.sparse.csr_matrix (m, n)
            On the host.
        """
        common.one_of(mode, "mode", _MODES)
        distances, indices = map(on_host, self.kneighbors(X, n_neighbors))
        rows, k = indices.shape
        return self._graph(np.arange(0, rows * k + 1, k), indices.reshape(-1), distances.reshape(-1), mode)

    def radius_neighbors_graph(
        self,
        X: Any = None,  # noqa: N803
        radius: float | None = None,
        mode: str = "connectivity",
        sort_results: bool = False,
    ) -> Any:
        """Return the samples within a distance as a sparse matrix.

        Parameters
        ----------
        X, radius
            As for :meth:`radius_neighbors`.
        mode
            As for :meth:`kneighbors_graph`.
        sort_results : bool
            Whether entries of a row are sorted by distance; otherwise by column.

        Returns
        -------
        scipy.sparse.csr_matrix (m, n)
            On the host.
        """
        common.one_of(mode, "mode", _MODES)
        return self._graph(*self._within(X, radius, common.flag(sort_results, "sort_results")), mode)

    def _fitted(self) -> KDTree:
        if self._tree is None:
            raise ValueError("there are no samples yet: call fit first.")
        return self._tree

    def _within(self, X: Any, radius: Any, nearest_first: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # noqa: N803
        """Return where each row starts, indices and distances."""
        tree = self._fitted()
        radius = self.radius if radius is None else common.at_least_zero(radius, "radius")
        y = tree.data if X is None else tree._queries(X)[0]
        near = tree._points.within(y, radius, "ijd")
        i, j, d = (on_host(near[letter]) for letter in "ijd")
        if X is None:
            other = i != j
            i, j, d = i[other], j[other], d[other]
        order = np.lexsort((j, d, i) if nearest_first else (j, i))
        starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=y.shape[0]))])
        return starts, j[order].astype(np.int64), d[order]

    def _graph(self, starts: np.ndarray, indices: np.ndarray, distances: np.ndarray, mode: str) -> Any:
        from scipy.sparse import csr_matrix

        entries = np.ones(len(indices)) if mode == "connectivity" else distances
        return csr_matrix((entries, indices, starts), (len(starts) - 1, self._fitted().n))


def _objects(arrays: list[np.ndarray]) -> np.ndarray:
    result = np.empty(len(arrays), object)
    result[:] = arrays
    return result
