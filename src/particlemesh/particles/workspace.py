# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a plan that methods and orders use: its sizes, its particles, and scratch memory.

A plan makes one :class:`Workspace` per configuration. All workspaces of a plan share one :class:`Memory`.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.backends.base import Backend, Record
from particlemesh.mesh import Mesh
from particlemesh.particles.stencil import Axis, axes_of
from particlemesh.window import Window


@dataclass(frozen=True)
class Sizes:
    """The sizes of a plan, known before any allocation."""

    mesh: Mesh
    window: Window
    dtype: np.dtype  # real type of the values
    components: int  # reals per particle
    applications: int
    count: int  # particles
    deterministic: bool
    backend: Backend
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)  # by method, as given
    sorted: bool = False  # whether the plan keeps particles by block or by tile
    threads: int | None = None  # largest number of CPU threads; by default it depends on the number of particles

    @functools.cached_property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Axes of the mesh in the form of stencils, missing ones first."""
        return axes_of(self.mesh, self.window)

    @property
    def nodes(self) -> int:
        """Nodes of the field."""
        return math.prod(self.mesh.field_shape)

    @property
    def in_parts(self) -> bool:
        """Whether results may not depend on how a mesh is cut: those of a part, where bits are to be equal."""
        return self.deterministic and self.mesh.is_part

    @property
    def stencil(self) -> int:
        """Nodes per stencil."""
        return int(self.window.support**self.mesh.ndim)


class Memory:
    """Memory that a plan keeps between configurations.

    Parameters
    ----------
    backend : Backend
    changed : callable, optional
        Called when memory moves and addresses become invalid.
    advice : callable, optional
        Returns advice for the error of a failed allocation.
    """

    def __init__(
        self, backend: Backend, changed: Callable[[], None] = lambda: None, advice: Callable[[], str] = lambda: ""
    ) -> None:
        self.kernels: dict[Any, Any] = {}  # kept by orders (backends.base.kept)
        self.block_cells: tuple[int, int, int] | None = None  # of the blocks that the next set_positions counts
        self.counted: Any = None  # the blocks by which the present particles are counted
        self._backend, self._changed, self._advice = backend, changed, advice
        self.arrays: dict[str, Any] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any, *, zeros: bool = False) -> Any:
        """Return the array of this name, dtype and shape, allocated if missing; the first axis may be longer.

        ``zeros`` clears it when it is allocated.
        """
        held = self.arrays.get(name)
        fits = held is not None and held.dtype == dtype and (
            held.shape[1:] == shape[1:] and held.shape[0] >= shape[0] if shape else held.shape == shape
        )  # fmt: skip
        if fits:
            return held
        self.arrays.pop(name, None)
        self._changed()
        held = self.arrays[name] = allocate(self._backend, shape, dtype, f"scratch ({name})", self._advice())
        if zeros:
            self._backend.clear(held)
        return held

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays.values())


@dataclass(frozen=True, eq=False)
class Workspace(Sizes):
    """Sizes, particles and memory for methods and orders.

    Attributes
    ----------
    particles : DeviceParticles, HostParticles or one of their sorted forms
        None before the first configuration.
    memory : Memory
        Shared by all configurations.
    orders : dict
        Orders of one configuration, shared by methods.
    """

    particles: Any = field(default=None, kw_only=True)
    memory: Memory = field(kw_only=True)
    orders: dict[Any, Any] = field(default_factory=dict, kw_only=True)

    def over(self, particles: Any, count: int) -> Workspace:
        """Return a workspace of other particles with the same memory."""
        return self._with(particles=particles, count=count, orders={})

    def apart(self) -> Workspace:
        """Return a workspace of the same particles with separate memory, which is freed with it."""
        # The particles are copied, so that stencils unpacked for a method are also freed.
        return self._with(particles=copy.copy(self.particles), memory=Memory(self.backend), orders={})

    def _with(self, **changes: Any) -> Workspace:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)  # includes cached records
        return other

    @property
    def capacity(self) -> int:
        """Number of particles that fit without allocation."""
        return 0 if self.particles is None else int(self.particles.rows)

    def scratch(self, name: str, shape: tuple[int, ...], dtype: Any, *, zeros: bool = False) -> Any:
        """Return scratch memory of this name, kept between calls; the first axis may be longer.

        ``zeros`` clears it when it is allocated.
        """
        return self.memory.array(name, shape, dtype, zeros=zeros)

    def forget(self) -> None:
        """Drop everything computed from the positions: a replay of a graph may have changed them."""
        self.orders.clear()
        self.memory.counted = None
        self.particles.unpack_again()

    @functools.cached_property
    def window_record(self) -> Record:
        """The window's table as a kernel argument."""
        table = self.window.table
        return Record(f"={table.size}{self.dtype.char}", *table.ravel())

    @functools.cached_property
    def jacobian_record(self) -> Record:
        """d(node coordinate) / d(position) as a kernel argument; rows and columns of missing axes are zero."""
        return Record(f"=9{self.dtype.char}", *self._slopes.ravel())

    @functools.cached_property
    def jacobian(self) -> np.ndarray:
        """d(node coordinate) / d(position): (3, ndim), rows of missing axes are zero."""
        return np.ascontiguousarray(self._slopes[:, 3 - self.mesh.ndim :].astype(self.dtype))

    @functools.cached_property
    def _slopes(self) -> np.ndarray:
        slopes, missing = np.zeros((3, 3)), 3 - self.mesh.ndim
        slopes[missing:, missing:] = np.array(self.mesh.intervals)[:, None] * self.mesh.box.inverse
        return slopes
