# SPDX-License-Identifier: BSD-3-Clause
"""How threads share work on cells or particles where no item depends on another."""

from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add

_SHARE = 1 << 14  # items that a thread claims at a time


def shares_for(count: int, threads: int) -> int:
    """Return how many threads ``count`` independent items are worth."""
    return max(1, min(threads, count // _SHARE))


@compiled(forceinline=True)
def claim(counter, count):
    """Claim the next share of ``count`` items; return its range, which is empty at the end."""
    begin = fetch_add(counter, 0, 1) * _SHARE
    return begin, min(begin + _SHARE, count)
