# SPDX-License-Identifier: BSD-3-Clause
"""What PoCL is given, so that it compiles quickly: declarations of what kernels call."""

from types import SimpleNamespace

import pytest

from particlemesh import backends
from particlemesh.backends import opencl, pocl, source

if opencl.available() is not None:
    pytestmark = pytest.mark.skip(reason=f"no OpenCL: {opencl.available()}")
elif "PoCL" not in backends.current("opencl").platform:
    pytestmark = pytest.mark.skip(reason="OpenCL is not PoCL here")
else:
    pytestmark = pytest.mark.opencl
DECLARATIONS = source.text("backends/pocl.h")


def test_declarations_are_clangs():
    # Together with Clang's own: whoever differs in what it returns is refused.
    import pyopencl

    def build(declarations):
        calls = " x[0] = (float)popcount((uint)x[0]) + fma(x[0], x[1], floor(x[2]));"
        code = f"{declarations}\n__kernel void probe(__global float* x) {{{calls} }}"
        pyopencl.Program(backends.current("opencl").context, code).build(options=opencl.OPTIONS)

    build(DECLARATIONS)
    with pytest.raises(pyopencl.RuntimeError, match="conflicting types|return type"):
        build(DECLARATIONS.replace("uint PURE popcount", "float PURE popcount"))


def test_kernels_are_compiled_with_them():
    assert backends.current("opencl")._declared == DECLARATIONS


def test_a_compiler_that_refuses_gets_no_declarations():
    class RefusedError(RuntimeError):
        pass

    def build(options):
        assert options == [pocl.UNDECLARED]
        raise RefusedError

    cl = SimpleNamespace(RuntimeError=RefusedError, Program=lambda context, code: SimpleNamespace(build=build))
    assert pocl.declared(cl, None) is None
