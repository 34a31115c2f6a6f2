# SPDX-License-Identifier: BSD-3-Clause
"""Fields of integers: sums that depend neither on the order of particles nor on how a mesh is cut into parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, recorder_of
from particlemesh.arrays.operands import Operand, adopt, to_backend
from particlemesh.arrays.views import COMPLEX, View, integer_view, overlaps_itself
from particlemesh.backends.base import allocate
from particlemesh.busy import alone
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import METHODS
from particlemesh.methods.contract import Method
from particlemesh.plan.calls import SPREAD, Calls

_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)


class _Sums(NamedTuple):
    """A user's array of integers, or a new one: the view for methods, and the array that has its memory."""

    native: Any
    view: View
    target: Any  # where results are copied to at the end, or None


class Integers(Calls):
    """A plan with sums in integers, and without its other verbs: see :class:`particlemesh.Plan`.

    Many processes, of which each has particles and nodes of its own, get the field of one process bit by bit:

    1. Each makes a plan on a part of the mesh (:meth:`particlemesh.Mesh.part`), and sets positions.
    2. Each asks for :meth:`bounds`; the elementwise maximum of all these arrays bounds the whole field.
    3. Each spreads with this maximum into integers (:meth:`spread_integers`). Integers of one node are added.
    4. :meth:`convert` makes real or complex numbers of the sums.
    """

    @alone
    def bounds(self, values: Any, *, derivative: int = 0) -> Any:
        """Return what bounds the sums of :meth:`spread_integers`; never waits for the device.

        Entry 0 is an exponent n: of values below 1 any node gets a sum below 2**n. It follows from the window and the
        largest number of particles in one cell, which are those whose stencils begin at the same node. Each further
        entry is an exponent e for one real of the values: all of them are below 2**e. The array's elementwise maximum
        over parts does not depend on the cuts, if all particles of a cell are in one part.

        Parameters
        ----------
        values : array (..., N), or (..., N, d) or (..., N, d, d) for derivatives
            As for :meth:`spread`, :meth:`spread_gradient` or :meth:`spread_hessian`.
        derivative : {0, 1, 2}
            Which of these.

        Returns
        -------
        int32 array (1 + R,)
            Array of the library and device of ``values``. R is the number of fields, twice that for complex values,
            where each real part is followed by its imaginary part. An entry is 2**20 if any value was not finite.
        """
        operand, orders = self._operand(values, derivative)
        with operand.kind.scope(values), self.backend.scope(operand.native):
            self._token = self.backend.follow(self._token)
            layout = operand.view.layout
            native = allocate(self.backend, (1 + layout.channels * layout.parts,), _INT32, "bounds")
            self._integer_method().bounds(self._working(), operand.view, native, **orders)
            self.backend.mark(operand.native, native)
            return self._handed(operand.kind, native)

    @alone
    def spread_integers(
        self, values: Any, bounds: Any, *, derivative: int = 0, out: Any = None, accumulate: bool = False
    ) -> Any:
        """Spread values into a field of 64-bit integers.

        Each particle's contribution to a node is multiplied by ``2**(62 - bounds[0] - bounds[1 + r])`` for real r and
        rounded to an integer. Sums of integers are exact, in any order. They cannot overflow if ``bounds`` holds for
        all particles of the whole mesh.

        Parameters
        ----------
        values, derivative
            As for :meth:`bounds`.
        bounds : int32 array (1 + R,)
            From :meth:`bounds`, or the maximum of such arrays over parts.
        out : int64 array of the result's shape, optional
            Written (or added to, with ``accumulate``) and returned; any memory order.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        int64 array (..., *mesh.field_shape), or (..., 2, *mesh.field_shape) for complex values
            Array of the library and device of ``values``.
        """
        checks.flag(accumulate, "accumulate")
        if accumulate and out is None:
            raise ValueError("accumulate=True adds to out: give out=.")
        operand, orders = self._operand(values, derivative)
        kind, layout = operand.kind, operand.view.layout
        parts = layout.parts
        shape = (*operand.batch, *((2,) if parts == 2 else ()), *self.mesh.field_shape)
        with kind.scope(values), self.backend.scope(operand.native, out):
            self._token = self.backend.follow(self._token)
            exponents = self._exponents(bounds, layout.channels * parts)
            sums = self._new(shape, parts) if out is None else self._given(out, shape, parts, kind, accumulate)
            method = self._integer_method()
            if not accumulate:
                self.backend.clear(sums.native)
            if self.count and layout.channels:
                method.add_integers(self._working(), operand.view, exponents, sums.view, **orders)
            if isinstance(sums.target, np.ndarray) and self.backend.name != "cpu":
                sums.target[...] = self.backend.download(sums.native)
            elif sums.target is not None:
                self.backend.copy(sums.target, sums.native)
            self.backend.mark(operand.native, sums.native)
            return self._handed(kind, sums.native) if out is None else out

    @alone
    def convert(self, integers: Any, bounds: Any, *, dtype: Any = None, out: Any = None) -> Any:
        """Return the field that integers stand for: ``integers * 2**(bounds[0] + bounds[1 + r] - 62)``, rounded once.

        Parameters
        ----------
        integers : int64 array (..., *nodes), or (..., 2, *nodes) for a complex dtype
            From :meth:`spread_integers`, or sums of these. The last d axes may have any lengths.
        bounds : int32 array (1 + R,)
            The same as for :meth:`spread_integers`.
        dtype : dtype, optional
            The plan's real type by default, or the complex type of the same precision.
        out : array of the result's shape, optional
            Written and returned; any memory order.

        Returns
        -------
        array (..., *nodes)
            NaN for each real whose bound says that values were not finite.
        """
        self._one_system()
        real = self.dtype
        number = np.dtype(real if dtype is None else dtype)
        checks.one_of(number, "dtype", (real, COMPLEX[real]))
        parts, ndim = 2 if number.kind == "c" else 1, self.mesh.ndim
        kind, array = adopt(integers, "integers")
        lead = len(array.shape) - ndim - (parts - 1)
        if lead < 0 or (parts == 2 and array.shape[lead] != 2):
            allowed = "(..., 2, *nodes)" if parts == 2 else "(..., *nodes)"
            raise ValueError(
                f"integers has shape {tuple(array.shape)}; {number} needs {allowed} with {ndim} node axes."
            )
        if kind.dtype(array) != _INT64:
            raise TypeError(f"integers has dtype {kind.dtype(array)}; int64 is needed, as spread_integers returns it.")
        native = to_backend(kind, array, self.backend, "integers", upload=self._named is not None)
        with kind.scope(integers), self.backend.scope(native, out):
            self._token = self.backend.follow(self._token)
            sums = self._view(native, parts)
            shape = tuple(array.shape)
            like = Operand(kind, array, sums.native, sums.view, shape[:lead])
            result = operands.give(
                out, like, shape[:lead] + shape[-ndim:], ndim, 3, self.backend, accumulate=False,
                upload=self._named is not None, number=number,
            )  # fmt: skip
            exponents = self._exponents(bounds, sums.view.layout.channels * parts)
            if 0 not in array.shape:
                self._integer_method().convert(self._working(), sums.view, exponents, result.view)
            self.backend.mark(sums.native, result.native)
            return result.finish()

    # ---- arrays and the method -----------------------------------------------------------------------------

    def _operand(self, values: Any, derivative: Any) -> tuple[Operand, dict[str, bool]]:
        """Return values on the backend, and how a method takes them."""
        self._one_system()
        order = checks.integer(derivative, "derivative", 0, 2)
        if recorder_of(values, *self._tracked) is not None:
            raise TypeError("sums in integers have no derivatives: pass tensors that are detached.")
        core = (self.count, *(self.mesh.ndim,) * order)
        operand = operands.take(
            values, core, len(core), self.dtype, self.backend, SPREAD[order], upload=self._named is not None
        )
        self._check_slopes(order)
        return operand, {"gradient": order == 1, "hessian": order == 2}

    def _one_system(self) -> None:
        self._ready()
        if self.systems is not None:
            raise ValueError("sums in integers are for one system: make a plan without systems.")

    def _integer_method(self) -> Method:
        """Return the prepared method that sums in integers: the plan's own if that does."""
        what = "spread"
        if not self._method(what).integers:
            what = "spread, integers"
            if what not in self._methods:
                able = tuple(m for m in METHODS["spread"] if m.integers)
                self._methods[what] = candidates.choose(able, self.problem(), "auto")()
        self._prepare(what, self._methods[what])
        return self._methods[what]

    def _handed(self, kind: Kind, native: Any) -> Any:
        return kind.wrap(native if kind.home == self.backend.name else self.backend.download(native))

    def _exponents(self, bounds: Any, reals: int) -> Any:
        """Return bounds on the backend, checked; those on the host are copied there."""
        kind, array = adopt(bounds, "bounds")
        if tuple(array.shape) != (1 + reals,) or kind.dtype(array) != _INT32:
            raise ValueError(
                f"bounds has shape {tuple(array.shape)} and dtype {kind.dtype(array)}; values of {reals} reals need "
                f"int32 of shape {(1 + reals,)}, as Plan.bounds returns it."
            )
        native = to_backend(kind, array, self.backend, "bounds", upload=True)
        dense = native.strides[0] == _INT32.itemsize and not getattr(native, "offset", 0)
        if dense or self.backend.name == "cpu":
            return native
        copied = self.backend.empty(native.shape, _INT32)
        self.backend.copy(copied, native)
        return copied

    def _new(self, shape: tuple[int, ...], parts: int) -> _Sums:
        """Return new integers, of which two parts are neighbours in memory."""
        ndim, last = self.mesh.ndim, len(shape) - 1
        if parts == 1:
            native = allocate(self.backend, shape, _INT64, "a field of integers")
        else:
            lead = last - ndim
            dense = allocate(self.backend, (*shape[:lead], *shape[lead + 1 :], 2), _INT64, "a field of integers")
            native = dense.transpose((*range(lead), last, *range(lead, last)))
        seen = integer_view(native, ndim, 3, parts)
        assert seen is not None  # dense arrays always have a view
        return _Sums(native, seen, None)

    def _view(self, native: Any, parts: int, *, copied: bool = True) -> _Sums:
        """Return a view of integers, or of a dense copy where there is none."""
        seen = integer_view(native, self.mesh.ndim, 3, parts)
        if seen is not None:
            return _Sums(native, seen, None)
        dense = self._new(tuple(native.shape), parts)
        if copied:
            self.backend.copy(dense.native, native)
        return dense._replace(target=native)

    def _given(self, out: Any, shape: tuple[int, ...], parts: int, kind: Kind, accumulate: bool) -> _Sums:
        """Return the user's array for integers, checked."""
        given, array = adopt(out, "out")
        here = given.home == self.backend.name
        if given is not kind or not (here or (given.home == "cpu" and self._named is not None)):
            raise TypeError(f"out is a {given.name} array; give one of the library and device of the values.")
        if tuple(array.shape) != shape or given.dtype(array) != _INT64:
            raise ValueError(
                f"out has shape {tuple(array.shape)} and dtype {given.dtype(array)}; this call writes int64 of shape "
                f"{shape}."
            )
        target = given.target(to_backend(given, array, self.backend, "out", upload=False) if here else array)
        if overlaps_itself(target):
            raise ValueError("out has elements that share memory (a broadcast array?); give an array without overlap.")
        if here:
            return self._view(target, parts, copied=accumulate)
        sums = self._new(shape, parts)
        if accumulate:
            self.backend.copy(sums.native, self.backend.upload(np.ascontiguousarray(target)))
        return sums._replace(target=target)
