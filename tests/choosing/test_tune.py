# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh tune``: which problems it measures, what it writes and says; and the benchmark that judges it."""

import math
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh import backends
from particlemesh.choosing import predict, tables, trial
from particlemesh.choosing.candidates import Candidate
from particlemesh.choosing.choice import METHODS
from particlemesh.command import cli, self_test, tune
from particlemesh.spread.colouring import Colouring

CPU = backends.current("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of its own, nothing known from before, and no device but the processor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "shipped", lambda _: ())
    monkeypatch.setattr(self_test, "usable", lambda: {"cpu": CPU})
    predict.forget()
    yield tmp_path / "particlemesh" / "timings"
    predict.forget()


@pytest.fixture
def small(monkeypatch):
    """Problems that take no time, and few of them."""
    monkeypatch.setattr(tune, "PARTICLES", (100, 2000))
    monkeypatch.setattr(tune, "NODES", (9, 20))
    monkeypatch.setattr(tune, "KINDS", ((4, "float32", 1), (3, "float64", 2)))
    monkeypatch.setattr(tune, "WIDE", tune.KINDS)
    few = list(tune.cases(4))
    monkeypatch.setattr(tune, "cases", lambda: iter(few))
    return few


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["tune", *arguments])
    return result.exit_code, re.sub(r"\s+", " ", result.output)


# ---- problems ---------------------------------------------------------------------------------------------


def test_problems_lie_evenly_wherever_they_are_broken_off():
    whole = list(tune.cases())
    assert len(whole) == tune.PROBLEMS == len(set(whole))
    for count in (60, 120, tune.PROBLEMS):
        assert whole[:count] == list(tune.cases(count))
        flat = [c for c in whole[:count] if c.axes < 3]
        assert len(flat) == count // tune.FLAT and abs(sum(2 * c.axes - 3 for c in flat)) <= 1
        some = [c for c in whole[:count] if c.axes == 3 and c[:5] not in tune.COMMON]
        count -= len(flat)
        often = min(count // tune.OFTEN, len(tune.COMMON))
        assert often <= count - len(some) <= often + 1
        count = len(some)
        particles = np.log10([c.particles for c in some])
        nodes = np.log([c.nodes for c in some])
        assert np.histogram(particles, 4, (3, 7))[0].min() >= count // 4 - 2
        assert np.histogram(nodes, 4, (np.log(24), np.log(300)))[0].min() >= count // 4 - 3
        assert {c[1:4] for c in some} == {*tune.KINDS, *tune.WIDE}
        assert abs(np.corrcoef(particles, nodes)[0, 1]) < 0.15
        clustered = [c.filled < 1 for c in some]
        assert 0.3 < np.mean(clustered) < 0.5
        assert 0.25 < np.mean([c.in_order for c in some]) < 0.45
    flat = [c for c in whole if c.axes < 3]
    for axes in (1, 2):
        its = [c for c in flat if c.axes == axes]
        density = np.log([c.particles / c.nodes**axes for c in its])
        assert np.histogram(density, 4, np.log(tune.DENSITIES))[0].min() >= len(its) // 4 - 3
        assert np.histogram(np.log10([c.particles for c in its]), 4, (3, 7))[0].min() >= len(its) // 4 - 2
        assert {c[1:4] for c in its} > {*tune.WIDE}
    assert {c.support for c in whole} == {*range(2, 9), *(support for support, *_ in tune.WIDE)}
    assert {c.nodes % 2 for c in whole} == {0, 1}
    assert min(c.filled for c in whole) >= tune.LEAST_FILLED


def test_problems_that_many_users_have_are_among_them():
    assert math.gcd(29, len(tune.COMMON)) == 1  # so that each has its turn
    common = [c for c in tune.cases() if c[:5] in tune.COMMON]
    assert {c[:5] for c in common} == set(tune.COMMON) and len(common) == len(tune.COMMON)
    assert all(c.filled == 1 and not c.in_order for c in common)


def test_times_that_are_still_valid_are_kept(cache, small, monkeypatch):
    code, _ = run("--backend", "cpu")
    (file,) = cache.iterdir()
    before = tables.read(file)
    assert code == 0 and not before.changed()
    timed = []
    seconds = trial.seconds
    monkeypatch.setattr(
        trial, "seconds", lambda w, d, m: timed.append((d, m.name)) or seconds(w, d, m)
    )  # fmt: skip
    assert run("--backend", "cpu", "--changed")[0] == 0
    assert not timed and set(tables.read(file).rows) == set(before.rows)
    # A method whose code has changed is measured again on all its problems, others on new problems.
    renewed = before.rows[0][:2]
    known = tables.fingerprint
    monkeypatch.setattr(tables, "fingerprint", lambda b, d, m: "new" if (d, m) == renewed else known(b, d, m))
    assert run("--backend", "cpu", "--changed")[0] == 0
    assert set(timed) == {renewed} and len(timed) == sum(row[:2] == renewed for row in before.rows)
    timed.clear()
    more = [*small, tune.Case(11, 4, "float32", 1, 50, 1.0)]
    monkeypatch.setattr(tune, "cases", lambda: iter(more))
    assert run("--backend", "cpu", "--changed")[0] == 0
    assert {d for d, _ in timed} == {"spread", "interpolate"}
    assert {row[2:7] for row in tables.read(file).rows} == {c[:5] for c in more}
    file.write_text(file.read_text().replace(f"format: {tables.FORMAT}", "format: 4"))
    code, said = run("--backend", "cpu", "--changed")
    assert code == 2 and "tune without --changed" in said


def test_a_case_has_the_particles_it_says():
    case = tune.Case(12, 4, "float32", 2, 5000, 0.125)
    with tune.plan_of(CPU, case, applications=1000) as plan:
        problem = plan.methods.problem()
        assert (problem.count, problem.nodes, problem.components, problem.dtype) == (5000, 12**3, 2, np.float32)
        assert 0.1 < problem.filled < 0.3
        asked = case.problem(CPU)
        assert (asked.mesh, asked.window.support, asked.filled) == (problem.mesh, 4, 0.125)


@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize(("particles", "filled"), [(8000, 1.0), (8001, 0.05), (20_000, 0.5), (27_000, 1.0)])
def test_particles_of_a_case_are_in_order_or_not(in_order, particles, filled):
    case = tune.Case(12, 4, "float32", 2, particles, filled, in_order)
    x = tune.positions_of(case)
    assert x.shape == (particles, 3) and x.dtype == np.float32
    side = filled ** (1 / 3) / 2
    assert np.abs(x - 0.5).max() <= side * (1 + 1e-6) and np.abs(x - 0.5).max() > 0.8 * side
    with tune.plan_of(CPU, case, applications=1000) as plan:
        assert plan.methods.problem().in_order == case.problem(CPU).in_order == bool(in_order)


def test_only_methods_that_may_be_best_are_tried():
    def candidate(name, prepare, apply, size=0, reason=None):
        return Candidate(type(name, (Colouring,), {"name": name}), reason, prepare, apply, size)

    asked = [
        candidate("once", 0.0, 1e-3), candidate("often", 2e-2, 1e-4), candidate("never", 2e-2, 1e-2),
        candidate("long", 0.6, 1e-5), candidate("large", 0.0, 1e-3, 400), candidate("unable", 0.0, 0.0, 0, "no"),
    ]  # fmt: skip
    assert [c.method.name for c in tune.worthwhile(asked, 1000)] == ["once", "often"]
    assert tune.worthwhile([], 1000) == []


# ---- measuring --------------------------------------------------------------------------------------------


def test_what_is_measured_is_what_is_predicted(small):
    said = []
    table, path = tune.run(CPU, 60, lambda what, done, total: said.append((what, done, total)))
    assert [done for _, done, _ in said] == [0, 1, 2, 3] and {total for _, _, total in said} == {4}
    assert said[0][0] == f"{small[0].particles:,} particles, {small[0].nodes}^3 nodes"
    assert path.exists() and table.measured.endswith(", 4 problems")
    assert {(r.direction, r.method) for r in table.rows} >= {("spread", "colouring"), ("interpolate", "tiles")}
    assert {r[2:7] for r in table.rows} == {c[:5] for c in small}
    assert {r.in_order for r in table.rows} == {0} != {c.in_order for c in small}  # as any plan sees so few
    times = predict.known(CPU)
    for row, rounded in zip(table.rows, times.rows, strict=True):
        method = next(m for m in METHODS[row.direction] if m.name == row.method)
        predicted = times.predict(row.direction, method, predict.problem_of(rounded, CPU))
        np.testing.assert_allclose(predicted, (row.prepare, row.apply), rtol=2e-3, atol=1e-9)
    plan = pm.Plan(pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0)), "cic")
    plan.set_positions(np.random.default_rng(1).random((100, 3)))
    assert f"predictions: measured on {tables.device_of(CPU)} by `particlemesh tune`" in plan.explain()


def test_auto_goes_by_what_was_measured(monkeypatch):
    class Rival(Colouring):
        """Says that it is slow, and is not."""

        name = "rival"
        cost = classmethod(lambda cls, problem: (0.0, 100 * Colouring.cost(problem)[1]))

    monkeypatch.setitem(METHODS, "spread", (Colouring, Rival))
    x = np.random.default_rng(2).random((100, 3))

    def chosen():
        plan = pm.Plan(pm.Mesh((9, 9, 9), (1.0, 1.0, 1.0)), "cic")
        plan.set_positions(x)
        plan.spread(np.ones(100))
        return type(plan.methods.of("spread"))

    assert chosen() is Colouring
    rows = [
        tables.Row("spread", method, nodes, 2, "float64", 1, particles, 1.0, 0, 1.0, 0.0, seconds)
        for method, seconds in (("colouring", 2e-3), ("rival", 1e-3))
        for nodes, particles in ((8, 100), (8, 1000), (16, 100))
    ]
    of = tables.sources_of("cpu", rows)
    tables.write(tables.Table("cpu", tables.device_of(CPU), "today", of, tuple(rows)))
    predict.forget()
    assert chosen() is Rival


def test_no_trial_begins_after_the_end(small, monkeypatch):
    now, tried = [0.0], []

    def time_of(*asked):
        now[0] += 0.2
        tried.append(asked)
        return 0.0, 1e-3

    monkeypatch.setattr(tune, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(trial, "seconds", time_of)
    assert len(tune.measure(CPU, 0.3).rows) == len(tried) == 2
    assert not tune.measure(CPU, 0.0).rows


def test_an_interrupt_keeps_what_was_measured(small, cache, monkeypatch):
    timed = tune._rows

    def interrupted(backend, case, *others):
        if case == small[2]:
            raise KeyboardInterrupt
        return timed(backend, case, *others)

    monkeypatch.setattr(tune, "_rows", interrupted)
    table, path = tune.run(CPU, 60.0)
    written = path.read_bytes()
    assert table.measured.endswith("2 problems")
    assert {row[2:7] for row in tables.read(path).rows} == {case[:5] for case in small[:2]}
    monkeypatch.setattr(tune, "_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):  # nothing was measured: what is stored stays
        tune.run(CPU, 60.0)
    assert path.read_bytes() == written


def test_what_finds_no_memory_is_left_out(small, monkeypatch):
    def time_of(workspace, direction, method):
        if direction == "spread":
            raise MemoryError
        return 0.0, 1e-3

    monkeypatch.setattr(trial, "seconds", time_of)
    assert {row.direction for row in tune.measure(CPU).rows} == {"interpolate"}


def test_a_problem_that_finds_no_memory_is_left_out(small, monkeypatch):
    made, plan_of = [], tune.plan_of

    def only_once(*asked, **more):
        made.append(asked)
        if len(made) > 1:
            raise MemoryError
        return plan_of(*asked, **more)

    monkeypatch.setattr(tune, "plan_of", only_once)
    predicted = tune.measure(CPU)
    assert len(made) == 4 and {row[2:7] for row in predicted.rows} == {small[0][:5]}


def test_kernels_are_compiled_many_at_a_time_before_they_are_timed(small, monkeypatch):
    compiled, timed, begun, both = [], [], set(), threading.Barrier(2, timeout=30)

    def compile_for(workspace, direction, method):
        if threading.current_thread() not in begun:
            begun.add(threading.current_thread())
            both.wait()  # for the other thread, with another problem
        compiled.append((workspace.count, direction, method))

    def time_of(workspace, direction, method):
        assert (workspace.count, direction, method) in compiled
        timed.append(method)
        return 0.0, 1e-3

    monkeypatch.setattr(tune, "COMPILING", ("cpu",))
    monkeypatch.setattr(tune, "available_threads", lambda: 2)
    monkeypatch.setattr(trial, "once", compile_for)
    monkeypatch.setattr(trial, "seconds", time_of)
    said = []
    table = tune.measure(CPU, 60, lambda what, done, total: said.append(what))
    assert len(begun) == 2 and len(table.rows) == len(timed) == len(compiled)
    assert [what for what in said if "compiling" in what] == [f"compiling, {n} of 4" for n in (1, 2, 3, 4)]


def test_what_finds_no_memory_to_compile_is_timed_all_the_same(small, monkeypatch):
    def fails(*asked):
        raise MemoryError

    monkeypatch.setattr(tune, "COMPILING", ("cpu",))
    monkeypatch.setattr(trial, "once", fails)
    monkeypatch.setattr(trial, "seconds", lambda *asked: (0.0, 1e-3))
    assert {row[2:7] for row in tune.measure(CPU, 60).rows} == {c[:5] for c in small}


# ---- command ----------------------------------------------------------------------------------------------


def test_the_command_writes_and_shows(small, cache):
    code, said = run("--quick")
    assert code == 0
    path = tables.path_of("cpu", tables.device_of(CPU))
    assert f"written to {path}" in said and "at most 40 s" in said
    assert "spread colouring" in re.sub(r"\b(\w+_mesh|fixed_point)( [\d.]+)+ ", "", said)
    assert path.exists() and list(cache.iterdir()) == [path]
    code, shown = run("--show")
    assert code == 0
    assert "predictions: measured on" in shown and "tiles 4" in shown and "written to" not in shown
    path.write_text(re.sub(r"^# (spread/.+): .+$", r"# \1: 0123", path.read_text(), flags=re.MULTILINE))
    predict.forget()
    code, shown = run("--show", "--backend", "cpu")
    assert code == 0 and f"{path} has outdated times, which are not used, for spread/colouring, spread/" in shown


def test_the_command_shows_that_nothing_is_known():
    code, said = run("--show")
    assert code == 0
    assert "predictions: the methods' own models `particlemesh tune` measures this device" in said


def test_where_nothing_can_be_written_nothing_is_measured(small, cache, monkeypatch):
    cache.parent.write_text("a file where the folder should be")
    monkeypatch.setattr(trial, "seconds", lambda *a: pytest.fail("this was measured in vain"))
    code, said = run("--quick")
    said = said.replace(" ", "")  # lines are broken within the folder's name, too
    assert code == 2 and f"particlemeshtune:{cache}cannotbewritten".replace(" ", "") in said
    assert "nameanotherfolderinXDG_CACHE_HOME" in said


def test_wrong_backends_are_reported():
    code, said = run("--backend", "spam")
    assert code == 2 and "--backend is 'spam'; give one of cpu, cuda, opencl." in said
    code, said = run("--backend", "cuda")
    assert code == 2 and "cuda is not available: " in said


def test_an_emulated_gpu_is_not_taken_by_itself(monkeypatch):
    pocl = type("Emulated", (), {"name": "opencl", "platform": "PoCL 3"})()
    gpu = type("Gpu", (), {"name": "opencl", "platform": "OpenCL 3 CUDA"})()
    for usable, taken in (({"cpu": CPU, "opencl": pocl}, CPU), ({"cpu": CPU, "opencl": gpu}, gpu)):
        monkeypatch.setattr(self_test, "usable", lambda usable=usable: usable)
        assert tune.device(None) is taken
    monkeypatch.setattr(self_test, "usable", lambda: {"cpu": CPU, "opencl": pocl})
    assert tune.device("opencl") is pocl


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_opencl_can_be_tuned(small, monkeypatch):
    monkeypatch.setattr(tune, "cases", lambda: iter(small[:1]))
    table = tune.measure(backends.current("opencl"))
    assert {row.direction for row in table.rows} == {"spread", "interpolate"}
    assert table.backend == "opencl"


def test_a_folder_in_the_files_place_is_found_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tables.path_of("cpu", "x")
    path.mkdir(parents=True)
    with pytest.raises(ValueError, match="is a folder, where the file of times should be: remove it"):
        tables.place_for("cpu", "x")


def test_relative_cache_folders_do_not_count(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert tables.folder().is_absolute()
