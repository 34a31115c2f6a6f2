# SPDX-License-Identifier: BSD-3-Clause
"""The command dem: its starts, what it prints and draws, Ctrl-C and restarts, and what it refuses."""

import itertools
import re
import shlex
import shutil
import signal

import numpy as np
import pytest
from scipy.spatial import cKDTree
from typer.testing import CliRunner

from particlemesh.apps.dem import Simulation, record
from particlemesh.apps.files import checkpoint
from particlemesh.apps.files.trajectory import Frame
from particlemesh.command import cli, consoles, dem, pictures

run = CliRunner().invoke
SMALL = ["dem", "--count", "40", "--steps", "60", "--deterministic"]


def needed(name):
    return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own, and small pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures.Film, "DPI", 40)
    monkeypatch.setattr(pictures.Film, "FRAMES", 4)
    monkeypatch.setattr(pictures.Film, "SIZES", (160, 160))
    return tmp_path


@pytest.mark.parametrize("shape", dem.SHAPES)
@pytest.mark.parametrize(("count", "polydispersity"), [(1, 0.0), (2, 0.0), (37, 0.5), (900, 0.2)])
def test_starts_have_no_overlaps(shape, count, polydispersity):
    positions, radii, box = dem.start(count, shape, 0.5, polydispersity, seed=3)
    assert positions.shape == (count, 3) and radii.shape == (count,)
    assert (abs(radii / 0.5 - 1) <= polydispersity).all()
    assert (positions > radii[:, None]).all() and (positions + radii[:, None] < box).all()
    pairs = cKDTree(positions).query_pairs(2 * radii.max(), output_type="ndarray")
    distances = np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)
    assert (distances > radii[pairs].sum(axis=1)).all()
    if shape == "column" and count > 30:
        assert positions[:, 0].max() < 0.4 * box[0]  # with room for a wave


def test_it_prints_rows_and_draws_a_series(here):
    needed("matplotlib")
    needed("h5py")
    result = run(cli.app, [*SMALL, "--polydispersity", "0.2", "--checkpoint-every", "25"])
    assert result.exit_code == 0, result.output
    assert (here / "out" / "dem.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, result.output.splitlines())) <= cli.WIDTH
    rows = re.findall(r"^ +(\d+) +[\d.e-]+ +[\d.e-]+ +[\d.e-]+ +[\d,]+ +[\d.]+ ?[kMG]?$", result.output, re.MULTILINE)
    assert rows == [str(6 * n) for n in range(1, 11)]
    assert "40 spheres, Hertz contacts, restitution 0.7, friction 0.1\n60 steps" in result.output
    assert Simulation.load(here / "out" / "dem.h5").step == 60


def test_it_draws_an_animation_of_rain_and_writes_frames(here):
    Image = needed("PIL.Image")  # noqa: N806
    meshio = needed("meshio")
    needed("matplotlib")
    options = ["--shape", "rain", "--contact", "spring", "--trajectory", "new/rain.vtu", "--every", "20"]
    result = run(cli.app, [*SMALL, *options, "--out", "rain.gif"])
    assert result.exit_code == 0, result.output
    with Image.open("rain.gif") as picture:
        assert picture.n_frames == 4
    assert len(meshio.read("new/rain_0000000040.vtu").points) == 40
    assert sorted(path.suffix for path in (here / "new").iterdir()) == [".series", *[".vtu"] * 4]


def interrupted(monkeypatch, at):
    """Press Ctrl-C within a run, at the first stop after some steps."""
    made = Simulation.run

    def press(simulation, steps, **options):
        if at <= simulation.step < at + 60 and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        made(simulation, steps, **options)

    pressed = []
    monkeypatch.setattr(Simulation, "run", press)


def test_ctrl_c_leaves_a_checkpoint_from_which_a_restart_goes_on(here, monkeypatch):
    needed("h5py")
    whole = run(cli.app, [*SMALL, "--checkpoint", "whole.h5"])
    assert whole.exit_code == 0, whole.output
    with monkeypatch.context() as pressing:
        interrupted(pressing, 21)
        result = run(cli.app, SMALL)
    assert result.exit_code == 130, result.output
    said = " ".join(result.output.split())
    match = re.search(
        r"interrupted at step (\d+); the checkpoint is out/dem.h5. Continue with: particlemesh (.*)$", said
    )
    assert 21 < int(match[1]) < 60
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    result = run(cli.app, match[2].split())
    assert result.exit_code == 0, result.output
    one, other = (Simulation.load(path) for path in ("whole.h5", "out/dem.h5"))
    assert one.step == other.step == 60
    for name in ("positions", "velocities", "spins"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_too_many_steps_are_refused(here):
    result = run(cli.app, ["dem", "--count", "40", "--time-step", "1e-30"])
    assert result.exit_code == 2
    assert re.search(r"4 falls take \S+ steps of 1e-30 s: give --steps, or a larger", " ".join(result.output.split()))


def test_a_restart_has_the_options_that_a_checkpoint_does_not_hold(here, monkeypatch):
    needed("h5py")
    files = ["--trajectory", "a wave.xyz", "--every", "7", "--checkpoint", "a wave.h5"]
    with monkeypatch.context() as pressing:
        interrupted(pressing, 21)
        result = run(cli.app, [*SMALL, *files])
    assert result.exit_code == 130, result.output
    words = shlex.split(re.search("Continue with: particlemesh (.*)$", " ".join(result.output.split()))[1])
    assert words[:3] == ["dem", "--restart", "a wave.h5"] and words[5:] == [
        "--every",
        "7",
        "--trajectory",
        "a wave.xyz",
    ]
    result = run(cli.app, words)
    assert result.exit_code == 0, result.output
    steps = re.findall(r"step=(\d+)", (here / "a wave.xyz").read_text())
    assert steps == [str(step) for step in range(0, 60, 7)]


@pytest.mark.parametrize("name", [None, "a.h5"])
def test_the_checkpoint_of_another_run_is_kept(name, here):
    needed("h5py")
    path, named = here / (name or "out/dem.h5"), [] if name is None else ["--checkpoint", name]
    assert run(cli.app, [*SMALL, *named]).exit_code == 0
    before = path.read_bytes()
    shutil.copy(path, here / "other.h5")
    for words in ([*SMALL, "--seed", "9"], ["dem", "--restart", "other.h5", "--steps", "5", "--checkpoint", str(path)]):
        result = run(cli.app, [*words, *named] if words[1] != "--restart" else words)
        said = " ".join(result.output.split())
        assert result.exit_code == 2 and "exists: continue it (--restart" in said and "(--overwrite)" in said
        assert path.read_bytes() == before
    for words, step in (
        (["dem", "--restart", str(path), "--steps", "5", *named], 65),
        ([*SMALL, "--seed", "9", "--overwrite", *named], 60),
    ):  # fmt: skip
        result = run(cli.app, words)
        assert result.exit_code == 0, result.output
        assert Simulation.load(path).step == step


def test_without_h5py_there_are_no_checkpoints(here, monkeypatch):
    monkeypatch.setattr(consoles, "find_spec", lambda name: None)
    with monkeypatch.context() as pressing:
        interrupted(pressing, 0)
        result = run(cli.app, SMALL)
    assert result.exit_code == 130
    assert "no checkpoint, since h5py is missing: pip install h5py" in " ".join(result.output.split())
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    result = run(cli.app, [*SMALL, "--checkpoint-every", "10"])
    assert result.exit_code == 2 and "a checkpoint needs h5py" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shape", "cube"], "column or rain"),
        (["--contact", "glue"], "hertz or spring"),
        (["--dtype", "float16"], "float64 or float32"),
        (["--radius", "0"], "--radius is 0"),
        (["--young", "nan"], "--young is nan"),
        (["--time-step", "-1"], "--time-step is -1"),
        (["--polydispersity", "0.9"], "below 0.9"),
        (["--gravity", "inf"], "--gravity is inf"),
        (["--restitution", "1.5"], "from 0 to 1"),
        (["--friction", "-1"], "friction"),
        (["--method", "magic"], "method is 'magic'"),
        (["--backend", "abacus"], "cpu"),
        (["--out", "a.jpg"], ".png or .gif"),
        (["--trajectory", "a.dcd"], ".gsd, .h5, .vtu, .xyz"),
        (["--restart", "none.h5"], "--count, --deterministic cannot be given with --restart"),
        (["--time-step", "1"], "critical one for this stiffness"),
        (["--time-step", "1e-300"], "the stiffness would be 0 in units of the time step: give another time_step"),
        (["--time-step", "1e300"], "the stiffness would be inf"),
        (["--checkpoint", "a.npz"], "--checkpoint is 'a.npz'; give a name that ends in .h5 or .hdf5"),
        (["--trajectory", "T.h5", "--checkpoint", "t.H5"], "are T.h5 and t.H5, one file on some disks: give each"),
    ],
)
def test_wrong_options(options, said, here):
    result = run(cli.app, [*SMALL, *options])
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


def test_wrong_restarts(here):
    needed("h5py")
    cases = [
        (["--steps", "5"], "does not exist"),
        ([], "needs --steps"),
        (["--steps", "5", "--radius", "1"], "--radius"),
    ]
    for options, said in cases:
        result = run(cli.app, ["dem", "--restart", "none.h5", *options])
        assert result.exit_code == 2 and said in result.output
    with checkpoint.writing("other.h5", "somebody", 1):
        pass
    result = run(cli.app, ["dem", "--restart", "other.h5", "--steps", "5"])
    assert result.exit_code == 2 and "a checkpoint of somebody" in " ".join(result.output.split())
    result = run(cli.app, ["dem", "--count", "3", "--gravity", "0"])
    assert result.exit_code == 2 and "nothing falls here: give --steps" in result.output


def test_the_fastest_spheres_have_the_last_colour(here):
    needed("matplotlib")
    options = dict(
        count=1, shape="rain", radius=0.5, polydispersity=0.0, seed=1, contact="hertz", young=1e6, stiffness=1.0,
        restitution=1.0, friction=0.0, density=1.0, gravity=10.0, time_step=None, dtype="float64", deterministic=True,
        method="auto", backend=None,
    )  # fmt: skip
    motion = dem.simulation(options)
    height = motion.domain.lengths[2]
    assert dem.free_fall(motion) == pytest.approx(np.sqrt(height / 5))
    assert dem.fastest(motion) == pytest.approx(np.sqrt(20 * height))
    film = pictures.Film(here / "a.png", motion, dem.fastest(motion), 10)
    ends = []
    for speed in (0.0, 1.0):
        moving = Simulation(
            motion.positions, 0.5, (speed * dem.fastest(motion), 0, 0), density=1.0, contact=motion.contact,
            box=motion.domain.lengths, gravity=10.0,
        )  # fmt: skip
        film.shoot(moving)
        picture = film.shots[-1][1].astype(float)
        coloured = picture[np.ptp(picture, axis=2) > 40]  # neither white nor the grey of the box
        assert len(coloured) > 50
        ends.append(coloured.mean(axis=0))
    assert ends[0][2] > 1.5 * ends[0][0] and ends[1][0] > 1.5 * ends[1][2]  # blue at rest, then red


@pytest.mark.parametrize("edges", [(1.0, 1.0, 1.0), (3.0, 0.4, 1.2), (0.5, 0.5, 2.0)])
def test_the_window_of_a_picture_has_the_whole_box(edges):
    picture = pictures.render(np.empty((0, 3)), 1.0, np.array(edges), np.empty((0, 3)), 200)
    drawn = np.argwhere((picture < 250).any(axis=2))
    for size, places in zip(picture.shape, drawn.T, strict=False):
        assert 1 <= places.min() <= 7 and size - 8 <= places.max() <= size - 2


def test_spheres_of_two_sizes_are_drawn_as_such():
    colours = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    centres = np.array([[2.0, 5.0, 5.0], [8.0, 5.0, 5.0]])
    picture = pictures.render(centres, np.array([0.5, 1.0]), np.full(3, 10.0), colours, 160)
    picture = picture.astype(float)
    blue, red = (((picture[..., c] > 1.3 * picture[..., 2 - c]).sum()) for c in (2, 0))
    assert 3 < red / blue < 5.5


def test_a_run_stops_where_something_is_due(tmp_path, monkeypatch):
    class Film:
        steps = frozenset({0, 45})

    class Standing:
        step = 7

    monkeypatch.setattr(record, "frame", lambda simulation: Frame(7, 0.0, np.zeros((1, 3)), None))
    saving = consoles.Saving(Standing(), "a.h5", 20)
    steps = dem.Run(None, Standing(), Film(), 100, saving, tmp_path / "a.xyz", 32)
    assert sorted(steps.rows) == [17, 27, 37, 47, 57, 67, 77, 87, 97, 107]
    steps.points, stops = {30}, []
    while steps.simulation.step < 107:
        steps.simulation.step = steps._next()
        stops.append(steps.simulation.step)
    every = {n for n in range(8, 108) if n % 20 == 0 or n % 32 == 0}
    assert stops == sorted(every | steps.rows | {45, 30})
    assert all(a < b for a, b in itertools.pairwise(stops))
