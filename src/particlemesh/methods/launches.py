# SPDX-License-Identifier: BSD-3-Clause
"""Several values per particle in one launch: up to four reals, side by side or in planes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.backends.source import read
from particlemesh.methods.contract import Method
from particlemesh.particles.workspace import Sizes, Workspace

MOST = 4  # reals of one particle in one launch: more would not fit a thread's registers


@dataclass(frozen=True)
class Group:
    """Channels that one launch handles: ``channels`` planes of ``parts`` reals side by side."""

    parts: int
    channels: int
    first: int  # index of the first channel among the view's
    more: bool = False  # whether the launch handles further groups: see KernelMethod.batches

    @property
    def reals(self) -> int:
        """Reals of a node."""
        return self.parts * self.channels

    def defines(self) -> dict[str, int]:
        return {"PARTS": self.parts, "CHANNELS": self.channels} | ({"BATCHES": 1} if self.more else {})


SINGLE = Group(1, 1, 0)
Launch = tuple[Any, ...]  # kernels for a group of channels, and what else their call needs
# Facts that shared kernel functions need; the values do not matter to kernels that call none of them.
NO_LANES = {"LANES_ALL": 1, "LANES_ROW": 1, "GRADIENT": 0}
# Of kernels that read no window: one program serves all windows.
NO_WINDOW = {**NO_LANES, "SUPPORT": 1, "SUPPORT_X": 1, "SUPPORT_Y": 1, "SUPPORT_Z": 1, "DEGREE": 0}
# Lanes of a particle, and of one row of its stencil, that spread together
# (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv).
LANES = {"LANES_ALL": 8, "LANES_ROW": 8}


class Form(NamedTuple):
    """What tells the launches of a method for arrays of the same layouts from each other.

    Attributes
    ----------
    gradient : bool
        Whether spreading is the adjoint of the gradient, so that values are vectors.
    wide : bool
        Whether kernels count in 64 bits.
    variant : hashable
        What else the method compiles for, beside what follows from the number of particles.
    hessian : bool
        Whether second derivatives are among the results or, to spread, values are tensors.
    """

    gradient: bool = False
    wide: bool = False
    variant: Any = None
    hessian: bool = False

    def facts(self) -> dict[str, int]:
        """Return what spreading is the adjoint of, as kernels with second derivatives see it."""
        return {"GRADIENT": int(self.gradient)} | ({"HESSIAN": 1} if self.hessian else {})


VALUES = Form()


def groups(field: Layout, most: int = MOST) -> Iterator[Group]:
    """Cut the channels of ``field`` into groups of ``most`` reals. Real channels side by side count as parts of one."""
    total, parts = field.channels, field.parts
    beside = parts == 1 and field.strides[0] == 1
    first = 0
    while first < total:
        left = total - first
        if beside and left > 1:
            width = most if left >= most else 2
            yield Group(width, 1, first)
        else:
            width = min(left, most // parts)
            yield Group(parts, width, first)
        first += width


def vector(group: Group, field: Layout, real_bytes: int, most: int, *, pairs: int = 2) -> int:
    """Return how many reals of a row one instruction may move: rows must be dense and aligned for more.

    Of nodes with a single real, it moves ``pairs`` at most.
    """
    width = min(most, 4 if group.parts in (2, 4) else pairs)
    if field.strides[3] != group.parts:
        return 1
    start = group.first * field.strides[0]
    planes = field.strides[0] if group.channels > 1 or group.more else 0
    steps = (start, planes, *field.strides[1:3], field.shape[3] * group.parts)
    while width > 1 and (any(s % width for s in steps) or field.alignment % (width * real_bytes)):
        width //= 2
    return width


def field_record(group: Group, field: Layout, axes: Any) -> Record:
    """Return the kernels' ``Field``."""
    sizes, wraps = [a.size for a in axes], [int(a.wraps) for a in axes]
    offset = field.offset + group.first * field.strides[0]
    return Record("=6i5q", *sizes, *wraps, *field.strides[1:4], field.strides[0], offset)


def values_record(group: Group, values: Layout | None, most: int = 1) -> Record:
    """Return the kernels' ``Values``, of values (channel, particle, part) or tensors with axes before the part.

    Kernels know ``most`` such axes: two if they take second derivatives.
    """
    if values is None:
        return Record(f"={4 + most}q", *[0] * (4 + most))
    channel, particle, *axes, part = values.strides
    if group.parts != values.parts:  # real channels counted as parts
        channel, part = 0, channel
        first = group.first * part
    else:
        first = group.first * channel
    axes += [0] * (most - len(axes))
    return Record(f"={4 + most}q", values.offset + first, particle, channel, part, *axes)


class KernelMethod(Method):
    """A method whose kernels see groups of channels. Launches are worked out once for each layout and form."""

    backends = frozenset({"cuda", "opencl"})

    def __init__(self) -> None:
        self._launches: dict[Any, list[Launch]] = {}
        self._batches: dict[Any, list[tuple[Any, ...]]] = {}

    @classmethod
    def at_once(cls, sizes: Sizes) -> int:
        """Return the most reals of a particle in one launch: 2 or :data:`MOST`."""
        return MOST

    def launches(self, workspace: Workspace, form: Form, field: View, *values: View | None) -> list[Launch]:
        """Return for each group of channels what :meth:`compile` made, then the records of values and field.

        The launches are kept for the next call with arrays of these layouts, and so with as many particles.
        """
        layouts = tuple(None if v is None else v.layout for v in values)
        key = form, field.layout, layouts
        launches = self._launches.get(key)
        if launches is None:
            launches = self._launches[key] = [
                self._launch_of(workspace, form, group, field, values) for group in self.groups(workspace, field.layout)
            ]
        return launches

    def _launch_of(
        self, workspace: Workspace, form: Form, group: Group, field: View, values: tuple[View | None, ...]
    ) -> Launch:
        layouts = [None if v is None else v.layout for v in values]
        records = [values_record(group, layout, 1 + form.hessian) for layout in layouts]
        compiled = self.compile(workspace, form, group, field.layout, *layouts)
        return (*compiled, *records, field_record(group, field.layout, workspace.axes))

    def groups(self, workspace: Workspace, field: Layout) -> list[Group]:
        """Return the groups of channels, each of which takes a launch."""
        return list(groups(field, self.at_once(workspace)))

    def batches(
        self, workspace: Workspace, form: Form, field: View, *values: View | None, most: int = 2**31
    ) -> list[tuple[Any, ...]]:
        """Return launches for runs of at most ``most`` equal groups: that of the first, their distances and number.

        Kernels see the distances as ``Batches`` (``orders/batches.h``), of the field and up to two arrays of particles.
        """
        layouts = tuple(None if v is None else v.layout for v in values)
        key = form, field.layout, layouts, most
        batches = self._batches.get(key)
        if batches is None:
            batches, left = [], self.groups(workspace, field.layout)
            while left:
                shape = left[0].parts, left[0].channels  # that of all groups but the last
                same = [g for g in left[:most] if (g.parts, g.channels) == shape]
                channels = same[1].first - same[0].first if len(same) > 1 else 0
                steps = [0 if v is None else channels * v.strides[0] for v in (field.layout, *layouts)]
                group = replace(same[0], more=len(same) > 1)
                launch = self._launch_of(workspace, form, group, field, values)
                batches.append((*launch, Record("=4q", len(same), *steps, *[0] * (3 - len(steps))), len(same)))
                left = left[len(same) :]
            self._batches[key] = batches
        return batches

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        """Return the kernels for a group of channels, and what else their call needs."""
        raise NotImplementedError


def written(values: Any, gradient: Any, hessian: Any = None) -> dict[str, int]:
    """Return which results an interpolation writes, as kernels see it."""
    facts = {"VALUE": int(values is not None), "GRADIENT": int(gradient is not None)}
    return facts | ({} if hessian is None else {"HESSIAN": 1})


def targets(*results: View | None) -> tuple[Any, ...]:
    """Return the arrays that kernels take for values, gradient, ...; those that are missing are not written."""
    some = next(view.array for view in results if view is not None)
    return tuple(some if view is None else view.array for view in results)


def reading_width(workspace: Workspace, group: Group, field: Layout) -> int:
    """Return how many reals of a row one instruction may read."""
    size = workspace.dtype.itemsize
    # Those of several nodes begin at multiples of their number, so that cuts would change the order of sums.
    most = min(group.parts, 2) if workspace.in_parts else 4 if size == 4 else 2
    return vector(group, field, size, most)


def adding_width(workspace: Workspace, group: Group, field: Layout) -> int:
    """Return how many reals of a row one instruction may add to."""
    # Adds of eight bytes have no vector form; single ones of neighbouring lanes meet in a sector.
    size = workspace.dtype.itemsize
    return vector(group, field, size, 4 if size == 4 else 1)


def defines(workspace: Workspace, group: Group, width: int, **more: int) -> dict[str, int]:
    """Return the compile key of a kernel: support, degree, real type, components, reals per instruction."""
    supports = {f"SUPPORT_{name}": axis.support for name, axis in zip("XYZ", workspace.axes, strict=True)}
    return {
        "REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8),
        "SUPPORT": workspace.window.support, **supports, "SUPPORT_AXES": workspace.mesh.ndim,
        "DEGREE": workspace.window.degree, **group.defines(), "VECTOR": width, **more,
    }  # fmt: skip


def kernel(workspace: Workspace, file: str | Path, name: str, group: Group, width: int, **more: int) -> Kernel:
    """Compile a kernel for a plan and a group of channels; a file outside the package is given by its Path."""
    code = file if isinstance(file, str) else read(file)
    return workspace.backend.kernel(code, name, defines(workspace, group, width, **more))
