# SPDX-License-Identifier: BSD-3-Clause
"""Where compiled code is kept between runs, and how much of it there is."""

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
    # Numba picks a folder for each source file: beside it, or, where that is read-only, the user's. Compiled
    # functions know theirs. The names are Numba's insides, so none is taken for granted.
    folders = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("particlemesh"):
            for thing in vars(module).values():
                path = getattr(getattr(thing, "stats", None), "cache_path", None)
                if isinstance(path, str):
                    folders.add(Path(path))
    caches = [_cache("Numba", folder, (".nbi", ".nbc")) for folder in folders]
    if not caches:
        return []
    common = Path(os.path.commonpath([c.folder for c in caches]))
    return [Cache("Numba", common, sum(c.files for c in caches), sum(c.bytes for c in caches))]


def caches() -> list[Cache]:
    """Return the caches of the compilers behind the backends; a folder may not be there yet.

    Only loaded modules are asked about Numba's folders: run something first.
    """
    pocl = os.environ.get("POCL_CACHE_DIR")
    folders = {"PoCL": Path(pocl) if pocl else cache("pocl", "kcache"), "NVRTC": nvrtc.folder()}
    return [*_numba(), *(_cache(owner, folder) for owner, folder in folders.items() if folder is not None)]
