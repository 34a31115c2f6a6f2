# SPDX-License-Identifier: BSD-3-Clause
"""FINUFFT's and cuFINUFFT's own Python tests, run on particlemesh's transforms where their folders are named.

``FINUFFT_TESTS`` names ``python/finufft/test`` of a checkout of FINUFFT, ``CUFINUFFT_TESTS`` its
``python/cufinufft/tests``, and ``CUFINUFFT_FRAMEWORK`` the arrays of the latter: numpy (the default), cupy, torch.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import particlemesh as pm

SUPPORT = Path(__file__).parents[1] / "support"


def run(variable, *arguments, ignored=()):
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} does not name a folder with the peer's tests")
    places = os.pathsep.join([str(SUPPORT), str(Path(pm.__file__).parents[1])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "finufft_shim", "-p", "no:cacheprovider", folder, *arguments]
    command += [f"--ignore={Path(folder) / name}" for name in ignored]
    environment = os.environ | {"PYTHONPATH": places}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed, done.stdout[-4000:] + done.stderr[-2000:]
    return int(passed[1])


def test_finufft():
    assert run("FINUFFT_TESTS") > 600


def test_cufinufft():
    framework = os.environ.get("CUFINUFFT_FRAMEWORK", "numpy")
    # Examples are programs of CUDA libraries, and the fallback is about cuFINUFFT's own shared library.
    ignored = ("test_examples.py", "test_fallback.py")
    assert run("CUFINUFFT_TESTS", "--framework", framework, ignored=ignored) > 2000
