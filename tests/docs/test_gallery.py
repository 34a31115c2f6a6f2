# SPDX-License-Identifier: BSD-3-Clause
"""The gallery's examples use the public interface, check a number, and run: one of them in each run of the tests."""

import ast
import importlib
import importlib.util
import re
import runpy
import sys
import zlib
from pathlib import Path

import pytest

from imports import imported
from test_sentences import LONGEST, paragraphs, sentences

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))
NEED_TORCH = "particlemesh.apps.pme.torch", "particlemesh.autograd.torch"
PACKAGES = (*importlib.import_module("public_names").PACKAGES, *NEED_TORCH)
EXAMPLES = sorted(path.name for path in (ROOT / "examples" / "gallery").glob("plot_*.py"))
AT_ONCE = 1


def text_of(name):
    return (ROOT / "examples" / "gallery" / name).read_text(encoding="utf-8")


def prose(text):
    """Return what a page says between its code: the docstring, and the comments below lines of ``# %%``."""
    blocks = re.findall(r"^# %%\n((?:#.*\n)*)", text, re.MULTILINE)
    return "\n\n".join(
        [ast.get_docstring(ast.parse(text)), *(re.sub(r"^# ?", "", b, flags=re.MULTILINE) for b in blocks)]
    )


def imports_of(text):
    """Return the packages that an example imports."""
    return set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))


def foreign(tree):
    """Return what an example imports or reads of the library that is not public."""
    foreign_names, modules = [], dict(imported(tree))
    for name in modules.values():
        package, _, last = name.rpartition(".")
        if name.split(".")[0] != "particlemesh" or name in PACKAGES:
            continue
        if package not in PACKAGES or last not in importlib.import_module(package).__all__:
            foreign_names.append(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
            foreign_names.append(node.attr)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package = modules.get(node.value.id)
            if package in PACKAGES and node.attr not in importlib.import_module(package).__all__:
                foreign_names.append(f"{package}.{node.attr}")
    return foreign_names


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_title_a_number_and_public_names(name):
    text = text_of(name)
    tree = ast.parse(text)
    assert re.match(r'# SPDX-License-Identifier: BSD-3-Clause\nr?"""\n', text)
    assert re.match(r"(.+)\n=+\n\n", ast.get_docstring(tree))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert checks and all(node.msg is not None for node in checks)
    assert re.search(r"\bexpected\b", text) and "plt.show()" in text
    assert "tight_layout" not in text  # the style of the pages has another layout, which refuses it beside a colour bar
    if "torch" not in imports_of(text) or importlib.util.find_spec("torch") is not None:
        assert foreign(tree) == []
    assert len(text.splitlines()) <= 400
    assert [w for p in paragraphs(prose(text), True) for w in sentences(p) if len(w) > LONGEST] == []


def test_what_is_not_public_is_found():
    text = "import particlemesh as pm\nfrom particlemesh.fourier import green\npm.backends.current('cpu')\npm.Mesh._x\n"
    assert sorted(foreign(ast.parse(text))) == ["_x", "particlemesh.backends", "particlemesh.fourier.green"]
    assert (
        foreign(ast.parse("import particlemesh as pm\nfrom particlemesh.apps import nufft\npm.Mesh, nufft.Plan")) == []
    )


def in_turn(names, contents, count=AT_ONCE):
    """Return names, the same ones for the same contents: a failure comes again, and changes take all in turn."""
    first = zlib.crc32(contents) % len(names)
    return {names[(first + n) % len(names)] for n in range(count)}


def test_every_example_gets_its_turn():
    names = [f"plot_{n}.py" for n in range(10)]
    turns = [in_turn(names, str(n).encode()) for n in range(100)]
    assert set().union(*turns) == set(names) and {len(turn) for turn in turns} == {AT_ONCE}
    assert in_turn(names, b"same") == in_turn(names, b"same")


def contents():
    """Return the sizes and texts that examples depend on."""
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples" / "gallery").glob("*.py")]
    return b"".join(path.read_bytes() for path in sorted(paths))


@pytest.mark.whole
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_finds_its_number(name, request, capsys, monkeypatch):
    """All with ``--thorough``; else one, and the gallery's build runs the rest."""
    if not request.config.getoption("--thorough") and name not in in_turn(EXAMPLES, contents()):
        pytest.skip("not its turn: --thorough or `make gallery` runs it")
    matplotlib = pytest.importorskip("matplotlib")
    if "torch" in imports_of(text_of(name)):
        pytest.importorskip("torch")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    try:
        with matplotlib.rc_context(fname=ROOT / "docs" / "gallery.mplstyle"):
            runpy.run_path(str(ROOT / "examples" / "gallery" / name), run_name="__main__")
            assert shown and all(plt.figure(n).axes for n in shown)
    finally:
        plt.close("all")
    assert "expected" in capsys.readouterr().out
