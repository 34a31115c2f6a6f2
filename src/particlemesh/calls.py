# SPDX-License-Identifier: BSD-3-Clause
"""The way of values in a plan: from users' arrays through a method to the result, for derivatives of any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from particlemesh.arrays import operands
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.configuration import Configuration
from particlemesh.methods.contract import Method

_SPREAD = "values", "vectors", "tensors"  # by the order of the derivative
_RESULTS = "values", "gradient", "hessian"
_COUNTS = {2: "two", 3: "three"}
_SECOND = ", second derivatives"


class Calls(Configuration):
    """A plan without the verbs of its users: see :class:`particlemesh.Plan`."""

    def _spread(self, values: Any, order: int, out: Any, accumulate: bool) -> Any:
        """Spread the adjoint of derivatives of an order."""
        if accumulate and out is None:
            raise ValueError("accumulate=True adds to out: give out=.")
        backend, upload, mesh = self.backend, self._named is not None, self.mesh
        core = (self.count, *(mesh.ndim,) * order)
        operand = operands.take(values, core, len(core), self.dtype, backend, _SPREAD[order], upload=upload)
        with operand.kind.scope(values), backend.scope(operand.native, out):
            self.token = backend.follow(self.token)
            result = operands.give(
                out, operand, operand.batch + self._shape, mesh.ndim, 3, backend, accumulate=accumulate, upload=upload
            )
            method = self._method_for("spread", order)
            if not accumulate:
                backend.clear(result.native)
            if self.count and operand.view.layout.channels:
                method.apply(self._working(), operand.view, result.view, gradient=order == 1, hessian=order == 2)
            backend.mark(operand.native, result.native)
            return result.finish()

    def _interpolate(self, field: Any, outs: Mapping[int, Any]) -> tuple[Any, ...]:
        """Interpolate derivatives of several orders at once; ``outs`` are by order, None for new arrays."""
        backend, upload, mesh = self.backend, self._named is not None, self.mesh
        operand = operands.take(field, self._shape, 3, self.dtype, backend, "field", upload=upload)
        with operand.kind.scope(field), backend.scope(operand.native, *outs.values()):
            self.token = backend.follow(self.token)
            results = {}
            for order, out in outs.items():
                core = (self.count, *(mesh.ndim,) * order)
                results[_RESULTS[order]] = operands.give(
                    out, operand, operand.batch + core, len(core), len(core), backend, accumulate=False, upload=upload
                )
            method = self._method_for("interpolate", max(outs))
            if self.count and operand.view.layout.channels:
                views = {name: result.view for name, result in results.items()}
                method.apply(self._working(), operand.view, views.pop("values", None), **views)
            backend.mark(operand.native, *(result.native for result in results.values()))
            return tuple(result.finish() for result in results.values())

    def _together(self, field: Any, names: str, count: int, out: Any) -> Any:
        """Interpolate the first ``count`` results in one call."""
        self._ready()
        outs = (None,) * count if out is None else out
        if not isinstance(outs, (tuple, list)):
            raise TypeError(f"out is of type {type(out).__name__}; {names} need a tuple of {_COUNTS[count]} arrays.")
        if len(outs) != count:
            raise ValueError(f"out has {len(outs)} arrays; {names} need {_COUNTS[count]}.")
        outs = tuple(outs)
        operands.check_apart(*outs)
        result = None if out is None else outs
        return self._again(names, (field, *outs), lambda: self._interpolate(field, dict(enumerate(outs))), result)

    def _method_for(self, what: str, order: int) -> Method:
        """Return the prepared method for derivatives of an order: the direction's, or one that has them."""
        method = self._method(what)
        if order > method.derivatives:
            what, direction = what + _SECOND, what
            if what not in self._methods:
                self._methods[what] = self._choice.choose(self._working(), direction, order)()
            method = self._methods[what]
        self._prepare(what, method)
        return method

    def _second_derivatives(self, what: str, method: type[Method] | None) -> str:
        """Return a line about the method of second derivatives, if it is not the direction's own."""
        if method is None or method.derivatives > 1:
            return ""
        held = self._methods.get(what + _SECOND)
        try:
            name = held.name if held else self._choice.choose(self._working(), what, 2).name
        except MethodNotSuitable as error:
            return f"\nno second derivatives to {what}: {error}"
        return f"\nsecond derivatives: {what} by {name!r}"
