# SPDX-License-Identifier: BSD-3-Clause
"""How threads share work on cells or particles where no item depends on another."""

SHARE = 1 << 14  # items that a thread claims at a time


def shares_for(count: int, threads: int) -> int:
    """Return how many threads ``count`` independent items are worth."""
    return max(1, min(threads, count // SHARE))
