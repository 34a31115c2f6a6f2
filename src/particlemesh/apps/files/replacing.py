# SPDX-License-Identifier: BSD-3-Clause
"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from particlemesh.kernels import checks

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextlib.contextmanager
def naming(path: Any) -> Iterator[None]:
    """Name the file in the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or (error.filename is None and str(path) in str(error)):
            raise
        text = f"{path} cannot be written ({error.strerror}): make room, or give another name"
        raise OSError(error.errno, text) from error


def together(world: Any, what: str) -> contextlib.AbstractContextManager[None]:
    """Return a context whose errors all ranks raise, if there are ranks."""
    return contextlib.nullcontext() if world is None else world.agreement(what)


def put(raw: Any, data: Any) -> None:
    """Write all of the data to a file without a buffer, which may take a part at a time."""
    data = memoryview(data)
    while data:
        data = data[raw.write(data) :]


def check_no_device(path: Path) -> None:
    """Raise a ValueError if a device or a pipe is there, such as ``/dev/null``, which a file would replace."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a device or a pipe: give the name of a file.")


def check_free(path: Any, overwrite: bool) -> Path:
    """Return a path that may be written; a ValueError if not, for example if a file is there without ``overwrite``.

    A file without a name is made in the folder, or in the nearest one that exists, and vanishes.
    """
    checks.flag(overwrite, "overwrite")
    path = Path(path)
    check_no_device(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: give another name, or overwrite it (--overwrite, overwrite=True).")
    folder = next(place for place in path.absolute().parents if os.path.lexists(place))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{path.parent} cannot be written to ({error.strerror}): give another folder.") from error
    return path


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Lock a file beside ``path``, which vanishes afterwards; a ValueError if another process has the lock.

    A process that was killed has no lock. Windows and some file systems have none.
    """
    if fcntl is None:
        yield
        return
    side = path.with_name(f".{path.name[:240]}.lock")
    with side.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(side.stat(), os.fstat(file.fileno())):
                raise BlockingIOError  # its owner has just removed it
        except (BlockingIOError, FileNotFoundError) as error:
            raise ValueError(f"{path} is being written by another process: give another name.") from error
        except OSError:
            pass
        try:
            yield
        finally:
            side.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Any, overwrite: bool = False) -> Iterator[Path]:
    """Yield the name of a file beside ``path`` that takes its place once it is whole.

    The name has the same ending in small letters. After an error there is no such file, and ``path`` is as it was.
    `check_free` is asked before and after writing. If the disk is full, the error names ``path``.
    """
    path = check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem[:64]}.{os.getpid()}.part{path.suffix.lower()}")  # as libraries expect it
    try:
        with naming(path):
            yield part
            with part.open("r+b") as raw:
                os.fsync(raw.fileno())
        check_free(path, overwrite)  # it may have appeared meanwhile
        os.replace(part, path)  # noqa: PTH105 - as one step
    finally:
        part.unlink(missing_ok=True)
