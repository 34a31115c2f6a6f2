# SPDX-License-Identifier: BSD-3-Clause
"""Steps over a ``UniformGrid`` on a GPU: a build, a kernel of forces, a kernel of motion, as in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import Box, UniformGrid
from particlemesh.grid.storage import LinkedLists, PackedLists, Slots, SortedCells, TightLists
from studies.barbieri.green import RADIUS
from studies.barbieri.steps import DeviceSteps, Setup

_FILE = "walk.c"


def grid_of(setup: Setup, builder: str, options: dict[str, Any], **more: Any) -> UniformGrid:
    """Return the grid of a column, whose cells are as wide as its spheres."""
    sides = (setup.cells,) * 3
    box = Box(tuple(float(n) for n in sides), periodic=False)
    return UniformGrid(
        box, shape=sides, method=builder, dtype=setup.dtype, backend=setup.backend.name, **more, **options
    )


def offset(array: Any) -> int:
    """Return where an array of OpenCL begins in its memory, in elements; CUDA's pointers know it."""
    return int(getattr(array, "offset", 0)) // int(array.dtype.itemsize)


class GridSteps(DeviceSteps):
    """Steps over any builder.

    Parameters
    ----------
    setup : Setup
    builder : str
    search : {"storage", "stream"}
        Whether forces walk the builder's own storage, as the paper's do, or come from ``UniformGrid.stream``.
    options : dict
        Of the builder.
    """

    def __init__(self, setup: Setup, builder: str, search: str, options: dict[str, Any]) -> None:
        super().__init__(setup)
        self.builder, self.search, self.options = builder, search, dict(options)
        self._grows = options.get("capacity") is None or bool(options.get("grow"))
        self.positions, self.velocities = self.spheres(), self.spheres()
        self.results = self.empty("results", (max(setup.count, 1), 3 if search == "stream" else 4), setup.dtype)
        self.counted = self.empty("counts", (max(setup.count, 1),), setup.dtype)
        self._function = setup.green.pair_function()
        self._radii = RADIUS if builder in UniformGrid.methods_with_radii else None
        self._ordered: tuple[Any, Any] | None = None  # positions and velocities in the order of cells
        self._reached: Any = None
        self._grid: Any = None
        self._storage: Any = None

    def state(self) -> tuple[Any, Any]:
        return self.positions, self.velocities

    def start(self) -> None:
        setup = self.setup
        if setup.count and self._grid is None:
            self._grid = grid_of(setup, self.builder, self.options, queries=self.search == "stream")
            self._grid.reserve(setup.count, radii=0 if self._radii is None else 1)
            self._grid.build(self._points, self._radii)  # a builder with too few places makes room now
            self.forget_graphs()
        if setup.count:
            self.build()
            self._storage = self._grid.storage  # the memory of all unchecked builds
            if isinstance(self._storage, TightLists):
                exact = 1 + 4 * np.finfo(setup.dtype).eps  # as the grid's distances in fractions of the box
                wide = RADIUS * np.array([exact / setup.cells], setup.dtype)
                self._wide = self.backend.upload(wide)
            if isinstance(self._storage, SortedCells) and self._ordered is None:
                self._ordered = self.spheres(), self.spheres()

    def make_room(self, needed: int) -> bool:
        if not self._grows:
            return False
        self.options["capacity"] = needed + max(1, needed // 4)
        self._grid.close()
        self._grid = None
        return True

    @property
    def capacity(self) -> int:
        """Places of a cell; 0: as many as there are spheres."""
        return self._storage.capacity if isinstance(self._storage, Slots) else 0

    @property
    def _points(self) -> Any:
        return self.positions[: self.setup.count, :3]

    # ---- a step -----------------------------------------------------------------------------------------------

    def submit(self, steps: int) -> None:
        for _ in range(steps if self.setup.count else 0):
            self.build()
            if self.search == "stream":
                velocities = self.velocities[: self.setup.count, :3]
                self._grid.stream(1.0, self._function, velocities, out=self.results[: self.setup.count])
                state = self.state()
            else:
                state = self._walk(self.results, 0)
            self._move(*state)

    def build(self) -> None:
        self._grid.build(self._points, self._radii, check=False)

    def reach(self) -> None:
        if self.search == "stream":
            self._reached = self._grid.count(1.0, check=False)
        else:
            self._walk(self.counted, 1)

    def in_reach(self) -> np.ndarray:
        if self.search == "stream":
            return np.asarray(self.backend.download(self._reached), np.int32)
        _, velocities = self._ordered if isinstance(self._storage, SortedCells) and self._ordered else self.state()
        counts = self.backend.download(self.counted)[: self.setup.count]
        return self.by_number(counts.astype(np.int32), velocities)

    def _walk(self, results: Any, counts: int) -> tuple[Any, Any]:
        """Submit the kernel that walks the storage; return the positions and velocities in the order of results."""
        setup, storage, state = self.setup, self._storage, self.state()
        n = setup.count
        shared: tuple[int, ...] = (n, setup.cells)
        defines = {"IN_REACH_ONLY": counts}
        if isinstance(storage, SortedCells):
            assert self._ordered is not None
            reorder = self.kernel(_FILE, "reorder", **defines)
            reorder(n, *state, storage.order.view(np.uint32), *self._ordered, n)
            walk = self.kernel(_FILE, "walk_sorted", **defines)
            walk(n, *self._ordered, storage.start, results, *shared, self.record)
            return self._ordered
        if isinstance(storage, LinkedLists):
            arrays: tuple[Any, ...] = ("walk_lists", storage.heads, storage.next)
            shared = (offset(storage.heads), *shared)
        elif isinstance(storage, PackedLists):
            arrays = ("walk_nodes", storage.heads, storage.nodes)
            shared = (offset(storage.heads), *shared)
        elif isinstance(storage, TightLists):
            arrays = ("walk_tight", storage.heads, storage.next, storage.bounds, self._wide)
        else:
            arrays = ("walk_slots", storage.counts, storage.slots)
            shared = (offset(storage.counts), *shared, storage.capacity, storage.cell_stride, storage.slot_stride)
        walk = self.kernel(_FILE, arrays[0], **defines)
        walk(n, *state, *arrays[1:], results, *shared, self.record)
        return state

    def _move(self, positions: Any, velocities: Any) -> None:
        setup, storage = self.setup, self._storage
        counts = storage.counts if self.capacity else self.status
        move = self.kernel(_FILE, "move", IN_REACH_ONLY=0)
        move(
            setup.count, positions, velocities, self.results, self.positions, self.velocities, counts, self.status,
            setup.count, setup.cells, int(self.results.shape[1]), self.capacity, offset(counts),
            self.record,
        )  # fmt: skip
