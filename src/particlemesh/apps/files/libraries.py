# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that read and write files, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def library(name: str, what: str, extra: str = "io") -> Any:
    """Return a module of an extra.

    Raises
    ------
    ImportError
        If it is missing; the message says what needs it, and how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{what} needs {package}: pip install {package}, or 'particlemesh[{extra}]'.") from error
