# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists of metatomic's systems, with the arguments of ``vesin.metatomic``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import check, library
from particlemesh.adapters.points import on_host, systems_of
from particlemesh.grid.checks import radius
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = ["NeighborList", "neighbor_lists_for_model"]

_SAMPLES = ["first_atom", "second_atom", "cell_shift_a", "cell_shift_b", "cell_shift_c"]


class NeighborList(common.Fixed):
    """The list that a model asks for, with the arguments, results and meaning of ``vesin.metatomic.NeighborList``.

    Parameters
    ----------
    options : metatomic.torch.NeighborListOptions
        The cutoff, and whether pairs are listed from both sides. Pairs have a distance below the cutoff.
    length_unit : str
        Of the systems, such as "A" or "nm". The cutoff is converted to it if the options name a unit.
    torchscript : {False}
        Lists are searched from Python; TorchScript cannot compile that.
    check_consistency : bool
        Whether metatomic compares the vectors with the positions.
    skin : number
        Of vesin, which keeps lists; no effect on the result in either.

    Raises
    ------
    ImportError
        If metatomic-torch is not installed.
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import torch
    >>> from metatomic.torch import NeighborListOptions, System
    >>> from particlemesh.adapters.metatomic import NeighborList
    >>> x = torch.tensor([[0.1, 0.0, 0.0], [3.9, 0.0, 0.0]])
    >>> atoms = dict(types=torch.tensor([1, 1]), positions=x)
    >>> system = System(cell=4 * torch.eye(3), pbc=torch.tensor([True] * 3), **atoms)
    >>> options = NeighborListOptions(cutoff=1.0, full_list=False, strict=True)
    >>> block = NeighborList(options, length_unit="A").compute(system)
    >>> block.samples.values.tolist(), block.values.squeeze()
    ([[0, 1, -1, 0, 0]], tensor([-0.2000,  0.0000,  0.0000]))
    """

    def __init__(
        self,
        options: Any,
        length_unit: str,
        torchscript: bool = False,
        check_consistency: bool = False,
        skin: float = 2.0,
    ) -> None:
        library("metatomic.torch", "metatomic-torch", "NeighborList")
        check(options, ("engine_cutoff", "full_list"), "a metatomic.torch.NeighborListOptions")
        if torchscript:
            raise ValueError("torchscript is True; only False is allowed: call compute() from Python.")
        if not isinstance(length_unit, str):
            raise TypeError(f"length_unit is a {type(length_unit).__name__}; give a unit of metatomic, such as 'A'.")
        self.options, self.length_unit = options, length_unit
        self.cutoff = options.engine_cutoff(length_unit)
        self.check_consistency = common.flag(check_consistency, "check_consistency")
        self.skin = radius(skin)

    def compute(self, system: Any, copy: bool = True) -> Any:
        """Return the neighbours of the atoms of one system.

        Parameters
        ----------
        system : metatomic.torch.System
            Its atoms may lie outside of its cell. Lattice vectors of open axes have no effect.
        copy : bool
            Of vesin; no effect, results always stay valid.

        Returns
        -------
        metatensor.torch.TensorBlock
            Vectors (P, 3, 1) from the first to the second atom. Samples are int32: both atoms, and how many times each
            lattice vector is added to the second. The vectors have derivatives by positions and cell, if these
            require them.

        Raises
        ------
        ValueError, TypeError
            If it is no system, or a position is not finite.
        """
        common.flag(copy, "copy")
        return self._blocks([system])[0]

    def add_neighbor_list(self, systems: Any, copy: bool = True) -> None:
        """Give systems their lists; those of several systems are searched for at once.

        Parameters
        ----------
        systems : metatomic.torch.System, or a list of them
        copy : bool
            Of vesin; no effect.

        Raises
        ------
        ValueError, TypeError
            If these are no systems, of several types or devices, have the list already, or a position is not finite. No
        system is changed.
        """
        common.flag(copy, "copy")
        given = [*systems] if isinstance(systems, (list, tuple)) else [systems]
        for number, system in enumerate(given):
            if any(known == self.options for known in getattr(system, "known_neighbor_lists", list)()):
                raise ValueError(f"system {number} has this list already: give each system once.")
        for system, block in zip(given, self._blocks(given), strict=True):
            system.add_neighbor_list(self.options, block)

    def _blocks(self, systems: Sequence[Any]) -> list[Any]:
        import torch
        from metatomic.torch import register_autograd_neighbors

        for system in systems:
            check(system, ("positions", "cell", "pbc", "add_neighbor_list"), "a metatomic.torch.System")
        kinds = sorted({f"{system.positions.dtype} on {system.device}" for system in systems})
        if len(kinds) > 1:
            raise ValueError(f"positions of the systems are {' and '.join(kinds)}: give one type and device.")
        if not systems:
            return []
        # float64 decides which pairs are near, as in vesin.
        x = torch.cat([system.positions.detach() for system in systems]).double()
        counts = torch.tensor([len(system.positions) for system in systems], device=x.device)
        flags = np.stack([on_host(system.pbc) for system in systems])
        cells = np.stack([on_host(system.cell.detach()) for system in systems]).astype(np.float64)
        ids = torch.repeat_interleave(torch.arange(len(systems), device=x.device, dtype=torch.int32), counts)
        reach, half = math.nextafter(self.cutoff, 0.0), not self.options.full_list
        try:
            i, j, shifts, vectors = search("ijSD", x, radius=reach, half=half, **systems_of(ids, cells, flags))
        except ValueError:
            _name_bad_positions(systems)
            raise
        ends = counts.cumsum(0)
        first = torch.searchsorted(i, ends - counts)  # pairs are sorted by their first atoms
        bounds = [*first.tolist(), len(i)]
        samples = torch.cat([torch.stack([i, j], 1) - (ends - counts)[ids[i.long()].long()][:, None], shifts], 1).int()
        vectors = vectors.to(systems[0].positions.dtype)[..., None]
        blocks = [self._block(samples[a:b], vectors[a:b]) for a, b in itertools.pairwise(bounds)]
        for system, block in zip(systems, blocks, strict=True):
            register_autograd_neighbors(system, block, check_consistency=self.check_consistency)
        return blocks

    @staticmethod
    def _block(samples: Any, vectors: Any) -> Any:
        import torch
        from metatensor.torch import Labels, TensorBlock

        def labels(name: str, count: int) -> Any:
            return Labels(name, torch.arange(count, dtype=torch.int32, device=vectors.device)[:, None])

        return TensorBlock(
            vectors.contiguous(),
            samples=Labels(_SAMPLES, samples.contiguous(), assume_unique=True),
            components=[labels("xyz", 3)],
            properties=labels("distance", 1),
        )


def neighbor_lists_for_model(
    system_length_unit: str, model: Any, model_length_unit: str | None = None, torchscript: bool = False,
    check_consistency: bool = False, skin: float = 2.0,
) -> list[NeighborList]:  # fmt: skip
    """Return all lists that a model asks for, with the arguments of ``vesin.metatomic.neighbor_lists_for_model``.

    Parameters
    ----------
    system_length_unit : str
        Of the systems.
    model : metatomic.torch.AtomisticModel or torch.nn.Module
        Whose modules may have a method ``requested_neighbor_lists``.
    model_length_unit : str, optional
        Of a module. An ``AtomisticModel`` has its own.
    torchscript, check_consistency, skin
        Of :class:`NeighborList`.

    Returns
    -------
    list of NeighborList
        One for each different list. Call ``add_neighbor_list(systems)`` of each.

    Raises
    ------
    ImportError
        If metatomic-torch is not installed.
    ValueError, TypeError
        If an argument is not allowed, or units do not agree.

    Examples
    --------
    >>> import torch
    >>> from metatomic.torch import NeighborListOptions
    >>> from particlemesh.adapters.metatomic import neighbor_lists_for_model
    >>> class Model(torch.nn.Module):
    ...     def requested_neighbor_lists(self):
    ...         return [NeighborListOptions(cutoff=5.0, full_list=True, strict=True)]
    >>> [round(made.cutoff, 6) for made in neighbor_lists_for_model("nm", Model(), "A")]
    [0.5]
    """
    host = library("metatomic.torch", "metatomic-torch", "neighbor_lists_for_model")
    if isinstance(model, host.AtomisticModel):
        unit = model.capabilities().length_unit
        if model_length_unit not in (None, unit):
            raise ValueError(
                f"the given `model_length_unit` ({model_length_unit}) does not match the model capabilities ({unit})"
            )
        asked = model.requested_neighbor_lists()
    else:
        check(model, ("named_modules",), "a torch.nn.Module")
        if model_length_unit is None:
            raise ValueError("model_length_unit is None; a module has no unit of its own: give that of its cutoffs.")
        asked = _asked(model, model_length_unit)
    options = torchscript, check_consistency, skin
    return [NeighborList(each, system_length_unit, *options) for each in asked]


def _name_bad_positions(systems: Sequence[Any]) -> None:
    """Raise an error that names the first position that is not finite, in the numbering of its system."""
    for number, system in enumerate(systems):
        x = on_host(system.positions.detach())
        wrong = np.flatnonzero(~np.isfinite(x).all(1))
        if wrong.size:
            raise ValueError(f"positions[{wrong[0]}] of system {number} is {x[wrong[0]]}; all must be finite.")


def _asked(model: Any, unit: str) -> list[Any]:
    """Return the options that the modules of a model ask for, each once, with the names of who asks."""
    asked: list[Any] = []
    for name, module in model.named_modules(prefix=type(model).__name__):
        for options in getattr(module, "requested_neighbor_lists", list)():
            if options.length_unit not in ("", unit):
                raise ValueError(
                    f"{name} asks for a list in {options.length_unit!r}, and model_length_unit is {unit!r}."
                )
            options.length_unit = unit
            same = next((each for each in asked if each == options), None)
            if same is None:
                asked.append(options)
                same = options
            for requestor in (name, *options.requestors()):
                same.add_requestor(requestor)
    return asked
