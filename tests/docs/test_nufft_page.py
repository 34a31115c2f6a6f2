# SPDX-License-Identifier: BSD-3-Clause
"""Times on the page of non-uniform transforms are those that were measured."""

import csv
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {"type 1, 10⁶ points, 10⁶ modes": ("1", "1000000"), "type 2, 10⁷ points, 1024² modes": ("2", "1024x1024")}
KINDS |= {f"type 2, 10⁷ points, {n}³ modes": ("2", f"{n}x{n}x{n}") for n in (128, 256)}


def test_many_calls_with_the_same_points_take_the_measured_times():
    with (ROOT / "benchmarks/results/nufft-cases-nvidia-h200.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs/guide/nufft.rst").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith(tuple(KINDS))]
    assert len(lines) == 5
    for line in lines:
        what, dtype, eps, *said = (part for part in line.split("  ") if part)
        for library, number in zip(("particlemesh", "particlemesh, applications=100"), said, strict=True):
            (row,) = (
                r for r in rows
                if (r["type"], r["modes"]) == KINDS[what] and r["dtype"] == dtype.strip()
                and float(r["eps"]) == float(eps) and r["library"] == library
            )  # fmt: skip
            assert float(number) == float(f"{float(row['graph_s']) * 1e3:.3g}")


def test_peers_on_a_processor_take_the_measured_times():
    file = ROOT / "benchmarks/results/nufft-axes-intel-r-xeon-r-processor-2-threads.csv"
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    page = (ROOT / "docs/guide/nufft.rst").read_text(encoding="utf-8")
    for library, column, words in (("finufft", "ratio_reuse", "in the\nmean"), ("ducc0", "ratio_new", "as our")):
        ratios = [float(row[column]) for row in rows if row["library"] == library]
        assert len(ratios) == 24
        assert f"{statistics.geometric_mean(ratios):.2f} times as long {words}" in page
        assert f"{min(ratios):.2f} in the least" in page
