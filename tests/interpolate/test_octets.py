# SPDX-License-Identifier: BSD-3-Clause
"""Octets of matrix instructions: columns of every width, lines with few and many particles, bad nodes."""

import numpy as np
import pytest

import particlemesh as pm


def results(backend, mesh, x, field, name, window, options=None):
    """Values and gradients by one method."""
    components = 1 if field.ndim == mesh.ndim else field.shape[0]
    with pm.Plan(mesh, window, dtype="float64", backend=backend.name, interpolation=name,
                 components=components, options=options) as plan:  # fmt: skip
        plan.set_positions(backend.array(x))
        try:
            both = plan.value_and_gradient(backend.array(field))
        except pm.MethodNotSuitable as error:
            if backend.name == "cuda" or "of local memory" not in str(error):
                raise
            pytest.skip(f"{error} OpenCL of some GPUs has 48 KiB; CUDA and PoCL have more.")
        # Values alone are another kernel: it has more local memory for weights.
        alone = plan.interpolate(backend.array(field))
        return [backend.host(a) for a in (*both, alone)]


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("kind", ["real", "complex", "three", "four"])
@pytest.mark.parametrize(
    ("shape", "window", "step"),
    [
        ((40,), "prolate9", None),
        ((31, 37), "prolate12", None),
        ((24, 23, 25), "prolate10", None),
        ((17, 29, 18), "prolate16", None),
        ((19, 22, 23), "prolate13", (4, 4, 4)),
        ((26, 19, 17), "bspline4", (4, 7, 5)),
        ((13, 14, 15), "cic", None),
    ],
)
@pytest.mark.turns(4)
def test_octets_equal_stencils_of_single_particles(backend, shape, window, step, kind):
    rng = np.random.default_rng(len(shape))
    mesh = pm.Mesh(shape, tuple(1.0 + n for n in range(len(shape))), periodic=(True, False, True)[: len(shape)])
    leading = {"three": (3,), "four": (4,)}.get(kind, ())
    field = rng.standard_normal((*leading, *mesh.field_shape))
    field = field + 1j * rng.standard_normal(field.shape) if kind == "complex" else field
    # Some lines have one particle, others many: full octets and others.
    x = np.concatenate([rng.random((60, mesh.ndim)), 0.5 + 0.03 * rng.random((70, mesh.ndim))]) * mesh.box.lengths
    options = {"octets": {"shape": step}} if step else None
    expected = results(backend, mesh, x, field, "particle", window)
    for result, right in zip(results(backend, mesh, x, field, "octets", window, options), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=0, atol=2e-13 * np.abs(right).max())


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nodes_that_are_not_finite_reach_only_their_own_particles(backend, bad):
    rng = np.random.default_rng(5)
    mesh = pm.Mesh((20, 21, 22), (1.0, 1.0, 1.0))
    field, x = rng.standard_normal(mesh.shape), rng.random((300, 3))
    right = results(backend, mesh, x, field, "octets", "prolate10")
    field[3, 4, 5] = bad
    spoilt = results(backend, mesh, x, field, "octets", "prolate10")
    expected = np.isfinite(results(backend, mesh, x, field, "particle", "prolate10")[0])
    assert 0 < np.count_nonzero(expected) < len(x)
    for before, after in zip(right, spoilt, strict=True):
        finite = np.isfinite(after).reshape(len(x), -1).all(axis=1)
        np.testing.assert_array_equal(finite, expected)
        np.testing.assert_allclose(after[expected], before[expected], rtol=0, atol=1e-12 * np.abs(before).max())


@pytest.mark.backends("cuda", "opencl")
def test_single_precision_is_declined(backend):
    mesh = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
    with pm.Plan(mesh, dtype="float32", backend=backend.name, interpolation="octets") as plan:
        plan.set_positions(backend.array(np.zeros((1, 3), np.float32)))
        with pytest.raises(pm.MethodNotSuitable, match="float32: matrix instructions take 11 bits"):
            plan.interpolate(backend.array(np.zeros(mesh.shape, np.float32)))
