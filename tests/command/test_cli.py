# SPDX-License-Identifier: BSD-3-Clause
"""The commands: what they print fits, what is wrong is said, and a failure is an exit code."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh import backends
from particlemesh.choosing.choice import METHODS
from particlemesh.command import cli, consoles, demo, info, self_test, warm
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.grid.neighbour_list import neighbour_list
from particlemesh.window import WINDOWS

run = CliRunner().invoke


def test_the_version_is_that_of_the_package():
    result = run(cli.app, ["--version"])
    assert (result.exit_code, result.output.strip()) == (0, pm.__version__)


@pytest.fixture
def cpu_only(monkeypatch):
    """The processor alone, in this process: the other backends have tests of their own."""
    monkeypatch.setattr(self_test, "usable", lambda: {"cpu": backends.current("cpu")})
    monkeypatch.setattr(self_test, "PROCESSES", 1)


@pytest.fixture
def small(tmp_path):
    """A file of few charges."""
    random = np.random.default_rng(3)
    charges = random.normal(size=50)
    file = tmp_path / "few.npz"
    np.savez(file, positions=random.random((50, 3)), charges=charges - charges.mean(), box=[1.0, 1.2, 0.9])
    return file


@pytest.mark.parametrize(("processes", "calls"), [(1, 9), (2, 2)])
def test_warm_makes_each_call_once_and_says_where_code_is_kept(processes, calls, monkeypatch):
    monkeypatch.setattr(self_test, "PROCESSES", processes)
    three = [job for job in warm.jobs() if job[1:] == (3, "float64")]
    assert {name for name, *_ in three} == set(warm.CALLS)
    monkeypatch.setattr(warm, "jobs", lambda: three[:calls])
    result = run(cli.app, ["warm"])
    assert result.exit_code == 0
    assert f"compiled    {min(calls, len(three))} kinds of calls for the CPU" in result.output
    assert "code is kept" in " ".join(result.output.split())


def test_help_loads_no_gpu_library():
    code = (
        "import sys; from particlemesh.command.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: sys.exit(bool({'cupy', 'pyopencl', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.opencl
def test_info_tests_every_method_and_fits(monkeypatch, request):
    """Methods of a device that is emulated compile for minutes: with --thorough."""
    monkeypatch.setattr(self_test, "PROCESSES", 1)
    if request.config.thins:
        monkeypatch.setattr(self_test, "usable", lambda: {"cpu": backends.current("cpu")})
    result = run(cli.app, ["info", "--all"])
    assert result.exit_code == 0, result.output
    assert "not started" not in result.output
    for method in (*METHODS["spread"], *BUILDERS):
        if set(self_test.usable()) & set(method.backends):
            assert method.name in result.output
    lines = result.output.splitlines()
    rows = [line for line in lines if line.rstrip().endswith("ok") or " declined " in line]
    assert len(rows) >= len(BUILDERS)
    assert all(len(line) <= cli.WIDTH for line in rows if " declined " not in line)
    for name, backend in self_test.usable().items():
        tested = [line.split()[1:3] for line in rows if line.startswith(name)]
        assert len(tested) == self_test.checks(backend) == len(set(map(tuple, tested)))
    note = next(n for n, line in enumerate(lines) if line.startswith("error:"))
    assert lines[note + 2] == ""  # two lines, none of which was broken


@pytest.mark.parametrize(("platform", "more"), [("OpenCL 3.0 PoCL 3.0", ["-cl-opt-disable"]), ("OpenCL 3.0 CUDA", [])])
def test_only_emulated_kernels_are_not_optimised_and_only_there(monkeypatch, platform, more):
    options = ["-cl-std=CL1.2"]
    monkeypatch.setattr(backends.module("opencl"), "OPTIONS", options)
    with pytest.raises(ZeroDivisionError), self_test.unoptimised(SimpleNamespace(name="opencl", platform=platform)):
        assert options == ["-cl-std=CL1.2", *more]
        raise ZeroDivisionError
    assert options == ["-cl-std=CL1.2"]


def test_info_begins_with_what_plans_select_and_stops_in_time(monkeypatch, cpu_only):
    monkeypatch.setattr(info, "SECONDS", -1.0)
    monkeypatch.setattr(self_test, "PROCESSES", 2)
    result = run(cli.app, ["info"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines() if line.rstrip().endswith("ok")]
    rows = sorted(lines, key=lambda line: line[1], reverse=True)
    with self_test.Plan(self_test.Mesh((11, 12, 13), (1.0, 1.1, 1.2)), self_test.WINDOW) as plan:
        plan.set_positions(np.random.default_rng(1).random((1000, 3)))
        assert [row[1:3] for row in rows] == [["spread", plan.methods.of("spread").name], ["grid", rows[1][2]]]
    with self_test.UniformGrid((1.0, 1.1, 1.2), cell_size=0.15) as grid:
        assert f"by {rows[1][2]!r}" in repr(grid.build(np.random.default_rng(1).random((500, 3)), 0.07))
    assert f"{self_test.checks(backends.current('cpu')) - 2} more tests were not started" in result.output


def test_info_tells_of_a_process_that_ends_early(monkeypatch, cpu_only):
    monkeypatch.setattr(self_test, "PROCESSES", 2)
    monkeypatch.setattr(self_test, "_work", os.abort)
    result = run(cli.app, ["info"])
    assert result.exit_code == 1
    assert result.output.count("the process ended with code") == 2


def test_info_tells_of_a_method_that_is_not_adjoint(monkeypatch, cpu_only):
    class Wrong(self_test.Plan):
        def spread(self, *arguments, **options):
            return 1.0001 * super().spread(*arguments, **options)

    monkeypatch.setattr(self_test, "Plan", Wrong)
    result = run(cli.app, ["info", "--all"])
    assert result.exit_code == 1
    assert "FAILED" in result.output


def test_a_method_that_declines_on_a_device_is_no_failure_of_info(monkeypatch, cpu_only):
    name = self_test.available_methods("cpu", "spread")[-1]
    (method,) = [m for m in self_test.METHODS["spread"] if m.name == name]
    monkeypatch.setattr(method, "declines", classmethod(lambda cls, problem: "tiles of 57,216 of 49,152 bytes"))
    result = run(cli.app, ["info", "--all"])
    assert result.exit_code == 0
    (row,) = [line for line in result.output.splitlines() if name in line and "spread" in line]
    assert "declined" in row and "57,216 of 49,152" in result.output and "FAILED" not in result.output


@pytest.mark.parametrize(
    ("of_pairs", "said"),
    [
        (lambda pairs: {"j": np.roll(pairs.j, 1)}, "other pairs"),
        (lambda pairs: {"i": pairs.i[1:], "j": pairs.j[1:], "distance": pairs.distance[1:]}, "other pairs"),
        (lambda pairs: {"distance": pairs.distance * 1.0001}, "other distances"),
        (lambda pairs: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_info_tells_of_a_grid_with_other_pairs(monkeypatch, of_pairs, said):
    class Wrong(self_test.UniformGrid):
        def pairs(self, *arguments, **options):
            pairs = super().pairs(*arguments, **options)
            return dataclasses.replace(pairs, **of_pairs(pairs))

    checks = list(self_test.grids(backends.current("cpu")))
    assert sorted(check.method for check in checks) == sorted(builder.name for builder in BUILDERS)
    assert all(check.wrong is None and check.error <= 1e-11 for check in checks)
    monkeypatch.setattr(self_test, "UniformGrid", Wrong)
    assert all(said in check.wrong for check in self_test.grids(backends.current("cpu")))


def test_demo_draws_and_fits(cpu_only, small, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "demo.png"
    result = run(cli.app, ["demo", str(small), "--out", str(out), "--nodes", "12", "--sizes", "8,10"])
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")
    assert str(out) in result.output.replace("\n", "")
    first, learnt, *_ = filter(None, result.output.splitlines())
    assert "charges in" in first and learnt.startswith("All ") and "agree to" in learnt
    assert "the same as those of SciPy's tree" in result.output
    table = result.output.split("picture:")[0]
    assert max(map(len, table.splitlines())) <= cli.WIDTH


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_methods_agree_on_all_backends_and_pocl_has_no_times():
    water = demo.water()
    few = slice(0, 300)
    mesh = demo.pm.Mesh(shape=(12,) * 3, box=water["box"])
    for checks in (self_test.adjointness, self_test.grids):
        first = next(checks(backends.current("opencl")))
        assert first.wrong is None and first.declined is None
    runs = self_test.agreement(water["positions"][few], water["charges"][few], mesh, ("cic", "bspline4"))
    assert all(run.wrong is None for run in runs)
    if self_test.emulated(backends.current("opencl")):
        assert all(run.seconds is None for run in runs if run.backend == "opencl")
        assert {tuple(run.errors) for run in runs if run.backend == "opencl"} == {("bspline4",)}
    assert {tuple(run.errors) for run in runs if run.backend == "cpu"} == {("cic", "bspline4")}
    assert all(run.seconds > 0 for run in runs if run.backend == "cpu" and run.declined is None)


def test_a_method_that_loses_charge_is_a_failure(cpu_only, small, tmp_path, monkeypatch):
    def broken(positions, values, mesh, windows, progress):
        return [self_test.Run("spread", "cpu", "colouring", 1e-11, dict.fromkeys(windows, 0.0), charge=1e-3)]

    monkeypatch.setattr(self_test, "agreement", broken)
    monkeypatch.setattr(consoles, "find_spec", lambda name: None)
    result = run(cli.app, ["demo", str(small), "--nodes", "8"])
    assert result.exit_code == 1
    assert "1 of 1 methods differ or fail" in result.output
    assert "differs by more" in result.output
    assert "pip install matplotlib" in result.output


def test_demo_fails_if_pairs_are_missing(cpu_only, small, monkeypatch):
    def fewer(*arguments, **options):
        i, j = neighbour_list(*arguments, **options)
        return i[1:], j[1:]

    monkeypatch.setattr(self_test, "agreement", lambda *_, **__: [])
    monkeypatch.setattr(consoles, "find_spec", lambda name: None)
    monkeypatch.setattr(self_test, "neighbour_list", fewer)
    result = run(cli.app, ["demo", str(small), "--nodes", "8"])
    assert result.exit_code == 1
    assert "not those of SciPy's tree" in result.output


@pytest.mark.parametrize("error", [float("nan"), 1e-3])
def test_nan_and_large_errors_do_not_pass(error):
    assert self_test.Run("spread", "cpu", "any", 1e-11, {"cic": error}).wrong


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (None, "does not exist"),
        (b"no archive", "cannot be read"),
        ({"positions": np.ones((2, 3))}, "has no column charges"),
        ({"positions": np.ones((2, 3)), "charges": [1, -1]}, "three lengths"),
        ({"positions": np.ones((2, 2)), "charges": [1, -1], "box": [1, 1, 1]}, "(2, 2)"),
        ({"positions": np.ones((2, 3)), "charges": [0, 0], "box": [1, 1, 1]}, "all zero"),
        ({"positions": np.ones((2, 3)), "charges": [1, np.nan], "box": [1, 1, 1]}, "finite"),
        ({"positions": np.ones((2, 3)), "charges": [1, -1], "box": [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]}, "diagonal"),
    ],
)
def test_wrong_files_are_distinguished(tmp_path, arrays, said):
    file = tmp_path / "some.npz"
    if isinstance(arrays, bytes):
        file.write_bytes(arrays)
    elif arrays is not None:
        np.savez(file, **arrays)
    result = run(cli.app, ["demo", str(file)])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize("sizes", ["", "x", "4", "16,2000"])
def test_wrong_sizes(sizes):
    assert run(cli.app, ["demo", "--sizes", sizes]).exit_code == 2


def test_cite_has_an_entry_for_every_method():
    entries = cli.bibliography()
    everything = run(cli.app, ["cite"]).output
    for methods in (*METHODS.values(), BUILDERS):
        for method in methods:
            if method.cite:
                assert method.cite in entries
                assert entries[method.cite] in everything
                assert f"% {method.name}: {cli.summary(method)}" in everything


def test_cite_knows_every_name_of_a_window():
    for name, make in WINDOWS.items():
        result = run(cli.app, ["cite", "--method", name])
        assert result.exit_code == 0, f"{name} needs cite, a key of reference.bib"
        assert f"{{{make().cite}," in result.output, name


def test_cite_narrows_to_a_method_or_a_window():
    result = run(cli.app, ["cite", "--method", "bspline6"])
    assert "@book{deboor" in result.output
    assert result.output.count("@") == 1
    result = run(cli.app, ["cite", "--method", "linked_list_tight"])
    assert "{barbieri2013," in result.output
    assert result.output.count("@") == 1
    wrong = run(cli.app, ["cite", "--method", "nothing"])
    assert wrong.exit_code == 2
    assert "m4prime" in wrong.output


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no exit by a signal")
def test_ctrl_c_during_imports_ends_without_a_traceback(tmp_path):
    (tmp_path / "numba.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n", encoding="utf-8")
    (tmp_path / "program.py").write_text("import particlemesh\n", encoding="utf-8")
    (tmp_path / "particlemesh").write_text("from particlemesh.command.cli import app\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(pm.__file__).parents[1])])}
    for words, silent in (
        (["-m", "particlemesh", "info"], True),
        ([str(tmp_path / "particlemesh"), "info"], True),
        ([str(tmp_path / "program.py")], False),  # of a user: Python's own way
    ):
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGINT
        assert (done.stderr == "") == silent, done.stderr


def test_ctrl_c_after_imports_is_an_exception():
    code = "import sys, signal; sys.argv = ['particlemesh']; import particlemesh.command.cli; signal.raise_signal(2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize("name", ["-m", "/usr/bin/particlemesh"])
def test_ctrl_c_is_an_exception_once_the_command_is_imported(name):
    """Runpy has put the module's file in the place of ``-m`` by then."""
    code = (
        "import signal, sys\n"
        f"sys.argv[0], sys.orig_argv = {name!r}, ['python', '-m', 'particlemesh']\n"
        "import particlemesh\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL\n"
        f"sys.argv[0] = {name!r}.replace('-m', '/site-packages/particlemesh/__main__.py')\n"
        "import particlemesh.command.cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
