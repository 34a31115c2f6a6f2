# SPDX-License-Identifier: BSD-3-Clause
"""Files of other programs are read in processes of their own, which take seconds each; here they are forked."""

import os
import sys

import pytest

from forked import Forked, try_forked
from particlemesh.apps.files.particles.alone import Alone

DAMAGED = {"test_damaged_files", "test_cut_trajectories"}


@pytest.fixture
def tried():
    """Files of HDF5 are tried in forks; where a test does not ask for it they are whole, and not tried."""


@pytest.fixture(autouse=True)
def quickly(request, monkeypatch):
    """Readers of other processes work in forks of this one, unless a test is marked ``in_processes``."""
    if sys.platform == "linux" and "in_processes" not in request.keywords and hasattr(os, "fork"):
        monkeypatch.setattr(Alone, "start", staticmethod(Forked))
        monkeypatch.setattr("particlemesh.apps.files.particles.alone.SECONDS", 3.0)  # some damaged files never return
        tries = "tried" in request.fixturenames or request.module.__name__ in DAMAGED
        tried = try_forked if tries else lambda *paths: None
        monkeypatch.setattr("particlemesh.apps.files.hdf5.try_alone", tried)
        monkeypatch.setattr("particlemesh.apps.files.particles.hdf5.try_alone", tried)
