# SPDX-License-Identifier: BSD-3-Clause
"""A step with charges and point dipoles on native arrays."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme.core import Coulomb, check_powers, word_of
from particlemesh.apps.pme.dipoles import COLUMNS, DipoleResult, columns, pair_function
from particlemesh.apps.pme.exclusions import Exclusions, Images
from particlemesh.apps.pme.natives import Natives
from particlemesh.apps.pme.result import Result
from particlemesh.kernels import Coordinates, Record, compile_kernel

_FILE = Path(__file__).with_name("dipoles.c")
_TERMS = 10  # energy and virial


class Dipoles:
    """Steps with dipoles: the grid, mesh and memory are those of charges.

    Parameters
    ----------
    core : Coulomb
    """

    def __init__(self, core: Coulomb) -> None:
        check_powers(core.parameters.cutoff, 7, core.dtype)
        self.core, alpha = core, core.parameters.splitting
        self.functions = [pair_function(alpha, virial) for virial in (False, True)]
        itself = 2 * alpha / math.sqrt(math.pi)  # the smooth part of a particle's own potential
        self.limits = itself, itself * 2 / 3 * alpha**2
        self.factors = core.constant, 4 * math.pi, *self.limits

    def take(self, name: str, *shape: int) -> Any:
        """Return memory of the core, which keeps it."""
        return self.core.take(f"{name} of dipoles", math.prod(shape)).reshape(shape)

    def reserve(self, count: int, virial: bool) -> None:
        """Allocate for so many particles."""
        for name, shape in self._shapes(count, virial).items():
            self.take(name, *shape)
        if self.core.on_gpu:
            self.core.finish.partial(1, count, _TERMS)

    def _shapes(self, count: int, virial: bool) -> dict[str, tuple[int, ...]]:
        nodes = self.core.solver.plan.mesh.field_shape
        return {
            "values": (count, 4), "sums": (count, columns(virial)), "density": nodes, "field": nodes,
            "potential": (count,), "gradient": (count, 3), "hessian": (count, 3, 3), "virial": (3, 3),
        }  # fmt: skip

    # ---- as a core ------------------------------------------------------------------------------------

    def outputs(
        self, operand: kernels.Operand, count: int, virial: bool, out: Result | None
    ) -> tuple[dict[str, kernels.Output], Any]:
        """Return the user's outputs, and dense arrays (1, ...) to write."""
        vectors = dict.fromkeys(("forces", "fields", "torques"), (count, 3))
        shapes = {"energy": (), "energies": (count,), "potentials": (count,), **vectors}
        if virial:
            shapes["virial"] = (3, 3)
        results, dense = self.core.memory_of(shapes, operand, out)
        return results, SimpleNamespace(**{"virial": None, **dense})

    def finished(self, results: dict[str, kernels.Output], outputs: Any, number: bool) -> DipoleResult:
        """Return the user's result."""
        return DipoleResult(**self.core.answers(results, outputs, number))

    def step(self, positions: Any, x: Coordinates, given: tuple[Any, Any], out: Any, check: bool) -> None:
        """Write the outputs for dense charges (1, N) and dipoles (N, 3); both halves at once, as for charges."""
        core, (q, mu), virial = self.core, given, out.virial is not None
        core.backend.clear(core.status)
        shapes = self._shapes(x.count, virial)
        mesh = [self.take(name, *shapes[name]) for name in ("potential", "gradient", "hessian", "virial")]
        if not virial:
            mesh[3] = None
        smooth = functools.partial(self._smooth_half, x, q, mu, mesh, check)
        with contextlib.nullcontext(smooth()) if core.branch is None else core.branch.in_background(smooth):
            core.grid.build(positions, check=check)
            values, sums = self._sharp_half(x, q, mu, virial)
        core.note(sums)
        if core.on_gpu:
            self._assemble(values, sums, mesh, out)
        else:
            _on_cpu(self.factors, q[0], mu, sums, mesh, out)
            core.status[0] = bool((sums[:, -1] > 0).any())
            if not np.isfinite(out.energy).all():
                wrong = ~np.isfinite(q[0]), ~np.isfinite(mu).all(1)
                core.status[1], core.status[3:5] = word_of(np.ones(1, bool)), [word_of(w) for w in wrong]

    def _smooth_half(self, x: Coordinates, q: Any, mu: Any, mesh: list[Any], check: bool) -> None:
        """Write potential, gradient, second derivatives and virial; memory of the other half is not written."""
        solver, shapes = self.core.solver, self._shapes(x.count, False)
        solver.set_positions(x.arrays[0] if x.arrays[0].ndim == 2 else x.arrays, check=check)
        density, field = (self.take(name, *shapes[name]) for name in ("density", "field"))
        solver.plan.spread(q.reshape(x.count), out=density)
        solver.plan.spread_gradient(mu, out=density, accumulate=True)
        if mesh[3] is None:
            solver.potential_field(density, out=field)
        else:
            solver.potential_field_virial(density, out=(field, mesh[3]))
        solver.plan.value_gradient_hessian(field, out=tuple(mesh[:3]))

    def _sharp_half(self, x: Coordinates, q: Any, mu: Any, virial: bool) -> tuple[Any, Any]:
        """Return charges and dipoles (N, 4) and their sums over neighbours (N, 8 or 17)."""
        core, count = self.core, x.count
        values, sums = self.take("values", count, 4), self.take("sums", count, columns(virial))
        if core.on_gpu:
            self._kernel("pack", virial)(
                count, q, mu, values, core.status, count, core.finish.at(q), core.finish.at(mu)
            )  # fmt: skip
        else:
            values[:, 0], values[:, 1:] = q[0], mu
        core.grid.stream(core.parameters.cutoff, self.functions[virial], values, out=sums)
        if not len(core.exclusions):
            return values, sums
        if core.on_gpu:
            rows = core.exclusions.on(core.backend, count, core.dtype)
            self._kernel("without_pairs", virial)(
                count, *x.arguments(), *rows, values, sums, count, x.record(),
                Images.of(core.images_box.matrix, core.dtype).record(core.dtype), self._record(*self.limits),
            )  # fmt: skip
        else:
            _exclude(core.exclusions, np.stack(x.arrays, 1), core.images_box.matrix, self.limits, values, sums)
        return values, sums

    def _assemble(self, values: Any, sums: Any, mesh: list[Any], out: Any) -> None:
        """Write the outputs by kernels."""
        core, count, virial = self.core, len(values), out.virial is not None
        partial, shares = core.finish.partial(1, count, _TERMS)
        names = ("energies", "forces", "potentials", "fields", "torques")
        natives = [getattr(out, name) for name in names]
        self._kernel("assemble", virial)(
            shares * core.backend.group_size, values, sums, *mesh[:3], *natives, partial, count, shares,
            Record("=5q", *map(core.finish.at, natives)), self._record(*self.factors),
        )  # fmt: skip
        width = 3 + (_TERMS if virial else 1)
        core.finish.totals(partial, mesh[3], out.energy, out.virial, core.status, 1, shares, True, width)

    def _kernel(self, name: str, virial: bool) -> Any:
        return compile_kernel(self.core.backend, _FILE, name, self.core.dtype, VIRIAL=int(virial))

    def _record(self, *numbers: float) -> Record:
        return Record(f"={len(numbers)}{self.core.dtype.char}", *numbers)


def _on_cpu(
    factors: tuple[float, ...], q: np.ndarray, mu: np.ndarray, sums: np.ndarray, mesh: list[np.ndarray], out: Any
) -> None:  # fmt: skip
    """Do what the kernel ``assemble`` does."""
    (c, four_pi, itself, twist), (potential, gradient, hessian, of_mesh) = factors, mesh
    slope = sums[:, 1:4] + four_pi * gradient
    turned = four_pi * (hessian @ mu[:, :, None])[:, :, 0]
    phi, field = c * (sums[:, 0] + four_pi * potential - itself * q), c * (twist * mu - slope)
    out.potentials[0], out.fields[0], out.torques[0] = phi, field, np.cross(mu, field)
    out.forces[0] = -c * (q[:, None] * slope + sums[:, 4:7] + turned)
    out.energies[0] = (q * phi - (mu * field).sum(1)) / 2
    out.energy[0] = out.energies[0].sum(dtype=np.float64)
    if of_mesh is not None:
        # Dipoles stay while the mesh is strained: their part of its slope does not.
        turns = of_mesh - np.einsum("ia,ib->ab", gradient, mu, dtype=np.float64)
        out.virial[0] = c * (sums[:, COLUMNS:-1].sum(0, dtype=np.float64).reshape(3, 3) / 2 + four_pi * turns)


def _exclude(
    pairs: Exclusions, x: np.ndarray, matrix: np.ndarray, limits: tuple[float, float], values: np.ndarray,
    sums: np.ndarray,
) -> None:  # fmt: skip
    """Do what the kernel ``without_pairs`` does."""
    i, j, weights, d, place = pairs.vectors(Natives(x), matrix)
    q, mu = values[:, 0], values[:, 1:]
    r2, touches = (d**2).sum(1), place != 0
    inverse = 1 / np.where(touches, 1, r2)
    b0 = np.sqrt(inverse)
    b1 = b0 * inverse
    b2, b3 = 3 * b1 * inverse, 15 * b1 * inverse**2
    b0, b1 = np.where(touches, limits[0], b0), np.where(touches, limits[1], b1)
    along_i, along_j = (mu[i] * d).sum(1), (mu[j] * d).sum(1)
    both, b = (mu[i] * mu[j]).sum(1), q[j]
    along, second = b * b1 - along_j * b2, b * along_i * b2 - along_j * along_i * b3 + both * b2
    rows = np.zeros((len(i), sums.shape[1]), x.dtype)
    rows[:, 0] = b * b0 - along_j * b1
    rows[:, 1:4] = along[:, None] * d + b1[:, None] * mu[j]
    rows[:, 4:7] = second[:, None] * d + (along_i * b2)[:, None] * mu[j] - along[:, None] * mu[i]
    if sums.shape[1] > COLUMNS + 1:
        rows[:, COLUMNS:-1] = -((q[i, None] * rows[:, 1:4] + rows[:, 4:7])[:, :, None] * d[:, None]).reshape(-1, 9)
    rows[:, -1] = touches
    # Pairs that are scaled and in one place have no finite interaction: they stay counted.
    rows *= np.where(touches & (weights != -1), 0, weights)[:, None]
    rows[:, -1] = np.where(place < 0, 1, rows[:, -1])
    np.add.at(sums, i, rows)
