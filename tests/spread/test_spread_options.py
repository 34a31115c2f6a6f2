# SPDX-License-Identifier: BSD-3-Clause
"""Every option gives the oracle's fields; so do entries counted in 64 bits; and atomics are only where they may be."""

import functools

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from devices import METHODS
from particlemesh.backends import cuda
from particlemesh.methods import by_copy
from particlemesh.methods.contract import Problem
from particlemesh.spread import group_mesh
from ptx import NVRTC

WINDOW = pm.bspline(4)
# Axes that wrap and are shorter than the support, one that is open, rows of two groups, a line longer than a tile.
MESHES = {
    "long": pm.Mesh((3, 5, 150), pm.Box((1.0, 2.0, 3.0), (0.1, 0.2, 0.3), (True, False, True)), offset=(0.0, 0.5, 0.2)),
    "short": pm.Mesh((3, 2), (1.0, 1.1)),
}
BY_NAME = {method.name: method for method in METHODS["spread"]}
READING = {method.name for method in METHODS["interpolate"]}
PAPER = {"construction": "paper"}
OPTIONS = [
    *(("group_mesh", {"group_size": n, "warps": 2}) for n in (16, 32, 64, 128, 256)),
    *(("hybrid_mesh", {"width": n}) for n in (None, 0, 1, 5, 10**6)),
    *(("line_mesh", {"lanes_per_cell": n}) for n in (1, 4, 32)),
    *(
        ("single_mesh", {"construction": construction, "reduction": reduction, "threads_per_row": threads})
        for construction in ("sorted", "paper")
        for reduction in ("stream", "shuffle", "local")
        for threads in (None, 1, 2, 4, 8, 16, 32)
    ),
    ("domain_copies", {"copies": 1}),
    ("domain_copies", {"copies": 50, "ranks": "atomic"}),
    ("domain_copies", {"block": (3, 2, 5)}),
    ("domain_copies", {"block": (1, 1, 1000), "copies": 2}),
    ("domain_copies", {"block": (1, 1, 1), "copies": 3}),
]


def plan_of(backend, mesh, method, options, dtype="float64"):
    both = {"interpolation": method} if method in READING else {}
    return pm.Plan(mesh, WINDOW, method=method, dtype=dtype, backend=backend, options={method: options}, **both)


@functools.cache
def drawn(name):
    """Positions, a third of them in one place; values, vectors and a field, each with what becomes of it."""
    mesh, rng = MESHES[name], np.random.default_rng(21)
    x = (0.01 + 0.98 * rng.random((70, mesh.ndim))) * mesh.box.lengths + mesh.box.origin
    x[:23] = x[0]
    q, v, f = rng.normal(size=(3, 70)), rng.normal(size=(70, mesh.ndim)), rng.normal(size=mesh.field_shape)
    return x, {
        "spread": (q, oracle.spread(mesh, WINDOW, x, q)),
        "spread_gradient": (v, oracle.spread_gradient(mesh, WINDOW, x, v)),
        "interpolate": (f, oracle.interpolate(mesh, WINDOW, x, f)),
        "gradient": (f, oracle.gradient(mesh, WINDOW, x, f)),
    }


def verbs(method):
    return ("spread", "spread_gradient", *(("interpolate", "gradient") if method in READING else ()))


def check(backend, plan, method, name):
    x, given = drawn(name)
    plan.set_positions(backend.array(x))
    for verb in verbs(method):
        array, expected = given[verb]
        result = backend.host(getattr(plan, verb)(backend.array(array)))
        np.testing.assert_allclose(result, expected, atol=1e-13 * max(1.0, np.abs(expected).max()), err_msg=verb)


@pytest.mark.parametrize(("method", "options"), OPTIONS, ids=str)
def test_every_option_gives_the_oracles_fields(backend, method, options):
    if backend.name not in BY_NAME[method].backends:
        pytest.skip(f"{method} runs on GPUs")
    with plan_of(backend.name, MESHES["long"], method, options) as plan:
        check(backend, plan, method, "long")


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    ("method", "options", "name"),
    [
        ("group_mesh", {}, "entries"), ("hybrid_mesh", {}, "start"), ("line_mesh", {}, "start"),
        ("single_mesh", {}, "start"), ("single_mesh", PAPER, "start"),
    ],
)  # fmt: skip
def test_entries_in_64_bits(backend, monkeypatch, method, options, name, mesh):
    monkeypatch.setattr(BY_NAME[method], "narrow", 10)
    monkeypatch.setattr(group_mesh, "_WIDE_ENTRY", 1000)
    with plan_of(backend.name, MESHES[mesh], method, options) as plan:
        check(backend, plan, method, mesh)
        assert plan.workspace.memory.arrays[f"{method}.{name}"].dtype == np.uint64


@pytest.mark.backends("opencl", "cuda")
def test_more_particles_than_32_bits_are_declined(backend):
    method = BY_NAME["line_mesh"]
    huge = Problem(MESHES["long"], WINDOW, np.dtype("float32"), 1, 1, 2**31, False, backend.library)
    assert method.declines(huge) == "2**31 particles or more"
    assert method.scratch_bytes(huge) > 2**31 * 16 * 8


# ---- what the compiler makes of it -----------------------------------------------------------------------------------

COPIES = {"copies_place", "copies_store", "copies_spread", "copies_stitch", "copies_extend", "copies_interpolate",
          "copies_collect"}  # fmt: skip
# Kernels without atomics, and kernels with some: the test would see them.
ADDS = {
    "domain_copies": ({}, COPIES, {"invert_order"}),
    "gather": ({}, {"gather_fractions", "gather_values", "gather_nodes"}, {"gather_place", "spread_particle"}),
    "gather_list": ({}, {"permute_values", "gather_runs"}, {"invert_order"}),
    "hybrid_mesh": ({}, {"place_values", "hybrid_ell", "hybrid_coo", "hybrid_carry"}, {"hybrid_histogram"}),
    "line_mesh": ({}, {"line_records", "line_spread"}, {"invert_order"}),
    "single_mesh": (PAPER, {"place_values", "single_stream"}, {"single_count", "single_collect"}),
}


def kernels_of(monkeypatch, method, options):
    x, given = drawn("long")

    def call():
        with plan_of("opencl", MESHES["long"], method, options, "float32") as plan:
            plan.set_positions(x)
            for verb in verbs(method):
                getattr(plan, verb)(given[verb][0].astype("float32"))

    return ptx.kernels_of(monkeypatch, call)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("method", "local"),
    [pytest.param(m, True, marks=NVRTC, id=m) for m in ADDS]
    + [pytest.param("domain_copies", False, marks=NVRTC, id="domain_copies in device memory")],
)
def test_nothing_is_added_atomically_once_particles_are_ordered(monkeypatch, method, local):
    if not local:
        monkeypatch.setattr(by_copy, "_MOST_LOCAL", 0)
    options, without, with_some = ADDS[method]
    atomic = {}
    for file, name, defines in kernels_of(monkeypatch, method, options):
        if name in without | with_some:
            atomic.setdefault(name, set()).add(bool(ptx.ATOMIC.search(ptx.ptx(file, name, defines))))
    assert atomic == {**{name: {False} for name in without}, **{name: {True} for name in with_some}}


@pytest.mark.parametrize("warps", [pytest.param(n, marks=NVRTC) for n in (1, 4)])
def test_groups_make_their_sums_in_local_memory(monkeypatch, warps):
    assert cuda.CudaBackend.group_size == 128
    seen = 0
    for file, name, defines in kernels_of(monkeypatch, "group_mesh", {}):
        if name == "group_apply":
            text = ptx.ptx(file, name, {**dict(defines), "TEAM": 32 * warps})
            atomics = [line for line in text.splitlines() if ptx.ATOMIC.search(line)]
            assert atomics and all(".shared" in line for line in atomics)
            seen += 1
    assert seen == 2
