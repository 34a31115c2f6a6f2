# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: one call of one method on one problem, the same particles and values every time.

Positions are uniform (or ``clustered``, in a cube of 1 % of the volume) in a periodic cube of K^3 nodes; the window is
the cardinal B-spline of p nodes. Values are normal. Arrays are in the caller's order, which is random, unless a case
says ``sorted``: values then come and go in the plan's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 5
REALS = {"real": 1, "complex": 2, "4": 4}  # reals of a particle; "4" are four real components
MOVED = 0.3  # cells that a particle has moved since it was sorted
DIRECTIONS = ("spread", "interpolate")


@dataclass(frozen=True)
class Case:
    """One problem: ``count`` particles in a cube of ``nodes``^3 nodes."""

    direction: str
    count: int
    nodes: int
    support: int = 6
    dtype: str = "float32"
    values: str = "complex"
    layout: str = "planar"  # of several components: component first, or (``interleaved``) last in memory
    cloud: str = "uniform"
    order: str = "caller"  # or "sorted"

    @property
    def reals(self) -> int:
        """Return the reals of a particle."""
        return REALS[self.values]

    @property
    def size(self) -> int:
        """Return the bytes of a real."""
        return np.dtype(self.dtype).itemsize

    @property
    def density(self) -> float:
        """Return the particles of a cell."""
        return self.count / self.nodes**3

    @property
    def kind(self) -> np.dtype[Any]:
        """Return the type of the values."""
        real = np.dtype(self.dtype)
        return np.result_type(real, np.complex64) if self.values == "complex" else real

    @property
    def batch(self) -> tuple[int, ...]:
        """Return the axes of values before that of the particles."""
        return () if self.values in ("real", "complex") else (int(self.values),)

    def columns(self) -> dict[str, Any]:
        """Return the case as columns of a CSV."""
        return dict(
            direction=self.direction, N=self.count, K=self.nodes, p=self.support, dtype=self.dtype, values=self.values,
            layout=self.layout, cloud=self.cloud, order=self.order,
        )  # fmt: skip

    def __str__(self) -> str:
        more = [self.cloud] * (self.cloud != "uniform") + ["sorted"] * (self.order == "sorted")
        more += [self.layout] * bool(self.batch)
        what = f"{self.direction} {self.dtype} {self.values} p = {self.support} N = {self.count:,} K = {self.nodes}"
        return " ".join([what, *more])


@lru_cache(maxsize=2)
def positions(cloud: str, count: int, dtype: str) -> NDArray[np.floating]:
    """Return positions (N, 3) in the unit box, in random order."""
    x = np.random.default_rng(SEED).random((count, 3), np.dtype(dtype).type)
    if cloud == "clustered":
        side = 0.01 ** (1 / 3)
        x = ((0.5 - side / 2) + side * x).astype(dtype)
    elif cloud != "uniform":
        raise ValueError(f"There is no cloud {cloud!r}.")
    return x


def moved(x: NDArray[np.floating], nodes: int) -> NDArray[np.floating]:
    """Return positions (N, 3) in the unit box after each particle went 0.3 cells in a direction of its own."""
    step = np.random.default_rng(SEED + 1).standard_normal(x.shape, np.float32)
    step *= (MOVED / nodes / np.linalg.norm(step, axis=1, keepdims=True)).astype(step.dtype)
    return np.mod(x + step.astype(x.dtype), x.dtype.type(1))


def by_block(x: NDArray[np.floating], nodes: int, cells: tuple[int, int] = (3, 2)) -> NDArray[np.integer]:
    """Return an order (N,) by blocks of cells in y and z, then along x: as walks leave it, for plans that tell none."""
    cell = np.minimum((x * nodes).astype(np.int64), nodes - 1)
    rows = math.ceil(nodes / cells[1])
    key = (cell[:, 1] // cells[0] * rows + cell[:, 2] // cells[1]) * nodes + cell[:, 0]
    return np.argsort(key, kind="stable")


@lru_cache(maxsize=2)
def values(count: int, dtype: str, kind: str) -> NDArray[Any]:
    """Return values (N,), or (4, N), normally distributed."""
    return _normal((count,), dtype, kind, SEED + 2)


@lru_cache(maxsize=2)
def field(nodes: int, dtype: str, kind: str) -> NDArray[Any]:
    """Return a field (K, K, K), or (4, K, K, K), normally distributed."""
    return _normal((nodes,) * 3, dtype, kind, SEED + 3)


def _normal(core: tuple[int, ...], dtype: str, kind: str, seed: int) -> NDArray[Any]:
    rng, real = np.random.default_rng(seed), np.dtype(dtype)
    if kind == "complex":
        return rng.standard_normal((*core, 2), real.type).view(np.result_type(real, np.complex64))[..., 0]
    return rng.standard_normal(core if REALS[kind] == 1 else (REALS[kind], *core), real.type)
