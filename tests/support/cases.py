# SPDX-License-Identifier: BSD-3-Clause
"""What a row of the covering array stands for: mesh, particles, values, and the dense matrices that these give."""

import functools
from typing import NamedTuple

import numpy as np

import oracle
from covering import covering
from devices import laws
from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.window import Window, window_of

SKEWED = np.array([[2.0, 0.0, 0.0], [0.3, 1.5, 0.0], [-0.4, 0.5, 2.5]])
ORIGIN = np.array([0.25, -1.0, 3.0])
FACTORS = {
    "method": [str(law) for law in laws()],
    "window": [*(f"bspline{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 16)), "m4prime", "peskin4", "kaiser_bessel6"],
    "precision": ["float32", "float64", "mixed"],
    "kind": ["real", "complex"],
    "dimension": ["1", "2", "3"],
    "boundary": ["periodic", "open-cells", "open-faces", "mixed", "ghosts", "triclinic", "triclinic-mixed"],
    "size": ["odd", "prime", "even", "one", "below-support", "anisotropic"],
    "batch": ["none", "1", "2", "3", "5", "2x3"],
    "layout": ["planar", "interleaved", "strided", "reversed"],
    "count": ["0", "1", "2", "31", "32", "33"],
}


class Row(NamedTuple):
    method: str
    window: str
    precision: str
    kind: str
    dimension: str
    boundary: str
    size: str
    batch: str
    layout: str
    count: str


@functools.cache
def rows():
    """Every pair of values of any two factors, in fewer rows than a tenth more than the largest two factors need."""
    return [Row(*values) for values in covering(FACTORS)]


class Case(NamedTuple):
    mesh: Mesh
    window: Window
    positions: np.ndarray
    values: np.ndarray  # (*batch, N)
    vectors: np.ndarray  # (*batch, N, d)
    field: np.ndarray  # (*batch, *field_shape)


def mesh_of(row, window):
    d = int(row.dimension)
    below = max(1, window.support - 1)
    sizes = {
        "odd": (5, 9, 7), "prime": (13,) * 3, "even": (8, 6, 10), "one": (1,) * 3, "below-support": (below,) * 3,
        "anisotropic": (40, 3, 4),
    }[row.size][:d]  # fmt: skip
    lengths = np.diagonal(SKEWED)[:d]
    skewed = row.boundary.startswith("triclinic")
    periodic, offset, ghosts = (True,) * d, (0.0,) * d, ((0, 0),) * d
    if row.boundary == "open-cells":
        periodic, offset = (False,) * d, (0.5,) * d
    elif row.boundary == "open-faces":
        periodic, sizes = (False,) * d, tuple(max(2, n) for n in sizes)
    elif row.boundary in ("mixed", "triclinic-mixed"):
        periodic, offset = (False, True, False)[:d], (0.5, 0.25, 0.0)[:d]
        sizes = tuple(max(2, n) if a == 2 else n for a, n in enumerate(sizes))
    elif row.boundary == "ghosts":
        reach = window.support // 2 + 1
        periodic, offset = (True, False, True)[:d], (-0.3, 0.5, 0.0)[:d]
        ghosts = ((reach, reach), (1, 2), (reach, reach + 1))[:d]
    box = Box(SKEWED[:d, :d] if skewed else lengths, ORIGIN[:d], periodic)
    return Mesh(sizes, box, offset=offset, ghosts=ghosts)


def case_of(row, seed):
    rng = np.random.default_rng(seed)
    window = window_of(row.window)
    mesh = mesh_of(row, window)
    d, count = mesh.ndim, int(row.count)
    real = np.float32 if row.precision != "float64" else np.float64
    s = np.where(mesh.periodic, rng.uniform(-1, 2, (count, d)), rng.uniform(0.001, 0.999, (count, d)))
    positions = s @ mesh.box.matrix + mesh.box.origin
    if row.precision == "float32":
        positions = positions.astype(np.float32)
    batch = {"none": (), "2x3": (2, 3)}.get(row.batch)
    batch = (int(row.batch),) if batch is None else batch

    def numbers(*shape):
        x = rng.normal(size=batch + shape)
        if row.kind == "complex":
            return (x + 1j * rng.normal(size=x.shape)).astype(np.result_type(real, np.complex64))
        return x.astype(real)

    return Case(mesh, window, positions, numbers(count), numbers(count, d), numbers(*mesh.field_shape))


def matrices(mesh, window, positions):
    """Return (N, nodes) weights, (N, d, nodes) slopes, bounds of both, (N,) sums of all weights.

    The oracle's stencils axis by axis, added up on dense axes and multiplied: what its loops over nodes do.
    The bounds have every term's absolute value: terms may cancel where an axis wraps round more than once.
    """
    count, d = len(positions), mesh.ndim
    u = oracle.node_coordinates(mesh, positions)
    jacobian = np.array(mesh.intervals)[:, None] * np.linalg.inv(np.asarray(mesh.box.matrix)).T
    nodes = int(np.prod(mesh.field_shape))
    weights = np.zeros((2, count, *mesh.field_shape))
    slopes = np.zeros((2, count, d, *mesh.field_shape))
    total = np.ones(count)
    for p in range(count):
        axes = np.zeros((d, 2), object)
        for a in range(d):
            for derivative in (0, 1):
                dense = np.zeros((2, mesh.field_shape[a]))
                for place, weight in oracle.stencil(mesh, window, u[p, a], a, derivative):
                    if place is not None:
                        dense[:, place] += weight, abs(weight)
                axes[a, derivative] = dense
            total[p] *= sum(weight for _, weight in oracle.stencil(mesh, window, u[p, a], a))
        for kind in (0, 1):
            weights[kind, p] = _outer([axes[a, 0][kind] for a in range(d)])
            for a in range(d):
                along = _outer([axes[b, int(a == b)][kind] for b in range(d)])
                row = abs(jacobian[a]) if kind else jacobian[a]
                slopes[kind, p] += row.reshape(d, *(1,) * d) * along
    weights, slopes = weights.reshape(2, count, nodes), slopes.reshape(2, count, d, nodes)
    return weights[0], slopes[0], weights[1], slopes[1], total


def _outer(vectors):
    product = np.ones(())
    for vector in vectors:
        product = np.multiply.outer(product, vector)
    return product
