# SPDX-License-Identifier: BSD-3-Clause
"""The times on the first page on performance are those of the measured files."""

import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))

import expected_derived as derived  # noqa: E402


def test_its_times_are_those_of_the_files():
    text = derived.TABLE.read_text(encoding="utf-8")
    assert text == derived.table(), "run python tools/docs/expected_derived.py and commit the table"
    page = derived.TABLE.with_suffix(".rst").read_text(encoding="utf-8")
    assert f".. include:: {derived.TABLE.name}" in page


def test_how_times_grow_is_that_of_the_files():
    page = derived.TABLE.with_suffix(".rst").read_text(encoding="utf-8")
    wider, precise = [], []
    for device in (derived.EPYC, derived.H100, derived.H200):
        for operation in ("spread", "interpolate"):

            def time(width=4, dtype="float32", device=device, operation=operation):
                return derived.of_plans(1_000_000, operation, "call", dtype=dtype, width=width)[device]

            wider.append(time(6) / time())
            precise += [time(width, "float64") / time(width) for width in (4, 6)]
    for words, ratios in (("times grow by", wider), ("float64 takes", precise)):
        assert f"{words} {min(ratios):.1f} to {max(ratios):.1f}" in page


def test_plain_calls_take_the_measured_times():
    with (ROOT / "benchmarks/results/plain-calls-nvidia-h200.csv").open(encoding="utf-8") as file:
        rows = {(r["call"], r["kind"]): float(r["host_s"]) for r in csv.DictReader(file) if r["style"] == "plain"}
    page = (ROOT / "docs/performance/summary.rst").read_text(encoding="utf-8").partition("Plain calls on GPUs\n")[2]
    calls = re.findall(r"   \* - ``([\w.]+)``.*\n     - ([\d.]+) (µs|ms)\n     - ([\d.]+) (µs|ms)\n", page)
    assert len(calls) == 9
    for name, *said in calls:
        for kind, number, unit in (("native", *said[:2]), ("torch", *said[2:])):
            assert float(number) == float(f"{rows[name, kind] * {'ms': 1e3, 'µs': 1e6}[unit]:.2g}"), name
