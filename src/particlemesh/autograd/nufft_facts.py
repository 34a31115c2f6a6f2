# SPDX-License-Identifier: BSD-3-Clause
"""What non-uniform transforms of torch and JAX share: arguments as text, checks, and the sums of a plan."""

from __future__ import annotations

import json
from typing import Any

from particlemesh import checks
from particlemesh.apps import nufft
from particlemesh.autograd.pool import Pool


def text_of(n_modes: Any, eps: float, isign: int, options: dict[str, Any]) -> str:
    """Return modes per axis, tolerance, sign and options as one line of JSON."""
    for name in ("modeord", "spreadinterponly", "real"):
        if name in options:
            raise TypeError(f"option {name!r} is not allowed here; modes ascend, and values are complex.")
    sizes = [n_modes] if isinstance(n_modes, int) else n_modes
    facts = [checks.integer(n, "n_modes", 1, 2**31) for n in sizes], checks.positive(eps, "eps")
    return json.dumps([*facts, -1 if isign < 0 else 1, options])


def facts_of(text: str) -> tuple[tuple[int, ...], float, int, dict[str, Any]]:
    """Return modes per axis, tolerance, sign and options from their text."""
    n_modes, eps, sign, options = json.loads(text)
    return tuple(n_modes), eps, sign, options


def with_axes(points: Any, axes: int) -> Any:
    """Return points (N, d); for one axis (N,) is allowed."""
    points = points[:, None] if points.ndim == 1 == axes else points
    if points.ndim != 2 or points.shape[1] != axes:
        raise ValueError(f"points has shape {tuple(points.shape)}; (n, {axes}) is needed.")
    return points


_BYTES = {"float32": 4, "complex64": 4, "float64": 8, "complex128": 8}


def check_types(what: str, array: Any, **points: Any) -> None:
    """Raise a TypeError unless points are real and of the precision of strengths or modes."""
    dtype = str(array.dtype).removeprefix("torch.")
    for name, each in points.items():
        real = str(each.dtype).removeprefix("torch.")
        if dtype not in _BYTES or real[:1] == "c" or _BYTES.get(real) != _BYTES[dtype]:
            raise TypeError(
                f"{what} have dtype {dtype} and {name} {real}; give one precision: float32 with float32 or complex64, "
                "or float64 with float64 or complex128."
            )


def both_sets(points: Any, strengths: Any, frequencies: Any) -> tuple[Any, Any]:
    """Return points (N, d) and frequencies (M, d), checked beside strengths (..., N)."""
    check_types("strengths", strengths, points=points, frequencies=frequencies)
    points = points[:, None] if points.ndim == 1 else points
    frequencies = frequencies[:, None] if frequencies.ndim == 1 else frequencies
    if points.ndim != 2 or frequencies.ndim != 2 or points.shape[1] != frequencies.shape[1]:
        raise ValueError(
            f"points have shape {tuple(points.shape)} and frequencies {tuple(frequencies.shape)}; (n, d) and (m, d) "
            "are needed."
        )
    if strengths.shape[-1:] != points.shape[:1]:
        raise ValueError(f"strengths has shape {tuple(strengths.shape)}; its last axis must be ({points.shape[0]},).")
    return points, frequencies


def shape_of(spreads: bool, *given: Any) -> tuple[int, ...]:
    """Return the shape of the modes of strengths (..., N), if it spreads, or of the sums of modes; or those of type 3.

    Operators call it with points, an array, an order and facts.
    """
    *sets, array, _, text = given
    if len(sets) == 2:
        return (*array.shape[:-1], sets[spreads].shape[0])
    return shape_with(facts_of(text)[0], spreads, sets[0], array)


def shape_with(modes: tuple[int, ...], spreads: bool, points: Any, array: Any) -> tuple[int, ...]:
    """Return the shape for a number of modes along each axis; see `shape_of`."""
    count = (points.shape[0],)
    core, result = (count, modes) if spreads else (modes, count)
    batch = array.ndim - len(core)
    if batch < 0 or tuple(array.shape[batch:]) != core:
        what = "strengths" if spreads else "modes"
        raise ValueError(f"{what} has shape {tuple(array.shape)}; its last axes must be {core}.")
    return (*array.shape[:batch], *result)


def sums(pool: Pool, text: str, spreads: bool, sets: tuple[Any, ...], array: Any, device: Any) -> Any:
    """Return ``f[k] = sum_j c[j] exp(i k . x_j)`` of vectors c (..., N), or its adjoint of modes f.

    ``sets`` has the points, and of type 3 the frequencies. Arrays are dense.
    """
    n_modes, eps, _, options = facts_of(text)
    kind = 3 if len(sets) == 2 else 1
    core = 1 if spreads or kind == 3 else len(n_modes)
    vectors = array.reshape(-1, *array.shape[array.ndim - core :])
    number, dtype = len(vectors), str(array.dtype).removeprefix("torch.")

    def create() -> nufft.Plan:
        return nufft.Plan(kind, n_modes[0] if kind == 3 else n_modes, number, eps, 1, dtype, **options)

    def place(plan: nufft.Plan, sets: tuple[Any, ...]) -> None:
        columns = [each.T.contiguous() if hasattr(each, "contiguous") else each.T.copy() for each in sets]
        missing = [None] * (3 - len(columns[0])) if kind == 3 else []
        plan.setpts(*columns[0], *missing, *(columns[1] if kind == 3 else ()))

    with pool.borrow_plan((text, kind, number, dtype, device), sets, create, place) as plan:
        return (plan.execute if spreads else plan.execute_adjoint)(vectors)
