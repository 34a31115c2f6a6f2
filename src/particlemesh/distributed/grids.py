# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours of particles that are on many ranks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.checks import alone
from particlemesh.distributed.domain import Domain, check_ranks, hash_of
from particlemesh.distributed.migration import UserPositions
from particlemesh.distributed.routes import Departures, Route
from particlemesh.distributed.staging import Staged
from particlemesh.distributed.surroundings import Surroundings, check_inside, moved
from particlemesh.distributed.survey import Pass, Segment, Surveyed, segments, stepwise
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World, together
from particlemesh.grid.checks import letters as check_letters
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.results import Pairs
from particlemesh.grid.uniform_grid import UniformGrid as LocalGrid

ORDERS, FORMATS = ("input", "local"), ("csr", "coo", "dense")


class UniformGrid(checks.Fixed):
    """Particles of many ranks by cell, for finding what is near: the distributed :class:`particlemesh.UniformGrid`.

    Particles travel to the ranks that own their cells of the domain. Each rank also gets **ghosts**: copies of those
    particles of other ranks, and images, that are within ``radius`` of its parts. Then each rank searches its own
    particles and ghosts with a local grid, without further messages.

    Particles are numbered in the order in which they are given: first those of rank 0, then those of rank 1.

    Parameters
    ----------
    domain : Domain
        Which rank owns which cells; its box is the box of the particles.
    world : World
        The ranks; as many as the domain has.
    radius : float
        The largest distance that will be asked for, in the user's unit. It may be larger than parts and box.
    cell_size : float or one for each axis, optional
        Least thickness of a cell of the local grids; by default the radius.
    check : bool
        Check positions, and let all ranks agree that none has failed before each round of messages. Without it, bad
        positions give undefined pairs, and a call that raises on one rank leaves the others waiting.
    **options
        Options of the local grids: see :class:`particlemesh.UniformGrid`. With ``deterministic=True`` sums of
        :meth:`stream` have the same bits on any number of ranks, for any cuts and any order of the particles.

    Attributes
    ----------
    domain : Domain
    world : World
    radius : float

    Raises
    ------
    ValueError
        If the radius is negative or not finite, or the domain has another number of ranks than the world.

    References
    ----------
    Ghost layers of subdomains are those of [buyukkececi2013]_.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((8, 8), (1.0, 1.0)), world.size)
    >>> grid = pmd.UniformGrid(domain, world, radius=0.25)
    >>> grid = grid.build(np.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]]))
    >>> pairs = grid.pairs(half=True, format="coo", quantities="ijd")
    >>> pairs.i, pairs.j, pairs.distance.round(12)
    (array([0]), array([1]), array([0.2]))
    >>> grid.count()
    array([1, 1, 0], dtype=int32)
    """

    def __init__(
        self, domain: Domain, world: World, radius: float, *, cell_size: Any = None, check: bool = True, **options: Any
    ) -> None:
        self.busy, self.domain, self.world = threading.RLock(), domain, world
        with world.agreement(f"UniformGrid({check=})"):
            check_ranks(domain, world)
            if "systems" in options:
                raise TypeError("grids over ranks have no systems: leave out systems.")
            self.radius = checks.at_least_zero(radius, "radius")
            self._check = checks.flag(check, "check")
        self._cell_size, self._options = self.radius if cell_size is None else cell_size, options
        self._grids: dict[Any, Local] = {}  # by dtype and place of the positions
        self._held: OwnedParticles | None = None

    def __repr__(self) -> str:
        held = f"{self._held.count:,} particles and {self.ghosts:,} ghosts" if self._held else "empty"
        return f"<UniformGrid: rank {self.world.rank} of {self.world.size}, radius {self.radius:g}, {held}>"

    # ---- building -------------------------------------------------------------------------------------

    @alone
    def build(self, positions: Any) -> UniformGrid:
        """Bring particles to their owners and ghosts to the ranks that see them; every rank calls.

        Parameters
        ----------
        positions : array (N, d), (N,) in 1-D, or tuple of d arrays (N,)
            Any particles, also none: of NumPy, CuPy, torch or PyOpenCL, in float32 or float64, the same on all ranks.
            Arrays of PyOpenCL are searched on the host.

        Returns
        -------
        UniformGrid
            The grid itself.

        Raises
        ------
        ValueError, TypeError
            If positions have another shape or dtype, are not finite or are outside of an open axis. Then every rank
            raises, and the particles of the last build stay.
        RankError
            If another rank raised. If its local grid did, for lack of memory, the grid is empty afterwards.
        """

        def accepted() -> tuple[str, tuple[str, Staged, Any, Local, Callable[[], Surveyed]]]:
            given = UserPositions(positions, self.domain.mesh.ndim)
            given.check()
            staged, xp = given.staged, given.xp
            with staged.scope():
                x = xp.ascontiguousarray(given.table())
                local = self._surroundings(x.dtype, staged)
                if self._check and local.sweep is None:
                    check_inside(self.domain.mesh.box, x, xp)
                survey = local.survey(x, xp)
            call = f"build of a grid of {x.dtype}, radius {self.radius}, cuts {hash_of(self.domain)}"
            return call, (call, staged, x, local, survey)

        call, staged, x, local, survey = self.world.alike(accepted, self._check)  # while a GPU surveys

        def surveyed() -> Surveyed:
            result = survey()
            if self._check and result.bad:
                check_inside(self.domain.mesh.box, x, module_of(x))  # raises
            return result

        with staged.scope():
            finish = gathered(local, self.world, staged, x, surveyed, self._check, call)
            self._held = None  # until every rank has built
            self._held = together(self.world, self._check, "a local grid", finish)
        return self

    def _surroundings(self, dtype: Any, staged: Staged) -> Local:
        if (dtype, staged.kind.home) not in self._grids:
            cut = bool(self._options.get("deterministic", False))
            around = Surroundings(self.domain, self.world.rank, self.radius, dtype, cut)
            lengths = 1 / np.linalg.norm(around.box.inverse, axis=1)
            size = np.minimum(np.broadcast_to(np.asarray(self._cell_size, np.float64), lengths.shape), lengths)
            size = np.where(size > 0, size, lengths / 16)
            grid = LocalGrid(around.box, cell_size=tuple(size.tolist()), **self._options)
            sweep = None
            if module_of(staged.native) is not np and Pass.serves(around):
                sweep = Pass(around, staged.kind.backend(staged.user), dtype)
            self._grids[dtype, staged.kind.home] = Local(around, grid, sweep)
        return self._grids[dtype, staged.kind.home]

    @property
    def positions(self) -> Any:
        """Positions (n, d) of the particles that this rank owns, as given, by number; read-only."""
        held = self._ready()
        return checks.kept(held.kind.like(held.owned))

    @property
    def numbers(self) -> Any:
        """Numbers of the particles that this rank owns, int64 (n,); read-only."""
        held = self._ready()
        return checks.kept(held.kind.like(held.numbers))

    @property
    def route(self) -> Route:
        """The way to the owners: ``send`` brings them what belongs to particles, ``back`` returns it."""
        return self._ready().route

    @property
    def ghosts(self) -> int:
        """Number of ghosts of this rank."""
        return int(self._ready().ghosts.arrived)

    @property
    def first(self) -> int:
        """Place of this rank's first own particle in its arrays of particles and ghosts."""
        return self._ready().first

    # ---- queries --------------------------------------------------------------------------------------

    @alone
    def pairs(
        self,
        radius: float | None = None,
        *,
        half: bool = False,
        order: str = "input",
        format: str = "csr",  # noqa: A002 - what it is
        quantities: str = "j",
        width: int | None = None,
    ) -> Pairs:
        """Return the pairs of this rank's particles within a distance, images included; without messages.

        Parameters
        ----------
        radius : float, optional
            Pairs with distance ≤ ``radius``, at most that of the grid; by default that.
        half : bool
            By default each pair is returned from both sides, on the ranks that own its particles. With True each pair
            is returned once, by one rank, which owns particle ``i``.
        order : {"input", "local"}
            Name particles by their numbers, int64, or by their places in this rank's arrays, int32. These arrays hold
            the ghosts below, then the rank's own ``positions`` from :attr:`first` on, then the ghosts above.
        format : {"csr", "coo", "dense"}
            Compressed rows, two columns, or a table of ``width`` columns. Row k is that of ``positions[k]``.
        quantities : str
            Letters of "ijdDS": see :class:`particlemesh.Pairs`. Shifts S are those of the positions as they were given.
        width : int, optional
            Columns of a dense table; by default as many as the longest row needs.

        Returns
        -------
        Pairs

        Raises
        ------
        RuntimeError
            If the grid is empty.
        ValueError
            If an argument is not allowed.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> world = pmd.World()
        >>> domain = pmd.Domain(pm.Mesh(8, 1.0), world.size)
        >>> grid = pmd.UniformGrid(domain, world, radius=0.2).build(np.array([0.05, 0.5, 0.95]))
        >>> grid.pairs().start, grid.pairs().j
        (array([0, 1, 1, 2]), array([2, 0]))
        """
        radius, held = self._asked(radius), self._ready()
        checks.one_of(order, "order", ORDERS)
        checks.one_of(format, "format", FORMATS)
        check_letters(quantities)
        letters = set(quantities) | ({"i", "j"} if "S" in quantities else set())
        needed = "".join(letter for letter in "ijdDS" if letter in letters)
        with held.kind.scope():
            some = half and held.xp is not np and format != "dense" and held.count > 0
            if some:
                pairs = held.grid.rows_of(radius, needed, held.first, held.first + held.count - 1)
            else:
                form = "dense" if format == "dense" else "csr"
                pairs = held.grid.pairs(radius, half=half, format=form, quantities=needed, width=width)
            return own_pairs(held, pairs, order, format, quantities, alone=some)

    @alone
    def count(self, radius: float | None = None) -> Any:
        """Return how many neighbours within a distance each particle has, images included; every rank calls.

        Parameters
        ----------
        radius : float, optional
            At most that of the grid; by default that.

        Returns
        -------
        int32 array (N,)
            Of the particles that this rank gave to :meth:`build`, in their order.
        """
        return self._returned("count of a grid", lambda held: held.grid.count(self._asked(radius)))

    @alone
    def at_places(self, values: Any) -> Any:
        """Return values of this rank's own particles and ghosts, by their places; every rank calls.

        Parameters
        ----------
        values : array (N, ...)
            Of the particles that this rank gave to :meth:`build`, in one dtype on all ranks.

        Returns
        -------
        array (M, ...)
            In the order of ``pairs(order="local")``. ``route.back`` of the rows from ``first`` on, one for each of
            ``positions``, returns results to the ranks that gave the particles.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> grid = pmd.UniformGrid(pmd.Domain(pm.Mesh(8, 1.0), 1), pmd.World(), radius=0.2)
        >>> grid.build(np.array([0.05, 0.5, 0.95])).at_places(np.array([3, 5, 7]))
        array([3, 5, 7])
        """
        return self._rows_moved(
            values, "particles", lambda held: held.route.count,
            lambda held, rows: held.at_owners(held.xp.ascontiguousarray(rows), self.world, self._check),
        )  # fmt: skip

    @alone
    def from_places(self, values: Any) -> Any:
        """Return values of own particles and ghosts to the ranks that gave the particles; every rank calls.

        The adjoint of :meth:`at_places`: values of a particle and of its ghosts on all ranks are added.

        Parameters
        ----------
        values : array (M, ...)
            By place, in one dtype on all ranks.

        Returns
        -------
        array (N, ...)
            For the particles that this rank gave to :meth:`build`.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> grid = pmd.UniformGrid(pmd.Domain(pm.Mesh(8, 1.0), 1), pmd.World(), radius=0.2)
        >>> grid.build(np.array([0.05, 0.5, 0.95])).from_places(np.array([3, 5, 7]))
        array([3, 5, 7])
        """
        return self._rows_moved(
            values, "places", lambda held: held.count + held.ghosts.arrived,
            lambda held, rows: held.to_callers(rows, self.world, self._check),
        )  # fmt: skip

    def _rows_moved(self, values: Any, what: str, count_of: Callable[..., int], move: Callable[..., Any]) -> Any:
        def accepted() -> tuple[str, Staged]:
            count, given = count_of(self._ready()), Staged(values, "values")
            if given.native.shape[:1] != (count,):
                raise ValueError(f"values has shape {given.native.shape}; a row for each of {count} {what} is needed.")
            return f"rows of {what}, {given.native.dtype} {given.native.shape[1:]}", given

        given, held = self.world.alike(accepted, self._check), self._ready()
        with held.kind.scope():
            return given.like(move(held, given.native))

    @alone
    def stream(
        self, radius: float | None, function: PairFunction, values: Any = None, *,
        meanwhile: Callable[[], Any] | None = None,
    ) -> Any:  # fmt: skip
        """Sum a function of pairs over the neighbours of each particle, without making a list; every rank calls.

        Parameters
        ----------
        radius : float or None
            Neighbours have distance ≤ ``radius``, at most that of the grid; with None that.
        function : PairFunction
            What to sum. The indices that it sees are places in a rank's arrays: see :meth:`pairs`.
        values : array (N, function.values) or (N,), optional
            Numbers of each particle that this rank gave to :meth:`build`, in the positions' type.
        meanwhile : function, optional
            Other work, which all ranks do, and which may send messages. It is called while a GPU sums, on a CPU after
            the sum. What it returns is dropped. In another stream its kernels run beside those of the sum.

        Returns
        -------
        array (N, function.results)
            Of the particles that this rank gave to :meth:`build`, in their order and type.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> def mass_around(r2, d, i, j, a, b, p, sum):
        ...     sum[0] += b[0]
        >>> masses = pm.PairFunction("sum[0] += b[0];", mass_around, results=1, values=1)
        >>> world = pmd.World()
        >>> domain = pmd.Domain(pm.Mesh(8, 1.0), world.size)
        >>> grid = pmd.UniformGrid(domain, world, radius=0.2).build(np.array([0.05, 0.5, 0.95]))
        >>> grid.stream(None, masses, np.array([3.0, 5.0, 7.0])).ravel()
        array([7., 0., 3.])
        """

        def accepted() -> tuple[str, tuple[float, Any]]:
            reach, held = self._asked(radius), self._ready()
            if not isinstance(function, PairFunction):
                raise TypeError(f"function is of type {type(function).__name__}; give a particlemesh.PairFunction.")
            if meanwhile is not None and not callable(meanwhile):
                raise TypeError(f"meanwhile is of type {type(meanwhile).__name__}; give a function without arguments.")
            native = None if values is None else Staged(values, "values").native
            function.check_values(None if native is None else tuple(native.shape), held.route.count)
            if native is not None:
                dtype = held.owned.dtype
                if native.dtype.kind not in "biuf" or (
                    native.dtype.kind == "f" and native.dtype.itemsize > dtype.itemsize
                ):
                    raise TypeError(f"values has dtype {native.dtype}; real numbers that fit into {dtype} are needed.")
                native = held.xp.ascontiguousarray(native.astype(dtype).reshape(held.route.count, function.values))
            beside = "" if meanwhile is None else " and other work"
            return f"stream of a grid of {function.values} values{beside}", (reach, native)

        reach, native = self.world.alike(accepted, self._check)
        held = self._ready()
        with held.kind.scope():
            at_owners = None if native is None else held.at_owners(native, self.world, self._check)
        return self._returned("end of a stream", lambda held: held.grid.stream(reach, function, at_owners), meanwhile)

    def _returned(
        self, call: str, rows_of: Callable[[OwnedParticles], Any], meanwhile: Callable[[], Any] | None = None
    ) -> Any:
        """Return rows that a function makes of all local particles: those of own ones to the ranks that gave them."""

        def ready() -> Callable[[], Any]:
            held = self._ready()
            with held.kind.scope():
                rows = rows_of(held)[held.first : held.first + held.count]
                return held.route.backward(held.xp.ascontiguousarray(rows))

        deliver, held = together(self.world, self._check, call, ready), self._ready()
        if meanwhile is not None:
            together(self.world, self._check, "other work", meanwhile)
        with held.kind.scope():
            return held.kind.like(deliver())

    def _ready(self) -> OwnedParticles:
        if self._held is None:
            raise RuntimeError("this grid is empty: call build with positions.")
        return self._held

    def _asked(self, radius: float | None) -> float:
        asked = self.radius if radius is None else checks.at_least_zero(radius, "radius")
        if asked > self.radius:
            raise ValueError(
                f"radius is {asked:g}, and this grid has ghosts within {self.radius:g}: make it with more."
            )
        return asked


# ---- particles on their owners, with the ghosts of other ranks around them -------------------------------------


@dataclass(frozen=True)
class OwnedParticles:
    """What a build leaves on a rank: its particles, its ghosts, and a local grid of both.

    Local arrays hold ghosts below, then own particles, then ghosts above. Two ranks find a pair of a particle and a
    ghost, and it belongs to the rank whose ghost is above the particle. A half list has a pair in the row of the
    smaller place. Therefore the rows of own particles hold the pairs of this rank, and no others.
    """

    kind: Staged  # of the positions that were given
    xp: Any
    grid: LocalGrid
    around: Surroundings
    route: Route  # from the callers to the owners
    owned: Any  # positions (n, d) as they were given
    rows: Any  # own particles that are ghosts elsewhere, by rank and image
    ghosts: Route  # these, on their way
    pieces: list[Segment]  # of the ghosts that arrive, those below first
    first: int  # number of ghosts below
    given: Any  # numbers of own particles, int64 (n,); None if they are as they were given, one after the other
    firsts: list[int]  # what is to be added to the numbers that come from each rank
    carried: Any  # rows of ghosts (m, ...) in the order in which they arrive: positions and numbers

    @property
    def count(self) -> int:
        """Number of own particles."""
        return int(self.owned.shape[0])

    @property
    def numbers(self) -> Any:
        """Numbers of own particles, int64 (n,)."""
        return self.all_numbers[self.first : self.first + self.count]

    @functools.cached_property
    def all_numbers(self) -> Any:
        """Numbers of all local particles, int64 (all,); made where they are asked for."""
        xp, first, near = self.xp, self.firsts, self.given
        if near is None:
            near = xp.arange(first[self.around.rank], first[self.around.rank] + self.count, dtype=np.int64)
        far = [_columns(xp, self.carried[p.begin : p.end], self.owned.shape[1])[1] + first[p.rank] for p in self.pieces]
        return _joined(xp, near, xp.concatenate([xp.zeros(0, np.int64), *far]), self.first)

    @property
    def arrived(self) -> Any:
        """Positions (m, d) of ghosts in the order in which they arrive."""
        return self.carried[:, : self.owned.shape[1]]

    @functools.cached_property
    def order(self) -> Any:
        """Index from the order in which ghosts arrive to that of local arrays."""
        xp = self.xp
        return xp.concatenate([xp.zeros(0, np.int64), *(xp.arange(p.begin, p.end) for p in self.pieces)])

    @property
    def periods(self) -> Any:
        """Periods added to the positions of all local particles, int64 (all, d)."""
        xp, d = self.xp, self.owned.shape[1]
        near, far = (xp.stack(self.around.place(x, xp).periods, 1) for x in (self.owned, self.arrived))
        images = np.repeat(
            np.array([piece.image for piece in self.pieces], np.int64).reshape(-1, d),
            [piece.end - piece.begin for piece in self.pieces], axis=0,
        )  # fmt: skip
        return _joined(xp, near.astype(np.int64), far[self.order].astype(np.int64) + xp.asarray(images), self.first)

    def at_owners(self, rows: Any, world: World, check: bool) -> Any:
        """Return rows of all local particles from those of the particles that each rank gave; every rank calls."""
        # Where every particle is at its owner, on all ranks, nothing travels.
        (owned,) = (rows,) if self.given is None else _sent(self.route, world, check, lambda: (rows,))
        (far,) = _sent(self.ghosts, world, check, lambda: (owned[self.rows],))
        below, above = ([far[p.begin : p.end] for p in self.pieces if p.above is up] for up in (False, True))
        return self.xp.concatenate([*below, owned, *above])

    def to_callers(self, rows: Any, world: World, check: bool) -> Any:
        """Return rows of all local particles to the ranks that gave these, and add those of ghosts: of `at_owners`."""
        xp, end = self.xp, self.first + self.count

        def far() -> Callable[[], Any]:
            arrived = xp.empty((self.ghosts.arrived, *rows.shape[1:]), rows.dtype)
            arrived[self.order] = xp.concatenate([rows[: self.first], rows[end:]])
            return self.ghosts.backward(arrived)

        deliver = together(world, check, "ghosts of a grid", far)
        back = deliver()

        def near() -> Callable[[], Any]:
            owned = xp.array(rows[self.first : end], order="C")
            xp.add.at(owned, self.rows, back)
            return self.route.backward(owned)

        return together(world, check, "messages of a grid", near)()


class Local(NamedTuple):
    """A local grid, and what finds its particles."""

    around: Surroundings
    grid: LocalGrid
    sweep: Pass | None  # on a GPU

    def survey(self, x: Any, xp: Any) -> Callable[[], Surveyed]:
        """Begin to find the owners of particles (N, d), and the ranks that see them; what is returned may wait."""
        return functools.partial(stepwise, self.around, x, xp) if self.sweep is None else self.sweep.begin(x, xp)

    def carry(self, rows: Any, every: Any, pieces: list[Segment], places: list[int]) -> None:
        """Write the positions of segments of rows to their places, moved into the mesh and by their images."""
        if self.sweep is not None:
            self.sweep.carry(rows, every, pieces, places)
        else:
            _carry(self.around, rows[:, : every.shape[1]], every, pieces, places, module_of(every))


def gathered(
    local: Local, world: World, kind: Staged, x: Any, survey: Callable[[], Surveyed], check: bool, call: str
) -> Callable[[], OwnedParticles]:
    """Bring particles (N, d) to their owners and ghosts to the ranks that see them.

    What is returned does the work that is left and builds the local grid. What may fail on one rank is done before all
    agree and communicate.
    """
    xp, around, rank = module_of(x), local.around, world.rank
    surveyed, coming = _exchanged(local, world, survey, x.shape[0], check, call)
    firsts = [0, *np.cumsum(coming[:, 0]).tolist()]
    route = Route.known(world, surveyed.leaving, np.ascontiguousarray(coming[:, 2:3]))
    if coming[:, 1].any():  # on all ranks: some particle leaves its rank
        first_number = firsts[rank]
        owned, numbers = _sent(route, world, check, lambda: (x, xp.arange(x.shape[0], dtype=np.int64) + first_number))

        def again() -> Surveyed:
            return local.survey(owned, xp)()

        surveyed, coming = _exchanged(local, world, again, 0, check, "ghosts of a grid")
        firsts = [0] * world.size
    else:  # then ghosts travel with their indices
        owned, numbers = x, None
    arriving, leaving = coming[:, 3:], np.zeros((world.size, 1), np.int64)
    for to, size in zip(around.neighbours, surveyed.sizes, strict=True):
        leaving[to.rank] += size
    ghosts = Route.known(
        world,
        Departures(xp, surveyed.rows.shape[0], leaving, True),
        np.ascontiguousarray(arriving.sum(1, keepdims=True)),
    )
    pieces = segments(around, arriving)
    pieces = [p for p in pieces if not p.above] + [p for p in pieces if p.above]
    first = sum(p.end - p.begin for p in pieces if not p.above)
    count = owned.shape[0]

    def packed() -> tuple[Any, Callable[[], Any]]:
        every = xp.empty((count + ghosts.arrived, x.shape[1]), x.dtype)
        if surveyed.home:
            every[first : first + count] = owned
        else:
            here = Segment(0, count, (0,) * x.shape[1], False)
            local.carry(owned, every, [here], [first])
        rows = surveyed.packed
        if rows is None or numbers is not None:
            places = surveyed.rows
            rows = _rows(xp, owned[places], places if numbers is None else numbers[places])
        return every, ghosts.forward(rows)

    every, deliver = together(world, check, "messages of a grid", packed)
    rows = deliver()

    def filled() -> OwnedParticles:
        ends, places = {False: 0, True: first + count}, []
        for piece in pieces:
            places.append(ends[piece.above])
            ends[piece.above] += piece.end - piece.begin
        local.carry(rows, every, pieces, places)
        # The user's array may change later.
        kept = every[first : first + count] if surveyed.home else xp.array(owned, order="C")
        local.grid.build(every)
        return OwnedParticles(
            kind, xp, local.grid, around, route, kept, surveyed.rows, ghosts, pieces, first, numbers, firsts, rows
        )

    return filled


def _exchanged(
    local: Local, world: World, survey: Callable[[], Surveyed], count: int, check: bool, call: str
) -> tuple[Surveyed, np.ndarray]:
    """Return a survey, and what every rank tells this one. Where one fails, all raise.

    It tells each rank its number of particles, that of strays to all, that for it, and of ghosts for it by image.
    """
    images = local.around.images

    def work() -> tuple[Surveyed, np.ndarray]:
        surveyed, table = survey(), np.zeros((world.size, 3 + len(images)), np.int64)
        sent = surveyed.leaving.sent
        table[:, 0], table[:, 1], table[:, 2:3] = count, sent.sum() - sent[world.rank, 0], sent
        for to, size in zip(local.around.neighbours, surveyed.sizes, strict=True):
            table[to.rank, 3 + images.index(to.image)] = size
        return surveyed, table

    if not check:
        surveyed, table = work()
        return surveyed, world.counts(table)
    return world.announce(3 + len(images), call, work)


def _rows(xp: Any, x: Any, numbers: Any) -> Any:
    """Return positions (n, d) and numbers (n,) as rows of the positions' type, with all their bits."""
    d, words = x.shape[1], 8 // x.dtype.itemsize
    rows = xp.empty((x.shape[0], d + words), x.dtype)
    rows[:, :d] = x
    rows.view(f"i{x.dtype.itemsize}")[:, d:] = numbers.view(f"i{x.dtype.itemsize}").reshape(-1, words)
    return rows


def _columns(xp: Any, rows: Any, d: int) -> tuple[Any, Any]:
    """Return positions and numbers of rows: the inverse of `_rows`."""
    integers = xp.ascontiguousarray(rows.view(f"i{rows.dtype.itemsize}")[:, d:])
    return xp.ascontiguousarray(rows[:, :d]), integers.view(np.int64).reshape(-1)


def _carry(around: Surroundings, far: Any, every: Any, pieces: list[Segment], places: list[int], xp: Any) -> None:
    """Do the work of `Pass.carry` step by step, for positions (m, d)."""
    for piece, to in zip(pieces, places, strict=True):
        some = far[piece.begin : piece.end]
        periods = tuple(n + a for n, a in zip(around.place(some, xp).periods, piece.image, strict=True))
        every[to : to + some.shape[0]] = moved(some, periods, around.mesh.box.matrix, around.cut)


def _sent(route: Route, world: World, check: bool, arrays: Callable[[], tuple[Any, ...]]) -> list[Any]:
    """Return arrays of particles where a route brings them."""
    ready = together(world, check, "messages of a grid", lambda: [route.forward(rows) for rows in arrays()])
    return [deliver() for deliver in ready]


def _joined(xp: Any, owned: Any, far: Any, first: int) -> Any:
    return xp.concatenate([far[:first], owned, far[first:]])


def own_pairs(
    held: OwnedParticles, pairs: Pairs, order: str, form: str, quantities: str, *, alone: bool = False
) -> Pairs:
    """Return the rows of a rank's own particles from those of particles and ghosts; ``alone``: the others are empty."""
    first, count, xp = held.first, held.count, held.xp
    rows = slice(first, first + count)
    start: Any = pairs.start
    length: Any = pairs.count
    if form == "dense":
        part, length = rows, length[rows]
    else:
        begin, part = 0, slice(None)
        if not alone:
            ends = start[first :: max(count, 1)][:2]  # where the rows of own particles begin and end
            begin, end = (int(n) for n in (ends if xp is np else ends.get())) if count else (0, 0)
            part = slice(begin, end)
        start = start[first : first + count + 1]
        start = start - begin if begin else start
    got: dict[str, Any] = dict(i=pairs.i, j=pairs.j, d=pairs.distance, D=pairs.vector, S=pairs.shift)
    got = {letter: None if array is None else array[part] for letter, array in got.items()}
    if "S" in quantities:
        i, j = (xp.maximum(got[letter], 0) for letter in "ij")
        periods = held.periods
        got["S"] = (got["S"] + periods[j] - periods[i]).astype(np.int32)
    if order == "input":
        for letter in "ij":
            if got[letter] is not None:
                named = held.all_numbers[got[letter]]  # a place of -1 is the last one, which is then replaced
                got[letter] = xp.where(got[letter] < 0, -1, named) if form == "dense" else named
    give = {letter: held.kind.like(got[letter]) if letter in quantities else None for letter in "ijdDS"}
    return Pairs(
        start=None if form != "csr" else held.kind.like(start), i=give["i"], j=give["j"], shift=give["S"],
        distance=give["d"], vector=give["D"], count=None if length is None else held.kind.like(length),
    )  # fmt: skip
