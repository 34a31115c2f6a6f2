# SPDX-License-Identifier: BSD-3-Clause
"""Boxes and frames are those of the file, whatever its order of memory and its other columns."""

import re

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import open_particles, read_particles, spread_particles


def test_a_box_in_fortrans_order_and_columns_called_like_boxes(tmp_path):
    matrix = np.array([[2.0, 0.5, 0.1], [0.0, 2.0, 0.2], [0.0, 0.0, 3.0]])
    x = np.random.default_rng(1).random((5, 3))
    np.savez(tmp_path / "f.npz", positions=x, box=np.asfortranarray(matrix), lengths=np.arange(5.0))
    with open_particles(tmp_path / "f.npz", values="lengths") as particles:
        assert np.array_equal(particles.box().matrix, matrix)
        (chunk,) = particles.chunks()
        assert np.array_equal(np.ravel(chunk.values), np.arange(5.0))


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


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("name", ["lengths", "cell"])
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_as_many_numbers_as_particles_are_a_column(count, name, suffix, tmp_path):
    x, numbers = np.random.default_rng(1).random((count, 3)), np.arange(1.0, count + 1)
    path = tmp_path / f"few{suffix}"
    save(path, positions=x, **{name: numbers})
    assert read_particles(path).box is None  # it may be a column
    np.testing.assert_array_equal(read_particles(path, values=name).values, numbers)
    save(path, positions=x, box=[2.0, 3.0, 4.0], **{name: numbers})
    particles = read_particles(path, values=name)
    assert particles.box == pm.Box([2.0, 3.0, 4.0])
    np.testing.assert_array_equal(particles.values, numbers)


def save(path, **arrays):
    if path.suffix == ".npz":
        return np.savez(path, **arrays)
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return None


CELL = [[4.0, 0, 0], [1, 5, 0], [0, 1, 6]]
CUBE = pm.Box([2.0, 2.0, 2.0])


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize(
    ("arrays", "box"),
    [
        (dict(box=2.0), CUBE), (dict(box=[2.0]), CUBE), (dict(box=[[2.0]]), CUBE), (dict(boxsize=2), CUBE),
        (dict(cell=CELL), pm.Box(CELL)), (dict(lengths=[4.0, 5, 6]), pm.Box([4.0, 5, 6])),
        (dict(box=[4.0, 5, 6, 90, 90, 90]), pm.Box([4.0, 5, 6])), (dict(box=np.zeros(3)), None),
        (dict(box=2.0, origin=1.0, periodic=False), pm.Box([2.0] * 3, origin=[1.0] * 3, periodic=False)),
    ],
)  # fmt: skip
def test_a_length_is_that_of_a_cube_beside_columns_of_any_width(arrays, box, suffix, tmp_path):
    random = np.random.default_rng(1)
    path = tmp_path / f"few{suffix}"
    save(path, positions=random.random((5, 3)), fractions=random.random((5, 10)), **arrays)
    assert read_particles(path).box == box


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_size_in_the_header_has_the_axes_of_the_positions(ndim, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "few.h5", "w") as file:
        file["PartType0/Coordinates"], file["PartType0/GFM_Metals"] = np.zeros((4, ndim)), np.zeros((4, 10))
        file.create_group("Header").attrs["BoxSize"] = 2.0
    assert read_particles(tmp_path / "few.h5").box == pm.Box([2.0] * ndim)
    with h5py.File(tmp_path / "few.h5", "a") as file:
        file["Header"].attrs["BoxSize"] = 0.0  # of simulations without a box
    assert read_particles(tmp_path / "few.h5").box is None


def test_the_box_of_h5md_is_that_of_its_group(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        for group, length in (("a", 1.0), ("b", 2.0)):
            file[f"particles/{group}/position/value"] = np.zeros((2, 3, 3))
            file[f"particles/{group}/box/edges/value"] = np.full((2, 3), length)
            file[f"particles/{group}/box"].attrs["boundary"] = ["periodic", "none", "periodic"]
    for group, length in (("a", 1.0), ("b", 2.0)):
        with open_particles(tmp_path / "f.h5", positions=f"{group}/position") as particles:
            assert particles.box(0) == pm.Box([length] * 3, periodic=(True, False, True))


def test_columns_called_like_numbers(tmp_path):
    np.savetxt(tmp_path / "few.txt", np.c_[np.eye(3), [7.0, 8.0, 9.0]])
    for values, expected in (("3", [7, 8, 9]), (3, [3, 3, 3]), ("3.0", [3, 3, 3]), ("2,3", [[0, 0, 1], [7, 8, 9]])):
        particles = read_particles(tmp_path / "few.txt", positions="0,1,2", values=values)
        np.testing.assert_array_equal(particles.values, expected)
    said = "no column 7, but 0, 1, 2, 3: give one of these as values (--values), or 7.0 for the number"
    with pytest.raises(ValueError, match=re.escape(said)):
        open_particles(tmp_path / "few.txt", positions="0,1,2", values="7")


def test_frames_behind_empty_lines(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    frames = [f'1\nLattice="2 0 0 0 2 0 0 0 2"\nH {n} 0 0\n' for n in range(3)]
    path = tmp_path / "few.xyz"
    path.write_bytes(b"\xef\xbb\xbf" + "\n  \n".join(frames).encode() + b"\r\n\n")
    with open_particles(path) as particles:
        assert particles.frames == 3
        for frame in (2, 0, 1):
            (chunk,) = particles.chunks(frame=frame)
            assert chunk.positions.tolist() == [[frame, 0, 0]]
    for text, said in (("1\n\n", "frame 0 ends early"), (frames[0] + "H\n", "frame 1 begins with 'H'; a number"),
                       ("-1\n", "begins with '-1'; a number of atoms")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            open_particles(path)


@pytest.mark.parametrize("angles", [(90, 90, 180), (200, 90, 90), (90, 270, 90), (0, 90, 90), (90, 90, -60),
                                    (1.57, 1.57, 1.57), (60, 60, 4)])  # fmt: skip
def test_angles_of_cells_are_below_180_degrees(angles, tmp_path):
    save(tmp_path / "f.npz", positions=np.zeros((2, 3)), box=[1.0, 1, 1, *angles])
    with pytest.raises(ValueError, match="give 3 angles in degrees, of 5 or more and below 180"):
        read_particles(tmp_path / "f.npz")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [[2.0], [[2.0, 0.3], [0.1, 3.0]]], ids=["line", "tilted"])
def test_particles_are_beyond_faces_in_the_precision_of_the_plan(dtype, rows, tmp_path):
    """What is lost and what is on the mesh are all of the values, for positions that rounding moves across a face."""
    box = pm.Box(rows, origin=[0.1] * len(rows), periodic=False)
    mesh = pm.Mesh([6] * box.ndim, box)
    steps = np.arange(-30, 31) * 2.0**-24
    fractions = np.concatenate([np.repeat(ends + steps[:, None], box.ndim, axis=1) for ends in (0.0, 0.5, 1.0)])
    np.savez(tmp_path / "f.npz", positions=box.origin + fractions @ box.matrix, q=1.0 + np.arange(len(fractions)))
    with open_particles(tmp_path / "f.npz", values="q") as particles:
        field, account = spread_particles(particles, mesh, "cic", size=50, outside="lose", dtype=dtype)
    assert 0 < account.beyond < len(fractions)
    total = account.values - account.lost
    assert field.sum(dtype=np.float64) == pytest.approx(total, rel=1e-5 if dtype == "float32" else 1e-12)


def test_positions_that_are_too_far_for_the_precision_are_reported(tmp_path):
    np.savez(tmp_path / "f.npz", x=[0.5, 1e39])
    with open_particles(tmp_path / "f.npz") as particles, pytest.raises(ValueError, match="not finite in float32"):
        spread_particles(particles, pm.Mesh(6, 2.0), "cic", dtype="float32", outside="lose")
