# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of particles, in operations that torch and JAX differentiate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from particlemesh import Mesh, Window, checks
from particlemesh.autograd.frame import Frame
from particlemesh.autograd.pool import text_of
from particlemesh.fourier.compensation import chosen
from particlemesh.fourier.modes import Modes, with_ghosts
from particlemesh.fourier.moments import moments_of
from particlemesh.fourier.prolate import ProlateGreen
from particlemesh.fourier.solver import Solver

GREENS = ("poisson", "yukawa", "ewald")
_MARGIN = 8  # of the solver's mesh for moments: 1e-12 of a slope
_solver = functools.lru_cache(2, typed=True)(Solver)  # its Green function takes longer than a call


class Library(NamedTuple):
    """What a library of arrays is asked for.

    Attributes
    ----------
    xp : module
        Torch or ``jax.numpy``.
    transfer, transfer_of_systems : callable
        ``transfer(spreads, *points, array, 0, text)`` spreads or interpolates.
    add : callable
        ``add(array, index, terms)`` returns an array with terms added to some of the numbers along its last axis.
    tables, texts : callable
        The functions of this module, whose results are constants.
    """

    xp: Any
    transfer: Callable[..., Any]
    transfer_of_systems: Callable[..., Any]
    add: Callable[[Any, Any, Any], Any]
    tables: Callable[..., Any]
    texts: Callable[..., list[str]]


def tables(
    mesh: Mesh, window: Window | str, compensation: str | None, part: Sequence[tuple[int, int]] | None = None,
    free: dict[str, Any] | None = None,
) -> tuple[tuple[int, ...], list[np.ndarray]]:  # fmt: skip
    """Return the nodes of transforms, and mode numbers (d, m), shares (m,), factors (modes), indices (b,).

    Those of a rank are of a part of the modes.

    The first numbers are those of all modes. Those of the b highest modes follow, once for each other combination of
    their signs. Shares are weights of the mean over signs. In free space factors are those of the Green function, and
    numbers are for slopes only.
    """
    axes = range(mesh.ndim)
    if free is not None:
        if isinstance(free["green"], tuple):
            free = free | dict(green=ProlateGreen(*free["green"]))
        solver = _solver(mesh, window, compensation=compensation, gradient="ik", **free)
        modes, factors = solver._modes, solver._common[0]
        scale = np.array(mesh.intervals) / modes.shape
        k = [np.broadcast_to(modes.along(a, modes.numbers(a, 0)), factors.shape).ravel() * scale[a] for a in axes]
        factors = factors * (mesh.box.volume * math.prod(modes.shape) / mesh.size)
        return modes.shape, [np.stack(k), np.ones(0), factors, np.zeros(0, np.int64)]
    if not all(mesh.periodic):
        raise ValueError(f"axis {mesh.periodic.index(False)} is open; potentials over ranks need every axis periodic.")
    modes = Modes(mesh, real=True, part=part)
    share = np.broadcast_to(modes.share(axes), modes.spectrum_shape).ravel()
    highest = np.flatnonzero(share < 1)
    numbers: list[np.ndarray] = []
    shares: list[np.ndarray] = []
    for signs, region in modes.signs(axes):
        chosen = highest if numbers else slice(None)
        flipped = [np.broadcast_to(modes.along(a, modes.numbers(a, signs[a])), modes.spectrum_shape) for a in axes]
        numbers.append(np.stack([n.ravel()[chosen] for n in flipped]))
        new = np.zeros(modes.spectrum_shape, bool)
        new[region] = True
        shares.append((share * new.ravel())[chosen])
    factors = np.ones(modes.spectrum_shape)
    if compensation is not None:
        whole = mesh.compensation(window, compensation, power=2, real=True)
        factors = factors * whole[tuple(slice(*along) for along in modes.part)]
    return modes.shape, [np.concatenate(numbers, 1), np.concatenate(shares), factors, highest]


def texts(
    mesh: Mesh, window: Window | str, options: dict[str, Any], interlaced: bool, systems: int | None = None
) -> list[str]:
    """Return the facts of the plans whose potentials are averaged; see `particlemesh.autograd.pool.text_of`."""
    mesh = with_ghosts(mesh, window)
    meshes = [mesh, mesh.shifted(0.5)] if checks.flag(interlaced, "interlaced") else [mesh]
    return [text_of(each, window, options, systems) for each in meshes]


def potential(
    library: Library, frame: Frame, mesh: Mesh, values: Any, window: Window | str, cell: Any, system: Any,
    compensation: str | None, interlaced: bool, options: dict[str, Any], moments: bool, **green: Any,
) -> Any:  # fmt: skip
    """Return the potential at the particles: see :func:`particlemesh.autograd.torch.potential`."""
    closed, numbers = all(mesh.periodic), (green["kappa"], green["alpha"], green["zero"])
    if not (closed or (cell is None and system is None and all(isinstance(n, int | float | None) for n in numbers))):
        raise TypeError(
            f"axis {mesh.periodic.index(False)} is open, where derivatives are by positions and values only: leave out "
            "cell, system and zero, and give kappa and alpha as floats, or make every axis periodic."
        )
    kind = green["green"]  # torch compiles with numbers as constants, and not with frozen dataclasses
    kind = (kind.bandwidth, kind.cutoff) if isinstance(kind, ProlateGreen) else kind
    free = None if closed else green | dict(green=kind, interlaced=interlaced, margin=_MARGIN * moments)
    nodes, (*tables, highest) = library.tables(mesh, window, chosen(compensation, green["green"]), None, free)
    tables = [*(frame.like(table, values.real) for table in tables), highest]
    systems = None if system is None or cell is None else index(cell.shape[0])
    points = (frame.fractions,) if system is None else (frame.fractions, system)
    operator = library.transfer if system is None else library.transfer_of_systems
    transfers = [
        lambda spreads, array, text=text: operator(spreads, *points, array, 0, text)
        for text in library.texts(mesh, window, options, interlaced, systems)
    ]
    return solved(library.xp, frame, transfers, mesh, values, nodes, tables, library.add, moments=moments, **green)


def solved(
    xp: Any, frame: Frame, transfers: Sequence[Callable[[bool, Any], Any]], mesh: Mesh, values: Any,
    nodes: tuple[int, ...], tables: Sequence[Any], add: Callable[[Any, Any, Any], Any], *, green: Any, kappa: Any,
    alpha: Any, zero: Any, transforms: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None,
    moments: bool = False,
) -> Any:  # fmt: skip
    """Return the potential at the particles from what `tables` returns, as arrays of a library.

    ``transfer(spreads, array)`` spreads or interpolates on one of the meshes. ``xp`` and ``add`` are of `Library`.
    ``transforms`` are those of the library, forward and back, unless they are over ranks.
    """
    number = moments_of(mesh.ndim)
    if checks.flag(moments, "moments") and tuple(values.shape[:-1]) != (number,):
        raise ValueError(f"values have shape {tuple(values.shape)}; moments ({number}, N) are needed.")
    if "complex" in str(values.dtype):
        raise TypeError("values are complex; give real and imaginary parts as two channels.")
    numbers, shares, factors, highest = tables
    modes, count = factors, math.prod(factors.shape)
    if all(mesh.periodic):
        function, at_zero = _green(xp, green, kappa, alpha, zero)
        averaged = frame.has_vectors and len(highest) > 0  # lengths have one k**2 for all signs
        if not averaged:
            numbers = numbers[:, :count]
        origin = (numbers == 0).all(0)
        # The number at k = 0 is never computed: its slope may be infinite.
        k2 = xp.where(origin, 1.0, (frame.wavenumbers(numbers) ** 2).sum(-2))
        modes = xp.where(origin, at_zero, function(k2))
        if averaged:
            modes = modes * shares
            others = modes[..., count:].reshape(*modes.shape[:-1], -1, len(highest))
            modes = add(modes[..., :count], highest, others.sum(-2))
        modes = modes.reshape(*modes.shape[:-1], *factors.shape) * factors
    axes = tuple(range(-len(mesh.shape), 0))
    scale = math.prod(mesh.shape) / frame.like(frame.volume, values)
    scale = scale.reshape(*scale.shape, *(1 for _ in axes))
    forward, inverse = transforms or (
        lambda field: xp.fft.rfftn(field, nodes, axes), lambda spectrum: xp.fft.irfftn(spectrum, nodes, axes)
    )  # fmt: skip
    k = _slopes(xp, frame, numbers[:, :count], mesh, modes.shape) if moments else None
    results = []
    for transfer in transfers:
        field = transfer(True, values) * scale
        inner = (..., *(slice(0, n) for n in field.shape[-len(axes) :]))
        results.append(transfer(False, inverse(_products(xp, modes, k, forward(field)))[inner]))
    return results[0] if len(results) == 1 else (results[0] + results[1]) / 2


def _slopes(xp: Any, frame: Frame, numbers: Any, mesh: Mesh, shape: tuple[int, ...]) -> list[Any]:
    """Return components of wave vectors for mode numbers (d, m); highest modes have no slope."""
    flat = xp.stack([xp.where(2 * abs(n) == size, 0.0 * n, n) for n, size in zip(numbers, mesh.shape, strict=True)])
    k = frame.wavenumbers(flat)
    return [k[..., a, :].reshape(shape) for a in range(mesh.ndim)]


def _products(xp: Any, modes: Any, k: Sequence[Any] | None, spectra: Any) -> Any:
    """Return spectra times factors of modes; with k as `particlemesh.fourier.Solver.moment_fields` of (m, ...)."""
    if k is None:
        return spectra * modes
    pairs = [(a, b) for n, a in enumerate(k) for b in k[n:]]
    density, second = spectra[0], 1 + len(k)
    for a, slope in enumerate(k):
        density = density - 1j * slope * spectra[1 + a]
    for n, (a, b) in enumerate(pairs):
        density = density - a * b * spectra[second + n]
    whole = density * modes
    return xp.stack([whole, *(1j * a * whole for a in k), *(-a * b * whole for a, b in pairs)])


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
