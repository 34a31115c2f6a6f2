# SPDX-License-Identifier: BSD-3-Clause
"""What users choose of interpolation by a walk, and what CUDA's compiler makes of it."""

import collections
import itertools
import re

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from devices import Device
from particlemesh.backends import cuda
from ptx import case
from walk_cases import draw, plan_of


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_is_chosen_changes_nothing_but_rounding(backend, real, request):
    mesh, window = pm.Mesh((9, 6, 8), (1.0, 1.5, 2.0)), pm.bspline(4)
    x, f = draw("interpolate", mesh, 80, real, 7)
    asked = oracle.interpolate(mesh, window, x, f)
    combinations = list(itertools.product(("matrix", "multiply"), (None, 8, 16), (None, *range(4, 9))))
    if backend.name == "opencl" and request.config.thins:  # PoCL compiles slowly
        combinations = [("matrix", 8, 8), ("multiply", 8, 7), ("multiply", 16, 5)]
    for form, tiles, levels in combinations:
        given = {"form": form, "patch": tiles, "levels": levels, "chunk": 40}
        plan = plan_of(
            "interpolate", backend, mesh, window, real, x, **{k: v for k, v in given.items() if v is not None}
        )
        if form == "matrix" and real == "float32" and levels and levels % 2:
            with pytest.raises(pm.MethodNotSuitable, match="even number of levels"):
                plan.interpolate(backend.array(f))
            continue
        result = backend.host(plan.interpolate(backend.array(f)))
        tolerance = 1e-14 if real == "float64" else 1e-6
        np.testing.assert_allclose(result, asked, rtol=0, atol=tolerance * np.abs(f).max(), err_msg=str(given))


# ---- what the compiler makes of it -----------------------------------------------------------------------------------


def key_of(monkeypatch, real, support, channels, *, asked="interpolate", interleaved=False, nodes=16, **options):
    """File, name and defines of the kernel that a call takes; nothing runs."""
    mesh = pm.Mesh((16, 16, nodes), (1.0, 1.0, 1.0))
    plan = pm.Plan(mesh, f"bspline{support}", interpolation="walk", options={"walk": options}, dtype=real)
    device, batch = Device.of("opencl"), () if channels == 1 else (channels,)
    field = device.array(np.zeros((*batch, *mesh.shape), real), "interleaved" if interleaved else "planar")
    positions = device.array(np.full((5, 3), 0.5, real))
    call = lambda: getattr(plan.set_positions(positions, check=False), asked)(field)  # noqa: E731
    return ptx.kernel_of(monkeypatch, "interpolate_walk", call)


MATRIX, DOUBLE = "m16n8k8.row.col.f32.tf32", "m16n8k8.row.col.f64"
BESIDE = {"form": "matrix", "interleaved": True}


@pytest.mark.parametrize(
    ("real", "support", "channels", "more", "matrix", "reads"),
    [
        case("float32", 6, 1, {"form": "matrix"}, {MATRIX}, ("v2.", "32"), id="real"),
        case("float32", 6, 1, {"form": "matrix", "nodes": 15}, {MATRIX}, ("", "32"), id="odd"),
        case("float32", 4, 4, BESIDE, {MATRIX}, ("v4.", "32"), id="four beside"),
        case("float32", 5, 1, {"form": "matrix", "asked": "gradient"}, {MATRIX}, ("v2.", "32"), id="slopes"),
        case("float32", 6, 1, {"form": "multiply"}, set(), ("v2.", "32"), id="multiply"),
        case("float32", 6, 1, {"form": "matrix", "patch": 8}, {MATRIX}, ("", "32"), id="narrow"),
        case("float32", 6, 4, {**BESIDE, "patch": 8}, {MATRIX}, ("v4.", "32"), id="four beside, narrow"),
        case("float64", 6, 1, {"form": "matrix"}, {DOUBLE}, ("", "64"), id="double"),
        case("float64", 4, 2, BESIDE, {DOUBLE}, ("v2.", "64"), id="double, beside"),
    ],
)
def test_registers_matrix_instructions_and_vectors(monkeypatch, real, support, channels, more, matrix, reads):
    text = ptx.ptx(*key_of(monkeypatch, real, support, channels, **more))
    assert set(re.findall(r"mma\.sync\.aligned\.(\w+\.row\.col\.f\d\d(?:\.tf32)?)", text)) == matrix
    loads = collections.Counter(re.findall(r"\bld\.global(?:\.nc)?\.((?:v\d\.)?)[fbu](\d\d)", text))
    # A window's levels are read one by one; records and where lines begin take fewer instructions.
    assert {kind for kind, times in loads.items() if times > 7} == {reads}, loads
    assert "cp.async" in text  # the next level is on its way while particles are taken
    assert not re.search(r"\b(?:ld|st)\.local|\.local\s+\.align", text)  # what is indexed by constants is in registers
    assert not re.search(r"\b(?:red|atom)\.", text)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("real", "channels", "patch", "asked"),
    [
        case("float32", 4, 16, "value_and_gradient", id="float32"),
        case("float64", 1, 16, "interpolate", id="double values"),
        case("float64", 4, 8, "gradient", id="double slopes"),
        case("float64", 4, 16, "value_and_gradient", id="double"),
    ],
)
def test_rows_fit_local_memory(monkeypatch, real, channels, patch, asked):
    # PoCL has one warp a group; on GPUs a group has four. NVIDIA's OpenCL has less local memory than CUDA.
    library = Device.of("opencl").library
    monkeypatch.setattr(library, "group_size", cuda.CudaBackend.group_size)
    monkeypatch.setattr(library, "local_bytes", 232_448)
    file, name, defines = key_of(monkeypatch, real, 6, channels, patch=patch, asked=asked, form="matrix")
    assert defines["WARPS"] == 4
    assert name.encode() in cuda.compile_only(file, defines, 90)


def test_groups_have_fewer_warps_where_local_memory_is_small(monkeypatch):
    backend = Device.of("opencl").library
    monkeypatch.setattr(backend, "group_size", cuda.CudaBackend.group_size)
    monkeypatch.setattr(backend, "local_bytes", 48 << 10)
    more = {"patch": 16, "asked": "value_and_gradient", "form": "matrix"}
    file, name, defines = key_of(monkeypatch, "float64", 6, 4, **more)
    assert defines["BATCH"] == 8 and 0 < defines["WARPS"] < 4
    assert name.encode() in cuda.compile_only(file, defines, 90)
