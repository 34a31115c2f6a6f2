# SPDX-License-Identifier: BSD-3-Clause
"""The way of values over ranks: work on each rank, agree, communicate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from particlemesh import checks
from particlemesh.busy import alone
from particlemesh.distributed.placing import Placing
from particlemesh.distributed.staging import DTYPES, Staged, Target, batch_of, module_of, several

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


class Calls(Placing):
    """A plan over ranks without the verbs of its users: see :class:`particlemesh.distributed.Plan`."""

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
            if self._settled:
                window, guests = values
                if guests is not None and guests.size:
                    getattr(self._guests, _SPREAD[order])(guests, out=window, accumulate=True)
                return self._windows.fold([window], batch)
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

    def _forward(self, values: Any, axis: int, order: int) -> Callable[[], list[Any]]:
        """Make ready to send values to the parts; there particles are along ``axis`` again, in any memory order.

        Where particles stay in place, their values are spread at once, so that a GPU works while the host makes ready.
        The result then returns a window, and the guests' values or None.
        """
        assert self._route is not None
        xp, counts, ends = module_of(values), self._route.counts, np.cumsum(self._route.counts)
        rows = xp.moveaxis(values, axis, 0)
        if self._settled:
            window = getattr(self._plans[0], _SPREAD[order])(values)
            if self._route.quiet:
                return lambda: [window, None]
            guests = self._route.visit(lambda strays: xp.take(rows, strays, axis=0))
            return lambda: [window, xp.moveaxis(guests(), 0, axis)]
        deliver = self._route.forward(rows)

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
        if self._settled:
            return self._at_residents(windows[0], batch, orders, name)
        channels, cores = math.prod(batch), [(self.domain.mesh.ndim,) * order for order in orders]
        widths, tables = list(map(math.prod, cores)), []
        for plan, window, n in zip(self._plans, windows, route.counts.tolist(), strict=True):
            if plan is None or not n:
                continue
            arrays = _several(getattr(plan, name)(window))
            if route.stays and len(self._plans) == 1:
                return lambda arrays=arrays: arrays  # type: ignore[misc]
            tables.append([x.reshape((channels, n, width)) for x, width in zip(arrays, widths, strict=True)])
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

    def _at_residents(self, window: Any, batch: tuple[int, ...], orders: tuple[int, ...], name: str) -> Any:
        """Do the work of `_at_particles` where particles stay in place: only strays' and guests' results travel."""
        route, xp, channels = self._route, module_of(window), math.prod(batch)
        assert route is not None
        if route.quiet:
            quiet = _several(getattr(self._plans[0], name)(window))
            return lambda: quiet
        widths, rows = [self.domain.mesh.ndim**order for order in orders], None
        if route.guests:  # first, so that their results travel while residents are worked on
            arrays = _several(getattr(self._guests, name)(window))
            tables = [x.reshape((channels, route.guests, width)) for x, width in zip(arrays, widths, strict=True)]
            rows = xp.moveaxis(tables[0] if len(tables) == 1 else xp.concatenate(tables, -1), 1, 0)
        deliver = route.leave(xp.empty((0, channels, sum(widths)), window.dtype) if rows is None else rows)
        arrays, strays = _several(getattr(self._plans[0], name)(window)), route.strays
        results = [xp.ascontiguousarray(x) for x in arrays]

        def all_of_them() -> list[Any]:
            table, ends = xp.moveaxis(deliver(), 0, 1), np.cumsum(widths)
            for result, width, end in zip(results, widths, ends, strict=True):
                result.reshape((channels, self.count, width))[:, strays] = table[:, :, end - width : end]
            return results

        return all_of_them

    @property
    def count(self) -> int:
        """Number of particles that this rank has set."""
        return 0 if self._route is None else self._route.count


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]
