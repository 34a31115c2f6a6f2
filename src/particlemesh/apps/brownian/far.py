# SPDX-License-Identifier: BSD-3-Clause
"""The far part of the mobility: forces to the mesh, Stokes flow in Fourier space, velocities back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import particlemesh as pm
from particlemesh.apps.brownian import formulas
from particlemesh.fourier import VectorSolver
from particlemesh.kernels import Backend, allocate

Array = NDArray[np.float64]
_MOST_FORMS = 24


class Far:
    """The far part on one mesh.

    Parameters
    ----------
    box : Box
    radii : NumPy array (1,) or (N,)
    splitting, viscosity : float
    shape : ints
        Nodes along each axis.
    window : Window or str
    tolerance : float
        Relative error of the form factors of many radii.
    options : dict
        Options of :class:`particlemesh.Plan`.
    """

    def __init__(
        self, box: pm.Box, radii: Array, splitting: float, viscosity: float, shape: Any, window: Any,
        tolerance: float, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.radii, self.weights = form_radii(radii, splitting, tolerance)

        def stokes(k2: Array) -> Array:
            return np.asarray(formulas.screening(k2, splitting) / (k2 * viscosity))

        forms = [lambda k2, a=a: formulas.sinc(np.sqrt(k2) * a) for a in self.radii]
        self.mesh = pm.Mesh(shape, box)
        self.solver = self._solver(window, stokes, forms=forms, compensation="aliases", **options)
        self._shapes: Any = None

    def _solver(self, window: Any, green: Any, **options: Any) -> Any:
        return VectorSolver(self.mesh, window, green, **options)

    @property
    def nbytes(self) -> int:
        """Bytes of the plan, fields, spectra and tables."""
        return self.solver.nbytes

    def place(self, backend: Backend, dtype: np.dtype, positions: Any) -> None:
        """Take native positions (N, 3)."""
        self.solver.set_positions(positions)
        if self.weights is not None and self._shapes is None:
            rounded = self.weights.astype(dtype)
            self._shapes = rounded if backend.name == "cpu" else backend.upload(rounded)
        self._backend, self._dtype = backend, dtype

    @property
    def shapes(self) -> Any:
        """Factors of each particle (parts, N), native; None for one radius."""
        return self._shapes

    def _room(self, batch: int) -> tuple[Any, Any]:
        """Return memory (b, parts, N, 3) of the result, and its view as the solver takes it."""
        count = self.solver.plan.count
        room = allocate(self._backend, (batch, len(self.radii), count, 3), self._dtype, "velocities of the mesh")
        return room, self._seen(room)

    def _seen(self, array: Any) -> Any:
        planar = array.transpose((0, 1, 3, 2))
        return planar if len(self.radii) > 1 else planar[:, 0]

    def velocity(self, parts: Any) -> Any:
        """Return velocities (b, parts, N, 3) of forces (b, parts, N, 3)."""
        room, view = self._room(int(parts.shape[0]))
        self.flow(self._seen(parts), view)
        return room

    def flow(self, forces: Any, out: Any) -> None:
        """Write the velocities of forces, both (b, 3, N), or (b, parts, 3, N) if there are several parts."""
        self.solver.field(forces, out=out)

    def sample(self, noise: Any) -> Any:
        """Return velocities (b, parts, N, 3) whose covariance is the far part, of noise (b, 3, *mesh.shape)."""
        room, view = self._room(int(noise.shape[0]))
        self.noise(noise, view)
        return room

    def noise(self, noise: Any, out: Any) -> None:
        """Write what `sample` returns, as `flow` writes it."""
        self.solver.sample(noise, out=out)


def form_radii(radii: Array, splitting: float, tolerance: float) -> tuple[Array, Array | None]:
    """Return radii whose form factors, with a particle's weights (m, N), make up that of each particle.

    Few different radii are taken as they are. For many, ``sinc(k a)`` is interpolated in a between Chebyshev nodes, as
    many as the tolerance needs where the far part is not negligible.

    Examples
    --------
    >>> form_radii(np.array([1.0, 2.0, 1.0]), 0.5, 1e-6)
    (array([1., 2.]), array([[1., 0., 1.],
           [0., 1., 0.]]))
    """
    distinct, which = np.unique(radii, return_inverse=True)
    if len(distinct) == 1:
        return distinct, None
    k, _ = formulas.quadrature(splitting)
    root = np.sqrt(formulas.screening(k * k, splitting))
    low, high = distinct[0], distinct[-1]
    trial = np.linspace(low, high, 200)
    exact = formulas.sinc(np.outer(trial, k))
    for number in range(2, min(len(distinct), _MOST_FORMS)):
        nodes = (low + high) / 2 - (high - low) / 2 * np.cos(math.pi * (np.arange(number) + 0.5) / number)
        error = (_lagrange(nodes, trial).T @ formulas.sinc(np.outer(nodes, k)) - exact) * root
        if abs(error).max() <= tolerance:
            return nodes, _lagrange(nodes, radii)
    if len(distinct) > _MOST_FORMS:
        raise ValueError(
            f"radii from {low:g} to {high:g} need more than {_MOST_FORMS} form factors at splitting {splitting:g}: "
            "choose a smaller splitting, or a larger accuracy."
        )
    return distinct, (which[None, :] == np.arange(len(distinct))[:, None]).astype(float)


def _lagrange(nodes: Array, at: Array) -> Array:
    """Return Lagrange's polynomials of the nodes at points, (nodes, points)."""
    result = np.ones((len(nodes), len(at)))
    for m, node in enumerate(nodes):
        for other in np.delete(nodes, m):
            result[m] *= (at - other) / (node - other)
    return result
