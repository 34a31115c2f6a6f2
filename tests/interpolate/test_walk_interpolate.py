# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by warps that walk: windows, meshes, orders in memory, numbers of particles, and what may not be."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from blocks import cut
from particlemesh.interpolate.walk import Walk
from particlemesh.orders import block_order
from particlemesh.walk import patch as patches
from trials import check_interpolate
from walk_cases import CASES, close, plan_of, positions, trial_of

anywhere = pytest.mark.backends("cuda", "opencl")
FORMS = ("matrix", "multiply")


def trial(backend, row, seed=1, /, **options):
    return trial_of("interpolate", Walk, backend, row, seed, **options)


def oracles(t):
    """Compare values, slopes, and both from one walk with the dense matrices; bounds are those of rounding."""
    flat = t.f.reshape(*t.f.shape[: t.f.ndim - t.mesh.ndim], -1)
    flat_v = t.v.reshape(*t.v.shape[:-2], -1)
    steepest = t.steepest.reshape(flat_v.shape[-1], t.steepest.shape[-1])
    size, slope, steep = np.abs(flat) @ t.most.T, np.abs(flat) @ t.steepest.sum(1).T, np.abs(flat) @ steepest.T
    values, slopes = flat @ t.weights.T, np.einsum("...m,pdm->...pd", flat, t.slopes)
    t.near(t.interpolate(t.f), values, size, slope, "equals the oracle")
    t.near_gradient(t.gradient(t.f), slopes, steep, "gradient equals the oracle")
    outs = t.empty(t.q), t.empty(t.v)
    t.plan.value_and_gradient(t.array(t.f), out=outs)
    t.near(t.backend.host(outs[0]), values, size, slope, "value beside gradient")
    t.near_gradient(t.backend.host(outs[1]), slopes, steep, "gradient beside value")


def walks(backend, mesh, window, real, x, /, *, check=True, **options):
    return plan_of("interpolate", backend, mesh, window, real, x, check, **options)


def draw(mesh, count, real, seed=0):
    rng = np.random.default_rng(seed)
    return positions(mesh, count, real, rng), rng.normal(size=mesh.field_shape).astype(real)


def wanted_of(mesh, x, f):
    """What four nodes an axis give, of periodic meshes, in float64: as the oracle, all particles at once."""
    u = oracle.node_coordinates(mesh, x)
    nodes = np.floor(u).astype(int)[:, None] + np.arange(-1, 3)[:, None]  # particle, node, axis
    weights = pm.bspline(4)(nodes - u[:, None])
    nodes %= mesh.shape
    found = f.astype(np.float64)[nodes[:, :, None, None, 0], nodes[:, None, :, None, 1], nodes[:, None, None, :, 2]]
    return np.einsum("pa,pb,pc,pabc->p", *np.moveaxis(weights, 2, 0), found)


# ---- windows, borders, orders in memory ------------------------------------------------------------------------------


@anywhere
@pytest.mark.parametrize(
    ("case", "form"),
    [(c, FORMS[n % 2]) for n, c in enumerate(CASES)] + [("cubic", "matrix"), ("six nodes", "matrix")],
)
def test_equals_the_oracle(backend, case, form):
    oracles(trial(backend, CASES[case], form=form))


@anywhere
def test_keeps_the_laws_of_interpolation(backend):
    # adjoint, permutation, shift, constants
    row = ("bspline4", "float32", "real", "3", "periodic", "prime", "none", "planar", "100")
    check_interpolate(trial(backend, row, chunk=64))


@anywhere
@pytest.mark.parametrize(("window", "real", "form"), [("bspline4", "float64", "matrix"), ("bspline7", "float32", None)])
def test_meshes_smaller_than_the_window(backend, window, real, form):
    for nodes in range(1, 10):
        for shape in ((nodes, nodes, nodes), (11 - nodes, 1, nodes), (2, 11 - nodes, nodes)):
            mesh = pm.Mesh(shape, (1.0, 1.1, 1.2))
            x, f = draw(mesh, 13, real, nodes)
            plan = walks(backend, mesh, window, real, x, form=form)
            wanted = oracle.interpolate(mesh, pm.window.window_of(window), x, f)
            close(backend.host(plan.interpolate(backend.array(f))), wanted, real, np.abs(f).max())


@anywhere
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_lies_around_the_field_is_not_read(backend, real):
    # Windows reach over open edges: the field lies within a larger array, where nothing is a number.
    mesh = pm.Mesh((6, 7, 8), pm.Box((1.0, 1.0, 1.0), periodic=False), offset=0.5)
    x, f = draw(mesh, 200, real, 5)
    x[:27] = np.stack(np.meshgrid(*[[0.0, 0.5, 1.0]] * 3, indexing="ij"), -1).reshape(-1, 3)
    larger = np.full((20, 24, 24), np.nan, real)
    larger[7:13, 8:15, 8:16] = f
    steps = tuple(24**n * larger.itemsize for n in (2, 1, 0))
    offset = int(np.dot(steps, (7, 8, 8)))
    field = backend.view(backend.flat(larger.ravel()), mesh.shape, np.dtype(real), offset, steps)
    plan = walks(backend, mesh, "bspline4", real, x)
    close(backend.host(plan.interpolate(field)), oracle.interpolate(mesh, pm.bspline(4), x, f), real)


@anywhere
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_cells_that_end_within_a_rounding(backend, real):
    # Positions at nodes and the next numbers on both sides; where a cell begins changes hardly anything.
    mesh = pm.Mesh((9, 10, 11), (9.0, 10.0, 11.0))
    nodes = np.stack(np.meshgrid(*[np.arange(0, n + 1, 3.0) for n in mesh.shape], indexing="ij"), -1).reshape(-1, 3)
    nodes = nodes.astype(real)
    x = np.concatenate([nodes, np.nextafter(nodes, real(-1) if callable(real) else -1.0), np.nextafter(nodes, 99.0)])
    f = draw(mesh, 1, real, 6)[1]
    plan = walks(backend, mesh, "bspline4", real, x.astype(real))
    close(backend.host(plan.interpolate(backend.array(f))), wanted_of(mesh, x.astype(real), f), real, 4)


# ---- how particles lie -----------------------------------------------------------------------------------------------


@anywhere
@pytest.mark.parametrize("form", FORMS)
def test_walks_that_stay_step_and_jump(backend, form):
    # One kernel: a cell of many, blocks one behind the other, far apart along a line, and lines far apart.
    mesh = pm.Mesh((61, 20, 34), (61.0, 20.0, 34.0))
    rng = np.random.default_rng(3)
    f = rng.normal(size=mesh.shape).astype(np.float32)
    crowd = np.array([30.5, 11.5, 7.5]) + rng.random((200, 3)) * 0.9
    row = np.stack([np.arange(0, 61, 0.25), np.full(244, 3.3), np.full(244, 33.2)], axis=1)
    steps = np.stack([np.cumsum(np.arange(1, 11)) * 1.0, np.full(10, 17.5), np.full(10, 0.5)], axis=1)
    far = np.stack(np.meshgrid([3.5, 25.5, 60.9], [0.2, 9.9, 19.9], [0.1, 16.0, 33.9], indexing="ij"), -1)
    clouds = {"crowd": crowd, "row": row, "steps": steps, "far": far.reshape(-1, 3)}
    clouds["all"] = np.concatenate([*clouds.values(), crowd])
    for name, x in clouds.items():
        x = x.astype(np.float32)
        came = []
        for chunk in (32, 100, 10_000):
            plan = walks(backend, mesh, "bspline4", "float32", x, form=form, patch=8, levels=6, chunk=chunk)
            cells = plan._method("interpolate").patch(plan.workspace).cells
            assert block_order.blocks_of(plan.workspace.axes, cells).counts[0] > 20
            came.append(backend.host(plan.interpolate(backend.array(f))))
            close(came[-1], wanted_of(mesh, x, f), "float32", 4)
            np.testing.assert_array_equal(came[-1], came[0], err_msg=name)  # a window is the same in any chunk


@anywhere
@pytest.mark.parametrize(
    ("real", "gradient", "options"),
    [
        ("float32", False, {"form": "matrix"}),  # batches of 32
        ("float32", False, {"form": "multiply"}),
        ("float64", False, {"form": "matrix"}),  # four are kept for the next batch, steps are of eight
        ("float64", True, {"form": "matrix", "patch": 16}),  # batches of 8
        ("float32", True, {"form": "multiply", "patch": 16}),  # complex: one at a time
    ],
)
def test_any_number_of_particles_and_chunks_that_end_within_batches(backend, real, gradient, options):
    mesh = pm.Mesh((6, 7, 8), (1.0, 1.0, 1.0))
    window = pm.bspline(4)
    x, f = draw(mesh, 129, real, 8)
    f = (f + 1j * f[::-1]).astype(np.result_type(real, np.complex64)) if gradient else f
    wanted = (oracle.gradient if gradient else oracle.interpolate)(mesh, window, x, f)
    plans = [walks(backend, mesh, window, real, x, chunk=chunk, **options) for chunk in (32, 33, 45, 64, 999)]
    for count in (129, 128, 65, 64, 33, 32, 31, 9, 8, 7, 1, 0):
        for plan in plans:
            plan.set_positions(backend.array(x[:count]))
            came = backend.host((plan.gradient if gradient else plan.interpolate)(backend.array(f)))
            close(came, wanted[:count], real, np.abs(wanted).max())


@anywhere
@pytest.mark.parametrize("form", FORMS)
def test_the_same_bits_whatever_the_order(backend, form):
    # Also among blocks, where particles come in an order that no one knows.
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, f = draw(mesh, 3000, "float32", 9)
    field = backend.array((f + 1j * f[::-1]).astype(np.complex64))
    first = None
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(x))
        plan = walks(backend, mesh, "bspline4", "float32", x[order], form=form, chunk=(32, 77, 5000)[seed % 3])
        came = backend.host(plan.interpolate(field))
        sorted_back = np.empty_like(came)
        sorted_back[order] = came
        first = sorted_back if first is None else first
        np.testing.assert_array_equal(sorted_back, first)
    close(first.real, wanted_of(mesh, x, f), "float32", 4)


@anywhere
def test_memory_reserved_for_many_serves_few(backend):
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, f = draw(mesh, 2000, "float32", 9)
    plan = pm.Plan(mesh, "bspline4", interpolation="walk", dtype="float32", backend=backend.name)
    plan.reserve(4000)
    method = plan._method("interpolate")
    assert len(method.kinds(plan.workspace)) == 2, "few particles have another patch than many"
    held = plan.nbytes
    for count in (2000, 3, 0, 65):
        plan.set_positions(backend.array(x[:count]), check=False)
        came = backend.host(plan.interpolate(backend.array(f)))
        close(came, wanted_of(mesh, x[:count], f), "float32", 4)
        assert method.patch(plan.workspace) == method.patch_for(plan.workspace, count)
    assert plan.nbytes == held


@anywhere
def test_both_directions_share_one_order(backend):
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, f = draw(mesh, 500, "float32", 9)
    plan = pm.Plan(mesh, "bspline4", method="walk", interpolation="walk", dtype="float32", backend=backend.name)
    plan.set_positions(backend.array(x))
    field = plan.spread(backend.array(np.ones(500, np.float32)))
    orders = {key: found for key, found in plan.workspace.orders.items() if isinstance(found, block_order.BlockOrder)}
    assert len(orders) == 1
    values = backend.host(plan.interpolate(backend.array(f)))
    assert {key: plan.workspace.orders[key] for key in orders} == orders
    assert sum(isinstance(found, block_order.BlockOrder) for found in plan.workspace.orders.values()) == 1
    np.testing.assert_allclose((backend.host(field) * f).sum(), values.sum(), rtol=1e-4)


# ---- what is not finite ----------------------------------------------------------------------------------------------


@anywhere
@pytest.mark.parametrize(("form", "method"), [("matrix", "walk"), ("multiply", "particle")])
def test_particles_without_weight_get_zero(backend, form, method):
    # Beside a method that reads stencils, particles are not packed.
    mesh = pm.Mesh((6, 5, 7), pm.Box((1.0, 2.0, 1.0), periodic=(True, False, True)), offset=(0, 0.5, 0))
    x, f = draw(mesh, 70, "float32", 2)
    x[7, 0], x[20, 1], x[30, 1], x[69, 2] = np.nan, 2.5, -0.1, np.inf
    bad = [7, 20, 30, 69]
    plan = pm.Plan(
        mesh, "bspline4", method=method, interpolation="walk", dtype="float32", backend=backend.name,
        options={"walk": {"form": form, "levels": 4}},
    )  # fmt: skip
    plan.set_positions(backend.array(x), check=False)
    assert plan.status[:3] == (70, 2, 2)
    assert plan.particles.located()[0] == (method == "walk")
    good = np.delete(np.arange(70), bad)
    values, slopes = (np.zeros((2, 70, *more), np.float32) for more in ((), (3,)))
    both = np.stack([f, 2 * f])
    values[:, good] = oracle.interpolate(mesh, pm.bspline(4), x[good], both)
    slopes[:, good] = oracle.gradient(mesh, pm.bspline(4), x[good], both)
    for order in ("planar", "interleaved"):
        outs = (backend.array(np.full(a.shape, 7, a.dtype), order) for a in (values, slopes))
        came = [backend.host(a) for a in plan.value_and_gradient(backend.array(both, order), out=tuple(outs))]
        close(came[0], values, "float32")
        close(came[1], slopes, "float32")
        assert not came[0][:, bad].any()
        assert not came[1][:, bad].any()
    for nobody in (np.full((70, 3), np.nan, np.float32), np.full((3, 3), np.inf, np.float32)):
        plan.set_positions(backend.array(nobody), check=False)
        out = backend.array(np.full(len(nobody), 7, np.float32))
        assert not backend.host(plan.interpolate(backend.array(f), out=out)).any()


@anywhere
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_node_that_is_not_finite_stays_within_windows(backend, form, bad):
    # Who reaches it finds no number, who has it in the window may not, all others are as without it.
    mesh = pm.Mesh((30, 20, 40), (30.0, 20.0, 40.0))
    x, f = draw(mesh, 3000, "float32", 4)
    node = np.array([11, 9, 10])
    f[tuple(node)] = bad
    plan = walks(backend, mesh, "bspline4", "float32", x, form=form, levels=4)
    came = backend.host(plan.interpolate(backend.array(f)))
    made = plan._method("interpolate").patch(plan.workspace)
    first = np.floor(oracle.node_coordinates(mesh, x)).astype(int) - 1  # of the stencil
    cells = first % mesh.shape
    away = node - cells  # also of the first node of the block
    reached = ((away >= 0) & (away < 4)).all(1)
    low = cells - cut(block_order.blocks_of(plan.workspace.axes, made.cells), cells.T)[1].T
    from_block = (node - low) % mesh.shape  # the last windows have the first nodes, too
    in_window = ((from_block >= 0) & (from_block < (made.levels, 8, 8 * made.tiles))).all(1)
    assert 0 < reached.sum() < in_window.sum() < 200
    assert not np.isfinite(came[reached]).any()
    f[tuple(node)] = 0
    close(came[~in_window], wanted_of(mesh, x, f)[~in_window], "float32", 4)


# ---- far apart in memory ---------------------------------------------------------------------------------------------


@anywhere
@pytest.mark.parametrize("order", ["planar", "reversed"])
def test_offsets_of_64_bits(backend, monkeypatch, order):
    # The kernel that serves fields of 2^31 reals and more, on a small one; open edges have nodes off the field.
    plain = patches.patch_defines
    monkeypatch.setattr(patches, "patch_defines", lambda *a, **k: {**plain(*a, **k), "FIELD_IS_WIDE": 1})
    oracles(trial(backend, ("bspline4", "float32", "real", "3", "mixed", "odd", "none", order, "65")))
