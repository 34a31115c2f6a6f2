# SPDX-License-Identifier: BSD-3-Clause
"""Meshes of openPMD have their axes in any order, and particles are read whatever the meshes are."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import read_field, read_particles

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
VALUES = np.random.default_rng(1).random((2, 3, 4))  # by x, y, z
SPACING, CORNER, PLACE = (
    {"x": 0.5, "y": 1.0, "z": 2.0},
    {"x": -1.0, "y": 3.0, "z": 0.0},
    {"x": 0.0, "y": 0.5, "z": 0.25},
)
MESH = pm.Mesh((2, 3, 4), (1.0, 3.0, 8.0), origin=(-1.0, 3.0, 0.0), offset=(0.0, 0.5, 0.25))


def write(path, labels, order="C", geometry="cartesian", **more):
    """Write a mesh whose datasets have these axes; attributes are in the order of the writing program."""
    axes = labels[::-1] if order == "F" else labels
    with h5py.File(path, "w") as file:
        file.attrs.update(openPMD="1.1.0", basePath="/data/%T/", meshesPath="meshes/", particlesPath="particles/")
        for name in "xyz":
            file[f"data/0/particles/e/position/{name}"] = np.arange(5.0)
        record = file.create_group("data/0/meshes/E")
        for component in "zxy":
            data = np.transpose(VALUES + "xyz".index(component), ["xyz".index(axis) for axis in labels])
            part = record.create_dataset(component, data=data)
            part.attrs.update(unitSI=1.0, position=[PLACE[axis] for axis in axes])
        record.attrs.update(
            geometry=geometry, dataOrder=order, axisLabels=list(axes), gridUnitSI=1.0,
            gridSpacing=[SPACING[axis] for axis in axes], gridGlobalOffset=[CORNER[axis] for axis in axes],
        )  # fmt: skip
        record.attrs.update(more)
    return path


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("labels", ["xyz", "zyx", "yzx"])
def test_axes_come_in_the_order_x_y_z(labels, order, tmp_path):
    path = write(tmp_path / "f.h5", labels, order)
    field = read_field(path)
    assert field.mesh == MESH and field.values.flags.c_contiguous
    np.testing.assert_array_equal(field.values, [VALUES, VALUES + 1, VALUES + 2])
    particles = read_particles(path)
    assert particles.box == MESH.box and particles.positions.shape == (5, 3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (dict(geometry="thetaMode"), "a mesh has geometry thetaMode and data order C; cartesian and C or F"),
        (dict(axisLabels=["x", "y"]), "a mesh has the axes x, y and 3 dimensions"),
        (dict(axisLabels=["x", "y", "x"]), "a mesh has the axes x, y, x and 3 dimensions"),
        (dict(gridSpacing=[1.0, 2.0]), "a mesh has 2 numbers for its 3 axes"),
    ],
)
def test_meshes_that_are_none_of_ours_do_not_matter_to_particles(wrong, said, tmp_path):
    path = write(tmp_path / "f.h5", "xyz", **wrong)
    particles = read_particles(path)
    assert particles.box is None and len(particles.positions) == 5
    with pytest.raises(ValueError, match=said) as caught:
        read_field(path)
    assert "Is the file whole" not in str(caught.value)


def test_sizes_in_attributes_are_the_box_where_there_is_no_mesh(tmp_path):
    path = write(tmp_path / "f.h5", "xyz", geometry="other")
    with h5py.File(path, "a") as file:
        file.attrs["BoxSize"] = 7.0
    assert read_particles(path).box == pm.Box([7.0] * 3)
    with h5py.File(path, "a") as file:
        file["data/0/particles/e/position/x"].attrs["unitSI"] = 1e-6  # no attribute says of which unit the size is
    assert read_particles(path).box is None


def test_the_same_value_at_all_nodes_and_staggered_components(tmp_path):
    path = write(tmp_path / "f.h5", "zyx")
    with h5py.File(path, "a") as file:
        del file["data/0/meshes/E"]["x"]
        constant = file["data/0/meshes/E"].create_group("x")
        constant.attrs.update(value=3.0, shape=[4, 3, 2], unitSI=2.0, position=[0.25, 0.5, 0.0])
    field = read_field(path)
    np.testing.assert_array_equal(field.values, [np.full((2, 3, 4), 6.0), VALUES + 1, VALUES + 2])
    with h5py.File(path, "a") as file:
        file["data/0/meshes/E/y"].attrs["position"] = [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="the components of E are at different places of a cell"):
        read_field(path)
