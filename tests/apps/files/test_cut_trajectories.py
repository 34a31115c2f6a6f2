# SPDX-License-Identifier: BSD-3-Clause
"""Full disks, killed processes and files that were cut: nothing that was whole is lost."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from particlemesh import Box
from particlemesh.apps.brownian import BrownianDynamics, Drag
from particlemesh.apps.files import hdf5, trajectory

ENDINGS = ("gsd", "h5", "vtu", "xyz")


def motion(step=0, count=20):
    start = np.random.default_rng(0).random((count, 3))
    made = BrownianDynamics(start, Drag(box=(4, 4, 4)), time_step=0.1, seed=1)
    made.run(step)
    return made


def frames_of(path):
    """Steps and positions of all frames of a file."""
    if path.suffix == ".gsd":
        hoomd = pytest.importorskip("gsd.hoomd")
        with hoomd.open(path) as file:
            return [(int(frame.configuration.step), frame.particles.position) for frame in file]
    if path.suffix == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path) as file:
            there = file["particles/all/position"]
            return list(zip(there["step"][:].tolist(), there["value"][:], strict=True))
    if path.suffix == ".vtu":
        meshio = pytest.importorskip("meshio")
        series = json.loads(path.with_name(f"{path.name}.series").read_text())
        names = [path.with_name(shot["name"]) for shot in series["files"]]
        return [(int(name.stem.rpartition("_")[2]), meshio.read(name).points) for name in names]
    io = pytest.importorskip("ase.io")
    return [(int(atoms.info["step"]), atoms.positions) for atoms in io.read(path, index=":", format="extxyz")]


def steps_of(path):
    """Steps of all frames of a file, each of which is read."""
    frames = frames_of(path)
    assert all(np.isfinite(positions).all() for _, positions in frames)
    return [step for step, _ in frames]


def check_cut(path, whole, ends, cut_at, case):
    """Check a file that was cut at a byte and continued. ``whole`` was not cut; frames end at bytes ``ends``."""
    frames, uncut = frames_of(path), dict(frames_of(whole))
    steps = [step for step, _ in frames]
    least, most = (sum(end < cut_at + more for end in ends) for more in (1, 0))
    assert steps[:-1] == list(range(len(steps) - 1)) and steps[-1] == 7, case
    assert least <= len(steps) - 1 <= most + 1, case
    for step, positions in frames:
        np.testing.assert_array_equal(positions, uncut[step], err_msg=str(case))


@pytest.mark.parametrize("ending", ["gsd", "h5", "xyz"])
def test_a_file_cut_at_any_byte_goes_on_from_the_last_whole_frame(ending, tmp_path, request):
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    sizes = []
    for step in range(4):
        motion(step).run(0, trajectory=whole)
        sizes.append(whole.stat().st_size)
    data, later = whole.read_bytes(), motion(7)
    later.run(0, trajectory=whole)
    some = np.random.default_rng(5).integers(0, len(data), 12) if request.config.thins else range(0, len(data), 97)
    near = {size + off for size in sizes for off in (-1, 0, 1)}
    for end in sorted({0, 1, *some, *near} - {len(data) + 1}):
        cut.write_bytes(data[:end])
        later.run(0, trajectory=cut)
        check_cut(cut, whole, sizes, end, end)


@pytest.mark.parametrize("ending", ["h5", "xyz"])
def test_a_process_killed_at_any_byte_leaves_a_file_that_goes_on(ending, tmp_path, request, monkeypatch):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    whole, cut, done, real = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}", 0, hdf5.put
    box, x = Box((4.0, 4.0, 4.0)), np.random.default_rng(0).random((8, 20, 3))
    shots = [trajectory.Frame(n, 0.1 * n, x[n], box, np.full(20, 0.1), x[n] + 1, np.zeros((20, 3))) for n in range(8)]
    limit = np.inf

    def put(raw, data):
        nonlocal done
        data = bytes(data)
        real(raw, data[: int(min(limit - done, len(data)))])
        done += len(data)
        if done >= limit:
            os._exit(9)

    monkeypatch.setattr(hdf5, "put", put)
    monkeypatch.setattr(trajectory, "put", put)
    ends = []
    with trajectory.writer(whole, shots[0]) as file:
        for shot in shots[:4]:
            file.write(shot)
            ends.append(done)
        closing = done
        file.write(shots[7])
    some = np.random.default_rng(6).integers(1, closing, 12) if request.config.thins else range(1, closing, 311)
    for end in sorted({*some, *(end - 1 for end in ends)}):
        child = os.fork()
        if not child:
            done, limit = 0, end
            with trajectory.writer(cut, shots[0]) as file:
                for shot in shots[:4]:
                    file.write(shot)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        with trajectory.writer(cut, shots[7]) as file:
            file.write(shots[7])
        check_cut(cut, whole, ends, end, end)
        assert {path.name for path in tmp_path.iterdir()} == {whole.name, cut.name}
        if ending == "h5":
            with pytest.importorskip("h5py").File(cut) as file:
                there = file["particles/all"]
                np.testing.assert_array_equal(there["velocity/value"][:], there["position/value"][:] + 1)
                assert (there["radius"][:] == 0.1).all() and not there["angular_velocity/value"][:].any()
        cut.unlink()


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9, 0.999])
def test_a_series_of_paraview_that_was_cut_goes_on(at, tmp_path, request):
    whole, path, later = tmp_path / "whole.vtu", tmp_path / "t.vtu", motion(7)
    for name in (whole, path):
        motion().run(3, trajectory=name)
    later.run(0, trajectory=whole)
    last, series = tmp_path / "t_0000000003.vtu", tmp_path / "t.vtu.series"
    listing, data = series.read_bytes(), last.read_bytes()
    last.write_bytes(data[: int(at * len(data))])
    later.run(0, trajectory=path)
    check_cut(path, whole, [1, 2, 3, 4], 3, "frame")
    last.write_bytes(data)
    cut = int(at * len(listing))
    series.write_bytes(listing[:cut])
    later.run(0, trajectory=path)
    check_cut(path, whole, [n for n in range(len(listing)) if listing[:n].endswith(b"\n  }")], cut, "series")
    assert not list(tmp_path.glob("*.part"))


def test_a_trajectory_that_another_program_writes_is_refused(tmp_path):
    h5py, path = pytest.importorskip("h5py"), tmp_path / "t.h5"
    pytest.importorskip("fcntl")
    motion().run(1, trajectory=path)
    with h5py.File(path, "r+"), pytest.raises(ValueError, match=r"t.h5 is open in another program"):
        motion(7).run(1, trajectory=path)
    motion(7).run(0, trajectory=path)
    assert steps_of(path) == [0, 1, 7]


BOX, OPEN = Box((4.0, 4.0, 4.0)), Box((4.0, 4.0, 4.0), periodic=False)
FIRST = trajectory.Frame(3, 0.3, np.random.default_rng(0).random((20, 3)), BOX, np.full(20, 0.1))
OTHERS = {
    "box": ({"box": Box((40.0, 4.0, 4.0))}, r"has Box\(\(4.0, 4.0, 4.0\)\), this simulation Box\(\(40.0"),
    "boundary": ({"box": OPEN}, r"this simulation Box\(.*periodic=\(False"),
    "no box": ({"box": None}, "this simulation has none"),
    "radius": ({"radii": np.full(20, 0.2)}, "has radius 0.1 of particle 0, this simulation 0.2"),
    "no radius": ({"radii": None}, "has frames with radius, this simulation has none"),
    "velocities": ({"velocities": np.zeros((20, 3))}, "has frames without velocity"),
    "type": ({"positions": FIRST.positions.astype(np.float32)}, "has positions in float64, this simulation float32"),
    "time": ({"time": 0.2}, "has frames up to time 0.3, this simulation is at time 0.2"),
    "particles": ({"positions": FIRST.positions[:5], "radii": 0.1}, "has 20 particles, this simulation 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_what_a_file_has_once_is_that_of_all_frames(case, tmp_path):
    path, (other, message) = tmp_path / "t.h5", OTHERS[case]
    pytest.importorskip("h5py")
    with trajectory.writer(path, FIRST) as file:
        file.write(FIRST)
        before = path.stat().st_size
        file.write(FIRST._replace(step=4))
    later = FIRST._replace(step=9, time=0.9)
    with pytest.raises(ValueError, match=message):
        trajectory.writer(path, later._replace(**other))
    os.truncate(path, before)  # the file is rescued, with the box and the radii of its frames
    data = path.read_bytes()
    if case not in ("no radius", "velocities", "type", "time"):
        with pytest.raises(ValueError, match=r"has another box or other radii|has 20 particles, this simulation 5"):
            trajectory.writer(path, later._replace(**other))
        assert path.read_bytes() == data
    with trajectory.writer(path, later) as file:
        file.write(later)
    assert steps_of(path) == [3, 9]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_frame_of_the_same_step_has_the_same_state(ending, tmp_path):
    path, x = tmp_path / f"t.{ending}", FIRST.positions
    far = FIRST._replace(
        positions=x + [8.0, -4.0, 0.0], velocities=100 * x, spins=x, box=Box([[4.0, 0, 0], [1, 4, 0], [1, 1, 4]])
    )
    with trajectory.writer(path, far) as file:
        file.write(far)
    with trajectory.writer(path, far) as file:
        file.write(far)
    for name in ("positions", "velocities", "spins"):
        moved = getattr(far, name) * np.where(np.arange(20) == 7, 1.0001, 1.0)[:, None]
        with pytest.raises(ValueError, match=r"has other [a-z ]+ at step 3 than this simulation: give another file"):
            trajectory.writer(path, far._replace(**{name: moved}))
    with pytest.raises(ValueError, match=r"has frames up to time 0.3, this simulation is at time 0.1"):
        trajectory.writer(path, far._replace(step=5, time=0.1))
    assert steps_of(path) == [3]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_text_has_the_same_digits_in_every_unit(scale, tmp_path):
    path, x = tmp_path / "t.xyz", scale * FIRST.positions
    box = Box(scale * np.array([[4.0, 0, 0], [1, 4, 0], [1, 1, 4]]), origin=(scale / 3, 0.0, 0.0))
    shot = trajectory.Frame(0, 1 / 3, x, box, np.full(20, scale / 7), x, x)
    with trajectory.writer(path, shot) as file:
        file.write(shot)
    atoms = pytest.importorskip("ase.io").read(path)
    for name, values in {"positions": x, "velo": x, "angular_velocity": x, "radius": shot.radii}.items():
        np.testing.assert_allclose(atoms.arrays[name], values, rtol=1e-11, atol=0)
    assert np.array_equal(atoms.cell.array, box.matrix) and np.array_equal(atoms.info["Origin"], box.origin)
    assert atoms.pbc.all() and (atoms.info["step"], atoms.info["time"]) == (0, 1 / 3)


@pytest.mark.parametrize("ending", ENDINGS)
def test_two_processes_do_not_write_one_file(ending, tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / f"t.{ending}"
    with trajectory.writer(path, FIRST) as file:
        file.write(FIRST)
        for _ in range(2):
            with pytest.raises(ValueError, match=rf"t.{ending} is being written by another process: give another name"):
                trajectory.writer(path, FIRST._replace(step=4))
        file.write(FIRST._replace(step=5))
    motion(7).run(0, trajectory=tmp_path / f"other.{ending}")
    assert steps_of(path) == [3, 5] and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("ending", ["gsd", "h5", "xyz"])
def test_no_particles_are_a_trajectory(ending, tmp_path):
    path, none = tmp_path / f"t.{ending}", FIRST._replace(positions=np.zeros((0, 3)), radii=np.zeros(0))
    for step in (0, 1):
        with trajectory.writer(path, none) as file:
            file.write(none._replace(step=step + 3))
    if ending != "xyz":  # ASE reads no empty frames
        assert steps_of(path) == [3, 4]


def test_images_beyond_the_format_are_refused(tmp_path):
    pytest.importorskip("gsd.hoomd")
    far = FIRST._replace(positions=FIRST.positions + 1e11)
    with pytest.raises(ValueError, match=r"counts images of the box up to 2\*\*31, and a particle is beyond"):
        with trajectory.writer(tmp_path / "t.gsd", far) as file:
            file.write(far)
    assert not list(tmp_path.iterdir())


CHILD = """
import sys
import numpy as np
from particlemesh.apps.brownian import BrownianDynamics, Drag
start = np.random.default_rng(0).random((20, 3))
b = BrownianDynamics(start, Drag(box=(4, 4, 4)), time_step=0.1, seed=1)
b.run(10**8, trajectory=sys.argv[1])
"""


@pytest.mark.turns(2)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_killed_process_leaves_a_file_that_goes_on(ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)])
    try:
        while not any(tmp_path.glob("t*")) and child.poll() is None:
            time.sleep(0.05)
        time.sleep(1.0)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    before = [] if not any(tmp_path.glob("t*")) else steps_of(path) if ending in ("gsd", "h5", "vtu") else None
    later = motion()
    later._step = 10**7
    later.run(0, trajectory=path)
    steps = steps_of(path)
    assert steps == [*range(len(steps) - 1), 10**7] and len(steps) > 1
    assert before is None or steps[:-1] == before


FULL = """
import resource, signal, sys
import numpy as np
from particlemesh.apps.dem import Hertz, Simulation
from particlemesh.apps.brownian import BrownianDynamics, Drag
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = sys.argv[1]
def make(n):
    x = np.random.default_rng(0).random((n, 3)) * 100
    return Simulation(x, .01, density=1., contact=Hertz(1e3), time_step=1e-3)
make(100).save(folder + "/state.h5")
kept = open(folder + "/state.h5", "rb").read()
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
for n in (3000, 100, 3000, 100):
    try:
        make(n).save(folder + "/state.h5")
        print("saved")
    except OSError as error:
        print(error)
    assert open(folder + "/state.h5", "rb").read()[600:] == kept[600:] or n == 100
b = BrownianDynamics(np.random.default_rng(0).random((500, 3)), Drag(box=(4, 4, 4)), time_step=.1, seed=1)
try:
    b.run(10, trajectory=folder + "/t.xyz")
except OSError as error:
    print("run ended:", error.strerror, "|", b.step)
Simulation.load(folder + "/state.h5").run(1)
print("goes on")
"""


def test_a_full_disk_is_one_clear_error_and_the_program_goes_on(tmp_path):
    pytest.importorskip("resource")
    line = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line == "saved" for line in lines[:4]] == [False, True, False, True]
    assert "the checkpoint" in lines[0] and "cannot be written" in lines[0] and "make room" in lines[0]
    assert "t.xyz cannot be written (File too large): make room" in lines[4] and lines[5] == "goes on"
    assert {path.name for path in tmp_path.iterdir()} == {"state.h5", "t.xyz"}
    steps = int(lines[4].split()[-1])
    later = motion(count=500)
    later._step = 10**6
    later.run(0, trajectory=tmp_path / "t.xyz")
    assert steps_of(tmp_path / "t.xyz") == [*range(steps), 10**6]


FILLED = """
import resource, signal, sys
import numpy as np
from particlemesh.apps.brownian import BrownianDynamics, Drag
from particlemesh.apps.files import writing_table
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
b = BrownianDynamics(np.random.default_rng(0).random((500, 3)), Drag(box=(4, 4, 4)), time_step=.1, seed=1)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), most))
for attempt in range(3):
    try:
        if "table" in path:
            with writing_table(path) as table:
                for part in range(60):
                    table.append({"a": np.random.default_rng(part).random((500, 3)), "b": np.zeros(500)})
        else:
            b.run(60, trajectory=path)
    except OSError as error:
        print("refused", b.step, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
if "table" in path:
    with writing_table(path) as table:
        table.append({"a": np.ones(3)})
else:
    b.run(3, trajectory=path)
print("goes on", b.step)
"""


@pytest.mark.turns(5)
@pytest.mark.parametrize(
    ("name", "room"),
    [("t.h5", 0), ("t.h5", 3_000), ("t.h5", 150_000), ("t.gsd", 0), ("t.gsd", 150_000), ("t.xyz", 150_000),
     ("t.vtu", 0),
     ("table.h5", 0), ("table.h5", 150_000), ("table.npz", 150_000), ("table.csv", 150_000)],
)  # fmt: skip
def test_a_full_disk_loses_no_frame_and_crashes_nothing(name, room, tmp_path):
    # HDF5's library crashes at the next file that it closes, if it has seen a write that failed.
    pytest.importorskip("resource")
    line = [sys.executable, "-c", FILLED, str(tmp_path / name), str(room)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["refused"] * 3 + ["goes"]
    assert all(f"{name} cannot be written (File too large): make room" in line for line in lines[:3])
    assert name.endswith("vtu") or [path.name for path in tmp_path.iterdir()] == [name]
    assert not list(tmp_path.glob("*.part*"))
    if "table" not in name:
        assert steps_of(tmp_path / name) == [*range(int(lines[-1].split()[-1]) + 1)]


GRAINS = """
import resource, signal, sys
import numpy as np
from particlemesh.apps.dem import Hertz, Simulation
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
grains = Simulation(np.arange(300.0).reshape(100, 3), .01, density=1., contact=Hertz(1e3), time_step=1e-3)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    grains.run(2, trajectory=sys.argv[1])
except OSError as error:
    print(error)
"""


def test_a_first_frame_without_room_leaves_no_open_file(tmp_path):
    pytest.importorskip("resource")
    line = [sys.executable, "-c", GRAINS, str(tmp_path / "t.h5")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr  # HDF5's library crashed at the end of the program
    assert "t.h5 cannot be written (File too large): make room" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["t.h5"]  # and no lock


def test_a_series_of_another_program_is_refused_in_a_line(tmp_path):
    path = tmp_path / "t.vtu"
    motion().run(2, trajectory=path)
    (tmp_path / "t_0000000002.vtu").write_text("<VTKFile></VTKFile>")
    with pytest.raises(ValueError, match=r"t.vtu.series is no series of ours: remove it, or give another file"):
        motion(7).run(1, trajectory=path)
    (tmp_path / "t.vtu.series").write_text('{"files"')
    with pytest.raises(ValueError, match=r"t.vtu.series is no series of ours: remove it, or give another file"):
        motion(7).run(1, trajectory=path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_paths_are_tried_before_the_first_step(ending, tmp_path):
    there = motion()
    for path, message in (
        (tmp_path / "missing" / f"t.{ending}", "missing is no folder: make it"),
        (tmp_path, "give a name that ends in"),
        (tmp_path / f"folder.{ending}", "is a folder: give the name of a file"),
    ):
        (tmp_path / f"folder.{ending}").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match=message):
            there.run(3, every=2, trajectory=path)
        assert there.step == 0
