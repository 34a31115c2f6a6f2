# SPDX-License-Identifier: BSD-3-Clause
"""Correlation functions of particles: the inverse transform of their power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike, NDArray

from particlemesh.fourier.spectra import ascending, mode_powers
from particlemesh.mesh import Mesh
from particlemesh.window import Window

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Correlation:
    r"""A two-point correlation function in bins of distance.

    Bins without separations have NaN.

    Attributes
    ----------
    r : (bins,) float64 ndarray
        Mean distance of a bin.
    xi : (bins,) float64 ndarray
        Mean correlation. Pairs at this distance are ``1 + xi`` times as many as of random points.
    separations : (bins,) int64 ndarray
        Number of separations between nodes in a bin.
    edges : (bins + 1,) float64 ndarray
        Edges of the bins.

    Examples
    --------
    Nodes of a ring of 8 are 1, 2 or 3 spacings apart within these edges, each on two sides:

    >>> import particlemesh as pm
    >>> from particlemesh.fourier import correlation_function
    >>> found = correlation_function([[0.25], [0.75]], None, pm.Mesh(8, 1.0))
    >>> found.r.tolist(), found.separations.tolist()
    ([0.125, 0.25, 0.375], [2, 2, 2])
    """

    r: Array
    xi: Array
    separations: NDArray[np.int64]
    edges: Array

    def __repr__(self) -> str:
        return f"<Correlation: {len(self.r)} bins of r from {self.edges[0]:.4g} to {self.edges[-1]:.4g}>"


def correlation_function(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = "pcs", interlaced: bool = True,
    compensation: str = "window", other: tuple[Any, Any] | None = None, edges: ArrayLike | None = None, **options: Any,
) -> Correlation:  # fmt: skip
    r"""Return the two-point correlation function of particles in a periodic box.

    It is ``xi(r) = sum_k (P(k) - shot noise) exp(i k r) / V`` over the modes of the mesh, apart from k = 0. Pairs are
    resolved down to a few spacings of the mesh. The cost does not depend on the number of pairs.

    Parameters
    ----------
    positions, values, mesh, window, interlaced, compensation, other, **options
        As for :func:`power_spectrum`.
    edges : array, optional
        Ascending edges of the bins of distance, from 0 up to half of the smallest width of the box. By default bins as
        wide as the largest spacing, or narrower if none fits; separation 0 is left out.

    Returns
    -------
    Correlation

    Raises
    ------
    ValueError, TypeError
        As for :func:`power_spectrum`, or if edges are not ascending or beyond half of the box.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import correlation_function
    >>> rng = np.random.default_rng(1)
    >>> points = (rng.random((2000, 1, 3)) + 0.03 * rng.standard_normal((2000, 10, 3))).reshape(-1, 3)  # clusters
    >>> measured = correlation_function(points, None, pm.Mesh((32, 32, 32), (1.0, 1.0, 1.0)))
    >>> expected = 9 / 20000 * np.exp(-((measured.r / 0.06) ** 2)) / (4 * np.pi * 0.03**2) ** 1.5
    >>> measured.xi[:2].round(2).tolist(), expected[:2].round(2).tolist()
    ([0.25, 0.1], [0.24, 0.1])
    """
    transform, (power, flipped, noise, _) = mode_powers(
        positions, values, mesh, window, interlaced, compensation, other, options
    )
    # A highest mode is +k and -k at once: take the mean of both.
    highest = transform.layout.share(range(mesh.ndim)) < 1
    power = np.where(highest, (power + (power if flipped is None else flipped)) / 2, power) - noise
    power[(0,) * mesh.ndim] = 0
    size = mesh.size / mesh.box.volume
    xi = scipy.fft.irfftn(power, mesh.shape, workers=transform.threads) * size
    most = 0.5 / float(np.linalg.norm(mesh.box.inverse, axis=1).max())
    spacing = min(float(mesh.spacing.max()), most / 1.5)
    if edges is None:
        edges = (np.arange(int(most / spacing - 0.5 + 1e-9) + 1) + 0.5) * (spacing * (1 - 1e-12))
    bounds = ascending(edges)
    if bounds[0] < 0 or bounds[-1] > most * (1 + 1e-12):
        raise ValueError(f"edges are from {bounds[0]:g} to {bounds[-1]:g}; this box has distances from 0 to {most:g}.")
    # Separations below half of the smallest width are the shortest of their images.
    steps = [(np.arange(n) + n // 2) % n - n // 2 for n in mesh.shape]
    fractions = [along.reshape(-1, *(1,) * (mesh.ndim - 1 - a)) / mesh.shape[a] for a, along in enumerate(steps)]
    vectors = (sum(f * x for f, x in zip(fractions, column, strict=True)) for column in mesh.box.matrix.T)
    length = np.sqrt(sum(component**2 for component in vectors)).ravel()
    index = np.searchsorted(bounds, length, side="right") - 1
    inside = (index >= 0) & (index < len(bounds) - 1)
    counts, lengths, sums = (
        np.bincount(index[inside], part, len(bounds) - 1) for part in (None, length[inside], xi.ravel()[inside])
    )
    with np.errstate(invalid="ignore"):
        return Correlation(lengths / counts, sums / counts, counts, bounds)
