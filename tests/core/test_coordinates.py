# SPDX-License-Identifier: BSD-3-Clause
"""Positions on or beyond edges, far away or not finite that move, vanish or write elsewhere."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh import checks
from particlemesh.particles.located import Status


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_not_finite_positions_are_named(backend, bad, real):
    mesh = pm.Mesh((6, 5, 4), (1.0, 2.0, 3.0), periodic=(True, False, True), offset=(0, 0.5, 0))
    good = np.random.default_rng(1).random((70, 3)).astype(real)
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(good))
        before = backend.host(plan.spread(backend.array(np.ones(70, real))))
        for axis in range(3):
            x = good.copy()
            x[37, axis] = x[64, axis] = bad
            with pytest.raises(ValueError, match=r"positions: 2 not finite of 70; the first is particle 37"):
                plan.set_positions(backend.array(x))
        after = backend.host(plan.spread(backend.array(np.ones(70, real))))
        np.testing.assert_allclose(after, before, rtol=1e-6)  # the plan kept its positions


def test_the_error_says_what_has_become_of_the_particles():
    mesh, status = pm.Mesh(6, 1.0), Status(40, 1, 0, 7)
    assert "The plan is unchanged; check=False" in str(checks.bad_positions(status, None, mesh))
    text = str(checks.bad_positions(status, None, mesh, unchecked=True))
    assert text.endswith("In the plan such particles have zero weight.")
    assert "as it was" not in text


def test_the_range_of_a_triclinic_box_is_in_fractions():
    box = pm.Box([[2.0, 0.0], [1.0, 3.0]], origin=(5.0, 5.0), periodic=(True, False))
    plan = pm.Plan(pm.Mesh((7, 6), box), "cic")
    plan.set_positions(np.array([[6.0, 7.9]]))  # fractions 0.017 and 0.97
    text = r"finite numbers whose fractions along lattice vector 1, from the origin on, are within \[0, 1\]\."
    with pytest.raises(ValueError, match=text):
        plan.set_positions(np.array([[6.0, 8.1]]))
    plan = pm.Plan(pm.Mesh((7, 6), box.lengths, origin=5.0, periodic=(True, False)), "cic")
    with pytest.raises(ValueError, match=r"within axis 1: \[5, 8\.16228\]\."):
        plan.set_positions(np.array([[6.0, 8.3]]))


def test_a_million_boxes_away_stays_within_its_field(backend):
    mesh = pm.Mesh((8, 8, 8), (2.0, 2.0, 2.0))
    x = np.array([[2e6, -2e6, 1.0], [0.5 + 2e6, 1.25 - 4e6, 2e6 + 0.125]])
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(x))
        guarded = np.full(8**3 + 64, 7.0)
        store = backend.flat(guarded)
        field = backend.view(store, (8, 8, 8), np.float64, 32 * 8, (512, 64, 8))
        plan.spread(backend.array(np.ones(2)), out=field)
        result = backend.host(backend.view(store, guarded.shape, np.float64, 0, (8,)))
    assert np.all(result[:32] == 7)
    assert np.all(result[-32:] == 7)
    expected = oracle.spread(mesh, pm.bspline(2), np.mod(x, 2.0), np.ones(2))
    np.testing.assert_allclose(result[32:-32].reshape(8, 8, 8), expected, atol=1e-8)


def test_float32_cells_on_a_fine_mesh(backend, law):
    # N * eps32 > 1/8: cells are decided by rounding, and a kernel that decides twice writes past its tile.
    mesh = pm.Mesh((2**21 + 7,), 1.0)
    x = np.random.default_rng(5).random(2000, dtype=np.float32)
    x[:4] = [0, np.nextafter(np.float32(1), np.float32(0)), 0.5, np.float32(1) - np.float32(2**-20)]
    with law.plan(mesh, "bspline4") as plan:
        plan.set_positions(backend.array(x))
        q = np.ones(2000, np.float32)
        field = backend.host(plan.spread(backend.array(q)))
        assert field.sum(dtype=np.float64) == pytest.approx(2000, rel=1e-5)
        reached, k = np.flatnonzero(field), mesh.shape[0]
        places = np.sort(x.astype(float) * k)
        places = np.concatenate([places[-4:] - k, places, places[:4] + k])  # and images beyond both borders
        after = np.searchsorted(places, reached)  # no point is nearer than the places beside
        distance = np.minimum(places[after] - reached, reached - places[after - 1])
        assert distance.max() < 3  # 2, and what float32 moves a particle
        f = np.ones(mesh.shape, np.float32)
        np.testing.assert_allclose(backend.host(plan.interpolate(backend.array(f))), 1, rtol=1e-5)
