# SPDX-License-Identifier: BSD-3-Clause
"""What the README says is so."""

import re
import runpy
import textwrap
import tomllib
from pathlib import Path

import pytest

import particlemesh

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("example", range(2))
def test_its_code_prints_what_stands_below_it(example, capsys):
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert len(examples) == README.count("```python") == 2
    code, printed = examples[example]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_program_of_the_front_page_prints_what_stands_below_it(capsys):
    page = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
    (code, printed), *more = re.findall(
        r"^\.\. code-block:: python\n\n(.*?)\n^\.\. code-block:: text\n\n(.*?)\n(?=^\S)", page, re.DOTALL | re.MULTILINE
    )
    assert not more and page.count("code-block:: python") == 1
    exec(compile(textwrap.dedent(code), "index.rst", "exec"), {})
    assert capsys.readouterr().out == textwrap.dedent(printed)


def test_it_is_short():
    assert len(README.splitlines()) <= 150
    prose = re.sub(r"```.*?```|\]\([^)]*\)", "", README, flags=re.DOTALL)
    assert ".csv" not in prose


def test_its_ratios_are_those_of_the_files():
    peers = runpy.run_path(str(ROOT / "tools" / "docs" / "peer_pictures.py"))
    rows = re.findall(r"^\| ((?:finufft|cuFINUFFT), .*?) \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    assert {name: cells for name, *cells in rows} == peers["cells"](peers["ratios"]())


def test_its_links_lead_to_this_project():
    urls = PROJECT["urls"]
    repository, pages = urls["Repository"], urls["Documentation"]
    raw = repository.replace("github.com", "raw.githubusercontent.com") + "/main/"
    owner = repository.rpartition("/")[0].rpartition("/")[2]
    ours = [url for url in re.findall(r"\((https://[^)\s]+)\)", README) if owner in url]
    assert len(ours) > 10
    for url in ours:
        assert url.startswith((repository, raw, pages)), url
        if url.startswith(raw):
            assert (ROOT / url.removeprefix(raw)).exists(), url
        elif url == f"{pages}gallery/index.html":  # a page that is made from this
            assert (ROOT / "examples" / "gallery" / "GALLERY_HEADER.rst").exists(), url
        elif url.startswith(pages) and url != pages:
            assert (ROOT / "docs" / url.removeprefix(pages)).with_suffix(".rst").exists(), url
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert [link for link in links if not link.startswith("https://")] == []  # others do not work in a registry


def test_its_extras_are_those_of_the_package():
    rows = re.findall(r"^\| (`.*?) \|", README, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    extras = PROJECT["optional-dependencies"].keys() - {"test", "lint", "docs", "bench", "nvrtc"}
    assert extras <= named


def test_version_and_address_are_one():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    version, repository = PROJECT["version"], PROJECT["urls"]["Repository"]
    date = re.search(rf"^## {re.escape(version)} - (\d{{4}}-\d{{2}}-\d{{2}})$", changes, re.MULTILINE)[1]
    assert particlemesh.__version__ == version
    assert f"version: {version}\ndate-released: {date}" in citation
    assert f"repository-code: {repository}" in citation and f"version = {{{version}}}" in README
    assert f'version: "{version}"' in recipe and f"repository: {repository}" in recipe
    assert f"url     = {{{repository}}}" in README


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_it_names_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:docs|tools|benchmarks|src|studies|tests)/[\w./]+\w)`", text))
    named |= set(re.findall(r"`(\w+\.(?:md|toml))`", text)) | set(re.findall(r"\]\(([\w./]+)\)", text))
    assert [path for path in named if not (ROOT / path).exists()] == []
