# SPDX-License-Identifier: BSD-3-Clause
"""Every kernel compiles for CUDA: with NVRTC, without a GPU. What is compiled is what OpenCL is asked for.

``--thorough`` has every type, small and odd supports and more architectures.
"""

import numpy as np
import pytest

from particlemesh import Mesh, Plan, backends
from particlemesh.backends import cuda, opencl, source
from particlemesh.backends.base import CompilationError
from particlemesh.choosing.choice import METHODS
from particlemesh.sorting import counting, radix, scan
from ptx import NVRTC, single

pytestmark = NVRTC


@pytest.fixture
def compiled(monkeypatch):
    """Files and defines of the kernels that OpenCL is asked for. None runs: what is read back is zero."""
    asked = {}

    def kernel(self, file, name, defines):
        asked.setdefault((file, tuple(sorted(defines.items()))), set()).add(name)
        return lambda *arguments, **more: None

    monkeypatch.setattr(opencl.OpenClBackend, "kernel", kernel)
    monkeypatch.setattr(opencl.OpenClBackend, "download", lambda self, array: np.zeros(array.shape, array.dtype))
    return asked


def run_everything(real, kind, support, runs=lambda method: True):
    """Operations of every method that ``runs``."""
    rng = np.random.default_rng(1)
    mesh = Mesh(shape=(8, 9, 10), box=(1.0, 1.0, 1.0))
    values, vectors, field = rng.random(40), rng.random((40, 3)), rng.random(mesh.shape)
    values, vectors, field = (x.astype(kind) for x in (values, vectors, field))
    for direction, option in (("spread", "method"), ("interpolate", "interpolation")):
        for method in METHODS[direction]:
            if "opencl" not in method.backends or not runs(method):
                continue
            with Plan(mesh, f"bspline{support}", backend="opencl", dtype=real, **{option: method.name}) as plan:
                plan.set_positions(rng.random((40, 3)))
                if direction == "spread":
                    plan.spread(values)
                    plan.spread_gradient(vectors)
                    if method.derivatives > 1:
                        plan.spread_hessian(vectors[:, :, None] * vectors[:, None])
                else:
                    plan.interpolate(field)
                    plan.gradient(field)
                    plan.value_and_gradient(field)
                    if method.derivatives > 1:
                        plan.value_gradient_hessian(field)
    with Plan(mesh, f"bspline{support}", backend="opencl", dtype=real, systems=2) as plan:
        for boxes in (None, np.ones((2, 3))):
            plan.set_positions(rng.random((40, 3)), system=np.arange(40) % 2, boxes=boxes)
            plan.spread(values)
            plan.spread_gradient(vectors)
            plan.hessian(np.stack([field, field]))
    backend = backends.current("opencl")
    for stable in (False, True):
        keys = backend.upload(rng.integers(0, 9, 100).astype(np.int32))
        counting.counting_sort(backend, keys, 100, 9, stable=stable, allocate=lambda _, *of: backend.empty(*of))
    for bits in (18, 32):
        radix.sort(backend, backend.upload(np.ones(100, np.uint32)), 100, bits, lambda _, *of: backend.empty(*of))
    control = scan.allocate_control(backend, 9, lambda _, *of: backend.empty(*of))
    scan.scan(backend, backend.upload(np.ones(9, np.uint64)), backend.empty(10, np.uint64), 9, control)
    backend.clear(backend.empty((4, 4), np.float32)[:, :2])


@pytest.mark.parametrize(
    ("real", "kind", "support", "compute"),
    [("float32", "float32", 4, 75), ("float64", "complex128", 4, 90), ("float32", "complex64", 6, 90),
     ("float64", "float64", 3, 100), ("float32", "float32", 3, 80)],
)  # fmt: skip
def test_every_kernel_compiles_for_cuda(compiled, real, kind, support, compute, request):
    thins = request.config.thins
    if thins and support != 4:
        pytest.skip("compiling takes long: support 4 stands for others without --thorough")

    def runs(method):  # compiling takes long: each method has one of the types
        return not thins or single(method) == (real == "float32")

    run_everything(real, kind, support, runs)
    files = {file for file, _ in compiled}
    for methods in METHODS.values():
        for method in filter(runs, methods):
            if "cuda" in method.backends:
                folder, stem = method.__module__.split(".")[1:]
                assert f"{folder}/{stem}.c" in files
    seen = set()
    for number, ((file, defines), names) in enumerate(reversed(compiled.items())):
        shared = not file.startswith(("spread/", "interpolate/"))
        if thins and ({(file, name) for name in names} <= seen or (shared and number % 2 == (compute == 75))):
            continue  # each type has every kernel of its methods as asked for last, and every second shared program
        seen |= {(file, name) for name in names}
        cubin = cuda.compile_only(file, dict(defines), compute)
        for name in names:
            assert name.encode() in cubin


def test_a_kernel_that_does_not_compile_shows_its_source(monkeypatch):
    monkeypatch.setattr(source, "text", lambda file: f'#line 1 "{file}"\nKERNEL broken(int x) {{ y; }}\n')
    with pytest.raises(CompilationError, match=r"y; }[\s\S]*broken.c\(1\): error") as caught:
        cuda.compile_only("broken.c", {}, 90)
    assert "    1  #define GROUP_SIZE" in str(caught.value)
