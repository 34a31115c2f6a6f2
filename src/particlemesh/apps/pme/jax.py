# SPDX-License-Identifier: BSD-3-Clause
"""The energy of charges as a function of JAX arrays, differentiable by positions, charges and cell, under ``jit``."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import derivatives
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import Split
from particlemesh.autograd.jax import potential


def energy(pme: PME, positions: Any, charges: Any, *, cell: Any = None) -> Any:
    """Return the energy of periodic charges; differentiable once, in reverse mode.

    The mesh works where the arrays are. The sum over pairs runs on the host, in a callback. Second derivatives raise
    an error: take :func:`particlemesh.apps.pme.torch.energy` for them.

    Parameters
    ----------
    pme : PME
        As for :func:`particlemesh.apps.pme.torch.energy`; a constant of compiled functions.
    positions : array (N, 3)
        Float32 or float64.
    charges : array (N,)
    cell : array (3,) or (3, 3), optional
        Lengths, or lattice vectors as rows, instead of those of ``pme.box``.

    Returns
    -------
    jax.Array ()

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or the energy is differentiated twice or in forward mode.

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
    p = derivatives.parameters_of(pme, x, q)
    cell = None if cell is None else jnp.asarray(cell)
    matrix = derivatives.matrix_of(pme, cell, functools.partial(jnp.asarray, dtype=x.dtype), jnp.diag).astype(x.dtype)
    split = p.split
    far = potential(x, q * split.mesh, pm.Mesh(p.shape, pme.box), window=p.window, cell=matrix, **split.green(True))
    near = _pairs(p.cutoff, split, x, q, matrix)
    return derivatives.energy(jnp, pme, split, x, q, matrix, near, far, _like)


def _like(numbers: Any, array: Any) -> Any:
    return jnp.asarray(numbers, array.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _pairs(cutoff: float, split: Split, x: Any, q: Any, cell: Any) -> Any:
    """Return the sum over pairs within the cutoff."""
    return _forward(cutoff, split, x, q, cell)[0]


def _forward(cutoff: float, split: Split, x: Any, q: Any, cell: Any) -> tuple[Any, tuple[Any, ...]]:
    value, *slopes = _sums(cutoff, split, x, q, cell)
    return value, tuple(slopes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _sums(cutoff: float, split: Split, x: Any, q: Any, cell: Any) -> list[Any]:
    """Return the sum over pairs and its derivatives by positions, charges and cell."""
    # JAX may call back from a thread in which float64 is off, and would round numbers there. It leaves integers as
    # they are.
    words = x.dtype.itemsize // 4
    shapes = [jax.ShapeDtypeStruct((*shape, words), jnp.int32) for shape in ((), x.shape, q.shape, (3, 3))]
    host = functools.partial(_on_host, cutoff, split, x.dtype)
    integers = jax.pure_callback(host, shapes, *map(_integers, (x, q, cell)), vmap_method="sequential")
    return [jax.lax.bitcast_convert_type(a if words > 1 else a[..., 0], x.dtype) for a in integers]


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


def _on_host(cutoff: float, split: Split, dtype: Any, *integers: Any) -> list[np.ndarray]:
    x, q, cell = (np.ascontiguousarray(a).view(dtype)[..., 0] for a in integers)
    results = derivatives.pair_sums(np, cutoff, split, x, q, np.asarray(cell, np.float64), False)
    return [np.array(a, dtype)[..., None].view(np.int32) for a in results]


def _backward(cutoff: float, split: Split, slopes: Any, slope: Any) -> tuple[Any, ...]:
    return tuple(slope * s for s in slopes)


_pairs.defvjp(_forward, _backward)
