# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists with the arguments of JAX MD's ``partition.neighbor_list``, for its energies and simulations."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import library
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.neighbour_list import neighbour_list as search

__all__ = ["neighbor_list"]


def neighbor_list(
    displacement_or_metric: Any, box: Any, r_cutoff: float, dr_threshold: float = 0.0,
    capacity_multiplier: float = 1.25, disable_cell_list: bool = False, mask_self: bool = True,
    custom_mask_function: None = None, fractional_coordinates: bool = False, format: Any = None,  # noqa: A002
    **static_kwargs: Any,
) -> Any:  # fmt: skip
    """Return functions that allocate and update lists, with the arguments of ``jax_md.partition.neighbor_list``.

    ``allocate`` finds the neighbours and how much room a list has. ``update`` may be compiled and differentiated: where
    particles have moved, the program calls the search on the host.

    Parameters
    ----------
    displacement_or_metric : callable
        Of ``jax_md.space``: free, or periodic along some axes. Other metrics are not searched.
    box : number, array (d,) or array (d, d)
        Lengths, or lattice vectors as columns, as in JAX MD; in the unit of the positions.
    r_cutoff, dr_threshold : number
        Pairs have a distance below their sum. Lists are renewed once a particle has moved by half of ``dr_threshold``.
    capacity_multiplier : number
        How much room a list has, in its first occupancy.
    disable_cell_list, **static_kwargs
        Of JAX MD; no effect here.
    mask_self : bool
        Whether particles are no neighbours of themselves.
    custom_mask_function : None
        Not supported: apply the function to ``idx`` of a list.
    fractional_coordinates : bool
        Whether positions are in units of the lattice vectors. Then both functions also take ``box``, and a call with it
        always renews the list.
    format : jax_md.partition.NeighborListFormat, optional
        By default ``Dense``.

    Returns
    -------
    jax_md.partition.NeighborListFns
        ``allocate(position, extra_capacity=0)`` and ``update(position, neighbors)``, which return a
        ``jax_md.partition.NeighborList``. Each neighbour is listed once, also if several of its images are near.

    Raises
    ------
    ImportError
        If JAX MD is not installed.
    ValueError, TypeError
        If an argument is not allowed. A position that is not finite is an error of the call, or of the program.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax_md import space
    >>> from particlemesh.adapters.jax_md import neighbor_list
    >>> displacement, shift = space.periodic(1.0)
    >>> allocate, update = neighbor_list(displacement, 1.0, 0.25)
    >>> x = jnp.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]])
    >>> neighbours = allocate(x)
    >>> neighbours.idx.tolist()
    [[1], [0], [3]]
    >>> jax.jit(update)(x + jnp.array([[0.0, 0.0], [0.0, 0.0], [0.3, 0.0]]), neighbours).did_buffer_overflow.item()
    1
    """
    jax = library("jax", "jax", "neighbor_list")
    partition: Any = library("jax_md.partition", "jax-md", "neighbor_list")
    jnp, formats = jax.numpy, partition.NeighborListFormat
    if custom_mask_function is not None:
        raise ValueError("custom_mask_function is not supported: apply it to idx of the list.")
    if format is not None and not isinstance(format, formats):
        raise ValueError(f"format is {format!r}; a jax_md.partition.NeighborListFormat is needed.")
    layout = formats.Dense if format is None else format
    common.flag(mask_self, "mask_self")
    common.flag(fractional_coordinates, "fractional_coordinates")
    cutoff, threshold = checks.radius(float(r_cutoff) + float(dr_threshold)), float(dr_threshold)
    dense, ordered = layout is formats.Dense, layout is formats.OrderedSparse

    def squares(a: Any, b: Any, **options: Any) -> Any:
        return jnp.square(displacement_or_metric(a, b, **options)).sum()

    def repeats(lattice: Any, axis: int) -> bool:
        """Return whether a particle near the end of the box is near its beginning."""
        with jax.ensure_compile_time_eval():
            end = jnp.asarray(np.eye(len(lattice))[axis] if fractional_coordinates else lattice[axis])
            return bool(squares(0 * end, 0.9 * end) < squares(0 * end, 0.4 * end))

    def pairs(position: Any, cell: Any, flags: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (receiver, sender) of JAX MD, by sender."""
        x, rows = np.asarray(position), _lattice(cell, len(flags))
        x = x @ rows.astype(x.dtype) if fractional_coordinates else x
        below = float(np.nextafter(x.dtype.type(cutoff), x.dtype.type(0)))
        i, j = search("ij", x, Box(rows, periodic=flags), below) if cutoff else np.zeros((2, 0), np.int32)
        code = np.unique(i[i != j].astype(np.int64) * len(x) + j[i != j])  # each image is a pair of the search
        if not mask_self:
            code = np.sort(np.concatenate([code, np.arange(len(x)) * (len(x) + 1)]))
        i, j = np.divmod(code, max(len(x), 1))
        return (j[j < i], i[j < i]) if ordered else (j, i)

    def table(position: Any, cell: Any, flags: tuple[bool, ...], room: int) -> tuple[np.ndarray, Any]:
        """Return the indices of a list with some room, and how much it needs."""
        j, i = pairs(position, cell, flags)
        count = len(position)
        counts = np.bincount(i, minlength=count)
        most = counts.max(initial=0) if dense else len(i)
        if dense:
            indices = np.full((count, room), count, np.int32)
            column = np.arange(len(i)) - (np.cumsum(counts) - counts)[i]
            keep = column < room
            indices[i[keep], column[keep]] = j[keep]
        else:
            indices = np.full((2, room), count, np.int32)
            indices[:, : len(i)] = np.stack([j, i])[:, :room]
        return indices, np.int32(most)

    def geometry(position: Any, options: dict[str, Any]) -> tuple[Any, tuple[bool, ...]]:
        if "box" in options and not fractional_coordinates:
            raise ValueError("box is given, but fractional_coordinates is False: only fractions follow a box.")
        if len(position.shape) != 2 or not 1 <= position.shape[1] <= 3:
            raise ValueError(f"position has shape {position.shape}; (n, d) of 1 to 3 axes is needed.")
        lattice = _lattice(box, position.shape[1])
        return options.get("box", box), tuple(repeats(lattice, axis) for axis in range(len(lattice)))

    def made(indices: Any, position: Any, error: Any, room: int) -> Any:
        return partition.NeighborList(indices, position, error, None, room, layout, None, None, update)

    def allocate(position: Any, extra_capacity: int = 0, **options: Any) -> Any:
        count = position.shape[0]
        cell, flags = geometry(position, options)
        _, most = table(position, cell, flags, 0)
        room = int(most * capacity_multiplier + extra_capacity * (1 if dense else count))
        partners = max(count - mask_self, 0)  # of a particle, at most
        room = min(room, partners if dense else count * (count - 1) // 2 if ordered else count * partners)
        indices, _ = table(position, cell, flags, room)
        fine = partition.PartitionError(jnp.zeros((), jnp.uint8))
        fine = fine.update(partition.PEC.NEIGHBOR_LIST_OVERFLOW, most > room)
        return made(jnp.asarray(indices), position, fine, room)

    def update(position: Any, neighbors: Any, **options: Any) -> Any:
        fixed = jax.lax.stop_gradient(position)
        cell, flags = geometry(fixed, options)
        room, shape = neighbors.max_occupancy, neighbors.idx.shape

        def renewed(fixed: Any) -> Any:
            form = jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
            given = [jax.lax.stop_gradient(cell)] if "box" in options else []  # else in full precision
            indices, most = jax.pure_callback(
                lambda x, b=cell: table(x, b, flags, room), form, fixed, *given, vmap_method="sequential"
            )
            error = neighbors.error.update(partition.PEC.NEIGHBOR_LIST_OVERFLOW, most > room)
            return made(indices, fixed, error, room)

        if not threshold or "box" in options:
            return renewed(fixed)
        reference = jax.lax.stop_gradient(neighbors.reference_position)
        moved = jax.vmap(lambda a, b: squares(a, b, **options))(fixed, reference) > (threshold / 2) ** 2
        return jax.lax.cond(
            moved.any(), renewed, lambda _: made(neighbors.idx, reference, neighbors.error, room), fixed
        )

    return partition.NeighborListFns(allocate, update)


def _lattice(box: Any, axes: int) -> np.ndarray:
    """Return the lattice vectors of JAX MD's box as rows."""
    array = np.asarray(box, np.float64)
    if array.shape not in ((), (1,), (axes,), (axes, axes)):
        raise ValueError(f"box has shape {array.shape}; a number, ({axes},) or ({axes}, {axes}) is needed.")
    return array.T if array.ndim == 2 else np.diag(np.broadcast_to(array, (axes,)))
