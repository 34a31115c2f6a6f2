# SPDX-License-Identifier: BSD-3-Clause
"""What files of other programs are read in, without the start of a process: a fork of this one."""

import faulthandler
import os
import signal
import sys

import pytest

from particlemesh.apps.files import hdf5
from particlemesh.apps.files.particles import alone

DAMAGED = {"test_damaged_files", "test_cut_trajectories"}
SECONDS = 15  # some damaged files never return


def fork(work, seconds):
    """Return the identity of a process that works, says nothing and ends."""
    process = os.fork()
    if process:
        return process
    try:
        faulthandler.disable()
        signal.alarm(seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        work()
    finally:
        os._exit(0)


class Forked:
    """Has what `Alone` needs of a process."""

    def __init__(self, form, files):
        requests, mine = os.pipe()
        answers, theirs = os.pipe()

        def work():
            os.close(mine)
            os.close(answers)
            with os.fdopen(requests, "rb") as asked, os.fdopen(theirs, "wb") as said:
                alone.serve(form, files, asked, said)

        self.pid = fork(work, 20 * SECONDS)  # it waits while this process compiles
        os.close(requests)
        os.close(theirs)
        self.stdin, self.stdout = os.fdopen(mine, "wb"), os.fdopen(answers, "rb")

    def wait(self, timeout=None):
        os.waitpid(self.pid, 0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def try_forked(*paths):
    """Do as `hdf5.try_alone` does."""
    for path in paths:
        hdf5.check_head(path)
    said, theirs = os.pipe()

    def work():
        sys.argv[1:] = map(str, paths)
        with os.fdopen(theirs, "w") as out:
            try:
                exec(hdf5.TRIAL, {})
                out.write("\n")
            except BaseException as error:
                out.write(f"{error}\n")

    process = fork(work, SECONDS)
    os.close(theirs)
    with os.fdopen(said, errors="replace") as answer:
        lines = answer.read().splitlines()
    os.waitpid(process, 0)
    if not lines or lines[-1]:
        raise ValueError(lines[-1] if lines else "HDF5's library crashes on it")


@pytest.fixture
def tried():
    """Files of HDF5 are tried in forks; where a test does not ask for it they are whole, and not tried."""


@pytest.fixture(autouse=True)
def quickly(request, monkeypatch):
    """Readers of other processes work in forks of this one, unless a test is marked ``in_processes``."""
    if sys.platform == "linux" and "in_processes" not in request.keywords and hasattr(os, "fork"):
        monkeypatch.setattr(alone.Alone, "start", staticmethod(Forked))
        monkeypatch.setattr(alone, "SECONDS", 3.0)  # some damaged files never return
        tries = "tried" in request.fixturenames or request.module.__name__ in DAMAGED
        tried = try_forked if tries else lambda *paths: None
        monkeypatch.setattr(hdf5, "try_alone", tried)
        monkeypatch.setattr("particlemesh.apps.files.particles.hdf5.try_alone", tried)
