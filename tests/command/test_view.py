# SPDX-License-Identifier: BSD-3-Clause
"""Fields on a page: what is shown, and what is missing or damaged is one line."""

import sys

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.command import view
from particlemesh.command.view import Shown

SKEWED = pm.Mesh((12, 10, 8), pm.Box([[2.0, 0, 0], [0.5, 2.0, 0], [0, 0.3, 2.0]], origin=(1.0, 0, 0)))


@pytest.fixture
def pyvista():
    return pytest.importorskip("pyvista", reason="PyVista is not installed")


def ball(mesh):
    index = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in mesh.shape), indexing="ij"))
    return 1 - np.sqrt((index**2).sum(axis=0))


def test_the_scene_has_the_box_and_the_surface(pyvista):
    plotter = view.scene(Shown(ball(SKEWED), SKEWED, "rho"), 0.5, off_screen=True)
    low, high = np.reshape(plotter.bounds, (3, 2)).T
    np.testing.assert_allclose(low, (1.0, 0, 0), atol=1e-6)
    np.testing.assert_allclose(high, (3.5, 2.3, 2.0), atol=1e-6)
    assert len(plotter.actors) >= 3  # surface, edges, words
    plotter.close()
    with pytest.raises(ValueError, match="no surface at level 7"):
        view.scene(Shown(ball(SKEWED), SKEWED, "rho"), 7.0, off_screen=True)
    with pytest.raises(ValueError, match="not finite"):
        view.scene(Shown(np.full(SKEWED.shape, np.nan), SKEWED, "rho"), None, off_screen=True)
    with pytest.raises(ValueError, match="1-D"):
        view.scene(Shown(np.ones(4), pm.Mesh(4, 1.0), "rho"), None, off_screen=True)


@pytest.mark.filterwarnings("ignore")  # of the libraries that write pages
@pytest.mark.parametrize("d", [2, 3])
def test_without_a_display_there_is_a_page(pyvista, monkeypatch, tmp_path, d):
    pytest.importorskip("trame", reason="trame is not installed")
    pytest.importorskip("trame_vtk", reason="trame-vtk is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(view, "has_display", lambda: False)
    mesh = SKEWED if d == 3 else pm.Mesh((12, 10), (1.0, 1.0))
    page = view.show(Shown(ball(mesh), mesh, "rho"))
    assert page.stat().st_size > 100_000 and page.read_text()[:15].lower() == "<!doctype html>"
    assert [p.name for p in page.parent.iterdir()] == ["view.html"]


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyvista", None)
    with pytest.raises(ImportError, match=r"view needs PyVista: pip install pyvista trame-pyvista"):
        view.show(Shown(ball(SKEWED), SKEWED, "rho"), tmp_path / "a.html")
    with pytest.raises(ValueError, match=r"must end in \.html"):
        view.show(Shown(ball(SKEWED), SKEWED, "rho"), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(5, 4, 3), (6, 1, 4)])
def test_image_data_is_read(pyvista, tmp_path, shape):
    image = pyvista.ImageData(dimensions=shape, spacing=(0.5, 1.0, 2.0), origin=(1.0, 2.0, 3.0))
    values = np.random.default_rng(1).random(shape)
    image.point_data["rho"] = values.ravel(order="F")
    image.save(tmp_path / "a.vti")
    shown = view.read_vti(tmp_path / "a.vti")
    np.testing.assert_array_equal(shown.values, values.squeeze())
    assert shown.name == "rho" and not any(shown.mesh.periodic)
    kept = [axis for axis in range(3) if shape[axis] > 1]
    for axis, whole in enumerate(kept):
        np.testing.assert_allclose(
            shown.mesh.nodes(axis), (1.0, 2.0, 3.0)[whole] + np.arange(shape[whole]) * (0.5, 1.0, 2.0)[whole]
        )


@pytest.mark.parametrize("content", [b"", b"<VTKFile", b"nothing"])
def test_damaged_image_data_is_said(pyvista, tmp_path, content):
    path = tmp_path / "a.vti"
    with pytest.raises(ValueError, match="does not exist"):
        view.read_vti(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.vti (cannot be read|has no array)"):
        view.read_vti(path)
