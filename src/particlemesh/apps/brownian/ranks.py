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
from particlemesh.apps.brownian.arrays import like_numpy, uploaded
from particlemesh.apps.brownian.drag import radii
from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near, Product
from particlemesh.apps.brownian.parameters import Parameters
from particlemesh.apps.brownian.rpy import RPY, check_generator
from particlemesh.kernels import allocate, checks

T = TypeVar("T")
_CHUNK = 1 << 16  # numbers that are drawn and dropped at once
_PARTS = "blocks", "pencils", "slabs", "bisection"


class DistributedRPY(RPY):
    r"""Velocities that forces cause on the spheres of many ranks: :class:`RPY` whose mesh and pairs are cut into parts.

    Each rank gives some of the spheres, in any place. They travel to the owners of their cells, with copies of those
    within the cutoff of a border. Velocities return to the rank that gave the spheres. The first rank chooses
    parameters for all. Each rank computes on the device of its arrays: the kind of device is the same on all ranks.

    All methods are collective, except `explain` and `settings`. If a rank raises, all others raise a
    :class:`particlemesh.distributed.RankError` that names it.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    box, viscosity, accuracy, splitting, cutoff, shape, window, applications, vectors, backend, threads
        As for :class:`RPY`, and the same on every rank.
    radius : number or array (N,)
        Radius of all spheres, or of each of this rank's.
    parts : {"blocks", "pencils", "slabs", "bisection"}
        How the box is cut: see :class:`particlemesh.distributed.Domain`.
    **options
        Further options of :class:`particlemesh.distributed.Plan`. With ``deterministic=True`` velocities and noise
        have the same bits on any number of ranks and for any cuts. Spheres in one place go by their numbers. On GPUs
        cuFFT does not promise these bits.

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
        window: pm.Window | str | None = None, applications: int = 20, vectors: int = 1,
        backend: str | None = None, threads: int | None = None, parts: str = "blocks", **options: Any,
    ) -> None:  # fmt: skip
        self.world = self._ranks = world
        said = f"{box}, {viscosity}, {accuracy}, {splitting=}, {cutoff=}, {shape=}, {window}, {applications=}"
        size = "of each" if isinstance(radius, (list, tuple)) or np.ndim(radius) else radius
        with world.agreement(f"DistributedRPY({said}, {vectors=}, {backend=}, {parts=}, {options}, radius={size})"):
            super().__init__(
                box, radius, viscosity, accuracy, splitting=splitting, cutoff=cutoff, shape=shape, window=window,
                applications=applications, vectors=vectors, backend=backend, threads=threads, **options,
            )  # fmt: skip
            self.parts = checks.one_of(parts, "parts", _PARTS)

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

    def _among(self, same: bool, count: int) -> tuple[bool, tuple[int, int]]:
        known, counts = zip(*self.world.allgather((same, count)), strict=True)
        return all(known), (sum(counts[: self.world.rank]), sum(counts))

    def _parts_for(self, x: kernels.Operand, total: int) -> tuple[Parameters, Near, Any, Any, Product | None]:
        world = self.world
        every = np.unique(np.concatenate(world.allgather(np.unique(self.radii))))
        first = world.alike(lambda: ("parameters", None if world.rank else self._chosen(x, every, total)))
        chosen: Any = world.allgather(first)[0]
        domain = pmd.Domain(pm.Mesh(chosen.shape, self.box), world.size, self.parts)
        far = RankFar(
            world, domain, every, self.radii, chosen.splitting, self.viscosity, chosen.window,
            max(self.accuracy, chosen.error) / 10, self._plan_options,
        )  # fmt: skip
        grid = pmd.UniformGrid(
            domain, world, chosen.cutoff, cell_size=chosen.cutoff / 2, threads=self._threads,
            deterministic=self._reproducible,
        )  # fmt: skip
        with world.agreement("spheres of a mobility"):
            near = Near(x.backend, x.dtype, self.radii, chosen.splitting, self.viscosity, self._threads)
            product = None if x.backend.name == "cpu" else RankProduct(near, far, grid)
        return chosen, near, far, grid, product

    def _rows_of(self, x: kernels.Operand, chosen: Parameters, near: Near, grid: Any, first: int) -> tuple[Any, Any]:
        radii, terms = (grid.at_places(array) if self._many else array for array in (near.radii, near.self))
        numbers = grid.at_places(x.backend.upload(first + np.arange(x.shape[0]))) if self._reproducible else None
        with self.world.agreement("near part of a mobility"):
            pairs = self._pairs(grid, x.backend, numbers)
            rows = int(pairs[0].shape[0]) - 1
            blocks = near.blocks(rows, *pairs, first=grid.first, radii=radii)
        return x.native, (rows, blocks, None, grid.first, terms)

    def _pairs(self, grid: pmd.UniformGrid, backend: kernels.Backend, numbers: Any) -> tuple[Any, Any, Any]:
        """Return rows of the spheres that this rank owns: their starts, second spheres by place, and vectors.

        With numbers of all places, their order is one that no cut changes.
        """
        pairs = grid.pairs(order="local", quantities="jD" if numbers is None else "ijD")
        if numbers is None or not pairs.j.shape[0]:
            return pairs.start, pairs.j, pairs.vector
        arrays = numbers, pairs.i, pairs.j, pairs.vector
        (number, xp), (i, _), (j, _), (vector, _) = (like_numpy(backend, array) for array in arrays)
        # Numbers decide between spheres in one place.
        order = xp.lexsort(xp.stack([key.astype(np.float64) for key in (number[j], *vector.T, i)]))
        return pairs.start, uploaded(backend, j[order]), uploaded(backend, vector[order])

    # ---- products -------------------------------------------------------------------------------------

    def _multiply_near(self, near: Near, force: Any, velocity: Any) -> None:
        places = self._grid.at_places(np.ascontiguousarray(force.transpose(1, 0, 2)))
        sums = np.empty((len(force), near.count, 3), near.dtype)
        near.multiply(np.ascontiguousarray(places.transpose(1, 0, 2)), sums)
        velocity[...] = self._grid.route.back(np.ascontiguousarray(sums.transpose(1, 0, 2))).transpose(1, 0, 2)

    def linear_operator(self) -> Any:
        """Raise a TypeError: solvers of SciPy see the vectors of one rank."""
        raise TypeError("solvers of SciPy see the vectors of one rank, not of all: call velocity.")

    # ---- noise ----------------------------------------------------------------------------------------

    def _wave_shape(self) -> tuple[int, ...]:
        return (3, *self._far.domain.parts(self.world.rank)[0].shape)

    def noise(self, generator: Any, *batch: int, tolerance: float = 1e-3, method: str = "split") -> Any:
        r"""Return vectors whose covariance is the mobility: those of :meth:`RPY.noise` with the same generator.

        Each rank draws the numbers of all and keeps its own. NumPy draws one after the other, in little memory; CuPy
        draws all at once.

        Parameters
        ----------
        generator : numpy.random.Generator or cupy.random.Generator
            CuPy's draws on a GPU; numbers of NumPy's are copied there. In the same state on every rank.
        \*batch : int
            Leading axes.
        tolerance, method
            As for :meth:`square_root`.

        Returns
        -------
        array (\*batch, N, 3)
        """

        def drawn() -> tuple[str, tuple[Any, Any]]:
            check_generator(generator)
            near, waves, (first, total) = self._ready(), None, self._share
            z = share_of_rows(generator, batch, first, self.count, total, near.dtype)
            if method == "split":
                part = self._far.domain.parts(self.world.rank)[0]
                waves = share_of_nodes(generator, (*batch, 3), part, self._far.mesh.shape, near.dtype)
            return f"noise {batch}, {method=}", (self._sent(z), self._sent(waves))

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

    def flow(self, forces: Any, out: Any) -> None:
        self._backend.copy(out, self.solver.field(forces))

    def noise(self, noise: Any, out: Any) -> None:
        self._backend.copy(out, self.solver.sample(noise))


class RankProduct(Product):
    """Products on the GPUs of many ranks: rows of forces travel to the owners of spheres, and those of velocities back.

    Parameters
    ----------
    near, far
        As for :class:`Product`.
    grid : particlemesh.distributed.UniformGrid
        Of the near part's pairs.
    """

    _shared = True

    def __init__(self, near: Near, far: Far, grid: pmd.UniformGrid) -> None:
        super().__init__(near, far)
        self._grid = grid

    def _both(self, vectors: int, forces: Any, sums: Any, source: Any, flow: Any) -> None:
        self._sum(vectors, forces, sums)
        self._far.flow(self._seen(source, vectors), self._seen(flow, vectors))

    def _sum(self, vectors: int, forces: Any, sums: Any) -> None:
        places = self._grid.at_places(forces)
        with self._grid.world.agreement("near part of velocities"):
            rows = allocate(
                self._backend, (self._near.count, *forces.shape[1:]), self._near.dtype, "rows of velocities"
            )
            super()._sum(vectors, places, rows)
        self._backend.copy(sums, self._grid.route.back(rows))


def _draw(generator: Any, count: int, dtype: Any) -> Any:
    return generator.standard_normal(count, dtype=dtype)


def _skip(generator: Any, count: int, dtype: Any) -> None:
    for begin in range(0, count, _CHUNK):
        _draw(generator, min(_CHUNK, count - begin), dtype)


def share_of_rows(
    generator: Any, batch: tuple[int, ...], first: int, count: int, total: int, dtype: Any
) -> Any:  # fmt: skip
    """Return rows (*batch, count, 3) of normal numbers (*batch, total, 3); of NumPy in little memory.

    Examples
    --------
    >>> whole = np.random.default_rng(1).standard_normal((2, 5, 3))
    >>> part = share_of_rows(np.random.default_rng(1), (2,), 1, 3, 5, np.float64)
    >>> bool((part == whole[:, 1:4]).all())
    True
    """
    if not isinstance(generator, np.random.Generator):  # other numbers if it draws fewer at once
        return generator.standard_normal((*batch, total, 3), dtype=dtype)[..., first : first + count, :]
    rows = np.empty((math.prod(batch), 3 * count), dtype)
    for row in rows:
        _skip(generator, 3 * first, dtype)
        row[:] = _draw(generator, 3 * count, dtype)
        _skip(generator, 3 * (total - first - count), dtype)
    return rows.reshape(*batch, count, 3)


def share_of_nodes(
    generator: Any, batch: tuple[int, ...], part: pmd.Part, shape: tuple[int, ...], dtype: Any
) -> Any:  # fmt: skip
    """Return a part's nodes of normal numbers (*batch, *shape); of NumPy in little memory."""
    if not isinstance(generator, np.random.Generator):
        return generator.standard_normal((*batch, *shape), dtype=dtype)[(..., *map(slice, part.lower, part.upper))]
    fields = np.empty((math.prod(batch), *part.shape), dtype)
    inside = tuple(map(slice, part.lower[1:], part.upper[1:]))
    for field in fields:
        for n in range(shape[0]):
            plane = _draw(generator, math.prod(shape[1:]), dtype).reshape(shape[1:])
            if part.size and part.lower[0] <= n < part.upper[0]:
                field[n - part.lower[0]] = plane[inside]
    return fields.reshape(*batch, *part.shape)
