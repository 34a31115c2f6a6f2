# SPDX-License-Identifier: BSD-3-Clause
"""Positions as fractions of a box, in operations that torch and JAX differentiate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from particlemesh import Mesh
from particlemesh.mesh import mesh_of

Numbers = tuple[list[float] | None, list[Any]]


def numbers_of(mesh: Mesh) -> Numbers:
    """Return origin (None at zero) and lengths (d,) or lattice vectors (d, d) of a mesh as Python numbers."""
    box = mesh_of(mesh).box
    cell = box.lengths.tolist() if box.orthorhombic else box.matrix.tolist()
    return (box.origin.tolist() if box.origin.any() else None), cell


class Frame:
    """Fractions of positions, and vectors between the two frames.

    Parameters
    ----------
    positions : array (N, d), or (N,) in 1-D
    numbers : tuple
        From :func:`numbers_of`.
    cell : array (d,) or (d, d), optional
        Lengths or lattice vectors instead of those of ``numbers``. With ``system``, lattice vectors (S, d, d).
    like : callable
        ``like(numbers, array)`` returns an array of numbers with the dtype and device of ``array``.
    linalg : module
        The library's inverse ``inv`` and determinant ``det``.
    system : integers (N,), optional
        The box of each position.
    """

    def __init__(
        self, positions: Any, numbers: Numbers, cell: Any,
        like: Callable[[Any, Any], Any], linalg: Any, system: Any = None,
    ) -> None:  # fmt: skip
        origin, box = numbers
        axes = len(box)
        if positions.ndim == 1 and axes == 1:
            positions = positions[:, None]
        if positions.ndim != 2 or positions.shape[1] != axes:
            raise ValueError(f"positions have shape {tuple(positions.shape)}; (n, {axes}) is needed.")
        real = str(positions.dtype).removeprefix("torch.")
        if real not in ("float32", "float64"):  # the box would be rounded to another type
            raise TypeError(f"positions have dtype {real}; give float32 or float64.")
        cell = like(box, positions) if cell is None else cell
        if system is not None:
            _check_systems(tuple(cell.shape), axes, system, positions)
        elif tuple(cell.shape) not in ((axes,), (axes, axes)):
            raise ValueError(
                f"cell has shape {tuple(cell.shape)}; "
                f"give lengths ({axes},) or lattice vectors as rows ({axes}, {axes})."
            )
        self.like, self._linalg, self._system = like, linalg, system
        # Division by lengths gives exactly 1 on the upper face.
        self._cell = cell if cell.ndim == 1 else linalg.inv(cell)
        self.fractions = self.per_cell(positions if origin is None else positions - like(origin, positions))

    @property
    def has_vectors(self) -> bool:
        """Whether the box is given by lattice vectors rather than by lengths."""
        return bool(self._cell.ndim > 1)

    def per_cell(self, vectors: Any) -> Any:
        """Return vectors (..., d) in units of the lattice vectors."""
        cell = self.like(self._cell if self._system is None else self._cell[self._system], vectors)
        return vectors / cell if cell.ndim == 1 else _product(vectors, cell)

    def per_length(self, slopes: Any) -> Any:
        """Return derivatives (..., d) by fractions as derivatives by positions."""
        cell = self.like(self._cell, slopes)
        return slopes / cell if cell.ndim == 1 else _product(slopes, cell.T)

    @property
    def volume(self) -> Any:
        """Length, area or volume of the box, or of each system's (S,)."""
        return self._cell.prod() if self._cell.ndim == 1 else 1 / abs(self._linalg.det(self._cell))

    def wavenumbers(self, numbers: Any) -> Any:
        """Return the wave vectors (d, m), or (S, d, m) of systems, of mode numbers (d, m), in radians per length."""
        cell, turned = self.like(self._cell, numbers), 2 * math.pi * numbers
        if cell.ndim == 1:
            return turned / cell[:, None]
        return sum(cell[..., a, None] * turned[a] for a in range(len(turned)))  # see `_product`


def _product(vectors: Any, matrix: Any) -> Any:
    """Return ``vectors @ matrix`` for vectors (..., d).

    Not by ``@``: jaxlib 0.10.2 compiles that to wrong numbers on CPUs where a sum follows.
    """
    return sum(vectors[..., a, None] * matrix[..., a, :] for a in range(matrix.shape[-1]))


def _check_systems(cell: tuple[int, ...], axes: int, system: Any, positions: Any) -> None:
    """Check the boxes of systems, and the system of each position."""
    if len(cell) != 3 or cell[1:] != (axes, axes):
        raise ValueError(f"cell has shape {cell}; with system, give lattice vectors as rows (S, {axes}, {axes}).")
    if tuple(system.shape) != tuple(positions.shape[:1]):
        raise ValueError(f"system has shape {tuple(system.shape)}; ({positions.shape[0]},) is needed.")
    if "int" not in str(system.dtype):
        raise TypeError(f"system has dtype {system.dtype}; give integers.")
