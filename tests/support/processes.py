# SPDX-License-Identifier: BSD-3-Clause
"""Processes of their own that run a piece of code with the library of this tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import particlemesh as pm

SOURCE = Path(pm.__file__).parent


def child(code, tmp_path=None, timeout=120, **environment):
    """Run Python code in a process of its own, with caches of its own if there is a folder."""
    path = os.pathsep.join(
        [str(SOURCE.parent), *filter(None, [environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")])]
    )
    variables = {**os.environ, **environment, "PYTHONPATH": path}
    if tmp_path is not None:
        for name in ("NUMBA_CACHE_DIR", "POCL_CACHE_DIR", "XDG_CACHE_HOME", "CUPY_CACHE_DIR"):
            variables[name] = str(tmp_path / name)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
    ), timeout  # fmt: skip


def finish(started):
    process, timeout = started
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"a child process hung for {timeout} s: {process.communicate()[1]}")
    assert process.returncode == 0, error
    return out
