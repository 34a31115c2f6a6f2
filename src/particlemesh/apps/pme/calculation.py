# SPDX-License-Identifier: BSD-3-Clause
"""What calculations with a core share: arguments, the way in of a call, its core, and checks after it."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme.core import Core, Result
from particlemesh.apps.pme.parameters import FOURTH, Parameters, error_of
from particlemesh.apps.pme.split import Split
from particlemesh.fourier import ProlateGreen
from particlemesh.kernels import Coordinates, Fixed, alone, checks, coordinates


class Calculation(Fixed):
    """A calculation whose core is made at the first call, or by ``reserve``.

    By default it has one set of charges, and always a virial.
    """

    _core: Any = None
    _fewest = 0  # particles whose error was looked at
    _arguments: dict[str, Any]  # of the constructor, checked
    _splits: Mapping[str, type[Split]] = MappingProxyType({})  # that have names
    _keeps = False  # whether backend and type of the first call are those of all

    def _start(
        self, box: Any, accuracy: float | None, dtype: Any, backend: str | None, threads: int | None, **given: Any
    ) -> None:
        """Take the arguments that all have: ``given`` are cutoff, splitting, bandwidth, shape and window."""
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        if self.box.ndim != 3:
            raise ValueError(f"the box has {self.box.ndim} axes; {type(self).__name__} needs three.")
        self.accuracy = None if accuracy is None else checks.positive(accuracy, "accuracy")
        splitting, bandwidth = given["splitting"], given.get("bandwidth")
        if isinstance(splitting, str) and self._splits:
            checks.one_of(splitting, "splitting", tuple(self._splits))
        elif splitting is not None:
            given["splitting"] = checks.positive(splitting, "splitting")
        if bandwidth is not None:
            given["bandwidth"] = ProlateGreen(bandwidth, 1.0).bandwidth
            if bandwidth < 2:
                raise ValueError(f"bandwidth is {bandwidth}; give 2 to 40: below it the error is not known.")
            if splitting not in (None, "prolate"):
                raise ValueError(
                    f"bandwidth is {bandwidth} and splitting is {splitting!r}; only the prolate split has a bandwidth: "
                    "leave one of them out."
                )
        if given["cutoff"] is not None:
            given["cutoff"] = checks.positive(given["cutoff"], "cutoff")
        shape = given["shape"]
        if isinstance(shape, int):
            shape = (shape,) * 3
        if shape is not None and np.size(shape) != 3:
            raise ValueError(f"shape is {shape!r}; three numbers of nodes are needed.")
        given["shape"] = None if shape is None else pm.Mesh(shape, self.box).shape
        given["window"] = None if given["window"] is None else pm.window_of(given["window"])
        self._given: dict[str, Any] = given
        self._threads = None if threads is None else checks.integer(threads, "threads", 1, 4096)
        self._dtype = None if dtype is None else checks.real_type(dtype)
        self._named = backend
        self._backend: Any = None if backend is None else kernels.backend(backend)
        self._arguments = dict(
            box=self.box, accuracy=accuracy, **given, dtype=None if self._dtype is None else self._dtype.name,
            backend=backend, threads=self._threads,
        )  # fmt: skip
        self._in_order = kernels.InOrder()
        self.busy = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy chooses again.
        return functools.partial(type(self), **self._arguments), ()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments that make such an object, checked."""
        return MappingProxyType(self._arguments)

    @property
    def parameters(self) -> Parameters:
        """Cutoff, splitting, mesh and window in use, and the errors expected."""
        if self._core is None:
            raise RuntimeError(f"this {type(self).__name__} has no parameters yet: call it, or reserve.")
        return self._core.parameters

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return 0 if self._core is None else self._core.nbytes

    # ---- what classes have of their own ---------------------------------------------------------------

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float) -> Core:
        """Return what a step needs, with parameters for so many particles, whose charges have a mean fourth power."""
        raise NotImplementedError

    def _check(self, core: Any) -> None:
        """Raise what is wrong with the last step."""
        raise NotImplementedError

    # ---- before the first step, and after one ---------------------------------------------------------

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
        with self._in_order.reading(core.owner):  # on whatever stream that call was
            core.grid.check()
            core.solver.plan.check()
            self._check(core)

    def core(self, count: int, dtype: np.dtype, backend: Any, fourth: float = FOURTH) -> Any:
        """Return grid, solver and parameters, made at the first use for such particles; for our own modules."""
        if self._core is None:
            self._core = self._make(count, dtype, backend, fourth)
        return self._core

    def _before(self, count: int) -> tuple[int, Any]:
        """Return a number of particles to reserve for, and the core, which is not yet stored."""
        count, name = checks.integer(count, "count", 0, 2**31 - 1), type(self).__name__
        if self._core is not None:
            return count, self._core
        if self._backend is None or self._dtype is None:
            raise ValueError(f"reserve needs to know where and in which type: give {name} backend= and dtype=.")
        self._fewest = count
        return count, self._make(count, self._dtype, self._backend, FOURTH)

    # ---- a call ---------------------------------------------------------------------------------------

    def _taken(
        self, positions: Any, check: bool, out: Result | None, kind: type[Result], **numbers: Any
    ) -> tuple[Any, Coordinates, dict[str, kernels.Operand]]:
        """Return backend, coordinates and numbers of the particles, of their type; vectors have the name "dipoles"."""
        checks.flag(check, "check")
        if out is not None and not isinstance(out, kind):
            raise TypeError(f"out is of type {type(out).__name__}; give a {kind.__name__}, such as an earlier one.")
        upload, backend, dtype = self._named is not None, self._backend, self._dtype
        if self._keeps and self._core is not None:
            backend, dtype = self._core.owner, self._core.dtype
        _, backend, x = coordinates(positions, 3, backend, upload=upload, least=dtype)
        if dtype not in (None, x.dtype):
            raise TypeError(
                f"positions have dtype {x.dtype}, more than this {type(self).__name__}'s {dtype}: give dtype='float64'."
            )
        taken = {
            name: kernels.take(
                array, (x.count, 3) if name == "dipoles" else (x.count,), name, batch=name != "dipoles", dtype=x.dtype,
                backend=backend, upload=upload, dense=False,
            )
            for name, array in numbers.items()
        }  # fmt: skip
        return backend, x, taken

    def _core_for(self, x: Coordinates, backend: Any, fourth: Callable[..., float], *charges: Any) -> Any:
        """Return what a step needs: what there is, or what is made for these particles.

        ``fourth`` returns the mean fourth power of charges from arrays on the host.
        """
        core = self._core
        if core is not None and (core.dtype, core.owner) == (x.dtype, backend):
            if x.count < 0.7 * self._fewest:
                self._look_at_error(core.parameters, x.count)
            return core
        self._fewest = x.count
        return self._make(x.count, x.dtype, backend, fourth(*backend.read(*charges)))

    def _look_at_error(self, known: Parameters, count: int) -> None:
        """Warn if parameters that were chosen for more particles miss their error with so few."""
        self._fewest = count
        if self.accuracy is None and any(value is not None for value in self._given.values()):
            return  # they are the user's
        reached = error_of(known, self.box, count / getattr(self, "systems", 1))
        if reached > 1.5 * max(known.error, self.accuracy or 0.0):
            warnings.warn(
                f"the parameters were chosen for more particles: with {count} the error is about {reached:.1e} of a "
                f"typical force, not {known.error:.1e}. Make a new {type(self).__name__} for so few.",
                stacklevel=5,
            )
