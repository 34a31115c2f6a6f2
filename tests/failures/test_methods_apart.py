# SPDX-License-Identifier: BSD-3-Clause
"""A method that others import or name cannot be removed by deleting its two files and its place in METHODS."""

import ast
from pathlib import Path

import pytest

import particlemesh as pm
from devices import METHODS
from imports import imported

ROOT = Path(pm.__file__).parent
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
# Methods that are another method with more around it: they run its kernel.
STANDS_ON = {
    "spread/ordered.py": "spread.particle",
    "spread/gather.py": "spread.particle",  # for particles without a cell
    "spread/walk_fixed.py": "spread.walk",
    "interpolate/ordered.py": "interpolate.particle",
    "interpolate/ring.py": "interpolate.tile",  # a tile that is walked through; its kernel is its own
}
MODULES = [m.__module__.removeprefix("particlemesh.") for methods in METHODS.values() for m in methods]
NAMES = {m.name for methods in METHODS.values() for m in methods}


IMPORTED = {file: {dotted for _, dotted in imported(tree)} for file, tree in TREES.items()}


@pytest.mark.parametrize("module", MODULES)
def test_only_its_folder_imports_a_method(module):
    folder = f"{module.split('.')[0]}/__init__.py"
    name = f"particlemesh.{module}"
    users = {file for file, names in IMPORTED.items() if any(f"{dotted}.".startswith(f"{name}.") for dotted in names)}
    assert users - {folder} == {file for file, base in STANDS_ON.items() if base == module}


OUTSIDE = [file for file in TREES if not file.startswith("grid/")]  # some builders have such names


def decided_by_name(tree):
    """Method names that code compares with, or looks up."""
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            parts = node.args[:1]
        for part in parts:
            inner = part.elts if isinstance(part, (ast.Tuple, ast.Set, ast.List)) else [part]
            yield from (c.value for c in inner if isinstance(c, ast.Constant) and c.value in NAMES)


@pytest.mark.parametrize("file", OUTSIDE)
def test_no_code_decides_by_the_name_of_a_method(file):
    stem = Path(file).stem if file.startswith(("spread/", "interpolate/")) else None
    keys = {"tiles"} if file == "orders/tile_order.py" else set()  # the order's key
    assert set(decided_by_name(TREES[file])) <= {stem} | keys
