# SPDX-License-Identifier: BSD-3-Clause
"""The way of particles from the rank that has them to the ranks that need them, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.distributed.staging import Staged
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World


class Route(checks.Fixed):
    """Particles of every rank on their way to other ranks. `particlemesh.distributed.Plan.route` has one.

    Particles arrive by part and then by the rank that they came from, where they keep their order. So a simulation
    hands its particles over once, keeps them where they are, and in later steps only strays move.

    Parameters
    ----------
    world : World
    parts : (M,) int array
        The part that each row goes to. NumPy or CuPy.
    per_rank : int
        Parts of each rank.
    particles : (M,) int array, optional
        The particle of each row; by default row n is particle n. Rows of one particle may go to several parts.
    count : int, optional
        Number of particles of this rank.

    Examples
    --------
    >>> import numpy as np
    >>> route = Route(World(), np.array([1, 0, 1]), per_rank=2)
    >>> there = route.send(np.array([10.0, 11.0, 12.0]))
    >>> there, route.back(there)
    (array([11., 10., 12.]), array([10., 11., 12.]))
    """

    def __init__(
        self, world: World, parts: Any, per_rank: int = 1, particles: Any = None, count: int | None = None
    ) -> None:
        with world.agreement("a route"):
            leaving = Departures.of(parts, world.rank, world.size, per_rank, particles, count)
        self._begin(world, leaving, world.counts(leaving.sent))

    @classmethod
    def known(cls, world: World, leaving: Departures, coming: np.ndarray) -> Route:
        """Return the route of particles whose numbers all ranks have exchanged already."""
        route = object.__new__(cls)
        route._begin(world, leaving, coming)
        return route

    def _begin(self, world: World, leaving: Departures, coming: np.ndarray) -> None:
        self._world, self._departures, self._per_rank = world, leaving, leaving.sent.shape[1]
        self._xp, self.count, self._single = leaving.xp, leaving.count, leaving.single
        self._leaving = leaving.sent.sum(1)
        self._by_part = coming  # rows from each rank for each of our parts
        self._coming = coming.sum(1)
        self.counts = coming.sum(0)  # rows of each of this rank's parts
        self.arrived = int(self.counts.sum())
        others = [r for r in range(world.size) if r != world.rank]
        self.guests = int(self._coming[others].sum())  # rows that come from other ranks
        self.stays = not (self.guests or self._leaving[others].any() or leaving.turned)
        self._made = frozenset(self.__dict__)

    # Made at first use, which is before ranks agree: it may fail.

    @functools.cached_property
    def _particles(self) -> Any:
        """The particle of each leaving row, own rows among them, or None if row n is that of particle n."""
        return self._departures.order(self._world.rank)

    @functools.cached_property
    def _away(self) -> Any:
        """The particle of each row that leaves to another rank."""
        stay = _slices(self._leaving).get(self._world.rank, slice(0, 0))
        return self._xp.concatenate([self._particles[: stay.start], self._particles[stay.stop :]])

    @functools.cached_property
    def _order(self) -> Any:
        """The index of the arriving row for each row by part, or None if they arrive so."""
        if self._per_rank == 1 or self._world.size == 1:
            return None
        part = np.repeat(np.tile(np.arange(self._per_rank), self._world.size), self._by_part.reshape(-1))
        return _stable_order(self._xp.asarray(part), self._xp)

    @functools.cached_property
    def _rounds(self) -> list[tuple[Any, Any]]:
        """Rows and their particles, in rounds."""
        return [] if self._single else _rounds(self._particles, self.count, self._xp)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a Route cannot be copied or pickled, since other ranks know it: make another Route.")

    @property
    def moved(self) -> int:
        """Number of rows that leave this rank."""
        return int(self._leaving.sum() - self._leaving[self._world.rank])

    def __repr__(self) -> str:
        return f"<Route: {self.count:,} particles here, {self.moved:,} rows leave, {self.arrived:,} are there>"

    def send(self, *arrays: Any, axis: int = 0) -> Any:
        """Hand over what belongs to particles, for good.

        Parameters
        ----------
        *arrays : arrays
            In the order of the positions that were set, with particles along ``axis``.
        axis : int
            Axis of particles: 0 for positions (N, d) and numbers (N,), -1 for values (..., N).

        Returns
        -------
        array, or tuple of arrays
            The particles of this rank's parts, of the kinds and dtypes given. Where no particle moves anywhere, these
            may be the arrays themselves.

        Raises
        ------
        RankError, ValueError
            If an array has another number of particles, on any rank, or dtypes or other axes differ between ranks.
        """
        return self._public(arrays, axis, self.count, self.forward, "send")

    def back(self, *arrays: Any, axis: int = 0) -> Any:
        """Return what belongs to particles to the ranks and the order that they came from: the inverse of :meth:`send`.

        Parameters
        ----------
        *arrays : arrays
            In the order in which :meth:`send` returns particles.
        axis : int
            As for :meth:`send`.

        Returns
        -------
        array, or tuple of arrays
        """
        return self._public(arrays, axis, self.arrived, self.backward, "back")

    def _public(self, arrays: tuple[Any, ...], axis: int, count: int, move: Any, name: str) -> Any:

        def accepted() -> tuple[str, list[tuple[Staged, Callable[[], Any]]]]:
            moves, forms = [], []
            if not arrays:
                raise ValueError(f"{name} needs an array or several.")
            for array in arrays:
                given = Staged(array, "array")
                if not -given.native.ndim <= axis < given.native.ndim or given.native.shape[axis] != count:
                    raise ValueError(
                        f"an array has shape {tuple(given.native.shape)}; axis {axis} needs {count} particles."
                    )
                with given.scope():
                    rows = module_of(given.native).moveaxis(given.native, axis, 0)
                    moves.append((given, move(rows)))
                forms.append(f"{rows.dtype} {tuple(rows.shape[1:])}")
            # Messages have no types: also ranks without particles give arrays like those of the others.
            return f"{name} along axis {axis} of {', '.join(forms)}", moves

        moves = self._world.alike(accepted)
        results = []
        for given, deliver in moves:
            with given.scope():
                results.append(given.like(module_of(given.native).moveaxis(deliver(), 0, axis)))
        return results[0] if len(results) == 1 else tuple(results)

    # ---- rows: particles along the first axis, NumPy or CuPy --------------------------------------------
    # What may fail on one rank is done at once; what is returned communicates, once all ranks have agreed.

    def forward(self, rows: Any) -> Callable[[], Any]:
        """Make ready to send rows of particles (count, ...); the result returns those (arrived, ...) of our parts."""
        if self.stays:
            return lambda: rows
        xp, world = module_of(rows), self._world
        result = xp.empty((self.arrived, *rows.shape[1:]), rows.dtype)
        receives, stay = _slices(self._coming), _slices(self._leaving).get(world.rank)
        if (here := receives.pop(world.rank, None)) is not None:
            self._take(rows, stay, result[here])
        away = xp.ascontiguousarray(rows if self._particles is None else xp.take(rows, self._away, axis=0))
        packed = {r: away[s] for r, s in self._of_others(self._leaving).items()}
        into = {r: result[s] for r, s in receives.items()}
        order = self._order

        def deliver() -> Any:
            world.exchange(packed, into)
            return result if order is None else result[order]

        return deliver

    def _of_others(self, counts: np.ndarray) -> dict[int, slice]:
        """Return where rows of other ranks are: among them alone where they are gathered, else among all."""
        here = np.arange(self._world.size) == self._world.rank
        if self._particles is not None:
            return _slices(counts * ~here)
        return {r: s for r, s in _slices(counts).items() if r != self._world.rank}

    def _take(self, rows: Any, some: Any, into: Any) -> None:
        if self._particles is None:
            into[...] = rows[some]
        else:
            clip = {"mode": "clip"} if self._xp is np else {}  # else NumPy writes to a copy first
            self._xp.take(rows, self._particles[some], axis=0, out=into, **clip)

    def backward(self, rows: Any) -> Callable[[], Any]:
        """Make ready to return rows of our parts to particles: inverse of `forward`, adjoint if these are copies."""
        if self.stays:
            return lambda: rows
        xp, world = module_of(rows), self._world
        if self._order is not None:
            unordered = xp.empty_like(rows)
            unordered[self._order] = rows
            rows = unordered
        sends, receives = _slices(self._coming), _slices(self._leaving)
        here, there = sends.pop(world.rank, None), receives.pop(world.rank, None)
        result = (xp.empty if self._single else xp.zeros)((self.count, *rows.shape[1:]), rows.dtype)
        got = result  # where row n is that of particle n
        if self._particles is not None:
            apart = self._away if self._single else self._particles
            got = xp.empty((apart.shape[0], *rows.shape[1:]), rows.dtype)
        if here is not None and there is not None:
            if self._single and self._particles is not None:
                result[self._particles[there]] = rows[here]
            else:
                got[there] = rows[here]
        rows = xp.ascontiguousarray(rows)
        packed = {r: rows[s] for r, s in sends.items()}
        into = {r: got[s] for r, s in (self._of_others(self._leaving) if self._single else receives).items()}
        rounds = self._rounds

        def deliver() -> Any:
            world.exchange(packed, into)
            if self._single and got is not result:
                result[self._away] = got
            for some, particles in rounds:
                result[particles] += got[some]
            return result

        return deliver

    # ---- rows that stay where they are, and guests beside them: of a rank with one part ------------------

    @property
    def strays(self) -> Any:
        """Particles that leave, by rank and then in their order; None where the route does not know them."""
        return checks.kept(self._departures.strays)

    @property
    def is_local(self) -> bool:
        """Whether this rank has neither strays nor guests, so that it takes part in no message."""
        return not (self.guests or self.strays.shape[0])

    def fetch(self, rows_of: Callable[[Any], Any]) -> Callable[[], Any]:
        """Make ready to send the rows of strays, which a function returns for indices; the result returns the guests'.

        The messages are those of `forward`, so that other ranks may do either.
        """
        return self._swapped(rows_of(self.strays), self.guests, self._leaving, self._coming)

    def push(self, rows: Any) -> Callable[[], Any]:
        """Make ready to return rows of guests (guests, ...); the result returns those of strays."""
        rows = self._xp.ascontiguousarray(rows)
        return self._swapped(rows, self.strays.shape[0], self._coming, self._leaving, self._world.mark(rows))

    def _swapped(
        self, rows: Any, count: int, leaving: np.ndarray, coming: np.ndarray, since: Any = None
    ) -> Callable[[], Any]:
        """Make ready to send rows to other ranks; the result returns the ``count`` rows that come from them."""
        rows = self._xp.ascontiguousarray(rows)
        result = self._xp.empty((count, *rows.shape[1:]), rows.dtype)
        apart = np.arange(self._world.size) != self._world.rank  # rows of this rank are left out
        sends, receives = _slices(leaving * apart), _slices(coming * apart)

        def deliver() -> Any:
            out, into = {r: rows[s] for r, s in sends.items()}, {r: result[s] for r, s in receives.items()}
            self._world.exchange(out, into, since=since)
            return result

        return deliver


class Departures(NamedTuple):
    """Where the rows of a rank go; nothing of other ranks."""

    xp: Any
    count: int  # type: ignore[assignment]  # particles; hides the tuple's method of that name
    sent: np.ndarray  # rows for each part, int64 (size, per_rank)
    single: bool  # whether each particle has one row
    strays: Any = None  # of one part a rank: rows that leave, by rank and then in their order
    particles: Any = None  # of several parts, or of several rows each: see `order`

    @classmethod
    def of(
        cls, parts: Any, rank: int, size: int, per_rank: int, particles: Any = None, count: int | None = None
    ) -> Departures:
        """Return the departures of rows to parts; arguments as for :class:`Route`.

        Most rows stay on this rank in most steps. So only the others are sorted if a rank has one part.
        """
        xp, single = module_of(parts), particles is None
        strays = None
        sent: np.ndarray = np.zeros(size * per_rank, np.int64)
        count = parts.shape[0] if count is None else count
        if per_rank > 1:
            order, counted = _stable_order(parts, xp), parts
            particles = order if single else particles if order is None else particles[order]
        else:
            strays = xp.flatnonzero(parts != rank)
            counted = parts[strays]
            if (turned := _stable_order(counted, xp)) is not None:
                strays = strays[turned]
            sent[rank] = parts.shape[0] - strays.shape[0]
        if counted.shape[0]:
            counts = xp.bincount(counted, minlength=size * per_rank)
            if counts.shape[0] > sent.size:
                raise ValueError(f"a row goes to part {counts.shape[0] - 1}; parts are 0 to {sent.size - 1}.")
            sent += counts if xp is np else counts.get()
        sent = sent.reshape(size, per_rank)
        leaving = cls(xp, count, sent, single, strays, particles)
        if single or strays is None:
            return leaving
        order = _around(strays, sent[:, 0], rank, parts.shape[0], xp)
        return leaving._replace(strays=None, particles=particles if order is None else particles[order])

    @property
    def turned(self) -> bool:
        """Whether rows are sent in another order than that of particles."""
        return self.particles is not None or bool(self.strays is not None and self.strays.shape[0])

    def order(self, rank: int) -> Any:
        """Return the particle of each row in the order of parts, or None if row n is that of particle n."""
        if self.strays is None:
            return self.particles
        return _around(self.strays, self.sent[:, 0], rank, self.count, self.xp)


def _around(strays: Any, sent: np.ndarray, rank: int, count: int, xp: Any) -> Any:
    """Return the index that puts rows in the order of ranks, or None if none leaves."""
    if not strays.shape[0]:
        return None
    stays = xp.ones(count, bool)
    stays[strays] = False
    before = int(sent[:rank].sum())
    order = xp.concatenate([strays[:before], xp.flatnonzero(stays), strays[before:]])
    if xp is not np and count < 2**31:
        order = order.astype(np.int32)  # half as many bytes in each step; NumPy would convert them in each
    return order


def _slices(counts: np.ndarray) -> dict[int, slice]:
    """Return the rows of each rank that has some."""
    ends = np.cumsum(counts)
    return {r: slice(int(ends[r] - n), int(ends[r])) for r, n in enumerate(counts.tolist()) if n}


def _stable_order(keys: Any, xp: Any) -> Any:
    """Return the index that sorts keys and keeps the order of equal ones, or None if they are sorted."""
    return None if keys.shape[0] < 2 or bool((keys[1:] >= keys[:-1]).all()) else xp.argsort(keys, kind="stable")


def _rounds(particles: Any, count: int, xp: Any) -> list[tuple[Any, Any]]:
    """Return rows and their particles, no particle twice in a round, so that sums have one order."""
    order = _stable_order(particles, xp)
    order = xp.arange(particles.shape[0]) if order is None else order
    held = particles[order]
    first = xp.searchsorted(held, held)
    turn = xp.arange(held.shape[0]) - first
    most = int(turn.max()) + 1 if held.shape[0] else 0
    return [(order[turn == n], held[turn == n]) for n in range(most)]
