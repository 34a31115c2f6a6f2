# SPDX-License-Identifier: BSD-3-Clause
"""Searches of sparse cells, and of rows that may be wide, compile for CUDA where no GPU tries them."""

import pytest

from particlemesh.backends import cuda
from ptx import without_nvrtc

CLOUD = {
    "KEYS_ARE_POSITIONS": 1, "CELLS_ARE_SCATTERED": 0, "CELLS_ARE_SPARSE": 1, "NO_IMAGES": 0, "IMAGES_APART": 1,
}  # fmt: skip


@pytest.mark.turns(2)
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("double", "levels"), [(0, 1), (1, 0)])
def test_sparse_searches_compile_for_cuda(double, levels):
    reals = {"REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double, "ONE_LEVEL": levels}
    rows = {"ROWS_ARE_POINTS": 0, "REACH_IS": 1 - levels, "HALF": 1 - levels}
    counts = {"PAIRED": levels, "ROWS_BY_INDEX": 0, "COUNT_IS_64": 1, "WANT_LONGEST": 1, "WIDE_ROWS": 0}
    assert b"count_pairs" in cuda.compile_only("grid/queries/count_pairs.c", {**CLOUD, **reals, **rows, **counts}, 90)
    wide = {**counts, "PAIRED": 0, "WIDE_ROWS": 1}
    assert b"count_pairs" in cuda.compile_only("grid/queries/count_pairs.c", {**CLOUD, **reals, **rows, **wide}, 90)
    lists = {
        "PLACE": 0, "CAP": 32, "SPAN": 8, "BY_INDEX": 1, "ROWS_BY_INDEX": 0, "SWAP": 1, "WANT_I": 1, "WANT_J": 1,
        "WANT_SHIFT": 1, "WANT_DISTANCE": 1, "WANT_VECTOR": 0,
    }  # fmt: skip
    assert b"list_pairs" in cuda.compile_only("grid/queries/pairs.c", {**CLOUD, **reals, **rows, **lists}, 90)
    if not levels:
        gather = {**CLOUD, **reals, "EXTENTS": 1}
        assert b"gather_reaches" in cuda.compile_only("grid/queries/gather_reaches.c", gather, 90)
