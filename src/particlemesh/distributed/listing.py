# SPDX-License-Identifier: BSD-3-Clause
"""Lists of particles by bin on a GPU: kernels write, sort and pack them, and nothing waits before all is submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import Record, kept
from particlemesh.distributed.domain import Domain
from particlemesh.sorting import radix

_FILE = "distributed/listing.c"
_DEFINES = {"REAL_IS_DOUBLE": 0}
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_STRAYS = 4  # numbers of each in a plan's list, and before them


class List(NamedTuple):
    """Memory of one list."""

    control: Any  # uint64: a header of the caller's kernels, then where bins end
    index: Any  # uint32: particles, counted from 1
    which: Any  # uint32: their bins, counted from 1
    bins: int
    room: int
    header: int


class Listing:
    """The memory and the kernels of lists, one at a time.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    """

    def __init__(self, backend: Any) -> None:
        self.backend: Any = kept(backend)
        self._memory: dict[str, Any] = {}

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory that is kept; larger than asked for, so that it serves a list that grows a little."""
        held = self._memory.get(name)
        if held is None or held.shape[0] < shape[0] or held.dtype != dtype:
            held = self._memory[name] = self.backend.empty((shape[0] * 5 // 4, *shape[1:]), dtype)
        return held

    def begin(self, bins: int, room: int, header: int) -> List:
        """Return an empty list with room for so many particles."""
        control = self._room("control", (header + bins + 1,), _U64)
        index, which = (self._room(name, (room,), _U32) for name in ("index", "bin"))
        for array in (control, index, which):
            self.backend.clear(array)
        return List(control, index, which, bins, room, header)

    def sort(self, some: List, count: int) -> List:
        """Sort a list of indices below ``count`` by bin, then by index; its control memory says where bins end."""

        def room(of: str) -> Callable[..., Any]:
            return lambda name, shape, dtype: self._room(f"{name} of {of}", shape, dtype)

        # Two stable sorts. What was not written comes first.
        bits = max(count.bit_length(), 1)
        index, which = radix.sort(self.backend, some.index, some.room, bits, room("index"), some.which)
        bits = (some.bins + 1).bit_length()
        which, index = radix.sort(self.backend, which, some.room, bits, room("bin"), index)
        run = self.backend.kernel(_FILE, "list_ends", _DEFINES)
        run(some.bins + 1, which, some.control, some.bins, some.header, some.room)
        return some._replace(index=index, which=which)

    def particles(self, some: List) -> Any:
        """Return the particles of a sorted list, int64 (room,): those that were listed are the last ones."""
        result = self.backend.empty((some.room,), np.int64)
        self.backend.kernel(_FILE, "list_particles", _DEFINES)(some.room, some.index, result, some.room)
        return result

    def read(self, some: List) -> tuple[list[int], np.ndarray]:
        """Return the header, and where bins end: first that of what was not written. Waits for the device."""
        numbers = self.backend.download(some.control)[: some.header + some.bins + 1].astype(np.int64)
        return numbers[: some.header].tolist(), numbers[some.header :]


class StrayListing:
    """Lists of a part's strays by the parts that own them.

    Parameters
    ----------
    domain : Domain
        With one part a rank.
    shift : tuple of ints
        From a part's first node of a stencil to the whole mesh's cell.
    backend : Backend
    """

    def __init__(self, domain: Domain, shift: tuple[int, ...], backend: Any) -> None:
        self._listing, self._parts = Listing(backend), domain.size
        tree, mesh, d = domain.tree, domain.mesh, domain.mesh.ndim
        planes = np.stack([tree.axis, tree.node, tree.below, tree.above], 1).reshape(-1)
        self._planes = backend.upload(np.resize(planes, max(planes.size, 1)).astype(np.int32))
        numbers = np.zeros((3, 3), int)
        numbers[0, :d], numbers[1, :d], numbers[2, :d] = mesh.shape, mesh.periodic, shift
        self._record = Record("=12i", *numbers.ravel().tolist(), d, tree.depth, domain.size)
        backend.synchronize()  # later calls may come in other streams

    def begin(self, strays: Any, count: int, room: int) -> tuple[Any, Callable[[], np.ndarray | None]]:
        """Begin to sort the first ``room`` strays, of ``count`` particles.

        Return the particles, int64 (room,), of which those that are listed are the last, by part and with bad ones
        last. What else is returned waits, and returns where parts end: first where the list begins. It returns None if
        there may be more strays.
        """
        listing = self._listing
        room = max(min(room, strays.shape[0] // _STRAYS - 1), 1)
        some = listing.begin(self._parts + 1, room, 0)
        run = listing.backend.kernel(_FILE, "list_strays", _DEFINES)
        run(room, strays, self._planes, some.index, some.which, room, self._record)
        some = listing.sort(some, count)
        particles = listing.particles(some)

        def read() -> np.ndarray | None:
            _, ends = listing.read(some)
            return None if ends[0] == 0 else ends

        return particles, read
