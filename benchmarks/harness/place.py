# SPDX-License-Identifier: BSD-3-Clause
"""Where a benchmark runs: the backend, its clock, its methods, and a list of what failed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import inside
from harness.clock import Clock
from harness.tables import facts

ERRORS = (ValueError, TypeError, RuntimeError, MemoryError, OSError, LookupError)  # of one case, after which others run


class Place:
    """One of the backends ``cuda``, ``opencl`` and ``cpu``, on its default device."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = inside.backend_of(name)
        self.facts = facts(self.backend)
        self.device = self.facts["device"]
        self.clock = Clock(self.backend)
        self.threads: Any = inside.available_threads() if name == "cpu" else ""
        self.failed: list[str] = []
        self.wait, self.upload = self.backend.synchronize, self.backend.upload

    def file(self, name: str, part: str) -> str:
        """Return the name of a benchmark's file: OpenCL has its own, as the GPU may have one from CUDA."""
        return f"{name}-{'opencl-' if self.name == 'opencl' else ''}{part}"

    def methods(self, direction: str) -> list[Any]:
        """Return the methods that run here."""
        return [m for m in inside.METHODS[direction] if self.name in m.backends]

    def names(self, direction: str) -> list[str]:
        """Return the names of the methods that run here."""
        return [m.name for m in self.methods(direction)]

    def download(self, array: Any) -> np.ndarray:
        """Return a native array as a NumPy array."""
        return np.asarray(self.backend.download(array))

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Note an error inside and go on: the other cases are measured."""
        try:
            yield
        except ERRORS as error:
            self.failed.append(f"{what}, {self.name}: {type(error).__name__}: {error}"[:400])
