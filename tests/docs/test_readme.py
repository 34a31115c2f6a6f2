# SPDX-License-Identifier: BSD-3-Clause
"""What the README says is so."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_code_runs_as_it_stands(capsys):
    spreading, grids = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(compile(spreading, "README.md", "exec"), names)
    assert abs(names["field"].sum() - names["charges"].sum()) < 1e-12 * abs(names["charges"]).sum()
    assert names["gradient"].shape == (1000, 3)
    assert "spread" in capsys.readouterr().out
    names = {}
    exec(compile(grids, "README.md", "exec"), names)
    assert len(names["i"]) == len(names["pairs"].j) > 10_000
    assert (names["distances"][:, 0] <= names["distances"][:, -1]).all()
    assert "scan" in capsys.readouterr().out


def test_its_table_of_methods_is_todays():
    table = runpy.run_path(str(ROOT / "tools" / "docs" / "readme_table.py"))
    assert table["renewed"](README) == README, "the table is stale: run `make readme` and commit README.md"
    assert table["table"]() in README


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_it_names_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:docs|tools|benchmarks|src|tests)/[\w./]+\w)`", text))
    named |= set(re.findall(r"`(\w+\.(?:md|toml))`", text)) | set(re.findall(r"\]\(([\w./]+)\)", text))
    assert [path for path in named if not (ROOT / path).exists()] == []
