# SPDX-License-Identifier: BSD-3-Clause
"""What CUDA's compiler makes of the adds of spreading particle by particle: vectors of float32, single float64."""

import re

import numpy as np
import pytest

import particlemesh as pm
import ptx
from devices import Device
from ptx import NVRTC

pytestmark = NVRTC


def key_of(monkeypatch, method, kind, support, shape, order):
    """File, name and defines of the kernel that a call takes; nothing runs."""
    real, device = np.zeros(0, kind).real.dtype, Device.of("opencl")
    batch = (4,) if order == "interleaved" else ()
    plan = pm.Plan(pm.Mesh(shape, (1.0, 1.0, 1.0)), f"bspline{support}", method=method, dtype=real)
    plan.set_positions(device.array(np.full((5, 3), 0.5, real)), check=False)
    values, out = device.array(np.ones((*batch, 5), kind)), device.array(np.zeros((*batch, *shape), kind), order)
    return ptx.kernel_of(monkeypatch, f"spread_{method}", lambda: plan.spread(values, out=out))


EVEN, ODD = (16, 16, 16), (16, 16, 15)


@pytest.mark.parametrize("method", ["particle", "ordered"])
@pytest.mark.parametrize(
    ("kind", "support", "shape", "order", "adds"),
    [
        ("complex64", 4, EVEN, "planar", "v4.f32"),
        ("complex64", 6, EVEN, "planar", "v4.f32"),
        ("complex64", 6, ODD, "planar", "v2.f32"),  # every other row begins between vectors of four
        ("float32", 4, EVEN, "planar", "v2.f32"),
        ("float32", 6, EVEN, "planar", "v2.f32"),
        ("float32", 6, ODD, "planar", "f32"),
        ("float32", 4, ODD, "interleaved", "v4.f32"),  # four values side by side
        ("complex128", 4, EVEN, "planar", "f64"),  # eight bytes have no vector form
        ("complex128", 6, EVEN, "planar", "f64"),
        ("float64", 4, EVEN, "planar", "f64"),
        ("float64", 6, EVEN, "planar", "f64"),
    ],
)
def test_adds_move_what_is_aligned_in_one_instruction(monkeypatch, method, kind, support, shape, order, adds):
    file, name, defines = key_of(monkeypatch, method, kind, support, shape, order)
    assert defines["VECTOR"] == (int(adds[1]) if adds[0] == "v" else 1)  # of float64, lanes beside each other do better
    text = ptx.ptx(file, name, defines)
    widths = re.findall(r"\b(?:red|atom)\.(?:relaxed\.gpu\.)?global\.(?:gpu\.)?add\.((?:v\d\.)?\w+)", text)
    assert set(widths) == {adds}
