# SPDX-License-Identifier: BSD-3-Clause
"""All that a method or an order sees of a plan: its sizes, its particles, and memory to work in.

A plan makes one :class:`Workspace` per configuration. What outlives the configuration lies in :class:`Memory`, which
the workspaces of a plan share.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Record, allocate
from particlemesh.mesh import Mesh
from particlemesh.particles.stencil import Axis, axes_of
from particlemesh.window import Window


@dataclass(frozen=True)
class Sizes:
    """What is known of a task before anything is allocated."""

    mesh: Mesh
    window: Window
    dtype: np.dtype  # real type of the values
    components: int  # reals per particle
    applications: int
    count: int  # particles
    deterministic: bool
    backend: Backend
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method, as given to the plan
    sorted: bool = False  # particles are by block already, or by tile
    threads: int | None = None  # most threads of the CPU; by default what suits the number of particles

    @functools.cached_property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Axes of the mesh as stencils meet them, missing ones first."""
        return axes_of(self.mesh, self.window)

    @property
    def nodes(self) -> int:
        """Nodes of the field."""
        return math.prod(self.mesh.field_shape)

    @property
    def stencil(self) -> int:
        """Nodes that a particle reaches."""
        return int(self.window.support**self.mesh.ndim)


class Memory:
    """What a plan keeps from one configuration to the next.

    Parameters
    ----------
    backend : Backend
    changed : callable, optional
        Called when memory moves, so that addresses are dropped.
    advice : callable, optional
        Returns what to do without memory, for an error.
    """

    def __init__(
        self, backend: Backend, changed: Callable[[], None] = lambda: None, advice: Callable[[], str] = lambda: ""
    ) -> None:
        self.kernels: dict[Any, Any] = {}  # kept by orders (backends.base.kept)
        self.block_cells: tuple[int, int, int] | None = None  # of the blocks that the next set_positions counts
        self.counted: Any = None  # which blocks were counted, for the particles of now
        self._backend, self._changed, self._advice = backend, changed, advice
        self.arrays: dict[str, Any] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return the array of this name, type and shape, newly allocated if need be; the first axis may be longer."""
        held = self.arrays.get(name)
        fits = held is not None and held.dtype == dtype and (
            held.shape[1:] == shape[1:] and held.shape[0] >= shape[0] if shape else held.shape == shape
        )  # fmt: skip
        if fits:
            return held
        self.arrays.pop(name, None)
        self._changed()
        held = self.arrays[name] = allocate(self._backend, shape, dtype, f"scratch ({name})", self._advice())
        return held

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays.values())


@dataclass(frozen=True, eq=False)
class Workspace(Sizes):
    """Sizes, particles and memory: what methods, orders and shared bases work with.

    Attributes
    ----------
    particles : DeviceParticles, HostParticles or one of their sorted forms
        None before the first configuration.
    memory : Memory
        Kept from one configuration to the next.
    orders : dict
        Orders of the particles that methods share, for one configuration.
    """

    particles: Any = field(default=None, kw_only=True)
    memory: Memory = field(kw_only=True)
    orders: dict[Any, Any] = field(default_factory=dict, kw_only=True)

    def over(self, particles: Any, count: int) -> Workspace:
        """Return the workspace of other particles, in the same memory."""
        return self._with(particles=particles, count=count, orders={})

    def apart(self) -> Workspace:
        """Return a workspace over the same particles with separate memory, which is freed with it."""
        # A copy of the particles: stencils that are packed here, and a method wants unpacked, are freed with it.
        return self._with(particles=copy.copy(self.particles), memory=Memory(self.backend), orders={})

    def _with(self, **changes: Any) -> Workspace:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)  # records that were worked out go along
        return other

    @property
    def capacity(self) -> int:
        """Particles that fit without allocation."""
        return 0 if self.particles is None else int(self.particles.rows)

    def scratch(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a method, kept under ``name`` for its next call; the first axis may be longer."""
        return self.memory.array(name, shape, dtype)

    def forget(self) -> None:
        """Forget what was made of the positions: a replay of a graph may have changed them."""
        self.orders.clear()
        self.memory.counted = None
        self.particles.spell_out_again()

    @functools.cached_property
    def window_record(self) -> Record:
        """The window's table, as kernels have it."""
        table = self.window.table
        return Record(f"={table.size}{self.dtype.char}", *table.ravel())

    @functools.cached_property
    def jacobian_record(self) -> Record:
        """d(node coordinate) / d(position), as kernels have it; rows and columns of missing axes are zero."""
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
