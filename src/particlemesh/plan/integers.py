# SPDX-License-Identifier: BSD-3-Clause
"""Fields of integers: sums that depend neither on the order of particles nor on how a mesh is cut into parts.

Many processes, of which each has particles and nodes of its own, get the field of one process bit by bit:

1. Each makes a plan on a part of the mesh (:meth:`particlemesh.Mesh.part`), and sets positions.
2. Each asks for :meth:`particlemesh.Plan.bounds`; the elementwise maximum of all these arrays bounds the whole field.
3. Each spreads with this maximum into integers (:meth:`particlemesh.Plan.spread_integers`). Integers of one node are
   added.
4. :meth:`particlemesh.Plan.convert` makes real or complex numbers of the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, allocate, recorder_of
from particlemesh.arrays.operands import COMPLEX, Operand, View, adopt, integer_view, overlaps_itself, to_backend
from particlemesh.plan.calls import INPUTS, check_slopes

_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)


class _Sums(NamedTuple):
    """A user's array of integers, or a new one: the view for methods, and the array that has its memory."""

    native: Any
    view: View
    target: Any  # where results are copied to at the end, or None


def bounds(plan: Any, values: Any, derivative: int, beside: Any = None) -> Any:
    """See :meth:`particlemesh.Plan.bounds`. On a GPU, cells may have the particles of a plan ``beside``, too."""
    operand, orders = _operand(plan, values, derivative)
    with operand.kind.scope(values), plan.backend.scope(operand.native):
        plan.follow()
        layout = operand.view.layout
        native = allocate(plan.backend, (1 + layout.channels * layout.parts,), _INT32, "bounds")
        others = () if beside is None else (beside.methods.ready_for_integers().fullness(beside.workspace),)
        plan.methods.ready_for_integers().bounds(plan.workspace, operand.view, native, *others, **orders)
        plan.backend.mark(operand.native, native)
        return _handed(plan, operand.kind, native)


def spread(plan: Any, values: Any, bounds: Any, derivative: int, out: Any, accumulate: bool) -> Any:
    """See :meth:`particlemesh.Plan.spread_integers`."""
    checks.flag(accumulate, "accumulate")
    if accumulate and out is None:
        raise ValueError("accumulate=True adds to out: give out=.")
    operand, orders = _operand(plan, values, derivative)
    kind, layout = operand.kind, operand.view.layout
    parts = layout.parts
    shape = (*operand.batch, *((2,) if parts == 2 else ()), *plan.mesh.field_shape)
    with kind.scope(values), plan.backend.scope(operand.native, out):
        plan.follow()
        exponents = _exponents(plan, bounds, layout.channels * parts)
        sums = _new(plan, shape, parts) if out is None else _given(plan, out, shape, parts, kind, accumulate)
        method = plan.methods.ready_for_integers()
        if not accumulate:
            plan.backend.clear(sums.native)
        if plan.count and layout.channels:
            method.add_integers(plan.workspace, operand.view, exponents, sums.view, **orders)
        if isinstance(sums.target, np.ndarray) and plan.backend.name != "cpu":
            sums.target[...] = plan.backend.download(sums.native)
        elif sums.target is not None:
            plan.backend.copy(sums.target, sums.native)
        plan.backend.mark(operand.native, sums.native)
        return _handed(plan, kind, sums.native) if out is None else out


def convert(plan: Any, integers: Any, bounds: Any, dtype: Any, out: Any) -> Any:
    """See :meth:`particlemesh.Plan.convert`."""
    _one_system(plan)
    real = plan.dtype
    number = np.dtype(real if dtype is None else dtype)
    checks.one_of(number, "dtype", (real, COMPLEX[real]))
    parts, ndim = 2 if number.kind == "c" else 1, plan.mesh.ndim
    kind, array = adopt(integers, "integers")
    lead = len(array.shape) - ndim - (parts - 1)
    if lead < 0 or (parts == 2 and array.shape[lead] != 2):
        allowed = "(..., 2, *nodes)" if parts == 2 else "(..., *nodes)"
        raise ValueError(f"integers has shape {tuple(array.shape)}; {number} needs {allowed} with {ndim} node axes.")
    if kind.dtype(array) != _INT64:
        raise TypeError(f"integers has dtype {kind.dtype(array)}; int64 is needed, as spread_integers returns it.")
    native = to_backend(kind, array, plan.backend, "integers", upload=plan.uploads)
    with kind.scope(integers), plan.backend.scope(native, out):
        plan.follow()
        sums = _view(plan, native, parts)
        shape = tuple(array.shape)
        like = Operand(kind, array, sums.native, sums.view, shape[:lead])
        result = operands.give(
            out, like, shape[:lead] + shape[-ndim:], ndim, 3, plan.backend, accumulate=False,
            upload=plan.uploads, number=number,
        )  # fmt: skip
        exponents = _exponents(plan, bounds, sums.view.layout.channels * parts)
        if 0 not in array.shape:
            plan.methods.ready_for_integers().convert(plan.workspace, sums.view, exponents, result.view)
        plan.backend.mark(sums.native, result.native)
        return result.finish()


def _operand(plan: Any, values: Any, derivative: Any) -> tuple[Operand, dict[str, bool]]:
    """Return values on the backend, and how a method takes them."""
    _one_system(plan)
    order = checks.integer(derivative, "derivative", 0, 2)
    if recorder_of(values, *plan.tracked) is not None:
        raise TypeError("sums in integers have no derivatives: pass tensors that are detached.")
    core = (plan.count, *(plan.mesh.ndim,) * order)
    operand = operands.take(values, core, len(core), plan.dtype, plan.backend, INPUTS[order], upload=plan.uploads)
    if order:
        check_slopes(plan, order)
    return operand, {"gradient": order == 1, "hessian": order == 2}


def _one_system(plan: Any) -> None:
    plan.ready()
    if plan.systems is not None:
        raise ValueError("sums in integers are for one system: make a plan without systems.")


def _handed(plan: Any, kind: Kind, native: Any) -> Any:
    return kind.wrap(native if kind.home == plan.backend.name else plan.backend.download(native))


def _exponents(plan: Any, bounds: Any, reals: int) -> Any:
    """Return bounds on the backend, checked; those on the host are copied there."""
    kind, array = adopt(bounds, "bounds")
    if tuple(array.shape) != (1 + reals,) or kind.dtype(array) != _INT32:
        raise ValueError(
            f"bounds has shape {tuple(array.shape)} and dtype {kind.dtype(array)}; values of {reals} reals need "
            f"int32 of shape {(1 + reals,)}, as Plan.bounds returns it."
        )
    native = to_backend(kind, array, plan.backend, "bounds", upload=True)
    dense = native.strides[0] == _INT32.itemsize and not getattr(native, "offset", 0)
    if dense or plan.backend.name == "cpu":
        return native
    copied = plan.backend.empty(native.shape, _INT32)
    plan.backend.copy(copied, native)
    return copied


def _new(plan: Any, shape: tuple[int, ...], parts: int) -> _Sums:
    """Return new integers, of which two parts are neighbours in memory."""
    ndim, last = plan.mesh.ndim, len(shape) - 1
    if parts == 1:
        native = allocate(plan.backend, shape, _INT64, "a field of integers")
    else:
        lead = last - ndim
        dense = allocate(plan.backend, (*shape[:lead], *shape[lead + 1 :], 2), _INT64, "a field of integers")
        native = dense.transpose((*range(lead), last, *range(lead, last)))
    seen = integer_view(native, ndim, 3, parts)
    assert seen is not None  # dense arrays always have a view
    return _Sums(native, seen, None)


def _view(plan: Any, native: Any, parts: int, *, copied: bool = True) -> _Sums:
    """Return a view of integers, or of a dense copy where there is none."""
    seen = integer_view(native, plan.mesh.ndim, 3, parts)
    if seen is not None:
        return _Sums(native, seen, None)
    dense = _new(plan, tuple(native.shape), parts)
    if copied:
        plan.backend.copy(dense.native, native)
    return dense._replace(target=native)


def _given(plan: Any, out: Any, shape: tuple[int, ...], parts: int, kind: Kind, accumulate: bool) -> _Sums:
    """Return the user's array for integers, checked."""
    given, array = adopt(out, "out")
    here = given.home == plan.backend.name
    if given is not kind or not (here or (given.home == "cpu" and plan.uploads)):
        raise TypeError(f"out is a {given.name} array; give one of the library and device of the values.")
    if tuple(array.shape) != shape or given.dtype(array) != _INT64:
        raise ValueError(
            f"out has shape {tuple(array.shape)} and dtype {given.dtype(array)}; this call writes int64 of shape "
            f"{shape}."
        )
    target = given.target(to_backend(given, array, plan.backend, "out", upload=False) if here else array)
    if overlaps_itself(target):
        raise ValueError("out has elements that share memory (a broadcast array?); give an array without overlap.")
    if here:
        return _view(plan, target, parts, copied=accumulate)
    sums = _new(plan, shape, parts)
    if accumulate:
        plan.backend.copy(sums.native, plan.backend.upload(np.ascontiguousarray(target)))
    return sums._replace(target=target)
