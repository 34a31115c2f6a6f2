# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh tune``: times of every method on a device, for the automatic choice.

The problems are a Halton sequence over particles, nodes, kinds, clusters and order. They cover the space evenly
wherever the sequence ends, so a slow device measures fewer of them in the same time.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from particlemesh import backends
from particlemesh.apps.progress import bar
from particlemesh.backends.cpu import available_threads
from particlemesh.choosing import candidates, predict, tables, trial
from particlemesh.choosing.candidates import Candidate
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.tables import Row, Table
from particlemesh.command import consoles, self_test
from particlemesh.command.info import describe
from particlemesh.mesh import Mesh
from particlemesh.methods.contract import Method, Problem
from particlemesh.particles.workspace import Workspace
from particlemesh.plan import Plan
from particlemesh.window import bspline

PROBLEMS = 400
SECONDS, QUICK = 200.0, 40.0  # after which no new trial begins
COMPILING = ("cuda",)  # backends that compile in threads; PyOpenCL's warnings are not thread-safe
AT_ONCE = 16  # threads that compile: there is memory for the positions of so many problems
LONGEST = 0.5  # predicted seconds beyond which a method is not measured: times are proportional there
FAR = 10.0  # a method is not measured if its prediction exceeds the best by this factor for all numbers of applications
APPLICATIONS = (1, 10, 100, 1000)
PARTICLES, NODES = (1e3, 1e7), (24, 300)  # in total, and per axis
ANYWHERE, LEAST_FILLED = 0.6, 0.01  # fraction of problems with uniform particles; least filled fraction of the others
IN_ORDER = 0.35  # fraction of problems with particles in order
# Every support of walks in both precisions, real and complex alternating; more components where they matter most.
KINDS = (
    *((p, t, 1 + (p + n) % 2) for p in range(2, 9) for n, t in enumerate(("float32", "float64"))),
    (4, "float32", 4), (6, "float32", 4),
)  # fmt: skip
# One problem of five is one that many users have: uniform particles, meshes for fast transforms, complex values.
OFTEN = 5
COMMON = tuple(
    (nodes, support, dtype, 2, 10**power)
    for power in range(4, 8) for nodes in (64, 128, 256) for support in (4, 6) for dtype in ("float32", "float64")
)  # fmt: skip
# One problem of nine of the others has a wide window, as non-uniform Fourier transforms take them. They begin with the
# second term of the sequence, so that the first problems are of all kinds.
EVERY = 9
WIDE = ((10, "float64", 2), (16, "float64", 2), (9, "float32", 2), (12, "float64", 1))
# One problem of six has one or two axes, in turn, and a wide window in turn.
FLAT = 6
DENSITIES = 0.03, 100.0  # their particles per node


class Case(NamedTuple):
    """One problem."""

    nodes: int
    support: int
    dtype: str
    components: int
    particles: int
    filled: float
    in_order: int = 0
    occupied: float = 1.0  # fraction of layers, as measured by a plan
    axes: int = 3

    def problem(self, backend: Any) -> Problem:
        """Return the problem for methods."""
        return predict.problem_of(self.row("", "", 0.0, 0.0), backend)

    def row(self, direction: str, method: str, prepare: float, apply: float) -> Row:
        """Return the row of a table."""
        return Row(direction, method, *self[:-1], prepare, apply, self.axes)

    def measured(self, problem: Problem) -> Case:
        """Return the case with the arrangement of particles that a plan measures."""
        return self._replace(filled=problem.filled, in_order=int(problem.in_order), occupied=problem.occupied)


def cases(count: int = PROBLEMS) -> Iterator[Case]:
    """Yield problems; a larger ``count`` appends to those of a smaller one."""
    for flat, other in (divmod(n, FLAT) for n in range(1, count + 1)):
        if other == 0:
            yield _flat(flat)
            continue
        number = (FLAT - 1) * flat + other
        turn, place = divmod(number, OFTEN)
        if place == 0 and turn <= len(COMMON):
            yield Case(*COMMON[29 * turn % len(COMMON)], filled=1.0)  # evenly wherever they end
            continue
        problem = number - min(turn, len(COMMON))
        wide = problem % EVERY == 0
        n, kinds = (problem // EVERY + 1, WIDE) if wide else (problem - problem // EVERY, KINDS)
        particles, nodes, kind, cloud, order = (_mirrored(n, base) for base in (2, 3, 5, 7, 11))
        filled = LEAST_FILLED ** max(0.0, (cloud - ANYWHERE) / (1 - ANYWHERE))
        yield Case(
            round(_between(*NODES, nodes)),
            *kinds[int(kind * len(kinds))],
            round(_between(*PARTICLES, particles)),
            filled,
            int(order < IN_ORDER),
        )


def _flat(n: int) -> Case:
    """Return a problem with one axis, if the number is odd, or two."""
    size, density, kind, order = (_mirrored(n, base) for base in (3, 5, 7, 11))
    axes, kinds = 2 - n % 2, WIDE if n // 2 % 2 else KINDS
    particles = round(_between(*PARTICLES, size))
    nodes = max(2 * kinds[0][0], round((particles / _between(*DENSITIES, density)) ** (1 / axes)))
    return Case(nodes + nodes % 2, *kinds[int(kind * len(kinds))], particles, 1.0, int(order < IN_ORDER), axes=axes)


def _mirrored(n: int, base: int) -> float:
    """Return the digits of ``n`` in reverse after the point: a term of the Halton sequence."""
    value, place = 0.0, 1.0
    while n:
        n, digit = divmod(n, base)
        place /= base
        value += digit * place
    return value


def _between(low: float, high: float, fraction: float) -> float:
    return low * (high / low) ** fraction


def worthwhile(candidates: list[Candidate], free: int) -> list[Candidate]:
    """Return fast candidates that may be the best choice for some number of applications."""
    able = [c for c in candidates if c.reason is None and 3 * c.bytes <= free and c.total(1) <= LONGEST]
    least = {n: min((c.total(n) for c in able), default=0.0) for n in APPLICATIONS}
    return [c for c in able if any(c.total(n) <= FAR * least[n] for n in APPLICATIONS)]


class Kept:
    """Times of an earlier table that are still valid: a problem of that table needs those of other methods only."""

    def __init__(self, table: Table | None) -> None:
        self.rows = () if table is None else table.valid()
        self._problems = {(row.axes, *row[2:7]) for row in self.rows}
        self._methods = {(row.direction, row.method) for row in self.rows}

    def lacks(self, case: Case, direction: str, method: type[Method]) -> bool:
        """Return whether the times of a method on a problem are to be measured."""
        return (case.axes, *case[:5]) not in self._problems or (direction, method.name) not in self._methods


NOTHING = Kept(None)


def measure(
    backend: Any, seconds: float = SECONDS, progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    kept: Kept = NOTHING,
) -> Table:  # fmt: skip
    """Time the methods of a device and return the table, without writing it; an interrupt ends it early.

    ``progress`` is called before each problem. Times that are ``kept`` are not measured again.
    """
    stop, rows, done = time.perf_counter() + seconds, list(kept.rows), 0
    supported = [case for case in cases() if case.dtype == "float32" or backend.facts().get("HAS_FP64", 1)]
    if backend.name in COMPILING:
        until = stop - seconds / 2
        _compile(backend, supported, until, lambda n: progress(f"compiling, {n}", 0, len(supported)), kept)
    try:
        while done < len(supported) and time.perf_counter() < stop:
            case = supported[done]
            progress(f"{case.particles:,} particles, {case.nodes}^{case.axes} nodes", done, len(supported))
            rows += list(_rows(backend, case, stop, kept))
            done += 1
    except KeyboardInterrupt:  # the times of whole problems serve as well as those of a shorter run
        if not done:
            raise
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    sources = tables.sources_of(backend.name, rows)
    return Table(backend.name, tables.device_of(backend), f"{day}, {done} problems", sources, tuple(rows))


def _rows(backend: Any, case: Case, stop: float, kept: Kept) -> Iterator[Row]:
    """Time the methods of a problem."""
    for plan, workspace, direction, method in _each(backend, case, stop, kept):
        with contextlib.suppress(MemoryError):
            seconds = trial.seconds(workspace, direction, method)
            yield case.measured(plan.methods.problem()).row(direction, method.name, *seconds)


def _compile(
    backend: Any, problems: list[Case], stop: float, progress: Callable[[str], None], kept: Kept
) -> None:  # fmt: skip
    """Compile the methods of problems in threads: a compiler uses one core and takes longer than the trials.

    Trials compile all methods that this call omits for lack of time or memory.
    """
    at_once = min(available_threads(), AT_ONCE)

    def compile_one(case: Case) -> None:
        with backend.scope():  # new threads have the first device
            for _, workspace, direction, method in _each(backend, case, stop, kept, at_once):
                with contextlib.suppress(MemoryError):
                    trial.once(workspace, direction, method)

    with ThreadPoolExecutor(at_once) as threads:
        for done, _ in enumerate(threads.map(compile_one, problems), 1):
            progress(f"{done} of {len(problems)}")


def _each(
    backend: Any, case: Case, stop: float, kept: Kept, at_once: int = 1
) -> Iterator[tuple[Plan, Workspace, str, type[Method]]]:
    """Yield a plan of a problem, and each method whose times are not ``kept``, until ``stop``.

    A method or problem that does not fit the memory is omitted; its times are predicted. Each of ``at_once`` calls may
    use an equal part of the memory.
    """
    problem, free = case.problem(backend), backend.free_bytes() // at_once
    chosen = [
        (direction, candidate.method)
        for direction, methods in METHODS.items()
        for candidate in worthwhile([candidates.ask(m, problem) for m in methods], free)
        if kept.lacks(case, direction, candidate.method)
    ]
    if not chosen:
        return
    with contextlib.suppress(MemoryError), plan_of(backend, case, applications=10**6) as plan:
        assert plan.workspace is not None
        for direction, method in chosen:
            if time.perf_counter() > stop:
                return
            yield plan, plan.workspace, direction, method


def plan_of(backend: Any, case: Case, positions: np.ndarray | None = None, applications: int = 1) -> Plan:
    """Return a plan with positions on the device, by default those of :func:`positions_of`."""
    if positions is None:
        positions = positions_of(case)
    mesh = Mesh((case.nodes,) * case.axes, (1.0,) * case.axes)
    plan = Plan(
        mesh, bspline(case.support), dtype=case.dtype, components=case.components, applications=applications,
        backend=backend.name,
    )  # fmt: skip
    plan.set_positions(backend.upload(positions))
    return plan


def positions_of(case: Case) -> np.ndarray:
    """Return positions (N, axes) in a cube in the middle of the box.

    Positions in order are sites of a cubic lattice. In every second problem they are displaced by up to a fraction of
    the lattice spacing.
    """
    rng, real = np.random.default_rng(case.particles), np.dtype(case.dtype).type
    points = rng.random((case.particles, case.axes), real)
    if case.in_order:
        edge = math.ceil(case.particles ** (1 / case.axes))
        site = np.arange(case.particles) * edge**case.axes // case.particles  # omits surplus sites evenly
        places = np.stack(np.unravel_index(site, (edge,) * case.axes), axis=-1).astype(real)
        points = (places + real(0.5) + (points - real(0.5)) * real(max(0.0, rng.uniform(-1, 1)))) / real(edge)
    return real(0.5) + (points - real(0.5)) * real(case.filled ** (1 / case.axes))


def run(
    backend: Any, seconds: float = SECONDS, progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    *, changed: bool = False,
) -> tuple[Table, Any]:  # fmt: skip
    """Measure a backend, write the table for this user, and return it with its file.

    With ``changed`` the stored times are kept, except those of methods whose code has changed since.
    """
    device = tables.device_of(backend)
    tables.place_for(backend.name, device)
    kept = NOTHING
    if changed:
        try:
            kept = Kept(tables.stored(backend.name, device))
        except (OSError, tables.TableError) as error:
            raise ValueError(f"the stored times cannot be read ({error}): tune without --changed.") from error
    table = measure(backend, seconds, progress, kept)
    path = tables.write(table)
    predict.forget()
    return table, path


def device(name: str | None) -> Any:
    """Return the backend of a name, or the fastest available one."""
    consoles.check_choice("backend", name, backends.NAMES)
    usable = self_test.usable()
    if name is None:
        return next(usable[n] for n in ("cuda", "opencl", "cpu") if n in usable and not self_test.emulated(usable[n]))
    if name not in usable:
        raise ValueError(f"{name} is not available: {backends.module(name).available()}.")
    return usable[name]


def report(console: Any, name: str | None, quick: bool, changed: bool) -> None:
    """Measure a device, store its times for this user, and print them."""
    backend, seconds = device(name), QUICK if quick else SECONDS
    console.print(f"{backend.name}: {describe(backend)}; at most {seconds:.0f} s", markup=False, soft_wrap=True)
    with bar("measuring", PROBLEMS, console) as advance:
        before = 0

        def progress(what: str, done: int, total: int) -> None:
            nonlocal before
            advance(done - before, what)
            before = done

        _, path = run(backend, seconds, progress, changed=changed)
    _known(console, backend)
    console.print(f"written to {path}", markup=False, soft_wrap=True)


def show(console: Any, name: str | None) -> None:
    """Print the stored times of a device, or of all available ones."""
    for backend in self_test.usable().values() if name is None else [device(name)]:
        console.print(f"{backend.name}: {describe(backend)}", markup=False, soft_wrap=True)
        _known(console, backend)
        console.print()


def _known(console: Any, backend: Any) -> None:
    times = predict.known(backend)
    for line in (f"predictions: {times.source()}", times.hint):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    if not times.rows:
        return
    table = consoles.table("direction", "method", ">problems", ">prepare", ">apply")
    for direction, methods in METHODS.items():
        label = direction
        for method in methods:
            ratios = times.ratios(direction, method)
            if len(ratios):
                medians = (f"{ratio:.2f}" for ratio in np.exp(np.median(ratios, 0)))
                table.add_row(label, method.name, str(len(ratios)), *medians)
                label = ""
        table.add_section()
    console.print(table)
    console.print("prepare, apply: measured time / modelled time of the method, medians", style="dim")
