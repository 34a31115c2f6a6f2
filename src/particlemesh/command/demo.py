# SPDX-License-Identifier: BSD-3-Clause
"""The computation of ``particlemesh demo``: the electrostatic potential in a box of salt water on a mesh.

The charges are spread and the mesh is transformed. Each Fourier mode is multiplied by Ewald's reciprocal
kernel and divided by the window's transform twice, once for spreading and once for interpolating. The
result is interpolated at the charges. An explicit sum over structure factors, without a mesh, gives the
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files

import numpy as np
import scipy.fft

import particlemesh as pm

# Gaussians of 1/(sqrt(2) ALPHA) = 0.24 nm screen the charges, a usual choice for a real-space cutoff of 1 nm.
# In 3.2 nm the coarsest mesh then has errors of 2 per cent with bspline4, the finest of 1e-10 with bspline8.
ALPHA = 3.0  # 1/nm
WINDOWS = ("bspline2", "bspline4", "bspline6", "bspline8")
SIZES = (16, 24, 32, 48, 64, 96)


def water() -> dict[str, np.ndarray]:
    """Return the box of salt water that comes with the library (units: data/README.md).

    Returns
    -------
    dict
        ``positions (N, 3)`` in nm, ``charges (N,)`` in e, ``box (3, 3)`` in nm, ``elements (N,)``,
        ``reference_energy ()`` in kJ/mol and ``reference_forces (N, 3)`` in kJ/(mol nm).
    """
    with (files("particlemesh") / "data" / "water.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


def mesh_potential(
    mesh: pm.Mesh, window: str | pm.Window, positions: np.ndarray, charges: np.ndarray, alpha: float
) -> np.ndarray:
    """Return the reciprocal-space part of the potential at the charges, computed on a periodic mesh.

    Parameters
    ----------
    mesh : Mesh
        Periodic in all three axes.
    window : str or Window
        Window of spreading and interpolating.
    positions : ndarray, shape (N, 3)
        In the unit of the mesh's lengths.
    charges : ndarray, shape (N,)
    alpha : float
        Ewald's splitting parameter, 1/length.

    Returns
    -------
    ndarray, shape (N,)
        Charge per length: multiply by Coulomb's constant for a potential. It includes each charge's
        Gaussian, which is 2 alpha/sqrt(pi) times the charge.
    """
    modes = scipy.fft.rfftn(pm.spread(positions, charges, mesh, window=window))
    squared = np.asarray(sum(k * k for k in mesh.wavenumbers(real=True)))
    modes *= _kernel(squared, alpha) * mesh.compensation(window, power=2, real=True)
    # The inverse transform divides by the number of nodes; together with a node's volume by that of the box.
    field = scipy.fft.irfftn(modes, s=mesh.shape) / mesh.node_volume
    return pm.interpolate(field, positions, mesh, window=window)


def direct_potential(
    box: np.ndarray, positions: np.ndarray, charges: np.ndarray, alpha: float, kmax: int
) -> np.ndarray:
    """Return the exact value of `mesh_potential` by explicit structure factors in double precision.

    Parameters
    ----------
    box : ndarray, shape (3, 3)
        Lattice vectors in rows.
    positions : ndarray, shape (N, 3)
    charges : ndarray, shape (N,)
    alpha : float
        Ewald's splitting parameter, 1/length.
    kmax : int
        Modes -kmax..kmax along each axis are summed. The others are below
        ``exp(-(pi kmax / (alpha edge))**2)`` of the leading ones.

    Returns
    -------
    ndarray, shape (N,)
        Charge per length.
    """
    reciprocal = 2 * np.pi * np.linalg.inv(box)  # columns are the reciprocal lattice vectors
    fractions = np.asarray(positions, float) @ np.linalg.inv(box)
    index = np.arange(-kmax, kmax + 1)
    first, second, third = (np.exp(2j * np.pi * np.outer(index, fractions[:, axis])) for axis in range(3))
    volume = abs(np.linalg.det(box))
    potential = np.zeros(len(charges))
    for i in range(kmax + 1):  # the modes -i are the complex conjugates of the modes i
        weighted = charges * first[kmax + i]
        factors = (second * weighted) @ third.T  # (2 kmax + 1, 2 kmax + 1)
        n = np.stack(np.broadcast_arrays(i, index[:, None], index), axis=-1)
        factors *= _kernel(np.sum((n @ reciprocal.T) ** 2, axis=-1), alpha) * (1 if i == 0 else 2)
        potential += (np.sum((factors.conj() @ third) * second, axis=0) * first[kmax + i]).real
    return potential / volume


def mesh_errors(
    system: dict[str, np.ndarray] | None = None,
    windows: Iterable[str] = WINDOWS,
    sizes: Iterable[int] = SIZES,
    alpha: float = ALPHA,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, list[tuple[int, float]]]:
    """Return the error of the mesh potential for each window and number of nodes per axis.

    The error is the root-mean-square difference to `direct_potential` over the charges, divided by the
    root-mean-square of that potential. It falls as the p-th power of the spacing for a B-spline of order
    p, until rounding.

    Parameters
    ----------
    system : dict, optional
        In the form of `water`, the default.
    windows, sizes : iterable
        Names of windows; nodes per axis.
    alpha : float
        Ewald's splitting parameter, 1/nm.
    progress : callable (text)
        Called after each window.

    Returns
    -------
    dict
        Window name to its list of (nodes per axis, relative error).
    """
    system = water() if system is None else system
    box, positions, charges = system["box"], system["positions"], system["charges"]
    longest = np.linalg.norm(box, axis=1).max()
    kmax = int(np.ceil(5.5 * alpha * longest / np.pi))  # exp(-5.5**2) = 7e-14
    exact = direct_potential(box, positions, charges, alpha, kmax)
    scale = np.sqrt(np.mean(exact**2))
    errors: dict[str, list[tuple[int, float]]] = {}
    for window in windows:
        errors[window] = []
        for size in sizes:
            mesh = pm.Mesh(shape=(size,) * 3, box=box)
            difference = mesh_potential(mesh, window, positions, charges, alpha) - exact
            errors[window].append((size, float(np.sqrt(np.mean(difference**2)) / scale)))
        progress(f"error of the potential, {window}")
    return errors


def density_slab(
    system: dict[str, np.ndarray], size: int = 96, thickness: float = 0.3, window: str = "bspline6"
) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Return the charge density averaged over a slab normal to z in the middle of a rectangular box.

    Returns
    -------
    density : ndarray, shape (size, size)
        e/nm^3, indexed [x, y].
    extent : (x0, x1, y0, y1)
        nm.
    """
    edges = np.diag(system["box"])
    mesh = pm.Mesh(shape=(size,) * 3, box=system["box"], offset=0.5)  # nodes at the centres of pixels
    density = pm.spread(system["positions"], system["charges"], mesh, window=window) / mesh.node_volume
    layers = max(1, round(thickness / edges[2] * size))
    start = (size - layers) // 2
    return density[:, :, start : start + layers].mean(axis=2), (0.0, float(edges[0]), 0.0, float(edges[1]))


def _kernel(squared: np.ndarray, alpha: float) -> np.ndarray:
    """Return 4 pi exp(-k^2 / (4 alpha^2)) / k^2, and zero at k = 0 (a neutral box in tin foil)."""
    zero = squared == 0
    return np.where(zero, 0.0, 4 * np.pi * np.exp(-squared / (4 * alpha**2)) / np.where(zero, 1.0, squared))
