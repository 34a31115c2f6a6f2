# SPDX-License-Identifier: BSD-3-Clause
"""Power spectra of particles and fields: isotropic, by angle, multipoles, cross spectra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.fourier.compensation import noise_of, transform_of
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.transform import Transform
from particlemesh.mesh import Mesh
from particlemesh.window import Window, window_of

Array = NDArray[np.float64]
COMPENSATIONS = ("window", "aliases")


@dataclass(frozen=True, repr=False)
class Spectrum:
    r"""A power spectrum in bins of k, and of mu if asked for.

    Bins without modes have NaN.

    Attributes
    ----------
    k : (bins,) or (bins, mu_bins) float64 ndarray
        Mean \|k\| of the modes of a bin, in radians per length.
    power : as `k`
        Mean power, in units of volume (length**d); shot noise is included. Of cross spectra the real part:
        the imaginary parts of k and -k cancel.
    modes : as `k`, float64
        Number of modes; k and -k count as two. The highest mode of an even axis is +k and -k at once. Where these lie
        in different bins, each bin has a part of it.
    shot_noise : as `k`
        What Poisson points add to `power`; 0 for cross spectra.
    edges : (bins + 1,) float64 ndarray
        Edges of the bins of k.
    mu : None, or as `k`
        Mean \|mu\|, the cosine of the angle between k and the line of sight.
    multipoles : dict of int to (bins,) float64 ndarray
        ``(2 l + 1)`` times the mean of power times the Legendre polynomial of mu, shot noise included.
    """

    k: Array
    power: Array
    modes: Array
    shot_noise: Array
    edges: Array
    mu: Array | None
    multipoles: dict[int, Array]

    def __repr__(self) -> str:
        first, last = self.edges[0], self.edges[-1]
        return f"<Spectrum: bins {self.k.shape} of k from {first:.4g} to {last:.4g}, multipoles {[*self.multipoles]}>"


def power_spectrum(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = "pcs", interlaced: bool = True,
    compensation: str = "window", other: tuple[Any, Any] | None = None, edges: ArrayLike | None = None,
    mu_bins: int | None = None, multipoles: Sequence[int] = (), line_of_sight: ArrayLike | None = None,
    **options: Any,
) -> Spectrum:  # fmt: skip
    r"""Return the power spectrum of the density contrast of particles in a periodic box.

    The estimator is ``V |delta(k)|**2`` with ``delta(k) = sum_p w_p exp(-i k x_p) / sum_p w_p``. Modes come from a
    mesh; interlacing removes the aliases next to the measured modes [sefusatti2016]_.

    Parameters
    ----------
    positions : array (N, d) or tuple of d arrays
    values : array (N,)
        Weights of the particles, such as masses; their sum is not 0.
    mesh : Mesh
        Periodic, without ghosts. Its highest mode is ``pi / spacing``.
    window : Window or str
        "pcs" and "tsc" are accurate up to the highest mode with interlacing.
    interlaced : bool
        Average over two meshes, see :meth:`Transform.modes`.
    compensation : {"window", "aliases"}
        With "window" power is divided by ``W(k)**2``, which is right for a signal that falls with k. With "aliases" it
        is divided by the sum of ``W**2`` over aliases. This is right for shot noise, which is then flat. `shot_noise`
        is exact for both.
    other : tuple of positions and values, optional
        A second set of particles, for the cross spectrum.
    edges : array, optional
        Ascending edges of the bins of \|k\|. By default bins of the smallest wavenumber's width up to the highest mode.
    mu_bins : int, optional
        Bins of equal width of \|mu\| from 0 to 1.
    multipoles : sequence of int
        Even orders l, such as ``(0, 2, 4)``.
    line_of_sight : (d,) array, optional
        Direction for mu; the last axis by default.
    **options
        Options of :class:`particlemesh.Plan`.

    Returns
    -------
    Spectrum

    Raises
    ------
    ValueError
        If the mesh has open axes or ghosts, weights are not finite or sum to 0, or an argument is not allowed.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import power_spectrum
    >>> points = np.random.default_rng(1).random((20000, 3))
    >>> mesh = pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0))
    >>> spectrum = power_spectrum(points, np.ones(20000), mesh, compensation="aliases")
    >>> bool(abs(np.average(spectrum.power, weights=spectrum.modes) * 20000 - 1) < 0.05)
    True
    """
    checks.all_periodic(mesh.periodic)
    checks.one_of(compensation, "compensation", COMPENSATIONS)
    transform = Transform(mesh, window_of(window), **_of_transform(options))
    first, squares = _contrast(transform, positions, values, interlaced, options)
    modes = transform.layout
    noise = noise_of(transform.window, modes, interlaced)
    divisor = noise if compensation == "aliases" else transform_of(transform.window, modes, "continuous") ** 2
    second, shot = first, squares * noise / divisor
    if other is not None:
        if not (isinstance(other, tuple) and len(other) == 2):
            raise TypeError("other is not a tuple (positions, values) of a second set of particles.")
        second, _ = _contrast(transform, *other, interlaced, options)
        shot = np.zeros_like(divisor)
    volume = mesh.box.volume
    power, *flipped = (volume * (a * b.conj()).real / divisor for a, b in zip(first, second, strict=True))
    return binned_power(
        transform, power, flipped=flipped[0] if flipped else None, shot_noise=volume * shot, edges=edges,
        mu_bins=mu_bins, multipoles=multipoles, line_of_sight=line_of_sight,
    )  # fmt: skip


def _of_transform(options: dict[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in ("backend", "dtype", "threads") if key in options}


def _contrast(
    transform: Transform, positions: Any, values: Any, interlaced: bool, options: dict[str, Any]
) -> tuple[list[NDArray[Any]], float]:
    """Return the modes of the density contrast on the host, and ``sum(w**2) / sum(w)**2``.

    Of interlaced meshes the modes are half of the sum, and of the difference, of those of mesh and twin.
    """
    kind, array = operands.adopt(values, "values")
    if array.ndim != 1:
        raise ValueError(f"values have shape {tuple(array.shape)}; one weight per particle is needed.")
    if kind.dtype(array).kind == "c":
        raise TypeError("values are complex; weights are real.")
    rest = {key: value for key, value in options.items() if key not in ("backend", "threads")}
    weights = kind.backend(array).download(kind.native(array)).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(weights))
    if bad.size:
        raise ValueError(
            f"{bad.size} values are not finite, the first is values[{bad[0]}] = {weights[bad[0]]}; give finite weights."
        )
    total = weights.sum()
    if not abs(total) > 1e-12 * np.abs(weights).sum():
        raise ValueError("values sum to 0; a density contrast needs weights with a sum other than 0.")
    hosts = []
    for spectrum in transform.spectra(positions, values, interlaced, rest):
        kind, _ = operands.adopt(spectrum, "modes")
        hosts.append(kind.backend(spectrum).download(kind.native(spectrum)).astype(np.complex128) / total)
    if interlaced:
        mesh, twin = hosts
        hosts = [(mesh + twin) / 2, (mesh - twin) / 2]
    return hosts, float(((weights / total) ** 2).sum())


def binned_power(
    transform: Transform, power: NDArray[Any], *, flipped: NDArray[Any] | None = None, shot_noise: ArrayLike = 0.0,
    edges: ArrayLike | None = None, mu_bins: int | None = None, multipoles: Sequence[int] = (),
    line_of_sight: ArrayLike | None = None,
) -> Spectrum:  # fmt: skip
    r"""Return means of a power per mode in bins of k and mu; for fields, and for powers of your own.

    Parameters
    ----------
    transform : Transform
        Of the modes.
    power : NumPy array (\*spectrum_shape)
        Real, of each mode. In units of volume it is ``V * abs(modes / size)**2`` of a field's modes.
    flipped : NumPy array (\*spectrum_shape), optional
        For interlaced meshes, which tell both signs of a highest mode apart: power where an odd number of highest
        modes has the other sign. If `power` is that of ``modes + twin``, this is that of ``modes - twin``.
    shot_noise : array or float
        Part of `power` that is shot noise, of each mode.
    edges, mu_bins, multipoles, line_of_sight
        As for :func:`power_spectrum`.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import Transform, binned_power
    >>> mesh = pm.Mesh((8, 8), (2 * np.pi, 2 * np.pi))
    >>> transform = Transform(mesh)
    >>> modes = transform.forward(np.cos(mesh.nodes(0))[:, None] * np.ones(8))
    >>> spectrum = binned_power(transform, (2 * np.pi) ** 2 * abs(modes / 64) ** 2)
    >>> spectrum.modes.tolist(), spectrum.power.round(4).tolist()  # two of eight modes have a quarter each
    ([8.0, 12.0, 16.0, 22.0], [2.4674, 0.0, 0.0, 0.0])
    """
    modes = transform.layout
    powers = [_of_modes(power, modes, "power"), _of_modes(power if flipped is None else flipped, modes, "flipped")]
    bounds = _edges(modes, edges)
    orders = [checks.integer(order, "an order of multipoles", 0, 100) for order in multipoles]
    if any(order % 2 for order in orders):
        raise ValueError(f"multipoles are {tuple(orders)}; odd orders of k and -k cancel: give even orders.")
    if line_of_sight is not None and mu_bins is None and not orders:
        raise ValueError("line_of_sight is for mu_bins and multipoles: give one of these, or leave it out.")
    slices = 1 if mu_bins is None else checks.integer(mu_bins, "mu_bins", 1, 10**6)
    shape, bins, axes = modes.spectrum_shape, len(bounds) - 1, range(len(modes.shape))
    weights = np.broadcast_to(_multiplicity(modes) * modes.share(axes), shape)
    noise = np.broadcast_to(np.asarray(shot_noise, np.float64), shape)
    sums = np.zeros((5, bins * slices))  # of 1, k, power, shot noise and mu in each cell
    poles = np.zeros((len(orders), bins))
    for signs, region in modes.signs(axes):
        k = [np.broadcast_to(c, shape)[region] for c in modes.vectors(signs)]
        length = np.sqrt(_total(*(c**2 for c in k)))
        along = np.abs(_cosines(k, length, line_of_sight))
        index = np.searchsorted(bounds, length, side="right") - 1
        inside = (index >= 0) & (index < bins) & (length > 0)
        index, along, length = index[inside], along[inside], length[inside]
        cell = index * slices + np.minimum((along * slices).astype(np.int64), slices - 1)
        weight, values = weights[region][inside], powers[signs.count(-1) % 2][region][inside]
        for total, part in zip(sums, (1.0, length, values, noise[region][inside], along), strict=True):
            total += np.bincount(cell, weight * part, bins * slices)
        for total, order in zip(poles, orders, strict=True):
            total += np.bincount(index, weight * values * legendre.legval(along, [0] * order + [1]), bins)
    counts = sums[0].reshape(bins, slices).sum(1)
    with np.errstate(invalid="ignore"):
        means = (sums[1:] / sums[0]).reshape(4, *((bins,) if mu_bins is None else (bins, slices)))
        multiples = {order: (2 * order + 1) * total / counts for order, total in zip(orders, poles, strict=True)}
    return Spectrum(
        means[0], means[1], sums[0].reshape(means[0].shape), means[2], bounds, None if mu_bins is None else means[3],
        multiples,
    )  # fmt: skip


def _of_modes(power: Any, modes: Modes, name: str) -> Any:
    power = np.asarray(power)
    if power.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {power.dtype}; real numbers are needed.")
    if power.shape != modes.spectrum_shape:
        raise ValueError(f"{name} has shape {power.shape}; this transform has {modes.spectrum_shape} modes.")
    return power


def _edges(modes: Modes, edges: ArrayLike | None) -> Array:
    if edges is None:
        smallest = float(np.linalg.norm(modes.rows, axis=1).min())
        highest = min(float(np.linalg.norm(row)) * n / 2 for row, n in zip(modes.rows, modes.shape, strict=True))
        if highest < smallest:
            raise ValueError(f"a mesh {modes.shape} has no whole bin of modes: give two or more nodes along each axis.")
        bins = int(highest / smallest + 1e-3)
        # A mode on an edge, to rounding, is in the bin above: so bins do not depend on the unit of length.
        return np.asarray((np.arange(bins + 1) + 0.5) * (smallest * (1 - 1e-12)), np.float64)
    bounds = checks.number_array(edges, "edges")
    if bounds.dtype.kind == "c" or bounds.ndim != 1 or len(bounds) < 2 or not (np.diff(bounds) > 0).all():
        raise ValueError("edges need two or more ascending numbers, one more than bins.")
    return bounds.astype(np.float64)


def _cosines(k: Sequence[Array], length: Array, line_of_sight: ArrayLike | None) -> Array:
    """Return the cosine of the angle of every mode with the line of sight."""
    ndim = len(k)
    sight = np.eye(ndim)[-1] if line_of_sight is None else np.asarray(line_of_sight, np.float64)
    if sight.shape != (ndim,) or not 0 < np.linalg.norm(sight) < np.inf:
        raise ValueError(f"line_of_sight is {line_of_sight!r}; a direction of {ndim} numbers is needed.")
    sight = sight / np.linalg.norm(sight)
    along = _total(*(c * s for c, s in zip(k, sight, strict=True)))
    return np.asarray(np.clip(along / np.where(length > 0, length, 1.0), -1, 1))


def _total(first: Array, *others: Array) -> Array:
    """Return a sum of up to three terms, the least first: its bits, and bins, do not depend on the order of axes."""
    if len(others) < 2:
        return sum(others, start=first)
    second, third = others
    low, high = np.minimum(first, second), np.maximum(first, second)
    return np.minimum(low, third) + np.maximum(low, np.minimum(high, third)) + np.maximum(high, third)


def _multiplicity(modes: Modes) -> Array:
    """Return how many modes each stored mode stands for: its opposite is not stored in a half spectrum."""
    if not modes.real:
        return np.ones((1,) * len(modes.shape))
    last = len(modes.shape) - 1
    numbers = modes.numbers(last)
    alone = (numbers == 0) | (2 * numbers == modes.shape[last])
    return np.asarray(modes.along(last, np.where(alone, 1.0, 2.0)))
