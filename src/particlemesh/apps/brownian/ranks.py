# SPDX-License-Identifier: BSD-3-Clause
"""The mobility of the spheres of many ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh import kernels
from particlemesh.apps.brownian.drag import radii
from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near
from particlemesh.apps.brownian.parameters import Parameters, for_system
from particlemesh.apps.brownian.rpy import RPY
from particlemesh.kernels import alone, checks

T = TypeVar("T")
_CHUNK = 1 << 16  # numbers that are drawn and dropped at once
_PARTS = "blocks", "pencils", "slabs", "bisection"


class DistributedRPY(RPY):
    r"""Velocities that forces cause on the spheres of many ranks: :class:`RPY` whose mesh and pairs are cut into parts.

    Each rank gives some of the spheres, in any place. They travel to the owners of their cells, with copies of those
    within the cutoff of a border. Velocities return to the rank that gave the spheres. The first rank chooses
    parameters for all. Spheres are on CPUs.

    All methods are collective, except `explain` and `settings`. If a rank raises, all others raise a
    :class:`particlemesh.distributed.RankError` that names it.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    box, viscosity, accuracy, splitting, cutoff, shape, window, applications, vectors, threads
        As for :class:`RPY`, and the same on every rank.
    radius : number or array (N,)
        Radius of all spheres, or of each of this rank's.
    parts : {"blocks", "pencils", "slabs", "bisection"}
        How the box is cut: see :class:`particlemesh.distributed.Domain`.
    **options
        Further options of :class:`particlemesh.distributed.Plan`. With ``deterministic=True`` velocities and noise
        have the same bits on any number of ranks and for any cuts. Spheres in one place go by their numbers.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.brownian import DistributedRPY
    >>> world = pmd.World()                                 # or World(MPI.COMM_WORLD), each rank with some spheres
    >>> rpy = DistributedRPY(world, (8.0, 8.0, 8.0), accuracy=1e-8)
    >>> rpy = rpy.set_positions(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 6.0]]))
    >>> rpy.velocity(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))[:, 2].round(6)
    array([0.653519, 0.195118])
    """

    def __init__(
        self, world: pmd.World, box: Any, radius: Any = 1.0, viscosity: float = 1 / (6 * math.pi),
        accuracy: float = 1e-6, *, splitting: float | None = None, cutoff: float | None = None, shape: Any = None,
        window: pm.Window | str | None = None, applications: int = 20, vectors: int = 1, threads: int | None = None,
        parts: str = "blocks", **options: Any,
    ) -> None:  # fmt: skip
        self.world = self._ranks = world
        said = f"{box}, {viscosity}, {accuracy}, {splitting=}, {cutoff=}, {shape=}, {window}, {applications=}"
        size = radius if np.ndim(radius) == 0 else "of each"
        with world.agreement(f"DistributedRPY({said}, {vectors=}, {parts=}, {options}, radius={size})"):
            super().__init__(
                box, radius, viscosity, accuracy, splitting=splitting, cutoff=cutoff, shape=shape, window=window,
                applications=applications, vectors=vectors, threads=threads, **options,
            )  # fmt: skip
            self.parts = checks.one_of(parts, "parts", _PARTS)
        self._first = self._total = 0

    __reduce__: Any = object.__reduce__  # what talks to other ranks is not copied

    def _checked_radii(self, given: Any) -> Any:
        return np.zeros(0) if np.shape(given) == (0,) else radii(given)

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal mobility, except the world, of this rank's spheres."""
        radius = self.radii if self._many else float(self.radii[0])
        return {**super().settings(), "radius": radius, "parts": self.parts}

    def in_box(self, box: Any) -> Self:
        """Return a mobility with the same arguments in another box: see :meth:`RPY.in_box`."""
        return type(self)(self.world, **{**self.settings(), "box": box})

    def _alike(self, work: Callable[[], tuple[str, T]]) -> T:
        return self.world.alike(work)

    # ---- positions ------------------------------------------------------------------------------------

    @alone
    def set_positions(self, positions: Any) -> Self:
        """Set the centres of this rank's spheres; see :meth:`RPY.set_positions`.

        Parameters
        ----------
        positions : array (N, 3)
            Also none. One dtype on all ranks.

        Returns
        -------
        DistributedRPY
            The mobility itself.
        """

        def accepted() -> tuple[str, Any]:
            x = kernels.take(positions, (None, 3), "positions", batch=False)
            if x.backend.name != "cpu":
                raise TypeError(f"positions are on {x.backend.name}; over ranks spheres are on CPUs: copy them.")
            if self._many and len(self.radii) != x.shape[0]:
                raise ValueError(f"there are {x.shape[0]} positions and {len(self.radii)} radii: give one each.")
            return f"positions of spheres in {x.dtype}", x

        x = self.world.alike(accepted)
        counts = self.world.allgather(int(x.shape[0]))
        total, chosen, far, grid = sum(counts), self._parameters, self._far, self._grid
        same = self._near is not None and self._near.dtype == x.dtype
        if not (same and self._chosen_for / 2 <= total <= self._chosen_for * 2):
            every = np.unique(np.concatenate(self.world.allgather(np.unique(self.radii))))
            chosen = self._chosen(every, total, x)
            domain = pmd.Domain(pm.Mesh(chosen.shape, self.box), self.world.size, self.parts)
            far = RankFar(
                self.world, domain, every, self.radii, chosen.splitting, self.viscosity, chosen.window,
                max(self.accuracy, chosen.error) / 10, self._plan_options,
            )  # fmt: skip
            grid = pmd.UniformGrid(
                domain, self.world, chosen.cutoff, cell_size=chosen.cutoff / 2, threads=self._threads,
                deterministic=self._reproducible,
            )  # fmt: skip
        assert chosen is not None
        grid.build(x.native)
        radii_at = grid.at_places(self.radii) if self._many else self.radii
        first = sum(counts[: self.world.rank])
        numbers = grid.at_places(first + np.arange(x.shape[0])) if self._reproducible else None
        with self.world.agreement("near part of a mobility"):
            near = self._blocks(grid, radii_at, chosen, x, numbers)
        far.place(x.backend, x.dtype, x.native)
        if chosen is not self._parameters:
            self._chosen_for = max(total, 1)
        self._parameters, self._far, self._grid, self._near, self._count = chosen, far, grid, near, x.shape[0]
        self._first, self._total = first, total
        return self

    def _chosen(self, every: np.ndarray, total: int, x: Any) -> Parameters:
        """Return what the first rank chooses."""

        def work() -> tuple[str, Parameters | None]:
            if self.world.rank:
                return "parameters", None
            return "parameters", for_system(
                self.box, every, total, self.accuracy, x.dtype, x.backend, self._given,
                self._plan_options["applications"], self._vectors,
            )  # fmt: skip

        return self.world.allgather(self.world.alike(work))[0]

    def _blocks(self, grid: pmd.UniformGrid, given: np.ndarray, chosen: Parameters, x: Any, numbers: Any) -> Near:
        """Return the rows of the spheres that this rank owns, by vector if places have numbers over all ranks."""
        pairs, count = grid.pairs(order="local", quantities="jD"), len(grid.positions)
        j, vectors = pairs.j, pairs.vector
        if numbers is not None:  # an order that no cut changes
            rows = np.repeat(np.arange(count), np.diff(pairs.start))
            order = np.lexsort((numbers[j], *vectors.T, rows))  # numbers: of spheres in one place
            j, vectors = j[order], vectors[order]
        sizes = _owned_first(given, grid, count) if self._many and len(given) else given
        near = Near(
            x.backend, x.dtype, sizes if len(sizes) else np.ones(1), chosen.splitting, self.viscosity, self._threads
        )
        first = grid.first
        index = np.where(j < first, j + count, np.where(j < first + count, j - first, j)).astype(j.dtype)
        near.place(count, near.blocks(count, pairs.start, index, vectors))
        return near

    # ---- products -------------------------------------------------------------------------------------

    def _multiply(self, force: Any, velocity: Any) -> None:
        self._multiply_near(force, velocity)
        if not len(force):
            return
        shapes = self._far.shapes
        parts = force[:, None] if shapes is None else shapes[:, :, None] * force[:, None]
        far = self._far.velocity(parts)
        velocity += far[:, 0] if shapes is None else (shapes[:, :, None] * far).sum(1)

    def _multiply_near(self, force: Any, velocity: Any) -> None:
        near, grid = self._ready(), self._grid
        if not len(force):
            return
        places = grid.at_places(np.ascontiguousarray(force.transpose(1, 0, 2)))
        sums = np.empty((len(force), near.count, 3), near.dtype)
        near.multiply(np.ascontiguousarray(_owned_first(places, grid, near.count).transpose(1, 0, 2)), sums)
        velocity[...] = grid.route.back(np.ascontiguousarray(sums.transpose(1, 0, 2))).transpose(1, 0, 2)

    def linear_operator(self) -> Any:
        """Raise a TypeError: solvers of SciPy see the vectors of one rank."""
        raise TypeError("solvers of SciPy see the vectors of one rank, not of all: call velocity.")

    # ---- noise ----------------------------------------------------------------------------------------

    def _wave_shape(self) -> tuple[int, ...]:
        return (3, *self._far.domain.parts(self.world.rank)[0].shape)

    def noise(self, generator: Any, *batch: int, tolerance: float = 1e-3, method: str = "split") -> Any:
        r"""Return vectors whose covariance is the mobility: those of :meth:`RPY.noise` with the same generator.

        Each rank draws the numbers of all, one after the other, and keeps its own.

        Parameters
        ----------
        generator : numpy.random.Generator
            In the same state on every rank.
        \*batch : int
            Leading axes.
        tolerance, method
            As for :meth:`square_root`.

        Returns
        -------
        array (\*batch, N, 3)
        """

        def drawn() -> tuple[str, tuple[Any, Any]]:
            dtype, waves = self._ready().dtype, None
            z = share_of_rows(generator, batch, self._first, self.count, self._total, dtype)
            if method == "split":
                part = self._far.domain.parts(self.world.rank)[0]
                waves = share_of_nodes(generator, (*batch, 3), part, self._far.mesh.shape, dtype)
            return f"noise {batch}, {method=}", (z, waves)

        z, waves = self._alike(drawn)
        return self.square_root(z, tolerance=tolerance, method=method, waves=waves, check=False)


class RankFar(Far):
    """The far part of the spheres of many ranks.

    Parameters
    ----------
    world, domain
        The ranks, and the mesh and its parts.
    every : NumPy array (m,)
        Radii of the spheres of all ranks.
    radii : NumPy array (1,) or (N,)
        Those of this rank's spheres.
    splitting, viscosity, window, tolerance, options
        As for :class:`Far`.
    """

    def __init__(
        self, world: pmd.World, domain: pmd.Domain, every: np.ndarray, radii: np.ndarray, splitting: float,
        viscosity: float, window: Any, tolerance: float, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.world, self.domain = world, domain
        mesh = domain.mesh
        super().__init__(mesh.box, every, splitting, viscosity, mesh.shape, window, tolerance, options)
        if self.weights is not None:
            self.weights = self.weights[:, np.searchsorted(every, radii)]

    def _solver(self, window: Any, green: Any, **options: Any) -> Any:
        return pmd.VectorSolver(self.domain, self.world, window, green, **options)

    def velocity(self, parts: Any) -> Any:
        return self._rows(self.solver.field(np.ascontiguousarray(self._seen(parts))))

    def sample(self, noise: Any) -> Any:
        return self._rows(self.solver.sample(np.ascontiguousarray(noise)))

    def _rows(self, seen: Any) -> Any:
        planar = seen if len(self.radii) > 1 else seen[:, None]
        return planar.transpose((0, 1, 3, 2))


def _owned_first(rows: Any, grid: pmd.UniformGrid, count: int) -> Any:
    """Return rows by place with those of owned spheres before all ghosts."""
    first = grid.first
    return np.concatenate([rows[first : first + count], rows[:first], rows[first + count :]])


def _draw(generator: Any, count: int, dtype: Any) -> Any:
    return generator.standard_normal(count, dtype=dtype)


def _skip(generator: Any, count: int, dtype: Any) -> None:
    for begin in range(0, count, _CHUNK):
        _draw(generator, min(_CHUNK, count - begin), dtype)


def share_of_rows(
    generator: Any, batch: tuple[int, ...], first: int, count: int, total: int, dtype: Any
) -> np.ndarray:  # fmt: skip
    """Return rows (*batch, count, 3) of normal numbers (*batch, total, 3), in little memory.

    Examples
    --------
    >>> whole = np.random.default_rng(1).standard_normal((2, 5, 3))
    >>> part = share_of_rows(np.random.default_rng(1), (2,), 1, 3, 5, np.float64)
    >>> bool((part == whole[:, 1:4]).all())
    True
    """
    rows = np.empty((math.prod(batch), 3 * count), dtype)
    for row in rows:
        _skip(generator, 3 * first, dtype)
        row[:] = _draw(generator, 3 * count, dtype)
        _skip(generator, 3 * (total - first - count), dtype)
    return rows.reshape(*batch, count, 3)


def share_of_nodes(
    generator: Any, batch: tuple[int, ...], part: pmd.Part, shape: tuple[int, ...], dtype: Any
) -> np.ndarray:  # fmt: skip
    """Return a part's nodes of normal numbers (*batch, *shape), in little memory."""
    fields = np.empty((math.prod(batch), *part.shape), dtype)
    inside = tuple(map(slice, part.lower[1:], part.upper[1:]))
    for field in fields:
        for n in range(shape[0]):
            plane = _draw(generator, math.prod(shape[1:]), dtype).reshape(shape[1:])
            if part.size and part.lower[0] <= n < part.upper[0]:
                field[n - part.lower[0]] = plane[inside]
    return fields.reshape(*batch, *part.shape)
