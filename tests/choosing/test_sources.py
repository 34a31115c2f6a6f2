# SPDX-License-Identifier: BSD-3-Clause
"""Fingerprints of the code that decides a method's times: nothing missing, nothing of another method."""

import ast
import inspect
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh import backends
from particlemesh.backends import opencl
from particlemesh.choosing import sources


def modules_imported_by(path):
    """Yield the files of the package's modules that a module imports when it runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for part in tree.body:
        names = set()
        if isinstance(part, ast.Import):
            names |= {alias.name for alias in part.names}
        if isinstance(part, ast.ImportFrom):
            names |= {part.module, *(f"{part.module}.{alias.name}" for alias in part.names)}
        for name in names:
            file = (sources.PACKAGE.parent / name.replace(".", "/")).with_suffix(".py")
            if name.startswith("particlemesh.") and file.exists():
                yield file


EACH = [(b, d, m) for d, methods in METHODS.items() for m in methods for b in sorted(m.backends)]


@pytest.mark.parametrize(("where", "direction", "method"), EACH, ids=str)
def test_a_fingerprint_is_of_all_that_a_method_imports(where, direction, method):
    of = set(sources.files(where, direction, method.name))
    describe = {sources.PACKAGE / name for name in sources.DESCRIBE}
    assert not of & describe and all(path.exists() for path in describe)
    assert Path(inspect.getfile(method)) in of and sources.PACKAGE / f"backends/{where}.py" in of
    for path in of:
        if path.suffix == ".py":
            imported = set(modules_imported_by(path))
            assert {i for i in imported if where == "cpu" or i.parent.name != "cpu"} <= of | describe, path
    assert where == "cpu" or not any(path.parent.name == "cpu" for path in of)
    assert sources.PACKAGE / "plan" / "plan.py" not in of
    if where != "cpu":
        kernel = Path(inspect.getfile(method)).with_suffix(".c")
        assert {kernel, sources.PACKAGE / f"backends/{where}.h", sources.PACKAGE / "particles/stencil.h"} <= of


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
@pytest.mark.parametrize(("direction", "method"), [e[1:] for e in EACH if e[0] == "opencl"], ids=str)
def test_a_fingerprint_is_of_every_kernel_that_a_method_launches(monkeypatch, direction, method):
    asked, plain = set(), opencl.OpenClBackend.kernel
    option = {"spread": "method", "interpolate": "interpolation"}[direction]
    with pm.Plan(pm.Mesh((8, 8, 8), (1.0,) * 3), "cic", backend="opencl", **{option: method.name}) as plan:
        plan.set_positions(np.random.default_rng(1).random((50, 3)))

        def kernel(self, file, *more):
            asked.add(file)
            return plain(self, file, *more)

        monkeypatch.setattr(opencl.OpenClBackend, "kernel", kernel)
        getattr(plan, direction)(np.ones(50 if direction == "spread" else (8, 8, 8)))
    ours = {path.relative_to(sources.PACKAGE).as_posix() for path in sources.files("opencl", direction, method.name)}
    assert asked - {"particles/locate.c"} <= ours and asked  # locating belongs to positions, not to the method


@pytest.fixture
def changed_by(tmp_path, monkeypatch):
    """Return a function that edits a file of a copy of the package, and returns the methods with a new fingerprint."""
    shutil.copytree(sources.PACKAGE, tmp_path / "particlemesh", ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    monkeypatch.setattr(sources, "PACKAGE", tmp_path / "particlemesh")

    def forget():
        for cached in (sources.code, sources._named, sources._digest, sources.fingerprint):
            cached.cache_clear()

    def fingerprints():
        forget()
        return {(b, d, m.name): sources.fingerprint(b, d, m.name) for b, d, m in EACH}

    before = fingerprints()

    def changed(file, edit):
        path = tmp_path / "particlemesh" / file
        old = path.read_text(encoding="utf-8")
        new = edit(old)
        assert new != old
        path.write_text(new, encoding="utf-8")
        after = fingerprints()
        path.write_text(old, encoding="utf-8")
        return {key for key, value in after.items() if before[key] != value}

    yield changed
    forget()


def test_a_change_of_one_method_changes_no_other_fingerprint(changed_by):
    def changed(file):
        return changed_by(file, lambda text: text + ("more = 1\n" if file.endswith(".py") else "int more;\n"))

    assert changed("spread/line_mesh.c") == {(b, "spread", "line_mesh") for b in ("cuda", "opencl")}
    names = {(b, d, m.name) for b, d, m in EACH}
    walking = "walk", "owner", "fixed_point"
    assert changed("walk/walk.h") == {key for key in names if key[2].startswith(walking)}
    assert changed("backends/opencl.h") == {key for key in names if key[0] == "opencl"}
    assert changed("plan/plan.py") == set() == changed("grid/builders/sort.c")
    assert changed("checks.py") == set()


WORDS = {
    "comments": lambda text: text.replace("# ", "# in other words: "),
    "a comment more": lambda text: text.replace("\n    return", "  # so far\n    # and\n\n    return"),
    "docstrings": lambda text: text.replace('"""', '"""In other words: "spread/walk.c".\n\n    ', 1),
    "// comments": lambda text: text.replace("// ", "// it's in other words: "),
    "/* comments */": lambda text: text.replace("{\n", "{ /* it's\n   * new */\n\n"),
    "spaces": lambda text: text.replace("\n  ", "\n\t    ").replace(" = ", "  =   "),
}


def test_a_change_of_words_changes_no_fingerprint(changed_by):
    for words, change in WORDS.items():
        python = words in {"comments", "a comment more", "docstrings"}
        assert changed_by("orders/cpu/particles.py" if python else "sorting/settle.c", change) == set(), words


def test_a_change_of_code_changes_fingerprints(changed_by):
    assert changed_by("orders/cpu/particles.py", lambda text: text.replace("    return", "        return", 1))
    assert changed_by("orders/cpu/particles.py", lambda text: text.replace(" + 1", " + 2", 1))
    assert changed_by("backends/cpu.py", lambda text: text.replace('f"', 'f"# ', 1))
    assert changed_by("sorting/counting.c", lambda text: text.replace(" + 1", " + 2", 1))
    assert changed_by("backends/cuda.h", lambda text: text.replace("\n#define", " #define", 1))


def statements(text):
    """Return the syntax tree of Python source without statements that are a constant, as text."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name, body in ast.iter_fields(node):
            if isinstance(body, list):
                constant = [isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in body]
                setattr(node, name, [s for s, drop in zip(body, constant, strict=True) if not drop])
    return ast.dump(tree)


@pytest.mark.turns(4)
@pytest.mark.parametrize("path", sorted(sources.PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_all_that_python_compiles_is_hashed(path):
    filled = re.sub(r"^( *)((?:class |def |\)).*:)\n(?!\1 )", r"\1\2 ...\n", sources.code(path), flags=re.MULTILINE)
    assert statements(filled) == statements(path.read_text(encoding="utf-8"))
