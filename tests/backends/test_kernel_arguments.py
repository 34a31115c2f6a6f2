# SPDX-License-Identifier: BSD-3-Clause
"""Arguments that a kernel cannot take are refused at its first launch: they gave wrong fields and crashes."""

import itertools
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from particlemesh import backends
from particlemesh.backends import cuda, opencl, source
from particlemesh.backends.base import As, Record, Unread
from particlemesh.backends.signature import ArgumentError, Signatures, parameters

PRELUDES = ("backends/opencl.h", "backends/cuda.h")
FACTS = {"GROUP_SIZE": 32, "HAS_FP64": 1, "HAS_WARP": 0, "HAS_PTX": 0, "HAS_MMA": 0, "HAS_VECTOR_ATOMIC": 0}


def defines(double=0, **more):
    support = {"SUPPORT": 4, "SUPPORT_X": 4, "SUPPORT_Y": 4, "SUPPORT_Z": 4, "SUPPORT_AXES": 3, "DEGREE": 3}
    lanes = {"PARTS": 1, "CHANNELS": 1, "VECTOR": 1, "GRADIENT": 0, "LANES_ALL": 8, "LANES_ROW": 8}
    return {"REAL_IS_DOUBLE": double, **support, **lanes, **more}


def arguments(double=0, array=np.zeros):
    """The arguments of spread_particle, by the parameter's name."""
    real, char = ("float64", "d") if double else ("float32", "f")
    return {
        "node": array(9, "int32"), "fraction": array(9, real), "values": array(3, real), "field": array(64, real),
        "list": Unread(array(1, "float32")), "listed": Unread(array(1, "int32")), "count": 3, "rows": 3,
        "value_layout": Record("=5q", 0, 1, 0, 1, 0),
        "field_layout": Record("=6i5q", *[4] * 3, *[1] * 3, 16, 4, 1, 0, 0),
        "window": Record(f"=16{char}", *[0.0] * 16), "jacobian": Record(f"=9{char}", *[0.0] * 9),
    }  # fmt: skip


def signatures(prelude, double=0):
    return Signatures(prelude, "spread/particle.c", FACTS | defines(double))


# ---- without a device -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prelude", PRELUDES)
@pytest.mark.parametrize("double", [0, 1])
def test_arguments_that_fit_pass_and_any_two_of_different_types_swapped_do_not(prelude, double):
    known, right = signatures(prelude, double), arguments(double)
    known.check("spread_particle", tuple(right.values()))

    def kind(name):
        value = right[name]
        if isinstance(value, Unread):
            return "unread"
        return "integer" if isinstance(value, int) else len(value) if isinstance(value, bytes) else value.dtype

    refused = 0
    for a, b in itertools.combinations(right, 2):
        if kind(a) == kind(b) or "unread" in (kind(a), kind(b)):
            continue
        swapped = {**right, a: right[b], b: right[a]}
        with pytest.raises(ArgumentError, match=rf"'spread_particle', '({a}|{b})', is .+; give an? "):
            known.check("spread_particle", tuple(swapped.values()))
        refused += 1
    assert refused > 30


def test_the_error_names_kernel_parameter_argument_and_need():
    known, right = signatures(PRELUDES[0]), arguments()
    swapped = {**right, "node": right["fraction"], "fraction": right["node"]}
    with pytest.raises(ArgumentError, match="argument 1 of kernel 'spread_particle', 'node', is an array of float32;"):
        known.check("spread_particle", tuple(swapped.values()))
    swapped = {**right, "window": right["jacobian"]}
    message = r"argument 11 of .+, 'window', is a record of 36 bytes; give a record of 64 bytes \(Window\)"
    with pytest.raises(ArgumentError, match=message):
        known.check("spread_particle", tuple(swapped.values()))
    with pytest.raises(ArgumentError, match=r"takes 12 arguments \(node, fraction, .+, jacobian\); got 11"):
        known.check("spread_particle", tuple(right.values())[:-1])


def test_another_reading_of_memory_must_be_said():
    known, right = signatures(PRELUDES[0]), arguments()
    words = {**right, "node": np.zeros(9, np.uint32)}
    with pytest.raises(ArgumentError, match="'node', is an array of uint32"):
        known.check("spread_particle", tuple(words.values()))
    known.check("spread_particle", tuple({**words, "node": As(words["node"], np.int32)}.values()))
    with pytest.raises(ArgumentError, match="'node', is an array of float32"):
        known.check("spread_particle", tuple({**words, "node": As(words["node"], np.float32)}.values()))


@pytest.mark.parametrize(("given", "fits"), [("complex64", True), ("complex128", False), ("float64", False)])
def test_complex_numbers_are_two_reals_of_their_precision(given, fits):
    known, right = signatures(PRELUDES[0]), {**arguments(), "values": np.zeros(3, given)}
    if fits:
        known.check("spread_particle", tuple(right.values()))
        return
    with pytest.raises(ArgumentError, match="'values'"):
        known.check("spread_particle", tuple(right.values()))


CONDITIONS = [  # and whether they hold, where B is 2 and A has no value
    ("1 + 2 * 3 == 7 && 1", 1), ("!defined(A) && defined(B)", 1), ("A || B > 2", 0), ("A", 0), ("!A", 1),
    ("B > 2 ? 0 : B", 1), ("(B > 2 ? 0 : 1) ? 0 : 4", 0), ("7 / 2 * 2 == 6", 1), ("1 << 3 | 1", 1), ("defined B", 1),
    ("B != 2 || -1 + 1", 0), ("0x10 == 16u", 1), ("8 >> 1 == 4", 1), ("10 - 4 - 3 == 3", 1), ("B * (1 + B) % 4", 1),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "holds"), CONDITIONS)
def test_conditions_are_those_of_the_preprocessor(expression, holds):
    code = f"""
        typedef long i64;
        #define B 2 // a comment
        #if {expression}
        #define PARAMETERS const i64 yes
        #else
        #define PARAMETERS const i64 no
        #endif
        KERNEL k(PARAMETERS) {{ }}
    """
    assert parameters(code)["k"][0].name == ("yes" if holds else "no")


def test_conditions_within_conditions_and_comments():
    code = """
        typedef long i64; /* typedef int i64; */
        #if 0
        #if 1
        #define NAME wrong
        #elif 1
        #define NAME wrong
        #else
        #define NAME wrong
        #endif
        #elif 0
        #define NAME wrong
        #elif 1
        #define NAME \\
            right
        #elif 1
        #define NAME wrong
        #else
        #define NAME wrong
        #endif
        #define CALL(x) wrong
        #ifdef CALL
        KERNEL k(const i64 NAME) { }
        #endif
    """
    assert [p.name for p in parameters(code)["k"]] == ["right"]


def test_members_of_a_struct_lie_at_multiples_of_their_size():
    code = """
        typedef long i64; typedef double real;
        typedef struct { int a[3]; real b, c[2]; int d; } Some; // 12 (+4) + 8 + 16 + 4 (+4)
        KERNEL k(const Some some) { }
    """
    assert parameters(code)["k"][0].size == struct.calcsize("@3idddi0d") == 48


# ---- OpenCL -----------------------------------------------------------------------------------------------

needs_opencl = pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")


@needs_opencl
@pytest.mark.opencl
@pytest.mark.parametrize(("first", "second"), [("node", "fraction"), ("value_layout", "window"), ("count", "field")])
def test_swapped_arguments_are_refused_and_nothing_is_launched(first, second):
    backend = opencl.current()

    def array(size, dtype):
        return backend.upload(np.zeros(size, dtype))

    right = arguments(array=array)
    kernel = backend.kernel("spread/particle.c", "spread_particle", defines())
    with pytest.raises(ArgumentError, match=f"'spread_particle', '({first}|{second})', is"):
        kernel(24, *{**right, first: right[second], second: right[first]}.values())
    kernel(24, *right.values())  # the kernel is as good as before
    backend.synchronize()


@needs_opencl
@pytest.mark.opencl
@pytest.mark.parametrize("double", [0, 1])
def test_sizes_of_records_are_the_compilers(double):
    import pyopencl as cl

    backend = opencl.current()
    wide = {**defines(double), "COORDINATE_IS_DOUBLE": 1 - double, "PACKED": 0, "COUNTING": 0}
    for file, kernel in (("particles/locate.c", "locate"), ("spread/particle.c", "spread_particle")):
        facts = {"GROUP_SIZE": backend.group_size, **backend.facts(), **wide}
        records = [p for p in Signatures("backends/opencl.h", file, facts)[kernel] if p.kind == "record"]
        code = source.program("backends/opencl.h", file, facts)
        ask = "".join(f"out[{n}] = sizeof({p.type});" for n, p in enumerate(records))
        program = cl.Program(backend.context, f"{code}\nKERNEL sizes(GLOBAL int* out) {{ {ask} }}")
        out = backend.upload(np.zeros(len(records), np.int32))
        sizes = program.build(options=opencl.OPTIONS).sizes
        sizes(backend.queue, (backend.group_size,), (backend.group_size,), out.base_data)
        assert [p.size for p in records] == backend.download(out).tolist() and len(records) >= 4


# ---- CUDA, without one ------------------------------------------------------------------------------------


class Array:
    """What a launch takes of a CuPy array."""

    def __init__(self, size, dtype):
        self.dtype, self.data = np.dtype(dtype), SimpleNamespace(ptr=4096 + size)


def test_cuda_checks_the_first_launch_of_each_kernel(monkeypatch):
    launched, checked = [], []
    driver = SimpleNamespace(launchKernel=lambda *to: launched.append(to))
    library = SimpleNamespace(driver=driver, get_current_stream=lambda: SimpleNamespace(ptr=0))
    monkeypatch.setattr(cuda, "_cupy", lambda: SimpleNamespace(cuda=library, ndarray=Array))
    plain = Signatures.check
    monkeypatch.setattr(Signatures, "check", lambda self, *to: (checked.append(to), plain(self, *to)))
    raw, known = SimpleNamespace(kernel=SimpleNamespace(ptr=1), shared_size_bytes=0), signatures("backends/cuda.h")
    kernel = cuda.CudaKernel(SimpleNamespace(tape=None), raw, 128, 2**31 - 1, "spread_particle", known)
    right = arguments(array=Array)
    swapped = {**right, "node": right["fraction"], "fraction": right["node"]}
    with pytest.raises(ArgumentError, match="'node', is an array of float32"):
        kernel(24, *swapped.values())
    assert not launched
    for _ in range(3):
        kernel(24, *right.values())
    assert len(launched) == 3 and len(checked) == 2


def test_cuda_asks_for_local_memory_beyond_48_kilobytes_with_a_kernels_own_arrays(monkeypatch):
    library = SimpleNamespace(driver=SimpleNamespace(launchKernel=lambda *to: None),
                              get_current_stream=lambda: SimpleNamespace(ptr=0))  # fmt: skip
    monkeypatch.setattr(cuda, "_cupy", lambda: SimpleNamespace(cuda=library, ndarray=Array))
    raw = SimpleNamespace(kernel=SimpleNamespace(ptr=1), shared_size_bytes=20 * 1024, max_dynamic_shared_size_bytes=0)
    kernel = cuda.CudaKernel(SimpleNamespace(tape=None), raw, 128, 1, "spread_particle", signatures("backends/cuda.h"))
    for kilobytes, asked in ((28, 0), (29, 29), (40, 40), (30, 40)):
        kernel(24, *arguments(array=Array).values(), local_bytes=1024 * kilobytes)
        assert raw.max_dynamic_shared_size_bytes == 1024 * asked


@pytest.mark.parametrize("of", [np.asfortranarray, lambda a: a[:, ::-1], lambda a: a[:, [1, 0, 2]], lambda a: a.T])
def test_tables_of_any_strides_are_uploaded_in_c_order(backend, of):
    table = of(np.arange(12.0).reshape(4, 3))
    assert not table.flags.c_contiguous
    given = backends.current(backend.name).upload(table)
    assert given.shape == table.shape
    assert tuple(given.strides) == np.ascontiguousarray(table).strides
    np.testing.assert_array_equal(backend.host(given), table)
