# SPDX-License-Identifier: BSD-3-Clause
"""The command brownian: what it measures and draws, what it prints, and what it refuses."""

import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from particlemesh.apps.brownian import RPY, BrownianDynamics, Drag
from particlemesh.command import brownian, cli, consoles, pictures

run = CliRunner().invoke
SMALL = ["brownian", "--count", "20", "--steps", "6", "--fraction", "0.1"]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Without melting, which takes a thousand steps, in a folder of its own."""
    monkeypatch.setattr(brownian, "MELTING", 3)
    monkeypatch.chdir(tmp_path)


def pressed_at(monkeypatch, step):
    """Press Ctrl-C within a step."""
    made = BrownianDynamics.run

    def press(motion, steps, **options):
        if motion.step == step and steps == 1:
            signal.raise_signal(signal.SIGINT)
        made(motion, steps, **options)

    monkeypatch.setattr(BrownianDynamics, "run", press)


def test_it_prints_a_table_that_fits_and_draws(tmp_path, quick):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    out = tmp_path / "new" / "spheres.png"
    result = run(cli.app, [*SMALL, "--integrator", "midpoint", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")
    table = result.output.split("picture:")[0]
    assert max(map(len, table.splitlines())) <= cli.WIDTH
    assert "20 spheres, volume fraction 0.1, with hydrodynamic interactions\n" in table and "0.002" in table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fraction", "0.5"], "up to 0.4"),
        (["--fraction", "nan"], "up to 0.4"),
        (["--time-step", "0"], "--time-step is 0"),
        (["--accuracy", "-1"], "--accuracy is -1"),
        (["--mobility", "none"], "rpy or drag"),
        (["--integrator", "leapfrog"], "euler or midpoint"),
        (["--backend", "abacus"], "cpu"),
        (["--mobility", "drag", "--time-step", "1e4"], "step 1: particle"),
    ],
)
def test_wrong_options(options, said, quick, tmp_path):
    result = run(cli.app, [*SMALL, *options, "--out", str(tmp_path / "a.png")])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_ctrl_c_leaves_a_checkpoint_from_which_a_restart_goes_on(quick, monkeypatch):
    pytest.importorskip("h5py", reason="h5py is not installed")
    options = [*SMALL, "--mobility", "drag", "--integrator", "midpoint", "--seed", "4"]
    whole = run(cli.app, [*options, "--checkpoint", "whole.h5"])
    assert whole.exit_code == 0, whole.output
    assert "checkpoint: whole.h5" in whole.output
    with monkeypatch.context() as pressing:
        pressed_at(pressing, 3)
        result = run(cli.app, options)
    assert result.exit_code == 130, result.output
    assert "picture" not in result.output and len(result.stderr.splitlines()) == 1
    said = " ".join(result.output.split())
    match = re.search(
        r"interrupted at step 4; the checkpoint is out/brownian.h5. Continue with: particlemesh (.*)$", said
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert BrownianDynamics.load("out/brownian.h5").step == 4
    result = run(cli.app, match[1].split())
    assert result.exit_code == 0, result.output
    assert "20 spheres, volume fraction 0.1, without" in result.output and ", 2 steps of" in " ".join(
        result.output.split()
    )
    one, other = (BrownianDynamics.load(path) for path in ("whole.h5", "out/brownian.h5"))
    assert one.step == other.step == 6
    np.testing.assert_array_equal(one.positions, other.positions)


def test_checkpoints_on_the_way(quick, monkeypatch):
    pytest.importorskip("h5py", reason="h5py is not installed")
    steps, save = [], BrownianDynamics.save
    monkeypatch.setattr(BrownianDynamics, "save", lambda motion, path: (steps.append(motion.step), save(motion, path)))
    result = run(cli.app, [*SMALL, "--mobility", "drag", "--checkpoint", "new/a.h5", "--checkpoint-every", "4"])
    assert result.exit_code == 0, result.output
    assert steps == [4, 6]


def test_ctrl_c_before_the_first_step_and_without_h5py(quick, monkeypatch):
    with monkeypatch.context() as pressing:
        pressing.setattr(brownian, "simulation", lambda options: signal.raise_signal(signal.SIGINT))
        result = run(cli.app, SMALL)
    assert result.exit_code == 130 and "interrupted before the first step" in result.output
    monkeypatch.setattr(consoles, "find_spec", lambda name: None)
    with monkeypatch.context() as pressing:
        pressed_at(pressing, 1)
        result = run(cli.app, [*SMALL, "--mobility", "drag"])
    assert result.exit_code == 130
    assert "no checkpoint, since h5py is missing: pip install h5py" in " ".join(result.output.split())
    monkeypatch.setitem(sys.modules, "h5py", None)
    result = run(cli.app, [*SMALL, "--checkpoint-every", "10"])
    assert result.exit_code == 2 and "a checkpoint needs h5py" in result.output


@pytest.mark.parametrize(
    "motion",
    [
        dict(mobility=RPY((9.0,) * 3, radius=2.0)),
        dict(mobility=RPY((9.0, 9.0, 8.0))),
        dict(mobility=Drag()),
        dict(mobility=Drag(viscosity=1.0, box=(9.0,) * 3)),
        dict(mobility=Drag(box=(9.0,) * 3), temperature=2.0),
    ],
)
def test_a_restart_of_another_simulation_is_refused(quick, motion):
    pytest.importorskip("h5py", reason="h5py is not installed")
    BrownianDynamics(np.eye(3) * 3, **motion, time_step=0.1).save("other.h5")
    result = run(cli.app, ["brownian", "--restart", "other.h5"])
    assert result.exit_code == 2 and "has other spheres" in " ".join(result.output.split())


def test_wrong_restarts(quick):
    pytest.importorskip("h5py", reason="h5py is not installed")
    result = run(cli.app, ["brownian", "--restart", "none.h5"])
    assert result.exit_code == 2 and "does not exist" in result.output
    result = run(cli.app, [*SMALL, "--restart", "none.h5"])
    said = " ".join(result.output.split())
    assert result.exit_code == 2 and "--count, --fraction cannot be given with --restart" in said


def test_squared_displacements_of_walks():
    # A walk with a step of variance 0.2 along each axis: 0.6 after one step, in proportion to the number of steps.
    steps = np.random.default_rng(1).normal(0, np.sqrt(0.2), (40, 3000, 3))
    path = np.concatenate([np.zeros((1, 3000, 3)), np.cumsum(steps, axis=0)])
    times, squared, errors = brownian.squared_displacements(path, 0.5)
    assert times[0] == 0.5 and times[-1] == 10
    assert np.all(abs(squared - 1.2 * times) < 5 * errors)
    np.testing.assert_allclose(squared[-1], ((path[20:] - path[:21]) ** 2).sum(-1).mean())
    assert np.all(errors < 0.03 * squared)


def test_the_start_has_the_volume_fraction_and_few_overlaps(monkeypatch):
    monkeypatch.setattr(brownian, "MELTING", 200)
    x, edge = brownian.start(100, 0.3, 5)
    assert 100 * 4 * np.pi / 3 / edge**3 == pytest.approx(0.3)
    assert x.min() >= 0 and x.max() <= edge
    d = x - x[:, None]
    r = np.linalg.norm(d - edge * np.rint(d / edge), axis=-1)[~np.eye(100, dtype=bool)]
    assert r.min() > 1.5 and (r < 1.9).sum() < 20


def test_the_nearest_sphere_is_seen_and_lit():
    # Two spheres on the line of sight through the middle of the box: the red one is nearer.
    heights = pictures._seen(np.concatenate([np.eye(3), np.zeros((1, 3))]), np.ones(3))[1]
    toward = heights[:3] - heights[3]
    centres = np.full((2, 3), 5.0) + np.outer([-2.0, 2.0], toward)
    colours = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    for order in ([0, 1], [1, 0]):
        picture = pictures.render(centres[order], 1.0, np.full(3, 10.0), colours[order], 120).astype(float)
        row, column = (round(n) for n in np.argwhere(picture[..., 0] > 1.3 * picture[..., 2]).mean(axis=0))
        red, _, blue = picture[row, column]
        assert red > 128 and blue < 0.5 * red
    assert (picture[0, 0] == 255).all()  # nothing there
    above, below = (picture[row + dy, column].sum() for dy in (-5, 5))
    assert above > below  # light comes from above


def test_the_law_is_the_mobility_in_a_box_of_images():
    assert brownian.law(False, 10.0) == 1
    assert brownian.law(True, 16.0) == pytest.approx(1 - 2.83729747948062 / 16 + 4 * np.pi / 3 / 16**3, abs=1e-14)


def test_the_checkpoint_of_another_run_is_kept(quick):
    options = [*SMALL, "--mobility", "drag"]
    assert run(cli.app, options).exit_code == 0
    before = Path("out/brownian.h5").read_bytes()
    result = run(cli.app, [*options, "--seed", "9"])
    said = " ".join(result.output.split())
    assert (
        result.exit_code == 2
        and "the checkpoint out/brownian.h5 exists: continue it (--restart out/brownian.h5)" in said
    )
    assert Path("out/brownian.h5").read_bytes() == before
    assert run(cli.app, [*options, "--seed", "9", "--overwrite"]).exit_code == 0
    assert Path("out/brownian.h5").read_bytes() != before


def test_the_accuracy_is_a_relative_error(quick):
    result = run(cli.app, [*SMALL, "--accuracy", "2"])
    assert result.exit_code == 2 and "--accuracy is 2; give a relative error above 0, below 1." in result.output


def test_a_sheared_suspension_is_measured_across_the_flow_and_goes_on(quick):
    pytest.importorskip("h5py", reason="h5py is not installed")
    sheared = [*SMALL, "--mobility", "drag", "--shear-rate", "150", "--seed", "4"]
    result = run(cli.app, [*sheared, "--checkpoint", "whole.h5"])
    said = " ".join(result.output.split())
    assert result.exit_code == 0, result.output
    assert ", shear rate 150" in said and "law: 4 x 1.00000 D t across the flow, along y and z" in said
    first = re.findall(r"^ *(0\.0\d+) +(\S+) +(\S+) +(\S+) +(\S+) *$", result.output, re.MULTILINE)[0]
    assert float(first[2]) == pytest.approx(4 * float(first[0])) and 0.3 < float(first[3]) < 2  # without the drift
    cut = run(cli.app, [*sheared, "--steps", "2", "--checkpoint", "cut.h5"])
    assert cut.exit_code == 0, cut.output
    again = run(cli.app, ["brownian", "--steps", "4", "--restart", "cut.h5", "--checkpoint", "cut.h5"])
    assert again.exit_code == 0 and "shear rate 150" in " ".join(again.output.split()), again.output
    one, other = (BrownianDynamics.load(path) for path in ("whole.h5", "cut.h5"))
    np.testing.assert_array_equal(one.positions, other.positions)
    assert one.strain == other.strain == pytest.approx(6 * 0.002 * 150)


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_wrong_shear_rates(rate, quick):
    result = run(cli.app, [*SMALL, "--shear-rate", rate])
    assert result.exit_code == 2 and "one finite number" in " ".join(result.output.split())
