# SPDX-License-Identifier: BSD-3-Clause
"""What calculations with a core share: its memory, its sizes before the first step, and checks after one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from particlemesh.apps.pme.core import Core
from particlemesh.kernels import Fixed, alone, checks


class Calculation(Fixed):
    """A calculation whose core is made at the first call, or by ``reserve``.

    By default it has one set of charges, and always a virial.
    """

    _core: Any = None
    _arguments: dict[str, Any]  # of the constructor
    _dtype: np.dtype | None
    _backend: Any
    busy: threading.RLock

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy chooses again.
        return functools.partial(type(self), **self._arguments), ()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments that make such an object, checked."""
        return MappingProxyType(self._arguments)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return 0 if self._core is None else self._core.nbytes

    def _core_for(self, count: int, dtype: np.dtype, backend: Any) -> Core:
        """Return what a step needs."""
        raise NotImplementedError

    def _check(self, core: Any) -> None:
        """Raise what is wrong with the last step."""
        raise NotImplementedError

    def _before(self, count: int) -> tuple[int, Any]:
        """Return a number of particles to reserve for, and the core, which is not yet stored."""
        count, name = checks.integer(count, "count", 0, 2**31 - 1), type(self).__name__
        if self._core is not None:
            return count, self._core
        if self._backend is None or self._dtype is None:
            raise ValueError(f"reserve needs to know where and in which type: give {name} backend= and dtype=.")
        return count, self._core_for(count, self._dtype, self._backend)

    @alone
    def reserve(self, count: int) -> Self:
        """Choose parameters, and allocate for ``count`` particles, of all systems if there are several.

        After that, and one call with the same arrays, calls with ``check=False`` and ``out`` allocate nothing and
        never wait. A CUDA graph can capture them. Systems and their boxes stay where they are: ``system`` is int32 on
        the device, and ``boxes`` on the host.

        Parameters
        ----------
        count : int

        Raises
        ------
        ValueError
            If the backend or dtype is not known: give them to the class, or call it before.
        """
        count, core = self._before(count)
        core.reserve(count, 1, True)
        self._core = core
        return self

    @alone
    def check(self) -> None:
        """Raise the errors of the last call with ``check=False``; waits for the device."""
        core = self._core
        if core is None:
            raise RuntimeError(f"this {type(self).__name__} has made no step yet.")
        core.grid.check()
        core.solver.plan.check()
        self._check(core)
