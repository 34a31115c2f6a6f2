# SPDX-License-Identifier: BSD-3-Clause
"""Several values per particle in one launch: up to four reals, side by side or in planes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.contract import Method
from particlemesh.particles.workspace import Workspace

MOST = 4  # reals of one particle in one launch: more would not fit a thread's registers


@dataclass(frozen=True)
class Group:
    """Channels that one launch handles: ``channels`` planes of ``parts`` reals side by side."""

    parts: int
    channels: int
    first: int  # index of the first channel among the view's

    def defines(self) -> dict[str, int]:
        return {"PARTS": self.parts, "CHANNELS": self.channels}


SINGLE = Group(1, 1, 0)
# What the functions that kernels share ask for, where a kernel calls none of those.
NO_LANES = {"LANES_ALL": 1, "LANES_ROW": 1, "GRADIENT": 0}


def placed_step(quantities: int) -> int:
    """Return the reals from one particle's values in node order to the next's: ``STEP`` of spread/placed.h."""
    return -(-quantities // 4) * 4 if quantities > 2 else quantities


def groups(field: Layout) -> Iterator[Group]:
    """Cut the channels of ``field`` into groups. Real channels side by side count as parts of one."""
    total, parts = field.channels, field.parts
    beside = parts == 1 and field.strides[0] == 1
    first = 0
    while first < total:
        left = total - first
        if beside and left > 1:
            width = MOST if left >= MOST else 2
            yield Group(width, 1, first)
        else:
            width = min(left, MOST // parts)
            yield Group(parts, width, first)
        first += width


def vector(group: Group, field: Layout, real_bytes: int, most: int) -> int:
    """Return how many reals of a row one instruction may move: rows must be dense and aligned for more."""
    width = min(most, 4 if group.parts in (2, 4) else 2)
    if field.strides[3] != group.parts:
        return 1
    start = group.first * field.strides[0]
    planes = field.strides[0] if group.channels > 1 else 0
    steps = (start, planes, *field.strides[1:3], field.shape[3] * group.parts)
    while width > 1 and (any(s % width for s in steps) or field.alignment % (width * real_bytes)):
        width //= 2
    return width


def field_record(group: Group, field: Layout, axes: Any) -> Record:
    """Return the kernels' ``Field``."""
    sizes = (a.size for a in axes)
    wraps = (int(a.wraps) for a in axes)
    offset = field.offset + group.first * field.strides[0]
    return Record("=6i5q", *sizes, *wraps, *field.strides[1:4], field.strides[0], offset)


def values_record(group: Group, values: Layout | None) -> Record:
    """Return the kernels' ``Values``, of values (channel, particle, part) or vectors with an axis before the part."""
    if values is None:
        return Record("=5q", 0, 0, 0, 0, 0)
    channel, particle, *axis, part = values.strides
    if group.parts != values.parts:  # real channels counted as parts
        channel, part = 0, channel
        first = group.first * part
    else:
        first = group.first * channel
    return Record("=5q", values.offset + first, particle, channel, part, axis[0] if axis else 0)


class KernelMethod(Method):
    """A method whose kernels see groups of channels. Launches are worked out once for each layout."""

    backends = frozenset({"cuda", "opencl"})

    def __init__(self) -> None:
        self._launches: dict[Any, list[Any]] = {}

    def launches(self, workspace: Workspace, kind: int, field: View, *values: View | None) -> list[Any]:
        """Return what :meth:`build` made for arrays of these layouts, remembered for the next call."""
        layouts = tuple(None if v is None else v.layout for v in values)
        found = self._launches.get((kind, field.layout, layouts))
        if found is None:
            found = self._launches[kind, field.layout, layouts] = self.build(workspace, kind, field.layout, *layouts)
        return found

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        """Return the launches (a kernel and its records) for every group of channels.

        ``kind`` is 1 where spreading is the gradient's adjoint.
        """
        raise NotImplementedError


def defines(workspace: Workspace, group: Group, width: int, **more: int) -> dict[str, int]:
    """Return the compile key of a kernel: support, degree, real type, components, reals per instruction."""
    supports = {f"SUPPORT_{name}": axis.support for name, axis in zip("XYZ", workspace.axes, strict=True)}
    return {
        "REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8),
        "SUPPORT": workspace.window.support, **supports, "SUPPORT_AXES": workspace.mesh.ndim,
        "DEGREE": workspace.window.degree, **group.defines(), "VECTOR": width, **more,
    }  # fmt: skip


def kernel(workspace: Workspace, file: str, name: str, group: Group, width: int, **more: int) -> Kernel:
    """Compile a kernel for a plan and a group of channels."""
    return workspace.backend.kernel(file, name, defines(workspace, group, width, **more))
