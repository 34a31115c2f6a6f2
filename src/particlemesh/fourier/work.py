# SPDX-License-Identifier: BSD-3-Clause
"""What a solver holds on a backend: the engine of its transforms, tables, and memory by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, allocate, kept
from particlemesh.fourier.engines import Engine, engine
from particlemesh.fourier.multiply import Factors
from particlemesh.fourier.strain import Strain
from particlemesh.plan import Plan

MESHES = " of the mesh", " of its twin"  # whose results an interlaced solver averages


def stages(slopes: int, interlaced: bool) -> list[str]:
    """Return what a solver does, with transforms of ``slopes`` components by ik."""
    names = ["spread", "forward", "multiply", "backward", "interpolate"]
    if slopes:
        names[2:4] = [f"multiply by the table and {slopes} times by ik", f"backward {1 + slopes} x"]
    return [f"on the mesh and on its twin: {names[0]}", *names[1:], "average"] if interlaced else names


def outputs(out: Any, *names: str) -> list[Any]:
    """Return one output for each name, or None for each."""
    if out is None:
        return [None] * len(names)
    if not (isinstance(out, (tuple, list)) and len(out) == len(names)):
        raise TypeError(f"out is of type {type(out).__name__}; give one array for each of {', '.join(names)}.")
    return list(out)


def same_positions(plans: list[Plan], known: list[Any], boxes: bool) -> None:
    """Check that the plans of a solver have particles: with a twin or with tables of ``boxes``, those that it has set.

    ``known`` has what the plans track; it is another object for each set of positions.
    """
    plan, *twins = plans
    plan.ready()
    alike = [id(each.tracked) for each in plans] == [id(tracked) for tracked in known]
    if not alike and (twins or boxes or plan.boxes is not None):
        raise RuntimeError(
            "the plan has positions that its solver did not set completely: the other mesh, or the tables of boxes, "
            "have others. Call set_positions of the solver."
        )


class Work:
    """What a solver needs on a backend: the engine, tables, and memory by name."""

    def __init__(
        self, owner: Backend, dtype: np.dtype, nodes: tuple[int, ...], stack: tuple[int, ...], threads: int | None
    ) -> None:
        self.owner, self.dtype, self.threads = owner, dtype, threads
        self.on_cpu = owner.name == "cpu"
        self.backend: Backend = owner if self.on_cpu else kept(owner, {})
        self.engine: Engine = engine(self.backend, nodes, dtype, real=True, threads=threads)
        self.field_shape, self.spectrum_shape = (*stack, *nodes), (*stack, *self.engine.spectrum_shape)
        self.by_box: list[np.ndarray] = []
        self.slopes: list[Factors] = []
        self.strain: Strain | None = None
        self._memory: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        tables = sum(f.nbytes for f in (self.factors, *self.slopes))
        tables += 0 if self.strain is None else self.strain.nbytes
        return tables + self.engine.nbytes + sum(int(m.nbytes) for m in self._memory.values())

    def place(self, by_box: list[np.ndarray], table: np.ndarray) -> None:
        """Take the table of the potential."""
        self.factors = Factors(self.backend, table, self.dtype, threads=self.threads)
        self.by_box, self.slopes, self.strain = by_box, [], None

    def place_slopes(self, tables: list[np.ndarray]) -> None:
        """Take the tables of the slopes by ik, without the i."""
        self.slopes = [Factors(self.backend, t, self.dtype, turns=True, threads=self.threads) for t in tables]

    def place_strain(self, tables: list[np.ndarray], ndim: int) -> None:
        """Take the tables of the virial."""
        self.strain = Strain(self.backend, tables, ndim, self.dtype, self.threads)

    def write_virial(self, strain: Strain, spectrum: Any, target: Any) -> None:
        """Write the derivatives by strain of the energies of spectra (..., *modes) to an array (..., d, d)."""
        rows = math.prod(target.shape[:-2])
        if not rows:
            return
        spectra = spectrum.reshape(rows, *self.engine.spectrum_shape)
        real = np.dtype(np.float64) if self.on_cpu else self.dtype
        partial = self.take("shares", (rows,), (strain.shares, strain.terms), real)
        totals = self.take("virial", (rows,), (strain.ndim, strain.ndim))
        strain(spectra, partial.reshape(-1), totals)
        self.backend.copy(target, totals.reshape(target.shape))

    def take(self, name: str, batch: tuple[int, ...], core: tuple[int, ...], dtype: Any = None) -> Any:
        """Return memory of shape ``batch + core``, kept between calls and grown if it is too small."""
        shape = batch + core
        size = int(np.prod(shape))
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            self._memory.pop(name, None)
            memory = self._memory[name] = allocate(self.backend, (size,), dtype or self.dtype, f"the solver's {name}")
        return memory[:size].reshape(shape)

    def forward(self, field: Any, batch: tuple[int, ...]) -> Any:
        engine = self.engine
        if self.on_cpu:  # SciPy allocates its results
            return engine.forward(field)
        return engine.forward(field, self.take("spectrum", batch, self.spectrum_shape, engine.complex_dtype))

    def interpolate(self, plan: Plan, spectrum: Any, field: Any, inner: Any, phi: Any, slopes: Any) -> None:
        """Write the potential, its gradient, or both, by the window; ``field`` is memory, or None."""
        flat = spectrum.reshape(-1, *self.spectrum_shape)
        self.factors(flat, flat)
        field = self.engine.backward(spectrum, field)[inner]
        if slopes is None:
            plan.interpolate(field, out=phi)
        elif phi is None:
            plan.gradient(field, out=slopes)
        else:
            plan.value_and_gradient(field, out=(phi, slopes))

    def interpolate_by_ik(
        self, plan: Plan, spectrum: Any, batch: tuple[int, ...], inner: Any, phi: Any, slopes: Any
    ) -> None:
        """Write slopes (..., N, d), and the potential (..., N) if ``phi`` is not None, with a transform for each."""
        count, tables = plan.count, self.slopes if phi is None else [self.factors, *self.slopes]
        source = spectrum.reshape(-1, *self.spectrum_shape)
        rows = (source.shape[0], len(tables))
        product = self.take("slopes", rows, self.spectrum_shape, self.engine.complex_dtype)
        for part, factors in enumerate(tables):
            factors(source, product, part, len(tables))
        fields = self.engine.backward(product, None if self.on_cpu else self.take("fields", rows, self.field_shape))
        values = self.take("particles", rows, (count,))
        plan.interpolate(fields[inner], out=values)
        if not (count and rows[0]):
            return
        values = values.reshape(*batch, len(tables), count)
        if phi is not None:
            self.backend.copy(phi, values[..., 0, :])
            values = values[..., 1:, :]
        leading = range(values.ndim - 2)  # the parts of a gradient are last
        self.backend.copy(slopes, values.transpose((*leading, values.ndim - 1, values.ndim - 2)))

    def average(self, target: Any, other: Any) -> None:
        """Replace numbers of a dense array by the mean of them and those of another."""
        if self.on_cpu:
            np.add(target, other, out=target)
            np.multiply(target, 0.5, out=target)
        elif target.size:
            defines = {"REAL_IS_DOUBLE": int(self.dtype == np.float64)}
            kernel = self.backend.kernel("fourier/average.c", "average", defines)
            kernel(target.size, target.reshape(-1), other.reshape(-1), target.size)

    def reserve_halves(self, count: int, channels: int, ndim: int, virials: tuple[int, ...] | None) -> None:
        """Allocate what interlaced meshes leave: potentials, gradients, and virials of a stack of systems, if any."""
        for mesh in MESHES:
            self.take("p" + mesh, (channels,), (count,))
            self.take("g" + mesh, (channels,), (count, ndim))
            if virials is not None:
                self.take("v" + mesh, (channels,), (*virials, ndim, ndim))

    def reserve(self, count: int, channels: int) -> None:
        engine, parts = self.engine, 1 + len(self.slopes)
        systems = math.prod(self.field_shape) // engine.size
        self.take("field", (channels,), self.field_shape)
        engine.reserve(channels * systems)
        if self.strain is not None:
            real = np.dtype(np.float64) if self.on_cpu else self.dtype
            self.take("shares", (channels * systems,), (self.strain.shares, self.strain.terms), real)
            self.take("virial", (channels * systems,), (self.strain.ndim, self.strain.ndim))
        if not self.on_cpu:
            self.take("spectrum", (channels,), self.spectrum_shape, engine.complex_dtype)
        if self.slopes:
            self.take("slopes", (channels, parts), self.spectrum_shape, engine.complex_dtype)
            self.take("particles", (channels, parts), (count,))
            if not self.on_cpu:
                self.take("fields", (channels, parts), self.field_shape)
            engine.reserve(channels * parts * systems)
            engine.reserve(channels * len(self.slopes) * systems)
