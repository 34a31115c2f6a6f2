# SPDX-License-Identifier: BSD-3-Clause
"""Green functions in Fourier space: periodic, and in free space along open axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.special import j0, j1, k0, k1

from particlemesh import checks
from particlemesh.fourier.engines import good_size
from particlemesh.fourier.modes import Modes
from particlemesh.window import spheroidal

Array = NDArray[np.float64]
Divisor = Callable[[Array, int, int], Array]
NAMES = {"poisson": (), "yukawa": ("kappa",), "ewald": ("alpha",)}


class Green:
    """``smoothing / (k**2 + kappa**2)``, a solution of ``(kappa**2 - laplace) phi = rho`` with a smoothed density."""

    kappa: float = 0.0

    @property
    def blur(self) -> float:
        """Distance beyond which smoothing changes nothing."""
        raise NotImplementedError

    def __call__(self, k2: Any) -> Any:
        """Return the Green function."""
        return self.smoothing(k2) / (k2 + self.kappa**2)

    def smoothing(self, k2: Any) -> Any:
        """Return the factor that smooths the density."""
        raise NotImplementedError

    def smoothing_slope(self, k2: Any) -> Any:
        """Return the derivative of this factor by k2."""
        raise NotImplementedError

    def slope(self, k2: Any) -> Any:
        """Return the derivative of the Green function by k2."""
        screened = k2 + self.kappa**2
        return (self.smoothing_slope(k2) - self.smoothing(k2) / screened) / screened

    def numbers(self) -> tuple[tuple[float, float, float], Array] | None:
        """Return what influence.c takes: kappa**2, rate and edge**2, and pairs (terms, 2) of coefficients; or None."""
        return None


@dataclass(frozen=True)
class Named(Green):
    """``exp(-k**2 / (4 alpha**2)) / (k**2 + kappa**2)``.

    kappa is 0 unless the name is "yukawa", and alpha infinite unless it is "ewald".
    """

    name: str
    kappa: float = 0.0
    alpha: float = math.inf

    @property
    def blur(self) -> float:
        return 6 / self.alpha  # the Gaussian is below 1e-15 there

    def smoothing(self, k2: Any) -> Any:
        return np.exp(-k2 / (4 * self.alpha**2)) if self.alpha < math.inf else 1.0

    def smoothing_slope(self, k2: Any) -> Any:
        return -self.smoothing(k2) / (4 * self.alpha**2)

    def numbers(self) -> tuple[tuple[float, float, float], Array]:
        return (self.kappa**2, 1 / (4 * self.alpha**2), math.inf), np.array([[1.0, 0.0]])


def known(green: Any, parameters: dict[str, Any]) -> Green | None:
    """Return a Green function of ours, given itself or by name, or None for a user's function.

    ``parameters`` are those that a name needs.

    Raises
    ------
    ValueError
        If the name is unknown, a parameter is missing, or one is not used.

    Examples
    --------
    >>> known("yukawa", {"kappa": 2.0})
    Named(name='yukawa', kappa=2.0, alpha=inf)
    """
    if callable(green):
        for key, value in parameters.items():
            if value is not None:
                raise ValueError(f"{key} is {value!r} beside a function, which takes no parameters: leave it out.")
        return green if isinstance(green, Green) else None
    needed = NAMES[checks.one_of(green, "green", tuple(NAMES))]
    given = {key: value for key, value in parameters.items() if value is not None}
    for key in needed:
        if key not in given:
            raise ValueError(f"green={green!r} needs {key}: give {key}=.")
    for key in given:
        if key not in needed:
            raise ValueError(f"green={green!r} has no {key}; leave it out, or choose another Green function.")
    return Named(green, **{key: checks.positive(value, key) for key, value in given.items()})


def table(
    green: Any, modes: Modes, *, of: str, zero: float | None, parameters: dict[str, Any],
    divisor: Divisor | None = None, slope: int | None = None,
) -> NDArray[Any]:  # fmt: skip
    """Return a Green function at all modes; see :meth:`particlemesh.fourier.Transform.green`.

    ``divisor(numbers, nodes, axis)`` returns divisors for modes of an axis, such as the square of a window's transform.
    With ``slope``, an axis, it is the derivative along this axis, divided by i.
    """
    checks.one_of(of, "of", ("k2", "k"))
    if zero is not None and not all(modes.mesh.periodic):
        raise ValueError(f"zero is {zero!r}; with open axes the value at k = 0 follows from free space: leave it out.")
    function = known(green, parameters)
    if function is not None:
        if of != "k2":
            raise ValueError(f"of is {of!r} beside green={green!r}, which is no function of yours: leave out of.")
        if not all(modes.mesh.periodic):
            return next(free_space(function, modes, divisor, [() if slope is None else (slope,)]))
        values = both_signs(function, modes, "k2", parts=True)
    else:
        if not all(modes.mesh.periodic):
            raise ValueError(
                f"green is a function and the mesh has open axes; in free space choose from {', '.join(NAMES)}."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            values = both_signs(green, modes, of)
    first = (0,) * values.ndim
    if not modes.has_zero:
        pass
    elif zero is not None:
        values[first] = zero if isinstance(zero, complex) else checks.numbers(zero, "zero")
    elif not np.isfinite(values[first]):
        values[first] = 0.0
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        raise ValueError(f"green is not finite at {bad} modes other than k = 0; give a function that is.")
    if divisor is not None:
        for axis, nodes in enumerate(modes.shape):
            values /= modes.along(axis, divisor(modes.numbers(axis), nodes, axis))
    return values if slope is None else values * modes.slopes[slope]


def both_signs(function: Callable[..., Any], modes: Modes, of: str, *, parts: bool = False) -> NDArray[Any]:
    """Return a function of k, averaged over the signs of the highest modes of even axes.

    So a function of k with f(-k) = conj(f(k)) leaves real fields real. With ``parts`` it is called for parts of the
    modes; a user's function always sees all.
    """
    axes = modes.oblique if of == "k2" else range(len(modes.shape))
    share = np.broadcast_to(modes.share(axes), modes.spectrum_shape)
    total = np.zeros(modes.spectrum_shape)

    def write(signs: tuple[int, ...], region: tuple[slice, ...]) -> None:
        with np.errstate(divide="ignore"):
            total[region] += function(modes.squares(signs, region)) * share[region]

    if parts:
        modes.in_parts(axes, write)
        return total
    for signs, region in modes.signs(axes):
        arguments = (modes.squares(signs),) if of == "k2" else modes.vectors(signs)
        result = np.asarray(function(*arguments))
        if result.dtype.kind not in "iufc":
            raise TypeError(f"green returns values of dtype {result.dtype}; numbers are needed.")
        total = total.astype(np.result_type(result.dtype, total.dtype), copy=False)
        total[region] += np.broadcast_to(result, modes.spectrum_shape)[region] * share[region]
    return total


def free_space(
    green: Green, modes: Modes, divisor: Divisor | None, asked: Sequence[tuple[int, ...]] = ((),)
) -> Iterator[Array]:  # fmt: skip
    r"""Yield the factors of a convolution in free space along the open axes, periodic along the others.

    The Green function is cut off beyond the largest distance of two nodes. Its transform is then smooth and known
    [vico2016]_. Its values at the nodes come from a mesh large enough for the cut-off function. The table is the
    transform of these values on the padded mesh. A derivative is odd along its axis: so sums of sines replace those of
    cosines.

    Each item of ``asked`` is a table. An axis asks for the derivative along it, divided by i. Two axes ask for the
    derivative of factors over the volume by this strain of the mesh, times the volume. Then all nodes move, and the
    radius of the cut may stay.
    """
    mesh = modes.mesh
    if not mesh.box.orthorhombic:
        raise ValueError(
            "the box is triclinic and an axis is open; free space needs an orthorhombic box: give lengths instead of "
            "lattice vectors, or make every axis periodic."
        )
    open_axes = [a for a in range(len(modes.shape)) if not mesh.periodic[a]]
    spacing = mesh.spacing
    reach = {a: spacing[a] * (modes.shape[a] / 2 + modes.margin) for a in open_axes}
    radius = math.hypot(*reach.values()) + green.blur
    # Smoothing also takes the edge of an image's function nearer.
    wide = {a: good_size(math.ceil((radius + green.blur + reach[a]) / spacing[a])) for a in open_axes}
    along, divisors = [], []  # wavenumbers per axis: of the wide mesh along open axes
    for axis in range(len(modes.shape)):
        nodes = wide.get(axis, modes.shape[axis])
        numbers = np.arange(nodes // 2 + 1.0) if axis in wide else modes.numbers(axis)
        along.append(modes.along(axis, 2 * np.pi * numbers / (nodes * spacing[axis])))
        if divisor is not None:
            divisors.append(modes.along(axis, divisor(numbers, nodes, axis)))
    crossed = [k if a in wide else modes.slopes[a] for a, k in enumerate(along)]
    periodic = sum((along[a] ** 2 for a in range(len(along)) if a not in wide), start=np.zeros((1,) * len(along)))
    k = np.sqrt(np.asarray(sum(along[a] ** 2 for a in open_axes)))
    k2, screening = periodic + k**2, np.sqrt(periodic + green.kappa**2)
    cut, *slopes = _truncated(len(open_axes), k, screening, radius)
    smooth, smooth_slope = green.smoothing(k2), green.smoothing_slope(k2)
    for axes in asked:
        values = cut * smooth
        if len(axes) == 2:
            product = along[axes[0]] ** 2 if len({*axes}) == 1 else crossed[axes[0]] * crossed[axes[1]]
            bent = slopes[wide.keys().isdisjoint(axes)] * smooth + cut * smooth_slope
            values = -2 * product * bent - (len({*axes}) == 1) * values
        elif axes:
            values = values * crossed[axes[0]]
        # Here, not on the padded mesh: there the function has a kink at the largest distance.
        for numbers in divisors:
            values = values / numbers
        for axis in open_axes:
            # To the nodes of the wide mesh, of which those within reach are kept, and back on the padded mesh.
            nodes, last, odd = modes.shape[axis], modes.shape[axis] // 2, axes.count(axis) == 1
            transform, sign = (scipy.fft.dst, -1) if odd else (scipy.fft.dct, 1)
            values = np.take(values, range(odd, wide[axis] // 2 + 1 - odd), axis)
            values = transform(values, type=1, axis=axis) / wide[axis]
            some = np.arange(odd, last + 1 - odd)
            inner = np.take(values, some - odd, axis)
            if modes.margin:  # the function and its copy beyond the end have no kink
                copied = sign * np.take(values, np.minimum(nodes - some, last + modes.margin) - odd, axis)
                inner += modes.along(axis, _rise(modes.margin, last)[some]) * (copied - inner)
            values = transform(inner, type=1, axis=axis)
            values = np.pad(values, [(odd * (a == axis),) * 2 for a in range(values.ndim)])
            numbers = np.rint(modes.numbers(axis))
            values = np.take(values, abs(numbers).astype(int), axis) * modes.along(axis, np.sign(numbers) ** odd)
        of_mean = axes in ((), *((a, a) for a in range(len(along)) if a not in wide))
        if of_mean and len(open_axes) == 2 and green.kappa == 0:
            # The mean of a potential ``-ln(radius) / (2 pi)``, of charge over length; here it has no error of the mesh.
            area = math.prod(modes.shape[a] * spacing[a] for a in open_axes)
            values[(0,) * values.ndim] -= (-1) ** len({*axes}) * math.log(radius) / (2 * math.pi) * area
        yield np.ascontiguousarray(values)


def _rise(margin: int, last: int) -> Array:
    """Return the weights of a copy at nodes 0 to ``last``, which rise from 0 to a half at the last ``margin`` nodes."""
    whole = spheroidal(np.pi * margin).integ(lbnd=-1)
    return np.asarray(whole(np.clip((np.arange(last + 1) - last) / margin, -1, 0)) / whole(1))


@np.errstate(over="ignore", invalid="ignore")  # derivatives in huge units: tables of the virial are checked
def _truncated(ndim: int, k: Array, screening: Array, radius: float) -> tuple[Array, Array, Array]:
    """Return the transform in 1 to 3 dimensions of a Green function that is zero beyond a radius.

    ``screening`` is kappa of ``(kappa**2 - laplace)``. Where it is 0, the function is ``-|x| / 2``, ``-ln(r / radius)
    / (2 pi)`` or ``1 / (4 pi r)``. Derivatives of the transform by ``k**2`` and by ``kappa**2`` follow; they need not
    be right where their variable is 0.
    """
    k, s = np.broadcast_arrays(k, screening)
    zero, origin = s == 0, k == 0
    s1, k1_, kr = np.where(zero, 1.0, s), np.where(origin, 1.0, k), k * radius  # safe divisors
    decay, rim = np.exp(-s1 * radius), np.zeros(())
    # Numerators over ``k**2 + kappa**2``, their derivatives by ``k**2``, and radius times that of the transform by it.
    if ndim == 1:
        cos, sin = np.cos(kr), np.sin(kr)
        plain, plain_slope = 1 - cos - kr * sin, -(radius**2) / 2 * cos
        at_origin = -(radius**2) / 2
        screened = 1 - decay * (cos - k / s1 * sin)
        slope = decay / (2 * s1) * (radius * cos + (1 + s1 * radius) * sin / k1_)
        rim = decay / s1 * radius * cos
    elif ndim == 2:
        j, j_ = j0(kr), j1(kr)
        k_, k_1 = k0(s1 * radius), k1(s1 * radius)
        plain, plain_slope, at_origin = 1 - j, radius / 2 * j_ / k1_, radius**2 / 4
        screened = 1 + kr * j_ * k_ - s1 * radius * j * k_1
        slope = radius**2 / 2 * (j * k_ + s1 * j_ / k1_ * k_1)
        rim = radius**2 * k_ * j
    else:
        sinc = radius * np.sinc(kr / np.pi)
        plain, plain_slope = 2 * np.sin(kr / 2) ** 2, radius * sinc / 2
        at_origin = radius**2 / 2
        screened = 1 - decay * (np.cos(kr) + s1 * sinc)
        slope = decay / 2 * (radius * sinc - s1 * (radius * np.cos(kr) - sinc) / k1_**2)
    squares = np.where(zero, k1_**2, k**2 + s1**2)
    whole = np.where(zero & origin, at_origin, np.where(zero, plain, screened) / squares)
    by_k2 = (np.where(zero, plain_slope, slope) - whole) / squares
    # ``k**2 f`` is a function of k, kappa and 1 / radius without a unit.
    return whole, by_k2, (rim / 2 - whole - k**2 * by_k2) / s1**2
