# SPDX-License-Identifier: BSD-3-Clause
"""Energies of charges as functions of JAX arrays, and charges and dipoles of least energy, under ``jit``."""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.batch import PMEBatch
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.induced import InducedDipoles
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import with_derivatives
from particlemesh.autograd.jax import alike, in_place, potential

__all__ = ["energy", "equilibrated_charges", "induced_dipoles"]


def energy(
    pme: PME | PMEBatch, positions: Any, charges: Any, system: Any = None, *, dipoles: Any = None,
    quadrupoles: Any = None, widths: Any = None, cell: Any = None, exclusions: Any = None, factors: Any = 0.0,
) -> Any:  # fmt: skip
    """Return the energy of charges, or of many systems; differentiable twice, in forward and reverse mode.

    Mesh and sums over pairs work where the arrays are. For second derivatives pairs are listed, some hundred thousand
    at a time, and JAX sums them.

    Parameters
    ----------
    pme : PME or PMEBatch
        As for :func:`particlemesh.apps.pme.torch.energy`; a constant of compiled functions.
    positions : array (N, 3)
        Float32 or float64. Inside of the box along open axes.
    charges : array (N,)
    system : integers (N,), optional
        For a PMEBatch of S systems: the system of each particle.
    dipoles, quadrupoles, widths : array (N, 3), (N, 3, 3), (N,), optional
        As for :func:`particlemesh.apps.pme.torch.energy`.
    cell : array (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``. For a PMEBatch, those of each system:
        (S, 3) or (S, 3, 3). Needs three periodic axes.
    exclusions, factors
        As for :func:`particlemesh.apps.pme.torch.energy`; constants of compiled functions.

    Returns
    -------
    jax.Array (), or (S,)

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or a cell is too large.
    NotImplementedError
        If third derivatives are needed.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.apps.pme import PME
    >>> from particlemesh.apps.pme.jax import energy
    >>> x, q = jnp.array([[0.1, 0.5, 0.5], [0.6, 0.5, 0.5]]), jnp.array([1.0, -1.0])
    >>> pme = PME((2.0, 2.0, 2.0), accuracy=1e-4)
    >>> force = -jax.jit(jax.grad(lambda x: energy(pme, x, q)))(x)
    >>> jnp.sign(force[:, 0]).tolist()  # they attract each other
    [1.0, -1.0]
    """
    x, q = jnp.asarray(positions), jnp.asarray(charges)
    cell, system, *others = (
        None if a is None else jnp.asarray(a) for a in (cell, system, dipoles, quadrupoles, widths)
    )
    derivatives.check(pme, x, q, system, exclusions)
    values = derivatives.values_of(JAX, x, q, *others)
    moments = values.ndim > 1
    matrix = derivatives.matrix_of(pme, cell, functools.partial(jnp.asarray, dtype=x.dtype)).astype(x.dtype)
    if not any(isinstance(a, jax.core.Tracer) for a in (q, system, others[2])):
        at, rows = (None if isinstance(a, jax.core.Tracer) else a for a in (x, matrix))
        derivatives.choose(pme, at, q, system, None if cell is None else rows, moments, others[2])
    facts = derivatives.facts_of(pme, x.shape[0], derivatives.name_of(x), x, moments)
    known = derivatives.pairs_of(pme, exclusions, factors, x.shape[0])
    if system is not None and not isinstance(system, jax.core.Tracer):
        derivatives.check_systems(known.pairs, np.asarray(system))
    mesh, options = derivatives.of_mesh(pme, matrix)
    sources = derivatives.moments_of(JAX, values) * facts.times
    far = potential(x, sources, mesh, system=system, moments=moments, **options)
    density = x.shape[0] / (1 if system is None else matrix.shape[0]) / pme.box.volume
    expected = int(2.5 * x.shape[0] * (density * derivatives.split_of(facts.pairs)[0] ** 3 + 1))
    near = _pairs(_Pairs(facts.pairs, known, min(expected, _MOST)), x, values, matrix, system)
    pairs = *known.pairs.T, known.factors - 1
    return derivatives.energy(JAX, facts, x, values, matrix, system, pairs, near, far)


def _like(numbers: Any, array: Any) -> Any:
    return jnp.asarray(numbers, array.dtype)


def _add(terms: Any, at: Any, count: int) -> Any:
    return jnp.zeros((count, *terms.shape[1:]), terms.dtype).at[at].add(terms)


JAX = derivatives.Library(jnp, _like, _add, jax.scipy.special.erfc, jax.lax.stop_gradient)


@functools.cache
def _library(xp: Any) -> derivatives.Library:
    """Return what NumPy or CuPy is asked for."""

    def add(terms: Any, at: Any, count: int) -> Any:
        total = xp.zeros((count, *terms.shape[1:]), terms.dtype)
        xp.add.at(total, at, terms)
        return total

    return derivatives.Library(xp, lambda numbers, array: xp.asarray(numbers, array.dtype), add)


class _Pairs(NamedTuple):
    """What a sum over pairs has to know."""

    text: str
    excluded: Any
    size: int  # pairs that are listed at a time


_MOST = 2**18


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pairs(of: _Pairs, x: Any, q: Any, cell: Any, system: Any) -> Any:
    """Return the sum over pairs within the cutoff, or that of each system."""
    return _sums(of, x, q, cell, system)[0]


@_pairs.defjvp
def _once(of: _Pairs, given: Any, steps: Any) -> tuple[Any, Any]:
    value, *slopes = _sums(of, *given)
    return value, _change(slopes, given, steps)


def _change(slopes: Any, given: Any, steps: Any) -> Any:
    """Return what steps of positions, charges and cell change of the sums, by their slopes."""
    of_x, of_q, of_cell = (a * b for a, b in zip(slopes, steps, strict=False))
    each = of_x.sum(1) + of_q.reshape(len(of_x), -1).sum(1)
    return JAX.totals(each, *given[2:]) + of_cell.sum((-1, -2))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sums(of: _Pairs, x: Any, q: Any, cell: Any, system: Any) -> list[Any]:
    """Return the sum over pairs and its derivatives by positions, charges and cell."""

    def sums(xp: Any, x: Any, q: Any, cell: Any, owners: Any = None) -> Any:
        wide = cell.astype(np.float64)
        return derivatives.pair_sums(_library(xp), of.text, x, q, wide, owners, of.excluded, xp is not np)

    shapes = cell.shape[:-2], x.shape, q.shape, cell.shape
    owners = () if system is None else (system.astype(jnp.int32),)
    return in_place(sums, [(shape, x.dtype) for shape in shapes], x, q, cell, *owners)


@_sums.defjvp
def _again(of: _Pairs, given: Any, steps: Any) -> tuple[Any, Any]:
    value, *slopes = _sums(of, *given)
    state = given if given[3] is not None else given[:3]
    return [value, *slopes], [_change(slopes, given, steps), *_CHANGES.bind(*alike([*state, *steps[:3]]), of=of)]


def near_energies(text: str, between: Any, a: Any, b: Any, whole: Any) -> Any:
    """Return energies of pairs within the cutoff, whose derivatives are right: see `derivatives.pair_energies`."""
    cutoff, split = derivatives.split_of(text)
    tables = with_derivatives(split, cutoff, between.dtype == jnp.float32, 6)

    def smooth(r2: Any, n: int) -> Any:
        rows, t = jnp.asarray(tables.bent(n).T, r2.dtype), r2 * tables.scale
        interval = jnp.clip(t.astype(jnp.int32), 0, rows.shape[1] - 1)
        value = jnp.zeros_like(t)
        for row in rows[::-1]:
            value = value * (t - interval - 0.5) + row[interval]
        return value

    return derivatives.pair_energies(JAX, smooth, between, a, b, whole)


# ---- changes of slopes: a linear and symmetric function of steps -------------------------------------------------


def _changes(*arrays: Any, of: _Pairs) -> list[Any]:
    """Return what steps of positions, charges and cell change of slopes by them; arrays are these, systems, steps."""
    (x, q, cell, *system), steps = arrays[:-3], arrays[-3:]
    weights = jnp.asarray(of.excluded.keys(x.shape[0])[1], x.dtype)
    cutoff = derivatives.split_of(of.text)[0]

    def listed(xp: Any, x: Any, cell: Any, begin: Any, owners: Any = None) -> tuple[Any, Any]:
        rows, box = derivatives.boxes_of(cell, of.text)
        many = {} if owners is None else dict(system=owners, boxes=rows)
        i, j, shift = pm.neighbour_list("ijS", x, box, cutoff, half=True, **many)
        keys, codes = xp.asarray(of.excluded.keys(len(x))[0]), i.astype(np.int64) * len(x) + j
        place = xp.searchsorted(keys, codes)
        known = xp.append(keys, -1)[place] == codes
        table = xp.column_stack([i, j, shift, xp.where(known, place, -1)])[int(begin) :][: of.size]
        return xp.concatenate([table, xp.full((of.size - len(table), 6), -2)]), len(i)

    def more(carry: Any) -> Any:
        begin, sums = carry
        owners = begin[0], *(a.astype(jnp.int32) for a in system)
        table, count = in_place(listed, [((of.size, 6), np.int32), ((), np.int32)], x, cell, *owners)
        i, j = jnp.maximum(table[:, :2], 0).T

        def energy(x: Any, q: Any, cell: Any) -> Any:
            box = cell[system[0][i]] if system else cell
            d = x[j] - x[i] + (table[:, None, 2:5].astype(x.dtype) @ box)[:, 0]
            some = jnp.where(table[:, 5] < 0, 0, jnp.append(weights, 0)[table[:, 5]])
            there, whole = table[:, 0] >= 0, derivatives.wholes(JAX, d, some, cutoff, cell)
            terms = near_energies(of.text, d, q[i], q[j], jnp.where(there, whole, 0))
            return jnp.where(there, terms, 0).sum()

        changes = jax.jvp(jax.grad(energy, (0, 1, 2)), (x, q, cell), steps)[1]
        return jnp.stack([begin[0] + of.size, count]), [a + b for a, b in zip(sums, changes, strict=True)]

    start = alike([jnp.array([0, 1], jnp.int32), *arrays])[0], [jnp.zeros_like(a) for a in steps]
    return list(jax.lax.while_loop(lambda carry: carry[0][0] < carry[0][1], more, start)[1])


def _of_steps(given: Any, steps: Any, *, of: _Pairs) -> tuple[Any, Any]:
    if any(type(a) is not ad.Zero for a in steps[:-3]):
        raise NotImplementedError("third derivatives of the energy are not available: differentiate at most twice.")
    steps = [ad.instantiate_zeros(a) for a in steps[-3:]]
    return _CHANGES.bind(*given, of=of), _CHANGES.bind(*alike([*given[:-3], *steps]), of=of)


def _transposed(slopes: Any, *given: Any, of: _Pairs) -> list[Any]:
    return [None] * len(given[:-3]) + _CHANGES.bind(*given[:-3], *map(ad.instantiate_zeros, slopes), of=of)


def _batched(given: Any, axes: Any, *, of: _Pairs) -> tuple[Any, Any]:
    def one(some: Any) -> Any:
        rest = iter(some)
        return _CHANGES.bind(*(a if axis is None else next(rest) for a, axis in zip(given, axes, strict=True)), of=of)

    moved = [jnp.moveaxis(a, axis, 0) for a, axis in zip(given, axes, strict=True) if axis is not None]
    return jax.lax.map(one, moved), [0] * 3


_CHANGES: Any = jax.extend.core.Primitive("particlemesh_pairs")
_CHANGES.multiple_results = True
_CHANGES.def_impl(jax.jit(_changes, static_argnames="of"))
_CHANGES.def_abstract_eval(lambda *arrays, of: list(arrays[-3:]))
mlir.register_lowering(_CHANGES, mlir.lower_fun(_changes, multiple_results=True))
ad.primitive_jvps[_CHANGES] = _of_steps
ad.primitive_transposes[_CHANGES] = _transposed
batching.primitive_batchers[_CHANGES] = _batched


# ---- induced dipoles and equilibrated charges --------------------------------------------------------------------

# Devices share a model, and a model serves one thread at a time.
_ONE = kernels.through_forks(threading.RLock())


def induced_dipoles(
    model: InducedDipoles, positions: Any, charges: Any, polarizabilities: Any, *, dipoles: Any = None,
    field: Any = None, cell: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return energy and induced dipoles; both are differentiable once by all arrays, in reverse mode.

    All work runs where the arrays are. Derivatives are those of
    :func:`particlemesh.apps.pme.torch.induced_dipoles`.

    Parameters
    ----------
    model : InducedDipoles
        A constant of compiled functions.
    positions : array (N, 3)
        Float32 or float64.
    charges, polarizabilities : array (N,)
    dipoles : array (N, 3), optional
    field : array (3,) or (N, 3), optional
    cell : array (3,) or (3, 3), optional
        As for :func:`energy`.

    Returns
    -------
    energy : jax.Array ()
    induced : jax.Array (N, 3)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As for :class:`particlemesh.apps.pme.InducedDipoles`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.apps.pme import PME, InducedDipoles
    >>> from particlemesh.apps.pme.jax import induced_dipoles
    >>> x = jnp.array([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]])
    >>> model = InducedDipoles(PME((4.0, 4.0, 4.0), 1e-4), 1e-5)
    >>> slope = jax.grad(lambda alpha: induced_dipoles(model, x, jnp.array([1.0, -1.0]), alpha)[0])
    >>> bool((slope(jnp.full(2, 0.1)) <= 0).all())  # more polarizable particles have less energy
    True
    """
    x, q, alpha = map(jnp.asarray, (positions, charges, polarizabilities))
    permanent = jnp.zeros_like(x) if dipoles is None else jnp.asarray(dipoles)
    outside = jnp.broadcast_to(jnp.zeros(3, x.dtype) if field is None else jnp.asarray(field, x.dtype), x.shape)
    matrix = _matrix(model, InducedDipoles, x, q, cell)
    return _solved(derivatives.DipolesOf(model), *alike([x, q, alpha, permanent, outside, matrix]))


def equilibrated_charges(
    model: ChargeEquilibration, positions: Any, electronegativities: Any, hardness: Any, *, widths: Any = None,
    total: float = 0.0, cell: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return energy and charges of least energy; both are differentiable once by all arrays, in reverse mode.

    All work runs where the arrays are. Derivatives are those of
    :func:`particlemesh.apps.pme.torch.equilibrated_charges`.

    Parameters
    ----------
    model : ChargeEquilibration
        A constant of compiled functions.
    positions : array (N, 3)
        Float32 or float64.
    electronegativities, hardness : array (N,)
    widths : array (N,) or float, optional
        Constant, as `total`: of NumPy.
    total : float
    cell : array (3,) or (3, 3), optional
        As for :func:`energy`.

    Returns
    -------
    energy : jax.Array ()
    charges : jax.Array (N,)

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As for :class:`particlemesh.apps.pme.ChargeEquilibration`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.apps.pme import PME, ChargeEquilibration
    >>> from particlemesh.apps.pme.jax import equilibrated_charges
    >>> x, eta = jnp.array([[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]]), jnp.full(2, 10.0)
    >>> model = ChargeEquilibration(PME((4.0, 4.0, 4.0), 1e-4), 1e-5)
    >>> slope = jax.grad(lambda chi: equilibrated_charges(model, x, chi, eta)[0])(jnp.array([-1.0, 1.0]))
    >>> bool(slope[0] > 0 > slope[1])  # slopes are the charges
    True
    """
    x, chi, eta = map(jnp.asarray, (positions, electronegativities, hardness))
    matrix = _matrix(model, ChargeEquilibration, x, chi, cell)
    return _solved(derivatives.ChargesOf(model, widths, total), *alike([x, chi, eta, matrix]))


def _matrix(model: Any, kind: type, x: Any, numbers: Any, cell: Any) -> Any:
    """Return lattice vectors as rows; check arguments and choose parameters."""
    cell, like = None if cell is None else jnp.asarray(cell), functools.partial(jnp.asarray, dtype=x.dtype)
    return derivatives.matrix_for(model, kind, x, numbers, cell, like).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solved(of: Any, *arrays: Any) -> Any:
    return _solve(of, *arrays)[0]


def _solve(of: Any, *arrays: Any) -> tuple[Any, Any]:
    def solved(xp: Any, *given: Any) -> Any:
        with _ONE:
            return of.solved(*given)

    shapes = (), arrays[of.like].shape
    energy, solution = in_place(solved, [(shape, arrays[0].dtype) for shape in shapes], *arrays)
    return (energy, solution), (*arrays, solution)


def _slopes(of: Any, kept: Any, slopes: Any) -> Any:
    def call(*given: Any) -> Any:
        with _ONE:
            return of.slopes(*given)

    return tuple(in_place(call, [(a.shape, kept[0].dtype) for a in kept[:-1]], *kept, *slopes))


_solved.defvjp(_solve, _slopes)
