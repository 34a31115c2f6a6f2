# SPDX-License-Identifier: BSD-3-Clause
"""Whole programs on the ranks of MPI, each as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import particlemesh as pm


def on_mpi(ranks, *words, timeout=240):
    """Run ``python words`` on so many ranks, and return what they print; a rank that fails or hangs fails the test."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed", exc_type=ImportError)
    launcher = Path(sys.executable).with_name("mpiexec")
    places = map(str, (Path(pm.__file__).parents[1], Path(__file__).parent))
    path = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [str(launcher) if launcher.exists() else "mpiexec", "-n", str(ranks), sys.executable, *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks
        pytest.fail(f"{words} hung for {timeout} s: {process.communicate()}")
    assert process.returncode == 0, (out, errors)
    return out
