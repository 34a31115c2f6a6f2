# SPDX-License-Identifier: BSD-3-Clause
"""Folders of compiled code, and their sizes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from particlemesh.backends import nvrtc
from particlemesh.backends.folders import cache


class Cache(NamedTuple):
    """One folder of compiled code."""

    owner: str
    folder: Path
    files: int
    bytes: int


def _cache(owner: str, folder: Path, suffixes: tuple[str, ...] = ("",)) -> Cache:
    files, size = 0, 0
    for home, _, names in os.walk(folder):
        for name in names:
            try:
                if name.endswith(suffixes):
                    size += (Path(home) / name).stat().st_size
                    files += 1
            except OSError:  # another process has just removed it
                continue
    return Cache(owner, folder, files, size)


def _numba() -> list[Cache]:
    # Numba selects a folder per source file: beside it, or the user's if that is read-only. Compiled functions
    # have the path in attributes that are not public in Numba, so they may be missing.
    folders = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("particlemesh"):
            for member in vars(module).values():
                path = getattr(getattr(member, "stats", None), "cache_path", None)
                if isinstance(path, str):
                    folders.add(Path(path))
    caches = [_cache("Numba", folder, (".nbi", ".nbc")) for folder in folders]
    if not caches:
        return []
    common = Path(os.path.commonpath([c.folder for c in caches]))
    return [Cache("Numba", common, sum(c.files for c in caches), sum(c.bytes for c in caches))]


def caches() -> list[Cache]:
    """Return the caches of the backends' compilers; a folder may not exist yet.

    Numba's folders are those of loaded modules: run something first.
    """
    pocl = os.environ.get("POCL_CACHE_DIR")
    folders = {"PoCL": Path(pocl) if pocl else cache("pocl", "kcache"), "NVRTC": nvrtc.folder()}
    return [*_numba(), *(_cache(owner, folder) for owner, folder in folders.items() if folder is not None)]
