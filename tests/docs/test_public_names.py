# SPDX-License-Identifier: BSD-3-Clause
"""The reference has an entry for every public name. The pages' build also checks the members of classes."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))
names = importlib.import_module("public_names")
PAGES = sorted((ROOT / "docs" / "reference").glob("*.rst"))
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
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
