# SPDX-License-Identifier: BSD-3-Clause
"""Both preludes give the same verbs, and the page about them has them all."""

import importlib.resources
import re
from pathlib import Path

import pytest

from particlemesh.backends import source

PAGE = Path(__file__).resolve().parents[2] / "docs" / "developers" / "dialect.rst"


def verbs(prelude):
    text = source.text(f"backends/{prelude}")  # with the files that it includes
    defined = set(re.findall(r"^#define ([A-Z][A-Z0-9_]*)", text, re.MULTILINE))
    return defined | set(re.findall(r"^typedef [\w ]+ (\w+);", text, re.MULTILINE))


def test_the_preludes_have_the_same_verbs():
    assert verbs("cuda.h") == verbs("opencl.h")


@pytest.mark.parametrize("prelude", ["cuda.h", "opencl.h"])
def test_the_page_has_every_verb(prelude):
    page = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert verbs(prelude) - page == set()


def test_memory_of_a_group_is_declared_by_its_verb():
    """In CUDA an array declared with LOCAL alone would belong to one work-item."""
    package = importlib.resources.files("particlemesh")
    files = [path for end in ("*.c", "*.h") for path in Path(str(package)).rglob(end) if path.parent.name != "backends"]
    assert len(files) > 50
    for path in files:
        wrong = re.findall(r"^\s*LOCAL \w+ \w+\[.*", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not wrong, (path.name, wrong)
