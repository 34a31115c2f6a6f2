# SPDX-License-Identifier: BSD-3-Clause
"""Positions as a rank gives them, and where its particles go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import real_dtype
from particlemesh.arrays.positions import coordinates
from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import Staged
from particlemesh.distributed.survey import STRAY, StrayListing
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World
from particlemesh.mesh import Mesh
from particlemesh.plan import Plan

SKIP = -(2**31)  # cell of a bad particle
SHARE = 1 / 8  # of particles that may leave and come where the others stay in place; beyond, one plan takes all
_INDEX = 40  # bits
_ONE_OF, _LEAST = 64, 4096  # room for one particle of so many, and for so many at least


class UserPositions:
    """Positions as the user gives them."""

    def __init__(self, positions: Any, ndim: int) -> None:
        self.user, self._ndim = positions, ndim
        self._by_axis = isinstance(positions, tuple) and any(hasattr(x, "__len__") for x in positions)
        columns = [Staged(x, "positions") for x in (positions if self._by_axis else (positions,))]
        self.staged, self.home, self.memory = columns[0], columns[0].kind.home, columns[0].memory
        self.real: np.dtype = max(
            (real_dtype(x.user, x.kind, "positions") for x in columns), key=lambda dtype: dtype.itemsize
        )
        self._natives = tuple(x.native for x in columns)
        self.xp = module_of(self._natives[0])
        shape = self._natives[0].shape
        self.count = int(shape[0]) if shape else 0

    def check(self) -> None:
        """Check shapes and dtypes, as a local plan does: (N, d), (N,) in 1-D, one (N,) per axis, or an empty list."""
        shapes, d = [tuple(native.shape) for native in self._natives], self._ndim
        if self._by_axis and (len(shapes) != d or len(set(shapes)) > 1 or len(shapes[0]) != 1):
            raise ValueError(f"positions have parts of shapes {shapes}; a tuple has one of (N,) per axis, {d} in all.")
        flat = d == 1 or not (self.count or hasattr(self.user, "dtype"))
        if not self._by_axis and shapes[0] not in ((self.count, d), *[(self.count,)] * flat):
            raise ValueError(f"positions have shape {shapes[0]}; in {d}-D (N, {d}) is needed.")
        for native in self._natives:
            if native.dtype.kind not in "iubf":
                raise TypeError(f"positions have dtype {native.dtype}; float32 or float64 is needed.")

    def local(self) -> Any:
        """Return what a local plan takes."""
        return self._natives if self._by_axis else self._natives[0]

    def table(self) -> Any:
        """Return positions (N, d)."""
        return self._joined(self._natives)

    def rows(self, index: Any) -> Any:
        """Return positions (n, d) of some particles."""
        return self._joined(tuple(self.xp.take(native, index, axis=0) for native in self._natives))

    def _joined(self, natives: tuple[Any, ...]) -> Any:
        if self._by_axis:
            return self.xp.stack([native.astype(self.real, copy=False) for native in natives], 1)
        return natives[0].reshape(-1, self._ndim).astype(self.real, copy=False)

    def bad(self, index: Any) -> tuple[int, int, int]:
        """Return the first bad particle, or -1, and how many are not finite and outside."""
        if not index.shape[0]:
            return -1, 0, 0
        finite = int(self.xp.isfinite(self.rows(index)).all(1).sum())
        return int(index[0]), int(index.shape[0]) - finite, finite


class Residents:
    """Located positions that a plan has not taken yet: until :meth:`take` it keeps the particles that it has.

    Particles of other parts get zero weight. A GPU lists them in the same pass; nothing else is done about them.

    Parameters
    ----------
    plan : Plan
        On a part of a mesh; its own memory holds what is located. Make no other call of it in between.
    positions : array (N, d) or tuple of d arrays (N,)
    memory : array, optional
        That of earlier positions, for the list.

    Attributes
    ----------
    memory : array or None
        Memory of the list, uint64: four numbers of which the first counts, then the entries.
    """

    def __init__(self, plan: Plan, positions: Any, memory: Any = None) -> None:
        self._plan = plan
        kind, backend, x = coordinates(positions, plan.mesh.ndim, plan.backend, upload=plan.uploads)
        self.backend, self._kind, self._x = backend, kind, x
        with kind.scope(x.user), backend.scope(*x.arrays):
            self.memory = memory if backend.name != "cpu" else None
            numbers = STRAY * (max(x.count // _ONE_OF, min(x.count, _LEAST)) + 1)
            if backend.name != "cpu" and (memory is None or memory.shape[0] < numbers):
                self.memory = allocate(backend, (numbers,), np.dtype(np.uint64), "particles of other parts")
            self._located = plan.locate(kind, backend, x, None, None, check=True, strays=self.memory)

    def strays(self) -> int | None:
        """Return how many particles are bad or elsewhere, on a GPU; None if the list has no room for them. Waits.

        The list has four uint64 of each: its index, and the first node of its stencil along three axes, missing ones
        first. Nodes are int64, counted as the part's, and -2**31 for bad particles.
        """
        assert self.memory is not None
        with self._kind.scope(self._x.user), self.backend.scope(*self._x.arrays):
            count = int(self.backend.download(self.memory[:1])[0])
        return count if STRAY * (count + 1) <= self.memory.shape[0] else None

    def take(self, check: bool) -> None:
        """Take these particles; with ``check`` their arrangement may be sampled to choose methods, which waits."""
        with self._kind.scope(self._x.user), self.backend.scope(*self._x.arrays):
            self._plan.take(self._located, self._x, check=check)


class Migration(NamedTuple):
    """Where this rank's particles go: to their owners, and where this is elsewhere, to all that they reach."""

    leaving: list[Departures]
    bad: tuple[int, int, int]  # see `UserPositions.bad`
    residents: Residents | None  # this rank's own, located where they are
    rows: Any = None  # positions of those that leave, if they are known

    def sent(self) -> np.ndarray:
        """Return how much goes to each rank: a column for each part of a route, or several."""
        return np.concatenate([some.sent for some in self.leaving], 1)

    def routes(self, world: World, coming: np.ndarray) -> tuple[Route, Route]:
        """Return the routes to owners and to plans, of what comes from each rank."""
        ends = np.cumsum([some.sent.shape[1] for some in self.leaving])[:-1]
        routes = [
            Route.known(world, some, np.ascontiguousarray(counts))
            for some, counts in zip(self.leaving, np.split(coming, ends, 1), strict=True)
        ]
        return routes[0], routes[-1]


def few(moving: int, count: int) -> bool:
    """Return whether so few particles leave and come that the others stay where they are."""
    return moving <= SHARE * count


class Listed(NamedTuple):
    """Particles that a GPU has listed, sorted by the part that owns them and then by index."""

    ends: Any  # where the parts' particles end, (size + 1,) of the host; the last entry is of bad particles
    index: Any  # int64
    rows: Any  # their positions (n, d), or None


def shift_of(mesh: Mesh, support: int) -> tuple[int, ...]:
    """Return the shift from a part's first node of a stencil to the whole mesh's cell."""
    return tuple(
        start - ghosts + (support - 1) // 2 for start, (ghosts, _) in zip(mesh.start, mesh.ghosts, strict=True)
    )


def listed(
    rank: int, residents: Residents, given: UserPositions, guess: int, listing: StrayListing
) -> Callable[[], tuple[Departures, Any, Any] | None]:  # fmt: skip
    """Begin to sort as many listed particles as the guess of their number. What is returned waits for the device.

    It returns their departures, the indices of bad ones, which stay, and positions of the former; None if there are
    too many of them. Positions may be None.
    """
    xp = given.xp
    begun = _begun(listing, residents, given, guess)

    def finish() -> tuple[Departures, Any, Any] | None:
        departures = begun()
        if departures is None:
            count = residents.strays()
            if count is None or not few(count, given.count):
                return None
            if (departures := _begun(listing, residents, given, count + 1)()) is None:  # the list is full
                return None
        size = len(departures.ends) - 1
        good, all_of_them = int(departures.ends[size - 1]), int(departures.ends[size])
        sent = np.diff(departures.ends[:size], prepend=0).reshape(size, 1).astype(np.int64)
        if sent[rank, 0] or not few(all_of_them, given.count):  # or the part does not take all that it owns
            return None
        sent[rank] = given.count - good
        index = departures.index
        rows = None if departures.rows is None else departures.rows[:good]
        return Departures(xp, given.count, sent, True, index[:good]), index[good:all_of_them], rows

    return finish


def _begun(
    listing: StrayListing, residents: Residents, given: UserPositions, guess: int
) -> Callable[[], Listed | None]:
    """Begin to sort the first of the list on the GPU; what is returned returns None if there may be more of them."""
    particles, read = listing.begin(residents.memory, given.count, guess)
    rows = given.rows(particles) if given.xp is not np else None

    def finish() -> Listed | None:
        ends = read()
        if ends is None:
            return None
        first = int(ends[0])
        index = particles[first:] if rows is not None else residents.backend.download(particles)[first:]
        return Listed(ends[1:] - first, index, None if rows is None else rows[first:])

    return finish
