# SPDX-License-Identifier: BSD-3-Clause
"""Formulas of pages are shown as they are written."""

import re
import sys
from pathlib import Path

import pytest

for library in ("sphinx", "docutils"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'particlemesh[docs]'")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))
from docutils.utils.math import MathError  # noqa: E402
from docutils.utils.math.latex2mathml import tex2mathml  # noqa: E402
from mathml import checked  # noqa: E402

PLACES = [
    *ROOT.glob("docs/**/*.rst"),
    *ROOT.glob("docs/**/*.inc"),
    *ROOT.glob("src/**/*.py"),
    *ROOT.glob("examples/**/*.py"),
]


def formulas(text):
    """Yield the roles and directives of a page or of docstrings, with or without the marks of comments."""
    yield from re.findall(r":math:`([^`]+)`", text)
    lines = [re.sub(r"^# ?", "", line) for line in text.splitlines()]
    for n, line in enumerate(lines):
        directive = re.match(r"(\s*)\.\. math::(.*)", line)
        if directive:
            body = [directive[2]]
            for below in lines[n + 1 :]:
                if below.strip() and len(below) - len(below.lstrip()) <= len(directive[1]):
                    break
                body.append(below.strip())
            yield "\n".join(body).strip()


def test_pages_have_formulas_that_are_shown_as_written():
    wrong, count = {}, 0
    for place in PLACES:
        for tex in formulas(place.read_text()):
            count += 1
            try:
                tex2mathml(checked(tex))
            except MathError as error:
                wrong[f"{place.relative_to(ROOT)}: {tex}"] = str(error)
    assert wrong == {}
    assert count > 50


@pytest.mark.parametrize(
    "tex",
    [
        r"\tfrac43 E",
        r"\frac{1}2",
        r"\frac ab",
        r"\binom n{k}",
        r"\sqrt2",
        r"x^12",
        "x_10",
        "a = b\n\nc = d",
    ],
)
def test_what_would_be_shown_otherwise_is_refused(tex):
    with pytest.raises(MathError, match="without braces|no braces|a directive"):
        checked(tex)


@pytest.mark.parametrize(
    "tex", [r"\tfrac{4}{3} E", r"\frac {a^{2}} {\sqrt{b}}", r"\sqrt[3]{x}", r"x^2 y_1", r"\hat W(k)", "a\nb", "a\n\n"]
)
def test_what_is_shown_as_written_is_taken(tex):
    assert checked(tex) == tex


def test_every_formula_of_a_page_names_the_test_that_shows_it():
    """A comment before it: ``.. shown by tests/FILE.py::NAME``."""
    for page in ROOT.glob("docs/**/*.rst"):
        if page.is_relative_to(ROOT / "docs" / "gallery"):  # made from the examples, which are run with a truth
            continue
        blocks = [block for block in re.split(r"\n\s*\n", page.read_text()) if block.strip()]
        for before, block in zip(["", *blocks], blocks, strict=False):
            if block.lstrip().startswith(".. math::"):
                shown = re.fullmatch(r"\.\. shown by (tests/[\w/]+\.py)::(\w+)", before.strip())
                assert shown, f"{page.relative_to(ROOT)}: {block}"
                assert f"def {shown[2]}(" in (ROOT / shown[1]).read_text(), f"{page.name}: {before}"
