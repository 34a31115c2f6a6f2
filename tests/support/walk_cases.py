# SPDX-License-Identifier: BSD-3-Clause
"""What tests of walks share in both directions: windows, meshes and layouts, plans with options, tolerances."""

import numpy as np

import oracle
import particlemesh as pm
from cases import Row
from devices import METHODS, Law
from trials import Trial

TOLERANCE = {"float32": 2e-6, "float64": 1e-13}
CASES = {
    "linear": ("bspline2", "float32", "complex", "3", "periodic", "even", "none", "planar", "65"),
    "three nodes": ("bspline3", "float64", "real", "3", "open-cells", "odd", "3", "interleaved", "33"),
    "m4prime": ("m4prime", "float32", "real", "3", "ghosts", "even", "4", "interleaved", "100"),
    "cubic": ("bspline4", "mixed", "real", "3", "periodic", "even", "none", "planar", "300"),
    "five nodes": ("bspline5", "float32", "real", "3", "triclinic-mixed", "prime", "none", "reversed", "65"),
    "six nodes": ("bspline6", "float64", "complex", "3", "mixed", "odd", "none", "strided", "65"),
    "seven nodes": ("bspline7", "float32", "real", "2", "open-faces", "anisotropic", "5", "planar", "65"),
    "eight nodes": ("bspline8", "float32", "complex", "3", "triclinic", "odd", "none", "fortran", "40"),
    "a line": ("bspline3", "float32", "complex", "1", "ghosts", "prime", "none", "planar", "65"),
    "a plane": ("bspline8", "float64", "real", "2", "open-cells", "even", "2x3", "interleaved", "65"),
}


def trial_of(direction, backend, row, seed=1, /, method="walk", **options):
    """A row of the covering array's kind, by a walk with options."""
    (walk,) = [m for m in METHODS[direction] if m.name == method]

    class Chosen(Law):
        def plan(self, mesh, window, **more):
            return super().plan(mesh, window, options={method: options} if options else None, **more)

    return Trial(Row(f"{direction}-{method}", *row), Chosen(direction, walk), backend, seed)


def plan_of(direction, backend, mesh, window, real, x, /, *, check=True, method="walk", **options):
    """A plan that walks in a direction, with particles."""
    chosen = {"method" if direction == "spread" else "interpolation": method}
    chosen["deterministic"] = method == "walk_fixed"
    plan = pm.Plan(mesh, window, **chosen, dtype=real, backend=backend.name, options={method: options})
    plan.set_positions(backend.array(np.asarray(x, real)), check=check)
    return plan


def close(result, expected, real, scale=None):
    scale = np.abs(expected).max(initial=0) if scale is None else scale
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE[real] * max(float(scale), 1e-30))


def draw(direction, mesh, count, real, seed=0):
    """Positions, and what is spread, or the field that is read."""
    rng = np.random.default_rng(seed)
    x = (mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths).astype(real)
    return x, rng.normal(size=count if direction == "spread" else mesh.field_shape).astype(real)


def scale_of(direction, given):
    """What rounding is relative to where all may meet: of sums all terms, of values read the largest."""
    return np.abs(given).sum() if direction == "spread" else np.abs(given).max()


def moved(backend, plan, direction, given, gradient=False, **more):
    """What a plan spreads or reads, on the host."""
    names = ("spread_gradient", "gradient") if gradient else ("spread", "interpolate")
    return backend.host(getattr(plan, names[direction != "spread"])(backend.array(given), **more))


def wanted_of(direction, mesh, x, given):
    """What four nodes an axis get or give, of periodic meshes, in float64: as the oracle, all particles at once."""
    u = oracle.node_coordinates(mesh, x)
    nodes = np.floor(u).astype(int)[:, None] + np.arange(-1, 3)[:, None]  # particle, node, axis
    weights = np.moveaxis(pm.bspline(4)(nodes - u[:, None]), 2, 0)
    nodes %= mesh.shape
    at = nodes[:, :, None, None, 0], nodes[:, None, :, None, 1], nodes[:, None, None, :, 2]
    if direction == "interpolate":
        return np.einsum("pa,pb,pc,pabc->p", *weights, given.astype(np.float64)[at])
    field = np.zeros(mesh.shape)
    np.add.at(field, at, np.einsum("pa,pb,pc,p->pabc", *weights, np.asarray(given, np.float64)))
    return field
