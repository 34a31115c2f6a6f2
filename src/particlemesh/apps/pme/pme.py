# SPDX-License-Identifier: BSD-3-Clause
"""Particle-mesh Ewald: sizes at construction, positions and charges in each call."""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import checks
from particlemesh.apps.pme import direct, parameters
from particlemesh.arrays import operands
from particlemesh.arrays.positions import coordinates
from particlemesh.busy import alone
from particlemesh.fourier import Solver

_TOGETHER = 6  # sets of charges in one pass over pairs: sums live in registers


@dataclass
class Result:
    """What a call returns; leading axes are those of the charges."""

    energy: Any
    energies: Any
    forces: Any
    virial: Any


class PME:
    def __init__(
        self, box: Any, accuracy: float | None = None, *, cutoff: float | None = None, splitting: float | None = None,
        shape: Any = None, window: Any = None, coulomb_constant: float = 1.0, dtype: Any = None,
        backend: str | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        self.accuracy = accuracy
        self._given = dict(
            cutoff=cutoff, splitting=splitting, shape=None if shape is None else checks.mesh_shape(shape),
            window=None if window is None else pm.bspline(int(window[7:])) if isinstance(window, str) else window,
        )  # fmt: skip
        self.coulomb_constant = float(coulomb_constant)
        self._dtype, self._backend, self._threads = dtype, backend, threads
        self.parameters: parameters.Parameters | None = None
        self.busy = threading.RLock()

    def _set_up(self, count: int, dtype: np.dtype, on_gpu: bool) -> None:
        if self.parameters is None:
            accuracy = self.accuracy or (1e-6 if dtype.itemsize == 8 else 1e-5)
            costs = parameters.GPU if on_gpu else parameters.CPU
            self.parameters = p = parameters.choose(self.box, count, accuracy, costs, **self._given)
            thickness = 1 / np.linalg.norm(self.box.inverse, axis=1)
            cells = [min(t, p.cutoff / n) for t, n in zip(thickness, (2, 2, 4), strict=True)]
            self.grid = pm.UniformGrid(
                self.box, cell_size=cells, dtype=dtype.name, backend=self._backend, threads=self._threads
            )
            mesh = pm.Mesh(p.shape, self.box)
            alpha = p.splitting
            self.solver = Solver(
                mesh,
                p.window,
                "ewald",
                alpha=alpha,
                zero=-1 / (4 * alpha**2),
                dtype=dtype.name,
                backend=self._backend,
                threads=self._threads,
            )
            self._smooth = direct.smooth_coulomb(alpha, p.cutoff, dtype.itemsize == 4, on_gpu)

    @alone
    def __call__(self, positions: Any, charges: Any) -> Result:
        kind, backend, x = coordinates(positions, 3, None, upload=False)
        self._set_up(x.count, x.dtype, backend.name != "cpu")
        p, count = self.parameters, x.count
        operand = operands.take(charges, (count,), 1, x.dtype, backend, "charges", upload=False)
        q = operand.native.reshape(-1, count)
        self.grid.build(positions)
        self.solver.set_positions(positions)
        function = direct.pair_function(self._smooth, 1, False)
        phi, slope = self.solver.potential_and_gradient(q)
        energies, forces = np.empty(q.shape), np.empty((*q.shape, 3))
        for s in range(len(q)):
            sums = self.grid.stream(p.cutoff, function, q[s])
            c = self.coulomb_constant
            potential = sums[:, 0] + 4 * np.pi * phi[s] - 2 * p.splitting / np.pi**0.5 * q[s]
            energies[s] = c / 2 * q[s] * potential
            forces[s] = c * q[s][:, None] * (sums[:, 1:4] - 4 * np.pi * slope[s])
        b = operand.batch
        return Result(energies.sum(-1).reshape(b)[()], energies.reshape(*b, count), forces.reshape(*b, count, 3), None)
