# SPDX-License-Identifier: BSD-3-Clause
"""A whole step in a CUDA graph: positions, spreading, interpolating; replayed with other positions and values."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.interpolate import METHODS as INTERPOLATE
from particlemesh.spread import METHODS as SPREAD

MESH = pm.Mesh((6, 7, 8), (1.0, 1.1, 1.2))
PAIRS = [(m.name, "particle") for m in SPREAD if "cuda" in m.backends]
PAIRS += [("particle", m.name) for m in INTERPOLATE if "cuda" in m.backends and m.name != "particle"]


@pytest.mark.backends("cuda")
@pytest.mark.parametrize(("spread", "interpolate"), PAIRS)
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_a_captured_step_replays_with_other_positions(backend, spread, interpolate, real):
    import cupy

    rng = np.random.default_rng(39)
    x, q = cupy.zeros((60, 3), real), cupy.zeros(60, real)
    field, values = cupy.zeros(MESH.shape, real), cupy.zeros(60, real)
    plan = pm.Plan(MESH, "bspline4", dtype=real, backend="cuda", method=spread, interpolation=interpolate)
    plan.reserve(60)

    def step():
        plan.set_positions(x, check=False)
        plan.spread(q, out=field)
        plan.interpolate(field, out=values)

    stream = cupy.cuda.Stream(non_blocking=True)
    step()  # compiles
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        step()
        graph = stream.end_capture()
    for _ in range(3):
        positions = (rng.random((60, 3)) * 3 - 1).astype(real)
        charges = rng.normal(size=60).astype(real)
        x.set(positions)
        q.set(charges)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        wanted = oracle.spread(MESH, pm.bspline(4), positions, charges)
        read = oracle.interpolate(MESH, pm.bspline(4), positions, wanted)
        tolerance = 1e-5 if real == "float32" else 1e-13
        np.testing.assert_allclose(field.get(), wanted, atol=tolerance * np.abs(wanted).max())
        np.testing.assert_allclose(values.get(), read, atol=tolerance * np.abs(read).max())
