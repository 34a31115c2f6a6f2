# SPDX-License-Identifier: BSD-3-Clause
"""Objects of other libraries, to particles and fields and back, and other libraries' searches for neighbours.

One module per library, which imports it when it is used.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from particlemesh.box import Box

__all__ = ["PositionsInBox"]


class PositionsInBox(NamedTuple):
    """Positions and their box: the arguments that follow the letters of :func:`particlemesh.neighbour_list`.

    Attributes
    ----------
    positions : array (N, d)
    box : Box
    """

    positions: Any
    box: Box


def check(thing: Any, attributes: tuple[str, ...], what: str) -> None:
    """Check that an object is one of a library, by the attributes that are used.

    Raises
    ------
    TypeError
        If it lacks one.
    """
    if not all(hasattr(thing, name) for name in attributes):
        raise TypeError(f"the argument is of type {type(thing).__name__}; {what} is needed.")


def library(name: str, package: str, what: str) -> Any:
    """Return a module of an optional library.

    Raises
    ------
    ImportError
        If it is missing; the message says what needs it, and how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs {package}: pip install {package}.") from error
