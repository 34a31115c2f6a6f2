# SPDX-License-Identifier: BSD-3-Clause
"""Charges that equilibrate: least energy under a given total charge, by projected conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme import damping
from particlemesh.apps.pme.core import Result, native
from particlemesh.apps.pme.operators import Equations, Operator, joined, near_sums, numbers, user_array
from particlemesh.apps.pme.parameters import FOURTH
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.vectors import Solution, Vectors, central
from particlemesh.kernels import alone, checks

_NO_MINIMUM = (
    "the energy has no minimum: charges of near particles would grow without limit. Give larger hardness, widths, or "
    "move particles apart."
)


@dataclass
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

    def __init__(self, pme: PME, tolerance: float = 1e-6, *, iterations: int = 100) -> None:
        super().__init__(pme, tolerance, iterations)
        if len(pme.exclusions):
            raise ValueError(
                f"pme excludes {len(pme.exclusions)} pairs; charges of all pairs interact: leave them out."
            )

    def _derivatives(
        self, given: Mapping[str, Any], charges: Any, slope: Any, virial: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Return derivatives of the energy, and of a function of the charges that has this slope (..., N) there."""
        with self.busy:
            step = _Step(self, **given)
            with self._in_order(*step.taken.values()):
                step.prepare()
                like, shape = step.taken["charges"], step.charges.shape
                q, g = (
                    kernels.take(a, (shape[1],), "slopes", like=like).native.reshape(shape) for a in (charges, slope)
                )
                step.core.backend.copy(step.charges, q)
                mixed, z = step.response(g, virial)
                return step.of_user(step.energies(step.charges, virial)), step.of_user(mixed, z=z)

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
            Whether the result has a virial; those of boxes with open axes have none.

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
        virial = checks.flag(virial, "virial") and self._pme._closed
        step = _Step(self, positions, electronegativities, hardness, widths, total)
        with self._in_order(*step.taken.values()):
            step.prepare()
            solution = step.equilibrate(guess)
            return step.result(step.energies(step.charges, virial), solution)


class _Step:
    """One set of positions, hardness and widths, with sets of electronegativities and totals."""

    def __init__(
        self, model: ChargeEquilibration, positions: Any, electronegativities: Any, hardness: Any, widths: Any,
        total: Any,
    ) -> None:  # fmt: skip
        chi = electronegativities
        self.model, self.pme = model, model._pme
        self.backend, self.x, self.taken = self.pme._taken(positions, True, None, Result, charges=chi)
        self.batch, count = self.taken["charges"].batch, self.x.count
        if not count:
            raise ValueError("there are no particles; give at least one.")
        numbers(self.taken["charges"].user, count, "electronegativities")
        self.eta = numbers(hardness, count, "hardness")
        self.widths = None if widths is None else numbers(widths, count, "widths", 0.0)
        for name, given in (("hardness", self.eta), ("widths", self.widths)):
            if given is not None and given.ndim != 1:
                raise ValueError(f"{name} has shape {given.shape}; one set ({count},) is needed.")
        totals = np.asarray(kernels.to_host(total, "total"), np.float64)
        if totals.shape not in ((), self.batch) or not np.isfinite(totals).all():
            raise ValueError(
                f"total has shape {totals.shape}; give a finite number, or one for each set, {self.batch}."
            )
        self.totals = np.broadcast_to(totals, self.batch).reshape(-1)

    def prepare(self) -> None:
        """Give positions to mesh and grid, and take memory."""
        self.core = core = self.pme._core_for(self.x, self.backend, lambda: FOURTH)
        self.pme._core = core
        count, given = self.x.count, self.taken["charges"]
        sets = math.prod(self.batch)
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
        self.chi = core.dense("electronegativities", given.native, (sets, count), copy=True)
        self.vectors = Vectors(core, sets, count)
        self.charges = self.vectors.take("of charges")
        self.stiff = self.upload(self.stiffness)
        self.operator = Operator(core, self.x, check=True)

    def upload(self, array: np.ndarray) -> Any:
        """Return numbers of the host where the core works, in its type."""
        return self.core.backend.upload(np.asarray(array, self.core.dtype, order="C"))

    def equilibrate(self, guess: Any = None) -> Solution:
        """Write charges of least energy."""
        core, count, vectors = self.core, self.x.count, self.vectors
        start = np.zeros((vectors.sets, count))
        if guess is not None:
            start = numbers(guess, count, "guess").reshape(-1, count)
            if start.shape[0] != vectors.sets:
                raise ValueError(f"guess has {start.shape[0]} sets; {vectors.sets} are needed.")
        softness = 1 / self.stiffness
        share = (self.totals - start.sum(1))[:, None] * softness / softness.sum()
        start += share
        core.backend.copy(self.charges, self.upload(start))
        right = vectors.take("of electronegativities")
        core.backend.clear(right)
        vectors.add(right, self.chi, -1.0)
        # With equal electronegativities the right side is nothing but rounding.
        fair = self.totals[:, None] * softness / softness.sum()
        return self.solve(right, self.charges, guessed=True, least=(self.stiffness * fair**2).sum(1))

    def solve(self, right: Any, x: Any, *, guessed: bool, least: Any = 0.0) -> Solution:
        """Solve the equations of charges whose sum stays; the right side becomes residuals."""
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
            inverse=1 / float(weights.sum()), least=least, indefinite=_NO_MINIMUM, repair=repair,
        )  # fmt: skip

    def of_widths(self, q: Any, *, slopes: bool = False) -> Any:
        """Return sums that Gaussians add to those of points (N, columns): see `damping.widths`."""
        core, count = self.core, self.x.count
        squares = self.upload(self.squares[:, None])
        rows = joined(core, count, len(q) + 1, q.T, squares)
        return near_sums(core, self.x, self.reach, damping.widths(len(q), slopes), rows)

    def energies(self, charges: Any, virial: bool) -> dict[str, Any]:
        """Return energies and their derivatives for any charges (sets, N); totals are on the host."""
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
                terms = Vectors(core, 9, count)
                columns = terms.take("of virials")
                core.backend.clear(columns)
                terms.add_columns(columns, sums, c, first=4)
                whole[k] += terms.total(columns).reshape(3, 3)
        energy = vectors.total(out["energies"])
        if not np.isfinite(energy).all():
            raise ValueError("the energy is not finite: numbers are too large, or particles too near each other.")
        return out | dict(energy=energy, virial=np.array(whole) if virial else None)

    def of_user(self, out: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return arrays of the user's kind for those of `energies`, and others."""
        totals = {n: None if out[n] is None else self.upload(out[n]) for n in ("energy", "virial")}
        natives, like = out | totals | more, self.taken["charges"]
        return {n: None if a is None else user_array(self.core, like, a, self.batch) for n, a in natives.items()}

    def result(self, out: dict[str, Any], solution: Solution) -> EquilibrationResult:
        """Return the user's arrays."""
        given = self.of_user(out, charges=self.charges)
        return EquilibrationResult(**given, iterations=solution.iterations, residual=solution.residual)

    def response(self, slope: Any, virial: bool) -> tuple[dict[str, Any], Any]:
        """Return derivatives of ``z . dE / dq`` and z, as for induced dipoles; z sums to zero."""
        right, z = self.vectors.take("of slopes"), self.vectors.take("of responses")
        self.core.backend.clear(right)
        self.vectors.add(right, slope, -1.0)
        self.solve(right, z, guessed=False)
        return central(self.vectors, self.charges, z, lambda q: self.energies(q, virial)), z
