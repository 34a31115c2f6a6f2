# SPDX-License-Identifier: BSD-3-Clause
"""The square root of a symmetric operator times vectors, by a block Krylov space."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_ITERATIONS = 200
_BLOCK = 64  # vectors that share a space: more take longer on the host than they save


class Alone:
    """What a square root asks of all ranks that have parts of its vectors; here one has them all."""

    def allreduce(self, sums: Any) -> Any:
        """Return sums over all ranks."""
        return sums

    def allgather(self, thing: Any) -> list[Any]:
        """Return an object of each rank."""
        return [thing]


@dataclass(frozen=True)
class RootInfo:
    """What a square root took.

    Attributes
    ----------
    method : str
        "lanczos" or "split".
    iterations : int
        Products of the operator with a block of vectors.
    estimate : float
        Norm of the last iteration's change over the norm of the result; the largest of all vectors.
    """

    method: str
    iterations: int
    estimate: float


def square_root(
    product: Callable[[Any], Any], z: Any, tolerance: float, xp: Any, *, method: str = "lanczos", least: float = 0.0,
    ranks: Any = None, exact: bool = False,
) -> tuple[Any, RootInfo]:  # fmt: skip
    """Return the principal square root of an operator times vectors.

    The vectors share one Krylov space, so that b of them converge in fewer iterations than one [chow2014]_. Each
    iteration multiplies by a block. The basis is orthogonalised against all of itself, twice. The operator projected on
    it is small; its root is taken on the host.

    Parameters
    ----------
    product : callable
        Vectors (b, n) to products (b, n).
    z : array (b, n)
        Real.
    tolerance : float
        Iterations end when the result changes by less, relative to its norm, for each vector.
    xp : module
        The library of the arrays: NumPy or CuPy.
    method : str
        Name for the report.
    least : float
        Negative eigenvalues up to this share of the largest count as rounding.
    ranks : particlemesh.distributed.World, optional
        If given, vectors are this rank's parts of longer ones, and all ranks call.
    exact : bool
        The same bits on any number of ranks: sums over all ranks are exact, which takes longer.

    Returns
    -------
    y : array (b, n)
    info : RootInfo

    Raises
    ------
    ValueError
        If the operator is not positive.

    Examples
    --------
    >>> matrix = np.diag(np.linspace(1.0, 9.0, 50))
    >>> y, info = square_root(lambda v: v @ matrix, np.ones((1, 50)), 1e-10, np)
    >>> bool(np.allclose(y**2, np.diag(matrix))), info.iterations < 30
    (True, True)
    """
    if len(z) > _BLOCK:
        groups = [slice(i, i + _BLOCK) for i in range(0, len(z), _BLOCK)]
        roots = [
            square_root(product, z[g], tolerance, xp, method=method, least=least, ranks=ranks, exact=exact)
            for g in groups
        ]
        infos = [info for _, info in roots]
        worst = max(info.estimate for info in infos)
        return xp.concatenate([y for y, _ in roots]), RootInfo(method, sum(i.iterations for i in infos), worst)
    ranks = Alone() if ranks is None else ranks
    sums = (Exact if exact else Sums)(ranks, xp)
    length, some = (int(n) for n in ranks.allreduce(np.array([z.shape[1], bool((z != 0).any())], np.int64)))
    if not some:
        return xp.zeros_like(z), RootInfo(method, 0, 0.0)
    basis = sums.orthonormal(z, 0.0)
    right = _host(sums.overlap(basis, z))  # coordinates of z, (m, b); those of later vectors are 0
    projected = np.zeros((0, 0))
    old = np.zeros((0, right.shape[1]))
    image, estimate, iterations = product(basis), 1.0, 0
    while True:
        iterations += 1
        known = len(projected)
        overlap = sums.overlap(basis, image)
        image = image - sums.combined(overlap.T, basis)
        again = sums.overlap(basis, image)
        image = image - sums.combined(again.T, basis)
        grown = np.zeros((len(basis), len(basis)))
        grown[:known, :known] = projected
        grown[:, known:] = _host(overlap + again)
        size = float(np.linalg.norm(grown[:, known:], axis=0).max())  # of the part in the basis
        grown[known:, :known] = grown[:known, known:].T
        projected = (grown + grown.T) / 2
        block = sums.orthonormal(image, size)
        full = iterations >= MOST_ITERATIONS or len(basis) + len(block) > length
        # A GPU has the next product while the host takes this root; on the CPU the last one would be in vain.
        ahead = product(block) if xp is not np and len(block) and not full else None
        new = ranks.allgather(_root(projected, least))[0] @ np.pad(right, ((0, len(basis) - len(right)), (0, 0)))
        change = new - np.pad(old, ((0, len(new) - len(old)), (0, 0)))
        norms = np.linalg.norm(new, axis=0)
        estimate = float((np.linalg.norm(change, axis=0) / np.where(norms > 0, norms, 1)).max())
        old = new
        if not len(block):  # the space is invariant: the root is exact
            estimate = min(estimate, float(np.finfo(z.dtype).eps))
        if estimate <= tolerance or not len(block):
            break
        if full:
            warnings.warn(
                f"the square root changes by {estimate:.1e} after {iterations} iterations, and tolerance is "
                f"{tolerance:g}: {z.dtype} may not reach it; choose a larger tolerance.",
                stacklevel=3,
            )
            break
        basis = xp.concatenate([basis, block])
        image = product(block) if ahead is None else ahead
    coordinates = xp.asarray(new.T.astype(z.dtype))
    return sums.combined(coordinates, basis[: len(new)]), RootInfo(method, iterations, estimate)


class Sums:
    """Products of vectors (b, n), of which each rank has a part."""

    def __init__(self, ranks: Any, xp: Any) -> None:
        self._ranks, self._xp = ranks, xp

    def overlap(self, left: Any, right: Any) -> Any:
        """Return the products (m, b) of vectors (m, n) and (b, n)."""
        return self._ranks.allreduce(left @ right.T)

    def combined(self, coordinates: Any, basis: Any) -> Any:
        """Return vectors (b, n) from their coordinates (b, m) in a basis (m, n)."""
        return coordinates @ basis

    def orthonormal(self, vectors: Any, size: float) -> Any:
        """Return an orthonormal basis (m, n) of vectors (b, n), without directions that are only rounding."""
        xp = self._xp
        if len(vectors) == 1:  # factorising one vector takes a GPU longer than the product
            length = math.hypot(*self._ranks.allgather(float(xp.linalg.norm(vectors))))
            floor = 20 * np.finfo(vectors.dtype).eps * max(size, length)
            return vectors / vectors.dtype.type(length) if length > floor else vectors[:0]
        q, r = xp.linalg.qr(vectors.T)
        # Each rank's triangle is factorised again with those of the others: one tree of two levels.
        every = self._ranks.allgather(_host(r))
        turn, whole = np.linalg.qr(np.concatenate(every)) if len(every) > 1 else (None, every[0])
        left, values, _ = np.linalg.svd(whole)
        floor = 20 * np.finfo(vectors.dtype).eps * max(size, values[0] if len(values) else 0.0)
        kept = left[:, : len(values)][:, values > floor]
        if turn is not None:
            first = sum(len(one) for one in every[: self._ranks.rank])
            kept = self._ranks.allgather(turn @ kept)[0][
                first : first + len(r)
            ]  # the first rank's, if machines round otherwise
        return (q @ xp.asarray(kept.astype(vectors.dtype))).T


class Exact(Sums):
    """The same with sums whose bits do not depend on how vectors are cut into parts."""

    def overlap(self, left: Any, right: Any) -> Any:
        """Return the products (m, b), float64."""
        rows = [self._ranks.exact_sum(row.astype(np.float64) * right) for row in left]
        return self._xp.asarray(np.reshape(rows, (len(rows), len(right))))

    def combined(self, coordinates: Any, basis: Any) -> Any:
        """Return vectors (b, n): one product after the other, since a matrix product may round in another order."""
        total = self._xp.zeros((len(coordinates), basis.shape[1]), basis.dtype)
        for column, one in zip(coordinates.T.astype(basis.dtype), basis, strict=True):
            total += column[:, None] * one
        return total

    def orthonormal(self, vectors: Any, size: float) -> Any:
        """Return the basis: of what is left of all vectors the longest, which is then taken out of the others."""
        left, basis, floor = vectors, vectors[:0], 0.0
        while len(left):
            squares = self._ranks.exact_sum(left.astype(np.float64) ** 2)
            k = int(squares.argmax())
            length = math.sqrt(squares[k])
            floor = floor or 20 * float(np.finfo(vectors.dtype).eps) * max(size, length)
            if length <= floor:
                break
            one = left[k : k + 1] / vectors.dtype.type(length)
            one = one - self.combined(self.overlap(basis, one).T, basis)  # what rounding has left
            one = one / self._xp.sqrt(self.overlap(one, one)).astype(vectors.dtype)
            basis, left = self._xp.concatenate([basis, one]), self._xp.concatenate([left[:k], left[k + 1 :]])
            left = left - self.combined(self.overlap(one, left).T, one)
        return basis


def _root(matrix: np.ndarray, least: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -max(least, 1e-12) * abs(values).max():
        raise ValueError(
            f"the operator has a negative eigenvalue, {values[0]:.2g}, and no real square root: choose a smaller "
            "accuracy of the mobility."
        )
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


def _host(array: Any) -> np.ndarray:
    return np.asarray(array if isinstance(array, np.ndarray) else array.get(), np.float64)
