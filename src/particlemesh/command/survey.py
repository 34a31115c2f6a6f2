# SPDX-License-Identifier: BSD-3-Clause
"""Every method on every backend that works here, held against the laws: what `info` and `demo` report.

Imported by the command line only. Nothing here names a method: all lists come from ``METHODS``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from particlemesh import backends
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import METHODS
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.job import Problem as Build
from particlemesh.grid.uniform_grid import UniformGrid
from particlemesh.mesh import Mesh
from particlemesh.plan import Plan

OPTION = {"spread": "method", "interpolate": "interpolation"}  # the plan's name for each direction's choice

# Relative to the largest result. In double precision fixed_point is the farthest off: of its 62 bits those for the
# sum of a crowd are not there for the smallest term (2e-13 for 23,558 charges). In single precision the positions
# are rounded too, which a window of high order sees.
TOLERANCES = {"float64": 1e-11, "float32": 1e-4}
UNOPTIMISED = "-cl-opt-disable"  # an option of PoCL's compiler
# Long enough that the clock's grain and one interruption do not show, short enough to be waited for.
SECONDS_TIMED = 0.1


@dataclass
class Run:
    """One method, in one direction, on one backend; errors are relative and keyed by window."""

    direction: str
    backend: str
    method: str
    tolerance: float
    errors: dict[str, float] = field(default_factory=dict)  # to the first method, relative to the largest
    charge: float = 0.0  # worst over windows, relative to the sum of sizes
    seconds: float | None = None  # of one application; None where it would say nothing of the method
    declined: str | None = None
    failure: str | None = None

    @property
    def passed(self) -> bool:
        # Written so that NaN fails.
        within = all(error <= self.tolerance for error in (*self.errors.values(), self.charge))
        return self.failure is None and within


def usable() -> dict[str, Any]:
    """Return the current device of each backend that works here, the CPU first."""
    return {n: backends.current(n) for n in backends.NAMES if backends.module(n).available() is None}


def emulated(backend: Any) -> bool:
    """Return whether GPU kernels run on the processor: right answers, meaningless times."""
    return "PoCL" in getattr(backend, "platform", "")


def tried(backend: Any, windows: tuple[str, ...]) -> tuple[str, ...]:
    """Return the windows that a device is tried with: where GPUs are emulated, which compiles slowly, the last."""
    return windows[-1:] if emulated(backend) else windows


@contextlib.contextmanager
def unoptimised(backend: Any) -> Iterator[None]:
    """Compile without optimising where GPUs are emulated: kernels run once, and compiling was most of the demo's time.

    The demo took 127 s with optimised kernels on two threads of an EPYC, and takes 20 without. A process that goes on
    keeps the kernels it has.
    """
    options = backends.module(backend.name).OPTIONS if emulated(backend) else []
    options.append(UNOPTIMISED)
    try:
        yield
    finally:
        options.remove(UNOPTIMISED)


def real_type(backend: Any) -> np.dtype:
    """Return the widest real type of a device."""
    return np.dtype(np.float64 if backend.facts().get("HAS_FP64", 1) else np.float32)


def available_methods(backend: str, direction: str) -> list[str]:
    """Return the names of a backend's methods, in the order of ``METHODS``."""
    return [m.name for m in METHODS[direction] if backend in m.backends]


def same_bits(method: Any) -> str:
    """Return in words where ``deterministic=True`` is served by a method or a builder, for tables."""
    if not issubclass(method, Builder):
        return "in any order of particles" if method.order_independent else "yes" if method.deterministic else ""
    served = []
    for name in sorted(method.backends):
        place: Any = SimpleNamespace(name=name)  # no device is asked for its opinion
        shape, real = (2, 2, 2), np.dtype(np.float32)
        problem = Build(place, 8, 3, 8, real, True, True, extents=1, levels=1, shape=shape, options={})
        if method.declines(problem) is None:
            served.append(name)
    return "yes" if len(served) == len(method.backends) else ", ".join(served)


def checks(backend: Any) -> int:
    """Return how many results :func:`adjointness` and :func:`grids` yield."""
    methods = sum(len(available_methods(backend.name, direction)) for direction in METHODS)
    return methods + sum(backend.name in builder.backends for builder in BUILDERS)


def adjointness(backend: Any, count: int = 1000) -> Iterator[tuple[str, str, float, str | None]]:
    """Check each method of a backend: ``<spread(q), f> = <q, interpolate(f)>`` on an odd anisotropic mesh.

    Each method is paired with the first of the other direction. Yields direction, method, relative
    difference, and what went wrong or None.
    """
    random = np.random.default_rng(1)
    real = real_type(backend)
    mesh = Mesh(shape=(11, 12, 13), box=(1.0, 1.1, 1.2))
    positions = (random.random((count, 3)) * mesh.box.lengths).astype(real)
    values = random.normal(size=count).astype(real)
    nodes = random.normal(size=mesh.shape).astype(real)
    names = {direction: available_methods(backend.name, direction) for direction in METHODS}
    for direction, other in (("spread", "interpolate"), ("interpolate", "spread")):
        for name in names[direction]:
            try:
                if not names[other]:
                    raise RuntimeError(f"no method to {other} with")
                chosen: dict[str, Any] = {OPTION[direction]: name, OPTION[other]: names[other][0]}
                with Plan(mesh, "bspline4", backend=backend.name, **chosen) as plan:
                    plan.set_positions(positions)
                    spread, interpolated = plan.spread(values), plan.interpolate(nodes)
                scale = np.linalg.norm(spread) * np.linalg.norm(nodes)
                error = abs(np.vdot(spread, nodes) - np.vdot(values, interpolated)) / scale
                wrong = None if error <= TOLERANCES[real.name] else "not adjoint"
                yield direction, name, float(error), wrong
            except Exception as failure:  # noqa: BLE001 - whatever it is, it is the report
                yield direction, name, float("nan"), f"{type(failure).__name__}: {failure}"


def grids(backend: Any, count: int = 500) -> Iterator[tuple[str, str, float, str | None]]:
    """Check each builder of a backend: pairs and overlaps in a periodic box, beside a comparison of all with all.

    Yields "grid", builder, largest difference of a pair's distance, relative to the radius, and what went wrong or
    None.
    """
    random = np.random.default_rng(1)
    real = real_type(backend)
    lengths = np.array([1.0, 1.1, 1.2])
    positions = (random.random((count, 3)) * lengths).astype(real)
    i, j = np.triu_indices(count, 1)
    away = positions[j].astype(np.float64) - positions[i]
    distances = np.linalg.norm(away - np.rint(away / lengths) * lengths, axis=1)
    # Whether a pair at the radius is one may be a matter of rounding: the radius is where there is none for long.
    sizes = np.sort(distances)
    first = int(np.searchsorted(sizes, 0.15))
    place = first + int(np.diff(sizes[first : first + 100]).argmax())
    radius = float(sizes[place : place + 2].mean())
    wanted = np.flatnonzero(distances < radius)
    for builder in BUILDERS:
        if backend.name not in builder.backends:
            continue
        try:
            error, wrong = 0.0, None
            with UniformGrid(lengths, cell_size=radius, method=builder.name, backend=backend.name) as grid:
                grid.build(positions, radius / 2)
                for pairs in (
                    grid.pairs(radius, half=True, format="coo", quantities="ijd"),
                    grid.overlaps(quantities="ijd"),
                ):
                    places = pairs.i.astype(np.int64) * count + pairs.j
                    order = np.argsort(places)
                    if not np.array_equal(places[order], i[wanted] * count + j[wanted]):
                        error, wrong = float("nan"), "other pairs"
                        break
                    off = np.abs(pairs.distance[order] - distances[wanted]).max() / radius
                    error = max(error, float(off))
            if error > TOLERANCES[real.name]:
                wrong = "other distances"
            yield "grid", builder.name, error, wrong
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is the report
            yield "grid", builder.name, float("nan"), f"{type(failure).__name__}: {failure}"


def agreement(
    positions: np.ndarray,
    values: np.ndarray,
    mesh: Mesh,
    windows: tuple[str, ...],
    *,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Run]:
    """Spread, and interpolate back, by every method on every usable backend.

    Spread fields are compared with that of the first method (in double precision, on the CPU), and their
    sum with that of the values. All methods then interpolate the first method's field.

    Parameters
    ----------
    positions : ndarray, shape (N, d)
    values : ndarray, shape (N,)
    mesh : Mesh
    windows : tuple of str
        :func:`tried` says which of them on which device.
    progress : callable (text)
        Called after every window of every run: :func:`steps` times in all.

    Returns
    -------
    list of Run
        Those of spreading first.
    """
    runs: list[Run] = []
    first: dict[str, np.ndarray] = {}  # fields of the first method, by window
    for direction in METHODS:
        reference: dict[str, np.ndarray] = {}
        for name, backend in usable().items():
            for method in available_methods(name, direction):
                run = Run(direction, name, method, TOLERANCES[real_type(backend).name])
                runs.append(run)
                for window in tried(backend, windows):
                    brought = values if direction == "spread" else first.get(window)
                    if brought is None:
                        run.failure = f"no method spread with {window}, so there is no field"
                        progress(f"{direction} {method} on {name}")
                        continue
                    with unoptimised(backend):
                        found = _one(run, backend, positions, brought, mesh, window, timed=window == windows[-1])
                    progress(f"{direction} {method} on {name}")
                    if found is None:
                        continue
                    expected = reference.setdefault(window, found)
                    run.errors[window] = float(np.abs(found - expected).max() / np.abs(expected).max())
                    if direction == "spread":
                        wrong = abs(found.sum() - values.sum()) / np.abs(values).sum()
                        run.charge = max(run.charge, float(wrong))
        first = first or reference
    return runs


def steps(windows: tuple[str, ...]) -> int:
    """Return how often :func:`agreement` reports progress."""
    return sum(len(tried(b, windows)) * len(available_methods(n, d)) for n, b in usable().items() for d in METHODS)


def _one(
    run: Run, backend: Any, positions: np.ndarray, brought: np.ndarray, mesh: Mesh, window: str, *, timed: bool
) -> np.ndarray | None:
    """Return one method's result on the host, in double precision; None if there is none."""
    real = real_type(backend)
    chosen: dict[str, Any] = {OPTION[run.direction]: run.method}
    try:
        with Plan(mesh, window, backend=run.backend, **chosen) as plan:
            # The device's own arrays, so that times are without transfers.
            plan.set_positions(backend.upload(positions.astype(real)))
            native = backend.upload(brought.astype(real))
            call = plan.spread if run.direction == "spread" else plan.interpolate
            found = backend.download(call(native)).astype(np.float64)
            if timed and not emulated(backend):
                run.seconds = _seconds(lambda: call(native), backend.synchronize)
            return found
    except MethodNotSuitable as reason:
        run.declined = str(reason)
    except Exception as failure:  # noqa: BLE001 - one broken method must not hide the others
        run.failure = f"{type(failure).__name__}: {failure}"
    return None


def _seconds(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the least time of one call, of as many as fit the time for it, after one that warms up."""
    call()
    wait()
    best, stop = np.inf, time.perf_counter() + SECONDS_TIMED
    while time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return float(best)
