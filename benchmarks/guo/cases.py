# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: every problem of the figures, the same particles and values every time.

The paper's problems are uniform clouds in a periodic cube of K^3 nodes, B-splines of p nodes along an axis, float32 and
real. Its key number is ASM, the average number of spreading contributions per node, N p^3 / K^3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SEED = 1
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
MESHES = (32, 64, 128, 256)
SMALL_SIZES, SMALL_MESHES = (1_000, 4_000), (12, 24)  # a minute on two cores, all figures together
COMPONENTS = {"real": 1, "complex": 2, "3": 3, "8": 8}  # reals a particle; numbers are planes of real values


@dataclass(frozen=True)
class Case:
    """One problem: ``count`` particles in a cube of ``nodes``^3 nodes."""

    count: int
    nodes: int
    support: int = 6
    dtype: str = "float32"
    values: str = "real"
    cloud: str = "uniform"

    @property
    def asm(self) -> float:
        """Return the average number of contributions to a node."""
        return self.count * (self.support / self.nodes) ** 3

    @property
    def components(self) -> int:
        """Return the reals of a particle."""
        return COMPONENTS[self.values]

    def __str__(self) -> str:
        kind = "" if (self.dtype, self.values) == ("float32", "real") else f" {self.dtype} {self.values}"
        return f"N = {self.count:,} K = {self.nodes} p = {self.support} {self.cloud}{kind}"


def cases(figure: str, small: bool = False) -> tuple[Case, ...]:
    """Return the problems of a figure; those of the figures overlap, and are measured once."""
    sizes, meshes = (SMALL_SIZES, SMALL_MESHES) if small else (SIZES, MESHES)
    of_figure: dict[str, Iterable[int]] = {
        "fig3": meshes,
        "fig4": (128,),
        "fig5": (128,),
        "fig6": (64,),
        "fig7": (64,),
        "fig8": (128,),
        "fig9": (128,),
        "long_construction": meshes,
        "long_totals": meshes,
        "long_totals_p4": meshes,
    }
    if figure == "added_clouds":
        return _added(*((4_000, 24, 4) if small else (1_000_000, 128, 6)))
    if figure == "cusparse":
        return (Case(4_000, 24, 4),) if small else (Case(1_000_000, 128),)
    chosen = of_figure[figure]
    if small and len(tuple(chosen)) == 1:
        chosen = meshes[-1:]
    support = 4 if small or figure.endswith("p4") else 6
    return tuple(Case(n, k, support) for k in chosen for n in sizes)


def _added(count: int, nodes: int, support: int) -> tuple[Case, ...]:
    """Return what the paper leaves out, the paper's own kind of problem first."""
    kinds = (
        dict(), dict(cloud="clustered"), dict(cloud="lattice"), dict(dtype="float64"), dict(values="complex"),
        dict(values="complex", dtype="float64"), dict(values="3"), dict(values="8"),
    )  # fmt: skip
    other = 4 if support == 6 else 3
    fewer = tuple(Case(n, nodes, other) for n in (count // 100, count // 10, count))
    return tuple(Case(count, nodes, support, **kind) for kind in kinds) + fewer


@lru_cache(maxsize=1)
def positions(cloud: str, count: int, dtype: str) -> NDArray[np.floating]:
    """Return positions (N, 3) in the unit box, in random order but for the lattice.

    ``clustered``: all in a cube of 1 % of the volume, around the middle. ``lattice``: a cubic lattice in its own order.
    """
    if cloud == "lattice":
        edge = math.ceil(count ** (1 / 3) - 1e-9)
        site = np.arange(count) * edge**3 // count  # too many sites: some are left out, evenly
        return ((np.stack(np.unravel_index(site, (edge,) * 3), -1) + 0.5) / edge).astype(dtype)
    x = np.random.default_rng(SEED).random((count, 3), np.dtype(dtype).type)
    if cloud == "clustered":
        side = 0.01 ** (1 / 3)
        x = ((0.5 - side / 2) + side * x).astype(dtype)
    elif cloud != "uniform":
        raise ValueError(f"There is no cloud {cloud!r}.")
    return x


@lru_cache(maxsize=2)
def values(count: int, dtype: str, kind: str) -> NDArray[np.generic]:
    """Return values (N,), or (3, N) and (8, N), normally distributed."""
    rng = np.random.default_rng(SEED + count)
    if kind == "complex":
        parts = rng.standard_normal((count, 2))
        return (parts[:, 0] + 1j * parts[:, 1]).astype(np.result_type(np.dtype(dtype), np.complex64))
    shape = (count,) if kind == "real" else (COMPONENTS[kind], count)
    return rng.standard_normal(shape, np.float32).astype(dtype)
