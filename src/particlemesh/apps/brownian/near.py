# SPDX-License-Identifier: BSD-3-Clause
"""The near part of the mobility: a sparse matrix of 3x3 blocks, made once per configuration and applied many times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from particlemesh.apps.brownian import formulas
from particlemesh.kernels import Backend, allocate, compile_kernel
from particlemesh.kernels.cpu import compiled, ranges, run, threads_for

_FILE = Path(__file__).with_name("near.c")
Stored = tuple[Any, Any, Any]  # start of each row, signed indices, blocks
_EMPTY: Stored = (None, None, None)


class Near:
    """Blocks ``f 1 +- u u^T`` of all pairs within the cutoff, four reals and an index each, by rows.

    Parameters
    ----------
    backend : Backend
        Where the pairs are.
    dtype : numpy.dtype
        Real type.
    radii : NumPy array (1,) or (N,)
        One radius for all, or one for each.
    splitting, viscosity : float
    threads : int, optional
        CPU threads.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, radii: np.ndarray, splitting: float, viscosity: float,
        threads: int | None,
    ) -> None:  # fmt: skip
        self.backend, self.dtype, self.threads = backend, dtype, threads
        self.splitting, self.viscosity = splitting, viscosity
        self.nodes, self.weights = formulas.quadrature(splitting)
        self.one_radius = int(len(radii) == 1)
        self_terms = formulas.near_self(radii, splitting) / viscosity
        self.radii, self.self = radii, self_terms.astype(dtype)
        if backend.name != "cpu":
            wide = np.float64 if backend.facts().get("HAS_FP64", 1) else np.float32
            rest = [splitting, 1 / viscosity]
            self._quadrature = backend.upload(np.concatenate([self.nodes, self.weights, rest]).astype(wide))
            self.radii, self.self = backend.upload(radii.astype(wide)), backend.upload(self.self)
        self.count, self.stored = 0, _EMPTY
        self.order: Any = None

    @property
    def pairs(self) -> int:
        """Number of stored blocks: each pair counts from both sides."""
        return 0 if self.count == 0 else int(self.stored[1].shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the stored matrix."""
        return sum(int(array.nbytes) for array in (*self.stored, self.order) if array is not None)

    def blocks(self, count: int, start: Any, index: Any, vector: Any, order: Any = None) -> Stored:
        """Return the matrix of native lists in compressed rows: pairs by row, second particle, vector to it.

        ``index`` is overwritten. On a GPU ``order`` (N,) has the particle of each row.
        """
        blocks = allocate(self.backend, (int(index.shape[0]), 4), self.dtype, "the near part of the mobility")
        if count and index.shape[0]:
            if self.backend.name == "cpu":
                run(
                    _blocks, self._threads(25 * len(index)), start, index, vector, self.radii, self.splitting,
                    1 / self.viscosity, self.nodes, self.weights, blocks, max(1, count // 256),
                    steps=100.0 * len(index),
                )  # fmt: skip
            else:
                wide = int(self.dtype == np.float64 or self.backend.facts().get("HAS_FP64", 1))
                facts = {"COORDINATE_IS_DOUBLE": wide, "VECTORS": 1, "SPLIT": 1, "ROW_LANES": 32, "PARTS": 1}
                kernel = compile_kernel(self.backend, _FILE, "near_blocks", self.dtype, **facts)
                kernel(
                    count * self.backend.group_size, start, index, vector, order, self.radii, self._quadrature, blocks,
                    count, formulas.NODES, self.one_radius,
                )  # fmt: skip
        return start, index, blocks

    def place(self, count: int, stored: Stored, order: Any = None) -> None:
        """Take the matrix of ``count`` spheres; on a GPU ``order`` has the sphere of each row."""
        self.count, self.stored, self.order = count, stored, order

    def multiply(self, force: Any, velocity: Any, far: Any = None, shapes: Any = None) -> None:
        """Write the near part's velocities plus the far part's, on the CPU.

        Parameters
        ----------
        force, velocity : NumPy array (b, N, 3)
            Dense.
        far : NumPy array (b, parts, N, 3), optional
            What the mesh gave.
        shapes : NumPy array (parts, N), optional
            Factors of the parts; one part has none.
        """
        batch, count = len(force), self.count
        if not (batch and count):
            return
        share, threads = max(1, count // 256), self._threads(self.pairs * batch // 8)
        rows = (*self.stored, self.self)
        steps = 3.0 * self.pairs * batch
        if batch == 1:
            run(_multiply_one, threads, *rows, force[0], velocity[0], share, steps=steps)
        else:  # right-hand sides of a particle side by side
            beside = np.ascontiguousarray(force.reshape(batch, -1).T).reshape(count, 3, batch)
            sums = np.empty_like(beside)
            run(_multiply_many, threads, *rows, beside, sums, share, steps=steps)
            velocity[...] = np.moveaxis(sums, -1, 0)
        if far is not None:
            velocity += far[:, 0] if shapes is None else (shapes[:, :, None] * far).sum(1)

    def _threads(self, work: int) -> int:
        return threads_for(self.threads, work)


@compiled
def _blocks(start, index, vector, radii, xi, scale, nodes, weights, blocks, share, counter):
    """Write the block of each pair; see near.c."""
    last = radii.size - 1
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            for n in range(start[i], start[i + 1]):
                j = index[n]
                d0, d1, d2 = float(vector[n, 0]), float(vector[n, 1]), float(vector[n, 2])
                r = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2)
                f, g = formulas.near(r, radii[min(i, last)], radii[min(j, last)], xi, nodes, weights)
                unit = np.sqrt(abs(g) * scale) / r if r > 0 else 0.0
                blocks[n, 0] = f * scale
                blocks[n, 1], blocks[n, 2], blocks[n, 3] = unit * d0, unit * d1, unit * d2
                if g < 0:
                    index[n] = -1 - j


@compiled
def _multiply_one(start, index, blocks, self_terms, force, velocity, share, counter):
    last = self_terms.size - 1
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            s = self_terms[min(i, last)]
            v0, v1, v2 = s * force[i, 0], s * force[i, 1], s * force[i, 2]
            for n in range(start[i], start[i + 1]):
                at = index[n]
                j = at if at >= 0 else -1 - at
                q0, q1, q2 = force[j, 0], force[j, 1], force[j, 2]
                f, u0, u1, u2 = blocks[n, 0], blocks[n, 1], blocks[n, 2], blocks[n, 3]
                along = u0 * q0 + u1 * q1 + u2 * q2
                g = along if at >= 0 else -along
                v0 += f * q0 + g * u0
                v1 += f * q1 + g * u1
                v2 += f * q2 + g * u2
            velocity[i, 0], velocity[i, 1], velocity[i, 2] = v0, v1, v2


@compiled
def _multiply_many(start, index, blocks, self_terms, force, velocity, share, counter):
    """Multiply right-hand sides that lie side by side, (N, 3, b)."""
    last, batch = self_terms.size - 1, force.shape[2]
    for begin, end in ranges(counter, start.size - 1, share):
        for i in range(begin, end):
            s, v, q = self_terms[min(i, last)], velocity[i], force[i]
            for b in range(batch):
                v[0, b], v[1, b], v[2, b] = s * q[0, b], s * q[1, b], s * q[2, b]
            for n in range(start[i], start[i + 1]):
                at = index[n]
                q = force[at if at >= 0 else -1 - at]
                f, u0, u1, u2 = blocks[n, 0], blocks[n, 1], blocks[n, 2], blocks[n, 3]
                w0, w1, w2 = (u0, u1, u2) if at >= 0 else (-u0, -u1, -u2)
                for b in range(batch):
                    along = u0 * q[0, b] + u1 * q[1, b] + u2 * q[2, b]
                    v[0, b] += f * q[0, b] + w0 * along
                    v[1, b] += f * q[1, b] + w1 * along
                    v[2, b] += f * q[2, b] + w2 * along
