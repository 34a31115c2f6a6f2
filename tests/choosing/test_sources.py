# SPDX-License-Identifier: BSD-3-Clause
"""Fingerprints of the code that decides a method's times: nothing missing, nothing of another method."""

import ast
import inspect
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
    assert Path(inspect.getfile(method)) in of and sources.PACKAGE / f"backends/{where}.py" in of
    for path in of:
        if path.suffix == ".py":
            assert set(modules_imported_by(path)) <= of, path
    assert sources.PACKAGE / "plan.py" not in of
    if where != "cpu":
        kernel = Path(inspect.getfile(method)).with_suffix(".c")
        assert {kernel, sources.PACKAGE / f"backends/{where}.h", sources.PACKAGE / "backends/stencil.h"} <= of


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


def test_a_change_of_one_method_changes_no_other_fingerprint(tmp_path, monkeypatch):
    shutil.copytree(sources.PACKAGE, tmp_path / "particlemesh", ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    monkeypatch.setattr(sources, "PACKAGE", tmp_path / "particlemesh")

    def changed(file):
        def found():
            for cached in (sources._named, sources._digest, sources.fingerprint):
                cached.cache_clear()
            return {(b, d, m.name): sources.fingerprint(b, d, m.name) for b, d, m in EACH}

        before, path = found(), tmp_path / "particlemesh" / file
        path.write_text(path.read_text() + "// more\n")
        return {key for key, value in found().items() if before[key] != value}

    try:
        assert changed("spread/line_mesh.c") == {(b, "spread", "line_mesh") for b in ("cuda", "opencl")}
        names = {(b, d, m.name) for b, d, m in EACH}
        assert changed("walk/walk.h") == {key for key in names if key[2].startswith("walk")}
        assert changed("backends/opencl.h") == {key for key in names if key[0] == "opencl"}
        assert changed("plan.py") == set() == changed("grid/builders/sort.c")
    finally:
        for cached in (sources._named, sources._digest, sources.fingerprint):
            cached.cache_clear()
