# SPDX-License-Identifier: BSD-3-Clause
"""What users choose of a walk, what it declines, and what CUDA's compiler makes of it."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from devices import Device
from particlemesh.backends import cuda
from particlemesh.methods.contract import Problem
from particlemesh.orders import block_order
from particlemesh.particles.stencil import axes_of
from particlemesh.spread.walk import Walk
from particlemesh.walk import patch
from ptx import case

MESHES = [pm.Mesh((9, 6, 8)[:d], (1.0, 1.5, 2.0)[:d]) for d in (1, 2, 3)]
FORMS, WINDOWS, LEVELS = ("matrix", "multiply"), (None, 8, 16), (None, *range(2, 9))


def asked(backend, mesh, support, real, count=1000, **options):
    """A problem with options, of which None are left out."""
    options = {"walk": {name: value for name, value in options.items() if value is not None}}
    window = pm.bspline(support)
    return Problem(mesh, window, np.dtype(real), 1, 1, count, False, backend.library, options)


def reason(d, support, real, form, levels):
    """Why a walk of two or more nodes cannot be, in a word."""
    along_x = support if d == 3 else 1
    single = real == "float32"
    if levels is not None and levels < along_x:
        return "levels are less"
    if levels is not None and form == "matrix" and single and levels % 2:
        return "even number of levels"
    return None


@pytest.mark.backends("cuda", "opencl")
def test_every_combination_is_served_or_declined_in_words(backend):
    served, reasons = 0, set()
    axes = itertools.product(MESHES, range(2, 9), ("float32", "float64"), FORMS, WINDOWS, LEVELS, (0, 10**6))
    for mesh, support, real, form, window, levels, count in axes:
        said = Walk.declines(asked(backend, mesh, support, real, count, form=form, window=window, levels=levels))
        expected = reason(mesh.ndim, support, real, form, levels)
        assert (said is None) == (expected is None), (mesh, support, real, form, window, levels, said)
        served += said is None
        if said is not None:
            assert expected in said
            reasons.add(expected)
    assert served > 1000
    assert len(reasons) == 2


@pytest.mark.backends("cuda", "opencl")
def test_supports_and_sizes_out_of_reach_are_declined_in_words(backend):
    for support in (1, 9, 16):
        assert Walk.declines(asked(backend, MESHES[2], support, "float32")) == "supports of 2 to 8 nodes"
    many = 2**32
    assert Walk.declines(asked(backend, MESHES[2], 4, "float32", many - 1)) is None
    assert Walk.declines(asked(backend, MESHES[2], 4, "float32", many)) == "2**32 particles or more"
    long = pm.Mesh((block_order.MOST_BLOCKS_ALONG_X + 1, 2, 2), (1.0, 1.0, 1.0))
    assert Walk.declines(asked(backend, long, 4, "float32", levels=4)) == "more than 16384 blocks along x"
    assert Walk.declines(asked(backend, long, 4, "float32", levels=6)) is None
    large = pm.Mesh((16384, 16384, 16384), (1.0, 1.0, 1.0))
    assert "2**32 blocks or more" in Walk.declines(asked(backend, large, 8, "float32"))
    # Fewer blocks, but where lines are short, there are as many steps of a walk.
    wall = pm.Mesh((1, 2**17, 2**17), (1.0, 1.0, 1.0))
    assert block_order.blocks_of(axes_of(wall, pm.bspline(8)), (1, 1, 8)).total == 2**31
    assert "2**31 lines of blocks" in Walk.declines(asked(backend, wall, 8, "float32", patch=16, levels=8))
    wall = pm.Mesh((2, 2**16, 2**17), (1.0, 1.0, 1.0))
    assert "2**32 blocks or more" in Walk.declines(asked(backend, wall, 8, "float32", patch=16, levels=8))
    wall = pm.Mesh((1, 2**14, 2**17), (1.0, 1.0, 1.0))
    assert Walk.declines(asked(backend, wall, 8, "float32", patch=16, levels=8)) is None


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_is_chosen_changes_nothing_but_rounding(backend, real, request):
    mesh, window = MESHES[2], pm.bspline(4)
    rng = np.random.default_rng(7)
    x, q = (rng.random((80, 3)) * mesh.box.lengths).astype(real), rng.normal(size=80).astype(real)
    expected, most = oracle.spread(mesh, window, x, q), oracle.spread(mesh, window, x, np.abs(q)).max()
    combinations = list(itertools.product(FORMS, WINDOWS, LEVELS, (True, False)))
    if backend.name == "opencl" and request.config.thins:  # PoCL compiles slowly
        combinations = [("matrix", 8, 8, False), ("multiply", 8, 7, True), ("multiply", 16, 5, True)]
    for form, tiles, levels, fragments in combinations:
        options = {"form": form, "patch": tiles, "levels": levels}
        problem = asked(backend, mesh, 4, real, **options)
        options = {**problem.options["walk"], "fragments": fragments, "chunk": 40}
        plan = pm.Plan(mesh, window, method="walk", options={"walk": options}, backend=backend.name, dtype=real)
        plan.set_positions(backend.array(x))
        if Walk.declines(problem):
            with pytest.raises(pm.MethodNotSuitable, match="levels"):
                plan.spread(backend.array(q))
            continue
        result = backend.host(plan.spread(backend.array(q)))
        tolerance = 1e-14 if real == "float64" else 2e-6  # places in cells are rounded, and sums, in any order
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * most, err_msg=str(options))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"form": "tensor"}, "is 'tensor'; give one of None, 'matrix', 'multiply'"),
        ({"patch": 12}, "is 12; give one of None, 8, 16"),
        ({"levels": 9}, "is 9; give an integer from 2 to 8"),
        ({"chunk": 31}, "is 31; give an integer from 32 to 1,048,575"),
        ({"fragments": 1}, "is 1; give one of True, False"),
    ],
)
def test_what_is_not_allowed_is_reported(given, words):
    with pytest.raises(ValueError, match=words):
        pm.Plan(MESHES[2], "bspline4", options={"walk": given})


# ---- what the compiler makes of it -----------------------------------------------------------------------------------


def key_of(
    monkeypatch, real, support, channels, *, gradient=False, interleaved=False, shape=(16, 16, 16), method="walk",
    count=5, **options,
):  # fmt: skip
    """File, name and defines of the kernel that a call takes; nothing runs."""
    mesh = pm.Mesh(shape, (1.0, 1.0, 1.0))
    plan = pm.Plan(mesh, f"bspline{support}", method=method, options={method: options}, dtype=real)
    device, batch = Device.of("opencl"), () if channels == 1 else (channels,)
    positions = device.array(np.full((count, 3), 0.5, real))
    out = device.array(np.zeros((*batch, *shape), real), "interleaved" if interleaved else "planar")
    values = device.array(np.ones((*batch, count, 3) if gradient else (*batch, count), real))

    def call():
        plan.set_positions(positions, check=False)
        (plan.spread_gradient if gradient else plan.spread)(values, out=out)

    return ptx.kernel_of(monkeypatch, "spread_walk", call)


SINGLE = {"m16n8k8.row.col.f32.tf32"}
WIDE = {"m16n8k8.row.col.f64", "m16n8k4.row.col.f64"}  # float64: eight particles, or a last four


@pytest.mark.parametrize(
    ("real", "support", "channels", "more", "matrix", "adds"),
    [
        case("float32", 6, 1, {"form": "matrix"}, SINGLE, "v2.f32", id="real"),
        case("float32", 6, 1, {"form": "matrix", "shape": (16, 16, 15)}, SINGLE, "f32", id="odd"),
        case(
            "float32", 4, 4, {"form": "matrix", "interleaved": True}, SINGLE, "v4.f32",
            id="four beside",
        ),
        case("float32", 5, 1, {"form": "matrix", "gradient": True}, SINGLE, "v2.f32", id="slopes"),
        case("float32", 6, 1, {"form": "multiply"}, set(), "v2.f32", id="multiply"),
        case("float32", 6, 1, {"form": "matrix", "patch": 8}, SINGLE, "f32", id="narrow"),
        case(
            "float32", 4, 4, {"form": "matrix", "patch": 8, "interleaved": True}, SINGLE,
            "v4.f32", id="four beside, narrow",
        ),
        case("float64", 6, 1, {"form": "matrix"}, WIDE, "f64", id="double"),
        case("float64", 4, 2, {"form": "matrix", "patch": 16}, WIDE, "f64", id="double, two tiles"),
    ],
)  # fmt: skip
def test_registers_matrix_instructions_and_vectors_of_adds(monkeypatch, real, support, channels, more, matrix, adds):
    text = ptx.ptx(*key_of(monkeypatch, real, support, channels, **more))
    assert set(re.findall(r"mma\.sync\.aligned\.(\w+\.row\.col\.f\d\d(?:\.tf32)?)", text)) == matrix
    kinds = set(re.findall(r"\b(?:red|atom)\.(?:relaxed\.gpu\.)?global\.(?:gpu\.)?add\.((?:v\d\.)?\w+)", text))
    assert kinds == {adds}
    assert not re.search(r"\b(?:ld|st)\.local|\.local\s+\.align", text)  # what is indexed by constants is in registers


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("real", "channels", "patch", "gradient", "warps"),
    [
        case("float32", 4, 16, False, 4, id="values"),
        case("float64", 4, 16, False, 4, id="double values"),
        case("float32", 2, 16, True, 3, id="slopes"),
        case("float32", 4, 16, True, 2, id="more slopes"),
        case("float64", 1, 16, True, 4, id="double slopes"),
        case("float64", 2, 16, True, 2, id="two double slopes"),
        case("float64", 4, 16, True, 1, id="more double slopes"),
    ],
)
def test_rows_fit_local_memory(monkeypatch, real, channels, patch, gradient, warps):
    # PoCL has one warp a group; on GPUs a group has four, or as many as there is room for.
    backend = Device.of("opencl").library
    monkeypatch.setattr(backend, "group_size", cuda.CudaBackend.group_size)
    monkeypatch.setattr(backend, "local_bytes", 48 << 10)
    file, name, defines = key_of(monkeypatch, real, 6, channels, gradient=gradient, patch=patch, form="matrix")
    assert defines["WARPS"] == warps
    assert name.encode() in cuda.compile_only(file, defines, 90)


@pytest.mark.parametrize("spreads", [True, False])
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_chunks_are_whole_batches_and_keep_far_fields_near(spreads, real):
    for count, nodes, support, reals in itertools.product(
        (0, 1, 33, 10**5, 10**6, 10**7, 2**32 - 1), (4, 64, 256, 1024), (2, 4, 6, 8), (1, 2, 4)
    ):
        mesh, window, dtype = pm.Mesh((nodes,) * 3, (1.0,) * 3), pm.bspline(support), np.dtype(real)
        chip = SimpleNamespace(units=132, facts=lambda: {"HAS_MMA": 1})
        plan = SimpleNamespace(
            mesh=mesh, window=window, axes=axes_of(mesh, window), dtype=dtype, backend=chip, count=count
        )
        held = patch.patch_of(plan, dict.fromkeys(patch.OPTIONS), count)
        chunk = patch.chunk_of(plan, held, reals, spreads=spreads)
        assert chunk % 32 == 0
        assert 32 <= chunk <= 1024
        at_once, field = 132 * 4 * patch.resident(held, reals), nodes**3 * reals * dtype.itemsize
        alive = (chunk - 32) * at_once / max(count, 1) * field
        assert chunk <= 64 or field <= patch.CACHED or alive <= (16e6 if spreads else 5e6)
