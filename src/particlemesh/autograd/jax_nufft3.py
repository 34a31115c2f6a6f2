# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of type 3 under ``jit``, ``grad``, ``jvp`` and ``vmap`` of JAX.

A pair of operators, each the transpose of the other, takes points and frequencies as one table. A derivative by points
multiplies by is, one by frequencies by ix.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from particlemesh.autograd.jax_nufft import as_complex, run
from particlemesh.autograd.jax_operators import define
from particlemesh.autograd.nufft_facts import both_sets, facts_of, text_of


def _run(spreads: bool, both: Any, array: Any, order: int, facts: str, device: Any, out: Any) -> None:
    count, text = json.loads(facts)
    run(spreads, both, array, text, device, out, count)


def shape_of(spreads: bool, both: Any, array: Any, order: int, facts: str) -> tuple[int, ...]:
    """Return the shape of the sums of a transform of type 3."""
    count = json.loads(facts)[0]
    return (*array.shape[:-1], both.shape[0] - count if spreads else count)


def change_of(
    transform: Callable[..., Any], sign: int, count: int, spreads: bool, both: Any, moved: Any, array: Any, facts: str
) -> Any:
    """Return the result's change: ``exp(i s x)`` changes by ``i (s dx + x ds)``."""
    change = 0
    for at, step in zip(both.T.astype(array.dtype), moved.T.astype(array.dtype), strict=True):
        (here, there), (near, far) = (jnp.split(a, [count])[:: 1 if spreads else -1] for a in (at, step))
        change += there * transform(spreads, both, near * array, 0, facts)
        change += far * transform(spreads, both, here * array, 0, facts)
    return 1j * sign * change


def _change(*given: Any) -> Any:
    count, text = json.loads(given[-1])
    return change_of(_transform, facts_of(text)[2], count, *given)


_transform = define("particlemesh_nufft3", _run, shape_of, change=_change)


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
    facts = json.dumps([points.shape[0], text_of([points.shape[1]], eps, isign, options)])
    return _transform(True, jnp.concatenate([points, frequencies]), array, 0, facts)
