# SPDX-License-Identifier: BSD-3-Clause
"""The power spectrum of the particles of a file, spread one part after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh import Mesh, Window
from particlemesh.apps.files.accumulate import Account, _nothing, _Plans
from particlemesh.apps.files.particles.selection import CHUNK, Particles
from particlemesh.fourier import Spectrum, Transform, binned_power
from particlemesh.kernels import checks

COMPENSATIONS = ("window", "aliases")


def power_factors(transform: Transform, compensation: str, interlaced: bool = False) -> np.ndarray:
    """Return the factors of a power per mode that undo the window, or the window with its aliases.

    Raises
    ------
    ValueError
        If there is no such compensation.
    """
    checks.one_of(compensation, "compensation", COMPENSATIONS)
    if compensation == "aliases":
        return transform.compensation("power", interlaced=interlaced)
    return transform.compensation("spread") ** 2


def particles_spectrum(
    particles: Particles, mesh: Mesh, window: Window | str = "pcs", *, frame: int = -1, size: int = CHUNK,
    interlaced: bool = True, compensation: str = "window", progress: Callable[[int], None] = _nothing,
    dtype: Any = None, account: Account | None = None, **options: Any,
) -> Spectrum:  # fmt: skip
    """Return the power spectrum of the particles of a file, which are in memory one part at a time.

    It is that of :func:`particlemesh.fourier.power_spectrum`. Fields of one or two meshes stay in memory.

    Parameters
    ----------
    particles : Particles
        With one real value each.
    mesh : Mesh
        Periodic, without ghosts.
    window : Window or str
    frame : int
        The last one by default.
    size : int
        Most particles of a part.
    interlaced, compensation
        As for :func:`particlemesh.fourier.power_spectrum`.
    progress : callable (int)
        Called after each part with its number of particles.
    dtype : {"float32", "float64"}, optional
        By default that of the first positions.
    account : Account, optional
        Filled while this goes on; its seconds are those of both meshes.
    **options
        Options of :class:`particlemesh.Plan`.

    Returns
    -------
    Spectrum
        Powers in units of volume; k in radians per length.

    Raises
    ------
    ValueError, TypeError
        If the mesh has open axes, values have components, are complex or sum to 0, or an argument is not allowed.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from particlemesh.apps.files import open_particles, particles_spectrum
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/dust.npz", positions=np.random.default_rng(1).random((20000, 3)))
    ...     with open_particles(f"{folder}/dust.npz") as particles:
    ...         found = particles_spectrum(
    ...             particles, pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0)), size=3000, compensation="aliases"
    ...         )
    >>> bool(abs(np.average(found.power, weights=found.modes) * 20000 - 1) < 0.05)  # Poisson's noise
    True
    """
    interlaced = checks.flag(interlaced, "interlaced")
    if particles.components:
        raise ValueError(f"values are {', '.join(particles.values)}; a spectrum has one weight per particle.")
    if not all(mesh.periodic):
        raise ValueError("the mesh has open axes; a spectrum takes one that repeats along all axes.")
    account = account if account is not None else Account()
    meshes = [mesh, mesh.shifted(0.5)] if interlaced else [mesh]
    backend = options.get("backend")
    transforms = [Transform(one, window, backend=backend) for one in meshes]
    noise = 1 / transforms[0].compensation("power", interlaced=interlaced)
    factors = power_factors(transforms[0], compensation, interlaced)
    magnitudes = squares = 0.0
    with contextlib.ExitStack() as stack:
        accounts = [account, *(Account() for _ in meshes[1:])]
        plans = [
            stack.enter_context(_Plans(one, window, dtype, "error", its, options))
            for one, its in zip(meshes, accounts, strict=True)
        ]
        for chunk in particles.chunks(size, frame):
            if np.iscomplexobj(chunk.values):
                raise TypeError("values are complex; weights are real.")
            for one in plans:
                one.spread(chunk)
            weights = plans[0].values(chunk.values).astype(np.float64, copy=False)
            magnitudes, squares = magnitudes + abs(weights).sum(), squares + np.dot(weights, weights)
            progress(len(chunk.positions))
        for its in accounts[1:]:
            account.start, account.seconds = account.start + its.start, account.seconds + its.seconds
        total = float(account.values)
        if not abs(total) > 1e-12 * magnitudes:
            raise ValueError("values sum to 0; a density contrast needs weights with a sum other than 0.")
        first, *twin = (
            np.asarray(transform.forward(one.total)).astype(np.complex128) / (total * len(meshes))
            for transform, one in zip(transforms, plans, strict=True)
        )
    factors = mesh.box.volume * factors
    flipped = abs(first - twin[0]) ** 2 * factors if twin else None
    return binned_power(
        transforms[0], abs(sum(twin, start=first)) ** 2 * factors, flipped=flipped,
        shot_noise=squares / total**2 * noise * factors,
    )  # fmt: skip
