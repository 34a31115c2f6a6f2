# SPDX-License-Identifier: BSD-3-Clause
"""Two modules that import each other can be read, tested and changed only together."""

import graphlib
from pathlib import Path

import particlemesh as pm
from imports import ours

ROOT = Path(pm.__file__).parent
MODULES = {
    ".".join(("particlemesh", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imports(name):
    """Modules of ours that a module imports anywhere, also in functions and for type checking."""
    for dotted in ours(MODULES[name]):
        while dotted not in MODULES:
            dotted = dotted.rpartition(".")[0]
        if dotted not in {"particlemesh", name}:
            yield dotted


def circle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other():
    graph = {name: set(imports(name)) for name in MODULES}
    assert graph["particlemesh.grid.uniform_grid"]
    assert circle(graph) is None


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
