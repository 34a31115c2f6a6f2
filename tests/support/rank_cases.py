# SPDX-License-Identifier: BSD-3-Clause
"""Particles for distributed plans, the same on every rank, and what one rank makes of them."""

from typing import NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd

OPTIONS = dict(method="colouring", interpolation="tiles", threads=1)


class Row(NamedTuple):
    """A mesh, how it is cut, and what is spread."""

    name: str
    shape: tuple
    periodic: tuple = True
    box: object = None  # unit lengths by default
    offset: float = 0.0
    window: str = "bspline4"
    ghosts: str = "nodes"
    parts: object = "blocks"
    per_rank: int = 1
    dtype: type = np.float64
    batch: tuple = ()
    count: int = 40

    @property
    def mesh(self):
        box = (1.0,) * len(self.shape) if self.box is None else self.box
        return pm.Mesh(self.shape, pm.Box(box, periodic=self.periodic), offset=self.offset)


def positions(mesh, count, seed=1, clustered=False):
    """Random particles, and one on each corner, edge and face, on the nodes' planes and an ulp beside them."""
    rng, ndim = np.random.default_rng(seed), mesh.ndim
    fractions = rng.random((count, ndim))
    if clustered:
        fractions = 0.3 + 0.05 * rng.standard_normal((count, ndim)) % 0.6
    special = np.stack(np.meshgrid(*[[0.0, 0.37, 1.0]] * ndim, indexing="ij"), -1).reshape(-1, ndim)
    planes = [np.arange(n) / n for n in mesh.intervals]
    on_planes = np.stack([np.resize(p, max(mesh.intervals)) for p in planes], 1)
    beside = np.nextafter(on_planes, rng.integers(0, 2, on_planes.shape))
    return np.concatenate([fractions, special, on_planes, beside]) @ mesh.box.matrix + mesh.box.origin


def numbers(shape, dtype, seed=2):
    rng = np.random.default_rng(seed)
    reals = rng.standard_normal((2, *shape))
    values = reals[0] + 1j * reals[1] if np.dtype(dtype).kind == "c" else reals[0]
    return values.astype(dtype)


def mine(world, count, seed=3):
    """Return the particles that this rank has: any, in any order."""
    rng = np.random.default_rng(seed)
    owner, order = rng.integers(0, world.size, count), rng.permutation(count)
    return order[owner[order] == world.rank]


def listed(field):
    return field if isinstance(field, tuple) else (field,)


def cut(domain, rank, field):
    """Return the parts of a whole field that a rank owns, as plans give and take them."""
    fields = tuple(field[(..., *_slices(part))] for part in domain.parts(rank))
    return fields if domain.per_rank > 1 else fields[0]


def assembled(domain, world, fields):
    """Return the whole field, on every rank."""
    gathered = world.allgather([np.array(f) for f in listed(fields)])
    batch = gathered[0][0].shape[: -domain.mesh.ndim]
    whole = np.full((*batch, *domain.mesh.shape), 99, gathered[0][0].dtype)
    for rank, some in enumerate(gathered):
        for part, field in zip(domain.parts(rank), some, strict=True):
            assert field.shape == (*batch, *part.shape)
            whole[(..., *_slices(part))] = field
    return whole


def _slices(part):
    return tuple(slice(a, a + n) for a, n in zip(part.lower, part.shape, strict=True))


def near(got, expected, scale=None):
    """Check equality to 1e-13 of the largest number."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.size:
        limit = 1e-13 * max(1.0, float(abs(expected).max()) if scale is None else scale)
        assert float(abs(got - expected).max()) <= limit, float(abs(got - expected).max())


def plan_of(row, world, **options):
    domain = pmd.Domain(row.mesh, world.size, row.parts, row.per_rank)
    settings = OPTIONS | dict(ghosts=row.ghosts) | options
    return domain, pmd.Plan(domain, world, row.window, **settings)
