# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms under ``jit``, ``grad``, ``jvp`` and ``vmap`` of JAX.

Types 1 and 2 with one sign of the exponent are a pair of operators, each the transpose of the other. A derivative by
points multiplies modes by ik.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from particlemesh.autograd.jax_operators import POOL, define
from particlemesh.autograd.nufft_facts import check_types, facts_of, shape_of, sums, text_of, with_axes


def run(spreads: bool, *given: Any) -> None:
    """Write the sums of a plan for points, an array, an order and facts, of a device, to out; operators call it."""
    *sets, array, _, facts, device, out = given
    # The plan has exp(ikx) and its adjoint; transposes and the other sign are complex conjugates.
    turned = (facts_of(facts)[2] > 0) != spreads
    result = sums(POOL, facts, spreads, tuple(sets), array.conj() if turned else array, device)
    out[...] = (result.conj() if turned else result).reshape(out.shape)


def slopes_of(
    transform: Callable[..., Any], axes: Any, sign: int, spreads: bool, points: Any, array: Any, facts: str
) -> Any:
    """Return what the next order makes of slopes, for modes with these numbers along each axis."""
    weights = jnp.asarray(1j * sign * np.stack(np.meshgrid(*axes, indexing="ij")), array.dtype)
    if spreads:  # (..., N, d) to modes
        modes = transform(True, points, jnp.swapaxes(array, -1, -2), 0, facts)
        return (modes * weights).sum(-1 - len(axes))
    modes = weights * jnp.expand_dims(array, -1 - len(axes))
    return jnp.swapaxes(transform(False, points, modes, 0, facts), -1, -2)


def _slopes(spreads: bool, points: Any, array: Any, order: int, facts: str) -> Any:
    n_modes, _, sign, _ = facts_of(facts)
    axes = [np.arange(-(n // 2), (n + 1) // 2) for n in n_modes]
    return slopes_of(_transform, axes, sign, spreads, points, array, facts)


_transform = define("particlemesh_nufft", run, shape_of, _slopes)


def as_complex(array: Any) -> Any:
    """Return complex numbers: real ones with the imaginary part 0."""
    array = jnp.asarray(array)
    return array if jnp.iscomplexobj(array) else array * jnp.asarray(1 + 0j, jnp.result_type(array, 1j))


def nufft1(
    points: Any, strengths: Any, n_modes: int | tuple[int, ...], *, eps: float = 1e-6, isign: int = 1, **options: Any
) -> Any:
    """Type 1: modes of strengths at points; differentiable by points and strengths, in any order.

    Parameters
    ----------
    points, strengths, n_modes, eps, isign, **options
        As for :func:`particlemesh.autograd.torch_nufft.nufft1`; all but the first two are constants.

    Returns
    -------
    complex jax.Array (..., *n_modes)

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.autograd.jax_nufft import nufft1
    >>> second = lambda x: nufft1(x, jnp.ones(1), 5)[4].real.sum()  # cos(2 x)
    >>> print(jax.jit(jax.grad(second))(jnp.array([0.5])).round(2))
    [-1.68]
    """
    facts, points, strengths = text_of(n_modes, eps, isign, options), jnp.asarray(points), as_complex(strengths)
    check_types("strengths", strengths, points=points)
    return _transform(True, with_axes(points, len(facts_of(facts)[0])), strengths, 0, facts)


def nufft2(points: Any, modes: Any, *, eps: float = 1e-6, isign: int = -1, **options: Any) -> Any:
    """Type 2: sums of modes at points; differentiable by points and modes, in any order.

    Parameters
    ----------
    points, modes, eps, isign, **options
        As for :func:`particlemesh.autograd.torch_nufft.nufft2`; all but the first two are constants.

    Returns
    -------
    complex jax.Array (..., N)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from particlemesh.autograd.jax_nufft import nufft2
    >>> nufft2(jnp.array([0.0, jnp.pi]), jnp.array([0.0, 0.0, 1.0])).real.round(3)  # of k = -1, 0, 1
    Array([ 1., -1.], dtype=float32)
    """
    points, modes = jnp.asarray(points), as_complex(modes)
    check_types("modes", modes, points=points)
    axes = 1 if points.ndim == 1 else points.shape[-1]
    facts = text_of(tuple(modes.shape[modes.ndim - axes :]), eps, isign, options)
    return _transform(False, with_axes(points, axes), modes, 0, facts)
