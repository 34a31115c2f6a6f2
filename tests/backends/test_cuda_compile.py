# SPDX-License-Identifier: BSD-3-Clause
"""Kernels compile for every CUDA architecture with small and odd supports, real and complex, without a GPU.

The defines are those that the library asks OpenCL for; test_nvrtc.py has the other operations and errors.
"""

import functools

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh.backends import cuda, opencl
from ptx import NVRTC, single

pytestmark = NVRTC


@functools.cache
def cubin_of(file, defines, compute):
    """Compile; many methods have the same order under them."""
    return cuda.compile_only(file, dict(defines), compute)


@pytest.mark.parametrize(
    "method", [m for ms in METHODS.values() for m in ms if "cuda" in m.backends], ids=lambda m: m.__module__
)
@pytest.mark.parametrize(
    ("support", "real", "components", "compute"),
    [(3, "float32", 1, 80), (6, "float32", 2, 100), (3, "float64", 2, 100), (6, "float64", 2, 90)],
)
def test_a_method_compiles(monkeypatch, method, support, real, components, compute, request):
    if request.config.thins and ((support, real) != (6, "float32") or single(method)):
        pytest.skip("compiling takes long: --thorough and GPUs have all; test_nvrtc.py has float32 of these methods")
    asked = {}
    plain = opencl.OpenClBackend.kernel

    def kernel(self, file, name, defines):
        asked.setdefault((file, tuple(defines.items())), set()).add(name)
        return plain(self, file, name, defines)

    monkeypatch.setattr(opencl.OpenClBackend, "kernel", kernel)
    direction = next(d for d, methods in METHODS.items() if method in methods)
    mesh = pm.Mesh((5, 6, 7), (1.0, 1.0, 1.0))
    kind = np.result_type(real, np.complex64) if components == 2 else np.dtype(real)
    option = {"spread": "method", "interpolate": "interpolation"}[direction]
    with pm.Plan(mesh, f"bspline{support}", backend="opencl", dtype=real, **{option: method.name}) as plan:
        plan.set_positions(np.full((3, 3), 0.5, real))
        if direction == "spread":
            plan.spread(np.ones(3, kind))
            if method.derivatives > 1:
                plan.spread_hessian(np.ones((3, 3, 3), kind))
        else:
            plan.interpolate(np.ones(mesh.shape, kind))
            if method.derivatives > 1:
                plan.hessian(np.ones(mesh.shape, kind))
    folder, stem = method.__module__.split(".")[1:]
    assert f"{folder}/{stem}.c" in {file for file, _ in asked}
    for (file, defines), names in asked.items():
        cubin = cubin_of(file, defines, compute)
        assert all(name.encode() in cubin for name in names)
