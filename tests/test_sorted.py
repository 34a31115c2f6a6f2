# SPDX-License-Identifier: BSD-3-Clause
"""Values in the plan's order: what the plain plan gives, for particles sorted by it; every way in and out of it."""

import pickle

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import names
from particlemesh import sorted_particles
from particlemesh.binning import block_order
from test_failures_memory import Scarce

MESH = pm.Mesh((16, 17, 33), (1.0, 2.0, 3.0))
OPEN = pm.Mesh((16, 17, 33), pm.Box((1.0, 2.0, 3.0), periodic=(True, False, False)), offset=0.5)
WINDOW = pm.bspline(4)


def drawn(count, seed=0, mesh=MESH):
    """Return positions, values of two channels, and vectors."""
    rng = np.random.default_rng(seed)
    x = mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths
    return x, rng.normal(size=(2, count)), rng.normal(size=(2, count, mesh.ndim))


def sorted_plan(backend, mesh=MESH, window="bspline4", **options):
    return pm.Plan(mesh, window, **{"backend": backend.name, "dtype": "float64", "order": "sorted", **options})


def order_of(backend, plan):
    """Return the order, of which every particle is in once."""
    order = backend.host(plan.order)
    assert order.dtype.kind == "i"
    np.testing.assert_array_equal(np.sort(order), np.arange(plan.count))
    return order


def close(came, wanted, digits=1e-12):
    np.testing.assert_allclose(came, wanted, rtol=0, atol=digits * max(1e-300, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("count", [0, 1, 33, 500])
def test_values_are_those_of_the_plain_plan_in_the_plans_order(backend, law, count):
    x, q, v = drawn(count)
    reason = law.declines(backend, MESH, WINDOW, "float64", count)
    if reason:
        pytest.skip(reason)
    with law.plan(MESH, WINDOW) as plain, law.plan(MESH, WINDOW, order="sorted") as plan:
        for each in (plain, plan):
            each.set_positions(backend.array(x))
        order = order_of(backend, plan)
        if law.direction == "spread":
            field = backend.host(plain.spread(backend.array(q)))
            close(backend.host(plan.spread(backend.array(q[:, order]))), field)
            slopes = backend.host(plain.spread_gradient(backend.array(v)))
            close(backend.host(plan.spread_gradient(backend.array(v[:, order]))), slopes)
            return
        field = backend.array(np.random.default_rng(3).normal(size=(2, *MESH.shape)))
        values, slopes = (backend.host(a) for a in plain.value_and_gradient(field))
        close(backend.host(plan.interpolate(field)), values[:, order])
        close(backend.host(plan.gradient(field)), slopes[:, order])
        for came, wanted in zip(plan.value_and_gradient(field), (values, slopes), strict=True):
            close(backend.host(came), wanted[:, order])


@pytest.mark.parametrize("deterministic", [False, True])
def test_sorted_particles_are_almost_where_they_were(backend, deterministic):
    x, q, _ = drawn(3000)
    with sorted_plan(backend, deterministic=deterministic) as plan:
        plan.set_positions(backend.array(x))
        first = order_of(backend, plan)
        assert (first != np.arange(3000)).any()
        field = backend.host(plan.spread(backend.array(q[:, first])))
        x = x[first]
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        exact = deterministic or backend.name == "cpu"
        crowd = (
            1
            if exact
            else np.diff(
                backend.host(plan.particles.by_block.start)[: plan.particles.by_block.blocks.total + 1].astype(int)
            ).max()
        )
        assert np.abs(order - np.arange(3000)).max() < crowd
        close(backend.host(plan.spread(backend.array(q[:, first][:, order]))), field)
        moved = x.copy()
        moved[1700] += 0.4 * MESH.box.lengths
        plan.set_positions(backend.array(moved))
        order = order_of(backend, plan)
        place = np.flatnonzero(order == 1700)[0]
        if exact:
            rest = order[order != 1700]
            assert abs(place - 1700) > 1
            np.testing.assert_array_equal(rest, np.delete(np.arange(3000), 1700))


@pytest.mark.parametrize("mesh", ["long", "open", "plane"])
@pytest.mark.parametrize("way", ["straight", "dealt", "stable"])
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.backends("cuda", "opencl")
def test_blocks_follow_each_other_and_stencils_have_the_same_bits(backend, monkeypatch, mesh, way, real):
    monkeypatch.setattr(block_order, "STAGED_FROM", 0 if way == "dealt" else 10**9)
    mesh = {"long": pm.Mesh((2**18 + 1,), (1.0,)), "open": OPEN, "plane": pm.Mesh((17, 16), (1.0, 2.0))}[mesh]
    x, _, _ = drawn(2000, 1, mesh)
    x[5], x[70] = np.nan, np.inf
    x = x.astype(real)
    with (
        sorted_plan(backend, mesh, dtype=real, deterministic=way == "stable") as plan,
        pm.Plan(mesh, "bspline4", backend=backend.name, dtype=real) as plain,
    ):
        for each in (plan, plain):
            each.set_positions(backend.array(x), check=False)
        order = order_of(backend, plan)
        for name in ("node", "fraction"):
            came, wanted = (backend.host(getattr(p.particles, name))[:, :2000] for p in (plan, plain))
            np.testing.assert_array_equal(came, wanted[:, order])
        node, found = backend.host(plan.particles.node)[:, :1998].astype(np.int64), plan.particles.by_block
        bx, by, bz = (node - np.array(found.blocks.base)[:, None]) // np.array(found.blocks.cells)[:, None]
        number = (by * found.blocks.counts[2] + bz) * found.blocks.counts[0] + bx
        assert (np.diff(number) >= 0).all()
        words = 4 if real == "float32" else 8
        np.testing.assert_array_equal(backend.host(found.records)[words - 1 : 1998 * words : words], np.arange(1998))
        start = backend.host(found.start)[: found.blocks.total + 1]
        np.testing.assert_array_equal(start, np.searchsorted(number, np.arange(found.blocks.total + 1)))


@pytest.mark.parametrize("deterministic", [False, True])
def test_bad_particles_come_last_and_have_no_weight(backend, deterministic):
    x, q, _ = drawn(200, 2, OPEN)
    x[7::20, 1] = 2.5
    x[13, 0] = np.nan
    bad = np.flatnonzero((x[:, 1] > 2) | np.isnan(x[:, 0]))
    good = np.setdiff1d(np.arange(200), bad)
    with sorted_plan(backend, OPEN, deterministic=deterministic) as plan:
        plan.set_positions(backend.array(x), check=False)
        order = order_of(backend, plan)
        np.testing.assert_array_equal(np.sort(order[-len(bad) :]), bad)
        if deterministic:
            np.testing.assert_array_equal(order[-len(bad) :], bad)
        field = backend.host(plan.spread(backend.array(q[:, order])))
        close(field, oracle.spread(OPEN, WINDOW, x[good], q[:, good]))
        values = backend.host(plan.interpolate(backend.array(field)))
        assert not values[:, len(good) :].any()
        close(values[:, : len(good)], oracle.interpolate(OPEN, WINDOW, x[order[: len(good)]], field))
        assert plan.status == (200, 1, 10, 7, False)
        with pytest.raises(ValueError, match="particle 7"):
            plan.check()
        with pytest.raises(ValueError, match="particle 7"):  # and all stays as it was
            plan.set_positions(backend.array(x[:150]))
        assert plan.status == (200, 1, 10, 7, False)
        np.testing.assert_array_equal(backend.host(plan.order), order)
        close(backend.host(plan.spread(backend.array(q[:, order]))), field)
        plan.set_positions(backend.array(np.full((40, 3), np.nan)), check=False)
        order_of(backend, plan)
        assert plan.status == (40, 40, 0, 0, False)
        assert not backend.host(plan.spread(backend.array(np.ones(40)))).any()
        plan.set_positions(backend.array(x[:0]), check=False)
        assert plan.status == (0, 0, 0, -1, False)


@pytest.mark.parametrize("deterministic", [False, True])
def test_lost_values_are_in_the_plans_order_too(backend, deterministic):
    x, q, _ = drawn(300, 4, OPEN)
    with sorted_plan(backend, OPEN, deterministic=deterministic) as plan, pm.Plan(OPEN, WINDOW) as plain:
        for each in (plan, plain):
            each.set_positions(backend.array(x))
        lost = plain.lost(backend.array(q))
        assert np.abs(lost).min() > 0.1
        close(plan.lost(backend.array(q[:, order_of(backend, plan)])), lost)


def test_the_order_is_of_the_kind_of_the_positions(backend):
    x, q, _ = drawn(100)
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        for given in (x, x[:0], tuple(x.T)):
            native = tuple(backend.array(a) for a in given) if isinstance(given, tuple) else backend.array(given)
            plan.set_positions(native)
            assert type(plan.order) is type(backend.array(q))
            assert plan.order.shape == (plan.count,)
            assert plan.order.dtype == np.int32
            assert plan.order is plan.order
            order_of(backend, plan)
    with sorted_plan(backend) as plan:  # from the host, and back to it
        plan.set_positions(x)
        assert type(plan.order) is np.ndarray
        close(plan.spread(q[:, plan.order]), oracle.spread(MESH, WINDOW, x, q))


def test_the_order_indexes_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, q = (torch.tensor(a) for a in drawn(100)[:2])
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        plan.set_positions(x)
        assert isinstance(plan.order, torch.Tensor)
        assert plan.order.dtype == torch.int32
        field = plan.spread(q[:, plan.order])
        close(field.numpy(), oracle.spread(MESH, WINDOW, x.numpy(), q.numpy()))
        plan.set_positions(x[plan.order])
        assert (plan.order == torch.arange(100)).all()
        plan.set_positions(x[:0])
        assert tuple(plan.order.shape) == (0,)


def test_orders_asked_for_in_vain(backend):
    x, q, _ = drawn(10)
    with pytest.raises(ValueError, match="order is 'walk'; choose from 'caller', 'sorted'"):
        pm.Plan(MESH, WINDOW, order="walk")
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(backend.array(x))
        with pytest.raises(RuntimeError, match="make it with order='sorted'"):
            plan.order  # noqa: B018  # a property
    with pm.Plan(MESH, WINDOW, order="sorted") as plan:
        with pytest.raises(RuntimeError, match="no particles yet: call set_positions first"):
            plan.order  # noqa: B018  # a property
        plan.set_positions(backend.array(x))
    with pytest.raises(RuntimeError, match="this plan is closed"):
        plan.order  # noqa: B018  # a property
    with pytest.raises(TypeError, match="option 'order' is unknown"):
        pm.spread(backend.array(x), backend.array(q), MESH, window=WINDOW, order="sorted")


def test_a_copy_sorts_as_well(backend):
    x, q, _ = drawn(100)
    with sorted_plan(backend) as plan, pickle.loads(pickle.dumps(plan)) as copy:
        copy.set_positions(backend.array(x))
        plan.set_positions(backend.array(x))
        order = order_of(backend, copy)
        close(backend.host(copy.spread(backend.array(q[:, order]))), oracle.spread(MESH, WINDOW, x, q))
    with pickle.loads(pickle.dumps(pm.Plan(MESH, WINDOW))) as plain, pytest.raises(RuntimeError, match="your order"):
        plain.order  # noqa: B018  # a property


def test_it_is_told_in_words(backend):
    with sorted_plan(backend) as plan:
        plan.set_positions(backend.array(drawn(100)[0]))
        words = {"cpu": "by tiles of "}.get(backend.name, "by blocks of ")
        assert f"order: {words}" in plan.explain()


def test_the_fastest_method_is_measured_on_sorted_particles(backend):
    x, q, _ = drawn(100)
    with sorted_plan(backend, method="measure") as plan:
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(q[:, order]))), oracle.spread(MESH, WINDOW, x, q))
        np.testing.assert_array_equal(backend.host(plan.order), order)
        assert "measured" in plan.explain()


# ---- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
def test_reserved_memory_is_all_it_takes(backend, law, monkeypatch, deterministic):
    if deterministic and not law.method.deterministic:
        pytest.skip("not deterministic")
    x, q, _ = drawn(60)
    charges, field, values, slopes = (backend.array(a) for a in (q[0], np.zeros(MESH.shape), q[0], np.zeros((60, 3))))
    with law.plan(
        MESH, "bspline4", backend=backend.name, dtype="float64", order="sorted", deterministic=deterministic
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
        close(backend.host(field), oracle.spread(MESH, WINDOW, x[order], q[0]))
        close(backend.host(values), oracle.interpolate(MESH, WINDOW, x[order], backend.host(field)))
        with pytest.raises(ValueError, match="room is reserved for 100"):
            plan.set_positions(backend.array(drawn(101)[0]), check=False)
        plan.set_positions(backend.array(drawn(300)[0]))  # more than reserved, where it may
        assert plan.capacity >= 300
        order = order_of(backend, plan)
        close(
            backend.host(plan.spread(backend.array(drawn(300)[1][:, order]))),
            oracle.spread(MESH, WINDOW, *drawn(300)[:2]),
        )


def test_memory_reserved_later_keeps_order_and_particles(backend):
    x, q, v = drawn(60)
    with sorted_plan(backend) as plan:
        plan.set_positions(backend.array(x))
        order = order_of(backend, plan)
        wanted = oracle.spread(MESH, WINDOW, x, q)
        for room in (0, 500, 4000):
            plan.reserve(room)
            np.testing.assert_array_equal(backend.host(plan.order), order)
            np.testing.assert_array_equal(backend.host(plan.particles.order), order)
            assert plan.status == (60, 0, 0, -1, False)
            close(backend.host(plan.spread(backend.array(q[:, order]))), wanted)
            close(
                backend.host(plan.spread_gradient(backend.array(v[:, order]))),
                oracle.spread_gradient(MESH, WINDOW, x, v),
            )
            values, slopes = (backend.host(a) for a in plan.value_and_gradient(backend.array(wanted)))
            close(values, oracle.interpolate(MESH, WINDOW, x[order], wanted))
            close(slopes, oracle.gradient(MESH, WINDOW, x[order], wanted))
        more, charges, _ = drawn(3000, 5)
        plan.set_positions(backend.array(more))
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(charges[:, order]))), oracle.spread(MESH, WINDOW, more, charges))


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
    wanted = {60: oracle.spread(MESH, WINDOW, x, q), 540: oracle.spread(MESH, WINDOW, many, charges)}
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
            came = backend.host(plan.spread(backend.array(given[plan.count][1][:, order])))
            close(came, wanted[plan.count])
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
    reading = "walk" if "walk" in names("interpolate", backend.name) else "auto"
    with sorted_plan(backend, method=method, interpolation=reading, deterministic=deterministic) as plan:
        for n in range(1, 3):
            plan.set_positions(backend.array(x))
            order = order_of(backend, plan)
            field = plan.spread(backend.array(q[:, order]))
            close(
                backend.host(plan.interpolate(field)), oracle.interpolate(MESH, WINDOW, x[order], backend.host(field))
            )
            assert len(made) == n
        plan.reserve(1000)  # the methods' blocks are those of as many
        plan.interpolate(field)
        made.clear()
        plan.set_positions(backend.array(x), check=False)
        plan.interpolate(field)
        assert len(made) == 1
        assert plan.problem().sorted
        assert block_order.seconds(plan.problem(), (3, 3, 3)) == block_order.order_bytes(plan.problem(), (3, 3, 3)) == 0


@pytest.mark.backends("cuda", "opencl")
def test_blocks_where_no_method_walks(backend):
    x, q, _ = drawn(300)
    with sorted_plan(backend, window="bspline10") as plan:
        plan.set_positions(backend.array(x))
        assert plan.particles.by_block.blocks.cells == (4, 4, 8)
        order = order_of(backend, plan)
        close(backend.host(plan.spread(backend.array(q[:, order]))), oracle.spread(MESH, pm.bspline(10), x, q))
    for nodes, cells in ((2**16 + 1, (8, 8, 16)), (2**17, (8, 8, 16)), (2**17 + 1, None)):
        mesh = pm.Mesh((nodes, 1, 2), (1.0, 2.0, 3.0))
        with sorted_plan(backend, mesh, "bspline10") as plan:
            if cells is None:
                with pytest.raises(ValueError, match=r"order='sorted' is not .* along x\): use order='caller'"):
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
        sorted_particles.cells_of(plan, 2**31)


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
            close(backend.host(plan.spread(charges)), oracle.spread(MESH, WINDOW, x, q[0]))


@pytest.mark.opencl
@pytest.mark.parametrize("packed", [0, 1])
@pytest.mark.parametrize("double", [0, 1])
def test_kernels_compile_for_cuda(double, packed):
    from particlemesh.backends import cuda
    from test_nvrtc import without_nvrtc

    if without_nvrtc() is not None:
        pytest.skip(f"no NVRTC: {without_nvrtc()}")
    cubin = cuda.compile_only("sorted_particles.c", {"REAL_IS_DOUBLE": double, "PACKED": packed}, 90)
    assert b"come_last" in cubin
    assert b"spell_out_places" in cubin


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
        wanted = oracle.spread(MESH, WINDOW, positions[good], charges[good])
        close(field.get(), wanted)
        close(values.get()[:-1], oracle.interpolate(MESH, WINDOW, positions[order[:-1]], wanted))
        assert values.get()[-1] == 0
