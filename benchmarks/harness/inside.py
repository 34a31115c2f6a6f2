# SPDX-License-Identifier: BSD-3-Clause
"""All that benchmarks use of the library beyond its public interface."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from particlemesh import backends
from particlemesh.apps.dem.cpu import _contact as contact_law
from particlemesh.backends.cpu import available_threads
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.predict import known
from particlemesh.methods.contract import Method
from particlemesh.plan import Plan
from particlemesh.plan.calls import PlanMethods
from particlemesh.window import window_of

__all__ = [
    "METHODS",
    "ask",
    "automatic",
    "available_threads",
    "backend_of",
    "contact_law",
    "fullest_slots",
    "idle_memory",
    "launches",
    "method_of",
    "order_of",
    "prepare",
    "prepare_again",
    "prepares",
    "replace_method",
    "window_of",
]  # fmt: skip


def backend_of(name: str) -> Any:
    """Return the library's backend of a name, on its default device."""
    return backends.current(name)


# ---- methods of a plan ------------------------------------------------------------------------------------


def method_of(plan: Any, direction: str) -> Any:
    """Return the method that a plan takes."""
    return plan.methods.of(direction)


def ask(plan: Any, method: Any) -> candidates.Candidate:
    """Return what a method says of a plan's problem: its reason to decline, or its estimates."""
    return candidates.ask(method, plan.methods.problem())


def automatic(plan: Any, direction: str) -> str:
    """Return the name of the automatic choice for a plan's problem."""
    predicted = functools.partial(known(plan.backend).predict, direction)
    methods = tuple(m for m in METHODS[direction] if plan.backend.name in m.backends)
    return candidates.choose(methods, plan.methods.problem(), "auto", predicted).name


def prepares(method: Any) -> bool:
    """Return whether a method prepares anything between locating particles and applying."""
    return (method if isinstance(method, type) else type(method)).prepare is not Method.prepare


def replace_method(plan: Any, direction: str, method: Any) -> None:
    """Let a plan use a method that the library does not have."""
    plan.methods.known[direction] = method


def prepare(plan: Any, direction: str) -> None:
    """Prepare for new positions as the first call after ``set_positions`` does, without waiting."""
    with plan.backend.scope():
        plan.follow()
        plan.methods.prepare(direction, plan.methods.of(direction))


def prepare_again(plan: Any, direction: str) -> None:
    """Repeat a method's preparation for the plan's positions, without waiting.

    Orders that methods share are made anew, since a single method has to make them; memory of the plan is kept.
    """
    plan.workspace.orders.clear()
    with plan.backend.scope():
        plan.follow()
        plan.methods.of(direction).prepare(plan.workspace)
    plan.methods.prepared |= {direction}


def order_of(plan: Any) -> np.ndarray:
    """Return the order of the particles of a plan that sorts them."""
    order = plan.order
    return np.asarray(order if isinstance(order, np.ndarray) else plan.backend.download(order))


def fullest_slots(plan: Any, direction: str) -> float:
    """Return how many slots of cells ``domain_copies`` works on, dummy particles included."""
    copies = method_of(plan, direction).copies(plan.workspace)
    fullest = plan.backend.download(copies.fullest).ravel()[: copies.blocks.count * copies.blocks.chunks]
    return float(fullest.sum(dtype=np.int64)) * copies.blocks.group


def idle_memory(backend: Any, most: int) -> None:
    """Free CuPy's idle blocks beyond a number of bytes: the next problem may need other sizes."""
    if backend.name == "cuda":
        import cupy

        pool = cupy.get_default_memory_pool()
        if pool.free_bytes() > most:
            pool.free_all_blocks()


# ---- launches, one by one ---------------------------------------------------------------------------------


@contextlib.contextmanager
def launches(backend: Any, mark: Callable[[], Any]) -> Iterator[list[tuple[str, str, Any, Any]]]:
    """Yield a list that gets phase, name and two marks of every kernel, clear and copy of the library inside.

    Phases are ``locate``, ``prepare`` and ``apply``.
    """
    records: list[tuple[str, str, Any, Any]] = []
    phase, depth = ["apply"], [0]

    def watched(verb: Any, name_of: Callable[[Any], str]) -> Any:
        def run(owner: Any, *arguments: Any, **options: Any) -> Any:
            if depth[0]:  # a clear that is itself a kernel
                return verb(owner, *arguments, **options)
            depth[0] += 1
            begin = mark()
            try:
                return verb(owner, *arguments, **options)
            finally:
                depth[0] -= 1
                records.append((phase[-1], name_of(owner), begin, mark()))

        return run

    def phased(verb: Any, name: str) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            phase.append(name)
            try:
                return verb(*arguments, **options)
            finally:
                phase.pop()

        return run

    kernel = _kernel_class(backend.name)
    with (
        mock.patch.object(kernel, "__call__", watched(kernel.__call__, _kernel_name)),
        mock.patch.object(type(backend), "clear", watched(type(backend).clear, lambda _: "clear")),
        mock.patch.object(type(backend), "copy", watched(type(backend).copy, lambda _: "copy")),
        mock.patch.object(Plan, "set_positions", phased(Plan.set_positions, "locate")),
        mock.patch.object(PlanMethods, "prepare", phased(PlanMethods.prepare, "prepare")),
    ):
        yield records


def _kernel_class(backend: str) -> Any:
    if backend == "cuda":
        from particlemesh.backends.cuda import CudaKernel

        return CudaKernel
    from particlemesh.backends.opencl import OpenClKernel

    return OpenClKernel


def _kernel_name(kernel: Any) -> str:
    return str(kernel._kernel.function_name if hasattr(kernel, "_kernel") else kernel._raw.name)
