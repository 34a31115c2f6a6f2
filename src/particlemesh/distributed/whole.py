# SPDX-License-Identifier: BSD-3-Clause
"""A field of all ranks on one of them, to write or draw it."""

from __future__ import annotations

from typing import Any

from particlemesh.distributed.domain import Domain, hash_of
from particlemesh.distributed.transfer import Partition, Transfer, layout_of, moved
from particlemesh.distributed.world import World


def whole_field(field: Any, domain: Domain, world: World) -> Any:
    r"""Return the field of all ranks on the first rank, and None on the others; every rank calls.

    Parameters
    ----------
    field : array (..., \*part), or tuple with one for each part of this rank
        Its nodes, in one dtype on all ranks.
    domain : Domain
        Which rank owns which nodes.
    world : World

    Returns
    -------
    array (..., \*domain.mesh.shape), or None
        Of the library of ``field``.

    Raises
    ------
    ValueError, TypeError
        If a field has not the shape of its part.
    RankError
        If another rank raised, or has other leading axes or another dtype.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((4, 3), (1.0, 1.0)), world.size)
    >>> density = pmd.Plan(domain, world, "cic").set_positions([[0.5, 0.5]]).spread(np.ones(1))
    >>> float(pmd.whole_field(density, domain, world).sum())
    1.0
    """
    with world.agreement("whole_field"):
        parts = layout_of(domain, world)
    whole, none = tuple((0, n) for n in parts.shape), ((0, 0),) * len(parts.shape)
    target = Partition(parts.shape, ((whole,), *((none,),) * (world.size - 1)))
    transfer = Transfer(parts, target, world.rank)
    result = moved(transfer, field, world, "whole_field", str(hash_of(domain)), True, copies=True)
    return None if world.rank else result
