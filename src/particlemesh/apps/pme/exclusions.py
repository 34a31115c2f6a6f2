# SPDX-License-Identifier: BSD-3-Clause
"""Pairs whose interaction is left out or scaled: corrections of the sums over neighbours.

A pair with factor f has f times its interaction. Real space and mesh contain the whole. So f - 1 times that of the
nearest image is added: of charges, of dipoles, or of another function of pairs.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.kernels import Coordinates, DeviceBoxes, Fixed, Record, Unread, alone, checks
from particlemesh.kernels.cpu import loop_with, plain, ranges, run, threads_for

_STATES = 8  # pairs of so many calls are kept
_SHARE = 1024  # particles that a thread claims at once
_ROUNDING = 64  # units of rounding of the longest lattice vector: closer pairs have no distance
NEIGHBOURS = np.array(list(itertools.product((0, -1, 1), repeat=3)), np.float64)  # a tie keeps the first


class Images(NamedTuple):
    """Short lattice vectors of a box, in a type: the nearest image is one of 27 around the rounded fractions."""

    matrix: np.ndarray  # (3, 3), rows are lattice vectors
    inverse: np.ndarray  # (3, 3), rows are the reciprocal ones
    near: float  # below this square the image of the rounded fractions is the nearest
    least: float  # up to this square a distance is made of rounding

    @classmethod
    def of(cls, matrix: np.ndarray, dtype: np.dtype) -> Images:
        """Return those of a box with these lattice vectors."""
        short = short_vectors(np.asarray(matrix, np.float64))
        inverse = np.linalg.inv(short).T
        near = (min(1 / np.linalg.norm(inverse, axis=1)) / 2) ** 2
        least = (_ROUNDING * np.finfo(dtype).eps * np.linalg.norm(short, axis=1).max()) ** 2
        return cls(short.astype(dtype), inverse.astype(dtype), float(near), float(least))

    def numbers(self) -> tuple[float, ...]:
        """Return its 20 numbers."""
        return *self.matrix.ravel(), *self.inverse.ravel(), self.near, self.least


class Boxes(NamedTuple):
    """Boxes of a step, in which nearest images are sought."""

    rows: Any  # (S, 3, 3), lattice vectors, or DeviceBoxes
    lattices: Any  # numbers (S, 20) of images, for loops and kernels
    near: float  # nearer images are the nearest in all boxes


def unwrapped(box: pm.Box) -> np.ndarray:
    """Return lattice vectors in which nearest images are sought: nothing wraps around along open axes."""
    return np.asarray(box.matrix * np.where(box.periodic, 1, 4)[:, None])


def boxes(core: Any) -> Boxes:
    """Return the box of a core, or those of its systems, made again if they change."""
    if isinstance(core.rows, DeviceBoxes):
        # Lattice vectors are no shorter than the distance of the faces of some axis.
        return Boxes(core.rows, room_for_images(core), 0.5 / max(core.rows.bounds.per))
    one = np.broadcast_to(unwrapped(core.box), (max(core.systems, 1), 3, 3))
    rows = one if core.rows is None else core.rows
    if core.known_boxes is None or not np.array_equal(core.known_boxes.rows, rows):
        images = [Images.of(row, core.dtype) for row in rows]
        lattices = core.upload([image.numbers() for image in images])
        core.known_boxes = Boxes(rows.copy(), lattices, min(image.near for image in images) ** 0.5)
    return core.known_boxes


def room_for_images(core: Any) -> Any:
    """Return memory for the numbers of nearest images in boxes on a GPU, (S, 20)."""
    return core.take("images of boxes", 20 * core.systems).reshape(-1, 20)


def write_images(core: Any) -> None:
    """Write the numbers of nearest images in the boxes of a core that are on a GPU."""
    wide = int(core.dtype.itemsize == 8)
    kernel = core.backend.kernel("apps/pme/images.c", "images", dict(REAL_IS_DOUBLE=1, COORDINATE_IS_DOUBLE=wide))
    rounding = Record("=d", _ROUNDING * float(np.finfo(core.dtype).eps))
    kernel(core.systems, core.rows.numbers, boxes(core).lattices, core.systems, rounding)


def short_vectors(matrix: np.ndarray) -> np.ndarray:
    """Return short vectors of the lattice of rows (3, 3), none of which a sum of the others with signs shortens.

    Examples
    --------
    >>> short_vectors(np.array([[1.0, 0.0, 0.0], [3.2, 1.0, 0.0], [0.0, 0.0, 2.0]])).round(9).tolist()
    [[1.0, 0.0, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 2.0]]
    """
    rows = matrix.copy()
    for _ in range(1000):
        order = np.argsort((rows**2).sum(1), kind="stable")
        a, b, c = order
        before = rows.copy()
        rows[b] -= np.rint(rows[b] @ rows[a] / (rows[a] @ rows[a])) * rows[a]
        both = rows[[a, b]]
        turns = np.rint(np.linalg.solve(both @ both.T, both @ rows[c]))
        candidates = rows[c] - (turns + NEIGHBOURS[NEIGHBOURS[:, 2] == 0][:, :2]) @ both
        squares = (candidates**2).sum(1)
        if squares.min() < (rows[c] @ rows[c]) * (1 - 1e-12):
            rows[c] = candidates[squares.argmin()]
        if (rows == before).all():
            break
    return rows


def nearest(xp: Any, d: Any, cell: Any, inverse: Any, integers: Any) -> Any:
    """Return the shortest images of vectors (N, 3), as torch and JAX differentiate them.

    Parameters
    ----------
    xp : module
        NumPy, CuPy, torch or ``jax.numpy``.
    d : array (N, 3)
    cell, inverse : array (3, 3) or (N, 3, 3)
        Lattice vectors as rows, and ``inv(cell)``; one box, or one for each vector.
    integers : array (27, 3)
        `NEIGHBOURS`, of d's type and device.

    Examples
    --------
    >>> skewed = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> nearest(np, np.array([[0.7, 0.45, 0.0]]), skewed, np.linalg.inv(skewed), NEIGHBOURS)
    array([[-0.3 ,  0.45,  0.  ]])
    """
    d = d[:, None]
    d = d - xp.round(d @ inverse) @ cell
    images = d + integers @ cell
    return (d + integers[(images**2).sum(-1).argmin(1)][:, None] @ cell)[:, 0]


class Exclusions(Fixed):
    """Pairs with factors, as rows of partners of each particle.

    Parameters
    ----------
    pairs : array_like (M, 2) or None
        Indices of particles; each pair once. None if the user gave none.
    factors : number or array_like (M,)
        What the pair's interaction is multiplied with: 0 leaves it out.

    Raises
    ------
    ValueError, TypeError
        If the arrays are not such pairs, the first wrong one is named; or if there are factors, but no pairs.
    """

    def __init__(self, pairs: Any, factors: Any) -> None:
        given = checks.number_array(() if pairs is None else pairs, "exclusions")
        given = given.reshape(0, 2) if given.size == 0 else given
        if given.ndim != 2 or given.shape[1] != 2:
            raise ValueError(f"exclusions have shape {given.shape}; pairs (M, 2) are needed.")
        if given.size and given.dtype.kind not in "iu":
            raise TypeError(f"exclusions have dtype {given.dtype}; indices of particles are integers.")
        numbers = checks.number_array(factors, "factors")
        if numbers.shape not in ((), (len(given),)):
            raise ValueError(
                f"factors have shape {numbers.shape}; give one number, or one for each of {len(given)} pairs."
            )
        if numbers.dtype.kind not in "biuf" or not np.isfinite(numbers).all():
            raise ValueError("factors are not all finite real numbers.")
        if pairs is None and numbers.any():
            raise ValueError(
                f"factors is {numbers} and exclusions are not given: factors are those of exclusions, pairs (M, 2) of "
                "particles. Give both, or leave factors out."
            )
        self.pairs = np.sort(given.astype(np.int64), axis=1)
        self.factors = np.broadcast_to(numbers.astype(np.float64), len(given)).copy()
        for wrong, what in (
            (self.pairs[:, :1] < 0, "has a negative index"),
            (self.pairs[:, :1] == self.pairs[:, 1:], "is a particle and itself"),
        ):
            if wrong.any():
                k = int(np.argmax(wrong))
                raise ValueError(f"pair {k} of exclusions {what}: {given[k].tolist()}.")
        order = np.lexsort(self.pairs.T)
        same = (np.diff(self.pairs[order], axis=0) == 0).all(1)
        if same.any():
            raise ValueError(
                f"exclusions have the pair {self.pairs[order][np.argmax(same)].tolist()} twice: give it once."
            )
        self._largest = int(self.pairs.max()) if len(self.pairs) else -1
        self._rows: dict[Any, tuple[Any, Any, Any]] = {}
        self.close_functions: dict[Any, tuple[int, float, Any]] = {}  # see `close.known`

    def __len__(self) -> int:
        return len(self.pairs)

    def check(self, count: int) -> None:
        """Raise an error that names the first pair with a particle that is not among so many."""
        if self._largest >= count:
            k = int(np.argmax(self.pairs.max(1) >= count))
            raise ValueError(f"pair {k} of exclusions is {self.pairs[k].tolist()}, and there are {count} particles.")

    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where each of ``count`` particles' partners start, the partners, and their factors minus 1.

        Partners of a particle come in the order of pairs, so that sums do not depend on how particles are numbered.

        Raises
        ------
        ValueError
            If a pair names a particle that is not there.
        """
        self.check(count)
        i, j = np.concatenate([self.pairs, self.pairs[:, ::-1]]).T
        order = np.lexsort((np.tile(np.arange(len(self.pairs)), 2), i))
        start = np.searchsorted(i[order], np.arange(count + 1))
        weights = np.tile(self.factors - 1, 2)[order]
        return start.astype(np.int32), j[order].astype(np.int32), weights

    def keys(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ``i * count + j`` of the pairs and of their reverses in rising order, and their factors minus 1."""
        start, j, weights = self.rows(count)
        keys = np.repeat(np.arange(count), np.diff(start)) * count + j
        order = np.argsort(keys)
        return keys[order], weights[order]

    def on(self, backend: Any, count: int, dtype: np.dtype) -> tuple[Any, Any, Any]:
        """Return the rows of at least so many particles on a backend.

        They are kept for each backend and type, so that captured graphs may alternate. Fewer particles have the rows
        of more, whose last ones are empty: each pair is checked to be of these particles.
        """
        self.check(count)
        key = backend, dtype
        if key not in self._rows or len(self._rows[key][0]) <= count:
            rows = self.rows(count)
            typed = (*rows[:2], rows[2].astype(dtype))
            self._rows[key] = typed if backend.name == "cpu" else tuple(map(backend.upload, typed))
        return self._rows[key]

    def vectors(self, x: np.ndarray, matrix: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return both directions of all pairs: i, j, factors minus 1, and vectors from i to the nearest image of j.

        The fifth array is 1 where both have the same coordinates. It is -1 where they are otherwise too close for
        their distance to mean anything, and else 0.

        Parameters
        ----------
        x : array (N, 3)
        matrix : array (3, 3)
            Lattice vectors as rows.
        """
        start, j, weights = self.on(kernels.backend("cpu"), len(x), x.dtype)
        i = np.repeat(np.arange(len(x)), np.diff(start[: len(x) + 1]))
        images, between = Images.of(matrix, x.dtype), x[j] - x[i]
        d = nearest(np, between, images.matrix, images.inverse.T, NEIGHBOURS.astype(x.dtype))
        place = np.where((d**2).sum(1) > images.least, 0, np.where((between == 0).all(1), 1, -1))
        return i, j, weights, d, place

    def add(self, core: Any, x: Coordinates, function: pm.PairFunction, values: Any, sums: Any) -> None:
        """Add a function of the nearest images of pairs, times their factors minus 1, to sums (N, results).

        Parameters
        ----------
        core : Core
            Has the box, or systems and their boxes.
        x : Coordinates
        function : PairFunction
            It has nothing of `close` pairs.
        values : native array (N, values)
        sums : native array (N, results)
        """
        rows, p = self.on(core.backend, x.count, core.dtype), function.parameters_as(core.dtype)
        if not core.on_gpu:
            owners = np.empty(0, np.int32) if core.owners is None else core.owners
            run(
                loop_with(_add, "of_pair", function.on_cpu), threads_for(core.threads, x.count),
                tuple(plain(np.ascontiguousarray(a)) for a in x.arrays), *rows, np.ascontiguousarray(values), p,
                boxes(core).lattices, owners, sums, _SHARE,
            )  # fmt: skip
            return
        sizes = dict(REAL_IS_DOUBLE=int(core.dtype.itemsize == 8), VALUES=function.values, RESULTS=function.results)
        kernel = core.backend.kernel("apps/pme/exclusions.c", "listed", sizes, {"pair function": function.text})
        places = core.at(sums), core.at(values), *(stride // core.dtype.itemsize for stride in values.strides)
        kernel(
            x.count, *x.arguments(), *rows, values, function.parameters_on(core.backend, p), sums, boxes(core).lattices,
            Unread(rows[0]) if core.owners is None else core.owners, core.status, x.count, core.systems, x.record(),
            Record("=4q", *places),
        )  # fmt: skip


class Named(NamedTuple):
    """Excluded pairs by the names of particles that have such pairs, which may be few of many.

    Examples
    --------
    >>> of = Named.of(Exclusions([[7, 90], [90, 31]], 0.0))
    >>> of.pairs.pairs.tolist(), of.of_range(30, 3).tolist()
    ([[0, 2], [1, 2]], [3, 1, 3])
    """

    particles: np.ndarray  # in rising order; the name is the place here
    pairs: Exclusions

    @classmethod
    def of(cls, given: Exclusions) -> Named:
        """Return those of pairs."""
        particles, names = np.unique(given.pairs, return_inverse=True)
        return cls(particles, Exclusions(names.reshape(-1, 2), given.factors))

    def of_range(self, first: int, count: int) -> np.ndarray:
        """Return the names of particles from one on; that of those without pairs is the number of names."""
        names = np.full(count, len(self.particles))
        begin, end = np.searchsorted(self.particles, [first, first + count])
        names[self.particles[begin:end] - first] = np.arange(begin, end)
        return names


class KnownPairs:
    """Pairs of the last calls, whose rows are on the device: captured graphs may alternate between them."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[np.ndarray, ...], Exclusions]] = []  # the last used is the first
        self.busy = threading.RLock()

    @alone
    def of(self, pairs: Any, factors: Any, count: int) -> Exclusions:
        """Return pairs (M, 2) and factors among so many particles: those of an earlier call if they are the same."""
        if pairs is None:
            Exclusions(None, factors).check(count)
        taken = () if pairs is None else checks.number_array(pairs, "exclusions")
        given = np.array(taken), np.array(checks.number_array(factors, "factors"))  # the caller may change its own
        same = [
            all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(given, known, strict=True))
            for known, _ in self._known
        ]
        if True in same:
            self._known.insert(0, self._known.pop(same.index(True)))
        else:
            made = Exclusions(*given)
            self._known = [(given, made), *self._known[: _STATES - 1]]
        self._known[0][1].check(count)
        return self._known[0][1]


def of_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
    """Stand for a pair function, which takes this name when the loop is compiled."""
    raise NotImplementedError


def _add(x, start, partners, weights, values, p, boxes, owners, sums, share, counter):
    """Do what the kernel does, for shares of particles."""
    d, e, s = np.empty(3, sums.dtype), np.empty(3, sums.dtype), np.empty(3, sums.dtype)
    room = np.empty(sums.shape[1], sums.dtype)
    for begin, end in ranges(counter, sums.shape[0], share):
        for i in range(begin, end):
            box = boxes[owners[i] if owners.size else 0]
            matrix, inverse, near = box[:9].reshape(3, 3), box[9:18].reshape(3, 3), box[18]
            for n in range(start[i], start[i + 1]):
                j, weight = np.int64(partners[n]), weights[n]  # a grid's sums have such, too
                for a in range(3):
                    e[a] = x[a][j] - x[a][i]
                for a in range(3):
                    s[a] = np.rint(inverse[a, 0] * e[0] + inverse[a, 1] * e[1] + inverse[a, 2] * e[2])
                for a in range(3):
                    e[a] -= s[0] * matrix[0, a] + s[1] * matrix[1, a] + s[2] * matrix[2, a]
                d[0], d[1], d[2] = e[0], e[1], e[2]  # slices would take seconds more to compile
                r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
                if r2 > near:
                    for image in range(27):
                        u, v, w = image // 9 - 1, image // 3 % 3 - 1, image % 3 - 1
                        for a in range(3):
                            s[a] = e[a] + u * matrix[0, a] + v * matrix[1, a] + w * matrix[2, a]
                        square = s[0] * s[0] + s[1] * s[1] + s[2] * s[2]
                        if square < r2:
                            r2 = square
                            d[0], d[1], d[2] = s[0], s[1], s[2]
                room[:] = 0
                of_pair(r2, d, i, j, values[i], values[j], p, room)
                for k in range(sums.shape[1]):
                    sums[i, k] += weight * room[k]
