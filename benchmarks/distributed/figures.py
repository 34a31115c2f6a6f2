# SPDX-License-Identifier: BSD-3-Clause
"""What is measured on several GPUs, and how its meshes are cut: for the measurement and for its prediction."""

from __future__ import annotations

from typing import NamedTuple

import particlemesh as pm
from particlemesh.distributed import Domain

EDGE = 256  # nodes along an edge of a GPU's part
RADIUS = 1.5  # of pairs, in mean distances of particles: 14 neighbours of each
MOVED = 0.1  # cells, at most along each axis, between two calls of set_positions
POINTS = 5 * (2 * EDGE) ** 3  # of the large transform, of each GPU: as many for a mode as memory holds (model.py)


class Goal(NamedTuple):
    """What a figure is called, its goals, particles of a GPU, and its unit: efficiency, speedup or ratio of times."""

    name: str
    reach: float
    stretch: float
    particles: float
    unit: str = "of one GPU's speed"


GOALS = {
    "weak": Goal("weak, 10^8 a GPU: spread + interpolate", 0.97, 0.99, 1e8),
    "fft": Goal("weak, 10^8 a GPU: with real FFT and back", 0.88, 0.93, 1e8),
    "few": Goal("weak, 10^7 a GPU: spread + interpolate", 0.93, 0.96, 1e7),
    "strong": Goal("strong, 10^8 in total", 1.85, 1.95, 1e8, "times as fast"),
    "deterministic": Goal("deterministic, 10^8 a GPU: against itself on one", 0.95, 0.98, 1e8),
    "reproducible": Goal("deterministic, 10^8 a GPU: against Plan, whose bits depend on cuts", 0.95, 0.98, 1e8),
    "positions": Goal("set_positions after a move of 0.1 cell", 1.3, 1.1, 1e8, "times as long"),
    "grid": Goal("uniform grid and half pair list, 4*10^6 a GPU", 0.90, 0.95, 4e6),
    "pme": Goal("PME, 5*10^6 charges a GPU: energy, forces, virial", 0.90, 0.94, 5e6),
    "pme_large": Goal("PME, 10^7 charges a GPU: energy, forces, virial", 0.90, 0.94, 1e7),
    "nufft": Goal("NUFFT types 1 and 2, 8 points a mode, 2.5*10^8 a GPU", 0.85, 0.90, 2.5e8),
    "landau": Goal("Landau damping, 8 electrons a node, 1.3*10^8 a GPU: a step", 0.85, 0.90, 8 * EDGE**3),
    "nufft_large": Goal("NUFFT types 1 and 2, 512^3 modes a GPU, 5 points a mode", 0.85, 0.90, POINTS),
}


def cut_of(ranks: int) -> tuple[int, ...]:
    """Return the parts along each axis of a box of one cube for each rank."""
    parts = Domain(pm.Mesh((64,) * 3, (1.0,) * 3), ranks).parts()
    return tuple(len({part.lower[axis] for part in parts}) for axis in range(3))


def cube_of(ranks: int) -> tuple[int, ...]:
    """Return three factors of a number that are as equal as possible, the largest first."""
    shapes = [
        (ranks // a // b, a, b) for a in range(1, ranks + 1) if ranks % a == 0
        for b in range(1, ranks // a + 1) if ranks // a % b == 0
    ]  # fmt: skip
    return tuple(sorted(min(shapes, key=lambda shape: (sum(shape), shape)), reverse=True))


def box_of(ranks: int) -> tuple[float, ...]:
    """Return the lengths of a box that is nearly a cube, of one unit cube for each rank."""
    return tuple(map(float, cube_of(ranks)))


def domain_of(ranks: int, edge: int = EDGE, *, weak: bool = True) -> Domain:
    """Return a domain with a cube of nodes for each rank, or for all together."""
    many = cut_of(ranks) if weak else (1, 1, 1)
    mesh = pm.Mesh(tuple(edge * n for n in many), tuple(map(float, many)))
    return Domain(mesh, ranks, parts=cut_of(ranks))


def cubic(ranks: int, edge: int = EDGE) -> tuple[int, ...]:
    """Return nodes or modes of a mesh that is nearly a cube, of ``edge**3`` for each rank."""
    return tuple(edge * n for n in cube_of(ranks))


def modes_of(figure: str, ranks: int, edge: int = EDGE) -> tuple[int, ...]:
    """Return the modes of a non-uniform transform: 512 x 256 x 256 of each rank for an edge of 256, or 512^3."""
    if figure == "nufft_large":
        return cubic(ranks, 2 * edge)
    return tuple(n * many for n, many in zip((2 * edge, edge, edge), cut_of(ranks), strict=True))
