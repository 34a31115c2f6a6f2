# SPDX-License-Identifier: BSD-3-Clause
"""No Python file of the present folder runs, whatever process the library starts."""

import os
import sys

import h5py
import numpy as np
import pytest

from particlemesh.apps.files.hdf5 import try_alone
from particlemesh.command import self_test

# Modules that a started process imports, or could: its program, what runs the program, and what these import.
NAMES = ("h5py", "numpy", "multiprocessing", "pickle", "selectors", "socket", "tempfile", "ctypes", "particlemesh")


@pytest.fixture
def trapped(tmp_path, monkeypatch):
    """Go to a folder of modules that leave a mark when they run; yield the mark."""
    mark = tmp_path / "ran"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    return mark


def test_reading_a_foreign_file(trapped, tmp_path):
    with h5py.File(tmp_path / "dust.h5", "w") as file:
        file["positions"] = np.zeros((3, 3))
    try_alone(tmp_path / "dust.h5")
    assert not trapped.exists()


def test_self_tests_in_processes(trapped, monkeypatch):
    # The processes take over the path of this one, which is the user's affair.
    monkeypatch.setattr(sys, "path", sys.path[2:])
    monkeypatch.setattr(self_test, "PROCESSES", 2)
    assert self_test.beside(os.getpid)() != os.getpid()
    assert not trapped.exists()
    assert "PYTHONSAFEPATH" not in os.environ
