# SPDX-License-Identifier: BSD-3-Clause
"""Sentences that one has to read twice: none of a page or a docstring has more than 25 words."""

import ast
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 25
WIDEST, PRINTED = 80, ("text", "bibtex")  # of code on pages; and what programs print
INDEX = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
CONTINUED = {"pme_more", "distributed"}  # pages that say more on several applications
APPLICATIONS = sorted(set(re.findall(r"guide/(\w+)$", INDEX.split(":caption: ")[4], re.MULTILINE)) - CONTINUED)
PARTS = ("What it computes", "First program", "Accuracy", "Units", r"What an? \w+ costs", "Limits", "References")
EXEMPT = {"CHANGELOG.md", "changelog.rst"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.rst")]
    if path.name not in EXEMPT and "_build" not in path.parts and ROOT / "docs" / "gallery" not in path.parents
)
FOLDERS = sorted({"*.py", *(f"{path.name}/**/*.py" for path in (ROOT / "src" / "particlemesh").glob("[!_]*/"))})
PROSE_INSIDE = (".. figure::", ".. note::", ".. warning::")  # of other directives nothing is text
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
# What counts as a word: code, roles, links, formulas, substitutions, citations, images.
INLINE = re.compile(r"(?::[\w:]+:)?`{1,2}[^`]+`{1,2}_*|!?\[[^\]]*\](?:_|\([^)]*\))|\|\w+\||\bet al\.")


def indent(line):
    return len(line) - len(line.lstrip())


def paragraphs(text, restructured):
    """Return the paragraphs, items of lists and captions of a page: no headings, tables, code or formulas."""
    texts, hidden = [], None
    if not restructured:
        text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").splitlines()
        if not lines or (hidden is not None and indent(lines[0]) > hidden):
            continue
        hidden, first = None, lines[0].strip()
        if restructured:
            code = first.startswith((".. ", ">>>")) or re.search(r"^\s*(?:[=~-]{3,} *)+$", block, re.MULTILINE)
            if (first.startswith(".. ") and not first.startswith(PROSE_INSIDE)) or first.endswith("::"):
                hidden = indent(lines[0])
        else:
            code = first.startswith(("#", "|")) or all(line.startswith("    ") for line in lines)
        depth = None
        for line in [] if code else lines:
            item = ITEM.match(line)
            if item or indent(line) != depth:
                texts.append("")
            depth = len(item[0]) if item else indent(line)
            texts[-1] += " " + line[len(item[0]) if item else 0 :].strip()
    return texts


def sentences(paragraph):
    """Return the words of each sentence of a paragraph."""
    plain = INLINE.sub("Word", paragraph)
    for sentence in re.split(r"(?<=[.!?])[*)\"”]*\s+(?=[*(\"“]*[A-Z0-9])", plain):
        yield [word for word in sentence.split() if re.search(r"\w", word)]


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_has_more_than_25_words(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    said = [words for p in paragraphs(text, page.endswith(".rst")) for words in sentences(p)]
    assert said
    assert [" ".join(words) for words in said if len(words) > LONGEST] == []


def code_of(text):
    """Yield the lines of code of a page without their indent: blocks, and examples that stand alone."""
    block, language, examples = None, "", False
    for line in text.splitlines():
        start = re.match(r"( *)\.\. code-block:: *(\w*)", line)
        if start:
            block, language, examples = len(start[1]), start[2], False
            continue
        if block is not None and line.strip() and indent(line) <= block:
            block = None
        if block is not None and language not in PRINTED:
            examples |= line.lstrip().startswith(">>> ")
            if not examples or line.lstrip().startswith((">>> ", "... ")):  # their results are printed
                yield line[block + 3 :]
        elif block is None and line.lstrip().startswith((">>> ", "... ")):
            yield line.lstrip()


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".rst") and "/performance/" not in page])
def test_code_of_pages_is_narrow(page):
    assert [line for line in code_of((ROOT / page).read_text(encoding="utf-8")) if len(line) > WIDEST] == []


def test_what_counts_as_code():
    text = "Text.\n\n.. code-block:: python\n\n   a = 1\n\n   b = 2\n\nText.\n\n>>> c = 3\n... d\n3\n"
    text += "\n.. code-block:: text\n\n   output\n"
    assert [line for line in code_of(text) if line] == ["a = 1", "b = 2", ">>> c = 3", "... d"]


@pytest.mark.parametrize("page", APPLICATIONS)
def test_pages_of_applications_have_the_same_parts(page):
    text = (ROOT / "docs" / "guide" / f"{page}.rst").read_text(encoding="utf-8")
    headings = [line for line, below in itertools.pairwise(text.splitlines()) if re.fullmatch("-{4,}", below)]
    assert [part for part in PARTS if not any(re.fullmatch(part, heading) for heading in headings)] == []


def test_the_applications_are_those_of_the_sidebar():
    assert INDEX.split(":caption: ")[4].startswith("Applications\n") and len(APPLICATIONS) >= 8


def docstrings(text):
    """Return the docstrings of a module, private ones included, without headings of sections."""
    with_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, with_docstring)]
    return [re.sub(r"^ *[A-Z][\w ]*\n *-{3,} *$", "", doc, flags=re.MULTILINE) for doc in texts]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_sentence_of_a_docstring_has_more_than_25_words(folder):
    long = {}
    for path in sorted((ROOT / "src" / "particlemesh").glob(folder)):
        for doc in docstrings(path.read_text(encoding="utf-8")):
            for words in (words for p in paragraphs(doc, True) for words in sentences(p)):
                if len(words) > LONGEST:
                    long.setdefault(path.name, []).append(" ".join(words))
    assert long == {}


LONG = "We go " + "on and " * 20 + "stop."


@pytest.mark.parametrize(
    ("text", "restructured", "count"),
    [
        (f"A short one. {LONG} Another.", True, 1),
        (f"- one item\n- {LONG}\n- {LONG}", True, 2),
        (f"term\n    {LONG}", True, 1),
        (f".. figure:: a.svg\n\n   {LONG}", True, 1),
        (f"Text:\n\n.. code-block:: python\n\n   {LONG}\n\n   {LONG}\n\n{LONG}", True, 1),
        (f"Text::\n\n   {LONG}\n\nText.", True, 0),
        (f"{LONG}\n" + "=" * 120, True, 0),
        (f"====  ====\na     b\n====  ====\na     {LONG}\n====  ====", True, 0),
        (f">>> {LONG}\n{LONG}", True, 0),
        (f"``{LONG}`` :doc:`{LONG}`", True, 0),
        (f"# {LONG}\n\n| {LONG} |\n\n    {LONG}\n\n```python\n{LONG}\n\n{LONG}\n```", False, 0),
        (f"- {LONG}\n\n{LONG}\n\n1. {LONG}", False, 3),
        ("We see [1.5, 2] in 2.5 s. " * 9, False, 0),
    ],
)
def test_what_counts_as_a_sentence(text, restructured, count):
    said = [words for p in paragraphs(text, restructured) for words in sentences(p)]
    assert sum(len(words) > LONGEST for words in said) == count


def test_sections_of_docstrings_count():
    text = f'def f():\n    """Short.\n\n    Parameters\n    ----------\n    x : int\n        {LONG}\n    """'
    (doc,) = filter(None, docstrings(text))
    assert sum(len(words) > LONGEST for p in paragraphs(doc, True) for words in sentences(p)) == 1
