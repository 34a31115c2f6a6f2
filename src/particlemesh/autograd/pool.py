# SPDX-License-Identifier: BSD-3-Clause
"""What torch and JAX share: the verbs by order of derivative, and plans for meshes in fractional coordinates.

A mesh in fractional coordinates has a box of unit lengths. Its plan does not depend on the user's box, so that a
training loop that changes the box uses one plan.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from particlemesh import Box, Mesh, Plan, Window, bspline
from particlemesh.checks import through_forks
from particlemesh.mesh import mesh_of
from particlemesh.window import window_of

SPREAD = ("spread", "spread_gradient", "spread_hessian")  # by order of derivative
INTERPOLATE = ("interpolate", "gradient", "hessian")
IDLE = 8  # plans that wait for their next use
ALIKE = 2  # of them for one mesh, so that two sets of positions alternate without work
_FOLLOW = {"mesh", "window", "dtype", "backend", "order", "systems"}  # the arrays decide these
_OPTIONS = set(inspect.signature(Plan).parameters) - _FOLLOW
_SLACK = 16  # roundings by which a fraction may leave an open axis


def verb(spreads: bool, order: int) -> str:
    """Return the method of a plan that applies derivatives of the window of an order.

    Raises
    ------
    NotImplementedError
        If the order is above 2.
    """
    if order > 2:
        raise NotImplementedError(
            "third derivatives by positions are not available: differentiate at most twice by positions, "
            "or detach the positions."
        )
    return (SPREAD if spreads else INTERPOLATE)[order]


# ---- meshes as text -------------------------------------------------------------------------------------


def text_of(mesh: Mesh, window: Window | str, options: dict[str, Any], systems: int | None = None) -> str:
    """Return a mesh without its lengths, a window and a plan's options as one line of JSON.

    Operators of torch take text, and traces contain it. It holds all facts, so that it means the same in another
    process.
    """
    mesh = mesh_of(mesh)
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(f"option {unknown[0]!r} is not allowed here; the options are {', '.join(sorted(_OPTIONS))}.")
    choices = json.dumps(options | ({} if systems is None else {"systems": systems}), sort_keys=True)
    whole, part = mesh, None
    if mesh.is_part:
        whole = mesh.whole
        stop = tuple(first + nodes for first, nodes in zip(mesh.start, mesh.shape, strict=True))
        part = mesh.start, stop, mesh.ghosts
    return _text(whole.shape, whole.periodic, whole.offset, whole.ghosts, part, window_of(window), choices)


@functools.lru_cache(maxsize=256)
def _text(shape: Any, periodic: Any, offset: Any, ghosts: Any, part: Any, window: Window, options: str) -> str:
    # Fractions become strings, floats become numbers.
    pieces = [[str(c) if isinstance(c, Fraction) else c for c in piece] for piece in window.polynomials]
    exact = window == bspline(window.support)
    name = window.support if exact else [window.name, pieces]
    return json.dumps([shape, periodic, offset, ghosts, part, name, json.loads(options)])


@functools.lru_cache(maxsize=256)
def facts_of(text: str) -> tuple[Mesh, Window, dict[str, Any]]:
    """Return mesh (of unit lengths), window and options from their text."""
    shape, periodic, offset, ghosts, part, window, options = json.loads(text)
    mesh = Mesh(shape, Box([1.0] * len(shape), periodic=periodic), offset=offset, ghosts=ghosts)
    mesh = mesh if part is None else mesh.part(*part)
    if isinstance(window, int):
        return mesh, bspline(window), options
    name, pieces = window
    polynomials = tuple(tuple(Fraction(c) if isinstance(c, str) else c for c in piece) for piece in pieces)
    return mesh, Window(name, polynomials), options


def nodes_of(text: str) -> tuple[int, ...]:
    """Return the shape of fields, of all systems if there are several."""
    mesh, _, options = facts_of(text)
    return (options["systems"], *mesh.field_shape) if "systems" in options else mesh.field_shape


# ---- plans ----------------------------------------------------------------------------------------------


class Pool:
    """Idle plans and copies of the points they were given. Any number of threads may use it.

    A call takes a plan out, and no other thread sees this plan before it is back. A plan with equal points is used as
    it is: the derivatives of a call find the plan of the call. Points are compared by content, because compiled code
    reuses memory without notice.

    Parameters
    ----------
    equal, copy, where : callable
        Functions of the arrays' library: whether two arrays are equal, a copy, a choice by element.
    """

    def __init__(
        self, equal: Callable[[Any, Any], bool], copy: Callable[[Any], Any], where: Callable[[Any, Any, Any], Any]
    ) -> None:
        self._equal, self._copy, self._where = equal, copy, where
        self._lock = through_forks(threading.Lock())
        self._idle: list[tuple[Any, Any, Any]] = []  # key, points, plan; the latest at the end

    def __len__(self) -> int:
        return len(self._idle)

    @contextlib.contextmanager
    def borrow_plan(
        self, key: Any, points: Any, create: Callable[[], Any], place: Callable[[Any, Any], Any]
    ) -> Iterator[Any]:
        """Lend a plan from ``create()`` after ``place(plan, points)``; after an exception it is closed.

        Points are an array, or a tuple of arrays.
        """
        parts = points if isinstance(points, tuple) else (points,)
        key = (key, *((part.dtype, tuple(part.shape[1:])) for part in parts))
        with self._lock:
            mine = [entry for entry in self._idle if entry[0] == key]
            self._idle = [entry for entry in self._idle if entry[0] != key]

        def same(known: tuple[Any, ...]) -> bool:
            pairs = list(zip(known, parts, strict=True))
            return all(a.shape == b.shape for a, b in pairs) and all(self._equal(a, b) for a, b in pairs)

        number = next((n for n in reversed(range(len(mine))) if same(mine[n][1])), None)
        entry = None if number is None else mine.pop(number)
        spare = mine.pop(0)[2] if entry is None and len(mine) >= ALIKE else None
        self._put(mine)
        if entry is None:
            # The copy comes first: placing waits for the device, and so no other stream reads the copy too early.
            entry = key, tuple(map(self._copy, parts)), create() if spare is None else spare
            with _closed_on_error(entry[2]):
                place(entry[2], points)
        with _closed_on_error(entry[2]):
            yield entry[2]
        self._put([entry])

    def plan(self, text: str, dtype: str, device: Any, *points: Any) -> contextlib.AbstractContextManager[Plan]:
        """Lend a plan of a mesh, window and options with points: fractions, and perhaps the system of each."""

        def create() -> Plan:
            mesh, window, options = facts_of(text)
            return Plan(mesh, window, dtype=dtype, **options)

        def place(plan: Plan, points: Any) -> None:
            fractions, *system = points
            plan.set_positions(self._inside(fractions, plan.mesh), system=system[0] if system else None)

        return self.borrow_plan((text, dtype, device), points, create, place)

    def _put(self, entries: list[tuple[Any, Any, Any]]) -> None:
        with self._lock:
            self._idle += entries
            surplus, self._idle = self._idle[:-IDLE], self._idle[-IDLE:]
        for _, _, plan in surplus:
            _close(plan)

    def _inside(self, fractions: Any, mesh: Mesh) -> Any:
        """Return fractions, with those that rounding moved beyond a face of an open axis moved onto it."""
        if all(mesh.periodic):
            return fractions
        clipped = fractions.clip(0, 1)
        near = abs(clipped - fractions) <= _SLACK * np.finfo(str(fractions.dtype).removeprefix("torch.")).eps
        near[:, [axis for axis, periodic in enumerate(mesh.periodic) if periodic]] = False
        return self._where(near, clipped, fractions)

    def clear(self) -> None:
        """Close all idle plans."""
        with self._lock:
            surplus, self._idle = self._idle, []
        for _, _, plan in surplus:
            _close(plan)


@contextlib.contextmanager
def _closed_on_error(plan: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _close(plan)
        raise


def _close(plan: Any) -> None:
    """Free a plan's memory now, where it can do so."""
    close = getattr(plan, "close", None)
    if close is not None:
        close()
