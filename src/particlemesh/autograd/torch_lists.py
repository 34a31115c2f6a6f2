# SPDX-License-Identifier: BSD-3-Clause
"""Lists of neighbours whose distances and vectors torch differentiates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from particlemesh.autograd import lists
from particlemesh.grid import checks as of_grids
from particlemesh.grid import forms

_text = torch.compiler.assume_constant_result(lists.text_of)
_matrix = torch.compiler.assume_constant_result(lists.matrix_of)


@torch.library.custom_op("particlemesh::neighbours", mutates_args=())
def _neighbours(
    positions: Tensor, cell: Tensor | None, boxes: Tensor | None, system: Tensor | None, radii: Tensor | None,
    radius: float, text: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    cell, boxes, system, radii = (None if a is None else a.detach() for a in (cell, boxes, system, radii))
    answer = lists.search(text, positions.detach(), cell, boxes, system, radii, radius)
    number = torch.tensor(len(answer[0]), device=positions.device)
    if (capacity := lists.capacity_of(text)) is None:
        return *answer, number
    taken = min(capacity, len(answer[0]))
    padded = [a.new_zeros((capacity, *a.shape[1:])) for a in answer]
    for room, a in zip(padded, answer, strict=True):
        room[:taken] = a[:taken]
    return padded[0], padded[1], padded[2], number


@_neighbours.register_fake
def _(
    positions: Tensor, cell: Any, boxes: Any, system: Any, radii: Any, radius: float, text: str
) -> tuple[Tensor, ...]:
    capacity, axes = lists.capacity_of(text), 1 if positions.ndim == 1 else positions.shape[1]
    pairs = torch.library.get_ctx().new_dynamic_size() if capacity is None else capacity
    integers = {"dtype": torch.int32}
    shapes = ((pairs,), (pairs,), (pairs, axes))
    return *(positions.new_empty(shape, **integers) for shape in shapes), positions.new_empty((), dtype=torch.int64)


def _of_batch(info: Any, axes: Any, *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, radius, text = arguments
    if lists.capacity_of(text) is None:
        raise ValueError("lists of a batch have different lengths: give capacity, or system= instead of vmap.")
    many = ([a] * info.batch_size if a is None or axis is None else a.unbind(axis)
            for a, axis in zip(tensors, axes, strict=False))  # fmt: skip
    results = [_Constant.apply(*one, radius, text) for one in zip(*many, strict=True)]
    return tuple(torch.stack(each) for each in zip(*results, strict=True)), (0,) * 4


_neighbours.register_vmap(_of_batch)


class _Constant(torch.autograd.Function):
    """The same under ``torch.func.grad``, which asks each operator for derivatives: these have none."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _neighbours(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[None, ...]:
        return (None,) * 7

    vmap = staticmethod(_of_batch)


def neighbour_list(
    quantities: str, positions: Any, box: Any, radius: Any, *, periodic: Any = None, half: bool = False,
    system: Tensor | None = None, boxes: Tensor | None = None, capacity: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Return all pairs of particles within a distance; distances and vectors are differentiable, as often as needed.

    :func:`particlemesh.neighbour_list` calls this if a tensor requires grad. It works under ``torch.func`` and
    ``torch.compile(fullgraph=True)``, and ``torch.export`` exports it.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDSns", as of :func:`particlemesh.neighbour_list`.
    positions : tensor (N, d), tuple of d tensors (N,), or tensor (N,) in 1-D
        On the CPU or a CUDA device.
    box : Box, lengths or matrix
        As numbers, or as a tensor (d,) or (d, d) by which results are differentiated.
    radius : number or tensor (N,)
        Pairs with distance ≤ ``radius``, or ≤ the sum of both radii. It is a constant.
    periodic, half, system
        As of :func:`particlemesh.neighbour_list`.
    boxes : tensor (S, d) or (S, d, d), optional
        Lengths or lattice vectors of each system; results are differentiated by them.
    capacity : int, optional
        Length of all results, whatever the number of pairs: for ``vmap`` and fixed shapes. What is left has
        ``i = j = 0``, ``S = 0``, ``D = 0`` and ``d = inf``.
    **options
        ``backend`` and ``threads``, as of :func:`particlemesh.neighbour_list`.

    Returns
    -------
    tensor or tuple of tensors
        One for each letter. With ``capacity`` the number of pairs comes last, an int64 tensor without axes. If it is
        larger than ``capacity``, pairs are missing: ask again with more.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or a position is not finite.

    Notes
    -----
    The derivative of the distance of two particles at one place is taken as zero.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.autograd.torch import neighbour_list
    >>> x = torch.tensor([[0.1, 0.5], [0.9, 0.5], [0.5, 0.4]], dtype=torch.float64, requires_grad=True)
    >>> d = neighbour_list("d", x, (1.0, 1.0), 0.25, half=True)
    >>> d.sum().backward()
    >>> x.grad[:2].tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    if isinstance(positions, tuple):
        positions = torch.stack(positions, -1)
    if not isinstance(positions, Tensor):
        raise TypeError(f"positions are of type {type(positions).__name__}; give a tensor.")
    device = positions.device
    cell = torch.as_tensor(box, device=device) if isinstance(box, (Tensor, np.ndarray)) else None
    boxes, system = (None if a is None else torch.as_tensor(a, device=device) for a in (boxes, system))
    radii = None if isinstance(radius, (int, float)) else torch.as_tensor(radius, device=device)
    text = _text(
        quantities, None if cell is not None else box, None, periodic, half, capacity, options, array=cell is not None
    )
    if radii is None and not torch.compiler.is_compiling():
        radius = of_grids.radius(radius)
    tensors = [None if a is None else a.detach() for a in (positions, cell, boxes, system, radii)]
    apply = _neighbours if torch.compiler.is_compiling() else _Constant.apply
    answer = apply(*tensors, 0.0 if radii is not None else float(radius), text)
    lattice = boxes if boxes is not None else cell
    if lattice is None:
        lattice = torch.tensor(_matrix(text), device=device)
    more = None
    if any(letter in forms.COUNTS for letter in quantities):
        numbers = torch.bincount(answer[0], minlength=len(positions))
        more = {"n": numbers.int(), "s": torch.cat([numbers.new_zeros(1), numbers.cumsum(0)])}
    pairs, system = (*answer[:3], None if capacity is None else answer[3]), None if boxes is None else system
    return lists.answers(quantities, torch, Tensor.to, torch.float64, pairs, positions, lattice, system, more)


def kept_list(kept: Any, positions: Any, box: Any, boxes: Any) -> Any:
    """Return what a :class:`particlemesh.SkinList` returns, with distances and vectors that have derivatives."""
    columns = positions if isinstance(positions, tuple) else (positions,)
    constant = tuple(x.detach() for x in columns)
    given = [a.detach().cpu().numpy() if isinstance(a, Tensor) else a for a in (box, boxes)]
    letters = "ijS" + "".join(letter for letter in kept.quantities if letter in forms.COUNTS)
    arrays = kept.arrays(letters, constant if isinstance(positions, tuple) else constant[0], *given)
    x = torch.stack(columns, -1) if isinstance(positions, tuple) else positions
    lattice = boxes if boxes is not None else box
    lattice = lattice if isinstance(lattice, Tensor) else torch.tensor(kept.lattice, device=x.device)
    pairs = arrays["i"].long(), arrays["j"].long(), arrays["S"], None
    shared = kept.system is None or (boxes is None and isinstance(box, Tensor))
    ids = kept.system if isinstance(kept.system, Tensor) else np.array(kept.system)
    system = None if shared else torch.as_tensor(ids, device=x.device).long()
    return lists.answers(kept.quantities, torch, Tensor.to, torch.float64, pairs, x, lattice, system, arrays)
