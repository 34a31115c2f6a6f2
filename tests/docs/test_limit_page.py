# SPDX-License-Identifier: BSD-3-Clause
"""What docs/performance/limit.rst derives holds, and the pages' tables are those of today's code and figures."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[2]
DOCS, PAGES = ROOT / "docs", ROOT / "docs" / "performance"
sys.path += [str(ROOT / "tools" / "docs"), str(ROOT / "benchmarks")]

import limit_derived as derived  # noqa: E402
from pictures import RESULTS  # noqa: E402


def test_what_is_written_for_the_page_is_todays():
    expected = {
        "blocks": derived.blocks(), "counted": derived.counted(),
        "words": derived.words(RESULTS, derived.DEVICE),
    }  # fmt: skip
    for name, text in expected.items():
        assert (PAGES / f"limit_{name}.inc").read_text(encoding="utf-8") == text, "run tools/docs/limit_derived.py"
    pages = [(PAGES / f"{name}.rst").read_text(encoding="utf-8") for name in ("limit", "limit_measured")]
    for line in expected["words"].splitlines()[2:]:
        assert any(f"|{line.split('|')[1]}|" in page for page in pages)


def test_the_limits_pages_are_short_and_know_each_other():
    pages = {name: (PAGES / f"{name}.rst").read_text(encoding="utf-8") for name in ("limit", "limit_measured")}
    index = (DOCS / "index.rst").read_text(encoding="utf-8").split()
    for (name, page), other in zip(pages.items(), reversed(pages), strict=True):
        words = [line for line in page.splitlines() if not line.startswith(".. shown by")]
        assert len(words) <= 405 and f":doc:`{other}`" in page and f"performance/{name}" in index


@pytest.mark.parametrize(("support", "tiles"), [(4, 1), (5, 2), (6, 1), (6, 2)])
@pytest.mark.parametrize("density", [0.005, 0.05, 0.5])
def test_nodes_that_walks_write(support, tiles, density):
    # Blocks of a line that goes on, at random: a walk writes what its moves pass, and all of a window where it jumps.
    patch, chunk = derived.walk_of(support, tiles), 400
    x, y, z = patch.cells
    count, lines = 200_000, 200_000 / (density * x * y * z)
    block = np.sort(np.random.default_rng(support).integers(0, int(lines), count))
    moves = -(-patch.levels // x)
    passed = 0
    for first in range(0, count, chunk):
        gaps = np.diff(block[first : first + chunk])
        passed += int(np.minimum(gaps, moves).sum()) + moves
    nodes = passed * x * 64 * tiles / (int(lines) * x * y * z)
    assert nodes == pytest.approx(float(derived.written(patch, np.array(density), chunk)), rel=0.02)


def test_bounds_of_the_two_halves():
    a, b = np.exp(np.random.default_rng(2).uniform(0, 9, (2, 400_000))).astype(np.float32)
    high, low = derived.upper(a), a - derived.upper(a)
    assert np.all(low >= 0) and np.all(low < 2.0**-10 * a)
    assert np.all(high.astype(float) + low == a)
    assert np.all(low - derived.upper(low) <= 3 * 2.0**-23 * a)
    kept = [(x.astype(float), derived.upper(v - x).astype(float)) for v, x in ((a, high), (b, derived.upper(b)))]
    (a_high, a_low), (b_high, b_low) = kept
    exact = a.astype(float) * b
    lost = (exact - (a_low * b_high + a_high * b_low + a_high * b_high)) / exact
    assert lost.min() >= 0 and lost.max() < 14 * 2.0**-23
    assert lost.mean() == pytest.approx(1.15 * 2.0**-22, rel=0.02)


def test_sums_drift_inside_of_the_unit_only():
    errors = {name: np.array(drifts) for name, drifts in derived.drift(steps=64, nodes=300).items()}
    assert errors["outside"].max() < 7e-7
    assert errors["inside"][-1] > 4 * errors["outside"][-1]
    assert errors["inside"][63] / errors["inside"][15] > 2.5  # in proportion to the steps
    assert errors["one"].min() > 5e-4
