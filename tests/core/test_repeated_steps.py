# SPDX-License-Identifier: BSD-3-Clause
"""Time steps with arrays that stay in place are played as a whole, and equal those that are worked out."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from late_work import FIELDS, MESH, Q, X
from particlemesh.particles.located import DeviceParticles
from particlemesh.plan import calls

pytestmark = pytest.mark.backends("cuda", "opencl")


def refuse(*_, **__):
    raise AssertionError("this call is worked out, not played")


@pytest.fixture
def plan(backend):
    with pm.Plan(MESH, "bspline3", method="particle") as plan:
        plan.set_positions(backend.array(X))
        yield plan


def put(backend, array, host):
    backend.library.copy(array, backend.array(host))


STEPS = [X, X + 0.25, np.sort(X, axis=0), X[::-1] * 0.5 + 0.1, X + 0.5, X]


@pytest.mark.parametrize(
    ("method", "interpolation", "check"),
    [("particle", "direct", True), ("ordered", "particle", True), ("owner", "tile", False)],
)
def test_time_steps_in_place_are_played(backend, monkeypatch, method, interpolation, check):
    x, q, field = backend.array(X), backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    rho, values = backend.array(np.zeros(MESH.shape)), backend.array(np.zeros(200))
    nodes = np.random.default_rng(8).normal(size=MESH.shape)
    put(backend, field, nodes)
    window = pm.bspline(3)
    with pm.Plan(MESH, window, method=method, interpolation=interpolation) as plan:
        for turn in range(12):
            host = STEPS[turn % len(STEPS)]
            put(backend, x, host)
            with monkeypatch.context() as patch:
                if turn > 6:  # two rooms for particles, three turns each
                    patch.setattr(DeviceParticles, "locate", refuse)
                    patch.setattr(calls, "spread", refuse), patch.setattr(calls, "interpolate", refuse)
                plan.set_positions(x, check=check)
                plan.spread(q, out=rho)
                plan.interpolate(field, out=values)
            np.testing.assert_allclose(backend.host(rho), oracle.spread(MESH, window, host, Q[0]), atol=1e-11)
            np.testing.assert_allclose(backend.host(values), oracle.interpolate(MESH, window, host, nodes), atol=1e-11)
            assert plan.status.count == 200 and plan.count == 200
        # A call that is on no tape finds what the tapes left behind.
        again = plan.spread(backend.array(Q[1]))
        np.testing.assert_allclose(backend.host(again), oracle.spread(MESH, window, host, Q[1]), atol=1e-11)


def test_bad_positions_on_a_tape_leave_the_plan_as_it_was(backend, plan):
    x, q, out = backend.array(X), backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    for _ in range(6):
        plan.set_positions(x).spread(q, out=out)
    bad = X.copy()
    bad[7, 1] = np.nan
    put(backend, x, bad)
    with pytest.raises(ValueError, match="particle 7"):
        plan.set_positions(x)
    plan.spread(q, out=out)
    np.testing.assert_allclose(backend.host(out), FIELDS[0], atol=1e-12)
    put(backend, x, X + 0.25)
    for _ in range(4):
        plan.set_positions(x).spread(q, out=out)
        np.testing.assert_allclose(backend.host(out), oracle.spread(MESH, pm.bspline(3), X + 0.25, Q[0]), atol=1e-11)


def test_other_numbers_of_particles_and_derivatives_between_steps(backend):
    field, nodes = backend.array(np.zeros(MESH.shape)), np.random.default_rng(9).normal(size=MESH.shape)
    put(backend, field, nodes)
    window = pm.bspline(3)
    with pm.Plan(MESH, window, method="ordered", interpolation="direct") as plan:
        arrays = {n: (backend.array(X[:n]), backend.array(np.zeros(n))) for n in (200, 150)}
        for turn in range(14):
            n = 150 if turn in (5, 6, 11) else 200
            x, values = arrays[n]
            host = STEPS[turn % len(STEPS)][:n]
            put(backend, x, host)
            plan.set_positions(x)
            if turn % 3 == 0:
                slopes = backend.host(plan.gradient(field))
                np.testing.assert_allclose(slopes, oracle.gradient(MESH, window, host, nodes), atol=1e-9)
            plan.interpolate(field, out=values)
            np.testing.assert_allclose(backend.host(values), oracle.interpolate(MESH, window, host, nodes), atol=1e-11)


def test_positions_that_are_converted_are_not_played(backend, plan):
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    half = (X * 4).astype(np.int32)
    x = backend.array(half)
    for shift in range(5):
        put(backend, x, half + shift)
        plan.set_positions(x).spread(q, out=out)
        expected = oracle.spread(MESH, pm.bspline(3), (half + shift).astype(float), Q[0])
        np.testing.assert_allclose(backend.host(out), expected, atol=1e-11)


def test_a_capture_is_never_played(backend, monkeypatch):
    """Its graph prepares again at each launch; a tape may have no preparation, or one with numbers of another time."""
    x, q, out = backend.array(X), backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    with pm.Plan(MESH, "bspline3", method="ordered") as plan:
        for _ in range(8):
            plan.set_positions(x).spread(q, out=out)
        plan.set_positions(x)
        monkeypatch.setattr(type(plan.backend), "capturing", lambda self: True)
        monkeypatch.setattr(plan._tapes, "again", refuse)
        plan.spread(q, out=out)
        assert plan.methods.captured
    np.testing.assert_allclose(backend.host(out), oracle.spread(MESH, pm.bspline(3), X, Q[0]), atol=1e-11)


@pytest.mark.parametrize("method", ["walk", "owner"])
def test_steps_on_meshes_too_long_to_pack(backend, method):
    nodes = 2**18 + 64  # too many for the bits of a packed place in float32
    mesh, rng = pm.Mesh(nodes, float(nodes)), np.random.default_rng(1)
    x, q = backend.array(np.zeros(300, np.float32)), backend.array(np.ones(300, np.float32))
    out = backend.array(np.zeros(nodes, np.float32))
    with pm.Plan(mesh, "tsc", dtype="float32", method=method) as plan:
        for turn in range(8):
            host = (rng.random(300) * nodes).astype(np.float32)
            put(backend, x, host)
            plan.set_positions(x, check=turn % 2 == 0).spread(q, out=out)
            np.testing.assert_allclose(
                backend.host(out),
                oracle.spread(mesh, pm.bspline(3), host.astype(float)[:, None], np.ones(300)),
                atol=1e-5,
            )
