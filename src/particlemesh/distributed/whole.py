# SPDX-License-Identifier: BSD-3-Clause
"""A field of all ranks on one of them, to write or draw it."""

from __future__ import annotations

from typing import Any

from particlemesh.distributed.domain import Domain, check_ranks, hash_of
from particlemesh.distributed.staging import Staged, several
from particlemesh.distributed.transports import module_of
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
    mesh = domain.mesh

    def accepted() -> tuple[str, list[Staged]]:
        check_ranks(domain, world)
        parts = domain.parts(world.rank)
        given = [Staged(one, "field") for one in several(field, domain.per_rank, "field")]
        for one, part in zip(given, parts, strict=True):
            shape = one.native.shape
            if shape[-mesh.ndim :] != part.shape or shape[: -mesh.ndim] != given[0].native.shape[: -mesh.ndim]:
                raise ValueError(f"field has shape {shape}; (..., {str(part.shape)[1:]} is needed, for its part.")
        first = given[0].native
        return f"whole_field of {first.dtype} {first.shape[: -mesh.ndim]}, cuts {hash_of(domain)}", given

    given = world.alike(accepted)
    first = given[0].native
    xp, batch = module_of(first), first.shape[: -mesh.ndim]
    with given[0].scope():
        whole = None if world.rank else xp.empty((*batch, *mesh.shape), first.dtype)
        for n, one in enumerate(given):
            parts = {} if world.rank else {rank: domain.parts(rank)[n] for rank in range(world.size)}
            rows = {rank: xp.empty((*batch, *part.shape), first.dtype) for rank, part in parts.items()}
            world.exchange({0: xp.ascontiguousarray(one.native)}, rows)
            for rank, part in parts.items():
                if whole is not None and part.size:
                    whole[(..., *map(slice, part.lower, part.upper))] = rows[rank]
        return None if whole is None else given[0].like(whole)
