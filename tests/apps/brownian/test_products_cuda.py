# SPDX-License-Identifier: BSD-3-Clause
"""Products that are repeated as a CUDA graph: those of the host, whatever was called in between."""

import numpy as np
import pytest

from particlemesh import backends
from particlemesh.apps.brownian import RPY

WHY = backends.module("cuda").available()
pytestmark = pytest.mark.skipif(WHY is not None, reason=f"cuda does not work here: {WHY}")
BOX = (12.0, 13.0, 14.0)


@pytest.mark.parametrize("radii", [1, 2])
def test_repeated_products_are_those_of_the_host(radii):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(1)
    radius = 1.0 if radii == 1 else np.where(np.arange(60) % 2, 1.0, 0.6)
    host, device = RPY(BOX, radius), RPY(BOX, radius)
    for _ in range(2):  # the second positions leave no graph of the first ones
        x = rng.uniform(0, 12, (60, 3))
        host.set_positions(x)
        device.set_positions(cupy.asarray(x))
        for vectors in (1, 1, 1, 9, 9, 4, 9, 9, 1, 1):
            forces = rng.normal(size=(vectors, 60, 3))
            velocity = device.velocity(cupy.asarray(forces))
            memory = [cupy.full(2**18, np.nan) for _ in range(20)]  # where a graph must have nothing
            del memory
            assert abs(velocity.get() - host.velocity(forces)).max() < 1e-5


def test_products_in_a_capture_of_the_user():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(2)
    rpy = RPY(BOX).set_positions(cupy.asarray(rng.uniform(0, 12, (60, 3))))
    forces = cupy.asarray(rng.normal(size=(3, 60, 3)))
    out = cupy.empty_like(forces)
    for _ in range(3):
        rpy.velocity(forces, out=out, check=False)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        rpy.velocity(forces, out=out, check=False)
        graph = stream.end_capture()
        forces *= 2
        before = out.copy()
        graph.launch(stream)
        stream.synchronize()
    assert abs(out - 2 * before).max() < 1e-12
