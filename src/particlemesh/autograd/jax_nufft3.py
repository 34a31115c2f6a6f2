# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of type 3 under ``jit``, ``grad``, ``jvp`` and ``vmap`` of JAX.

A pair of operators, each the transpose of the other, takes points and frequencies. A derivative by points multiplies
by is, one by frequencies by ix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from particlemesh.autograd.jax_nufft import as_complex, run
from particlemesh.autograd.jax_operators import define
from particlemesh.autograd.nufft_facts import both_sets, facts_of, shape_of, text_of


def change_of(
    transform: Callable[..., Any], sign: int, spreads: bool, points: Any, frequencies: Any, moves: Any, array: Any,
    facts: str,
) -> Any:  # fmt: skip
    """Return the result's change: ``exp(i s x)`` changes by ``i (s dx + x ds)``."""
    sets = points.astype(array.dtype), frequencies.astype(array.dtype)
    (here, there), (near, far) = (each[:: 1 if spreads else -1] for each in (sets, moves))
    change = 0
    for axis in range(points.shape[1]):
        for carried, weights in ((near, there), (here, far)):
            if carried is not None and weights is not None:
                moved = carried[:, axis].astype(array.dtype) * array
                change += weights[:, axis] * transform(spreads, points, frequencies, moved, 0, facts)
    return 1j * sign * change


def _change(*given: Any) -> Any:
    return change_of(_transform, facts_of(given[-1])[2], *given)


_transform = define("particlemesh_nufft3", run, shape_of, change=_change, sets=2)


def nufft3(points: Any, strengths: Any, frequencies: Any, *, eps: float = 1e-6, isign: int = 1, **options: Any) -> Any:
    """Type 3: sums at frequencies of strengths at points; differentiable by all three, in any order.

    Parameters
    ----------
    points, strengths, frequencies, eps, isign, **options
        As for :func:`particlemesh.autograd.torch_nufft3.nufft3`; all but the first three are constants.

    Returns
    -------
    complex jax.Array (..., M)

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh.autograd.jax_nufft3 import nufft3
    >>> wave = lambda x: nufft3(x, jnp.ones(1), jnp.array([1.5])).real.sum()  # cos(1.5 x)
    >>> print(jax.jit(jax.grad(wave))(jnp.array([0.5])).round(2))
    [-1.02]
    """
    array = as_complex(strengths)
    points, frequencies = both_sets(jnp.asarray(points), array, jnp.asarray(frequencies))
    return _transform(True, points, frequencies, array, 0, text_of([points.shape[1]], eps, isign, options))
