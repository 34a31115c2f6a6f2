# SPDX-License-Identifier: BSD-3-Clause
"""What moves the spheres of a column on a GPU: its state, its status, and captured chunks of steps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.kernels import Backend, allocate, compile_kernel, kept
from studies.barbieri.green import Green

_FOLDER = Path(__file__).parent
CHUNK = 48  # steps of a captured graph: two periods of sorting, and all turns of the heads
_PLAIN = 3  # steps before the first capture: compiling and allocating are done in them
STATUS = 4  # words; the first three are those of green.h
BAD, LAST_BAD, FULLEST = range(3)


@dataclass(frozen=True)
class Setup:
    """A column: where it is, how many spheres, and their forces."""

    backend: Backend
    count: int
    cells: int  # along each axis
    dtype: np.dtype
    green: Green

    @property
    def bins(self) -> int:
        """Number of cells."""
        return self.cells**3


class StepError(RuntimeError):
    """A chunk of steps went wrong and has to be repeated: ``needed`` places of a cell, or ``bad`` spheres."""

    def __init__(self, needed: int, bad: int, last: int) -> None:
        super().__init__(f"a cell has {needed} particles; {bad} spheres are not finite, the last is {last}")
        self.needed, self.bad, self.last = needed, bad, last


class DeviceSteps:
    """Steps on CUDA or OpenCL. Nothing waits but ``check`` and downloads.

    A subclass has a ``phase``: whatever differs between steps that are otherwise submitted alike.
    """

    phase: Any = ()

    def __init__(self, setup: Setup) -> None:
        self.setup, self.backend = setup, kept(setup.backend)
        self.record = setup.green.record(setup.dtype)
        self.status = self.words(STATUS)
        self._saved: tuple[Any, Any] | None = None
        self._graphs: dict[Any, tuple[Any, Any]] = {}
        self._plain = 0

    # ---- memory -----------------------------------------------------------------------------------------------

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Allocate an array."""
        return allocate(self.backend, shape, np.dtype(dtype), f"{name} of a column")

    def words(self, count: int) -> Any:
        """Return cleared words of 32 bits."""
        array = self.empty("words", (max(count, 1),), np.uint32)
        self.backend.clear(array)
        return array

    def spheres(self) -> Any:
        """Return room for four reals of each sphere."""
        return self.empty("spheres", (max(self.setup.count, 1), 4), self.setup.dtype)

    def kernel(self, file: str, name: str, **defines: int) -> Any:
        """Return a kernel of this folder."""
        return compile_kernel(self.backend, _FOLDER / file, name, self.setup.dtype, **defines)

    # ---- state ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[Any, Any]:
        """Return positions and velocities, (N, 4) each; the fourth real of a velocity is the sphere's number."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin with a new state."""

    def rewind(self) -> None:
        """Return to the first phase: a state is about to be written."""

    def load(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        """Take a state from the host, (N, 3) each."""
        bits = np.int64 if self.setup.dtype == np.float64 else np.int32
        numbers = np.arange(len(positions), dtype=bits).view(self.setup.dtype)
        fourth = np.zeros_like(numbers)
        self.rewind()
        for target, values, last in zip(self.state(), (positions, velocities), (fourth, numbers), strict=True):
            if len(values):
                whole = np.column_stack([values, last]).astype(self.setup.dtype)
                whole.view(bits)[:, 3] = last.view(bits)  # bits of small integers are subnormal numbers
                self.backend.copy(target, self.backend.upload(whole))
        self.start()

    def numbers(self, velocities: Any) -> np.ndarray:
        """Return the number of the sphere at each place."""
        bits = np.int64 if self.setup.dtype == np.float64 else np.int32
        return self.backend.download(velocities)[: self.setup.count].view(bits)[:, 3]

    def download(self) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (N, 3) in the order of the numbers; waits."""
        positions, velocities = self.state()
        numbers = self.numbers(velocities)
        both = []
        for array in (positions, velocities):
            ordered = np.empty((self.setup.count, 3), self.setup.dtype)
            ordered[numbers] = self.backend.download(array)[: self.setup.count, :3]
            both.append(ordered)
        return both[0], both[1]

    def save(self) -> None:
        """Keep the present state as the last good one."""
        state = self.state()
        if self._saved is None:
            self._saved = self.spheres(), self.spheres()
        for kept_one, array in zip(self._saved, state, strict=True):
            self.backend.copy(kept_one, array)

    def restore(self) -> None:
        """Return to the last good state."""
        assert self._saved is not None
        self.rewind()
        for array, kept_one in zip(self.state(), self._saved, strict=True):
            self.backend.copy(array, kept_one)
        self.backend.clear(self.status)
        self.start()

    def check(self) -> None:
        """Raise a StepError if a step since the last good state went wrong; waits."""
        words = self.backend.download(self.status)
        if words[BAD] or words[FULLEST]:
            raise StepError(int(words[FULLEST]), int(words[BAD]), int(words[LAST_BAD]) - 1)

    def make_room(self, needed: int) -> bool:
        """Provide places for ``needed`` particles in a cell, for the next ``start``; return whether that is allowed."""
        raise NotImplementedError

    # ---- steps ------------------------------------------------------------------------------------------------

    def submit(self, steps: int) -> None:
        """Submit steps, kernel by kernel."""
        raise NotImplementedError

    def build(self) -> None:
        """Submit the build of a grid of the present state, which stays as it is."""
        raise NotImplementedError

    def reach(self) -> None:
        """Submit the count of spheres in reach of each sphere, after :meth:`build`."""
        raise NotImplementedError

    def in_reach(self) -> np.ndarray:
        """Return that count, in the order of the numbers; waits."""
        raise NotImplementedError

    def by_number(self, counts: np.ndarray, velocities: Any) -> np.ndarray:
        """Return counts (N,) of the spheres at each place in the order of the numbers."""
        ordered = np.empty(self.setup.count, np.int32)
        ordered[self.numbers(velocities)] = counts
        return ordered

    def run(self, steps: int) -> None:
        """Submit steps: on CUDA as captured graphs of up to ``CHUNK`` steps."""
        if self.backend.name != "cuda":
            self.submit(steps)
            return
        plain = min(steps, max(0, _PLAIN - self._plain))
        self.submit(plain)
        self._plain += plain
        for graph, phase in self._chunks(steps - plain):
            graph.launch()
            self.phase = phase

    def prepare(self, steps: int) -> None:
        """Capture the graphs that ``run(steps)`` takes, and be in the phase after it; nothing is run."""
        if self.backend.name == "cuda" and self._plain == _PLAIN:
            for _, phase in self._chunks(steps):
                self.phase = phase

    def _chunks(self, steps: int) -> Iterator[tuple[Any, Any]]:
        """Yield the graph of each chunk, and the phase after it; the caller takes that phase."""
        for left in range(steps, 0, -CHUNK):
            key = self.phase, min(left, CHUNK)
            if key not in self._graphs:
                before = self.phase
                self._graphs[key] = captured(functools.partial(self.submit, key[1])), self.phase
                self.phase = before
            yield self._graphs[key]

    def forget_graphs(self) -> None:
        """Drop the captured graphs, since memory has changed."""
        self._graphs.clear()
        self._plain = 0


def captured(work: Callable[[], Any]) -> Any:
    """Return the CUDA graph of ``work``, which is not run."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                stream.end_capture()  # else the stream would stay in capture mode
            raise
        graph = stream.end_capture()
        graph.upload()  # else the first launch takes longer
    return graph
