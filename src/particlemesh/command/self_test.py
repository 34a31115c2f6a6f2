# SPDX-License-Identifier: BSD-3-Clause
"""Tests of every method on every available backend, for ``info`` and ``demo``: all lists come from ``METHODS``."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from particlemesh import backends
from particlemesh.backends.cpu import available_threads
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import METHODS
from particlemesh.grid.builders import METHODS as BUILDERS
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
PROCESSES = available_threads()  # with one, tests run in this process


@dataclass
class Run:
    """A test of one method on one backend; errors are relative and keyed by window or by what was tested."""

    operation: str  # a direction, or "grid"
    backend: str
    method: str
    tolerance: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)
    charge: float = 0.0  # of the sum of a field: largest over windows, relative to the sum of absolute values
    seconds: float | None = None  # of one application; None if emulated
    declined: str | None = None  # why the method does not serve this problem on this device, which is no failure
    failure: str | None = None

    @property
    def error(self) -> float:
        """The largest error; NaN without any."""
        return max(self.errors.values(), default=float("nan"))

    @property
    def wrong(self) -> str | None:
        """Why the test failed, or None if it passed."""
        # This form of the comparison fails for NaN.
        within = all(error <= self.tolerance for error in (*self.errors.values(), self.charge))
        return self.failure or (None if within else f"differs by more than {self.tolerance:.0e}")

    @contextlib.contextmanager
    def catching(self, backend: Any) -> Iterator[None]:
        """Keep the reason why a method declines or fails: one broken method must not hide the others."""
        try:
            with unoptimised(backend):
                yield
        except MethodNotSuitable as reason:
            self.declined = str(reason)
        except Exception as failure:  # noqa: BLE001 - any error is reported
            self.failure = f"{type(failure).__name__}: {failure}"


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


# ---- info: adjoint methods, and grids that find all pairs -------------------------------------------------


def checks(backend: Any) -> int:
    """Return how many results `adjointness` and `grids` yield."""
    methods = sum(len(available_methods(backend.name, direction)) for direction in METHODS)
    return methods + sum(backend.name in builder.backends for builder in BUILDERS)


def adjointness(backend: Any, count: int = 1000) -> Iterator[Run]:
    """Check each method of a backend: ``<spread(q), f> = <q, interpolate(f)>`` on an odd anisotropic mesh.

    Each method is paired with that of the other direction which plans select here; these two come first. A method may
    decline: its tiles, for example, may be larger than the local memory of the device.
    """
    random, real = np.random.default_rng(1), real_type(backend)
    mesh = Mesh(shape=(11, 12, 13), box=(1.0, 1.1, 1.2))
    positions = (random.random((count, 3)) * mesh.box.lengths).astype(real)
    values, nodes = random.normal(size=count).astype(real), random.normal(size=mesh.shape).astype(real)
    names = {direction: available_methods(backend.name, direction) for direction in METHODS}
    selecting = contextlib.suppress(Exception)  # what fails is reported below
    with selecting, unoptimised(backend), Plan(mesh, WINDOW, backend=backend.name) as plan, backend.scope():
        plan.set_positions(positions)
        names = {d: _led_by(plan.methods.of(d).name, listed) for d, listed in names.items()}
    chosen = {OPTION[direction]: listed[0] for direction, listed in names.items()}
    first = [(d, listed[0]) for d, listed in names.items()]
    for direction, name in first + [(d, n) for d, listed in names.items() for n in listed[1:]]:
        run = Run(direction, backend.name, name, TOLERANCES[real.name])
        methods: dict[str, Any] = chosen | {OPTION[direction]: name}
        with run.catching(backend), Plan(mesh, WINDOW, backend=backend.name, **methods) as plan:
            plan.set_positions(positions)
            spread, interpolated = plan.spread(values), plan.interpolate(nodes)
            scale = np.linalg.norm(spread) * np.linalg.norm(nodes)
            run.errors["sums"] = float(abs(np.vdot(spread, nodes) - np.vdot(values, interpolated)) / scale)
            run.failure = None if run.wrong is None else "not adjoint"
        yield run


def _led_by(name: str, names: list[str]) -> list[str]:
    """Return names with one of them moved to the front."""
    return [name, *(other for other in names if other != name)]


def grids(backend: Any, count: int = 500) -> Iterator[Run]:
    """Check each builder of a backend: pairs and overlaps in a periodic box, against a search over all pairs.

    The builder that grids select here comes first. Errors are those of distances, relative to the radius.
    """
    random, real = np.random.default_rng(1), real_type(backend)
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
        names = _led_by(grid.build(positions, radius / 2).ready().method.name, names)
    for name in names:
        run, options = Run("grid", backend.name, name, TOLERANCES[real.name]), dict[str, Any](method=name)
        with run.catching(backend), UniformGrid(lengths, cell_size=radius, backend=backend.name, **options) as grid:
            grid.build(positions, radius / 2)
            results = grid.pairs(radius, half=True, format="coo", quantities="ijd"), grid.overlaps(quantities="ijd")
            for operation, pairs in zip(("pairs", "overlaps"), results, strict=True):
                places = pairs.i.astype(np.int64) * count + pairs.j
                order = np.argsort(places)
                if not np.array_equal(places[order], i[expected] * count + j[expected]):
                    run.errors[operation], run.failure = float("nan"), "other pairs"
                    break
                run.errors[operation] = float(np.abs(pairs.distance[order] - distances[expected]).max() / radius)
            run.failure = run.failure or (run.wrong and "other distances")
        yield run


# ---- info: in several processes at once, since compiling is most of what tests do the first time ----------

_PARTS = {"methods": adjointness, "grids": grids}


def rows(seconds: float | None) -> Iterator[Run]:
    """Test the backends and yield each test when it has ended; begin no test after ``seconds``.

    The methods of the CPU, its grids and each device have a process of their own: a driver that crashes is a failed
    test. The method that a plan selects by default is tested first.
    """
    end = None if seconds is None else time.time() + seconds
    jobs: list[tuple[str, tuple[str, ...]]] = []
    for name in usable():
        jobs += [(name, (part,)) for part in _PARTS] if name == "cpu" else [(name, tuple(_PARTS))]
    if PROCESSES > 1:
        yield from _in_processes(jobs, end)
    else:
        for job in jobs:
            yield from _tests(*job, end)


def _tests(name: str, parts: tuple[str, ...], end: float | None) -> Iterator[Run]:
    backend = backends.current(name)
    for run in itertools.chain(*(_PARTS[part](backend) for part in parts)):
        yield run
        if end is not None and time.time() > end:
            return


def _work(pipe: Any, name: str, parts: tuple[str, ...], end: float | None) -> None:
    """Send each test that has ended; the body of a process."""
    for run in _tests(name, parts, end):
        pipe.send(run)


@contextlib.contextmanager
def spawning() -> Iterator[Any]:
    """Yield a context whose processes run no file of the present folder: Python starts them as ``python -c``."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield multiprocessing.get_context("spawn")  # a fork would have our threads' locks
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _in_processes(jobs: list[tuple[str, tuple[str, ...]]], end: float | None) -> Iterator[Run]:
    working: dict[Any, Any] = {}
    with spawning() as context:
        for job in jobs:
            received, sender = context.Pipe(duplex=False)
            working[received] = context.Process(target=_work, args=(sender, *job, end), daemon=True), *job
            working[received][0].start()
            sender.close()  # the other end is the process's alone, so that its end is noticed
    while working:
        ready: list[Any] = wait(list(working))
        for receiver in ready:
            try:
                yield receiver.recv()
            except EOFError:
                process, name, parts = working.pop(receiver)
                process.join()
                if process.exitcode:
                    failure = f"the process ended with code {process.exitcode}"
                    yield Run(" and ".join(parts), name, "", failure=failure)


def beside(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Call a function in another process; return a function that waits for its result."""
    if PROCESSES == 1:
        return lambda: function(*arguments)
    with spawning() as context:
        pool = ProcessPoolExecutor(1, mp_context=context)
        result = pool.submit(function, *arguments)
    pool.shutdown(wait=False)
    return result.result


# ---- demo: all methods agree ------------------------------------------------------------------------------


def steps(windows: tuple[str, ...]) -> int:
    """Return how often `agreement` reports progress."""
    return sum(len(tested(b, windows)) * len(available_methods(n, d)) for n, b in usable().items() for d in METHODS)


def agreement(
    positions: np.ndarray, values: np.ndarray, mesh: Mesh, windows: tuple[str, ...],
    progress: Callable[[str], None] = lambda what: None,
) -> list[Run]:  # fmt: skip
    """Spread and interpolate by every method on every available backend, spreading first.

    Spread fields are compared with that of the first method (in double precision, on the CPU), and their sum with that
    of the values. All methods then interpolate the first method's field. `tested` selects the windows of a device.
    """
    runs: list[Run] = []
    fields: dict[str, np.ndarray] = {}  # of the first method, by window
    devices = usable()
    # Numba and the compilers of devices work at once. Their calls are timed afterwards, one by one.
    with ThreadPoolExecutor(len(devices)) as pool:
        for direction in METHODS:
            data = dict.fromkeys(windows, values) if direction == "spread" else fields
            jobs = [pool.submit(_all, direction, b, positions, data, mesh, windows, progress) for b in devices.values()]
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
        backend, window = devices[run.backend], windows[-1]
        if window in run.errors and not emulated(backend):
            data = fields if run.operation == "interpolate" else {window: values}
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
            elif (result := _one(run, backend, positions, data[window], mesh, window)) is not None:
                results[window] = result
            progress(f"{direction} {method} on {backend.name}")
    return runs


def _one(
    run: Run, backend: Any, positions: np.ndarray, data: np.ndarray, mesh: Mesh, window: str, timed: bool = False
) -> np.ndarray | None:
    """Return one method's result on the host in double precision, or None if it declines or fails."""
    real, chosen = real_type(backend), dict[str, Any]({OPTION[run.operation]: run.method})
    with run.catching(backend), Plan(mesh, window, backend=run.backend, **chosen) as plan:
        # Device arrays, so that times exclude transfers.
        plan.set_positions(backend.upload(positions.astype(real)))
        native = backend.upload(data.astype(real))
        call = plan.spread if run.operation == "spread" else plan.interpolate
        result = backend.download(call(native)).astype(np.float64)
        stop = time.perf_counter() + SECONDS_TIMED
        while timed and time.perf_counter() < stop:
            start = time.perf_counter()
            call(native)
            backend.synchronize()
            run.seconds = min(run.seconds or np.inf, time.perf_counter() - start)
        return result
    return None


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
    return same, f"{pairs}, {'the same as' if same else 'not'} those of SciPy's tree."
