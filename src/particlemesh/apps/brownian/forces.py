# SPDX-License-Identifier: BSD-3-Clause
"""Forces between particles: springs, soft spheres, and sums of forces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from particlemesh import Box, PairFunction, UniformGrid, neighbour_list
from particlemesh.apps.brownian.arrays import Images, module_of, squares, to_host
from particlemesh.apps.brownian.drag import Settled, radii
from particlemesh.kernels import Fixed, alone, checks


class HarmonicBonds(Settled):
    """Springs between pairs of particles: the energy of a bond is ``stiffness / 2 * (r - length)**2``.

    Call it with positions (N, 3) for the forces (N, 3). Forces are added in the order of the bonds, without atomics:
    the same positions give bit-identical forces.

    Parameters
    ----------
    pairs : array (B, 2) of int
        The two particles of each bond.
    stiffness : number or array (B,)
        Energy per length squared, at least 0.
    length : number or array (B,)
        At rest; 0 for ideal springs.
    box : Box, lengths or matrix, optional
        If given, a bond goes to the nearest image. Otherwise it takes positions as they are.

    Raises
    ------
    ValueError
        If a bond joins a particle to itself, or a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.brownian import HarmonicBonds
    >>> bonds = HarmonicBonds([[0, 1]], stiffness=10.0, length=1.0)
    >>> x = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0]])
    >>> bonds(x)
    array([[ 5.,  0.,  0.],
           [-5.,  0.,  0.]])
    >>> bonds.energy(x)
    1.25
    """

    def __init__(self, pairs: Any, stiffness: Any, length: Any = 0.0, box: Any = None) -> None:
        array = checks.number_array(pairs, "pairs")
        if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 2:
            raise ValueError(f"pairs has shape {array.shape} and dtype {array.dtype}; integers (B, 2) are needed.")
        self.pairs = np.array(array, np.int64)
        if (self.pairs < 0).any() or (self.pairs[:, 0] == self.pairs[:, 1]).any():
            raise ValueError("pairs: a bond joins two different particles, whose indices are at least 0.")
        self.stiffness = self._each(stiffness, "stiffness")
        self.length = self._each(length, "length")
        self._enter(None if box is None else Box.of(box))
        self._ends = self._by_particle()
        self._held: dict[Any, Any] = {}  # numbers of the bonds on a device, by module and type

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make equal bonds, for checkpoints."""
        return {"pairs": self.pairs, "stiffness": self.stiffness, "length": self.length, "box": self.box}

    def _enter(self, box: Box | None) -> None:
        self.box, self._images = box, None if box is None else Images(box)

    def __call__(self, positions: Any) -> Any:
        """Return the forces (N, 3) on particles at ``positions`` (N, 3), of NumPy or CuPy."""
        xp, _, stiffness, length, ends = self._numbers(positions)
        vectors, distance = self._vectors(positions)
        # A spring without length at rest pulls by its vector alone: two particles in one place are no error.
        slack = xp.where(length == 0, xp.zeros_like(distance), length / xp.where(length == 0, 1, distance))
        pull = stiffness * (1 - slack) * vectors
        signed = xp.concatenate([pull, -pull, xp.zeros_like(pull[:1])])  # the last row fills the table
        forces = xp.zeros_like(positions)
        for column in ends:
            forces[: len(column)] += signed[column]
        return forces

    def energy(self, positions: Any) -> float:
        """Return the energy of all bonds."""
        _, _, stiffness, length, _ = self._numbers(positions)
        _, distance = self._vectors(positions)
        return float((stiffness * (distance - length) ** 2).sum() / 2)

    def _each(self, value: Any, what: str) -> np.ndarray:
        """Return a number for each bond."""
        array = np.array(checks.number_array(value, what, real=True), np.float64)
        if array.ndim and array.shape != (len(self.pairs),):
            raise ValueError(f"{what} has shape {array.shape}; give one number, or {len(self.pairs)}, one a bond.")
        if not (np.isfinite(array) & (array >= 0)).all():
            raise ValueError(f"{what} has a number that is negative or not finite; at least 0 is needed.")
        return np.broadcast_to(array, (len(self.pairs),)).copy()

    def _by_particle(self) -> np.ndarray:
        """Return for each particle the rows of its ends among (pull, -pull, 0), as columns of a padded table."""
        count = len(self.pairs)
        particle = self.pairs.T.ravel()
        order = np.argsort(particle, kind="stable")
        number = np.bincount(particle, minlength=1)
        first = np.cumsum(number) - number
        place = np.arange(2 * count) - first[particle[order]]
        table = np.full((int(number.max()), len(number)), 2 * count)
        table[place, particle[order]] = order
        return table

    def _numbers(self, positions: Any) -> tuple[Any, ...]:
        xp = module_of(positions)
        if len(positions) < self._ends.shape[1]:
            last = self._ends.shape[1] - 1
            raise ValueError(f"a bond has particle {last}, and there are {len(positions)}: give pairs below that.")
        key = xp.__name__, positions.dtype
        if key not in self._held:
            columns = []
            for what, given in (("stiffness", self.stiffness), ("length", self.length)):
                with np.errstate(over="ignore", under="ignore"):
                    column = given[:, None].astype(positions.dtype)
                if not (np.isfinite(column) & ((column > 0) == (given[:, None] > 0))).all():
                    raise ValueError(
                        f"{what} is {given.min():g} to {given.max():g}, beyond {positions.dtype}: choose other "
                        f"units{', or give positions in float64' * (positions.dtype.itemsize < 8)}."
                    )
                columns.append(xp.asarray(column))
            self._held[key] = (xp, xp.asarray(self.pairs), *columns, xp.asarray(self._ends))
        return self._held[key]

    def _vectors(self, positions: Any) -> tuple[Any, Any]:
        """Return the vector from the first to the second particle of each bond, and its length (B, 1)."""
        xp, pairs, *_ = self._numbers(positions)
        vectors = positions[pairs[:, 1]] - positions[pairs[:, 0]]
        if self._images is not None:
            vectors = self._images.nearest(vectors)
        return vectors, xp.sqrt(squares(vectors)).astype(vectors.dtype)


# As `neighbour_list` has them: cells at most; how many particles share a cell with one, on average, where a list is
# faster; and how many spheres of the mean volume the largest one holds.
_CELLS_A_PARTICLE, _FEW_CELLS, _CROWDED, _UNEVEN = 8, 4096, 32, 16

_WCA = """
real s = (real)0.5 * (a[0] + b[0]);
real s2 = s * s / r2, s6 = s2 * s2 * s2;
if (s6 > (real)0.5) {
    sum[0] += 2 * p[0] * (s6 * s6 - s6 + (real)0.25);
    real pull = 24 * p[0] * (s6 - 2 * s6 * s6) / r2;
    for (int axis = 0; axis < 3; axis++) sum[1 + axis] += pull * d[axis];
}
"""


def _wca(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a PairFunction sees
    s = (a[0] + b[0]) / 2
    s2 = s * s / r2
    s6 = s2 * s2 * s2
    if s6 > 0.5:  # nearer than 2**(1/6) s, where the potential has its minimum
        sum[0] += 2 * p[0] * (s6 * s6 - s6 + 0.25)  # half of the pair's energy
        pull = 24 * p[0] * (s6 - 2 * s6 * s6) / r2
        for axis in range(3):
            sum[1 + axis] += pull * d[axis]


class WCA(Settled):
    """Soft repulsion of spheres by Weeks, Chandler and Andersen [wca1971]_, over all images in any box.

    It is the Lennard-Jones potential up to its minimum at ``2**(1/6) s``, lifted by epsilon: energy and force are 0
    from there on. For a pair, s is the mean of both numbers sigma. Particles are found by a
    :class:`particlemesh.UniformGrid`, which is kept between calls and shared with copies in leaning boxes. Where cells
    of one size do not serve, a :func:`particlemesh.neighbour_list` on the host does. These are diameters of many sizes,
    clusters in a large box, and particles that have left an open box.

    Call it with positions (N, 3) for the forces (N, 3).

    Parameters
    ----------
    box : Box, lengths or matrix
        The domain, three axes.
    epsilon : number
        Energy of two particles at the distance s.
    sigma : number or array (N,)
        Diameter of each particle.
    backend : {"cpu", "cuda", "opencl"}, optional
        Where to sum; by default where the positions are. If named, NumPy arrays are copied there and back.

    Raises
    ------
    ValueError
        If a number is not positive, or the box has not three axes.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.brownian import WCA
    >>> repulsion = WCA((10.0, 10.0, 10.0), epsilon=1.0, sigma=2.0)
    >>> x = np.array([[0.5, 5.0, 5.0], [8.5, 5.0, 5.0]])  # 2 apart, across the face
    >>> repulsion(x)
    array([[ 12.,   0.,   0.],
           [-12.,   0.,   0.]])
    >>> repulsion.energy(x)
    1.0
    """

    def __init__(self, box: Any, epsilon: float = 1.0, sigma: Any = 2.0, backend: str | None = None) -> None:
        self._enter(Box.of(box))
        self.epsilon = checks.positive(epsilon, "epsilon")
        self.sigma = radii(sigma, "sigma")
        self.backend = backend
        self.cutoff = 2 ** (1 / 6) * float(np.max(self.sigma))
        self._uneven = _UNEVEN * float(np.mean((self.sigma / np.max(self.sigma)) ** 3)) < 1
        # By whether the box may change from build to build, as that of copies: they share the second grid.
        self._grids: dict[bool, tuple[Any, UniformGrid]] = {}
        self._moved = False  # whether this is such a copy
        self._function = PairFunction(_WCA, _wca, results=4, values=1, parameters=(self.epsilon,))
        self._held: tuple[Any, ...] = (None,)  # what it is for, sigma and the system of each particle
        self.busy = threading.RLock()  # of all that share the grids

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal force, for checkpoints."""
        return {"box": self.box, "epsilon": self.epsilon, "sigma": self.sigma, "backend": self.backend}

    def __call__(self, positions: Any) -> Any:
        """Return the forces (N, 3) on particles at ``positions`` (N, 3).

        Particles in one place have forces that are not finite.
        """
        return self._sums(positions)[:, 1:]

    def energy(self, positions: Any) -> float:
        """Return the energy of all pairs."""
        return float(self._sums(positions)[:, 0].sum())

    def in_box(self, box: Any) -> Self:
        """Return an equal force in another box, such as one that shear has deformed.

        Copies share a grid, so that only one thread may use them at a time.

        Parameters
        ----------
        box : Box, lengths or matrix

        Examples
        --------
        >>> from particlemesh.apps.brownian import WCA
        >>> WCA((8.0, 8.0, 8.0)).in_box([[8.0, 0.0, 0.0], [1.0, 8.0, 0.0], [0.0, 0.0, 8.0]]).box.matrix[1]
        array([1., 8., 0.])
        """
        other = super().in_box(box)
        other._moved = True
        return other

    def _enter(self, box: Any) -> None:
        if box.ndim != 3:
            raise ValueError(f"the box is {box.ndim}-D; give a 3-D one.")
        self.box = box
        self._made_for = -1  # particles
        self._large = False  # whether cells are larger than the search needs
        self._cells: tuple[Any, ...] = ()  # along each axis, and what the boxes of one grid have in common

    @alone
    def _sums(self, positions: Any) -> Any:
        xp = module_of(positions)
        if np.ndim(self.sigma) and len(self.sigma) != len(positions):
            raise ValueError(
                f"there are {len(self.sigma)} numbers sigma for {len(positions)} particles: give one each."
            )
        key = xp.__name__, positions.dtype, len(positions)
        if self._held[0] != key:
            sigma = xp.asarray(np.broadcast_to(self.sigma, (len(positions),)), dtype=positions.dtype)
            self._held = key, sigma, xp.zeros(len(positions), np.int32)
        with np.errstate(all="ignore"):
            if self._uneven:
                return self._from_list(positions)
            grid = self._grid_for(len(positions))
            try:
                if self._moved:
                    grid.build(positions, system=self._held[2], boxes=self.box.matrix[None])
                else:
                    grid.build(positions)
            except ValueError:
                if all(self.box.periodic):
                    raise
                return self._from_list(positions)  # a particle has left an open box: lists take it anywhere
            if self._large:
                held = xp.diff(grid.cell_start).astype(float)
                if float(held @ held) > _CROWDED * len(positions):
                    return self._from_list(positions)
            return grid.stream(self.cutoff, self._function, self._held[1])

    def _grid_for(self, count: int) -> UniformGrid:
        """Return a grid whose memory grows with the particles, not with the box."""
        if count != self._made_for:
            size = np.array([self.cutoff, self.cutoff, self.cutoff / 4])
            thickness = 1 / np.linalg.norm(self.box.inverse, axis=1)
            while np.maximum(1, thickness // size).prod() > _CELLS_A_PARTICLE * count + _FEW_CELLS:
                size *= 2
            self._large, self._made_for = bool(size[0] > self.cutoff), count
            shape = tuple(np.maximum(1, thickness // size).astype(int).tolist())
            self._cells = shape, self.box.periodic, self.box.origin.tolist()
        cells, grid = self._grids.get(self._moved, (None, None))
        if grid is None or cells != self._cells:  # another copy may have had other cells
            grid = UniformGrid(
                self.box, shape=self._cells[0], deterministic=True, backend=self.backend,
                systems=1 if self._moved else None,
            )  # fmt: skip
            self._grids[self._moved] = self._cells, grid
        return grid

    def _from_list(self, positions: Any) -> Any:
        """Return the sums over a list of pairs on the host."""
        x, sigma = to_host(positions), to_host(self._held[1])
        i, j, vectors = neighbour_list("ijD", x, self.box, (2 ** (1 / 6) / 2 * sigma).astype(x.dtype))
        squares = (vectors * vectors).sum(1)
        s6 = (((sigma[i] + sigma[j]) / 2) ** 2 / squares) ** 3
        s6 = np.where(s6 > 0.5, s6, 0.5)  # as `_wca`: beyond the minimum both terms are 0
        energy, pull = 2 * self.epsilon * (s6 * s6 - s6 + 0.25), 24 * self.epsilon * (s6 - 2 * s6 * s6) / squares
        terms = [energy, *(pull[:, None] * vectors).T]
        sums = np.stack([np.bincount(i, term, len(x)) for term in terms], 1).astype(x.dtype)
        return module_of(positions).asarray(sums)


class Sum(Fixed):
    """Several forces at once, added in the order given.

    Parameters
    ----------
    *forces : callables
        Each takes positions (N, 3) and returns forces (N, 3).

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.brownian import HarmonicBonds, Sum
    >>> falling = Sum(HarmonicBonds([[0, 1]], 1.0), lambda x: np.broadcast_to([0.0, 0.0, -1.0], x.shape))
    >>> falling(np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]))
    array([[ 2.,  0., -1.],
           [-2.,  0., -1.]])
    """

    def __init__(self, *forces: Callable[[Any], Any]) -> None:
        for n, force in enumerate(forces):
            if not callable(force):
                raise TypeError(f"force {n} is a {type(force).__name__}; give functions of positions (N, 3).")
        self.forces = forces

    def settings(self) -> dict[str, Any]:
        """Return the forces, for checkpoints."""
        return {"forces": list(self.forces)}

    def __call__(self, positions: Any) -> Any:
        """Return the sum of all forces (N, 3)."""
        total = module_of(positions).zeros_like(positions)
        for force in self.forces:
            total = total + force(positions)
        return total

    def energy(self, positions: Any) -> float:
        """Return the sum of all energies, of forces that have an ``energy``."""
        return float(sum(force.energy(positions) for force in self.forces))  # type: ignore[attr-defined]
