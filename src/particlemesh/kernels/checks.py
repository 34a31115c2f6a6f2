# SPDX-License-Identifier: BSD-3-Clause
"""Checks of a program's arguments, with the messages of the library."""

from particlemesh.checks import (
    at_least_zero,
    flag,
    flags,
    integer,
    number_array,
    one_of,
    per_axis,
    positive,
    real_type,
    threads,
)

__all__ = [
    "at_least_zero",
    "flag",
    "flags",
    "integer",
    "number_array",
    "one_of",
    "per_axis",
    "positive",
    "real_type",
    "threads",
]
