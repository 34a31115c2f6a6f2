# SPDX-License-Identifier: BSD-3-Clause
"""The window's support and the fine mesh for a tolerance, at the least predicted time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.fourier import good_size

# What the automatic choice takes. At 1.1, the division by the transform of 16 nodes multiplies the rounding of modes at
# the edge of the band by 2e5, at 1.2 by 7e3. Both are within `eps`, but the first spoils derivatives by differences.
LEAST_SIGMA, LARGEST_SIGMA = 1.2, 2.6
USED_SIGMA = 4.0  # windows are made for no larger ratio
MOST_NODES = 2**31 - 1  # per axis
# Amplifications of rounding that differences for derivatives bear: that of one axis with 16 nodes at 1.2.
QUIET, SMALL = 7e3, 2**12  # up to so many modes a quieter mesh costs little
# Estimates of `worst` over eps that are taken, so that 10^4 unlucky clouds stay below 2 eps. With a given oversampling
# no law has chosen the support for it, and errors have less room.
MARGIN, GIVEN_MARGIN = 1.6, 1.15
_ALONE = 100  # times eps, for rounding of the one mode in the corner of the band beside itself alone
_TRIES = 6  # windows that are made for a choice, of each kind
# Relative l2 errors that rounding leaves at best, and those of a number (tests/apps/nufft/test_accuracy.py).
FLOOR = {np.dtype(np.float32): 3e-7, np.dtype(np.float64): 5e-15}
ROUNDING = {np.dtype(np.float32): 1.2e-7, np.dtype(np.float64): 2.2e-16}


class Sizes(NamedTuple):
    """What a transform is computed with.

    Attributes
    ----------
    support : int
        Nodes of the window per axis.
    sigma : float
        Smallest ratio of nodes to modes.
    nodes : tuple of int
        Nodes of the fine mesh per axis.
    error : float
        Estimate of the largest relative l2 error; see `worst`.
    """

    support: int
    sigma: float
    nodes: tuple[int, ...]
    error: float


class Law(NamedTuple):
    """The relative l2 error of prolate windows, from their support w and the oversampling sigma.

    Aliases leave ``scale / (1 - 1/sigma) * exp(-pi sqrt(1 - 1/sigma) (w - 1))``. Division by the window's
    transform amplifies rounding, most of all at the edge of the band. For each axis the factor is the root of the ratio
    of its transform at the middle and there.

    Attributes
    ----------
    ndim : int
        Number of axes.
    dtype : numpy.dtype
        Real type.
    twice : bool
        Whether there are two windows: type 3.
    """

    ndim: int
    dtype: np.dtype
    twice: bool

    def aliases(self, support: int, sigma: float) -> float:
        """Return the error that aliases leave."""
        root = math.sqrt(1 - 1 / sigma)
        return self._scale / root**2 * math.exp(-math.pi * root * (support - 1))

    @property
    def _scale(self) -> float:
        return 0.14 * 1.4 ** (self.ndim - 1 + self.twice)

    def error(self, support: int, sigma: float) -> float:
        """Return the predicted error."""
        sigma = min(sigma, USED_SIGMA)
        edge = math.pi * support * (1 - 1 / (2 * sigma) - math.sqrt(1 - 1 / sigma))
        # Type 3 divides by both windows: with little oversampling the second amplifies what the first did (a fit).
        again = 1.2 * max(0.0, edge - 2.2) if self.twice else 0.0
        rounding = ROUNDING[self.dtype] * math.exp(edge / 2 * self.ndim + again)
        return max(FLOOR[self.dtype], rounding, self.aliases(support, sigma))

    def support(self, eps: float, sigma: float) -> int:
        """Return the least support that reaches ``eps``, or the one of least error."""
        supports = range(2, pm.Window.max_support + 1)
        enough = (w for w in supports if self.error(w, sigma) <= eps)
        return next(enough, min(supports, key=lambda w: self.error(w, sigma)))

    @functools.lru_cache(256)  # noqa: B019 - laws are values
    def sigma(self, eps: float, support: int) -> float:
        """Return the least oversampling from 1.2 to 2.6 with which a support reaches ``eps``, or infinity."""
        if self.error(support, LARGEST_SIGMA) > eps:
            return math.inf
        low, high = LEAST_SIGMA, LARGEST_SIGMA
        if self.error(support, low) <= eps:
            return low
        for _ in range(30):  # the error falls with sigma
            middle = (low + high) / 2
            low, high = (low, middle) if self.error(support, middle) <= eps else (middle, high)
        return high

    @functools.lru_cache(256)  # noqa: B019
    def reachable(self, sigma: float | None) -> float:
        """Return the least error, with a given or the largest oversampling."""
        sigma = sigma or LARGEST_SIGMA
        return self.error(self.support(0.0, sigma), sigma)


def fine(modes: Sequence[float], sigma: float) -> tuple[int, ...]:
    """Return nodes per axis for an oversampling."""
    if not all(sigma * m <= MOST_NODES for m in modes):
        raise ValueError(
            f"the fine mesh needs {' x '.join(f'{sigma * m:.2g}' for m in modes)} nodes; {MOST_NODES:,} per axis are "
            "allowed: give fewer modes. For type 3 split the points or the frequencies into smaller boxes."
        )
    return tuple(good_size(max(2, math.ceil(sigma * m - 1e-9))) for m in modes)


def choose(
    modes: Sequence[float], eps: float, law: Law, points: int, reals: int, dtype: np.dtype, on_cpu: bool,
    sigma: float | None = None, seconds: Callable[..., float] | None = None,
) -> Sizes:  # fmt: skip
    """Return the sizes of least predicted time that reach a tolerance.

    Parameters
    ----------
    modes : sequence of float
        Modes per axis, or for type 3 what the fine mesh is to oversample.
    eps : float
        Relative l2 error to reach, at least what the law can reach.
    law : Law
        What it takes.
    points, reals : int
        Points, and reals per value: 2 of complex values.
    dtype : numpy.dtype
        Real type.
    on_cpu : bool
        Whether the transform runs on a CPU.
    sigma : float, optional
        Oversampling; by default the one of least time.
    seconds : callable, optional
        Prediction of time; by default that of the plans of particlemesh.
    """
    if seconds is None:
        seconds = _cpu_seconds if on_cpu else _gpu_seconds
    return _chosen(tuple(modes), eps, law, points, reals, dtype, sigma, seconds)


@functools.lru_cache(maxsize=256)
def _chosen(
    modes: tuple[float, ...], eps: float, law: Law, points: int, reals: int, dtype: np.dtype, sigma: float | None,
    seconds: Callable[..., float],
) -> Sizes:  # fmt: skip
    def predicted(sizes: Sizes) -> float:
        band: Sequence[float] = modes
        if law.twice:
            band = between(modes, sizes)
            sizes = sizes._replace(nodes=fine(band, sizes.sigma))
        return seconds(sizes, band, points, reals, dtype.itemsize)

    tried: list[Sizes] = []
    most = eps * (MARGIN if sigma is None else GIVEN_MARGIN)
    for candidates in _candidates(modes, eps, law, points, sigma):
        for sizes in sorted(candidates, key=predicted)[:_TRIES]:
            tried.append(sizes._replace(error=worst(sizes, modes, eps, law, points)))
            if tried[-1].error <= most:
                return tried[-1]
    return min(tried, key=lambda sizes: sizes.error)


def between(modes: Sequence[float], sizes: Sizes) -> tuple[int, ...]:
    """Return the nodes between the two windows of type 3: no point at an end may reach around the mesh."""
    return fine([m + (sizes.support + 1) / sizes.sigma for m in modes], sizes.sigma)


@functools.lru_cache(maxsize=256)
def _pairs(law: Law, eps: float) -> list[tuple[int, float]]:
    """Return all supports that reach a tolerance, each with the least oversampling."""
    pairs = [(w, law.sigma(eps, w)) for w in range(2, pm.Window.max_support + 1)]
    return [pair for pair in pairs if pair[1] <= LARGEST_SIGMA]


def _candidates(
    modes: tuple[float, ...], eps: float, law: Law, points: int, sigma: float | None
) -> Iterator[list[Sizes]]:
    """Yield lists of sizes that the law of widths allows: as small as possible, then with less rounding."""
    most = pm.Window.max_support
    if sigma is None:
        pairs = [(w, s) for w, s in _pairs(law, eps) if not _loud(modes, w, s, eps, law)]
        yield [_sizes(modes, w, s, law) for w, s in pairs]
        finer = [(law.support(eps / part, s), s) for s in (1.4, 1.6, 2.0, LARGEST_SIGMA) for part in (4, 20)]
    else:
        least = law.support(eps, sigma)
        finer = [(w, sigma) for w in range(max(2, least - 1), min(most, least + 3) + 1)]
        yield [_sizes(modes, least, sigma, law)]
    yield [_sizes(modes, w, s, law) for w, s in finer]
    if not law.twice:
        # Meshes of less than two windows amplify rounding most. Finer ones also have fewer points per node.
        scale = 1
        while scale == 1 or math.prod(fine(modes, scale * (sigma or 2.0))) <= points:
            wide = [[max(m, 2 * w / (sigma or 2.0)) for m in modes] for w in range(2, most + 1)]
            sized = [
                _sizes(modes, w, sigma or 2.0, law, fine(each, scale * (sigma or 2.0)))
                for w, each in enumerate(wide, 2)
            ]
            yield [sizes for sizes in sized if sizes.error <= eps]
            scale *= 2


def _sizes(modes: Sequence[float], support: int, sigma: float, law: Law, nodes: tuple[int, ...] | None = None) -> Sizes:
    if law.twice:  # the mesh is laid out to the window's oversampling, so that few windows serve all points
        return Sizes(support, min(USED_SIGMA, sigma), fine(modes, sigma), law.error(support, sigma))
    nodes = nodes or fine(modes, sigma)
    # Good sizes are larger than asked for: the window makes use of it.
    reached = min(USED_SIGMA, *(n / m for n, m in zip(nodes, modes, strict=True)))
    return Sizes(support, reached, nodes, law.error(support, reached))


def window_for(sizes: Sizes, eps: float) -> pm.Window:
    """Return the window of a transform; its table is a hundred times as accurate as the transform."""
    return _window(sizes.support, sizes.sigma, max(2e-15, eps / 100))


@functools.lru_cache(maxsize=256)
def _window(support: int, sigma: float, tol: float) -> pm.Window:
    return pm.prolate(support, sigma, tol=tol)


def _loud(modes: Sequence[float], support: int, sigma: float, eps: float, law: Law) -> bool:
    """Return whether rounding of the mode in the corner of the band is amplified far beyond a tolerance."""
    if law.twice:
        return False
    ratios = [min(n / m, 1e3) for n, m in zip(fine(modes, sigma), modes, strict=True)]
    shape = math.pi * support * (1 - 1 / (2 * min(USED_SIGMA, *ratios)))
    edges = [shape - math.sqrt(max(0.0, shape**2 - (math.pi * support / (2 * r)) ** 2)) for r in ratios]
    corner = math.exp(min(600.0, sum(edges)))
    return ROUNDING[law.dtype] * corner > _ALONE * eps or (corner > QUIET and math.prod(modes) <= SMALL)


def worst(sizes: Sizes, modes: Sequence[float], eps: float, law: Law, points: int) -> float:
    """Return the relative l2 error that the most unlucky of 10^4 random clouds has, estimated from the window.

    Two errors add up: aliases, and rounding on the fine mesh, which division by the window's transform amplifies.
    Sums over M additions per node are rounded to ``0.25 sqrt(M)`` units (a fit). Of few modes, one may have most
    of the result. For type 3 all points and all frequencies may lie at the ends of their boxes.
    """
    window = window_for(sizes, eps)
    w, unit, share = sizes.support, ROUNDING[law.dtype] / 2, min(1.0, 9 / math.prod(max(1.0, m) for m in modes))
    power = _power(window) ** len(modes)
    few = 1 + 1 / max(1, points)  # aliases of one point have one phase
    if law.twice:
        nodes = between(modes, sizes)
        ends = [
            (1 / (2 * sizes.sigma), (n - w - 1) / (2 * f)) for n, f in zip(nodes, fine(nodes, sizes.sigma), strict=True)
        ]
        axes = [_axis(window, (end,)) for pair in ends for end in pair]
        added = points / 2 * math.prod(w / n for n in nodes)
        aliases, noise = sum(a.most for a in axes), power * math.prod(a.loudest for a in axes)
        rounding = unit * (0.5 + 0.25 * math.sqrt(_in_turn(added, len(modes)))) * math.sqrt(noise)
        return 1.45 * math.sqrt(few * aliases) + rounding / 1.5
    axes = [_axis(window, _band(m, n)) for m, n in zip(modes, sizes.nodes, strict=True)]
    aliases = sum(min(a.most, a.mean + share * a.most) for a in axes)
    mean, most = math.prod(a.loud for a in axes), math.prod(a.loudest for a in axes)
    added = points * math.prod(w / n for n in sizes.nodes)
    noise = power * min(most, mean + share * most)
    rounding = unit * (2 + 0.25 * math.sqrt(_in_turn(added, len(modes)))) * math.sqrt(noise)
    return math.sqrt(few * aliases + rounding**2)


def _in_turn(added: float, ndim: int) -> float:
    """Return how many of the additions to a node follow each other: tiles of several axes are summed in parts."""
    return added if ndim == 1 else min(added, 2.0**14)


class _Axis(NamedTuple):
    """Squares over the modes of an axis: errors by aliases, and amplifications of rounding."""

    mean: float
    most: float
    loud: float
    loudest: float


def _band(modes: float, nodes: int) -> tuple[float, ...]:
    """Return modes of an axis over its nodes: all, or 64 of them that lie evenly."""
    count = int(min(modes, 64))
    return tuple(
        (modes / nodes * (np.arange(count) - (count // 2 if modes <= 64 else (count - 1) / 2)) / count).tolist()
    )


@functools.lru_cache(maxsize=1024)
def _axis(window: pm.Window, at: tuple[float, ...]) -> _Axis:
    # Edges of the table's pieces have aliases far away.
    shifts = np.array([0, *range(-12, 0), *range(1, 13)])
    squares = window.fourier(2 * math.pi * (np.array(at)[:, None] + shifts)) ** 2
    aliases, loud = squares[:, 1:].sum(1) / squares[:, 0], window.fourier(np.zeros(1))[0] ** 2 / squares[:, 0]
    return _Axis(float(aliases.mean()), float(aliases.max()), float(loud.mean()), float(loud.max()))


@functools.lru_cache(maxsize=256)
def _power(window: pm.Window) -> float:
    """Return the mean square of the window's transform over all modes of a mesh, in units of its middle."""
    transform = window.fourier(np.linspace(-math.pi, math.pi, 64, endpoint=False))
    return float(np.mean(transform**2) / window.fourier(np.zeros(1))[0] ** 2)


# Lanes of the CPU's vectors (backends/simd.py).
_LANES = (4, 8, 12, 16, 24, 32)


def _cpu_seconds(sizes: Sizes, modes: Sequence[float], points: int, reals: int, size: int) -> float:
    """Return a spread, or an interpolation, and the transforms of a thread (Xeon with AVX-512, 2.6 GHz)."""
    ndim, lanes = len(sizes.nodes), next(n for n in _LANES if n >= sizes.support * reals)
    point = 25 + 0.0155 * size * lanes * sizes.support ** (ndim - 1)
    total, numbers = 0.0, float(np.prod(modes)) * reals / 2
    for n, m in zip(sizes.nodes, modes, strict=True):  # a band is padded axis by axis
        numbers *= n / m
        total += numbers * (4 + 0.65 * math.log2(n)) * size / 8
    return 1e-9 * (points * point + total)


def few_at_points(sizes: Sizes, points: int, size: int) -> float:
    """Return a spread, or an interpolation, of complex values of few points by a thread (EPYC with AVX-512, 4 GHz)."""
    ndim, lanes = len(sizes.nodes), next(n for n in _LANES if n >= 2 * sizes.support)
    return 1e-9 * points * (8 * ndim + 0.0275 * size * lanes * sizes.support ** (ndim - 1))


def few_seconds(sizes: Sizes, modes: Sequence[float], points: int, reals: int, size: int) -> float:
    """Return the same with the transforms."""
    total, numbers = 0.0, float(np.prod(modes))
    for n, m in zip(sizes.nodes, modes, strict=True):
        numbers *= n / m
        total += numbers * (2.6 + 0.42 * math.log2(n)) * (size / 8) ** 0.5
    return few_at_points(sizes, points, size) + 1e-9 * total


# Estimates for an H100, not measured: benchmarks/apps/nufft_gpu.py prints both as ``unit_s``.
GPU_STENCIL_BYTE = 2.5e-13  # seconds per byte of stencils: spread and interpolate
GPU_MESH_BYTE = 5e-13  # seconds per byte of the fine mesh that is read or written: fft


def _gpu_seconds(sizes: Sizes, modes: Sequence[float], points: int, reals: int, size: int) -> float:
    """Return the same for a GPU: the bytes of stencils and those of the mesh that it moves."""
    ndim, number = len(sizes.nodes), reals * size
    passes = 2 * ndim + 2  # each axis reads and writes the mesh; spreading reads and writes once more
    stencils, mesh = points * sizes.support**ndim, passes * float(np.prod(sizes.nodes))
    return number * (stencils * GPU_STENCIL_BYTE + mesh * GPU_MESH_BYTE)
