# SPDX-License-Identifier: BSD-3-Clause
"""The user's cache folders."""

from __future__ import annotations

import functools
import os
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


def unwritable(folder: Path) -> str | None:
    """Return why a folder cannot be written to, or None; creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


@functools.cache
def warn(what: str, folder: str, reason: str, variable: str) -> None:
    """Warn, once per process, that compiled code cannot be kept."""
    warnings.warn(
        f"{what} cannot be kept in {folder} ({reason}), so every process compiles again. "
        f"Make that folder writable, or name another in {variable}.",
        RuntimeWarning,
        stacklevel=2,
    )
