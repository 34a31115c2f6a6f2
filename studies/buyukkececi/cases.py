# SPDX-License-Identifier: BSD-3-Clause
"""The paper's cloud, function and sizes.

"We initialize one particle on each mesh node in the unit square and perturb the particle positions by uniform random
numbers in [-2h, 2h]. This leads to a quasi-random particle distribution with 0 to 16 particles per mesh cell."
Particles that leave the square come back on its other side: the box is periodic.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from harness import inside
from harness.place import Place

WINDOWS = {"cic": "linear", "m4prime": "M'4"}  # by the paper's names
ORDERS = {"cic": 2, "m4prime": 3}
DTYPES = ("float32", "float64")
DIRECTIONS = {"spread": "P→M", "interpolate": "M→P"}
THEIR_WIDTH = 15.0  # of exp(-|x - 1/2|^2 / 15)
SEED = 2013
# Nodes per axis. The paper's tables end with the last: 4096 k particles in 2-D, 2048 k in 3-D.
TABLE_NODES = {2: 2048, 3: 128}
SMALL_NODES = {2: 128, 3: 24}
SMALL_KINDS = ((2, "cic", "float64"), (3, "m4prime", "float32"))  # of figure 13; compiling more takes long


@dataclass(frozen=True)
class Case:
    """One problem: the direction, the window, and the nodes along each axis."""

    direction: str
    ndim: int
    window: str
    dtype: str
    nodes: int
    order: str = "nodes"  # of the particles: that of their nodes, or ``shuffled``

    def __str__(self) -> str:
        size = f"{self.nodes}^{self.ndim}" + (f" {self.order}" if self.order != "nodes" else "")
        return f"{DIRECTIONS[self.direction]} {self.ndim}-D {WINDOWS[self.window]} {self.dtype} {size}"

    @property
    def count(self) -> int:
        """Return the number of particles, and of nodes."""
        return self.nodes**self.ndim

    @property
    def mesh(self) -> pm.Mesh:
        """Return the mesh of the periodic unit box."""
        return pm.Mesh((self.nodes,) * self.ndim, (1.0,) * self.ndim)

    def columns(self) -> dict[str, Any]:
        """Return the case as columns of a CSV file."""
        return dict(direction=self.direction, ndim=self.ndim, window=self.window, dtype=self.dtype, nodes=self.nodes,
                    N=self.count, order=self.order)  # fmt: skip

    def plan(self, method: str, backend: str, mesh: pm.Mesh | None = None, threads: int | None = None) -> pm.Plan:
        """Return a plan with room for the particles, in which ``method`` serves the case's direction."""
        keyword: dict[str, Any] = {"method" if self.direction == "spread" else "interpolation": method}
        plan = pm.Plan(mesh or self.mesh, self.window, dtype=self.dtype, backend=backend, threads=threads, **keyword)
        plan.reserve(self.count)
        return plan

    def candidates(self, place: Place) -> tuple[str, dict[str, Any]]:
        """Return the automatic choice, and what each method says that does not decline."""
        with self.plan("auto", place.name) as plan:
            asked = {m.name: inside.ask(plan, m) for m in place.methods(self.direction)}
            return inside.automatic(plan, self.direction), {n: c for n, c in asked.items() if c.reason is None}


def of_kinds(small: bool, sizes: Any) -> list[Case]:
    """Return cases of all kinds; ``sizes`` returns the nodes along an axis for a kind."""
    kinds = itertools.product(DIRECTIONS, (2, 3), WINDOWS, DTYPES)
    return [
        Case(direction, *kind, nodes)
        for direction, *kind in kinds
        if not small or tuple(kind) in SMALL_KINDS
        for nodes in ((SMALL_NODES[kind[0]],) if small else sizes(*kind))
    ]


def cloud(case: Case, seed: int = SEED) -> np.ndarray:
    """Return the paper's particles (N, d) in the unit box, in the case's precision."""
    rng = np.random.default_rng(seed)
    node = np.indices((case.nodes,) * case.ndim).reshape(case.ndim, -1).T
    x = (node + rng.uniform(-2, 2, node.shape)) / case.nodes % 1.0
    if case.order == "shuffled":
        rng.shuffle(x)
    x = x.astype(case.dtype)
    x[x >= 1] = 0  # rounded up to the opposite face
    return x


def bump(x: np.ndarray, width: float) -> np.ndarray:
    """Return ``exp(-|x - 1/2|^2 / width)`` at positions (..., d), in double precision."""
    return np.exp(-((x.astype(np.float64) - 0.5) ** 2).sum(-1) / width)


def on_nodes(mesh: pm.Mesh, width: float) -> np.ndarray:
    """Return the function on all nodes of a mesh, ghosts included."""
    axes = [mesh.nodes(axis, ghosts=True) for axis in range(mesh.ndim)]
    field = np.ones(())
    for x in axes:  # a product of functions of one coordinate
        field = field[..., None] * np.exp(-((x - 0.5) ** 2) / width)
    return field


def inputs(case: Case, seed: int = SEED) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return positions, the function as values or as a field, and the shape of the result."""
    x = cloud(case, seed)
    if case.direction == "spread":
        return x, bump(x, THEIR_WIDTH).astype(case.dtype), case.mesh.shape
    return x, on_nodes(case.mesh, THEIR_WIDTH).astype(case.dtype), (case.count,)


def call_of(case: Case, plan: pm.Plan, source: Any, out: Any = None) -> Any:
    """Spread or interpolate, as the case says."""
    return (plan.spread if case.direction == "spread" else plan.interpolate)(source, out=out)
