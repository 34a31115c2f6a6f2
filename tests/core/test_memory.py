# SPDX-License-Identifier: BSD-3-Clause
"""Memory that is kept, lost or called missing; arrays and numbers of types that are taken wrongly."""

import itertools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import names
from particlemesh import backends
from scarce import Scarce

MESH = pm.Mesh((6, 5, 7), (1.0, 2.0, 3.0))
RNG = np.random.default_rng(1)
X = RNG.random((60, 3)) * MESH.box.lengths
Q = RNG.normal(size=60)
V = RNG.normal(size=(60, 3))
WINDOW = pm.bspline(4)


def test_many_configurations_leak_nothing_and_free_nothing_of_the_users(backend, law, request):
    x, q = backend.array(X), backend.array(Q)
    out = backend.array(np.zeros(MESH.shape))
    plan = law.plan(MESH, "bspline4")
    sizes = []
    for _ in range(50 if backend.name == "opencl" and request.config.thins else 200):  # PoCL is slow
        plan.set_positions(x)
        plan.spread(q, out=out)
        plan.interpolate(out)
        sizes.append(plan.nbytes)
    assert len(set(sizes[2:])) == 1
    assert sizes[-1] > 0
    plan.close()
    plan.close()
    assert plan.nbytes == 0
    del plan
    np.testing.assert_array_equal(backend.host(x), X)
    np.testing.assert_array_equal(backend.host(q), Q)
    np.testing.assert_allclose(backend.host(out), oracle.spread(MESH, WINDOW, X, Q), atol=1e-13)


def test_a_closed_plan_says_so(backend):
    plan = pm.Plan(MESH, "cic")
    plan.set_positions(backend.array(X))
    field = plan.spread(backend.array(Q))
    plan.close()
    for call in (
        lambda: plan.set_positions(backend.array(X)), lambda: plan.spread(backend.array(Q)),
        lambda: plan.interpolate(field), lambda: plan.value_and_gradient(field), lambda: plan.status,
        lambda: plan.check(), lambda: plan.lost(backend.array(Q)), lambda: plan.explain(), lambda: plan.reserve(5),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="this plan is closed; make a new one"):
            call()


def test_out_of_memory_leaves_the_plan_as_it_was(backend, law, monkeypatch):
    library = backend.library
    many = np.concatenate([X] * 9)
    q_many = np.concatenate([Q] * 9)
    expected = {60: oracle.spread(MESH, WINDOW, X, Q)}
    expected[540] = 9 * expected[60]
    x, q = {60: backend.array(X), 540: backend.array(many)}, {60: backend.array(Q), 540: backend.array(q_many)}
    field = backend.array(expected[60])
    failures = 0
    for passes in itertools.count():
        plan = law.plan(MESH, "bspline4")
        plan.set_positions(x[60])
        scarce = Scarce(library.empty, passes)
        with monkeypatch.context() as patch:
            patch.setattr(library, "empty", scarce)
            try:
                plan.set_positions(x[540])
                plan.spread(q[540])
                plan.interpolate(field)
            except MemoryError:
                failures += 1
        count = plan.count
        np.testing.assert_allclose(backend.host(plan.spread(q[count])), expected[count], atol=1e-12)
        values = backend.host(plan.interpolate(field))
        np.testing.assert_allclose(values[:60], oracle.interpolate(MESH, WINDOW, X, expected[60]), atol=1e-13)
        plan.set_positions(x[540])
        np.testing.assert_allclose(backend.host(plan.spread(q[540])), expected[540], atol=1e-12)
        plan.close()
        if not scarce.failed:
            break
    assert failures >= 2


def test_out_of_memory_names_the_bytes(backend, monkeypatch):
    plan = pm.Plan(MESH, "cic")
    plan.set_positions(backend.array(X))
    with monkeypatch.context() as patch:
        patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
        with pytest.raises(MemoryError, match=r"[\d,]+ bytes"):
            plan.set_positions(backend.array(np.concatenate([X, X])))


@pytest.mark.parametrize("count", [2**58, 2**59, 2**61])
def test_more_bytes_than_any_memory_are_named(backend, count):
    with pm.Plan(MESH, "cic", backend=backend.name, dtype="float32") as plan:
        with pytest.raises(MemoryError, match=r"^cannot allocate [\d,]{23,} bytes for .*: [\d,]+ bytes are free on "):
            plan.reserve(count)


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_only_a_want_of_memory_is_called_that():
    import pyopencl as cl

    from particlemesh.backends import opencl

    def fails(error):
        raise error

    buffer, launch = opencl.ALLOCATING, opencl.LAUNCHING
    for lacking, kind, name, expected in (
        (buffer, cl.MemoryError, "MEM_OBJECT_ALLOCATION_FAILURE", MemoryError),
        (launch, cl.MemoryError, "MEM_OBJECT_ALLOCATION_FAILURE", MemoryError),
        (launch, cl.MemoryError, "OUT_OF_HOST_MEMORY", MemoryError),
        (buffer, cl.MemoryError, "OUT_OF_RESOURCES", MemoryError),
        (buffer, cl.LogicError, "INVALID_BUFFER_SIZE", MemoryError),
        (launch, cl.MemoryError, "OUT_OF_RESOURCES", cl.Error),  # a kernel that crashed
        (launch, cl.LogicError, "INVALID_WORK_GROUP_SIZE", cl.Error),
        (buffer, cl.LogicError, "INVALID_CONTEXT", cl.Error),
    ):
        with pytest.raises(expected, match=name):
            opencl.with_memory(lacking, fails, kind(f"command failed: {name}"))


def test_a_plan_with_reserved_memory_allocates_nothing(backend, law, monkeypatch):
    x, q = backend.array(X), backend.array(Q)
    field, values, slopes = (backend.array(np.zeros(n)) for n in (MESH.shape, 60, (60, 3)))
    with law.plan(MESH, "bspline4", backend=backend.name, dtype="float64") as plan:
        plan.reserve(100)
        assert plan.capacity >= 100
        if law.method.name == "stored":  # slopes take three times its memory: it has them after their first use
            plan.set_positions(x)
            plan.gradient(field, out=slopes)
        with monkeypatch.context() as patch:
            patch.setattr(backend.library, "empty", Scarce(backend.library.empty, 0))
            for _ in range(2):
                plan.set_positions(x, check=False)
                plan.spread(q, out=field)
                plan.interpolate(field, out=values)
                plan.gradient(field, out=slopes)
        np.testing.assert_allclose(backend.host(field), oracle.spread(MESH, WINDOW, X, Q), atol=1e-13)


def test_memory_reserved_later_keeps_the_particles(backend, law):
    vectors = np.random.default_rng(2).normal(size=(60, 3))
    with law.plan(MESH, "bspline4", dtype="float64") as plan:
        plan.set_positions(backend.array(X))
        for _ in range(2):
            field, slopes = plan.spread(backend.array(Q)), plan.spread_gradient(backend.array(vectors))
            values, gradient = plan.value_and_gradient(field)
            expected = oracle.spread(MESH, WINDOW, X, Q)
            np.testing.assert_allclose(backend.host(field), expected, atol=1e-13)
            np.testing.assert_allclose(backend.host(values), oracle.interpolate(MESH, WINDOW, X, expected), atol=1e-13)
            np.testing.assert_allclose(backend.host(gradient), oracle.gradient(MESH, WINDOW, X, expected), atol=1e-12)
            result = oracle.spread_gradient(MESH, WINDOW, X, vectors)
            np.testing.assert_allclose(backend.host(slopes), result, atol=1e-12)
            plan.reserve(4000)


@pytest.mark.parametrize("plan_type", ["float32", "float64"])
def test_every_pair_of_types_is_right_or_refused(backend, plan_type):
    exact = {"positions": X, "values": Q}
    reference = oracle.spread(MESH, WINDOW, X, Q)
    for at, of in itertools.product(("f4", "f8"), ("f4", "f8", "c8", "c16", "i4", "u1")):
        x = exact["positions"].astype(at)
        q = (Q * (100 if of[0] in "iu" else 1)).astype(of)
        with pm.Plan(MESH, "bspline4", dtype=plan_type) as plan:
            plan.set_positions(backend.array(x))
            if plan_type == "float32" and of in ("f8", "c16"):
                with pytest.raises(TypeError, match=f"values has dtype {q.dtype}, more than this plan's float32 holds"):
                    plan.spread(backend.array(q))
                continue
            if plan_type == "float32" and of == "i4" and backend.name != "cpu":  # cannot be looked at there
                with pytest.raises(TypeError, match="float32 does not hold all such integers"):
                    plan.spread(backend.array(q))
                continue
            field = backend.host(plan.spread(backend.array(q)))
            assert field.dtype == (plan_type if of[0] in "iu" else of)
            expected = oracle.spread(MESH, WINDOW, X, q) if of[0] in "iu" else reference
            np.testing.assert_allclose(field, expected, atol=1e-5 * np.abs(expected).max())


def test_numbers_of_any_integer_type():
    same = [(4, 5), [4, 5], np.array([4, 5]), (np.int32(4), np.uint8(5)), np.array([4, 5], np.uint16)]
    assert len({pm.Mesh(shape, (1.0, 1.0)) for shape in same}) == 1
    for bad in ((4.0, 5.0), ("4", "5"), (None, 4)):
        with pytest.raises(TypeError, match=r"shape\[0\] is .*; an integer of 1 to 2147483647 is needed"):
            pm.Mesh(bad, (1.0, 1.0))
    mesh = pm.Mesh(4, 1.0)
    for name in ("components", "applications", "threads"):
        pm.Plan(mesh, "cic", **{name: np.int64(2)})
        with pytest.raises(TypeError, match=f"{name} is 2.0"):
            pm.Plan(mesh, "cic", **{name: 2.0})
        with pytest.raises(ValueError, match=f"{name} is 0"):
            pm.Plan(mesh, "cic", **{name: 0})


def test_a_batch_of_very_different_sizes_equals_a_loop(backend, law):
    if law.direction != "spread":
        pytest.skip("interpolation has no sums over particles")
    with law.plan(MESH, "bspline4", backend=backend.name, dtype="float64") as plan:
        plan.set_positions(backend.array(X))
        both = backend.host(plan.spread(backend.array(np.stack([1e12 * Q, Q]))))
        alone = backend.host(plan.spread(backend.array(Q)))
        np.testing.assert_allclose(both[1], alone, atol=1e-14 * np.abs(alone).max())


def test_an_out_that_is_the_input_is_refused(backend):
    with pm.Plan(pm.Mesh(len(X), 1.0), "cic") as plan:
        plan.set_positions(backend.array(X[:, 0].copy()))
        field = backend.array(Q)
        with pytest.raises(ValueError, match="out shares memory with the input"):
            plan.interpolate(field, out=field)


@pytest.mark.backends("cuda")
def test_values_changed_in_place_are_seen_by_calls_that_come_again(backend):
    with pm.Plan(MESH, "bspline4", dtype="float64") as plan:
        plan.set_positions(backend.array(X))
        for kind in ("f8", "f4", "u1"):
            q = backend.array((Q * 10).astype(kind))
            out = backend.array(np.zeros(MESH.shape, kind if kind != "u1" else "f8"))
            for turn in range(5):
                q += 1
                fresh = backend.host(plan.spread(q.copy()))
                np.testing.assert_allclose(backend.host(plan.spread(q, out=out)), fresh, rtol=1e-6, atol=1e-6 * turn)


def test_more_particles_than_were_reserved_are_named(backend):
    with pm.Plan(MESH, "cic", backend=backend.name, dtype="float64") as plan:
        plan.reserve(50)
        capacity = plan.capacity
        with pytest.raises(
            ValueError, match=rf"60 particles, but room is reserved for {capacity}: reserve\(60\) first"
        ):
            plan.set_positions(backend.array(X), check=False)


@pytest.mark.parametrize("order", ["caller", "sorted"])
def test_room_for_no_particles_is_room(backend, order):
    methods = {"method": "spread", "interpolation": "interpolate"}
    x, q = X.astype("f4"), Q.astype("f4")
    for option in [{}, *({what: name} for what in methods for name in names(methods[what], backend.name))]:
        dtype = "float64" if "octets" in option.values() else "float32"  # as in test_methods.py: the same kernels
        with pm.Plan(MESH, "bspline4", backend=backend.name, dtype=dtype, order=order, **option) as plan:
            plan.reserve(0)
            assert plan.capacity == 0
            with pytest.raises(ValueError, match=r"room is reserved for 0: reserve\(40\) first"):
                plan.set_positions(backend.array(x[:40]), check=False)
            plan.set_positions(backend.array(x[:0]), check=False)
            assert not backend.host(plan.spread(backend.array(q[:0]))).any()
            plan.reserve(40)
            plan.set_positions(backend.array(x[:40]), check=False)
            assert backend.host(plan.spread(backend.array(q[:40]))).sum() == pytest.approx(q[:40].sum(), rel=1e-5)
