# SPDX-License-Identifier: BSD-3-Clause
"""Seconds and errors of one method on one problem, on one device.

A call is ``plan.spread(values, out=field)``, which clears the field, or ``plan.interpolate(field, out=values)``, on
native arrays. ``call_s`` is the median of batches of plain calls back to back, by events on CUDA; ``graph_s`` the same
calls replayed from a captured graph. ``positions_s`` is what ``set_positions(check=False)`` and the method's
preparation take together, ``prepare_s`` how much more that is than ``set_positions`` alone; on CUDA both are captured
where that is possible (``positions_by``).

An error is the relative distance, in the l2 norm, from the result of the ``particle`` method in float64 (on the
processor the first method) for the same positions and values.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from limit import cases
from limit.cases import Case
from limit.device import Ceilings
from measure import Cuda
from particlemesh.choosing import candidates
from place import Place, short

NO_TIME = math.nan
OFTEN = 1000  # applications of a configuration, as methods and the automatic choice are told: sorting is apart
BUDGET = 0.015  # seconds that the batches of one measurement take, about
LONG = 0.1  # seconds: a call that takes longer is not captured
IDLE = 2**32  # bytes
WALK = "walk"
NO_ORDER = "Plan takes no order= in this version: nothing can be given in the plan's order"


@dataclass(frozen=True)
class Job:
    """A method with options, on a problem."""

    case: Case
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> str:
        """Return the options as a CSV has them."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.options.items()))

    def __str__(self) -> str:
        return f"{' '.join(filter(None, (self.method, self.chosen)))}: {self.case}"


@dataclass(frozen=True)
class Measured:
    """Seconds and error; or in ``note`` why there are none."""

    call_s: float = NO_TIME
    graph_s: float = NO_TIME
    positions_s: float = NO_TIME
    prepare_s: float = NO_TIME
    positions_by: str = ""
    error: float = NO_TIME
    nbytes: int = 0
    note: str = ""

    @property
    def least(self) -> float:
        """Return the GPU's seconds of a call, or, where nothing is captured, those of a plain one."""
        return self.call_s if math.isnan(self.graph_s) else self.graph_s

    def columns(self) -> dict[str, Any]:
        """Return the times as columns of a CSV."""
        return dict(
            call_s=short(self.call_s), graph_s=short(self.graph_s), positions_s=short(self.positions_s),
            prepare_s=short(self.prepare_s), positions_by=self.positions_by, error=short(self.error),
            nbytes=self.nbytes, note=self.note,
        )  # fmt: skip


class Setup(NamedTuple):
    """A plan with positions, a call of it, and what the call made."""

    plan: Any
    positions: Any  # native
    call: Callable[[], Any]
    result: Callable[[], np.ndarray]  # planar, in the caller's order


def prepare(plan: Any, direction: str) -> None:
    """Prepare a plan's method for new positions, as the first call after ``set_positions`` does; wait for nothing."""
    with plan.backend.scope():
        plan.token = plan.backend.follow(plan.token)
        plan._prepare(direction, plan._method(direction))


def takes_order() -> bool:
    """Return whether plans can take and give values in their own order."""
    return "order" in inspect.signature(pm.Plan.__init__).parameters


class Bench:
    """A device, its clock, and what was measured on it."""

    def __init__(self, backend: str, small: bool = False) -> None:
        self.place = Place(backend)
        self.small = small
        self.ceilings = Ceilings()
        self.facts = dict(self.place.facts, seed=cases.SEED)
        self._cuda = Cuda() if backend == "cuda" else None
        self._known: dict[Any, Measured] = {}
        self._held: dict[str, tuple[Any, Any]] = {}

    # ---- methods --------------------------------------------------------------------------------------

    def names(self, direction: str) -> list[str]:
        """Return the methods that run here."""
        return [m.name for m in self.place.methods(direction)]

    def asked(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Return the automatic choice, and what each method says of a problem, by its name."""
        with self._plan(case, "auto") as (plan, _):
            problem = plan.problem()
            said = {m.name: candidates.ask(m, problem) for m in self.place.methods(case.direction)}
            return plan._method(case.direction).name, said

    def rivals(self, case: Case, factor: float = 4.0, most: int = 4) -> tuple[str, list[str]]:
        """Return the automatic choice, and the methods worth measuring: that one, walks, and the best by prediction.

        Others are left out if they predict more than ``factor`` times the least, or do not fit in memory.
        """
        auto, said = self.asked(case)
        able = {n: c.apply for n, c in said.items() if c.reason is None and self._fits(c.bytes)}
        least = min(able.values(), default=NO_TIME)
        near = [n for n in sorted(able, key=lambda n: able[n]) if able[n] <= factor * least]
        most = min(most, 2) if self.small else most
        walks = [n for n in able if n == WALK]
        return auto, list(dict.fromkeys([*walks, auto, *near[:most]]))

    def _fits(self, nbytes: int) -> bool:
        """Return whether memory is free for a method's scratch; OpenCL and the processor's backend cannot tell."""
        if self.place.name == "cuda" or not nbytes:
            return True
        return nbytes < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2

    # ---- plans ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _plan(
        self, case: Case, method: str, options: Mapping[str, Any] | None = None, positions: Any = None, **more: Any
    ) -> Iterator[tuple[Any, Any]]:
        which = {"spread": "method", "interpolate": "interpolation"}[case.direction]
        more[which] = method
        if case.order == "sorted":
            if not takes_order():
                raise pm.MethodNotSuitable(NO_ORDER)
            more["order"] = "sorted"
        if positions is None:
            where = (case.cloud, case.count, case.dtype)
            positions = self._hold("x", where, lambda: self.place.upload(cases.positions(*where)))
        mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
        given = {method: dict(options)} if options else None
        with pm.Plan(mesh, f"bspline{case.support}", components=case.reals, options=given, backend=self.place.name,
                     dtype=case.dtype, **{"applications": OFTEN, **more}) as plan:  # fmt: skip
            plan.set_positions(positions)
            yield plan, positions

    @contextlib.contextmanager
    def setup(
        self, case: Case, method: str, options: Mapping[str, Any] | None = None, positions: Any = None, **more: Any
    ) -> Iterator[Setup]:
        """Make a plan with positions, and its call on native arrays."""
        with self._plan(case, method, options, positions, **more) as (plan, x):
            order = self._order(plan) if case.order == "sorted" else None
            spread = case.direction == "spread"
            source = self._source(case)
            if order is not None and spread:
                source = source[..., order]
            _, given = self._array(case, source)
            core = (case.nodes,) * 3 if spread else (case.count,)
            whole, out = self._array(case, None, (*case.batch, *core))

            def result() -> np.ndarray:
                found = self.place.download(whole)
                found = np.moveaxis(found, -1, 0) if whole is not out else found
                if order is None or spread:
                    return found
                back = np.empty_like(found)
                back[..., order] = found
                return back

            verb = plan.spread if spread else plan.interpolate
            yield Setup(plan, x, lambda: verb(given, out=out), result)

    def order_of(self, plan: Any) -> np.ndarray | None:
        """Return a plan's order of its particles, or None if it tells none."""
        return self._order(plan) if hasattr(plan, "order") and takes_order() else None

    def _order(self, plan: Any) -> np.ndarray:
        order = plan.order
        return np.asarray(order if isinstance(order, np.ndarray) else self.place.download(order))

    def _source(self, case: Case) -> np.ndarray:
        if case.direction == "spread":
            return cases.values(case.count, case.dtype, case.values)
        return cases.field(case.nodes, case.dtype, case.values)

    def _array(self, case: Case, host: np.ndarray | None, shape: tuple[int, ...] = ()) -> tuple[Any, Any]:
        """Return a native array as it lies in memory, and the same with components first."""
        shape = shape if host is None else host.shape
        if case.layout == "planar" or not case.batch:
            whole = self.place.upload(host) if host is not None else self.place.backend.empty(shape, case.kind)
            return whole, whole
        if host is not None:
            whole = self.place.upload(np.ascontiguousarray(np.moveaxis(host, 0, -1)))
        else:
            whole = self.place.backend.empty((*shape[1:], shape[0]), case.kind)
        return whole, whole.transpose((len(shape) - 1, *range(len(shape) - 1)))

    def _hold(self, what: str, key: Any, make: Callable[[], Any]) -> Any:
        """Return something that takes long to make; the last one of each kind is kept."""
        if what not in self._held or self._held[what][0] != key:
            self._held[what] = key, make()
        return self._held[what][1]

    # ---- measuring ------------------------------------------------------------------------------------

    def measure(self, job: Job, error: bool = False, positions: bool = False, **more: Any) -> Measured:
        """Return the times of a job, with its error and what positions cost if asked for; nothing is measured twice.

        ``more`` are arguments of the plan.
        """
        key = (job.case, job.method, job.chosen, *sorted(more.items()))
        known = self._known.get(key)
        lacks = known is not None and (
            (error and math.isnan(known.error)) or (positions and math.isnan(known.positions_s))
        )
        if known is None or (lacks and not known.note):
            try:
                known = self._measure(job, error, positions, known, more)
            except (pm.MethodNotSuitable, MemoryError) as reason:
                known = Measured(note=" ".join(str(reason).split())[:300])
            self._known[key] = known
        self._tidy()
        return known

    def _measure(
        self, job: Job, error: bool, positions: bool, known: Measured | None, more: Mapping[str, Any]
    ) -> Measured:
        with self.setup(job.case, job.method, job.options, **more) as made:
            made.call()  # compiles, prepares, takes all memory
            found = known or Measured(*self.seconds(made.call), nbytes=made.plan.nbytes)
            if error:
                made.call()
                found = replace(found, error=self._error(job.case, made.result()))
            if positions:
                both, alone, by = self.preparing(made, job.case.direction)
                found = replace(found, positions_s=both, prepare_s=alone, positions_by=by)
            return found

    def seconds(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds of a plain call, and of a captured one; the latter only on CUDA."""
        plain = self.place.seconds(call, BUDGET, 9)
        return plain, self._captured(call, plain)

    def preparing(self, made: Setup, direction: str) -> tuple[float, float, str]:
        """Return the seconds from positions to where the method can be applied, those after locating, and how found."""
        plan, x = made.plan, made.positions

        def locate() -> None:
            plan.set_positions(x, check=False)

        def both() -> None:
            locate()
            prepare(plan, direction)

        calls = [self.place.seconds(call, BUDGET) for call in (both, locate)]
        graphs = [self._captured(call, once) for call, once in zip((both, locate), calls, strict=True)]
        by = "calls" if any(map(math.isnan, graphs)) else "graph"
        whole, first = calls if by == "calls" else graphs
        return whole, max(whole - first, 0.0), by

    def _captured(self, call: Callable[[], Any], once: float) -> float:
        if self._cuda is None or once > LONG:
            return NO_TIME
        try:
            return self._cuda.graph(call, int(min(20, max(2, 2e-3 / once))), 7)
        except (RuntimeError, NotImplementedError):  # what cannot be captured has its plain time
            self.place.wait()
            return NO_TIME

    def _error(self, case: Case, found: np.ndarray) -> float:
        wanted = self.reference(case)
        return float(np.linalg.norm((found - wanted).ravel()) / np.linalg.norm(wanted.ravel()))

    def reference(self, case: Case) -> np.ndarray:
        """Return the result in float64, in the caller's order; the last one is kept."""
        plain = replace(case, layout="planar", order="caller")
        names = self.names(case.direction)
        method = "particle" if "particle" in names else names[0]

        def make() -> np.ndarray:
            double = replace(plain, dtype="float64")
            x = self.place.upload(cases.positions(case.cloud, case.count, case.dtype).astype(np.float64))
            with self._plan(double, method, positions=x) as (plan, _):
                host = self._source(plain)
                given = self.place.upload(host.astype(double.kind))
                verb = plan.spread if case.direction == "spread" else plan.interpolate
                return np.asarray(self.place.download(verb(given)))

        return self._hold("reference", plain, make)

    def _tidy(self) -> None:
        """Give memory back that lies idle in blocks of sizes which the next case may not want."""
        pool = self._cuda.cupy.get_default_memory_pool() if self._cuda else None
        if pool is not None and pool.free_bytes() > IDLE:
            pool.free_all_blocks()
