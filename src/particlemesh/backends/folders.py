# SPDX-License-Identifier: BSD-3-Clause
"""Where a user keeps what was made for later runs."""

from __future__ import annotations

import os
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
