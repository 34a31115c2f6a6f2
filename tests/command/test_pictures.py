# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of fields: which numbers are drawn where, and what cannot be drawn is said."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.command import pictures

TRICLINIC = np.array([[4.0, 0.0, 0.0], [1.5, 3.5, 0.0], [0.8, -0.7, 3.0]])
drawing = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
surfaces = pytest.mark.skipif(
    not any(map(find_spec, pictures.LIBRARIES)), reason="neither scikit-image nor PyVista is installed"
)


def pixel(plane, values, extent, place):
    """The value that a picture has at a place in the paper."""
    s, t = np.linalg.solve(plane.rows.T, np.asarray(place) - plane.corner)
    i = int((s - extent[0]) / (extent[1] - extent[0]) * values.shape[0])
    j = int((t - extent[2]) / (extent[3] - extent[2]) * values.shape[1])
    return values[i, j]


@pytest.mark.parametrize("offset", [0, 0.5, -2.25, 3.75])
@pytest.mark.parametrize("periodic", [True, False])
def test_a_pixel_shows_the_nearest_node(periodic, offset):
    if not periodic and offset not in (0, 0.5):
        pytest.skip("open axes have offsets 0 and 0.5")
    mesh = pm.Mesh((5, 4), (2.0, 3.0), periodic=periodic, origin=(-1.0, 7.0), offset=offset)
    field = np.arange(20.0).reshape(5, 4)
    plane = pictures.flat(mesh, field, "projection", 1, None)
    values, extent = pictures.filled(plane, 100)
    assert extent[0] <= 1e-9 and extent[1] >= 1 - 1e-9 and extent[2] <= 1e-9 and extent[3] >= 1 - 1e-9
    for place in np.random.default_rng(1).random((50, 2)) * (2.0, 3.0) + (-1.0, 7.0):
        away = [mesh.nodes(a) - place[a] for a in range(2)]
        if periodic:
            away = [d - np.rint(d / length) * length for d, length in zip(away, (2.0, 3.0), strict=True)]
        nearest = tuple(int(np.abs(d).argmin()) for d in away)
        assert pixel(plane, values, extent, place) == field[nearest]


def test_pixels_are_averaged_where_there_are_too_many():
    mesh = pm.Mesh((10, 3), (1.0, 1.0), offset=0.5)
    field = np.arange(30.0).reshape(10, 3)
    values, extent = pictures.filled(pictures.flat(mesh, field, "projection", 1, None), 4)
    np.testing.assert_allclose(values, [field[0:3].mean(0), field[3:6].mean(0), field[6:9].mean(0), field[9]])
    np.testing.assert_allclose(extent, (0, 1.2, 0, 1), atol=1e-12)


@pytest.mark.parametrize("axis", range(3))
def test_projections_and_slices_have_the_true_shape(axis):
    """Distances in the paper are those in space: within the plane of a slice, and across the line of sight."""
    mesh = pm.Mesh((3, 4, 5), pm.Box(TRICLINIC, origin=(1.0, -2.0, 3.0)))
    field = np.random.default_rng(2).normal(size=mesh.shape)
    one, two = (n for n in range(3) if n != axis)
    cut = pictures.flat(mesh, field, "slice", axis, None)
    rows = TRICLINIC[[one, two]]
    np.testing.assert_allclose(cut.rows @ cut.rows.T, rows @ rows.T, atol=1e-12)
    seen = pictures.flat(mesh, field, "projection", axis, None)
    sight = TRICLINIC[axis] / np.linalg.norm(TRICLINIC[axis])
    across = rows - np.outer(rows @ sight, sight)
    np.testing.assert_allclose(seen.rows @ seen.rows.T, across @ across.T, atol=1e-12)
    area = abs(np.linalg.det(seen.rows)) / seen.values.size
    assert seen.values.sum() * area == pytest.approx(field.sum() * mesh.node_volume, rel=1e-12)


def test_a_slice_is_the_nearest_layer_of_nodes():
    mesh = pm.Mesh((3, 2, 8), (1.0, 1.0, 4.0), origin=(0, 0, 10.0))
    field = np.broadcast_to(np.arange(8.0), mesh.shape)
    for at, layer in ((None, 4), (10.9, 2), (13.9, 0), (10.0, 0)):
        assert (pictures.flat(mesh, field, "slice", 2, at).values == layer).all()
    with pytest.raises(ValueError, match="at is 9.0; z goes from 10 to 14"):
        pictures.flat(mesh, field, "slice", 2, 9.0)


@drawing
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_picture_of_each_dimension_is_written_as_a_whole(d, tmp_path):
    mesh = pm.Mesh((6, 5, 4)[:d], (1.0, 2.0, 3.0)[:d], periodic=(True, False, True)[:d])
    field = np.random.default_rng(3).normal(size=mesh.shape)
    path = tmp_path / "new" / "field.png"
    pictures.save_picture(path, field, mesh, length_units="nm")
    assert path.read_bytes().startswith(b"\x89PNG")
    pictures.save_picture(path.with_suffix(".svg"), np.ones(mesh.shape), mesh, scale="log", axis=0)
    text = path.with_suffix(".svg").read_text()
    assert text.rstrip().endswith("</svg>")
    assert {p.name for p in path.parent.iterdir()} == {"field.png", "field.svg"}


@drawing
def test_a_triclinic_map_ends_at_the_box(tmp_path):
    from matplotlib.image import imread

    mesh = pm.Mesh((12, 12, 12), TRICLINIC)
    path = tmp_path / "map.png"
    pictures.save_picture(path, np.full(mesh.shape, 3.0) + np.arange(12.0), mesh, "slice", axis="c")
    colours = imread(path)[..., :3]
    coloured = np.ptp(colours, axis=2) > 0.2
    rows = np.flatnonzero(coloured[:, :760].any(axis=1))
    first, last = (np.flatnonzero(coloured[row, :760])[0] for row in (rows[2], rows[-3]))
    assert first - last > 50  # the upper edge of the box is further to the right


@drawing
@surfaces
@pytest.mark.parametrize("library", pictures.LIBRARIES)
def test_the_surface_of_a_ball_closes_across_periodic_faces(library, monkeypatch, tmp_path):
    pytest.importorskip(library, reason=f"{pictures.LIBRARIES[library]} is not installed")
    monkeypatch.setattr(pictures, "find_spec", lambda name: name if name == library else None)
    mesh = pm.Mesh((24, 20, 28), (2.0, 2.0, 2.0), origin=(5.0, 0.0, 0.0), offset=(0.25, 0, 0))
    x = np.stack(np.meshgrid(*(mesh.nodes(a) for a in range(3)), indexing="ij"), axis=-1) - (6.0, 0.0, 1.0)
    field = 1.0 - np.linalg.norm(x - np.rint(x / 2) * 2, axis=-1)  # around a point on the face y = 0
    ((_, points, faces),) = pictures.surfaces(mesh, field, 0.4)
    away = points - (6.0, 0.0, 1.0)
    radius = np.linalg.norm(away - np.rint(away / 2) * 2, axis=1)
    np.testing.assert_allclose(radius, 0.6, atol=0.01)
    corners = points[faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2
    assert area == pytest.approx(4 * np.pi * 0.36, rel=0.02)
    pictures.save_picture(tmp_path / "ball.png", field - 0.4, mesh, "isosurface", level=0.0)
    assert (tmp_path / "ball.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="no surface at level 7: the field goes from"):
        pictures.save_picture(tmp_path / "none.png", field, mesh, "isosurface", level=7.0)
    assert not (tmp_path / "none.png").exists()


def test_half_of_the_field_is_beyond_its_level():
    values = np.array([[[8.0, 1.0, 1.0, 1.0, 1.0, -4.0]]])
    assert pictures.half_level(values) == [8.0]
    assert pictures.half_level(np.array([3.0, -3.0])) == [3.0, -3.0]
    with pytest.raises(ValueError, match="zero everywhere"):
        pictures.half_level(np.zeros(3))


@drawing
def test_a_spectrum_is_drawn_and_an_empty_one_refused(tmp_path):
    k = np.array([0.0, 1.0, 2.0, 4.0, np.nan])
    pictures.save_spectrum(tmp_path / "p.svg", k, [5.0, 3.0, np.nan, 1.0, 1.0], [0.1] * 5)
    text = (tmp_path / "p.svg").read_text()
    assert "shot noise" in text and text.rstrip().endswith("</svg>")
    with pytest.raises(ValueError, match="nothing to draw"):
        pictures.save_spectrum(tmp_path / "q.svg", k, 0 * k)
    assert [p.name for p in tmp_path.iterdir()] == ["p.svg"]


FLAT, CUBE = pm.Mesh((4, 4), (1.0, 1.0)), pm.Mesh((4, 4, 4), (1.0, 1.0, 1.0))
WRONG = [
    (FLAT, np.ones((4, 4)), {"kind": "map"}, "kind is 'map'; allowed are 'projection'"),
    (CUBE, np.ones((4, 4, 4)), {"axis": "w"}, "axis is 'w'; this mesh has the axes x, y, z"),
    (CUBE, np.ones((4, 4, 4)), {"axis": 3}, "axis is 3"),
    (FLAT, -np.ones((4, 4)), {"scale": "log"}, "use 'linear'"),
]


@drawing
@pytest.mark.parametrize(("mesh", "field", "options", "said"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_what_cannot_be_drawn_is_said_and_leaves_no_file(mesh, field, options, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        pictures.save_picture(tmp_path / "a.png", field, mesh, **options)
    assert list(tmp_path.iterdir()) == []


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    field = np.random.default_rng(4).random((4, 4, 4))
    if find_spec("matplotlib"):
        with pytest.raises(ImportError, match="needs scikit-image or PyVista: pip install scikit-image"):
            pictures.save_picture(tmp_path / "a.png", field, CUBE, "isosurface", level=0.5)
        with pytest.raises(ValueError, match=r"must end in one of \.png, \.pdf, \.svg, \.jpg"):
            pictures.save_picture(tmp_path / "a.gif", field, CUBE)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"needs matplotlib: pip install matplotlib, or 'particlemesh\[plot\]'"):
        pictures.save_picture(tmp_path / "a.png", field, CUBE)
    assert list(tmp_path.iterdir()) == []


def _several(path):
    return {
        "spectrum": lambda: pictures.save_spectrum(path, np.arange(1.0, 4), np.ones(3)),
        "map": lambda: pictures.save_picture(path, np.ones((4, 4)), FLAT),
        "demo": lambda: pictures.demo(path, np.eye(4), (0, 1, 0, 1), {"cic": [(8, 0.1), (16, 0.01)]}, "", ""),
    }


@drawing
@pytest.mark.parametrize("name", ["spectrum", "map", "demo"])
def test_a_picture_that_fails_leaves_the_old_one(name, monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    path = tmp_path / "a.png"
    saved = _several(path)
    path.write_bytes(b"old")

    def half(self, part, **options):
        assert part != path
        part.write_bytes(b"half")
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", half)
        with pytest.raises(OSError, match="no space left"):
            saved[name]()
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    saved[name]()
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]
