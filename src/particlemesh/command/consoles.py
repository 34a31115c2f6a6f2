# SPDX-License-Identifier: BSD-3-Clause
"""The console that commands print to."""

from __future__ import annotations

from typing import Any

WIDTH = 80  # columns of every table


def console() -> Any:
    """Return a console of `WIDTH` columns; rich is loaded here."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False)
