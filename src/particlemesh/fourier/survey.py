# SPDX-License-Identifier: BSD-3-Clause
"""Power spectra of surveys: galaxies and randoms with weights, and multipoles along the line of sight to each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import lpmv

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.spectra import (
    Bins,
    Spectrum,
    Sums,
    checked_sets,
    divisors_of,
    halves_of,
    powers_of,
    transform_for,
    weights_of,
)
from particlemesh.mesh import Mesh, mesh_of
from particlemesh.window import Window

Array = NDArray[np.float64]


_MOST_ORDER = 84  # Legendre functions of higher ones leave float64


class Objects(NamedTuple):
    """Galaxies or randoms, on the host."""

    positions: Array  # (N, 3)
    weights: Array  # (N,), FKP's included
    plain: Array  # (N,), without FKP's
    density: Array  # (N,)


def survey_spectrum(
    galaxies: tuple[Any, Any, Any], randoms: tuple[Any, Any, Any], mesh: Mesh, *, power: float = 0.0,
    multipoles: Sequence[int] = (0, 2, 4), observer: ArrayLike | None = None, line_of_sight: ArrayLike | None = None,
    window: Window | str = "pcs", interlaced: bool = True, compensation: str = "window",
    edges: ArrayLike | None = None, **options: Any,
) -> Spectrum:  # fmt: skip
    r"""Return the power spectrum of a survey, whose mean density is that of randoms.

    The estimator is that of Feldman, Kaiser and Peacock [feldman1994]_. Multipoles are those of Yamamoto
    [yamamoto2006]_: each pair has the line of sight of one of its objects. They cost ``2 l + 1`` transforms, with the
    weights of spherical harmonics [hand2017]_.

    Parameters
    ----------
    galaxies, randoms : tuple
        Positions (N, 3), weights (N,) or None, and the density. This is the sum of the weights of galaxies expected at
        each object, (N,) or one number, per volume. Weights, such as those of completeness, are 1 if None. Arrays are
        copied to the host.
    mesh : Mesh
        Periodic, with three axes. All objects are in its box; give it room around them.
    power : float
        Power, a volume, for which weights are optimal: they are multiplied by ``1 / (1 + density * power)``.
    multipoles : sequence of int
        Even orders l, up to 84.
    observer : (3,) array, optional
        Where lines of sight begin; by default the origin.
    line_of_sight : (3,) array, optional
        One direction for all objects, instead of an observer.
    window, interlaced, compensation, edges, **options
        As for :func:`power_spectrum`.

    Returns
    -------
    Spectrum
        ``power`` and `multipoles` include the shot noise, which is that of galaxies and randoms. They are convolved
        with the survey's window. ``error`` is that of FKP: the modes that a survey distinguishes are fewer than
        ``modes``, those of its box. It is for bins wider than 2 pi over the size of the survey. Narrower bins have
        up to a third less, and bins next to each other have a common part. The distribution of weights, without those
        of FKP, is taken as the same everywhere.

    Raises
    ------
    ValueError, TypeError
        If an object is outside of the box or at the observer, or an argument is not allowed.

    Examples
    --------
    Points without structure in a ball: power is shot noise.

    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import survey_spectrum
    >>> rng = np.random.default_rng(1)
    >>> points = rng.uniform(-1, 1, (100_000, 3))
    >>> points = points[np.linalg.norm(points, axis=1) < 1]
    >>> density = 5000 / (4 / 3 * np.pi)
    >>> mesh = pm.Mesh((32, 32, 32), pm.Box((3.0, 3.0, 3.0), origin=(-1.5, -1.5, -1.5)))
    >>> survey = survey_spectrum((points[:5000], None, density), (points[5000:], None, density), mesh, power=1e-3)
    >>> deviations = (survey.power - survey.shot_noise) / survey.error
    >>> round(float(np.sqrt(np.mean(deviations**2))), 1)
    0.7
    """
    if mesh_of(mesh).ndim != 3:
        raise ValueError(f"the mesh is {mesh.ndim}-D; a survey needs three axes.")
    if observer is not None and line_of_sight is not None:
        raise ValueError("observer and line_of_sight are both given: give one of them.")
    if observer is not None and not len(multipoles):
        raise ValueError("observer is for multipoles: give some, or leave it out.")
    power = checks.at_least_zero(power, "power")
    if line_of_sight is None and any(order > _MOST_ORDER for order in multipoles):
        raise ValueError(f"multipoles has {max(multipoles)}; with an observer {_MOST_ORDER} is the highest order.")
    seen, drawn = _objects(galaxies, "galaxies", mesh, power), _objects(randoms, "randoms", mesh, power)
    x, w, sums, variances = _combined(seen, drawn, mesh.box.volume)
    checked_sets(mesh, x, w, compensation, None)
    transform, rest = transform_for(mesh, window, options)
    layout = transform.layout
    bins = Bins(layout, edges, None, multipoles, line_of_sight)

    def halves_for(values: Array) -> list[NDArray[Any]]:
        return halves_of(transform.spectra(x, values, interlaced, rest), sums)

    halves = halves_for(w)
    of_modes = powers_of(layout, transform.window, [(halves, sums)], interlaced, compensation)
    poles = None
    if line_of_sight is None and multipoles:
        _, divisor = divisors_of(layout, transform.window, interlaced, compensation)
        poles = _Poles(layout, halves, mesh.box.volume / divisor, of_modes[2] / sums.squares)
        sight = _directions(x, observer)
        for order in {int(order) for order in multipoles}:
            for number in range(2 * order + 1):
                factor = harmonic(order, number, sight)
                poles.add(order, number, halves_for(w * factor) if order else halves, float(w**2 @ factor))
    spectrum = bins.means(bins.sums(*of_modes, poles))
    signal = np.maximum(spectrum.power - spectrum.shot_noise, 0.0)
    quadratic = variances[0] * signal**2 + 2 * variances[1] * signal + variances[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return dataclasses.replace(spectrum, error=np.sqrt(2 * quadratic / spectrum.modes))


def _objects(given: Any, name: str, mesh: Mesh, power: float) -> Objects:
    """Return galaxies or randoms with their weights, checked."""
    if not (isinstance(given, tuple) and len(given) == 3):
        raise TypeError(f"{name} is no tuple (positions, weights or None, density).")
    kind, array = operands.adopt(given[0], f"positions of {name}")
    x = np.asarray(kind.backend(array).download(kind.native(array)), np.float64)
    if x.ndim != 2 or x.shape[1] != 3 or not len(x):
        raise ValueError(f"positions of {name} have shape {x.shape}; (N, 3) is needed, with one object or more.")
    fractions = mesh.box.fractional(x)
    outside = np.flatnonzero(~((fractions >= 0) & (fractions < 1)).all(1))
    if outside.size:
        raise ValueError(
            f"{outside.size} {name} are outside of the box, the first is number {outside[0]} at "
            f"{x[outside[0]].tolist()}: give a mesh whose box holds all."
        )
    plain = np.ones(len(x)) if given[1] is None else weights_of(given[1])
    density = checks.numbers(given[2] if np.ndim(given[2]) == 0 else weights_of(given[2]), f"density of {name}")
    if plain.shape != (len(x),) or density.shape not in ((), (len(x),)):
        raise ValueError(
            f"{name} have {len(x)} positions, weights {plain.shape} and density {density.shape}; give one each."
        )
    if not (density > 0).all():
        raise ValueError(f"the density of {name} is {float(density.min()):g} somewhere; give positive numbers.")
    density = np.broadcast_to(density, (len(x),))
    return Objects(x, plain / (1 + density * power), plain, density)


def _combined(galaxies: Objects, randoms: Objects, volume: float) -> tuple[Array, Array, Sums, tuple[float, ...]]:
    """Return positions and weights of galaxies less randoms, sums over them, and numbers that errors depend on."""
    for name, objects in (("galaxies", galaxies), ("randoms", randoms)):
        if not objects.weights.sum() > 0:
            raise ValueError(f"weights of {name} have the sum {objects.weights.sum():g}; a positive one is needed.")
    ratio = float(galaxies.weights.sum() / randoms.weights.sum())
    # Integrals over the survey are sums over randoms: of density * weights**2 squared, and so on.
    factor = randoms.weights**2 / np.where(randoms.plain == 0, 1.0, randoms.plain)
    norm = ratio * float(factor @ randoms.density)
    fourth = (
        ratio * factor * (randoms.weights / np.where(randoms.plain == 0, 1.0, randoms.plain)) ** 2 * randoms.density
    )
    # Shot noise is that of squared weights: of galaxies, and of randoms that count as a ratio of one.
    noise = _mean_weight(galaxies) + ratio * _mean_weight(randoms)
    moments = [float((fourth * randoms.density**n).sum()) * noise ** (2 - n) for n in (2, 1, 0)]
    x = np.concatenate([galaxies.positions, randoms.positions])
    w = np.concatenate([galaxies.weights, -ratio * randoms.weights])
    # The power of a mode is |sum of w exp(-i k x)|^2 / norm.
    sums = Sums(math.sqrt(norm * volume), float(np.abs(w).sum()), float(w @ w))
    return x, w, sums, tuple(moment * volume / norm**2 for moment in moments)


def _mean_weight(objects: Objects) -> float:
    """Return the mean weight of a unit of weight, without those of FKP."""
    return float(objects.plain @ objects.plain / objects.plain.sum())


def _directions(positions: Array, observer: ArrayLike | None) -> Array:
    """Return unit vectors (3, N) from the observer to objects."""
    place = np.zeros(3) if observer is None else checks.numbers(observer, "observer")
    if place.shape != (3,):
        raise ValueError(f"observer has shape {place.shape}; a place of three numbers is needed.")
    vectors = (positions - place).T
    with np.errstate(over="ignore"):
        length = np.sqrt((vectors**2).sum(0))
    if not np.isfinite(length).all():
        raise ValueError(f"observer is {place.tolist()}, too far away: give line_of_sight, one direction for all.")
    if not length.all():
        raise ValueError(f"object {int(np.argmin(length))} of galaxies and randoms is at the observer: leave it out.")
    return vectors / length


def harmonic(order: int, number: int, unit: Sequence[Array] | Array) -> Array:
    r"""Return the real spherical harmonic with a number from 0 to 2 l of unit vectors (3, ...).

    The sum over numbers of the product for two vectors is the Legendre polynomial of their cosine.

    Examples
    --------
    >>> u, v = np.array([0.6, 0.0, 0.8]), np.array([0.0, 1.0, 0.0])
    >>> round(sum(float(harmonic(2, n, u) * harmonic(2, n, v)) for n in range(5)), 12)  # (3 * 0 - 1) / 2
    -0.5
    """
    x, y, z = unit
    m = (number + 1) // 2
    factor = math.sqrt((2 if m else 1) * math.factorial(order - m) / math.factorial(order + m))
    turn = np.cos if number % 2 or not m else np.sin
    return np.asarray(factor * lpmv(m, order, np.clip(z, -1, 1)) * turn(m * np.arctan2(y, x)))


class _Poles:
    """Power of each mode times Legendre polynomials of the angle to the line of sight of one object of each pair."""

    def __init__(self, modes: Modes, halves: list[NDArray[Any]], scale: Array, noise: Array) -> None:
        self._modes, self._halves = modes, halves
        self._scale, self._noise = (np.broadcast_to(a, modes.spectrum_shape) for a in (scale, noise))
        self._regions = dict(modes.signs(range(3)))
        self._sums: dict[Any, Any] = {}

    def add(self, order: int, number: int, halves: list[NDArray[Any]], moment: float) -> None:
        """Add a harmonic: the modes of weights times it, and the sum of squared weights times it."""
        for signs, region in self._regions.items():
            k = [np.broadcast_to(c, self._modes.spectrum_shape)[region] for c in self._modes.vectors(signs)]
            length = np.sqrt(sum(c**2 for c in k))
            factor = harmonic(order, number, [c / np.where(length > 0, length, 1.0) for c in k])
            term = factor * halves[signs.count(-1) % 2 % len(halves)][region], factor * moment
            before = self._sums.get((order, signs))
            self._sums[order, signs] = (
                term if before is None else tuple(a + b for a, b in zip(before, term, strict=True))
            )

    def __call__(self, order: int, signs: tuple[int, ...], region: Any) -> tuple[Array, Array]:
        """Return power and shot noise of modes."""
        modes, noise = self._sums[order, signs]
        first = self._halves[signs.count(-1) % 2 % len(self._halves)][region]
        return (first * modes.conj()).real * self._scale[region], noise * self._noise[region]
