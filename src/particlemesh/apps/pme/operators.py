# SPDX-License-Identifier: BSD-3-Clause
"""Many charges or dipoles at positions that stay: a call's way in, and potentials and fields as linear operators."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numba
import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import damping, direct
from particlemesh.apps.pme.core import Core, native
from particlemesh.apps.pme.dipoles import factors, factors_text, parameters_of, slopes_of
from particlemesh.apps.pme.parameters import FOURTH, fourth_power
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import Split, polynomials, with_derivatives
from particlemesh.apps.pme.vectors import Solution, Vectors, central
from particlemesh.kernels import Coordinates, Fixed, checks

_APPLICATIONS = 20  # of the mesh for each set of positions, for which plans are prepared


class Equations(Fixed):
    """What calculations have in common that solve equations of charges or dipoles at given positions.

    Parameters
    ----------
    pme, tolerance, iterations
        As for :class:`InducedDipoles`.
    """

    _other: Any = None  # with another box
    _differentiable: ClassVar[str]  # the function of `apps.pme.torch` and `apps.pme.jax` with derivatives

    def __init__(self, pme: PME, tolerance: float, iterations: int) -> None:
        if not isinstance(pme, PME) or hasattr(pme, "world"):  # each rank would take its particles for all
            raise TypeError(f"pme is of type {type(pme).__name__}; give a particlemesh.apps.pme.PME.")
        self.tolerance = checks.positive(tolerance, "tolerance")
        if self.tolerance >= 1:
            raise ValueError(f"tolerance is {tolerance}; it is relative and below 1: give 1e-6, for example.")
        self.iterations = checks.integer(iterations, "iterations", 1, 2**31 - 1)
        self._arguments: dict[str, Any] = dict(tolerance=self.tolerance, iterations=self.iterations)
        self._pme = PME(**{**pme.arguments, "skin": None})  # its parameters and memory are no other call's
        self._pme._applications, self._pme._differentiable = _APPLICATIONS, self._differentiable
        self._in_order = kernels.InOrder()
        self.busy = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy chooses again.
        return functools.partial(type(self), PME(**self._pme.arguments), **self._arguments), ()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments beside the PME, checked."""
        return dict(self._arguments)

    @property
    def pme(self) -> PME:
        """A PME with the parameters in use: those chosen at the first call, for example."""
        if self._pme._core is None:
            raise RuntimeError(f"this {type(self).__name__} has no parameters yet: call it.")
        p = self._pme.parameters
        number = {"splitting": p.splitting} if p.bandwidth is None else {"bandwidth": p.bandwidth}
        fixed = dict(cutoff=p.cutoff, shape=p.shape, window=p.window, splitting=None, bandwidth=None) | number
        return PME(**{**self._pme.arguments, **fixed})

    def in_box(self, cell: Any) -> Self:
        """Return an object with these lattice vectors (3, 3), and all parameters of this one; the last one is kept."""
        matrix = np.asarray(kernels.to_host(cell, "cell"))
        known = [one for one in (self, self._other) if one is not None]
        for one in known:
            if np.array_equal(matrix, np.array(one._pme._rows, matrix.dtype)):
                return one
        pme = PME(**{**self.pme.arguments, "box": pm.Box(matrix.astype(np.float64))})
        self._other = type(self)(pme, **self._arguments)
        return self._other

    def _step(self, **given: Any) -> Step:
        """Return the step of a call's arguments."""
        raise NotImplementedError

    def _solved(self, guess: Any, virial: Any, **given: Any) -> Any:
        """Return the result of a call."""
        virial = checks.flag(virial, "virial")
        step = self._step(**given)
        with self._in_order(*step.taken.values()):
            step.prepare()
            solution = step.solve_from(guess)
            out = step.slopes(step.unknown, virial)
            out = {name: out[name] for name in out if name in step.kind.__dataclass_fields__}
            more = dict(iterations=solution.iterations, residual=solution.residual)
            return step.kind(**step.of_user(out, **{step.name: step.unknown}), **more)

    def _derivatives(
        self, given: Mapping[str, Any], unknown: Any, slope: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Return derivatives of the energy, and of a function of the solution that has this slope there."""
        with self.busy:
            step = self._step(**given)
            with self._in_order(*step.taken.values()):
                step.prepare()
                at, along = (
                    kernels.take(a, step.row, "slopes", like=step.like).native.reshape(step.unknown.shape)
                    for a in (unknown, slope)
                )
                step.core.backend.copy(step.unknown, at)
                mixed, z = step.response(along)
                return step.of_user(step.slopes(step.unknown, True)), step.of_user(mixed, z=z)


class Step:
    """A set of positions and numbers of particles, for which equations are solved.

    Attributes
    ----------
    unknown : native array
        Charges (sets, N) or dipoles (N, 3): the solution.
    vectors : Vectors
        Operations on such arrays.
    row : tuple of int
        The shape of a set of them.
    """

    kind: ClassVar[type[Any]]  # of results
    name: ClassVar[str]  # of the solution in results
    sets: ClassVar[bool] = False  # whether numbers may have several
    batch: tuple[int, ...] | None = None  # first axes of results, if there are sets
    unknown: Any
    vectors: Vectors
    row: tuple[int, ...]
    unit = 1.0  # what equations are divided by

    def __init__(self, model: Equations, positions: Any, **numbers: Any) -> None:
        self.model, self.pme = model, model._pme
        self.backend, self.x, self.taken = self.pme._taken(positions, True, None, Result, sets=self.sets, **numbers)
        self.like = self.taken["charges"]

    def take_core(self, *charges: Any) -> None:
        """Find the core; from charges, if they are known, follow parameters that it has not yet."""
        self.core = self.pme._core_for(self.x, self.backend, fourth_power if charges else lambda: FOURTH, *charges)
        self.pme._core, self.upload = self.core, self.core.upload

    def prepare(self) -> None:
        """Give positions to mesh and grid, and take memory."""
        raise NotImplementedError

    def solve_from(self, guess: Any) -> Solution:
        """Write the solution, from a guess or None."""
        raise NotImplementedError

    def solve(self, right: Any, x: Any) -> Solution:
        """Solve the equations for a right side, which becomes residuals."""
        raise NotImplementedError

    def slopes(self, unknown: Any, virial: bool) -> dict[str, Any]:
        """Return energy and its derivatives for any charges or dipoles, dense native arrays; totals are on the host."""
        raise NotImplementedError

    def of_user(self, out: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return arrays of the user's kind for those of `slopes`, and others."""
        totals = {name: None if out[name] is None else self.upload(out[name]) for name in ("energy", "virial")}
        natives = {name: a for name, a in (out | totals | more).items() if a is not None}
        return dict.fromkeys(out) | {n: user_array(self.core, self.like, a, self.batch) for n, a in natives.items()}

    def response(self, slope: Any) -> tuple[dict[str, Any], Any]:
        """Return derivatives of ``z . dE / du`` and z, which moves u to where a function of it has this slope.

        The function's derivatives by what the solution u depends on are these, by the implicit function theorem. The
        energy is quadratic in u, so they are differences of its own.
        """
        vectors, z = self.vectors, self.upload(np.zeros(self.unknown.shape))
        right, solution = vectors.take("of slopes"), vectors.take("of responses")
        self.core.backend.clear(right)
        vectors.add(right, slope.reshape(right.shape), -1 / self.unit)
        self.solve(right, solution)
        vectors.add(z, solution.reshape(z.shape))
        return central(vectors, self.unknown, z, lambda u: self.slopes(u, True)), z


class Operator:
    """Potentials of charges and slopes of potentials of dipoles, over all images, at the positions of a core.

    Parameters
    ----------
    core : Core
    x : Coordinates
    check : bool
        Raise errors of bad positions.
    """

    def __init__(self, core: Core, x: Coordinates, check: bool) -> None:
        self.core, self.x = core, x
        core.place(x, check)
        core.grid.build(native(x), check=check)

    def charges(self, q: Any, vectors: Vectors, out: Any) -> None:
        """Add the potentials of charges (sets, N), without Coulomb's constant."""
        core, count = self.core, self.x.count
        potentials = core.take("potentials of sets", q.size).reshape(q.shape)
        core.solver.potential(q, out=potentials)
        vectors.add(out, potentials, core.split.mesh)
        vectors.add(out, q, -core.split.itself)
        for begin in range(0, len(q), core.together):
            part = q[begin : begin + core.together]
            function = _potentials(core, len(part))
            sums = core.take("near potentials", count * function.results).reshape(count, function.results)
            core.grid.stream(core.parameters.cutoff, function, part.T, out=sums)
            Vectors(core, len(part), count).add_columns(out[begin : begin + core.together], sums)

    def dipoles(
        self, mu: Any, vectors: Vectors, out: Any, thole: float | None = None, roots: Any = None, reach: float = 0.0
    ) -> None:  # fmt: skip
        """Add the slopes of the potentials of sets of dipoles, both (sets, 3 N), without Coulomb's constant.

        They are damped up to a reach, if roots (N, 1) of polarizabilities are given.
        """
        core, count = self.core, self.x.count
        mu, nodes = mu.reshape(len(mu), count, 3), core.solver.plan.mesh.field_shape
        density, field, slopes = (
            core.take(f"{name} of induced dipoles", int(np.prod(shape))).reshape(shape)
            for name, shape in (("density", (len(mu), *nodes)), ("field", (len(mu), *nodes)), ("slopes", mu.shape))
        )
        core.solver.plan.spread_gradient(mu, out=density)
        core.solver.potential_field(density, out=field)
        core.solver.plan.gradient(field, out=slopes)
        vectors.add(out, slopes.reshape(out.shape), core.split.mesh)
        vectors.add(out, mu.reshape(out.shape), -core.split.at_zero(1))
        cutoff = core.parameters.cutoff
        damped = [] if thole is None else [roots]
        for begin in range(0, len(mu), core.together):
            rows = [mu[c] for c in range(len(mu))[begin : begin + core.together]]
            width, values = 3 * len(rows), mu[0]
            if len(mu) > 1 or damped:
                values = joined(core, count, width + len(damped), *rows, *damped)
            sums = core.take("near slopes", count * width).reshape(count, width)
            function = _slopes(core.split, cutoff, core.dtype.itemsize == 4, thole, len(rows))
            core.grid.stream(max(cutoff, reach), function, values, out=sums)
            Vectors(core, len(rows), 3 * count).add_columns(out[begin : begin + len(rows)], sums, columns=3)


def joined(core: Core, count: int, width: int, *parts: Any) -> Any:
    """Return rows (N, width) of the columns of parts (N, ...), in memory of the core."""
    rows, first = core.take(f"rows of {width}", count * width).reshape(count, width), 0
    for part in parts:
        core.backend.copy(rows[:, first : first + part.shape[1]], part)
        first += part.shape[1]
    return rows


def near_sums(core: Core, x: Coordinates, reach: float, function: pm.PairFunction, values: Any) -> Any:
    """Return the sums (N, results) of a pair function over neighbours that the core's grid holds."""
    sums = core.take("sums of other pairs", x.count * function.results).reshape(x.count, function.results)
    if reach > 0:
        core.grid.stream(reach, function, values, out=sums)
    else:
        core.backend.clear(sums)
    return sums


def virial_of(core: Core, rows: Any, first: int) -> np.ndarray:
    """Return the sums (3, 3) of nine columns of rows, times Coulomb's constant, on the host."""
    terms = Vectors(core, 9, rows.shape[0])
    columns = terms.take("of virials")
    core.backend.clear(columns)
    terms.add_columns(columns, rows, core.constant, first=first)
    return terms.total(columns).reshape(3, 3)


def numbers(
    array: Any, count: int, what: str, least: float | None = None, *, batch: bool = False
) -> np.ndarray:  # fmt: skip
    """Return finite numbers of particles (N,), or (..., N) with ``batch``, on the host in float64; one is that of all.

    Raises
    ------
    ValueError, TypeError
        If shape or type do not fit, or a number is not finite or below ``least``; the first such particle is named.
    """
    host = np.asarray(kernels.to_host(array, what))
    if host.dtype.kind not in "biuf":
        raise TypeError(f"{what} has dtype {host.dtype}; real numbers are needed.")
    given = host.astype(np.float64)
    if given.ndim == 0:
        given = np.full(count, given)
    if given.shape[-1] != count:
        raise ValueError(f"{what} has shape {given.shape}; one for each of {count} particles is needed.")
    if given.ndim > 1 and not batch:
        raise ValueError(f"{what} has shape {given.shape}; one set ({count},) is needed.")
    wrong = ~np.isfinite(given)
    if wrong.any():
        raise ValueError(f"{what} of particle {int(np.argwhere(wrong)[0][-1])} is not finite; give finite numbers.")
    if least is not None and (given < least).any():
        k = int(np.argwhere(given < least)[0][-1])
        raise ValueError(f"{what} of particle {k} is {given[..., k].min():g}; give numbers of at least {least:g}.")
    return given


def user_array(core: Core, like: kernels.Operand, array: Any, batch: tuple[int, ...] | None = None) -> Any:
    """Return an array of the kind of an operand with the numbers of a native one; one number of NumPy's as such.

    With ``batch`` these are the first axes instead of the present first one.
    """
    shape = tuple(array.shape) if batch is None else (*batch, *array.shape[1:])
    output = kernels.give(None, like, shape, dense=False)
    core.backend.copy(output.native, array.reshape(shape))
    answer = output.finish()
    return answer[()] if isinstance(answer, np.ndarray) and not shape else answer


def _potentials(core: Core, sets: int) -> pm.PairFunction:
    """Return the pair function of potentials of so many sets of charges."""
    single, one = core.dtype.itemsize == 4, core.on_gpu
    return _potentials_of(core.split, core.parameters.cutoff, single, one, sets)


@functools.lru_cache(maxsize=32)
def _potentials_of(split: Split, cutoff: float, single: bool, one: bool, sets: int) -> pm.PairFunction:
    return direct.pair_function(polynomials(split, cutoff, single, one), sets, False, slopes=False)


@functools.lru_cache(maxsize=32)
def _slopes(split: Split, cutoff: float, single: bool, thole: float | None, sets: int = 1) -> pm.PairFunction:
    """Return the pair function of slopes of potentials of dipoles, for ``1 / r`` minus a smooth part, and damped."""
    smooth = with_derivatives(split, cutoff, single)
    if thole is not None:
        return damping.slopes(smooth, cutoff, thole, sets)
    head = f"""
real c1 = -p[4], c2 = 0;
if (r2 > 0) {{
    {factors_text(smooth)}
    c1 = p1 - s1;
    c2 = p2 - s2;
}}
"""
    return slopes_of(head, _of_points(smooth.coefficients.shape[1]), sets, 3 * sets, parameters_of(smooth))


@functools.cache
def _of_points(terms: int) -> Any:
    both = factors(terms)

    def c1_and_c2(r2, i, j, a, b, p):
        if r2 <= 0:
            return -p[4], r2
        _, p1, p2, _, _, s1, s2, _ = both(r2, i, j, p)
        return p1 - s1, p2 - s2

    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(c1_and_c2)
