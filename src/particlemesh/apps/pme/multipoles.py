# SPDX-License-Identifier: BSD-3-Clause
"""Charges, dipoles and quadrupoles, as points or Gaussians: energy, forces, fields and torques of periodic systems.

A particle acts by ``q + mu . grad + Q : grad grad / 2`` wherever a charge acts by q. These are ten moments. The mesh
spreads each as a charge, and multiplies by powers of ik (`Solver.moment_fields`). Within the cutoff, derivatives of
``1 / r`` minus its smooth part are summed over pairs.

Gaussians with standard deviations s have ``erf(r / sqrt(2 s_i**2 + 2 s_j**2)) / r`` instead of ``1 / r``. The mesh
knows nothing of this: beyond the cutoff they are points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.polynomial import Polynomial

import particlemesh as pm
from particlemesh.apps.pme import close
from particlemesh.apps.pme.core import FLOOR, Core, StepErrors, word_of
from particlemesh.apps.pme.dipoles import MORE, DipoleResult, parameters_of, size_of
from particlemesh.apps.pme.split import Smooth, check_powers, widest, with_derivatives
from particlemesh.kernels import Coordinates, Record, Unread, compile_kernel

_FILE, _TOTALS = (Path(__file__).with_name(name) for name in ("multipoles.c", "batch.c"))
_TERMS = 10  # energy and virial
_MARGIN = 8  # nodes along open axes, for 1e-12 of a force
MOMENTS, VALUES = 10, 11  # with the squared width
# Columns of sums: potential, its first (3) and second derivatives (6, upper triangle), force (3), slope of the energy
# by the squared width, virial (9), particles in one place.
FORCE, BY_WIDTH, VIRIAL, COLUMNS = 10, 13, 14, 24
UPPER = np.triu_indices(3)
SYMMETRIC = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])  # where elements of a matrix are in its upper triangle


@dataclass(repr=False)
class MultipoleResult(DipoleResult):
    """What charges, dipoles and quadrupoles get.

    Parameters
    ----------
    energy, energies, forces : array (), (N,), (N, 3)
        As for :class:`Result`.
    virial : array (3, 3) or None
        As for :class:`DipoleResult`: at fixed dipoles, quadrupoles and widths.
    potentials : array (N,)
        Derivative of the energy by a charge.
    fields : array (N, 3)
        Minus the derivative of the energy by a dipole.
    torques : array (N, 3)
        Minus the derivative of the energy by a rotation of the particle's dipole and quadrupole.
    field_gradients : array (N, 3, 3)
        Slopes of the field, symmetric: the energy of a quadrupole Q in it is ``-sum(Q * field_gradients) / 2``. So they
        are minus twice the derivative of the energy by Q.

    Examples
    --------
    The field of a charge of 1 along z at a distance of 1 has the slope -2 along z, and 1 across:

    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.apps.pme import PME
    >>> pme = PME((30.0,) * 3, cutoff=6.0, splitting=0.9, shape=(64,) * 3, window="bspline8")
    >>> x = np.array([[15.0, 15.0, 14.5], [15.0, 15.0, 15.5]])
    >>> result = pme(x, np.array([1.0, 0.0]), quadrupoles=np.zeros((2, 3, 3)))
    >>> result.field_gradients[1].diagonal().round(2).tolist()
    [1.0, 1.0, -2.0]
    """

    field_gradients: Any = None


class Multipoles:
    """Steps with multipoles, of one system or many: the grid, mesh and memory are those of charges.

    Parameters
    ----------
    core : Core
    """

    width = VALUES

    def __init__(self, core: Core) -> None:
        p, split = core.parameters, core.split
        check_powers(p.cutoff, 11, core.dtype)
        self.core, self.cutoff = core, p.cutoff
        self._smooth = with_derivatives(split, p.cutoff, core.dtype.itemsize == 4, 5)
        self.factors = core.constant, split.mesh, *map(split.at_zero, range(3))
        self.most = widest(p.cutoff, max(p.error, FLOOR[core.dtype]))
        if not all(core.box.periodic):  # what was captured with the other solver keeps it
            self._before, core.count = core.solver, -1
            core.solver = core.new_solver(margin=_MARGIN, **core.of_solver)

    def take(self, name: str, *shape: int) -> Any:
        """Return memory of the core, which keeps it."""
        return self.core.take(f"{name} of multipoles", math.prod(shape)).reshape(shape)

    def reserve(self, count: int, virial: bool) -> None:
        """Allocate for so many particles."""
        self.core.solver.reserve(count, MOMENTS, virial=virial)
        self.scratch(count, virial)
        self._owners(count)
        self._words()

    def function(self, count: int) -> pm.PairFunction:
        """Return the pair function of sums over neighbours."""
        return close.function(self.core, "multipoles", count, *neighbours(self._smooth))

    def scratch(self, count: int, virial: bool) -> dict[str, Any]:
        """Return memory for a step, by name."""
        nodes, systems = self.core.nodes, self.core.systems
        whole = (MOMENTS, *((systems,) if systems else ()), *nodes)
        shapes = {
            "moments": (MOMENTS, count), "values": (count, VALUES), "sums": (count, COLUMNS), "density": whole,
            "fields": whole, "mesh": (MOMENTS, count), "slopes": (MOMENTS, count, 3), "virial": (max(systems, 1), 3, 3),
            "rows": (count, _TERMS + 1),
        }  # fmt: skip
        return {name: self.take(name, *shape) for name, shape in shapes.items()}

    def _words(self) -> Any:
        size = 2 * _TERMS * max(self.core.systems, 1)
        return self.core.take("totals of multipoles", size, np.dtype(np.uint64))

    def _owners(self, count: int) -> Any:
        """Return the system of each particle."""
        if self.core.systems:
            return self.core.owners
        owners = self.core.take("owners", count, np.dtype(np.int32))
        self.core.backend.clear(owners)
        return owners

    def check(self, wrong: StepErrors, name: Callable[[int], str]) -> None:
        """Raise what is wrong with dipoles, quadrupoles and widths; ``name`` returns the name of a particle."""
        wide = (
            f"larger than {self.most:.3g}, so that Gaussians are no points at the cutoff of {self.cutoff:.3g}",
            f"Give a cutoff of {self.cutoff / self.most:.3g} times the largest width.",
        )
        for first, what, problem, remedy in (
            (wrong.moment, "dipoles, quadrupoles or widths", "not finite", "Give finite numbers."),
            (wrong.asymmetric, "quadrupoles", "not symmetric", "Give (quadrupoles + quadrupoles.swapaxes(1, 2)) / 2."),
            (wrong.negative, "widths", "negative", "Give 0 for a point."),
            (wrong.wide, "widths", *wide),
        ):
            if first is not None:
                raise ValueError(f"{what} are {problem}; the first is that of {name(first)}. {remedy}")

    # ---- as a core ------------------------------------------------------------------------------------

    def shapes(self, count: int, virial: bool, fields: bool = True) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a result's arrays, by name."""
        more = {"torques": (count, 3), "field_gradients": (count, 3, 3)}
        return self.core.shapes(count, virial, True) | more

    def step(self, x: Coordinates, given: Any, out: dict[str, Any], check: bool) -> None:
        """Write the outputs for dense charges (1, N), dipoles (1, N, 3), quadrupoles (1, N, 3, 3), widths (1, N).

        Charges are first; others may be missing. Both halves run at once, as for charges.
        """
        core = self.core
        core.backend.clear(core.status)
        scratch = self.scratch(x.count, "virial" in out)
        q, rest = given[0][0], {a.ndim - 1: a[0] for a in given[1:]}
        (self._pack if core.on_gpu else self._pack_on_cpu)(q, rest, scratch)
        smooth = functools.partial(self._smooth_half, x, scratch, "virial" in out, check)
        with core.beside(smooth):
            core.build(x, check)
            values, sums = scratch["values"], scratch["sums"]
            core.stream(self.function(x.count), values, sums)
            if len(core.exclusions):
                core.add_pairs(x, listed(self._smooth.coefficients.shape[1], close.reach(core)), values, sums)
        core.sums = sums
        with core.checking("results of a step"):
            (self._assemble if core.on_gpu else self._assemble_on_cpu)(scratch, out)

    def _smooth_half(self, x: Coordinates, scratch: dict[str, Any], virial: bool, check: bool) -> None:
        """Write fields of the mesh, their slopes and its virial; memory of the other half is not written."""
        self.core.place(x, check)
        solver, density, fields = self.core.solver, scratch["density"], scratch["fields"]
        solver.plan.spread(scratch["moments"], out=density)
        of_strain = scratch["virial"] if self.core.systems else scratch["virial"][0]
        self.core.of_mesh("moment_fields", density, fields, *[of_strain] * virial, virial=virial)
        solver.plan.value_and_gradient(fields, out=(scratch["mesh"], scratch["slopes"]))

    def _pack(self, q: Any, rest: dict[int, Any], scratch: dict[str, Any]) -> None:
        """Write what mesh and pairs take, by a kernel, and say which numbers are bad."""
        core, (values, moments) = self.core, (scratch["values"], scratch["moments"])
        names = 2, 3, 1  # axes of dipoles, quadrupoles, widths
        places = Record("=7q", *(core.at(rest.get(n, q)) for n in (0, *names)), *(int(n in rest) for n in names))
        self._kernel("pack")(
            len(values), q, *(rest.get(n, Unread(q)) for n in names), moments, values, core.status, len(values), places,
            core.record(self.most, 64 * float(np.finfo(core.dtype).eps)),
        )  # fmt: skip

    @np.errstate(all="ignore")  # bad numbers have errors of their own
    def _pack_on_cpu(self, q: Any, rest: dict[int, Any], scratch: dict[str, Any]) -> None:
        core, values, moments = self.core, scratch["values"], scratch["moments"]
        values[:], moments[:] = 0, 0
        values[:, 0] = moments[0] = q
        if 2 in rest:
            values[:, 1:4] = rest[2]
        if 3 in rest:
            matrices = rest[3]
            turned = matrices.swapaxes(1, 2)
            size = 64 * np.finfo(core.dtype).eps * abs(matrices).max((1, 2), initial=0)
            core.status[5] = word_of((abs(matrices - turned) > size[:, None, None]).any((1, 2)))
            values[:, 4:10] = ((matrices + turned) / 2)[:, *UPPER]
        if 1 in rest:
            core.status[2], core.status[6] = word_of(rest[1] < 0), word_of(rest[1] > self.most)
            values[:, 10] = rest[1] ** 2
        moments[1:] = values[:, 1:10].T
        moments[[4, 7, 9]] *= core.dtype.type(0.5)
        bad = ~np.isfinite(values[:, 1:]).all(1)
        core.status[3], core.status[7] = word_of(~np.isfinite(q)), word_of(bad)

    def _assemble(self, scratch: dict[str, Any], out: dict[str, Any]) -> None:
        """Write the outputs by kernels."""
        core, rows, virial = self.core, scratch["rows"], "virial" in out
        count, systems = len(rows), max(core.systems, 1)
        names = ("energies", "forces", "potentials", "fields", "torques", "field_gradients")
        natives = [out[name] for name in names]
        self._kernel("assemble")(
            count, scratch["values"], scratch["sums"], scratch["mesh"], scratch["slopes"], *natives, rows, count,
            Record("=6q", *map(core.at, natives)), core.record(*self.factors),
        )  # fmt: skip
        words, owners, crowd = self._words(), self._owners(count), count.bit_length()
        core.backend.clear(words)
        wide, has_double = int(core.dtype.itemsize == 8), core.backend.facts().get("HAS_FP64", 1)
        real = np.dtype(np.float64 if has_double else np.float32)  # of totals
        energy = out["energy"]
        of_strain = (scratch["virial"], out["virial"]) if virial else (Unread(energy), Unread(energy))
        at = Record("=7q", 0, 0, 0, core.at(energy), core.at(out["virial"]) if virial else 0, 0, 0)

        def kernel(name: str) -> Any:
            facts = dict(COORDINATE_IS_DOUBLE=wide, MULTIPOLES=1, VIRIAL=int(virial))
            return compile_kernel(core.backend, _TOTALS, name, real, **facts)

        _, shares = core.partial(1, count)
        whole = core.record(*self.factors[:3])
        for reading in range(2):
            kernel("assemble")(
                shares * core.backend.group_size, Unread(rows), rows, *[Unread(rows)] * 2, *[Unread(energy)] * 4,
                words, owners, core.status, count, systems, shares, reading, crowd, 0, at, whole,
            )  # fmt: skip
        kernel("totals_of_systems")(
            systems, words, of_strain[0], energy, of_strain[1], core.status, systems, crowd, at, whole
        )

    @np.errstate(all="ignore")
    def _assemble_on_cpu(self, scratch: dict[str, Any], out: dict[str, Any]) -> None:
        """Do what the kernels do."""
        core, (c, four_pi, s0, s1, s2) = self.core, self.factors
        values, sums, mesh = (scratch[name] for name in ("values", "sums", "mesh"))
        q, mu, matrices = values[:, 0], values[:, 1:4], values[:, 4 + SYMMETRIC]
        trace, one = np.trace(matrices, axis1=1, axis2=2), np.eye(3, dtype=core.dtype)
        fields = four_pi * mesh.T
        virial = sums[:, VIRIAL:-1].reshape(-1, 3, 3) / 2
        virial = virial - fields[:, 1:4, None] * mu[:, None] - fields[:, 4 + SYMMETRIC] @ matrices
        fields = fields + sums[:, :MOMENTS]
        phi = fields[:, 0] - s0 * q + s1 / 2 * trace
        slope, bend = fields[:, 1:4] - s1 * mu, fields[:, 4 + SYMMETRIC]
        bend = bend - s2 * matrices + (s1 * q - s2 / 2 * trace)[:, None, None] * one
        turned = matrices @ bend
        out["potentials"][0], out["fields"][0], out["field_gradients"][0] = c * phi, -c * slope, -c * bend
        energies = q * phi + (mu * slope).sum(1) + np.trace(turned, axis1=1, axis2=2) / 2
        out["energies"][0] = c / 2 * energies
        twist = np.stack([turned[:, a, b] - turned[:, b, a] for a, b in ((1, 2), (2, 0), (0, 1))], 1)
        out["torques"][0] = -c * (np.cross(mu, slope) + twist)
        pull = np.einsum("kn,kna->na", scratch["moments"], scratch["slopes"])
        out["forces"][0] = c * (sums[:, FORCE:BY_WIDTH] - four_pi * pull)
        owners, systems = self._owners(len(q)), max(core.systems, 1)
        out["energy"].reshape(-1)[:] = np.bincount(owners, out["energies"][0], systems)
        if "virial" in out:
            rows = [np.bincount(owners, column, systems) for column in virial.reshape(-1, 9).T]
            whole = np.stack(rows, 1).reshape(-1, 3, 3) + four_pi * scratch["virial"]
            out["virial"].reshape(-1, 3, 3)[:] = c * whole
        core.status[0] = bool((sums[:, -1] > 0).any())
        core.status[1] = word_of(~np.isfinite(out["energy"].reshape(-1)))

    def _kernel(self, name: str) -> Any:
        return compile_kernel(self.core.backend, _FILE, name, self.core.dtype)


# ---- the pair function -----------------------------------------------------------------------------

_CLOSE = 7  # as in `dipoles`
_ROWS = MORE + 2  # where polynomials begin among the parameters


def pair_function(smooth: Smooth, kind: int = close.FREE, numbers: tuple[float, ...] = close.ALL) -> pm.PairFunction:
    """Return the pair function of multipoles: charge, dipole, upper triangle of the quadrupole, squared width.

    It has ``1 / r``, or ``erf(...) / r`` with widths, minus a smooth part. ``kind`` and ``numbers`` say how a sum
    leaves out close pairs (`close`). One compilation serves sums over neighbours with and without such pairs.
    """
    kind, terms = kind or close.NEIGHBOURS, smooth.coefficients.shape[1]
    bent = 4 * smooth.scale**2 * float(Polynomial(smooth.coefficients[0]).deriv(2)(-0.5))  # at r = 0
    source = f"{close.text(kind, _CLOSE)}{_INTERACTION}".replace("TERMS", str(terms)).replace("ROWS", str(_ROWS))
    source += "".join(f"{'' if 'sum' in line else 'const real '}{line};\n" for line in _statements())
    parameters = parameters_of(smooth, numbers, bent, 2 / math.sqrt(math.pi))
    return pm.PairFunction(source, _function(terms, kind), COLUMNS, VALUES, parameters)


def neighbours(smooth: Smooth) -> tuple[Callable[..., pm.PairFunction], int]:
    """Return what makes the pair function of sums over neighbours, and where a table begins, for `close.function`."""
    return functools.partial(pair_function, smooth), size_of(smooth) + 2


@functools.lru_cache(maxsize=8)
def listed(terms: int, reach: float) -> pm.PairFunction:
    """Return the pair function of excluded and scaled pairs, which are close below a distance."""
    return pair_function(Smooth(1.0, np.zeros((1, terms))), close.LISTED, close.numbers(reach))


@functools.cache
def _statements() -> list[str]:
    """Return assignments that C and Python share: what a pair adds to the sums of particle i, for c0 to c5.

    Derivatives by d of a function of d**2 are sums of products of d with c0 to c5, each ``-2 d / d(r**2)`` of the one
    before. A and V are such sums, to which the moments of j are applied. The derivative of Ak by d is
    ``-d Ak+1 + Vk``. That of Vk is ``-d Vk+1 + Q ck+2``.
    """
    axes, lines = range(3), []

    def at(first: int, n: int, k: int) -> int:  # of an element of a matrix
        return first + int(SYMMETRIC[n, k])

    def let(name: str, *terms: str) -> None:
        lines.append(f"{name} = {' + '.join(terms)}")

    for name, particle in (("P", "a"), ("Q", "b")):
        for n in axes:
            let(f"{name}d{n}", *(f"{particle}[{at(4, n, k)}] * d[{k}]" for k in axes))
        let(f"d{name}d", *(f"{name}d{n} * d[{n}]" for n in axes))
        let(f"{name}t", f"{particle}[4]", f"{particle}[7]", f"{particle}[9]")
    let("along", *(f"b[{1 + n}] * d[{n}]" for n in axes), "one_half * Qt")
    let("both", *(f"a[{at(4, n, k)}] * b[{at(4, n, k)}]" for n in axes for k in axes))
    for c in "cw":  # w0 to w4 instead of them, for the slope by widths
        for k in range(4 if c == "c" else 3):
            let(f"A{c}{k}", f"b[0] * {c}{k} - along * {c}{k + 1}", f"one_half * dQd * {c}{k + 2}")
        for k in range(3 if c == "c" else 2):
            for n in axes:
                let(f"V{c}{k}{n}", f"Qd{n} * {c}{k + 2} - b[{1 + n}] * {c}{k + 1}")
        energy = [f"a[0] * A{c}0"]
        for n in axes:
            let(f"g{c}{n}", f"d[{n}] * A{c}1 - V{c}0{n}")
            energy.append(f"a[{1 + n}] * g{c}{n}")
        for n, k in zip(*map(np.ndarray.tolist, UPPER), strict=True):
            turn = f"- A{c}1" * (n == k)
            let(f"h{c}{n}{k}", f"d[{n}] * d[{k}] * A{c}2 - d[{n}] * V{c}1{k} - d[{k}] * V{c}1{n} {turn}",
                f"b[{at(4, n, k)}] * {c}2")  # fmt: skip
            energy.append(f"{'one_half * ' * (n == k)}a[{at(4, n, k)}] * h{c}{n}{k}")
    lines.append(f"sum[{BY_WIDTH}] += {' + '.join(energy)}")
    columns = ["Ac0", *(f"gc{n}" for n in axes), *(f"hc{n}{k}" for n, k in zip(*UPPER, strict=True))]
    let("across", *(f"Pd{n} * Vc2{n}" for n in axes))
    for n in axes:
        bends = [f"hc{min(n, k)}{max(n, k)}" for k in axes]
        let(
            f"turned{n}",
            *(f"a[{at(4, n, k)}] * Vc1{k}" for k in axes),
            *(f"b[{at(4, n, k)}] * Pd{k} * c3" for k in axes),
        )
        let(
            f"F{n}", f"Pd{n} * Ac2 - a[0] * gc{n} - turned{n}", f"one_half * dPd * (Vc2{n} - d[{n}] * Ac3)",
            f"d[{n}] * (across - one_half * both * c3) - one_half * Pt * (Vc1{n} - d[{n}] * Ac2)",
            *(f"-a[{1 + k}] * {bend}" for k, bend in enumerate(bends)),
        )  # fmt: skip
        columns.append(f"F{n}")
    lines += [f"sum[{column}] += {name}" for column, name in enumerate(columns)]
    lines += [f"sum[{VIRIAL + 3 * n + k}] += F{n} * d[{k}]" for n in axes for k in axes]
    return lines


# c0 to c5 are the interaction minus the smooth part, w0 to w4 its slope by the sum of both squared widths, each
# ``-2 d / d(r**2)`` of the one before. Where Gaussians overlap much, e0 to e5 of ``erf(...) / r`` are Boys functions,
# since differences would lose digits. A pair that is left out is multiplied with 0 before powers of its distance could
# overflow. Particles in one place have minus the smooth part.
_INTERACTION = """
const real one_half = (real)0.5;
real c[6] = {-p[3], -p[4], -p[ROWS - 2], 0, 0, 0}, w[5] = {0, 0, 0, 0, 0};
if (r2 > 0) {
    const real t = r2 * p[0];
    const i64 at = ROWS + (TERMS + 1) * (i64)(t < p[2] ? t : p[2]);
    const real s = t - p[at + TERMS], inverse = whole != 0 ? (real)1 / r2 : (real)0, square = a[10] + b[10];
    real bent[6] = {p[at + TERMS - 1], 0, 0, 0, 0, 0}, e[6] = {whole * sqrt(inverse), 0, 0, 0, 0, 0};
    for (int n = TERMS - 2; n >= 0; n--) {
        for (int m = 5; m > 0; m--) bent[m] = bent[m] * s + bent[m - 1];
        bent[0] = bent[0] * s + p[at + n];
    }
    for (int n = 0; n < 5; n++) e[n + 1] = (2 * n + 1) * e[n] * inverse;
    const real beta2 = square > 0 ? one_half / square : (real)0, z = beta2 * r2;
    if (square > 0 && z < 60) {
        const real first = whole * p[ROWS - 1] * sqrt(beta2), fade = exp(-z);
        real rising = first * fade, power = first;
        for (int n = 0; n < 5; n++) {
            w[n] = -beta2 * rising;
            rising *= 2 * beta2;
            power *= 2 * beta2;
        }
        if (z < 4) {
            real term = fade / 11, boys = term;
            for (int n = 13; boys + term > boys; n += 2) {
                term *= 2 * z / n;
                boys += term;
            }
            for (int n = 5; n >= 0; n--) {
                e[n] = power * boys;
                power /= 2 * beta2;
                boys = (2 * z * boys + fade) / (2 * n - 1);
            }
        } else {
            real rest = whole * erfc(sqrt(z)) * sqrt(inverse);
            rising = first * fade;
            for (int n = 0; n < 6; n++) {
                e[n] -= rest;
                rest = ((2 * n + 1) * rest + rising) * inverse;
                rising *= 2 * beta2;
            }
        }
    }
    real factor = 1;
    for (int n = 0; n < 6; n++) {
        c[n] = e[n] - factor * bent[n];
        factor *= -2 * (n + 1) * p[0];
    }
} else if (whole != 0) sum[23] += (real)1;
const real c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], c4 = c[4], c5 = c[5];
const real w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], w4 = w[4];
"""


@functools.cache
def _interaction(terms: int, kind: int) -> Callable[..., Any]:
    """Return the compiled function ``(r2, square, i, j, p)`` of c0 to c5, w0 to w4 and a half, as in C."""
    of_pair = close.compiled(kind, _CLOSE)

    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def both_parts(r2, square, i, j, p):
        zero, one, three, five = r2 - r2, p[1], p[5], p[6]
        two, half = one + one, one / (one + one)
        if r2 <= 0:
            return -p[3], -p[4], -p[_ROWS - 2], zero, zero, zero, zero, zero, zero, zero, zero, half
        t = r2 * p[0]
        at = _ROWS + (terms + 1) * int(min(t, p[2]))
        s = t - p[at + terms]
        t0 = p[at + terms - 1]
        t1 = t2 = t3 = t4 = t5 = zero
        for n in range(terms - 2, -1, -1):
            t5, t4, t3 = t5 * s + t4, t4 * s + t3, t3 * s + t2
            t2, t1, t0 = t2 * s + t1, t1 * s + t0, t0 * s + p[at + n]
        four, seven, nine = two + two, five + two, five + two + two
        whole = of_pair(r2, i, j, p)
        inverse = one / r2 if whole != zero else zero
        e0 = whole * np.sqrt(inverse)
        e1 = e0 * inverse
        e2 = three * e1 * inverse
        e3 = five * e2 * inverse
        e4 = seven * e3 * inverse
        e5 = nine * e4 * inverse
        w0 = w1 = w2 = w3 = w4 = zero
        beta2 = half / square if square > zero else zero
        z, g = beta2 * r2, beta2 + beta2
        if square > zero and z < three * five * four:
            first, fade = whole * p[_ROWS - 1] * np.sqrt(beta2), np.exp(-z)
            rising = first * fade
            w0 = -beta2 * rising
            w1 = w0 * g
            w2 = w1 * g
            w3 = w2 * g
            w4 = w3 * g
            if z < four:
                n = nine + four
                term = fade / (nine + two)
                boys = term
                while boys + term > boys:
                    term *= two * z / n
                    boys += term
                    n += two
                twice, power = two * z, first * g * g * g * g * g
                e5, boys, power = power * boys, (twice * boys + fade) / nine, first * g * g * g * g
                e4, boys, power = power * boys, (twice * boys + fade) / seven, first * g * g * g
                e3, boys, power = power * boys, (twice * boys + fade) / five, first * g * g
                e2, boys = power * boys, (twice * boys + fade) / three
                e1, e0 = first * g * boys, first * (twice * boys + fade)
            else:
                rest = whole * math.erfc(np.sqrt(z)) * np.sqrt(inverse)
                e0 -= rest
                rest = (rest + rising) * inverse
                e1 -= rest
                rising *= g
                rest = (three * rest + rising) * inverse
                e2 -= rest
                rising *= g
                rest = (five * rest + rising) * inverse
                e3 -= rest
                rising *= g
                rest = (seven * rest + rising) * inverse
                e4 -= rest
                rising *= g
                rest = (nine * rest + rising) * inverse
                e5 -= rest
        turn = -(p[0] + p[0])
        twice = two * turn * turn
        third = three * twice * turn
        fourth = four * third * turn
        c0, c1, c2 = e0 - t0, e1 - turn * t1, e2 - twice * t2
        c3, c4, c5 = e3 - third * t3, e4 - fourth * t4, e5 - five * fourth * turn * t5
        return c0, c1, c2, c3, c4, c5, w0, w1, w2, w3, w4, half

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(both_parts)


@functools.cache
def _function(terms: int, kind: int) -> Callable[..., None]:
    names = ", ".join([*(f"c{n}" for n in range(6)), *(f"w{n}" for n in range(5)), "one_half"])
    lines = [
        f"{names} = interaction(r2, a[10] + b[10], i, j, p)",
        f"if not r2 > 0 and whole(r2, i, j, p) != 0: sum[{COLUMNS - 1}] += p[1]",
        *_statements(),
    ]
    scope: dict[str, Any] = {"interaction": _interaction(terms, kind), "whole": close.compiled(kind, _CLOSE)}
    scope["__name__"] = __name__
    exec("def multipole_pair(r2, d, i, j, a, b, p, sum):\n    " + "\n    ".join(lines), scope)
    return scope["multipole_pair"]
