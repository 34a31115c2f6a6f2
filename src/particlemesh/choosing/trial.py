# SPDX-License-Identifier: BSD-3-Clause
"""What a plan's method takes on its particles, timed on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.backends.base import Backend, allocate
from particlemesh.methods.contract import Method
from particlemesh.operands import COMPLEX

if TYPE_CHECKING:
    from particlemesh.plan import Plan


def once(plan: Plan, direction: str) -> None:
    """Let the plan's method make ready and run once, so that its kernels are compiled."""
    _call(plan, direction)()
    plan.backend.synchronize()


def _call(plan: Plan, direction: str) -> Callable[[], Any]:
    """Return a call of the plan's method with values and a field of its own."""
    values, field = _numbers(plan, (plan.count,)), _numbers(plan, plan.mesh.field_shape)
    if direction == "spread":
        return functools.partial(plan.spread, values, out=field)
    return functools.partial(plan.interpolate, field, out=values)


def seconds(plan: Plan, direction: str) -> tuple[float, float]:
    """Return the seconds of ``prepare`` and of one ``apply``, the clearing of the mesh included; waits.

    Values and field are the trial's own. The plan is of no use to others meanwhile.
    """
    backend, method, apply = plan.backend, plan._method(direction), _call(plan, direction)

    def prepare() -> None:
        # Orders that methods share are made anew, since this one alone would have to make them. The plan is not asked:
        # what it captures it takes for what a replay will bring.
        plan.shared.clear()
        with backend.scope():
            plan.token = backend.follow(plan.token)
            method.prepare(plan)

    apply()  # compiles, takes its memory
    prepared = 0.0
    if type(method).prepare is not Method.prepare:
        prepared = backend.seconds(prepare)
    return prepared, backend.seconds(apply)


def _numbers(plan: Plan, shape: tuple[int, ...]) -> Any:
    """Return complex numbers where two reals a particle are planned for, else so many real ones."""
    backend, reals = plan.backend, plan.components
    parts = 2 if reals % 2 == 0 else 1
    dtype = COMPLEX[plan.dtype] if parts == 2 else plan.dtype
    batch = (reals // parts,) if reals > parts else ()
    array = allocate(backend, batch + shape, dtype, "the numbers of a trial")
    _fill(backend, array.reshape(-1).view(plan.dtype))
    return array


def _fill(backend: Backend, flat: Any) -> None:
    """Fill an array with numbers that differ: a chip takes less power, and runs faster, on zeros."""
    first = np.random.default_rng(1).normal(size=min(flat.shape[0], 1 << 16)).astype(flat.dtype)
    done = len(first)
    if done:
        backend.copy(flat[:done], backend.upload(first))
    while done < flat.shape[0]:
        more = min(done, flat.shape[0] - done)
        backend.copy(flat[done : done + more], flat[:more])
        done += more
