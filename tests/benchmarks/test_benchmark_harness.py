# SPDX-License-Identifier: BSD-3-Clause
"""Laws of the benchmarks' harness: medians, ratios, clouds, files, claims that can fail, comparison of files."""

import contextlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]

import compare  # noqa: E402
import report  # noqa: E402
from core import bounds, counters, thresholds  # noqa: E402
from core.device import Ceilings  # noqa: E402
from harness import clock, clouds, runs, tables  # noqa: E402
from harness.cases import Case  # noqa: E402
from harness.claims import FAILS, HOLDS, MISSING, PARTLY, Claim, Files, against, of_option, power, ratio, value  # noqa: E402
from harness.place import Place  # noqa: E402
from studies.buyukkececi import tables as buyukkececi_tables  # noqa: E402

DEVICE = Ceilings(4e12, 6e12, 25e12, 60e6, 60e12, 30e12, 480e12, 60e12, 4e11, 1.2e11, 1.5e-6, 2.5e-6)


# ---- clock ------------------------------------------------------------------------------------------------


@pytest.fixture
def ticking(monkeypatch):
    """A host's clock that advances by the next number of a list at every call that is timed."""
    now, steps = [0.0], []
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += steps.pop(0)

    return call, steps


def test_a_batch_that_a_disturbance_meets_is_not_the_result(ticking):
    call, steps = ticking
    here = clock.Clock(SimpleNamespace(name="cpu", synchronize=lambda: None))
    steps += [9, 9, 9, *[1, 1], *[50, 50], *[3, 3]]  # to warm up, then three batches of two
    assert here.calls(call, batch=2, repeats=3) == 3
    steps += [9, 1, 50, 3]
    assert here.wall(call, 3) == 3
    steps += [9, 9, 1, 2, 50, 60, 3, 4]  # two calls that take turns, after one turn to warm up
    assert clock.turns(3, call, call) == [3, 4]
    assert steps == []


# ---- clouds, files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", clouds.CLOUDS)
@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_cloud_is_in_the_unit_box_and_the_same_every_time(cloud, ndim, dtype):
    make = clouds.positions.__wrapped__
    x = make(cloud, 1000, dtype, ndim)
    assert x.shape == (1000, ndim) and x.dtype == dtype
    assert x.min() >= 0 and x.max() < 1
    assert np.array_equal(x, make(cloud, 1000, dtype, ndim))
    volume = np.prod(np.ptp(x, axis=0))
    assert volume < {"clustered": 0.011, "settled": 0.126}.get(cloud, 1.0)


def test_neighbours_and_moves_are_as_documented():
    x, length, radius = clouds.caesium_chloride(4)
    apart = np.abs(x[:, None] - x[None])
    apart = np.minimum(apart, length - apart)
    assert set(((apart**2).sum(-1) <= radius**2).sum(1) - 1) == {26}
    y = clouds.positions("uniform", 500)
    far = np.abs(clouds.moved(y, 32) - y)
    assert np.linalg.norm(np.minimum(far, 1 - far), axis=1) * 32 == pytest.approx(clouds.MOVED, rel=1e-3)


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tables.write("a", "A b-7", [dict(x=1.5, y=""), dict(x=math.nan, y="z")], tmp_path)
    assert path.name == "a-a-b-7.csv"
    rows = tables.read(path)
    assert tables.number(rows[0], "x") == 1.5 and math.isnan(tables.number(rows[1], "x"))
    assert math.isnan(tables.number(rows[0], "y")) and tables.read(tmp_path / "none.csv") == []
    assert tables.geometric_mean([2, 8]) == pytest.approx(4) and math.isnan(tables.geometric_mean([]))
    assert [tables.size(n) for n in (1000, 30_000)] == ["10³", "3·10⁴"]
    assert [tables.span(s) for s in (2.0, 1.5e-3, 2e-5, 3e-9)] == ["2 s", "1.5 ms", "20 µs", "3 ns"]


def test_an_error_of_one_case_is_noted_and_others_go_on():
    place = Place("cpu")
    with place.attempt("this"):
        raise ValueError("no")
    assert place.failed == ["this, cpu: ValueError: no"]


# ---- claims -----------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    rows = [dict(method=m, N=n, options=f"width={w}", seconds=s)
            for n, times in ((10, (1, 3, 4, 2)), (100, (20, 15, 80, 10)), (1000, (100, 400, 100, 100)))
            for (m, w), s in zip((("a", 1), ("b", 1), ("a", 2), ("c", 1)), times, strict=True)]  # fmt: skip
    tables.write("f", "chip", rows, tmp_path)
    return Files("chip", tmp_path)


def test_a_run_that_is_cut_short_has_written_what_it_measured(tmp_path):
    place = SimpleNamespace(device="A device", name="cpu", failed=[], attempt=lambda what: contextlib.nullcontext())

    def rows_of(case):
        yield {"case": case, "part": 0}
        assert [row["case"] for row in tables.read(tmp_path / "cut-a-device.csv")][-1] == str(case)
        if case == 2:
            raise KeyboardInterrupt
        yield {"case": case, "part": 1}

    with pytest.raises(KeyboardInterrupt), runs.Run(place, tmp_path) as run:
        run.measure("cases", [1, 2, 3], rows_of, "cut")
    assert [(r["case"], r["part"]) for r in tables.read(tmp_path / "cut-a-device.csv")] == [
        ("1", "0"), ("1", "1"), ("2", "0"),
    ]  # fmt: skip


def test_expressions_have_a_number_for_each_case(files):
    a, b = dict(method="a", options="width=1"), dict(method="b")
    assert ratio("f", "seconds", b, a, ("N",))(files) == {("10",): 3, ("100",): 0.75, ("1000",): 4}
    assert against("f", "seconds", a, [a, b], ("N",))(files) == {("10",): 1, ("100",): 20 / 15, ("1000",): 1}
    assert against("f", "seconds", a, [a, b], ("N",), best=max)(files)["10",] == 1 / 3
    assert value("f", "seconds", ("N",), best=max, where=lambda r: r["N"] != "10")(files)["1000",] == 400
    chosen = of_option("f", "seconds", "width", lambda r: "2", ("N",), method="a")
    assert chosen(files) == {("10",): 4, ("100",): 4, ("1000",): 1}
    assert power("f", "seconds", "N", 10, method="c")(files)[()] == pytest.approx(1)
    assert power("f", "seconds", "N", 100, ("method",), method=("b", "c"))(files)["c",] == pytest.approx(
        math.log10(50) / 2
    )


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0, 4, HOLDS), (3, 4, f"{PARTLY}, 2 of 3"), (3.5, 9, f"{FAILS}, 1 of 3"), (5, 9, f"{FAILS}, 0 of 3"),
     (-math.inf, math.inf, "")],
)  # fmt: skip
def test_a_claim_holds_only_if_all_cases_keep_its_bound(files, low, high, verdict):
    look = ratio("f", "seconds", dict(method="b"), dict(method="a", options="width=1"), ("N",))
    answer = Claim("b is slower", "figure 1", "b over a", look, low, high).answer(files)
    assert answer.verdict == verdict
    assert answer.measured == "b over a: 0.75 to 4, median 3"


def test_a_claim_without_rows_is_not_measured(files):
    for look in (value("none", "seconds"), ratio("f", "seconds", dict(method="z"), dict(method="a"))):
        answer = Claim("so it is", "", "time", look, high=1).answer(files)
        assert answer.verdict == MISSING and answer.measured.startswith("no rows of ")


@pytest.mark.parametrize("name", [n for n in report.TABLES if n.endswith("claims")])
def test_every_claim_has_a_verdict_by_the_committed_files_or_says_what_is_missing(name, tmp_path):
    here, nowhere = (
        report.TABLES[name](files)[3] for files in (Files(report.device_of(name)), Files("nothing", tmp_path))
    )
    assert len({claim.claim + claim.paper for claim in here}) == len(here) == len(nowhere)
    assert all(claim.verdict == MISSING for claim in nowhere)
    missing = [claim.claim for claim in here if claim.verdict == MISSING]
    assert missing in ([], ["The order within cells changes from run to run"])  # of which the file has no rows


@pytest.mark.parametrize("name", report.pages())
def test_a_table_of_the_documentation_is_of_the_committed_files(name):
    written = report.place_of(name, ROOT / "docs").read_text(encoding="utf-8")
    assert written == report.page(name, Files(report.device_of(name))), "run benchmarks/report.py --docs docs"


# ---- comparison -------------------------------------------------------------------------------------------


def test_compare_names_the_rows_that_differ(tmp_path, monkeypatch, capsys):
    def rows(rate, order, few):
        rows = [("spread", "G/s", rate), ("order", "ms", order), ("few", "ms", few), ("error", "relative l2", 1)]
        return [dict(row=key, unit=unit, method="walk", options="", figure=x) for key, unit, x in rows]

    committed, fresh = tmp_path / "a", tmp_path / "b"
    tables.write("limit-rows", "chip", rows(20, 2.0, 1.0), committed)
    monkeypatch.setattr(sys, "argv", ["compare.py", str(fresh), "--results", str(committed)])
    for numbers, slow, shown in (
        ((20.2, 2.02, 1.0), None, []), ((10, 2.0, 1.0), ": 1 of", ["spread"]),
        ((30, 2.2, 1.0), ": 1 of", ["spread", "order"]),
        ((30, 1.0, 1.0), None, ["spread", "order"]),
    ):  # fmt: skip
        tables.write("limit-rows", "chip", rows(*numbers), fresh)
        if slow:
            with pytest.raises(SystemExit, match=slow):
                compare.main()
        else:
            compare.main()
        out = capsys.readouterr().out
        assert [key for key in ("spread", "order", "few") if f"{key} walk" in out] == shown
    both, _ = compare.compared(rows(20, 2.0, 1.0), rows(10, 1.0, 1.0), "limit-rows")
    assert {c.row: c.ratio for c in both} == {"spread walk": 2, "order walk": 0.5, "few walk": 1}


def test_compare_knows_the_columns_of_the_committed_files():
    kinds = {file: compare.kind_of(file) for file in tables.RESULTS.glob("*.csv")}
    assert set(filter(None, kinds.values())) == set(compare.TIMED)
    for file, kind in kinds.items():
        if kind:
            rows = tables.read(file)
            both, single = compare.compared(rows, rows, kind)
            assert both and not single and all(c.ratio == 1 for c in both)


# ---- numbers that tables stand on -------------------------------------------------------------------------


def test_work_and_bounds_of_a_problem():
    assert bounds.multiply_adds(Case("spread", 1000, 10, values="real")) == 252_000
    assert bounds.least_bytes(Case("spread", 1000, 10, values="real")) == 1000 * 16 + 4000
    limits = {
        Case("spread", 10**4, 128): "adds to memory", Case("interpolate", 10**4, 64): "launches",
        Case("interpolate", 10**4, 256): "memory", Case("interpolate", 10**7, 64): "multiply-adds",
        Case("interpolate", 10**6, 128): "loads",
    }  # fmt: skip
    assert [bounds.bound(case, DEVICE)[0] for case in limits] == list(limits.values())
    assert bounds.bound(Case("spread", 100, 16), Ceilings())[0] == ""
    counted = {(w, d): buyukkececi_tables.operations(w, d) for w in ("cic", "m4prime") for d in (2, 3)}
    assert counted == {("cic", 2): 18, ("cic", 3): 34, ("m4prime", 2): 84, ("m4prime", 3): 220}


def test_a_kernel_too_short_for_the_clock_has_the_rate_of_the_whole_call():
    files = ("buyukkececi-times-nvidia-h200.csv", "buyukkececi-breakdown-nvidia-h200.csv")
    times, stages = (tables.read(tables.RESULTS / file) for file in files)
    short = [{**row, "seconds": "0.0"} for row in stages]
    whole, rates = ([row["gflops"] for row in buyukkececi_tables.rows(times, known)] for known in ([], short))
    assert whole == rates and len(whole) > 10


def test_counters_are_in_si_units_and_per_particle(tmp_path):
    active = ".avg.pct_of_peak_sustained_active"
    (file := tmp_path / "spread.walk.csv").write_text(
        f'==PROF==\n"ID","Kernel Name","gpu__time_duration.sum","smsp__inst_executed.sum","sm__inst_issued{active}"\n'
        '"","","nsecond","inst","%"\n"0","spread_walk","436,000","246,000,000","62.1"\n==PROF== Disconnected\n'
    )
    (row,) = counters.table([file], tmp_path)
    assert (row["kernel"], row["method"]) == ("spread_walk", "walk")
    assert (row["seconds"], row["instructions"], row["issue"]) == (4.36e-4, 24.6, 62.1)
    assert math.isnan(row["tensor"]) and "436" in counters.cells(row)[2].replace(".", "")
    with pytest.raises(ValueError, match="no line begins with ID"):
        list(counters.parsed("nothing\n"))


@pytest.mark.parametrize("constant", thresholds.CONSTANTS, ids=lambda constant: constant.name)
def test_a_constant_has_its_shipped_value_again_after_an_error(constant):
    def content():
        owner = constant.owner
        return dict(owner) if isinstance(owner, dict) else getattr(owner, constant.attribute)

    before = content()
    other = next(v for v in constant.values if v != constant.shipped)
    with pytest.raises(ZeroDivisionError), thresholds.in_effect(constant, other):
        assert content() != before
        raise ZeroDivisionError
    assert content() == before and constant.shipped in constant.values
