# SPDX-License-Identifier: BSD-3-Clause
"""What non-uniform transforms of torch and JAX share: arguments as text."""

from __future__ import annotations

import json
from typing import Any

from particlemesh import checks


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
