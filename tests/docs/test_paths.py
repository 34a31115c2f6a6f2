# SPDX-License-Identifier: BSD-3-Clause
"""Commands and files of pages that a reader cannot find: what a page names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.rst", "docs/**/*.inc")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and "_build" not in path.parts and ROOT / "docs" / "gallery" not in path.parents
)
# Names with a place holder (NAME, DEVICE, *) stand for several files. Results may be named without their folder.
FILE = re.compile(r"(?<![\w/*.-])((?:benchmarks|docs|examples|src|studies|tests|tools)/[\w./-]+\.\w+)(?![\w*])")
RESULT = re.compile(r"`([a-z][\w-]*\.csv)`")


def named(text):
    """Return the files that a page names, from the root."""
    names = {*FILE.findall(text), *(f"benchmarks/results/{name}" for name in RESULT.findall(text))}
    return {name for name in names if not re.search(r"NAME|DEVICE", name)}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in sorted(named(text)) if not (ROOT / name).exists()] == []


def test_what_counts_as_a_file():
    text = "``src/a/NAME.py`` python tools/b.py --x, `c.csv`, ``../src/d.c`` and ``docs/*.rst`` or ``e-DEVICE.csv``."
    assert named(text) == {"tools/b.py", "benchmarks/results/c.csv"}
