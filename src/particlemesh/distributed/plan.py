# SPDX-License-Identifier: BSD-3-Clause
"""A plan over many ranks: the verbs of the local plan, on a mesh that is cut into parts.

Each rank works, all agree, then they communicate.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from particlemesh import checks
from particlemesh.checks import alone
from particlemesh.distributed.domain import Domain, check_ranks, cut_by_particles, hash_of
from particlemesh.distributed.migration import SKIP, Migration, Residents, UserPositions, few, listed, shift_of
from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import DTYPES, Staged, Target, batch_of, several
from particlemesh.distributed.survey import StrayListing
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.windows import Crops, Halo, copies, mesh_of, reach_of
from particlemesh.distributed.world import World, agreed
from particlemesh.functions import locate
from particlemesh.particles.located import Status
from particlemesh.plan import Plan as LocalPlan
from particlemesh.plan import integers
from particlemesh.window import DEFAULT, Window, window_of

GHOSTS = "nodes", "particles", "replicated"
_NOTHING = -(2**20)  # exponent of sums without particles
_SPREAD = "spread", "spread_gradient", "spread_hessian"
_SPREAD_OF = "values", "vectors", "tensors"
_INTERPOLATE = {
    (0,): "interpolate", (1,): "gradient", (2,): "hessian", (0, 1): "value_and_gradient",
    (0, 1, 2): "value_gradient_hessian",
}  # fmt: skip
_T = TypeVar("_T")


class Call(NamedTuple):
    """What a rank is about to do, checked."""

    given: list[Staged]
    arrays: list[Any]
    batch: tuple[int, ...]
    targets: list[Target | None]
    ready: Callable[[], Any]  # communicates


class Plan(checks.Fixed):
    """Spread and interpolate on a mesh whose parts belong to many ranks.

    Any rank may give any particles. They travel to the owners of their cells, and results come back to the caller's
    rank and order. A field is an array for the nodes of this rank's part, or a tuple with one for each of its parts.

    All methods are collective, except ``explain`` and the attributes. Each works on its rank first, then all agree that
    none has failed, then they communicate: if one rank raises, all others raise a :class:`RankError`.

    Parameters
    ----------
    domain : Domain
        The mesh and its parts.
    world : World, optional
        The ranks; a single one by default.
    window : Window or str
        As for :class:`particlemesh.Plan`, and so are ``dtype``, ``components``, ``applications``, ``method``,
        ``interpolation``, ``backend``, ``threads`` and ``options``.
    ghosts : {"nodes", "particles", "replicated"}
        What ranks exchange in calls. With ``"nodes"`` parts have ghost nodes: their sums go to the owners of these
        nodes, or their values come from there. With ``"particles"`` every part gets the particles that reach it; that
        is less where particles are few. With ``"replicated"`` each rank has the whole mesh and keeps its particles,
        for small meshes. Results are the same to rounding.
    deterministic : bool
        If True, fields and interpolated values are bit-identical for any number of ranks, any cuts, and any rank and
        order of the particles. Spreading sums integers. It needs ``ghosts="nodes"``. Otherwise they are bit-identical
        for the same cuts and particles, if the local methods are reproducible.
    check : bool
        If False, calls for values do not agree before they communicate, which saves one small reduction. Then an error
        on one rank leaves the others waiting, and all ranks must give arrays of one dtype, also without particles.

    Attributes
    ----------
    domain : Domain
    world : World
    window : Window
    ghosts : str
    route : Route
        The way of particles from the ranks that set them to the owners of their cells. Programs that hand over their
        particles with ``route.send`` and set positions there move strays only.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.
    RankError
        If another rank raised, or makes another plan.

    References
    ----------
    Ghost particles, and several parts for each process, are those of [buyukkececi2013]_.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> mesh = pm.Mesh((8, 8), (1.0, 1.0))
    >>> world = pmd.World()
    >>> plan = pmd.Plan(pmd.Domain(mesh, world.size), world, "cic")
    >>> field = plan.set_positions([[0.5, 0.5], [0.1, 0.9]]).spread(np.array([1.0, -3.0]))
    >>> float(round(world.allreduce(field.sum()), 12))
    -2.0
    >>> plan.interpolate(field).round(2)
    array([ 1.  , -1.39])
    """

    def __init__(
        self,
        domain: Domain,
        world: World | None = None,
        window: Window | str = DEFAULT,
        *,
        ghosts: str = "nodes",
        dtype: Any = None,
        components: int = 1,
        applications: int = 1,
        method: str = "auto",
        interpolation: str = "auto",
        backend: str | None = None,
        deterministic: bool = False,
        threads: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        check: bool = True,
    ) -> None:
        self.busy = threading.RLock()
        if not isinstance(world, World | None):
            raise TypeError(f"world is of type {type(world).__name__}; give a particlemesh.distributed.World, or None.")
        self.world = World() if world is None else world
        settings = dict(
            dtype=dtype, components=components, applications=applications, method=method, interpolation=interpolation,
            backend=backend, deterministic=deterministic, threads=threads, options=options,
        )  # fmt: skip
        same = f"Plan({domain!r}, cuts {hash_of(domain)}, {window!r}, {ghosts=}, {deterministic=}, {dtype=}, {check=})"
        with self.world.agreement(same):
            self._build(domain, window, ghosts, settings, check)

    def _build(self, domain: Domain, window: Any, ghosts: str, settings: dict[str, Any], check: bool) -> None:
        """Check the arguments of this rank, and make its plans."""
        if not isinstance(domain, Domain):
            raise TypeError(f"domain is of type {type(domain).__name__}; give a particlemesh.distributed.Domain.")
        check_ranks(domain, self.world)
        self.domain, self.ghosts = domain, checks.one_of(ghosts, "ghosts", GHOSTS)
        self.window: Window = window_of(window)
        self.deterministic = checks.flag(settings["deterministic"], "deterministic")
        if self.deterministic and ghosts != "nodes":
            raise ValueError(
                f"deterministic=True with ghosts={ghosts!r}: values of one particle are sums of several ranks there; "
                "use ghosts='nodes'."
            )
        self._checked = checks.flag(check, "check")
        self._settings = settings
        support, ndim = self.window.support, domain.mesh.ndim
        self._windows: Halo | Crops
        if ghosts == "particles":
            self._windows = Crops(domain, self.world, support)
        else:
            self._windows = Halo(domain, self.world, None if ghosts == "replicated" else reach_of(support, ndim))
        self._per_rank = 1 if ghosts == "replicated" else domain.per_rank
        self._plans = self._local_plans(settings["backend"])
        # Whether this rank's part takes the particles that it owns and no others, so that they stay where they are.
        (start,), (shape,) = self._windows.starts[:1], self._windows.shapes[:1]
        part = domain.parts(self.world.rank)[0]
        self._settles = ghosts == "nodes" and domain.per_rank == 1 and part.size > 0 and all(
            owned == nodes or (first, held) != (0, nodes)
            for owned, nodes, first, held in zip(part.shape, domain.mesh.shape, start, shape, strict=True)
        )  # fmt: skip
        self._strays_before = 4096
        self._listing: StrayListing | None = None  # on a GPU
        self._strays: Any = None  # memory for them there
        self._settled = False  # whether they do, and guests have a plan of their own
        self._guests: LocalPlan | None = None
        self._route: Route | None = None  # to the parts, or to all that a particle reaches
        self._owners: Route | None = None
        self._bad_here = -1, 0, 0
        self._dtype: Any = None if settings["dtype"] is None else checks.real_type(settings["dtype"])
        self._closed = False

    def _local_plans(self, backend: str | None) -> list[LocalPlan | None]:
        meshes = [
            mesh_of(self.domain.mesh, part, start, shape)
            for part, start, shape in zip(
                self.domain.parts(self.world.rank), self._windows.starts, self._windows.shapes, strict=False
            )
        ]
        settings = self._settings | {"backend": backend}
        return [None if mesh is None else LocalPlan(mesh, self.window, **settings) for mesh in meshes]

    # ---- positions ----------------------------------------------------------------------------------------

    @alone
    def set_positions(self, positions: Any, *, check: bool = True) -> Self:
        """Set the positions of this rank's particles, which travel to the owners of their cells.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Any particles, also none. N differs between ranks; the dtype does not, nor whether they are on a device.
        check : bool
            If False, particles that are not finite or off an open axis get zero weight and are recorded in
            :attr:`status`. Ranks still agree on errors, because numbers of particles are exchanged.

        Returns
        -------
        Plan
            The plan itself.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis. The plan keeps its previous positions on all ranks.
        RankError
            If another rank raised. If its local plan did, for lack of memory, the plan has no positions afterwards.
        """

        def work() -> tuple[str, int | None, tuple[str, UserPositions, Callable[[], Migration]]]:
            self._open()
            checks.flag(check, "check")
            given = UserPositions(positions, self.domain.mesh.ndim)
            if given.home == "opencl" and self._settings["backend"] is None:
                self._settings |= {"backend": "opencl", "threads": None}
                self._plans, self._guests, self._listing = self._local_plans("opencl"), None, None
                self._strays = None
            stays = self._stays(given, check)
            text = f"set_positions(check={check}) on {given.memory}"

            def migration() -> Migration:
                return (None if stays is None else stays()) or self._goes(given, check)

            return text, DTYPES.index(given.real) if given.count else None, (text, given, migration)

        (text, given, located), number = self._agreed(work)  # while a GPU locates
        if number is None:  # no rank has a particle, and all know it
            real = np.dtype(f"f{int(self.world.allreduce(given.real.itemsize, 'max'))}")
        else:
            real = DTYPES[number]

        def counted() -> tuple[Migration, np.ndarray]:
            migration = located()
            return migration, migration.sent()

        each = self.domain.per_rank
        columns = {"nodes": each, "replicated": each + 1, "particles": 2 * each}[self.ghosts]  # of what `sent` returns
        migration, coming = self.world.announce(columns, text, counted)
        owners, route = migration.routes(self.world, coming)
        settled = migration.residents is not None and few(route.strays.shape[0] + route.guests, given.count)

        def pack() -> tuple[str, None, Callable[[], Any]]:
            if settled:
                return "travel", None, route.fetch(given.rows if migration.rows is None else lambda _: migration.rows)
            return "travel", None, route.forward(given.table().astype(real, copy=False))

        deliver, _ = self._agreed(pack)
        rows, ends = deliver(), np.cumsum(route.counts)
        self._route = self._owners = None  # until every rank has its particles

        def place() -> tuple[str, None, None]:
            if settled:
                if route.guests:
                    self._guests = self._guests or self._local_plans(self._settings["backend"])[0]
                    assert self._guests is not None
                    self._guests.set_positions(rows, check=False)  # their ranks have checked them
                assert migration.residents is not None
                migration.residents.take(check)
            else:
                for plan, n, end in zip(self._plans, route.counts, ends, strict=True):
                    if plan is not None:
                        plan.set_positions(rows[end - n : end], check=check)
            return "set_positions at the owners", None, None

        self._agreed(place)
        self._dtype = real if self._dtype is None else self._dtype
        self._bad_here, self._route, self._owners, self._settled = migration.bad, route, owners, settled
        return self

    def _stays(self, given: UserPositions, check: bool) -> Callable[[], Migration | None] | None:
        """Begin to locate particles in this rank's part, in one pass; None if the part cannot tell strays.

        What is returned waits. It returns None where most particles leave.
        """
        if not self._settles or not given.count:
            return None
        plan = self._plans[0]
        assert plan is not None
        if given.xp is np and self._settings["backend"] in (None, "cpu"):  # there a part lists none
            return None if self.deterministic else lambda: self._stays_on_host(plan, given, check)
        residents, support = Residents(plan, given.local(), self._strays), self.window.support
        self._strays = residents.memory
        if self._listing is None:
            self._listing = StrayListing(self.domain, shift_of(plan.mesh, support), residents.backend)
        departures_of = listed(self.world.rank, residents, given, self._strays_before, self._listing)

        def migration() -> Migration | None:
            departures = departures_of()
            if departures is None:
                return None
            leaving, bad, rows = departures
            if bad.shape[0] and check:
                self._cells(given.user, True)  # raises
            # A guess for the next time, which forgets slowly.
            self._strays_before = max(leaving.strays.shape[0] * 5 // 4 + 4096, self._strays_before * 7 // 8)
            return Migration([leaving], given.bad(bad), residents, rows)

        return migration

    def _stays_on_host(self, plan: LocalPlan, given: UserPositions, check: bool) -> Migration:
        migration = self._goes(given, check)
        if not few(migration.leaving[0].strays.shape[0], given.count):
            return migration
        return migration._replace(residents=Residents(plan, given.local()))

    def _goes(self, given: UserPositions, check: bool) -> Migration:
        """Locate particles in the whole mesh, and find the part that owns each."""
        domain, per_rank, (rank, size) = self.domain, self.domain.per_rank, (self.world.rank, self.world.size)
        cells, xp = self._cells(given.user, check), given.xp
        if self.ghosts == "replicated":
            parts = xp.full(given.count, rank * per_rank, np.int64)
            leaving = [Departures.of(parts, rank, size, per_rank), Departures.of(parts // per_rank, rank, size, 1)]
        else:
            parts = domain.part_of(cells)
            leaving = [Departures.of(parts, rank, size, per_rank)]
        if self.ghosts == "particles":
            to, particles = copies(domain, cells, parts, self.window.support)
            leaving.append(Departures.of(to, rank, size, per_rank, particles, given.count))
        bad = (-1, 0, 0) if check else given.bad(xp.flatnonzero(cells[-1] == SKIP))
        return Migration(leaving, bad, None)

    def _cells(self, positions: Any, check: bool) -> tuple[Any, ...]:
        """Return the cell of each particle along each axis, int32 (N,) of NumPy or CuPy."""
        cells = Staged(locate(positions, self.domain.mesh, window=self.window, check=check).cells, "cells").native
        return tuple(cells[:, axis] for axis in range(self.domain.mesh.ndim))

    @alone
    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles in each part, so that local plans allocate nothing later.

        The plan of guests, which come from other ranks while most particles stay in place, allocates as they come.

        Raises
        ------
        ValueError
            If the backend or dtype is not known yet: give them to the plan, or set positions first.
        """
        with self.world.agreement("reserve"):
            self._open()
            for plan in self._plans:
                if plan is not None:
                    plan.reserve(count)

    @property
    def count(self) -> int:
        """Number of particles that this rank has set."""
        return 0 if self._route is None else self._route.count

    @property
    def held(self) -> int:
        """Number of particles whose cells this rank owns; other ranks may have set them."""
        return 0 if self._owners is None else self._owners.arrived

    @property
    def route(self) -> Route:
        """The way of particles to the owners of their cells."""
        self._ready()
        assert self._owners is not None
        return self._owners

    @property
    def particles_by_part(self) -> list[int]:
        """Number of particles in each of this rank's parts, copies of other parts' particles included."""
        return [] if self._route is None else self._route.counts.tolist()

    @property
    @alone
    def status(self) -> Status:
        """Counts of bad particles of all ranks in the last :meth:`set_positions`; collective.

        ``first_bad`` is the index on the first rank that set bad particles.
        """
        with self.world.agreement("status"):
            self._ready()
            values_bad = any(plan.status.non_finite_values for plan in self._local())
        total = np.array([self.count, *self._bad_here[1:], values_bad], np.int64)
        count, not_finite, outside, values = self.world.allreduce(total).tolist()
        firsts = [first for first in self.world.allgather(self._bad_here[0]) if first >= 0]
        return Status(count, not_finite, outside, firsts[0] if firsts else -1, values > 0)

    def check(self) -> None:
        """Raise an error on all ranks for bad positions and values that unchecked calls have recorded."""
        status = self.status
        if status.not_finite or status.outside:
            raise checks.bad_positions(status, None, self.domain.mesh, unchecked=True)
        if status.non_finite_values:
            raise ValueError("values were not all finite; the field is NaN everywhere: give finite values.")

    @alone
    def balanced(self, positions: Any, *, particle: float = 1.0, node: float = 0.0) -> Domain:
        """Return the plan's domain, cut so that each part has nearly the same weight of particles and nodes.

        Recursive bisection: each cut halves the weight in a box, by the particles of all ranks on each plane of nodes.
        Ranks communicate once for each depth of the cuts, ten times for 1,024 parts. If the heaviest part then has more
        than 1.25 times the mean, heavy parts get less in up to three more rounds. A part has one node or more.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Those of this rank.
        particle, node : float
            Weight of a particle and of a node, in any unit, for example seconds. The same on every rank.

        Returns
        -------
        Domain
            The same on every rank. The plan keeps its own.

        Raises
        ------
        ValueError
            If a position is not finite or outside, or a weight is negative.

        Examples
        --------
        >>> import particlemesh as pm
        >>> from particlemesh import distributed as pmd
        >>> plan = pmd.Plan(pmd.Domain(pm.Mesh(8, 1.0), 1, per_rank=2), window="cic")
        >>> [part.shape for part in plan.balanced([0.1, 0.15, 0.2, 0.9]).parts()]
        [(1,), (7,)]
        """
        with self.world.agreement(f"balanced with weights {particle} and {node}"):
            self._open()
            weights = checks.at_least_zero(particle, "particle"), checks.at_least_zero(node, "node")
            cells = self._cells(positions, True)
        return cut_by_particles(self.domain, cells, self._sum_of_counts, *weights)

    def _sum_of_counts(self, counts: Any) -> np.ndarray:
        here = counts if isinstance(counts, np.ndarray) else counts.get()
        return self.world.allreduce(here.astype(np.int64))

    # ---- values -------------------------------------------------------------------------------------------

    def spread(self, values: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread values onto the mesh: ``field[m] = sum_p W(x_m - x_p) values[p]``, over the particles of all ranks.

        Parameters
        ----------
        values : array (..., N)
            Those of this rank's particles, in the order in which it set them. Real or complex.
        out : array (..., *part), or tuple of them, optional
            Written (or added to, with ``accumulate``) and returned.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        array (..., *part), or tuple with one for each part of this rank
            Of the library and dtype of ``values``.
        """
        return self._spread(values, 0, out, accumulate)

    def spread_gradient(self, vectors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread vectors (..., N, d) with the window's derivative: the adjoint of :meth:`gradient`."""
        return self._spread(vectors, 1, out, accumulate)

    def spread_hessian(self, tensors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread tensors (..., N, d, d) with the window's second derivatives: the adjoint of :meth:`hessian`."""
        return self._spread(tensors, 2, out, accumulate)

    def interpolate(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field at this rank's particles: ``values[p] = sum_m W(x_m - x_p) field[m]``.

        Parameters
        ----------
        field : array (..., *part), or tuple with one for each part of this rank
        out : array (..., N), optional

        Returns
        -------
        array (..., N)
            In the order in which this rank set its positions.
        """
        return self._interpolate(field, (0,), None if out is None else (out,))[0]

    def gradient(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's gradient (..., N, d) at this rank's particles, per user length unit."""
        return self._interpolate(field, (1,), None if out is None else (out,))[0]

    def hessian(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's second derivatives (..., N, d, d), per user length unit squared."""
        return self._interpolate(field, (2,), None if out is None else (out,))[0]

    def value_and_gradient(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, ...]:
        """Interpolate value and gradient with one exchange; see :meth:`interpolate` and :meth:`gradient`."""
        return self._interpolate(field, (0, 1), out)

    def value_gradient_hessian(self, field: Any, *, out: tuple[Any, Any, Any] | None = None) -> tuple[Any, ...]:
        """Interpolate value, gradient and second derivatives with one exchange; see :meth:`hessian`."""
        return self._interpolate(field, (0, 1, 2), out)

    # ---- how values become fields -------------------------------------------------------------------------

    @alone
    def _spread(self, given: Any, order: int, out: Any, accumulate: bool) -> Any:
        core, parts = (self.domain.mesh.ndim,) * order, self.domain.parts(self.world.rank)

        def work() -> tuple[str, int | None, Call]:
            self._ready()
            checks.flag(accumulate, "accumulate")
            if accumulate and out is None:
                raise ValueError("accumulate=True adds to out: give out=.")
            staged = Staged(given, _SPREAD_OF[order])
            batch = batch_of(staged.native.shape, (self.count, *core), _SPREAD_OF[order])
            targets: list[Target | None] = [None] * len(parts)
            outs = [None] * len(parts) if out is None else several(out, len(parts), "out")
            values = staged.promoted(self._dtype, _SPREAD_OF[order], outs[0])
            if out is not None:
                targets = [
                    Target(one, staged, (*batch, *part.shape), values.dtype)
                    for one, part in zip(outs, parts, strict=True)
                ]
            text = f"{_SPREAD[order]} of {batch} on {staged.memory}"
            number = DTYPES.index(values.dtype) if values.size or out is not None else None
            with staged.scope():
                ready = self._forward(values, len(batch), order)
            return text, number, Call([staged], [values], batch, targets, ready)

        call, number = self._agreed(work, always=False)
        staged, values, batch = call.given[0], call.arrays[0], call.batch
        with staged.scope():
            deliver = call.ready
            if number is not None and values.dtype != DTYPES[number]:  # a rank without particles
                values = values.astype(DTYPES[number])
                deliver = self._forward(values, len(batch), order)
            fields = self._fields(deliver(), batch, order, values.dtype, module_of(values))
            results = [
                staged.like(field) if target is None else target.write(field, accumulate=accumulate)
                for field, target in zip(fields, call.targets, strict=True)
            ]
        return results[0] if len(results) == 1 else tuple(results)

    def _forward(self, values: Any, axis: int, order: int) -> Callable[[], list[Any]]:
        """Make ready to send values to the parts; there particles are along ``axis`` again, in any memory order.

        Where particles stay in place, their values are spread at once, so that a GPU works while the host makes ready.
        The result then returns a window, or these values if integers wait for bounds, and the guests' values or None.
        """
        assert self._route is not None
        xp, counts, ends = module_of(values), self._route.counts, np.cumsum(self._route.counts)
        rows = xp.moveaxis(values, axis, 0)
        if self._settled:
            own = values if self.deterministic else getattr(self._plans[0], _SPREAD[order])(values)
            if self._route.is_local:
                return lambda: [own, None]
            guests = self._route.fetch(lambda strays: xp.take(rows, strays, axis=0))
            return lambda: [own, xp.moveaxis(guests(), 0, axis)]
        deliver = self._route.forward(rows)

        def at_parts() -> list[Any]:
            rows = deliver()
            return [xp.moveaxis(rows[end - n : end], 0, axis) for n, end in zip(counts, ends, strict=True)]

        return at_parts

    def _fields(self, values: Any, batch: tuple[int, ...], order: int, dtype: np.dtype, xp: Any) -> list[Any]:
        """Return the fields of this rank's parts, of values at the parts."""
        parts = self.domain.parts(self.world.rank)
        two = (2,) * (self.deterministic and dtype.kind == "c")
        shapes = [(*batch, *two, *shape) for shape in self._windows.shapes]
        bounds = None
        if self.deterministic:
            bounds = xp.full(1 + math.prod((*batch, *two)), _NOTHING, np.int32)
            bounds = self._worked(lambda: self._bounds(values, order, bounds, xp))
            bounds = self.world.allreduce(bounds, "max")

        def spread_of(plan: Any) -> Any:
            if bounds is None:
                return getattr(plan, _SPREAD[order])
            return functools.partial(plan.spread_integers, bounds=bounds, derivative=order)

        def windows() -> Callable[[], list[Any]]:
            if self._settled:
                own, guests = values
                filled = [own if bounds is None else spread_of(self._plans[0])(own)]
                if guests is not None and guests.size:
                    spread_of(self._guests)(guests, out=filled[0], accumulate=True)
                return self._windows.fold(filled, (*batch, *two))
            kind = dtype if bounds is None else np.int64
            filled = [
                xp.zeros(shape, kind) if plan is None else spread_of(plan)(some)
                for plan, some, shape in zip(self._plans, values, shapes, strict=True)
            ]
            return self._windows.fold(filled, (*batch, *two))

        fields = self._worked(windows)()
        if bounds is None:
            return fields
        return [
            xp.zeros((*batch, *part.shape), dtype) if plan is None else plan.convert(sums, bounds, dtype=dtype)
            for plan, sums, part in zip(self._plans, fields, parts, strict=True)
        ]

    def _bounds(self, values: list[Any], order: int, bounds: Any, xp: Any) -> Any:
        """Return what bounds the sums of this rank's parts."""
        if self._settled:
            own, guests = values
            beside = None if guests is None or not guests.size else self._guests
            if beside is not None:
                bounds = xp.maximum(bounds, beside.bounds(guests, derivative=order))
            return xp.maximum(bounds, integers.bounds(self._plans[0], own, order, beside))
        for plan, some in zip(self._plans, values, strict=True):
            if plan is not None:
                bounds = xp.maximum(bounds, plan.bounds(some, derivative=order))
        return bounds

    # ---- how fields become values -------------------------------------------------------------------------

    @alone
    def _interpolate(self, field: Any, orders: tuple[int, ...], out: Any) -> tuple[Any, ...]:
        """Interpolate derivatives of some orders; ``out`` is None or has an array or None for each."""
        ndim, parts, name = self.domain.mesh.ndim, self.domain.parts(self.world.rank), _INTERPOLATE[orders]

        def work() -> tuple[str, int | None, Call]:
            self._ready()
            outs = (None,) * len(orders) if out is None else out
            if not isinstance(outs, (tuple, list)) or len(outs) != len(orders):
                raise TypeError(f"out is of type {type(out).__name__}; {name} needs a tuple of {len(orders)} arrays.")
            staged = [Staged(one, "field") for one in several(field, len(parts), "field")]
            arrays, batches = [], []
            for given, part in zip(staged, parts, strict=True):
                batches.append(batch_of(given.native.shape, part.shape, "field"))
                arrays.append(given.promoted(self._dtype, "field", outs[0]))
            if len({array.dtype for array in arrays if array.size}) > 1 or len(set(batches)) > 1:
                raise ValueError("the fields of this rank's parts differ in dtype or in batch axes: give equal ones.")
            known = next((array.dtype for array in arrays if array.size), arrays[0].dtype)
            arrays = [array.astype(known, copy=False) for array in arrays]  # empty ones
            shapes = [(*batches[0], self.count, *(ndim,) * order) for order in orders]
            targets = [
                None if one is None else Target(one, staged[0], shape, arrays[0].dtype)
                for one, shape in zip(outs, shapes, strict=True)
            ]
            text = f"{name} of {batches[0]} on {staged[0].memory}"
            given_type = any(array.size for array in arrays) or any(one is not None for one in outs)
            number = DTYPES.index(known) if given_type else None
            with staged[0].scope():
                ready = self._windows.fill(arrays, batches[0])
            return text, number, Call(staged, arrays, batches[0], targets, ready)

        call, number = self._agreed(work, always=False)
        staged, dtype, fill = call.given[0], call.arrays[0].dtype, call.ready
        with staged.scope():
            if number is not None and dtype != DTYPES[number]:  # a rank without nodes
                fill = self._windows.fill([array.astype(DTYPES[number]) for array in call.arrays], call.batch)
            windows = fill()
            results = self._worked(lambda: self._at_particles(windows, call.batch, orders, name))()
            return tuple(
                staged.like(result) if target is None else target.write(result)
                for result, target in zip(results, call.targets, strict=True)
            )

    def _at_particles(
        self, windows: list[Any], batch: tuple[int, ...], orders: tuple[int, ...], name: str
    ) -> Callable[[], list[Any]]:
        """Interpolate at the parts' particles; what is returned sends results back, (*batch, N, ...), in one round."""
        assert self._route is not None
        route, count, xp = self._route, self.count, module_of(windows[0])
        if self._settled:
            return self._at_residents(windows[0], batch, orders, name)
        channels, cores = math.prod(batch), [(self.domain.mesh.ndim,) * order for order in orders]
        widths, rows = list(map(math.prod, cores)), []
        for plan, window, n in zip(self._plans, windows, route.counts.tolist(), strict=True):
            if plan is None or not n:
                continue
            arrays = _several(getattr(plan, name)(window))
            if route.stays and len(self._plans) == 1:
                return lambda arrays=arrays: arrays  # type: ignore[misc]
            rows.append(_rows(arrays, widths, channels, n))
        whole = xp.concatenate(rows) if rows else xp.empty((0, channels, sum(widths)), windows[0].dtype)
        deliver = route.backward(whole)

        def results() -> list[Any]:
            columns = zip(_columns(deliver(), widths), cores, strict=True)
            return [xp.ascontiguousarray(x).reshape((*batch, count, *core)) for x, core in columns]

        return results

    def _at_residents(self, window: Any, batch: tuple[int, ...], orders: tuple[int, ...], name: str) -> Any:
        """Do the work of `_at_particles` where particles stay in place: only strays' and guests' results travel."""
        route, xp, channels = self._route, module_of(window), math.prod(batch)
        assert route is not None
        if route.is_local:
            local = _several(getattr(self._plans[0], name)(window))
            return lambda: local
        widths = [self.domain.mesh.ndim**order for order in orders]
        rows = xp.empty((0, channels, sum(widths)), window.dtype)
        if route.guests:  # first, so that their results travel while residents are worked on
            rows = _rows(_several(getattr(self._guests, name)(window)), widths, channels, route.guests)
        deliver = route.push(rows)
        arrays, strays = _several(getattr(self._plans[0], name)(window)), route.strays
        results = [xp.ascontiguousarray(x) for x in arrays]

        def all_of_them() -> list[Any]:
            for result, width, column in zip(results, widths, _columns(deliver(), widths), strict=True):
                result.reshape((channels, self.count, width))[:, strays] = column
            return results

        return all_of_them

    # ---- work, then agree ---------------------------------------------------------------------------------

    def _agreed(self, work: Callable[[], tuple[str, int | None, _T]], always: bool = True) -> tuple[_T, int | None]:
        """Work on this rank, then agree on errors, on the call and on the number of a dtype."""
        return agreed(self.world, always or self._checked, work)

    def _worked(self, work: Callable[[], _T]) -> _T:
        """Do what only this rank's errors can stop; then all go on, or none."""
        return self._agreed(lambda: ("", None, work()), always=False)[0]

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    def _ready(self) -> None:
        self._open()
        if self._route is None:
            raise RuntimeError("this plan has no particles yet: call set_positions first.")

    def _local(self) -> list[LocalPlan]:
        """Return the plans that have particles."""
        guests = self._guests if self._settled and self._route is not None and self._route.guests else None
        return [plan for plan in (*self._plans, guests) if plan is not None]

    # ---- reports and lifetime -----------------------------------------------------------------------------

    @alone
    def explain(self) -> str:
        """Return the parts of this rank, what it exchanges in a call, and the methods of its first part.

        Not collective.
        """
        self._ready()
        rank, lines = self.world.rank, [f"rank {self.world.rank} of {self.world.size}, {self.world.transport}"]
        for part, n in zip(self.domain.parts(rank), self.particles_by_part, strict=False):
            lines.append(f"part {' x '.join(map(str, part.shape))} from {part.lower}: {n:,} particles")
        lines.append(f"particles: {self.count:,} set here, {self.route.moved:,} of them leave, {self.held:,} held")
        owned, sent = sum(part.size for part in self.domain.parts(rank)), self._windows.nodes()
        share = f", {sent / owned:.1%} of its own" if owned else ""
        lines.append(f"ghosts {self.ghosts!r}: {sent:,} nodes sent to fill, received to fold{share}")
        tables = [plan.explain() for plan in self._plans if plan is not None]
        return "\n".join(lines + tables[:1])

    def __repr__(self) -> str:
        state = (
            "closed" if self._closed else "no particles" if self._route is None else f"{self.count:,} particles here"
        )
        return f"<Plan over ranks: {self.domain!r}, {self.window.name}, ghosts {self.ghosts!r}; {state}>"

    @property
    def nbytes(self) -> int:
        """Bytes of local plans and buffers on this rank."""
        return self._windows.nbytes + sum(plan.nbytes for plan in (*self._plans, self._guests) if plan is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the plan's memory on this rank; not collective. Later calls raise a RuntimeError."""
        self._closed, self._route, self._owners = True, None, None
        for plan in (*self._plans, self._guests):
            if plan is not None:
                plan.close()


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def _rows(arrays: list[Any], widths: list[int], channels: int, count: int) -> Any:
    """Return results at particles as one array (count, channels, sum of widths)."""
    xp, parts = module_of(arrays[0]), [x.reshape((channels, count, n)) for x, n in zip(arrays, widths, strict=True)]
    return xp.moveaxis(parts[0] if len(parts) == 1 else xp.concatenate(parts, -1), 1, 0)


def _columns(rows: Any, widths: list[int]) -> list[Any]:
    """Return the results (channels, count, width) of rows: the inverse of `_rows`."""
    xp = module_of(rows)
    return list(xp.split(xp.moveaxis(rows, 0, 1), np.cumsum(widths)[:-1].tolist(), axis=-1))
