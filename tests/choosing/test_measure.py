# SPDX-License-Identifier: BSD-3-Clause
"""``method="measure"``: candidates timed on the particles that a plan has."""

import pickle
import time

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cuda
from particlemesh.backends.cpu import CpuBackend
from particlemesh.choosing import trial
from particlemesh.choosing.choice import METHODS
from particlemesh.plan import calls
from particlemesh.spread.colouring import Colouring

MESH = pm.Mesh((16, 15, 14), (1.0, 1.0, 1.0))
RNG = np.random.default_rng(8)
X, Q = RNG.random((3000, 3)), RNG.normal(size=3000)


def slowed(name_, predicted, taken, **members):
    """Colouring by another name, which predicts and takes so many seconds."""

    class Slowed(Colouring):
        name = name_
        cost = classmethod(lambda cls, problem: (0.0, predicted))

        def apply(self, *arguments, **options):
            time.sleep(taken)
            super().apply(*arguments, **options)

    for member, value in members.items():
        setattr(Slowed, member, value)
    return Slowed


@pytest.fixture
def two(monkeypatch):
    """Two methods of which the second is faster than it says."""
    methods = slowed("boaster", 1e-4, 8e-3), slowed("modest", 2e-4, 1e-3)
    monkeypatch.setitem(METHODS, "spread", methods)
    return methods


@pytest.fixture
def timed(monkeypatch):
    """The methods that were timed, and for how many particles."""
    asked, plain = [], trial.seconds
    monkeypatch.setattr(trial, "seconds", lambda p, w, m: (asked.append((w, m.name, p.count)), plain(p, w, m))[1])
    return asked


def plan_of(x=X, **options):
    plan = pm.Plan(MESH, "bspline4", **{"method": "measure", **options})
    plan.set_positions(x)
    return plan


def starred(text):
    return [line for line in text.splitlines() if line.startswith("* ")]


def test_the_faster_of_two_is_found_whatever_they_say(two):
    auto, measuring = plan_of(method="auto"), plan_of()
    np.testing.assert_array_equal(auto.spread(Q), measuring.spread(Q))
    assert type(auto.methods.of("spread")) is two[0]
    assert type(measuring.methods.of("spread")) is two[1]
    chosen = starred(measuring.explain())[0]
    assert chosen.startswith("* modest") and chosen.endswith("measured")
    assert float(chosen.split()[3]) > 1.0 and chosen.split()[4] == "ms"
    assert starred(auto.explain())[0].endswith("predicted")


def test_it_is_measured_once_and_again_for_many_more(two, timed):
    plan = plan_of()
    assert not timed  # only when values come
    for x in (X, X[:2000], X[::-1], np.tile(X, (2, 1))):
        plan.set_positions(x)
        plan.spread(np.ones(len(x)))
        plan.explain()
    assert timed == [("spread", name, 3000) for name in ("boaster", "modest")]
    plan.set_positions(X[:1000])
    plan.spread(Q[:1000])
    assert timed[2:] == [("spread", name, 1000) for name in ("boaster", "modest")]
    assert "N = 1,000" in plan.explain()


def test_both_directions_are_measured_apart(backend, timed):
    x, q = backend.array(X.astype(np.float32)), backend.array(Q.astype(np.float32))
    plan = plan_of(x, interpolation="measure")
    field = plan.spread(q)
    assert {what for what, _, _ in timed} == {"spread"}
    values = plan.interpolate(field)
    assert {what for what, _, _ in timed} == {"spread", "interpolate"}
    for line in starred(plan.explain()):
        assert line.endswith("measured")
    named = plan_of(x, method=plan.methods.of("spread").name, interpolation=plan.methods.of("interpolate").name)
    expected = named.spread(q)
    np.testing.assert_allclose(backend.host(field), backend.host(expected), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(backend.host(values), backend.host(named.interpolate(expected)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("components", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trial_serves_every_kind_of_values(components, dtype):
    plan = plan_of(X.astype(dtype), dtype=dtype, components=components, interpolation="measure")
    prepare, apply = trial.seconds(plan.workspace, "spread", Colouring)
    assert prepare == 0.0 and 0 < apply < 1
    assert "measured" in plan.explain()


def test_a_trial_leaves_everything_as_it_was(backend):
    x, q, field = (backend.array(a.astype(np.float32)) for a in (X, Q, RNG.random(MESH.shape)))
    before = [backend.host(a) for a in (x, q, field)]
    plan = plan_of(x, interpolation="measure")
    out = plan.empty_field()
    plan.spread(q, out=out)
    values = plan.interpolate(field)
    for array, same in zip((x, q, field), before, strict=True):
        np.testing.assert_array_equal(backend.host(array), same)
    # What others took is given back.
    alone = plan_of(x, method=plan.methods.of("spread").name, interpolation=plan.methods.of("interpolate").name)
    alone.spread(q, out=alone.empty_field())
    alone.interpolate(field, out=values)
    assert set(plan.workspace.memory.arrays) == set(alone.workspace.memory.arrays)


@pytest.mark.parametrize("order", ["caller", "sorted"])
def test_stencils_are_unpacked_for_trials_only(backend, order, monkeypatch):
    monkeypatch.setattr(calls, "MANY", 1000)  # are kept packed
    x, q = X.astype(np.float32), np.ones(len(X), np.float32)
    plan = plan_of(backend.array(x), order=order, method="auto")
    held = plan.particles.nbytes
    methods = [
        m for m in METHODS["spread"] if m.name in ("particle", "walk", "colouring") and backend.name in m.backends
    ]
    for method in methods:
        prepare, apply = trial.seconds(plan.workspace, "spread", method)
        assert apply > 0 and prepare >= 0
    if order == "caller":
        assert plan.particles.nbytes == held
    values = q if order == "caller" else q[backend.host(plan.order)]
    np.testing.assert_allclose(backend.host(plan.spread(backend.array(values))).sum(), q.sum(), rtol=1e-4)


def test_where_timing_cannot_be(monkeypatch, timed):
    plan = pm.Plan(MESH, "cic", method="measure", backend="cpu", dtype="float64")
    with pytest.raises(ValueError, match="'measure' times methods on positions: call set_positions before reserve"):
        plan.reserve(100)
    plan.set_positions(np.zeros((0, 3)))
    assert plan.spread(np.zeros(0)).sum() == 0 and not timed  # there is nothing to time
    plan.set_positions(X)
    monkeypatch.setattr(CpuBackend, "capturing", lambda self: True)
    with pytest.raises(RuntimeError, match="'measure' has to time methods to spread.* spread once before it"):
        plan.spread(Q)
    monkeypatch.undo()
    np.testing.assert_allclose(plan.spread(Q).sum(), Q.sum())
    monkeypatch.setattr(CpuBackend, "capturing", lambda self: True)
    plan.set_positions(X[::-1], check=False)  # the method is known by now
    np.testing.assert_allclose(plan.spread(Q).sum(), Q.sum())


def test_reserving_after_positions_measures_them(timed):
    plan = plan_of(interpolation="measure")
    plan.reserve(5000)
    assert {(what, count) for what, _, count in timed} == {("spread", 3000), ("interpolate", 3000)}
    np.testing.assert_allclose(plan.spread(Q).sum(), Q.sum())


def test_copies_and_single_calls_measure_too(timed):
    plan = pickle.loads(pickle.dumps(plan_of(interpolation="measure")))
    plan.set_positions(X)
    plan.spread(Q)
    assert {what for what, _, _ in timed} == {"spread"}
    pm.interpolate(np.ones(MESH.shape), X, MESH, interpolation="measure")
    assert {what for what, _, _ in timed} == {"spread", "interpolate"}


def test_no_method_is_called_measure():
    with pytest.raises(ValueError, match="method is 'measured'; choose 'auto', 'measure' or one of particle, "):
        pm.Plan(MESH, "cic", method="measured")
    with pytest.raises(ValueError, match="method is 'measure'; choose 'auto' or one of"):
        pm.UniformGrid(1.0, shape=4, method="measure")


# ---- clocks -----------------------------------------------------------------------------------------------


def test_a_call_takes_what_it_takes(backend):
    library = backend.library
    array = library.upload(np.zeros(1 << 20, np.float32))
    calls = []

    def call():
        calls.append(1)
        library.clear(array)

    with library.scope(array):
        call()
        seconds = library.seconds(call)
    assert 0 < seconds < 0.1
    assert len(calls) > 3
    assert not library.capturing()
    backend.wait()


class Recording:
    """A stream that only knows whether it captures."""

    def __init__(self):
        self.captures, self.spoilt = False, False

    def begin_capture(self):
        assert not self.captures
        self.captures = True

    def end_capture(self):
        self.captures = False
        if self.spoilt:
            raise RuntimeError("the capture is spoilt")
        return "graph"


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("error", [None, RuntimeError, MemoryError, KeyboardInterrupt])
def test_a_stream_captures_no_longer_whatever_went_wrong(error, spoilt):
    stream = Recording()

    def work():
        stream.spoilt = spoilt
        if error is not None:
            raise error("went wrong")

    if error in (None, RuntimeError):
        assert cuda._captured(stream, work) == (None if error or spoilt else "graph")
    else:
        with pytest.raises(error, match="went wrong"):
            cuda._captured(stream, work)
    assert not stream.captures


def test_long_calls_are_not_repeated_for_long():
    calls = []
    seconds = CpuBackend().seconds(lambda: (calls.append(1), time.sleep(0.02)))
    assert 0.02 <= seconds < 2
    assert len(calls) <= 3


@pytest.mark.backends("cuda")
def test_a_measured_plan_is_captured_afterwards(backend):
    import cupy

    x, q = cupy.asarray(X), cupy.asarray(Q)
    plan = plan_of(x, interpolation="measure")
    out, values = plan.empty_field(), cupy.zeros(len(X))

    def step():
        plan.set_positions(x, check=False)
        plan.spread(q, out=out)
        plan.interpolate(out, out=values)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(RuntimeError, match="a capture cannot"):
            step()
        stream.end_capture()
    plan = plan_of(x, interpolation="measure")
    plan.reserve(len(X))
    step()
    expected = out.get()
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        step()
        graph = stream.end_capture()
    out.fill(0)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_allclose(out.get(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.backends("opencl")
def test_a_launch_that_finds_no_memory_is_the_next_methods_turn(backend, monkeypatch):
    import pyopencl

    from particlemesh.spread.fixed_point import FixedPoint
    from particlemesh.spread.particle import Particle

    launch, enqueue = pyopencl.enqueue_nd_range_kernel, []

    def launch_or_fail(*arguments):
        if enqueue:  # as drivers that take memory when it is first used
            raise pyopencl.MemoryError("enqueue_nd_range_kernel failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return launch(*arguments)

    def time_of(plan, what, method):
        enqueue[:] = [method] * (method is Particle)
        try:
            return time_before(plan, what, method)
        finally:
            enqueue.clear()

    time_before = trial.seconds
    monkeypatch.setattr(trial, "seconds", time_of)
    monkeypatch.setattr(pyopencl, "enqueue_nd_range_kernel", launch_or_fail)
    monkeypatch.setitem(METHODS, "spread", (Particle, FixedPoint))
    plan = plan_of(backend.array(X.astype(np.float32)))
    plan.spread(backend.array(Q.astype(np.float32)))
    assert plan.methods.of("spread").name == "fixed_point"
    assert "no memory to try it: enqueue_nd_range_kernel failed" in " ".join(plan.explain().split())
