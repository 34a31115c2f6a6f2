# SPDX-License-Identifier: BSD-3-Clause
"""Seconds and errors of one method on one problem, on one device.

A call is ``plan.spread(values, out=field)``, which clears the field, or ``plan.interpolate(field, out=values)``, on
native arrays. ``call_s`` is the median of batches of plain calls back to back, by events on CUDA; ``graph_s`` that of
the same calls in a captured graph. ``positions_s`` is the time of ``set_positions(check=False)`` and the method's
preparation together, ``prepare_s`` that time less ``set_positions`` alone. CUDA captures both where it can
(``positions_by``).

An error is the relative distance, in the l2 norm, from the result of the ``particle`` method in float64 (on the CPU:
of the first method) for the same positions and values.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from harness import clouds, inside
from harness.cases import Case, Job
from harness.clock import BUDGET, NO_TIME
from harness.place import Place
from harness.tables import short

OFTEN = 1000  # applications per configuration, as plans expect: sorting is timed apart
IDLE = 2**32  # bytes
WALK = "walk"


@dataclass(frozen=True)
class Measured:
    """Seconds and error; or in ``note`` the reason why there are none."""

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
        """Return the GPU's seconds of a captured call, else those of a plain one."""
        return self.call_s if math.isnan(self.graph_s) else self.graph_s

    def columns(self) -> dict[str, Any]:
        """Return the times as columns of a CSV file."""
        return dict(
            call_s=short(self.call_s), graph_s=short(self.graph_s), positions_s=short(self.positions_s),
            prepare_s=short(self.prepare_s), positions_by=self.positions_by, error=short(self.error),
            nbytes=self.nbytes, note=self.note,
        )  # fmt: skip


def reason(error: Exception) -> str:
    """Return an error as the note of a row."""
    return " ".join(str(error).split())[:300]


class Setup(NamedTuple):
    """A plan with positions, a call of it, and the call's result."""

    plan: Any
    positions: Any  # native
    call: Callable[[], Any]
    result: Callable[[], np.ndarray]  # planar, in the caller's order


class Bench:
    """A device with the times that were measured on it."""

    def __init__(self, backend: str, small: bool = False) -> None:
        self.place = Place(backend)
        self.clock = self.place.clock
        self.small = small
        self.facts = dict(self.place.facts, seed=clouds.SEED)
        self._results: dict[Any, Measured] = {}
        self._held: dict[str, tuple[Any, Any]] = {}
        self.ceilings: Any = None  # of the device, where a part of core needs them

    # ---- methods --------------------------------------------------------------------------------------

    def names(self, direction: str) -> list[str]:
        """Return the names of the methods that run here."""
        return self.place.names(direction)

    def asked(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Return the automatic choice, and what each method says of a problem, by its name."""
        with self.plan(Job(case, "auto")) as (plan, _):
            candidates = {m.name: inside.ask(plan, m) for m in self.place.methods(case.direction)}
            return inside.method_of(plan, case.direction).name, candidates

    def rivals(self, case: Case, factor: float = 4.0, most: int = 4) -> tuple[str, list[str]]:
        """Return the automatic choice, and the methods to measure: that one, walks, and the best by prediction.

        Left out are methods that predict more than ``factor`` times the least, or do not fit in memory.
        """
        auto, candidates = self.asked(case)
        able = {n: c.apply for n, c in candidates.items() if c.reason is None and self.fits(c.bytes)}
        least = min(able.values(), default=NO_TIME)
        near = [n for n in sorted(able, key=lambda n: able[n]) if able[n] <= factor * least]
        most = min(most, 2) if self.small else most
        return auto, list(dict.fromkeys([*(n for n in able if n == WALK), auto, *near[:most]]))

    def fits(self, nbytes: int) -> bool:
        """Return whether memory is free for a method's scratch; OpenCL and the CPU's backend cannot tell."""
        if self.place.name == "cuda" or not nbytes:
            return True
        return nbytes < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2

    # ---- plans ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def plan(self, job: Job, positions: Any = None, **more: Any) -> Iterator[tuple[Any, Any]]:
        """Make a plan with positions; ``more`` are its arguments."""
        case = job.case
        more[{"spread": "method", "interpolate": "interpolation"}[case.direction]] = job.method
        if case.order == "sorted":
            more["order"] = "sorted"
        if positions is None:
            key = (case.cloud, case.count, case.dtype)
            positions = self.hold("positions", key, lambda: self.place.upload(clouds.positions(*key)))
        mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
        options = {job.method: dict(job.options)} if job.options else None
        with pm.Plan(mesh, f"bspline{case.support}", components=case.reals, options=options, backend=self.place.name,
                     dtype=case.dtype, **{"applications": OFTEN, **more}) as plan:  # fmt: skip
            plan.set_positions(positions)
            if job.variant is not None:
                inside.replace_method(plan, case.direction, job.variant())
            yield plan, positions

    @contextlib.contextmanager
    def setup(self, job: Job, positions: Any = None, **more: Any) -> Iterator[Setup]:
        """Make a plan with positions, and its call on native arrays."""
        case = job.case
        with self.plan(job, positions, **more) as (plan, x):
            order = inside.order_of(plan) if case.order == "sorted" else None
            spread = case.direction == "spread"
            source = self._source(case)
            if order is not None and spread:
                source = source[..., order]
            _, given = self._array(case, source)
            core = (case.nodes,) * 3 if spread else (case.count,)
            whole, out = self._array(case, None, (*case.batch, *core))

            def result() -> np.ndarray:
                array = self.place.download(whole)
                array = np.moveaxis(array, -1, 0) if whole is not out else array
                if order is None or spread:
                    return array
                back = np.empty_like(array)
                back[..., order] = array
                return back

            verb = plan.spread if spread else plan.interpolate
            yield Setup(plan, x, lambda: verb(given, out=out), result)

    def _source(self, case: Case) -> np.ndarray:
        if case.direction == "spread":
            return clouds.values(case.count, case.dtype, case.values)
        return clouds.field(case.nodes, case.dtype, case.values)

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

    def hold(self, what: str, key: Any, make: Callable[[], Any]) -> Any:
        """Return something that takes long to make; the last one of each kind is kept."""
        if what not in self._held or self._held[what][0] != key:
            self._held[what] = key, make()
        return self._held[what][1]

    def tidy(self) -> None:
        """Free memory that lies idle in blocks of sizes which the next case may not need."""
        inside.idle_memory(self.place.backend, IDLE)

    # ---- measuring ------------------------------------------------------------------------------------

    def measure(self, job: Job, error: bool = False, positions: bool = False, **more: Any) -> Measured:
        """Return the times of a job, and if asked its error and the cost of new positions; nothing is measured twice.

        ``more`` are arguments of the plan.
        """
        key = (job.case, job.name, job.chosen, *sorted(more.items()))
        result = self._results.get(key)
        lacks = result is not None and (
            (error and math.isnan(result.error)) or (positions and math.isnan(result.positions_s))
        )
        if result is None or (lacks and not result.note):
            try:
                result = self._measure(job, error, positions, result, more)
            except (pm.MethodNotSuitable, MemoryError) as declined:
                result = Measured(note=reason(declined))
            self._results[key] = result
        self.tidy()
        return result

    def _measure(
        self, job: Job, error: bool, positions: bool, known: Measured | None, more: dict[str, Any]
    ) -> Measured:
        with self.setup(job, **more) as made:
            made.call()  # compiles, prepares, takes all memory
            result = known or Measured(*self.seconds(made.call), nbytes=made.plan.nbytes)
            if error:
                made.call()
                result = replace(result, error=self.error(job.case, made.result()))
            if positions:
                both, alone, by = self.preparing(made, job.case.direction)
                result = replace(result, positions_s=both, prepare_s=alone, positions_by=by)
            return result

    def seconds(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds of a plain call, and of a captured one (CUDA only)."""
        plain = self.clock.seconds(call, BUDGET, 9)
        return plain, self.clock.captured(call, plain)

    def preparing(self, made: Setup, direction: str) -> tuple[float, float, str]:
        """Return the seconds from new positions to a prepared method, those after locating, and how they were timed."""
        plan, x = made.plan, made.positions

        def locate() -> None:
            plan.set_positions(x, check=False)

        def both() -> None:
            locate()
            inside.prepare(plan, direction)

        calls = [self.clock.seconds(call, BUDGET) for call in (both, locate)]
        graphs = [self.clock.captured(call, once) for call, once in zip((both, locate), calls, strict=True)]
        by = "calls" if any(map(math.isnan, graphs)) else "graph"
        whole, first = calls if by == "calls" else graphs
        return whole, max(whole - first, 0.0), by

    def error(self, case: Case, result: np.ndarray) -> float:
        """Return the distance of a result from that in float64."""
        exact = self.reference(case)
        return float(np.linalg.norm((result - exact).ravel()) / np.linalg.norm(exact.ravel()))

    def reference(self, case: Case) -> np.ndarray:
        """Return the result in float64, in the caller's order; the last one is kept."""
        base = replace(case, layout="planar", order="caller")
        names = self.names(case.direction)
        double = Job(replace(base, dtype="float64"), "particle" if "particle" in names else names[0])

        def make() -> np.ndarray:
            x = self.place.upload(clouds.positions(case.cloud, case.count, case.dtype).astype(np.float64))
            with self.plan(double, positions=x) as (plan, _):
                given = self.place.upload(self._source(base).astype(double.case.kind))
                verb = plan.spread if case.direction == "spread" else plan.interpolate
                return self.place.download(verb(given))

        return self.hold("reference", base, make)
