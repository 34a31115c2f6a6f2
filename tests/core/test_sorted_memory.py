# SPDX-License-Identifier: BSD-3-Clause
"""Plans with an order of their own: memory that they take, keep and lose; what kernels are launched, and captured."""

import numpy as np
import pytest

import particlemesh as pm
from blocks import staged_from
from particlemesh.backends import cuda
from particlemesh.orders import block_order
from particlemesh.walk.by_block import cells_to_sort_by
from ptx import without_nvrtc
from scarce import Scarce
from test_sorted import MESH, WINDOW, close, drawn, order_of, plain_interpolate, plain_spread, sorted_plan


def test_reserved_memory_is_all_it_takes(backend, law, monkeypatch):
    x, q, _ = drawn(60)
    charges, field, values, slopes = (backend.array(a) for a in (q[0], np.zeros(MESH.shape), q[0], np.zeros((60, 3))))
    stable = law.method.deterministic
    with law.plan(
        MESH, "bspline4", backend=backend.name, dtype="float64", order="sorted", deterministic=stable
    ) as plan:
        plan.reserve(100)
        if law.method.name == "stored":  # memory of slopes
            plan.set_positions(backend.array(x))
            plan.gradient(field, out=slopes)
        positions = [backend.array(x[:n]) for n in (60, 0, 60)]
        held = plan.nbytes
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            for each in positions:
                plan.set_positions(each, check=False)
                order = plan.order
            plan.spread(charges, out=field)
            plan.interpolate(field, out=values)
            plan.gradient(field, out=slopes)
        if backend.name != "cpu":  # there lists of tasks are as long as there are tasks
            assert plan.nbytes == held
        order = backend.host(order)
        close(backend.host(field), plain_spread(x[order], q[0]))
        close(backend.host(values), plain_interpolate(x[order], backend.host(field)))
        with pytest.raises(ValueError, match="room is reserved for 100"):
            plan.set_positions(backend.array(drawn(101)[0]), check=False)
        plan.set_positions(backend.array(drawn(300)[0]))  # more than reserved, where it may
        assert plan.capacity >= 300
        order = order_of(backend, plan)
        close(
            backend.host(plan.spread(backend.array(drawn(300)[1][:, order]))),
            plain_spread(*drawn(300)[:2]),
        )


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("method", ["walk", "ordered", "owner"])
def test_methods_that_read_orders_need_no_memory_for_stencils(backend, monkeypatch, method):
    """Also where interpolation reads no stencils either, as the automatic choice does on a large GPU."""
    x, q, _ = drawn(60)
    x[7, 0], x[30, 2] = np.nan, np.inf
    charges, field = backend.array(q[0]), backend.array(np.zeros(MESH.shape))
    values, slopes = backend.array(q[0]), backend.array(np.ones((60, 3)))
    reading = "walk" if method == "owner" else method
    with sorted_plan(backend, method=method, interpolation=reading) as plan:
        plan.reserve(100)
        positions, held = backend.array(x), plan.nbytes
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            plan.set_positions(positions, check=False)
            plan.spread(charges, out=field)
            plan.interpolate(field, out=values)
            plan.gradient(field, out=slopes)
            plan.value_and_gradient(field, out=(values, slopes))
        assert plan.nbytes == held
        order, result, bent = order_of(backend, plan), backend.host(values), backend.host(slopes)
        assert set(order[58:]) == {7, 30}
        assert (result[58:] == 0).all() and (bent[58:] == 0).all()
        expected = plain_spread(x[order[:58]], q[0, :58])
        close(backend.host(field), expected)
        close(result[:58], plain_interpolate(x[order[:58]], expected))
        close(bent[:58], pm.gradient(expected, x[order[:58]], MESH, window=WINDOW))


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(
    ("method", "reading", "options", "again"),
    [
        ("ordered", "ordered", {"walk": {"patch": 8}}, 0),  # any blocks will do
        ("walk", "ordered", {"walk": {"patch": 8}}, 0),
        ("walk_fixed", "walk", {"walk": {"patch": 8}, "walk_fixed": {"patch": 16}}, 1),  # only its own fit its patch
    ],
)
def test_plans_sorted_by_blocks_that_a_method_did_not_choose(backend, monkeypatch, method, reading, options, again):
    x, q, _ = drawn(60)
    charges, field, values = backend.array(q[0]), backend.array(np.zeros(MESH.shape)), backend.array(q[0])
    with sorted_plan(backend, method=method, interpolation=reading, options=options) as plan:
        plan.reserve(100)
        positions, held, sorts = backend.array(x), plan.nbytes, []
        plain = block_order._order
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            patch.setattr(block_order, "_order", lambda *a, **k: sorts.append(a[1]) or plain(*a, **k))
            plan.set_positions(positions, check=False)
            plan.spread(charges, out=field)
            plan.interpolate(field, out=values)
        assert plan.nbytes == held and len(sorts) == 1 + again
        order = order_of(backend, plan)
        close(backend.host(field), plain_spread(x[order], q[0]))
        close(backend.host(values), plain_interpolate(x[order], backend.host(field)))


def test_memory_reserved_later_keeps_order_and_particles(backend):
    x, q, v = drawn(60)
    with sorted_plan(backend) as plan:
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        expected = plain_spread(x, q)
        with pm.Plan(MESH, WINDOW) as plain:
            plain.set_positions(x)
            bent = plain.spread_gradient(v)
        for room in (0, 500, 4000):
            plan.reserve(room)
            np.testing.assert_array_equal(backend.host(plan.order), order)
            np.testing.assert_array_equal(backend.host(plan.particles.order), order)
            assert plan.status == (60, 0, 0, -1, False)
            close(backend.host(plan.spread(backend.array(q[:, order]))), expected)
            close(
                backend.host(plan.spread_gradient(backend.array(v[:, order]))),
                bent,
            )
            values, slopes = (backend.host(a) for a in plan.value_and_gradient(backend.array(expected)))
            close(values, plain_interpolate(x[order], expected))
            close(slopes, pm.gradient(expected, x[order], MESH, window=WINDOW))
        more, charges, _ = drawn(3000, 5)
        plan.set_positions(backend.array(more))
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(charges[:, order]))), plain_spread(more, charges))


def test_memory_stays_the_same_and_is_all_given_back(backend):
    x, q, _ = drawn(60)
    with sorted_plan(backend) as plan:
        sizes = []
        for n in range(10):
            plan.set_positions(backend.array(x), check=n % 2 == 0)
            plan.spread(backend.array(q))
            sizes.append(plan.nbytes)
        assert len(set(sizes[2:])) == 1
        with pm.Plan(MESH, WINDOW, backend=backend.name, dtype="float64") as plain:
            plain.set_positions(backend.array(x))
            if backend.name == "cpu":
                assert sizes[-1] - plain.nbytes == 60 * 4
    assert plan.nbytes == 0


def test_out_of_memory_leaves_order_and_particles(backend, monkeypatch):
    (x, q, _), (many, charges, _) = drawn(60), drawn(540, 1)
    expected = {60: plain_spread(x, q), 540: plain_spread(many, charges)}
    given = {60: (backend.array(x), q), 540: (backend.array(many), charges)}
    failures = 0
    for passes in range(100):
        with sorted_plan(backend, method="walk" if backend.name != "cpu" else "auto") as plan:
            plan.set_positions(given[60][0])
            before = order_of(backend, plan)
            scarce = Scarce(backend.library.empty, passes)
            with monkeypatch.context() as patch:
                patch.setattr(backend.library, "empty", scarce)
                try:
                    plan.set_positions(given[540][0])
                except MemoryError:
                    failures += 1
                    assert plan.count == 60
                    np.testing.assert_array_equal(backend.host(plan.order), before)
            order = order_of(backend, plan)
            result = backend.host(plan.spread(backend.array(given[plan.count][1][:, order])))
            close(result, expected[plan.count])
        if not scarce.failed:
            break
    assert failures >= 2
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:  # the first positions
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 2 if backend.name == "cpu" else 4))
            with pytest.raises(MemoryError, match="bytes"):
                plan.set_positions(given[60][0])
        assert plan.dtype is None
        with pytest.raises(RuntimeError, match="call set_positions first"):
            plan.spread(backend.array(q))
        plan.set_positions(given[60][0])
        order_of(backend, plan)


# ---- on GPUs --------------------------------------------------------------------------------------------


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("deterministic", [False, True])
def test_methods_that_walk_find_the_order_made(backend, monkeypatch, deterministic):
    made, plain = [], block_order._order
    monkeypatch.setattr(block_order, "_order", lambda *given, **how: made.append(how) or plain(*given, **how))
    x, q, _ = drawn(200)
    method = "auto" if deterministic else "walk"
    with sorted_plan(backend, method=method, interpolation="walk", deterministic=deterministic) as plan:
        for n in range(1, 3):
            plan.set_positions(backend.array(x))
            order = order_of(backend, plan)
            field = plan.spread(backend.array(q[:, order]))
            close(backend.host(plan.interpolate(field)), plain_interpolate(x[order], backend.host(field)))
            assert len(made) == n
        plan.reserve(1000)  # the methods' blocks are those of as many
        plan.interpolate(field)
        made.clear()
        plan.set_positions(backend.array(x), check=False)
        plan.interpolate(field)
        assert len(made) == 1
        assert plan.methods.problem().sorted
        assert (
            block_order.seconds(plan.methods.problem(), (3, 3, 3))
            == block_order.order_bytes(plan.methods.problem(), (3, 3, 3))
            == 0
        )


@pytest.mark.backends("cuda", "opencl")
def test_blocks_where_no_method_walks(backend):
    x, q, _ = drawn(300)
    with sorted_plan(backend, window="bspline10") as plan:
        plan.set_positions(backend.array(x))
        assert plan.particles.by_block.blocks.cells == (4, 4, 8)
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(q[:, order]))), plain_spread(x, q, pm.bspline(10)))
    for nodes, cells in ((2**16 + 1, (8, 8, 16)), (2**17, (8, 8, 16)), (2**17 + 1, None)):
        mesh = pm.Mesh((nodes, 1, 2), (1.0, 2.0, 3.0))
        with sorted_plan(backend, mesh, "bspline10") as plan:
            if cells is None:
                with pytest.raises(ValueError, match=r"order='sorted' cannot serve .* along x\): use order='caller'"):
                    plan.set_positions(backend.array(x))
                assert plan.count == 0
                continue
            plan.set_positions(backend.array(x))
            assert plan.particles.by_block.blocks.cells == cells
            order_of(backend, plan)
    with (
        sorted_plan(backend) as plan,
        pytest.raises(ValueError, match="2,147,483,648 particles are too many for order='sorted'"),
    ):
        cells_to_sort_by((), plan.workspace, 2**31)


@pytest.mark.backends("opencl")
def test_the_order_is_on_the_queue_of_the_positions(backend):
    x, q, _ = drawn(100)
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        for _ in range(2):
            queue = backend.stream()
            positions = backend.cl.array.to_device(queue, x)
            plan.set_positions(positions)
            assert plan.order.queue == queue
            charges = backend.cl.array.take(backend.cl.array.to_device(queue, q[0]), plan.order)
            close(backend.host(plan.spread(charges)), plain_spread(x, q[0]))


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("way", ["dealt", "stable", "long"])
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_kernels_compile_for_cuda(backend, monkeypatch, way, real):
    if without_nvrtc() is not None:
        pytest.skip(f"no NVRTC: {without_nvrtc()}")
    asked, plain = [], type(backend.library).kernel
    monkeypatch.setattr(
        type(backend.library), "kernel", lambda self, *how, **more: asked.append(how) or plain(self, *how, **more)
    )
    staged_from(monkeypatch, 0 if way == "dealt" else 10**9)
    mesh = pm.Mesh((2**18 + 1,), (1.0,)) if way == "long" else MESH
    with sorted_plan(backend, mesh, dtype=real, deterministic=way == "stable") as plan:
        plan.set_positions(backend.array(drawn(100, 0, mesh)[0].astype(real)))
        assert plan.particles.node.shape == (3, 100)
    asked = [(file, *more) for file, *more in asked if file in ("orders/sorted_particles.c", "orders/block_order.c")]
    sources = {(file, tuple(defines.items())) for file, _, defines in asked}
    assert {file for file, _ in sources} == {"orders/sorted_particles.c", "orders/block_order.c"}
    for file, defines in sources:
        cubin = cuda.compile_only(file, dict(defines), 90)
        assert all(name.encode() in cubin for other, name, given in asked if (other, given) == (file, dict(defines)))


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("method", ["walk", "particle", "line_mesh"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_captured_step_sorts_other_positions_when_replayed(backend, method, deterministic):
    import cupy

    if deterministic and method != "line_mesh":
        pytest.skip("not deterministic")
    rng = np.random.default_rng(6)
    x, q, mine = cupy.zeros((60, 3)), cupy.zeros(60), cupy.zeros(60)
    field, values = cupy.zeros(MESH.shape), cupy.zeros(60)
    plan = sorted_plan(backend, method=method, deterministic=deterministic)
    plan.reserve(60)

    def step():
        plan.set_positions(x, check=False)
        cupy.take(q, plan.order, out=mine)
        plan.spread(mine, out=field)
        plan.interpolate(field, out=values)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        step()  # compiles
        stream.synchronize()
        stream.begin_capture()
        step()
        graph = stream.end_capture()
    for _ in range(3):
        positions, charges = rng.random((60, 3)) * 3 - 1, rng.normal(size=60)
        positions[7, 1] = np.nan
        x.set(positions)
        q.set(charges)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        order, good = order_of(backend, plan), np.delete(np.arange(60), 7)
        assert order[-1] == 7
        assert plan.status == (60, 1, 0, 7, False)
        expected = plain_spread(positions[good], charges[good])
        close(field.get(), expected)
        close(values.get()[:-1], plain_interpolate(positions[order[:-1]], expected))
        assert values.get()[-1] == 0
