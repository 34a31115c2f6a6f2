# SPDX-License-Identifier: BSD-3-Clause
"""Backends: one module each, imported at first use."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from particlemesh.backends.base import Backend

NAMES = ("cpu", "cuda", "opencl")


@functools.cache
def module(name: str) -> ModuleType:
    """Return the module of a backend by name; it may or may not be usable here."""
    if name not in NAMES:
        raise ValueError(f"backend {name!r} is unknown; choose one of {', '.join(NAMES)}.")
    return importlib.import_module(f"particlemesh.backends.{name}")


def current(name: str) -> Backend:
    """Return a backend on its current device.

    Parameters
    ----------
    name : {"cpu", "cuda", "opencl"}

    Returns
    -------
    Backend

    Raises
    ------
    RuntimeError
        If the backend cannot be used here; the message says why and what to install.

    Examples
    --------
    >>> current("cpu").empty((2, 3), "float64").shape
    (2, 3)
    """
    selected = module(name)
    reason = selected.available()
    if reason is not None:
        raise RuntimeError(f"backend {name!r} cannot be used: {reason}.")
    return selected.current()
