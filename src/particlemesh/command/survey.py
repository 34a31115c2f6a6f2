# SPDX-License-Identifier: BSD-3-Clause
"""Self tests of every method on every available backend, for `info` and `demo`.

Only the command line imports this module. All lists of methods come from ``METHODS``.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from particlemesh import backends
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import METHODS
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.job import Problem as Build
from particlemesh.grid.neighbour_list import neighbour_list
from particlemesh.grid.uniform_grid import UniformGrid
from particlemesh.mesh import Mesh
from particlemesh.plan import Plan

OPTION = {"spread": "method", "interpolate": "interpolation"}  # the plan's argument for each direction

# Relative to the largest result. In double precision fixed_point has the largest error (2e-13 for 23,558 charges):
# it needs some of its 62 bits for the sum of many terms. In single precision positions are also rounded, which
# windows of high order amplify.
TOLERANCES = {"float64": 1e-11, "float32": 1e-4}
WINDOW = "bspline6"  # of the tests for adjointness; the demo compiles it, too
UNOPTIMISED = "-cl-opt-disable"  # an option of PoCL's compiler
SECONDS_TIMED = 0.1  # long compared to the clock's resolution and an interruption


class Check(NamedTuple):
    """A self test of a method or a builder that has ended."""

    operation: str  # a direction, or "grid"
    method: str
    error: float
    wrong: str | None = None  # why it failed
    declined: str | None = None  # why the method does not serve this problem on this device, which is no failure


@dataclass
class Run:
    """One method, in one direction, on one backend; errors are relative and keyed by window."""

    direction: str
    backend: str
    method: str
    tolerance: float
    errors: dict[str, float] = field(default_factory=dict)  # from the first method, relative to the largest result
    charge: float = 0.0  # largest over windows, relative to the sum of absolute values
    seconds: float | None = None  # of one application; None if emulated
    declined: str | None = None
    failure: str | None = None

    @property
    def passed(self) -> bool:
        # This form of the comparison fails for NaN.
        within = all(error <= self.tolerance for error in (*self.errors.values(), self.charge))
        return self.failure is None and within


def usable() -> dict[str, Any]:
    """Return the current device of each available backend, the CPU first."""
    return {n: backends.current(n) for n in backends.NAMES if backends.module(n).available() is None}


def emulated(backend: Any) -> bool:
    """Return whether GPU kernels run on the CPU: results are valid, times are not."""
    return "PoCL" in getattr(backend, "platform", "")


def tested(backend: Any, windows: tuple[str, ...]) -> tuple[str, ...]:
    """Return the windows to test a device with: only the last for emulated GPUs, which compile slowly."""
    return windows[-1:] if emulated(backend) else windows


@contextlib.contextmanager
def unoptimised(backend: Any) -> Iterator[None]:
    """Compile without optimisation where GPUs are emulated, because most kernels run once.

    The demo takes 127 s with optimised kernels on two threads of an EPYC, and 20 s without. Kernels stay compiled for
    the rest of the process.
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


def reproducible(method: Any) -> str:
    """Return the table cell that says where a method or a builder supports ``deterministic=True``."""
    if not issubclass(method, Builder):
        return "in any order of particles" if method.order_independent else "yes" if method.deterministic else ""
    supported = []
    for name in sorted(method.backends):
        backend: Any = SimpleNamespace(name=name)  # needs no device
        shape, real = (2, 2, 2), np.dtype(np.float32)
        problem = Build(backend, 8, 3, 8, real, True, True, extents=1, levels=1, shape=shape, options={})
        if method.declines(problem) is None:
            supported.append(name)
    return "yes" if len(supported) == len(method.backends) else ", ".join(supported)


def checks(backend: Any) -> int:
    """Return how many results :func:`adjointness` and :func:`grids` yield."""
    methods = sum(len(available_methods(backend.name, direction)) for direction in METHODS)
    return methods + sum(backend.name in builder.backends for builder in BUILDERS)


def adjointness(backend: Any, count: int = 1000) -> Iterator[Check]:
    """Check each method of a backend: ``<spread(q), f> = <q, interpolate(f)>`` on an odd anisotropic mesh.

    Each method is paired with that of the other direction which plans select here; these two come first. A method may
    decline: its tiles, for example, may be larger than the local memory of the device.
    """
    random = np.random.default_rng(1)
    real = real_type(backend)
    mesh = Mesh(shape=(11, 12, 13), box=(1.0, 1.1, 1.2))
    positions = (random.random((count, 3)) * mesh.box.lengths).astype(real)
    values = random.normal(size=count).astype(real)
    nodes = random.normal(size=mesh.shape).astype(real)
    names = {direction: available_methods(backend.name, direction) for direction in METHODS}
    selecting = contextlib.suppress(Exception)  # what fails is reported below
    with selecting, unoptimised(backend), Plan(mesh, WINDOW, backend=backend.name) as plan, backend.scope():
        plan.set_positions(positions)
        names = {d: led_by(plan._method(d).name, listed) for d, listed in names.items()}
    chosen = {OPTION[direction]: listed[0] for direction, listed in names.items()}
    tests = [(d, listed[0]) for d, listed in names.items()] + [
        (d, n) for d, listed in names.items() for n in listed[1:]
    ]
    for direction, name in tests:
        try:
            methods: dict[str, Any] = chosen | {OPTION[direction]: name}
            with unoptimised(backend), Plan(mesh, WINDOW, backend=backend.name, **methods) as plan:
                plan.set_positions(positions)
                spread, interpolated = plan.spread(values), plan.interpolate(nodes)
            scale = np.linalg.norm(spread) * np.linalg.norm(nodes)
            error = abs(np.vdot(spread, nodes) - np.vdot(values, interpolated)) / scale
            wrong = None if error <= TOLERANCES[real.name] else "not adjoint"
            yield Check(direction, name, float(error), wrong)
        except MethodNotSuitable as reason:
            yield Check(direction, name, float("nan"), declined=str(reason))
        except Exception as failure:  # noqa: BLE001 - any error is reported
            yield Check(direction, name, float("nan"), f"{type(failure).__name__}: {failure}")


def led_by(name: str, names: list[str]) -> list[str]:
    """Return names with one of them moved to the front."""
    return [name, *(other for other in names if other != name)]


def grids(backend: Any, count: int = 500) -> Iterator[Check]:
    """Check each builder of a backend: pairs and overlaps in a periodic box, against a search over all pairs.

    The builder that grids select here comes first.

    The error of a check is the largest of a pair's distance, relative to the radius.
    """
    random = np.random.default_rng(1)
    real = real_type(backend)
    lengths = np.array([1.0, 1.1, 1.2])
    positions = (random.random((count, 3)) * lengths).astype(real)
    i, j = np.triu_indices(count, 1)
    away = positions[j].astype(np.float64) - positions[i]
    distances = np.linalg.norm(away - np.rint(away / lengths) * lengths, axis=1)
    # Rounding may decide on pairs at the radius: the radius is in the middle of the largest gap between distances.
    sizes = np.sort(distances)
    first = int(np.searchsorted(sizes, 0.15))
    place = first + int(np.diff(sizes[first : first + 100]).argmax())
    radius = float(sizes[place : place + 2].mean())
    expected = np.flatnonzero(distances < radius)
    names = [builder.name for builder in BUILDERS if backend.name in builder.backends]
    selecting = contextlib.suppress(Exception)  # what fails is reported below
    with selecting, unoptimised(backend), UniformGrid(lengths, cell_size=radius, backend=backend.name) as grid:
        names = led_by(grid.build(positions, radius / 2)._ready().method.name, names)
    for name in names:
        try:
            error, wrong = 0.0, None
            options: dict[str, Any] = dict(method=name, backend=backend.name)
            with unoptimised(backend), UniformGrid(lengths, cell_size=radius, **options) as grid:
                grid.build(positions, radius / 2)
                for pairs in (
                    grid.pairs(radius, half=True, format="coo", quantities="ijd"),
                    grid.overlaps(quantities="ijd"),
                ):
                    places = pairs.i.astype(np.int64) * count + pairs.j
                    order = np.argsort(places)
                    if not np.array_equal(places[order], i[expected] * count + j[expected]):
                        error, wrong = float("nan"), "other pairs"
                        break
                    difference = np.abs(pairs.distance[order] - distances[expected]).max() / radius
                    error = max(error, float(difference))
            if error > TOLERANCES[real.name]:
                wrong = "other distances"
            yield Check("grid", name, error, wrong)
        except Exception as failure:  # noqa: BLE001 - any error is reported
            yield Check("grid", name, float("nan"), f"{type(failure).__name__}: {failure}")


def agreement(
    positions: np.ndarray,
    values: np.ndarray,
    mesh: Mesh,
    windows: tuple[str, ...],
    *,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Run]:
    """Spread and interpolate by every method on every available backend.

    Spread fields are compared with that of the first method (in double precision, on the CPU), and their
    sum with that of the values. All methods then interpolate the first method's field.

    Parameters
    ----------
    positions : ndarray, shape (N, d)
    values : ndarray, shape (N,)
    mesh : Mesh
    windows : tuple of str
        :func:`tested` selects those of a device.
    progress : callable (text)
        Called after every window of every run, :func:`steps` times in all.

    Returns
    -------
    list of Run
        Spreading comes first.
    """
    runs: list[Run] = []
    fields: dict[str, np.ndarray] = {}  # of the first method, by window
    backends_here = usable()
    # Numba and the compilers of devices work at once. Their calls are timed afterwards, one by one.
    with ThreadPoolExecutor(len(backends_here)) as pool:
        for direction in METHODS:
            data = dict.fromkeys(windows, values) if direction == "spread" else fields
            jobs = [
                pool.submit(_all, direction, backend, positions, data, mesh, windows, progress)
                for backend in backends_here.values()
            ]
            reference: dict[str, np.ndarray] = {}
            for run, results in itertools.chain(*(job.result() for job in jobs)):
                runs.append(run)
                for window, result in results.items():
                    expected = reference.setdefault(window, result)
                    run.errors[window] = float(np.abs(result - expected).max() / np.abs(expected).max())
                    if direction == "spread":
                        error = abs(result.sum() - values.sum()) / np.abs(values).sum()
                        run.charge = max(run.charge, float(error))
            fields = fields or reference
    for run in runs:
        backend, window = backends_here[run.backend], windows[-1]
        if window in run.errors and not emulated(backend):
            data = fields if run.direction == "interpolate" else {window: values}
            _one(run, backend, positions, data[window], mesh, window, timed=True)
    return runs


def _all(
    direction: str, backend: Any, positions: np.ndarray, data: dict[str, np.ndarray], mesh: Mesh,
    windows: tuple[str, ...], progress: Callable[[str], None],
) -> list[tuple[Run, dict[str, np.ndarray]]]:  # fmt: skip
    """Return the runs of all methods of a backend in a direction, each with its results by window."""
    runs = []
    for method in available_methods(backend.name, direction):
        run = Run(direction, backend.name, method, TOLERANCES[real_type(backend).name])
        results: dict[str, np.ndarray] = {}
        runs.append((run, results))
        for window in tested(backend, windows):
            if window not in data:
                run.failure = f"no method spread with {window}, so there is no field"
            else:
                with unoptimised(backend):
                    result = _one(run, backend, positions, data[window], mesh, window, timed=False)
                if result is not None:
                    results[window] = result
            progress(f"{direction} {method} on {backend.name}")
    return runs


def neighbours(positions: np.ndarray, lengths: np.ndarray) -> tuple[bool, str]:
    """List the neighbours of particles in a periodic box, about 50 for each, and compare with SciPy's tree.

    Returns whether the pairs are the same, and a sentence.
    """
    volume = float(np.prod(lengths))
    radius = float(f"{min((50 * volume / (4 / 3 * np.pi * len(positions))) ** (1 / 3), 0.45 * lengths.min()):.2g}")
    i, j = neighbour_list("ij", positions, tuple(lengths), radius, half=True, backend="cpu")
    # Folding rounds, so that a coordinate may become the length itself, which the tree refuses.
    folded = np.mod(positions, lengths)
    folded[folded >= np.broadcast_to(lengths, folded.shape)] = 0.0
    expected = cKDTree(folded, boxsize=lengths).query_pairs(radius, output_type="ndarray")
    keys = np.unique(np.minimum(i, j).astype(np.int64) * len(positions) + np.maximum(i, j))
    same = len(i) == len(keys) and np.array_equal(keys, np.sort(expected[:, 0] * len(positions) + expected[:, 1]))
    pairs = f"{len(i):,} pairs of neighbours within {radius:g} nm"
    return same, f"{pairs}, {'the same as those' if same else 'not those'} of SciPy's tree."


def steps(windows: tuple[str, ...]) -> int:
    """Return how often :func:`agreement` reports progress."""
    return sum(len(tested(b, windows)) * len(available_methods(n, d)) for n, b in usable().items() for d in METHODS)


def _one(
    run: Run, backend: Any, positions: np.ndarray, data: np.ndarray, mesh: Mesh, window: str, *, timed: bool
) -> np.ndarray | None:
    """Return one method's result on the host in double precision, or None if it declines or fails."""
    real = real_type(backend)
    chosen: dict[str, Any] = {OPTION[run.direction]: run.method}
    try:
        with Plan(mesh, window, backend=run.backend, **chosen) as plan:
            # Device arrays, so that times exclude transfers.
            plan.set_positions(backend.upload(positions.astype(real)))
            native = backend.upload(data.astype(real))
            call = plan.spread if run.direction == "spread" else plan.interpolate
            result = backend.download(call(native)).astype(np.float64)
            if timed:
                run.seconds = _seconds(lambda: call(native), backend.synchronize)
            return result
    except MethodNotSuitable as reason:
        run.declined = str(reason)
    except Exception as failure:  # noqa: BLE001 - one broken method must not hide the others
        run.failure = f"{type(failure).__name__}: {failure}"
    return None


def _seconds(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the shortest time of one call in `SECONDS_TIMED`, after a first call."""
    call()
    wait()
    best, stop = np.inf, time.perf_counter() + SECONDS_TIMED
    while time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return float(best)
