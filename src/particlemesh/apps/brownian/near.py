# SPDX-License-Identifier: BSD-3-Clause
"""The near part of the mobility: a sparse matrix of 3x3 blocks, made once per configuration; and products on GPUs."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.brownian import formulas
from particlemesh.apps.brownian.far import Far
from particlemesh.kernels import Backend, Unread, allocate, branch_of, compile_kernel, kept
from particlemesh.kernels.cpu import compiled, ranges, run, threads_for

_FILE = Path(__file__).with_name("near.c")
Stored = tuple[Any, Any, Any]  # start of each row, signed indices, blocks
_EMPTY: Stored = (None, None, None)


class Near:
    """Blocks ``f 1 +- u u^T`` of all pairs within the cutoff, four reals and an index each, by rows.

    Parameters
    ----------
    backend : Backend
        Where the pairs are.
    dtype : numpy.dtype
        Real type.
    radii : NumPy array (1,) or (N,)
        One radius for all, or one for each.
    splitting, viscosity : float
    threads : int, optional
        CPU threads.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, radii: np.ndarray, splitting: float, viscosity: float,
        threads: int | None,
    ) -> None:  # fmt: skip
        self.backend, self.dtype, self.threads = backend, dtype, threads
        self.splitting, self.viscosity = splitting, viscosity
        self.nodes, self.weights = formulas.quadrature(splitting)
        self_terms = formulas.near_self(radii, splitting) / viscosity
        self.radii, self.self = radii, self_terms.astype(dtype)
        if backend.name != "cpu":
            wide = np.float64 if backend.facts().get("HAS_FP64", 1) else np.float32
            rest = [splitting, 1 / viscosity]
            self._quadrature = backend.upload(np.concatenate([self.nodes, self.weights, rest]).astype(wide))
            self.radii, self.self = backend.upload(radii.astype(wide)), backend.upload(self.self)
        self.count, self.first, self.stored, self.terms = 0, 0, _EMPTY, self.self
        self.order: Any = None

    @property
    def pairs(self) -> int:
        """Number of stored blocks: each pair counts from both sides."""
        return 0 if self.count == 0 else int(self.stored[1].shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the stored matrix."""
        return sum(int(array.nbytes) for array in (*self.stored, self.order) if array is not None)

    def blocks(
        self, count: int, start: Any, index: Any, vector: Any, order: Any = None, first: int = 0, radii: Any = None
    ) -> Stored:
        """Return the matrix of native lists in compressed rows: pairs by row, second particle, vector to it.

        ``index`` is overwritten. On a GPU ``order`` (N,) has the particle of each row, if it is not the row's number.
        Over ranks rows are those of particles from ``first`` on, whose ``radii`` are given by place.
        """
        radii = self.radii if radii is None else radii
        blocks = allocate(self.backend, (int(index.shape[0]), 4), self.dtype, "the near part of the mobility")
        if count and index.shape[0]:
            if self.backend.name == "cpu":
                run(
                    _blocks, self._threads(25 * len(index)), start, index, vector, radii, self.splitting,
                    1 / self.viscosity, self.nodes, self.weights, blocks, first, max(1, count // 256),
                    steps=100.0 * len(index),
                )  # fmt: skip
            else:
                kernel = self.kernel(self.backend, "near_blocks", ORDERED=int(order is not None))
                kernel(
                    count * self.backend.group_size, start, index, vector, _or_unread(order, index), radii,
                    self._quadrature, blocks, count, first, formulas.NODES, int(radii.shape[0] == 1),
                )  # fmt: skip
        return start, index, blocks

    def kernel(self, backend: Backend, name: str, **facts: int) -> Any:
        """Return a kernel of near.c."""
        wide = int(self.dtype.itemsize == 8 or self.backend.facts().get("HAS_FP64", 1))
        facts = {"COORDINATE_IS_DOUBLE": wide, "VECTORS": 1, "SPLIT": 1, "ROW_LANES": _LANES, "PARTS": 1, **facts}
        return compile_kernel(backend, _FILE, name, self.dtype, **facts)

    def place(self, count: int, stored: Stored, order: Any = None, first: int = 0, terms: Any = None) -> None:
        """Take the matrix of ``count`` spheres, what `blocks` has for it, and, over ranks, self terms by place."""
        self.count, self.stored, self.order, self.first = count, stored, order, first
        self.terms = self.self if terms is None else terms

    def multiply(self, force: Any, velocity: Any) -> None:
        """Write the near part's velocities, on the CPU.

        Parameters
        ----------
        force : NumPy array (b, M, 3)
            Dense; over ranks that of ghosts, too.
        velocity : NumPy array (b, N, 3)
        """
        batch, count = len(force), self.count
        if not (batch and count):
            return
        share, threads = max(1, count // 256), self._threads(self.pairs * batch // 8)
        rows = (*self.stored, self.terms)
        steps = 3.0 * self.pairs * batch
        if batch == 1:
            run(_multiply_one, threads, *rows, force[0], velocity[0], self.first, share, steps=steps)
        else:  # right-hand sides of a particle side by side
            beside = np.ascontiguousarray(force.reshape(batch, -1).T).reshape(-1, 3, batch)
            sums = np.empty((count, 3, batch), beside.dtype)
            run(_multiply_many, threads, *rows, beside, sums, self.first, share, steps=steps)
            velocity[...] = np.moveaxis(sums, -1, 0)

    def _threads(self, work: int) -> int:
        return threads_for(self.threads, work)


def _or_unread(order: Any, index: Any) -> Any:
    return Unread(index) if order is None else order


@compiled
def _blocks(start, index, vector, radii, xi, scale, nodes, weights, blocks, first, share, counter):
    """Write the block of each pair; see near.c."""
    last = radii.size - 1
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            for n in range(start[i], start[i + 1]):
                j = index[n]
                d0, d1, d2 = float(vector[n, 0]), float(vector[n, 1]), float(vector[n, 2])
                r = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2)
                f, g = formulas.near(r, radii[min(first + i, last)], radii[min(j, last)], xi, nodes, weights)
                unit = np.sqrt(abs(g) * scale) / r if r > 0 else 0.0
                blocks[n, 0] = f * scale
                blocks[n, 1], blocks[n, 2], blocks[n, 3] = unit * d0, unit * d1, unit * d2
                if g < 0:
                    index[n] = -1 - j


@compiled
def _multiply_one(start, index, blocks, self_terms, force, velocity, first, share, counter):
    last = self_terms.size - 1
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            k = first + i
            s = self_terms[min(k, last)]
            v0, v1, v2 = s * force[k, 0], s * force[k, 1], s * force[k, 2]
            for n in range(start[i], start[i + 1]):
                at = index[n]
                j = at if at >= 0 else -1 - at
                q0, q1, q2 = force[j, 0], force[j, 1], force[j, 2]
                f, u0, u1, u2 = blocks[n, 0], blocks[n, 1], blocks[n, 2], blocks[n, 3]
                along = u0 * q0 + u1 * q1 + u2 * q2
                g = along if at >= 0 else -along
                v0 += f * q0 + g * u0
                v1 += f * q1 + g * u1
                v2 += f * q2 + g * u2
            velocity[i, 0], velocity[i, 1], velocity[i, 2] = v0, v1, v2


@compiled
def _multiply_many(start, index, blocks, self_terms, force, velocity, first, share, counter):
    """Multiply right-hand sides that lie side by side, (N, 3, b)."""
    last, batch = self_terms.size - 1, force.shape[2]
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            s, v, q = self_terms[min(first + i, last)], velocity[i], force[first + i]
            for b in range(batch):
                v[0, b], v[1, b], v[2, b] = s * q[0, b], s * q[1, b], s * q[2, b]
            for n in range(start[i], start[i + 1]):
                at = index[n]
                q = force[at if at >= 0 else -1 - at]
                f, u0, u1, u2 = blocks[n, 0], blocks[n, 1], blocks[n, 2], blocks[n, 3]
                w0, w1, w2 = (u0, u1, u2) if at >= 0 else (-u0, -u1, -u2)
                for b in range(batch):
                    along = u0 * q[0, b] + u1 * q[1, b] + u2 * q[2, b]
                    v[0, b] += f * q[0, b] + w0 * along
                    v[1, b] += f * q[1, b] + w1 * along
                    v[2, b] += f * q[2, b] + w2 * along


# ---- products on GPUs: both parts at once, repeated as one graph --------------------------------------------


_GROUP = 4  # vectors of a lane
_MOST_LANES, _LANES = 4, 32  # that share a neighbour, and of a row


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

    _shared = False  # whether other ranks may have spheres where this one has none

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
        vectors, count = (int(n) for n in force.shape[:2])
        if not (vectors and (count or self._shared)):
            return
        order = _or_unread(self._near.order, self._near.stored[1])
        parts = len(self._far.radii) if far else 0
        size = self._near.dtype.itemsize
        force_at, velocity_at = (int(getattr(a, "offset", 0)) // size for a in (force, velocity))
        shapes = self._near.self if self._far.shapes is None else self._far.shapes  # unread, if there are none
        room = functools.partial(self._room, count, vectors)
        forces, sums = room("forces"), room("near")
        row = math.prod(forces.shape[1:])
        self._kernel("near_gather", PARTS=1)(count * row, force, order, shapes, forces, count, vectors, row, force_at)
        source, flow = forces, sums
        if parts:
            flow = room("far", parts)
        if parts > 1:
            source = room("parts", parts)
            wide = math.prod(source.shape[1:])
            gather = self._kernel("near_gather", PARTS=parts)
            gather(count * wide, force, order, shapes, source, count, vectors, wide, force_at)
        if parts:
            self._both(vectors, forces, sums, source, flow)
        else:
            self._sum(vectors, forces, sums)
        self._kernel("near_finish", PARTS=parts)(
            3 * count * vectors, sums, flow, order, shapes, velocity, count, vectors, row,
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
        kernel = self._kernel("near_multiply", VECTORS=1 if vectors == 1 else _GROUP, SPLIT=split)
        items = _LANES * near.count * -(-groups // split)
        kernel(
            items, *near.stored, _or_unread(near.order, near.stored[1]), near.terms, forces, sums, near.count,
            near.first, int(near.terms.shape[0] == 1), groups,
        )  # fmt: skip

    def _room(self, count: int, vectors: int, name: str, parts: int = 1) -> Any:
        """Return kept memory for rows: (N, vectors, 3), with places that fill up a row."""
        shape = (vectors * parts, 3)
        if parts == 1:
            shape = (1, 4) if vectors == 1 else (-(-vectors // _GROUP) * _GROUP, 3)
        full = (count, *shape)
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
        return self._near.kernel(self._backend, name, ORDERED=int(self._near.order is not None), **facts)
