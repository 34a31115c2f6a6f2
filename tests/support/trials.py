# SPDX-License-Identifier: BSD-3-Clause
"""One row of the covering array on one backend, and every law that applies to it."""

import numpy as np

from cases import case_of, matrices
from particlemesh.particles.stencil import axes_of


class Trial:
    """One row on one backend: the plan, the inputs in the row's memory order, the bounds of rounding."""

    def __init__(self, row, law, backend, seed, *, thin=False):
        self.row, self.law, self.backend = row, law, backend
        self.thin = thin  # no kernel is compiled for a law that follows from others
        self.mesh, self.window, self.x, self.q, self.v, self.f = case_of(row, seed)
        weights = matrices(self.mesh, self.window, self.x)
        self.weights, self.slopes, self.most, self.steepest, self.total = weights
        self.real = self.q.real.dtype
        # What rounding may do: to values, and to node coordinates (fractions for mixed precision).
        eps, largest = np.finfo(self.real).eps, max(self.mesh.field_shape)
        place = eps if row.precision == "mixed" else eps * (8 + 4 * largest)
        spacing = float(np.min(self.mesh.box.lengths / np.array(self.mesh.intervals)))
        fixed = 2.0**-44 if law.direction == "spread" and law.method.order_independent else 0.0
        self.tolerance = 32 * eps + fixed, 8 * place * spacing, 64 * eps + 32 * place + fixed
        self.plan = self.make()

    def make(self, x=None, mesh=None):
        x = self.x if x is None else x
        real = "float32" if self.row.precision == "mixed" else None
        plan = self.law.plan(mesh or self.mesh, self.window, components=1, dtype=real)
        plan.set_positions(self.backend.array(x, self.row.layout if self.row.layout != "interleaved" else "fortran"))
        return plan

    def array(self, host):
        return self.backend.array(host, self.row.layout)

    def empty(self, host):
        return self.array(np.full(np.shape(host), 7, np.asarray(host).dtype))

    # Every law calls these, so that a row compiles one kernel for each.

    def spread(self, q, plan=None, **options):
        out = self.empty(np.zeros(self.f.shape, self.q.dtype))
        result = (plan or self.plan).spread(self.array(q), out=out, **options)
        assert result is out
        return self.backend.host(out)

    def spread_gradient(self, v, plan=None):
        out = self.empty(np.zeros(self.f.shape, self.q.dtype))
        assert (plan or self.plan).spread_gradient(self.array(v), out=out) is out
        return self.backend.host(out)

    def interpolate(self, f, plan=None):
        out = self.empty(np.zeros(self.q.shape, self.q.dtype))
        assert (plan or self.plan).interpolate(self.array(f), out=out) is out
        return self.backend.host(out)

    def gradient(self, f, plan=None):
        out = self.empty(np.zeros(self.v.shape, self.q.dtype))
        assert (plan or self.plan).gradient(self.array(f), out=out) is out
        return self.backend.host(out)

    # Bounds: |S||q| and, for the rounding of coordinates, its slope.

    def near(self, result, expected, scale, slope, law):
        if not expected.size:
            return
        a, b, _ = self.tolerance
        allowed = a * scale.max(initial=0) + b * slope.max(initial=0) + np.finfo(self.real).tiny
        assert np.abs(result - expected).max() <= allowed, law

    def near_gradient(self, result, expected, scale, law):
        if expected.size:
            assert np.abs(result - expected).max() <= self.tolerance[2] * scale.max(initial=0) + 1e-30, law


def spread_as_the_oracle(t):
    """Compare with the dense matrices; return the fields, and the bounds of the first one's rounding."""
    flat_v = t.v.reshape(*t.v.shape[:-2], t.v.shape[-2] * t.v.shape[-1])
    slopes, steepest = (a.reshape(flat_v.shape[-1], a.shape[-1]) for a in (t.slopes, t.steepest))
    size, slope = np.abs(t.q) @ t.most, np.abs(t.q) @ t.steepest.sum(1)
    field, bent = t.spread(t.q), t.spread_gradient(t.v)
    t.near(field, (t.q @ t.weights).reshape(t.f.shape), size, slope, "equals the oracle")
    expected = (flat_v @ slopes).reshape(t.f.shape)
    t.near_gradient(bent, expected, np.abs(flat_v) @ steepest, "gradient's adjoint equals the oracle")
    return field, bent, size, slope


def check_spread(t):
    q, v, f = t.q, t.v, t.f
    flat_v = v.reshape(*v.shape[:-2], v.shape[-2] * v.shape[-1])
    steepest = t.steepest.reshape(flat_v.shape[-1], t.steepest.shape[-1])
    field, bent, size, slope = spread_as_the_oracle(t)

    lost = t.plan.lost(t.array(q))
    kept = field.sum(tuple(range(-t.mesh.ndim, 0)), dtype=np.complex128) + lost
    allowed = 64 * np.finfo(t.real).eps * (np.abs(q) @ np.abs(t.total) + size.sum(-1)) + t.tolerance[0] * f.size
    assert np.all(np.abs(kept - q @ t.total) <= allowed), "what is spread and what is lost is all there is"

    flat_f = f.reshape(*f.shape[: f.ndim - t.mesh.ndim], -1)
    if not t.thin:
        there = t.interpolate(f), t.gradient(f).reshape(flat_v.shape)
        for here, given, other, bound in ((field, q, there[0], t.most), (bent, flat_v, there[1], steepest)):
            adjoint(t, here.reshape(flat_f.shape), flat_f, given, other, bound, fixed=t.law.method.order_independent)

    again, other = t.spread(q), t.spread(q, t.make())
    if t.law.method.deterministic:
        np.testing.assert_array_equal(again, field, "two calls give the same bits")
        np.testing.assert_array_equal(other, field, "two plans give the same bits")
    t.near(again, field, size, 0 * slope, "two calls of one plan")
    t.near(other, field, size, 0 * slope, "two plans")

    order = np.random.default_rng(5).permutation(len(t.x))
    shuffled = t.spread(q[..., order], t.make(t.x[order]))
    if t.law.method.order_independent:
        np.testing.assert_array_equal(shuffled, field, "any order gives the same bits")
    t.near(shuffled, field, size, 0 * slope, "any order gives the same sums")

    both = t.array(f)
    assert t.plan.spread(t.array(q), out=both, accumulate=True) is both
    t.near(t.backend.host(both), f + field, size + np.abs(flat_f), 0 * slope, "accumulate adds")
    if t.row.layout == "planar":  # elsewhere it would compile another kernel
        t.near(t.backend.host(t.plan.spread(t.array(q))), field, size, 0 * slope, "without out")

    if shifts(t):
        moved = t.spread(q, t.make(shifted(t)))
        t.near(moved, np.roll(field, 1, axis=-t.mesh.ndim), size, 4 * slope, "a shift by one node shifts the field")


def interpolate_as_the_oracle(t):
    """Compare with the dense matrices; return values and slopes, and the bounds of the values' rounding."""
    flat = t.f.reshape(*t.f.shape[: t.f.ndim - t.mesh.ndim], -1)
    steepest = t.steepest.reshape(-1, t.steepest.shape[-1])
    size, slope, steep = np.abs(flat) @ t.most.T, np.abs(flat) @ t.steepest.sum(1).T, np.abs(flat) @ steepest.T
    values, bent = t.interpolate(t.f), t.gradient(t.f)
    t.near(values, flat @ t.weights.T, size, slope, "equals the oracle")
    t.near_gradient(bent, np.einsum("...m,pdm->...pd", flat, t.slopes), steep, "gradient equals the oracle")
    outs = t.empty(t.q), t.empty(t.v)
    result = t.plan.value_and_gradient(t.array(t.f), out=outs)
    assert result[0] is outs[0]
    assert result[1] is outs[1]
    t.near(t.backend.host(outs[0]), values, size, 0 * slope, "value and gradient together")
    t.near_gradient(t.backend.host(outs[1]), bent, steep, "value and gradient together")
    return values, bent, size, slope


def check_interpolate(t):
    q, v, f = t.q, t.v, t.f
    flat = f.reshape(*f.shape[: f.ndim - t.mesh.ndim], -1)
    flat_v = v.reshape(*v.shape[:-2], v.shape[-2] * v.shape[-1])
    steepest = t.steepest.reshape(flat_v.shape[-1], t.steepest.shape[-1])
    values, bent, size, slope = interpolate_as_the_oracle(t)

    if not t.thin:
        there = t.spread(q).reshape(flat.shape), t.spread_gradient(v).reshape(flat.shape)
        for here, given, other, bound in (
            (values, q, there[0], t.most),
            (bent.reshape(flat_v.shape), flat_v, there[1], steepest),
        ):
            adjoint(t, other, flat, given, here, bound, fixed=True)  # which may have been chosen for spreading

    again, other = t.interpolate(f), t.interpolate(f, t.make())
    if t.law.method.deterministic:
        np.testing.assert_array_equal(again, values, "two calls give the same bits")
        np.testing.assert_array_equal(other, values, "two plans give the same bits")
    t.near(other, values, size, 0 * slope, "two plans")

    order = np.random.default_rng(5).permutation(len(t.x))
    shuffled = t.interpolate(f, t.make(t.x[order]))
    if t.law.method.order_independent:
        np.testing.assert_array_equal(shuffled, values[..., order], "any order gives the same bits")
    t.near(shuffled, values[..., order], size, 0 * slope, "any order gives the same values")
    if t.row.layout == "planar":  # elsewhere it would compile another kernel
        t.near(t.backend.host(t.plan.interpolate(t.array(f))), values, size, 0 * slope, "without out")

    if shifts(t):
        moved = t.interpolate(np.roll(f, 1, axis=-t.mesh.ndim), t.make(shifted(t)))
        t.near(moved, values, size, 4 * slope, "a shift by one node shifts the field")


AS_THE_ORACLE = {"spread": spread_as_the_oracle, "interpolate": interpolate_as_the_oracle}
CHECKS = {"spread": check_spread, "interpolate": check_interpolate}


def adjoint(t, spread, field, given, interpolated, bound, *, fixed):
    """<S q, f> = <q, I f>: both sums have the terms q W f, so their rounding is that of sum |q| |W| |f|.

    Of ``fixed`` point the quantum is that of the largest sum.
    """
    left = (spread.astype(np.complex128) * field).sum()
    right = (given.astype(np.complex128) * interpolated).sum()
    terms = np.abs(given) @ bound
    scale = (terms * np.abs(field)).sum() * 32 * np.finfo(t.real).eps
    scale += (2.0**-44 if fixed else 0.0) * terms.max(initial=0) * np.abs(field).sum()
    assert abs(left - right) <= scale + 1e-300, "spreading and interpolation are adjoint"


def shifts(t):
    """Whether the first axis comes round."""
    return axes_of(t.mesh, t.window)[3 - t.mesh.ndim].wraps


def shifted(t):
    """Positions one node on along the first axis."""
    step = np.asarray(t.mesh.box.matrix)[0] / t.mesh.intervals[0]
    return (t.x + step).astype(t.x.dtype)
