# SPDX-License-Identifier: BSD-3-Clause
"""A step of many systems on native arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import direct
from particlemesh.apps.pme.assemble import Mesh, Outputs
from particlemesh.apps.pme.core import Coulomb, word_of
from particlemesh.apps.pme.exclusions import Exclusions, Images
from particlemesh.apps.pme.natives import Natives
from particlemesh.apps.pme.parameters import Parameters
from particlemesh.apps.pme.result import Result
from particlemesh.kernels import Coordinates, Record, compile_kernel

_FILE = Path(__file__).with_name("batch.c")
_TERMS = 7  # energy and six terms of the virial
_UPPER = [[0, 5, 4], [5, 1, 3], [4, 3, 2]]  # where the terms are in a virial


class Batch(Coulomb):
    """Charges in systems with particles and boxes of their own.

    Parameters
    ----------
    systems : int
    others
        As for :class:`Coulomb`.

    Attributes
    ----------
    owners : native int32 array (N,)
        The system of each particle, of the next step.
    rows : NumPy array (S, 3, 3) or None
        Lattice vectors of the next step's boxes; None for the grid's.
    """

    owners: Any = None
    rows: np.ndarray | None = None

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, constant: float, systems: int, *,
        threads: int | None, named: str | None, deterministic: bool,
    ) -> None:  # fmt: skip
        self.systems = systems
        super().__init__(
            box, parameters, backend, dtype, constant, Exclusions((), 0.0), None, "window", threads=threads,
            named=named, systems=systems, deterministic=deterministic,
        )  # fmt: skip
        self._lattices: tuple[np.ndarray, Any] | None = None  # boxes, and what kernels have of them

    def outputs(
        self, operand: kernels.Operand, count: int, virial: bool, out: Result | None
    ) -> tuple[dict[str, kernels.Output], Outputs]:
        many = self.systems
        shapes = {"energy": (many,), "energies": (count,), "forces": (count, 3), "virial": (many, 3, 3)}
        results, dense = self.memory_of(shapes, operand, out)
        return results, Outputs(**dense)

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        super().reserve(count, sets, virial)
        if self.on_gpu:
            with self.backend.scope():
                self._words()

    def _words(self) -> Any:
        """Return memory for the largest terms of systems and their sums, both as integers."""
        return self.take("totals of systems", 2 * _TERMS * self.systems, np.dtype(np.uint64))

    def _mesh(self, sets: int, count: int, virial: bool) -> Mesh:
        one = super()._mesh(sets, count, False)
        virials = self.take("virials", 9 * sets * self.systems).reshape(sets, self.systems, 3, 3)
        return Mesh(one.potential, one.gradient, virials)

    # ---- a step ---------------------------------------------------------------------------------------

    def place(self, x: Coordinates, check: bool) -> None:
        there = x.arrays[0] if x.arrays[0].ndim == 2 else x.arrays
        self.solver.set_positions(there, system=self.owners, boxes=self.rows, check=check)

    def neighbours(self, positions: Any, x: Coordinates, check: bool) -> None:
        self.grid.build(positions, system=self.owners, boxes=self.rows, check=check)

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        rows = np.broadcast_to(self.box.matrix, (self.systems, 3, 3)) if self.rows is None else self.rows
        if not self.on_gpu:
            _exclude(self.exclusions, np.stack(x.arrays, 1), charges[0], rows, self.owners, sums)
            return sums
        if self._lattices is None or not np.array_equal(self._lattices[0], rows):
            numbers = np.array([Images.of(row, self.dtype).numbers() for row in rows], self.dtype)
            self._lattices = rows.copy(), self.backend.upload(numbers)
        systems = self._lattices[1], self.owners, self.status, self.systems
        self.exclusions.add(self.backend, self.box, x, charges, sums, virial, self.threads, systems)
        return sums

    def _assemble(self, charges: Any, sums: Any, mesh: Mesh, out: Outputs, first: bool) -> None:
        if not self.on_gpu:
            self._on_cpu(charges[0], sums, mesh, out)
            return
        count, at, words = charges.shape[1], self.finish.at, self._words()
        self.backend.clear(words)
        _, shares = self.finish.partial(1, count)
        arrays = charges, out.energies, out.forces, out.energy, out.virial
        places, factors = Record("=5q", *map(at, arrays)), Record(f"=3{self.dtype.char}", *self.law.numbers)
        crowd = count.bit_length()  # a system has fewer than 2**crowd particles
        for reading in range(2):
            self._kernel("assemble")(
                shares * self.backend.group_size, charges, sums, mesh.potential, mesh.gradient, out.energies,
                out.forces, words, self.owners, self.status, count, self.systems, shares, reading, crowd, places,
                factors,
            )  # fmt: skip
        self._kernel("totals_of_systems")(
            self.systems, words, mesh.virial, out.energy, out.virial, self.status, self.systems, crowd, places, factors
        )

    def _kernel(self, name: str) -> Any:
        wide = int(self.dtype.itemsize == 8)
        real = np.dtype(np.float64 if self.backend.facts().get("HAS_FP64", 1) else np.float32)  # of totals
        return compile_kernel(self.backend, _FILE, name, real, COORDINATE_IS_DOUBLE=wide)

    def _on_cpu(self, q: np.ndarray, sums: np.ndarray, mesh: Mesh, out: Outputs) -> None:
        """Do what the kernels do."""
        c, four_pi, itself = self.law.numbers
        out.energies[0] = c / 2 * q * (sums[:, 0] + four_pi * mesh.potential[0] - itself * q)
        out.forces[0] = c * q[:, None] * (sums[:, 1:4] - four_pi * mesh.gradient[0])

        def by_system(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.owners, values, self.systems)

        out.energy[0] = by_system(out.energies[0])
        upper = np.stack([by_system(c / 2 * q * sums[:, 4 + n]) for n in range(6)], 1)
        out.virial[0] = upper[:, _UPPER] + four_pi * c * mesh.virial[0]
        self.status[0] = bool((sums[:, -1] > 0).any())
        self.status[1], self.status[3] = word_of(~np.isfinite(out.energy[0])), word_of(~np.isfinite(q))


def _exclude(
    pairs: Exclusions, x: np.ndarray, q: np.ndarray, rows: np.ndarray, owners: np.ndarray, sums: np.ndarray
) -> None:  # fmt: skip
    """Add the corrections of pairs to the sums (N, 11) over neighbours, for boxes (S, 3, 3)."""
    i, j, weights, d, place = pairs.vectors(Natives(x), rows, owners)
    r2, touches = (d**2).sum(1), place != 0
    u = q[j] * np.where(touches, 0, weights / np.sqrt(np.where(touches, 1, r2)))
    g = -u / np.where(touches, 1, r2)
    new = np.zeros((len(i), direct.columns(True) + 1), x.dtype)
    new[:, 0], new[:, 1:4] = u, g[:, None] * d
    new[:, 4:7], new[:, 7:10] = g[:, None] * d * d, g[:, None] * d[:, [1, 2, 0]] * d[:, [2, 0, 1]]
    new[:, 10] = np.where((place > 0) & (weights == -1), -1, place < 0)  # excluded pairs may have the same coordinates
    np.add.at(sums, i, new)
