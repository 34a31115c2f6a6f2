# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices by a warp, and the verbs that feed them: exact laws, on tensor cores or what stands for them."""

import functools
import re

import numpy as np
import pytest

from particlemesh.backends import cuda, source
from ptx import without_nvrtc

# Warp n adds two products to matrix n of C. A shuffle between them shares the scratch of a warp that has no registers.
MULTIPLY = """
#if REAL_IS_DOUBLE
#define ROWS 8
#define DEPTH 4
#else
#define ROWS 16
#define DEPTH 8
#endif

// Only some lanes look at what all of them have made: the product must not wait until they do.
KERNEL partly(GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT sums, const i64 lanes)
{
    WARP(warp);
    real c[ROWS / 4];
    for (int i = 0; i < ROWS / 4; i++) c[i] = 0;
#if REAL_IS_DOUBLE
    MMA_8_8_4(warp, c, values[LANE], values[LANE]);
#else
    const real mine[4] = {values[LANE], 0, 0, 0}, other[2] = {values[LANE], 0};
    MMA_16_8_8(warp, c, mine, other);
#endif
    if (lanes >> LANE & 1) sums[GROUP_ID * GROUP_SIZE + LOCAL_ID] = c[1];
}

KERNEL multiply(GLOBAL const real* RESTRICT left, GLOBAL const real* RESTRICT right, GLOBAL real* RESTRICT sums,
                const i64 count)
{
    WARP(warp);
    const int g = LANE / 4, t = LANE % 4;
    for (i64 n = (GROUP_ID * GROUP_SIZE + LOCAL_ID) / 32; n < count; n += GROUP_COUNT * GROUP_SIZE / 32) {
        GLOBAL real* to = sums + n * ROWS * 8;
        real c[ROWS / 4];
        for (int i = 0; i < ROWS / 4; i++) c[i] = to[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
        for (int step = 0; step < 2; step++) {
            GLOBAL const real* a = left + (2 * n + step) * ROWS * DEPTH;
            GLOBAL const real* b = right + (2 * n + step) * DEPTH * 8;
#if REAL_IS_DOUBLE
            MMA_8_8_4(warp, c, a[g * 4 + t], b[t * 8 + g]);
#else
            const real mine[4] = {a[g * 8 + t], a[g * 8 + 64 + t], a[g * 8 + t + 4], a[g * 8 + 64 + t + 4]};
            const real other[2] = {b[t * 8 + g], b[t * 8 + 32 + g]};
            MMA_16_8_8(warp, c, mine, other);
#endif
            c[0] = WARP_SHUFFLE(warp, WARP_SHUFFLE(warp, c[0], LANE ^ 5), LANE ^ 5);
            c[1] = WARP_SHUFFLE(warp, c[1], LANE);
        }
        for (int i = 0; i < ROWS / 4; i++) to[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
    }
}
"""
FEED = """
KERNEL feed(GLOBAL const u32* RESTRICT records, GLOBAL const real* RESTRICT values, GLOBAL int* RESTRICT first,
            GLOBAL u32* RESTRICT words, GLOBAL real* RESTRICT turned, GLOBAL real* RESTRICT upper)
{
    LOCAL_ARRAY(real, odd, 1);
    LOCAL_ARRAY(real, rows, 6 * GROUP_SIZE);
    if (LOCAL_ID == 0) odd[0] = 0;
    const i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID;
    u32 read[4];
    READ_RECORD(records + 4 * k, read);
    first[k] = FIRST_BIT_U32(read[0]);
    for (int n = 0; n < 4; n++) words[4 * k + n] = read[n];
    LOCAL real* own = rows + 4 * LOCAL_ID;
    STORE_LOCAL_4(own, values[4 * k], values[4 * k + 1], values[4 * k + 2], values[4 * k + 3]);
    own = rows + 4 * GROUP_SIZE + 2 * LOCAL_ID;
    STORE_LOCAL_2(own, values[4 * k], values[4 * k + 3]);
    BARRIER();
    real four[4], two[2];
    LOAD_LOCAL_4(rows + 4 * (LOCAL_ID ^ 1), four);
    LOAD_LOCAL_2(rows + 4 * GROUP_SIZE + 2 * (LOCAL_ID ^ 1), two);
    for (int n = 0; n < 4; n++) turned[6 * k + n] = four[n] + odd[0];
    for (int n = 0; n < 2; n++) turned[6 * k + 4 + n] = two[n];
#if !REAL_IS_DOUBLE
    for (int n = 0; n < 4; n++) upper[4 * k + n] = SPLIT_TF32(values[4 * k + n]);
#endif
}
"""
TEXTS = {"multiply.c": MULTIPLY, "feed.c": FEED}
# What the device has, and the shuffles of CUDA before 8.0: PoCL can shuffle, if slowly.
FORMS = {"own": {}, "shuffles": {"HAS_MMA": 0, "HAS_WARP": 1}}
SHAPES = {np.float32: (16, 8), np.float64: (8, 4)}


@pytest.fixture
def kernels(monkeypatch):
    """The kernels of this file stand among the package's."""
    plain = source.text
    monkeypatch.setattr(source, "text", lambda file: TEXTS[file] if file in TEXTS else plain(file))


def defines_of(real, form="own"):
    return {"REAL_IS_DOUBLE": int(real is np.float64), "WITH_MMA": 1, **FORMS[form]}


def multiply(device, left, right, sums, form):
    """Return sums + left[0] right[0] + left[1] right[1], for each of many matrices, from the device."""
    count, library = len(sums), device.library
    kernel = library.kernel("multiply.c", "multiply", defines_of(sums.dtype.type, form))
    arrays = [library.upload(x) for x in (left, right, sums)]
    kernel(32 * count, *arrays, count)
    return library.download(arrays[2])


def truncated(x):
    """Return float32 with the 13 lower bits cleared; float64 as it is."""
    return x if x.dtype == np.float64 else (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def product(left, right, sums):
    return sums + np.einsum("nsik,nskj->nij", left.astype(np.float64), right.astype(np.float64))


law = functools.partial(pytest.mark.parametrize, ("real", "form"))
laws = law([(real, form) for real in SHAPES for form in FORMS], ids=lambda x: x if isinstance(x, str) else x.__name__)
pytestmark = pytest.mark.backends("cuda", "opencl")


@laws
def test_a_matrix_with_a_single_one_takes_a_row_or_a_column(backend, kernels, real, form):
    rows, depth = SHAPES[real]
    ones = np.eye(rows * depth, dtype=real).reshape(-1, rows, depth)
    others = np.eye(depth * 8, dtype=real).reshape(-1, depth, 8)
    count = len(ones) + len(others)
    left, right = np.zeros((count, 2, rows, depth), real), np.zeros((count, 2, depth, 8), real)
    left[: len(ones), 0], right[: len(ones), 0] = ones, 1 + np.arange(depth * 8).reshape(depth, 8)
    left[len(ones) :, 1], right[len(ones) :, 1] = 1 + np.arange(rows * depth).reshape(rows, depth), others
    sums = np.zeros((count, rows, 8), real)
    result = multiply(backend, left, right, sums, form)
    for n, (i, k) in enumerate(np.ndindex(rows, depth)):
        np.testing.assert_array_equal(result[n, i], right[n, 0, k])
        assert np.count_nonzero(result[n]) == 8
    for n, (k, j) in enumerate(np.ndindex(depth, 8), len(ones)):
        np.testing.assert_array_equal(result[n, :, j], left[n, 1, :, k])
        assert np.count_nonzero(result[n]) == rows


@laws
def test_whole_numbers_are_exact_and_lower_bits_are_not_seen(backend, kernels, real, form):
    rows, depth = SHAPES[real]
    rng = np.random.default_rng(1)
    largest = 500 if real is np.float32 else 2**24  # all sums of products are exact, in any order
    shapes = (70, 2, rows, depth), (70, 2, depth, 8), (70, rows, 8)
    left, right, sums = (rng.integers(-largest, largest + 1, shape).astype(real) for shape in shapes)
    expected = product(left, right, sums)
    if real is np.float32:
        for x in (left, right):
            x.view(np.uint32)[...] |= rng.integers(0, 2**13, x.shape, np.uint32)
        assert (np.abs(product(left, right, sums) - expected) > 1).any()  # they would be
    np.testing.assert_array_equal(multiply(backend, left, right, sums, form), expected)


@laws
def test_random_matrices(backend, kernels, real, form):
    rows, depth = SHAPES[real]
    rng = np.random.default_rng(2)
    shapes = (33, 2, rows, depth), (33, 2, depth, 8), (33, rows, 8)
    left, right, sums = (rng.normal(size=shape).astype(real) for shape in shapes)
    expected = product(truncated(left), truncated(right), sums)
    size = product(np.abs(left), np.abs(right), np.abs(sums))
    error = np.abs(multiply(backend, left, right, sums, form) - expected) / size
    # Each addition may lose a bit of the largest term; an operand that is rounded, not truncated, loses 2^-12.
    assert error.max() < 8 * np.finfo(real).eps


@laws
def test_some_lanes_take_what_all_have_made(backend, kernels, real, form):
    library, lanes = backend.library, 0x9010F0C5
    values = np.arange(1, 33).astype(real)
    matrix = values.reshape(8, 4)  # A, and the transpose of B
    sums = library.upload(np.zeros(256, real))
    library.kernel("multiply.c", "partly", defines_of(real, form))(256, library.upload(values), sums, lanes)
    chosen = (lanes >> np.arange(32)) & 1
    expected = (matrix @ matrix.T)[:, 1::2].reshape(32) * chosen
    np.testing.assert_array_equal(library.download(sums).reshape(-1, 32), np.tile(expected, (8, 1)))


@pytest.mark.parametrize("real", SHAPES)
def test_records_and_rows_of_local_memory(backend, kernels, real):
    library, count = backend.library, 384  # whole groups
    rng = np.random.default_rng(3)
    records = rng.integers(0, 2**32, (count, 4), np.uint32)
    records[:32, 0] = 1 << np.arange(32, dtype=np.uint32)
    records[32:64, 0] = np.uint32(0xFFFFFFFF) << np.arange(32, dtype=np.uint32)
    values = rng.normal(size=(count, 4)).astype(real)
    shapes = ((count,), np.int32), ((count, 4), np.uint32), ((count, 6), real), ((count, 4), real)
    made = [library.empty(*shape) for shape in shapes]
    kernel = library.kernel("feed.c", "feed", defines_of(real))
    kernel(count, library.upload(records), library.upload(values), *made)
    first, words, turned, upper = (library.download(x) for x in made)
    word = records[:, 0].astype(np.int64)
    np.testing.assert_array_equal(1 << first.astype(np.int64), word & -word)
    np.testing.assert_array_equal(words, records)
    neighbour = values[np.arange(count) ^ 1]
    np.testing.assert_array_equal(turned, np.concatenate([neighbour, neighbour[:, [0, 3]]], 1))
    if real is np.float32:
        np.testing.assert_array_equal(upper, truncated(values))
        assert (upper != values).any()


def ptx_of(file, defines, compute):
    """Return the PTX of each kernel of a file for a compute capability."""
    from cupy.cuda import nvrtc

    facts = {"GROUP_SIZE": 128, **cuda.facts_of(compute), **defines}
    program = nvrtc.createProgram(source.program("backends/cuda.h", file, facts), file, (), ())
    nvrtc.compileProgram(program, (f"--gpu-architecture=compute_{compute}",))
    text = nvrtc.getPTX(program)
    nvrtc.destroyProgram(program)
    entries = (text if isinstance(text, str) else text.decode()).split(".entry ")[1:]
    return {entry.partition("(")[0].strip(): entry for entry in entries}


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("real", SHAPES)
@pytest.mark.parametrize("compute", [70, 75, 80, 90, 100])
def test_cuda_has_tensor_cores_from_compute_capability_8(kernels, real, compute):
    from cupy.cuda import nvrtc

    if compute < min(nvrtc.getSupportedArchs()):
        pytest.skip(f"this NVRTC is too new for {compute}")
    for file, name in (("multiply.c", "multiply"), ("multiply.c", "partly"), ("feed.c", "feed")):
        assert name.encode() in cuda.compile_only(file, defines_of(real), compute)
    instruction = "m16n8k8.row.col.f32.tf32.tf32.f32" if real is np.float32 else "m8n8k4.row.col.f64.f64.f64.f64"
    kernels_made = ptx_of("multiply.c", defines_of(real), compute)
    assert len(kernels_made) == 2
    for made in kernels_made.values():
        assert (f"mma.sync.aligned.{instruction}" in made) == (compute >= 80)
        assert ("shfl.sync" in made) >= (compute < 80)
    if compute >= 80:  # before lanes go ways of their own
        assert "bra" not in kernels_made["partly"].partition("mma.sync")[0]
    feed = ptx_of("feed.c", defines_of(real), compute)["feed"]
    wide = r"v4\.[bf]32" if real is np.float32 else r"v2\.[bf]64"
    for access in (r"ld\.global\.nc\.v4\.[bu]32", rf"st\.shared\.{wide}", rf"ld\.shared\.{wide}"):
        assert re.search(access, feed), access
