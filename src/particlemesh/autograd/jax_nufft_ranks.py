# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms over many ranks, with derivatives of JAX of any order."""

from __future__ import annotations

from typing import Any

from particlemesh.autograd import nufft_ranks
from particlemesh.autograd.jax_nufft import as_complex, slopes_of
from particlemesh.autograd.jax_nufft3 import change_of
from particlemesh.autograd.jax_operators import define
from particlemesh.autograd.jax_ranks import LIBRARY
from particlemesh.autograd.nufft_facts import shape_of


def _slopes(spreads: bool, points: Any, array: Any, order: int, text: str) -> Any:
    return slopes_of(_transform, *nufft_ranks.axes_of(text), spreads, points, array, text)


def _change_3(*given: Any) -> Any:
    return change_of(_transform_3, nufft_ranks.facts_of(given[-1])[1], *given)


_transform = define("nufft_over_ranks", nufft_ranks.run, nufft_ranks.shape, _slopes, over_ranks=True)
_transform_3 = define(
    "nufft3_over_ranks", nufft_ranks.run_3, shape_of, change=_change_3, sets=2, over_ranks=True
)  # fmt: skip


class NUFFTOverRanks(nufft_ranks.NUFFTOverRanks):
    r"""Differentiable non-uniform Fourier transforms of the points, modes and frequencies of many ranks.

    The verbs are those of :class:`particlemesh.autograd.torch_nufft_ranks.NUFFTOverRanks`, in forward and reverse mode
    and of any order. Every rank makes the same calls outside of ``jit``, as for
    :class:`~particlemesh.autograd.jax.OverRanks`.

    Parameters
    ----------
    world, n_modes, eps, **options
        As for :class:`particlemesh.autograd.torch_nufft_ranks.NUFFTOverRanks`.

    Attributes
    ----------
    part : tuple of (int, int)
        The range of this rank's modes along each axis, in ascending order of their numbers.
    shape : tuple of int
        Their number.
    numbers : tuple of arrays
        The numbers of this rank's modes along each axis.

    Raises
    ------
    ValueError, TypeError, particlemesh.distributed.RankError
        As for :class:`particlemesh.apps.nufft.DistributedPlan`. Calls raise if derivatives are by other inputs on
        another rank.
    NotImplementedError
        In compiled programs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.autograd.jax_nufft_ranks import NUFFTOverRanks
    >>> transform = NUFFTOverRanks(pmd.World(), 5)
    >>> second = lambda x: transform.nufft1(x, jnp.ones(1))[4].real  # cos(2 x)
    >>> print(jax.grad(second)(jnp.array([0.5])).round(2))
    [-1.68]
    """

    library, as_complex = LIBRARY, staticmethod(as_complex)
    transfer, transfer_3 = staticmethod(_transform), staticmethod(_transform_3)
