# SPDX-License-Identifier: BSD-3-Clause
"""The examples run, and what they find is right; how long it takes is not looked at."""

import runpy
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "examples"


def test_lanczos_finds_the_square_root(backend, capsys):
    lanczos = runpy.run_path(str(FOLDER / "lanczos.py"))
    words = ["--particles", "300", "--mesh", "8", "--backend", backend.name]
    errors = lanczos["main"](words)
    assert errors["agreement"] < 1e-10
    assert errors["residual"] < 1e-6
    assert "applications" in capsys.readouterr().out


def test_lanczos_of_a_matrix_is_its_square_root():
    square_root = runpy.run_path(str(FOLDER / "lanczos.py"))["square_root"]
    rng = np.random.default_rng(7)
    a = rng.normal(size=(12, 12))
    a = a @ a.T + np.eye(12)
    values, vectors = np.linalg.eigh(a)
    root = vectors * np.sqrt(values) @ vectors.T
    z = rng.normal(size=12)
    np.testing.assert_allclose(square_root(lambda v: a @ v, z, 12), root @ z, rtol=1e-7)
    np.testing.assert_allclose(square_root(lambda v: 4 * v, z, 12), 2 * z, rtol=1e-12)  # one step is enough


def test_water_keeps_its_energy(capsys):
    water_box = runpy.run_path(str(FOLDER / "water_box.py"))
    results = water_box["main"](["--minimise", "4", "--steps", "8", "--step", "0.02"])
    assert results["fall"] > 1000
    assert results["fluctuation"] < 2e-6
    assert "total energy: drift" in capsys.readouterr().out


def test_water_is_pushed_down_the_slope_of_its_energy():
    water = runpy.run_path(str(FOLDER / "water_box.py"))["Water"](1e-7)
    x, step = water.positions, np.zeros_like(water.positions)
    step[[0, 1, 302, 3165]] = np.random.default_rng(3).normal(size=(4, 3)) * 1e-5
    slope = (water(x + step)[0] - water(x - step)[0]) / 2
    np.testing.assert_allclose(-(water(x)[1] * step).sum(), slope, rtol=1e-5)


def test_a_wave_of_spheres_reaches_the_beach(capsys):
    wave = runpy.run_path(str(FOLDER / "granular_wave.py"))
    results = wave["main"](["--count", "240", "--falls", "3"])
    assert results["farthest"] > wave["FOOT"]
    assert 0.2 < results["left"] < 0.6  # of the energy; friction and impacts have taken the rest
    assert len(capsys.readouterr().out.splitlines()) == 12
