# SPDX-License-Identifier: BSD-3-Clause
"""The way of values in a plan, from users' arrays through a method to the result, and a plan's lifetime."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.geometry import check_size
from particlemesh.busy import alone
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import KEYWORDS, METHODS
from particlemesh.methods.contract import Method
from particlemesh.plan.configuration import Configuration

SPREAD = "values", "vectors", "tensors"  # by the order of the derivative
_POWERS = "", "", "**2"
_RESULTS = "values", "gradient", "hessian"
_COUNTS = {2: "two", 3: "three"}
_SECOND = ", second derivatives"


class Calls(Configuration):
    """A plan without the verbs of its users: see :class:`particlemesh.Plan`."""

    def _spread(self, given: Any, order: int, out: Any, accumulate: bool) -> Any:
        """Spread the adjoint of derivatives of an order."""
        if accumulate and out is None:
            raise ValueError("accumulate=True adds to out: give out=.")
        backend, upload, mesh = self.backend, self._named is not None, self.mesh
        core = (self.count, *(mesh.ndim,) * order)
        operand = operands.take(given, core, len(core), self.dtype, backend, SPREAD[order], upload=upload)
        with operand.kind.scope(given), backend.scope(operand.native, out):
            self._token = backend.follow(self._token)
            result = operands.give(
                out, operand, operand.batch + self._shape, mesh.ndim, 3, backend, accumulate=accumulate, upload=upload
            )
            self._check_slopes(order)
            method = self._method_for("spread", order)
            some = bool(self.count and operand.view.layout.channels)
            if not accumulate and not (some and method.fills and self._systems is None):
                backend.clear(result.native)
            if some:
                workspace, values, field = self._working(), operand.view, result.view
                if self._boxes is not None and order:
                    values = self._boxes.to_mesh(workspace, values, self._turns())
                fresh = not accumulate
                if self._systems is not None:
                    field, fresh = self._systems.field(workspace, result.view, operand.native.dtype), True
                    if not method.fills:
                        backend.clear(field.array)
                method.apply(workspace, values, field, gradient=order == 1, hessian=order == 2, fresh=fresh)
                if self._systems is not None:
                    self._systems.fold(workspace, field, result.view)
            backend.mark(operand.native, result.native)
            return result.finish()

    def _interpolate(self, field: Any, outs: Mapping[int, Any]) -> tuple[Any, ...]:
        """Interpolate derivatives of several orders at once; ``outs`` are by order, None for new arrays."""
        backend, upload, mesh = self.backend, self._named is not None, self.mesh
        operand = operands.take(
            field, self._shape, 3, self.dtype, backend, "field", upload=upload, channels=len(self._shape) - mesh.ndim
        )
        with operand.kind.scope(field), backend.scope(operand.native, *outs.values()):
            self._token = backend.follow(self._token)
            results = {}
            for order, out in outs.items():
                core = (self.count, *(mesh.ndim,) * order)
                results[_RESULTS[order]] = operands.give(
                    out, operand, operand.batch + core, len(core), len(core), backend, accumulate=False, upload=upload
                )
            self._check_slopes(max(outs))
            method = self._method_for("interpolate", max(outs))
            if self.count and operand.view.layout.channels:
                views, workspace, nodes = {name: r.view for name, r in results.items()}, self._working(), operand.view
                if self._systems is not None:
                    nodes = self._systems.field(workspace, operand.view, operand.native.dtype)
                    self._systems.fill(workspace, operand.view, nodes)
                method.apply(workspace, nodes, views.get("values"), **{n: v for n, v in views.items() if n != "values"})
                if self._boxes is not None:
                    for name in views.keys() - {"values"}:
                        self._boxes.from_mesh(workspace, views[name], self._turns())
            backend.mark(operand.native, *(result.native for result in results.values()))
            return tuple(result.finish() for result in results.values())

    def _turns(self) -> Any:
        """Return the caller's index of the particle of each value, or None if they are in the caller's order."""
        return self.particles.order if self._sorted else None

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

    def _check_slopes(self, order: int) -> None:
        """Check that the plan's type holds derivatives of an order, per power of the user's length."""
        if order:
            assert self.dtype is not None
            rows = self.mesh.box.matrix[None] if self._boxes is None else self._boxes.rows
            slopes = np.array(self.mesh.intervals) / np.linalg.norm(rows, axis=2)
            for size in (slopes.min(), slopes.max()):
                check_size(size**order, self.dtype, f"derivatives of a field of size 1, per length{_POWERS[order]},")

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

    def to_xarray(self, field: Any, **labels: Any) -> Any:
        """Return a field as an xarray.DataArray with the coordinates of the plan's nodes.

        See :func:`particlemesh.adapters.xarray.to_xarray` for ``labels``: names and units.
        """
        adapter = importlib.import_module("particlemesh.adapters.xarray")  # by name: it stands above plans
        return adapter.to_xarray(self.mesh, field, **labels)

    # ---- lifetime -------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without positions.
        options: dict[str, Any] = dict(
            dtype=None if self.dtype is None else self.dtype.name, components=self.components,
            applications=self.applications, method=self._choice.names["spread"],
            interpolation=self._choice.names["interpolate"], backend=self._named,
            deterministic=self.deterministic, threads=self.threads,
            options={name: dict(chosen) for name, chosen in self.options.items()},
            order="sorted" if self._sorted else "caller", systems=self.systems,
        )  # fmt: skip
        return functools.partial(type(self), self.mesh, self.window, **options), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the plan's memory. Later calls raise a RuntimeError; closing twice is allowed."""
        self._closed = True
        self._workspace = self._spare = self._order = self._boxes = None
        self._methods.clear()
        self._tapes.clear()

    def __repr__(self) -> str:
        nodes = " x ".join(map(str, self._shape))
        where = "any backend" if self.backend is None else self.backend.name
        dtype = "float32 or float64" if self.dtype is None else self.dtype.name
        state = "closed" if self._closed else f"{self.count:,} particles" if self.particles else "no particles"
        names = {KEYWORDS[what]: name for what, name in self._choice.names.items()}
        names |= {KEYWORDS[what]: self._methods[what].name for what in METHODS if what in self._methods}
        chosen = ", ".join(f"{keyword} {name!r}" for keyword, name in names.items())
        return f"<Plan: {nodes} nodes, {self.window.name}, {dtype} on {where}, {state}; {chosen}>"

    @property
    def nbytes(self) -> int:
        """Bytes of the plan's memory."""
        held = () if self._workspace is None else (self.particles, self._spare, self._workspace.memory)
        return sum(int(x.nbytes) for x in held if x is not None)  # orders lie in scratch memory
