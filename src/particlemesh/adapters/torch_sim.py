# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists with the arguments of torch-sim's: the ``neighbor_list_fn`` of its models."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import library
from particlemesh.adapters.points import on_host, systems_of
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = ["torchsim_nl"]


def torchsim_nl(
    positions: Any, cell: Any, pbc: Any, cutoff: Any, system_idx: Any, self_interaction: bool = False
) -> tuple[Any, Any, Any]:
    """Return the neighbours of the atoms of many systems, with the arguments of ``torch_sim.neighbors.torchsim_nl``.

    Parameters
    ----------
    positions : tensor (N, 3)
        In the user's length unit, float32 or float64, on the CPU or a CUDA device. Atoms may lie outside of their cell.
    cell : tensor (3, 3), (S, 3, 3) or (3 S, 3)
        Lattice vectors as rows, of all systems or of each. Those of open axes have no effect and may be zero.
    pbc : bool, or bool tensor (3,), (S, 3) or (3 S,)
        Which axes repeat.
    cutoff : number
        Pairs have a distance below it, as in torch-sim.
    system_idx : int tensor (N,)
        The system of each atom, from 0 on, in any order.
    self_interaction : bool
        Whether each atom is its own neighbour, at the end of the list. Its periodic images are listed in any case.

    Returns
    -------
    mapping : int64 tensor (2, P)
        The atoms of each pair, from both sides; ``mapping[0]`` ascends.
    system_mapping : int64 tensor (P,)
        The system of each pair.
    shifts : tensor (P, 3)
        How many times each lattice vector is added to the position of ``mapping[1]``, in the type of the positions.

    Raises
    ------
    ImportError
        If torch is not installed.
    ValueError, TypeError
        If an argument is not allowed, or a position is not finite.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.adapters.torch_sim import torchsim_nl
    >>> x = torch.tensor([[0.1, 0.0, 0.0], [0.9, 0.0, 0.0], [0.1, 0.0, 0.0], [0.9, 0.0, 0.0]])
    >>> pbc = torch.tensor([[True] * 3, [False] * 3])
    >>> mapping, system, shifts = torchsim_nl(x, torch.eye(3), pbc, 0.5, torch.tensor([0, 0, 1, 1]))
    >>> mapping.tolist(), system.tolist(), shifts.tolist()
    ([[0, 1], [1, 0]], [0, 0], [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    """
    torch = library("torch", "torch", "torchsim_nl")
    common.flag(self_interaction, "self_interaction")
    if not isinstance(positions, torch.Tensor) or positions.shape[1:] != (3,) or not positions.is_floating_point():
        given = getattr(positions, "dtype", type(positions).__name__), tuple(getattr(positions, "shape", ()))
        raise ValueError(f"positions are {given[0]} of shape {given[1]}; a tensor of reals (n, 3) is needed.")
    x, reach = positions.detach(), checks.radius(float(cutoff))
    if not isinstance(system_idx, torch.Tensor) or system_idx.is_floating_point() or system_idx.shape != (len(x),):
        raise ValueError(f"system_idx has shape {tuple(np.shape(system_idx))}; integers ({len(x)},) are needed.")
    ids = on_host(system_idx).astype(np.int64)
    lattices, flags = _systems(cell, pbc, int(ids.max(initial=0)) + 1)
    if ids.min(initial=0) < 0:
        raise ValueError(f"system_idx has {ids.min()}; allowed are 0 to {len(lattices) - 1}.")
    # The largest distance below the cutoff, in the type of the positions.
    below = float(torch.nextafter(torch.tensor(reach, dtype=x.dtype), torch.zeros((), dtype=x.dtype)))
    if reach:
        i, j, shifts = search("ijS", x, radius=below, **systems_of(system_idx, lattices, flags))
        mapping = torch.stack([i, j]).long()
    else:
        mapping, shifts = x.new_zeros((2, 0), dtype=torch.int64), x.new_zeros((0, 3), dtype=torch.int32)
    if self_interaction:
        selves = torch.arange(len(x), device=x.device)
        mapping = torch.cat([mapping, selves.expand(2, -1)], 1)
        shifts = torch.cat([shifts, shifts.new_zeros((len(x), 3))])
    return mapping, system_idx.long()[mapping[0]], shifts.to(x.dtype)


def _systems(cell: Any, pbc: Any, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lattice vectors (S, 3, 3) and periodic axes (S, 3) of at least so many systems."""
    lattices, flags = np.array(on_host(cell), np.float64), np.array(on_host(pbc))
    if flags.dtype != bool or (flags.size != 1 and (flags.size % 3 or not flags.size)):
        raise ValueError(f"pbc has dtype {flags.dtype} and shape {flags.shape}; bools (3,) or (systems, 3) are needed.")
    if lattices.shape[-1:] != (3,) or lattices.size % 9 or not lattices.size:
        raise ValueError(f"cell has shape {lattices.shape}; (3, 3) or (systems, 3, 3) is needed.")
    lattices, flags = lattices.reshape(-1, 3, 3), flags.reshape(-1, 3 if flags.size > 1 else 1)
    count = max(least, len(lattices), len(flags))
    for array, what in ((lattices, "cell"), (flags, "pbc")):
        if len(array) not in (1, count):
            raise ValueError(f"{what} is that of {len(array)} systems; there are {count}: give one, or one of each.")
    return np.broadcast_to(lattices, (count, 3, 3)), np.broadcast_to(flags, (count, 3))
