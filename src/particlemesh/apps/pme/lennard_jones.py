# SPDX-License-Identifier: BSD-3-Clause
"""A step of dispersion on native arrays: numbers of particles to the mesh's charges, and pairs that are left out."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme.assemble import Law
from particlemesh.apps.pme.core import Core, word_of
from particlemesh.apps.pme.exclusions import Exclusions, Images
from particlemesh.apps.pme.natives import NEIGHBOURS, nearest
from particlemesh.apps.pme.parameters import Parameters
from particlemesh.apps.pme.sixth_power import (
    COLUMNS,
    mark,
    pair_function,
    smooth_dispersion,
    transform,
    transform_slope,
)
from particlemesh.kernels import Coordinates, Record, Unread, compile_kernel

_FILE = Path(__file__).with_name("lennard_jones.c")


class LennardJones(Core):
    """Coefficients of ``-c_i c_j / r**6``, or sigma and epsilon.

    Parameters
    ----------
    mixing, shift
        As for :class:`Dispersion`.
    """

    power = 8
    together = 1

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, mixing: str, shift: bool,
        threads: int | None, named: str | None,
    ) -> None:  # fmt: skip
        beta = parameters.splitting
        green = dict(green=functools.partial(transform, beta), slope=functools.partial(transform_slope, beta))
        law = Law(1.0, -1.0, -(beta**6) / 6, weighted=False)
        super().__init__(box, parameters, backend, dtype, law, Exclusions((), 0.0), green, threads=threads, named=named)
        smooth = smooth_dispersion(beta, parameters.cutoff, dtype.itemsize == 4)
        self._functions = {
            (wells, apart): pair_function(smooth, beta, parameters.cutoff, wells, mixing, shift, apart)
            for wells in (False, True)
            for apart in (False, True)
        }
        self._wells = False
        self._numbers: Any = None

    def function(self, sets: int, virial: bool) -> pm.PairFunction:
        return self._functions[self._wells, len(self.exclusions) > 0]

    def values(self, charges: Any) -> Any:
        return self._numbers

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        super().reserve(count, sets, virial)
        with self.backend.scope():
            self.take("numbers", 2 * count)
            self.take("coefficients", count)
            self.take("sums", 2 * COLUMNS * count)  # of a call with exclusions
            self.take("corrected sums", COLUMNS * count)

    def charges(self, given: tuple[Any, Any]) -> Any:
        """Take coefficients and None, or sigma and epsilon (N,); return the charges (1, N) of the mesh."""
        first, second = given
        count, self._wells = len(first), second is not None
        values, charges = self.take("numbers", 2 * count).reshape(count, 2), self.take("coefficients", count)
        self._numbers = values
        if not self.on_gpu:
            self.status[2] = word_of((first < 0) | (second < 0)) if self._wells else 0
            with np.errstate(invalid="ignore"):
                values[:, 0] = 2 * np.sqrt(second) if self._wells else first
            values[:, 1] = first if self._wells else 1
            charges[:] = values[:, 0] * values[:, 1] ** 3
        elif count:
            kernel = compile_kernel(self.backend, _FILE, "coefficients", self.dtype)
            other, step = (second, self.dtype.itemsize) if self._wells else (Unread(first), self.dtype.itemsize)
            at = [getattr(a, "offset", 0) // step for a in (first, second if self._wells else first)]
            kernel(count, first, other, values, charges, self.status, count, *at, int(self._wells))
        return charges.reshape(1, count)

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        cutoff2, dtype = self.parameters.cutoff**2, self.dtype
        law = [*self.function(1, True).parameters[3:10], cutoff2]
        if not self.on_gpu:
            return self._corrected_on_cpu(np.stack(x.arrays, 1), sums, law)
        rows = self.exclusions.on(self.backend, x.count, dtype)
        corrected = self.take("corrected sums", x.count * COLUMNS).reshape(x.count, COLUMNS)
        kernel = compile_kernel(self.backend, _FILE, "without_pairs", dtype)
        kernel(
            x.count, *x.arguments(), *rows, self._numbers, sums, corrected, x.count, x.record(),
            Images.of(self.box.matrix, dtype).record(dtype), Record(f"=8{dtype.char}", *law),
        )  # fmt: skip
        return corrected

    def _corrected_on_cpu(self, x: np.ndarray, sums: np.ndarray, law: list[float]) -> np.ndarray:
        """Do what the kernel does."""
        repels, arithmetic, shifts, inverse_cut, at_cutoff, of_size, of_beta, square = law
        start, j, weights = self.exclusions.on(self.backend, len(x), self.dtype)
        i = np.repeat(np.arange(len(x)), np.diff(start[: len(x) + 1]))
        images = Images.of(self.box.matrix, x.dtype)
        d = nearest(np, x[j] - x[i], images.matrix, images.inverse.T, NEIGHBOURS.astype(x.dtype))
        r2 = (d**2).sum(1)
        apart, within, same = r2 > images.least, r2 <= square, (x[j] == x[i]).all(1)
        touching = np.where(apart, 0, np.where(same, np.where(weights == -1, -1, 0), 1))
        (depth, product), mean = (self._numbers[i] * self._numbers[j]).T, self._numbers[[i, j], 1].mean(0)
        lattice, size = depth * product**3, arithmetic * mean**2 + (1 - arithmetic) * product
        close = within & (r2 < of_size * size + of_beta)
        marks = np.bincount(i, np.where(close, mark(j), 0), len(x))
        known = marks == sums[:, -1]  # every close pair is excluded or scaled
        # What is in no sum gets its whole factor.
        scales, weights = weights, np.where(close & known[i], weights + 1, weights)
        over = np.where(apart, 1 / np.where(apart, r2, 1), 0)
        ratio, c6 = (size * over) ** 3, (size * inverse_cut) ** 3
        # Beyond the cutoff a pair has what the mesh gives alone.
        s6, repulsion = np.where(within, depth * ratio, lattice * over**3), np.where(within, repels * ratio, 0)
        constant = np.where(within, shifts * (depth * (repels * c6 - 1) * c6 + lattice * at_cutoff), 0)
        g = weights * 6 * s6 * (1 - 2 * repulsion) * over
        terms = [weights * (repulsion - 1) * s6 - scales * constant, *(g * d.T)]
        terms += [g * d[:, a] * d[:, b] for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (2, 0), (0, 1))]
        corrected = sums[:, :COLUMNS] + np.where(known[:, None], 0, sums[:, COLUMNS:])
        corrected[:, -1] = sums[:, COLUMNS - 1]
        for column, term in enumerate([*terms, touching]):
            corrected[:, column] += np.bincount(i, term, len(x)).astype(x.dtype)
        return corrected
