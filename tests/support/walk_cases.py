# SPDX-License-Identifier: BSD-3-Clause
"""What tests of walks share in both directions: windows, meshes and layouts, plans with options, tolerances."""

import numpy as np

import particlemesh as pm
from cases import Row
from devices import Law
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


def trial_of(direction, walk, backend, row, seed=1, /, **options):
    """A row of the covering array's kind, by a walk with options."""

    class Chosen(Law):
        def plan(self, mesh, window, **more):
            return super().plan(mesh, window, options={"walk": options}, **more)

    return Trial(Row(f"{direction}-walk", *row), Chosen(direction, walk), backend, seed)


def plan_of(direction, backend, mesh, window, real, x, check, /, **options):
    """A plan that walks in a direction, with particles."""
    chosen = {"method" if direction == "spread" else "interpolation": "walk"}
    plan = pm.Plan(mesh, window, **chosen, dtype=real, backend=backend.name, options={"walk": options})
    plan.set_positions(backend.array(np.asarray(x, real)), check=check)
    return plan


def close(came, wanted, real, scale=None):
    scale = np.abs(wanted).max(initial=0) if scale is None else scale
    np.testing.assert_allclose(came, wanted, rtol=0, atol=TOLERANCE[real] * max(float(scale), 1e-30))


def positions(mesh, count, real, rng):
    return (mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths).astype(real)
