# SPDX-License-Identifier: BSD-3-Clause
"""Python programs in processes of their own, for libraries that crash on damaged files."""

from __future__ import annotations

import sys
from pathlib import Path


def command(program: str, *arguments: str) -> list[str]:
    """Return the command of a Python program, which imports nothing from the present folder.

    It finds libraries where this process does and in the same order, also by ``PYTHONPATH`` and from
    ``pip install --user``.
    """
    folders = [path for path in sys.path if path and Path(path).exists() and not Path(path).samefile(".")]
    path = f"import sys; there = {folders!r}; sys.path[:] = there + [p for p in sys.path if p not in there]"
    return [sys.executable, "-I", "-c", f"{path}\n{program}", *arguments]
