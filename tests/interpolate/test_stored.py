# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by stored weights: applied again, and stored anew for other positions, in memory that stays."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.backends import source
from particlemesh.interpolate import stored as interpolate_stored

MESH = pm.Mesh((6, 5, 7), (1.0, 2.0, 3.0), origin=(0.5, 0.0, -1.0))
WINDOW = pm.bspline(4)


def plan_of(backend, mesh=MESH, **options):
    return pm.Plan(mesh, WINDOW, backend=backend.name, dtype="float64", interpolation="stored", **options)


def positions(rng, count=20):
    return MESH.box.origin + rng.random((count, 3)) * MESH.box.lengths


@pytest.mark.parametrize("complex_values", [False, True])
def test_other_fields_and_other_positions(backend, complex_values):
    rng = np.random.default_rng(5)

    def field():
        f = rng.normal(size=(2, *MESH.shape))
        return f + 1j * rng.normal(size=f.shape) if complex_values else f

    with plan_of(backend) as plan:
        for _ in range(2):
            x = positions(rng)
            plan.set_positions(x)
            for f in (field(), field()):
                result, slope = plan.value_and_gradient(f)
                np.testing.assert_allclose(result, oracle.interpolate(MESH, WINDOW, x, f), atol=1e-13)
                np.testing.assert_allclose(slope, oracle.gradient(MESH, WINDOW, x, f), atol=1e-12)
                np.testing.assert_allclose(plan.interpolate(f), result, atol=1e-14)


def test_memory_is_reserved(backend):
    """That of weights; slopes, which are d times as many, have room from the first gradient on."""
    rng = np.random.default_rng(7)
    with plan_of(backend) as plan:
        plan.reserve(50)
        for call in (plan.interpolate, plan.value_and_gradient):
            if call == plan.value_and_gradient:
                plan.set_positions(positions(rng, 10), check=False)
                call(rng.normal(size=MESH.shape))
            before = {name: id(array) for name, array in plan.workspace.memory.arrays.items()}
            for count in (50, 20, 0):
                plan.set_positions(positions(rng, count), check=False)
                call(rng.normal(size=MESH.shape))
            assert {name: id(array) for name, array in plan.workspace.memory.arrays.items()} == before
            assert ("stored.slopes" in before) == (call == plan.value_and_gradient), (
                "slopes are stored at their first use"
            )


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_lanes_and_rounds_change_rounding_only(monkeypatch, backend, lanes):
    rng = np.random.default_rng(8)
    x, f = positions(rng, 150), rng.normal(size=MESH.shape)
    monkeypatch.setattr(interpolate_stored, "_RESIDENT", 1)  # as if there were many particles
    with plan_of(backend, options={"stored": {"lanes": lanes}}) as plan:
        plan.set_positions(x)
        np.testing.assert_allclose(plan.interpolate(f), oracle.interpolate(MESH, WINDOW, x, f), atol=1e-13)


def test_the_application_evaluates_no_window():
    text = source.text("interpolate/stored.c")
    assert "weight_of" not in text
    assert "slope_of" not in text
