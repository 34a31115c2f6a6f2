# SPDX-License-Identifier: BSD-3-Clause
"""The reference has an entry for every public name, and an example that ends in a number.

The pages' build also checks the members of classes.
"""

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))
names = importlib.import_module("public_names")
PAGES = sorted((ROOT / "docs" / "reference").glob("*.rst"))
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCK = re.compile(r"^\.\. code-block:: pycon\n((?:\n|   .*\n)+)", re.MULTILINE)
# Why the examples of these end in a text or in flags.
WITHOUT_NUMBER = {
    "particlemesh.MethodNotSuitable": "its message names methods and backends",
    "particlemesh.kernels.branch_of": "None on the CPU",
    "particlemesh.kernels.check_apart": "returns nothing, and its message has no number",
    "particlemesh.kernels.overlap": "returns a flag",
    "particlemesh.kernels.checks.flags": "returns flags",
    "particlemesh.kernels.checks.one_of": "returns a choice, and its message lists the choices",
}
DIRECTIVE = re.compile(r"^\.\. (currentmodule|(?:auto)?(?:class|function|exception|data)):: ([^\s(]+)", re.MULTILINE)


def entries(page):
    """Return the full names that the directives of a page document."""
    names, module = set(), ""
    for kind, name in DIRECTIVE.findall(page):
        if kind == "currentmodule":
            module = name
        else:
            names.add(name if name.startswith("particlemesh.") else f"{module}.{name}")
    return names


@pytest.mark.parametrize("package", names.PACKAGES)
def test_every_public_name_has_an_entry(package):
    module = importlib.import_module(package)
    things = {n for n in module.__all__ if not names.is_foreign(getattr(module, n))}
    assert things
    assert {f"{package}.{name}" for name in things} - entries(PAGE) == set()


def last_output(text):
    """Return what the last example of a text prints."""
    return next((e.want for e in reversed(doctest.DocTestParser().get_examples(text)) if e.want), "")


def on_a_page(package, name, pages):
    """Return whether a block of code, on a page with the name's entry, has ``module.name`` and ends in a number."""
    used = re.compile(rf"\b{package.split('.')[-1]}\.{name}\b")
    return any(
        used.search(block) and re.search(r"\d", last_output(block))
        for page in pages
        if f"{package}.{name}" in entries(page)
        for block in BLOCK.findall(page)
    )


def without_number(package, pages):
    """Return the functions and classes of a package with no example that ends in a number."""
    things = {n: getattr(importlib.import_module(package), n) for n in importlib.import_module(package).__all__}
    return {
        f"{package}.{name}"
        for name, thing in things.items()
        if callable(thing) and not names.is_foreign(thing)
        if not re.search(r"\d", last_output(inspect.getdoc(thing) or "")) and not on_a_page(package, name, pages)
    }


@pytest.mark.parametrize("package", names.PACKAGES)
def test_every_public_name_has_an_example_that_ends_in_a_number(package):
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    excused = {name for name in WITHOUT_NUMBER if name.rsplit(".", 1)[0] == package}
    assert without_number(package, pages) == excused
    for name in excused:
        assert last_output(inspect.getdoc(getattr(importlib.import_module(package), name.rsplit(".", 1)[1])))


def test_a_name_without_an_example_is_found():
    assert "particlemesh.apps.nufft.nufft3d3" in without_number("particlemesh.apps.nufft", [])
    page = (ROOT / "docs" / "reference" / "nufft.rst").read_text(encoding="utf-8")
    assert on_a_page("particlemesh.apps.nufft", "nufft3d3", [page])
    assert not on_a_page("particlemesh.apps.nufft", "nufft3d4", [page])
    assert last_output(">>> 1 + 1\n2\n>>> True\nTrue\n") == "True\n"


def test_members_that_are_left_out_exist():
    known = {
        f"{name}.{member}"
        for package in names.PACKAGES
        for name, thing in vars(importlib.import_module(package)).items()
        for parent in getattr(thing, "__mro__", ())
        for member in {*vars(parent), *vars(parent).get("__annotations__", ())}
    }
    assert names.left_out(PAGES) <= known


def test_a_name_without_an_entry_is_found():
    every = names.public()
    assert "particlemesh.Plan.set_positions" in every  # inherited from the plan's bases
    assert "particlemesh.fourier.Solver.explain" in every
    assert names.missing(every - {"particlemesh.Plan.set_positions"}) == ["particlemesh.Plan.set_positions"]
    assert names.missing(every) == []
