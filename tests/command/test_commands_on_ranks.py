# SPDX-License-Identifier: BSD-3-Clause
"""Commands on files over the processes of MPI do what one process does, and the first one writes."""

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from mpiexec import on_mpi
from particlemesh.apps import files
from particlemesh.apps.files.accumulate import together
from particlemesh.command import cli, consoles, file_work
from particlemesh.distributed import RankError
from ranks import on_threads

LENGTHS = np.array([4.0, 5.0, 6.0])


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    np.savez(tmp_path / "few.npz", positions=rng.random((500, 3)) * LENGTHS, mass=rng.random(500), lengths=LENGTHS)
    return tmp_path


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("chunk", [10**6, 90, 499])
def test_ranks_share_the_parts_of_a_file(few, size, chunk):
    mesh = pm.Mesh((6, 7, 8), LENGTHS)

    def work(world):
        with files.open_particles(few / "few.npz", positions="positions", values="mass") as particles:
            field, account = files.spread_particles(particles, mesh, "tsc", size=chunk, world=world)
            return field, account, files.particles_spectrum(particles, mesh, size=chunk, world=world).power

    expected = work(None)
    for field, account, power in on_threads(size, work):
        np.testing.assert_allclose(field, expected[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(power, expected[2], rtol=1e-9)
        assert account.particles == 500
        assert account.values == pytest.approx(expected[1].values, rel=1e-12)


def test_the_commands_on_two_processes(few):
    words = ["few.npz", "--values", "mass", "--box", "4,5,6", "--shape", "6", "--out"]
    for command, out in (("spread", "field.npz"), ("spectrum", "power.npz")):
        said = on_mpi(2, "-m", "particlemesh", command, *words, f"two_{out}")
        assert CliRunner().invoke(cli.app, [command, *words, f"one_{out}"]).exit_code == 0
        assert said.count("500") >= 1
        assert said.count("written") == 1
        with np.load(few / f"two_{out}") as two, np.load(few / f"one_{out}") as one:
            for name in one.files:
                if one[name].dtype.kind == "f":
                    np.testing.assert_allclose(two[name], one[name], rtol=1e-9, atol=1e-12)
    words = ["interpolate", "few.npz", "--field", "one_field.npz", "--chunk", "90", "--gradient", "--out"]
    assert on_mpi(3, "-m", "particlemesh", *words, "3.npz").count("written") == 1
    assert CliRunner().invoke(cli.app, [*words, "1.npz"]).exit_code == 0
    with np.load(few / "3.npz") as three, np.load(few / "1.npz") as one:
        assert set(three.files) == set(one.files)
        for name in one.files:
            np.testing.assert_allclose(three[name], one[name], rtol=1e-9, atol=1e-12)


def test_a_command_for_one_process_and_an_error_are_one_line(few):
    pytest.importorskip("mpi4py")
    for words, text in (
        (["neighbours", "few.npz", "--radius", "1"], "takes one process"),
        (["spread", "none.npz"], "none.npz"),
    ):
        with pytest.raises(AssertionError) as caught:
            on_mpi(2, "-m", "particlemesh", *words)
        assert str(caught.value).count(text) >= 1
        assert "Traceback" not in str(caught.value)


def test_processes_without_mpi4py_are_refused(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    stack = contextlib.ExitStack()
    with pytest.raises(ImportError, match="started 2 processes, and mpi4py is missing"):
        stack.enter_context(consoles.over_ranks(consoles.console(), True))
    monkeypatch.delenv("PMI_SIZE")
    with consoles.over_ranks(consoles.console(), False) as world:
        assert world is None


# What a command needs before it looks at anything else; the others print only, or take ranks by themselves.
WORDS = {
    "demo": [], "tune": [], "warm": [], "brownian": [], "dem": [], "view": ["f.npz"], "spread": ["f.npz"],
    "interpolate": ["f.npz", "--field", "g.npz"], "neighbours": ["f.npz", "--radius", "1"], "spectrum": ["f.npz"],
}  # fmt: skip


def test_every_command_that_writes_knows_of_other_processes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    names = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    assert names - WORDS.keys() == {"info", "cite", "distributed"}
    for name, words in WORDS.items():
        done = CliRunner().invoke(cli.app, [name, *words])
        assert done.exit_code == 2 and "MPI has started 3 processes" in " ".join(done.output.split()), name
    assert not list(tmp_path.iterdir())


def test_an_error_names_the_particle_of_the_file(few):
    """Also where parts before it were those of other ranks."""
    x = np.full((500, 3), 0.5)
    x[470, 1] = 99.0
    np.savez("far.npz", positions=x)
    mesh = pm.Mesh((6, 6, 6), LENGTHS, periodic=False)

    def work(world):
        with (
            files.open_particles("far.npz", positions="positions") as particles,
            pytest.raises((ValueError, RankError), match="particles from 334 on: .*particle 136 "),
        ):
            files.spread_particles(particles, mesh, "cic", world=world)

    on_threads(3, work)


def test_ranks_with_other_options_are_refused(few):
    def work(world):
        o = SimpleNamespace(
            file="few.npz", out=few / "f.npz", shape=(6, 6, 6 + world.rank), spacing=None, picture=None, overwrite=False
        )
        with (
            pytest.raises(RankError, match="--shape"),
            together(world, file_work._said("spread", {"file", "shape"}, o)),
        ):
            pass

    on_threads(2, work)
