# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of particles in periodic boxes, in operations that torch and JAX differentiate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from particlemesh import Mesh, Window, checks
from particlemesh.autograd.frame import Frame
from particlemesh.autograd.pool import text_of

GREENS = ("poisson", "yukawa", "ewald")


def tables(mesh: Mesh, window: Window | str, compensation: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what does not depend on the box: mode numbers (2, d, ...) and factors (...) by mode.

    The two sets of mode numbers differ in the sign of the highest mode of even axes, where +k and -k are one mode.
    """
    if any(map(any, mesh.ghosts)):
        raise ValueError("the mesh has ghosts; give a mesh without.")
    checks.all_periodic(mesh.periodic)
    numbers = []
    for sign in (1, -1):
        axes = [np.rint(np.fft.fftfreq(n) * n) for n in mesh.shape]
        for n, axis in zip(mesh.shape, axes, strict=True):
            if n % 2 == 0:
                axis[n // 2] = sign * (n // 2)
        axes[-1] = axes[-1][: mesh.shape[-1] // 2 + 1]
        numbers.append(np.stack(np.meshgrid(*axes, indexing="ij")))
    factors = np.ones(numbers[0].shape[1:])
    if compensation is not None:
        factors = factors * mesh.compensation(window, compensation, power=2, real=True)
    return np.stack(numbers), factors


def texts(mesh: Mesh, window: Window | str, options: dict[str, Any], interlaced: bool) -> list[str]:
    """Return the facts of the plans whose potentials are averaged; see `particlemesh.autograd.pool.text_of`."""
    meshes = [mesh, mesh.shifted(0.5)] if checks.flag(interlaced, "interlaced") else [mesh]
    return [text_of(each, window, options) for each in meshes]


def potential(
    xp: Any, frame: Frame, transfers: Sequence[Callable[[bool, Any], Any]], mesh: Mesh, values: Any, numbers: Any,
    factors: Any, *, green: Any, kappa: Any, alpha: Any, zero: Any,
) -> Any:  # fmt: skip
    """Return the potential at the particles: see :func:`particlemesh.autograd.torch.potential`.

    ``xp`` is torch or ``jax.numpy``; ``transfer(spreads, array)`` spreads or interpolates on one of the meshes.
    """
    if "complex" in str(values.dtype):
        raise TypeError("values are complex; give real and imaginary parts as two channels.")
    function, at_zero = _green(xp, green, kappa, alpha, zero)
    origin = (numbers[0] == 0).all(0)
    # Both signs of the highest modes are averaged. The number at k = 0 is never computed: its slope may be infinite.
    both = [xp.where(origin, 1.0, (frame.wavenumbers(signed) ** 2).sum(0)) for signed in numbers]
    modes = xp.where(origin, at_zero, (function(both[0]) + function(both[1])) / 2) * factors
    axes = tuple(range(-len(mesh.shape), 0))
    scale = math.prod(mesh.shape) / frame.volume
    results = [
        transfer(
            False, xp.fft.irfftn(xp.fft.rfftn(transfer(True, values) * scale, None, axes) * modes, mesh.shape, axes)
        )
        for transfer in transfers
    ]
    return results[0] if len(results) == 1 else (results[0] + results[1]) / 2


def _green(xp: Any, green: Any, kappa: Any, alpha: Any, zero: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return a function of k**2, and its value at zero."""
    needed = {"yukawa": "kappa", "ewald": "alpha"}.get(green) if isinstance(green, str) else None
    for name, value in (("kappa", kappa), ("alpha", alpha)):
        if (value is None) == (name == needed):
            raise ValueError(f"green={green!r} needs {name}=." if value is None else f"green={green!r} has no {name}=.")
    if callable(green):
        if zero is None:
            raise ValueError("green is a function: give zero=, its value at k = 0.")
        return green, zero
    checks.one_of(green, "green", GREENS)
    if green == "yukawa":
        return lambda k2: 1 / (k2 + kappa**2), (1 / kappa**2 if zero is None else zero)
    at_zero = 0.0 if zero is None else zero
    if green == "ewald":
        return lambda k2: xp.exp(-k2 / (4 * alpha**2)) / k2, at_zero
    return lambda k2: 1 / k2, at_zero
