# SPDX-License-Identifier: BSD-3-Clause
"""The user's cache folders."""

from __future__ import annotations

import functools
import os
import stat
import tempfile
import warnings
from pathlib import Path


def cache(*names: str) -> Path | None:
    """Return a folder below ``$XDG_CACHE_HOME``, by default ``~/.cache``; it need not exist.

    None if the user has no home, as in some containers. A relative ``$XDG_CACHE_HOME`` is ignored, as XDG specifies.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache").joinpath(*names)
    except RuntimeError:
        return None


def foreign(path: Path) -> str | None:
    """Return why others may have written a file or folder, or None. Compiled code of others would run as this user.

    A group that has the name of the user is the user's own.
    """
    if not hasattr(os, "geteuid"):
        return None
    import grp
    import pwd

    facts = path.stat()
    if facts.st_uid not in (os.geteuid(), 0):
        return "another user owns it"
    if facts.st_mode & stat.S_IWOTH:
        return "all users may write to it"
    if facts.st_mode & stat.S_IWGRP and facts.st_gid != 0:
        try:
            private = grp.getgrgid(facts.st_gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:  # as in containers: the group of a user without a name
            private = facts.st_gid == os.geteuid()
        return None if private else "a group may write to it"
    return None


_distrusted: set[str] = set()  # what was warned of


def trusted(file: Path, what: str, variable: str) -> bool:
    """Return whether the file exists and only this user can have written it; warn once per process if others can."""
    for path in (file.parent, file):
        try:
            reason = foreign(path)
        except FileNotFoundError:
            return False
        if reason is not None:
            if what not in _distrusted:
                _distrusted.add(what)
                warn(what, str(file.parent), reason if path == file.parent else f"{file.name}: {reason}", variable)
            return False
    return True


def unwritable(folder: Path) -> str | None:
    """Return why a folder cannot be written to by this user alone, or None; creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if reason := foreign(folder):
            return reason
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


@functools.cache
def warn(what: str, folder: str, reason: str, variable: str) -> None:
    """Warn, once per process, that compiled code cannot be kept."""
    warnings.warn(
        f"{what} cannot be kept in {folder} ({reason}), so every process compiles again. "
        f"Make that folder writable by you alone, or name another in {variable}.",
        RuntimeWarning,
        stacklevel=2,
    )
