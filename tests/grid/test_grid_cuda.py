# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of grids that CUDA's compiler refuses: what OpenCL has just run is compiled for CUDA, without a GPU."""

import numpy as np
import pytest

from devices import Device
from grid_cases import Case
from grid_checks import WALK, own_radii, put
from particlemesh.backends import cuda, opencl
from particlemesh.grid.builders import METHODS
from ptx import kernels_of, single, without_nvrtc

pytestmark = [
    pytest.mark.opencl,
    pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device to ask for kernels"),
    pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}"),
]
SPHERES, EDGES = Case("mixed", (4, 3, 5), "uniform", 60, "f4"), Case("mixed", (4, 3, 5), "uniform", 60, "f8")
FUNCTION = {"pair function": WALK.source}


def every_query(grid, points):
    grid.pairs(0.4)
    grid.pairs(0.4, format="coo", quantities="ijdDS")
    grid.pairs(0.4, half=False, order="grid", quantities="jdDS")
    grid.pairs(0.4, half=False, format="dense", quantities="jS")
    grid.pairs(0.4, check=False, capacity=500)
    grid.count(0.4, order="grid")
    grid.neighbours(points, 0.4, quantities="jS")
    for k in (1, 40):
        grid.nearest(k, 0.4)
        grid.nearest(k, 0.4, points)
    grid.overlaps(quantities="ijdDS")


def asked(monkeypatch, builder, case):
    """Kernels of a build and of each query, which OpenCL takes; of boxes with three edges in double."""
    backend = Device.of("opencl")
    radii = own_radii(builder, case)
    if case is EDGES and radii is not None:
        radii = np.repeat(radii[:, None], 3, axis=1)
    with case.grid(method=builder.name) as grid:

        def call():
            put(backend, grid, case.positions, radii if radii is not None else np.full(60, 0.1, case.dtype))
            every_query(grid, backend.array(case.positions[:20]))
            grid.stream(0.4, WALK, backend.array(np.ones((60, 2), case.dtype)))

        return kernels_of(monkeypatch, call)


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", [SPHERES, EDGES], ids=["float32", "float64"])
@pytest.mark.parametrize("method", [m for m in METHODS if "cuda" in m.backends], ids=lambda m: m.name)
def test_kernels_of_a_builder_and_its_queries_compile(monkeypatch, method, case, request):
    # Queries of builders whose cells lie alike are the same kernels, and compiling takes long: one of each suffices.
    whole = (("sort", SPHERES), ("linked_list_loose", EDGES))
    queries = (method.name, case) in whole[: 1 if request.config.thins else 2]
    if request.config.thins and not queries and single(method) != (case is SPHERES):
        pytest.skip("compiling takes long: a builder has one of the types without --thorough")
    files = {}
    for file, name, defines in asked(monkeypatch, method, case):
        if file.startswith("grid/"):
            files.setdefault((file, defines), set()).add(name)
    assert f"grid/builders/{method.name}.c" in {file for file, _ in files} or not method.kernels
    for (file, defines), names in files.items():
        if queries or file.startswith("grid/builders/") or "overlaps" in file:
            texts = [FUNCTION] if file == "grid/queries/sums.c" else []
            for lanes in ({}, {"LANES": 4}) if texts else ({},):
                cubin = cuda.compile_only(file, dict(defines) | lanes, 90, *texts)
                assert all(name.encode() in cubin for name in names), (file, names)


SPARSE = {
    "KEYS_ARE_POSITIONS": 1, "CELLS_ARE_SCATTERED": 0, "CELLS_ARE_SPARSE": 1, "NO_IMAGES": 0, "IMAGES_APART": 1,
}  # fmt: skip


@pytest.mark.turns(2)
@pytest.mark.parametrize(("double", "levels"), [(0, 1), (1, 0)])
def test_sparse_searches_compile_for_cuda(double, levels):
    reals = {"REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double, "ONE_LEVEL": levels}
    rows = {"ROWS_ARE_POINTS": 0, "REACH_IS": 1 - levels, "HALF": 1 - levels}
    counts = {"PAIRED": levels, "ROWS_BY_INDEX": 0, "COUNT_IS_64": 1, "WANT_LONGEST": 1, "WIDE_ROWS": 0}
    assert b"count_pairs" in cuda.compile_only("grid/queries/count_pairs.c", {**SPARSE, **reals, **rows, **counts}, 90)
    wide = {**counts, "PAIRED": 0, "WIDE_ROWS": 1}
    assert b"count_pairs" in cuda.compile_only("grid/queries/count_pairs.c", {**SPARSE, **reals, **rows, **wide}, 90)
    lists = {
        "PLACE": 0, "CAP": 32, "SPAN": 8, "BY_INDEX": 1, "ROWS_BY_INDEX": 0, "SWAP": 1, "WANT_I": 1, "WANT_J": 1,
        "WANT_SHIFT": 1, "WANT_DISTANCE": 1, "WANT_VECTOR": 0,
    }  # fmt: skip
    assert b"list_pairs" in cuda.compile_only("grid/queries/pairs.c", {**SPARSE, **reals, **rows, **lists}, 90)
    if not levels:
        gather = {**SPARSE, **reals, "EXTENTS": 1}
        assert b"gather_reaches" in cuda.compile_only("grid/queries/gather_reaches.c", gather, 90)
