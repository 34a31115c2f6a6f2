# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call: charges of each system see those of their own system only."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import direct
from particlemesh.apps.pme.core import Coulomb
from particlemesh.apps.pme.exclusions import Exclusions
from particlemesh.apps.pme.natives import Natives, check_finite
from particlemesh.apps.pme.parameters import Parameters
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result
from particlemesh.fourier import Solver
from particlemesh.kernels import alone, checks, lattices


def _exclude(particles: Natives, pairs: Exclusions, q: Any, rows: np.ndarray, owner: Any, sums: Any) -> None:
    """Add the corrections of pairs to the sums (N, 11) over neighbours, for boxes (S, 3, 3)."""
    xp = particles.xp
    i, j, weights, d, place = pairs.vectors(particles, rows, owner)
    r2, touches = (d**2).sum(1), place != 0
    u = q[j] * xp.where(touches, 0, weights / xp.sqrt(xp.where(touches, 1, r2)))
    g = -u / xp.where(touches, 1, r2)
    new = xp.zeros((len(i), 11), particles.dtype)
    new[:, 0], new[:, 1:4] = u, g[:, None] * d
    new[:, 4:7], new[:, 7:10] = g[:, None] * d * d, g[:, None] * d[:, [1, 2, 0]] * d[:, [2, 0, 1]]
    new[:, 10] = xp.where((place > 0) & (weights == -1), -1, place < 0)  # excluded pairs may have the same coordinates
    xp.add.at(sums, i, new)


class PMEBatch:
    """Electrostatics of many periodic systems in one call, with particles and boxes of their own.

    All systems share cutoff, splitting, mesh shape and window. They are chosen for ``box`` and the mean number of
    particles, so give the largest box. For small systems one call takes much less time than a call for each.

    Parameters
    ----------
    box : Box, lengths or matrix
        Of all systems, unless a call gives ``boxes``.
    systems : int
        How many.
    accuracy, cutoff, splitting, shape, window, coulomb_constant, threads
        As for :class:`PME`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    Two crystals of rock salt, of which one is twice as large:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PMEBatch
    >>> cell = np.stack(np.meshgrid(*[[0.0, 0.5]] * 3, indexing="ij"), -1).reshape(-1, 3)
    >>> charges = np.where((2 * cell).sum(1) % 2 == 0, 1.0, -1.0)
    >>> batch = PMEBatch((2.0, 2.0, 2.0), systems=2, accuracy=1e-8)
    >>> result = batch(
    ...     np.concatenate([cell, 2 * cell]), np.tile(charges, 2), np.repeat([0, 1], 8), boxes=[[1, 1, 1], [2, 2, 2]]
    ... )
    >>> (-result.energy / 4 / [2, 1]).round(6).tolist()
    [1.747565, 1.747565]
    """

    def __init__(
        self, box: Any, systems: int, accuracy: float | None = None, *, cutoff: float | None = None,
        splitting: float | None = None, shape: Any = None, window: Any = None, coulomb_constant: float = 1.0,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        self.systems = checks.integer(systems, "systems", 1, 2**31 - 1)
        # One system's: it checks the arguments and chooses.
        self._one = PME(
            box, accuracy, cutoff=cutoff, splitting=splitting, shape=shape, window=window, threads=threads,
            coulomb_constant=coulomb_constant,
        )  # fmt: skip
        self.box, self._threads = self._one.box, threads
        self._grid: Any = None
        self._solver: Any = None
        self._function: Any = None
        self._key: Any = None
        self.busy = threading.RLock()

    @property
    def parameters(self) -> Parameters:
        """Cutoff, splitting, mesh and window in use, and the errors expected."""
        return self._one.parameters

    def _set_up(self, particles: Natives) -> Coulomb:
        """Return the core whose parameters and memory a call uses."""
        mean = max(1, round(particles.count / self.systems))
        core = self._one.core(mean, particles.dtype, particles.backend)
        p, key = core.parameters, (particles.dtype, particles.backend)
        if key != self._key:
            thickness = 1 / np.linalg.norm(self.box.inverse, axis=1)
            cells = [min(t, p.cutoff / n) for t, n in zip(thickness, (2, 2, 4), strict=True)]
            options: dict[str, Any] = dict(systems=self.systems, dtype=particles.dtype.name, threads=self._threads)
            self._grid = pm.UniformGrid(self.box, cell_size=cells, **options)
            alpha = p.splitting
            self._solver = Solver(
                pm.Mesh(p.shape, self.box), p.window, "ewald", alpha=alpha, zero=-1 / (4 * alpha**2), **options
            )
            single, one = particles.dtype.itemsize == 4, particles.backend.name != "cpu"
            self._function = direct.pair_function(direct.smooth_coulomb(alpha, p.cutoff, single, one), 1, True)
            self._key = key
        return core

    def _matrices(self, boxes: Any) -> np.ndarray:
        """Return the lattice vectors of each system, on the host."""
        if boxes is None:
            return np.broadcast_to(self.box.matrix, (self.systems, 3, 3))
        return lattices(boxes, self.systems, 3)

    @alone
    def __call__(
        self, positions: Any, charges: Any, system: Any, *, boxes: Any = None, exclusions: Any = (), factors: Any = 0.0
    ) -> Result:  # fmt: skip
        """Return energies, forces and virials of all systems.

        Parameters
        ----------
        positions : array (N, 3)
            Of all particles, in any order.
        charges : array (N,)
        system : integers (N,)
            The system of each particle.
        boxes : array (S, 3) or (S, 3, 3), optional
            Lengths or lattice vectors of each system.
        exclusions : integers (M, 2)
            Pairs of particles of one system, each once, by their indices among all particles.
        factors : float or array_like (M,)
            What the interaction of their nearest images is multiplied with, as for :class:`PME`.

        Returns
        -------
        Result
            Energies (S,), energies of particles (N,), forces (N, 3) and virials (S, 3, 3).

        Raises
        ------
        ValueError, TypeError
            If a position or charge is not finite, particles of a system lie in one place, or shapes do not fit. The
            first such particle is named.
        """
        particles, pairs = Natives(positions), Exclusions(exclusions, factors)
        xp, x = particles.xp, particles.x
        with particles.scope():
            q = particles.number(charges, "charges")
            if q.ndim != 1:
                raise ValueError(f"charges has shape {q.shape}; one set ({particles.count},) is needed.")
            core, owner = self._set_up(particles), xp.asarray(system)
            p, count = core.parameters, particles.count

            def room(name: str, *shape: int) -> Any:
                return core.take(f"{name} of all systems", math.prod(shape)).reshape(shape)

            self._grid.build(x, system=owner, boxes=boxes)
            check_finite(q, "charges", system=owner)
            sums = self._grid.stream(p.cutoff, self._function, q, out=room("sums", count, self._function.results))
            if len(pairs):
                _exclude(particles, pairs, q, self._matrices(boxes), owner, sums)
            if bool((sums[:, 10] > 0).any()):
                raise ValueError(f"particle {int(sums[:, 10].argmax())} lies where another one of its system lies.")
            self._solver.set_positions(x, system=owner, boxes=boxes)
            shapes = {"potential": (count,), "gradient": (count, 3), "virial": (self.systems, 3, 3)}
            out = tuple(room(name, *shape) for name, shape in shapes.items())
            potential, slope, virial = self._solver.potential_gradient_virial(q, out=out)
            c = self._one.coulomb_constant
            own = 2 * p.splitting / math.sqrt(math.pi) * q
            energies = c / 2 * q * (sums[:, 0] + 4 * math.pi * potential - own)
            forces = c * q[:, None] * (sums[:, 1:4] - 4 * math.pi * slope)
            pairs = c / 2 * q[:, None] * sums[:, 4:10]

            def by_system(values: Any) -> Any:
                return xp.bincount(owner, values, self.systems).astype(particles.dtype)

            upper = xp.stack([by_system(pairs[:, n]) for n in range(6)], 1)
            virial = upper[:, xp.asarray([[0, 5, 4], [5, 1, 3], [4, 3, 2]])] + 4 * math.pi * c * virial
            energy = by_system(energies)
            bad = ~xp.isfinite(energy)
            if bool(bad.any()):
                raise ValueError(
                    f"the energy of system {int(bad.argmax())} is not finite: charges are too large, or particles too "
                    "near each other."
                )
            return Result(*map(particles.wrap, (energy, energies, forces, virial)))
