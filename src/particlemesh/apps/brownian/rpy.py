# SPDX-License-Identifier: BSD-3-Clause
"""The periodic Rotne-Prager-Yamakawa mobility: velocities of forces on spheres in a viscous fluid."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from typing import Any, Self

import numpy as np

import particlemesh as pm
from particlemesh import backends, checks
from particlemesh.apps.brownian import parameters
from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near
from particlemesh.apps.brownian.parameters import Parameters
from particlemesh.arrays import operands
from particlemesh.arrays.positions import coordinates
from particlemesh.busy import alone

FLOOR = {np.dtype(np.float32): 3e-6, np.dtype(np.float64): 1e-13}  # what rounding leaves at best
_BLOCK_BYTES = 5  # times the size of a real, of a pair: four reals and an index


class RPY:
    """Mobility of spheres in a periodic box: velocities that forces on the spheres cause.

    Parameters
    ----------
    box : Box, lengths or matrix
        The periodic domain of three axes, orthorhombic or triclinic.
    radius : number or array (N,)
        Radius of all spheres, or of each.
    viscosity : number
        Of the fluid. With the default a single sphere of radius 1 in an infinite fluid has mobility 1.
    accuracy : number
        Root mean square error of velocities of random forces, relative to those of single spheres.
    """

    def __init__(
        self, box: Any, radius: Any = 1.0, viscosity: float = 1 / (6 * math.pi), accuracy: float = 1e-6, *,
        splitting: float | None = None, cutoff: float | None = None, shape: Any = None,
        window: pm.Window | str | None = None, applications: int = 20, backend: str | None = None,
        threads: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        if self.box.ndim != 3 or not all(self.box.periodic):
            raise ValueError(
                f"the box has {self.box.ndim} axes, periodic {self.box.periodic}; hydrodynamics here needs three "
                "periodic axes."
            )
        self.radii = _radii(radius)
        self.viscosity = checks.positive(viscosity, "viscosity")
        self.accuracy = checks.positive(accuracy, "accuracy")
        self._given: dict[str, Any] = {
            "splitting": None if splitting is None else checks.positive(splitting, "splitting"),
            "cutoff": None if cutoff is None else checks.positive(cutoff, "cutoff"),
            "shape": None if shape is None else pm.Mesh(shape, self.box).shape,
            "window": None if window is None else pm.Plan(pm.Mesh((4, 4, 4), self.box), window).window,
        }
        self._named = backend
        self._home = None if backend is None else backends.current(backend)
        self._threads = threads
        self._plan_options: dict[str, Any] = {"components": 3, "applications": applications, **options}
        for key, value in (("threads", threads), ("backend", backend)):
            if value is not None:
                self._plan_options[key] = value
        self.parameters: Parameters | None = None
        self.count = 0
        self._near: Near | None = None
        self._token: Any = None
        self.busy = threading.RLock()

    @alone
    def set_positions(self, positions: Any) -> Self:
        """Set the spheres' centres.

        Parameters
        ----------
        positions : array (N, 3)
            Anywhere: the box repeats. Spheres may overlap and may lie on top of each other.

        Returns
        -------
        RPY
            The mobility itself.

        Raises
        ------
        ValueError
            If a position is not finite, or the number of spheres is not that of the radii. Earlier positions stay.
        """
        kind, backend, x = coordinates(positions, 3, self._home, upload=self._uploads)
        if len(self.radii) not in (1, x.count):
            raise ValueError(f"there are {x.count} positions and {len(self.radii)} radii: give one radius per sphere.")
        with kind.scope(x.user), backend.scope(*x.arrays):
            self._token = backend.follow(self._token)
            native = operands.to_backend(kind, x.user, backend, "positions", upload=self._uploads)
            same = self._near is not None and self._near.backend is backend and self._near.dtype == x.dtype
            chosen, far, grid = self.parameters, getattr(self, "_far", None), getattr(self, "_grid", None)
            if not (same and self._chosen_for / 2 <= x.count <= self._chosen_for * 2):
                chosen = self._choose(x.count, x.dtype, backend)
                far = Far(
                    self.box, self.radii, chosen.splitting, self.viscosity, chosen.shape, chosen.window,
                    chosen.error / 10, self._plan_options,
                )  # fmt: skip
                grid = pm.UniformGrid(self.box, cell_size=chosen.cutoff / 2, threads=self._threads)
            assert chosen is not None and far is not None and grid is not None
            grid.build(native)
            pairs = grid.pairs(chosen.cutoff, quantities="jD")
            near = Near(backend, x.dtype, self.radii, chosen.splitting, self.viscosity, self._threads)
            near.place(x.count, pairs.start, pairs.j, pairs.vector)
            far.place(backend, x.dtype, native)
            backend.mark(native)
        if chosen is not self.parameters:
            self._chosen_for = max(x.count, 1)
        self.parameters, self._far, self._grid, self._near, self.count = chosen, far, grid, near, x.count
        return self

    @property
    def _uploads(self) -> bool:
        return self._named is not None

    def _choose(self, count: int, dtype: np.dtype, backend: Any) -> Parameters:
        system = parameters.System(self.box, float(self.radii.max()), float(self.radii.min()), max(count, 1))
        accuracy = max(self.accuracy, FLOOR[dtype])
        seconds = functools.partial(_seconds, count, dtype.itemsize, backend.name == "cpu")
        bytes_of_pair = _BLOCK_BYTES * dtype.itemsize + 4 * dtype.itemsize
        chosen = parameters.choose(
            system, accuracy, seconds, most_pairs=backend.free_bytes() / 3 / bytes_of_pair, **self._given
        )
        if chosen.error > 1.05 * accuracy:
            warnings.warn(
                f"the parameters reach an error of about {chosen.error:.1e} and accuracy is {accuracy:g}: give a "
                "larger cutoff, a finer mesh, or leave them to be chosen.",
                stacklevel=4,
            )
        return chosen

    @alone
    def velocity(self, forces: Any, *, out: Any = None) -> Any:
        """Return the velocities that forces cause.

        Parameters
        ----------
        forces : array (..., N, 3)
            Leading axes are right-hand sides, which share one pass.
        out : array (..., N, 3), optional

        Returns
        -------
        array (..., N, 3)
            Array of the library and device of ``forces``.

        Raises
        ------
        RuntimeError
            If no positions are set.
        """
        near = self._ready()
        core = (self.count, 3)
        operand = operands.take(forces, core, 2, near.dtype, near.backend, "forces", upload=self._uploads)
        result = operands.give(
            out, operand, operand.batch + core, 2, 2, near.backend, accumulate=False, upload=self._uploads
        )
        with operand.kind.scope(forces), near.backend.scope(operand.native):
            self._token = near.backend.follow(self._token)
            force, velocity = (a.reshape((-1, *core)) for a in (operand.native, result.native))
            self._multiply(force, velocity)
            near.backend.mark(operand.native, result.native)
            return result.finish()

    def _ready(self) -> Near:
        if self._near is None:
            raise RuntimeError("this mobility has no positions yet: call set_positions first.")
        return self._near

    def _multiply(self, force: Any, velocity: Any) -> None:
        near, shapes = self._ready(), self._far.shapes
        parts = force.reshape((force.shape[0], 1, self.count, 3)) if shapes is None else near.expand(force, shapes)
        near.multiply(force, velocity, self._far.velocity(parts), shapes)


def _radii(radius: Any) -> np.ndarray:
    radii = np.atleast_1d(np.array(checks.number_array(radius, "radius"), np.float64))
    bad = np.flatnonzero(~((radii > 0) & np.isfinite(radii)))
    if radii.ndim != 1 or len(bad):
        what = f"radius of sphere {bad[0]} is {radii[bad[0]]}" if radii.ndim == 1 else f"radius has shape {radii.shape}"
        raise ValueError(f"{what}; give one positive number, or one for each sphere.")
    return radii[:1] if len(radii) and (radii == radii[0]).all() and np.ndim(radius) == 0 else radii


def _seconds(
    count: int, size: int, on_cpu: bool, pairs: float, nodes: tuple[int, ...], support: int
) -> float:  # fmt: skip
    """Return the predicted seconds of a product (CPU: one thread of a Xeon at 2.6 GHz; GPU: an H100)."""
    mesh = float(math.prod(nodes))
    if not on_cpu:
        spreading = 2 * 3 * count * support**3 * size / 8 * 2e-12
        return pairs * (4 * size + 4) / 2.5e12 + spreading + mesh * 3 * size * 14 / 2e12
    spreading = 2e-9 * count * (25 + 0.0155 * size * _lanes(3 * support) * support**2)
    return 2.5e-9 * pairs + spreading + 6e-9 * mesh * (2 + 0.65 * math.log2(mesh)) * size / 8


def _lanes(numbers: int) -> int:
    return -(-numbers // 8) * 8
