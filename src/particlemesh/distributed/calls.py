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

    text: str  # the same on all ranks
    given: list[Staged]
    arrays: list[Any]
    batch: tuple[int, ...]
    kind: int | None  # number of the dtype in DTYPES; None if there are no numbers
    targets: list[Target | None]


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
        mesh, domain = self.domain.mesh, self.domain

        def work() -> tuple[str, int | None, Any]:
            self._open()
            checks.flag(check, "check")
            cells = self._cells(positions, check)
            count = int(cells[0].shape[0])
            table, home, dtype = _table(positions, mesh.ndim)
            if home == "opencl" and self._settings["backend"] is None:
                self._settings["backend"] = "opencl"
                self._plans = self._local_plans("opencl")
            known = self._settings["dtype"]
            number = DTYPES.index(dtype) if count else None
            parts = domain.part_of(cells) if self.ghosts != "replicated" else None
            return f"set_positions(check={check}) of a plan with dtype {known}", number, (cells, parts, table)

        (cells, parts, table), number = self._agreed(work)
        xp, count = module_of(cells[0]), cells[0].shape[0]
        if parts is None:
            owners = route = Route(self.world, xp.full(count, self.world.rank, np.int64))
        else:
            owners = route = Route(self.world, parts, domain.per_rank)
            if self.ghosts == "particles":
                route = copies(domain, self.world, cells, parts, self.window.support)
        real = np.dtype(np.float64) if number is None else DTYPES[number]
        rows = route.forward(table.astype(real, copy=False))
        ends = np.cumsum(route.counts)
        self._route = self._owners = None  # until every rank has its particles

        def place() -> tuple[str, None, None]:
            for plan, n, end in zip(self._plans, route.counts, ends, strict=True):
                if plan is not None:
                    plan.set_positions(rows[end - n : end], check=check)
            return "set_positions at the owners", None, None

        self._agreed(place)
        self._dtype = real if self._dtype is None else self._dtype
        self._bad_here = (-1, 0, 0) if check else _bad(cells, table, xp)
        self._route, self._owners = route, owners

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
            values = staged.promoted(self._dtype, _SPREAD_OF[order])
            targets: list[Target | None] = [None] * len(parts)
            if out is not None:
                outs = several(out, len(parts), "out")
                targets = [
                    Target(one, staged, (*batch, *part.shape), values.dtype)
                    for one, part in zip(outs, parts, strict=True)
                ]
            text = f"{_SPREAD[order]} of {batch}"
            number = DTYPES.index(values.dtype) if self.count else None
            return text, number, Call(text, [staged], [values], batch, number, targets)

        call, number = self._agreed(work, always=False)
        staged, values = call.given[0], call.arrays[0]
        with staged.scope():
            if number is not None:
                values = values.astype(DTYPES[number], copy=False)
            at_parts = self._forward(values, len(call.batch))
            fields = self._fields(at_parts, call.batch, order, values.dtype, module_of(values))
            results = [
                staged.like(field) if target is None else target.write(field, accumulate=accumulate)
                for field, target in zip(fields, call.targets, strict=True)
            ]
        return results[0] if len(results) == 1 else tuple(results)

    def _fields(self, values: list[Any], batch: tuple[int, ...], order: int, dtype: np.dtype, xp: Any) -> list[Any]:
        """Return the fields of this rank's parts, of values at the parts."""
        windows = []
        if not self.deterministic:
            for plan, some, shape in zip(self._plans, values, self._windows.shapes, strict=True):
                nothing = xp.zeros((*batch, *shape), dtype)
                windows.append(nothing if plan is None else getattr(plan, _SPREAD[order])(some))
            return self._windows.fold(windows, batch)
        parts, two = self.domain.parts(self.world.rank), (2,) * (dtype.kind == "c")
        bounds = xp.full(1 + math.prod((*batch, *two)), _NOTHING, np.int32)
        for plan, some in zip(self._plans, values, strict=True):
            if plan is not None:
                bounds = xp.maximum(bounds, plan.bounds(some, derivative=order))
        bounds = self.world.allreduce(bounds, "max")
        for plan, some, shape in zip(self._plans, values, self._windows.shapes, strict=True):
            nothing = xp.zeros((*batch, *two, *shape), np.int64)
            windows.append(nothing if plan is None else plan.spread_integers(some, bounds, derivative=order))
        return [
            xp.zeros((*batch, *part.shape), dtype) if plan is None else plan.convert(sums, bounds, dtype=dtype)
            for plan, sums, part in zip(self._plans, self._windows.fold(windows, (*batch, *two)), parts, strict=True)
        ]

    def _forward(self, values: Any, axis: int) -> list[Any]:
        """Return values at the parts of this rank: particles along ``axis`` again, in any memory order."""
        assert self._route is not None
        xp, ends = module_of(values), np.cumsum(self._route.counts)
        rows = self._route.forward(xp.moveaxis(values, axis, 0))
        parts = zip(self._route.counts, ends, strict=True)
        return [xp.moveaxis(rows[end - n : end], 0, axis) for n, end in parts]

    @alone
    def _interpolate(self, field: Any, orders: tuple[int, ...], out: Any) -> tuple[Any, ...]:
        """Interpolate derivatives of some orders; ``out`` is None or has an array or None for each."""
        ndim, parts, name = self.domain.mesh.ndim, self.domain.parts(self.world.rank), _INTERPOLATE[orders]

        def work() -> tuple[str, int | None, Call]:
            self._ready()
            staged = [Staged(one, "field") for one in several(field, len(parts), "field")]
            arrays, batches = [], []
            for given, part in zip(staged, parts, strict=True):
                batches.append(batch_of(given.native.shape, part.shape, "field"))
                arrays.append(given.promoted(self._dtype, "field"))
            if len({array.dtype for array in arrays}) > 1 or len(set(batches)) > 1:
                raise ValueError("the fields of this rank's parts differ in dtype or in batch axes: give equal ones.")
            outs = (None,) * len(orders) if out is None else out
            if not isinstance(outs, (tuple, list)) or len(outs) != len(orders):
                raise TypeError(f"out is of type {type(out).__name__}; {name} needs a tuple of {len(orders)} arrays.")
            shapes = [(*batches[0], self.count, *(ndim,) * order) for order in orders]
            targets = [
                None if one is None else Target(one, staged[0], shape, arrays[0].dtype)
                for one, shape in zip(outs, shapes, strict=True)
            ]
            text = f"{name} of {batches[0]}"
            number = DTYPES.index(arrays[0].dtype) if any(part.size for part in parts) else None
            return text, number, Call(text, staged, arrays, batches[0], number, targets)

        call, number = self._agreed(work, always=False)
        staged = call.given[0]
        with staged.scope():
            arrays = call.arrays
            if number is not None:
                arrays = [array.astype(DTYPES[number], copy=False) for array in arrays]
            windows = self._windows.fill(arrays, call.batch)
            results = self._backward(windows, call.batch, orders, name)
            return tuple(
                staged.like(result) if target is None else target.write(result)
                for result, target in zip(results, call.targets, strict=True)
            )

    def _backward(self, windows: list[Any], batch: tuple[int, ...], orders: tuple[int, ...], name: str) -> list[Any]:
        """Interpolate at the parts' particles, and return the results (*batch, N, ...) of this rank's, in one round."""
        assert self._route is not None
        xp, ndim, channels = module_of(windows[0]), self.domain.mesh.ndim, math.prod(batch)
        cores = [(ndim,) * order for order in orders]
        tables = []
        for plan, window, n in zip(self._plans, windows, self._route.counts.tolist(), strict=True):
            if plan is None or not n:
                continue
            found = getattr(plan, name)(window)
            found = found if isinstance(found, tuple) else (found,)
            if self._route.stays and len(self._plans) == 1:
                return list(found)
            tables.append([x.reshape((channels, n, math.prod(core))) for x, core in zip(found, cores, strict=True)])
        width = sum(map(math.prod, cores))
        rows = [xp.moveaxis(table[0] if len(table) == 1 else xp.concatenate(table, -1), 1, 0) for table in tables]
        whole = xp.concatenate(rows) if rows else xp.empty((0, channels, width), windows[0].dtype)
        returned = xp.moveaxis(self._route.backward(whole), 0, 1)  # (channels, N, width)
        results, first = [], 0
        for core in cores:
            size = math.prod(core)
            one = xp.ascontiguousarray(returned[:, :, first : first + size])
            results.append(one.reshape((*batch, self.count, *core)))
            first += size
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
