# SPDX-License-Identifier: BSD-3-Clause
"""Where compiled code cannot be kept the library says so once, names the folder, and works without."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import particlemesh as pm
from particlemesh.backends import folders, opencl
from pocl_processor import known_to_children

KERNELS = """
import numpy as np
from particlemesh import backends
backend = backends.current("opencl")
for real in np.float32, np.int64:  # two programs: once is enough
    array = backend.upload(np.ones((4, 4), real))
    backend.clear(array[:, :2])
    assert backend.download(array).sum() == 8
"""


def errors_of(code, **variables):
    """Run code in a process of its own and return what it wrote to the standard error."""
    path = os.pathsep.join([str(Path(pm.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)
    _, text = done.communicate(timeout=300)
    assert done.returncode == 0, text
    return text


def told_once(text, folder, variable):
    assert text.count("cannot be kept in") == 1, text
    assert f"cannot be kept in {folder} (" in text and "every process compiles again" in text
    assert f"Make that folder writable by you alone, or name another in {variable}." in text


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.turns(3)
@pytest.mark.parametrize("variable", ["POCL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_pocl_runs_without_a_cache_folder(tmp_path, monkeypatch, variable):
    if "Portable" not in opencl.devices()[0].platform.name:
        pytest.skip("the device is not that of PoCL")
    known_to_children()
    for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    taken = tmp_path / "a file"
    taken.write_text("where the folder should be")
    folder = taken / {"POCL_CACHE_DIR": "", "XDG_CACHE_HOME": "pocl/kcache", "HOME": ".cache/pocl/kcache"}[variable]
    text = errors_of(KERNELS, **{variable: str(taken), "TMPDIR": str(tmp_path)})
    told_once(text, folder, "POCL_CACHE_DIR")
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]  # what was kept meanwhile is gone


NOWHERE = """
import sys
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
import particlemesh
print("imported", file=sys.stderr, flush=True)
"""
CLEAR = """
import numpy as np
from particlemesh.backends import cpu, jit
array = np.ones(2**18)
cpu.clear(array)
assert not array.any() and array.size == 2**18
"""
ANOTHER = """
@jit.compiled
def double(x):
    return 2 * x
assert double(3) == 6
"""
REMOVED = """
import os, shutil, particlemesh.backends.cpu
folder = os.environ["NUMBA_CACHE_DIR"]
shutil.rmtree(folder)
open(folder, "w").close()
"""


def test_compiled_functions_run_where_no_folder_can_be_written(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    text = errors_of(NOWHERE + CLEAR + ANOTHER)
    assert text.startswith("imported"), "an import alone says nothing"
    told_once(text, f"{Path(pm.__file__).parent} or the user's cache folder", "NUMBA_CACHE_DIR")


def test_compiled_functions_run_where_a_folder_no_longer_can_be_written(tmp_path):
    text = errors_of(REMOVED + CLEAR, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    assert text.count("cannot be kept in") == 1, text
    assert f"cannot be kept in {tmp_path / 'kept'}" in text and "name another in NUMBA_CACHE_DIR" in text


def test_a_folder_is_named_once():
    folders.warn.cache_clear()
    for times in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            folders.warn("CUDA kernels", "/a/folder", "Permission denied", "XDG_CACHE_HOME")
        assert len(caught) == times
