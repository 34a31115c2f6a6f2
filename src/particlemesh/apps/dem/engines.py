# SPDX-License-Identifier: BSD-3-Clause
"""Steps and lists where the particles are: compiled functions on the CPU, kernels on GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.dem import cpu
from particlemesh.apps.dem.contact import Law
from particlemesh.apps.dem.cpu import LIMIT, STOP, Pairs, ParticleArrays
from particlemesh.apps.dem.walls import COLUMNS, LAW
from particlemesh.kernels import Backend, Record, Unread, allocate, compile_kernel, kept
from particlemesh.kernels.cpu import run, threads_for

_FILE = Path(__file__).with_name("step.c")
_CAPTURED = 32  # steps of one graph
_FEW = 8  # steps that need no graph
_SPARE = 1.1  # room for longer lists
FRICTION = LAW.start + 3
_AT_ONCE = 200_000  # particle steps of one thread, between looks at Ctrl-C


class Engine:
    """Particles in rows of four reals, their lists and the walls.

    Parameters
    ----------
    backend, dtype, count
        Where, in which type, how many.
    motion : list of 15 floats
        As ``Motion`` in step.c.
    law : Law
    planes : array (W, COLUMNS)
        Rows of walls, as step.c takes them.
    name : array (N,) of int32
        The user's number of each particle.
    threads : int, optional
    owned : int, optional
        How many of them move and have lists, the first ones; others are copies of particles elsewhere.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, motion: list[float], law: Law, planes: np.ndarray,
        name: np.ndarray, threads: int | None, owned: int | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend if backend.name == "cpu" else kept(backend)
        self.dtype, self.count, self.hertz = dtype, len(name), law.hertz
        self.owned = self.count if owned is None else owned
        self.walls, self.remembers, self.threads = len(planes), law.friction > 0, threads
        self.walls_remember = bool((planes[:, FRICTION] > 0).any())
        self.motion, self.law = motion, law.slopes()
        rows = max(self.count, 1)
        self.p = ParticleArrays(*(self._zeros((rows, 4)) for _ in ParticleArrays._fields))
        walls = (max(self.owned, 1), self.walls, 4) if self.walls_remember else (1, 1, 4)
        self.wall_history = self._zeros(walls)
        self.lists, self.spare = self._lists(0), self._lists(0)
        self.planes: Any = None
        self.leaving: Any = None  # particles (m,) of which there are copies elsewhere
        self.clock = self._zeros((1,), np.int64)
        self.begin_with(planes, name)

    def begin_with(self, planes: np.ndarray, name: np.ndarray) -> None:
        """Put walls, numbers and names where steps read them."""
        raise NotImplementedError

    def _zeros(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        array = allocate(self.backend, shape, self.dtype if dtype is None else dtype, "particles and their contacts")
        self.backend.clear(array)
        return array

    def _lists(self, entries: int) -> Pairs:
        rows, entries = max(self.owned, 1), max(entries, 1)
        # `start` has one more, as what a search returns: with it a state's contacts come in.
        return Pairs(
            self._zeros((rows + 1,), np.int64), self._zeros((rows,), np.int32), self._zeros((entries,), np.int32),
            self._zeros((entries if self.remembers else 1, 4)),
        )  # fmt: skip

    def put(self, name: str, array: np.ndarray) -> None:
        """Write an array of the host."""
        if not self.count:
            return
        target = getattr(self.p, name)
        self.backend.copy(target[: self.count], self.backend.upload(np.ascontiguousarray(array, self.dtype)))

    def get(self, name: str) -> np.ndarray:
        """Return an array (N, 4) in the host's memory."""
        return self.backend.download(getattr(self.p, name))[: self.count]

    def move_by(self, motion: list[float]) -> None:
        """Take another time step and gravity from now on."""
        raise NotImplementedError

    def put_walls(self, planes: np.ndarray, steps: int) -> None:
        """Take walls that have moved for some steps."""
        if self.walls:
            self.backend.copy(self.planes, self.backend.upload(planes.astype(self.dtype)))
        self.backend.copy(self.clock, self.backend.upload(np.array([steps], np.int64)))

    @property
    def ran(self) -> int:
        """Steps for which walls have moved."""
        return int(self.backend.download(self.clock)[0])

    def rows_of_three(self, name: str, scale: float) -> Any:
        """Return the vectors (N, 3) of an array in the user's order and unit, a native array."""
        raise NotImplementedError

    def remember(self, start: np.ndarray, entries: np.ndarray, history: np.ndarray, walls: np.ndarray | None) -> None:
        """Take lists of what touches, to be matched at the next search, and the history of walls."""
        self.lists = self._lists(len(entries))
        for target, source in zip(self.lists, (start, np.diff(start), entries, history), strict=True):
            if len(source) and (target is not self.lists.history or self.remembers):
                self.backend.copy(target[: len(source)], self.backend.upload(source.astype(target.dtype)))
        if walls is not None and self.walls_remember and len(walls):  # without particles there is room for one
            self.backend.copy(self.wall_history, self.backend.upload(walls.astype(self.dtype)))

    def renew(self, pairs: Any, images: bool, ordered: bool) -> None:
        """Take the lists of a search, and hand on the history of what touches."""
        entries = int(pairs.j.shape[0])
        if entries > self.spare.list.shape[0]:
            self.spare = self._lists(int(entries * _SPARE) + 16)
        if self.owned:
            self._match(pairs, images, ordered)
        self.backend.copy(self.p.origin, self.p.x)
        self.lists, self.spare = self.spare, self.lists

    def _match(self, pairs: Any, images: bool, ordered: bool) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """Compute forces without a step."""
        raise NotImplementedError

    def finish(self) -> None:
        """End a step whose drift had made the lists too old."""
        raise NotImplementedError

    def steps(self, most: int) -> tuple[int, bool]:
        """Make up to ``most`` whole steps; return how many, and whether one more has drifted and waits for lists."""
        raise NotImplementedError


class OnCpu(Engine):
    """Compiled functions and threads."""

    def begin_with(self, planes: np.ndarray, name: np.ndarray) -> None:
        self.name = name
        motion, law, self.planes = (np.array(n, self.dtype) for n in (self.motion, self.law, planes))
        self.numbers = cpu.Numbers(motion, law, self.planes, self.wall_history, self.clock)
        self.used = threads_for(self.threads, 2 * self.count)
        self.status = np.zeros(2, np.int64)
        self.moving = ParticleArrays(*(array[: self.owned] for array in self.p))

    def move_by(self, motion: list[float]) -> None:
        self.motion = motion
        self.numbers.motion[:] = motion

    def rows_of_three(self, name: str, scale: float) -> Any:
        rows = np.empty((self.count, 3), self.dtype)
        rows[self.name] = getattr(self.p, name)[: self.count, :3] * self.dtype.type(scale)
        return rows

    def _match(self, pairs: Any, images: bool, ordered: bool) -> None:
        run(
            cpu.match, self.used, pairs.start, pairs.j, self.name, self.lists, self.spare, images, ordered,
            self.remembers,
        )  # fmt: skip

    def _forces(self, step: float, half: float) -> None:
        real = self.dtype.type
        if self.owned:
            run(cpu.forces, self.used, self.p, self.lists, self.numbers, self.hertz, real(step), real(half))

    def begin(self) -> None:
        self.p.u[:], self.p.s[:] = self.p.v, self.p.w
        self._forces(0.0, 0.0)

    def finish(self) -> None:
        self._forces(self.motion[0], self.motion[1])

    def steps(self, most: int) -> tuple[int, bool]:
        if self.used == 1:
            limit = min(most, max(1, _AT_ONCE // max(self.count, 1)))
            self.status[:] = limit, limit
            cpu.steps(self.p, self.lists, self.numbers, self.hertz, self.status)
            return int(self.status[STOP]), bool(self.status[STOP] < limit)
        if self.drift():
            return 0, True
        self.finish()
        return 1, False

    def message(self, names: tuple[str, ...]) -> Any:
        """Return vectors of the arrays of leaving particles, side by side."""
        return np.concatenate([getattr(self.p, name)[self.leaving, :3] for name in names], 1)

    def receive(self, names: tuple[str, ...], message: Any) -> None:
        """Give copies of particles elsewhere the vectors of a message."""
        for name, vectors in zip(names, np.split(message, len(names), 1), strict=True):
            getattr(self.p, name)[self.owned : self.count, :3] = vectors

    def drift(self) -> bool:
        """Begin a step: move particles; return whether one has left the reach of the lists."""
        self.status[STOP] = 1
        self.clock[0] += 1
        run(cpu.drift, self.used, self.moving, self.numbers, self.status)
        return bool(self.status[STOP] < 1)


class OnDevice(Engine):
    """Kernels; on CUDA many steps are one graph."""

    def begin_with(self, planes: np.ndarray, name: np.ndarray) -> None:
        upload = self.backend.upload
        self.name = upload(name if len(name) else np.zeros(1, np.int32))
        self.planes = upload((planes if len(planes) else np.zeros((1, COLUMNS))).astype(self.dtype))
        self.status = upload(np.zeros(2, np.uint32))
        self._law = self._record(self.law)
        self._graphs: dict[int, Any] = {}  # by the address of the lists that they read
        self.move_by(self.motion)

    def move_by(self, motion: list[float]) -> None:
        self.motion, self._motion = motion, self._record(motion)
        self._still = self._record([0.0, 0.0, *motion[2:]])  # no step, but its forces
        self._graphs.clear()

    def _record(self, numbers: list[float]) -> Record:
        return Record(f"={len(numbers)}{self.dtype.char}", *numbers)

    def kernel(self, name: str, **defines: int) -> Any:
        """Return a kernel of step.c."""
        facts = {"HERTZ": int(self.hertz), "IMAGES": 0}
        return compile_kernel(self.backend, _FILE, name, self.dtype, **facts | defines)

    def rows_of_three(self, name: str, scale: float) -> Any:
        rows = self.backend.empty((self.count, 3), self.dtype)
        if self.count:
            by = self._record([scale])
            self.kernel("unpack")(3 * self.count, getattr(self.p, name), self.name, rows, self.count, by)
        return rows

    def renew(self, pairs: Any, images: bool, ordered: bool) -> None:
        before = self.spare
        super().renew(pairs, images, ordered)
        if before is not self.lists:  # new memory: graphs of the former one are useless
            self._graphs.clear()

    def _match(self, pairs: Any, images: bool, ordered: bool) -> None:
        partners = pairs.j if pairs.j.shape[0] else Unread(self.lists.list)
        kernel = self.kernel("match", IMAGES=int(images))
        kernel(
            self.owned, pairs.start, partners, self.name, *self.lists, *self.spare, self.owned, int(ordered),
            int(self.remembers),
        )  # fmt: skip

    def _limit(self, steps: int) -> None:
        self.kernel("begin")(1, self.status, steps)

    def _drift(self, k: int) -> None:
        p = self.p
        self.kernel("drift")(  # also without particles: walls move
            max(self.owned, 1), p.x, p.origin, p.v, p.w, p.a, p.b, p.u, p.s, self.status, self.clock, self.owned, k,
            self._motion,
        )  # fmt: skip

    def _forces(self, k: int, motion: Record) -> None:
        p = self.p
        self.kernel("forces")(
            self.owned, p.x, p.u, p.s, *self.lists, self.planes, self.clock, self.wall_history, p.v, p.w, p.a, p.b,
            self.status, self.owned, self.walls, k, motion, self._law,
        )  # fmt: skip

    def message(self, names: tuple[str, ...]) -> Any:
        rows = self._carried(names, self.backend.empty((self.leaving.shape[0], 3 * len(names)), self.dtype), -1)
        return rows if self.backend.name == "cuda" else self.backend.download(rows)  # no transport has OpenCL's

    def receive(self, names: tuple[str, ...], message: Any) -> None:
        self._carried(names, message if self.backend.name == "cuda" else self.backend.upload(message), self.owned)

    def _carried(self, names: tuple[str, ...], rows: Any, first: int) -> Any:
        count, width = rows.shape
        for n, name in enumerate(names):
            self.kernel("carry")(3 * count, getattr(self.p, name), self.leaving, rows, count, width, 3 * n, first)
        return rows

    def drift(self) -> bool:
        self._limit(1)
        self._drift(0)
        return int(self.backend.download(self.status)[STOP]) < 1

    def begin(self) -> None:
        self.backend.copy(self.p.u, self.p.v)
        self.backend.copy(self.p.s, self.p.w)
        self._limit(1)
        self._forces(0, self._still)

    def finish(self) -> None:
        self._limit(1)
        self._forces(0, self._motion)

    def _launch(self, steps: int) -> None:
        for k in range(steps):
            self._drift(k)
            self._forces(k, self._motion)

    def steps(self, most: int) -> tuple[int, bool]:
        limit = min(most, _CAPTURED)
        if self.backend.name == "cuda" and limit > _FEW and not self.backend.capturing():
            self._replay(limit)
        else:
            self._limit(limit)
            self._launch(limit)
        stop = int(self.backend.download(self.status)[STOP])
        return min(stop, limit), stop < limit

    def _replay(self, limit: int) -> None:
        import cupy

        address = int(self.lists.list.data.ptr)  # type: ignore[attr-defined]  # CuPy's
        graph = self._graphs.get(address)
        if graph is None:
            self._limit(0)
            self._launch(1)  # what is loaded at its first launch is loaded now
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                try:
                    self._launch(_CAPTURED)
                finally:
                    graph = stream.end_capture()
            self._graphs[address] = graph
        self._limit(limit)
        graph.launch(cupy.cuda.get_current_stream())


assert (STOP, LIMIT) == (0, 1)  # as in step.c


def engine_on(backend: Backend, *arguments: Any) -> OnCpu | OnDevice:
    """Return the engine of a backend."""
    return (OnCpu if backend.name == "cpu" else OnDevice)(backend, *arguments)
