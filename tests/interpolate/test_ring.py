# SPDX-License-Identifier: BSD-3-Clause
"""Rings: steps without particles, tiles that several groups take, levels around the mesh and beyond it."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.interpolate import ring


def both(backend, mesh, x, field, options, **kinds):
    """Values and gradients by ``ring`` and by ``particle``."""
    results = []
    for name in ("ring", "particle"):
        with pm.Plan(mesh, dtype=x.dtype, backend=backend.name, interpolation=name,
                     options={"ring": options} if name == "ring" else None, **kinds) as plan:  # fmt: skip
            plan.set_positions(backend.array(x))
            results.append([backend.host(a) for a in plan.value_and_gradient(backend.array(field))])
    return zip(*results, strict=True)


def field_on(mesh, dtype, components, rng):
    field = rng.standard_normal((*mesh.field_shape, components))
    if components == 2:
        return (field @ [1, 1j]).astype(np.result_type(dtype, np.complex64))
    return (
        np.ascontiguousarray(np.moveaxis(field, -1, 0)).astype(dtype) if components > 1 else field[..., 0].astype(dtype)
    )


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("periodic", [True, False, (True, False, True)])
@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize(
    ("shape", "window", "dtype", "step"),
    [
        ((23,), "bspline4", "float32", (4,)),
        ((19, 22), "bspline3", "float64", (6, 12)),
        ((29, 17, 22), "bspline2", "float32", (3, 6, 12)),
        ((31, 14, 23), "bspline5", "float64", (2, 8, 11)),
        ((37, 13, 20), "bspline6", "float64", (4, 4, 8)),
        ((26, 15, 18), "bspline9", "float32", (4, 4, 8)),
        ((7, 7, 7), "bspline6", "float32", (3, 3, 10)),
    ],
)
def test_a_ring_reads_what_particle_reads(backend, shape, window, dtype, step, components, periodic):
    rng = np.random.default_rng(len(shape) + components)
    if isinstance(periodic, tuple):
        periodic = periodic[-len(shape) :]
    mesh = pm.Mesh(shape, (1.0,) * len(shape), periodic=periodic)
    x = rng.random((500, len(shape))).astype(dtype)
    around = np.broadcast_to(periodic, len(shape))
    edge = np.array([int(window[-1]) / n for n in shape])
    x = np.where(around, x, edge / 2 + x * np.maximum(0, 1 - 1.1 * edge)).astype(dtype)
    for got, expected in both(backend, mesh, x, field_on(mesh, dtype, components, rng), {"shape": step, "steps": 2},
                              window=window, components=components):  # fmt: skip
        scale = np.abs(expected).max() * (1e-5 if dtype == "float32" else 1e-13)
        np.testing.assert_allclose(got, expected, rtol=0, atol=scale)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_may_be_empty_anywhere_and_crowded_ones_are_shared(backend, dtype):
    rng = np.random.default_rng(7)
    mesh = pm.Mesh((40, 9, 12), (40.0, 9.0, 12.0))
    # Of each tile along x: the first steps, those in the middle or the last have no particle; one has a crowd.
    levels = np.concatenate([[4, 5, 11], [12, 23], np.full(300, 29), [30], [39, 39]])
    x = np.column_stack([levels + rng.random(len(levels)), 9 * rng.random(len(levels)), 12 * rng.random(len(levels))])
    x = rng.permutation(x.astype(dtype))
    options = {"shape": (2, 9, 12), "steps": 6, "particles": 64}
    for got, expected in both(
        backend, mesh, x, field_on(mesh, dtype, 2, rng), options, window="bspline4", components=2
    ):
        atol = np.abs(expected).max() * (1e-5 if dtype == "float32" else 1e-13)
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("components", [3, 5])
def test_channels_go_through_a_column_one_behind_the_other(backend, components):
    rng = np.random.default_rng(components)
    mesh = pm.Mesh((18, 12, 14), (1.0, 1.0, 1.0))
    x = rng.random((200, 3)).astype("float32")
    for got, expected in both(backend, mesh, x, field_on(mesh, "float32", components, rng), {"shape": (2, 6, 12)},
                              window="bspline4", components=components):  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


CHOICES = itertools.product((1, 7, 64, 256), (1, 4), (1, 24))


@pytest.mark.parametrize(("along", "step", "most"), list(CHOICES))
def test_steps_of_a_tile_fill_the_device(along, step, most):
    for columns, at_once in itertools.product((1, 30, 528), (2, 396)):

        def rounds(steps, columns=columns, at_once=at_once):
            return -(-columns * -(-along // (step * steps)) // at_once)

        steps = ring._steps(along, step, most, columns, at_once)
        assert 1 <= steps <= min(most, -(-along // step))
        allowed = range(1, min(most, -(-along // step)) + 1)
        assert all(rounds(steps) * steps <= rounds(n) * (n + ring._BEGIN) for n in allowed)
