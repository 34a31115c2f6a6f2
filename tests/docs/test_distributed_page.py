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


@pytest.mark.parametrize("parts", ["blocks", "pencils", "slabs"])
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("gpus", [4, 8, 32, 128, 512])
def test_transforms_are_cut_as_the_model_says(parts, real, gpus):
    """Pencils where they win by a tenth: what is taken is never worse than that."""
    domain = model.domain_of(gpus, parts)
    slabs, pencils, taken = (
        model.fft_messages(domain, model.NDR, real=real, kind=kind) for kind in ("slabs", "pencils", None)
    )
    assert taken == (pencils if pencils < 0.9 * slabs else slabs) or 0.89 < pencils / slabs < 0.91


def test_launches_do_not_follow_the_number_of_ranks():
    """Counts of today's layouts: 26 neighbours of a halo, then a transpose to all; each is packed at once."""
    few, many = (model.counts(model.domain_of(gpus), kind="slabs") for gpus in (8, 64))
    assert (few.launches, few.rounds) == (many.launches, many.rounds) == (5 + 2 * 2 * 3, 2 + 2 * 2)
    assert (few.peers, many.peers) == (7, 63)
    assert few.nodes == many.nodes == 1.0
    assert 1.0 <= many.imbalance < 1.2
    nodes, _ = model.halo(model.domain_of(64))
    assert many.nbytes >= 2 * (nodes + model.EDGE**3 * 63 // 64) * model.COMPLEX
    assert model.counts(model.domain_of(1)) == (1, 0, 1, 0, 0, 1.0, 1.0)


def test_efficiency_falls_with_slower_links_and_more_messages():
    fast, slow = (
        [model.value_of(figure, 8, link) for figure in ("deterministic", "weak", "few", "fft")]
        for link in (model.calibrated(), model.elsewhere(model.PCIE))
    )
    assert all(a > b for a, b in zip(fast, slow, strict=True))
    assert fast[:3] == sorted(fast[:3], reverse=True) and fast[1] > fast[3]
    link = model.Link("here", 300e9, 25e-6, 3e-6, 1e-4)
    # Two rounds of 2.6 MB, which are packed and unpacked, and a third round to two more ranks.
    work = model.Work([*model.busiest("weak", 2).rounds, model.Round(1000, 3)], 2)
    rounds = 2 * 5 * 256**2 * 8 / 300e9 + 1000 / 300e9 + 3 * 25e-6 + 2 * 3e-6 + 4 * work.sent / model.MEMORY
    assert work.seconds(link) == pytest.approx(rounds + 2e-4)


def test_constants_are_those_of_the_measured_rows():
    """Rows made of three constants give them back, whatever one GPU takes."""
    rows, link = {}, model.Link("here", 2e11, 5e-5, agreement=7e-5)
    for (figure, ranks), row in model.measured().items():
        work, alone = model.busiest(figure, ranks), float(row["one_s"])
        messages = sum(link.round + one.nbytes / link.speed for one in work.rounds)
        rows[figure, ranks] = row | dict(exchange_s=messages, seconds=model.local(figure, ranks) + work.seconds(link))
        assert model.one_gpu(figure) == alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "measured", lambda device: rows)
        fitted = model.calibrated.__wrapped__("here")
    assert (fitted.speed, fitted.round) == (pytest.approx(link.speed), pytest.approx(link.round))
    assert fitted.agreement == pytest.approx(link.agreement)
    assert model.calibrated() != fitted


def test_measured_rows_are_shown(tmp_path):
    assert "No results" in derived.measured(tmp_path)
    row = dict(figure="strong", ranks=2, device="GPU", transport="nccl", seconds=0.0061, one_s=0.0113, value=1.85,
               unit="times as fast", reach=1.85, stretch=1.95)  # fmt: skip
    text = ",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n"
    (tmp_path / "distributed-scaling-gpu.csv").write_text(text)
    assert "1.85 times as fast" in derived.measured(tmp_path) and "6.1 ms" in derived.measured(tmp_path)
