# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks of Guo et al. (2015) run, each figure on a tiny problem, and judge each claim both ways."""

import functools
import importlib
import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import oracle
import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import cuda, opencl
from test_nvrtc import without_nvrtc

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools" / "docs")]

from guo import cases, claims, cusparse, fig6_atomics, run  # noqa: E402
from guo.bench import Bench, Job  # noqa: E402
from guo.times import Times, heuristic, plain, size, span  # noqa: E402

TINY = cases.Case(60, 8, 2)
FIGURES = [figure.FIGURE for figure in run.FIGURES]
COLUMNS = {
    "figure", "method", "options", "N", "K", "p", "dtype", "values", "cloud", "asm", "prepare_s", "apply_s",
    "prepare_by", "apply_by", "nbytes", "note", "seed", "device", "backend", "python", "numpy", "cupy", "cuda_runtime",
    "cuda_driver", "commit",
}  # fmt: skip


@functools.cache
def bench(backend):
    why = backends.module(backend).available()
    if why is not None:
        pytest.skip(f"{backend} does not work here: {why}")
    return Bench(backend, small=True)


@pytest.mark.parametrize("figure", run.FIGURES, ids=FIGURES)
def test_a_figure_gives_rows(backend, figure, capsys):
    here = bench(backend.name)
    jobs = figure.jobs(here)
    if not jobs:
        pytest.skip(f"{figure.FIGURE} is about methods that do not run here: {capsys.readouterr().out.strip()}")
    assert all(isinstance(job.case, cases.Case) and job.method in (*here.names(), "cusparse") for job in jobs)
    kinds = dict.fromkeys((job.method, job.chosen, job.variant, job.prepare) for job in jobs)
    assert len(jobs) == len(kinds) * len(dict.fromkeys(job.case for job in jobs))
    job = replace(jobs[0], case=TINY)
    rows = figure.rows(here, job) if hasattr(figure, "rows") else here.rows(figure.FIGURE, job)
    row = rows[0]
    assert len(rows) == 1 or figure.FIGURE == "cusparse"
    assert row.keys() >= COLUMNS
    assert (row["figure"], row["N"], row["K"], row["p"], row["note"]) == (figure.FIGURE, 60, 8, 2, "")
    assert not math.isnan(row["apply_s"])
    assert job.variant or row["difference"] < 1e-5
    assert not (job.prepare and math.isnan(row["prepare_s"]))
    if figure.FIGURE.startswith("long_totals"):
        assert all(f"total_{n}_s" in row for n in (1, 20, 100, 1000))


def test_a_method_that_declines_leaves_its_reason():
    class Never(Bench):
        def _excess(self, plan, method):
            raise pm.MethodNotSuitable("too small")

    bench("cpu")
    here = Never("cpu")
    (row,) = here.rows("fig8", Job(TINY, here.names()[-1]))
    assert row["note"] == "too small"
    assert math.isnan(row["apply_s"])


def test_cases_are_those_of_the_paper_and_the_same_every_time():
    assert {case.nodes for case in cases.cases("long_totals")} == {32, 64, 128, 256}
    counts = {case.count for case in cases.cases("fig8")}
    assert (min(counts), max(counts)) == (10**3, 10**7)
    assert cases.Case(32_768, 32).asm == pytest.approx(216)
    for case in cases.cases("added_clouds", small=True):
        x = cases.positions(case.cloud, case.count, case.dtype)
        assert (x.shape, x.dtype) == ((case.count, 3), case.dtype)
        assert x.min() >= 0 and x.max() < 1
        again = cases.positions.__wrapped__(case.cloud, case.count, case.dtype)
        assert np.array_equal(x, again)
        q = cases.values(case.count, case.dtype, case.values)
        assert q.shape[-1] == case.count
        assert q.nbytes == case.count * case.components * np.dtype(case.dtype).itemsize


# ---- the particle method without atomics ------------------------------------------------------------------


def particle_field(name, variant, positions, values, dtype="float32"):
    here, mesh = backends.current(name), pm.Mesh((8, 8, 8), (1.0,) * 3)
    with pm.Plan(mesh, "bspline4", method="particle", backend=name, dtype=dtype) as plan:
        plan.set_positions(positions)
        if variant is not None:
            plan._methods["spread"] = variant()
        field = here.empty(mesh.shape, dtype)
        plan.spread(here.upload(values.astype(dtype)), out=field)
        return here.download(field), oracle.spread(mesh, pm.bspline(4), positions, values)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("variant", [None, fig6_atomics.PlainAdds, fig6_atomics.PlainStores])
def test_what_gets_lost_without_atomics(backend, variant, dtype):
    apart = np.array([[0.1, 0.1, 0.1], [0.7, 0.7, 0.7]])
    found, right = particle_field(backend.name, variant, apart, np.array([1.0, 2.0]), dtype)
    assert np.abs(found - right).max() < 1e-6
    # Two particles at one place: of two stores, one is left.
    found, right = particle_field(backend.name, variant, np.full((2, 3), 0.4), np.array([1.0, 2.0]), dtype)
    lost = np.abs(found - right).max() / right.max()
    if variant is fig6_atomics.PlainStores:
        assert 0.3 < lost < 0.7
    elif variant is None:
        assert lost < 1e-6


# Adds that are not atomic are lost where both were read before either was written: PoCL, which runs work-items one by
# one, never does that, and a GPU does among many.
@pytest.mark.backends("cuda")
def test_plain_adds_lose_something_on_a_gpu(backend):
    found, right = particle_field("cuda", fig6_atomics.PlainAdds, np.full((10_000, 3), 0.4), np.ones(10_000))
    assert np.abs(found - right).max() > 1e-3 * right.max()


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("variant", [None, fig6_atomics.PlainAdds, fig6_atomics.PlainStores])
def test_the_variants_have_no_atomics_on_cuda(monkeypatch, variant):
    asked, kernel = [], opencl.OpenClBackend.kernel
    monkeypatch.setattr(
        opencl.OpenClBackend, "kernel", lambda self, *what: asked.append(what) or kernel(self, *what)
    )  # fmt: skip
    particle_field("opencl", variant, np.full((2, 3), 0.4), np.ones(2))
    (file, _, defines) = next(what for what in asked if what[1] == "spread_particle")
    assert (file == fig6_atomics.FILE) == (variant is not None)
    text = cuda.compile_only(file, defines, 999).decode()  # for a chip that no compiler knows yet: PTX
    assert ".entry" in text
    assert ("red." in text or "atom." in text) == (variant is None)


def test_the_matrix_given_to_cusparse_is_the_operator():
    rng = np.random.default_rng(1)
    mesh = pm.Mesh((7, 7, 7), (1.0,) * 3)
    with pm.Plan(mesh, "bspline4", backend="cpu", dtype="float64") as plan:
        plan.set_positions(rng.random((50, 3)))
        values = rng.normal(size=50)
        matrix = csr_array(cusparse.matrix(plan, np), shape=(343, 50))
        assert matrix.has_canonical_format
        assert np.abs(matrix @ values - plan.spread(values).ravel()).max() < 1e-13


# ---- claims -----------------------------------------------------------------------------------------------


def world(right):
    """Rows of a world in which all that the paper says is so, or nothing of it."""
    made = []

    def row(figure, method, n, k, apply=math.nan, prepare=math.nan, options="", **more):
        asm = n * 216 / k**3
        made.append(dict(figure=figure, method=method, options=options, N=n, K=k, p=6, dtype="float32", values="real",
                         cloud="uniform", asm=asm, apply_s=apply, prepare_s=prepare, note="", **more))  # fmt: skip

    def rank(method, champion):
        return 1 + (method != (champion if right else "gather"))

    five = ("particle", "gather", "single_mesh", "group_mesh", "hybrid_mesh")
    for case in cases.cases("long_totals"):
        n, k, asm = case.count, case.nodes, case.asm
        late = "group_mesh" if n >= 10**6 else "single_mesh" if k == 32 and 10**4 <= n <= 10**5 else "particle"
        for method in five:
            flat = max(1, n / (1 if right else 100) / k**3)
            more = {"total_1_s": rank(method, "particle"), "total_20_s": rank(method, late), "auto": "1"}
            more |= {"total_100_s": 1, "total_1000_s": rank(method, "hybrid_mesh")}
            row("long_totals", method, n, k, flat, **more)
        for method, options in (("single_mesh", "construction=paper"), ("group_mesh", "")):
            row("long_construction", method, n, k, prepare=k**3 * 1e-9 + n * 1e-8 if right else 1, options=options)
        for unit in (1, 2, 4, 8, 16, 32):
            chosen = (unit == heuristic(asm)) == right
            row("fig3", "single_mesh", n, k, 1 if chosen else 2, options=f"threads_per_row={unit}")
        if k == 128:
            early = "particle" if n <= 10**4 else "hybrid_mesh"
            for method in five:
                row("fig8", method, n, k, n ** (1.05 if right else 0.8) * rank(method, early))
            for order, method in enumerate(("group_mesh", "single_mesh", "hybrid_mesh")):
                options = "construction=paper" if method == "single_mesh" else ""
                row("fig9", method, n, k, prepare=1 + (order if right else 2 - order), options=options)
            for points in (32, 64, 128):
                row("fig4", "group_mesh", n, k, 1 if (points == 64) == right else 2, options=f"group_size={points}")
            shuffled = 1.5 if not right else 1 if asm > 20 else 0.8
            row("fig5", "single_mesh", n, k, shuffled, options="reduction=shuffle")
            row("fig5", "single_mesh", n, k, 1, options="reduction=local")
        if k == 64:
            row("fig7", "particle", n, k, 1)
            row("fig7", "gather", n, k, 2 if right else 0.5)
            for method, time in (("", 1), (", plain stores", 0.9 if right else 0.5), (", plain adds", 0.95)):
                row("fig6", f"particle{method}", n, k, time)
    return made


@pytest.mark.parametrize("right", [True, False], ids=["a world as the paper's", "a world unlike it"])
def test_every_claim_can_be_judged_both_ways(right):
    found = claims.answers(Times(world(right)))
    assert {judged: text for text, _, _, judged in found}.keys() == {claims.HOLDS if right else claims.FAILS}


def test_verdicts_in_between():
    assert [claims.verdict(won, 4) for won in (4, 3, 2, 1)] == ["holds", "partly", "partly", "does not hold"]
    assert claims.graded(False, True) == "partly"


def test_what_was_not_measured_is_told():
    for _, _, told, judged in claims.answers(Times([])):
        assert told.startswith("not measured: ")
        assert judged == ""
    assert all(told.startswith("not measured: ") for _, told in claims.additions(Times([])))


def test_a_method_that_declined_is_not_the_fastest_there():
    tables = {(32, 10): {"particle": 1.0, "gather": 2.0}, (32, 20): {"gather": 1.0}}
    assert claims.best_of(tables, "particle") == ("fastest at 1 of 2 sizes, declined at 1", "partly")


def test_what_is_added_is_told():
    rows = world(True)
    for method, first, each in (("particle", 0.0, 1e-3), ("single_mesh", 5e-3, 1e-4)):
        rows.append(dict(rows[0], figure="added_clouds", method=method, N=10**6, K=128, cloud="clustered",
                         prepare_s=first, apply_s=each))  # fmt: skip
        rows.append(dict(rows[0], figure="cusparse", method=method, prepare_s=first, apply_s=each))
    told = dict(claims.additions(Times(rows)))
    assert told["Fastest of all methods for 1 spread"] == "particle at 36 of 36 sizes"
    assert told["clustered"] == "1: particle 1 ms; 100: single_mesh 15 ms, particle 100 ms"
    automatic = told["The automatic choice, with p = 6, to which its costs were fitted"]
    assert "of 180" in automatic or "of 36" in automatic


def test_tables_and_numbers_for_readers():
    text = claims.restructured(("in the paper", "so it"), "50 50", [("a", "holds"), ("b", "")], "chip")
    assert text.endswith("   * - a\n     - holds\n   * - b\n     -\n")
    assert [size(n) for n in (1000, 30_000, 10**7)] == ["10³", "3·10⁴", "10⁷"]
    assert [span(s) for s in (2.0, 1.5e-3, 2e-5)] == ["2 s", "1.5 ms", "20 µs"]
    assert [plain(r) for r in (0.123, 66_000)] == ["0.12", "66,000"]
    assert [heuristic(asm) for asm in (0.5, 1, 3.9, 8, 1e4)] == [1, 1, 2, 8, 16]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_drawn_from_the_rows_alone(tmp_path):
    pictures = importlib.import_module("guo_pictures")
    drawn = (
        pictures.choices,
        pictures.atomics,
        pictures.spreading,
        pictures.construction,
        pictures.totals,
        pictures.best,
    )
    times = Times(row for row in world(True) if row["K"] in (64, 128))
    for draw in drawn:
        draw(times, tmp_path, "svg")
    files = sorted(tmp_path.iterdir())
    assert [f"guo_{draw.__name__}.svg" for draw in sorted(drawn, key=lambda d: d.__name__)] == [f.name for f in files]
    assert all(2_000 < file.stat().st_size < 300_000 for file in files)
