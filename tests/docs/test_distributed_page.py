# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/guide/distributed.rst are those of today's code, and the model's messages those of theory."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tools" / "docs"), str(ROOT / "benchmarks")]

import distributed_derived as derived  # noqa: E402

from distributed import model  # noqa: E402


@pytest.mark.parametrize("name", derived.TABLES)
def test_tables_are_todays(name):
    text = (derived.PAGES / f"distributed_{name}.inc").read_text(encoding="utf-8")
    assert text == derived.TABLES[name](), "run python tools/docs/distributed_derived.py and commit the tables"
    page = (derived.PAGES / "distributed.rst").read_text(encoding="utf-8")
    assert f".. include:: distributed_{name}.inc" in page


def test_halos_are_the_ghost_layers_of_a_cube():
    """Cuts along three axes have (n + w - 1)^3 - n^3 ghosts from 26 ranks; two ranks share one cut axis."""
    nodes, ranks = model.halo(model.domain_of(64))
    assert nodes == (model.EDGE + model.SUPPORT - 1) ** 3 - model.EDGE**3 and ranks == 26
    assert model.halo(model.domain_of(2)) == ((model.SUPPORT - 1) * model.EDGE**2, 1)


def test_a_transpose_sends_all_but_a_share():
    (move,) = model.transposes(model.domain_of(2), real=True)
    assert move == (model.EDGE**2 * (model.EDGE // 2 + 1) // 2, 1, True)
    from_blocks, transpose = model.transposes(model.domain_of(64), real=False)
    assert transpose.numbers == model.EDGE**3 * 63 // 64 and transpose.ranks == 63
    assert from_blocks.numbers <= model.EDGE**3 and not from_blocks.modes


def test_efficiency_falls_with_slower_links_and_more_messages():
    fast, slow = (model.predicted(model.domain_of(8), link) for link in (model.NVLINK, model.PCIE))
    assert all(a > b for a, b in zip(fast[2:], slow[2:], strict=True))
    assert fast.spread_interpolate > fast.deterministic > fast.with_fft
    two = model.predicted(model.domain_of(2), model.NVLINK)
    # 11.25 ms of local work beside two rounds of 2.6 MB at 300 GB/s, 28 µs each before the first byte.
    assert two.spread_interpolate == pytest.approx(11.25e-3 / (11.25e-3 + 2 * (28e-6 + 5 * 256**2 * 8 / 300e9)))


def test_measured_rows_are_shown(tmp_path):
    assert "No results" in derived.measured(tmp_path)
    row = dict(figure="strong", ranks=2, device="GPU", transport="nccl", seconds=0.0061, one_s=0.0113, value=1.85,
               unit="times as fast", reach=1.85, stretch=1.95)  # fmt: skip
    text = ",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n"
    (tmp_path / "distributed-scaling-gpu.csv").write_text(text)
    assert "1.85 times as fast" in derived.measured(tmp_path) and "6.1 ms" in derived.measured(tmp_path)
