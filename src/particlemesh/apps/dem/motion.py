# SPDX-License-Identifier: BSD-3-Clause
"""Moving particles."""

from __future__ import annotations

from typing import Any


class Motion:
    """Comes in the next commit."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError
