# SPDX-License-Identifier: BSD-3-Clause
"""What PoCL is given, so that it compiles quickly: declarations of what kernels call."""

from types import SimpleNamespace

import pytest

from particlemesh import backends
from particlemesh.backends import opencl, pocl, source
from particlemesh.backends.base import CompilationError

if opencl.available() is not None:
    pytestmark = pytest.mark.skip(reason=f"no OpenCL: {opencl.available()}")
elif "PoCL" not in backends.current("opencl").platform:
    pytestmark = pytest.mark.skip(reason="OpenCL is not PoCL here")
else:
    pytestmark = pytest.mark.opencl
DECLARATIONS = source.text("backends/pocl.h")


def test_declarations_are_clangs():
    # Together with Clang's own: a function that returns another type is refused.
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


def test_a_processor_that_pocl_does_not_know_is_named(monkeypatch):
    class UnknownError(RuntimeError):
        pass

    def build(words):
        def fail(**options):
            raise UnknownError(words)

        return SimpleNamespace(RuntimeError=UnknownError, Context=list, Program=lambda *_: SimpleNamespace(build=fail))

    assert not pocl.knows_processor(build("error: unknown target CPU 'generic'"), None)
    with pytest.raises(UnknownError, match="another"):
        pocl.knows_processor(build("another"), None)
    monkeypatch.setattr(pocl, "knows_processor", lambda cl, device: False)
    monkeypatch.setattr(opencl, "devices", opencl.devices.__wrapped__)
    assert "PoCL does not know this processor: install a newer one" in opencl.available()


@pytest.mark.parametrize(("failures", "words"), [(2, ""), (3, ""), (1, "<source>:3:1: error: unknown type name 'foo'")])
def test_who_fails_without_a_reason_is_asked_again(monkeypatch, failures, words):
    # Processes that fill PoCL's cache at once do, now and then.
    import pyopencl

    backend = opencl.backend(backends.current("opencl").context, backends.current("opencl").context.devices[0])
    monkeypatch.setattr(backend, "_programs", {})
    build, tried = pyopencl.Program.build, []

    def failing(self, *args, **options):
        tried.append(self)
        if len(tried) <= failures:
            raise pyopencl.RuntimeError(f"clBuildProgram failed: BUILD_PROGRAM_FAILURE - {words}")
        return build(self, *args, **options)

    monkeypatch.setattr(pyopencl.Program, "build", failing)
    if failures == 2:
        assert backend.kernel("backends/strided.c", "strided", {"REAL_IS_DOUBLE": 0}) is not None
    else:
        with pytest.raises(CompilationError, match=r"strided\.c"):
            backend.kernel("backends/strided.c", "strided", {"REAL_IS_DOUBLE": 0})
    assert len(tried) == (1 if words else 3)
