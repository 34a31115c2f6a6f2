# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour graphs with the functions of torch_cluster, also in periodic boxes: ``radius_graph``, ``knn_graph``, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh import checks as common
from particlemesh.adapters import library
from particlemesh.adapters.points import Points, on_host
from particlemesh.grid import checks

__all__ = ["knn", "knn_graph", "radius", "radius_graph"]

_IN_A_TABLE = 128  # neighbours of a row, which UniformGrid.nearest returns: no list of all pairs is made
_SAMPLE = 256  # points whose neighbours are counted where outliers decide
_FLOWS = ("source_to_target", "target_to_source")


def radius_graph(
    x: Any, r: float, batch: Any = None, loop: bool = False, max_num_neighbors: int | None = 32,
    flow: str = "source_to_target", num_workers: int = 1, batch_size: int | None = None, *, cell: Any = None,
    pbc: Any = None, return_shifts: bool = False,
) -> Any:  # fmt: skip
    """Return the edges between all points closer than ``r``, with the arguments of ``torch_cluster.radius_graph``.

    Parameters
    ----------
    x : tensor (N, d) or (N,)
        Points of 1 to 3 axes, on the CPU or a CUDA device. Half precision is searched in float32, integers in float64.
    r : number
        Edges have a distance below ``r``, in the unit of ``x``, as in torch_cluster.
    batch : int tensor (N,), optional
        The example of each point, from 0 on, in any order: edges join points of one example.
    loop : bool
        Whether each point has an edge to itself. Its periodic images always count.
    max_num_neighbors : int or None
        Most neighbours of each point; None for all, as in PyTorch Geometric. The nearest are kept, of equal distances
        those with the smaller index. torch_cluster keeps arbitrary ones.
    flow : {"source_to_target", "target_to_source"}
        With the first, neighbours are in row 0 and the points that see them in row 1; with the second the reverse.
    num_workers : int
        Most threads in torch_cluster; no effect here.
    batch_size : int, optional
        Number of examples. By default it follows from ``batch``, whose largest index is then read.
    cell : (d, d) or (B, d, d), optional
        Lattice vectors as rows, of all examples or of each, in the unit of ``x``. Without it there is no box.
    pbc : bool, d bools or (B, d) bools, optional
        Which axes repeat, in all examples or in each; by default all with a ``cell``.
    return_shifts : bool
        Whether to return the images as well.

    Returns
    -------
    edge_index : int64 tensor (2, E)
        Sorted by the point that sees. Each image of a neighbour within ``r`` is an edge.
    shifts : int64 tensor (E, d)
        With ``return_shifts``: how many times each lattice vector is added to the neighbour's position.

    Raises
    ------
    ImportError
        If torch is not installed.
    ValueError, TypeError
        If an argument is not allowed, or a point is not finite.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.adapters.torch_cluster import radius_graph
    >>> x = torch.tensor([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]])
    >>> radius_graph(x, 0.45)
    tensor([[2, 2, 1, 0],
            [0, 1, 2, 2]])
    >>> radius_graph(x, 0.25, cell=torch.eye(2), return_shifts=True)
    (tensor([[1, 0],
            [0, 1]]), tensor([[-1,  0],
            [ 1,  0]]))
    """
    common.flag(loop, "loop")
    common.one_of(flow, "flow", _FLOWS)
    edges = _radius(x, None, r, batch, None, max_num_neighbors, batch_size, cell, pbc, return_shifts, loop)
    return _directed(edges, flow)


def radius(
    x: Any, y: Any, r: float, batch_x: Any = None, batch_y: Any = None, max_num_neighbors: int | None = 32,
    num_workers: int = 1, batch_size: int | None = None, ignore_same_index: bool = False, *, cell: Any = None,
    pbc: Any = None, return_shifts: bool = False,
) -> Any:  # fmt: skip
    """Return the points of ``x`` closer than ``r`` to each point of ``y``, with ``torch_cluster.radius``'s arguments.

    Parameters
    ----------
    x, y : tensor (N, d) or (N,), and (M, d) or (M,)
        Points of 1 to 3 axes, of one type and on one device.
    r, max_num_neighbors, num_workers, batch_size, cell, pbc, return_shifts
        As for :func:`radius_graph`.
    batch_x, batch_y : int tensor (N,) and (M,), optional
        The example of each point, in any order.
    ignore_same_index : bool
        Whether a point of ``y`` ignores the point of ``x`` with its index; images of it count.

    Returns
    -------
    int64 tensor (2, E)
        Indices of points of ``y``, ascending, and of ``x``. With ``return_shifts`` also the images, as for
        :func:`radius_graph`.

    Raises
    ------
    ImportError, ValueError, TypeError
        As for :func:`radius_graph`.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.adapters.torch_cluster import radius
    >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    >>> radius(x, torch.tensor([[-1.0, 0.5], [1.0, 0.0]]), 1.1)
    tensor([[0, 1, 1],
            [1, 2, 3]])
    """
    common.flag(ignore_same_index, "ignore_same_index")
    return _radius(
        x, y, r, batch_x, batch_y, max_num_neighbors, batch_size, cell, pbc, return_shifts, not ignore_same_index
    )


def knn_graph(
    x: Any, k: int, batch: Any = None, loop: bool = False, flow: str = "source_to_target", cosine: bool = False,
    num_workers: int = 1, batch_size: int | None = None, *, cell: Any = None, pbc: Any = None,
) -> Any:  # fmt: skip
    """Return the edges to the ``k`` nearest points of each point, with the arguments of ``torch_cluster.knn_graph``.

    Parameters
    ----------
    x, batch, loop, flow, num_workers, batch_size, cell, pbc
        As for :func:`radius_graph`.
    k : int
        Neighbours of each point, fewer where its example has fewer. With ``loop`` the point itself is one of them.
        Above 128 the search works on the host. Each periodic image counts.
    cosine : bool
        Only False: distances are Euclidean.

    Returns
    -------
    int64 tensor (2, E)
        The neighbours of each point by distance, then by index.

    Raises
    ------
    ImportError, ValueError, TypeError
        As for :func:`radius_graph`.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.adapters.torch_cluster import knn_graph
    >>> knn_graph(torch.tensor([0.0, 1.0, 3.0]), 1)
    tensor([[1, 0, 1],
            [0, 1, 2]])
    """
    common.flag(loop, "loop")
    common.one_of(flow, "flow", _FLOWS)
    return _directed(_knn(x, None, k, batch, None, cosine, batch_size, cell, pbc, loop), flow)


def knn(
    x: Any, y: Any, k: int, batch_x: Any = None, batch_y: Any = None, cosine: bool = False, num_workers: int = 1,
    batch_size: int | None = None, *, cell: Any = None, pbc: Any = None,
) -> Any:  # fmt: skip
    """Return the ``k`` points of ``x`` nearest to each point of ``y``, with the arguments of ``torch_cluster.knn``.

    Parameters
    ----------
    x, y, batch_x, batch_y
        As for :func:`radius`.
    k, cosine
        As for :func:`knn_graph`.
    num_workers, batch_size, cell, pbc
        As for :func:`radius_graph`.

    Returns
    -------
    int64 tensor (2, E)
        Indices of points of ``y``, ascending, and of ``x``: for each point by distance, then by index.

    Raises
    ------
    ImportError, ValueError, TypeError
        As for :func:`radius_graph`.

    Examples
    --------
    >>> import torch
    >>> from particlemesh.adapters.torch_cluster import knn
    >>> knn(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([2.1]), 2)
    tensor([[0, 0],
            [2, 1]])
    """
    return _knn(x, y, k, batch_x, batch_y, cosine, batch_size, cell, pbc, True)


def _radius(
    x: Any, y: Any, r: Any, batch_x: Any, batch_y: Any, most: Any, size: Any, cell: Any, pbc: Any, shifts: bool,
    loop: bool,
) -> Any:  # fmt: skip
    """Return edges, seeing points first; those of ``x`` around themselves if ``y`` is None."""
    torch = library("torch", "torch", "a neighbour graph")
    if _differ(pbc):
        if y is not None and not loop:
            raise ValueError(
                "ignore_same_index is True and pbc differs between examples: give those of one pbc a call."
            )
        edges, images = _by_axes(
            torch, lambda x, y, bx, by, n, cell, pbc: _radius(x, y, r, bx, by, most, n, cell, pbc, True, loop),
            x, y, batch_x, batch_y, size, cell, pbc,
        )  # fmt: skip
        return (edges, images) if shifts else edges
    most = common.integer(2**31 - 1 if most is None else most, "max_num_neighbors", 0, 2**31 - 1)
    r = checks.radius(r)
    common.flag(shifts, "return_shifts")
    x, batch_x, queries, batch, points = _given(torch, x, y, batch_x, batch_y, size, cell, pbc, r)
    # The largest distance below r, in the type of the points.
    below = float(torch.nextafter(torch.tensor(r, dtype=x.dtype), torch.zeros((), dtype=x.dtype)))
    if not r or not most or not len(x) or not len(queries):
        edges, images = x.new_zeros((2, 0), dtype=torch.int64), x.new_zeros((0, x.shape[1]), dtype=torch.int64)
        return (edges, images) if shifts else edges
    sparse = y is None and batch is None and points.coarse
    if sparse and most <= _IN_A_TABLE:  # unless most points have far more neighbours than are asked for
        some = queries[:: max(1, len(queries) // _SAMPLE)]
        sparse = len(points.within(some, below, "j")["j"]) <= 8 * most * len(some)
    if most <= _IN_A_TABLE and not shifts and not sparse and (y is None or loop):
        alone = y is None and not loop
        return _of_table(torch, points.nearest(most, None if alone else queries, below, None if alone else batch)[0])
    near = points.among(below, "ijdS") if sparse else points.within(queries, below, "ijdS", batch)
    i, j, d, images = (near[letter] for letter in "ijdS")
    if sparse and loop:
        selves = torch.arange(len(x), dtype=i.dtype, device=i.device)
        order = torch.argsort(torch.cat([selves, i]), stable=True)
        i, j = torch.cat([selves, i])[order], torch.cat([selves, j])[order]
        d, images = torch.cat([d.new_zeros(len(x)), d])[order], torch.cat([images.new_zeros(x.shape), images])[order]
    if not sparse and not loop:
        keep = (i != j) | images.any(1)
        i, j, d, images = i[keep], j[keep], d[keep], images[keep]
    counts = torch.bincount(i, minlength=len(queries))
    if int(counts.max()) > most:
        order = torch.argsort(j, stable=True)
        for key in (d, i):
            order = order[torch.argsort(key[order], stable=True)]
        place = torch.arange(len(i), device=i.device) - (counts.cumsum(0) - counts)[i[order]]
        order = order[place < most]
        i, j, images = i[order], j[order], images[order]
    edges = torch.stack([i, j]).long()
    return (edges, images.long()) if shifts else edges


def _knn(
    x: Any, y: Any, k: Any, batch_x: Any, batch_y: Any, cosine: Any, size: Any, cell: Any, pbc: Any, loop: bool
) -> Any:
    """Return edges, seeing points first; those of ``x`` around themselves if ``y`` is None."""
    torch = library("torch", "torch", "a neighbour graph")
    if _differ(pbc):
        return _by_axes(
            torch, lambda x, y, bx, by, n, cell, pbc: (_knn(x, y, k, bx, by, cosine, n, cell, pbc, loop), None),
            x, y, batch_x, batch_y, size, cell, pbc,
        )[0]  # fmt: skip
    k = common.integer(k, "k", 1, 2**31 - 1)
    if common.flag(cosine, "cosine"):
        raise ValueError("cosine is True; only Euclidean distances are searched. Use torch_cluster for it.")
    x, batch_x, queries, batch, points = _given(torch, x, y, batch_x, batch_y, size, cell, pbc, 0.0)
    if not len(x) or not len(queries):
        return x.new_zeros((2, 0), dtype=torch.int64)
    alone = y is None and not loop
    k = k if cell is not None else min(k, len(x))
    return _of_table(torch, points.nearest(k, None if alone else queries, system=None if alone else batch)[0])


def _given(
    torch: Any, x: Any, y: Any, batch_x: Any, batch_y: Any, size: Any, cell: Any, pbc: Any, r: float
) -> tuple[Any, Any, Any, Any, Points]:
    """Return points, their examples, queries, theirs, and the points in their boxes, to be searched."""
    x = _points(torch, x, "x")
    queries = x if y is None else _points(torch, y, "y")
    if queries.shape[1] != x.shape[1] or queries.dtype != x.dtype or queries.device != x.device:
        raise ValueError(
            f"x is {tuple(x.shape)}, {x.dtype} on {x.device}, and y {tuple(queries.shape)}, {queries.dtype} on "
            f"{queries.device}: give both the same axes, dtype and device."
        )
    batch_x = _batch(torch, batch_x, x, "batch" if y is None else "batch_x")
    batch_y = batch_x if y is None else _batch(torch, batch_y, queries, "batch_y")
    indices = [batch for batch in (batch_x, batch_y) if batch is not None and len(batch)]
    count = max([int(batch.max()) + 1 for batch in indices], default=1) if size is None else size
    count = common.integer(count, "batch_size", 1, 2**31 - 1)
    for batch in indices:
        if not 0 <= int(batch.min()) <= int(batch.max()) < count:
            raise ValueError(
                f"a batch vector has {int(batch.min())} to {int(batch.max())}; allowed are 0 to {count - 1}."
            )
    lattice, periodic = _box(cell, pbc, x.shape[1], count)
    several = None if count == 1 else count
    if several:
        batch_x, batch_y = (torch.zeros(len(p), dtype=torch.int64, device=p.device) if b is None else b
                            for b, p in ((batch_x, x), (batch_y, queries)))  # fmt: skip
    else:
        batch_x = batch_y = None
        lattice = lattice.reshape(lattice.shape[-2:])
    return x, batch_x, queries, batch_y, Points(x, lattice, periodic, system=batch_x, systems=several, size=r)


def _points(torch: Any, points: Any, what: str) -> Any:
    """Return points (n, d) without derivatives, in a type that is searched."""
    if not isinstance(points, torch.Tensor):
        raise TypeError(f"{what} is of type {type(points).__name__}; a torch.Tensor is needed.")
    points = points.detach()
    points = points[:, None] if points.dim() == 1 else points
    if points.dim() != 2 or not 1 <= points.shape[1] <= 3:
        raise ValueError(f"{what} has shape {tuple(points.shape)}; points of 1 to 3 axes are searched: (n, d).")
    if points.dtype in (torch.float16, torch.bfloat16):
        return points.float()
    return points.double() if not points.is_floating_point() else points


def _batch(torch: Any, batch: Any, points: Any, what: str) -> Any:
    if batch is None:
        return None
    if not isinstance(batch, torch.Tensor) or batch.is_floating_point() or batch.shape != (len(points),):
        given = tuple(getattr(batch, "shape", ()))
        raise ValueError(
            f"{what} is a {type(batch).__name__} of shape {given}; a tensor of integers ({len(points)},) is needed."
        )
    return batch.to(torch.int64)


def _box(cell: Any, pbc: Any, axes: int, count: int) -> tuple[np.ndarray, tuple[bool, ...]]:
    """Return lattice vectors and which axes repeat."""
    if cell is None:
        if pbc is not None and np.any(on_host(pbc)):
            raise ValueError("pbc says that axes repeat, but there is no cell: give its lattice vectors, (d, d).")
        return np.eye(axes), (False,) * axes
    lattice = np.array(on_host(cell), np.float64)
    if lattice.shape not in ((axes, axes), (1, axes, axes), (count, axes, axes)):
        raise ValueError(
            f"cell has shape {lattice.shape}; ({axes}, {axes}) or ({count}, {axes}, {axes}) is needed, lattice vectors "
            "as rows."
        )
    given = np.array(True if pbc is None else on_host(pbc))
    if given.dtype != bool or given.shape not in ((), (axes,), (1, axes), (count, axes)):
        raise ValueError(f"pbc has dtype {given.dtype} and shape {given.shape}; a bool or ({axes},) bools are needed.")
    return lattice, tuple(np.broadcast_to(given, (count if given.ndim == 2 else 1, axes))[0].tolist())


def _differ(pbc: Any) -> bool:
    """Return whether the axes that repeat differ between examples."""
    flags = np.asarray(on_host(pbc))
    return flags.ndim == 2 and bool((flags != flags[:1]).any())


def _by_axes(
    torch: Any, search: Callable[..., Any], x: Any, y: Any, batch_x: Any, batch_y: Any, size: Any, cell: Any, pbc: Any
) -> tuple[Any, Any]:
    """Return edges, and images if there are any, of searches of the examples that have the same periodic axes."""
    flags, lattice = np.asarray(on_host(pbc)), np.array(on_host(cell), np.float64)
    given = [(x, batch_x, "batch")] if y is None else [(x, batch_x, "batch_x"), (y, batch_y, "batch_y")]
    count = len(flags)
    if lattice.ndim < 2 or size not in (None, count) or any(batch is None for _, batch, _ in given):
        raise ValueError(f"pbc differs between {count} examples: give cell, and batch vectors of as many.")
    lattice = np.broadcast_to(lattice, (count, *lattice.shape[-2:]))
    points = [(_points(torch, p, "points"), _batch(torch, batch, p, name)) for p, batch, name in given]
    if any(len(batch) and not 0 <= int(batch.min()) <= int(batch.max()) < count for _, batch in points):
        raise ValueError(f"a batch vector has indices that are no example; allowed are 0 to {count - 1}.")
    edges, images = [], []
    for axes in np.unique(flags, axis=0):
        members = (flags == axes).all(1)
        cells = np.where(members[:, None, None], lattice, lattice[members.argmax()])  # no points are in the others
        rows = [torch.as_tensor(members, device=p.device)[batch].nonzero()[:, 0] for p, batch in points]
        (some, batch), *others = [(p[row], b[row]) for (p, b), row in zip(points, rows, strict=True)]
        around, batch_around = others[0] if others else (None, batch)
        pairs, shifts = search(some, around, batch, batch_around, count, cells, axes)
        edges.append(torch.stack([rows[-1][pairs[0]], rows[0][pairs[1]]]))
        images.append(shifts)
    joined = torch.cat(edges, 1)
    order = torch.argsort(joined[0], stable=True)
    return joined[:, order], None if images[0] is None else torch.cat(images)[order]


def _of_table(torch: Any, indices: Any) -> Any:
    """Return the edges of a table of neighbours, -1 where there are none."""
    i, place = torch.nonzero(indices >= 0, as_tuple=True)
    return torch.stack([i, indices[i, place].long()])


def _directed(edges: Any, flow: str) -> Any:
    """Return edges of a graph in the direction of the flow."""
    edges, *shifts = edges if isinstance(edges, tuple) else (edges,)
    edges = edges.flip(0) if flow == _FLOWS[0] else edges
    return (edges, *shifts) if shifts else edges
