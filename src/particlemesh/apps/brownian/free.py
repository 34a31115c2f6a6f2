# SPDX-License-Identifier: BSD-3-Clause
"""The Rotne-Prager-Yamakawa mobility of spheres in an unbounded fluid, as a sum over all pairs."""

from __future__ import annotations

import math
import threading
from typing import Any, Self

import numpy as np

from particlemesh.apps.brownian.drag import Settled, radii
from particlemesh.apps.brownian.formulas import whole
from particlemesh.apps.brownian.square_root import RootInfo, square_root
from particlemesh.kernels import alone, checks
from particlemesh.kernels.cpu import compiled, ranges, run, threads_for

_SHARE = 16  # spheres that a thread claims at once


class FreeRPY(Settled):
    r"""Velocities that forces cause on spheres in an unbounded viscous fluid at rest, and noise of their covariance.

    The mobility is that of Rotne, Prager and Yamakawa, for spheres of one or of many radii, also where they overlap
    [zuk2014]_. A product is a sum over all pairs in double precision: its time is that of N**2 pairs. It runs on the
    CPU and takes NumPy arrays. In a periodic box :class:`RPY` is faster from some thousand spheres on.

    Parameters
    ----------
    radius : number or array (N,)
        Radius of all spheres, or of each.
    viscosity : number
        Of the fluid. With the default a sphere of radius 1 has mobility 1.
    threads : int, optional
        Most threads.

    Attributes
    ----------
    radius : float, or NumPy array (N,)
    viscosity : float
    count : int
        Spheres.
    info : RootInfo or None
        Iterations and error estimate of the last square root.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    Examples
    --------
    Two spheres in line fall faster than one:

    >>> import numpy as np
    >>> from particlemesh.apps.brownian import FreeRPY
    >>> pair = FreeRPY().set_positions(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 4.0]]))
    >>> pair.velocity(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))[:, 2].round(6)
    array([1.359375, 1.359375])
    """

    divergence_free = True  # of flows without sources: Brownian dynamics needs no drift

    def __init__(self, radius: Any = 1.0, viscosity: float = 1 / (6 * math.pi), *, threads: int | None = None) -> None:
        self.radius = radii(radius)
        self.viscosity = checks.positive(viscosity, "viscosity")
        self.threads = checks.threads(threads, "cpu")
        self._places: Any = None
        self._info: RootInfo | None = None
        self.busy = threading.RLock()

    def __repr__(self) -> str:
        return f"<FreeRPY: {self.count:,} spheres>"

    @property
    def count(self) -> int:
        """Number of spheres."""
        return 0 if self._places is None else len(self._places)

    @property
    def radii(self) -> np.ndarray:
        """Radii, NumPy array (1,) or (N,)."""
        return np.atleast_1d(np.asarray(self.radius, np.float64))

    @property
    def info(self) -> RootInfo | None:
        """Iterations and error estimate of the last square root, or None."""
        return self._info

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal mobility, for checkpoints."""
        return {"radius": self.radius, "viscosity": self.viscosity, "threads": self.threads}

    @alone
    def set_positions(self, positions: Any) -> Self:
        """Set the spheres' centres.

        Parameters
        ----------
        positions : array (N, 3)
            Of NumPy. Spheres may overlap, and may lie on top of each other.

        Returns
        -------
        FreeRPY
            The mobility itself.

        Raises
        ------
        ValueError
            If a position is not finite, or there is not one radius per sphere. Earlier positions stay.
        """
        if np.ndim(positions) != 2:
            raise ValueError(f"positions have shape {np.shape(positions)}; (N, 3) is needed.")
        x = self._vectors(positions, "positions")
        if len(self.radii) not in (1, len(x)):
            raise ValueError(f"there are {len(x)} positions and {len(self.radii)} radii: give one radius per sphere.")
        self._places = np.array(x, np.float64)
        return self

    def _vectors(self, array: Any, what: str) -> np.ndarray:
        """Return the user's vectors."""
        vectors = checks.number_array(array, what)
        if vectors.dtype.kind == "c":
            raise TypeError(f"{what} are complex; real numbers are needed.")
        core = (vectors.shape[0] if self._places is None or what == "positions" else self.count, 3)
        if vectors.shape[-2:] != core:
            raise ValueError(f"{what} have shape {vectors.shape}; (..., {core[0]}, 3) is needed.")
        bad = ~np.isfinite(vectors).all(-1)
        if bad.any():
            raise ValueError(f"{what} are not all finite; sphere {int(np.argwhere(bad)[0, -1])} is the first.")
        return vectors

    @alone
    def velocity(self, forces: Any) -> Any:
        """Return the velocities that forces cause.

        Parameters
        ----------
        forces : array (..., N, 3)
            Leading axes are right-hand sides; they share one pass over the pairs.

        Returns
        -------
        NumPy array (..., N, 3)
            Of the type of ``forces``; integers give float64.

        Raises
        ------
        ValueError
            If a force is not finite; the first sphere is named.
        RuntimeError
            If no positions are set.
        """
        self._ready()
        rows = self._vectors(forces, "forces")
        return self._multiply(rows.reshape(-1, 3 * self.count)).reshape(rows.shape).astype(_real(rows), copy=False)

    def _ready(self) -> None:
        if self._places is None:
            raise RuntimeError("this mobility has no positions yet: call set_positions first.")

    def _multiply(self, force: np.ndarray) -> np.ndarray:
        """Return the products of vectors (b, 3 N)."""
        sizes = np.broadcast_to(self.radii, self.count) + 0.0
        columns = np.ascontiguousarray(force.T.reshape(self.count, 3, -1), np.float64)
        velocity = np.zeros_like(columns)
        used = threads_for(self.threads, max(1, self.count * self.count // 20))
        run(_products, used, self._places, sizes, columns, velocity, 1 / self.viscosity)
        return velocity.reshape(3 * self.count, -1).T

    @alone
    def square_root(self, z: Any, *, tolerance: float = 1e-3) -> Any:
        """Return ``M**(1/2) z`` by block Lanczos iterations: vectors whose covariance is the mobility.

        Parameters
        ----------
        z : array (..., N, 3)
            Numbers of mean 0 and variance 1.
        tolerance : float
            Relative change of the result at which the iterations end.

        Returns
        -------
        NumPy array (..., N, 3)
            ``info`` has the iterations and the error estimate.

        Raises
        ------
        ValueError
            If a number is not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import FreeRPY
        >>> rng = np.random.default_rng(1)
        >>> rpy, z = FreeRPY().set_positions(rng.uniform(0, 9, (20, 3))), rng.normal(size=(20, 3))
        >>> twice = rpy.square_root(rpy.square_root(z, tolerance=1e-8), tolerance=1e-8)
        >>> bool(np.allclose(twice, rpy.velocity(z), atol=1e-6))
        True
        """
        self._ready()
        rows, tolerance = self._vectors(z, "z"), checks.positive(tolerance, "tolerance")
        flat = rows.reshape(-1, 3 * self.count).astype(np.float64)
        root, self._info = square_root(self._multiply, flat, tolerance, np)
        return root.reshape(rows.shape).astype(_real(rows), copy=False)


def _real(array: np.ndarray) -> Any:
    return array.dtype if array.dtype.kind == "f" else np.float64


@compiled
def _products(x, sizes, force, velocity, fluidity, counter):
    """Write velocities (N, 3, b) of forces (N, 3, b)."""
    many = force.shape[2]
    for begin, end in ranges(counter, x.shape[0], _SHARE):
        for i in range(begin, end):
            for j in range(x.shape[0]):
                d0, d1, d2 = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
                r = math.sqrt(d0 * d0 + d1 * d1 + d2 * d2)
                f, g = whole(r, sizes[i], sizes[j])
                f, g = f * fluidity, g * fluidity
                if r > 0:
                    d0, d1, d2 = d0 / r, d1 / r, d2 / r
                for b in range(many):
                    along = g * (d0 * force[j, 0, b] + d1 * force[j, 1, b] + d2 * force[j, 2, b])
                    velocity[i, 0, b] += f * force[j, 0, b] + along * d0
                    velocity[i, 1, b] += f * force[j, 1, b] + along * d1
                    velocity[i, 2, b] += f * force[j, 2, b] + along * d2
