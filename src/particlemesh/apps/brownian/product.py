# SPDX-License-Identifier: BSD-3-Clause
"""Products of the mobility on GPUs: forces as rows of particles, both parts at once, repeated as one graph."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import Any

from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near
from particlemesh.kernels import Backend, allocate, branch_of, compile_kernel, kept

_FILE = Path(__file__).with_name("near.c")
_GROUP = 4  # vectors of a lane
_MOST_LANES = 4  # that share a neighbour


class Product:
    """Products with vectors of forces, on a GPU.

    Particles are in the order of the grid: see near.c. The vectors of a particle lie side by side, so that a
    neighbour's forces are read at once. With one vector a row has four reals, with more of them twelve for each four
    vectors.

    The near part runs beside the far part on a second stream, if the backend has one. From the second product on with
    as many vectors, both are a CUDA graph: their launches would take longer than their work.

    Parameters
    ----------
    near : Near
    far : Far
    """

    def __init__(self, near: Near, far: Far) -> None:
        self._near, self._far = near, far
        self._backend: Backend = kept(near.backend)
        self._branch = branch_of(self._backend)
        self._rooms: dict[str, Any] = {}
        self._vectors = 0  # of the latest product of both parts
        self._graph: Any = None  # of such products

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(int(room.nbytes) for room in self._rooms.values())

    def forget(self) -> None:
        """Take note that positions are new, or that the far part's memory may be."""
        self._vectors, self._graph = 0, None

    def multiply(self, force: Any, velocity: Any, *, far: bool = True) -> None:
        """Write the velocities of forces, both dense native arrays (b, N, 3), by the near part alone or both."""
        vectors, count = int(force.shape[0]), self._near.count
        if not (vectors and count):
            return
        parts = len(self._far.radii) if far else 0
        size = self._near.dtype.itemsize
        force_at, velocity_at = (int(getattr(a, "offset", 0)) // size for a in (force, velocity))
        shapes = self._near.self if self._far.shapes is None else self._far.shapes  # unread, if there are none
        room = functools.partial(self._room, vectors)
        forces, sums = room("forces"), room("near")
        row = math.prod(forces.shape[1:])
        self._kernel("near_gather", PARTS=1)(
            count * row, force, self._near.order, shapes, forces, count, vectors, row, force_at
        )
        source, flow = forces, sums
        if parts:
            flow = room("far", parts)
        if parts > 1:
            source = room("parts", parts)
            wide = math.prod(source.shape[1:])
            gather = self._kernel("near_gather", PARTS=parts)
            gather(count * wide, force, self._near.order, shapes, source, count, vectors, wide, force_at)
        if parts:
            self._both(vectors, forces, sums, source, flow)
        else:
            self._sum(vectors, forces, sums)
        self._kernel("near_finish", PARTS=parts)(
            3 * count * vectors, sums, flow, self._near.order, shapes, velocity, count, vectors, row,
            math.prod(flow.shape[1:]), velocity_at,
        )  # fmt: skip

    def _both(self, vectors: int, forces: Any, sums: Any, source: Any, flow: Any) -> None:
        """Write the rows of both parts."""

        def work() -> None:
            def near() -> None:
                self._sum(vectors, forces, sums)

            def far() -> None:
                self._far.flow(self._seen(source, vectors), self._seen(flow, vectors))

            if self._branch is None:
                near()
                far()
                return
            with self._branch.in_background(near):
                far()

        again, self._vectors = vectors == self._vectors, 0  # until it has succeeded
        if not again:
            self._graph = None
        if self._backend.name != "cuda" or self._backend.capturing() or not again:
            work()
            self._vectors = vectors
            return
        import cupy

        if self._graph is None:
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                try:
                    work()
                except BaseException:  # what was captured lacks a part
                    with contextlib.suppress(Exception):
                        stream.end_capture()
                    raise
                self._graph = stream.end_capture()
        self._graph.launch(cupy.cuda.get_current_stream())
        self._vectors = vectors

    def _sum(self, vectors: int, forces: Any, sums: Any) -> None:
        """Write the near part's rows."""
        near = self._near
        groups = 1 if vectors == 1 else -(-vectors // _GROUP)
        split = min(_MOST_LANES, 1 << (groups - 1).bit_length())
        lanes = 32
        kernel = self._kernel(
            "near_multiply", VECTORS=1 if vectors == 1 else _GROUP, SPLIT=split, ROW_LANES=lanes, PARTS=1
        )
        items = lanes * near.count * -(-groups // split)
        kernel(items, *near.stored, near.order, near.self, forces, sums, near.count, int(near.one_radius), groups)

    def _room(self, vectors: int, name: str, parts: int = 1) -> Any:
        """Return kept memory for rows: (N, vectors, 3), with places that fill up a row."""
        shape = (vectors * parts, 3)
        if parts == 1:
            shape = (1, 4) if vectors == 1 else (-(-vectors // _GROUP) * _GROUP, 3)
        full = (self._near.count, *shape)
        room = self._rooms.get(name)
        if room is None or tuple(room.shape) != full:
            self._rooms.pop(name, None)
            self._graph = None  # it has the former memory
            room = self._rooms[name] = allocate(self._backend, full, self._near.dtype, f"rows: {name}")
        return room

    def _seen(self, room: Any, vectors: int) -> Any:
        """Return rows as the far part sees them: (b, 3, N), or with parts (b, parts, 3, N)."""
        parts = len(self._far.radii)
        if parts > 1:
            return room.reshape((room.shape[0], vectors, parts, 3)).transpose((1, 2, 3, 0))
        return room[:, :vectors, :3].transpose((1, 2, 0))

    def _kernel(self, name: str, **facts: int) -> Any:
        near = self._near
        wide = int(near.dtype.itemsize == 8 or near.backend.facts().get("HAS_FP64", 1))
        facts = {"VECTORS": 1, "SPLIT": 1, "ROW_LANES": 32, **facts}
        return compile_kernel(self._backend, _FILE, name, near.dtype, COORDINATE_IS_DOUBLE=wide, **facts)
