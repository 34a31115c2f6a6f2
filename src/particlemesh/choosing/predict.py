# SPDX-License-Identifier: BSD-3-Clause
"""Predicted times of methods: a method's own model, corrected by measurements on the device.

A method's ``cost`` models how times grow; its constants are those of one machine. The ratio of measured to modelled
time varies less from problem to problem than either, so its logarithm is interpolated. It is smoothed, too: at a
tabulated problem the measured times around it count as well. A prediction is no less than that of the method that the
method includes. Far from all measurements the model is corrected as at their border. A method without rows is
predicted by its model; without both it comes last.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.backends.cpu import PARTICLES_PER_THREAD
from particlemesh.choosing import candidates, tables
from particlemesh.choosing.tables import Row, Table
from particlemesh.mesh import Mesh
from particlemesh.methods.contract import Method, Problem
from particlemesh.window import bspline

# Seconds, a tenth of a launch: added to times, so that zero has a logarithm.
NOTHING = 1e-7
# At a tabulated problem the interpolated ratio differs from the measured one by this times the problem's weight. Single
# times scatter, and some of what decides them is no coordinate. On the times that benchmarks/core/regret.py recorded
# (H100, H200, EPYC) choices are better than without; from 0.6 on, they miss problems that the tables have.
SMOOTHING = 0.3


def place(problem: Problem) -> np.ndarray:
    """Return the coordinates of a problem: the quantities that decide times, as scaled logarithms.

    The bytes of the field tell whether it fits a cache. The local density tells whether particles share nodes. The
    divisors of a row's length tell whether it is read by one, two or four reals. The parity of the stencil tells
    whether kernels have a node without weight.
    """
    count, nodes = max(problem.count, 1), problem.nodes
    row = problem.mesh.field_shape[-1] * problem.components
    return np.array([
        0.5 * math.log2(count), 0.5 * math.log2(count / (nodes * problem.filled)), 0.7 * math.log2(problem.filled),
        0.5 * math.log2(nodes * problem.components * problem.dtype.itemsize), 0.67 * math.log2(problem.stencil),
        math.log2(problem.components), float(problem.dtype.itemsize == 8), 0.5 * math.log2(math.gcd(row, 4)),
        0.7 * (problem.window.support % 2), float(problem.in_order or problem.sorted), 2.0 * (3 - problem.mesh.ndim),
    ])  # fmt: skip


def _apart(steps: np.ndarray) -> np.ndarray:
    """Return the lengths of steps to the power of 3/2."""
    lengths: np.ndarray = np.linalg.norm(steps, axis=-1) ** 1.5
    return lengths


class Interpolation:
    """Interpolation of numbers at scattered places: a linear trend, and radial functions for the residual.

    The residual is a weighted sum of distances to the places to the power of 3/2; distances themselves would have
    corners. Outside the places' bounding box the nearest border applies. Results lie between the least and the largest
    number. They meet the numbers unless they are smoothed.
    """

    def __init__(self, places: np.ndarray, numbers: np.ndarray, smoothing: float = 1e-9) -> None:
        self._places, self._middle = places, places.mean(axis=0)
        self._low, self._high = places.min(axis=0), places.max(axis=0)
        self._least, self._largest = numbers.min(axis=0), numbers.max(axis=0)
        # Places may lie in a plane: only directions in which they differ have a trend.
        left, sizes, right = np.linalg.svd(self._trends(places), full_matrices=False)
        spanned = sizes > 1e-8 * sizes[0]
        left, self._directions = left[:, spanned], right[spanned].T / sizes[spanned]
        n, rank = left.shape
        system = np.zeros((n + rank, n + rank))
        # Regularisation. Even a slight one lets two places coincide: the result lies between their numbers.
        system[:n, :n] = _apart(places[:, None] - places) - smoothing * np.eye(n)
        system[:n, n:], system[n:, :n] = left, left.T
        self._weights = np.linalg.solve(system, np.vstack([numbers, np.zeros((rank, numbers.shape[1]))]))

    def _trends(self, places: np.ndarray) -> np.ndarray:
        return np.hstack([np.ones((len(places), 1)), places - self._middle])

    def __call__(self, where: np.ndarray) -> np.ndarray:
        inside = np.clip(where, self._low, self._high)
        distances = _apart(self._places - inside)
        trends = self._trends(inside[None])[0] @ self._directions
        clipped: np.ndarray = np.clip(np.concatenate([distances, trends]) @ self._weights, self._least, self._largest)
        return clipped


class Timings:
    """Predictions for one device, with a hint for better ones, and their source: comparing code takes half a second."""

    def __init__(
        self, backend: Any, rows: tuple[Row, ...], source: Callable[[], str], hint: str = "", threads: int | None = None
    ) -> None:
        self.source, self.hint = source, hint
        self.rows = rows
        self._threads = threads  # of the processor on which rows were measured
        self._backend = backend
        self._corrections: dict[tuple[str, str], Interpolation | None] = {}

    def predict(self, direction: str, method: type[Method], problem: Problem) -> tuple[float, float]:
        """Return the seconds of ``prepare`` and of one ``apply``: no less than those of the method that it includes.

        Both are infinite for a method that has neither a model nor rows. Each crowd takes its share of the time that
        all particles would take, if they were as near each other as those of the crowd.
        """
        if problem.crowds:
            shares, filled = zip(*problem.crowds, strict=True)
            times = [self.predict(direction, method, replace(problem, filled=f, crowds=())) for f in filled]
            prepare, apply = (float(np.dot(shares, seconds)) for seconds in zip(*times, strict=True))
            return prepare, apply
        correction = self._correction(direction, method)
        if correction is None and not method.has_model():
            return math.inf, math.inf
        seconds = np.array(candidates.modelled(method, problem))
        if correction is not None:
            seconds = np.maximum(np.exp(correction(place(problem))) * (seconds + NOTHING) - NOTHING, 0.0)
        if method.includes is not None:
            chosen = {**problem.options, method.includes.name: problem.options.get(method.name, {})}
            seconds = np.maximum(seconds, self.predict(direction, method.includes, replace(problem, options=chosen)))
        return float(seconds[0]), float(seconds[1])

    def _correction(self, direction: str, method: type[Method]) -> Interpolation | None:
        key = direction, method.name
        if key not in self._corrections:
            measured = self._measured(direction, method)
            places = np.array([place(problem) for _, problem in measured])
            smoothing = {"smoothing": SMOOTHING} if method.has_model() else {}  # times themselves vary too much
            self._corrections[key] = Interpolation(places, _ratios(method, measured), **smoothing) if measured else None
        return self._corrections[key]

    def ratios(self, direction: str, method: type[Method]) -> np.ndarray:
        """Return the logarithms of measured over modelled times (n, 2), of ``prepare`` and ``apply``."""
        return _ratios(method, self._measured(direction, method))

    def _measured(self, direction: str, method: type[Method]) -> list[tuple[Row, Problem]]:
        """Return the measured problems of a method, without those it declines, which a table may contain."""
        rows = (row for row in self.rows if (row.direction, row.method) == (direction, method.name))
        its = ((row, problem_of(row, self._backend, threads=self._threads)) for row in rows)
        return [(row, problem) for row, problem in its if method.declines(problem) is None]


def _ratios(method: type[Method], measured: list[tuple[Row, Problem]]) -> np.ndarray:
    modelled = np.array([candidates.modelled(method, problem) for _, problem in measured]).reshape(-1, 2)
    times = np.array([(row.prepare, row.apply) for row, _ in measured]).reshape(-1, 2)
    ratios: np.ndarray = np.log((times + NOTHING) / (modelled + NOTHING))
    return ratios


@functools.cache
def _mesh(nodes: int, axes: int) -> Mesh:
    return Mesh((nodes,) * axes, (1.0,) * axes)


_window = functools.cache(bspline)


def problem_of(row: Row, backend: Any, applications: int = 1, threads: int | None = None) -> Problem:
    """Return the problem of a table's row, on a processor with ``threads`` threads; by default on this one."""
    used = None if threads is None else max(1, min(threads, row.particles // PARTICLES_PER_THREAD))
    mesh, window, dtype = _mesh(row.nodes, row.axes), _window(row.support), np.dtype(row.dtype)
    return Problem(
        mesh, window, dtype, row.components, applications, row.particles, False, backend, filled=row.filled,
        in_order=bool(row.in_order), occupied=row.occupied, threads=used,
    )  # fmt: skip


_known: dict[tuple[str, str, Path | None], Timings] = {}


def known(backend: Any) -> Timings:
    """Return the predictions for a backend's device. Tables are read once per process."""
    device = tables.device_of(backend)
    key = backend.name, device, tables.folder()
    if key not in _known:
        _known[key] = _look(backend, device)
    return _known[key]


def forget() -> None:
    """Discard the tables read so far, so that they are read again."""
    _known.clear()


def _look(backend: Any, device: str) -> Timings:
    path, hint = tables.path_of(backend.name, device), ""
    try:
        tuned = None if path is None else tables.read(path)
        if tuned is not None and (tuned.backend, tuned.device) != (backend.name, device):
            hint = f"{path} is of {tuned.device} and not used: `particlemesh tune` renews it"
        elif tuned is not None:
            changed, rows = tuned.changed(), tuned.valid()
            if changed:
                hint = (
                    f"{path} has outdated times, which are not used, for {', '.join(changed)}: "
                    "`particlemesh tune` renews them"
                )
            if rows:
                source = f"measured on {device} by `particlemesh tune`, {tuned.measured}"
                return Timings(backend, rows, lambda: source, hint)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, tables.TableError) as error:
        warnings.warn(f"{error}; it is not used, and `particlemesh tune` writes it anew.", stacklevel=2)
    # Tables of GPUs serve every GPU, but not OpenCL on a processor.
    gpus = ("cuda", "opencl") if backend.name != "cpu" and backend.facts().get("HAS_WARP") else ()
    akin = [table for name in (("cpu",) if backend.name == "cpu" else gpus) for table in tables.shipped(name)]
    if not akin:
        return Timings(backend, (), lambda: OWN_MODELS, hint or _HINT)
    # Prefer the same device, on any backend; then the same backend; among processors a similar number of threads.
    best = max(
        akin, key=lambda table: (table.device == device, table.backend == backend.name, -_times_apart(table, device))
    )
    same = (best.backend, best.device) == (backend.name, device)

    def described() -> str:
        # Outdated times are better than none: a release may change a kernel before it is measured again.
        changed, text = best.changed(), f"measured on {best.device}, {best.measured}"
        if changed:
            text += f"; the code of {len(changed)} of {len(best.sources)} methods has changed since"
        if backend.name == "cpu" and not same:
            text += f"; applied to {device}, to within the difference of the two processors"
        return text

    return Timings(backend, best.rows, described, hint or ("" if same else _HINT), tables.threads_of(best.device))


def _times_apart(table: Table, device: str) -> float:
    """Return by how many doublings the threads of two processors differ; 0 for other devices."""
    here, measured = tables.threads_of(device), tables.threads_of(table.device)
    return 0.0 if here is None or measured is None else abs(math.log2(here / measured))


OWN_MODELS = "the methods' own models"
_HINT = "`particlemesh tune` measures this device"
