# SPDX-License-Identifier: BSD-3-Clause
"""What a solver holds on a backend: the engine of its transforms, and memory by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, allocate, kept
from particlemesh.fourier.engines import Engine, engine


class Work:
    """What a solver needs on a backend, for transforms of fields with ``nodes``."""

    def __init__(self, owner: Backend, dtype: np.dtype, nodes: tuple[int, ...], threads: int | None) -> None:
        self.owner, self.dtype, self.threads = owner, dtype, threads
        self.on_cpu = owner.name == "cpu"
        self.backend: Backend = owner if self.on_cpu else kept(owner, {})
        self.engine: Engine = engine(self.backend, nodes, dtype, real=True, threads=threads)
        self._memory: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the engine and the memory."""
        return self.engine.nbytes + sum(int(m.nbytes) for m in self._memory.values())

    def fits(self, owner: Backend, dtype: np.dtype) -> bool:
        """Return whether this is for a backend and a type."""
        return self.owner is owner and self.dtype == dtype

    def take(self, name: str, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """Return memory, kept between calls and grown if it is too small."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            self._memory.pop(name, None)
            memory = self._memory[name] = allocate(self.backend, (size,), dtype or self.dtype, f"the solver's {name}")
        return memory[:size].reshape(shape)

    def forward(self, field: Any) -> Any:
        """Return the spectra of fields (..., *nodes)."""
        engine = self.engine
        if self.on_cpu:  # SciPy allocates its results
            return engine.forward(field)
        lead = tuple(field.shape[: field.ndim - len(engine.spectrum_shape)])
        return engine.forward(field, self.take("spectrum", lead + engine.spectrum_shape, engine.complex_dtype))
