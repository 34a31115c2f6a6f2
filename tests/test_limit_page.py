# SPDX-License-Identifier: BSD-3-Clause
"""What docs/performance/limit.rst derives holds, and the pages' tables are those of today's code and figures."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[1]
DOCS, PAGES = ROOT / "docs", ROOT / "docs" / "performance"
sys.path += [str(ROOT / "tools" / "docs"), str(ROOT / "benchmarks")]

import limit_derived as derived  # noqa: E402
from pictures import RESULTS  # noqa: E402


def test_what_is_written_for_the_page_is_todays():
    wanted = {
        "blocks": derived.blocks(), "counted": derived.counted(),
        "words": derived.words(RESULTS, "nvidia-h200"),
    }  # fmt: skip
    for name, text in wanted.items():
        assert (PAGES / f"limit_{name}.inc").read_text(encoding="utf-8") == text, "run tools/docs/limit_derived.py"
    pages = [(PAGES / f"{name}.rst").read_text(encoding="utf-8") for name in ("limit", "limit_measured")]
    for line in wanted["words"].splitlines()[2:]:
        assert any(f"|{line.split('|')[1]}|" in page for page in pages)


def test_the_limits_pages_are_short_and_know_each_other():
    pages = {name: (PAGES / f"{name}.rst").read_text(encoding="utf-8") for name in ("limit", "limit_measured")}
    index = (DOCS / "index.rst").read_text(encoding="utf-8").split()
    for (name, page), other in zip(pages.items(), reversed(pages), strict=True):
        assert len(page.splitlines()) <= 400 and f":doc:`{other}`" in page and f"performance/{name}" in index


def test_words_come_from_the_files(tmp_path):
    assert derived.words(tmp_path, "nobody").count(derived.MISSING) >= 10
    (tmp_path / "limit-rows-nobody.csv").write_text(
        "row,method,figure,auto,error,N\n"
        "spread,walk,21.25,1,4e-7,10000000\nspread,particle,1.5,0,1e-7,10000000\n"
        "error-spread,walk,4.6e-7,1,4.6e-7,10000000\n"
    )
    (tmp_path / "limit-counters-nobody.csv").write_text(
        "row,kernel,seconds,instructions,registers,occupancy,issue,alu\n"
        "spread,clear,1e-6,1,20,99,80,90\nspread,spread_walk,4e-4,21,71,95,72,50\n"
    )
    said = derived.words(tmp_path, "nobody")
    assert f"|spread_rate| replace:: 21.2 {derived.BY} 10⁹\n" in said
    assert "|spread_error| replace:: 4.6e-7\n" in said
    assert "|spread_fullest| replace:: issue slots, 72 %\n" in said


@pytest.mark.parametrize(("support", "tiles"), [(4, 1), (5, 2), (6, 1), (6, 2)])
@pytest.mark.parametrize("density", [0.005, 0.05, 0.5])
def test_nodes_that_walks_write(support, tiles, density):
    # Blocks of a line that goes on, at random: a walk writes what its moves pass, and all of a window where it jumps.
    found, chunk = derived.walk_of(support, tiles), 400
    x, y, z = found.cells
    count, lines = 200_000, 200_000 / (density * x * y * z)
    block = np.sort(np.random.default_rng(support).integers(0, int(lines), count))
    moves = -(-found.levels // x)
    passed = 0
    for first in range(0, count, chunk):
        gaps = np.diff(block[first : first + chunk])
        passed += int(np.minimum(gaps, moves).sum()) + moves
    nodes = passed * x * 64 * tiles / (int(lines) * x * y * z)
    assert nodes == pytest.approx(float(derived.written(found, np.array(density), chunk)), rel=0.02)


@pytest.mark.parametrize("mean", [0.3, 4.0, 29.0])
def test_steps_of_a_block(mean):
    drawn = np.random.default_rng(1).poisson(mean, 400_000)
    assert derived.expected_steps(mean) == pytest.approx(np.ceil(drawn / 8).mean(), rel=0.01)


@pytest.mark.parametrize("reals", [1, 2, 4])
@pytest.mark.parametrize("levels", [2, 4, 6, 8])
def test_the_formula_of_a_step(levels, reals):
    for tiles in (1, 2):
        formula = 6 * levels + 2 * math.ceil(levels / 4) + 2 + reals * tiles * (6 + 3.5 * levels)
        assert sum(derived.step(levels, reals, tiles)) == formula


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
    errors = {name: np.array(found) for name, found in derived.drift(steps=64, nodes=300).items()}
    assert errors["outside"].max() < 7e-7
    assert errors["inside"][-1] > 4 * errors["outside"][-1]
    assert errors["inside"][63] / errors["inside"][15] > 2.5  # in proportion to the steps
    assert errors["one"].min() > 5e-4


def test_the_unit_cuts_towards_zero():
    # Eight times an eighth of the last digit of two is that digit, but each by itself is below what the unit keeps.
    one, eighth = np.ones((1, 8), np.float32), np.full((1, 8), 2.0**-25, np.float32)
    assert derived.matrix_unit(np.array([2.0], np.float32), one, eighth)[0] == 2
    assert derived.matrix_unit(np.array([2.0], np.float32), one, 2 * eighth)[0] == 2 + 2.0**-21
    small = np.zeros((1, 8), np.float32)
    small[0, 0] = 2.0**-12 + 2.0**-22
    came = derived.matrix_unit(np.array([-1.0], np.float32), small, one)[0]
    assert came == np.float32(-1 + 2.0**-12 + 2.0**-22)
