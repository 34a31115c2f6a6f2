# SPDX-License-Identifier: BSD-3-Clause
"""Asking a grid: arguments as queries take them, answers as the user's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import kind_of
from particlemesh.arrays.positions import Coordinates, coordinates
from particlemesh.arrays.systems import indices
from particlemesh.busy import in_use
from particlemesh.grid import checks
from particlemesh.grid.contents import Contents
from particlemesh.grid.queries.cloud import few_images
from particlemesh.grid.results import Pairs


class Asking(Contents):
    """A grid that answers queries: see :class:`particlemesh.UniformGrid`."""

    def _built_for_queries(self) -> Any:
        built = self._ready()
        if built.queries is None:
            what = "it has keys, not positions" if built.keyed else "it was made with queries=False"
            raise RuntimeError(f"this grid answers no queries: {what}.")
        return built

    def _answer(self, ask: Callable[[Any], Any], given: Any = None) -> Any:
        """Run a query, one thread at a time; see :meth:`_ask`."""
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            return self._ask(ask, given)
        finally:
            self.busy.release()

    def _ask(self, ask: Callable[[Any], Any], given: Any = None) -> Any:
        """Run a query on the stream or queue of the arrays ``given``; return arrays of the user's kind."""
        built = self._built_for_queries()
        arrays = [(kind_of(x), x) for x in (given if isinstance(given, tuple) else (given,))]
        local = [(kind, kind.native(x)) for kind, x in arrays if kind is not None and kind.home == self.backend.name]
        stream = local[0][0].scope(given[0] if isinstance(given, tuple) else given) if local else self._stream()
        natives = [native for _, native in local]
        with stream, built.backend.scope(*natives):
            self._token = built.backend.follow(self._token)
            answer = ask(built.queries)
            built.backend.mark(*natives)
            if isinstance(answer, Pairs):
                fields = {f: self._out(getattr(answer, f)) for f in Pairs.__slots__}
                return Pairs(**fields)
            if isinstance(answer, tuple):
                return tuple(self._out(x) for x in answer)
            return self._out(answer)

    def _rows_of(self, radius: float, quantities: str, least: int, most: int) -> Pairs:
        """Return the half list of some particles, on a GPU; the rows of the others are empty."""
        reach = self._reach(radius)
        return self._answer(lambda queries: queries.rows_of(reach, quantities, least, most))

    def _reach(self, radius: Any) -> float:
        number = checks.radius(radius)
        few_images(number, self.box, None if self._boxes is None else self._boxes.per)
        return number

    def _points(self, points: Any) -> Any:
        dtype = self._ready().problem.dtype
        _, _, x = coordinates(points, self.box.ndim, self.backend, upload=self._uploads, least=dtype)
        if x.dtype != dtype:
            raise TypeError(f"points have dtype {x.dtype}, more than the {dtype} of the particles: convert them.")
        return x

    def _systems_of(self, system: Any, x: Coordinates | None) -> Any:
        """Return the systems of points ``x``; None if they have none."""
        if system is None and (x is None or self.systems is None):
            return None
        if self.systems is None:
            raise TypeError("system is given, but this grid has no systems: make it with systems=.")
        if x is None:
            raise TypeError("system is given, but no points: particles have the systems given to build.")
        if system is None:
            raise TypeError(f"this grid has {self.systems} systems: give system=, the index of each point's system.")
        return indices(system, x.count, self.systems, self.backend, upload=self._uploads, what="point")

    def _native(self, array: Any, what: str) -> Any:
        """Return one of the user's arrays on the grid's backend, in the type of the positions."""
        if array is None:
            return None
        dtype = self._ready().problem.dtype
        kind, given = operands.adopt(array, what)
        native = operands.to_backend(kind, given, self.backend, what, upload=self._uploads)
        checks.narrow_enough(native.dtype, dtype, listed=given is not array, what=what)
        return native if native.dtype == dtype else native.astype(dtype)

    def _cutoff(self, radius: Any) -> Any:
        if not isinstance(radius, (list, tuple)) and not getattr(radius, "shape", ()):
            return self._reach(radius)
        native = self._native(radius, "radius")
        count = self._ready().count
        checks.one_each(tuple(native.shape), count)
        dense = self.backend.empty((max(count, 1),), native.dtype)
        if count:
            self.backend.copy(dense[:count], native)
        return dense if self.backend.name != "cpu" else dense[:count]
