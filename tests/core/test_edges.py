# SPDX-License-Identifier: BSD-3-Clause
"""Edges of the domain and of arithmetic, one test each, on every backend."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.window import window_of

REALS = [np.float32, np.float64]
LENGTH = 6.2  # no binary fraction, so that x / L rounds


def close(result, expected, real, scale=1.0):
    np.testing.assert_allclose(result, expected, rtol=0, atol=scale * (4e-6 if real == np.float32 else 2e-14))


def around(x, real):
    x = real(x)
    return [np.nextafter(x, real(-np.inf)), x, np.nextafter(x, real(np.inf))]


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("window", ["bspline2", "bspline3", "bspline4"])
def test_an_ulp_below_on_and_above_a_periodic_border(backend, real, window):
    mesh = pm.Mesh(7, LENGTH)
    tiny = np.finfo(real).tiny
    x = np.array(
        [*around(0, real), *around(LENGTH, real), *around(-LENGTH, real), *around(2 * LENGTH, real), -tiny, -0.0]
    ).astype(real)
    q = np.ones(1, real)
    with pm.Plan(mesh, window) as plan:
        expected = oracle.spread(mesh, window_of(window), [[0.0]], [1.0])
        for value in x:
            plan.set_positions(backend.array(np.array([value])))
            field = backend.host(plan.spread(backend.array(q)))
            close(field, expected, real, 4.0)  # every one of these is at node 0, or an ulp of it


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("window", ["bspline2", "bspline3", "bspline4"])
def test_an_ulp_around_a_periodic_border_stays_within_the_ghosts(backend, real, window):
    # A fraction that rounds to 1 would be a node further on than the fewest ghosts allow.
    support = window_of(window).support
    mesh = pm.Mesh(7, LENGTH, ghosts=[((support - 1) // 2, (support + 1) // 2)])
    tiny = np.finfo(real).tiny
    x = np.array([*around(0, real), *around(LENGTH, real), *around(-LENGTH, real), -tiny, -0.0, real(-1e-30)], real)
    with pm.Plan(mesh, window) as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(np.eye(len(x), dtype=real))))
        expected = oracle.spread(pm.Mesh(7, LENGTH), window_of(window), [[0.0]], [1.0])
        close(mesh.fold_ghosts(field), np.broadcast_to(expected, (len(x), 7)), real, 4.0)
        assert np.abs(plan.lost(backend.array(np.ones(len(x), real)))) == 0


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_an_ulp_below_on_and_above_an_open_border(backend, real, offset):
    mesh = pm.Mesh(7, LENGTH, periodic=False, offset=offset)
    low, high = around(0, real), around(LENGTH, real)
    inside = np.array([low[1], low[2], high[0], high[1]])
    with pm.Plan(mesh, "bspline4") as plan:
        plan.set_positions(backend.array(inside))
        field = backend.host(plan.spread(backend.array(np.ones(4, real))))
        close(field, oracle.spread(mesh, pm.bspline(4), inside[:, None], np.ones(4)), real, 4.0)
        for bad in (low[0], high[2]):
            x = np.array([1.0, 2.0, bad, 3.0, bad], real)
            with pytest.raises(ValueError, match="2 outside an open axis of 5; the first is particle 2"):
                plan.set_positions(backend.array(x))
        again = backend.host(plan.spread(backend.array(np.ones(4, real))))
        np.testing.assert_allclose(again, field, rtol=1e-6)
        q = np.array([1.0, 2, 4, 8, 16], real)
        plan.set_positions(backend.array(np.array([1.0, 2.0, low[0], 3.0, high[2]], real)), check=False)
        kept = backend.host(plan.spread(backend.array(q))).sum(dtype=float)
        beyond = plan.lost(backend.array(q), outside=True)
        assert beyond - plan.lost(backend.array(q)) == 4 + 16 and beyond == pytest.approx(31 - kept, rel=1e-6)


@pytest.mark.parametrize("real", REALS)
def test_an_ulp_around_the_border_of_a_shifted_open_box(backend, real):
    # Any error in forming origin + length moves the border by an ulp.
    mesh = pm.Mesh((7, 5), (LENGTH, 0.7), periodic=False, offset=0.5, origin=(-3.1, 100.3))
    high = np.array([-3.1 + LENGTH, 100.3 + 0.7], real)
    low = np.array([-3.1, 100.3], real)
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(np.array([low, high])))
        assert plan.status.outside == 0
        for a in (0, 1):
            for corner, way in ((low, -np.inf), (high, np.inf)):
                x = np.array([low, corner])
                x[1, a] = np.nextafter(np.nextafter(corner[a], real(way)), real(way))
                with pytest.raises(ValueError, match="the first is particle 1"):
                    plan.set_positions(backend.array(x))


def test_particles_exactly_on_nodes(backend, law):
    mesh = pm.Mesh((4, 6, 8), (4.0, 3.0, 8.0))
    x = np.stack(np.meshgrid(*(mesh.nodes(a) for a in range(3)), indexing="ij"), -1).reshape(-1, 3)
    f = np.random.default_rng(1).normal(size=mesh.shape)
    for window in ("cic", "bspline3"):
        weights = window_of(window).symbol
        with law.plan(mesh, window) as plan:
            plan.set_positions(backend.array(x))
            factors = [np.real(weights(n)) for n in mesh.shape]
            smooth = np.fft.ifftn(np.fft.fftn(f) * factors[0][:, None, None] * factors[1][:, None] * factors[2]).real
            if law.direction == "spread":
                result = backend.host(plan.spread(backend.array(f.reshape(-1))))
            else:
                result = backend.host(plan.interpolate(backend.array(f))).reshape(mesh.shape)
            close(result, smooth, np.float64, 3.0)
            assert np.isfinite(backend.host(plan.gradient(backend.array(f)))).all()


@pytest.mark.parametrize("real", REALS)
def test_very_far_particles_are_folded(backend, real):
    mesh = pm.Mesh(16, LENGTH)
    far = (np.array([1e6, -1e6, 1e3, -1e3]) * LENGTH + 1.3).astype(real)
    with pm.Plan(mesh, "bspline4") as plan:
        plan.set_positions(backend.array(far))
        field = backend.host(plan.spread(backend.array(np.eye(4, dtype=real))))
        np.testing.assert_allclose(field.sum(1), 1, rtol=1e-5)
        if real == np.float64:  # error of |x| / L ulps
            close(field, oracle.spread(mesh, pm.bspline(4), far[:, None], np.eye(4)), real, 1e5)
        huge = np.array([np.finfo(real).max, -np.finfo(real).max, 1e30, -1e30], real)
        plan.set_positions(backend.array(huge))
        field = backend.host(plan.spread(backend.array(np.eye(4, dtype=real))))
        np.testing.assert_allclose(field.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("real", REALS)
def test_subnormal_and_negative_zero_positions_are_at_the_origin(backend, real):
    mesh = pm.Mesh((5, 4), (1.0, LENGTH))
    smallest = np.finfo(real).smallest_subnormal
    x = np.array([[0.0, -0.0], [smallest, -smallest], [-smallest, smallest], [-0.0, 5 * smallest]], real)
    with pm.Plan(mesh, "bspline2") as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(np.eye(4, dtype=real))))
        expected = np.zeros((4, 5, 4))
        expected[:, 0, 0] = 1
        close(field, expected, real)


def test_particles_without_weight_take_no_part(backend, law):
    mesh, window = (
        pm.Mesh((6, 5, 7), pm.Box((1.0, 2.0, 1.0), periodic=(True, False, True)), offset=(0, 0.5, 0)),
        pm.bspline(4),
    )
    rng, bad = np.random.default_rng(2), [7, 20, 30, 69]
    good = np.delete(np.arange(70), bad)
    x, q, v, f = rng.random((70, 3)) * mesh.box.lengths, *(rng.normal(size=n) for n in (70, (70, 3), mesh.shape))
    x[7, 0], x[20, 1], x[30, 1], x[69, 2] = np.nan, 2.5, -0.1, np.inf
    q[[7, 30]] = np.nan, np.inf
    v[[20, 69]] = [[np.nan], [np.inf]]
    reading = np.ones(len(good), bool)
    if law.method.confines_non_finite:  # nodes past the open edge are not read in the place of those at it
        f[:, 0] = np.inf
        reading = x[good, 1] * 2.5 - 0.5 > 2.01
    finite = np.where(np.isinf(f), 0, f)
    with law.plan(mesh, window, backend=backend.name, dtype="float64") as plan:
        plan.set_positions(backend.array(x), check=False)
        assert plan.status[:4] == (70, 2, 2, 7)
        with pytest.raises(ValueError, match="2 not finite and 2 outside an open axis of 70; the first is particle 7"):
            plan.check()
        if law.direction == "spread":
            close(
                backend.host(plan.spread(backend.array(q))),
                oracle.spread(mesh, window, x[good], q[good]),
                np.float64,
                9,
            )
            bent = oracle.spread_gradient(mesh, window, x[good], v[good])
            close(backend.host(plan.spread_gradient(backend.array(v))), bent, np.float64, 99)
        else:
            expected = (
                oracle.interpolate(mesh, window, x[good], finite),
                oracle.gradient(mesh, window, x[good], finite),
            )
            for result, right in zip(
                map(backend.host, plan.value_and_gradient(backend.array(f))), expected, strict=True
            ):
                close(result[good][reading], right[reading], np.float64, 99)
                assert not result[bad].any()
        for gone in (np.full((70, 3), np.nan), np.full((3, 3), np.inf)):
            plan.set_positions(backend.array(gone), check=False)
            assert not backend.host(plan.spread(backend.array(np.ones(len(gone))))).any()
            assert not backend.host(plan.spread_gradient(backend.array(np.ones((len(gone), 3))))).any()
            assert not backend.host(plan.interpolate(backend.array(finite))).any()


def test_twenty_runs_have_the_same_bits(backend, law, request):
    if not law.method.deterministic:
        pytest.skip("this method does not promise it")
    mesh = pm.Mesh((9, 8, 7), (1.0, 1.0, 1.0))
    rng = np.random.default_rng(4)
    x, q = rng.random((3000, 3)).astype(np.float32) ** 2, rng.normal(size=3000).astype(np.float32)
    v = rng.normal(size=(3000, 3)).astype(np.float32)
    f = rng.normal(size=mesh.shape).astype(np.float32)
    x, q, v, f = (array.astype(law.real(backend, mesh, "bspline3", len(x))) for array in (x, q, v, f))

    def run():
        with law.plan(mesh, "bspline3", deterministic=True) as plan:
            plan.set_positions(backend.array(x))
            if law.direction == "spread":
                parts = [plan.spread(backend.array(q)), plan.spread_gradient(backend.array(v))]
            else:
                parts = plan.value_and_gradient(backend.array(f))
            return b"".join(backend.host(part).tobytes() for part in parts)

    runs = 5 if backend.name == "opencl" and request.config.thins else 20  # PoCL is slow
    assert len({run() for _ in range(runs)}) == 1


@pytest.mark.parametrize("real", REALS)
def test_nodes_on_the_faces_of_an_open_triclinic_box_are_inside(backend, real):
    rows = np.array([[2.0, 0, 0], [0.7, 1.9, 0], [0.3, 0.5, 1.7]])
    for origin in ((0, 0, 0), (3.1, -2.7, 11.3)):
        mesh = pm.Mesh((5, 6, 7), pm.Box(rows, origin=origin, periodic=False))
        index = np.stack(np.meshgrid(*map(np.arange, mesh.shape), indexing="ij"), -1).reshape(-1, 3)
        x = (index / np.array(mesh.intervals)) @ rows + origin
        with pm.Plan(mesh, "cic", dtype=real) as plan:
            plan.set_positions(backend.array(x.astype(real)))
            field = np.random.default_rng(1).normal(size=mesh.shape).astype(real)
            values = backend.host(plan.interpolate(backend.array(field)))
            np.testing.assert_allclose(values, field.ravel(), atol=2e-4 if real == np.float32 else 1e-12)
            with pytest.raises(ValueError, match="outside an open axis"):
                plan.set_positions(backend.array((x + 0.001 * rows.sum(0)).astype(real)))


def test_an_empty_configuration_may_come_first_and_unchecked(backend):
    with pm.Plan(pm.Mesh((4, 5), (1.0, 1.0)), "cic", dtype="float32") as plan:
        plan.set_positions(backend.array(np.zeros((0, 2), np.float32)), check=False)
        assert not backend.host(plan.spread(backend.array(np.zeros(0, np.float32)))).any()
        assert plan.status.count == 0
