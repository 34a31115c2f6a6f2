# SPDX-License-Identifier: BSD-3-Clause
"""Calls for arrays of earlier calls are played: the same results, without working anything out."""

import sys

import numpy as np
import pytest

import oracle
import particlemesh as pm
from late_work import FIELDS, MESH, Q, X, here, plan_on, wait
from particlemesh.grid import uniform_grid
from particlemesh.grid.builders import METHODS
from particlemesh.plan import calls
from tracing import functions_entered

pytestmark = pytest.mark.backends("cuda", "opencl")
TURNS = 5  # the third call for the same arrays is the first that is played
VERBS = {
    "spread": ((200,), MESH.shape),
    "spread_gradient": ((200, 3), MESH.shape),
    "interpolate": (MESH.shape, (200,)),
    "gradient": (MESH.shape, (200, 3)),
    "spread_hessian": ((200, 3, 3), MESH.shape),
    "hessian": (MESH.shape, (200, 3, 3)),
}


def refuse(*_, **__):
    raise AssertionError("this call is worked out, not played")


@pytest.fixture
def plan(backend):
    with pm.Plan(MESH, "bspline3") as plan:
        plan.set_positions(backend.array(X))
        yield plan


def put(backend, array, host):
    backend.library.copy(array, backend.array(host))


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
@pytest.mark.parametrize("layout", ["planar", "interleaved", "strided"])
@pytest.mark.parametrize("verb", VERBS)
def test_what_is_played_is_what_a_call_does(backend, plan, monkeypatch, verb, layout, batch):
    rng, (result, goes) = np.random.default_rng(5), VERBS[verb]
    given, out = (backend.array(np.zeros(batch + shape), layout if batch else "planar") for shape in (result, goes))
    as_it_is = layout == "planar" or (layout == "interleaved" and len(batch) < 2)  # else copies are made
    for turn in range(TURNS):
        host = rng.normal(size=batch + result)
        expected = backend.host(getattr(plan, verb)(backend.array(host)))
        put(backend, given, host)
        with monkeypatch.context() as patch:
            if turn > 1 and as_it_is:
                patch.setattr(calls, "spread", refuse), patch.setattr(calls, "interpolate", refuse)
            assert getattr(plan, verb)(given, out=out) is out
        np.testing.assert_allclose(backend.host(out), expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("named", [False, True], ids=["results", "outputs"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_call_is_played_for_any_arrays_of_its_form(backend, plan, monkeypatch, verb, named):
    rng, (result, goes), kept = np.random.default_rng(5), VERBS[verb], []
    for turn in range(TURNS):
        host = rng.normal(size=result)
        expected = backend.host(getattr(plan, verb)(backend.array(host[None])))[0]  # a batch is of another form
        given, out = backend.array(host), backend.array(np.full(goes, np.nan)) if named else None
        with monkeypatch.context() as patch:
            if turn > 1:
                patch.setattr(calls, "spread", refuse), patch.setattr(calls, "interpolate", refuse)
            got = getattr(plan, verb)(given, out=out)
        assert got is out or not named
        kept.append((got, expected))  # no call writes to another's result
    for got, expected in kept:
        np.testing.assert_allclose(backend.host(got), expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("verb", VERBS)
def test_tensors_are_played(backend, monkeypatch, verb):
    torch = pytest.importorskip("torch")
    rng, (result, _) = np.random.default_rng(5), VERBS[verb]
    plan = pm.Plan(MESH, "bspline3").set_positions(torch.tensor(X, device="cuda"))
    stream = torch.cuda.Stream()
    for turn in range(TURNS):
        host = rng.normal(size=result)
        expected = backend.host(getattr(plan, verb)(backend.array(host[None])))[0]
        backend.wait()
        with monkeypatch.context() as patch, torch.cuda.stream(stream):
            if turn > 1:
                patch.setattr(calls, "spread", refuse), patch.setattr(calls, "interpolate", refuse)
            got = getattr(plan, verb)(torch.tensor(host, device="cuda"))
            assert isinstance(got, torch.Tensor) and got.is_cuda
            got = got.cpu().numpy()
        np.testing.assert_allclose(got, expected, atol=1e-12 * np.abs(expected).max())
    values = torch.tensor(rng.normal(size=result), device="cuda", requires_grad=True)  # of a form that was played
    assert getattr(plan, verb)(values).requires_grad
    conjugate = torch.tensor(rng.normal(size=result) + 1j, device="cuda").conj()
    for _ in range(TURNS):
        got = getattr(plan, verb)(conjugate).cpu().numpy()
        expected = getattr(plan, verb)(conjugate.resolve_conj()).cpu().numpy()
        np.testing.assert_allclose(got, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("check", [True, False])
def test_positions_of_two_libraries_in_turn(backend, check):
    torch = pytest.importorskip("torch")
    plan = pm.Plan(MESH, "bspline3", dtype="float64")
    for turn in range(2 * TURNS):
        plan.set_positions(backend.array(X) if turn % 3 else torch.tensor(X, device="cuda"), check=check)
        assert isinstance(plan.empty_field(), torch.Tensor) == (turn % 3 == 0)


def grid_of(**options):
    return pm.UniformGrid((1.0,) * 3, cell_size=0.2, **options)


@pytest.mark.parametrize("radii", [None, 0.05])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("method", [m.name for m in METHODS if m.name != "linked_list_tight"])  # it needs radii
def test_builds_of_a_grid_are_played_for_any_positions(backend, monkeypatch, method, check, radii):
    grid = grid_of(method=method).build(backend.array(X), radii)
    for turn in range(9):
        x = (X + 0.1 * turn) % 1.0
        with monkeypatch.context() as patch:
            if turn > 6:  # checked builds go to two memories, in turns
                patch.setattr(uniform_grid, "build_on_gpu", refuse)
            grid.build(backend.array(x), radii, check=check)
        np.testing.assert_array_equal(backend.host(grid.count(0.2)), grid_of().build(x).count(0.2))


def test_bad_positions_of_a_played_build_leave_the_grid_as_it_was(backend, monkeypatch):
    grid = grid_of()
    for turn in range(8):
        grid.build(backend.array((X + 0.1 * turn) % 1.0))
    before, bad = backend.host(grid.count(0.2)), X.copy()
    bad[77, 1] = np.nan
    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"77"):
            patch.setattr(uniform_grid, "build_on_gpu", refuse)
            grid.build(backend.array(bad))
        np.testing.assert_array_equal(backend.host(grid.count(0.2)), before)


def test_a_played_build_whose_cells_overflow_is_made_anew(backend):
    grid, crowd = grid_of(method="fixed"), np.full_like(X, 0.31)
    for turn in range(8):
        grid.build(backend.array((X + 0.1 * turn) % 1.0))
    for x in (crowd, X, crowd):
        grid.build(backend.array(x))
        np.testing.assert_array_equal(backend.host(grid.count(0.2)), grid_of().build(x).count(0.2))


def test_positions_that_are_converted_are_not_played(backend):
    grid = grid_of(dtype="float64")
    for turn in range(9):
        x = ((X + 0.1 * turn) % 1.0).astype("f4")
        grid.build(backend.array(x), check=bool(turn % 3))
        np.testing.assert_array_equal(
            backend.host(grid.count(0.2)), grid_of(dtype="float64").build(x.astype("f8")).count(0.2)
        )


def test_what_a_grid_shows_of_its_memory_is_not_taken_for_other_arrays(backend):
    grid = pm.UniformGrid((1.0,) * 3, cell_size=0.2).build(backend.array(X))
    shown = grid.positions  # the grid's memory
    for _ in range(TURNS):
        grid.build(shown, check=False)
    for turn in range(TURNS):
        host = (X + 0.1 * turn) % 1.0
        wide = np.zeros((len(X), shown.strides[0] // shown.dtype.itemsize))
        wide[:, :3] = host
        other = backend.array(wide)[:, :3]  # of the same form
        assert (other.shape, other.strides, other.dtype) == (shown.shape, shown.strides, shown.dtype)
        grid.build(other, check=False)
        np.testing.assert_array_equal(backend.host(other), host)
        expected = pm.UniformGrid((1.0,) * 3, cell_size=0.2).build(host).count(0.2)
        np.testing.assert_array_equal(backend.host(grid.count(0.2)), expected)


@pytest.mark.backends("cuda")
def test_a_grid_of_tensors_is_built_on_their_stream(backend):
    torch = pytest.importorskip("torch")
    grid, x, stream = (
        pm.UniformGrid((1.0,) * 3, cell_size=0.2),
        torch.zeros(X.shape, device="cuda"),
        torch.cuda.Stream(),
    )
    for turn in range(TURNS):
        fresh = torch.tensor((X + 0.1 * turn) % 1.0, device="cuda", dtype=torch.float32)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.copy_(fresh)
            grid.build(x, check=False)
            got = grid.count(0.2)
        torch.cuda.synchronize()
        expected = pm.UniformGrid((1.0,) * 3, cell_size=0.2).build(fresh).count(0.2)
        assert torch.equal(got, expected)
        x.zero_()


def test_a_played_call_enters_few_functions(backend, plan):
    x, q, field = backend.array(X), backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    most = {"set_positions": (90, lambda: plan.set_positions(x)), "spread": (60, lambda: plan.spread(q)),
            "interpolate": (60, lambda: plan.interpolate(field))}  # fmt: skip
    for _ in range(2 * TURNS):
        for _, call in most.values():
            call()
    for name, (limit, call) in most.items():
        assert functions_entered(call) <= limit, name


@pytest.mark.parametrize("used", [False, True], ids=["alone", "with values"])
def test_positions_anywhere_are_played(backend, monkeypatch, used):
    with pm.Plan(MESH, "bspline3", method="particle", interpolation="particle") as plan:
        for turn in range(10):
            x = (X + 0.1 * turn) % 1.0
            with monkeypatch.context() as patch:
                if turn > 7:  # the plan has two memories for positions, in turns
                    patch.setattr(type(plan), "locate", refuse)
                plan.set_positions(backend.array(x))
            if used or turn == 9:
                expected = oracle.spread(MESH, pm.bspline(3), x, Q[0])
                np.testing.assert_allclose(backend.host(plan.spread(backend.array(Q[0]))), expected, atol=1e-12)


def test_an_output_in_the_memory_of_the_input_is_refused_after_playing(backend, plan):
    store = backend.flat(np.zeros(200 + np.prod(MESH.shape)))
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    for _ in range(TURNS):
        plan.spread(q, out=out)
    near = backend.view(store, (200,), np.dtype(float), 0, (8,))
    over = backend.view(store, MESH.shape, np.dtype(float), 8 * 192, out.strides)
    with pytest.raises(ValueError, match="shares memory"):
        plan.spread(near, out=over)


@pytest.mark.parametrize("given", [(True, False), (False, True)])
def test_one_output_of_two_is_never_forgotten(backend, plan, given):
    field = backend.array(np.random.default_rng(6).normal(size=MESH.shape))
    outs = tuple(backend.array(np.zeros(s)) if g else None for g, s in zip(given, [(200,), (200, 3)], strict=True))
    expected = plan.value_and_gradient(field)
    for _ in range(TURNS):
        got = plan.value_and_gradient(field, out=outs)
        for k in range(2):
            assert got[k] is outs[k] or not given[k]
            np.testing.assert_array_equal(backend.host(got[k]), backend.host(expected[k]))


def test_value_and_gradient_are_played_together(backend, plan, monkeypatch):
    rng, field = np.random.default_rng(6), backend.array(np.zeros(MESH.shape))
    outs = backend.array(np.zeros(200)), backend.array(np.zeros((200, 3)))
    for turn in range(TURNS):
        host = rng.normal(size=MESH.shape)
        put(backend, field, host)
        with monkeypatch.context() as patch:
            if turn > 1:
                patch.setattr(calls, "interpolate", refuse)
            assert plan.value_and_gradient(field, out=outs) == outs
        for got, expected in zip(outs, plan.value_and_gradient(backend.array(host)), strict=True):
            np.testing.assert_allclose(backend.host(got), backend.host(expected), atol=1e-12 * np.abs(host).max())


def test_accumulating_adds_each_time(backend, plan):
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    for turn in range(TURNS):
        plan.spread(q, out=out, accumulate=True)
        np.testing.assert_allclose(backend.host(out), (turn + 1) * FIELDS[0], atol=1e-11)
    for _ in range(TURNS):  # the same arrays, another call
        plan.spread(q, out=out)
        np.testing.assert_allclose(backend.host(out), FIELDS[0], atol=1e-12)


def test_other_arrays_of_the_same_memory_are_other_calls(backend, plan):
    values = np.stack([*Q, Q[0] + Q[1]])
    store, out = backend.flat(np.ascontiguousarray(values).ravel()), backend.array(np.zeros(MESH.shape))
    for _ in range(TURNS):
        for k in range(3):
            row = backend.view(store, (200,), np.dtype(float), 8 * 200 * k, (8,))
            plan.spread(row, out=out)
            np.testing.assert_allclose(backend.host(out), oracle.spread(MESH, pm.bspline(3), X, values[k]), atol=1e-11)
        every = backend.view(store, (200,), np.dtype(float), 0, (16,))
        plan.spread(every, out=out)
        expected = oracle.spread(MESH, pm.bspline(3), X, values.ravel()[:400:2])
        np.testing.assert_allclose(backend.host(out), expected, atol=1e-11)


def test_new_positions_forget_what_was_played(backend, plan):
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    for shift in (0.0, 0.25, 0.5):
        plan.set_positions(backend.array(X + shift))
        for _ in range(TURNS):
            plan.spread(q, out=out)
            expected = oracle.spread(MESH, pm.bspline(3), X + shift, Q[0])
            np.testing.assert_allclose(backend.host(out), expected, atol=1e-12)


def held_by(array):
    """The object whose life is that of an array's memory."""
    return array.base_data if hasattr(array, "base_data") else array.data.mem


def assert_free(held):
    assert [sys.getrefcount(memory) for memory in held] == [3] * len(held)  # the list, the loop, the function


@pytest.mark.parametrize("layout", ["planar", "strided"])
def test_the_memory_of_arrays_is_not_kept(backend, plan, layout):
    arrays = [(backend.array(q), backend.array(np.zeros(MESH.shape), layout)) for q in Q]
    for q, out in arrays:
        for _ in range(TURNS):
            plan.spread(q, out=out)
    backend.wait()
    held = [held_by(array) for pair in arrays for array in pair]
    del arrays, q, out
    assert_free(held)


def test_the_memory_of_positions_is_not_kept(backend):
    arrays = [backend.array(X.astype("f4")) for _ in range(5)]
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)) as grid:
        for x in arrays:
            for _ in range(TURNS):
                grid.build(x, check=False)
        last = backend.array(X.astype("f4"))
        for _ in range(2):  # what is not played may be held until the next
            grid.build(last, check=False)
        backend.wait()
        held = [held_by(x) for x in arrays]
        del arrays, x
        assert_free(held)


def test_another_type_of_the_same_memory_is_another_call(backend, plan):
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    for _ in range(TURNS):
        plan.spread(q, out=out)
    plan.spread(q.view(np.int64), out=out)
    expected = oracle.spread(MESH, pm.bspline(3), X, Q[0].view(np.int64).astype(float))
    np.testing.assert_allclose(backend.host(out), expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.direction("spread")
def test_the_third_call_is_played_by_every_method(backend, law, monkeypatch):
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    with law.plan(MESH, "bspline3", dtype="float64", backend=backend.name) as plan:
        plan.set_positions(backend.array(X))
        for turn in range(4):
            with monkeypatch.context() as patch:
                if turn > 1:
                    patch.setattr(calls, "spread", refuse)
                plan.spread(q, out=out)
            np.testing.assert_allclose(backend.host(out), FIELDS[0], atol=1e-12)


def test_calls_that_fail_are_no_calls(backend, plan, monkeypatch):
    # What the first good call prepares must not be on the tape; and no tape goes on after an error.
    q, out, whole = backend.array(Q[0]), backend.array(np.zeros(MESH.shape)), calls.spread

    def fail(*given, **more):
        whole(*given, **more)
        raise MemoryError("made up by a test")

    def failing():
        with monkeypatch.context() as patch, pytest.raises(MemoryError, match="made up"):
            patch.setattr(calls, "spread", fail)
            plan.spread(q, out=out)
        assert backend.library.tape is None

    failing()
    plan.spread(q, out=out)
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="worked out"):
        patch.setattr(calls, "spread", refuse)
        plan.spread(q, out=out)
    failing()
    for _ in range(TURNS):
        plan.spread(q, out=out)
        np.testing.assert_allclose(backend.host(out), FIELDS[0], atol=1e-12)


def test_a_tape_within_a_tape_spoils_the_outer_one(backend):
    library = backend.library
    with library.taping() as outer:
        with library.taping() as inner:
            assert library.tape is inner
        assert library.tape is outer
    assert inner.complete and not outer.complete and library.tape is None


@pytest.mark.direction("spread")
def test_played_calls_on_two_streams_share_a_plan_in_turn(backend, law):
    streams = backend.stream(), backend.stream()
    plan = plan_on(backend, streams[0], law.method.name)
    given = [here(backend, Q[k], stream) for k, stream in enumerate(streams)]
    outs = [here(backend, np.zeros(MESH.shape), stream) for stream in streams]
    for turn in range(TURNS):
        for k, stream in enumerate(streams):
            if k == 0 and turn == TURNS - 1:
                late = backend.late(Q[0], stream)  # the stream is busy for a while
            with backend.on(stream):
                plan.spread(given[k], out=outs[k])
    wait(backend, streams[1])
    first = streams[0] if backend.name == "cuda" else outs[0].events[0]
    assert first.done if backend.name == "cuda" else first.command_execution_status == 0  # CL_COMPLETE
    wait(backend, streams[0])
    for k in (0, 1):
        np.testing.assert_allclose(backend.host(outs[k]), FIELDS[k], atol=1e-12)
    del late


def test_what_is_played_waits_and_is_waited_for(backend):
    # The producer of the values works on a stream of its own, and the reader of the result on another.
    stream, producer = backend.stream(), backend.stream()
    plan = plan_on(backend, stream)
    q, out = here(backend, Q[0], stream), here(backend, np.zeros(MESH.shape), stream)
    for turn in range(TURNS):
        late = backend.late(Q[turn % 2], producer)
        if backend.name == "opencl":  # arrays know their writers
            q.events = [backend.cl.enqueue_copy(producer, q.base_data, late.base_data)]
            plan.spread(q, out=out)
            result = backend.host(out.with_queue(producer))
        else:  # the producer's stream is the current one
            with backend.on(producer):
                backend.library.copy(q, late)
                plan.spread(q, out=out)
                result = backend.host(out)
        np.testing.assert_allclose(result, FIELDS[turn % 2], atol=1e-12)
        wait(backend, stream, producer)


@pytest.mark.backends("opencl")
def test_what_is_played_goes_to_the_queue_of_its_arrays(backend, monkeypatch):
    queues = backend.stream(), backend.stream()
    plan = plan_on(backend, queues[0])
    q, out = here(backend, Q[0], queues[0]), here(backend, np.zeros(MESH.shape), queues[0])
    for turn in range(TURNS):
        for queue in queues:
            with monkeypatch.context() as patch:
                if turn > 1:
                    patch.setattr(calls, "spread", refuse)
                result = plan.spread(q.with_queue(queue), out=out.with_queue(queue))
            assert result.events[0].command_queue == queue
            np.testing.assert_allclose(backend.host(result), FIELDS[0], atol=1e-12)


@pytest.mark.parametrize("move", ["more components", "reserve"])
def test_memory_that_moves_is_not_played(backend, monkeypatch, move):
    values = np.random.default_rng(7).normal(size=(4, 200))
    q, out = backend.array(Q[0]), backend.array(np.zeros(MESH.shape))
    with pm.Plan(MESH, "bspline3", method="walk_fixed", dtype="float64", backend=backend.name) as plan:
        plan.set_positions(backend.array(X))
        for _ in range(TURNS):
            plan.spread(q, out=out)
        if move == "reserve":
            plan.reserve(1000)
        else:  # they want more scratch memory, which gets another place
            plan.spread(backend.array(values))
        with monkeypatch.context() as patch, pytest.raises(AssertionError, match="worked out"):
            patch.setattr(calls, "spread", refuse)
            plan.spread(q, out=out)
        for _ in range(TURNS):
            plan.spread(q, out=out)
            np.testing.assert_allclose(backend.host(out), FIELDS[0], atol=1e-12)
