# SPDX-License-Identifier: BSD-3-Clause
"""What the files of the limit's benchmarks say of counters and of the peer, and what pages show of it."""

import csv
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "performance"
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools" / "docs")]

from limit import claims, counters, peer, rows  # noqa: E402
from limit.bench import Measured  # noqa: E402
from limit.cases import Case  # noqa: E402
from particlemesh.choosing.choice import METHODS  # noqa: E402
from test_limit_benchmarks import DEVICE, NCU, peers  # noqa: E402

# ---- counters ---------------------------------------------------------------------------------------------


def table(tmp_path, text):
    (file := tmp_path / "spread.csv").write_text(text)
    counters.table([file], tmp_path, None)
    (written,) = tmp_path.glob("limit-counters-*.csv")
    with written.open(newline="") as opened:
        return written.name, list(csv.DictReader(opened))


def test_counters_name_device_and_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTICLEMESH_COMMIT", "abc1234")
    name, rows = table(tmp_path, NCU)
    assert name == "limit-counters-nvidia-h200.csv"
    assert [(row["device"], row["commit"]) for row in rows] == [("NVIDIA H200", "abc1234")]


def test_counters_name_the_device_that_ncu_tells(tmp_path):
    text = NCU
    for first, more in (('"ID",', '"Device Name",'), ('\n"",', '"",'), ('\n"0",', '"NVIDIA B200",')):
        text = text.replace(first, first + more)
    name, rows = table(tmp_path, text)
    assert name == "limit-counters-nvidia-b200.csv" and [row["device"] for row in rows] == ["NVIDIA B200"]


def test_every_file_of_the_limit_names_device_and_commit():
    files = list((ROOT / "benchmarks" / "results").glob("limit-*.csv"))
    assert files
    for file in files:
        with file.open(newline="") as opened:
            assert all(row["device"] and row["commit"] for row in csv.DictReader(opened)), file.name


# ---- the peer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rivals", [["walk", "line_mesh"], ["ordered", "walk"]])
def test_two_methods_without_a_matrix_are_measured_in_every_case(rivals):
    case = next(iter(peer.table()))
    bench = SimpleNamespace(
        rivals=lambda case, **_: (rivals[0], list(rivals)), names=lambda direction: ["walk", "particle", "ordered"],
        measure=lambda job, **_: Measured(2e-3, 1e-3, 3e-3, 1e-4), ceilings=DEVICE, facts={},
    )  # fmt: skip
    found = list(peer.rows(bench, case))
    assert {r["method"] for r in found} == {*rivals, "particle", "ordered"} and len(found) == len(
        {*rivals, *peer.ALWAYS}
    )
    assert [r["auto"] for r in found] == [1] + [0] * (len(found) - 1)


def test_matrices_are_methods_that_store_weights():
    names = {m.name for methods in METHODS.values() for m in methods}
    assert names >= {*peer.ALWAYS}
    assert {n for n in names if n.endswith("_mesh")} | {"stored"} == peer.MATRICES


def with_a_matrix(ratio):
    """Rows of the peer with a matrix that is faster than all others in one case."""
    found = peers(True)
    first = next(r for r in found if r["method"] == "walk" and r["direction"] == "spread")
    return [*found, dict(first, method="line_mesh", auto=0, ratio=ratio, graph_s=3e-5, prepare_s=1.5e-3)]


def test_means_are_also_without_matrices():
    plain, found = peer.means(peers(True)), peer.means(with_a_matrix(4.0 * 2**48))
    assert found["spread", "ratio"][0] == pytest.approx(8.0) and plain["spread", "ratio"][0] == pytest.approx(4.0)
    assert found["spread", "without"] == plain["spread", "without"] == pytest.approx((4.0, 4.0, 48))
    assert found["interpolate", "without"] == found["interpolate", "ratio"]
    worse = [
        dict(r, ratio=0.5) if r["method"] == "walk" and int(r["auto"]) and r["N"] > 10**5 else r for r in peers(True)
    ]
    told = {t.words: t for t in claims.against_peer(worse)}
    least = told["spread, the least ratio of these"]
    assert (least.best, least.auto, least.walk) == (0.6, 0.5, 0.5)
    assert told["spread, without stored matrices, the least ratio"].best == 0.6
    assert all(t.verdict == "" for words, t in told.items() if claims.WITHOUT in words)


def test_cases_won_by_matrices_are_named_with_their_building():
    assert claims.matrices(peers(True)) == []
    ((words, method, building, ours, ratio, best, theirs),) = claims.matrices(with_a_matrix(5.0))
    assert words.startswith("spread p=") and (method, building, ours, ratio) == (
        "line_mesh",
        "1,500 µs",
        "30.0 µs",
        "5.00",
    )
    assert best.startswith("walk, ") and theirs == "4.00"
    alone = [r for r in with_a_matrix(5.0) if r["method"] == "line_mesh"]
    assert claims.matrices(alone)[0][-2:] == ("", "")


def test_words_of_the_peer_come_from_the_file():
    said = claims.words(peers(True), "a.csv")
    assert "|peer_cases| replace:: 48\n" in said and "|spread_without_least| replace:: 4.00\n" in said
    assert claims.words([], "a.csv").count("(not measured)") == 8


# ---- pages ------------------------------------------------------------------------------------------------


def test_what_is_written_for_the_pages_is_of_todays_files():
    _, _, pages = claims.shown(claims.RESULTS, "nvidia-h200")
    for name, text in pages.items():
        written = (PAGES / name).read_text(encoding="utf-8")
        assert written == text, f"{name}: run benchmarks/limit/claims.py --docs docs/performance"
    shown = "".join((PAGES / f"{name}.rst").read_text(encoding="utf-8") for name in ("limit", "limit_measured"))
    for line in pages["limit_ratios.inc"].splitlines()[2:]:
        assert f"|{line.split('|')[1]}|" in shown
    assert all(f".. include:: {name}\n" in shown for name in pages)


def test_rows_through_opencl_are_rates_of_many_particles():
    rates = [row for row in rows.ROWS if row.unit in (rows.RATE, rows.POINTS)]
    assert min(row.case.count for row in rates) == 10**6
    few = replace(rates[0], unit=rows.US, case=Case("spread", 10**4, 128))
    told = claims.through_opencl([(rates[0], "walk", 0.9), (few, "walk", 0.3)])
    assert told.best == 0.9 and "10⁶ particles and more" in told.words
    assert math.isnan(claims.through_opencl([(few, "walk", 0.3)]).best)
