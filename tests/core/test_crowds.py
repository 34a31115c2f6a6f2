# SPDX-License-Identifier: BSD-3-Clause
"""Very many particles in a small part of the box, and all in one cell: errors of float32 stay within their bounds."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm

CROWDS = ("cluster", "cell")
FILLED = 0.01  # of the volume, by a cluster
CELL = np.array([31, 0, 17])  # stencils of its particles reach over two borders of a box of 32
STEPS = 2**16  # places of a coordinate within the cell: exact in float32


def cube(nodes):
    return pm.Mesh((nodes,) * 3, (1.0, 1.0, 1.0))


@functools.lru_cache(maxsize=2)
def drawn(crowd, count, nodes):
    """Positions, values and a field, all of float32."""
    rng, real = np.random.default_rng(count), np.float32
    if crowd == "cluster":
        side = real(FILLED ** (1 / 3))
        x = (1 - side) / 2 + side * rng.random((count, 3), real)
    else:
        x = ((CELL + rng.integers(0, STEPS, (count, 3)) / STEPS) / nodes).astype(real)
    # Values add up to six times what chance would bring, so that no sum is nearly zero and all error.
    q = rng.standard_normal(count, real) + real(6 / np.sqrt(count))
    return x, q, rng.standard_normal((nodes,) * 3, real)


def bound(method, crowd, count, nodes, support):
    """The relative error in the l2 norm that a field of float32 may have.

    Weights and products take half of 1e-6. Every add to a node also rounds, by 2^-26 of the sum or so, and n of them go
    astray by sqrt(n) times as much; twice that is allowed. Warps of a walk add a hundred particles or more at once, and
    integers are exact.
    """
    meet = count if crowd == "cell" else count / (FILLED * nodes**3) * support**3
    at_once = {"walk": 100, "walk_fixed": np.inf, "fixed_point": np.inf}.get(method, 1)
    return max(1e-6, 2**-25 * np.sqrt(meet / at_once))


def check_field(result, expected, q, allowed):
    result = result.astype(float)
    assert np.linalg.norm((result - expected).ravel()) <= allowed * np.linalg.norm(expected.ravel())
    assert abs(result.sum() - q.sum(dtype=float)) <= 1e-6 * np.abs(q).sum(dtype=float)


def check_values(result, expected):
    assert np.linalg.norm(result.astype(float) - expected) <= 1e-6 * np.linalg.norm(expected)


# ---- every method ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def by_hand(crowd, count, nodes, support):
    """A field and values as of the oracle, many particles at once."""
    (x, q, f), window, field, values = drawn(crowd, count, nodes), pm.bspline(support), np.zeros(nodes**3), []
    for part in np.array_split(np.arange(count), 1 + count // 5000):
        u = oracle.node_coordinates(cube(nodes), x[part])
        at = np.floor(u).astype(int)[:, None] + np.arange(1 - support // 2, 1 + support // 2)[:, None]
        a, b, c = np.moveaxis(window(at - u[:, None]), 2, 0)
        weights = np.einsum("pi,pj,pk->pijk", a, b, c)
        a, b, c = np.moveaxis(at % nodes, 2, 0)
        place = (a[:, :, None, None] * nodes + b[:, None, :, None]) * nodes + c[:, None, None, :]
        terms = weights * q[part, None, None, None]
        field += np.bincount(place.ravel(), terms.ravel(), nodes**3)
        values.append((weights * f.ravel()[place]).sum((1, 2, 3)))
    return field.reshape(f.shape), np.concatenate(values)


@pytest.mark.parametrize("crowd", CROWDS)
def test_every_method_bears_a_crowd(backend, law, crowd):
    count, nodes, support = 200_000 if backend.name == "cuda" else 20_000, 32, 4
    x, q, f = drawn(crowd, count, nodes)
    field, values = by_hand(crowd, count, nodes, support)
    real = law.real(backend, cube(nodes), f"bspline{support}", count)
    x, q, f = (array.astype(real) for array in (x, q, f))
    with law.plan(cube(nodes), f"bspline{support}") as plan:
        plan.set_positions(backend.array(x))
        if law.direction == "spread":
            result = backend.host(plan.spread(backend.array(q)))
            check_field(result, field, q, bound(law.method.name, crowd, count, nodes, support))
        else:
            check_values(backend.host(plan.interpolate(backend.array(f))), values)


# ---- the most -------------------------------------------------------------------------------------------------------


def product(x, q, nodes, support):
    """The field of particles in one cell: weights along x times values, times weights along y and z."""
    near = np.arange(1 - support // 2, 1 + support // 2)
    table = pm.bspline(support)(near[:, None] - np.arange(STEPS) / STEPS)
    total = np.zeros((support, support**2))
    for first in range(0, len(x), 100_000):
        part = slice(first, first + 100_000)
        step = ((x[part].astype(float) * nodes - CELL) * STEPS).astype(int)
        a, b, c = (table[:, step[:, axis]] for axis in range(3))
        total += (a * q[part]) @ (b[:, None] * c).reshape(support**2, -1).T
    field = np.zeros((nodes,) * 3)
    field[np.ix_(*[(cell + near) % nodes for cell in CELL])] = total.reshape((support,) * 3)
    return field


@functools.lru_cache(maxsize=1)
def in_double(backend, crowd, count, nodes, support):
    """A field and values by the particle method in double."""
    x, q, f = drawn(crowd, count, nodes)
    options = dict(method="particle", interpolation="particle", dtype="float64", backend=backend.name)
    with pm.Plan(cube(nodes), f"bspline{support}", **options) as plan:
        plan.set_positions(backend.array(x.astype(float)))
        values = backend.host(plan.interpolate(backend.array(f.astype(float))))
        if crowd == "cell":  # where all adds would meet
            return product(x, q, nodes, support), values
        return backend.host(plan.spread(backend.array(q.astype(float)))), values


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(
    ("spread", "interpolate", "order"),
    [("walk", "walk", "caller"), ("walk_fixed", "walk", "caller"), ("ordered", "ordered", "caller"),
     ("walk", "walk", "sorted")],
)  # fmt: skip
@pytest.mark.parametrize("support", [4, 6])
@pytest.mark.parametrize("crowd", CROWDS)
def test_ten_million_in_a_crowd(backend, spread, interpolate, order, support, crowd):
    # On what may be a processor a few show that the test itself is right.
    count, nodes = (10_000_000, 128) if backend.name == "cuda" else (3000, 32)
    x, q, f = drawn(crowd, count, nodes)
    field, values = in_double(backend, crowd, count, nodes, support)
    options = dict(method=spread, interpolation=interpolate, order=order, dtype="float32", backend=backend.name)
    with pm.Plan(cube(nodes), f"bspline{support}", **options) as plan:
        plan.set_positions(backend.array(x))
        taken = backend.host(plan.order) if order == "sorted" else slice(None)
        result = backend.host(plan.spread(backend.array(q[taken])))
        check_field(result, field, q, bound(spread, crowd, count, nodes, support))
        check_values(backend.host(plan.interpolate(backend.array(f))), values[taken])
