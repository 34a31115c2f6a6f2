# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: their cloud, their function, and the sizes.

"We initialize one particle on each mesh node in the unit square and perturb the particle positions by uniform random
numbers in [-2h, 2h]. This leads to a quasi-random particle distribution with 0 to 16 particles per mesh cell."
Particles that leave the square come back on its other side: the box is periodic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.choosing.candidates import Candidate, ask
from particlemesh.methods.contract import Problem
from particlemesh.window import window_of

WINDOWS = {"cic": "linear", "m4prime": "M'4"}  # and what the paper calls them
ORDERS = {"cic": 2, "m4prime": 3}
DTYPES = ("float32", "float64")
DIRECTIONS = {"spread": "P→M", "interpolate": "M→P"}
THEIR_WIDTH = 15.0  # of exp(-|x - 1/2|^2 / 15)
SEED = 2013
# Nodes of an axis. The paper's tables end with the last: 4096 k particles in 2-D, 2048 k in 3-D.
TABLE_NODES = {2: 2048, 3: 128}
NODES = {2: (512, 1024, 2048), 3: (32, 64, 128)}
SMALL_NODES = {2: 128, 3: 24}


@dataclass(frozen=True)
class Case:
    """One problem: what is moved which way on how many nodes along each axis."""

    direction: str
    ndim: int
    window: str
    dtype: str
    nodes: int
    order: str = "nodes"  # particles come in the order of the nodes that they were put on, or shuffled

    def __str__(self) -> str:
        size = f"{self.nodes}^{self.ndim}" + (f" {self.order}" if self.order != "nodes" else "")
        return f"{DIRECTIONS[self.direction]} {self.ndim}-D {WINDOWS[self.window]} {self.dtype} {size}"

    @property
    def count(self) -> int:
        """Number of particles, and of nodes."""
        return self.nodes**self.ndim

    @property
    def mesh(self) -> pm.Mesh:
        """The periodic unit box."""
        return pm.Mesh((self.nodes,) * self.ndim, (1.0,) * self.ndim)

    def columns(self) -> dict[str, Any]:
        """Return the case as columns of a CSV."""
        return dict(direction=self.direction, ndim=self.ndim, window=self.window, dtype=self.dtype, nodes=self.nodes,
                    N=self.count, order=self.order)  # fmt: skip

    def plan(self, method: str, backend: str, mesh: pm.Mesh | None = None, threads: int | None = None) -> pm.Plan:
        """Return a plan in which ``method`` serves the case's direction."""
        which: dict[str, Any] = {"method" if self.direction == "spread" else "interpolation": method}
        return pm.Plan(mesh or self.mesh, self.window, dtype=self.dtype, backend=backend, threads=threads, **which)

    def declines(self, method: Any, backend: Any) -> str | None:
        """Return why a method does not serve the case, or None."""
        return self.asked(method, backend).reason

    def asked(self, method: Any, backend: Any) -> Candidate:
        """Return what a method says of the case, for one call."""
        problem = Problem(self.mesh, window_of(self.window), np.dtype(self.dtype), 1, 1, self.count, False, backend)
        return ask(method, problem)


def cloud(case: Case, seed: int = SEED) -> np.ndarray:
    """Return their particles, (N, d) in the unit box and in the case's precision."""
    rng = np.random.default_rng(seed)
    node = np.indices((case.nodes,) * case.ndim).reshape(case.ndim, -1).T
    x = (node + rng.uniform(-2, 2, node.shape)) / case.nodes % 1.0
    if case.order == "shuffled":
        rng.shuffle(x)
    x = x.astype(case.dtype)
    x[x >= 1] = 0  # rounded up to the other face
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
    """Return positions, what is spread or interpolated (their function), and the shape of the result."""
    x = cloud(case, seed)
    if case.direction == "spread":
        return x, bump(x, THEIR_WIDTH).astype(case.dtype), case.mesh.shape
    return x, on_nodes(case.mesh, THEIR_WIDTH).astype(case.dtype), (case.count,)


def call_of(case: Case, plan: pm.Plan, source: Any, out: Any = None) -> Any:
    """Spread or interpolate, as the case says."""
    return (plan.spread if case.direction == "spread" else plan.interpolate)(source, out=out)
