# SPDX-License-Identifier: BSD-3-Clause
"""The command, the example and the benchmark on two ranks of MPI, and what the command says of a failed test."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.fft
from rich.console import Console
from typer.testing import CliRunner

import particlemesh as pm
import test_plans_on_ranks as plans
from mpi import on_ranks
from mpiexec import on_mpi
from particlemesh.command import cli
from particlemesh.command import distributed as ranks
from particlemesh.distributed import FFT, Domain, UniformGrid
from particlemesh.distributed.transfer import ranges
from rank_cases import Row

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["--particles", "1000", "--nodes", "8", "--repeats", "1"]


@on_ranks(1, 2, 3, 4)
def test_plans_transforms_and_grids_over_mpi(world):
    """What threads show holds for messages of MPI: plans, the modes' bits, and each pair on one rank."""
    for row in (Row("cube", (7, 5, 6), batch=(2,)), Row("particles", (6, 7, 5), ghosts="particles", per_rank=3)):
        plans.test_every_verb_does_what_one_rank_does.test_on_ranks[0](world, row)
    mesh = pm.Mesh((7, 5, 6), (1.0, 1.0, 1.0))
    rng = np.random.default_rng(2)
    whole, x = rng.random(mesh.shape), rng.random((150, 3))
    expected = whole
    for axis in (2, 1, 0):
        expected = (scipy.fft.rfft if axis == 2 else scipy.fft.fft)(expected, axis=axis)
    domain = Domain(mesh, world.size, parts="bisection")
    fft, (part,) = FFT(domain, world), domain.parts(world.rank)
    field = np.ascontiguousarray(whole[tuple(slice(*r) for r in ranges(part))])
    modes = fft.forward(field)
    assert modes.tobytes() == np.ascontiguousarray(expected[tuple(slice(*r) for r in fft.part)]).tobytes()
    np.testing.assert_allclose(fft.inverse(modes), field, rtol=1e-13)
    grid = UniformGrid(domain, world, 0.2).build(x[world.rank :: world.size])
    assert sum(world.allgather(len(grid.pairs(half=True)))) == len(pm.neighbour_list("i", x, mesh.box, 0.2)) // 2


def test_the_command_on_two_ranks(tmp_path):
    pytest.importorskip("matplotlib")
    out = on_mpi(2, "-m", "particlemesh", "distributed", *QUICK, "--out", tmp_path / "picture.png")
    assert out.count("2 ranks, transport 'host', cpu") == 1, "rank 0 prints, and only rank 0"
    assert out.count("passed") == 10 and "FAILED" not in out
    rows = re.findall(r"^ +(\d+) +.* (\d+)%$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2"] and rows[0][1] == "100"
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_the_universe_of_the_gallery_is_the_same_on_two_ranks(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = (ROOT / "examples" / "gallery" / "plot_gravity_on_ranks.py").read_text(encoding="utf-8")
    small = text.replace("= 96.0, 64, 0.05, 1.0, 30", "= 96.0, 16, 0.05, 1.0, 8").replace("< 0.05,", "< 0.25,")
    assert small != text
    program = tmp_path / "program.py"
    program.write_text(small, encoding="utf-8")
    one, two = (on_mpi(ranks, "-m", "mpi4py", program, "mpi").splitlines() for ranks in (1, 2))
    assert [line.split(":")[1].split(";")[0] for line in (one[0], two[0])] == [" 1", " 2"]
    assert one[1] == two[1] and one[3] == two[3], "growth and bits"
    assert not two[0].endswith(" 0"), "particles change their process"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--particles", "10"], "1000 to 1e10"), (["--particles", "1e3", "--backend", "gpu"], "cpu or cuda"),
     (["--particles", "1000.5"], "whole number"), (["--transport", "pigeon"], "transport")],
)  # fmt: skip
def test_options_that_the_command_refuses(words, message):
    result = CliRunner().invoke(cli.app, ["distributed", *words])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_law_that_does_not_hold_is_reported(monkeypatch, tmp_path):
    broken = [ranks.Test("spread", 0.5, 1e-12), ranks.Test("FFT", 0.0, 1e-13)]
    monkeypatch.setattr(ranks, "tests", lambda world, xp: iter(broken))
    rows = [ranks.Timing(1, 1000, (8, 8, 8), (1e-3,) * 5), ranks.Timing(2, 1000, (16, 8, 8), (2e-3,) * 5)]
    monkeypatch.setattr(ranks, "timings", lambda *arguments: iter(rows))
    console = Console(width=80, record=True, highlight=False)
    options = dict(particles=1e3, nodes=8, backend="cpu", transport="auto", repeats=1)
    assert not ranks.report(console, tmp_path / "picture.png", **options)
    text = console.export_text()
    assert text.count("FAILED") == 1 and "50%" in text


def test_the_example_on_two_ranks():
    words = ["--particles", "4096", "--mesh", "8", "--steps", "6"]
    out = on_mpi(2, "-m", "mpi4py", ROOT / "examples" / "distributed_poisson.py", *words)
    growth, theory = map(float, re.search(r"grew by ([\d.]+) in 6 steps; theory says ([\d.]+)", out).groups())
    assert theory == pytest.approx(np.cosh(1.5), abs=1e-4)
    assert growth == pytest.approx(theory, rel=0.01)
    assert float(re.search(r"momentum per particle ([\d.e+-]+),", out)[1]) < 1e-6
    assert float(re.search(r"([\d.]+)% of the particles changed", out)[1]) > 1


def test_the_benchmark_runs_small_on_two_ranks(tmp_path):
    script = ROOT / "benchmarks" / "distributed" / "scaling.py"
    words = ["--small", "--backend", "cpu", "--out", tmp_path, "--only", "fft", "grid", "positions", "landau"]
    on_mpi(2, "-m", "mpi4py", script, *words)
    (path,) = tmp_path.glob("distributed-scaling-*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["figure"].split()[0] for row in rows] == ["weak,", "uniform", "set_positions", "Landau"]
    assert "rate" in rows[-1]["remark"]
    for row in rows:
        assert row["ranks"] == "2" and row["transport"] == "host" and int(row["rounds"]) > 0
        value = float(row["one_s"]) / float(row["seconds"])
        assert float(row["value"]) == pytest.approx(1 / value if row["unit"] == "times as long" else value, rel=1e-3)
