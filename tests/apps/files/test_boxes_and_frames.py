# SPDX-License-Identifier: BSD-3-Clause
"""Boxes and frames are those of the file, whatever its order of memory and its other columns."""

import numpy as np
import pytest

from particlemesh.apps.files import open_particles, read_particles


def test_a_box_in_fortrans_order_and_columns_called_like_boxes(tmp_path):
    matrix = np.array([[2.0, 0.5, 0.1], [0.0, 2.0, 0.2], [0.0, 0.0, 3.0]])
    x = np.random.default_rng(1).random((5, 3))
    np.savez(tmp_path / "f.npz", positions=x, box=np.asfortranarray(matrix), lengths=np.arange(5.0))
    with open_particles(tmp_path / "f.npz", values="lengths") as particles:
        assert np.array_equal(particles.box().matrix, matrix)
        (chunk,) = particles.chunks()
        assert np.array_equal(np.ravel(chunk.values), np.arange(5.0))


def test_frames_of_h5md_are_those_of_positions(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    x = np.random.default_rng(1).random((3, 4, 3))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        group = file.create_group("particles/all")
        group["position/value"], group["velocity/value"] = x, x[:1]
    assert np.array_equal(read_particles(tmp_path / "f.h5").positions, x[-1])
    with pytest.raises(ValueError, match="velocity has 1 frames and all/position has 3"):
        read_particles(tmp_path / "f.h5", values="all/velocity")


def test_groups_of_h5md_have_frames_of_their_own(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    x = np.random.default_rng(1).random((3, 4, 3))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        file["particles/a/position/value"], file["particles/b/position/value"] = x, x[:1]
    for group, frames in (("a", 3), ("b", 1)):
        with open_particles(tmp_path / "f.h5", positions=f"{group}/position") as particles:
            assert particles.frames == frames
        assert np.array_equal(read_particles(tmp_path / "f.h5", positions=f"{group}/position").positions, x[frames - 1])
