# SPDX-License-Identifier: BSD-3-Clause
"""The times of ``set_positions`` on the page of plans are those of the files that it names."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guide" / "plans.rst").read_text(encoding="utf-8")
DEVICES = {
    "NVIDIA H200": "limit-peer-nvidia-h200.csv", "EPYC, 2 threads": "cpu-amd-epyc-2-threads.csv",
    "Xeon, 16 threads": "cpu-intel-r-xeon-r-processor-16-threads.csv",
}  # fmt: skip
NUMBERS = {"10⁶": "1000000", "10⁷": "10000000"}


def measured(device, particles, dtype):
    """Return the milliseconds of positions, spreading and interpolation."""
    lines = (ROOT / "benchmarks" / "results" / DEVICES[device]).read_text(encoding="utf-8").splitlines()
    known = {
        "N": NUMBERS[particles], "K": "128", "dtype": dtype, "cloud": "uniform", "auto": "1", "p": "6", "width": "6",
        "threads": device.split()[1],
    }  # fmt: skip
    rows = [
        row for row in csv.DictReader(line for line in lines if not line.startswith("#"))
        if all(row[key] == value for key, value in known.items() if key in row)
    ]  # fmt: skip
    by = {row.get("direction") or row["operation"]: row for row in rows}
    spread = by["spread"]
    seconds = [
        spread.get("positions_s") or spread["setpts_ours_s"],
        *(by[name].get("graph_s") or by[name]["ours_s"] for name in ("spread", "interpolate")),
    ]
    return [1000 * float(each) for each in seconds]


def test_its_times_are_those_of_the_files():
    table = PAGE.partition("What set_positions costs")[2].partition(".. [1]")[0]
    rows = re.findall(r"\* - (.*)\n" + r"     - (.*)\n" * 5, table)[1:]
    assert {row[0] for row in rows} == set(DEVICES)
    for device, particles, dtype, *times in rows:
        assert [float(time) for time in times] == pytest.approx(measured(device, particles, dtype), rel=0.05), device
