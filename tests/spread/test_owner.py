# SPDX-License-Identifier: BSD-3-Clause
"""Warps that own windows: visits and their order, crowded windows cut into pieces, nodes stored once."""

import itertools
import re

import numpy as np
import pytest

import particlemesh as pm
import ptx
import walk_cases
from particlemesh.arrays.operands import Layout
from particlemesh.backends import cuda
from particlemesh.methods.launches import Group
from particlemesh.orders import visits
from particlemesh.particles.stencil import Axis
from particlemesh.spread.owner import Owner, paired
from ptx import case
from trials import spread_as_the_oracle
from walk_cases import CASES

pytestmark = pytest.mark.backends("opencl", "cuda")
WIDE = {
    "nine nodes": ("bspline9", "float64", "complex", "3", "mixed", "odd", "none", "strided", "40"),
    "eleven nodes": ("bspline11", "float64", "real", "3", "triclinic", "prime", "3", "interleaved", "33"),
    "sixteen nodes": ("bspline16", "float32", "complex", "3", "ghosts", "odd", "none", "planar", "33"),
    "a wide plane": ("bspline12", "float64", "complex", "2", "periodic", "below-support", "none", "planar", "65"),
}


def images(axis, first, length):
    """Windows that a stencil reaches along an axis, and where it begins in each, as often as it comes round."""
    while True:
        inside = {n // length for n in range(first, first + axis.support) if 0 <= n < axis.size}
        yield from ((window, first - window * length) for window in sorted(inside))
        if not axis.wraps or first + axis.support <= axis.size:
            return
        first -= axis.size


def test_there_is_room_for_all_windows_that_a_stencil_reaches():
    sizes, supports, lengths = range(1, 27), (*range(2, 10), 16), (1, 2, 4, 8)
    for size, wraps, support, length in itertools.product(sizes, (False, True), supports, lengths):
        low, extent = (0, size) if wraps else (-support, size + support)
        axis = Axis(size, wraps, low, extent, support, 0, 0.0)
        most = max(len(list(images(axis, first, length))) for first in range(low, low + extent))
        reached = visits._reached(axis, length)
        assert most <= reached, axis
        assert most == reached or size % length or size < 2 * support, axis


def plan_of(backend, mesh, window="bspline4", dtype="float32", **more):
    options = {"owner": {name: value for name, value in more.items() if value is not None}}
    return pm.Plan(mesh, window, method="owner", backend=backend.name, dtype=dtype, options=options)


def cloud(mesh, count, crowd=0):
    """Positions, ``crowd`` of them beside one place."""
    x = np.random.default_rng(count).random((count, mesh.ndim))
    x[:crowd] = 0.4 + 0.001 * x[:crowd]
    return (mesh.box.origin + x * mesh.box.lengths).astype(np.float32)


@pytest.mark.whole
@pytest.mark.parametrize(("form", "parts"), [("multiply", 3), ("matrix", 2)])
@pytest.mark.parametrize("name", [name for name in CASES if name != "a plane"])
def test_equals_the_oracle(backend, name, form, parts, request):
    if request.config.thins and form == "matrix" and name not in ("five nodes", "six nodes"):
        pytest.skip("PoCL compiles slowly: --thorough and GPUs have all")
    spread_as_the_oracle(walk_cases.trial_of("spread", backend, CASES[name], 3, method="owner", form=form, parts=parts))


@pytest.mark.whole
@pytest.mark.parametrize("form", ["multiply", "matrix"])
@pytest.mark.parametrize("name", WIDE)
def test_wide_windows_equal_the_oracle(backend, name, form, request):
    if request.config.thins and (name, form) not in (("nine nodes", "matrix"), ("sixteen nodes", "multiply")):
        pytest.skip("PoCL compiles slowly: --thorough and GPUs have all")
    spread_as_the_oracle(walk_cases.trial_of("spread", backend, WIDE[name], 3, method="owner", form=form, parts=2))


@pytest.mark.parametrize(("form", "real"), [("matrix", "float32"), ("multiply", "float64")])
def test_crowded_windows_are_cut_and_give_the_same_bits(backend, form, real):
    mesh = pm.Mesh((20, 18, 25), (1.0, 1.0, 1.0))
    x = cloud(mesh, 5000, 4000).astype(real)
    q = np.random.default_rng(2).normal(size=5000).astype(real)

    def run():
        with plan_of(backend, mesh, dtype=real, form=form, parts=3) as plan:
            plan.set_positions(backend.array(x))
            field = backend.host(plan.spread(backend.array(q)))
            (order,) = (o for key, o in plan.workspace.orders.items() if key[0] == "visits")
            return field, int(plan.backend.download(order.work.array).view(np.uint32)[0])

    (field, pieces), (again, _) = run(), run()
    assert pieces > 10
    np.testing.assert_array_equal(field, again)
    expected = walk_cases.wanted_of("spread", mesh, x, q)
    walk_cases.close(field, expected, real, np.abs(q).sum())


@pytest.mark.parametrize(
    ("shape", "strides", "alignment", "pairs"),
    [
        pytest.param((1, 50, 2), (0, 2, 1), 8, True, id="complex"),
        pytest.param((1, 50, 2), (0, 6, 1), 0, True, id="every third"),
        pytest.param((3, 50, 2), (100, 2, 1), 0, True, id="planes"),
        pytest.param((2, 50, 1), (1, 2, 1), 0, True, id="two reals side by side"),
        pytest.param((2, 50, 1), (1, 3, 1), 0, False, id="two of three reals"),
        pytest.param((2, 50, 1), (50, 1, 1), 0, False, id="planes of reals"),
        pytest.param((1, 50, 2), (0, 2, 1), 4, False, id="not aligned"),
        pytest.param((3, 50, 2), (101, 2, 1), 0, False, id="planes not aligned"),
    ],
)
def test_parts_of_a_value_are_read_at_once_where_they_are_pairs_in_memory(shape, strides, alignment, pairs):
    assert paired(Group(2, 1, 0), Layout(0, shape, strides, alignment), 4) == pairs


def test_many_and_few_visits_are_ordered_in_reserved_memory(backend):
    mesh, room = pm.Mesh((13, 17, 19), (1.0, 1.0, 1.0)), {}
    with plan_of(backend, mesh, parts=2) as plan:
        plan.reserve(3000)
        held = plan.nbytes
        for count in (3000, 100):  # many visits take more bins
            x, q = cloud(mesh, count), np.ones(count, np.float32)
            plan.set_positions(backend.array(x), check=False)
            room[Owner.windows(plan.workspace).bins] = backend.host(plan.spread(backend.array(q)))
            walk_cases.close([*room.values()][-1], walk_cases.wanted_of("spread", mesh, x, q), "float32", count)
        assert plan.nbytes == held
    assert len(room) == 2


@pytest.mark.parametrize("together", [1, 2, 4])
def test_many_channels_share_launches(backend, monkeypatch, together):
    # Three groups of four channels and a last one. A crowd takes slabs, of each group its own.
    monkeypatch.setattr(Owner, "_together", classmethod(lambda cls, sizes, count=None: together))
    mesh, count = pm.Mesh((20, 18, 25), (1.0, 1.0, 1.0)), 3000
    x, q = cloud(mesh, count, 2000).astype(float), np.random.default_rng(2).normal(size=(13, count))
    expected = np.array([walk_cases.wanted_of("spread", mesh, x, channel) for channel in q])
    with plan_of(backend, mesh, dtype="float64", parts=3, form="multiply") as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(q)))
        walk_cases.close(field, expected, "float64", np.abs(q).sum(1).max())
        (launches,) = plan.methods.known["spread"]._batches.values()
        assert [channel[-1] for channel in launches] == {1: [1, 1, 1, 1], 2: [2, 1, 1], 4: [3, 1]}[together]


def test_few_slabs_are_enough_for_any_crowd(backend, monkeypatch):
    mesh = pm.Mesh((20, 18, 25), (1.0, 1.0, 1.0))
    monkeypatch.setattr(Owner, "pieces", classmethod(lambda cls, sizes, count=None: 3))
    x = cloud(mesh, 5000, 4900)
    with plan_of(backend, mesh, parts=3) as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(np.ones(5000, np.float32))))
    expected = walk_cases.wanted_of("spread", mesh, x, np.ones(5000))
    walk_cases.close(field, expected, "float32", 5000)


@pytest.mark.parametrize("count", [1, 40])
def test_every_node_is_stored_and_nothing_else(backend, count):
    mesh = pm.Mesh((10, 9, 11), (1.0, 1.0, 1.0))
    x, q = cloud(mesh, count), np.ones(count, np.float32)
    held = np.full((12, 11, 13), np.nan, np.float32)
    room = backend.array(held)
    with plan_of(backend, mesh) as plan:
        plan.set_positions(backend.array(x))
        plan.spread(backend.array(q), out=room[1:-1, 1:-1, 1:-1])
        result = backend.host(room)
        assert np.isnan(result).sum() == held.size - 10 * 9 * 11
        field = result[1:-1, 1:-1, 1:-1]
        walk_cases.close(field, walk_cases.wanted_of("spread", mesh, x, q), "float32", count)
        plan.spread(backend.array(q), out=room[1:-1, 1:-1, 1:-1], accumulate=True)
        np.testing.assert_array_equal(backend.host(room)[1:-1, 1:-1, 1:-1], 2 * field)


@pytest.mark.parametrize(
    ("real", "form", "support", "products"),
    [
        case("float32", "matrix", 6, {"m16n8k8.row.col.f32.tf32"}, id="float32"),
        case("float64", "matrix", 6, {"m16n8k8.row.col.f64", "m16n8k4.row.col.f64"}, id="float64"),
        case("float64", "matrix", 16, {"m16n8k8.row.col.f64", "m16n8k4.row.col.f64"}, id="wide"),
        case("float64", "multiply", 6, set(), id="multiply"),
    ],
)
def test_cuda_stores_without_atomics_and_holds_all_in_registers(monkeypatch, real, form, support, products):
    mesh = pm.Mesh((16, 16, 16), (1.0, 1.0, 1.0))

    def call():
        options = {"owner": {"form": form}}
        with pm.Plan(mesh, f"bspline{support}", method="owner", backend="opencl", dtype=real, options=options) as plan:
            plan.set_positions(np.full((3, 3), 0.5, real), check=False)
            plan.spread(np.ones(3, np.result_type(real, np.complex64)))

    file, name, defines = ptx.kernel_of(monkeypatch, "spread_owner", call)
    text = ptx.ptx(file, name, {**defines, **cuda.facts_of(90)})
    assert set(re.findall(r"mma\.sync\.aligned\.(\w+\.row\.col\.f\d\d(?:\.tf32)?)", text)) == products
    assert not ptx.ATOMIC.search(text)
    assert re.search(r"st\.global\.v4\.[bf]32" if real == "float32" else r"st\.global\.v2\.[bf]64", text)
    assert not re.search(r"\b(?:ld|st)\.local|\.local\s+\.align", text)


def test_plans_reserve_for_fewer_particles_as_well(backend, monkeypatch):
    # Few particles in a large field have windows as long as the mesh, where a device keeps many warps busy.
    rng = np.random.default_rng(5)
    mesh = pm.Mesh((64, 256, 256), (1.0, 4.0, 4.0))
    few, many = (rng.random((n, 3), dtype="float32") for n in (100, 20_000))
    with pm.Plan(mesh, "bspline4", components=4, dtype="float32", backend=backend.name, method="owner") as plan:
        monkeypatch.setattr(plan.workspace.backend, "units", 132)
        plan.reserve(len(many))
        owner, memory = plan.methods.of("spread"), plan.nbytes
        lengths = []
        for x in (few, many, few):
            plan.set_positions(backend.array(x))
            lengths.append(owner.windows(plan.workspace).length[0])
            field = backend.host(plan.spread(backend.array(np.ones((4, len(x)), "float32"))))
            np.testing.assert_allclose(field.sum(axis=(1, 2, 3)), len(x), rtol=1e-5)
            assert plan.nbytes == memory
        assert lengths == [64, 32, 64]
