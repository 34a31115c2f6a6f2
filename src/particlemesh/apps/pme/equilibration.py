# SPDX-License-Identifier: BSD-3-Clause
"""Charges that equilibrate: least energy under a given total charge, by projected conjugate gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme import damping
from particlemesh.apps.pme.core import native
from particlemesh.apps.pme.operators import Equations, Operator, Step, joined, near_sums, numbers, virial_of
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.vectors import Solution, Vectors
from particlemesh.kernels import alone

_NO_MINIMUM = (
    "the energy has no minimum: charges of near particles would grow without limit. Give larger hardness, widths, or "
    "move particles apart."
)


@dataclass(repr=False)
class EquilibrationResult(Result):
    """Charges of least energy.

    Parameters
    ----------
    energy, energies, forces, virial : array (...,), (..., N), (..., N, 3), (..., 3, 3)
        As for :class:`Result`. The energy includes electronegativities and hardness. Since it is least for these
        charges, forces and virial are those at fixed charges.
    potentials, fields : None
        Ask :class:`PME` for those of the charges.
    charges : array (..., N)
    iterations : int
        Applications of the mesh and sums over pairs that they took.
    residual : float
        What is left of the equations, relative to differences of electronegativities, or to hardness times charge where
        these are larger; below the tolerance.

    Examples
    --------
    The charge that flows is nearly the difference of electronegativities by the sum of hardnesses:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME, ChargeEquilibration
    >>> atoms = np.array([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]])
    >>> result = ChargeEquilibration(PME((4.0, 4.0, 4.0), 1e-6), 1e-8)(atoms, [-100.0, 100.0], 1000.0)
    >>> result.residual < 1e-8, result.charges.round(2)
    (True, array([ 0.1, -0.1]))
    """

    charges: Any = None
    iterations: int = 0
    residual: float = 0.0


class ChargeEquilibration(Equations):
    r"""Charges of least energy at given positions and total charge (QEq) [rappe1991]_.

    They minimise

    .. math:: E(q) = \sum_i \left(\chi_i q_i + \frac{\eta_i}{2} q_i^2\right) + E_\text{Coulomb}(q)

    under a given sum of charges, by conjugate gradients that never leave this plane [gould2001]_. The Coulomb energy is
    that of a :class:`PME` over all images. With `widths` charges are Gaussians, as in neural networks of the fourth
    generation [ko2021]_: pairs have ``erf(r / sqrt(2 s_i**2 + 2 s_j**2)) / r``, and each charge has its own energy
    ``q**2 / (2 sqrt(pi) s)``. Both are multiplied by Coulomb's constant.

    Positions stay during the iterations. So the mesh is prepared once. Each iteration applies it once, for all sets of
    electronegativities together.

    Parameters
    ----------
    pme : PME
        Its box, accuracy, other parameters and Coulomb constant; without exclusions: all pairs interact.
    tolerance : float
        Of the residual, relative to differences of electronegativities, or to hardness times charge if there are none.
    iterations : int
        At most.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    Two atoms with a hardness far above their interaction share charge by ``(chi_2 - chi_1) / (eta_1 + eta_2)``:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME, ChargeEquilibration
    >>> atoms = np.array([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]])
    >>> result = ChargeEquilibration(PME((4.0, 4.0, 4.0), 1e-6), 1e-8)(atoms, [-100.0, 100.0], 1000.0)
    >>> result.charges.round(3), bool(abs(result.charges.sum()) < 1e-12)
    (array([ 0.1, -0.1]), True)
    """

    _differentiable = "equilibrated_charges"

    def __init__(self, pme: PME, tolerance: float = 1e-6, *, iterations: int = 100) -> None:
        super().__init__(pme, tolerance, iterations)
        if len(pme.exclusions):
            raise ValueError(
                f"pme excludes {len(pme.exclusions)} pairs; charges of all pairs interact: leave them out."
            )

    def _step(self, **given: Any) -> Step:
        return _Step(self, **given)

    @alone
    def __call__(
        self, positions: Any, electronegativities: Any, hardness: Any, *, widths: Any = None, total: Any = 0.0,
        guess: Any = None, virial: bool = True,
    ) -> EquilibrationResult:  # fmt: skip
        """Return charges, energy, forces and virial.

        Parameters
        ----------
        positions : array (N, 3), or tuple of 3 arrays (N,)
        electronegativities : array (..., N)
            Energies per charge. Leading axes are sets at the same positions, which are solved together.
        hardness : array (N,) or float
            Energies per square of a charge.
        widths : array (N,) or float, optional
            Standard deviations of Gaussian charges; 0 is a point.
        total : float or array (...,)
            Sum of the charges of each set. A net charge has a neutralising background, as for :class:`PME`.
        guess : array (..., N), optional
            Charges to start from, as those of an earlier time step; their sums may differ from the total.
        virial : bool
            Whether the result has a virial.

        Returns
        -------
        EquilibrationResult
            Arrays of the library, device and type of the electronegativities; the energy of one set on the CPU is a
            number.

        Raises
        ------
        ValueError
            If a number is not finite, shapes do not fit, particles lie in one place, or the energy has no minimum. If a
            hardness, with the energy of a Gaussian in itself, is not positive.
        RuntimeError
            If the residual of the charges is larger than the tolerance after all iterations, or no longer falls.
        """
        given = dict(electronegativities=electronegativities, hardness=hardness, widths=widths, total=total)
        return self._solved(guess, virial, positions=positions, **given)


class _Step(Step):
    """One set of positions, hardness and widths, with sets of electronegativities and totals."""

    kind, name, sets = EquilibrationResult, "charges", True

    def __init__(
        self, model: ChargeEquilibration, positions: Any, electronegativities: Any, hardness: Any, widths: Any,
        total: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, positions, charges=electronegativities)
        self.batch, count = self.like.batch, self.x.count
        self.row = (count,)
        if not count:
            raise ValueError("there are no particles; give at least one.")
        numbers(self.like.user, count, "electronegativities", batch=True)
        self.eta = numbers(hardness, count, "hardness")
        self.widths = None if widths is None else numbers(widths, count, "widths", 0.0)
        totals = np.asarray(kernels.to_host(total, "total"), np.float64)
        if totals.shape not in ((), self.batch) or not np.isfinite(totals).all():
            raise ValueError(
                f"total has shape {totals.shape}; give a finite number, or one for each set, {self.batch}."
            )
        self.totals = np.broadcast_to(totals, self.batch).reshape(-1)

    def prepare(self) -> None:
        self.take_core()
        core, count, sets = self.core, self.x.count, self.totals.size
        self.stiffness, self.reach, self.squares = self.eta.copy(), 0.0, np.zeros(count)
        if self.widths is not None:
            blurred = self.widths > 0
            itself = np.divide(1, math.sqrt(math.pi) * self.widths, out=np.zeros(count), where=blurred)
            self.stiffness += core.constant * itself
            self.squares = self.widths**2
            self.reach = damping.reach_of_widths(float(self.widths.max()), core.dtype)
        if (self.stiffness <= 0).any():
            k = int(np.argmax(self.stiffness <= 0))
            raise ValueError(
                f"hardness of particle {k} with its own Coulomb energy is {self.stiffness[k]:g}, not positive: "
                "give a larger hardness, or a width."
            )
        self.chi = core.dense("electronegativities", self.like.native, (sets, count), copy=True)
        self.vectors = Vectors(core, sets, count)
        self.unknown = self.vectors.take("of charges")
        self.stiff, self.squared = self.upload(self.stiffness), self.upload(self.squares[:, None])
        self.operator = Operator(core, self.x, check=True)

    def solve_from(self, guess: Any) -> Solution:
        core, count, vectors = self.core, self.x.count, self.vectors
        start = np.zeros((vectors.sets, count))
        if guess is not None:
            start = numbers(guess, count, "guess", batch=True).reshape(-1, count)
            if start.shape[0] != vectors.sets:
                raise ValueError(f"guess has {start.shape[0]} sets; {vectors.sets} are needed.")
        softness = 1 / self.stiffness
        share = (self.totals - start.sum(1))[:, None] * softness / softness.sum()
        start += share
        core.backend.copy(self.unknown, self.upload(start))
        right = vectors.take("of electronegativities")
        core.backend.clear(right)
        vectors.add(right, self.chi, -1.0)
        # With equal electronegativities the right side is nothing but rounding.
        fair = self.totals[:, None] * softness / softness.sum()
        return self.solve(right, self.unknown, guessed=True, least=(self.stiffness * fair**2).sum(1), probe=True)

    def solve(
        self, right: Any, x: Any, *, guessed: bool = False, least: Any = 0.0, probe: bool = False
    ) -> Solution:  # fmt: skip
        core, c, vectors, model, count = self.core, self.core.constant, self.vectors, self.model, self.x.count
        weights = 1 / self.stiffness

        def repair(q: Any) -> None:
            if guessed:  # else sums are zero
                lost = (self.totals - vectors.total(q))[:, None] * weights / weights.sum()
                vectors.add(q, self.upload(lost))

        def operate(p: Any, image: Any) -> None:
            core.backend.clear(image)
            self.operator.charges(p, vectors, image)
            for begin in range(0, vectors.sets if self.reach else 0, core.together):
                part = slice(begin, begin + core.together)
                Vectors(core, len(p[part]), count).add_columns(image[part], self.of_widths(p[part]))
            scaled = vectors.take("scaled")
            vectors.scale(scaled, self.stiff, p)
            vectors.add(scaled, image, c)
            core.backend.copy(image, scaled)

        return vectors.solve(
            operate, right, x, self.upload(weights), guessed=guessed, tolerance=model.tolerance, most=model.iterations,
            inverse=1 / float(weights.sum()), least=least, indefinite=_NO_MINIMUM, repair=repair, probe=probe,
        )  # fmt: skip

    def of_widths(self, q: Any, *, slopes: bool = False) -> Any:
        """Return sums that Gaussians add to those of points (N, columns): see `damping.widths`."""
        core, count = self.core, self.x.count
        rows = joined(core, count, len(q) + 1, q.T, self.squared)
        return near_sums(core, self.x, self.reach, damping.widths(len(q), slopes), rows)

    def slopes(self, charges: Any, virial: bool) -> dict[str, Any]:
        core, c, count, vectors = self.core, self.core.constant, self.x.count, self.vectors
        result = self.pme(native(self.x), charges, virial=virial)
        out = {name: getattr(result, name) for name in ("energies", "forces")}
        scaled = vectors.take("scaled")
        vectors.scale(scaled, self.stiff, charges)
        flat, whole = out["energies"].reshape(-1), []
        everything = Vectors(core, 1, vectors.sets * count)
        everything.dots(flat, charges, scaled, 0.5)
        everything.dots(flat, charges, self.chi, 1.0)
        if virial:
            whole = list(core.backend.download(result.virial).astype(np.float64))
        for k in range(vectors.sets if self.reach else 0):
            one, sums = Vectors(core, 1, count), self.of_widths(charges[k : k + 1], slopes=True)
            potentials = one.take("of widths")
            core.backend.clear(potentials)
            one.add_columns(potentials, sums)
            one.dots(out["energies"][k], charges[k], potentials, c / 2)
            Vectors(core, 1, 3 * count).add_columns(out["forces"][k], sums, c, columns=3, first=1)
            if virial:
                whole[k] += virial_of(core, sums, 4)
        energy = vectors.total(out["energies"])
        if not np.isfinite(energy).all():
            raise ValueError("the energy is not finite: numbers are too large, or particles too near each other.")
        return out | dict(energy=energy, virial=np.array(whole) if virial else None)
