# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints that continue with the same bits, and trajectories as their libraries read them."""

import os
import sys

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.apps.brownian import WCA, BrownianDynamics, Drag, HarmonicBonds
from particlemesh.apps.files import trajectory

SKEWED = [[6.0, 0.0, 0.0], [1.5, 5.0, 0.0], [-1.0, 2.0, 5.5]]
BOX = pm.Box(SKEWED, origin=(-1.0, 0.5, 2.0))


def needed(name):
    return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


def chains(dtype="f8", integrator="midpoint", box=BOX, soft=True, **options):
    """Soft spheres in pairs, far enough apart, after a few steps."""
    lattice = np.stack(np.meshgrid(*[np.arange(3) / 3] * 3, indexing="ij"), -1).reshape(-1, 3)[:26]
    x = (lattice @ BOX.matrix + BOX.origin).astype(dtype)
    bonds = HarmonicBonds(np.arange(26).reshape(-1, 2), np.linspace(1, 2, 13), 1.2, BOX)
    motion = BrownianDynamics(
        x, Drag(np.linspace(0.4, 0.6, 26), box=box), [WCA(BOX, 1.0, 1.0), bonds] if soft else bonds, time_step=0.003,
        seed=2**100, integrator=integrator, **options,
    )  # fmt: skip
    motion.run(4)
    return motion


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_checkpoint_continues_with_the_same_bits(tmp_path, integrator, dtype):
    needed("h5py")
    motion = chains(dtype, integrator, soft=dtype == "f8", temperature=0.9)
    motion.save(tmp_path / "state.h5")
    motion.run(6)
    other = BrownianDynamics.load(tmp_path / "state.h5")
    assert other.step == 4 and other.time == pytest.approx(0.012) and other.box == motion.box
    assert (other.seed, other.temperature) == (2**100, 0.9)
    other.run(6)
    assert other.positions.dtype == dtype
    np.testing.assert_array_equal(other.positions, motion.positions)
    assert [p.name for p in tmp_path.iterdir()] == ["state.h5"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_devices_are_not_replaced(tmp_path):
    mesh = pm.Mesh((2, 2), (1.0, 1.0))
    for name, write in {
        "state.h5": BrownianDynamics(np.zeros((1, 3)), Drag(), time_step=0.1).save,
        "field.npz": lambda path: files.write_field(path, np.ones((2, 2)), mesh, overwrite=True),
    }.items():
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name} is a device or a pipe"):
            write(tmp_path / name)
        assert (tmp_path / name).is_fifo()


def test_things_of_yours_are_given_again(tmp_path):
    needed("h5py")

    def pull(x):
        return -x

    class Twice(Drag):
        pass

    motion = BrownianDynamics(np.ones((3, 3)), Twice(), [pull], time_step=0.1, seed=1)
    motion.run(2)
    motion.save(tmp_path / "a.h5")
    with pytest.raises(ValueError, match="name of a Twice: give load.* mobility= again"):
        BrownianDynamics.load(tmp_path / "a.h5")
    with pytest.raises(ValueError, match="name of a function: give load.* forces= again"):
        BrownianDynamics.load(tmp_path / "a.h5", mobility=Twice())
    other = BrownianDynamics.load(tmp_path / "a.h5", Twice(), [pull])
    for each in (motion, other):
        each.run(3)
    np.testing.assert_array_equal(other.positions, motion.positions)
    motion = BrownianDynamics(np.ones((3, 3)), Drag(), time_step=0.1)
    motion.save(tmp_path / "a.h5")  # replaces the other one
    assert BrownianDynamics.load(tmp_path / "a.h5").forces is None


def recorded(motion, path):
    """Return the steps, times and positions of a file that several runs have written, the present state first."""
    expected = [(motion.step, motion.time, motion.positions)]
    for _ in range(3):
        motion.run(2, every=2, trajectory=path)  # continued each time
        expected.append((motion.step, motion.time, motion.positions))
    return expected


def test_gsd(tmp_path):
    hoomd = needed("gsd.hoomd")
    expected = recorded(chains(), tmp_path / "a.gsd")
    with hoomd.open(tmp_path / "a.gsd") as file:
        frames = list(file)
    for frame, (step, time, positions) in zip(frames, expected, strict=True):
        assert frame.configuration.step == step
        assert frame.log["time"] == pytest.approx(time)
        lx, ly, lz, xy, xz, yz = frame.configuration.box
        rows = np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])
        np.testing.assert_allclose(rows, SKEWED, rtol=1e-6)
        centre = BOX.origin + BOX.matrix.sum(0) / 2
        np.testing.assert_allclose(
            frame.particles.position + frame.particles.image @ rows + centre, positions, atol=1e-5
        )
        fractions = frame.particles.position @ np.linalg.inv(rows)
        assert abs(fractions).max() <= 0.5 + 1e-6
        np.testing.assert_allclose(frame.particles.diameter, 2 * np.linspace(0.4, 0.6, 26), rtol=1e-6)


def test_gsd_needs_its_kind_of_box(tmp_path):
    needed("gsd.hoomd")
    for box, said in ((None, "needs a box"), (np.array(SKEWED).T, "turn the box")):
        motion = BrownianDynamics(np.zeros((2, 3)), Drag(box=box), time_step=0.1)
        with pytest.raises(ValueError, match=said):
            motion.run(1, trajectory=tmp_path / "a.gsd")
        assert motion.step == 0 and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ending", "module"), [(".h5", "h5py"), (".gsd", "gsd.hoomd"), (".vtu", "meshio"), (".xyz", "ase.io")]
)
def test_frames_are_multiples_and_files_of_the_future_are_refused(tmp_path, ending, module):
    needed(module)
    path = tmp_path / f"a{ending}"

    def new(count=4):
        return BrownianDynamics(np.zeros((count, 3)), Drag(box=(3.0, 3.0, 3.0)), time_step=0.1, seed=1)

    motion = new()
    motion.run(7, every=3, trajectory=path)  # 0, 3, 6
    sizes = {each: each.stat().st_size for each in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="up to step 6, and this simulation is at step 0"):
        new().run(1, trajectory=path)
    other = new(5)
    other.run(20)
    with pytest.raises(ValueError, match="has 4 particles, this simulation 5"):
        other.run(1, trajectory=path)
    assert {each: each.stat().st_size for each in tmp_path.iterdir()} == sizes and other.step == 20
    motion.run(1, every=3, trajectory=path)  # none
    motion.run(1, every=3, trajectory=path)  # 9
    motion.run(0, every=3, trajectory=path)  # is there
    with trajectory.writer(path, motion._frame()) as file:
        assert file.last == 9


def test_missing_libraries_and_unknown_endings(tmp_path, monkeypatch):
    motion = BrownianDynamics(np.zeros((2, 3)), Drag(), time_step=0.1)
    with pytest.raises(ValueError, match=r"ends in .gsd, .h5, .vtu, .xyz"):
        motion.run(1, trajectory="a.dcd")
    for name in ("h5py", "gsd", "gsd.hoomd", "ase", "ase.io", "meshio"):
        monkeypatch.setitem(sys.modules, name, None)
    for ending, package in ((".h5", "h5py"), (".gsd", "gsd"), (".vtu", "meshio")):
        with pytest.raises(ImportError, match=rf"needs {package}: pip install {package}, or 'particlemesh\[io\]'"):
            motion.run(1, trajectory=tmp_path / f"a{ending}")
    with pytest.raises(ImportError, match="a checkpoint needs h5py"):
        motion.save(tmp_path / "a.h5")
    with pytest.raises(ImportError, match="a checkpoint needs h5py"):
        BrownianDynamics.load(tmp_path / "a.h5")
    assert motion.step == 0
