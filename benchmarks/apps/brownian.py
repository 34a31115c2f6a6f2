# SPDX-License-Identifier: BSD-3-Clause
"""The mobility of spheres: accuracy, a product beside a sparse matrix, and spreading inside a Lanczos run.

Rows of ``part``, in the order of measuring, the quick ones first:

- ``product``: a product of 10,000 spheres with right-hand sides, with parameters for so many. ``csr`` is the same
  operator, with the same cutoff, window and mesh, from sparse matrices of SciPy, or of cuSPARSE through CuPy: one of
  the near part, and one that spreads and interpolates. It is timed with these parameters and with those for one vector.
  Its ``error`` is its distance from the mobility's velocities.
- ``lanczos``: positions and the square root of one vector, to 20 iterations or its tolerance, first with the method
  that is chosen, then with each spreading method that can serve: the fastest by prediction first, as each of them
  compiles. ``positions_s`` has positions alone, and ``spread_s`` the preparation and 20 spreads of three components.
- ``accuracy``: velocities of 1,000 spheres at volume fraction 0.1 against a dense Ewald sum by other formulas, on the
  host.

Each row of ``results/brownian-DEVICE.csv`` is written as soon as it is measured.

    python benchmarks/apps/brownian.py [--backend cuda] [--only product lanczos accuracy] [--small] [--out DIR]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))  # the dense Ewald sum

import numpy as np
import scipy.sparse

import particlemesh as pm
from harness import inside, runs
from harness.place import ERRORS, Place
from harness.tables import short
from mobility import mobility
from particlemesh.apps.brownian import RPY


def suspension(count: int) -> tuple[float, np.ndarray]:
    """Return the box's length and centres at volume fraction 0.1."""
    length = (count * 4 / 3 * np.pi / 0.1) ** (1 / 3)
    return length, np.random.default_rng(1).uniform(0, length, (count, 3))


def seconds(place: Place, call: Callable[[], Any], repeats: int = 5) -> float:
    """Return the least seconds of a call that runs alone, after a first one."""
    call()
    times = []
    for _ in range(repeats):
        place.wait()
        begin = time.perf_counter()
        call()
        place.wait()
        times.append(time.perf_counter() - begin)
    return min(times)


def accuracy(place: Place, count: int) -> Iterator[dict[str, Any]]:
    """Yield the errors of velocities for several accuracies."""
    length, x = suspension(count)
    forces = np.random.default_rng(2).normal(size=(4, count, 3))
    exact = (forces.reshape(4, -1) @ mobility((length,) * 3, x, 1.0)).reshape(forces.shape)
    for asked in (1e-3, 1e-6, 1e-9):
        rpy = RPY((length,) * 3, viscosity=1.0, accuracy=asked, backend=place.name).set_positions(x)
        error = float(np.linalg.norm(rpy.velocity(forces) - exact) / np.linalg.norm(exact))
        yield {"part": "accuracy", "count": count, "method": "RPY", "accuracy": asked, "error": short(error)}


def product(place: Place, count: int, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield seconds of products by the mobility, then by sparse matrices."""
    length, x = suspension(count)
    native = place.upload(x.astype(dtype))
    facts = {"part": "product", "count": count, "dtype": dtype}
    rights = {
        vectors: place.upload(np.random.default_rng(3).normal(size=(vectors, count, 3)).astype(dtype))
        for vectors in (1, 4, 16)
    }
    mobilities = {}
    for vectors, forces in rights.items():
        rpy = RPY((length,) * 3, accuracy=1e-6, vectors=vectors).set_positions(native)
        chosen: Any = rpy.parameters
        mobilities[vectors] = rpy, {"accuracy": chosen.error, "nodes": chosen.shape[0], "cutoff": chosen.cutoff}
        out = place.backend.empty(forces.shape, dtype)
        call = seconds(place, lambda r=rpy, f=forces, o=out: r.velocity(f, out=o, check=False))
        yield {
            **facts, "vectors": vectors, "method": "RPY", "call_s": short(call), "nbytes": rpy.nbytes,
            **mobilities[vectors][1],
        }  # fmt: skip
        placing = seconds(place, lambda r=rpy: r.set_positions(native))
        yield {**facts, "vectors": vectors, "method": "set_positions", "call_s": short(placing)}
    if place.name == "opencl":
        return
    for chosen_for, (rpy, parameters) in mobilities.items():
        by_csr = ByCsr(place, rpy, x.astype(dtype))
        for vectors in sorted({chosen_for, *rights} if chosen_for == 1 else {chosen_for}):
            forces = rights[vectors]
            error = abs(place.download(by_csr(forces)) - place.download(rpy.velocity(forces)))
            yield {
                **facts, "vectors": vectors, "method": "csr", "nbytes": by_csr.nbytes, **parameters,
                "call_s": short(seconds(place, lambda c=by_csr, f=forces: c(f))), "error": short(float(error.max())),
            }  # fmt: skip


class ByCsr:
    """The operator of a mobility from sparse matrices of SciPy or cuSPARSE, and the library's transforms."""

    def __init__(self, place: Place, rpy: RPY, x: np.ndarray) -> None:
        far: Any = rpy._far
        near: Any = rpy._near
        count, modes = len(x), far.solver._modes
        start, index, blocks = (place.download(a) for a in near.stored)
        minus = index < 0
        u = blocks[:, 1:]
        tensors = (
            blocks[:, :1, None] * np.eye(3) + np.where(minus, -1, 1)[:, None, None] * u[:, :, None] * u[:, None, :]
        )
        columns = np.where(minus, -1 - index, index)
        matrix = scipy.sparse.bsr_matrix((tensors, columns, start), shape=(3 * count,) * 2).tocsr()
        self_term = float(place.download(near.self)[0])
        self.shape, window = far.mesh.shape, far.solver.window
        scaled = x.astype(float) / np.array(far.mesh.spacing)
        first = np.floor(scaled + (0.5 if window.support % 2 else 0))
        centred = scaled - first - (0 if window.support % 2 else 0.5)
        weights = [window.weights(column) for column in centred.T]
        nodes = first[:, :, None].astype(int) + np.arange(window.support) - (window.support - 1) // 2
        nx, ny, nz = (nodes[:, axis] % n for axis, n in enumerate(self.shape))
        flat = (nx[:, :, None, None] * self.shape[1] + ny[:, None, :, None]) * self.shape[2] + nz[:, None, None, :]
        values = weights[0][:, :, None, None] * weights[1][:, None, :, None] * weights[2][:, None, None, :]
        rows = np.arange(count + 1) * window.support**3
        stencils = scipy.sparse.csr_matrix((values.ravel(), flat.ravel(), rows), (count, int(np.prod(self.shape))))
        if place.name == "cuda":
            import cupy
            import cupy.fft as fft
            import cupyx.scipy.sparse as sparse

            self.xp: Any = cupy
        else:
            import scipy.fft as fft

            self.xp, sparse = np, scipy.sparse
        dtype = x.dtype
        self.fft: Any = fft
        self.near = sparse.csr_matrix((matrix + self_term * scipy.sparse.identity(3 * count)).tocsr().astype(dtype))
        self.stencils = sparse.csr_matrix(stencils.astype(dtype))
        self.spread = sparse.csr_matrix(stencils.T.tocsr().astype(dtype))
        k = modes.vectors(nyquist=0)
        k2 = sum(c**2 for c in k)
        root = np.sqrt(np.where(k2 > 0, k2, 1))
        self.unit = [self.xp.asarray((c / root).astype(dtype)) for c in k]
        self.factors = self.xp.asarray((far.solver._factors * np.prod(self.shape)).astype(dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices."""
        return sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in (self.near, self.stencils, self.spread))

    def __call__(self, forces: Any) -> Any:
        xp, vectors, count = self.xp, forces.shape[0], forces.shape[1]
        beside = xp.ascontiguousarray(forces.transpose(1, 0, 2).reshape(count, -1))
        field = xp.ascontiguousarray((self.spread @ beside).T).reshape(vectors, 3, *self.shape)
        modes = self.fft.rfftn(field, axes=(-3, -2, -1)) * self.factors
        along = sum(c * modes[:, axis] for axis, c in enumerate(self.unit))
        for axis, c in enumerate(self.unit):
            modes[:, axis] -= c * along
        field = self.fft.irfftn(modes, s=self.shape, axes=(-3, -2, -1))
        far = self.stencils @ xp.ascontiguousarray(field.reshape(3 * vectors, -1).T)
        near = self.near @ xp.ascontiguousarray(forces.reshape(vectors, -1).T)
        return near.T.reshape(forces.shape) + far.reshape(count, vectors, 3).transpose(1, 0, 2)


def by_prediction(place: Place, length: float, native: Any, z: Any) -> list[str]:
    """Return "auto" and the names of the spreading methods: those with the least seconds predicted first."""
    chosen: Any = RPY((length,) * 3, accuracy=1e-4).set_positions(native).parameters
    mesh = pm.Mesh(chosen.shape, (length,) * 3)
    plan = pm.Plan(mesh, chosen.window, components=3, applications=20).set_positions(native)
    plan.spread(z[0].transpose((1, 0)))  # makes the plan's problem known

    def predicted(method: Any) -> float:
        estimate = inside.ask(plan, method)
        return math.inf if estimate.reason else estimate.total(20)

    return ["auto", *(m.name for m in sorted(place.methods("spread"), key=predicted))]


def lanczos(place: Place, count: int, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield seconds of positions and a square root with each method of spreading."""
    length, x = suspension(count)
    native = place.upload(x.astype(dtype))
    z = place.upload(np.random.default_rng(4).normal(size=(1, count, 3)).astype(dtype))
    for name in by_prediction(place, length, native, z):
        try:
            rpy = RPY((length,) * 3, accuracy=1e-4, method=name, applications=20).set_positions(native)
            chosen: Any = rpy.parameters
            mesh = pm.Mesh(chosen.shape, (length,) * 3)
            plan = pm.Plan(mesh, chosen.window, components=3, applications=20, method=name).set_positions(native)
            values = z[0].transpose((1, 0))
            field = plan.empty_field(3)

            def spreads(plan: pm.Plan = plan, values: Any = values, field: Any = field) -> None:
                plan.set_positions(native)
                for _ in range(20):
                    plan.spread(values, out=field)

            def run(rpy: RPY = rpy) -> None:
                rpy.set_positions(native)
                rpy.square_root(z, tolerance=1e-4, check=False)

            whole, positions = seconds(place, run, 3), seconds(place, lambda r=rpy: r.set_positions(native), 3)
            spread = seconds(place, spreads, 3)
        except ERRORS as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        yield {
            "part": "lanczos", "count": count, "dtype": dtype, "method": name, "vectors": 1,
            "iterations": rpy.info.iterations if rpy.info else "", "call_s": short(whole),
            "positions_s": short(positions), "spread_s": short(spread), "nbytes": rpy.nbytes, "nodes": chosen.shape[0],
            "cutoff": chosen.cutoff, "accuracy": chosen.error,
        }  # fmt: skip


COLUMNS = (
    "part", "count", "dtype", "method", "vectors", "accuracy", "error", "nodes", "cutoff", "iterations", "call_s",
    "positions_s", "spread_s", "nbytes", "device", "backend",
)  # fmt: skip


def rows(place: Place, part: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part, each with every column."""
    call, *arguments = part
    for row in call(place, *arguments):
        whole = {**dict.fromkeys(COLUMNS, ""), **row, "device": place.device, "backend": place.name}
        print({key: value for key, value in row.items() if value != ""}, flush=True)
        yield whole


def main() -> None:
    """Measure parts on a backend, each row written when it is known; a part that fails does not end the others."""
    asked = runs.parser(__doc__, ("product", "lanczos", "accuracy")).parse_args()
    count = 100 if asked.small else 10_000
    parts = [
        (product, count, "float32"), (product, count, "float64"), (lanczos, count, "float32"),
        (accuracy, 60 if asked.small else 1000),
    ]  # fmt: skip
    with runs.Run(Place(asked.backend), asked.out) as run:
        chosen = [part for part in parts if part[0].__name__ in asked.only]  # type: ignore[attr-defined]
        run.write("brownian", run.measure("mobility", chosen, lambda part: rows(run.place, part), "brownian"))
    run.finish()


if __name__ == "__main__":
    main()
