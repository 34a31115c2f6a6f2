# SPDX-License-Identifier: BSD-3-Clause
"""The walk into integers: the same bits in every run, sums that cannot overflow, values that are not finite."""

import functools
import re

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
import walk_cases
from blocks import cut
from devices import Device
from particlemesh.orders import block_order
from particlemesh.particles.stencil import axes_of
from particlemesh.spread.walk_fixed import apart, reached_from
from ptx import without_nvrtc
from trials import spread_as_the_oracle

pytestmark = pytest.mark.backends("cuda", "opencl")
MESH = pm.Mesh((9, 14, 11), (1.0, 1.0, 1.0))


fixed_plan, draw, wanted_of = (
    functools.partial(walk_cases.plan_of, "spread", method="walk_fixed"),
    functools.partial(walk_cases.draw, "spread"),
    functools.partial(walk_cases.wanted_of, "spread"),
)


# ---- the sums --------------------------------------------------------------------------------------------------------

CASES = {
    "even": ("bspline4", "float32", "real", "3", "periodic", "even", "none", "planar", "300"),
    "odd": ("bspline5", "float32", "complex", "3", "triclinic-mixed", "odd", "3", "interleaved", "65"),
    "float64": ("bspline6", "float64", "complex", "3", "ghosts", "odd", "none", "strided", "65"),
    "small": ("bspline7", "float32", "real", "3", "open-faces", "one", "5", "interleaved", "40"),
    "plane": ("bspline8", "float64", "real", "2", "mixed", "below-support", "2x3", "planar", "65"),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_oracle(backend, case):
    spread_as_the_oracle(walk_cases.trial_of("spread", backend, CASES[case], 3, method="walk_fixed"))


def test_other_streams_and_a_field_that_is_added_to_have_the_same_bits(backend):
    x, q = draw(MESH, 2000, "float32", 12)
    plan = fixed_plan(backend, MESH, "bspline4", "float32", x, form="multiply")
    first = backend.host(plan.spread(backend.array(q)))
    stream = backend.stream()
    with backend.on(stream):
        xs, qs = backend.array(x), backend.array(q)
        if backend.name == "opencl":
            xs, qs = xs.with_queue(stream), qs.with_queue(stream)
            stream.finish()
        other = pm.Plan(MESH, "bspline4", method="walk_fixed", options={"walk_fixed": {"form": "multiply"}})
        other.set_positions(xs)
        result = backend.host(other.spread(qs))
    np.testing.assert_array_equal(result, first)
    both = backend.array(np.ones(MESH.shape, np.float32))
    plan.spread(backend.array(q), out=both, accumulate=True)
    np.testing.assert_array_equal(backend.host(both), first + np.float32(1))


def test_warps_share_nodes_in_any_order(backend):
    # Chunks of 32: nearly every node gets something from several warps, whose order would show in float sums.
    x, q = draw(MESH, 3000, "float64", 13)
    plan = fixed_plan(backend, MESH, "bspline4", "float64", x, chunk=32)
    q *= 10.0 ** np.random.default_rng(1).integers(-9, 9, 3000)
    fields = {backend.host(plan.spread(backend.array(q))).tobytes() for _ in range(5)}
    assert len(fields) == 1
    expected = wanted_of(MESH, x, q)
    np.testing.assert_allclose(
        np.frombuffer(fields.pop()).reshape(MESH.shape), expected, atol=1e-13 * abs(expected).max()
    )


@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_sums_that_pile_up_do_not_overflow(backend, real, size):
    # All on one node of a mesh of one: weights add up to one a particle.
    mesh, count = pm.Mesh((1, 1, 1), (1.0, 1.0, 1.0)), 3000
    q = np.full(count, 1.9999 * size, real)
    plan = fixed_plan(backend, mesh, "bspline4", real, np.full((count, 3), 0.37))
    result = backend.host(plan.spread(backend.array(q)))
    np.testing.assert_allclose(result, q.astype(float).sum(), rtol=1e-6 if real == "float32" else 1e-13)
    q = -q
    q[0] = 0
    result = backend.host(plan.spread(backend.array(q)))
    np.testing.assert_allclose(result, q.astype(float).sum(), rtol=1e-6 if real == "float32" else 1e-13)
    assert not backend.host(plan.spread(backend.array(np.zeros(count, real)))).any()


def test_many_blocks_at_one_node_do_not_overflow(backend):
    # Seven particles on every node of a window that is one high: a node gets more than all of its block bring, and
    # bounds leave no room by chance.
    mesh, window = pm.Mesh((7, 8, 8), (7.0, 8.0, 8.0)), pm.window.kaiser_bessel(7)
    x = np.repeat(np.stack(np.meshgrid(*map(np.arange, mesh.shape), indexing="ij"), -1).reshape(-1, 3), 7, axis=0)
    plan = fixed_plan(backend, mesh, window, "float64", x, levels=7, patch=8)
    assert plan.methods.of("spread").patch(plan.workspace).cells == (1, 2, 2)
    total = 7 * 1.9999 * window.weights(0.0).sum() ** 3
    assert total > 2 ** (63 - (62 - 5 - 1))  # 28 particles of a block are 5 bits, a value one
    result = backend.host(plan.spread(backend.array(np.full(len(x), 1.9999))))
    np.testing.assert_allclose(result, total, rtol=1e-13)


def test_blocks_that_reach_a_node_are_bounded():
    tight = 0
    for support in range(2, 9):
        for nodes in (1, 2, 3, 5, 7, 8, 9, 16, 23, 40):
            for box in (pm.Box((1.0, 1.0, 1.0)), pm.Box((1.0, 1.0, 1.0), periodic=False)):
                mesh = pm.Mesh((nodes,) * 3, box, offset=0.0 if box.periodic[0] else 0.5)
                axes = axes_of(mesh, pm.bspline(support))
                for cells in (1, 2, 3, 5, 7, 14):
                    blocks = block_order.blocks_of(axes, (min(cells, 8), min(cells, 8), cells))
                    for a, (axis, size, count) in enumerate(zip(axes, blocks.narrow, blocks.counts, strict=True)):
                        reached = [set() for _ in range(nodes)]
                        for first in range(axis.low, axis.low + axis.extent):
                            block = int(cut(blocks, np.full((3, 1), first))[0][a, 0])
                            for node in range(first, first + support):
                                if axis.wraps or 0 <= node < nodes:
                                    reached[node % nodes].add(block)
                        most = max(map(len, reached))
                        assert most <= reached_from(axis, size, count)
                        tight += most == reached_from(axis, size, count)
    assert tight > 500


def test_where_integers_lie():
    axes = axes_of(MESH, pm.bspline(4))
    assert apart(axes, 2).strides == (9 * 14 * 11, 14 * 11, 11, 1, 1)


# ---- what is not finite ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fixed_point", "walk_fixed"])
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_values_that_are_not_finite_spoil_their_component_and_are_recorded(backend, method, bad):
    x, q = draw(MESH, 300, "float64", 15)
    values = np.stack([q, 2 * q, 3 * q])
    values[1, 17] = bad
    plan = pm.Plan(MESH, "bspline4", method=method, backend=backend.name, dtype="float64")
    plan.set_positions(backend.array(x))
    assert not plan.status.non_finite_values
    result = backend.host(plan.spread(backend.array(values)))
    assert np.isnan(result[1]).all()
    expected = wanted_of(MESH, x, q)
    np.testing.assert_allclose(result[0], expected, atol=1e-12)
    np.testing.assert_allclose(result[2], 3 * expected, atol=1e-12)
    assert plan.status.non_finite_values
    with pytest.raises(ValueError, match="values were not all finite"):
        plan.check()
    plan.set_positions(backend.array(x))
    assert not plan.status.non_finite_values
    plan.check()
    np.testing.assert_allclose(backend.host(plan.spread(backend.array(q))), expected, atol=1e-12)
    plan.check()


@pytest.mark.parametrize("method", ["fixed_point", "walk_fixed"])
def test_values_of_particles_without_weight_do_not_count(backend, method):
    # Neither as not finite, nor as so large that others' digits are lost.
    mesh = pm.Mesh((9, 14, 11), pm.Box((1.0, 1.0, 1.0), periodic=(True, False, True)), offset=(0, 0.5, 0))
    x, q = draw(mesh, 300, "float64", 16)
    x[5], x[100, 1], x[299, 2] = np.nan, 1.5, np.inf
    good = np.delete(np.arange(300), [5, 100, 299])
    q[[5, 100, 299]] = np.nan, 1e300, np.inf
    plan = pm.Plan(mesh, "bspline4", method=method, backend=backend.name, dtype="float64")
    plan.set_positions(backend.array(x), check=False)
    result = backend.host(plan.spread(backend.array(q)))
    np.testing.assert_allclose(result, oracle.spread(mesh, pm.bspline(4), x[good], q[good]), atol=1e-13)
    assert not plan.status.non_finite_values


# ---- as any method ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.backends("opencl")
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_leaves_is_added_as_integers(backend, real, monkeypatch):
    def call():
        device = Device.of("opencl")
        x, q = draw(MESH, 20, real, 18)
        plan = fixed_plan(device, MESH, "bspline4", real, x, form="multiply")
        plan.spread(device.array(q))

    kernels = [k for k in ptx.kernels_of(monkeypatch, call) if k[1] == "spread_walk"]
    (mine,) = kernels
    text = ptx.ptx(*mine)
    assert set(re.findall(r"\b(?:red|atom)\.[\w.]*add\.([\w.]+)", text)) == {"u64"}
    assert not re.search(r"\b(?:ld|st)\.local|\.local\s+\.align", text)
