# SPDX-License-Identifier: BSD-3-Clause
"""The page of other libraries: each section runs where its libraries are."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "ecosystem.rst").read_text(encoding="utf-8")
TITLES = re.split(r"^(.+)\n-{3,}\n", PAGE, flags=re.MULTILINE)[1:]
SECTIONS = dict(zip(TITLES[::2], TITLES[1::2], strict=True))


@pytest.mark.filterwarnings("ignore")  # of MDAnalysis's own imports
@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_gives_what_it_says(title):
    text = SECTIONS[title]
    for name in sorted(set(re.findall(r">>> (?:import|from) (\w+)", text))):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    examples = doctest.DocTestParser().get_doctest(text, {}, title, "ecosystem.rst", 0)
    assert len(examples.examples) > 3
    assert doctest.DocTestRunner().run(examples).failed == 0
