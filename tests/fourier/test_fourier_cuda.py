# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of this folder compile for CUDA, without a GPU."""

import pytest

from particlemesh.backends import cuda
from ptx import without_nvrtc

pytestmark = pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")


@pytest.mark.parametrize("double", [0, 1])
@pytest.mark.parametrize(
    ("file", "names", "defines"),
    [
        ("bands", ("crop", "embed"), {"TEAM": 32, "PIECE": 256}), ("hermitian", ("unfold", "fold"), {}),
        ("average", ("average",), {}),
        ("multiply", ("multiply",), {"PARTS": 1, "TURNS": 0}),
        ("multiply", ("multiply",), {"PARTS": 1, "TURNS": 1}), ("multiply", ("multiply",), {"PARTS": 2, "TURNS": 0}),
        ("moments", ("moments",), {"DIM": 3, "EXPAND": 0}), ("moments", ("moments",), {"DIM": 1, "EXPAND": 1}),
        ("strain", ("strain_shares", "strain_totals"), {"TERMS": 6, "NDIM": 3}),
    ],
)  # fmt: skip
def test_kernels_compile(file, names, defines, double):
    cubin = cuda.compile_only(f"fourier/{file}.c", {"REAL_IS_DOUBLE": double, **defines}, 90)
    assert all(name.encode() in cubin for name in names)
