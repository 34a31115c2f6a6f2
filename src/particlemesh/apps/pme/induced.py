# SPDX-License-Identifier: BSD-3-Clause
"""Induced dipoles of polarizable particles, by conjugate gradients at fixed positions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme import close, damping
from particlemesh.apps.pme.core import native
from particlemesh.apps.pme.dipoles import DipoleResult
from particlemesh.apps.pme.operators import Equations, Operator, Step, joined, near_sums, numbers, virial_of
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.vectors import Solution, Vectors
from particlemesh.kernels import alone, checks


def _catastrophe(thole: float | None, constant: float) -> str:
    """Return what is wrong if the energy has no minimum, and what to do."""
    unit = f" They are volumes divided by coulomb_constant, {constant:g}." if constant != 1 else ""
    damped = "" if thole else "thole (0.39 or 0.572, for example), "
    return (
        "the energy has no minimum: dipoles of near particles would grow without limit (polarization catastrophe). "
        f"Give {damped}smaller polarizabilities, or move particles apart.{unit}"
    )


@dataclass(repr=False)
class InducedResult(DipoleResult):
    """What charges, permanent dipoles and induced ones get.

    Parameters
    ----------
    energy, energies, forces, virial : array (...), (..., N), (..., N, 3), (..., 3, 3)
        As for :class:`DipoleResult`. The energy includes ``induced**2 / (2 polarizability)``, which it takes to induce
        dipoles. Since it is least for these dipoles, forces and virial are those at fixed dipoles.
    potentials : array (..., N)
        Derivative of the energy by a charge.
    fields : array (..., N, 3)
        Minus the derivative of the energy by a permanent dipole.
    torques : array (..., N, 3)
        Permanent dipole times field.
    induced : array (..., N, 3)
        Induced dipoles.
    iterations : int
        Applications of the mesh and sums over pairs that they took, the most of all sets.
    residual : float
        What is left of the equations, relative to the field of the permanent moments; below the tolerance.

    Examples
    --------
    An atom in a cubic box of volume V, polarizability 1, in a field of 1, has the dipole ``1 / (1 - 4 pi / (3 V))``:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME, InducedDipoles
    >>> pme = PME((4.0, 4.0, 4.0), accuracy=1e-5)
    >>> result = InducedDipoles(pme, 1e-8)(np.full((1, 3), 2.0), np.zeros(1), 1.0, field=[1.0, 0.0, 0.0])
    >>> round(float(result.induced[0, 0]), 4), round(1 / (1 - 4 * np.pi / (3 * 64)), 4)
    (1.07, 1.07)
    """

    induced: Any = None
    iterations: int = 0
    residual: float = 0.0


class InducedDipoles(Equations):
    r"""Dipoles that fields induce in polarizable particles: ``induced = polarizability * field``.

    The field is that of charges, permanent dipoles, all other induced dipoles and all images. The dipoles minimise the
    energy

    .. math::

       E(\mu) = E_\text{PME}(q, m + \mu) + \sum_i \frac{\mu_i^2}{2 \alpha_i} + E_\text{Thole} - F \sum_i (m_i + \mu_i)

    by conjugate gradients with the polarizabilities as preconditioner. Positions stay during the iterations. So the
    mesh is prepared once, and each iteration applies it once.

    With `thole`, near particles are damped as in AMOEBA [thole1981]_ [ren2003]_. With ``w = thole * r**3 /
    sqrt(alpha_i * alpha_j)`` the field of a charge at an induced dipole is multiplied by ``1 - exp(-w)``. The two terms
    of a dipole's field are multiplied by this, and by ``1 - (1 + w) exp(-w)``. Here alpha are volumes: polarizabilities
    times Coulomb's constant.

    The `exclusions` and `factors` of the PME hold for charges and permanent dipoles, and for their field at induced
    dipoles. Induced dipoles feel each other at any distance, as is usual: give `thole` for bonds.

    Parameters
    ----------
    pme : PME
        Its box, accuracy, other parameters, Coulomb constant and exclusions. The split is by Gaussians, unless given.
    tolerance : float
        Of the residual, relative to the field of charges and permanent dipoles; both are weighted by polarizabilities.
    thole : float, optional
        The factor a of the damping; 0.39 in AMOEBA. By default dipoles are points.
    iterations : int
        At most.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    Two polarizable atoms in line with a field have ``2 alpha F / (1 - 2 alpha / r**3)`` in free space
    [silberstein1917]_:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME, InducedDipoles
    >>> pme = PME((30.0,) * 3, cutoff=6.0, splitting=0.9, shape=(64,) * 3, window="bspline8")
    >>> atoms = np.array([[14.0, 15.0, 15.0], [16.0, 15.0, 15.0]])
    >>> result = InducedDipoles(pme, 1e-8)(atoms, np.zeros(2), 1.0, field=[1.0, 0.0, 0.0])
    >>> round(float(result.induced[:, 0].sum()), 2), round(2 / (1 - 2 / 2**3), 2)
    (2.67, 2.67)
    """

    _differentiable = "induced_dipoles"

    def __init__(self, pme: PME, tolerance: float = 1e-6, *, thole: float | None = None, iterations: int = 100) -> None:
        super().__init__(pme, tolerance, iterations)
        self.thole = None if thole is None else checks.positive(thole, "thole")
        self._arguments |= dict(thole=self.thole)
        self._pme._choose_for_dipoles()

    def _step(self, **given: Any) -> Step:
        return _Step(self, **given)

    @alone
    def __call__(
        self, positions: Any, charges: Any, polarizabilities: Any, *, dipoles: Any = None, field: Any = None,
        guess: Any = None, virial: bool = True,
    ) -> InducedResult:  # fmt: skip
        """Return induced dipoles, energy, forces and virial.

        Parameters
        ----------
        positions : array (N, 3), or tuple of 3 arrays (N,)
        charges : array (..., N)
            Leading axes are sets at the same positions, which are solved together. An iteration makes one pass over the
            mesh for all sets, and one over pairs for six. Each set stops by itself.
        polarizabilities : array (N,) or float
            Volumes (length**3) where Coulomb's constant is 1, else these over the constant: ``induced = polarizability
            * field``, with the field in units of energy per charge and length. Particles with 0 have no induced dipole.
        dipoles : array (N, 3) or (..., N, 3), optional
            Permanent ones, of all sets or of each.
        field : array (3,), (N, 3) or (..., N, 3), optional
            Of the outside, at permanent and induced dipoles. Charges do not feel it: their energy is not periodic.
        guess : array (..., N, 3), optional
            Induced dipoles to start from, as those of an earlier time step.
        virial : bool
            Whether the result has a virial.

        Returns
        -------
        InducedResult
            Arrays of the library, device and type of the charges; the energy is a number on the CPU.

        Raises
        ------
        ValueError
            If a number is not finite, shapes do not fit, a polarizability is negative, or particles lie in one place.
            If iterations find that the energy has no minimum, which is known as polarization catastrophe. Without any
            field they look for it with a random one.
        RuntimeError
            If the residual of the dipoles is larger than the tolerance after all iterations, or no longer falls.
        """
        given = dict(charges=charges, polarizabilities=polarizabilities, dipoles=dipoles, field=field)
        return self._solved(guess, virial, positions=positions, **given)


class _Step(Step):
    """One set of positions and polarizabilities, with sets of charges, permanent dipoles and fields."""

    kind, name, sets = InducedResult, "induced", True

    def __init__(
        self, model: InducedDipoles, positions: Any, charges: Any, polarizabilities: Any, dipoles: Any, field: Any
    ) -> None:  # fmt: skip
        more = {} if dipoles is None else {"dipoles": dipoles}
        super().__init__(model, positions, charges=charges, **more)
        self.thole, count = model.thole, self.x.count
        self.alpha, self.row = numbers(polarizabilities, count, "polarizabilities", 0.0), (count, 3)
        self.batch, whole = self.like.batch, (*self.like.batch, count, 3)
        if 0 in self.batch:
            raise ValueError(f"charges have shape {self.like.user.shape}; give at least one set.")
        for operand in self.taken.values():
            if operand.batch not in ((), self.batch):
                raise ValueError(f"dipoles have shape {operand.user.shape}; {(count, 3)} or {whole} is needed.")
        outside = np.zeros(3) if field is None else np.asarray(kernels.to_host(field, "field"), np.float64)
        if outside.shape not in ((3,), (count, 3), whole):
            allowed = " or ".join(dict.fromkeys(map(str, ((3,), (count, 3), whole))))
            raise ValueError(f"field has shape {outside.shape}; {allowed} is needed.")
        if not np.isfinite(outside).all():
            raise ValueError("field is not finite; give finite numbers.")
        self.outside = np.broadcast_to(outside, whole).reshape(math.prod(self.batch), count, 3)

    def prepare(self) -> None:
        self.take_core(self.like.native)
        core, count, sets = self.core, self.x.count, len(self.outside)
        self.unit = core.constant
        self.q = core.dense("charges", self.like.native, (sets, count), copy=True)
        self.permanent = self.upload(np.zeros((sets, count, 3)))
        if "dipoles" in self.taken:
            given = self.taken["dipoles"]
            rows = core.dense("dipoles", given.native, (math.prod(given.batch), count, 3), copy=True)
            for c in range(sets):
                core.backend.copy(self.permanent[c], rows[min(c, len(rows) - 1)])
        self.vectors, self.scalars = Vectors(core, sets, 3 * count), Vectors(core, 1, count)
        self.one = Vectors(core, 1, 3 * count)  # vectors of one set
        self.unknown = self.vectors.take("of induced dipoles").reshape(sets, count, 3)
        self.field = self.upload(self.outside)
        self.reach, volumes = 0.0, np.zeros(count)  # 0: listed pairs are not damped, either
        if self.thole is not None and count:
            volumes = self.alpha * core.constant
            self.reach = damping.reach_of_thole(self.thole, float(volumes.max()), core.dtype)
        self.root = self.upload(np.sqrt(volumes)[:, None])

    # ---- equations ------------------------------------------------------------------------------------

    def solve_from(self, guess: Any) -> Solution:
        # The field is that of charges, permanent dipoles and the outside.
        core, count = self.core, self.x.count
        right = self.vectors.take("of fields")
        core.backend.clear(right)
        self.vectors.add(right, self.field.reshape(right.shape), 1 / core.constant)
        core.backend.clear(self.unknown)
        charged: Any = None
        if "dipoles" not in self.taken:
            charged = self.pme(native(self.x), self.q, virial=False, fields=True)
        for c in range(len(right)):
            q, permanent = (self.of_set(a, c) for a in (self.q, self.permanent))
            start: Any = charged or self.pme(native(self.x), q, dipoles=permanent, virial=False)
            fields = self.of_result(start.fields[c] if charged else start.fields)
            self.one.add(right[c : c + 1], fields.reshape(1, -1), 1 / core.constant)
            if self.reach:
                extra = self.extra(q, permanent, self.unknown[0])
                self.one.add_columns(right[c : c + 1], extra, -1.0, columns=3, first=damping.INDUCED)
        if guess is not None:
            if not np.isfinite(kernels.to_host(guess, "guess")).all():
                raise ValueError("guess is not finite; give finite numbers.")
            given = kernels.take(guess, (count, 3), "guess", like=self.like)
            if given.batch != self.like.batch:
                raise ValueError(f"guess has shape {given.user.shape}; {(*self.like.batch, count, 3)} is needed.")
            core.backend.copy(self.unknown.reshape(given.native.shape), given.native)
            flat = self.unknown.reshape(right.shape)
            self.vectors.scale(flat, self.upload(np.repeat(self.alpha > 0, 3)), flat)  # the others have none
        return self.solve(right, self.unknown, guessed=guess is not None, probe=True)

    def of_result(self, array: Any) -> Any:
        """Return a result of the PME as a dense native array."""
        return array if self.core.on_gpu else np.ascontiguousarray(array)

    def of_set(self, array: Any, c: int) -> Any:
        """Return the numbers of a set as a dense native array, which begins its memory."""
        if not (c and self.core.on_gpu):
            return array[c]
        row = self.upload(np.zeros(array.shape[1:]))
        self.core.backend.copy(row, array[c])
        return row

    def solve(self, right: Any, x: Any, *, guessed: bool = False, probe: bool = False) -> Solution:
        core, count, model = self.core, self.x.count, self.model
        operator = Operator(core, self.x, check=False)
        polarizable = self.alpha > 0
        stiffness = np.divide(1, self.alpha, out=np.zeros(count), where=polarizable) / core.constant
        weights = self.upload(np.repeat(self.alpha * core.constant, 3))
        stiff = self.upload(np.repeat(stiffness, 3))

        def operate(p: Any, image: Any) -> None:
            self.vectors.scale(image, stiff, p)
            operator.dipoles(p, self.vectors, image, self.thole, self.root, self.reach)

        return self.vectors.solve(
            operate, right, x.reshape(right.shape), weights, guessed=guessed, tolerance=model.tolerance,
            most=model.iterations, indefinite=_catastrophe(self.thole, core.constant), probe=probe,
        )  # fmt: skip

    def extra(self, q: Any, permanent: Any, induced: Any) -> Any:
        """Return the columns of `damping.moments` for all particles of a set, without Coulomb's constant."""
        core, a, count, near = self.core, self.thole or 1.0, self.x.count, close.reach(self.core)

        rows = joined(core, count, damping.VALUES, q.reshape(-1, 1), permanent, induced, self.root)
        reach = max(self.reach, near) if len(core.exclusions) else self.reach
        function = close.function(
            core, ("moments", a), count, functools.partial(damping.moments, a), damping.AT + close.HEAD
        )
        sums = near_sums(core, self.x, reach, function, rows)
        if len(core.exclusions):
            core.exclusions.add(core, self.x, damping.listed(a, near), rows, sums)
        return sums

    def slopes(self, induced: Any, virial: bool) -> dict[str, Any]:
        """As described there.

        ``stretch`` is the derivative by the logarithms of polarizabilities at fixed dipoles, without that of the energy
        that it takes to induce dipoles. ``acting`` is the field at induced dipoles.
        """
        given = self.q, self.permanent, self.field, induced
        sets = [self._slopes(virial, *(self.of_set(a, c) for a in given)) for c in range(len(induced))]
        return {name: self._stacked([one[name] for one in sets]) for name in sets[0]}

    def _stacked(self, rows: list[Any]) -> Any:
        """Return one array of those of all sets."""
        if rows[0] is None or isinstance(rows[0], (float, np.ndarray)):  # of the CPU, or a total
            return None if rows[0] is None else np.stack(rows)
        whole = self.upload(np.zeros((len(rows), *rows[0].shape)))
        for target, row in zip(whole, rows, strict=True):
            self.core.backend.copy(target, row)
        return whole

    def _slopes(self, virial: bool, q: Any, permanent: Any, field: Any, induced: Any) -> dict[str, Any]:
        """Return these of one set."""
        core, c, count, scalars, vectors = self.core, self.core.constant, self.x.count, self.scalars, self.one
        total = self.upload(np.zeros((count, 3)))
        for part in (permanent, induced):
            vectors.add(total, part)
        result: Any = self.pme(native(self.x), q, dipoles=total, virial=virial)
        names = ("energies", "forces", "potentials", "fields")
        out = {name: self.of_result(getattr(result, name)) for name in names}
        stretch, acting = self.upload(np.zeros(count)), self.upload(np.zeros((count, 3)))
        stiff = self.upload(np.repeat(np.divide(1, self.alpha, out=np.zeros(count), where=self.alpha > 0), 3))
        strained = vectors.take("of strained dipoles")
        vectors.scale(strained, stiff, induced.reshape(1, -1))
        scalars.dots(out["energies"], induced, strained.reshape(count, 3), 0.5)
        scalars.dots(out["energies"], total, field, -1.0)
        vectors.add(out["fields"], field)
        vectors.add(acting, out["fields"])
        whole = self.core.backend.download(result.virial).astype(np.float64) if virial else None
        if self.reach or len(core.exclusions.pairs):
            extra = self.extra(q, permanent, induced)
            scalars.add_columns(out["energies"], extra, c)
            scalars.add_columns(out["potentials"], extra, c, first=damping.POTENTIAL)
            scalars.add_columns(stretch, extra, -c / 2, first=damping.BY_W)
            vectors.add_columns(out["forces"], extra, c, columns=3, first=damping.FORCE)
            vectors.add_columns(out["fields"], extra, -c, columns=3, first=damping.PERMANENT)
            vectors.add_columns(acting, extra, -c, columns=3, first=damping.INDUCED)
            if virial:
                whole += virial_of(core, extra, damping.VIRIAL)
        energy = float(scalars.total(out["energies"].reshape(1, -1))[0])
        if not np.isfinite(energy):
            raise ValueError("the energy is not finite: numbers are too large, or particles too near each other.")
        torques = self.upload(np.zeros((count, 3)))
        vectors.cross(torques, permanent, out["fields"])
        return out | dict(energy=energy, virial=whole, stretch=stretch, torques=torques, acting=acting)
