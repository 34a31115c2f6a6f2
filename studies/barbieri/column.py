# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of the paper on fast uniform grids: a column of spheres that falls, makes a wave and settles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from particlemesh import UniformGrid, kernels
from particlemesh.kernels import checks as common
from studies.barbieri.cpu import CpuSteps
from studies.barbieri.fused import FusedList, FusedSort
from studies.barbieri.green import RADIUS, Green, left_half
from studies.barbieri.grid import GridSteps
from studies.barbieri.rows import CpuRows
from studies.barbieri.steps import CHUNK, Setup, StepError

SEARCHES = ("auto", "fused", "storage", "stream")
BUILDERS = UniformGrid.methods
_FUSED = {"scan": FusedSort, "linked_list_packed": FusedList}  # on GPUs; on the CPU there are rows
_CHECKED = 20 * CHUNK  # steps between two looks at the status
_TRIES = 20  # of one chunk


class Design(NamedTuple):
    """How steps are taken: a builder, a search, and the numbers of the fused kernels."""

    builder: str
    search: str
    lanes: int = 1  # work-items that share a sphere
    queue: int = 0  # places for spheres in reach, of "scan"
    period: int = 24  # steps between two sorts, of "linked_list_packed"


def fused_design(count: int, cells: int) -> Design:
    """Return the fused design that was fastest on an H200, by the number of spheres and their density."""
    if count < 24 * 1024:
        return Design("linked_list_packed", "fused", lanes=8, period=96)
    if count < 96 * 1024:
        return Design("linked_list_packed", "fused", lanes=4, period=48)
    if count >= 3 * cells**3 or count >= 800 * 1024:  # then the queue is too short, or no gain
        return Design("scan", "fused")
    return Design("scan", "fused", queue=32)


class Column(kernels.Fixed):
    """Spheres of one cell's diameter in a closed box, with Green's forces, on a grid that each step builds anew.

    This is the benchmark of [barbieri2013]_, with the forces of [green2008]_ and symplectic Euler steps. Spheres start
    in the left half of the box, fall along the second axis, make a wave, and settle within 2000 steps.

    The physics is the paper's: the forces are soft and explicit. With many spheres gravity pushes them through each
    other, and cells at the bottom hold several. Use it to measure grids, not to predict granular matter.

    On CUDA, chunks of 48 steps are captured in a graph, and nothing waits within 960 steps. If a cell overflows
    meanwhile, the grid gets more room and these steps are repeated from the last good state.

    Parameters
    ----------
    count : int
        Spheres.
    cells : int
        Cells along each axis, 4 to 512, and edge of the box in diameters.
    builder : str
        Name of a builder of :class:`particlemesh.UniformGrid`; ``"auto"`` selects one.
    search : {"auto", "fused", "storage", "stream"}
        How spheres find each other. ``"fused"``: kernels of this class, which compute forces, move spheres and begin
        the next build at once; for ``"scan"`` and ``"linked_list_packed"`` on GPUs. On the CPU it sorts rows of cells,
        and sweeps them. ``"storage"``: functions of this class walk what the builder stored, as in the paper.
        ``"stream"``: ``UniformGrid.stream``. The default on GPUs is ``"fused"`` if the builder has
        it. On the CPU it is that if no builder is named and there are fewer spheres than cells. Else it is
        ``"storage"``.
    forces : Green
        Coefficients.
    dtype : {"float32", "float64"}
        Type of positions and velocities.
    backend : {"cpu", "cuda", "opencl"}, optional
        Where to compute; by default on the CPU.
    positions, velocities : array (N, 3), optional
        Another start, in diameters and diameters per unit of time.
    seed : int
        Of the random offsets at the start.
    lanes : int, optional
        For ``"fused"``: work-items that share a sphere, 1, 2, 4 or 8.
    queue : int, optional
        For ``"fused"`` with ``"scan"``: places for spheres in reach, which then collide together; 0, 16, 32 or 64.
    threads : int, optional
        On the CPU.
    **options
        Options of the builder.

    Attributes
    ----------
    design : Design
        What was selected.
    taken : int
        Steps taken.
    repeated : int
        How often steps were repeated because a cell had overflowed.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    Examples
    --------
    >>> from studies.barbieri.column import Column
    >>> column = Column(1000, cells=16).run(20)
    >>> column.positions.shape, column.taken
    ((1000, 3), 20)
    """

    def __init__(
        self,
        count: int,
        *,
        cells: int = 64,
        builder: str = "auto",
        search: str = "auto",
        forces: Green | None = None,
        dtype: Any = "float32",
        backend: str | None = None,
        positions: Any = None,
        velocities: Any = None,
        seed: int = 1,
        lanes: int | None = None,
        queue: int | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        count = common.integer(count, "count", 0, 2**27)
        cells = common.integer(cells, "cells", 4, 512)
        common.one_of(builder, "builder", ("auto", *BUILDERS))
        common.one_of(search, "search", SEARCHES)
        where = kernels.backend(backend or "cpu")
        self.design = _design(count, cells, builder, search, where.name, lanes, queue)
        self.forces = Green() if forces is None else forces
        real = common.real_type(dtype)
        # Walking lists of spheres repeats the rounding of their extents, which is exact for powers of two.
        by_extent = self.design.builder in UniformGrid.methods_with_radii
        if self.design.search == "storage" and by_extent and cells & (cells - 1):
            raise ValueError(
                f"cells is {cells}; the storage of tight lists is walked with a power of two only: give "
                f"search='stream', or another builder."
            )
        setup = Setup(where, count, cells, real, self.forces)
        self._taken = self._repeated = 0
        self._setup, self._token = setup, None
        self._steps = _steps(setup, self.design, options, threads)
        x = left_half(count, cells, real, seed) if positions is None else _given(positions, "positions", setup)
        v = np.zeros_like(x) if velocities is None else _given(velocities, "velocities", setup)
        if not ((x >= RADIUS) & (x <= cells - RADIUS)).all():
            raise ValueError(
                f"a centre is outside of {RADIUS:g} to {cells - RADIUS:g}: spheres must be inside the walls."
            )
        self._start = x, v
        self.restart()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Enter the backend, after the work of the stream or queue that was used before."""
        backend = self._setup.backend
        with backend.scope():
            self._token = backend.follow(self._token)
            yield

    def restart(self) -> Column:
        """Return to the start. Memory, captured graphs, and the room that cells have got, are kept.

        Returns
        -------
        Column
            This column.
        """
        with self._working():
            self._steps.load(*self._start)
        self._taken = self._repeated = 0
        return self

    def prepare(self, *runs: int) -> Column:
        """On CUDA, capture the graphs for several runs from the start, so that they only launch; then restart.

        Parameters
        ----------
        *runs : int
            Steps of each :meth:`run`.

        Returns
        -------
        Column
            This column, at its start.
        """
        self.restart().run(3)  # which compile and allocate
        self.restart()
        with self._working():
            for steps in runs:
                for left in range(steps, 0, -_CHECKED):
                    self._steps.prepare(min(left, _CHECKED))
            self._steps.rewind()
        return self.restart()

    def run(self, steps: int) -> Column:
        """Take steps.

        Parameters
        ----------
        steps : int
            How many.

        Returns
        -------
        Column
            This column.

        Raises
        ------
        FloatingPointError
            If the speed of a sphere is no longer finite.
        OverflowError
            If a cell needs more places than a given ``capacity``, and ``grow`` is not given.

        After an error the column is where it was at the last good state, at most 960 steps before.

        Examples
        --------
        >>> from studies.barbieri.column import Column
        >>> Column(100, cells=8).run(3).taken
        3
        """
        left = common.integer(steps, "steps", 0, 2**40)
        with self._working():
            while left:
                chunk = min(left, _CHECKED)
                self._steps.save()
                for _ in range(_TRIES):
                    try:
                        self._steps.run(chunk)
                        self._steps.check()
                        break
                    except StepError as error:
                        self._again(error)
                    except BaseException:  # Ctrl-C, or a build of the CPU without room
                        self._steps.restore()
                        raise
                else:
                    raise RuntimeError(f"a cell was too full {_TRIES} times; give capacity={self._setup.count}.")
                self._taken += chunk
                left -= chunk
        return self

    def _again(self, error: StepError) -> None:
        """Return to the last good state with more room, or raise what cannot be repeated."""
        grown = error.needed > 0 and self._steps.make_room(error.needed)
        self._steps.restore()
        if grown:
            self._repeated += 1
        elif error.needed:
            raise OverflowError(
                f"a cell has {error.needed} particles, more than its places: give capacity={error.needed} or more, or "
                f"grow=True. The column is at step {self.taken} again."
            )
        else:
            raise FloatingPointError(
                f"the speed of {error.bad} spheres is not finite, of sphere {error.last} for one: take smaller forces "
                f"or a smaller time step. The column is at step {self.taken} again."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Column cannot be copied or pickled, since it owns memory: make another Column.")

    @property
    def taken(self) -> int:
        """Steps taken."""
        return self._taken

    @property
    def repeated(self) -> int:
        """How often steps were repeated because a cell had overflowed."""
        return self._repeated

    # ---- results ------------------------------------------------------------------------------------------------

    @property
    def positions(self) -> np.ndarray:
        """A copy of the centres, (count, 3) in diameters; waits."""
        with self._working():
            return self._steps.download()[0]

    @property
    def velocities(self) -> np.ndarray:
        """A copy of the velocities, (count, 3) in diameters per unit of time; waits."""
        with self._working():
            return self._steps.download()[1]

    @property
    def in_reach(self) -> np.ndarray:
        """How many spheres overlap each sphere, (count,), as the last :meth:`broad_phase` found; waits."""
        with self._working():
            return np.array(self._steps.in_reach())

    # ---- parts of a step, for benchmarks ------------------------------------------------------------------------

    def build(self) -> None:
        """Submit a build of the present state's grid, which a step would make; spheres stay where they are."""
        with self._working():
            self._steps.build()

    def broad_phase(self) -> None:
        """Submit a build, and a count of the spheres in reach of each sphere."""
        with self._working():
            self._steps.build()
            if self._setup.count:
                self._steps.reach()


def _design(
    count: int, cells: int, builder: str, search: str, backend: str, lanes: int | None, queue: int | None
) -> Design:
    """Return what was asked for, with defaults for the rest."""
    fusing = _FUSED if backend != "cpu" else ("scan",)
    if search == "fused" and builder not in ("auto", *fusing):
        raise ValueError(
            f"search='fused' with builder {builder!r} on {backend!r} is not possible: it is for {' or '.join(fusing)}."
        )
    if backend == "cpu":
        fused = search == "fused" or (search == builder == "auto" and count < cells**3)
    else:
        fused = search == "fused" or (search == "auto" and builder in ("auto", *fusing))
    if not fused or backend == "cpu":
        if lanes is not None or queue is not None:
            raise ValueError("lanes or queue is given, but only search='fused' on a GPU has them.")
        walk = "storage" if search == "auto" else search
        return Design("scan" if builder == "auto" else builder, "fused" if fused else walk)
    design = fused_design(count, cells)
    if builder not in ("auto", design.builder):
        design = Design(builder, "fused", queue=32 if builder == "scan" else 0)
    if lanes is not None:
        common.one_of(lanes, "lanes", (1, 2, 4, 8))
        design = design._replace(lanes=lanes)
    if queue is not None:
        common.one_of(queue, "queue", (0, 16, 32, 64) if design.builder == "scan" else (0,))
        design = design._replace(queue=queue)
    return design


def _steps(setup: Setup, design: Design, options: dict[str, Any], threads: int | None) -> Any:
    if design.search == "fused":
        if options:
            raise TypeError(f"options {', '.join(options)} are given, but search='fused' has none.")
        if setup.backend.name == "cpu":
            return CpuRows(setup, threads)
        if design.builder == "scan":
            return FusedSort(setup, design.lanes, design.queue)
        return FusedList(setup, design.lanes, design.period)
    if setup.backend.name == "cpu":
        return CpuSteps(setup, design.builder, design.search, options, threads)
    return GridSteps(setup, design.builder, design.search, options)


def _given(values: Any, name: str, setup: Setup) -> np.ndarray:
    """Return a start (count, 3) in the column's type, checked."""
    array = common.number_array(values, name)
    if array.shape != (setup.count, 3) or array.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; numbers ({setup.count}, 3) are needed."
        )
    array = array.astype(setup.dtype)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has numbers that are not finite.")
    return array
