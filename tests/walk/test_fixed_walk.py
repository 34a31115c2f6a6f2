# SPDX-License-Identifier: BSD-3-Clause
"""Integers that walks add in registers: the bits of those that are added particle by particle."""

import re
from typing import NamedTuple

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from devices import METHODS
from particlemesh.backends import cuda
from particlemesh.methods.contract import Problem
from particlemesh.orders import block_order
from particlemesh.walk import patch as patches
from parts import add, cut, owned
from ptx import without_nvrtc

pytestmark = pytest.mark.backends("cuda", "opencl")
LENGTHS = (3.1, 2.2, 2.7)
TILTED = np.diag(LENGTHS) + np.tril(np.full((3, 3), 0.3), -1)
MIXED = pm.Box(LENGTHS, origin=0.4, periodic=(True, False, True))
(FIXED,) = (m for m in METHODS["spread"] if m.name == "fixed_point")


class Case(NamedTuple):
    mesh: pm.Mesh
    window: str
    dtype: str
    order: int = 0  # of the derivative
    channels: tuple = ()
    count: int = 300
    more: dict | None = None  # options

    def draw(self):
        """Positions, of which some share a place, and values of very different sizes."""
        rng, ndim, real = np.random.default_rng(7), self.mesh.ndim, np.dtype(self.dtype).type(0).real.dtype
        x = rng.random((self.count, ndim)) @ self.mesh.box.matrix + self.mesh.box.origin
        x[: self.count // 4] = x[0]
        shape = (*self.channels, self.count) + (ndim,) * self.order
        q = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 6, shape)
        if np.dtype(self.dtype).kind == "c":
            q = q + 1j * rng.normal(size=shape)
        return x.astype(real), q.astype(self.dtype)

    def plan(self, backend, form, **more):
        options = {"form": form} | ((self.more or {}) | more if form == "registers" else {})
        real = np.dtype(self.dtype).type(0).real.dtype
        return pm.Plan(
            self.mesh, self.window, method="fixed_point", dtype=real, backend=backend.name,
            options={"fixed_point": options},
        )  # fmt: skip


CASES = {
    "a line": Case(pm.Mesh(16, 3.1), "bspline4", "float64", channels=(3,)),
    "vectors on a line": Case(pm.Mesh(11, 3.1, periodic=False), "bspline3", "float32", 1),
    "a plane": Case(pm.Mesh((11, 6), LENGTHS[:2]), "bspline4", "complex64", channels=(3,)),
    "vectors in a plane": Case(pm.Mesh((7, 13), LENGTHS[:2], periodic=(False, True)), "bspline5", "float64", 1),
    "linear": Case(pm.Mesh((9, 14, 11), TILTED), "cic", "float32", more={"patch": 8}),
    "three nodes": Case(pm.Mesh((11, 5, 6), MIXED, offset=(0, 0.5, 0.3)), "bspline3", "float32", count=3000),
    "vectors": Case(pm.Mesh((11, 5, 6), TILTED), "bspline4", "float32", 1),
    "complex vectors": Case(pm.Mesh((9, 5, 6), MIXED, offset=(0, 0, 0.3)), "bspline2", "complex128", 1),
    "m4prime": Case(pm.Mesh((11, 5, 6), MIXED, offset=(0, 0, 0.3), ghosts=(0, 2, 0)), "m4prime", "complex128"),
    "five nodes": Case(pm.Mesh((9, 14, 11), LENGTHS), "bspline5", "float32", channels=(2, 2), more={"patch": 16}),
    "six nodes": Case(pm.Mesh((9, 14, 11), LENGTHS), "bspline6", "complex64", count=1500),
    "below the support": Case(pm.Mesh((3, 1, 5), LENGTHS), "bspline7", "float64"),
    "eight nodes": Case(pm.Mesh((13, 9, 17), MIXED, offset=0.5), "bspline8", "float32"),
    "nine nodes": Case(pm.Mesh((20, 13), LENGTHS[:2]), "bspline9", "float64", 1),
    "eleven nodes": Case(pm.Mesh((20, 13, 5), MIXED, offset=(0, 0.5, 0)), "bspline11", "complex64", count=100),
    "sixteen nodes": Case(pm.Mesh((5, 37), LENGTHS[:2], periodic=(True, False)), "bspline16", "float32"),
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_integers_are_those_of_particle_by_particle_in_any_order(backend, name):
    case = CASES[name]
    x, q = case.draw()
    order = np.random.default_rng(1).permutation(len(x))
    turned = x[order], np.ascontiguousarray(np.take(q, order, q.ndim - 1 - case.order))
    results, fields = [], []
    for form, (y, r), more in (
        ("memory", (x, q), {}), ("registers", (x, q), {}), ("registers", turned, {"chunk": 32}), ("memory", turned, {}),
    ):  # fmt: skip
        plan = case.plan(backend, form, **more).set_positions(y)
        assert ("adds in registers, by a walk" in plan.explain()) == (form == "registers")
        bounds = plan.bounds(r, derivative=case.order)
        sums = plan.spread_integers(r, bounds, derivative=case.order)
        twice = plan.spread_integers(r, bounds, derivative=case.order, out=sums.copy(), accumulate=True)
        np.testing.assert_array_equal(twice, 2 * sums)
        results.append((bounds, sums))
        field = getattr(plan, ("spread", "spread_gradient")[case.order])(r)
        fields.append(field.tobytes())
        assert plan.convert(sums, bounds, dtype=q.dtype).tobytes() == fields[-1]
    assert np.abs(results[0][1]).max() > 2.0**45
    for bounds, sums in results[1:]:
        np.testing.assert_array_equal(bounds, results[0][0])
        np.testing.assert_array_equal(sums, results[0][1])
    assert len(set(fields)) == 1
    spread = (oracle.spread, oracle.spread_gradient)[case.order]
    expected = spread(case.mesh, plan.window, x, q)
    eps = 100 * np.finfo(x.dtype).eps * max(1, *case.mesh.shape) ** case.order
    np.testing.assert_allclose(field, expected, rtol=0, atol=eps * np.abs(expected).max())


@pytest.mark.parametrize("name", ["five nodes", "a plane"])
def test_levels_of_matrix_instructions_serve_too(backend, name, monkeypatch):
    """On devices that have such instructions, particles are sorted as for the walk that interpolates."""
    monkeypatch.setattr(patches, "_levels", lambda support, step: -(-support // 2) * 2)
    case = CASES[name]
    x, q = case.draw()
    fields = []
    for form in ("memory", "registers"):
        plan = case.plan(backend, form).set_positions(x)
        fields.append(plan.spread(q).tobytes())
    patch = plan.methods.of("spread").patch(plan.workspace)
    assert (patch.levels, patch.cells[0]) == {"five nodes": (6, 2), "a plane": (1, 2)}[name]
    assert len(set(fields)) == 1


def test_parts_that_add_differently_make_the_whole_field(backend):
    """Ranks with many particles walk, others do not; a field that is added to, particles without weight, none."""
    mesh, window, rng = pm.Mesh((11, 6), LENGTHS[:2], periodic=(True, False), offset=0.5), pm.bspline(4), np.random
    x = rng.default_rng(2).random((200, 2)) * LENGTHS[:2]
    q = rng.default_rng(3).normal(size=200)
    cells, sums, fields = pm.locate(x, mesh, window=window).cells, [], []
    for walking in (0, 3):
        parts = cut(mesh, 7, window)
        options = [{"fixed_point": {"form": "registers" if k < walking else "memory"}} for k in range(len(parts))]
        plans = [
            pm.Plan(part, window, backend=backend.name, deterministic=True, options=chosen)
            for part, chosen in zip(parts, options, strict=True)
        ]
        mine = [np.flatnonzero(owned(part, cells)) for part in parts]
        for plan, some in zip(plans, mine, strict=True):
            plan.set_positions(x[some])
        bounds = np.max([plan.bounds(q[some]) for plan, some in zip(plans, mine, strict=True)], axis=0)
        whole = np.zeros(mesh.shape, np.int64)
        for plan, part, some in zip(plans, parts, mine, strict=True):
            add(part, plan.spread_integers(q[some], bounds), whole)
        sums.append(whole)
        fields.append(plans[0].convert(whole, bounds))
        empty = plans[0].set_positions(x[:0]).spread_integers(q[:0], bounds)
        assert empty.shape == parts[0].field_shape and not empty.any()
    np.testing.assert_array_equal(*sums)
    alone = pm.Plan(mesh, window, method="fixed_point", backend=backend.name).set_positions(x).spread(q)
    assert fields[0].tobytes() == fields[1].tobytes() == alone.tobytes()


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 0.0])
def test_values_and_positions_that_are_bad_count_as_particle_by_particle(backend, bad):
    mesh = pm.Mesh((9, 6), pm.Box(LENGTHS[:2], periodic=(True, False)), offset=(0, 0.5))
    x, q = np.random.default_rng(4).random((100, 2)) * LENGTHS[:2], np.random.default_rng(5).normal(size=(2, 100))
    x[5], x[70, 1] = np.nan, 3.0
    q[:, [5, 70]] = np.nan, 1e300
    q[1, 17] = bad
    results = []
    for form in ("memory", "registers"):
        plan = pm.Plan(
            mesh, "tsc", method="fixed_point", backend=backend.name, dtype="float64",
            options={"fixed_point": {"form": form}},
        )  # fmt: skip
        with pytest.raises(ValueError, match="1 not finite and 1 outside"):
            plan.set_positions(x)
        plan.set_positions(x, check=False)
        results.append(plan.spread(q))
        assert plan.status.non_finite_values == (bad != 0)
        assert np.isnan(results[-1][1]).all() == (bad != 0) and np.isfinite(results[-1][0]).all()
        zero = plan.spread(np.zeros(100))
        assert not zero.any()
    assert results[0].tobytes() == results[1].tobytes()


def test_reserved_plans_walk_without_more_memory(backend):
    mesh, rng = pm.Mesh((16, 16), (1.0, 1.0)), np.random.default_rng(6)
    plan = pm.Plan(
        mesh, "cic", method="fixed_point", backend=backend.name, dtype="float32",
        options={"fixed_point": {"form": "registers"}},
    )  # fmt: skip
    x, q = rng.random((4000, 2)).astype(np.float32), rng.normal(size=4000).astype(np.float32)
    plan.reserve(4000)
    held = plan.nbytes
    for count in (4000, 20, 1500):
        plan.set_positions(x[:count], check=False)
        field = plan.spread(q[:count])
        assert plan.nbytes == held
        other = pm.Plan(mesh, "cic", method="fixed_point", backend=backend.name).set_positions(x[:count])
        assert field.tobytes() == other.spread(q[:count]).tobytes()


# ---- which form is taken --------------------------------------------------------------------------------------------


class Device(NamedTuple):
    name: str = "cuda"
    units: int = 132
    group_size: int = 128
    local_bytes: int = 227 * 1024
    warps: int = 1

    def facts(self):
        return {"HAS_MMA": self.warps, "HAS_WARP": self.warps}


def problem(count, window="bspline6", shape=(256, 256, 256), **more):
    device = Device(more.pop("name", "cuda"), warps=more.pop("warps", 1))
    mesh = pm.Mesh(shape, (1.0,) * len(shape))
    return Problem(mesh, pm.Plan(mesh, window).window, np.dtype(np.float32), 2, 1, int(count), True, device, **more)


@pytest.mark.backends("cpu")
def test_many_particles_walk(backend):
    for window in ("cic", "bspline4", "bspline6", "bspline8", "bspline12", "bspline16"):
        for shape in ((256, 256, 256), (64, 64, 64), (1024, 1024)):
            notes = [FIXED.note(problem(n, window, shape)) for n in np.logspace(1, 9, 30)]
            walks = [note == "adds in registers, by a walk" for note in notes]
            assert walks == sorted(walks)  # from some number on
            assert notes[0] == "adds in memory, particle by particle: predicted to be faster"
    many = problem(1e8)
    assert FIXED.note(many) == "adds in registers, by a walk"
    # The same shares of work as measured: sums in memory were 553 ms of 600 (H200).
    assert FIXED.cost(many)[1] < 0.1 * FIXED._adding(many)
    order = block_order.order_bytes(many, FIXED.cells(many, many.count))
    assert FIXED.scratch_bytes(many) - FIXED.scratch_bytes(problem(1e3)) == order >= 16 * 10**8


@pytest.mark.backends("cpu")
def test_what_cannot_walk_says_why(backend):
    assert FIXED.note(problem(1e8, warps=0)).endswith(
        "particle by particle: lanes of this device exchange no registers"
    )
    assert FIXED.note(problem(1e8, "ngp")) == "adds in memory, particle by particle: windows of one node"
    assert FIXED.note(problem(2.0**32)) == "adds in memory, particle by particle: 2**32 particles or more"
    asked = {"fixed_point": {"form": "memory"}}
    assert FIXED.note(problem(1e8, options=asked)) == "adds in memory, particle by particle: by option"
    assert FIXED.note(problem(1e8, name="cpu")) == ""
    asked = {"fixed_point": {"form": "registers"}}
    assert FIXED.declines(problem(1e8, "ngp", options=asked)) == "windows of one node"
    assert FIXED.declines(problem(10, options=asked)) is None
    with pytest.raises(pm.MethodNotSuitable, match="its options are for GPUs"):
        pm.Plan(pm.Mesh(8, 1.0), method="fixed_point", options=asked).set_positions([0.5]).spread([1.0])


# ---- CUDA ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.backends("cpu")
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("gradient", [0, 1])
def test_both_forms_round_alike_on_cuda(backend, real, gradient):
    """Products are fused in the same way, and each is rounded to an integer by one instruction."""
    kind = {"float32": "f32", "float64": "f64"}[real]
    facts = {
        "REAL_IS_DOUBLE": int(real == "float64"), "SUPPORT": 4, "SUPPORT_X": 4, "SUPPORT_Y": 4, "SUPPORT_Z": 4,
        "SUPPORT_AXES": 3, "DEGREE": 3, "PARTS": 2, "CHANNELS": 1, "VECTOR": 1, "GRADIENT": gradient,
    }  # fmt: skip
    walk = {
        "LANES_ALL": 1, "LANES_ROW": 1, "LEVELS": 4, "Z_TILES": 1, "MATRIX": 0, "WITH_MMA": 0, "FRAGMENTS": 0,
        "COPIES": 0, "BATCH": 32, "WARPS": 4, "SYMMETRIC": 0, "FIELD_IS_WIDE": 1, "PIECES": 1,
    }  # fmt: skip
    texts = [
        ptx.ptx("spread/fixed_point.c", "fixed_spread", facts | {"LANES_ALL": 8, "LANES_ROW": 8}),
        ptx.ptx("spread/fixed_walk.c", "spread_walk", facts | walk),
    ]
    for text in texts:
        assert set(re.findall(r"\b(?:red|atom)\.[\w.]*add\.([\w.]+)", text)) == {"u64"}
        assert not re.search(r"cvt\.(?!rni)\w+\.s64", text) and not re.search(rf"cvt\.rni\.{kind}\.{kind}", text)
        sums = re.findall(rf"\b(?:add|sub)(?:\.rn)?\.{kind}\s", text)
        assert len(sums) <= 4, sums  # of centred fractions
    assert not re.search(r"\b(?:ld|st)\.local|\.local\s+\.align", texts[1])
    assert len(re.findall(rf"cvt\.rni\.s64\.{kind}", texts[1])) == 4 * 2 * 2 * 1  # levels, nodes of a lane, parts
    assert cuda.compile_only("spread/fixed_walk.c", facts | walk, 90)
