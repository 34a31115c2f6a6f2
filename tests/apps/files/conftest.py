# SPDX-License-Identifier: BSD-3-Clause
"""Files of other programs are read in processes of their own, which take seconds each; here they are forked."""

import os
import sys

import pytest

from forked import Forked, try_forked
from particlemesh.apps.files.particles.alone import Alone


@pytest.fixture(autouse=True)
def quickly(request, monkeypatch):
    """Readers of other processes work in forks of this one, unless a test is marked ``in_processes``."""
    if sys.platform == "linux" and "in_processes" not in request.keywords and hasattr(os, "fork"):
        monkeypatch.setattr(Alone, "start", staticmethod(Forked))
        monkeypatch.setattr("particlemesh.apps.files.particles.alone.SECONDS", 3.0)  # some damaged files never return
        monkeypatch.setattr("particlemesh.apps.files.hdf5.try_alone", try_forked)
        monkeypatch.setattr("particlemesh.apps.files.particles.hdf5.try_alone", try_forked)
