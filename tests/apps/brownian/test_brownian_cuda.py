# SPDX-License-Identifier: BSD-3-Clause
"""The mobility's kernels compile for CUDA, without a GPU."""

import functools

import numpy as np
import pytest

from particlemesh import distributed as pmd
from particlemesh.apps.brownian import RPY, DistributedRPY
from particlemesh.backends import cuda
from ptx import NVRTC, kernels_of

pytestmark = NVRTC


def test_kernels_compile_for_cuda(monkeypatch, request):
    pytest.importorskip("pyopencl")
    forces = np.ones((2, 3, 3), np.float32)

    def call():
        options = {"splitting": 0.5, "cutoff": 6.0, "shape": (8,) * 3, "window": "cic", "accuracy": 1.0}
        for made in (RPY, functools.partial(DistributedRPY, pmd.World())):
            for radius in (1.0, [1.0, 0.5, 0.5]):
                rpy = made((9.0, 9.0, 9.0), radius, backend="opencl", **options)
                rpy.set_positions(forces[0] * [[1], [2], [4]]).velocity(forces.astype(np.float64))

    files = ("apps/brownian/near.c", "fourier/multiply.c")
    kernels = [k for k in kernels_of(monkeypatch, call) if k[0] in files]
    names = {"near_blocks", "near_gather", "near_multiply", "near_finish", "project"}
    assert {name for _, name, _ in kernels} == names
    assert {dict(defines).get("ORDERED") for file, _, defines in kernels if file == files[0]} == {0, 1}
    for number, (file, name, defines) in enumerate(kernels):
        for double in (number % 2,) if request.config.thins else (0, 1):
            assert name.encode() in cuda.compile_only(file, {**dict(defines), "REAL_IS_DOUBLE": double}, 90)
