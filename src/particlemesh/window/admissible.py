# SPDX-License-Identifier: BSD-3-Clause
"""Checks of user-defined windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray


def window_pieces(value: Any, name: str, max_support: int) -> tuple[tuple[Fraction | float, ...], ...]:
    """Return a window's polynomials as tuples of Fractions and finite floats."""
    pieces = tuple(tuple(piece) for piece in value)
    if not 1 <= len(pieces) <= max_support:
        raise ValueError(f"window {name!r} has {len(pieces)} polynomials; give 1 to {max_support}, one per node.")
    if not all(pieces):
        raise ValueError(f"window {name!r} has an empty polynomial; give (0,) for the zero polynomial.")
    return tuple(tuple(_coefficient(c, name) for c in piece) for piece in pieces)


def _coefficient(value: Any, name: str) -> Fraction | float:
    if isinstance(value, Rational):
        return Fraction(value)
    if not isinstance(value, Real):
        raise TypeError(f"window {name!r} has the coefficient {value!r}; give a Fraction, int or float.")
    if not math.isfinite(value):
        raise ValueError(f"window {name!r} has the coefficient {value}; every coefficient must be finite.")
    return float(value)


def symmetric(pieces: Sequence[Any], mirror: Sequence[Any], name: str, rounding: float) -> None:
    """Compare a window's polynomials with their mirror images: Fractions exactly, floats to `rounding`."""
    largest = max(abs(c) for piece in pieces for c in piece)
    for j, (piece, image) in enumerate(zip(pieces, mirror, strict=True)):
        for m, (a, b) in enumerate(zip(piece, image, strict=True)):
            exact = isinstance(a, Fraction) and isinstance(b, Fraction)
            if abs(a - b) > (0 if exact else rounding * largest):
                raise ValueError(
                    f"window {name!r} is not symmetric: polynomial {j} has {a} at power {m}; the mirror image of "
                    f"polynomial {len(pieces) - 1 - j} has {b}. Give polynomials with W_j(z) = W_(p-1-j)(-z)."
                )


def shape_values(function: Any, distances: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return a user's shape function at an array of distances, checked to be finite and of the same shape."""
    values = np.asarray(function(distances))
    if values.dtype.kind not in "biufO":
        raise TypeError(f"window {name!r}: the function returned dtype {values.dtype}; it must return real numbers.")
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"window {name!r}: the function returned values that are no real numbers; it must return real numbers."
        ) from None
    if values.shape != distances.shape:
        raise ValueError(
            f"window {name!r}: the function returned shape {values.shape} for distances of shape {distances.shape}; "
            "it must act on arrays element by element."
        )
    if not np.isfinite(values).all():
        distance = distances[~np.isfinite(values)][0]
        raise ValueError(f"window {name!r}: the function is not finite at distance {distance:g}; it must be finite.")
    return values


def symmetric_shape(values: NDArray[np.float64], mirror: NDArray[np.float64], name: str) -> None:
    """Compare a shape function's values with its values at the opposite distances."""
    if np.abs(values - mirror).max() > 1e-12 * np.abs(values).max():
        raise ValueError(f"window {name!r}: the function is not symmetric; give one with phi(-x) = phi(x).")


def divisor(total: NDArray[np.float64], height: float, name: str) -> None:
    """Check that a window's sum or integral is a safe divisor."""
    if np.abs(total).min() <= 1e-12 * height:
        raise ValueError(
            f"window {name!r}: its sum or integral vanishes and cannot be normalised to 1; give normalise=None."
        )


def no_zero(transform: NDArray[np.float64], at_zero: float, name: str, axis: int) -> None:
    """Check that a window's transform has no zeros, at some modes or all; ``at_zero`` is that at k = 0."""
    small = np.abs(transform) <= 1e-13 * np.abs(transform).max(initial=abs(at_zero))
    if small.any():
        raise ValueError(
            f"the transform of window {name!r} vanishes at mode {int(np.argmax(small))} of axis {axis}: "
            "the compensation would divide by zero; choose another window or kind."
        )
