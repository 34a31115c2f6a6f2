# SPDX-License-Identifier: BSD-3-Clause
"""Neighbour lists that are kept while no particle has moved by more than half of a skin.

A list is made with the radius and the skin. A pair within the radius is in it as long as both particles have moved by
half of the skin at most. If a box changes, particles are compared with where they would be had they moved with it. The
linear map F from the old lattice vectors to the new ones takes the vector D of a kept pair to ``D F``. It shortens no
vector to less than ``s |D|``, with its least singular value s. So pairs beyond ``radius + skin`` are farther apart than
the radius while each particle has left its place by ``(s (radius + skin) - radius) / 2`` at most.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from particlemesh import backends
from particlemesh import checks as common
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import recorder_of
from particlemesh.arrays.positions import Coordinates, arrays_given, coordinates, indices, lattices
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.box import Box
from particlemesh.checks import alone
from particlemesh.grid import checks, forms
from particlemesh.grid.cpu.skin import CpuLists
from particlemesh.grid.neighbour_list import reach_of
from particlemesh.grid.queries.kept import DeviceLists, FixedLists
from particlemesh.grid.results import on_host
from particlemesh.grid.uniform_grid import UniformGrid

# Numbers of a system: whether its box has changed, the largest square of a move, origin, map of places, inverse and
# lattice vectors. Those of axes that are missing come first and are zero.
CHANGED, LIMIT, ORIGIN, MAP, INVERSE, ROWS, TABLE = 0, 1, slice(2, 5), slice(5, 14), slice(14, 23), slice(23, 32), 32
ENGINES = (DeviceLists, CpuLists)


class SkinList(common.Fixed):
    """Neighbour lists for moving particles: pairs are searched again only when a particle has moved too far.

    Each call takes positions and returns what :func:`particlemesh.neighbour_list` returns for them. A search finds the
    pairs within ``radius + skin``. They are kept while no particle of a system has moved by more than half of the skin.
    Moves are those of nearest images: a particle that is put back into its box has not moved. Systems are searched
    again one by one on the CPU, and all together on a GPU.

    Parameters
    ----------
    quantities : str
        Letters of "ijdDSns", each at most once, as of :func:`particlemesh.neighbour_list`.
    box, radius, periodic, half, system, boxes, backend, threads
        As of :func:`particlemesh.neighbour_list`. The box may be a :class:`particlemesh.UniformGrid`: then its box,
        backend, threads and number of systems are taken. The list has a grid of its own.
    skin : number
        In the unit of the positions. A larger skin makes searches fewer and kept lists longer.
    exact : bool
        Whether pairs beyond the radius are left out. With False a call returns the kept list, with present distances:
        all pairs within the radius, and some beyond it.
    width : int, optional
        With a grid: arrays are tables with so many columns, as of ``format="dense"`` of
        :meth:`particlemesh.UniformGrid.pairs`: -1 in empty places. Letters are those of "jdDSn". On a GPU such calls
        never wait, and from the second one on they allocate nothing: a graph can capture them. The next call overwrites
        their arrays, and :meth:`check` raises errors.

    Attributes
    ----------
    quantities, skin, half, exact, width, system
        As given.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Notes
    -----
    If a box changes, a move is how far a particle is from where it would be had it moved with the box. The box's least
    stretch s, at most 1, shortens the way that it may go: ``(s * (radius + skin) - radius) / 2``, with the largest
    radius. If that is negative the system is searched again.

    Pairs of a particle may come in another order than from a fresh search. Distances are those of the positions as
    they were given, so of particles outside of their box the last digit may differ.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> x = np.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.5]])
    >>> pairs = pm.SkinList("ijd", (1.0, 1.0), radius=0.25, skin=0.1)
    >>> i, j, d = pairs(x)
    >>> i, j, d.round(12)
    (array([0, 1], dtype=int32), array([1, 0], dtype=int32), array([0.2, 0.2]))
    >>> i, j, d = pairs(x + [[0.04, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> d.round(12), pairs.rebuilt, pairs.rebuilds
    (array([0.24, 0.24]), array([False]), array([1]))
    """

    def __init__(
        self, quantities: str, box: Any, radius: Any, skin: float, *, periodic: Any = None, half: bool = False,
        system: Any = None, boxes: Any = None, exact: bool = True, width: int | None = None,
        backend: str | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        forms.checked(quantities, "i", None, half=common.flag(half, "half"))
        forms.needed(quantities, "i", None)
        if boxes is not None and system is None:
            raise TypeError("boxes is given, but not system: give the index of each particle's system.")
        self._grid: UniformGrid | None = None
        if isinstance(box, UniformGrid):
            if periodic is not None or backend is not None or threads is not None:
                raise TypeError("box is a grid, which has periodic axes, backend and threads: leave these out.")
            common.systems_given("grid", box.systems, system, boxes)
            self._grid, backend, threads, box = box, box.backend and box.backend.name, box.threads, box.box
        self.width = None if width is None else common.integer(width, "width", 0, 2**31 - 1)
        if width is not None and (self._grid is None or set(quantities) - set("jdDSn")):
            raise ValueError(
                f"width is {width} and quantities {quantities!r}: give a UniformGrid as box, and letters of 'jdDSn'."
            )
        self.quantities, self.half, self.exact = quantities, half, common.flag(exact, "exact")
        self.skin = checks.radius(skin)
        self._threads = None if threads is None else at_most_cores(common.threads(threads, backend))
        self._periodic = np.array(periodic) if np.ndim(periodic) == 2 else None
        if self._periodic is not None and system is None:
            raise TypeError("periodic has the axes of each system, but system is missing: give each particle's system.")
        self._box = checks.box_of(box, self._periodic.any(0).tolist() if self._periodic is not None else periodic)
        reach_of(radius, len(radius) if np.ndim(radius) else 1, np.dtype(np.float64))  # raises
        self._boxes, self._radius, self.system, self._backend = boxes, radius, system, backend
        self._of: Any = None  # how many particles, of which type, and where
        self._engine: Any = None
        self._frame: Frame | None = None  # of the last call
        self._reference: Frame | None = None  # of the searches
        self._numbers: tuple[Frame, np.ndarray] | None = None
        self._wrap: Any = None  # makes the user's kind of arrays on a GPU, where no call waits
        self._reach = 0.0
        self._rebuilt, self._rebuilds = np.zeros(0, bool), np.zeros(0, np.int64)
        self.busy = threading.RLock()

    @property
    def rebuilt(self) -> Any:
        """Which systems the last call searched again, (S,) bool; of one system without ``system``.

        With ``width`` on a GPU it is an int32 array there, 0 or 1, that the next call overwrites.
        """
        return self._rebuilt.copy() if self._wrap is None else self._wrap(self._engine.moved)

    @property
    def rebuilds(self) -> Any:
        """How often each system has been searched, (S,) int64; with ``width`` on a GPU int32 there."""
        return self._rebuilds.copy() if self._wrap is None else self._wrap(self._engine.rebuilds)

    @alone
    def check(self) -> None:
        """Raise the errors of calls with ``width`` on a GPU: rows too long, bad particles of the last search. Waits.

        Raises
        ------
        OverflowError
            If a row has more pairs than columns; the error names the width that is needed.
        ValueError
            If particles were not finite or outside of the box.
        """
        if self._wrap is not None:
            self._engine.check()

    @alone
    def __call__(self, positions: Any, *, box: Any = None, boxes: Any = None) -> Any:
        """Return all pairs of particles within the radius.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            As of :func:`particlemesh.neighbour_list`; the same particles in every call.
        box : Box, lengths or matrix, optional
            A new box, from this call on. Lengths or a matrix keep the periodic axes.
        boxes : array (S, d) or (S, d, d), optional
            New boxes of systems, from this call on.

        Returns
        -------
        array or tuple of arrays
            One for each letter, as of :func:`particlemesh.neighbour_list`. Of torch tensors that require grad ``d`` and
            ``D`` are differentiable by positions, and by a box or boxes given here.

        Raises
        ------
        ValueError, TypeError
            If an argument is not allowed, a position is not finite, or the number of particles has changed. The list
            stays as it was.
        """
        columns = arrays_given(positions)
        given = self._boxes if boxes is None and self._frame is None else boxes
        recorder = recorder_of(*columns, box, given)
        if recorder is not None:
            answer: Any = recorder.kept_list(self, positions, box, given)
            return answer
        arrays = self.arrays(self.quantities, positions, box, boxes)
        results = tuple(arrays[letter] for letter in self.quantities)
        return results if len(results) > 1 else results[0]

    @property
    def lattice(self) -> np.ndarray:
        """Lattice vectors as rows of the last call, (d, d), or those of each system, (S, d, d)."""
        rows = self._frame_of(None, None).rows
        return np.array(rows[0] if self.system is None else rows)

    @alone
    def arrays(self, letters: str, positions: Any, box: Any, boxes: Any) -> dict[str, Any]:
        """Return arrays by letter, without derivatives; for other parts of the library."""
        place = None if self._backend is None else backends.current(self._backend)
        kind, home, x = coordinates(positions, self._box.ndim, place, upload=place is not None)
        if self._of is not None and (x.count, x.dtype, home) != self._of:
            raise ValueError(
                f"positions are {x.count} of {x.dtype} on {home.name!r}; this list is of {self._of[0]} of "
                f"{self._of[1]} on {self._of[2].name!r}: make another list for other particles."
            )
        with kind.scope(x.user), home.scope(*x.arrays):
            made = self._updated(letters, positions, home, x, self._frame_of(box, boxes))
            here = kind.home == home.name
            if self.width is not None and home.name != "cpu":
                self._wrap = kind.wrap if here else home.download
            return {letter: kind.wrap(array if here else home.download(array)) for letter, array in made.items()}

    def _frame_of(self, box: Any, boxes: Any) -> Frame:
        """Return the boxes of a call: new ones, or those of the call before."""
        frame, domain, given = self._frame, self._box, self._boxes
        if frame is not None:
            if box is None and boxes is None:
                return frame
            domain, given = frame.box, frame.boxes
        if boxes is not None:
            if self.system is None:
                raise TypeError("boxes is given, and this list has no systems: give box, or make it with system=.")
            given = boxes
        if box is not None:
            if given is not None:
                raise TypeError("box is given, and the systems of this list have boxes: give boxes.")
            domain = checks.box_of(box, None if isinstance(box, Box) else [*domain.periodic])
            if domain.ndim != self._box.ndim:
                raise ValueError(f"box is in {domain.ndim}-D; this list is in {self._box.ndim}-D.")
        count = 1 if self._grid is None else self._grid.systems or 1
        if frame is not None:
            count = len(frame.rows)
        elif self._periodic is not None:
            count = len(self._periodic)
        elif given is not None:
            count = len(operands.adopt(given, "boxes")[1])
        elif self.system is not None and self._grid is None:
            count = int(on_host(operands.adopt(self.system, "system")[1]).max(initial=0)) + 1
        rows = np.broadcast_to(domain.matrix, (count, *domain.matrix.shape))
        if given is not None:
            rows = lattices(given, count, domain.ndim)
        periodic = np.broadcast_to(domain.periodic, (count, domain.ndim)) if self._periodic is None else self._periodic
        return Frame(domain, given, rows, periodic)

    def _updated(self, letters: str, positions: Any, home: Backend, x: Coordinates, frame: Frame) -> dict[str, Any]:
        """Search again where particles have moved too far, and return the arrays of letters."""
        engine, reference, count = self._engine, self._reference, len(frame.rows)
        if self.width is not None and home.name != "cpu":
            return self._updated_there(letters, positions, home, x, frame)
        if engine is None or reference is None:
            self._reach, radii = reach_of(self._radius, x.count, x.dtype)
            ids = self._ids(x.count, count)
            engine = ENGINES[home.name == "cpu"](home, x, ids, radii, count, self._threads)
            moved = np.ones(count, bool)
        else:
            moved = engine.moves(x, self._table_of(frame, x.dtype))
            moved |= (frame.periodic != reference.periodic).any(1)
        if moved.any():
            moved |= engine.together
            self._search(engine, positions, x, frame, moved)
            self._rebuilds = (self._rebuilds if self._engine is not None else np.zeros(count, np.int64)) + moved
            rows = frame.rows if reference is None else np.where(moved[:, None, None], frame.rows, reference.rows)
            self._reference, self._numbers = frame._replace(rows=rows), None
        self._engine, self._frame, self._rebuilt, self._of = engine, frame, moved, (x.count, x.dtype, home)
        square = checks.square_within(self._reach, x.dtype) if self.exact else np.inf
        if self.width is None:
            return engine.pairs(letters, self._table_of(frame, x.dtype), square, self.exact)
        listed = "".join(dict.fromkeys("in" + letters))
        arrays = engine.pairs(listed, self._table_of(frame, x.dtype), square, self.exact)
        checks.wide_enough(int(arrays["n"].max(initial=0)), self.width)
        return {
            letter: arrays[letter] if letter == "n" else
            forms.neighbour_matrix(arrays["i"], arrays[letter], x.count, self.width, fill=-(letter == "j"))
            for letter in letters
        }  # fmt: skip

    def _updated_there(self, letters: str, positions: Any, home: Backend, x: Coordinates, frame: Frame) -> Any:
        """Do the same on a GPU with rows of one width: what is searched again is decided there."""
        engine, first, count = self._engine, self._engine is None, len(frame.rows)
        if first:
            self._reach, radii = reach_of(self._radius, x.count, x.dtype)
            if radii is not None:
                raise ValueError("radius has a number for each particle; with width on a GPU one number is needed.")
            assert self._grid is not None
            grid = UniformGrid(
                frame.box, shape=self._grid.shape, systems=count, dtype=x.dtype, backend=home.name,
                deterministic=self._grid.deterministic,
            )  # fmt: skip
            engine = FixedLists(home, x, self._ids(x.count, count), grid, self.width or 0, letters.replace("n", ""))
        new = first or frame is not self._frame
        self._reference = frame
        size = float(np.abs(frame.rows).sum() + np.abs(frame.box.origin).sum())
        skin = self.skin + 64 * np.finfo(x.dtype).eps * (size + self._reach + self.skin)
        table = self._table_of(frame, x.dtype)
        engine.update(
            positions, x, table, None if frame.boxes is None else frame.rows, self._reach + skin, half=self.half,
            force=new,
        )  # fmt: skip
        self._engine, self._frame, self._of = engine, frame, (x.count, x.dtype, home)
        square = checks.square_within(self._reach, x.dtype) if self.exact else np.inf
        return engine.pairs(letters, table, square, self.exact)

    def _ids(self, count: int, systems: int) -> np.ndarray:
        """Return the system of each particle, int32 on the host."""
        if self.system is None:
            return np.zeros(count, np.int32)
        host = on_host(operands.adopt(self.system, "system")[1])
        ids: np.ndarray = indices(host, count, systems, backends.current("cpu"), upload=False)
        return ids

    def _table_of(self, frame: Frame, dtype: np.dtype) -> np.ndarray:
        """Return the numbers of systems in the frame, made once for the same boxes."""
        if self._numbers is None or self._numbers[0] is not frame:
            assert self._reference is not None
            self._numbers = frame, numbers_of(frame, self._reference.rows, self._reach, self.skin, dtype)
        return self._numbers[1]

    def _search(self, engine: Any, positions: Any, x: Coordinates, frame: Frame, moved: np.ndarray) -> None:
        """Make the lists of systems that have moved."""
        options: dict[str, Any] = {"half": self.half, "backend": self._backend, "threads": self._threads}
        box: Any = frame.box
        if self.system is not None:
            options |= {"system": engine.ids, "boxes": frame.rows}
        if self._periodic is not None:
            box, options["periodic"] = frame.box.matrix, self._periodic
        engine.search(positions, x, moved, box, self._reach, self.skin, float(np.abs(frame.rows).sum()), options)


class Frame(NamedTuple):
    """The boxes of systems in a call."""

    box: Box
    boxes: Any  # as given, or None
    rows: np.ndarray  # (S, d, d)
    periodic: np.ndarray  # (S, d)


def numbers_of(frame: Frame, before: np.ndarray, reach: float, skin: float, dtype: np.dtype) -> np.ndarray:
    """Return the numbers (S, TABLE) of systems whose lists were made in boxes with the lattice vectors ``before``."""
    count, axes = frame.rows.shape[:2]
    first, rows = 3 - axes, frame.rows
    table, maps = np.zeros((count, TABLE)), np.zeros((count, axes, axes))
    lattice = np.where(frame.periodic[:, :, None], rows, 0.0)  # open axes have no images
    table[:, LIMIT] = checks.square_within(skin / 2, dtype)
    changed = np.flatnonzero((rows != before).any((1, 2)))
    if changed.size:
        old = np.where(frame.periodic[changed, :, None], before[changed], 0.0)
        inverse = np.linalg.pinv(old)
        maps[changed] = (
            inverse @ lattice[changed] + np.eye(axes) - inverse @ old
        )  # across lattice vectors nothing moves
        least = np.minimum(np.linalg.svd(maps[changed], compute_uv=False)[:, -1], 1.0)
        way = (least * (reach + skin) - reach) / 2 * (1 - 8 * np.finfo(dtype).eps)
        table[changed, LIMIT] = np.where(way > 0, way * way, -1.0)
        table[changed, CHANGED] = 1.0
    table[:, ORIGIN][:, first:] = frame.box.origin
    inverse = np.linalg.pinv(lattice).swapaxes(1, 2)
    for numbers, matrices in ((MAP, maps), (INVERSE, inverse), (ROWS, rows)):
        table[:, numbers].reshape(count, 3, 3)[:, first:, first:] = matrices
    return table.astype(dtype)
