# SPDX-License-Identifier: BSD-3-Clause
"""The wheel has everything: installed elsewhere, it passes the smoke test."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPILES = """
import numpy as np, particlemesh as pm
from particlemesh.backends import cpu
array = np.ones(2**18)
cpu.clear(array)
assert not array.any()
pm.Plan(pm.Mesh((8, 8), (1.0, 1.0)), backend="cpu", dtype="float64")
print(pm.__file__)
"""


def run(*command, **options):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_installed_elsewhere_works(tmp_path):
    if importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("hatchling and pip are needed to build the wheel: pip install hatchling")
    source = tmp_path / "source"  # nothing is written to the repository
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source), cwd=tmp_path)
    (wheel,) = tmp_path.glob("particlemesh-*.whl")
    expected = {
        p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "particlemesh").rglob("*") if p.is_file()
    }
    expected = {p for p in expected if "__pycache__" not in p}
    assert expected <= set(zipfile.ZipFile(wheel).namelist())
    assert any(name.endswith(".c") for name in expected)

    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    shutil.copy(ROOT / "tests" / "test_smoke.py", tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = str(target)
    assert str(target) in run(sys.executable, "-c", COMPILES, cwd=tmp_path, env=environment)
    run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path),
        "test_smoke.py", "-k", "kernel_file",  # the others take long to compile in a new place
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert list(target.rglob("*.nbi")), "what is compiled is kept beside the code"
