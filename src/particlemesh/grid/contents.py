# SPDX-License-Identifier: BSD-3-Clause
"""The contents of a grid: particles by cell, and the errors of those left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import kind_of
from particlemesh.arrays.memory import overlap
from particlemesh.busy import alone, in_use
from particlemesh.choosing import candidates
from particlemesh.grid import checks
from particlemesh.grid.builders import METHODS
from particlemesh.grid.construction import Construction
from particlemesh.grid.storage import Storage

_METHODS: Any = METHODS  # as `select` sees them


class Contents(Construction):
    """A grid and its reports: see :class:`particlemesh.UniformGrid`.

    Arrays of a GPU are views of the grid's memory: the next builds write there. Never write there yourself.
    """

    @property
    def size(self) -> int:
        """Particles given to the last build, including those left out."""
        return 0 if self._built is None else self._built.count

    def _from_build(self, read: Callable[[Any], Any]) -> Any:
        """Read from the build, on the stream or queue that made it, and return the result as the user's kind."""
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            built = self._ready()
            with self._stream(), built.backend.scope():
                self._token = built.backend.follow(self._token)
                return self._out(read(built))
        finally:
            self.busy.release()

    @property
    def status(self) -> checks.GridStatus:
        """What was wrong with the last build; waits for the device."""
        return self._from_build(lambda built: built.status())

    @alone
    def check(self) -> None:
        """Raise the errors of the last build and of unchecked queries; waits for the device.

        A build drops the errors of the build before: check after each build whose errors matter.
        """
        built, status = self._ready(), self.status
        if status.bad:
            raise checks.bad_particles(
                status, None, None, None if built.keyed else self.box, taken=True, systems=self.systems
            )
        if status.fullest:
            raise checks.overflow(status, built.capacity, built.method.remedy(status.fullest), taken=True)
        self._from_build(lambda built: built.check_queries())

    @property
    def storage(self) -> Storage:
        """What the builder stored, arrays included, as one of the types in ``particlemesh.grid.storage``.

        NumPy arrays are read-only, and tensors of the CPU are copies. Never write to arrays of a GPU: kernels use
        their numbers unchecked as indices.
        """
        storage = self._from_build(lambda built: built.public_storage())
        return type(storage)(*map(self._out, storage))

    @property
    def cell_start(self) -> Any:
        """Where each cell starts in the order of cells, (cells + 1,) int32; the last number is how many there are.

        With Morton order this is the start of each cell where it has particles, and ``storage.ends`` its end.
        """
        return self._from_build(lambda built: built.cell_start())

    @property
    def order(self) -> Any:
        """The particle at each place of the order of cells, (n,) int32; those left out are missing. Waits."""
        return self._from_build(lambda built: built.order())

    @property
    def rank(self) -> Any:
        """The place of each particle in the order of cells, (N,) int32; -1 for one that was left out. Waits."""
        return self._from_build(lambda built: built.rank())

    @property
    def positions(self) -> Any:
        """Positions in the order of cells, (n, d), folded into the box; needs ``queries=True``. Waits."""
        return self._from_build(lambda built: built.positions())

    def _out(self, array: Any) -> Any:
        """Return a native array as the user's kind; other things as they are."""
        if not hasattr(array, "strides") or self._kind is None:
            return array
        if self._kind.home != self.backend.name:
            return self._kind.wrap(self.backend.download(array))
        if hasattr(array, "with_queue"):
            array = array.with_queue(self.backend.queue)
        return self._kind.wrap(array)

    def _target(self, out: Any, shape: tuple[int, ...], values: Any) -> Any:
        """Return the native array over the memory of an output, checked: of the backend, or of the host."""
        kind, dtype = kind_of(out), self._ready().problem.dtype
        if kind is None:
            raise TypeError(f"out is of type {type(out).__name__}; give an array of the particles' library.")
        if not (kind is self._kind and self._uploads):  # else the result is copied to the host
            operands.to_backend(kind, out, self.backend, "out", upload=False)
        if tuple(out.shape) != shape or kind.dtype(out) != dtype:
            raise ValueError(
                f"out has shape {tuple(out.shape)} and dtype {kind.dtype(out)}; this call writes {shape} of {dtype}."
            )
        target, other = kind.target(out), kind_of(values)
        if other is not None and other.home == kind.home and overlap(target, other.native(values)):
            raise ValueError("out shares memory with the input; give a separate array.")
        return target

    @alone
    def explain(self) -> str:
        """Return each builder's estimate, or why it declines; the chosen one is starred.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> grid = pm.UniformGrid((1.0, 1.0), shape=(8, 8)).build(np.random.default_rng(1).random((100, 2)))
        >>> print(grid.explain())  # doctest: +ELLIPSIS
        grid ...
        """
        built: Any = self._ready()  # `select` is written for another Problem
        table = [candidates.ask(builder, built.problem) for builder in _METHODS]
        return candidates.table("grid", table, built.problem, type(built.method), ("build", "for queries"))
