# SPDX-License-Identifier: BSD-3-Clause
"""The way of particles over ranks: each rank locates its own, all agree, and those of other ranks travel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from particlemesh import checks
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.halo import Halo
from particlemesh.distributed.journeys import SKIP, Given, Journey, few, listed, shift_of
from particlemesh.distributed.listing import StrayListing
from particlemesh.distributed.residents import Residents
from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import DTYPES, Staged, module_of
from particlemesh.distributed.windows import Crops, copies, mesh_of, reach_of
from particlemesh.distributed.world import World
from particlemesh.functions import locate
from particlemesh.plan import Plan as LocalPlan
from particlemesh.window import Window, window_of

GHOSTS = "nodes", "particles", "replicated"
_T = TypeVar("_T")


class Placing(checks.Fixed):
    """A plan over ranks without calls for values: see :class:`particlemesh.distributed.Plan`."""

    world: World
    busy: threading.RLock

    def _build(self, domain: Domain, window: Any, ghosts: str, settings: dict[str, Any], check: bool) -> None:
        """Check the arguments of this rank, and make its plans."""
        if not isinstance(domain, Domain):
            raise TypeError(f"domain is of type {type(domain).__name__}; give a particlemesh.distributed.Domain.")
        if domain.size != self.world.size:
            raise ValueError(
                f"the domain is for {domain.size} ranks, and the world has {self.world.size}: make one for these."
            )
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
        self._settles = ghosts == "nodes" and domain.per_rank == 1 and part.size > 0 and not self.deterministic and all(
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

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    def _ready(self) -> None:
        self._open()
        if self._route is None:
            raise RuntimeError("this plan has no particles yet: call set_positions first.")

    @property
    def particles_by_part(self) -> list[int]:
        """Number of particles in each of this rank's parts, copies of other parts' particles included."""
        return [] if self._route is None else self._route.counts.tolist()

    def _local(self) -> list[LocalPlan]:
        """Return the plans that have particles."""
        guests = self._guests if self._settled and self._route is not None and self._route.guests else None
        return [plan for plan in (*self._plans, guests) if plan is not None]

    @staticmethod
    def _module(array: Any) -> Any:
        return module_of(array)

    # ---- positions ------------------------------------------------------------------------------------

    def _cells(self, positions: Any, check: bool) -> tuple[Any, ...]:
        """Return the cell of each particle along each axis, int32 (N,) of NumPy or CuPy."""
        cells = Staged(locate(positions, self.domain.mesh, window=self.window, check=check).cells, "cells").native
        return tuple(cells[:, axis] for axis in range(self.domain.mesh.ndim))

    def _set_positions(self, positions: Any, check: bool) -> None:

        def work() -> tuple[str, int | None, tuple[str, Given, Callable[[], Journey]]]:
            self._open()
            checks.flag(check, "check")
            given = Given(positions, self.domain.mesh.ndim)
            if given.home == "opencl" and self._settings["backend"] is None:
                self._settings["backend"] = "opencl"
                self._plans, self._guests, self._listing = self._local_plans("opencl"), None, None
                self._strays = None
            stays = self._stays(given, check)
            text = f"set_positions(check={check}) on {given.memory}"

            def journey() -> Journey:
                return (None if stays is None else stays()) or self._goes(given, check)

            return text, DTYPES.index(given.real) if given.count else None, (text, given, journey)

        (text, given, located), number = self._agreed(work)  # while a GPU locates
        if number is None:  # no rank has a particle, and all know it
            real = np.dtype(f"f{int(self.world.allreduce(given.real.itemsize, 'max'))}")
        else:
            real = DTYPES[number]

        def counted() -> tuple[Journey, np.ndarray]:
            journey = located()
            return journey, journey.sent()

        each = self.domain.per_rank
        columns = {"nodes": each, "replicated": each + 1, "particles": 2 * each}[self.ghosts]  # of what `sent` returns
        journey, coming = self.world.announce(columns, text, counted)
        owners, route = journey.routes(self.world, coming)
        settled = journey.residents is not None and few(route.strays.shape[0] + route.guests, given.count)

        def pack() -> tuple[str, None, Callable[[], Any]]:
            if settled:
                return "travel", None, route.visit(given.rows if journey.rows is None else lambda _: journey.rows)
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
                assert journey.residents is not None
                journey.residents.take(check)
            else:
                for plan, n, end in zip(self._plans, route.counts, ends, strict=True):
                    if plan is not None:
                        plan.set_positions(rows[end - n : end], check=check)
            return "set_positions at the owners", None, None

        self._agreed(place)
        self._dtype = real if self._dtype is None else self._dtype
        self._bad_here, self._route, self._owners, self._settled = journey.bad, route, owners, settled

    def _stays(self, given: Given, check: bool) -> Callable[[], Journey | None] | None:
        """Begin to locate particles in this rank's part, in one pass; None if the part cannot tell strays.

        What is returned waits. It returns None where most particles leave.
        """
        if not self._settles or not given.count:
            return None
        plan = self._plans[0]
        assert plan is not None
        if given.xp is np and self._settings["backend"] in (None, "cpu"):  # there a part lists none
            return lambda: self._stays_on_host(plan, given, check)
        residents, support = Residents(plan, given.local(), self._strays), self.window.support
        self._strays = residents.memory
        if given.xp is not np and self.domain.size > 1 and self._listing is None:
            self._listing = StrayListing(self.domain, shift_of(plan.mesh, support), residents.backend)
        departures_of = listed(
            self.domain, self.world.rank, residents, plan.mesh, given, support, self._strays_before,
            self._listing if given.xp is not np else None,
        )  # fmt: skip

        def journey() -> Journey | None:
            departures = departures_of()
            if departures is None:
                return None
            leaving, bad, rows = departures
            if bad.shape[0] and check:
                self._cells(given.user, True)  # raises
            # A guess for the next time, which forgets slowly.
            self._strays_before = max(leaving.strays.shape[0] * 5 // 4 + 4096, self._strays_before * 7 // 8)
            return Journey([leaving], given.bad(bad), residents, rows)

        return journey

    def _stays_on_host(self, plan: LocalPlan, given: Given, check: bool) -> Journey:
        journey = self._goes(given, check)
        if not few(journey.leaving[0].strays.shape[0], given.count):
            return journey
        return journey._replace(residents=Residents(plan, given.local()))

    def _goes(self, given: Given, check: bool) -> Journey:
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
        return Journey(leaving, bad, None)

    def _agreed(self, work: Callable[[], tuple[str, int | None, _T]], always: bool = True) -> tuple[_T, int | None]:
        """Work on this rank, then agree on errors, on the call and on the number of a dtype."""
        error: BaseException | None = None
        text, number, result = "", None, None
        try:
            text, number, result = work()
        except BaseException as caught:  # noqa: BLE001 - agree raises it, an interrupt too
            error = caught
        if always or self._checked:
            number = self.world.agree(error, text, number)
        elif error is not None:
            raise error
        return result, number  # type: ignore[return-value]
