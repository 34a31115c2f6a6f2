# SPDX-License-Identifier: BSD-3-Clause
"""Power spectra of particles and fields: isotropic, by angle, multipoles, cross spectra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.fourier.compensation import noise_of, transform_of
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.transform import Transform
from particlemesh.mesh import Mesh, mesh_of
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
    error : as `k`
        Standard deviation of `power` for a Gaussian field: ``power * sqrt(2 / modes)``, since k and -k are one
        measurement. Of cross spectra it is ``sqrt((power**2 + power_1 * power_2) / modes)`` with the powers of both
        sets.
    edges : (bins + 1,) float64 ndarray
        Edges of the bins of k.
    mu : None, or as `k`
        Mean \|mu\|, the cosine of the angle between k and the line of sight.
    multipoles : dict of int to (bins,) float64 ndarray
        ``(2 l + 1)`` times the mean of power times the Legendre polynomial of mu, shot noise included.
    multipole_noise : dict of int to (bins,) float64 ndarray
        What Poisson points add to `multipoles`. Few modes of a bin are not isotropic, so orders above 0 have some.

    Examples
    --------
    Two points half a box apart have no odd modes, and their noise is the volume by their number:

    >>> import particlemesh as pm
    >>> from particlemesh.fourier import power_spectrum
    >>> spectrum = power_spectrum([[0.25], [0.75]], None, pm.Mesh(16, 1.0), compensation="window")
    >>> spectrum.modes[:4].tolist(), spectrum.power[:4].round(2).tolist(), spectrum.shot_noise[0].round(6)
    ([2.0, 2.0, 2.0, 2.0], [0.0, 1.0, 0.0, 1.0], np.float64(0.5))
    """

    k: Array
    power: Array
    modes: Array
    shot_noise: Array
    error: Array
    edges: Array
    mu: Array | None
    multipoles: dict[int, Array]
    multipole_noise: dict[int, Array]

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
    values : array (N,) or None
        Weights of the particles, such as masses; their sum is not 0. None gives each particle the weight 1.
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
    ValueError, TypeError
        If the mesh is none, or has open axes or ghosts. If weights are not finite or sum to 0, or an argument is not
        allowed.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import power_spectrum
    >>> points = np.random.default_rng(1).random((20000, 3))
    >>> mesh = pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0))
    >>> spectrum = power_spectrum(points, None, mesh, compensation="aliases", multipoles=(0, 4))
    >>> bool(abs(np.average(spectrum.power, weights=spectrum.modes) * 20000 - 1) < 0.05)
    True
    >>> round(float(spectrum.multipole_noise[4][0] * 20000), 3)  # of six modes along axes and twelve diagonal ones
    0.875
    """
    transform, powers = mode_powers(positions, values, mesh, window, interlaced, compensation, other, options)
    bins = Bins(transform.layout, edges, mu_bins, multipoles, line_of_sight)
    return bins.means(bins.sums(*powers))


def mode_powers(
    positions: Any, values: Any, mesh: Mesh, window: Window | str, interlaced: bool, compensation: str, other: Any,
    options: dict[str, Any],
) -> tuple[Transform, tuple[Any, Any, Any, Any]]:  # fmt: skip
    """Return the transform, and the result of `powers_of`."""
    pairs = checked_sets(mesh, positions, values, compensation, other)
    transform, rest = transform_for(mesh, window, options)
    sets = []
    for x, w in pairs:
        sums = Sums.of(weights_of(w))
        sums.check()
        sets.append((halves_of(transform.spectra(x, w, interlaced, rest), sums), sums))
    return transform, powers_of(transform.layout, transform.window, sets, interlaced, compensation)


def transform_for(mesh: Mesh, window: Window | str, options: dict[str, Any]) -> tuple[Transform, dict[str, Any]]:
    """Return the transform of a spectrum, and the options that it does not have."""
    given = {key: options[key] for key in ("backend", "dtype", "threads") if key in options}
    rest = {key: value for key, value in options.items() if key not in ("backend", "threads")}
    return Transform(mesh, window_of(window), **given), rest


# ---- shared by spectra of one device and of many ranks -------------------------------------------------


def checked_sets(mesh: Mesh, positions: Any, values: Any, compensation: str, other: Any) -> list[tuple[Any, Any]]:
    """Return positions and values of one set of particles or of two, and check the mesh and the compensation."""
    checks.all_periodic(mesh_of(mesh).periodic)
    checks.one_of(compensation, "compensation", COMPENSATIONS)
    if not (other is None or (isinstance(other, tuple) and len(other) == 2)):
        raise TypeError("other is not a tuple (positions, values) of a second set of particles.")
    pairs = [(positions, values)] if other is None else [(positions, values), other]
    return [(x, _ones(x) if w is None else w) for x, w in pairs]


def _ones(positions: Any) -> Any:
    """Return a weight of 1 for each particle, where the positions are."""
    kind, array = operands.adopt(positions[0] if isinstance(positions, tuple) else positions, "positions")
    dtype = kind.dtype(array)
    return kind.wrap(kind.backend(array).upload(np.ones(len(array), dtype if dtype.kind == "f" else np.float64)))


def weights_of(values: Any) -> Array:
    """Return weights as float64 on the host, checked to be finite."""
    kind, array = operands.adopt(values, "values")
    if array.ndim != 1:
        raise ValueError(f"values have shape {tuple(array.shape)}; one weight per particle is needed.")
    if kind.dtype(array).kind == "c":
        raise TypeError("values are complex; weights are real.")
    weights = np.asarray(kind.backend(array).download(kind.native(array)), np.float64)
    bad = np.flatnonzero(~np.isfinite(weights))
    if bad.size:
        raise ValueError(
            f"{bad.size} values are not finite, the first is values[{bad[0]}] = {weights[bad[0]]}; give finite weights."
        )
    return weights


class Sums(NamedTuple):
    """Sums over the weights of all particles: of these, of their sizes and of their squares."""

    total: float
    sizes: float
    squares: float

    @classmethod
    def of(cls, weights: Array) -> Sums:
        """Return the sums of these weights."""
        return cls(float(weights.sum()), float(np.abs(weights).sum()), float((weights**2).sum()))

    def check(self) -> None:
        """Raise an error if the mean density is 0."""
        if not abs(self.total) > 1e-12 * self.sizes:
            raise ValueError("values sum to 0; a density contrast needs weights with a sum other than 0.")


def halves_of(spectra: Sequence[Any], sums: Sums, phases: Sequence[Any] = (None, None)) -> list[NDArray[Any]]:
    """Return the modes of the density contrast on the host, from those of a mesh, and of its twin if interlaced.

    Of interlaced meshes they are half of the sum, and of the difference, of those of mesh and twin. ``phases`` are
    those of :meth:`Modes.phases` for each mesh, if its modes do not have them yet.
    """
    hosts = []
    for spectrum, factors in zip(spectra, phases, strict=False):
        kind, _ = operands.adopt(spectrum, "modes")
        host = kind.backend(spectrum).download(kind.native(spectrum)).astype(np.complex128) / sums.total
        for factor in np.ix_(*(factors or ())):
            host *= factor
        hosts.append(host)
    if len(hosts) == 1:
        return hosts
    mesh, twin = hosts
    return [(mesh + twin) / 2, (mesh - twin) / 2]


def divisors_of(modes: Modes, window: Window, interlaced: bool, compensation: str) -> tuple[Array, Array]:
    """Return the power of unit shot noise in a mode of the mesh, and what divides power."""
    noise = noise_of(window, modes, interlaced)
    return noise, noise if compensation == "aliases" else transform_of(window, modes, "continuous") ** 2


def powers_of(
    modes: Modes, window: Window, sets: Sequence[tuple[list[NDArray[Any]], Sums]], interlaced: bool, compensation: str
) -> tuple[Any, Any, Any, Any]:
    """Return power per mode, its other half or None, shot noise, and None: of one set of particles.

    Across two sets, the last are the powers of both, each as a list with the other half if there is one.
    """
    (first, sums), (second, _) = sets[0], sets[-1]
    noise, divisor = divisors_of(modes, window, interlaced, compensation)
    volume = modes.mesh.box.volume
    shot = sums.squares / sums.total**2 * noise / divisor if len(sets) == 1 else np.zeros_like(divisor)
    power, *flipped = (volume * (a * b.conj()).real / divisor for a, b in zip(first, second, strict=True))
    autos = None if len(sets) == 1 else [[volume * abs(half) ** 2 / divisor for half in halves] for halves, _ in sets]
    return power, flipped[0] if flipped else None, volume * shot, autos


def binned_power(
    transform: Transform, power: NDArray[Any], *, flipped: NDArray[Any] | None = None, shot_noise: ArrayLike = 0.0,
    autos: Sequence[Any] | None = None, edges: ArrayLike | None = None, mu_bins: int | None = None,
    multipoles: Sequence[int] = (), line_of_sight: ArrayLike | None = None,
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
    autos : sequence of two NumPy arrays, or of two pairs of them, optional
        If `power` is that of two fields, the power of each of them: errors depend on these. For interlaced meshes, the
        pair of a field is its `power` and its `flipped`.
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
    bins = Bins(transform.layout, edges, mu_bins, multipoles, line_of_sight)
    return bins.means(bins.sums(power, flipped, shot_noise, autos))


class Bins:
    """Bins of k and mu, the sums over some modes in each, and means of the sums over all; see `binned_power`."""

    def __init__(
        self, modes: Modes, edges: ArrayLike | None, mu_bins: int | None, multipoles: Sequence[int],
        line_of_sight: ArrayLike | None,
    ) -> None:  # fmt: skip
        self._modes, self._bounds, self._sight = modes, _edges(modes, edges), line_of_sight
        self._orders = [checks.integer(order, "an order of multipoles", 0, 100) for order in multipoles]
        if any(order % 2 for order in self._orders):
            raise ValueError(f"multipoles are {tuple(self._orders)}; odd orders of k and -k cancel: give even orders.")
        if line_of_sight is not None and mu_bins is None and not self._orders:
            raise ValueError("line_of_sight is for mu_bins and multipoles: give one of these, or leave it out.")
        slices = 1 if mu_bins is None else checks.integer(mu_bins, "mu_bins", 1, 10**6)
        self._by_mu, self._shape = mu_bins is not None, (len(self._bounds) - 1, slices)

    def _split(self, both: Array) -> tuple[Array, Array]:
        """Return the sums of 1, k, power, shot noise, mu and autos in each cell, and of multipoles in each bin."""
        poles = 2 * len(self._orders) * self._shape[0]
        return both[poles:].reshape(-1, math.prod(self._shape)), both[:poles].reshape(-1, 2, self._shape[0])

    def sums(
        self, power: Any, flipped: Any, shot_noise: ArrayLike, autos: Any = None, poles_of: Any = None
    ) -> Array:  # fmt: skip
        """Return the sums over modes, in one array.

        ``poles_of`` may replace power and shot noise times a Legendre polynomial. It takes an order, signs of the
        highest modes and a region of the modes, and returns both there.
        """
        modes, bounds, (bins, slices) = self._modes, self._bounds, self._shape
        powers = [_of_modes(power, modes, "power"), _of_modes(power if flipped is None else flipped, modes, "flipped")]
        beside = [
            [_of_modes(half, modes, "one of autos") for half in (auto if isinstance(auto, list | tuple) else [auto])]
            for auto in autos or ()
        ]
        shape, axes = modes.spectrum_shape, range(len(modes.shape))
        weights = np.broadcast_to(_multiplicity(modes) * modes.share(axes), shape)
        noise = np.broadcast_to(np.asarray(shot_noise, np.float64), shape)
        both = np.zeros(((5 + len(beside)) * slices + 2 * len(self._orders)) * bins)
        sums, poles = self._split(both)
        for signs, region in modes.signs(axes):
            k = [np.broadcast_to(c, shape)[region] for c in modes.vectors(signs)]
            length = np.sqrt(_total(*(c**2 for c in k)))
            along = np.abs(_cosines(k, length, self._sight))
            index = np.searchsorted(bounds, length, side="right") - 1
            inside = (index >= 0) & (index < bins) & (length > 0)
            index, along, length = index[inside], along[inside], length[inside]
            cell = index * slices + np.minimum((along * slices).astype(np.int64), slices - 1)
            odd = signs.count(-1) % 2
            of_signs = powers[odd], noise, *(halves[odd % len(halves)] for halves in beside)
            weight, *parts = (a[region][inside] for a in (weights, *of_signs))
            for total, part in zip(sums, (1.0, length, *parts[:2], along, *parts[2:]), strict=True):
                total += np.bincount(cell, weight * part, bins * slices)
            for totals, order in zip(poles, self._orders, strict=True):
                if poles_of is None:
                    factor = legendre.legval(along, [0] * order + [1])
                    multiples = [factor * part for part in parts[:2]]
                else:
                    multiples = [part[inside] for part in poles_of(order, signs, region)]
                for total, part in zip(totals, multiples, strict=True):
                    total += np.bincount(index, weight * part, bins)
        return both

    def means(self, both: Array) -> Spectrum:
        """Return the spectrum of sums over all modes."""
        sums, poles = self._split(both)
        counts = sums[0].reshape(self._shape).sum(1)
        with np.errstate(invalid="ignore"):
            means = (sums[1:] / sums[0]).reshape(-1, *(self._shape if self._by_mu else self._shape[:1]))
            poles = (2 * np.array(self._orders).reshape(-1, 1, 1) + 1) * poles / counts
            length, power, noise, along, *autos = means
            number = sums[0].reshape(power.shape)
            error = np.sqrt((power**2 + np.prod(autos or [power, power], axis=0)) / number)
        multiples, noises = (dict(zip(self._orders, poles[:, n], strict=True)) for n in range(2))
        mu = along if self._by_mu else None
        return Spectrum(length, power, number, noise, error, self._bounds, mu, multiples, noises)


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
    return ascending(edges)


def ascending(edges: ArrayLike) -> Array:
    """Return edges of bins."""
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
