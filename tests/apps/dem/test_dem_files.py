# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints that continue with the same bits, files that are none, and trajectories as their libraries read them."""

import json
import signal
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import particlemesh as pm
from particlemesh.apps.brownian import BrownianDynamics, Drag
from particlemesh.apps.dem import Hertz, LinearSpring, Plane, Simulation, record, simulation
from particlemesh.apps.files import checkpoint as files

LAW = Hertz(1e5, 0.3, restitution=0.6, friction=0.4)
BOX = pm.Box((1.0, 0.8, 1.4), origin=(-0.5, 0.0, 0.2), periodic=(True, False, False))


def needed(name):
    return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


def pile(law=LAW, dtype="f8", steps=150, box=BOX, count=60, array=np.asarray, **options):
    """Spheres of several sizes that collide, roll, and touch walls and a ramp."""
    rng = np.random.default_rng(7)
    lattice = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count] + 0.5
    x = (lattice / 4 * [1.0, 0.8, 1.0] + [-0.5, 0.0, 0.3]).astype(dtype)
    simulation = Simulation(
        array(x), rng.uniform(0.07, 0.1, count), rng.normal(0, 0.5, (count, 3)), spins=rng.normal(0, 5, (count, 3)),
        density=1000.0, contact=law, walls=[Plane((0, 0, 0.2), (0, 0.2, 1))], box=box, gravity=(0.3, 0, -9.81),
        deterministic=True, **options,
    )  # fmt: skip
    simulation.run(steps)
    return simulation


def same(one, other):
    assert (one.step, one.time) == (other.step, other.time)
    for name in ("positions", "velocities", "spins"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert one.energy == other.energy


# ---- checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contact", "dtype", "box"), [(LAW, "f8", BOX), (LinearSpring(3e3, restitution=0.5, friction=0.3), "f8", None)]
)
def test_a_checkpoint_continues_with_the_same_bits(tmp_path, contact, dtype, box):
    needed("h5py")
    motion = pile(contact, dtype, box=box)
    assert len(motion.contacts.i) > 2 and np.abs(motion.contacts.tangential).max() > 0  # there is a history to keep
    motion.save(tmp_path / "state.h5")
    motion.run(130)
    other = Simulation.load(tmp_path / "state.h5")
    assert other.step == 150 and other.contact == contact and other.walls == motion.walls
    assert other.domain == motion.domain and other.deterministic and other.backend == "cpu"
    other.run(130)
    same(motion, other)
    assert [path.name for path in tmp_path.iterdir()] == ["state.h5"]


@pytest.mark.backends("opencl", "cuda")
def test_a_checkpoint_remembers_the_device(tmp_path, backend):
    h5py = needed("h5py")
    motion = pile(steps=20, array=backend.array)
    motion.save(tmp_path / "state.h5")
    motion.run(20, every=20, trajectory=tmp_path / "frames.h5")
    other = Simulation.load(tmp_path / "state.h5")
    assert other.backend == backend.name
    other.run(20)
    with h5py.File(tmp_path / "frames.h5") as file:
        for name, element in (("positions", "position"), ("velocities", "velocity"), ("spins", "angular_velocity")):
            restored = backend.host(getattr(motion, name))
            np.testing.assert_array_equal(restored, getattr(other, name))
            np.testing.assert_array_equal(restored, file[f"particles/all/{element}/value"][-1])
    with pytest.raises(ValueError, match="abacus"):
        Simulation.load(tmp_path / "state.h5", backend="abacus")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    needed("h5py")
    path = tmp_path_factory.mktemp("whole") / "state.h5"
    pile().save(path)
    return path.read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_a_changed_file_is_refused_in_one_sentence(tmp_path_factory, saved, data):
    place = data.draw(st.one_of(st.integers(0, 1500), st.integers(0, len(saved) - 1)))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "zero", "swap"]))
    if kind == "flip":
        changed = bytearray(saved)
        changed[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        changed = saved[:place]
    elif kind == "insert":
        changed = saved[:place] + data.draw(st.binary(min_size=1, max_size=9)) + saved[place:]
    elif kind == "zero":
        changed = saved[:place] + bytes(64) + saved[place + 64 :]
    else:
        changed = saved[place:] + saved[:place]
    path = tmp_path_factory.mktemp("changed") / "state.h5"
    path.write_bytes(changed)
    if bytes(changed) == saved:
        assert Simulation.load(path).step == 150
        return
    with pytest.raises(ValueError, match=r"state.h5 (is damaged|is no checkpoint)"):
        Simulation.load(path)


@pytest.mark.parametrize("missing", ["velocities", "contact_force", "law", "law_arguments", "dtype", "walls", None])
def test_a_file_that_lacks_something_says_what(tmp_path, saved, missing):
    h5py = needed("h5py")
    with files.writing(tmp_path / "a.h5", simulation.APPLICATION, simulation.FORMAT) as file:
        file.attrs["backend"] = "cpu"
        (tmp_path / "whole.h5").write_bytes(saved)
        with h5py.File(tmp_path / "whole.h5") as whole:
            whole.copy("state", file)
        del file["state" if missing is None else f"state/{missing}"]
    with pytest.raises(ValueError, match=missing or "lacks what a checkpoint of particlemesh.apps.dem has: 'no state'"):
        Simulation.load(tmp_path / "a.h5")


def test_files_of_others(tmp_path):
    h5py = needed("h5py")
    with pytest.raises(ValueError, match="does not exist, or is no file"):
        Simulation.load(tmp_path)
    (tmp_path / "empty.h5").touch()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["positions"] = np.zeros((3, 3))
    for name in ("empty", "other"):
        with pytest.raises(ValueError, match="is no checkpoint: give a file that save"):
            Simulation.load(tmp_path / f"{name}.h5")
    BrownianDynamics(np.zeros((3, 3)), Drag(), time_step=0.1).save(tmp_path / "brownian.h5")
    with pytest.raises(ValueError, match="is a checkpoint of particlemesh.apps.brownian"):
        Simulation.load(tmp_path / "brownian.h5")
    with files.writing(tmp_path / "later.h5", simulation.APPLICATION, simulation.FORMAT + 1):
        pass
    with pytest.raises(ValueError, match=f"format {simulation.FORMAT + 1}"):
        Simulation.load(tmp_path / "later.h5")


def test_a_save_that_fails_leaves_the_file_before(tmp_path, monkeypatch):
    needed("h5py")
    path, motion = tmp_path / "state.h5", pile()
    motion.save(path)
    motion.run(10)

    def full(group, name, thing, shipped):
        group["some"] = np.zeros(1000)
        raise OSError("no space left on device")

    monkeypatch.setattr(simulation, "put", full)
    with pytest.raises(OSError, match="no space"):
        motion.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["state.h5"]
    assert Simulation.load(path).step == 150
    with pytest.raises(OSError, match="nowhere"):
        motion.save(tmp_path / "nowhere" / "state.h5")


# ---- trajectories -----------------------------------------------------------------------------------------


def recorded(motion, path):
    """Return the states of a file that two runs have written, the present one first."""
    states = [record.frame(motion)]
    for _ in range(2):
        motion.run(10, every=10, trajectory=path)  # continued the second time
        states.append(record.frame(motion))
    assert [state.step for state in states] == [150, 160, 170]
    return states


def test_vtu(tmp_path):
    meshio = needed("meshio")
    states = recorded(pile(), tmp_path / "a.vtu")
    series = json.loads((tmp_path / "a.vtu.series").read_text())["files"]
    for file, state in zip(series, states, strict=True):
        mesh = meshio.read(tmp_path / file["name"])
        assert file["time"] == pytest.approx(state.time)
        np.testing.assert_array_equal(mesh.points, state.positions)
        np.testing.assert_array_equal(mesh.point_data["velocity"], state.velocities)
        np.testing.assert_array_equal(mesh.point_data["angular_velocity"], state.spins)
        np.testing.assert_array_equal(mesh.point_data["radius"], state.radii)


def test_gsd(tmp_path):
    hoomd = needed("gsd.hoomd")
    states = recorded(pile(), tmp_path / "a.gsd")
    with hoomd.open(tmp_path / "a.gsd") as file:
        frames = list(file)
    for frame, state in zip(frames, states, strict=True):
        assert (frame.configuration.step, frame.log["time"]) == (state.step, pytest.approx(state.time))
        np.testing.assert_allclose(frame.configuration.box, [1.0, 0.8, 1.4, 0, 0, 0], rtol=1e-6)
        centre = np.array([0.0, 0.4, 0.9])
        images = frame.particles.image * [1.0, 0.8, 1.4]
        np.testing.assert_allclose(frame.particles.position + images + centre, state.positions, atol=1e-6)
        assert not frame.particles.image[:, 1:].any()  # walls there
        np.testing.assert_allclose(frame.particles.diameter, 2 * state.radii, rtol=1e-6)
        np.testing.assert_allclose(frame.particles.velocity, state.velocities, rtol=1e-6)
        np.testing.assert_allclose(frame.log["particles/angular_velocity"], state.spins, rtol=1e-6)
    with pytest.raises(ValueError, match="needs a box"):
        pile(box=None, steps=0).run(1, trajectory=tmp_path / "b.gsd")


def test_h5(tmp_path):
    h5py = needed("h5py")
    states = recorded(pile(), tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        particles = file["particles/all"]
        for name, field in (("position", "positions"), ("velocity", "velocities"), ("angular_velocity", "spins")):
            np.testing.assert_array_equal(particles[name]["value"][()], [getattr(state, field) for state in states])
            np.testing.assert_array_equal(particles[name]["step"], [150, 160, 170])
            np.testing.assert_allclose(particles[name]["time"], [state.time for state in states])
        np.testing.assert_array_equal(particles["radius"], states[0].radii)
        assert [str(x) for x in particles["box"].attrs["boundary"]] == ["periodic", "none", "none"]
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(ValueError, match="is no HDF5 file that can be continued"):
        pile(steps=0).run(1, trajectory=tmp_path / "text.h5")


def test_extended_xyz(tmp_path):
    io = needed("ase.io")
    states = recorded(pile(), tmp_path / "a.xyz")
    for frame, state in zip(io.read(tmp_path / "a.xyz", index=":"), states, strict=True):
        assert (frame.info["step"], frame.info["time"]) == (state.step, pytest.approx(state.time))
        np.testing.assert_allclose(frame.positions, state.positions, atol=1e-8)
        np.testing.assert_allclose(frame.arrays["velo"], state.velocities, atol=1e-8)
        np.testing.assert_allclose(frame.arrays["angular_velocity"], state.spins, atol=1e-8)
        np.testing.assert_allclose(frame.arrays["radius"], state.radii, atol=1e-8)
        np.testing.assert_allclose(frame.info["Origin"], BOX.origin)
        assert frame.pbc.tolist() == [True, False, False]


def test_files_do_not_change_the_motion_and_frames_are_multiples(tmp_path):
    needed("meshio")
    motion, alone = pile(steps=3), pile(steps=3)
    motion.run(27, every=8, trajectory=tmp_path / "a.vtu")
    alone.run(27)
    same(motion, alone)
    names = [file["name"] for file in json.loads((tmp_path / "a.vtu.series").read_text())["files"]]
    assert names == [f"a_{step:010d}.vtu" for step in (8, 16, 24)]
    with pytest.raises(ValueError, match="up to step 24, and this simulation is at step 3"):
        pile(steps=3).run(1, trajectory=tmp_path / "a.vtu")


def test_what_run_refuses(tmp_path, monkeypatch):
    motion = pile(steps=0)
    with pytest.raises(ValueError, match="every is 0"):
        motion.run(1, every=0)
    with pytest.raises(TypeError, match="progress"):
        motion.run(1, progress="yes")
    with pytest.raises(ValueError, match=r"ends in .gsd, .h5, .vtu, .xyz"):
        motion.run(1, trajectory="a.dcd")
    for name in ("h5py", "meshio"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs meshio: pip install meshio, or 'particlemesh\[io\]'"):
        motion.run(1, trajectory=tmp_path / "a.vtu")
    with pytest.raises(ImportError, match="a checkpoint needs h5py"):
        motion.save(tmp_path / "a.h5")
    assert motion.step == 0 and not any(tmp_path.iterdir())


# ---- interrupts and progress ------------------------------------------------------------------------------


def test_ctrl_c_leaves_whole_steps_and_whole_files(tmp_path, monkeypatch):
    needed("gsd.hoomd")
    motion, alone = pile(steps=0), pile(steps=0)
    frames = []

    def interrupt(simulation):
        frames.append(record.Frame(simulation.step, 0.0, simulation.positions))
        if len(frames) == 4:  # the one that the file is opened for, and three of a run
            signal.raise_signal(signal.SIGINT)
        return made(simulation)

    made = record.frame
    monkeypatch.setattr(record, "frame", interrupt)
    with pytest.raises(KeyboardInterrupt):
        motion.run(100, every=20, trajectory=tmp_path / "a.gsd")
    assert motion.step == 40
    with needed("gsd.hoomd").open(tmp_path / "a.gsd") as file:
        assert [frame.configuration.step for frame in file] == [0, 20, 40]
    motion.run(60)
    alone.run(100)
    same(motion, alone)


def test_progress_shows_speed_energy_and_contacts(monkeypatch, capsys):
    monkeypatch.setattr(record, "PAUSE", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    motion = pile(steps=0)
    motion.run(60, progress=True)
    said = capsys.readouterr().err
    assert "particles/s" in said and f"{len(motion.contacts.i)} contacts" in said
    assert f"E {motion.energy.total:.4g}" in said and "60/60" in said


def test_quantities():
    assert [record.quantity(x) for x in (0, 12, 1.5e3, 999e6, 2.5e9)] == ["0", "12", "1.5 k", "999 M", "2.5 G"]
