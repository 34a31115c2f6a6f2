# SPDX-License-Identifier: BSD-3-Clause
"""particlemesh.kernels: what comes in is checked, what goes out is in kind, and kernels of users compile."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from particlemesh import kernels
from particlemesh.backends import cuda, source
from particlemesh.kernels import cpu
from ptx import NVRTC

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own_kernels.rst"
SCALE = """
#include "factor.h"

KERNEL scale(GLOBAL const real* x, GLOBAL real* y, const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) y[i] = FACTOR * x[i];
}
"""


# ---- arrays in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "options", "dtype"),
    [
        (np.arange(3), {}, "float64"),
        (np.arange(3, dtype=np.int16), {}, "float32"),
        (np.zeros(3, np.float32), {}, "float32"),
        (np.zeros(3, np.float32), {"dtype": "float64"}, "float64"),
        (np.zeros(3, ">f8"), {}, "float64"),
        (np.zeros(3, np.complex64), {"real": False}, "float32"),
        ((1, 2.5, 3), {}, "float64"),
    ],
)
def test_numbers_are_promoted_and_never_rounded(array, options, dtype):
    x = kernels.take(array, (3,), "x", **options)
    assert x.dtype == dtype
    assert x.native.dtype.isnative and x.native.real.dtype == dtype
    np.testing.assert_array_equal(x.native, np.asarray(array))
    assert (x.shape, x.batch, x.backend.name, x.kind.name) == ((3,), (), "cpu", "NumPy")


@pytest.mark.parametrize(
    ("array", "shape", "options", "error", "message"),
    [
        (np.zeros(3), (3,), {"dtype": "float32"}, TypeError, "x has dtype float64, more than float32 holds"),
        (np.zeros(3, np.complex64), (3,), {}, TypeError, "x has dtype complex64; real numbers are needed."),
        (np.zeros(3, np.float16), (3,), {}, TypeError, "dtype is float16; float32, float64"),
        (np.zeros(3), (3,), {"dtype": "int32"}, TypeError, "dtype is int32; give 'float32' or 'float64'"),
        (np.zeros((2, 3)), (3,), {"batch": False}, ValueError, r"x has shape \(2, 3\); \(3,\) is needed."),
        (np.zeros((2, 3)), (None, 2), {}, ValueError, r"x has shape \(2, 3\); \(..., n, 2\) is needed."),
        (np.zeros(()), (None,), {}, ValueError, r"x has shape \(\); \(..., n\) is needed."),
        (np.ma.masked_array([1.0, 2.0], [0, 1]), (2,), {}, TypeError, "masked arrays are not supported"),
        ({1.0}, (1,), {}, TypeError, "x is of type set; give an array of one of these kinds"),
    ],
)
def test_what_does_not_fit_is_named(array, shape, options, error, message):
    with pytest.raises(error, match=message):
        kernels.take(array, shape, "x", **options)


def test_dense_arrays_are_taken_without_a_copy(backend):
    x = backend.array(np.arange(6.0).reshape(2, 3))
    assert kernels.take(x, (3,), "x").native is x
    turned = backend.array(np.arange(6.0).reshape(2, 3), "fortran")
    assert kernels.take(turned, (3,), "x", dense=False).native is turned
    copied = kernels.take(turned, (3,), "x").native
    assert copied.flags.c_contiguous
    np.testing.assert_array_equal(backend.host(copied), np.arange(6.0).reshape(2, 3))


def test_an_empty_list_has_the_shape_that_is_asked_for():
    assert kernels.take([], (None, 3), "x").native.shape == (0, 3)


@pytest.mark.backends("opencl", "cuda")
def test_arrays_of_another_place_are_refused_unless_the_user_named_the_backend(backend):
    with pytest.raises(TypeError, match="x is a NumPy array and the work is on"):
        kernels.take(np.zeros(3), (3,), "x", backend=backend.library)
    there = kernels.take(np.arange(3.0), (3,), "x", backend=backend.library, upload=True)
    np.testing.assert_array_equal(kernels.to_host(there.native, "x"), np.arange(3.0))
    assert kernels.take([1, 2, 3], (3,), "y", like=there).backend is backend.library


# ---- results ----------------------------------------------------------------------------------------------


def test_results_have_the_type_that_is_asked_for(backend):
    x = kernels.take(backend.array(np.ones((2, 3), np.float32)), (3,), "x")
    with kernels.InOrder()(x):
        result = kernels.give(None, x, (2,), dtype=np.int32)
        x.backend.clear(result.native)
        counts = result.finish()
    assert counts.dtype == np.int32 and type(counts) is type(x.user)
    np.testing.assert_array_equal(backend.host(counts), [0, 0])


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.zeros(4), ValueError, r"out has shape \(4,\); this call writes \(3,\)"),
        (np.zeros(3, np.float32), TypeError, "out has dtype float32; this call writes float64"),
        (np.broadcast_to(0.0, 3), ValueError, "out is read-only"),
        ([0.0] * 3, TypeError, "out is of type list"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(out, error, message):
    x = kernels.take(np.zeros(3), (3,), "x")
    with pytest.raises(error, match=message):
        kernels.give(out, x, (3,))


def test_calls_follow_the_stream_of_the_call_before():
    class Recording:
        """The CPU, which also says what it is asked."""

        name, said = "cpu", ()

        def __getattr__(self, name):
            return getattr(cpu_backend, name)

        def follow(self, token):
            self.said += (("follow", token),)
            return len(self.said)

        def mark(self, *arrays):
            self.said += (("mark", len(arrays)),)

    cpu_backend, recording, in_order = kernels.backend("cpu"), Recording(), kernels.InOrder()
    x = kernels.take(np.zeros(3), (3,), "x", backend=recording)
    for _ in range(2):
        with in_order(x, None, x):
            kernels.give(None, x, (3,)).finish()
    assert recording.said == (("follow", None), ("mark", 1), ("mark", 2), ("follow", 1), ("mark", 1), ("mark", 2))


# ---- kernels ----------------------------------------------------------------------------------------------


@pytest.mark.backends("opencl", "cuda")
def test_a_file_is_read_again_after_it_was_edited_with_files_beside_it(backend, tmp_path):
    library, x = backend.library, backend.array(np.arange(300.0))
    (tmp_path / "factor.h").write_text('#include "inner.h"\n')
    path = tmp_path / "scale.c"
    for text, more, factor in ((SCALE, 1, 3), (SCALE.replace("FACTOR *", "2 * FACTOR *"), 1, 6), (SCALE, 2, 4)):
        path.write_text(text)
        (tmp_path / "inner.h").write_text(f"#define FACTOR (BASE + {more})\n")
        scale, y = kernels.compile_kernel(library, path, "scale", "float64", BASE=2), library.empty(300, "float64")
        scale(300, x, y, 300)
        np.testing.assert_array_equal(backend.host(y), factor * np.arange(300.0))
        scale(0, x, y, 0)  # launches nothing
    with pytest.raises(ValueError, match=r"there is no kernel 'full' in scale\.c; its kernels: 'scale'\."):
        kernels.compile_kernel(library, path, "full", "float64", BASE=2)


@pytest.mark.backends("opencl", "cuda")
def test_an_error_shows_the_line_of_the_users_code(backend, tmp_path):
    wrong = SCALE.replace('#include "factor.h"', "").replace("FACTOR * x[i]", "x[j]")
    path = tmp_path / "wrong.c"
    path.write_text(wrong)
    for code in (wrong, path):
        with pytest.raises(kernels.CompilationError) as error:
            kernels.compile_kernel(backend.library, code, "scale", "float32")
        first, second, *_ = str(error.value).splitlines()
        assert "6" in first and "j" in first
        assert second.strip().startswith("for (i64 i = GROUP_ID")
        assert "ATOMIC_ADD" in error.value.source  # all of it


@pytest.mark.backends("opencl", "cuda")
def test_the_first_launch_checks_the_arguments(backend):
    code = SCALE.replace('#include "factor.h"', "#define FACTOR 2")
    x = backend.array(np.zeros(3, np.float32))
    scale = kernels.compile_kernel(backend.library, code, "scale", np.dtype(np.float64))
    with pytest.raises(TypeError, match="argument 1 of kernel 'scale', 'x', is an array of float32"):
        scale(3, x, x, 3)


def test_the_cpu_has_no_kernels():
    with pytest.raises(RuntimeError, match="the CPU backend has no kernels"):
        kernels.compile_kernel(kernels.backend("cpu"), SCALE.replace("#include", "//"), "scale", "float64")


def test_files_of_the_library_keep_their_names():
    asked = []

    class Asked:
        def kernel(self, file, name, defines):
            asked.append((file, name, defines))

    near = Path(kernels.__file__).parents[1] / "apps" / "brownian" / "near.c"
    kernels.compile_kernel(Asked(), near, "near_blocks", np.dtype(np.float32), PARTS=1)
    assert asked == [("apps/brownian/near.c", "near_blocks", {"REAL_IS_DOUBLE": 0, "PARTS": 1})]


@pytest.mark.parametrize("mark", [pytest.param(None, marks=NVRTC)])
def test_the_kernel_of_the_page_compiles_for_cuda(mark):
    (example,) = [e for e in doctest.DocTestParser().get_examples(PAGE.read_text()) if e.source.startswith("CODE")]
    (code,) = re.findall(r"'''(.*)'''", example.source, re.DOTALL)
    for real in (0, 1):
        assert b"push" in cuda.compile_only(source.code_of(code, "page"), {"REAL_IS_DOUBLE": real}, 90)


# ---- loops ------------------------------------------------------------------------------------------------


@cpu.compiled(cached=False)
def _claimed(owner, counter):
    worker = cpu.fetch_add(counter, 1, 1)
    for begin, end in cpu.ranges(counter, owner.size, 7):
        for i in range(begin, end):
            owner[i] += 1 + 0 * worker


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_item_is_claimed_once(size, threads):
    owner = np.zeros(size, np.int64)
    cpu.run(_claimed, threads, owner)
    assert (owner == 1).all()


def test_a_loop_typed_at_a_prompt_is_compiled_but_not_kept():
    names = {}
    exec(compile("def fill(x, out):\n    for i in range(x.size): out[i] = function(x[i])", "<prompt>", "exec"), names)
    out = np.empty(3)
    cpu.loop_with(names["fill"], "function", lambda x: x + 1)(np.arange(3.0), out)
    np.testing.assert_array_equal(out, [1.0, 2.0, 3.0])
