# SPDX-License-Identifier: BSD-3-Clause
"""Where a user keeps what was made for later runs."""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from pathlib import Path


def cache(*names: str) -> Path | None:
    """Return a folder below ``$XDG_CACHE_HOME``, by default ``~/.cache``, which need not be there.

    None without either: users without HOME and without an entry among users, as in containers. A relative folder does
    not count, by the rules of XDG.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache").joinpath(*names)
    except RuntimeError:
        return None


def unwritable(folder: Path) -> str | None:
    """Return why nothing can be written below a folder, or None; the folder is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


@functools.cache
def warn(what: str, folder: str, reason: str, variable: str) -> None:
    """Warn, once in a process, that compiled code cannot be kept."""
    warnings.warn(
        f"{what} cannot be kept in {folder} ({reason}), so every process compiles again. "
        f"Make that folder writable, or name another in {variable}.",
        RuntimeWarning,
        stacklevel=2,
    )
