# SPDX-License-Identifier: BSD-3-Clause
"""The physics and the picture of the demo."""

import numpy as np
import pytest

from particlemesh.command import demo


def few_charges(count=40, seed=1):
    random = np.random.default_rng(seed)
    charges = random.normal(size=count)
    return random.uniform(0, 2.0, size=(count, 3)), charges - charges.mean()


def test_direct_potential_of_a_dipole_is_the_sum_over_modes():
    box = np.array([[2.0, 0, 0], [0.5, 1.8, 0], [-0.3, 0.4, 2.2]])
    positions, charges = np.array([[0.1, 0.2, 0.3], [0.7, 1.1, 0.5]]), np.array([1.0, -1.0])
    expected = np.zeros(2)
    reciprocal = 2 * np.pi * np.linalg.inv(box).T
    for n in np.ndindex(13, 13, 13):
        k = (np.array(n) - 6) @ reciprocal
        if k @ k > 0:
            phase = np.exp(1j * positions @ k)
            weight = 4 * np.pi / np.linalg.det(box) * np.exp(-(k @ k) / 4) / (k @ k)
            expected += weight * (phase.conj() * (charges @ phase)).real
    np.testing.assert_allclose(demo.direct_potential(box, positions, charges, 1.0, 6), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_error_falls_with_the_order_of_the_window(order):
    positions, charges = few_charges()
    system = {"box": np.diag([2.0, 2.2, 1.9]), "positions": positions, "charges": charges}
    errors = demo.mesh_errors(system, windows=[f"bspline{order}"], sizes=(32, 64))
    (_, coarse), (_, fine) = errors[f"bspline{order}"]
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.7)
    assert fine < 10.0 ** (1 - order)


def test_density_slab_holds_the_charge_of_its_slab():
    positions, charges = few_charges()
    system = {"box": np.diag([2.0, 2.0, 2.0]), "positions": positions, "charges": charges + 0.1}
    density, extent = demo.density_slab(system, size=16, thickness=2.0)
    assert density.shape == (16, 16) and extent == (0.0, 2.0, 0.0, 2.0)
    assert density.mean() * 8.0 == pytest.approx(system["charges"].sum(), rel=1e-12)


def test_the_picture_is_a_png_and_leaves_pyplot_alone(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    before = matplotlib.rcParams["font.size"]
    from particlemesh.command import pictures

    density = np.sin(np.linspace(0, 6, 20))[:, None] * np.cos(np.linspace(0, 6, 24))
    errors = {"a": [(16, 1e-2), (32, 1e-3)], "b": [(16, 1e-2), (32, 1.1e-3)], "exact": [(16, 0.0)]}
    pictures.demo(tmp_path / "a.png", density, (0, 2, 0, 2.4), errors, "Title", "e/nm³")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    pictures.demo(tmp_path / "b.png", 0 * density, (0, 2, 0, 2.4), {}, "Nothing", "e/nm³")
    assert matplotlib.rcParams["font.size"] == before
