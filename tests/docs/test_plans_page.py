# SPDX-License-Identifier: BSD-3-Clause
"""The times of ``set_positions`` on the page of plans are those of the measured files."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))

import positions_derived as derived  # noqa: E402


def test_its_times_are_those_of_the_files():
    text = derived.PAGE.read_text(encoding="utf-8")
    assert text == derived.table(), "run python tools/docs/positions_derived.py and commit the table"
    page = derived.PAGE.with_name("plans.rst").read_text(encoding="utf-8")
    assert f".. include:: {derived.PAGE.name}" in page
    for _, _, file, _ in derived.ROWS:
        assert f"``{file}``" in page
