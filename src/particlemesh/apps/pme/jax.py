# SPDX-License-Identifier: BSD-3-Clause
"""Energies of charges as functions of JAX arrays, and charges and dipoles of least energy, under ``jit``."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.batch import PMEBatch
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.induced import InducedDipoles
from particlemesh.apps.pme.pme import PME
from particlemesh.autograd.jax import potential

__all__ = ["energy", "equilibrated_charges", "induced_dipoles"]


def energy(
    pme: PME | PMEBatch, positions: Any, charges: Any, system: Any = None, *, dipoles: Any = None,
    quadrupoles: Any = None, widths: Any = None, cell: Any = None, exclusions: Any = None, factors: Any = 0.0,
) -> Any:  # fmt: skip
    """Return the energy of periodic charges, or of many systems; differentiable once, in reverse mode.

    The mesh works where the arrays are. The sum over pairs runs on the host, in a callback. Second derivatives raise
    an error: take :func:`particlemesh.apps.pme.torch.energy` for them.

    Parameters
    ----------
    pme : PME or PMEBatch
        As for :func:`particlemesh.apps.pme.torch.energy`; a constant of compiled functions.
    positions : array (N, 3)
        Float32 or float64.
    charges : array (N,)
    system : integers (N,), optional
        For a PMEBatch of S systems: the system of each particle.
    dipoles, quadrupoles, widths : array (N, 3), (N, 3, 3), (N,), optional
        As for :func:`particlemesh.apps.pme.torch.energy`.
    cell : array (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``. For a PMEBatch, those of each system:
        (S, 3) or (S, 3, 3).
    exclusions, factors
        As for :func:`particlemesh.apps.pme.torch.energy`; constants of compiled functions.

    Returns
    -------
    jax.Array (), or (S,)

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, a cell is too large, or the energy is differentiated twice or in forward mode.

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
    values = derivatives.values_of(_JAX, x, q, *others)
    moments = values.ndim > 1
    if not any(isinstance(a, jax.core.Tracer) for a in (q, system, others[2])):
        derivatives.choose(pme, q, system, moments, others[2])
    facts = derivatives.facts_of(pme, x.shape[0], derivatives.name_of(x), x, moments)
    matrix = derivatives.matrix_of(pme, cell, functools.partial(jnp.asarray, dtype=x.dtype)).astype(x.dtype)
    known = derivatives.pairs_of(pme, exclusions, factors, x.shape[0])
    if system is not None and not isinstance(system, jax.core.Tracer):
        derivatives.check_systems(known.pairs, np.asarray(system))
    mesh, options = derivatives.of_mesh(pme)
    sources = derivatives.moments_of(_JAX, values) * facts.times
    far = potential(x, sources, mesh, cell=matrix, system=system, moments=moments, **options)
    near = _pairs(facts.pairs, known, x, values, matrix, system)
    pairs = *known.pairs.T, known.factors - 1
    return derivatives.energy(_JAX, facts, x, values, matrix, system, pairs, near, far)


def _like(numbers: Any, array: Any) -> Any:
    return jnp.asarray(numbers, array.dtype)


def _add(terms: Any, at: Any, count: int) -> Any:
    return jnp.zeros((count, *terms.shape[1:]), terms.dtype).at[at].add(terms)


def _add_on_host(terms: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    total = np.zeros((count, *terms.shape[1:]), terms.dtype)
    np.add.at(total, at, terms)
    return total


_JAX = derivatives.Library(jnp, _like, _add, jax.scipy.special.erfc, jax.lax.stop_gradient)
_NUMPY = derivatives.Library(np, lambda numbers, array: np.asarray(numbers, array.dtype), _add_on_host)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _pairs(facts: str, pairs: Any, x: Any, q: Any, cell: Any, system: Any) -> Any:
    """Return the sum over pairs within the cutoff, or that of each system."""
    return _forward(facts, pairs, x, q, cell, system)[0]


def _forward(facts: str, pairs: Any, x: Any, q: Any, cell: Any, system: Any) -> tuple[Any, tuple[Any, ...]]:
    value, *slopes = _sums(facts, pairs, x, q, cell, system)
    return value, (*slopes, system)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _sums(facts: str, pairs: Any, x: Any, q: Any, cell: Any, system: Any) -> list[Any]:
    """Return the sum over pairs and its derivatives by positions, charges and cell."""

    def host(x: Any, q: Any, cell: Any, owners: Any = None) -> Any:
        return derivatives.pair_sums(_NUMPY, facts, x, q, np.asarray(cell, np.float64), owners, pairs, False)

    shapes = cell.shape[:-2], x.shape, q.shape, cell.shape
    return _on_host(host, shapes, x, q, cell, owners=() if system is None else (system.astype(jnp.int32),))


@_sums.defjvp
def _twice(*arguments: Any) -> Any:
    raise ValueError(
        "energy is differentiated twice, but its sum over pairs runs in a callback, which has first derivatives only; "
        "take particlemesh.apps.pme.torch.energy."
    )


def _integers(numbers: Any) -> Any:
    """Return the bits of float numbers as int32, with a last axis of one or two."""
    bits = jax.lax.bitcast_convert_type(numbers, jnp.int32)
    return bits.reshape(*numbers.shape, numbers.dtype.itemsize // 4)


def _on_host(function: Any, shapes: Any, *arrays: Any, owners: tuple[Any, ...] = ()) -> list[Any]:
    """Return arrays of these shapes that a function of NumPy arrays returns, all of the first array's type.

    The last arguments of the function are integers, ``owners``.
    """
    # JAX may call back from a thread in which float64 is off, and would round numbers there. It leaves integers as
    # they are.
    dtype = arrays[0].dtype
    words = dtype.itemsize // 4

    def call(*given: Any) -> list[np.ndarray]:
        floats = [np.ascontiguousarray(a).view(dtype)[..., 0] for a in given[: len(arrays)]]
        results = function(*floats, *map(np.asarray, given[len(arrays) :]))
        return [np.array(a, dtype)[..., None].view(np.int32) for a in results]

    places = [jax.ShapeDtypeStruct((*shape, words), jnp.int32) for shape in shapes]
    integers = jax.pure_callback(call, places, *map(_integers, arrays), *owners, vmap_method="sequential")
    return [jax.lax.bitcast_convert_type(a if words > 1 else a[..., 0], dtype) for a in integers]


def _backward(facts: str, pairs: Any, kept: tuple[Any, ...], slope: Any) -> tuple[Any, ...]:
    by_x, by_q, by_cell, system = kept
    each = slope if system is None else slope[system]
    of_values = each if by_q.ndim == 1 else each[..., None]
    return each[..., None] * by_x, of_values * by_q, slope[..., None, None] * by_cell, None


_pairs.defvjp(_forward, _backward)


# ---- induced dipoles and equilibrated charges --------------------------------------------------------------------


def induced_dipoles(
    model: InducedDipoles, positions: Any, charges: Any, polarizabilities: Any, *, dipoles: Any = None,
    field: Any = None, cell: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return energy and induced dipoles; both are differentiable once by all arrays, in reverse mode.

    All work runs on the host, in a callback. Derivatives are those of
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
    return _solved(derivatives.DipolesOf(model), x, q, alpha, permanent, outside, matrix)


def equilibrated_charges(
    model: ChargeEquilibration, positions: Any, electronegativities: Any, hardness: Any, *, widths: Any = None,
    total: float = 0.0, cell: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return energy and charges of least energy; both are differentiable once by all arrays, in reverse mode.

    All work runs on the host, in a callback. Derivatives are those of
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
    return _solved(derivatives.ChargesOf(model, widths, total), x, chi, eta, matrix)


def _matrix(model: Any, kind: type, x: Any, numbers: Any, cell: Any) -> Any:
    """Return lattice vectors as rows; check arguments and choose parameters."""
    cell, like = None if cell is None else jnp.asarray(cell), functools.partial(jnp.asarray, dtype=x.dtype)
    return derivatives.matrix_for(model, kind, x, numbers, cell, like).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solved(of: Any, *arrays: Any) -> Any:
    return _solve(of, *arrays)[0]


def _solve(of: Any, *arrays: Any) -> tuple[Any, Any]:
    energy, solution = _on_host(of.solved, ((), arrays[of.like].shape), *arrays)
    return (energy, solution), (*arrays, solution)


def _slopes(of: Any, kept: Any, slopes: Any) -> Any:
    return tuple(_on_host(functools.partial(of.slopes, np), [a.shape for a in kept[:-1]], *kept, *slopes))


_solved.defvjp(_solve, _slopes)
