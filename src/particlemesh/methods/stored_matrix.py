# SPDX-License-Identifier: BSD-3-Clause
"""Methods that store the weights of all stencils once per configuration, as a sparse matrix.

On GPUs the method itself builds the matrix and multiplies by it. On the CPU its ``host`` does both: another algorithm,
compiled by Numba.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from particlemesh.backends.base import Kernel
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import NO_WINDOW, Form, Group, KernelMethod, kernel
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import Allocate


class StoredMatrix(KernelMethod):
    """A method whose matrix is built once per configuration; slopes are stored at the first call that needs them.

    Subclasses fill in ``device_...``, ``allocate``, ``assemble``, ``fill`` and ``multiply``, which GPUs run. On the CPU
    ``host`` is the class of a matrix, with ``apply``. Its ``scratch_bytes``, ``cost``, ``reserve`` and ``build`` take
    the method first, since its options count.
    """

    stores_weights = True
    cite = "guo2015"
    deterministic = True
    host: ClassVar[Any] = None
    narrow: ClassVar[int]  # entries from which on they are counted in 64 bits

    def __init__(self) -> None:
        super().__init__()
        self._matrix: Any = None  # on the CPU
        self._filled: set[bool] = set()  # weights (False) and slopes (True), as far as they are stored

    @classmethod
    def on(cls, sizes: Sizes) -> Any:
        """Return what serves ``sizes`` on the CPU; None on GPUs."""
        return cls.host if sizes.backend.name == "cpu" else None

    @classmethod
    def entries(cls, sizes: Sizes, count: int) -> int:
        """Return the most entries of ``count`` particles."""
        return count * sizes.stencil

    # ---- the contract: the CPU or a GPU --------------------------------------------------------------------

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return None if cls.on(problem) else cls.device_declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        host = cls.on(problem)
        return host.scratch_bytes(cls, problem) if host else cls.device_bytes(problem)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        host = cls.on(problem)
        return host.cost(cls, problem) if host else cls.device_cost(problem)

    def reserve(self, workspace: Workspace) -> None:
        """Allocate for weights; slopes, which take a multiple of that, only once a call needs them."""
        host = self.on(workspace)
        if host:
            host.reserve(type(self), workspace)
        else:
            self.allocate(workspace)

    def prepare(self, workspace: Workspace) -> None:
        """Build the matrix."""
        host = self.on(workspace)
        if host:
            self._matrix = host.build(type(self), workspace)
            return
        self._filled.clear()
        if workspace.count:
            self.assemble(workspace)
            self.filled(workspace, slopes=False)

    def apply(self, workspace: Workspace, *arrays: Any, **form: Any) -> None:
        if self._matrix is not None:
            self._matrix.apply(workspace, *arrays, **form)
        elif workspace.count:
            self.multiply(workspace, *arrays, **form)

    # ---- what a GPU runs -----------------------------------------------------------------------------------

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        """Return why a GPU cannot serve ``problem``, or None."""
        raise NotImplementedError

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        """Return the bytes that a GPU takes beside positions, values and field."""
        raise NotImplementedError

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of building the matrix, and of one product."""
        raise NotImplementedError

    def allocate(self, workspace: Workspace) -> None:
        """Allocate for ``workspace.capacity`` particles what values need."""
        raise NotImplementedError

    def assemble(self, workspace: Workspace) -> None:
        """Find the place of every entry."""

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        """Write the weights of all entries, or their slopes."""
        raise NotImplementedError

    def multiply(self, workspace: Workspace, *arrays: Any, **form: Any) -> None:
        """Multiply, as :meth:`Method.apply`."""
        raise NotImplementedError

    # ---- shared by subclasses ------------------------------------------------------------------------------

    def filled(self, workspace: Workspace, slopes: bool) -> None:
        """Fill in weights, or slopes, unless this configuration has them."""
        if slopes not in self._filled:
            self.fill(workspace, slopes)
            self._filled.add(slopes)

    def most(self, workspace: Workspace) -> int:
        """Return the entries that there is memory for."""
        return self.entries(workspace, max(workspace.capacity, 1))

    def wide(self, workspace: Workspace) -> bool:
        """Return whether entries are counted in 64 bits: memory is reserved for one type of counter."""
        return self.most(workspace) >= self.narrow

    def counter(self, workspace: Workspace) -> np.dtype:
        """Return the type of counts of entries."""
        return np.dtype(np.uint64 if self.wide(workspace) else np.uint32)

    def scratch(self, workspace: Workspace) -> Allocate:
        """Return what allocates memory under names of this method."""
        return lambda what, shape, dtype: workspace.scratch(f"{self.name}.{what}", shape, dtype)

    def placed(self, workspace: Workspace, quantities: int) -> Any:
        """Return memory for ``quantities`` reals per particle, in node order."""
        count = max(workspace.capacity, 1) * placed_step(quantities)
        return workspace.scratch(f"{self.name}.values", (count,), workspace.dtype)


def place_kernel(workspace: Workspace, form: Form, group: Group) -> Kernel:
    """Compile the kernel that writes values side by side in node order."""
    slopes = workspace.mesh.ndim if form.gradient else 0
    return kernel(workspace, "spread/placed.c", "place_values", group, 1, **NO_WINDOW, SLOPES=slopes)


def placed_step(quantities: int) -> int:
    """Return the reals from one particle's values in node order to the next's: ``STEP`` of spread/placed.h."""
    return -(-quantities // 4) * 4 if quantities > 2 else quantities
