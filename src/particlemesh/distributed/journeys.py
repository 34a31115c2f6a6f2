# SPDX-License-Identifier: BSD-3-Clause
"""Positions as a rank gives them, and where its particles go."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.operands import real_dtype
from particlemesh.distributed import cuts
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.residents import Residents
from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import Staged, module_of
from particlemesh.distributed.world import World
from particlemesh.mesh import Mesh

SKIP = -(2**31)  # cell of a bad particle
SHARE = 1 / 8  # of particles that may leave and come where the others stay in place; beyond, one plan takes all
_INDEX = 40  # bits


class Given:
    """Positions as the user gives them."""

    def __init__(self, positions: Any, ndim: int) -> None:
        self.user, self._ndim = positions, ndim
        self._by_axis = isinstance(positions, tuple) and any(hasattr(x, "__len__") for x in positions)
        columns = [Staged(x, "positions") for x in (positions if self._by_axis else (positions,))]
        self.home, self.memory = columns[0].kind.home, columns[0].memory
        self.real: np.dtype = max(
            (real_dtype(x.user, x.kind, "positions") for x in columns), key=lambda dtype: dtype.itemsize
        )
        self._natives = tuple(x.native for x in columns)
        self.xp = module_of(self._natives[0])
        shape = self._natives[0].shape
        self.count = int(shape[0]) if shape else 0

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


class Journey(NamedTuple):
    """Where this rank's particles go: to their owners, and where this is elsewhere, to all that they reach."""

    leaving: list[Departures]
    bad: tuple[int, int, int]  # see `Given.bad`
    residents: Residents | None  # this rank's own, located where they are
    rows: Any = None  # positions of those that leave, if they are known

    def routes(self, world: World) -> tuple[Route, Route]:
        """Tell every rank how much comes, in one exchange; return the routes to owners and to plans."""
        coming = world.counts(np.concatenate([some.sent for some in self.leaving], 1))
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


def listed(
    domain: Domain, rank: int, residents: Residents, mesh: Mesh, given: Given, support: int, guess: int = 0
) -> tuple[Departures, Any, Any] | None:
    """Return the departures of listed particles, the indices of bad ones, which stay, and positions of the former.

    None if there are too many of them. Positions may be None. With a guess of their number, a GPU works on while the
    host waits for its number.
    """
    xp, size = given.xp, domain.size
    shift = tuple(
        start - ghosts + (support - 1) // 2 for start, (ghosts, _) in zip(mesh.start, mesh.ghosts, strict=True)
    )  # from a part's first node of a stencil to the whole mesh's cell
    here = xp is not np and size > 1
    departures = _guessed(domain, residents, given, shift, guess) if here and guess else None
    if departures is None:
        strays = residents.strays()
        assert strays is not None
        count, entries = strays
        if entries is None or not few(count, given.count):
            return None
        if here:
            departures = _guessed(domain, residents, given, shift, count + 1)
            if departures is None:  # the list is full
                return None
        else:
            departures = _on_host(domain, entries, shift, xp, residents)
    good, all_of_them = int(departures.ends[size - 1]), int(departures.ends[size])
    sent = np.diff(departures.ends[:size], prepend=0).reshape(size, 1).astype(np.int64)
    if sent[rank, 0] or not few(all_of_them, given.count):  # or the part does not take all that it owns
        return None
    sent[rank] = given.count - good
    index = departures.index
    rows = None if departures.rows is None else departures.rows[:good]
    return Departures(xp, given.count, sent, True, index[:good]), index[good:all_of_them], rows


def _guessed(
    domain: Domain, residents: Residents, given: Given, shift: tuple[int, ...], guess: int
) -> Listed | None:  # fmt: skip
    """Sort the first of the list on the GPU, without waiting for their number; None if there may be more of them."""
    xp, memory, size = given.xp, residents.memory(), domain.size
    guess = min(guess, memory.shape[0] // 4 - 1)
    run = cuts.keys_of(domain.mesh.ndim, SKIP, _INDEX)
    keys = run(memory.view(np.int64), *domain.on_device(), domain.constants(*shift), size, size=guess)
    keys.sort()
    ends = xp.searchsorted(keys, domain.constants(*(part << _INDEX for part in range(1, size + 2))))
    index = keys & ((1 << _INDEX) - 1)
    rows = given.rows(index)
    ends = ends.get()  # waits
    return None if ends[-1] == guess else Listed(ends, index, rows)


def _on_host(domain: Domain, entries: Any, shift: tuple[int, ...], xp: Any, residents: Residents) -> Listed:
    """Sort listed particles step by step."""
    ndim, size = domain.mesh.ndim, domain.size
    host = entries if isinstance(entries, np.ndarray) else residents.backend.download(entries)
    table = host.view(np.int64).reshape(-1, 4)
    cells = tuple(table[:, 4 - ndim + a] + step for a, step in enumerate(shift))
    keys = (np.where(table[:, 3] == SKIP, size, domain.part_of(cells)) << _INDEX) | table[:, 0]
    keys.sort()
    ends = np.searchsorted(keys, [part << _INDEX for part in range(1, size + 2)])
    return Listed(ends, xp.asarray(keys & ((1 << _INDEX) - 1)), None)
