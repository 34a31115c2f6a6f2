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


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("stable", [False, True])
def test_a_captured_ordering_replays_with_other_keys(backend, stable):
    import cupy

    from particlemesh import binning

    rng, held, count, bins = np.random.default_rng(40), {}, 30_000, 5000

    def allocate(name, shape, dtype):
        if name not in held:
            held[name] = cupy.empty(shape, dtype)
        return held[name]

    keys = cupy.zeros(count, np.int32)
    stream = cupy.cuda.Stream(non_blocking=True)
    binning.counting_sort(backend.library, keys, bins, stable=stable, allocate=allocate)  # compiles and allocates
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        start, order, rank = binning.counting_sort(backend.library, keys, bins, stable=stable, allocate=allocate)
        graph = stream.end_capture()
    for _ in range(3):
        drawn = rng.integers(0, bins, count).astype(np.int32)
        keys.set(drawn)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(start.get()[1 : bins + 1], np.cumsum(np.bincount(drawn, minlength=bins)))
        np.testing.assert_array_equal(drawn[order.get()], np.sort(drawn))
        np.testing.assert_array_equal(order.get()[rank.get()], np.arange(count))
        if stable:
            np.testing.assert_array_equal(order.get(), np.argsort(drawn, kind="stable"))
