# SPDX-License-Identifier: BSD-3-Clause
"""Times of calls from microseconds to milliseconds on a CUDA device, in batches that fit them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from measure import Cuda

BATCH_SECONDS = 2e-3  # long against what starting a graph takes, which is counted with its batch
NO_TIME = math.nan


class Clock(Cuda):
    """Medians of batches that take about a millisecond."""

    def _batch(self, call: Callable[[], Any]) -> int:
        one = self.calls(call, batch=2, repeats=1)
        return int(min(50, max(2, BATCH_SECONDS / one)))

    def plain_seconds(self, call: Callable[[], Any], repeats: int = 5) -> float:
        """Return the seconds of a plain call, back to back."""
        return self.calls(call, batch=min(20, self._batch(call)), repeats=repeats)

    def graph_seconds(self, call: Callable[[], Any], repeats: int = 5) -> float:
        """Return the GPU's seconds of a call that is captured, or NaN with a sentence where it cannot be."""
        try:
            return self.graph(call, batch=self._batch(call), repeats=repeats)
        except (RuntimeError, NotImplementedError) as error:
            print(f"  not captured: {str(error).splitlines()[0][:80]}", flush=True)
            return NO_TIME


def micro(seconds: float) -> str:
    """Return a time for a table, in microseconds."""
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def giga(per_second: float) -> str:
    """Return a rate for a table, in units of 1e9 a second."""
    return "-" if math.isnan(per_second) else f"{per_second / 1e9:.3g}"


def short(number: float) -> float:
    """Return a number as it is written to a file, with five digits."""
    return float(f"{number:.5g}")
