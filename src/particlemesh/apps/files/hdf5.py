# SPDX-License-Identifier: BSD-3-Clause
"""HDF5 files: own ones carry a checksum, and those of others are tried in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.replacing import replacing
from particlemesh.apps.files.seal import BLOCK, seal, sealed

MARK = b"particlemesh file, sha256 "
SIGNATURE = b"\x89HDF\r\n\x1a\n"
KNOWN_BLOCKS = (b"MATLAB 7.3",)  # user blocks of other programs
SECONDS = 30.0  # for what takes a tenth

# HDF5's library crashes or never returns on some damaged files. All that is read later is touched here.
TRIAL = """
import sys, h5py
def touch(name, thing):
    dict(thing.attrs)
    if isinstance(thing, h5py.Dataset) and thing.shape and thing.size:
        thing[:1], thing[-1:]
        if thing.chunks: thing.id.get_num_chunks()
with h5py.File(sys.argv[1], "r") as file:
    dict(file.attrs)
    file.visititems(touch)
"""


@contextlib.contextmanager
def writing(path: Any, overwrite: bool = False) -> Iterator[Any]:
    """Yield an open h5py file, which takes the place of ``path`` once it is whole and has a checksum.

    Raises
    ------
    ImportError
        If h5py is missing.
    ValueError
        If the file exists and may not be replaced.
    """
    h5py = library("h5py", "a file .h5", "files")
    with replacing(path, overwrite) as part:
        with h5py.File(part, "w", userblock_size=BLOCK) as file:
            yield file
        seal(part, MARK)


def opened(path: Path) -> Any:
    """Return an open h5py file, after a check that HDF5's library can read it.

    Raises
    ------
    ImportError
        If h5py is missing.
    ValueError
        If the checksum is wrong, or HDF5's library fails, crashes or does not return.
    """
    h5py = library("h5py", "a file .h5", "files")
    whole = sealed(path, MARK)
    if whole is None:
        with path.open("rb") as raw:
            head = raw.read(len(SIGNATURE) + max(map(len, KNOWN_BLOCKS)))
        if not head.startswith((SIGNATURE, *KNOWN_BLOCKS)):
            raise ValueError("it does not begin as HDF5 does")
        try_alone(path)
    elif not whole:
        raise ValueError("its checksum is another one: it has changed since it was written")
    return h5py.File(path, "r")


def isolated(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a process of its own, which imports nothing from the present folder.

    It finds libraries where this process does, also by ``PYTHONPATH`` and from ``pip install --user``.
    """
    folders = [path for path in sys.path if path and Path(path).exists() and not Path(path).samefile(".")]
    program = f"import sys; sys.path.extend({folders!r})\n{program}"
    command = [sys.executable, "-I", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, text=True, errors="replace")


def try_alone(path: Path) -> None:
    """Read a file in a process of its own.

    Raises
    ------
    ValueError
        If that process fails.
    """
    try:
        done = isolated(TRIAL, str(path))
    except subprocess.TimeoutExpired as error:
        raise ValueError("HDF5's library does not return from it") from error
    if done.returncode < 0:
        raise ValueError("HDF5's library crashes on it")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ValueError(lines[-1] if lines else f"HDF5's library ends with {done.returncode}")
