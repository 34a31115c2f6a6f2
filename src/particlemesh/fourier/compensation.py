# SPDX-License-Identifier: BSD-3-Clause
"""What a window does to a spectrum, and the factors that undo it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from particlemesh.fourier.modes import Modes
from particlemesh.window import Window, admissible

Array = NDArray[np.float64]
POWERS = {"spread": 1, "potential": 2}  # of the window's transform
USES = (*POWERS, "power")
KINDS = ("continuous", "discrete")
CHOICES = ("auto", *KINDS, None)


def chosen(compensation: str | None, green: Any) -> str | None:
    """Return the kind that "auto" stands for: none where every mode of a point charge matters, else "continuous".

    Dividing by a window's transform raises the highest modes to those of a point, and then they end at once.
    """
    if compensation != "auto":
        return compensation
    return None if isinstance(green, str) and green in ("poisson", "yukawa") else "continuous"


@lru_cache(64)
def autocorrelation(window: Window) -> Array:
    r"""Return the integral of ``phi(y) phi(y + x)`` over y at x = 0, 1/2, 1, ..., p; it is exact for polynomials.

    Its transform is ``|W(k)|**2``.

    Examples
    --------
    >>> from particlemesh.window import bspline
    >>> bool(np.allclose(autocorrelation(bspline(2))[::2], [2 / 3, 1 / 6, 0]))  # the cubic B-spline
    True
    """
    points, weights = legendre.leggauss(window.degree + 1)
    pieces = np.arange(-window.support, window.support) / 2  # both factors are polynomials between half-integers
    y = (pieces[:, None] + (points + 1) / 4).ravel()
    w = np.tile(weights / 4, len(pieces))
    shifts = np.arange(2 * window.support + 1) / 2
    values = (window(y) * w) @ window(y[:, None] + shifts)
    values.setflags(write=False)
    return values


def alias_sum(window: Window, angle: Array, *, odd: bool = False) -> Array:
    """Return the sum of ``|W(angle + 2 pi j)|**2`` over all integers j; with ``odd``, odd j count negatively.

    For a B-spline of order p the sum is the discrete transform of the one of order 2p.

    Parameters
    ----------
    window : Window
    angle : array
        Wavenumber times node spacing, in radians.
    odd : bool
        Alternate the signs: with the plain sum this gives the sum over even or odd aliases.

    Examples
    --------
    >>> from particlemesh.window import bspline
    >>> k = 2 * np.pi * np.arange(8) / 8
    >>> bool(np.allclose(alias_sum(bspline(3), k), bspline(6).symbol(8)))
    True
    """
    values = autocorrelation(window)
    # By Poisson's formula: the autocorrelation at whole numbers, or at half-integers for alternating signs.
    if odd:
        return np.asarray(sum(2 * v * np.cos((m + 0.5) * angle) for m, v in enumerate(values[1::2])))
    terms = [2 * v * np.cos(m * angle) for m, v in enumerate(values[2::2], 1)]
    return np.asarray(sum(terms, start=values[0] + 0 * angle))


def transform_along(window: Window, kind: str, numbers: Array, nodes: int, axis: int) -> Array:
    """Return a window's transform, continuous or discrete, at modes of an axis.

    Raises
    ------
    ValueError
        If it vanishes at a mode; the message has the number ``axis``.
    """
    if kind == "continuous":
        # A part of an axis gets what the whole one has: rounding depends on what is evaluated together.
        whole = np.rint(np.abs(numbers)).astype(np.int64)
        half = window.fourier(2 * np.pi * np.arange(max(nodes // 2, int(whole.max(initial=0))) + 1) / nodes)
        every = half[np.append(0, whole)]
    else:
        every = window.symbol(nodes)[np.rint(np.append(0.0, numbers)).astype(np.int64) % nodes]
    admissible.no_zero(every[1:], float(every[0]), window.name, axis)
    return every[1:]


def divisor(window: Window, kind: str, power: int) -> Callable[[Array, int, int], Array]:
    """Return a function of mode numbers, nodes and axis: the window's transform to a power.

    It keeps its values: tables of one mesh, such as those of a virial, ask for the same.
    """
    known: dict[tuple[bytes, int, int], Array] = {}

    def values(numbers: Array, nodes: int, axis: int) -> Array:
        key = numbers.tobytes(), nodes, axis
        if key not in known:
            known[key] = transform_along(window, kind, numbers, nodes, axis) ** power
            known[key].setflags(write=False)
        return known[key]

    return values


def transform_of(window: Window, modes: Modes, kind: str) -> Array:
    """Return a window's transform at all modes; see :func:`transform_along`."""
    product = np.ones(())
    for axis, nodes in enumerate(modes.shape):
        product = product * modes.along(axis, transform_along(window, kind, modes.numbers(axis), nodes, axis))
    return product


def noise_of(window: Window, modes: Modes, interlaced: bool) -> Array:
    """Return the power per mode of unit shot noise: the sum of ``|W|**2`` over aliases.

    Interlacing removes the aliases with an odd sum of their numbers, and leaves the even ones [sefusatti2016]_.
    """
    plain, alternating = np.ones(()), np.ones(())
    for axis in range(len(modes.shape)):
        angle = 2 * np.pi * modes.numbers(axis) / modes.shape[axis]
        plain = plain * modes.along(axis, alias_sum(window, angle))
        alternating = alternating * modes.along(axis, alias_sum(window, angle, odd=True))
    return (plain + alternating) / 2 if interlaced else plain
