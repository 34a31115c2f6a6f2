# SPDX-License-Identifier: BSD-3-Clause
"""Two modules that import each other can be read, tested and changed only together."""

import ast
import graphlib
from pathlib import Path

import particlemesh as pm

ROOT = Path(pm.__file__).parent
MODULES = {
    ".".join(("particlemesh", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imports(name):
    """Modules of ours that a module imports anywhere, also in functions and for type checking."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for dotted in names:
            while dotted and dotted not in MODULES:
                dotted = dotted.rpartition(".")[0]
            if dotted not in {"", "particlemesh", name}:
                yield dotted


def circle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other():
    graph = {name: set(imports(name)) for name in MODULES}
    assert graph["particlemesh.grid.construction"]
    assert circle(graph) is None


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
