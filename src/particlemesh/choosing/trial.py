# SPDX-License-Identifier: BSD-3-Clause
"""Timing of a method on the particles of a workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import COMPLEX, View, view
from particlemesh.backends.base import Backend
from particlemesh.backends.tapes import Tapes
from particlemesh.methods.contract import Method
from particlemesh.particles.workspace import Workspace


class Trial:
    """One method applied as a plan applies it, to the same particles, with separate memory, values and field."""

    def __init__(self, workspace: Workspace, direction: str, method: type[Method]) -> None:
        self.backend = workspace.backend
        self._token: Any = None
        self._workspace, self._method, self._spreads = workspace.apart(), method(), direction == "spread"
        self._tapes = Tapes()
        self._values, self._field = (
            _numbers(workspace, shape) for shape in ((workspace.count,), workspace.mesh.field_shape)
        )
        views = _view(self._values, 1, 1), _view(self._field, workspace.mesh.ndim, 3)
        self._views = views if self._spreads else views[::-1]
        self._is_prepared = False

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        self._token = token = self.backend.follow(self._token)
        return token

    def prepare(self) -> None:
        # Build shared orders again: used alone, this method would have to build them.
        self._workspace.orders.clear()
        with self.backend.scope():
            self.follow()
            self._method.prepare(self._workspace)
        self._is_prepared = True

    def apply(self) -> None:
        """Apply the method; a spread first clears the mesh. Repeated calls are replayed from a tape, like a plan's."""
        if not self._is_prepared:
            self.prepare()
        self._tapes.again(self, "trial", (self._values, self._field), self._call, self._field)

    def _call(self) -> None:
        with self.backend.scope(self._values, self._field):
            self.follow()
            fresh = self._spreads and self._method.fills and self._workspace.count > 0
            if self._spreads and not fresh:
                self.backend.clear(self._field)
            if self._workspace.count:
                self._method.apply(self._workspace, *self._views, **({"fresh": True} if fresh else {}))
            self.backend.mark(self._values, self._field)


def once(workspace: Workspace, direction: str, method: type[Method]) -> None:
    """Prepare and apply a method once, so that its kernels are compiled; waits."""
    Trial(workspace, direction, method).apply()
    workspace.backend.synchronize()


def seconds(workspace: Workspace, direction: str, method: type[Method]) -> tuple[float, float]:
    """Return the seconds of ``prepare`` and of one ``apply``, including the clearing of the mesh; waits."""
    trial = Trial(workspace, direction, method)
    trial.apply()  # compiles, allocates memory
    measure: Callable[[Callable[[], None]], float] = workspace.backend.seconds
    return measure(trial.prepare) if method.prepares else 0.0, measure(trial.apply)


def _view(array: Any, core: int, axes: int) -> View:
    dense = view(array, core, axes)
    assert dense is not None  # dense arrays always have a view
    return dense


def _numbers(workspace: Workspace, shape: tuple[int, ...]) -> Any:
    """Return an array of the plan's components: complex for an even number of reals per particle, else real."""
    backend, reals = workspace.backend, workspace.components
    parts = 2 if reals % 2 == 0 else 1
    dtype = COMPLEX[workspace.dtype] if parts == 2 else workspace.dtype
    batch = (reals // parts,) if reals > parts else ()
    array = allocate(backend, batch + shape, dtype, "the numbers of a trial")
    _fill(backend, array.reshape(-1).view(workspace.dtype))
    return array


def _fill(backend: Backend, flat: Any) -> None:
    """Fill an array with different numbers: on zeros a chip needs less power and runs faster."""
    first = np.random.default_rng(1).normal(size=min(flat.shape[0], 1 << 16)).astype(flat.dtype)
    done = len(first)
    if done:
        backend.copy(flat[:done], backend.upload(first))
    while done < flat.shape[0]:
        more = min(done, flat.shape[0] - done)
        backend.copy(flat[done : done + more], flat[:more])
        done += more
