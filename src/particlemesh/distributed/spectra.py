# SPDX-License-Identifier: BSD-3-Clause
"""Power spectra of particles on many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particlemesh import checks
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.fft import FFT
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.world import World, together
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.spectra import Bins, Spectrum, Sums, checked_sets, halves_of, powers_of, weights_of
from particlemesh.window import Window


def power_spectrum(
    positions: Any, values: Any, domain: Domain, world: World | None = None, *, window: Window | str = "pcs",
    interlaced: bool = True, compensation: str = "window", other: tuple[Any, Any] | None = None,
    edges: ArrayLike | None = None, mu_bins: int | None = None, multipoles: Sequence[int] = (),
    line_of_sight: ArrayLike | None = None, **options: Any,
) -> Spectrum:  # fmt: skip
    """Return the power spectrum of the particles of all ranks, the same on every rank; collective.

    Parameters
    ----------
    positions : array (N, d) or tuple of d arrays
        Those of this rank, any of all.
    values : array (N,)
        Weights of this rank's particles. Those of all ranks have a sum other than 0.
    domain : Domain
        A periodic mesh and its parts.
    world : World, optional
        The ranks; a single one by default.
    window, interlaced, compensation, other, edges, mu_bins, multipoles, line_of_sight
        As for :func:`particlemesh.fourier.power_spectrum`; `other` has particles of this rank.
    **options
        Options of :class:`Plan`.

    Returns
    -------
    Spectrum

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.
    RankError
        If another rank raised.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> points = np.random.default_rng(world.rank).random((20000, 3))
    >>> domain = pmd.Domain(pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0)), world.size)
    >>> spectrum = pmd.power_spectrum(points, np.ones(20000), domain, world, compensation="aliases")
    >>> count = world.size * 20000
    >>> (np.average(spectrum.power, weights=spectrum.modes) * count).round(1)  # Poisson's noise is 1
    np.float64(1.0)
    """
    world = World() if world is None else world

    def weighed() -> tuple[str, list[tuple[Any, Any, Sums]]]:
        checks.flag(interlaced, "interlaced")
        pairs = checked_sets(domain.mesh, positions, values, compensation, other)
        said = f"power_spectrum({interlaced=}, {compensation=}, {len(pairs)} sets, {mu_bins=}, {multipoles=})"
        said += f" by edges {np.asarray(edges).tolist()}, seen along {np.asarray(line_of_sight).tolist()}"
        return said, [(x, w, Sums.of(weights_of(w))) for x, w in pairs]

    particles = world.alike(weighed)
    domains = [domain, domain.shifted(0.5)] if interlaced else [domain]
    plans = [Plan(each, world, window, **options) for each in domains]
    fft = FFT(domain, world, threads=options.get("threads"))
    layouts = [Modes(each.mesh, real=True, part=fft.part) for each in domains]
    sets = []
    for x, w, here in particles:
        sums = Sums(*world.allreduce(np.array(here)).tolist())
        sums.check()
        spectra = [fft.forward(plan.set_positions(x).spread(w)) for plan in plans]
        sets.append((halves_of(spectra, sums, [layout.phases() for layout in layouts]), sums))

    def binned() -> tuple[Bins, np.ndarray]:
        bins = Bins(layouts[0], edges, mu_bins, multipoles, line_of_sight)
        return bins, bins.sums(*powers_of(layouts[0], plans[0].window, sets, interlaced, compensation))

    bins, shares = together(world, True, "bins of a power spectrum", binned)
    return bins.means(world.allreduce(shares))
