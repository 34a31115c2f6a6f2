# SPDX-License-Identifier: BSD-3-Clause
"""Lists of neighbours whose distances and vectors JAX differentiates."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from particlemesh import checks
from particlemesh.adapters.points import on_host
from particlemesh.autograd import lists
from particlemesh.autograd.jax_operators import alike, written
from particlemesh.grid import checks as of_grids

_TRACED = "JAX traces this call, so that shapes may not depend on numbers: give capacity, the most pairs."


def _padded(find: Any, capacity: int | None, given: tuple[bool, ...], *arrays: Any) -> tuple[Any, ...]:
    """Return i, j and S with as many rows as there is room for, and the number of pairs, from a call of the device."""
    positions = arrays[0]
    axes = 1 if positions.ndim == 1 else positions.shape[1]

    def write(device: Any, outs: list[Any], *arrays: Any) -> None:
        there = iter(arrays)
        pairs = find(*(next(there) if is_given else None for is_given in given))
        taken = min(capacity or 0, len(pairs[0]))
        for out, array in zip(outs, pairs, strict=False):
            out[:taken], out[taken:] = array[:taken], 0
        outs[3][...] = len(pairs[0])

    shapes: list[Any] = [(capacity,), (capacity,), (capacity, axes), ()]
    return tuple(alike([*written(write, [(shape, np.int32) for shape in shapes], *arrays), *arrays])[:4])


@functools.lru_cache(maxsize=256)
def _operator(text: str, given: tuple[bool, ...]) -> Any:
    search, capacity = functools.partial(lists.search, text), lists.capacity_of(text)
    return jax.custom_batching.sequential_vmap(jax.jit(functools.partial(_padded, search, capacity, given)))


@functools.lru_cache(maxsize=16)
def _operator_of(kept: Any, capacity: int, given: tuple[bool, ...]) -> Any:
    return jax.jit(functools.partial(_padded, functools.partial(_kept_pairs, kept), capacity, given))


def _kept_pairs(kept: Any, positions: Any, box: Any, boxes: Any) -> tuple[Any, ...]:
    arrays = kept.arrays("ijS", positions, None if box is None else on_host(box), boxes)
    return arrays["i"], arrays["j"], arrays["S"]


def neighbour_list(
    quantities: str, positions: Any, box: Any, radius: Any, *, periodic: Any = None, half: bool = False,
    system: Any = None, boxes: Any = None, capacity: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Return all pairs of particles within a distance; distances and vectors are differentiable, as often as needed.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDS", as of :func:`particlemesh.neighbour_list`.
    positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
    box : Box, lengths or matrix
        As numbers, or as an array (d,) or (d, d) by which results are differentiated.
    radius : number or array (N,)
        Pairs with distance ≤ ``radius``, or ≤ the sum of both radii. It is a constant.
    periodic, half, system
        As of :func:`particlemesh.neighbour_list`.
    boxes : array (S, d) or (S, d, d), optional
        Lengths or lattice vectors of each system; results are differentiated by them.
    capacity : int, optional
        Length of all results, whatever the number of pairs. Needed under ``jax.jit``, ``grad`` and ``vmap``. What is
        left has ``i = j = 0``, ``S = 0``, ``D = 0`` and ``d = inf``.
    **options
        ``backend`` and ``threads``, as of :func:`particlemesh.neighbour_list`.

    Returns
    -------
    array or tuple of arrays
        One for each letter. With ``capacity`` the number of pairs comes last, an int32 array without axes. If it is
        larger than ``capacity``, pairs are missing: ask again with more.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, a position is not finite, or JAX traces the call and ``capacity`` is missing.

    Notes
    -----
    The derivative of the distance of two particles at one place is taken as zero. Without ``jax_enable_x64`` sums are
    of float32: positions many boxes away lose digits of ``d`` and ``D``.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.autograd.jax import neighbour_list
    >>> x = jnp.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.4]])
    >>> def bond(x):
    ...     d, number = neighbour_list("d", x, (1.0, 1.0), 0.25, half=True, capacity=4)
    ...     return jnp.where(jnp.arange(4) < number, d, 0).sum()
    >>> jax.grad(bond)(x)[:2].round(6).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    of_grids.letters(quantities)
    positions = jnp.stack(positions, -1) if isinstance(positions, tuple) else jnp.asarray(positions)
    cell = jnp.asarray(box) if isinstance(box, (jax.Array, np.ndarray)) else None
    boxes, system = (None if a is None else jnp.asarray(a) for a in (boxes, system))
    radii = jnp.asarray(radius) if isinstance(radius, jax.Array) or np.ndim(radius) else None
    numbers = None if cell is not None else box, None if radii is not None else radius
    text = lists.text_of(quantities, *numbers, periodic, half, capacity, options, array=cell is not None)
    arrays = (positions, cell, boxes, system, radii)
    pairs: tuple[Any, ...]
    if capacity is not None:
        there = [jax.lax.stop_gradient(a) for a in arrays if a is not None]
        pairs = _operator(text, tuple(a is not None for a in arrays))(*there)
    elif any(isinstance(a, jax.core.Tracer) for a in arrays):
        raise TypeError(_TRACED)
    else:
        pairs = (*lists.search(text, *arrays), None)
    lattice: Any = boxes if boxes is not None else cell if cell is not None else jnp.asarray(lists.matrix_of(text))
    wide = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    system = None if boxes is None else system
    return lists.answers(quantities, jnp, jnp.asarray, wide, pairs, positions, lattice, system)


def kept_list(kept: Any, positions: Any, box: Any = None, boxes: Any = None, *, capacity: int | None = None) -> Any:
    """Return what a :class:`particlemesh.SkinList` returns, with distances and vectors that are differentiable.

    Parameters
    ----------
    kept : particlemesh.SkinList
        Of letters "ijdDS".
    positions, box, boxes
        As of a call of the list. Arrays of JAX have derivatives.
    capacity : int, optional
        As of :func:`neighbour_list`: needed where JAX traces the call. The list then decides when the program runs.

    Returns
    -------
    array or tuple of arrays
        One for each letter of the list. With ``capacity`` the number of pairs comes last.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or JAX traces the call and ``capacity`` is missing.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh.autograd.jax import kept_list
    >>> kept = pm.SkinList("d", (1.0, 1.0), 0.25, 0.1, half=True)
    >>> def bond(x):
    ...     d, number = kept_list(kept, x, capacity=4)
    ...     return jnp.where(jnp.arange(4) < number, d, 0).sum()
    >>> jax.grad(bond)(jnp.array([[0.1, 0.5], [0.9, 0.5]])).round(6).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    of_grids.letters(kept.quantities)
    positions = jnp.stack(positions, -1) if isinstance(positions, tuple) else jnp.asarray(positions)
    given = positions, box if box is None else jnp.asarray(box), boxes if boxes is None else jnp.asarray(boxes)
    constant = [None if a is None else jax.lax.stop_gradient(a) for a in given]
    if capacity is not None:
        capacity = checks.integer(capacity, "capacity", 1, lists.MOST)
        operator = _operator_of(kept, capacity, tuple(a is not None for a in given))
        pairs = operator(*[a for a in constant if a is not None])
    elif any(isinstance(a, jax.core.Tracer) for a in given):
        raise TypeError(_TRACED)
    else:
        pairs = (*_kept_pairs(kept, *constant), None)
    lattice = boxes if boxes is not None else box if box is not None else kept.lattice
    shared = kept.system is None or (boxes is None and box is not None)
    wide = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    system = None if shared else jnp.asarray(kept.system)
    return lists.answers(kept.quantities, jnp, jnp.asarray, wide, pairs, positions, jnp.asarray(lattice), system)
