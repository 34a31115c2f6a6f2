# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call: each as if it were alone."""

import pickle

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.window import window_of
from quiet import quiet

SKEWED = pm.Box(np.array([[2.0, 0, 0], [0.3, 1.5, 0], [-0.4, 0.5, 2.5]]), origin=(0.25, -1.0, 3.0))
MESHES = {
    "periodic": pm.Mesh((9, 8, 7), (1.0, 2.0, 3.0)),
    "triclinic, below the support": pm.Mesh((2, 8, 7), SKEWED),
    "open cells": pm.Mesh((9, 8), pm.Box((1.0, 2.0), periodic=(False, True)), offset=(0.5, 0.25)),
    "open faces": pm.Mesh(9, pm.Box(2.0, periodic=False)),
    "ghosts": pm.Mesh((9, 8, 7), (1.0, 2.0, 3.0), ghosts=((4, 4), 0, (4, 4))),
    "ghosts of other axes": pm.Mesh((5, 6), (1.0, 2.0), ghosts=(0, (4, 4))),
    "offset": pm.Mesh(6, 1.0, offset=7.3),
    "one node": pm.Mesh((1, 1), (1.0, 1.0)),
    # Fewer ghosts than the window needs, or none at one end: a single plan loses weights there.
    "open faces, ghosts": pm.Mesh((8, 8), pm.Box((1.0, 1.0), periodic=(False, True)), ghosts=((1, 1), 0)),
    "open cells, ghosts": pm.Mesh(6, pm.Box(1.0, periodic=False), offset=0.5, ghosts=((0, 2),)),
    "open, many ghosts": pm.Mesh((5, 4), pm.Box((1.0, 1.0), periodic=False), ghosts=((9, 8), (2, 0))),
}
COUNT, SYSTEMS = 60, 4


def drawn(mesh, *, count=COUNT, seed=1):
    """Positions, systems (one of them empty, in no order), values, vectors, tensors, fields."""
    rng, d = np.random.default_rng(seed), mesh.ndim
    s = np.where(mesh.periodic, rng.uniform(-1, 2, (count, d)), rng.uniform(0.001, 0.999, (count, d)))
    system = rng.choice([0, 1, 3], count)
    q, v, t = (rng.normal(size=(2, count, *shape)) for shape in ((), (d,), (d, d)))
    return s @ mesh.box.matrix + mesh.box.origin, system, q, v, t, rng.normal(size=(2, SYSTEMS, *mesh.field_shape))


def close(result, expected, digits=1e-11):
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=0, atol=digits * (1 + np.abs(expected).max(initial=0)))


def spread_by_system(what, mesh, window, x, system, values):
    alone = [what(mesh, window, x[system == k], values[:, system == k]) for k in range(SYSTEMS)]
    return np.stack(alone, 1)


def interpolated_by_system(what, mesh, window, x, system, field):
    results = [what(mesh, window, x[system == k], field[:, k]) for k in range(SYSTEMS)]
    together = np.zeros((2, len(x), *results[0].shape[2:]))
    for k, result in enumerate(results):
        together[:, system == k] = result
    return together


def test_every_method_serves_each_system_as_if_it_were_alone(backend, law):
    mesh, window = MESHES["periodic"], window_of("bspline4")
    x, system, q, v, _, f = drawn(mesh)
    with law.plan(mesh, window, systems=SYSTEMS, dtype="float64") as plan:
        try:
            plan.set_positions(backend.array(x), system=backend.array(system))
            if law.direction == "spread":
                field = backend.host(plan.spread(backend.array(q)))
            else:
                values = backend.host(plan.interpolate(backend.array(f)))
        except pm.MethodNotSuitable as error:
            pytest.skip(str(error))
        if law.direction == "spread":
            close(field, spread_by_system(oracle.spread, mesh, window, x, system, q))
            slopes = backend.host(plan.spread_gradient(backend.array(v)))
            close(slopes, spread_by_system(oracle.spread_gradient, mesh, window, x, system, v))
        else:
            close(values, interpolated_by_system(oracle.interpolate, mesh, window, x, system, f))
            slopes = backend.host(plan.gradient(backend.array(f)))
            close(slopes, interpolated_by_system(oracle.gradient, mesh, window, x, system, f))


@pytest.mark.whole
@pytest.mark.parametrize(("window", "order"), [("ngp", "caller"), ("bspline4", "sorted"), ("bspline7", "caller")])
@pytest.mark.parametrize("name", MESHES)
def test_every_mesh_serves_each_system_as_if_it_were_alone(backend, name, window, order, request):
    if backend.name == "opencl" and request.config.thins and window != "bspline4":
        pytest.skip("PoCL compiles slowly: one window there, and all with --thorough and on GPUs")
    mesh, window = MESHES[name], window_of(window)
    if name.startswith("ghosts") and window.support > 4:
        pytest.skip("this window needs more ghosts")
    x, system, q, v, t, f = drawn(mesh)
    with pm.Plan(mesh, window, systems=SYSTEMS, order=order) as plan:
        plan.set_positions(backend.array(x), system=backend.array(system))
        if order == "sorted":
            places = backend.host(plan.order)
            x, system = x[places], system[places]
        close(backend.host(plan.spread(backend.array(q))), spread_by_system(oracle.spread, mesh, window, x, system, q))
        values, slopes, second = (backend.host(a) for a in plan.value_gradient_hessian(backend.array(f)))
        close(values, interpolated_by_system(oracle.interpolate, mesh, window, x, system, f))
        close(slopes, interpolated_by_system(oracle.gradient, mesh, window, x, system, f))
        close(second, interpolated_by_system(oracle.hessian, mesh, window, x, system, f))
        sloping = backend.host(plan.spread_gradient(backend.array(v)))
        close(sloping, spread_by_system(oracle.spread_gradient, mesh, window, x, system, v))
        bent = backend.host(plan.spread_hessian(backend.array(t)))
        close(bent, spread_by_system(oracle.spread_hessian, mesh, window, x, system, t))
        np.testing.assert_allclose((bent * f).sum(), (t * second).sum(), rtol=1e-9, atol=1e-9)
        kept = backend.host(plan.spread(backend.array(q))).sum(tuple(range(1, 2 + mesh.ndim)))
        total = q.sum(1)
        np.testing.assert_allclose(kept + plan.lost(backend.array(q)), total, atol=1e-12 * COUNT)


@pytest.mark.whole
@pytest.mark.parametrize("ghosts", [(0, 0), (1, 1), (0, 2), (6, 5)], ids=str)
@pytest.mark.parametrize("offset", [0, 0.5])
def test_particles_at_open_faces_reach_no_other_system(backend, ghosts, offset):
    """Also on the faces and one number below them, where a stencil reaches farthest."""
    mesh = pm.Mesh((5, 4), pm.Box((1.0, 1.0), periodic=(False, True)), offset=(offset, 0), ghosts=(ghosts, 0))
    faces = [0.0, np.nextafter(0.0, 1), 0.01, 0.99, np.nextafter(1.0, 0), 1.0]
    x = np.stack([np.tile(faces, 3), np.full(18, 0.4)], -1)
    system = np.repeat([2, 0, 1], 6)
    for window in ("ngp", "cic", "bspline6", "bspline7"):
        with pm.Plan(mesh, window, systems=3, dtype="float64") as plan, pm.Plan(mesh, window, dtype="float64") as one:
            plan.set_positions(backend.array(x), system=backend.array(system))
            fields = np.zeros((3, *mesh.field_shape))
            fields[1] = 1 + np.arange(fields[1].size).reshape(fields[1].shape)
            values = np.where(system == 1, 1.0, 0.0)
            spread = backend.host(plan.spread(backend.array(values)))
            read, lost = backend.host(plan.interpolate(backend.array(fields))), plan.lost(backend.array(values))
            one.set_positions(backend.array(x[system == 1]))
            assert not spread[[0, 2]].any() and not read[system != 1].any()
            close(spread[1], backend.host(one.spread(backend.array(np.ones(6)))))
            close(read[system == 1], backend.host(one.interpolate(backend.array(fields[1]))))
            close(lost, one.lost(backend.array(np.ones(6))))


@pytest.mark.parametrize("layout", ["planar", "interleaved", "strided", "reversed"])
def test_memory_of_any_order_is_read_and_written(backend, layout):
    mesh, window = MESHES["periodic"], window_of("tsc")
    x, system, q, _, _, f = drawn(mesh)
    q, f = q + 1j * q[::-1], f - 2j * f[::-1]
    with pm.Plan(mesh, window, systems=SYSTEMS) as plan:
        plan.set_positions(backend.array(x, "fortran"), system=backend.array(system, "strided"))
        expected = spread_by_system(oracle.spread, mesh, window, x, system, q)
        for _ in range(4):  # played from a tape in the end
            out = backend.array(f, layout)
            assert plan.spread(backend.array(q, layout), out=out) is out
            close(backend.host(out), expected)
        out = backend.array(f, layout)
        plan.spread(backend.array(q, layout), out=out, accumulate=True)
        close(backend.host(out), f + expected)
        values = backend.array(q, layout)
        assert plan.interpolate(backend.array(f, layout), out=values) is values
        parts = [interpolated_by_system(oracle.interpolate, mesh, window, x, system, p) for p in (f.real, f.imag)]
        close(backend.host(values), parts[0] + 1j * parts[1])


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_a_plan_of_one_system_is_a_plain_plan(backend, real):
    mesh = MESHES["periodic"]
    x, _, q, _, _, f = drawn(mesh)
    x, q, f = x.astype(real), q.astype(real), f[:, :1].astype(real)
    with pm.Plan(mesh, "bspline6", systems=1) as plan, pm.Plan(mesh, "bspline6") as plain:
        plan.set_positions(backend.array(x), system=backend.array(np.zeros(COUNT, np.int32)))
        plain.set_positions(backend.array(x))
        digits = 3e-6 if real == "float32" else 1e-14
        close(backend.host(plan.spread(backend.array(q)))[:, 0], backend.host(plain.spread(backend.array(q))), digits)
        slopes = backend.host(plan.gradient(backend.array(f)))
        close(slopes, backend.host(plain.gradient(backend.array(f[:, 0].copy()))), digits)


@pytest.mark.parametrize("kind", ["u1", "i4", "i8", "u4"])
def test_indices_may_be_of_any_integer_type(backend, kind):
    mesh, window = MESHES["offset"], window_of("cic")
    x, system, q, *_ = drawn(mesh)
    with pm.Plan(mesh, window, systems=SYSTEMS) as plan:
        plan.set_positions(backend.array(x), system=backend.array(system.astype(kind)))
        close(backend.host(plan.spread(backend.array(q))), spread_by_system(oracle.spread, mesh, window, x, system, q))


def test_positions_may_be_set_again_with_other_systems_and_numbers(backend):
    mesh, window = MESHES["periodic"], window_of("bspline4")
    with pm.Plan(mesh, window, systems=SYSTEMS, dtype="float64") as plan:
        for count in (5, 0, 60, 33):
            x, system, q, *_ = drawn(mesh, count=count, seed=count)
            plan.set_positions(backend.array(x), system=backend.array(system), check=count != 33)
            field = backend.host(plan.spread(backend.array(q)))
            close(field, spread_by_system(oracle.spread, mesh, window, x, system, q))


def test_reproducible_plans_are(backend):
    mesh = MESHES["periodic"]
    x, system, q, *_ = drawn(mesh, count=3000)
    results = set()
    for _ in range(4):
        with pm.Plan(mesh, "bspline4", systems=SYSTEMS, deterministic=True) as plan:
            plan.set_positions(backend.array(x), system=backend.array(system))
            results.add(backend.host(plan.spread(backend.array(q))).tobytes())
    assert len(results) == 1


def test_fields_have_an_axis_of_systems(backend):
    mesh = MESHES["periodic"]
    with pm.Plan(mesh, "tsc", systems=3, backend=backend.name, dtype="float32") as plan:
        assert plan.systems == 3
        assert tuple(plan.empty_field(2).shape) == (2, 3, 9, 8, 7)
        assert "3 x 9 x 8 x 7 nodes" in repr(plan)
        assert pickle.loads(pickle.dumps(plan)).systems == 3
    assert pm.Plan(mesh, "tsc").systems is None


def test_what_does_not_fit_is_refused(backend):
    mesh = MESHES["open cells"]
    x, system, q, _, _, f = drawn(mesh)
    for bad, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (2**30, ValueError)):
        with pytest.raises(error, match="systems"):
            pm.Plan(mesh, "tsc", systems=bad, backend=backend.name, dtype="float32")
    with pytest.raises(TypeError, match="no systems: make it with systems="):
        pm.Plan(mesh, "tsc").set_positions(backend.array(x), system=backend.array(system))
    with pytest.raises(TypeError, match="option 'systems' is unknown"):
        pm.spread(backend.array(x), backend.array(q), mesh, systems=SYSTEMS)
    with pm.Plan(mesh, "tsc", systems=SYSTEMS) as plan:
        plan.set_positions(backend.array(x), system=backend.array(system))
        before = backend.host(plan.spread(backend.array(q))).copy()
        with pytest.raises(TypeError, match="this plan has 4 systems: give system="):
            plan.set_positions(backend.array(x))
        with pytest.raises(ValueError, match=r"system has shape \(59,\); .*needed: \(60,\)"):
            plan.set_positions(backend.array(x), system=backend.array(system[:-1]))
        with pytest.raises(TypeError, match="system has dtype float64; integers"):
            plan.set_positions(backend.array(x), system=backend.array(system.astype(float)))
        for wrong in (-1, SYSTEMS):
            other = system.copy()
            other[[7, 9]] = wrong
            with pytest.raises(ValueError, match="(2 of 60 are no index|2 outside .* or of no system.*systems 0 to 3)"):
                plan.set_positions(backend.array(x), system=backend.array(other))
        with pytest.raises(ValueError, match="field"):
            plan.interpolate(backend.array(f[0, 0]))
        with pytest.raises(ValueError, match="out has shape"):
            plan.spread(backend.array(q), out=backend.array(f[:, 0].copy()))
        close(backend.host(plan.spread(backend.array(q))), before, 1e-14)


@pytest.mark.backends("opencl", "cuda")
def test_unchecked_particles_of_no_system_have_no_weight(backend):
    mesh, window = MESHES["periodic"], window_of("tsc")
    x, system, q, *_ = drawn(mesh)
    wrong = system.copy()
    wrong[::5] = 99
    with pm.Plan(mesh, window, systems=SYSTEMS) as plan:
        plan.set_positions(backend.array(x), system=backend.array(wrong), check=False)
        assert plan.status.outside == 12
        kept = np.where(wrong == 99, 0, q)
        close(
            backend.host(plan.spread(backend.array(q))), spread_by_system(oracle.spread, mesh, window, x, system, kept)
        )
        with pytest.raises(ValueError, match="or of no system"):
            plan.check()


def test_host_arrays_are_copied_to_a_named_backend(backend):
    mesh, window = MESHES["periodic"], window_of("tsc")
    x, system, q, *_ = drawn(mesh)
    with pm.Plan(mesh, window, systems=SYSTEMS, backend=backend.name) as plan:
        plan.set_positions(x, system=system.tolist())
        close(plan.spread(q), spread_by_system(oracle.spread, mesh, window, x, system, q))


MATRICES = np.random.default_rng(9).normal(size=(SYSTEMS, 3, 3)) * 0.2 + np.eye(3) * (2.0, 1.5, 3.0)


@pytest.mark.whole
@pytest.mark.parametrize(("real", "order"), [("float32", "sorted"), ("float64", "caller")])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("form", ["lengths", "lattice vectors"])
def test_systems_may_have_boxes_of_their_own(backend, form, d, real, order, request):
    if backend.name == "opencl" and request.config.thins and (d, order) not in ((3, "sorted"), (2, "caller")):
        pytest.skip("PoCL compiles slowly: two of these there, and all with --thorough and on GPUs")
    mesh = pm.Mesh((9, 8, 7)[:d], pm.Box(SKEWED.matrix[:d, :d], SKEWED.origin[:d]), offset=0.25)
    matrices = MATRICES[:, :d, :d]
    boxes = np.diagonal(matrices, axis1=1, axis2=2) if form == "lengths" else matrices
    window, rng = window_of("bspline5"), np.random.default_rng(3)
    _, system, q, v, t, f = (np.asarray(a) for a in drawn(mesh))
    s = rng.uniform(-1, 2, (COUNT, d))
    x = np.stack([at @ (np.diag(box) if box.ndim == 1 else box) for at, box in zip(s, boxes[system], strict=True)])
    x = (x + mesh.box.origin).astype(real)
    q, v, t, f = (a.astype(real) for a in (q, v, t, f))
    with pm.Plan(mesh, window, systems=SYSTEMS, order=order) as plan:
        plan.set_positions(backend.array(x), system=backend.array(system), boxes=boxes.astype(real))
        assert plan.dtype == real
        if order == "sorted":
            places = backend.host(plan.order)
            x, system = x[places], system[places]
        field, bent, twice = (
            backend.host(verb(backend.array(a)))
            for verb, a in ((plan.spread, q), (plan.spread_gradient, v), (plan.spread_hessian, t))
        )
        results = [backend.host(a) for a in plan.value_gradient_hessian(backend.array(f))]
        np.testing.assert_array_equal(results[2], results[2].swapaxes(-1, -2))
        digits = 2e-5 if real == "float32" else 1e-11
        boxes = boxes.astype(real).astype(float)
        for k in range(SYSTEMS):
            alone = pm.Mesh(mesh.shape, pm.Box(boxes[k], mesh.box.origin), offset=0.25)
            of = system == k
            close(field[:, k], oracle.spread(alone, window, x[of], q[:, of]), digits)
            close(bent[:, k], oracle.spread_gradient(alone, window, x[of], v[:, of]), digits)
            close(twice[:, k], oracle.spread_hessian(alone, window, x[of], t[:, of]), digits)
            for result, what in zip(results, (oracle.interpolate, oracle.gradient, oracle.hessian), strict=True):
                close(result[:, of], what(alone, window, x[of], f[:, k]), digits)


def test_boxes_may_change_with_the_positions(backend):
    mesh, window = MESHES["periodic"], window_of("bspline4")
    _, system, *_, f = drawn(mesh)
    s = np.random.default_rng(4).random((COUNT, 3))
    with pm.Plan(mesh, window, systems=SYSTEMS) as plan:
        slopes = []
        for factor in (1.0, 2.0, None):
            boxes = None if factor is None else backend.array(np.full((SYSTEMS, 3), factor) * mesh.box.lengths)
            x = s * mesh.box.lengths * (factor or 1.0)
            plan.set_positions(backend.array(x), system=backend.array(system), boxes=boxes)
            slopes.append(backend.host(plan.gradient(backend.array(f))).copy())
        close(slopes[1] * 2, slopes[0])
        close(slopes[2], slopes[0])


@pytest.mark.backends("opencl", "cuda")
def test_the_same_boxes_again_take_no_memory(backend):
    mesh = MESHES["periodic"]
    _, system, q, *_ = drawn(mesh)
    x = np.random.default_rng(4).random((COUNT, 3)) * mesh.box.lengths
    boxes = np.linspace(1, 2, SYSTEMS)[:, None] * mesh.box.lengths
    given = backend.array(x), backend.array(np.asarray(system, np.int32))
    values = backend.array(q)
    with pm.Plan(mesh, "bspline4", systems=SYSTEMS, backend=backend.name, dtype="float64") as plan:
        plan.reserve(COUNT)

        def step(out=None):
            plan.set_positions(given[0], system=given[1], boxes=boxes, check=False)
            field = plan.spread(values, out=None if out is None else out[0])
            return field, plan.gradient(field, out=None if out is None else out[1])

        out = step()
        expected = [backend.host(a) for a in out]
        step(out)
        with quiet(backend):
            step(out)
        close(backend.host(out[0]), expected[0])
        close(backend.host(out[1]), expected[1])


def test_boxes_that_do_not_fit_are_refused(backend):
    mesh = MESHES["periodic"]
    x, system, *_ = drawn(mesh)
    positions, of = backend.array(x), backend.array(system)
    good = np.ones((SYSTEMS, 3))
    with pytest.raises(TypeError, match="no systems: make it with systems="):
        pm.Plan(mesh, "tsc").set_positions(positions, boxes=good)
    with pm.Plan(mesh, "tsc", systems=SYSTEMS) as plan:
        for wrong in (good[:-1], good[:, :2], np.ones((SYSTEMS, 3, 2)), good + 1j):
            with pytest.raises(ValueError, match="real lengths .* or lattice vectors as rows"):
                plan.set_positions(positions, system=of, boxes=wrong)
        for number in (0.0, -1.0, np.nan, np.inf):
            wrong = good.copy()
            wrong[2, 1] = number
            with pytest.raises(ValueError, match=r"boxes\[2\] is .*positive finite lengths"):
                plan.set_positions(positions, system=of, boxes=wrong)
        with pytest.raises(ValueError, match=r"boxes\[0\] is .* independent lattice vectors"):
            plan.set_positions(positions, system=of, boxes=np.ones((SYSTEMS, 3, 3)))
        with pytest.raises(TypeError, match="boxes"):
            plan.set_positions(positions, system=of, boxes="large")
    x, system, *_ = drawn(MESHES["open cells"])
    with pm.Plan(MESHES["open cells"], "tsc", systems=SYSTEMS) as plan:
        with pytest.raises(ValueError, match="an axis of the mesh is open"):
            plan.set_positions(backend.array(x), system=backend.array(system), boxes=np.ones((SYSTEMS, 2)))
