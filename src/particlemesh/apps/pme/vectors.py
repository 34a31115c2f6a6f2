# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of linear equations where a core works, and conjugate gradients, for several sets at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.pme.core import Core
from particlemesh.kernels import Replays, Unread, compile_kernel

_FILE = Path(__file__).with_name("vectors.c")
_SHARE, _MOST_SHARES = 2048, 64  # elements that a group adds up, and groups of a set


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients took.

    Parameters
    ----------
    iterations : int
        Applications of the operator, without that of a guess.
    residual : float
        Norm of the last residual over that of the right side; the largest of all sets.
    """

    iterations: int
    residual: float


class Vectors:
    """Operations on dense native vectors (sets, n) of a core.

    Parameters
    ----------
    core : Core
        Has the memory.
    sets, count : int
        Vectors, and elements of each.
    """

    def __init__(self, core: Core, sets: int, count: int) -> None:
        self.core, self.sets, self.count = core, sets, count
        # The sets that the last step moved, and this where the core works.
        self._moves, self._moving = np.zeros(0, bool), None
        self.shares = min(max(1, -(-count // _SHARE)), _MOST_SHARES)

    def take(self, name: str) -> Any:
        """Return a vector that the core keeps."""
        return self.core.take(f"vector {name}", self.sets * self.count).reshape(self.sets, self.count)

    def _partial(self, name: str) -> Any:
        return self.core.take(f"sums {name}", self.sets * self.shares)

    def _launch(self, name: str, *arguments: Any) -> None:
        groups = self.sets * self.shares * self.core.backend.group_size
        compile_kernel(self.core.backend, _FILE, name, self.core.dtype)(groups, *arguments)

    def add(self, target: Any, source: Any, factor: float = 1.0) -> None:
        """Add a multiple of a source of the same shape."""
        if self.core.on_gpu:
            self._add(target, source, factor, 1, self.count, 1, 0)
        else:
            target += target.dtype.type(factor) * source

    def add_columns(self, target: Any, rows: Any, factor: float = 1.0, *, columns: int = 1, first: int = 0) -> None:
        """Add a multiple of columns of rows (N, ...): so many for each particle, of one set after the other."""
        if self.core.on_gpu:
            self._add(target, rows, factor, columns, columns, rows.shape[1], first)
        else:
            of_sets = rows[:, first : first + columns * self.sets].reshape(len(rows), self.sets, columns)
            target += target.dtype.type(factor) * of_sets.swapaxes(0, 1).reshape(target.shape)

    def _add(
        self, target: Any, source: Any, factor: float, columns: int, of_set: int, of_row: int, first: int
    ) -> None:  # fmt: skip
        self._launch(
            "add", target, source, self.count, self.sets, columns, of_set, of_row, self.core.at(source) + first,
            self.core.at(target), self.core.record(factor),
        )  # fmt: skip

    def scale(self, target: Any, weights: Any, source: Any) -> None:
        """Write weights (n,) times a vector."""
        if self.core.on_gpu:
            self._launch("scale", target, weights, source, self.count, self.sets)
        else:
            np.multiply(weights, source, out=target)

    def dots(self, target: Any, a: Any, b: Any, factor: float) -> None:
        """Add a multiple of the products of rows a (N, columns) and b to the numbers of particles (N,)."""
        count = target.size
        if self.core.on_gpu:
            self._launch(
                "dots", target, a, b, count, a.size // max(count, 1), *map(self.core.at, (target, a, b)),
                self.core.record(factor),
            )  # fmt: skip
        else:
            columns = a.size // max(count, 1)
            products = np.einsum("ic,ic->i", a.reshape(count, columns), b.reshape(count, columns))
            target.reshape(-1)[:] += target.dtype.type(factor) * products

    def cross(self, target: Any, a: Any, b: Any) -> None:
        """Write the cross products of rows (N, 3)."""
        if self.core.on_gpu:
            self._launch("cross_products", target, a, b, target.shape[0])
        else:
            target[...] = np.cross(a, b)

    def total(self, vectors: Any) -> np.ndarray:
        """Return the sums of vectors (sets,) on the host; waits."""
        ones = self.core.upload(np.ones(self.count))
        return self.on_host(self.products(vectors, ones, "of totals"))[0]

    # ---- conjugate gradients --------------------------------------------------------------------------

    def products(self, a: Any, b: Any, name: str) -> Any:
        """Return the sums of a * b over each set; b may be one vector (n,) for all."""
        if not self.core.on_gpu:
            return np.einsum("sn,sn->s", a, np.broadcast_to(b, a.shape), dtype=np.float64)
        partial = self._partial(name)
        of_set = self.count if b.ndim > 1 else 0
        self._launch("products", a, b, partial, self.count, self.sets, self.shares, of_set)
        return partial

    def on_host(self, *sums: Any) -> list[np.ndarray]:
        """Return sums over sets (sets,) on the host; waits once."""
        if not self.core.on_gpu:
            return list(sums)
        numbers = self.core.backend.read(*(s.reshape(self.sets, self.shares) for s in sums))
        return [n.astype(np.float64).sum(1) for n in numbers]

    def weigh(self, residual: Any, weights: Any, z: Any, inverse: float, name: str) -> Any:
        """Write weighted residuals; return the sums of both's products.

        With the inverse of the sum of weights, residuals are shifted first so that weighted ones sum to zero.
        """
        mean = self.products(residual, weights, "of the mean") if inverse else None
        if not self.core.on_gpu:
            if mean is not None:
                residual -= (inverse * mean)[:, None].astype(residual.dtype)
            np.multiply(weights, residual, out=z)
            return self.products(residual, z, name)
        square = self._partial(name)
        self._launch(
            "weigh", residual, weights, z, Unread(square) if mean is None else mean, square, self.count, self.sets,
            self.shares, self.core.record(inverse),
        )  # fmt: skip
        return square

    def _direct(self, z: Any, p: Any, square: Any, former: Any) -> None:
        if self.core.on_gpu:
            first = former is None
            self._launch(
                "direct", z, p, square, Unread(square) if first else former, self.count, self.sets, self.shares,
                int(first),
            )  # fmt: skip
        elif former is None:
            p[...] = z
        else:
            p *= _quotient(square, former, p)
            p += z

    def _advance(self, x: Any, residual: Any, p: Any, image: Any, square: Any, curve: Any, moves: np.ndarray) -> None:
        if self.core.on_gpu:
            if not np.array_equal(moves, self._moves):
                self._moves, self._moving = moves, self.core.upload(moves)
            self._launch(
                "advance", x, residual, p, image, square, curve, self._moving, self.count, self.sets, self.shares
            )
        else:
            step = _quotient(square * moves, curve, p)
            x += step * p
            residual -= step * image

    def solve(
        self, operate: Callable[[Any, Any], None], right: Any, x: Any, weights: Any, *, guessed: bool,
        tolerance: float, most: int, inverse: float = 0.0, least: Any = 0.0, indefinite: str,
        repair: Callable[[Any], None] | None = None, probe: bool = False,
    ) -> Solution:  # fmt: skip
        """Solve equations with a symmetric positive operator by conjugate gradients [hestenes1952]_.

        Sets stop one by one, so that others change nothing of a set's solution.

        Between iterations the host waits for the norm of the residual and for nothing else. Residuals that iterations
        update know nothing of the rounding of solutions. So the last one is that of the solution itself, and iterations
        go on from it while it falls.

        Parameters
        ----------
        operate : callable
            ``operate(p, image)`` writes the image of vectors; on a GPU its work is recorded and repeated.
        right : vector
            The right sides, which become residuals.
        x : vector
            The solution; its values are a guess if ``guessed``, else they become zero first.
        weights : array (n,)
            Of the preconditioner, which is diagonal; its norms are ``sum(weights * residual**2)``.
        tolerance : float
            Of the norm of residuals, relative to that of the right side.
        most : int
            Iterations.
        inverse : float
            If not 0, solutions keep their sum, and this is the inverse of the sum of weights [gould2001]_.
        least : float or array (sets,)
            Tolerances are of this square at least, where right sides have smaller ones.
        indefinite : str
            What to say of an operator that is not positive.
        repair : callable, optional
            ``repair(x)`` undoes what rounding did to the sum of solutions.
        probe : bool
            Look for directions in which the operator is not positive also where all right sides are zero.

        Raises
        ------
        ValueError
            If the operator is not positive.
        RuntimeError
            If residuals are larger than the tolerance after ``most`` iterations, or no longer fall.
        """
        z, p, image = map(self.take, ("z", "p", "image"))
        replays = Replays(self.core.backend, self.core.solver.plan)  # positions stay until the end
        if not guessed:
            self.core.backend.clear(x)
        (square,) = self.on_host(self.weigh(right, weights, z, inverse, "of the right side"))
        scale = np.maximum(square, least)
        if probe and not scale.any():
            other = np.random.default_rng(1).standard_normal(right.shape)
            with contextlib.suppress(RuntimeError):  # what it takes is no matter
                self.solve(
                    operate, self.core.upload(other), self.take("of probes"), weights, guessed=False,
                    tolerance=tolerance, most=most, inverse=inverse, indefinite=indefinite,
                )  # fmt: skip
        given, true, is_true = self.take("of given right sides"), math.inf, True
        or_double = ", or float64" * (self.core.dtype.itemsize < 8)
        self.core.backend.copy(given, right)

        def look() -> None:
            """Write the residual of the solution."""
            if repair is not None:
                repair(x)
            operate(x, image)
            self.core.backend.copy(right, given)
            self.add(right, image, -1.0)

        def relative(sizes: np.ndarray) -> np.ndarray:
            return np.divide(sizes, scale, out=np.zeros_like(sizes), where=scale > 0)

        if guessed:
            look()
        names, former, curve = ("of squares", "of other squares"), None, None
        for iteration in range(most + 1):
            square = self.weigh(right, weights, z, inverse, names[iteration % 2])
            sizes, *curves = self.on_host(square, *(() if curve is None else (curve,)))
            if not all(np.isfinite(s).all() for s in (scale, sizes, *curves)):
                raise ValueError("residuals are not finite: numbers are too large, or particles too near each other.")
            if any((c < 0).any() for c in curves):
                raise ValueError(indefinite)
            ratios = relative(sizes)
            residual = math.sqrt(float(ratios.max(initial=0)))
            if residual <= tolerance and not is_true:
                look()
                former, curve, is_true = None, None, True
                square = self.weigh(right, weights, z, inverse, names[iteration % 2])
                (sizes,) = self.on_host(square)
                ratios = relative(sizes)
                residual = math.sqrt(float(ratios.max()))
                if tolerance < residual >= true / 2:
                    raise RuntimeError(
                        f"the residual no longer falls: it is {residual:.2g} of the right side, and tolerance is "
                        f"{tolerance:g}: give a larger tolerance{or_double}."
                    )
                true = residual
            if residual <= tolerance:
                return Solution(iteration, residual)
            if iteration == most:
                break
            is_true = False
            self._direct(z, p, square, former)
            replays("operate", (p, image), lambda: operate(p, image))
            curve = self.products(p, image, "of curves")
            self._advance(x, right, p, image, square, curve, ratios > tolerance**2)
            former = square
        raise RuntimeError(
            f"after {most} iterations the residual is {residual:.2g} of the right side, and tolerance is {tolerance:g}"
            f": give more iterations, or a larger tolerance{or_double}."
        )


def central(vectors: Vectors, at: Any, along: Any, function: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return derivatives along a vector of arrays and totals. They are quadratic in vectors: a difference is exact."""
    flat = [a.reshape(vectors.sets, vectors.count) for a in (at, along)]
    sums = [vectors.products(a, a, f"of norm {k}") for k, a in enumerate(flat)]
    here, there = (math.sqrt(float(s.sum())) for s in vectors.on_host(*sums))
    step = (here or 1.0) / (there or 1.0)
    sides = []
    for sign in (step, -step):
        moved = vectors.core.upload(np.zeros(at.shape))
        vectors.add(moved, at)
        vectors.add(moved, along, sign)
        sides.append(function(moved))
    above, below = sides
    slopes: dict[str, Any] = {}
    for name, array in above.items():
        if array is None:
            slopes[name] = None
        elif isinstance(array, (float, np.ndarray)):  # of the CPU, or a total
            slopes[name] = (array - below[name]) / (2 * step)
        else:
            slopes[name] = vectors.core.upload(np.zeros(array.shape))
            every = Vectors(vectors.core, 1, math.prod(array.shape))
            every.add(slopes[name], array, 1 / (2 * step))
            every.add(slopes[name], below[name], -1 / (2 * step))
    return slopes


def _quotient(a: np.ndarray, b: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return a / b (sets, 1), and 0 where b is not positive, as a factor of vectors."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)[:, None].astype(like.dtype)
