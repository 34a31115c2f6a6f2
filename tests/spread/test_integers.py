# SPDX-License-Identifier: BSD-3-Clause
"""Sums in integers: the whole field's bits from any parts of the mesh, no overflow, conversion, values returned."""

from typing import NamedTuple

import numpy as np
import pytest

import oracle
import particlemesh as pm
from parts import CUTS, add, cut, owned, taken

LENGTHS = (3.1, 2.2, 2.7)
TILTED = np.diag(LENGTHS) + np.tril(np.full((3, 3), 0.3), -1)
VERBS = "spread", "spread_gradient", "spread_hessian"


class Case(NamedTuple):
    mesh: pm.Mesh
    window: str
    dtype: str
    order: int  # of the derivative
    clustered: bool
    channels: tuple = ()

    def draw(self, count=400):
        """Positions and values of very different sizes."""
        rng, ndim, real = np.random.default_rng(7), self.mesh.ndim, np.dtype(self.dtype).type(0).real.dtype
        s = rng.random((count, ndim)) ** (4 if self.clustered else 1)
        x = s @ self.mesh.box.matrix + self.mesh.box.origin
        shape = (*self.channels, count) + (ndim,) * self.order
        q = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 6, shape)
        if np.dtype(self.dtype).kind == "c":
            q = q + 1j * rng.normal(size=shape)
        return x.astype(real), q.astype(self.dtype)


MIXED = pm.Mesh((11, 5, 6), pm.Box(LENGTHS, periodic=(True, False, True)), offset=(0, 0.5, 0.3))
CASES = {
    "1-D": Case(pm.Mesh(16, 3.1), "bspline4", "float64", 0, True, (2,)),
    "1-D vectors": Case(pm.Mesh(16, 3.1, periodic=False), "bspline4", "float64", 1, False),
    "2-D": Case(pm.Mesh((11, 6), LENGTHS[:2]), "bspline4", "complex64", 0, False, (3,)),
    "3-D": Case(MIXED, "bspline4", "float32", 0, True),
    "3-D vectors": Case(pm.Mesh((11, 5, 6), TILTED), "bspline4", "float32", 1, True),
    "3-D tensors": Case(MIXED, "bspline3", "float64", 2, False),
}
SLOW_ON_POCL = {"1-D vectors", "3-D tensors"}


def whole_of(backend, case, count, x, q):
    """Return the field and the values that parts return together, and the parts' bounds."""
    window, ndim, real = pm.bspline(int(case.window[-1])), case.mesh.ndim, x.dtype
    cells = backend.host(pm.locate(backend.array(x), case.mesh, window=window).cells)
    parts = cut(case.mesh, count, window)
    order = np.random.default_rng(count).permutation(len(x))  # each part has particles in an order of its own
    mine = [order[owned(part, cells)[order]] for part in parts]
    plans = [pm.Plan(part, window, dtype=real, backend=backend.name, deterministic=True) for part in parts]
    axis = q.ndim - 1 - case.order
    values = [np.ascontiguousarray(np.take(q, some, axis)) for some in mine]
    for plan, some in zip(plans, mine, strict=True):
        plan.set_positions(x[some])
    bounds = np.max([plan.bounds(v, derivative=case.order) for plan, v in zip(plans, values, strict=True)], axis=0)
    parts_of_number = (2,) if q.dtype.kind == "c" else ()
    sums = np.zeros((*case.channels, *parts_of_number, *case.mesh.shape), np.int64)
    for plan, part, v in zip(plans, parts, values, strict=True):
        add(part, plan.spread_integers(v, bounds, derivative=case.order), sums)
    field = plans[-1].convert(sums, bounds, dtype=q.dtype)
    back = np.zeros((*case.channels, len(x)), q.dtype)
    slopes = np.zeros((*case.channels, len(x), ndim), q.dtype)
    for plan, part, some in zip(plans, parts, mine, strict=True):
        local = np.ascontiguousarray(taken(part, field))
        back[..., some] = plan.interpolate(local)
        slopes[..., some, :] = plan.gradient(local)
    return bounds, field, back, slopes


@pytest.mark.parametrize("name", CASES)
def test_any_parts_have_the_bits_of_one(backend, name, request):
    if backend.name == "opencl" and name in SLOW_ON_POCL and request.config.thins:
        pytest.skip("PoCL compiles it for half a minute; CUDA and --thorough run it")
    case = CASES[name]
    x, q = case.draw()
    bounds, *results = whole_of(backend, case, 1, x, q)
    for count in CUTS if case.clustered else (2, 7):
        others, *result = whole_of(backend, case, count, x, q)
        np.testing.assert_array_equal(others, bounds)
        for ours, theirs in zip(result, results, strict=True):
            assert ours.tobytes() == theirs.tobytes(), count
    # and are those of a plan without parts, whose error is that of rounding
    options = {"dtype": x.dtype, "backend": backend.name, "deterministic": True}
    with pm.Plan(case.mesh, case.window, method="fixed_point", **options).set_positions(x) as plan:
        alone = getattr(plan, VERBS[case.order])(q)
        assert alone.tobytes() == results[0].tobytes()
    with pm.Plan(case.mesh, case.window, **options).set_positions(x) as plan:
        usual = getattr(plan, VERBS[case.order])(q)
    scale = np.abs(usual).reshape(*case.channels, -1).max(-1)[(..., *(None,) * case.mesh.ndim)]
    eps = (40, 40, 200)[case.order] * np.finfo(x.dtype).eps  # a contribution has 51 bits of the largest possible one
    assert (np.abs(alone - usual) <= eps * scale).all()


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_order_do_not_matter(backend, threads):
    case = CASES["3-D vectors"]
    x, q = case.draw(20_000)
    x, q = np.tile(x, (2, 1)), np.tile(q, (2, 1))  # tasks of one tile follow each other
    order = np.random.default_rng(1).permutation(len(x))
    fields = set()
    for turn in (np.arange(len(x)), order):
        with pm.Plan(case.mesh, "bspline4", method="fixed_point", threads=threads).set_positions(x[turn]) as plan:
            fields.add(plan.spread_gradient(q[turn]).tobytes())
    with pm.Plan(case.mesh, "bspline4", method="fixed_point", threads=1).set_positions(x) as plan:
        fields.add(plan.spread_gradient(q).tobytes())
    assert len(fields) == 1


# ---- bounds ----------------------------------------------------------------------------------------------------------


def exact(mesh, window, x, q, bounds, order=0):
    """Return the sums in float64, which do not overflow."""
    spread = (oracle.spread, oracle.spread_gradient)[order]
    scaled = np.ldexp(q.astype(float), 62 - int(bounds[0]) - int(bounds[1]))
    return spread(mesh, window, x, scaled)


@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("order", [0, 1])
def test_sums_that_pile_up_do_not_overflow(backend, real, order, request):
    """All values just below a power of two, all particles on the point of a cell where a node gets most."""
    if backend.name == "opencl" and order and real == "float64" and request.config.thins:
        pytest.skip("PoCL compiles long; CUDA and --thorough run it")
    window, tiny = pm.bspline(4), np.finfo(real).tiny
    for mesh, place in ((pm.Mesh((6, 1), (6.0, 1.0)), (2.0, 0.0)), (pm.Mesh((6, 5), (6.0, 5.0)), (2.25, 3.0))):
        x = np.full((511, 2), place, real)  # one less than a power of two: bounds leave no room by chance
        for size in (tiny, 1.0, np.finfo(real).max / 4):
            q = np.full((511, 2)[: 1 + order], np.nextafter(np.dtype(real).type(2 * size), np.dtype(real).type(0)))
            plan = pm.Plan(mesh, window, method="fixed_point", backend=backend.name).set_positions(x)
            bounds = plan.bounds(q, derivative=order)
            result = plan.spread_integers(q, bounds, derivative=order)
            expected = exact(mesh, window, x, q, bounds, order)
            assert 2.0**52 < np.abs(expected).max() < 2.0**62
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_bounds_follow_from_the_fullest_cell_and_the_largest_value(backend):
    mesh, window = pm.Mesh((6, 5), (6.0, 5.0)), pm.bspline(2)
    x = np.array([[0.5, 0.5]] * 5 + [[3.2, 2.7]] * 3 + [[3.9, 2.1]] * 4)
    plan = pm.Plan(mesh, window, backend=backend.name).set_positions(x)
    q = np.zeros((2, 12), complex)
    q[0, 3], q[1, 4] = -3.0 + 0.25j, 1e-3j
    weight = 1.01**2 * 4  # of a node: in each of four cells a particle may give it all
    bounds = plan.bounds(q)
    assert bounds.dtype == np.int32
    least = 12 if backend.name == "cpu" else 0  # there 11 bits are left beyond a contribution, of 1.01**2 at most
    assert bounds.tolist() == [max(least, int(np.ceil(np.log2(7 * weight)))), 2, -1, -1022, -9]
    assert plan.set_positions(x[:0]).bounds(q[:, :0]).tolist() == [least] + [-1022] * 4
    q = np.full(12, 1.0)
    plan.set_positions(x)
    assert plan.bounds(np.full(12, np.nan)).tolist() == [bounds[0], 2**20]
    with pytest.raises(ValueError, match=r"bounds has shape \(5,\) and dtype int32; values of 1 reals need int32"):
        plan.spread_integers(q, bounds)
    with pytest.raises(ValueError, match="derivative is 3; 0 to 2"):
        plan.bounds(q, derivative=3)


def test_values_that_are_not_finite_make_their_component_nan(backend):
    mesh, x = pm.Mesh((6, 5), (6.0, 5.0)), np.random.default_rng(3).random((50, 2)) * 5
    q = np.random.default_rng(4).normal(size=(2, 50))
    q[1, 7] = np.inf
    plan = pm.Plan(mesh, "cic", backend=backend.name).set_positions(x)
    bounds = plan.bounds(q)
    field = plan.convert(plan.spread_integers(q, bounds), bounds)
    assert np.isnan(field[1]).all()
    np.testing.assert_allclose(field[0], plan.spread(q[0]), atol=1e-13)
    assert plan.status.non_finite_values


# ---- arrays ----------------------------------------------------------------------------------------------------------


def test_integers_of_any_layout(backend):
    mesh, rng = pm.Mesh((6, 5), (6.0, 5.0)), np.random.default_rng(3)
    x, q = rng.random((50, 2)) * 5, rng.normal(size=(3, 50)) + 1j * rng.normal(size=(3, 50))
    plan = pm.Plan(mesh, "cic").set_positions(backend.array(x))
    values = backend.array(q)
    bounds = plan.bounds(values)
    first = plan.spread_integers(values, bounds)
    expected, shape = backend.host(first), (3, 2, 6, 5)
    assert first.shape == shape and expected.dtype == np.int64
    host = np.max([backend.host(bounds)], axis=0)  # a host array is copied to the device
    for order in ("planar", "strided", "fortran"):
        out = backend.array(np.full(shape, 7, np.int64), order)
        assert plan.spread_integers(values, host, out=out) is out
        np.testing.assert_array_equal(backend.host(out), expected)
        assert plan.spread_integers(values, bounds, out=out, accumulate=True) is out
        np.testing.assert_array_equal(backend.host(out), 2 * expected)
        doubled = plan.convert(out, bounds, dtype="complex128")
        field = backend.host(plan.spread(values))
        np.testing.assert_allclose(backend.host(doubled), 2 * field, atol=1e-13)
    some = backend.array(expected[1:2, :, 2:4, :3])
    kept = backend.array(np.zeros((1, 2, 3), complex), "strided")
    assert plan.convert(some, host[[0, 3, 4]], dtype="complex128", out=kept) is kept
    np.testing.assert_allclose(backend.host(kept), field[1:2, 2:4, :3], atol=1e-13)
    with pytest.raises(ValueError, match=r"this call writes int64 of shape \(3, 2, 6, 5\)"):
        plan.spread_integers(values, bounds, out=backend.array(np.zeros((3, 6, 5), np.int64)))
    with pytest.raises(TypeError, match="integers has dtype float64; int64 is needed"):
        plan.convert(backend.array(np.zeros((6, 5))), bounds)
    with pytest.raises(ValueError, match=r"complex128 needs \(..., 2, \*nodes\) with 2 node axes"):
        plan.convert(backend.array(np.zeros((6, 5), np.int64)), bounds, dtype="complex128")


@pytest.mark.backends("cpu")
def test_only_methods_that_do_not_depend_on_cuts_serve_parts(backend):
    part = pm.Mesh((8, 8), (1.0, 1.0)).part((0, 0), (4, 8), [(1, 2), 0])
    plan = pm.Plan(part, deterministic=True).set_positions([[0.3, 0.5]])
    assert "spread by 'fixed_point'" in repr(plan) or plan.spread([1.0]).shape == (7, 8)
    assert "its last bits depend on how the mesh is cut" in " ".join(plan.explain().split())
    with pytest.raises(pm.MethodNotSuitable, match="depend on how the mesh is cut"):
        pm.Plan(part, method="colouring", deterministic=True).set_positions([[0.3, 0.5]]).spread([1.0])
    with pytest.raises(ValueError, match="sums in integers are for one system"):
        pm.Plan(part.whole, systems=2).set_positions([[0.3, 0.5]], system=[1]).bounds([1.0])
