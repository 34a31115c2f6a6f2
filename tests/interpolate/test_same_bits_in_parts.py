# SPDX-License-Identifier: BSD-3-Clause
"""Of a part of a mesh, deterministic plans interpolate with one sum per value, whatever their method is."""

import numpy as np
import pytest

import particlemesh as pm


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("window", ["cic", "bspline4", "bspline7", "kaiser_bessel12"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64, np.complex128])
def test_ordered_particles_have_the_bits_of_others(backend, dtype, window):
    real = np.zeros(0, dtype).real.dtype
    rng = np.random.default_rng(3)
    mesh = pm.Mesh((40, 20, 30), (1.0, 1.0, 1.0))
    part = mesh.part((0, 0, 0), (20, 20, 30), [(6, 7), (0, 0), (0, 0)])
    x = backend.array((rng.random((3000, 3)) * [0.49, 1, 1]).astype(real))
    results = []
    for method in ("particle", "ordered"):
        plan = pm.Plan(part, window, interpolation=method, deterministic=True, components=2).set_positions(x)
        results.append(plan)
    numbers = rng.standard_normal((2, 2, *results[0].mesh.field_shape))
    field = (numbers[0] + 1j * numbers[1] if np.dtype(dtype).kind == "c" else numbers[0]).astype(dtype)
    wide = np.zeros((*field.shape[:-1], 2 * field.shape[-1]), dtype)
    wide[..., ::2] = field
    given = backend.array(field), backend.array(wide)[..., ::2]  # a rank may have a view, which is read by single reals
    first, *others = ([backend.host(a) for a in plan.value_and_gradient(nodes)] for plan in results for nodes in given)
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    assert np.abs(first[0]).max() > 0
