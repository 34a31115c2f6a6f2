# SPDX-License-Identifier: BSD-3-Clause
"""Point dipoles beside charges: energy, forces, fields and torques of a periodic system.

A particle with charge q and dipole mu acts by ``q + mu . grad`` wherever a charge acts by q. So the mesh takes
``spread(q) + spread_gradient(mu)`` and gives potential, gradient and second derivatives. Within the cutoff, the
derivatives of ``erfc(alpha r) / r`` are sums over pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.natives import Natives, check_finite
from particlemesh.apps.pme.result import Result
from particlemesh.fourier import Transform

_COLUMNS = 8  # potential, its gradient (3), that of the gradient along the dipole (3), particles in one place


@dataclass
class DipoleResult(Result):
    """What charges and dipoles get.

    Parameters
    ----------
    energy, energies, forces : array (), (N,), (N, 3)
        As for :class:`Result`.
    virial : None
        There is none with dipoles.
    potentials : array (N,)
        Derivative of the energy by a charge.
    fields : array (N, 3)
        Minus the derivative of the energy by a dipole.
    torques : array (N, 3)
        Dipole times field.
    """

    potentials: Any = None
    fields: Any = None
    torques: Any = None


def pair_function(alpha: float) -> pm.PairFunction:
    """Return the pair function of charges and dipoles, of four values each, for ``erfc(alpha r) / r``."""
    scale = 2 * alpha / math.sqrt(math.pi)
    steps = [scale, scale * 2 * alpha**2, scale * 4 * alpha**4]
    return pm.PairFunction(_SOURCE, _function, _COLUMNS, 4, (alpha, 1.0, 3.0, 5.0, *steps))


# b0 to b3: erfc(alpha r) / r, and the factors of its derivatives, each from the one before.
_SOURCE = """
if (!(r2 > 0)) { sum[7] += (real)1; return; }
const real inverse = (real)1 / r2, r = sqrt(r2), fade = exp(-p[0] * p[0] * r2);
const real b0 = erfc(p[0] * r) / r, b1 = (b0 + p[4] * fade) * inverse;
const real b2 = (3 * b1 + p[5] * fade) * inverse, b3 = (5 * b2 + p[6] * fade) * inverse;
real theirs = 0, own = 0, both = 0;
for (int n = 0; n < 3; n++) {
    theirs += b[1 + n] * d[n];
    own += a[1 + n] * d[n];
    both += a[1 + n] * b[1 + n];
}
sum[0] += b[0] * b0 - theirs * b1;
const real along = b[0] * b1 - theirs * b2, second = b[0] * own * b2 - theirs * own * b3 + both * b2;
for (int n = 0; n < 3; n++) {
    sum[1 + n] += along * d[n] + b1 * b[1 + n];
    sum[4 + n] += second * d[n] + own * b2 * b[1 + n] - along * a[1 + n];
}
"""


def _function(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    if r2 <= 0:
        sum[7] += p[1]
        return
    inverse, r, fade = p[1] / r2, np.sqrt(r2), np.exp(-p[0] * p[0] * r2)
    b0 = math.erfc(p[0] * r) / r
    b1 = (b0 + p[4] * fade) * inverse
    b2 = (p[2] * b1 + p[5] * fade) * inverse
    b3 = (p[3] * b2 + p[6] * fade) * inverse
    theirs = b[1] * d[0] + b[2] * d[1] + b[3] * d[2]
    own = a[1] * d[0] + a[2] * d[1] + a[3] * d[2]
    both = a[1] * b[1] + a[2] * b[2] + a[3] * b[3]
    sum[0] += b[0] * b0 - theirs * b1
    along = b[0] * b1 - theirs * b2
    second = b[0] * own * b2 - theirs * own * b3 + both * b2
    for n in range(3):
        sum[1 + n] += along * d[n] + b1 * b[1 + n]
        sum[4 + n] += second * d[n] + own * b2 * b[1 + n] - along * a[1 + n]


class Kept:
    """What steps with dipoles keep between calls: tables of the mesh and of the pair function.

    Parameters
    ----------
    core : Coulomb
        Whose mesh, memory and splitting they are.
    xp : module
        NumPy or CuPy.
    """

    def __init__(self, core: Any, xp: Any) -> None:
        solver, alpha = core.solver, core.parameters.splitting
        self._core, self.function = core, pair_function(alpha)
        self.transform = Transform(solver.mesh, solver.window, dtype=core.dtype.name)
        green = self.transform.green("ewald", alpha=alpha, zero=-1 / (4 * alpha**2), compensation="potential")
        self.green = xp.asarray(green * (4 * math.pi / solver.mesh.node_volume), core.dtype)

    def take(self, name: str, *shape: int) -> Any:
        """Return memory of the core, which keeps it."""
        return self._core.take(f"{name} of dipoles", math.prod(shape)).reshape(shape)

    def sums(self, values: Any) -> Any:
        """Return the sums over neighbours of charges and dipoles (N, 4)."""
        out = self.take("sums", len(values), _COLUMNS)
        return self._core.grid.stream(self._core.parameters.cutoff, self.function, values, out=out)

    def of_mesh(self, q: Any, mu: Any) -> tuple[Any, Any, Any]:
        """Return potential, gradient and second derivatives of the smooth part at the particles."""
        plan, count = self._core.solver.plan, len(q)
        density = self.take("density", *plan.mesh.field_shape)
        plan.spread(q, out=density)
        plan.spread_gradient(mu, out=density, accumulate=True)
        spectrum = self.transform.forward(density)
        spectrum *= self.green
        shapes = {"potential": (count,), "gradient": (count, 3), "hessian": (count, 3, 3)}
        out = tuple(self.take(name, *shape) for name, shape in shapes.items())
        phi, slope, hessian = plan.value_gradient_hessian(self.transform.inverse(spectrum), out=out)
        return phi, slope, hessian


def _exclude(pme: Any, particles: Natives, alpha: float, q: Any, mu: Any, sums: Any) -> None:
    """Add to the sums what pairs of charges and dipoles lose or gain by their factors: that of nearest images.

    Of an excluded pair in one place the sums have nothing and the mesh has the smooth part, whose limits are finite.
    """
    xp = particles.xp
    i, j, weights, d, place = pme.exclusions.vectors(particles, pme.box.matrix)
    r2, touches = (d**2).sum(1), place != 0
    inverse = 1 / xp.where(touches, 1, r2)
    b0 = xp.sqrt(inverse)
    b1 = b0 * inverse
    b2, b3 = 3 * b1 * inverse, 15 * b1 * inverse**2
    limit = 2 * alpha / math.sqrt(math.pi)
    b0, b1 = xp.where(touches, limit, b0), xp.where(touches, limit * 2 / 3 * alpha**2, b1)
    own, theirs = (mu[i] * d).sum(1), (mu[j] * d).sum(1)
    both, b = (mu[i] * mu[j]).sum(1), q[j]
    along, second = b * b1 - theirs * b2, b * own * b2 - theirs * own * b3 + both * b2
    rows = xp.zeros((len(i), _COLUMNS), particles.dtype)
    rows[:, 0] = b * b0 - theirs * b1
    rows[:, 1:4] = along[:, None] * d + b1[:, None] * mu[j]
    rows[:, 4:7] = second[:, None] * d + (own * b2)[:, None] * mu[j] - along[:, None] * mu[i]
    rows[:, 7] = touches
    # Pairs that are scaled and in one place have no finite interaction: they stay counted.
    rows *= xp.where(touches & (weights != -1), 0, weights)[:, None]
    rows[:, 7] = xp.where(place < 0, 1, rows[:, 7])
    xp.add.at(sums, i, rows)


def with_dipoles(pme: Any, positions: Any, charges: Any, dipoles: Any) -> DipoleResult:
    """Return energy, forces, fields and torques of charges and point dipoles.

    Parameters
    ----------
    pme : PME
        Its parameters suit charges. Dipoles need a finer mesh: give a smaller ``accuracy``.
    positions : array (N, 3)
    charges : array (N,)
    dipoles : array (N, 3)

    Returns
    -------
    DipoleResult

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, a number is not finite, or particles that are not excluded lie in one place.

    Examples
    --------
    Two dipoles in line in a large box attract each other with ``-2 mu mu / r**3``:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME
    >>> from particlemesh.apps.pme.dipoles import with_dipoles
    >>> pme = PME((24.0,) * 3, cutoff=6.0, splitting=0.9, shape=(64,) * 3, window="bspline8")
    >>> x, mu = np.array([[10.0, 12.0, 12.0], [11.0, 12.0, 12.0]]), np.array([[1.0, 0.0, 0.0]] * 2)
    >>> result = with_dipoles(pme, x, np.zeros(2), mu)
    >>> round(float(result.energy), 2), bool(np.allclose(result.torques, 0, atol=1e-6))
    (-2.0, True)
    """
    particles = Natives(positions)
    xp, x = particles.xp, particles.x
    with particles.scope():
        q, mu = particles.number(charges, "charges"), particles.number(dipoles, "dipoles", 3)
        if q.ndim != 1 or mu.ndim != 2:
            raise ValueError(
                f"charges have shape {q.shape} and dipoles {mu.shape}; dipoles need one set, "
                f"({particles.count},) and ({particles.count}, 3)."
            )
        check_finite(q, "charges")
        check_finite(mu, "dipoles", 0)
        core = pme.core(particles.count, particles.dtype, particles.backend)
        solver, alpha, c = core.solver, core.parameters.splitting, core.constant
        core.grid.build(x)
        solver.set_positions(x)
        if core.dipoles is None:
            core.dipoles = Kept(core, xp)
        kept: Kept = core.dipoles
        values = kept.take("values", len(q), 4)
        values[:, 0], values[:, 1:] = q, mu
        sums = kept.sums(values)
        if len(pme.exclusions):
            _exclude(pme, particles, alpha, q, mu, sums)
        if bool((sums[:, 7] > 0).any()):
            first = int(sums[:, 7].argmax())
            raise ValueError(f"particle {first} lies where another one lies: move one of them.")
        phi, slope, hessian = kept.of_mesh(q, mu)
        own = 2 * alpha / math.sqrt(math.pi)  # the smooth part of a particle's own potential
        potentials = c * (sums[:, 0] + phi - own * q)
        fields = c * (own * 2 / 3 * alpha**2 * mu - sums[:, 1:4] - slope)
        forces = q[:, None] * (-c * (sums[:, 1:4] + slope)) - c * (sums[:, 4:7] + (hessian @ mu[:, :, None])[:, :, 0])
        energies = (q * potentials - (mu * fields).sum(1)) / 2
        torques = xp.cross(mu, fields)
        if not bool(xp.isfinite(energies.sum())):
            raise ValueError("the energy is not finite: charges or dipoles are too large, or particles too near.")
        native = (energies.sum(), energies, forces, potentials, fields, torques)
        energy, energies, forces, *more = map(particles.wrap, native)
        return DipoleResult(energy, energies, forces, None, *more)
