# SPDX-License-Identifier: BSD-3-Clause
"""The way of particles and values over ranks: work on each rank, agree, communicate."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from particlemesh import checks
from particlemesh.arrays.operands import real_dtype
from particlemesh.busy import alone
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.halo import Halo
from particlemesh.distributed.routes import Route
from particlemesh.distributed.staging import DTYPES, Staged, Target, batch_of, module_of, several
from particlemesh.distributed.windows import Crops, copies, mesh_of, reach_of
from particlemesh.distributed.world import World
from particlemesh.functions import locate
from particlemesh.plan import Plan as LocalPlan
from particlemesh.window import Window, window_of

GHOSTS = "nodes", "particles", "replicated"
_NOTHING = -(2**20)  # exponent of sums without particles
_SPREAD = "spread", "spread_gradient", "spread_hessian"
_SPREAD_OF = "values", "vectors", "tensors"
_INTERPOLATE = {
    (0,): "interpolate", (1,): "gradient", (2,): "hessian", (0, 1): "value_and_gradient",
    (0, 1, 2): "value_gradient_hessian",
}  # fmt: skip
_SKIP = -(2**31)  # cell of a bad particle
_T = TypeVar("_T")


class Call(NamedTuple):
    """What a rank is about to do, checked."""

    given: list[Staged]
    arrays: list[Any]
    batch: tuple[int, ...]
    targets: list[Target | None]
    ready: Callable[[], Any]  # communicates


class Calls:
    """A plan over ranks without the verbs of its users: see :class:`particlemesh.distributed.Plan`."""

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

    @staticmethod
    def _module(array: Any) -> Any:
        return module_of(array)

    # ---- positions ------------------------------------------------------------------------------------

    def _cells(self, positions: Any, check: bool) -> tuple[Any, ...]:
        """Return the cell of each particle along each axis, int32 (N,) of NumPy or CuPy."""
        cells = Staged(locate(positions, self.domain.mesh, window=self.window, check=check).cells, "cells").native
        return tuple(cells[:, axis] for axis in range(self.domain.mesh.ndim))

    def _set_positions(self, positions: Any, check: bool) -> None:
        domain, per_rank = self.domain, self.domain.per_rank

        def work() -> tuple[str, int | None, Any]:
            self._open()
            checks.flag(check, "check")
            cells = self._cells(positions, check)
            table, home, dtype = _table(positions, domain.mesh.ndim)
            if home == "opencl" and self._settings["backend"] is None:
                self._settings["backend"] = "opencl"
                self._plans = self._local_plans("opencl")
            xp, count, reached = module_of(cells[0]), int(cells[0].shape[0]), None
            if self.ghosts == "replicated":
                parts = xp.full(count, self.world.rank * per_rank, np.int64)
            else:
                parts = domain.part_of(cells)
            if self.ghosts == "particles":
                reached = copies(domain, cells, parts, self.window.support)
            bad = (-1, 0, 0) if check else _bad(cells, table, xp)
            text = f"set_positions(check={check}) on {'the host' if xp is np else 'a device'}"
            return text, DTYPES.index(dtype) if count else None, (parts, reached, table, bad)

        (parts, reached, table, bad), number = self._agreed(work)
        if number is None:  # no rank has a particle, and all know it
            real = np.dtype(f"f{int(self.world.allreduce(table.dtype.itemsize, 'max'))}")
        else:
            real = DTYPES[number]
        owners = route = Route(self.world, parts, per_rank)
        if reached is not None:
            route = Route(self.world, reached[0], per_rank, reached[1], parts.shape[0])
        elif self.ghosts == "replicated":  # one plan for all parts
            route = Route(self.world, parts // per_rank)
        deliver, _ = self._agreed(lambda: ("travel", None, route.forward(table.astype(real, copy=False))))
        rows, ends = deliver(), np.cumsum(route.counts)
        self._route = self._owners = None  # until every rank has its particles

        def place() -> tuple[str, None, None]:
            for plan, n, end in zip(self._plans, route.counts, ends, strict=True):
                if plan is not None:
                    plan.set_positions(rows[end - n : end], check=check)
            return "set_positions at the owners", None, None

        self._agreed(place)
        self._dtype = real if self._dtype is None else self._dtype
        self._bad_here, self._route, self._owners = bad, route, owners

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

    # ---- values ---------------------------------------------------------------------------------------

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
                ready = self._forward(values, len(batch))
            return text, number, Call([staged], [values], batch, targets, ready)

        call, number = self._agreed(work, always=False)
        staged, values, batch = call.given[0], call.arrays[0], call.batch
        with staged.scope():
            deliver = call.ready
            if number is not None and values.dtype != DTYPES[number]:  # a rank without particles
                values = values.astype(DTYPES[number])
                deliver = self._forward(values, len(batch))
            fields = self._fields(deliver(), batch, order, values.dtype, module_of(values))
            results = [
                staged.like(field) if target is None else target.write(field, accumulate=accumulate)
                for field, target in zip(fields, call.targets, strict=True)
            ]
        return results[0] if len(results) == 1 else tuple(results)

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

        def windows() -> Callable[[], list[Any]]:
            filled = []
            for plan, some, shape in zip(self._plans, values, shapes, strict=True):
                if plan is None:
                    filled.append(xp.zeros(shape, dtype if bounds is None else np.int64))
                elif bounds is None:
                    filled.append(getattr(plan, _SPREAD[order])(some))
                else:
                    filled.append(plan.spread_integers(some, bounds, derivative=order))
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
        for plan, some in zip(self._plans, values, strict=True):
            if plan is not None:
                bounds = xp.maximum(bounds, plan.bounds(some, derivative=order))
        return bounds

    def _worked(self, work: Callable[[], _T]) -> _T:
        """Do what only this rank's errors can stop; then all go on, or none."""
        return self._agreed(lambda: ("", None, work()), always=False)[0]

    def _forward(self, values: Any, axis: int) -> Callable[[], list[Any]]:
        """Make ready to send values to the parts; there particles are along ``axis`` again, in any memory order."""
        assert self._route is not None
        xp, counts, ends = module_of(values), self._route.counts, np.cumsum(self._route.counts)
        deliver = self._route.forward(xp.moveaxis(values, axis, 0))

        def at_parts() -> list[Any]:
            rows = deliver()
            return [xp.moveaxis(rows[end - n : end], 0, axis) for n, end in zip(counts, ends, strict=True)]

        return at_parts

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
        channels, cores = math.prod(batch), [(self.domain.mesh.ndim,) * order for order in orders]
        widths, tables = list(map(math.prod, cores)), []
        for plan, window, n in zip(self._plans, windows, route.counts.tolist(), strict=True):
            if plan is None or not n:
                continue
            found = getattr(plan, name)(window)
            found = list(found) if isinstance(found, tuple) else [found]
            if route.stays and len(self._plans) == 1:
                return lambda found=found: found  # type: ignore[misc]
            tables.append([x.reshape((channels, n, width)) for x, width in zip(found, widths, strict=True)])
        rows = [xp.moveaxis(table[0] if len(table) == 1 else xp.concatenate(table, -1), 1, 0) for table in tables]
        whole = xp.concatenate(rows) if rows else xp.empty((0, channels, sum(widths)), windows[0].dtype)
        deliver = route.backward(whole)

        def results() -> list[Any]:
            table = xp.moveaxis(deliver(), 0, 1)  # (channels, N, widths)
            ends = np.cumsum(widths)
            columns = [table[:, :, end - width : end] for width, end in zip(widths, ends, strict=True)]
            return [
                xp.ascontiguousarray(x).reshape((*batch, count, *core)) for x, core in zip(columns, cores, strict=True)
            ]

        return results

    @property
    def count(self) -> int:
        """Number of particles that this rank has set."""
        return 0 if self._route is None else self._route.count


def _table(positions: Any, ndim: int) -> tuple[Any, str, np.dtype]:
    """Return positions (N, d) of NumPy or CuPy, the home of their kind, and their real type."""
    by_axis = isinstance(positions, tuple) and any(hasattr(x, "__len__") for x in positions)
    columns = [Staged(x, "positions") for x in (positions if by_axis else (positions,))]
    types = [real_dtype(x.user, x.kind, "positions") for x in columns]
    real = max(types, key=lambda t: t.itemsize)
    xp = module_of(columns[0].native)
    if by_axis:
        table = xp.stack([x.native.astype(real, copy=False) for x in columns], 1)
    else:
        table = columns[0].native.reshape(-1, ndim).astype(real, copy=False)
    return table, columns[0].kind.home, real


def _bad(cells: tuple[Any, ...], table: Any, xp: Any) -> tuple[int, int, int]:
    """Return the first bad particle of this rank, or -1, and how many are not finite and outside."""
    bad = xp.flatnonzero(cells[-1] == _SKIP)
    if not bad.shape[0]:
        return -1, 0, 0
    finite = int(xp.isfinite(table[bad]).all(1).sum())
    return int(bad[0]), int(bad.shape[0]) - finite, finite
