# SPDX-License-Identifier: BSD-3-Clause
"""The command brownian: what it measures and draws, what it prints, and what it refuses."""

import numpy as np
import pytest
from typer.testing import CliRunner

from particlemesh.command import brownian, cli, spheres

run = CliRunner().invoke
SMALL = ["brownian", "--count", "20", "--steps", "6", "--fraction", "0.1"]


@pytest.fixture
def quick(monkeypatch):
    """Without melting, which takes a thousand steps."""
    monkeypatch.setattr(brownian, "MELTING", 3)


@pytest.mark.parametrize(("mobility", "said"), [("drag", "without"), ("rpy", "with")])
def test_it_prints_a_table_that_fits_and_draws(tmp_path, quick, mobility, said):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    out = tmp_path / "new" / "spheres.png"
    result = run(cli.app, [*SMALL, "--mobility", mobility, "--integrator", "midpoint", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")
    table = result.output.split("picture:")[0]
    assert max(map(len, table.splitlines())) <= cli.WIDTH
    assert f"20 spheres, volume fraction 0.1, {said} hydrodynamic interactions\n" in table and "0.002" in table


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
        (["--mobility", "drag", "--time-step", "1e4"], "in step"),
    ],
)
def test_wrong_options(options, said, quick, tmp_path):
    result = run(cli.app, [*SMALL, *options, "--out", str(tmp_path / "a.png")])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


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
    toward = spheres._view()[2]
    centres = np.full((2, 3), 5.0) + np.outer([-2.0, 2.0], toward)
    colours = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    for order in ([0, 1], [1, 0]):
        picture = spheres.render(centres[order], 1.0, np.full(3, 10.0), colours[order], 120)
        assert picture.shape == (120, 120, 3) and picture.min() >= 0 and picture.max() <= 1
        red, _, blue = picture[round(120 * spheres.MIDDLE), 60]
        assert red > 0.5 and blue < 0.5 * red
    assert (picture[0, 0] == 1).all()  # nothing there
    above, below = (picture[round(120 * spheres.MIDDLE) + dy, 60].sum() for dy in (-5, 5))
    assert above > below  # light comes from above


def test_the_law_is_the_mobility_in_a_box_of_images():
    assert brownian.law("drag", 10.0) == 1
    assert brownian.law("rpy", 16.0) == pytest.approx(1 - 2.83729747948062 / 16 + 4 * np.pi / 3 / 16**3, abs=1e-14)
