# SPDX-License-Identifier: BSD-3-Clause
"""Times of one method on one problem: of its preparation and of its application, each by itself.

The application is ``plan.spread(values, out=field)``, the clearing of the field included; the preparation all that the
method makes of located particles before (``measure.prepare_again``). Locating them (``set_positions``) is the same for
all methods and belongs to neither. On CUDA both are replayed from captured graphs where they are short, so that
Python's part is not counted; the columns ``*_by`` say how each was timed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import particlemesh as pm
from guo.cases import SEED, Case, positions, values
from measure import Cuda, facts, prepare_again
from particlemesh import backends
from particlemesh.choosing.candidates import choose
from particlemesh.choosing.predict import known
from particlemesh.methods.contract import Method, Problem
from particlemesh.spread import METHODS

LONG = 0.5  # seconds: a call that takes longer is not repeated
GRAPH = 5e-3  # seconds: shorter calls are captured
BATCH = 2e-3  # seconds of calls between two looks at the clock
TOO_LONG = 20.0  # seconds of a case, beyond which a method is not asked for more particles
CHECKED = 3_000_000  # particles from which on fields are compared: entries pass 2^31
IDLE = 2**32  # bytes
NO_TIME = math.nan


@dataclass(frozen=True)
class Job:
    """A method with options, on a problem."""

    case: Case
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: bool = True  # whether the preparation is timed, too
    variant: Any = None  # a class of method that the library does not have, in the place of ``method``

    @property
    def chosen(self) -> str:
        """Return the options as a CSV has them."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.options.items()))

    def __str__(self) -> str:
        name = self.variant.name if self.variant else self.method
        return f"{' '.join(filter(None, (name, self.chosen)))}, {self.case}"


@dataclass(frozen=True)
class Measured:
    """Seconds, and how they were found; or in ``note`` why there are none."""

    prepare: float = NO_TIME
    apply: float = NO_TIME
    prepare_by: str = ""
    apply_by: str = ""
    nbytes: int = 0
    note: str = ""
    difference: float = NO_TIME  # of the field from that of the particle method, relative, in the l2 norm


class Bench:
    """A device, its clock, and what was measured on it."""

    def __init__(self, backend: str, small: bool = False) -> None:
        self.library = backends.current(backend)
        self.small = small
        self.facts = facts(self.library)
        self._cuda = Cuda() if backend == "cuda" else None
        self._known: dict[Any, Measured] = {}
        self._arrays: dict[Any, Any] = {}
        self._automatic: dict[Any, str] = {}
        self._largest: dict[Any, int] = {}  # particles of the case that took too long

    # ---- methods --------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the spreading methods that run here."""
        return [m.name for m in METHODS if self.library.name in m.backends]

    def those(self, *wanted: str) -> list[str]:
        """Return those of the wanted methods that run here, and say which do not."""
        missing = [name for name in wanted if name not in self.names()]
        if missing:
            print(f"  not on {self.library.name}: {', '.join(missing)}")
        return [name for name in wanted if name not in missing]

    def automatic(self, case: Case, applications: int) -> str:
        """Return the method that the library takes by itself."""
        key = (case, applications)
        if key not in self._automatic:
            mesh, window = pm.Mesh((case.nodes,) * 3, (1.0,) * 3), pm.bspline(case.support)
            problem = Problem(mesh, window, np.dtype(case.dtype), case.components, applications, case.count, False,
                              self.library)  # fmt: skip
            predicted = functools.partial(known(self.library).predict, "spread")
            self._automatic[key] = choose(METHODS, problem, "auto", predicted).name
        return self._automatic[key]

    # ---- clocks ---------------------------------------------------------------------------------------

    def seconds(self, call: Callable[[], Any]) -> tuple[float, str]:
        """Return the seconds of a call that was made before, and how they were found."""
        once = self._once(call)
        if once > LONG:
            return once, "one call"
        batch = int(min(20, max(1, BATCH / once)))
        if self._cuda is None or once > 10 * GRAPH:
            return statistics.median([once, *(self._batch(call, batch) for _ in range(2))]), "calls"
        if once < GRAPH:
            try:
                return self._cuda.graph(call, batch, 5), "graph"
            except (RuntimeError, NotImplementedError):  # what cannot be captured is timed as it is called
                self.library.synchronize()
        return self._cuda.calls(call, batch, 5), "calls"

    def _once(self, call: Callable[[], Any]) -> float:
        self.library.synchronize()
        return self._batch(call, 1)

    def _batch(self, call: Callable[[], Any], count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        self.library.synchronize()
        return (time.perf_counter() - begin) / count

    # ---- measuring ------------------------------------------------------------------------------------

    def measure(self, job: Job) -> Measured:
        """Return the times of a job; what was measured before is not measured again."""
        key = (job.case, job.method, job.chosen, job.variant)
        known = self._known.get(key)
        if known is None or (job.prepare and not known.note and math.isnan(known.prepare)):
            known = self._known[key] = self._measure(job)
        return known

    def _measure(self, job: Job) -> Measured:
        case = job.case
        family = (case.nodes, case.support, case.dtype, case.values, case.cloud, job.method, job.chosen)
        before = self._largest.get(family)
        if before is not None and case.count > before:
            return Measured(note=f"not tried: {before:,} particles took more than {TOO_LONG:g} s")
        try:
            with self.plan(job) as (plan, q, out):
                excess = self._excess(plan, job.method)
                if excess:
                    return Measured(note=excess)
                spread = lambda: plan.spread(q, out=out)  # noqa: E731
                spread()  # compiles, prepares, takes all memory
                if type(plan._method("spread")).prepare is Method.prepare:
                    prepare, prepare_by = 0.0, "nothing to do"
                elif job.prepare:
                    prepare, prepare_by = self.seconds(lambda: prepare_again(plan))
                else:
                    prepare, prepare_by = NO_TIME, ""
                spread()
                apply, apply_by = self.seconds(spread)
                nbytes = plan.nbytes
                difference = self._difference(case, out) if self.small or case.count >= CHECKED else NO_TIME
            self.tidy()
        except (pm.MethodNotSuitable, MemoryError) as reason:
            return Measured(note=" ".join(str(reason).split())[:300])
        if apply + (0 if math.isnan(prepare) else prepare) > TOO_LONG:
            self._largest[family] = case.count
        return Measured(prepare, apply, prepare_by, apply_by, nbytes, difference=difference)

    def _difference(self, case: Case, out: Any) -> float:
        """Return how far a field is from that of the particle method, which is made once for all methods."""

        def reference() -> np.ndarray:
            with self.plan(Job(case, self.names()[0])) as (plan, q, field):
                return np.asarray(self.library.download(plan.spread(q, out=field)))

        wanted = self._array("field", case, reference)
        return float(np.linalg.norm((self.library.download(out) - wanted).ravel()) / np.linalg.norm(wanted.ravel()))

    def _excess(self, plan: Any, method: str) -> str:
        """Return why a method gets no memory where the backend itself cannot know, or nothing."""
        if self.library.name == "cuda":
            return ""
        wanted = next(m for m in METHODS if m.name == method).scratch_bytes(plan.problem())
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        return f"would take {wanted:,} bytes of {free:,}" if wanted > free else ""

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[tuple[Any, Any, Any]]:
        """Make a plan with positions, and values and a field for it, as native arrays."""
        case, upload = job.case, self.library.upload
        where = (case.cloud, case.count, case.dtype)
        x = self._array("x", where, lambda: upload(positions(*where)))
        q = self._array("q", (case.count, case.dtype, case.values),
                        lambda: upload(values(case.count, case.dtype, case.values)))  # fmt: skip
        mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
        out = self.library.empty(q.shape[:-1] + mesh.shape, q.dtype)
        given = {job.method: dict(job.options)} if job.options else None
        with pm.Plan(mesh, f"bspline{case.support}", components=case.components, method=job.method, options=given,
                     backend=self.library.name, dtype=case.dtype) as plan:  # fmt: skip
            plan.set_positions(x)
            if job.variant is not None:
                plan._methods["spread"] = job.variant()
            yield plan, q, out

    def tidy(self) -> None:
        """Give memory back that lies idle in blocks of sizes which the next case may not want."""
        pool = self._cuda.cupy.get_default_memory_pool() if self._cuda else None
        if pool is not None and pool.free_bytes() > IDLE:
            pool.free_all_blocks()

    def _array(self, what: str, key: Any, make: Callable[[], Any]) -> Any:
        """Return an array on the device; the last one of each kind is kept."""
        if self._arrays.get(what, (None,))[0] != key:
            self._arrays[what] = (key, make())
        return self._arrays[what][1]

    # ---- rows -----------------------------------------------------------------------------------------

    def row(self, figure: str, job: Job, found: Measured, **more: Any) -> dict[str, Any]:
        """Return the columns of a CSV; those of ``more`` are the figure's own."""
        case = job.case
        return dict(
            figure=figure, method=job.variant.name if job.variant else job.method, options=job.chosen, N=case.count,
            K=case.nodes, p=case.support, dtype=case.dtype, values=case.values, cloud=case.cloud, asm=short(case.asm),
            prepare_s=short(found.prepare), apply_s=short(found.apply), prepare_by=found.prepare_by,
            apply_by=found.apply_by, nbytes=found.nbytes, note=found.note,
            difference=short(found.difference), **more, seed=SEED, **self.facts,
        )  # fmt: skip

    def rows(self, figure: str, job: Job) -> list[dict[str, Any]]:
        """Measure a job and return its rows."""
        return [self.row(figure, job, self.measure(job))]


def short(number: float) -> float:
    """Return a number as it is written to a file, with five digits."""
    return float(f"{number:.5g}")


def arrays_agree(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Return whether two results are the same but for rounding."""
    return bool(np.abs(a - b).max() <= tolerance * np.abs(b).max())
