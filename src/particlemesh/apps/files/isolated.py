# SPDX-License-Identifier: BSD-3-Clause
"""Python programs in processes of their own, for libraries that crash on damaged files."""

from __future__ import annotations

import sys
from pathlib import Path


def command(program: str, *arguments: str) -> list[str]:
    """Return the command of a Python program, which imports nothing from the present folder.

    It finds libraries where this process does, also by ``PYTHONPATH`` and from ``pip install --user``.
    """
    folders = [path for path in sys.path if path and Path(path).exists() and not Path(path).samefile(".")]
    return [sys.executable, "-I", "-c", f"import sys; sys.path.extend({folders!r})\n{program}", *arguments]
