# SPDX-License-Identifier: BSD-3-Clause
"""Particle-mesh Ewald over many ranks."""

from __future__ import annotations

import contextlib
import functools
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import close
from particlemesh.apps.pme.core import Core, native
from particlemesh.apps.pme.exclusions import Exclusions, Named
from particlemesh.apps.pme.operators import joined
from particlemesh.apps.pme.parameters import FOURTH, Parameters, crowding
from particlemesh.apps.pme.pme import PME
from particlemesh.kernels import Coordinates, alone, checks, coordinates

_PARTS = "blocks", "pencils", "slabs", "bisection"


class DistributedPME(PME):
    r"""Electrostatics of the particles of many ranks: :class:`PME` whose mesh and pairs are cut into parts.

    Each rank calls it as a :class:`PME`, with some of the particles, in any place, or none. All ranks give the same
    kinds of numbers, as arrays of NumPy, CuPy, torch or JAX of one dtype. Particles travel to the owners of their
    cells, with copies of those within the cutoff of a border. Energies, forces, potentials, fields and torques return
    to the rank that gave the particles. Energy and virial are those of all particles, the same on every rank. The first
    rank chooses parameters for all.

    All methods are collective, except `explain`. If a rank raises, all others raise a
    :class:`particlemesh.distributed.RankError` that names it. Messages have the indices of a rank's particles.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    box : Box, lengths or matrix
        Three periodic axes.
    accuracy, cutoff, splitting, bandwidth, shape, window, coulomb_constant, gradient, deterministic, dtype, threads
        As for :class:`PME`, and the same on every rank. Other ranks or cuts change the last digits. With
        ``deterministic=True`` they change those of the virial only.
    exclusions : array_like (M, 2), optional
        The same on every rank. Particles are numbered over all ranks: first those of rank 0, then those of rank 1.
    factors : float or array_like (M,)
        As for :class:`PME`.
    parts : {"blocks", "pencils", "slabs", "bisection"}
        How the box is cut: see :class:`particlemesh.distributed.Domain`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or an axis is open.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.pme import DistributedPME
    >>> ions = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    >>> charges = (-1.0) ** ions.sum(1)
    >>> world = pmd.World()                                 # or World(MPI.COMM_WORLD), each rank with some of the ions
    >>> pme = DistributedPME(world, (2.0, 2.0, 2.0), accuracy=1e-10)
    >>> result = pme(ions, charges)
    >>> round(float(-result.energy / 4), 8)                 # the Madelung constant of rock salt
    1.74756459

    A cubic lattice of equal dipoles has the energy ``-2 pi / 3`` times their squared sum over the volume:

    >>> result = pme(ions, 0 * charges, dipoles=np.tile([0.0, 0.0, 1.0], (8, 1)))
    >>> round(float(result.energy), 6), round(-2 * np.pi / 3 * 8**2 / 8, 6)
    (-16.755161, -16.755161)
    """

    def __init__(
        self, world: pmd.World, box: Any, accuracy: float | None = None, *, cutoff: float | None = None,
        splitting: float | str | None = None, bandwidth: float | None = None, shape: Any = None, window: Any = None,
        coulomb_constant: float = 1.0, exclusions: Any = None, factors: Any = 0.0, gradient: str = "window",
        deterministic: bool = False, dtype: Any = None, threads: int | None = None, parts: str = "blocks",
    ) -> None:  # fmt: skip
        self.world = world
        said = f"{box}, {accuracy=}, {cutoff=}, {splitting=}, {bandwidth=}, {shape=}, {window}, {coulomb_constant=}"
        with world.agreement(f"DistributedPME({said}, {gradient=}, {deterministic=}, {dtype}, {parts=})"):
            super().__init__(
                box, accuracy, cutoff=cutoff, splitting=splitting, bandwidth=bandwidth, shape=shape, window=window,
                coulomb_constant=coulomb_constant, exclusions=exclusions, factors=factors, gradient=gradient,
                deterministic=deterministic, dtype=dtype, threads=threads,
            )  # fmt: skip
            self.parts = checks.one_of(parts, "parts", _PARTS)
            if not self._closed:
                raise ValueError(f"the box is periodic along {self.box.periodic}; over ranks every axis is periodic.")
        listed = zlib.crc32(self.exclusions.pairs.tobytes() + self.exclusions.factors.tobytes())
        world.agree(None, f"DistributedPME with exclusions {listed}")

    __reduce__: Any = object.__reduce__  # what talks to other ranks is not copied

    # ---- a step ---------------------------------------------------------------------------------------

    @alone
    def check(self) -> None:
        """Raise the errors of the last call with ``check=False`` on all ranks."""
        core = self._core
        if core is None:
            raise RuntimeError("this DistributedPME has made no step yet.")
        core.solver.plan.check()
        self._check(core)

    @alone
    def reserve(self, *given: Any, **options: Any) -> Any:
        """Raise a TypeError: memory follows the particles that come to a rank."""
        raise TypeError("memory follows the particles that come to a rank, so that none can be reserved: call it.")

    # ---- how it is done -------------------------------------------------------------------------------

    def _alike(self, accepted: Callable[[], tuple[str, Any]]) -> Any:
        def on_ranks() -> tuple[str, Any]:
            said, given = accepted()
            if given[2].name == "opencl":
                raise TypeError("arrays are those of PyOpenCL; over ranks give NumPy, CuPy, torch or JAX.")
            return said, given

        return self.world.alike(on_ranks)

    def _check(self, core: Any) -> None:
        """Raise what is wrong with the last step: bad numbers of a rank spoil the energies of others."""
        wrong = core.errors()
        bad = [first is not None for first in wrong[1:]]
        level = 2 if any(bad[1:-1]) else int(wrong.touching or any(bad))  # numbers are between energy and results
        worst = self.world.allreduce(level, "max")
        if worst:
            with self.world.agreement("looking at a step"):
                if level == worst:
                    super()._check(core)

    def _look_at_error(self, *given: Any) -> None:
        """The number of all particles is that of the first call; those of a rank change."""

    def _make_for(self, x: np.ndarray, *numbers: Any, **systems: Any) -> Any:
        count = self.world.allreduce(len(x))
        known, _ = self._of_first(lambda: self._best(count, *numbers))
        crowd = crowding(known, x, self.box, count=count, add=self.world.allreduce)
        return self._make(count, *numbers, crowd=crowd)

    def _of_first(self, choose: Callable[[], Any]) -> Any:
        """Return what the first rank chooses."""
        mine = self.world.alike(lambda: ("parameters", choose() if self.world.rank == 0 else None))
        return self.world.allgather(mine)[0]

    def _for_widths(self, core: Any, count: int, widths: Any) -> Any:
        host = widths if isinstance(widths, np.ndarray) else core.owner.download(widths)
        largest = self.world.allreduce(np.nan_to_num(host.max(initial=0.0)), "max")
        return super()._for_widths(core, self.world.allreduce(count), np.full(1, largest))

    def _fourth(self, charges: np.ndarray) -> float:
        """Return the mean fourth power of the charges of all ranks, of the worst set: see `fourth_power`."""
        sets = charges.reshape(math.prod(charges.shape[:-1]), charges.shape[-1]).astype(np.float64)
        largest = self.world.allreduce(np.nan_to_num(abs(sets)).max(1, initial=0.0), "max")
        ratios = np.nan_to_num(sets) / np.where(largest > 0, largest, 1)[:, None]
        sums = np.reshape(self.world.exact_sum(np.stack([ratios**2, ratios**4, ratios != 0])), (3, len(sets)))
        squares, fourths, counts = sums[:, sums[0] > 0]
        return float((fourths * counts / squares**2).max(initial=0.0)) or FOURTH

    def _another(self, **given: Any) -> PME:
        return DistributedPME(
            self.world, self.box, **given, coulomb_constant=self.coulomb_constant, exclusions=self.exclusions.pairs,
            factors=self.exclusions.factors, deterministic=self._options["deterministic"], dtype="float64",
            threads=self._threads, parts=self.parts,
        )  # fmt: skip

    def _total(self, numbers: np.ndarray) -> Any:
        return self.world.exact_sum(numbers)

    def _chosen(self, *given: Any, **more: Any) -> Parameters:
        chosen = super()._chosen
        return self._of_first(lambda: chosen(*given, **more))

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> Core:
        chosen = self._chosen(count, dtype, backend, fourth, **more)
        return RankCore(
            self.world, self.parts, self.box, chosen, backend, dtype, self.coulomb_constant, self.exclusions,
            named=None, threads=self._threads, count=count, **self._options,
        )  # fmt: skip


class RankCore(Core):
    """Grid and solver over ranks, and sums of energies and virials."""

    looks_back = False

    def __init__(
        self, world: pmd.World, parts: str, box: pm.Box, parameters: Parameters, *given: Any, **more: Any
    ) -> None:
        self.world = world
        self.domain = pmd.Domain(pm.Mesh(parameters.shape, box), world.size, parts)
        self._partners: Partners | None = None
        self._meanwhile: Callable[[], Any] | None = None
        self.deterministic = more["deterministic"]
        super().__init__(box, parameters, *given, **more)
        self.names = Named.of(self.exclusions)
        self.over_ranks, self.exclusions = self.exclusions, self.names.pairs

    def new_grid(self, sides: list[float], options: dict[str, Any]) -> Any:
        return pmd.UniformGrid(self.domain, self.world, self.parameters.cutoff, cell_size=tuple(sides), **options)

    def new_solver(self, **options: Any) -> Any:
        return pmd.Solver(self.domain, self.world, self.parameters.window, **options)

    def checking(self, what: str = "charges and memory of a step") -> Any:
        return self.world.agreement(what)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self.domain.parts(self.world.rank)[0].shape)

    @property
    def nbytes(self) -> int:
        """Bytes held on this rank, except those of the grid."""
        return self.solver.plan.nbytes + sum(int(m.nbytes) for m in self._memory.values())

    def build(self, x: Coordinates, check: bool) -> None:
        self.grid.build(native(x))
        self.partners(x.count)

    def partners(self, count: int) -> Partners | None:
        """Return excluded pairs of so many particles of this rank, or None if no pair is excluded; all ranks call."""
        if len(self.exclusions):
            counts = self.world.allgather(count)
            if self._partners is None or self._partners.counts != counts:
                self._partners = None  # until all ranks have some
                self._partners = Partners(self, counts)
        return self._partners

    @contextlib.contextmanager
    def beside(self, smooth: Callable[[], Any]) -> Iterator[None]:
        """Let the half of the mesh begin once the sums over pairs run, whose messages come first.

        So these sums fill the time in which the mesh waits for messages and for the host.
        """
        with contextlib.nullcontext(_at_once) if self.branch is None else self.branch.opened() as submit:
            self._meanwhile = functools.partial(submit, smooth)
            try:
                yield
                self._work_meanwhile()  # without charges there are no sums
            finally:
                self._meanwhile = None  # it has charges and positions

    def _work_meanwhile(self) -> None:
        work, self._meanwhile = self._meanwhile, None
        if work is not None:
            work()

    def prepare(self, steps: Any, sets: int, count: int, virial: bool) -> None:
        if steps is not self:
            steps.scratch(count, virial)
            return
        function = self.function(min(sets, self.together), virial, count)
        self.take("sums", count * function.results)
        self.fields(sets, count, virial)

    def stream(self, function: pm.PairFunction, values: Any, sums: Any) -> None:
        if self._partners is not None:
            values = joined(self, len(values), function.values, values, self._partners.two_reals)
        of_rank = self.grid.stream(None, function, values, meanwhile=self._work_meanwhile)
        self.backend.copy(sums, of_rank)

    def add_pairs(self, x: Coordinates, function: pm.PairFunction, values: Any, sums: Any) -> None:
        assert self._partners is not None
        self._partners.add(self, x, function, values, sums)

    def of_mesh(self, verb: str, given: Any, *outs: Any, **options: Any) -> None:
        results = getattr(self.solver, verb)(given, **options)
        for target, result in zip(outs, results if len(outs) > 1 else [results], strict=True):
            self.backend.copy(target, result)
        if self.world.rank and ("virial" in verb or options.get("virial")):  # all have it, and virials are added up
            self.backend.clear(outs[-1])

    def finish(self, out: dict[str, Any]) -> None:
        for name in ("energy", "virial"):
            if name not in out:
                continue
            if name == "energy" and self.deterministic:
                self.backend.copy(out[name], self.upload(self.world.exact_sum(out["energies"])))
            else:
                self.backend.copy(out[name], self.world.allreduce(out[name]))


def _at_once(work: Callable[[], Any]) -> None:
    work()


class Partners:
    """Excluded and scaled pairs of one rank's particles, with their partners on other ranks."""

    def __init__(self, core: RankCore, counts: list[int]) -> None:
        rank, world = core.world.rank, core.world
        with world.agreement("exclusions"):
            core.over_ranks.check(sum(counts))
            ends = np.cumsum(counts)
            first, count, pairs = int(ends[rank]) - counts[rank], counts[rank], core.over_ranks.pairs
            holder = np.searchsorted(ends, pairs, "right")  # the rank of each particle
            some = (holder == rank).any(1)
            pairs, holder = pairs[some], holder[some]
            far = np.unique(pairs[holder != rank])  # partners elsewhere, which come in this order
            # Row n: a rank that needs a particle of this one, and the particle.
            across = holder[:, 0] != holder[:, 1]
            here = holder[across] == rank
            rows = np.unique(np.stack([holder[across][~here], pairs[across][here] - first], 1), axis=0)
            self.counts, self._count, self.names = counts, count, core.names.of_range(first, count)
            self.two_reals = core.upload(close.two_reals(self.names))
            local = np.where(holder == rank, pairs - first, count + np.searchsorted(far, pairs))
            self.mine = holder[:, 0] == rank  # of each pair one rank has the first particle
            self.pairs = Exclusions(local, core.over_ranks.factors[some])
            to, particles = (np.ascontiguousarray(column) for column in rows.T)
        self.route = pmd.Route(world, to, particles=particles, count=count)

    def add(self, core: RankCore, x: Coordinates, function: pm.PairFunction, values: Any, sums: Any) -> None:
        """Add the function of pairs to sums (N, results): see `Exclusions.add`."""
        positions = native(x)
        columns = positions if isinstance(positions, tuple) else (positions,)
        sent = self.route.send(*columns, values)
        with core.world.agreement("sums of exclusions"):
            whole = [self._joined(core, here, there) for here, there in zip((*columns, values), sent, strict=True)]
            given = tuple(whole[:-1]) if isinstance(positions, tuple) else whole[0]
            both = coordinates(given, 3, core.owner, upload=False)[2]
            results = self._joined(core, sums, None)
            self.pairs.add(core, both, function, whole[-1], results)
            core.backend.copy(sums, results[: self._count])

    def _joined(self, core: RankCore, here: Any, there: Any) -> Any:
        """Return rows of this rank's particles and of their partners elsewhere, in new memory."""
        whole = core.backend.empty((self._count + self.route.arrived, *here.shape[1:]), here.dtype)
        core.backend.copy(whole[: self._count], here)
        if there is None:
            core.backend.clear(whole[self._count :])
        else:
            core.backend.copy(whole[self._count :], there)
        return whole
