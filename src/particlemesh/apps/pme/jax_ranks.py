# SPDX-License-Identifier: BSD-3-Clause
"""Energies of the charges of many ranks as functions of JAX arrays."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from particlemesh.apps.pme import derivatives, shares
from particlemesh.apps.pme.jax import JAX, near_energies
from particlemesh.apps.pme.ranks import DistributedPME
from particlemesh.autograd.jax import OverRanks

__all__ = ["energy"]


@functools.partial(jax.jit, static_argnums=0)
def _near(text: str, *arrays: Any) -> tuple[Any, Any]:
    return shares.near_sum(JAX, near_energies, text, *arrays)


def _room(count: int) -> int:
    """Return a number at least 512 and at most an eighth larger: programs are compiled for few sizes.

    JAX takes what has no rows for no function of others, and this rank would leave the others waiting.
    """
    step = max(512, 1 << max(count.bit_length() - 4, 0))
    return max(1, -(-count // step)) * step


_excluded = jax.jit(derivatives.excluded, static_argnums=(0, 6))
_KIND = shares.Kind(JAX, OverRanks, _near, _excluded, _room)


def energy(pme: DistributedPME, positions: Any, charges: Any, *, cell: Any = None) -> Any:
    """Return this rank's share of the energy of periodic charges; differentiable by positions, charges and cell, twice.

    The sum of all shares is the energy. Every rank differentiates its share outside of ``jit``, and gets the
    derivatives of the sum by its arrays, as with :class:`particlemesh.autograd.jax.OverRanks`. Sums over pairs are
    compiled for sizes at most an eighth larger, so that few programs serve all steps.

    Parameters
    ----------
    pme, positions, charges, cell
        As for :func:`particlemesh.apps.pme.torch_ranks.energy`.

    Returns
    -------
    jax.Array ()

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, particles lie in one place, or derivatives are by other arrays on another rank.
    particlemesh.distributed.RankError
        If another rank raised.
    NotImplementedError
        In compiled programs, or if third derivatives by positions are needed.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps.pme import DistributedPME
    >>> from particlemesh.apps.pme.jax_ranks import energy
    >>> x, q = jnp.array([[0.1, 0.5, 0.5], [0.6, 0.5, 0.5]]), jnp.array([1.0, -1.0])
    >>> pme = DistributedPME(pmd.World(), (2.0, 2.0, 2.0), accuracy=1e-4)
    >>> force = -jax.grad(lambda x: energy(pme, x, q))(x)
    >>> jnp.sign(force[:, 0]).tolist()  # they attract each other
    [1.0, -1.0]
    """
    x, q, cell = (None if a is None else jnp.asarray(a) for a in (positions, charges, cell))
    return shares.share(_KIND, pme, x, q, cell)
