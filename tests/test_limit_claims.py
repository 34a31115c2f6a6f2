# SPDX-License-Identifier: BSD-3-Clause
"""What the files of the limit's benchmarks say of counters and of the peer, and what pages show of it."""

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "docs")]

from limit import counters  # noqa: E402
from test_limit_benchmarks import NCU  # noqa: E402

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
