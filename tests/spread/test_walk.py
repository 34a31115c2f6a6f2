# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk: windows, meshes, orders in memory, numbers of particles, and what may not be."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from blocks import cut
from particlemesh.arrays.views import Layout
from particlemesh.methods.launches import SINGLE
from particlemesh.orders import block_order
from particlemesh.spread.walk import Walk
from particlemesh.walk import patch as patches
from trials import check_spread
from walk_cases import CASES, close, plan_of, positions, trial_of

pytestmark = pytest.mark.backends("cuda", "opencl")


def trial(backend, row, seed=1, /, **options):
    return trial_of("spread", Walk, backend, row, seed, **options)


def oracles(t, *, gradient=True):
    """Compare with the dense matrices; bounds are those of rounding."""
    flat_v = t.v.reshape(*t.v.shape[:-2], -1)
    slopes, steepest = (a.reshape(flat_v.shape[-1], a.shape[-1]) for a in (t.slopes, t.steepest))
    size, slope = np.abs(t.q) @ t.most, np.abs(t.q) @ t.steepest.sum(1)
    t.near(t.spread(t.q), (t.q @ t.weights).reshape(t.f.shape), size, slope, "equals the oracle")
    if gradient:
        bent = t.spread_gradient(t.v)
        t.near_gradient(bent, (flat_v @ slopes).reshape(t.f.shape), np.abs(flat_v) @ steepest, "adjoint of gradient")


def lopsided():
    """A window of five nodes whose table is symmetric to rounding only."""
    pieces = [list(map(float, piece)) for piece in pm.bspline(5).polynomials]
    pieces[0][1] *= 1 + 2e-13
    return pm.Window("lopsided", tuple(map(tuple, pieces)))


def walks(backend, mesh, window, real, x, /, *, check=True, **options):
    return plan_of("spread", backend, mesh, window, real, x, check, **options)


def draw(mesh, count, real, seed=0):
    rng = np.random.default_rng(seed)
    return positions(mesh, count, real, rng), rng.normal(size=count).astype(real)


# ---- windows, borders, orders in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_equals_the_oracle(backend, case):
    oracles(trial(backend, CASES[case]))


def test_keeps_the_laws_of_spreading(backend):
    # sum, adjoint, permutation, accumulation, shift
    row = ("bspline4", "float32", "real", "3", "periodic", "prime", "none", "planar", "100")
    check_spread(trial(backend, row, chunk=64))


def test_a_table_that_is_not_symmetric_to_the_bit(backend):
    window, mesh = lopsided(), pm.Mesh((6, 9, 7), (1.0, 2.0, 3.0))
    x, q = draw(mesh, 50, "float64")
    plan = walks(backend, mesh, window, "float64", x)
    assert not np.array_equal(window.table, window.table[::-1] * (-1.0) ** np.arange(window.degree + 1))
    close(backend.host(plan.spread(backend.array(q))), oracle.spread(mesh, window, x, q), "float64")


@pytest.mark.parametrize(
    ("window", "real", "kind"), [("bspline4", "float64", "real"), ("bspline7", "float32", "complex")]
)
def test_meshes_smaller_than_the_window(backend, window, real, kind):
    for nodes in range(1, 10):
        for shape in ((nodes, nodes, nodes), (11 - nodes, 1, nodes), (2, 11 - nodes, nodes)):
            mesh = pm.Mesh(shape, (1.0, 1.1, 1.2))
            x, q = draw(mesh, 13, real, nodes)
            q = (q + 1j * q[::-1]).astype(np.result_type(real, np.complex64)) if kind == "complex" else q
            plan = walks(backend, mesh, window, real, x)
            wanted = oracle.spread(mesh, pm.window.window_of(window), x, q)
            close(backend.host(plan.spread(backend.array(q))), wanted, real, np.abs(q).sum())


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_lies_around_the_field_is_left_alone(backend, real):
    # Windows reach over open edges: the field lies within a larger array.
    mesh = pm.Mesh((6, 7, 8), pm.Box((1.0, 1.0, 1.0), periodic=False), offset=0.5)
    x, q = draw(mesh, 200, real, 5)
    x[:27] = np.stack(np.meshgrid(*[[0.0, 0.5, 1.0]] * 3, indexing="ij"), -1).reshape(-1, 3)
    larger, size = (20, 24, 24), np.dtype(real).itemsize
    steps = np.array([24 * 24, 24, 1]) * size
    store = backend.flat(np.full(np.prod(larger), 7, real))
    field = backend.view(store, mesh.shape, np.dtype(real), int(steps @ (7, 8, 8)), tuple(map(int, steps)))
    plan = walks(backend, mesh, "bspline4", real, x)
    assert plan.spread(backend.array(q), out=field) is field
    close(backend.host(field), oracle.spread(mesh, pm.bspline(4), x, q), real)
    around = backend.host(backend.view(store, larger, np.dtype(real), 0, tuple(map(int, steps))))
    around[7:13, 8:15, 8:16] = 7
    assert (around == 7).all()


# ---- how particles lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["matrix", "multiply"])
def test_walks_that_stay_step_and_jump(backend, form):
    # One kernel: a cell of many, blocks one behind the other, far apart along a line, and lines far apart.
    mesh = pm.Mesh((61, 20, 34), (61.0, 20.0, 34.0))
    rng = np.random.default_rng(3)
    crowd = np.array([30.5, 11.5, 7.5]) + rng.random((200, 3)) * 0.9
    row = np.stack([np.arange(0, 61, 0.25), np.full(244, 3.3), np.full(244, 33.2)], axis=1)
    steps = np.stack([np.cumsum(np.arange(1, 11)) * 1.0, np.full(10, 17.5), np.full(10, 0.5)], axis=1)
    far = np.stack(np.meshgrid([3.5, 25.5, 60.9], [0.2, 9.9, 19.9], [0.1, 16.0, 33.9], indexing="ij"), -1)
    clouds = {"crowd": crowd, "row": row, "steps": steps, "far": far.reshape(-1, 3)}
    clouds["all"] = np.concatenate([*clouds.values(), crowd])
    for name, x in clouds.items():
        x, q = x.astype(np.float32), rng.normal(size=len(x)).astype(np.float32)
        for chunk in (32, 100, 10_000):
            plan = walks(backend, mesh, "bspline4", "float32", x, form=form, patch=8, levels=6, chunk=chunk)
            cells = plan._method("spread").patch(plan.workspace).cells
            assert block_order.blocks_of(plan.workspace.axes, cells).counts[0] > 20
            came = backend.host(plan.spread(backend.array(q)))
            close(came, wanted_of(mesh, x, q), "float32", max(1.0, np.sqrt(len(q)))), name


def wanted_of(mesh, x, q):
    """What four nodes an axis get, of periodic meshes, in float64: as the oracle, all particles at once."""
    u = oracle.node_coordinates(mesh, x)
    nodes = np.floor(u).astype(int)[:, None] + np.arange(-1, 3)[:, None]  # particle, node, axis
    weights = pm.bspline(4)(nodes - u[:, None])
    nodes %= mesh.shape
    field = np.zeros(mesh.shape)
    at = nodes[:, :, None, None, 0], nodes[:, None, :, None, 1], nodes[:, None, None, :, 2]
    terms = np.einsum("pa,pb,pc,p->pabc", *np.moveaxis(weights, 2, 0), np.asarray(q, np.float64))
    np.add.at(field, at, terms)
    return field


@pytest.mark.parametrize(
    ("real", "gradient", "options"),
    [
        ("float32", False, {"form": "matrix"}),  # batches of 32
        ("float32", False, {"form": "multiply"}),
        ("float64", False, {"form": "matrix"}),
        ("float64", True, {"form": "multiply", "patch": 16}),  # complex: batches of 8
    ],
)
def test_any_number_of_particles_and_chunks_that_end_within_batches(backend, real, gradient, options):
    mesh = pm.Mesh((6, 7, 8), (1.0, 1.0, 1.0))
    window = pm.bspline(4)
    x, q = draw(mesh, 129, real, 8)
    kind = np.result_type(real, np.complex64) if gradient else real
    q = q.astype(kind)
    q = (q[:, None] * np.array([1, 2j, -1])).astype(kind) if gradient else q
    made = oracle.spread_gradient if gradient else oracle.spread
    parts = [made(mesh, window, x[p : p + 1], q[p : p + 1]) for p in range(len(x))]
    plans = [walks(backend, mesh, window, real, x, chunk=chunk, **options) for chunk in (32, 33, 45, 64, 999)]
    for count in (129, 128, 65, 64, 33, 32, 31, 9, 8, 7, 1, 0):
        wanted = sum(parts[:count], np.zeros(mesh.shape, kind))
        for plan in plans:
            plan.set_positions(backend.array(x[:count]))
            came = backend.host((plan.spread_gradient if gradient else plan.spread)(backend.array(q[:count])))
            close(came, wanted, real, 1 + np.abs(wanted).max())


@pytest.mark.parametrize("method", ["walk", "walk_fixed", "ordered"])
def test_particles_with_many_lines_between_them(backend, method):
    # In a plane every block is a line. Of 32 lines and more a lane does not ask one by one.
    mesh = pm.Mesh((512, 1024), (512.0, 1024.0))
    x, q = draw(mesh, 70, "float32", 6)
    x[:20] = x[20] + 0.01 * x[:20]  # some of them close together
    x = np.round(64 * x) / 64  # coordinates are exact
    reading = method if method != "walk_fixed" else "walk"
    plan = pm.Plan(mesh, "bspline4", method=method, interpolation=reading, dtype="float32", backend=backend.name)
    plan.set_positions(backend.array(x))
    wanted = oracle.spread(mesh, pm.bspline(4), x, q)
    close(backend.host(plan.spread(backend.array(q))), wanted, "float32")
    field = np.random.default_rng(7).random(mesh.shape).astype("float32")
    came = backend.host(plan.interpolate(backend.array(field)))
    close(came, oracle.interpolate(mesh, pm.bspline(4), x, field), "float32")


def test_memory_reserved_for_many_serves_few(backend):
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, q = draw(mesh, 2000, "float32", 9)
    plan = pm.Plan(mesh, "bspline4", method="walk", dtype="float32", backend=backend.name)
    plan.reserve(4000)
    method = plan._method("spread")
    assert len(method.kinds(plan.workspace)) == 2, "few particles have another patch than many"
    held = plan.nbytes
    for count in (2000, 3, 0, 65):
        plan.set_positions(backend.array(x[:count]), check=False)
        came = backend.host(plan.spread(backend.array(q[:count])))
        close(came, wanted_of(mesh, x[:count], q[:count]), "float32", 10)
        assert method.patch(plan.workspace) == method.patch_for(plan.workspace, count)
    assert plan.nbytes == held


# ---- what is not finite ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["matrix", "multiply"])
def test_particles_without_weight_and_their_values_are_left_out(backend, form):
    mesh = pm.Mesh((6, 5, 7), pm.Box((1.0, 2.0, 1.0), periodic=(True, False, True)), offset=(0, 0.5, 0))
    x, q = draw(mesh, 70, "float32", 2)
    x[7, 0], x[20, 1], x[30, 1], x[69, 2] = np.nan, 2.5, -0.1, np.inf
    q[[7, 30]] = np.nan, np.inf
    good = np.delete(np.arange(70), [7, 20, 30, 69])
    plan = walks(backend, mesh, "bspline4", "float32", x, check=False, form=form, levels=4)
    assert plan.status[:3] == (70, 2, 2)
    wanted = oracle.spread(mesh, pm.bspline(4), x[good], q[good])
    close(backend.host(plan.spread(backend.array(q))), wanted, "float32")


@pytest.mark.parametrize("form", ["matrix", "multiply"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_stays_within_its_block(backend, form, bad):
    # Nodes of its stencil are not finite, others of its block's window may be, all others are as without it.
    mesh = pm.Mesh((30, 20, 40), (30.0, 20.0, 40.0))
    x, q = draw(mesh, 400, "float32", 4)
    x[200:] = np.array([9.0, 8.0, 7.0]) + (x[200:] - x[200:].min(0)) * 0.2  # many in its block, before and behind it
    x[100] = 11.3, 9.6, 10.2
    q[100] = bad
    plan = walks(backend, mesh, "bspline4", "float32", x, form=form, levels=4)
    came = backend.host(plan.spread(backend.array(q)))
    made = plan._method("spread").patch(plan.workspace)
    first = np.array([10, 8, 9])  # of the stencil
    low = first - cut(block_order.blocks_of(plan.workspace.axes, made.cells), first)[1]
    block = tuple(slice(a, a + n) for a, n in zip(low, (made.levels, 8, 8 * made.tiles), strict=True))
    own = tuple(slice(a, a + 4) for a in first)
    assert not np.isfinite(came[own]).any()
    q[100] = 0
    wanted = wanted_of(mesh, x, q)
    outside = np.ones(mesh.shape, bool)
    outside[block] = False
    close(came[outside], wanted[outside], "float32", np.abs(wanted).max())


# ---- far apart in memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["planar", "reversed"])
def test_offsets_of_64_bits(backend, monkeypatch, order):
    # The kernel that serves fields of 2^31 reals and more, on a small one; open edges have nodes off the field.
    plain = patches.patch_defines
    monkeypatch.setattr(patches, "patch_defines", lambda *a, **k: {**plain(*a, **k), "FIELD_IS_WIDE": 1})
    row = ("bspline4", "float32", "real", "3", "mixed", "odd", "none", order, "65")
    oracles(trial(backend, row), gradient=False)


@functools.cache
def any_plan(backend):
    return walks(backend, pm.Mesh((4, 5, 6), (1.0, 1.0, 1.0)), "bspline4", "float32", np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("strides", "wide"),
    [
        ((0, 2**29, 6, 1, 1), False),  # 3 * 2^29 + 4 * 6 + 5
        ((0, 2**30, 6, 1, 1), True),
        ((0, -(2**30), 6, 1, 1), True),
        ((0, 30, 2**28, -(2**28), 1), True),  # 9 * 2^28 in all, to both sides
        ((0, 30, 2**28, -(2**27), 1), False),
        ((2**31, 30, 6, 1, 1), False),  # from channel to channel, of which there is one
    ],
)
def test_offsets_have_64_bits_where_the_field_needs_them(backend, strides, wide):
    plan = any_plan(backend)
    layout = Layout(0, (1, 4, 5, 6, 1), strides, 16)
    made = plan._method("spread").patch(plan.workspace)
    assert patches.patch_defines(plan.workspace, made, SINGLE, 1, 3, layout, 0)["FIELD_IS_WIDE"] == wide
