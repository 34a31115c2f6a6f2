# SPDX-License-Identifier: BSD-3-Clause
"""Every script of the benchmarks runs with tiny cases and writes files with the columns of the committed ones."""

import functools
import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from particlemesh import backends
from particlemesh.backends import nvrtc
from ptx import without_nvrtc

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]

import compare  # noqa: E402
from core import ceilings, rows  # noqa: E402
from grid import build  # noqa: E402
from harness import tables  # noqa: E402
from harness.bench import Bench  # noqa: E402
from harness.place import Place  # noqa: E402
from studies.buyukkececi import breakdown, cases, times  # noqa: E402

CPU = ["--backend", "cpu"]
SCRIPTS = {  # arguments beside --small and --out, and the files that a script writes
    "core.run": ([*CPU, "--only", "ceilings", "peer", "density", "roofline", "thresholds"],
                 ("limit-ceilings", "limit-peer", "limit-density", "limit-roofline")),
    "core.regret": ([*CPU, "--problems", "1"], ("regret",)),
    "core.overhead": ([], ("overhead",)),
    "core.forms": (CPU, ("forms-interpolate",)),
    "core.gpu": (CPU, ()),
    "core.calls": (CPU, ("plain-calls",)),
    "grid.run": (CPU, ("grid-build", "grid-pairs")),
    "grid.build": ([*CPU, "--only", "published"], ("grid-build",)),
    "grid.pairs": ([*CPU, "--only", "published"], ("grid-pairs",)),
    "grid.lists": (CPU, ("grid-lists",)),
    "grid.cpu": (["--threads", "1"], ("grid-cpu",)),
    "grid.cliffs": (CPU, ("grid-cliffs",)),
    "grid.systems": (CPU, ("grid-systems",)),
    "apps.poisson": (CPU, ("poisson",)),
    "apps.pme": (CPU, ("pme", "batched-pme", "dispersion")),
    "apps.pme_errors": (CPU, ("pme-errors", "pme-nodes", "pme-dipoles")),
    "apps.induced": (CPU, ("induced-spread", "induced-solve")),
    "apps.dem": (CPU, ("dem-steps",)),
    "apps.cliffs": (CPU, ("app-cliffs",)),
    "apps.nufft": (["--threads", "1"], ("nufft",)),
    "apps.nufft_float32": ([], ("nufft-float32",)),
    "studies.barbieri.run": ([*CPU, "--only", "storage", "peer"], ("barbieri-column",)),
    "studies.guo.run": ([*CPU, "--only", "fig3", "fig9", "long_totals", "cusparse"],
                       ("guo-fig3", "guo-fig9", "guo-long_totals", "guo-cusparse")),
    "studies.buyukkececi.run": ([*CPU, "--only", "convergence", "times", "breakdown"],
                               ("buyukkececi-convergence", "buyukkececi-times", "buyukkececi-tables")),
}  # fmt: skip
# Columns of the committed file that fresh files do not have.
FORMER = {"limit-rows": {"prototype", "reach", "stretch"}}


def committed(name):
    """The columns of the committed files of a benchmark, if there are any."""
    files = [set(tables.read(file)[0]) for file in tables.RESULTS.glob(f"{name}-*.csv")]
    return max(files, key=len, default=set()) - FORMER.get(name, set())


def run(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [script, "--small", *map(str, arguments)])
    importlib.import_module(script).main()


def test_a_sample_of_regrets_ends_with_a_number_when_its_time_is_over(monkeypatch, tmp_path, capsys):
    run("core.regret", monkeypatch, *CPU, "--problems", "2", "--seconds", "0.001", "--out", tmp_path)
    fresh = tables.read(next(tmp_path.glob("regret-sample-*.csv")))
    assert len(fresh) == 1  # of two problems and two directions: the time is over after the first
    assert set(fresh[0]) == committed("regret")
    assert "mean regret" in capsys.readouterr().out


def test_the_times_of_the_same_bits_are_beside_the_fastest(monkeypatch, capsys):
    run("distributed.same_bits", monkeypatch, *CPU, "--window", "bspline6", "--dtype", "float32", "--threads", "1")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"{plan}, {call}" for plan in ("plan over ranks", "local plan")
        for call in ("set_positions", "spread", "interpolate", "all three")
    ]  # fmt: skip
    assert all(float(line.rpartition("ratio ")[2]) > 0 for line in lines)


def test_a_share_of_a_sample_is_compiled_and_not_measured(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr("particlemesh.choosing.trial.once", lambda workspace, direction, method: made.append(direction))
    share = ["--problems", "2", "--seconds", "60", "--compile", "1", "2"]
    run("core.regret", monkeypatch, *CPU, *share, "--out", tmp_path)
    assert {"spread", "interpolate"} <= set(made)
    assert not list(tmp_path.iterdir())


@pytest.mark.turns(5)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_writes_the_columns_of_the_committed_files(script, monkeypatch, tmp_path):
    arguments, names = SCRIPTS[script]
    if script == "apps.nufft":
        for peer in ("finufft", "ducc0"):
            pytest.importorskip(peer)
    run(script, monkeypatch, *arguments, "--out", tmp_path)
    written = {name: next(tmp_path.glob(f"{name}-*.csv")) for name in names}
    assert len(list(tmp_path.iterdir())) == len(names)
    for name, file in written.items():
        fresh = tables.read(file)
        assert fresh and committed(name) in (set(), set(fresh[0])), name
        differences = [row["difference"] for row in fresh if script == "apps.dem" and row["difference"]]
        assert all(float(difference) < 1e-9 for difference in differences), "two motions by one law"
        kind = compare.kind_of(file)
        assert kind is None or compare.named(fresh, kind) or "published" in arguments


def test_a_grid_run_that_is_cut_short_keeps_what_it_has_measured(monkeypatch, tmp_path):
    def cut_short(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build.Builds, "identical", cut_short)
    with pytest.raises(KeyboardInterrupt):
        run("grid.run", monkeypatch, *CPU, "--out", tmp_path)
    (file,) = tmp_path.iterdir()
    assert {row["group"] for row in tables.read(file)} == {"size"} and set(tables.read(file)[0]) == committed(
        "grid-build"
    )


@pytest.mark.opencl
def test_stages_of_transforms_have_bounds(monkeypatch, tmp_path):
    from apps import nufft_gpu

    monkeypatch.setattr(nufft_gpu, "TOLERANCES", (("complex64", 1e-4),))
    reason = backends.module("opencl").available()
    if reason is not None:
        pytest.skip(f"opencl does not work here: {reason}")
    run("apps.nufft_gpu", monkeypatch, "--backend", "opencl", "--out", tmp_path)
    fresh = tables.read(next(tmp_path.glob("gpu-*.csv")))
    parts = [["spread", "fft", "deconvolve"], ["deconvolve", "fft", "interpolate"]]
    assert [row["stage"] for row in fresh] == [name for part in parts for name in (*part, "execute", "setpts")]
    assert all(float(row["over_bound"]) > 0 for row in fresh if row["stage"] != "execute")
    assert all(float(row["error"]) < 2e-4 for row in fresh if row["stage"] == "execute")


def test_finufft_is_asked_for_where_it_is_missing(monkeypatch, tmp_path):
    if importlib.util.find_spec("finufft"):
        run("core.cpu", monkeypatch, "--threads", 1, "--out", tmp_path)
        assert set(tables.read(next(tmp_path.iterdir()))[0]) == committed("cpu")
    else:
        with pytest.raises(SystemExit, match="pip install finufft"):
            run("core.cpu", monkeypatch)


# ---- rows of the limit ------------------------------------------------------------------------------------


class Few(Bench):
    """Walks, or else the simplest method: kernels take long to compile."""

    def rivals(self, case, factor=4.0, most=4):
        able = [name for name, c in self.asked(case)[1].items() if c.reason is None]
        chosen = [n for n in able if n in ("walk", "particle")] or able[-1:]
        return chosen[0], chosen


@functools.cache
def bench(name):
    return Few(name, small=True)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "key", ["spread-4", "interpolate-sorted", "order-nearly", "spread-few", "error-spread-clustered", "deterministic"]
)
def test_a_row_of_the_limit_has_a_figure_and_a_small_error(backend, key):
    row = next(r for r in rows.ROWS if r.key == key)
    row = replace(row, case=replace(row.case, count=150, nodes=16, support=4))
    measured = list(rows.rows(bench(backend.name), row))
    assert measured and set(measured[0]) == committed("limit-rows")
    assert all(r["note"] == "" and r["figure"] > 0 for r in measured)
    if row.unit == rows.MS:
        assert all(r["figure"] == pytest.approx(1e3 * r["positions_s"]) for r in measured)
        assert all(r["positions_s"] >= r["prepare_s"] >= 0 for r in measured)
    else:
        assert all(1e-9 < r["error"] < 2e-6 for r in measured)
    if row.unit == rows.POINTS:
        assert all(r["figure"] == pytest.approx(4 * 150e-9 / r["call_s"], rel=1e-3) for r in measured)


@pytest.mark.backends("cuda")
def test_parts_that_need_a_gpu_run_there(backend, monkeypatch, tmp_path):
    if backends.module("opencl").available() is not None:
        pytest.skip("a part compares CUDA with OpenCL, and there is none")
    for script, *only in (
        ("core.run", "--only", "ceilings", "rows"), ("core.gpu",), ("studies.guo.run", "--only", "fig6", "cusparse"),
        ("studies.buyukkececi.run", "--only", "times", "breakdown"), ("grid.run",),
    ):  # fmt: skip
        run(script, monkeypatch, "--backend", "cuda", "--out", tmp_path, *only)
    written = {file.name.rpartition("-nvidia")[0]: tables.read(file) for file in tmp_path.iterdir()}
    known = {row["name"]: float(row["value"]) for row in written["limit-ceilings"]}
    assert known["tensor_f32"] > known["fma_f32"] > 0 and 0 < known["launch"] < known["gather"] < 1e-3
    assert any(row["method"].startswith("cuSPARSE, CSR") for row in written["guo-cusparse"])
    builds = [row for row in written["grid-build"] if row["group"] in ("size", "cloud", "refined", "2-D")]
    assert builds and all(float(row["graph_s"]) > 0 for row in builds), builds


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
def test_kernels_of_the_ceilings_compile_for_cuda():
    binary = nvrtc.compiled(ceilings.SOURCE.read_text(), ceilings.SOURCE.name, 90)
    for name in ("nothing", "shortest_gather", "read_l2", "read_l1", "multiply_adds_f32", "matrix_f64", "add_f32x4"):
        assert name.encode() in binary


# ---- papers, grids ----------------------------------------------------------------------------------------


@pytest.mark.opencl
def test_stages_of_a_call_add_up_to_the_whole():
    if backends.module("opencl").available() is not None:
        pytest.skip("no OpenCL device")
    place, case = Place("opencl"), cases.Case("spread", 2, "cic", "float32", 16)
    every = place.methods
    place.methods = lambda direction: [m for m in every(direction) if m.name in ("particle", "domain_copies")]
    stages = list(breakdown.measure(place, case))
    assert not place.failed and set(stages[0]) == committed("buyukkececi-breakdown")
    for method, names in (("particle", {"transfer", "kernel"}), ("domain_copies", {"ordering", "stitch, collect"})):
        assert names <= {r["stage"] for r in stages if r["method"] == method}
        assert sum(r["share"] for r in stages if r["method"] == method) == pytest.approx(1, abs=1e-3)
    measured = list(times.measure([place], case, {}))
    assert {r["method"] for r in measured} == {"particle", "domain_copies"}
