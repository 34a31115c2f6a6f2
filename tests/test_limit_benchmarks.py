# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks of the limit run on tiny problems; bounds, verdicts and tables follow from made-up numbers."""

import csv
import functools
import importlib
import importlib.util
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import nvrtc
from test_nvrtc import without_nvrtc

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools" / "docs")]

from limit import bounds, cases, ceilings, claims, counters, density, peer, roofline, rows, run  # noqa: E402
from limit.bench import NO_ORDER, Bench, takes_order  # noqa: E402
from limit.cases import Case  # noqa: E402
from limit.device import UNITS, Ceilings  # noqa: E402

DEVICE = Ceilings(4e12, 6e12, 25e12, 60e6, 60e12, 30e12, 480e12, 60e12, 4e11, 1.2e11, 1.5e-6, 2.5e-6)
BY_KEY = {row.key: row for row in rows.ROWS}
KINDS = ("spread", "spread-4", "interpolate-some", "order-some", "order-nearly", "spread-few", "error-spread-clustered",
         "deterministic-some", "interpolate-sorted")  # fmt: skip
COLUMNS = {
    "row", "unit", "method", "auto", "figure", "prototype", "reach", "stretch", "by", "direction", "N", "order",
    "call_s", "graph_s", "positions_s", "prepare_s", "error", "note", "device", "backend", "commit", "seed",
}  # fmt: skip


class Few(Bench):
    """Walks where they run, and the simplest: kernels take long to compile."""

    def rivals(self, case, factor=4.0, most=4):
        auto, said = self.asked(case)
        able = [name for name, c in said.items() if c.reason is None]
        wanted = [n for n in able if n in ("walk", "particle")] or able[-1:]
        return (auto if auto in wanted else wanted[0]), wanted


@functools.cache
def bench(backend):
    why = backends.module(backend).available()
    if why is not None:
        pytest.skip(f"{backend} does not work here: {why}")
    made = Few(backend, small=True)
    made.ceilings = DEVICE
    return made


def tiny(row):
    return replace(row, case=replace(row.case, count=150, nodes=16, support=4))


# ---- measuring --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KINDS)
def test_a_row_is_measured_once_for_each_method(backend, key):
    here, row = bench(backend.name), tiny(BY_KEY[key])
    found = list(rows.rows(here, row))
    assert found and all(r.keys() >= COLUMNS for r in found)
    assert all((r["row"], r["N"], r["K"]) == (key, 150, 16) for r in found)
    if key == "interpolate-sorted" and not takes_order():
        assert [r["note"] for r in found] == [NO_ORDER]
        return
    assert all(r["note"] == "" and r["figure"] > 0 for r in found)
    if row.unit not in (rows.MS, rows.TIMES):
        assert [r["auto"] for r in found].count(1) == 1
    if row.unit == rows.MS:
        assert all(
            r["positions_s"] > r["prepare_s"] >= 0 and r["figure"] == pytest.approx(1e3 * r["positions_s"])
            for r in found
        )
    else:
        assert all(1e-9 < r["error"] < 2e-6 for r in found)
    if row.unit == rows.RATE:
        assert all(r["figure"] == pytest.approx(150e-9 / r["call_s"], rel=1e-3) for r in found)


def test_an_error_is_the_distance_from_float64():
    here, case = bench("cpu"), Case("spread", 200, 12, 4, values="4")
    for layout in ("planar", "interleaved"):
        again = replace(case, layout=layout)
        with here.setup(again, here.names("spread")[0]) as made:
            made.call()
            right = made.result()
        assert right.shape == (4, 12, 12, 12)
        assert here._error(again, right) < 1e-6
        assert here._error(again, right * 1.001) == pytest.approx(1e-3, rel=1e-2)


def test_a_method_that_declines_leaves_its_reason(monkeypatch):
    here = Few("cpu", small=True)
    monkeypatch.setattr(here, "_measure", mock.Mock(side_effect=pm.MethodNotSuitable("too small")))
    row = rows.rows(here, tiny(BY_KEY["spread"]))[0]
    assert row["note"] == "too small" and math.isnan(row["figure"])


def test_positions_and_orders():
    x = cases.positions("clustered", 500, "float32")
    assert x.dtype == np.float32 and np.abs(x - 0.5).max() <= 0.5 * 0.01 ** (1 / 3) + 1e-6
    y = cases.moved(x, 32)
    assert np.linalg.norm(y - x, axis=1) * 32 == pytest.approx(cases.MOVED, rel=1e-3)
    cell = np.minimum((x * 32).astype(int), 31)[cases.by_block(x, 32)]
    block = cell[:, 1] // 3 * 16 + cell[:, 2] // 2
    assert np.all(np.diff(block) >= 0)
    assert np.all((np.diff(cell[:, 0]) >= 0) | (np.diff(block) > 0))


@pytest.mark.parametrize("part", [peer, density, roofline], ids=lambda p: p.FIGURE)
def test_other_parts_have_rows(backend, part, monkeypatch):
    here, case = bench(backend.name), Case("spread", 120, 16, 4)
    assert part.jobs(here)
    if part is peer:
        times = {"1": {"setpts_s": 1e-3, "call_s": 3e-3, "kernel_s": 2e-3}}
        monkeypatch.setattr(peer, "table", lambda: {case: times})
    found = list(part.rows(here, case))
    assert {r["method"] for r in found} >= set(here.rivals(case)[1])
    for row in found:
        assert (row["direction"], row["N"], row["K"], row["note"]) == ("spread", 120, 16, "")
        assert row["call_s" if part is peer else "seconds"] > 0
    if part is peer:
        least = [r["call_s"] if math.isnan(r["graph_s"]) else r["graph_s"] for r in found]
        assert [r["ratio"] for r in found] == pytest.approx([2e-3 / s for s in least], rel=1e-3)
        assert all(r["bound"] and r["bound_s"] > 0 for r in found)
    if part is roofline:
        assert all(r["flops"] == 2 * 120 * (2 * 64 + 16) for r in found)


def test_the_whole_run_on_the_processor(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--backend", "cpu", "--small", "--out", str(tmp_path)])
    run.main()
    names = {re.sub(r"limit-(\w+)-.*", r"\1", file.name) for file in tmp_path.iterdir()}
    assert names == {"ceilings", "rows", "peer", "density", "roofline"}
    (file,) = tmp_path.glob("limit-rows-*.csv")
    with file.open(newline="") as opened:
        assert {r["row"] for r in csv.DictReader(opened)} == set(BY_KEY)
    device = file.stem.removeprefix("limit-rows-")
    assert Ceilings.read(tmp_path, device).memory > 0
    (docs := tmp_path / "docs").mkdir()
    command = ["claims.py", "--device", device, "--results", str(tmp_path), "--docs", str(docs)]
    monkeypatch.setattr(sys, "argv", command)
    claims.main()
    assert BY_KEY["order"].words in capsys.readouterr().out
    text = (docs / "limit_rows.inc").read_text()
    assert all(row.words in text for row in rows.ROWS)
    assert {f.stem[6:] for f in docs.iterdir()} == {"rows", "below", "matrices", "opencl", "ratios"}


# ---- the device -------------------------------------------------------------------------------------------


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("compute", [80, 90, 100])
def test_kernels_of_ceilings_compile(compute):
    code = ceilings.SOURCE.read_text()
    binary = nvrtc.compiled(code, ceilings.SOURCE.name, compute)
    for name in ("nothing", "shortest_gather", "read_l2", "read_l1", "multiply_adds_f32", "matrix_f64", "add_f64"):
        assert name.encode() in binary
    assert (b"add_f32x4" in binary) == (compute >= 90)


@pytest.mark.backends("cuda")
def test_ceilings_are_measured_on_a_gpu(backend):
    here = bench("cuda")
    found = Ceilings.of(ceilings.rows(here.place, small=True), here.facts["device"])
    assert not here.place.failed
    assert found.l1 > found.l2 > 0 and found.tensor_f32 > found.fma_f32 > 0
    assert 0 < found.launch < found.gather < 1e-3


def test_ceilings_come_from_the_file_or_from_the_table(tmp_path):
    known = Ceilings.read(tmp_path, "NVIDIA H200")
    assert known.memory == 4.8e12 and math.isnan(known.launch)
    file = tmp_path / "limit-ceilings-nvidia-h200.csv"
    file.write_text("name,value,unit\nmemory,4e12,byte/s\nlaunch,1e-6,s\nother,3,m\n")
    known = Ceilings.read(tmp_path, "nvidia-h200")
    assert (known.memory, known.launch, known.fma_f32) == (4e12, 1e-6, 67e12)
    assert UNITS.keys() == set(Ceilings._fields)
    assert math.isnan(Ceilings.of([], "another").memory)


# ---- bounds -----------------------------------------------------------------------------------------------


def test_work_and_bytes_of_a_problem():
    case = Case("spread", 1000, 10, 6, "float32", "real")
    assert bounds.multiply_adds(case) == 252_000
    assert bounds.least_bytes(case) == 1000 * 16 + 4000
    assert bounds.least_bytes(replace(case, values="complex", dtype="float64")) == 1000 * 40 + 16_000
    few = Case("interpolate", 1, 1000, 2, "float32", "real")
    assert bounds.least_bytes(few) == pytest.approx(16 + 8 * 4, rel=1e-3)


def test_walks_add_less_where_particles_are_dense():
    dense, thin = Case("spread", 10**7, 64), Case("spread", 10**4, 256)
    assert bounds.walked(dense) < 0.1 * bounds.directly(dense)
    assert bounds.walked(thin) > bounds.directly(thin)
    # Eight nodes along z: 43 blocks along y, 64 along z, all 128 levels; each walk of 512 leaves six more.
    full = replace(dense, count=10**8, nodes=128, values="real")
    assert bounds.walked(full) == pytest.approx((43 * 64 * 128 + 6 * 10**8 / 512) * 64, rel=1e-3)
    assert math.isinf(bounds.walked(replace(dense, support=9)))


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (Case("spread", 10**4, 128), "adds to memory"),
        (Case("interpolate", 10**4, 64), "launches"),
        (Case("interpolate", 10**4, 256), "memory"),
        (Case("interpolate", 10**7, 64), "multiply-adds"),
        (Case("interpolate", 10**6, 128), "loads"),
    ],
)
def test_a_bound_has_a_name(case, limit):
    name, seconds = bounds.bound(case, DEVICE)
    assert name == limit
    assert seconds == max(bounds.parts(case, DEVICE).values()) > 0


def test_what_is_not_known_of_a_device_bounds_nothing():
    assert bounds.bound(Case("spread", 100, 16), Ceilings())[0] == ""
    assert bounds.bound(Case("spread", 100, 16), Ceilings(memory=1e9))[0] == "memory"


# ---- verdicts ---------------------------------------------------------------------------------------------


def world(right):
    """Rows in which all is reached, or nothing."""
    made = []
    for row in rows.ROWS:
        better = 1 / 1.05 if claims.lower(row.unit) else 1.05
        for method, slower in (("walk", 1.0), ("walk_fixed", 2.0), ("particle", 3.0)):
            factor = slower if claims.lower(row.unit) else 1 / slower
            value = row.reach * factor * (better if right else 1 / better**3)
            value = 1.5 * factor if math.isnan(value) else value
            made.append(dict(row=row.key, method=method, auto=int(method == "walk"), figure=value, error=3e-13,
                             prepare_s=1e-4, call_s=1e-3, positions_s=2e-3, note="", options=""))  # fmt: skip
    return made


def peers(right):
    made = []
    for case, times in peer.table().items():
        kernel = peer.best(times, "kernel_s")[1]
        for method, ratio in (("walk", 4.0 if right else 0.5), ("walk_fixed", 0.55), ("particle", 0.6)):
            made.append(dict(case.columns(), method=method, auto=int(method == "walk"), graph_s=kernel / ratio,
                             call_s=kernel, peer_kernel_s=kernel, ratio=ratio, call_ratio=ratio, total_ratio=ratio,
                             bound="memory", bound_s=kernel / 10))  # fmt: skip
    return made


def test_figures_are_reached_or_missed():
    for told in claims.promised(world(True)):
        assert told.verdict in ("reached", "") and told.cells()[0] == told.words
        assert told.best_by == "walk" and told.walk == told.best == told.auto
    missed = [told for told in claims.promised(world(False)) if not math.isnan(told.reach)]
    assert all(told.verdict == "missed, at 0.86 of it" for told in missed)
    assert claims.judged(30, 19, 26, less=False) == claims.judged(0.3, 0.6, 0.35, less=True) == "stretch"
    assert claims.judged(20, 19, math.nan, less=False) == "reached"
    assert claims.judged(9.5, 19, 26, less=False) == claims.judged(1.2, 0.6, 0.35, less=True) == "missed, at 0.50 of it"


def test_a_wrong_result_reaches_nothing_and_errors_count_at_their_worst():
    found = [dict(r, error=1e-5) if r["row"] == "spread" else r for r in world(True)]
    assert claims.promised(found)[0].verdict == "wrong: the error is 1.0e-5"
    found = [dict(r, figure=2e-6) if (r["row"], r["method"]) == ("error-spread", "walk") else r for r in world(True)]
    told = next(t for t in claims.promised(found) if t.words == BY_KEY["error-spread"].words)
    assert told.verdict == "missed, at 0.50 of it"


def test_what_was_not_measured_is_told():
    assert all(told.verdict == claims.MISSING for told in [*claims.promised([]), *claims.against_peer([])])
    row = dict(row="spread", method="walk", auto=1, figure=math.nan, note="too small")
    assert claims.promised([row])[0].verdict == "not measured: too small"
    assert claims.through_opencl([]).verdict == claims.MISSING


@pytest.mark.parametrize("right", [True, False])
def test_the_peer_is_beaten_or_listed(right):
    found = peers(right)
    spread, least, _, _, interpolate, *_ = claims.against_peer(found)
    assert "48 cases" in spread.words and "48 cases" in interpolate.words
    assert spread.best == pytest.approx(4.0 if right else 0.6) and spread.walk == pytest.approx(4.0 if right else 0.5)
    assert least.verdict == ("stretch" if right else "missed, at 0.86 of it")
    listed = claims.listed(found)
    assert len(listed) == (0 if right else 96)
    if listed:
        assert listed[0][1] == "particle" and "memory" in listed[0][5] and listed[0][4] == "0.60"


def test_the_peers_table():
    table = peer.table()
    assert len(table) == 96 and {len(t) for t in table.values()} == {2, 3}
    case = Case("spread", 10**7, 128)
    assert peer.best(table[case], "kernel_s") == ("3", 0.0052355)
    assert peer.best(table[case], "setpts_s", "kernel_s")[1] == pytest.approx(0.00058896 + 0.0052355)
    assert peer.geometric_mean([2, 8]) == 4 and math.isnan(peer.geometric_mean([]))


def test_opencl_is_compared_by_plain_calls():
    cuda = world(True)
    opencl = [dict(r, call_s=2e-3 if r["row"] == "spread-p4" else 1e-3, positions_s=1e-3) for r in cuda]
    ratios = claims.portable(cuda, opencl)
    by_key = {(row.key, method): ratio for row, method, ratio in ratios}
    assert by_key["spread-p4", "walk"] == 0.5 and by_key["spread", "walk"] == 1 and by_key["order", "walk"] == 2
    assert {method for _, method in by_key} == {"walk"} and "error-spread" not in {key for key, _ in by_key}
    assert claims.through_opencl(ratios).verdict == "missed, at 0.62 of it"


# ---- counters ---------------------------------------------------------------------------------------------

ACTIVE = ".avg.pct_of_peak_sustained_active"
NCU = f"""==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","smsp__inst_executed.sum","sm__inst_issued{ACTIVE}",\
"sm__inst_executed_pipe_alu{ACTIVE}","launch__registers_per_thread"
"","","nsecond","inst","%","%","register/thread"
"0","spread_walk","436,000","246,000,000","62.1","50.04","89"
==PROF== Disconnected
"""


def test_counters_are_read(tmp_path, capsys):
    file = tmp_path / "spread.csv"
    file.write_text(NCU)
    (row,) = counters.table([file], tmp_path, tmp_path)
    assert (row["row"], row["kernel"]) == ("spread", "spread_walk")
    assert (row["seconds"], row["instructions"], row["registers"]) == (4.36e-4, 24.6, 89)
    assert (row["issue"], row["alu"]) == (62.1, 50.04) and math.isnan(row["tensor"])
    assert "spread_walk" in capsys.readouterr().out
    assert "0.436" in (tmp_path / "limit_counters.inc").read_text()
    assert (tmp_path / "limit-counters-nvidia-h200.csv").exists()


def test_a_watched_call_is_made(monkeypatch):
    made, plain = [], Bench.setup
    monkeypatch.setattr(counters, "ROWS", (tiny(BY_KEY["spread-few"]),))
    monkeypatch.setattr(Bench, "setup", lambda self, *what, **more: made.append(what) or plain(self, *what, **more))
    counters.call("spread-few", "cpu")
    assert [(what[0].count, what[1]) for what in made] == [(150, "auto")]


def test_counters_have_a_command_for_each_row_and_complain(tmp_path):
    lines = counters.commands(Path("there"))
    assert len(lines) == 1 + len(counters.METHODS) and counters.METHODS.keys() <= BY_KEY.keys()
    assert "--page raw" in lines[1] and "there/spread.csv" in lines[1] and lines[1].endswith("call spread")
    with pytest.raises(ValueError, match="no output of ncu"):
        list(counters.parsed("nothing\n"))
    with pytest.raises(ValueError, match="is no row"):
        counters.counted("other", {})


# ---- pictures ---------------------------------------------------------------------------------------------


def lines(supports=("4", "6")):
    """Return made-up rows of densities and of the roofline."""
    dense, roof = [], []
    sizes = (10**4, 10**5, 10**6, 10**7)
    fall = {"walk": 1.0, "particle": 0.3, "line_mesh": 0.4, "ordered": 0.2, "cuFINUFFT": 0.1}
    for direction in cases.DIRECTIONS:
        for support in supports:
            for count in sizes:
                case = Case(direction, count, 128, int(support))
                for method, share in fall.items():
                    columns = {name: str(value) for name, value in case.columns().items()}
                    rate = 20 * share * count / (count + 10**6)
                    options = "form=fma" if method == "walk" and count > 10**5 else ""
                    dense.append(dict(columns, method=method, options="", density=case.density, rate=rate))
                    dense.append(dict(columns, method=method, options=options, density=case.density, rate=rate / 2))
                    flops = 2 * bounds.multiply_adds(case) / count * rate
                    roof.append(dict(columns, method=method, intensity=bounds.intensity(case), gflops=flops))
    return dense, roof


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_drawn_from_the_rows_alone(tmp_path):
    pictures = importlib.import_module("limit_pictures")
    dense, roof = lines()
    pictures.density(dense, tmp_path, "svg")
    pictures.roofline(roof, DEVICE, tmp_path, "svg")
    pictures.roofline(roof, Ceilings(), tmp_path, "png")
    pictures.against_peer([{n: str(v) for n, v in r.items()} for r in peers(True)], tmp_path, "svg")
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == [
        "limit_density.svg", "limit_peer.svg", "limit_roofline.png", "limit_roofline.svg"
    ]  # fmt: skip
    assert all(2_000 < file.stat().st_size < 400_000 for file in files)
