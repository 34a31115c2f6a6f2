# SPDX-License-Identifier: BSD-3-Clause
"""Energies, forces and virial from the sums over neighbours and from the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.pme.direct import columns
from particlemesh.kernels import Record, Unread, compile_kernel

_FILE = Path(__file__).with_name("assemble.c")
_SHARE = 2048  # particles that a group adds up
_UPPER = (0, 1, 2, 1, 2, 0), (0, 1, 2, 2, 0, 1)  # the six terms of a virial


@dataclass(frozen=True)
class Law:
    """How a particle's energy follows from its charge q, a sum over neighbours and the potential of the mesh.

    Twice the energy is ``weight * sum + constant * q * (mesh * potential - itself * q)``. The weight is
    ``constant * q``, or 1 if the sum has the particle's own charge already.
    """

    constant: float
    mesh: float
    itself: float
    weighted: bool

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The constants, as kernels take them."""
        return self.constant, self.mesh, self.itself


@dataclass
class Mesh:
    """What the mesh gives for sets of charges: potential (sets, N), gradient (sets, N, 3), virial (sets, 3, 3)."""

    potential: Any
    gradient: Any
    virial: Any

    def part(self, sets: slice) -> Mesh:
        """Return that of some sets."""
        virial = None if self.virial is None else self.virial[sets]
        return Mesh(self.potential[sets], self.gradient[sets], virial)


@dataclass
class Outputs:
    """Dense native arrays: energy (sets,), energies (sets, N), forces (sets, N, 3), virial (sets, 3, 3) or None."""

    energy: Any
    energies: Any
    forces: Any
    virial: Any

    def part(self, sets: slice) -> Outputs:
        """Return those of some sets."""
        virial = None if self.virial is None else self.virial[sets]
        return Outputs(self.energy[sets], self.energies[sets], self.forces[sets], virial)


def on_cpu(charges: np.ndarray, sums: np.ndarray, mesh: Mesh, out: Outputs, law: Law) -> None:
    """Write the outputs of sets of charges (sets, N) from their sums (N, sets * columns + 1)."""
    width = columns(out.virial is not None)
    for c, q in enumerate(charges):
        columns_of_set = sums[:, c * width : (c + 1) * width]
        scaled = law.constant * q
        weight = scaled if law.weighted else np.ones_like(q)
        out.energies[c] = (weight * columns_of_set[:, 0] + scaled * (law.mesh * mesh.potential[c] - law.itself * q)) / 2
        out.forces[c] = weight[:, None] * columns_of_set[:, 1:4] - (law.mesh * scaled)[:, None] * mesh.gradient[c]
        out.energy[c] = out.energies[c].sum(dtype=np.float64)
        if out.virial is not None:
            terms = np.einsum("i,it->t", weight.astype(np.float64) / 2, columns_of_set[:, 4:10].astype(np.float64))
            whole = law.mesh * law.constant * mesh.virial[c].astype(np.float64)
            whole[_UPPER] += terms
            whole[_UPPER[::-1]] = whole[_UPPER]
            out.virial[c] = whole


class OnDevice:
    """The same by kernels; ``take(name, size, dtype)`` provides scratch memory that is kept."""

    def __init__(self, backend: Any, dtype: np.dtype, take: Any, law: Law) -> None:
        self.backend, self.dtype, self.take, self.law = backend, dtype, take, law
        self.factors = Record(f"=3{dtype.char}", *law.numbers)

    def partial(self, sets: int, count: int, terms: int = 7) -> tuple[Any, int]:
        """Return the memory for so many totals of each share of the particles, and how many shares there are."""
        shares = max(1, -(-count // _SHARE))
        return self.take("totals", shares * (terms * sets + 1), self.dtype), shares

    def at(self, array: Any) -> int:
        """Return where an array begins in its buffer, in reals."""
        return int(getattr(array, "offset", 0)) // self.dtype.itemsize

    def __call__(
        self, charges: Any, sums: Any, mesh: Mesh, out: Outputs, status: Any, first: bool
    ) -> None:  # fmt: skip
        sets, count = charges.shape
        width = columns(out.virial is not None)
        defines = {"WIDTH": width, "WEIGHTED": int(self.law.weighted)}
        partial, shares = self.partial(sets, count)

        kernel = compile_kernel(self.backend, _FILE, "assemble", self.dtype, **defines)
        kernel(
            shares * self.backend.group_size, charges, sums, mesh.potential, mesh.gradient, out.energies, out.forces,
            partial, count, sets, shares, *map(self.at, (charges, out.energies, out.forces, mesh.potential)),
            self.at(mesh.gradient), status, self.factors,
        )  # fmt: skip
        self.totals(partial, mesh.virial, out.energy, out.virial, status, sets, shares, first, width)

    def totals(
        self, partial: Any, mesh: Any, energy: Any, virial: Any, status: Any, sets: int, shares: int, first: bool,
        width: int,
    ) -> None:  # fmt: skip
        """Add up the totals of shares, ``width - 3`` of each set; the virial and that of the mesh may be None."""
        defines = {"WIDTH": width, "WEIGHTED": int(self.law.weighted)}
        kernel = compile_kernel(self.backend, _FILE, "totals", self.dtype, **defines)
        virials = (Unread(energy), Unread(energy)) if virial is None else (mesh, virial)
        kernel(
            (width - 3) * sets + 1, partial, virials[0], energy, virials[1], status, sets, shares, self.at(virials[0]),
            self.at(energy), self.at(virials[1]), int(first), self.factors,
        )  # fmt: skip
