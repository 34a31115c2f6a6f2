# SPDX-License-Identifier: BSD-3-Clause
"""A whole step in a CUDA graph: positions, spreading, interpolating; replayed with other positions and values."""

import functools
import itertools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import Law
from particlemesh.backends import opencl
from particlemesh.interpolate import METHODS as INTERPOLATE
from particlemesh.spread import METHODS as SPREAD

SPREADING, INTERPOLATING = {m.name: m for m in SPREAD}, {m.name: m for m in INTERPOLATE}
MESH = pm.Mesh((6, 7, 8), (1.0, 1.1, 1.2))
PAIRS = [(m.name, "particle") for m in SPREAD if "cuda" in m.backends]
PAIRS += [("particle", m.name) for m in INTERPOLATE if "cuda" in m.backends and m.name != "particle"]
BLOCKS = [("walk", "walk"), ("walk_fixed", "walk"), ("ordered", "ordered")]  # none of them reads stencils
PAIRS += BLOCKS
NUMBERS = itertools.count(1)  # of captures


@pytest.mark.backends("cuda")
@pytest.mark.parametrize(("spread", "interpolate"), PAIRS)
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_a_captured_step_replays_with_other_positions(backend, spread, interpolate, real):
    import cupy

    for law in (Law("spread", SPREADING[spread]), Law("interpolate", INTERPOLATING[interpolate])):
        if reason := law.declines(backend, MESH, "bspline4", real, 60):
            pytest.skip(f"{law} does not serve {real}: {reason}")
    rng = np.random.default_rng(39)
    x, q = cupy.zeros((60, 3), real), cupy.zeros(60, real)
    field, values = cupy.zeros(MESH.shape, real), cupy.zeros(60, real)
    plan = pm.Plan(MESH, "bspline4", dtype=real, backend="cuda", method=spread, interpolation=interpolate)
    plan.reserve(60)

    def step():
        plan.set_positions(x, check=False)
        plan.spread(q, out=field)
        plan.interpolate(field, out=values)

    stream = cupy.cuda.Stream(non_blocking=True)
    step()  # compiles
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        step()
        graph = stream.end_capture()
    for _ in range(3):
        positions = (rng.random((60, 3)) * 3 - 1).astype(real)
        charges = rng.normal(size=60).astype(real)
        x.set(positions)
        q.set(charges)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        expected = oracle.spread(MESH, pm.bspline(4), positions, charges)
        read = oracle.interpolate(MESH, pm.bspline(4), positions, expected)
        tolerance = 1e-5 if real == "float32" else 1e-13
        np.testing.assert_allclose(field.get(), expected, atol=tolerance * np.abs(expected).max())
        np.testing.assert_allclose(values.get(), read, atol=tolerance * np.abs(read).max())
        # What is not replayed is of the same positions, of which the plan knows nothing.
        np.testing.assert_allclose(plan.spread(q).get(), expected, atol=tolerance * np.abs(expected).max())
        np.testing.assert_allclose(plan.interpolate(field).get(), read, atol=tolerance * np.abs(read).max())


@pytest.mark.whole
@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("order", ["caller", "sorted"])
@pytest.mark.parametrize(("spread", "interpolate"), PAIRS)
def test_calls_after_a_replay_see_its_positions(backend, monkeypatch, spread, interpolate, order, request):
    if request.config.thins and order == "sorted" and (spread, interpolate) not in BLOCKS:
        pytest.skip("PoCL compiles slowly: methods that read stencils are tried in one order, in both with --thorough")
    rng = np.random.default_rng(41)
    positions, charges = rng.random((3, 60, 3)), rng.normal(size=60)
    wave = rng.normal(size=MESH.shape)
    q, out, field = backend.array(charges), backend.array(np.zeros(MESH.shape)), backend.array(wave)
    values, options = backend.array(np.zeros(60)), {"method": spread, "interpolation": interpolate, "order": order}
    with pm.Plan(MESH, "bspline4", dtype="float64", backend=backend.name, **options) as plan:
        plan.reserve(60)
        held = plan.nbytes
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "capturing", lambda: True)
            plan.set_positions(backend.array(positions[0]), check=False)
        for n in range(3):
            if n > 0:  # a replay: the device gets the same work, with other positions, and the plan stays as it is
                before = plan._workspace, dict(vars(plan.particles)), plan.methods.prepared
                plan.set_positions(backend.array(positions[n]), check=False)
                plan._workspace, state, plan.methods.prepared = before
                vars(plan.particles).update(state)
            for _ in range(3):  # no tape is played
                plan.spread(q, out=out)
                plan.interpolate(field, out=values)
            taken = backend.host(plan.order) if order == "sorted" else np.arange(60)
            expected = oracle.spread(MESH, pm.bspline(4), positions[n][taken], charges)
            read = oracle.interpolate(MESH, pm.bspline(4), positions[n][taken], wave)
            np.testing.assert_allclose(backend.host(out), expected, atol=1e-12 * np.abs(expected).max())
            np.testing.assert_allclose(backend.host(values), read, atol=1e-12 * np.abs(read).max())
        assert plan.nbytes == held


def captured(backend, monkeypatch, work):
    """Capture what the device gets for ``work()``; return how to replay it. On OpenCL a list stands for a graph."""
    if backend.name == "cuda":
        import cupy

        cupy.cuda.Device().synchronize()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            work()
            graph = stream.end_capture()

        def replay():
            cupy.cuda.Device().synchronize()
            graph.launch(stream)
            stream.synchronize()

        return replay
    done, library = [], opencl.OpenClBackend

    def recorded(call):
        return lambda *given, **more: done.append(functools.partial(call, *given, **more))

    with monkeypatch.context() as patch:
        patch.setattr(library, "submit", recorded(library.submit))
        number = next(NUMBERS)
        patch.setattr(backend.library, "capturing", lambda: number)
        work()
    assert done

    def replay():
        for launch in done:
            launch()

    return replay


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(("spread", "interpolate"), PAIRS)
def test_a_graph_without_positions(backend, monkeypatch, spread, interpolate):
    # What it prepares is there after a replay only, and each replay prepares it from the start.
    rng = np.random.default_rng(43)
    positions, charges = rng.random((2, 60, 3)), rng.normal(size=60)
    wave = rng.normal(size=MESH.shape)
    q, out, field = backend.array(charges), backend.array(np.zeros(MESH.shape)), backend.array(wave)
    values, options = backend.array(np.zeros(60)), {"method": spread, "interpolation": interpolate}
    expected = oracle.spread(MESH, pm.bspline(4), positions[1], charges)
    read = oracle.interpolate(MESH, pm.bspline(4), positions[1], wave)

    def check():
        np.testing.assert_allclose(backend.host(out), expected, atol=1e-12 * np.abs(expected).max())
        np.testing.assert_allclose(backend.host(values), read, atol=1e-12 * np.abs(read).max())
        backend.library.clear(out), backend.library.clear(values)

    with pm.Plan(MESH, "bspline4", dtype="float64", backend=backend.name, **options) as plan:
        plan.reserve(60)

        def step():
            plan.spread(q, out=out)
            plan.interpolate(field, out=values)

        plan.set_positions(backend.array(positions[0]), check=False)
        step()  # compiles
        plan.set_positions(backend.array(positions[1]), check=False)
        replay = captured(backend, monkeypatch, step)
        step()
        check()
        for _ in range(2):
            replay()
            check()
        for _ in range(3):
            step()
            check()


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("order", ["caller", "sorted"])
@pytest.mark.parametrize(("spread", "interpolate"), BLOCKS)
def test_positions_in_one_graph_and_values_in_another(backend, monkeypatch, spread, interpolate, order):
    # Several sets of values for one configuration: what the first graph counts is used up when the second is replayed.
    rng = np.random.default_rng(47)
    x, q = backend.array(rng.random((60, 3))), backend.array(rng.normal(size=60))
    field, values = backend.array(np.zeros(MESH.shape)), backend.array(np.zeros(60))
    options = {"method": spread, "interpolation": interpolate, "order": order}
    with pm.Plan(MESH, "bspline4", dtype="float64", backend=backend.name, **options) as plan:
        plan.reserve(60)

        def put():
            plan.set_positions(x, check=False)

        def move():
            plan.spread(q, out=field)
            plan.interpolate(field, out=values)

        put(), move(), put()  # compiles; blocks are counted ahead from here on
        first, second = captured(backend, monkeypatch, put), captured(backend, monkeypatch, move)
        for replays in (1, 2, 3):
            first()
            for _ in range(replays):
                second()
            taken = backend.host(plan.order) if order == "sorted" else np.arange(60)
            positions, charges = backend.host(x)[taken], backend.host(q)
            expected = oracle.spread(MESH, pm.bspline(4), positions, charges)
            read = oracle.interpolate(MESH, pm.bspline(4), positions, expected)
            np.testing.assert_allclose(backend.host(field), expected, atol=1e-12 * np.abs(expected).max())
            np.testing.assert_allclose(backend.host(values), read, atol=1e-12 * np.abs(read).max())
            backend.library.clear(field), backend.library.clear(values)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("stable", [False, True])
def test_a_captured_ordering_replays_with_other_keys(backend, stable):
    import cupy

    from particlemesh.sorting import counting

    rng, held, count, bins = np.random.default_rng(40), {}, 30_000, 5000

    def allocate(name, shape, dtype):
        if name not in held:
            held[name] = cupy.empty(shape, dtype)
        return held[name]

    keys = cupy.zeros(count, np.int32)
    stream = cupy.cuda.Stream(non_blocking=True)
    counting.counting_sort(
        backend.library, keys, count, bins, stable=stable, allocate=allocate
    )  # compiles and allocates
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        start, order, rank = counting.counting_sort(
            backend.library, keys, count, bins, stable=stable, allocate=allocate
        )
        graph = stream.end_capture()
    for _ in range(3):
        drawn = rng.integers(0, bins, count).astype(np.int32)
        keys.set(drawn)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(start.get()[1 : bins + 1], np.cumsum(np.bincount(drawn, minlength=bins)))
        np.testing.assert_array_equal(drawn[order.get()], np.sort(drawn))
        np.testing.assert_array_equal(order.get()[rank.get()], np.arange(count))
        if stable:
            np.testing.assert_array_equal(order.get(), np.argsort(drawn, kind="stable"))
