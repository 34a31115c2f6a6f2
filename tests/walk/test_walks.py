# SPDX-License-Identifier: BSD-3-Clause
"""Warps that walk, spreading and reading: windows, meshes, orders in memory, numbers of particles, what may not be."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.arrays.operands import Layout
from particlemesh.methods.launches import SINGLE
from particlemesh.orders import block_order
from particlemesh.walk import patch as patches
from trials import AS_THE_ORACLE, CHECKS
from walk_cases import CASES, close, draw, moved, plan_of, scale_of, trial_of, wanted_of

pytestmark = pytest.mark.backends("cuda", "opencl")
DIRECTIONS, FORMS, WINDOW = ("spread", "interpolate"), ("matrix", "multiply"), pm.bspline(4)
both = pytest.mark.parametrize("direction", DIRECTIONS)


def patch_of(direction, plan):
    return plan.methods.of(direction).patch(plan.workspace)


# ---- windows, borders, orders in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "case", "options"),
    [
        *(("spread", case, {}) for case in CASES),
        *(("interpolate", case, {"form": FORMS[n % 2]}) for n, case in enumerate(CASES)),
        *(("interpolate", case, {"form": "matrix"}) for case in ("cubic", "six nodes")),
    ],
)
def test_equals_the_oracle(backend, direction, case, options):
    AS_THE_ORACLE[direction](trial_of(direction, backend, CASES[case], **options))


@both
def test_keeps_every_law_in_chunks(backend, direction):
    row = ("bspline4", "float32", "real", "3", "periodic", "prime", "none", "planar", "100")
    CHECKS[direction](trial_of(direction, backend, row, chunk=64))


def test_a_table_that_is_not_symmetric_to_the_bit(backend):
    pieces = [list(map(float, piece)) for piece in pm.bspline(5).polynomials]
    pieces[0][1] *= 1 + 2e-13
    window, mesh = pm.Window("lopsided", tuple(map(tuple, pieces))), pm.Mesh((6, 9, 7), (1.0, 2.0, 3.0))
    x, q = draw("spread", mesh, 50, "float64")
    plan = plan_of("spread", backend, mesh, window, "float64", x)
    assert not np.array_equal(window.table, window.table[::-1] * (-1.0) ** np.arange(window.degree + 1))
    close(moved(backend, plan, "spread", q), oracle.spread(mesh, window, x, q), "float64")


@both
@pytest.mark.parametrize(("support", "real"), [(4, "float64"), (7, "float32")])
def test_meshes_smaller_than_the_window(backend, direction, support, real):
    window, options = pm.bspline(support), {"form": "matrix"} if direction == "interpolate" and support == 4 else {}
    for nodes in range(1, 10):
        for shape in ((nodes, nodes, nodes), (11 - nodes, 1, nodes), (2, 11 - nodes, nodes)):
            mesh = pm.Mesh(shape, (1.0, 1.1, 1.2))
            x, given = draw(direction, mesh, 13, real, nodes)
            if (direction, real) == ("spread", "float32"):
                given = (given + 1j * given[::-1]).astype("complex64")
            plan = plan_of(direction, backend, mesh, window, real, x, **options)
            expected = getattr(oracle, direction)(mesh, window, x, given)
            close(moved(backend, plan, direction, given), expected, real, scale_of(direction, given))


@both
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_lies_around_the_field_is_left_alone(backend, direction, real):
    # Windows reach over open edges: the field lies within a larger array, where nothing is a number.
    mesh = pm.Mesh((6, 7, 8), pm.Box((1.0, 1.0, 1.0), periodic=False), offset=0.5)
    x, given = draw(direction, mesh, 200, real, 5)
    x[:27] = np.stack(np.meshgrid(*[[0.0, 0.5, 1.0]] * 3, indexing="ij"), -1).reshape(-1, 3)
    larger = np.full((20, 24, 24), np.nan, real)
    inner = (slice(7, 13), slice(8, 15), slice(8, 16))
    larger[inner] = given if direction == "interpolate" else 7
    steps = tuple(24**n * larger.itemsize for n in (2, 1, 0))
    store = backend.flat(larger.ravel())
    field = backend.view(store, mesh.shape, np.dtype(real), int(np.dot(steps, (7, 8, 8))), steps)
    plan = plan_of(direction, backend, mesh, "bspline4", real, x)
    expected = getattr(oracle, direction)(mesh, WINDOW, x, given)
    if direction == "interpolate":
        close(backend.host(plan.interpolate(field)), expected, real)
        return
    assert plan.spread(backend.array(given), out=field) is field
    close(backend.host(field), expected, real)
    around = backend.host(backend.view(store, larger.shape, np.dtype(real), 0, steps))
    around[inner] = np.nan
    assert np.isnan(around).all()


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_cells_that_end_within_a_rounding(backend, real):
    # Positions at nodes and the next numbers on both sides; where a cell begins changes hardly anything.
    mesh, name = pm.Mesh((9, 10, 11), (9.0, 10.0, 11.0)), np.dtype(real).name
    nodes = np.stack(np.meshgrid(*[np.arange(0, n + 1, 3) for n in mesh.shape], indexing="ij"), -1).reshape(-1, 3)
    nodes = nodes.astype(real)
    x = np.concatenate([nodes, np.nextafter(nodes, real(-1)), np.nextafter(nodes, real(99))])
    f = draw("interpolate", mesh, 1, real, 6)[1]
    plan = plan_of("interpolate", backend, mesh, "bspline4", name, x)
    close(moved(backend, plan, "interpolate", f), wanted_of("interpolate", mesh, x, f), name, 4)


# ---- how particles lie -----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("form", FORMS)
def test_walks_that_stay_step_and_jump(backend, direction, form):
    # One kernel: a cell of many, blocks one behind the other, far apart along a line, and lines far apart.
    mesh, rng = pm.Mesh((61, 20, 34), (61.0, 20.0, 34.0)), np.random.default_rng(3)
    crowd = np.array([30.5, 11.5, 7.5]) + rng.random((200, 3)) * 0.9
    row = np.stack([np.arange(0, 61, 0.25), np.full(244, 3.3), np.full(244, 33.2)], axis=1)
    steps = np.stack([np.cumsum(np.arange(1, 11)) * 1.0, np.full(10, 17.5), np.full(10, 0.5)], axis=1)
    far = np.stack(np.meshgrid([3.5, 25.5, 60.9], [0.2, 9.9, 19.9], [0.1, 16.0, 33.9], indexing="ij"), -1)
    clouds = {"crowd": crowd, "row": row, "steps": steps, "far": far.reshape(-1, 3)}
    clouds["all"] = np.concatenate([*clouds.values(), crowd])
    for name, cloud in clouds.items():
        x, given = cloud.astype(np.float32), draw(direction, mesh, len(cloud), "float32", 3)[1]
        expected, result = wanted_of(direction, mesh, x, given), []
        for chunk in (32, 100, 10_000):
            options = dict(form=form, patch=8, levels=6, chunk=chunk)
            plan = plan_of(direction, backend, mesh, "bspline4", "float32", x, **options)
            cells = patch_of(direction, plan).cells
            assert block_order.blocks_of(plan.workspace.axes, cells).counts[0] > 20
            result.append(moved(backend, plan, direction, given))
            close(result[-1], expected, "float32", max(1.0, np.sqrt(len(x))) if direction == "spread" else 4)
            if direction == "interpolate":  # a window is the same in any chunk
                np.testing.assert_array_equal(result[-1], result[0], err_msg=name)


@pytest.mark.parametrize(
    ("direction", "real", "gradient", "options"),
    [
        ("spread", "float32", False, {"form": "matrix"}),  # batches of 32
        ("spread", "float32", False, {"form": "multiply"}),
        ("spread", "float64", False, {"form": "matrix"}),
        ("spread", "float64", True, {"form": "multiply", "patch": 16}),  # complex: batches of 8
        ("interpolate", "float32", False, {"form": "matrix"}),
        ("interpolate", "float32", False, {"form": "multiply"}),
        ("interpolate", "float64", False, {"form": "matrix"}),  # four are kept for the next batch, steps are of eight
        ("interpolate", "float64", True, {"form": "matrix", "patch": 16}),  # batches of 8
        ("interpolate", "float32", True, {"form": "multiply", "patch": 16}),  # complex: one at a time
    ],
)
def test_any_number_of_particles_and_chunks_that_end_within_batches(backend, direction, real, gradient, options):
    mesh, most = pm.Mesh((6, 7, 8), (1.0, 1.0, 1.0)), 129
    x, given = draw(direction, mesh, most, real, 8)
    kind = np.result_type(real, np.complex64) if gradient else real
    spreads = direction == "spread"
    if gradient:
        given = (given[:, None] * np.array([1, 2j, -1]) if spreads else given + 1j * given[::-1]).astype(kind)
    made = getattr(oracle, ("spread_gradient" if gradient else "spread") if spreads else (
        "gradient" if gradient else "interpolate"))  # fmt: skip
    parts = [made(mesh, WINDOW, x[p : p + 1], given[p : p + 1]) for p in range(most)] if spreads else (
        made(mesh, WINDOW, x, given))  # fmt: skip
    plans = [
        plan_of(direction, backend, mesh, WINDOW, real, x, chunk=chunk, **options) for chunk in (32, 33, 45, 64, 999)
    ]
    for count in (129, 128, 65, 64, 33, 32, 31, 9, 8, 7, 1, 0):
        expected = sum(parts[:count], np.zeros(mesh.shape, kind)) if spreads else parts[:count]
        for plan in plans:
            plan.set_positions(backend.array(x[:count]))
            result = moved(backend, plan, direction, given[:count] if spreads else given, gradient)
            close(result, expected, real, 1 + np.abs(expected if spreads else parts).max(initial=0))


@pytest.mark.parametrize("method", ["walk", "walk_fixed", "ordered"])
def test_particles_with_many_lines_between_them(backend, method):
    # In a plane every block is a line. Of 32 lines and more a lane does not ask one by one.
    mesh = pm.Mesh((512, 1024), (512.0, 1024.0))
    x, q = draw("spread", mesh, 70, "float32", 6)
    x[:20] = x[20] + 0.01 * x[:20]  # some of them close together
    x = np.round(64 * x) / 64  # coordinates are exact
    reading = method if method != "walk_fixed" else "walk"
    plan = pm.Plan(mesh, "bspline4", method=method, interpolation=reading, dtype="float32", backend=backend.name)
    plan.set_positions(backend.array(x))
    close(moved(backend, plan, "spread", q), oracle.spread(mesh, WINDOW, x, q), "float32")
    field = np.random.default_rng(7).random(mesh.shape).astype("float32")
    close(moved(backend, plan, "interpolate", field), oracle.interpolate(mesh, WINDOW, x, field), "float32")


@pytest.mark.parametrize("form", FORMS)
def test_values_read_have_the_same_bits_whatever_the_order(backend, form):
    # Also among blocks, where particles come in an order that no one knows.
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, f = draw("interpolate", mesh, 3000, "float32", 9)
    field, first = (f + 1j * f[::-1]).astype(np.complex64), None
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(x))
        options = dict(form=form, chunk=(32, 77, 5000)[seed % 3])
        plan = plan_of("interpolate", backend, mesh, "bspline4", "float32", x[order], **options)
        result = moved(backend, plan, "interpolate", field)[np.argsort(order)]
        first = result if first is None else first
        np.testing.assert_array_equal(result, first)
    close(first.real, wanted_of("interpolate", mesh, x, f), "float32", 4)


@both
def test_memory_reserved_for_many_serves_few(backend, direction):
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, given = draw(direction, mesh, 2000, "float32", 9)
    chosen = {"method" if direction == "spread" else "interpolation": "walk"}
    plan = pm.Plan(mesh, "bspline4", **chosen, dtype="float32", backend=backend.name)
    plan.reserve(4000)
    method = plan.methods.of(direction)
    assert len(method.kinds(plan.workspace)) == 2, "few particles have another patch than many"
    held = plan.nbytes
    for count in (2000, 3, 0, 65):
        plan.set_positions(backend.array(x[:count]), check=False)
        some = given[:count] if direction == "spread" else given
        close(moved(backend, plan, direction, some), wanted_of(direction, mesh, x[:count], some), "float32", 10)
        assert method.patch(plan.workspace) == method.patch_for(plan.workspace, count)
    assert plan.nbytes == held


def test_both_directions_share_one_order(backend):
    mesh = pm.Mesh((9, 8, 10), (1.0, 1.0, 1.0))
    x, f = draw("interpolate", mesh, 500, "float32", 9)
    plan = pm.Plan(mesh, "bspline4", method="walk", interpolation="walk", dtype="float32", backend=backend.name)
    plan.set_positions(backend.array(x))

    def orders():
        return [o for o in plan.workspace.orders.values() if isinstance(o, block_order.BlockOrder)]

    field = plan.spread(backend.array(np.ones(500, np.float32)))
    (shared,) = orders()
    values = moved(backend, plan, "interpolate", f)
    assert orders() == [shared]
    np.testing.assert_allclose((backend.host(field) * f).sum(), values.sum(), rtol=1e-4)


# ---- what is not finite ----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("form", FORMS)
def test_particles_without_weight_are_left_out_in_every_form(backend, direction, form):
    mesh = pm.Mesh((6, 5, 7), pm.Box((1.0, 2.0, 1.0), periodic=(True, False, True)), offset=(0, 0.5, 0))
    x, given = draw(direction, mesh, 70, "float32", 2)
    bad = [7, 20, 30, 69]
    x[7, 0], x[20, 1], x[30, 1], x[69, 2] = np.nan, 2.5, -0.1, np.inf
    good = np.delete(np.arange(70), bad)
    # Beside a method that reads stencils, particles are not packed.
    beside = {"method": "particle" if form == "multiply" else "walk", "interpolation": "walk"}
    beside = {"method": "walk"} if direction == "spread" else beside
    options = {"walk": {"form": form, "levels": 4}}
    plan = pm.Plan(mesh, "bspline4", **beside, dtype="float32", backend=backend.name, options=options)
    plan.set_positions(backend.array(x), check=False)
    if direction == "spread":
        given[[7, 30]] = np.nan, np.inf
        close(moved(backend, plan, direction, given), oracle.spread(mesh, WINDOW, x[good], given[good]), "float32")
        return
    assert plan.particles.located()[0] == (form == "matrix")
    fields = np.stack([given, 2 * given])
    values, slopes = (np.zeros((2, 70, *more), np.float32) for more in ((), (3,)))
    values[:, good] = oracle.interpolate(mesh, WINDOW, x[good], fields)
    slopes[:, good] = oracle.gradient(mesh, WINDOW, x[good], fields)
    for order in ("planar", "interleaved"):
        outs = tuple(backend.array(np.full(a.shape, 7, a.dtype), order) for a in (values, slopes))
        plan.value_and_gradient(backend.array(fields, order), out=outs)
        for out, expected in zip(outs, (values, slopes), strict=True):
            close(backend.host(out), expected, "float32")
            assert not backend.host(out)[:, bad].any()


# ---- far apart in memory ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("order", ["planar", "reversed"])
def test_offsets_of_64_bits(backend, monkeypatch, direction, order):
    # The kernel that serves fields of 2^31 reals and more, on a small one; open edges have nodes off the field.
    plain = patches.patch_defines
    monkeypatch.setattr(patches, "patch_defines", lambda *a, **k: {**plain(*a, **k), "FIELD_IS_WIDE": 1})
    row = ("bspline4", "float32", "real", "3", "mixed", "odd", "none", order, "65")
    AS_THE_ORACLE[direction](trial_of(direction, backend, row))


@functools.cache
def any_plan(backend):
    return plan_of("spread", backend, pm.Mesh((4, 5, 6), (1.0, 1.0, 1.0)), "bspline4", "float32", np.zeros((1, 3)))


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
    defines = patches.patch_defines(plan.workspace, patch_of("spread", plan), SINGLE, 1, layout, 0)
    assert defines["FIELD_IS_WIDE"] == wide
