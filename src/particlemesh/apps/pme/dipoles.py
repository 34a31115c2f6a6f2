# SPDX-License-Identifier: BSD-3-Clause
"""Point dipoles beside charges: energy, forces, fields and torques of a periodic system.

A particle with charge q and dipole mu acts by ``q + mu . grad`` wherever a charge acts by q. So the mesh takes
``spread(q) + spread_gradient(mu)`` and gives potential, gradient and second derivatives. Within the cutoff, derivatives
of ``1 / r`` minus its smooth part are summed over pairs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import close
from particlemesh.apps.pme.core import Core, word_of
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import NONE, Smooth, check_powers, with_derivatives
from particlemesh.kernels import Coordinates, Record, compile_kernel

_FILE = Path(__file__).with_name("dipoles.c")
_TERMS = 10  # energy and virial
COLUMNS = 7  # potential, its gradient (3), that of the gradient along the dipole (3)


def columns(virial: bool) -> int:
    """Return how many sums a particle has: with the nine of the virial, and particles in one place at last."""
    return COLUMNS + (9 if virial else 0) + 1


@dataclass(repr=False)
class DipoleResult(Result):
    """What charges and dipoles get.

    Parameters
    ----------
    energy, energies, forces : array (), (N,), (N, 3)
        As for :class:`Result`.
    virial : array (3, 3) or None
        Derivative of the energy by a strain, with which positions and lattice vectors x become ``x + strain @ x``
        while dipoles stay as they are. Row a belongs to the force along a. Its trace is minus the energy plus the sum
        of ``dipoles * fields``. Its antisymmetric part ``virial[a, b] - virial[b, a]`` is the sum over particles of
        ``fields[a] * dipoles[b] - fields[b] * dipoles[a]``. So the virial is symmetric where torques sum to zero.
    potentials : array (N,)
        Derivative of the energy by a charge.
    fields : array (N, 3)
        Minus the derivative of the energy by a dipole.
    torques : array (N, 3)
        Dipole times field.

    Examples
    --------
    A dipole of 1 in a cubic box of volume 1 has the field ``4 pi / 3``, and half of that as its energy:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME
    >>> pme = PME((1.0, 1.0, 1.0), accuracy=1e-5)
    >>> result = pme(np.full((1, 3), 0.5), np.zeros(1), dipoles=np.array([[1.0, 0.0, 0.0]]))
    >>> round(float(result.energy), 3), round(float(result.fields[0, 0]), 3), round(4 * np.pi / 3, 3)
    (-2.094, 4.189, 4.189)
    """

    torques: Any = None


class Dipoles:
    """Steps with dipoles: the grid, mesh and memory are those of charges.

    Parameters
    ----------
    core : Core
    """

    width = 4  # values of a particle

    def __init__(self, core: Core) -> None:
        check_powers(core.parameters.cutoff, 7, core.dtype)
        self.core = core
        self._smooth = with_derivatives(core.split, core.parameters.cutoff, core.dtype.itemsize == 4)
        self.listed = [pair_function(NONE, v, close.LISTED, close.numbers(close.reach(core))) for v in (False, True)]
        self.factors = core.constant, core.split.mesh, core.split.itself, core.split.at_zero(1)

    def take(self, name: str, *shape: int) -> Any:
        """Return memory of the core, which keeps it."""
        return self.core.take(f"{name} of dipoles", math.prod(shape)).reshape(shape)

    def reserve(self, count: int, virial: bool) -> None:
        """Allocate for so many particles."""
        self.scratch(count, virial)
        if self.core.on_gpu:
            self.core.partial(1, count, _TERMS)

    def function(self, count: int, virial: bool) -> pm.PairFunction:
        """Return the pair function of sums over neighbours."""
        made = functools.partial(pair_function, self._smooth, virial)
        return close.function(self.core, ("dipoles", virial), count, made, size_of(self._smooth))

    def scratch(self, count: int, virial: bool) -> dict[str, Any]:
        """Return memory for a step, by name."""
        nodes = self.core.nodes
        shapes: dict[str, tuple[int, ...]] = {
            "values": (count, 4), "sums": (count, columns(virial)), "density": nodes, "field": nodes,
            "potential": (count,), "gradient": (count, 3), "hessian": (count, 3, 3), "virial": (3, 3),
        }  # fmt: skip
        return {name: self.take(name, *shape) for name, shape in shapes.items()}

    # ---- as a core ------------------------------------------------------------------------------------

    def shapes(self, count: int, virial: bool, fields: bool = True) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a result's arrays, by name."""
        return {**self.core.shapes(count, virial, True), "torques": (count, 3)}

    def step(self, x: Coordinates, given: Any, out: dict[str, Any], check: bool) -> None:
        """Write the outputs for dense charges (1, N) and dipoles (1, N, 3); both halves at once, as for charges."""
        core, q, mu, virial = self.core, given[0][0], given[1][0], "virial" in out
        core.backend.clear(core.status)
        scratch = self.scratch(x.count, virial)
        mesh = [scratch[name] for name in ("potential", "gradient", "hessian", "virial")]
        if not virial:
            mesh[3] = None
        smooth = functools.partial(self._smooth_half, x, q, mu, scratch["density"], scratch["field"], mesh, check)
        with core.beside(smooth):
            core.build(x, check)
            values, sums = scratch["values"], self._sharp_half(x, q, mu, scratch["values"], scratch["sums"])
        core.sums = sums
        with core.checking("results of a step"):
            (self._assemble if core.on_gpu else self._assemble_on_cpu)(values, sums, mesh, out)

    def _smooth_half(
        self, x: Coordinates, q: Any, mu: Any, density: Any, field: Any, mesh: list[Any], check: bool
    ) -> None:
        """Write potential, gradient, second derivatives and virial; memory of the other half is not written."""
        self.core.place(x, check)
        solver = self.core.solver
        solver.plan.spread(q, out=density)
        solver.plan.spread_gradient(mu, out=density, accumulate=True)
        if mesh[3] is None:
            self.core.of_mesh("potential_field", density, field)
        else:
            self.core.of_mesh("potential_field_virial", density, field, mesh[3])
        solver.plan.value_gradient_hessian(field, out=tuple(mesh[:3]))

    def _sharp_half(self, x: Coordinates, q: Any, mu: Any, values: Any, sums: Any) -> Any:
        """Write charges and dipoles (N, 4), and return their sums over neighbours (N, 8 or 17)."""
        core, count, virial = self.core, x.count, sums.shape[1] > columns(False)
        if core.on_gpu:
            self._kernel("pack", virial)(count, q, mu, values, core.status, count, core.at(q), core.at(mu))
        else:
            values[:, 0], values[:, 1:] = q, mu
        core.stream(self.function(count, virial), values, sums)
        if len(core.exclusions):
            core.add_pairs(x, self.listed[virial], values, sums)
        return sums

    def _assemble(self, values: Any, sums: Any, mesh: list[Any], out: dict[str, Any]) -> None:
        """Write the outputs by kernels."""
        core, count, virial = self.core, len(values), "virial" in out
        partial, shares = core.partial(1, count, _TERMS)
        natives = [out[name] for name in ("energies", "forces", "potentials", "fields", "torques")]
        self._kernel("assemble", virial)(
            shares * core.backend.group_size, values, sums, *mesh[:3], *natives, partial, count, shares,
            Record("=5q", *map(core.at, natives)), core.record(*self.factors),
        )  # fmt: skip
        core.totals(partial, mesh[3], out, 1, shares, 3 + (_TERMS if virial else 1))

    def _assemble_on_cpu(self, values: Any, sums: Any, mesh: list[Any], out: dict[str, Any]) -> None:
        """Do what the kernel ``assemble`` does."""
        core, (c, four_pi, itself, twist), (potential, gradient, hessian, of_mesh) = self.core, self.factors, mesh
        q, mu = values[:, 0], values[:, 1:]
        slope = sums[:, 1:4] + four_pi * gradient
        turned = four_pi * (hessian @ mu[:, :, None])[:, :, 0]
        phi, field = c * (sums[:, 0] + four_pi * potential - itself * q), c * (twist * mu - slope)
        out["potentials"][0], out["fields"][0], out["torques"][0] = phi, field, np.cross(mu, field)
        out["forces"][0] = -c * (q[:, None] * slope + sums[:, 4:7] + turned)
        out["energies"][0] = (q * phi - (mu * field).sum(1)) / 2
        out["energy"][0] = out["energies"][0].sum(dtype=np.float64)
        if of_mesh is not None:
            # Dipoles stay while the mesh is strained: their part of its slope does not.
            turns = of_mesh - np.einsum("ia,ib->ab", gradient, mu, dtype=np.float64)
            out["virial"][0] = c * (sums[:, COLUMNS:-1].sum(0, dtype=np.float64).reshape(3, 3) / 2 + four_pi * turns)
        core.status[0] = bool((sums[:, -1] > 0).any())
        if not np.isfinite(out["energy"]).all():
            wrong = ~np.isfinite(q), ~np.isfinite(mu).all(1)
            core.status[1], core.status[3:5] = word_of(np.ones(1, bool)), [word_of(w) for w in wrong]

    def _kernel(self, name: str, virial: bool) -> Any:
        return compile_kernel(self.core.backend, _FILE, name, self.core.dtype, VIRIAL=int(virial))


# ---- the pair function -----------------------------------------------------------------------------


def pair_function(
    smooth: Smooth, virial: bool = False, kind: int = close.FREE, numbers: tuple[float, ...] = close.ALL
) -> pm.PairFunction:
    """Return the pair function of charges and dipoles, of four values each, for ``1 / r`` minus a smooth part.

    ``kind`` and ``numbers`` say how it leaves out close pairs (`close`).
    """
    width, terms = columns(virial), smooth.coefficients.shape[1]
    source = _SOURCE.replace("LAST", str(width - 1)).replace("VIRIAL", _VIRIAL if virial else "")
    source = source.replace("FACTORS", factors_text(smooth, head="")).replace("WHOLE", close.text(kind, _CLOSE))
    return pm.PairFunction(source, _function(width, terms, kind), width, 4, parameters_of(smooth, numbers))


# Compiled code knows the places of parameters, so those come last whose number follows from a splitting: the
# polynomials, and the table of `close`. A user tries many splittings, and one compilation serves them all.
_CLOSE = 7  # the first number of `close`, after scale, 1, an end, value and slope in one place, 3 and 5
MORE = _CLOSE + close.HEAD  # the first of further parameters, then of the polynomials


def parameters_of(smooth: Smooth, numbers: Sequence[float] = close.ALL, *more: float) -> tuple[float, ...]:
    """Return the parameters of pair functions that take `factors`, with further ones from `MORE` on."""
    value, slope = map(float, smooth(0.0))
    first, rows = smooth.parameters()[:3], smooth.parameters()[3:]
    return *first, value, -2 * slope, 3.0, 5.0, *numbers[: close.HEAD], *more, *rows, *numbers[close.HEAD :]


def size_of(smooth: Smooth) -> int:
    """Return how many these are without further ones and table."""
    return MORE + smooth.coefficients.size + len(smooth.coefficients)


def factors_text(smooth: Smooth, rows: int = MORE, head: str = close.text(close.FREE, _CLOSE)) -> str:
    """Return C that defines p0 to p3, and s0 to s3 of a smooth part, whose polynomials begin at ``rows``.

    The head defines ``whole``; without it, this is defined before.
    """
    return head + _FACTORS.replace("TERMS", str(smooth.coefficients.shape[1])).replace("ROWS", str(rows))


# p0 to p3: what is left of ``1 / r``, and the factors of its derivatives, each ``-2 d / d(r**2)`` of the one before.
# s0 to s3 are those of the smooth part. t0 to t3 are this and its derivatives by t, over 1, 1, 2 and 6.
_FACTORS = """
const real t = r2 * p[0];
const i64 at = ROWS + (TERMS + 1) * (i64)(t < p[2] ? t : p[2]);
const real s = t - p[at + TERMS], turn_of_t = -2 * p[0];
real t0 = p[at + TERMS - 1], t1 = 0, t2 = 0, t3 = 0;
for (int n = TERMS - 2; n >= 0; n--) {
    t3 = t3 * s + t2;
    t2 = t2 * s + t1;
    t1 = t1 * s + t0;
    t0 = t0 * s + p[at + n];
}
const real inverse = whole != 0 ? (real)1 / r2 : (real)0, p0 = whole * sqrt(inverse), p1 = p0 * inverse;
const real p2 = 3 * p1 * inverse, p3 = 5 * p2 * inverse, s0 = t0, s1 = turn_of_t * t1;
const real s2 = 2 * turn_of_t * turn_of_t * t2, s3 = 6 * turn_of_t * turn_of_t * turn_of_t * t3;
"""
# Particles in one place have minus the smooth part, so that an excluded pair loses what the mesh has of it.
_SOURCE = """
WHOLE
if (!(r2 > 0)) {
    sum[LAST] += (real)(whole != 0);
    sum[0] -= b[0] * p[3];
    for (int n = 0; n < 3; n++) {
        sum[1 + n] -= b[1 + n] * p[4];
        sum[4 + n] += a[1 + n] * b[0] * p[4];
    }
    return;
}
FACTORS
const real b0 = p0 - s0, b1 = p1 - s1, b2 = p2 - s2, b3 = p3 - s3;
real along_j = 0, along_i = 0, both = 0;
for (int n = 0; n < 3; n++) {
    along_j += b[1 + n] * d[n];
    along_i += a[1 + n] * d[n];
    both += a[1 + n] * b[1 + n];
}
sum[0] += b[0] * b0 - along_j * b1;
const real along = b[0] * b1 - along_j * b2, second = b[0] * along_i * b2 - along_j * along_i * b3 + both * b2;
for (int n = 0; n < 3; n++) {
    const real slope = along * d[n] + b1 * b[1 + n];
    const real turn = second * d[n] + along_i * b2 * b[1 + n] - along * a[1 + n];
    sum[1 + n] += slope;
    sum[4 + n] += turn;
    VIRIAL
}
"""
# The derivative of the pair's energy by d, times d.
_VIRIAL = "for (int m = 0; m < 3; m++) sum[7 + 3 * n + m] -= (a[0] * slope + turn) * d[m];"


@functools.cache
def factors(terms: int, kind: int = close.FREE, rows: int = MORE) -> Callable[..., Any]:
    """Return the compiled function ``(r2, i, j, p)`` of p0 to p3 and s0 to s3, as in C.

    Polynomials have so many terms, and begin at ``rows`` among the parameters.
    """
    of_pair = close.compiled(kind, _CLOSE)

    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def both_parts(r2, i, j, p):
        t = r2 * p[0]
        at = rows + (terms + 1) * int(min(t, p[2]))
        s = t - p[at + terms]
        t0 = p[at + terms - 1]
        t1 = t2 = t3 = t0 - t0
        for n in range(terms - 2, -1, -1):
            t3 = t3 * s + t2
            t2 = t2 * s + t1
            t1 = t1 * s + t0
            t0 = t0 * s + p[at + n]
        turn_of_t, three = -(p[0] + p[0]), p[5]
        whole = of_pair(r2, i, j, p)
        inverse = p[1] / r2 if whole != 0 else r2 - r2
        p0 = whole * np.sqrt(inverse)
        p1 = p0 * inverse
        p2 = three * p1 * inverse
        square = turn_of_t * turn_of_t
        s3 = (three + three) * square * turn_of_t * t3
        return p0, p1, p2, p[6] * p2 * inverse, t0, turn_of_t * t1, (square + square) * t2, s3

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(both_parts)


@functools.cache
def _function(width: int, terms: int, kind: int) -> Callable[..., None]:
    last, of_pair, whole = width - 1, factors(terms, kind), close.compiled(kind, _CLOSE)

    def dipole_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        if r2 <= 0:
            if whole(r2, i, j, p) != 0:
                sum[last] += p[1]
            sum[0] -= b[0] * p[3]
            for n in range(3):
                sum[1 + n] -= b[1 + n] * p[4]
                sum[4 + n] += a[1 + n] * b[0] * p[4]
            return
        p0, p1, p2, p3, s0, s1, s2, s3 = of_pair(r2, i, j, p)
        b0, b1, b2, b3 = p0 - s0, p1 - s1, p2 - s2, p3 - s3
        along_j = b[1] * d[0] + b[2] * d[1] + b[3] * d[2]
        along_i = a[1] * d[0] + a[2] * d[1] + a[3] * d[2]
        both = a[1] * b[1] + a[2] * b[2] + a[3] * b[3]
        sum[0] += b[0] * b0 - along_j * b1
        along = b[0] * b1 - along_j * b2
        second = b[0] * along_i * b2 - along_j * along_i * b3 + both * b2
        for n in range(3):
            slope = along * d[n] + b1 * b[1 + n]
            turn = second * d[n] + along_i * b2 * b[1 + n] - along * a[1 + n]
            sum[1 + n] += slope
            sum[4 + n] += turn
            if last > 7:
                for m in range(3):
                    sum[7 + 3 * n + m] -= (a[0] * slope + turn) * d[m]

    return dipole_pair


def slopes_of(
    head: str, of_pair: Callable[..., Any], sets: int, values: int, parameters: Sequence[float]
) -> pm.PairFunction:  # fmt: skip
    """Return the pair function of slopes of potentials of sets of dipoles, the first values.

    Parameters
    ----------
    head : str
        C that defines c1 and c2, the factors of the dipole and of its part along d.
    of_pair : callable
        Compiled: ``(r2, i, j, a, b, p)`` returns these.
    """
    source = f"""
{head}
for (int k = 0; k < {3 * sets}; k += 3) {{
    const real along = (b[k] * d[0] + b[k + 1] * d[1] + b[k + 2] * d[2]) * c2;
    for (int n = 0; n < 3; n++) sum[k + n] += c1 * b[k + n] - along * d[n];
}}
"""
    return pm.PairFunction(source, _slopes(of_pair, 3 * sets), 3 * sets, values, parameters)


@functools.cache
def _slopes(of_pair: Callable[..., Any], results: int) -> Callable[..., None]:
    def slopes_of_dipole(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        c1, c2 = of_pair(r2, i, j, a, b, p)
        for k in range(0, results, 3):
            along = (b[k] * d[0] + b[k + 1] * d[1] + b[k + 2] * d[2]) * c2
            for n in range(3):
                sum[k + n] += c1 * b[k + n] - along * d[n]

    return slopes_of_dipole
