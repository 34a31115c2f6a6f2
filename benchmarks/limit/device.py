# SPDX-License-Identifier: BSD-3-Clause
"""What is known of a device: its ceilings, from ``limit-ceilings-DEVICE.csv`` or from a table."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

from measure import device_slug

UNITS = {
    "memory": "byte/s", "l2": "byte/s", "l1": "byte/s", "l2_bytes": "byte", "fma_f32": "flop/s", "fma_f64": "flop/s",
    "tensor_f32": "flop/s", "tensor_f64": "flop/s", "add_f32": "real/s", "add_f64": "real/s", "launch": "s",
    "gather": "s",
}  # fmt: skip
# From the maker's data sheet, but for adds to memory, which are the most that walks were seen to make.
PUBLISHED = {
    "nvidia-h200": {
        "memory": 4.8e12, "l2_bytes": 60e6, "fma_f32": 67e12, "fma_f64": 34e12, "tensor_f32": 494e12,
        "tensor_f64": 67e12, "add_f32": 4.3e11, "add_f64": 1.4e11,
    },
}  # fmt: skip


class Ceilings(NamedTuple):
    """Ceilings of a device in SI units; NaN is one that nobody knows."""

    memory: float = math.nan  # bytes/s of a copy, read and written
    l2: float = math.nan  # bytes/s read
    l1: float = math.nan
    l2_bytes: float = math.nan
    fma_f32: float = math.nan  # flop/s, two a multiply-add
    fma_f64: float = math.nan
    tensor_f32: float = math.nan  # flop/s of products in TF32
    tensor_f64: float = math.nan
    add_f32: float = math.nan  # reals/s added to random places of a field in the cache
    add_f64: float = math.nan
    launch: float = math.nan  # seconds of a kernel that does nothing, in a captured graph
    gather: float = math.nan  # seconds of the shortest kernel that gathers, in a captured graph

    @classmethod
    def of(cls, rows: list[dict[str, Any]], device: str) -> Ceilings:
        """Return what rows of a CSV say; what they do not say is taken from the table."""
        known = dict(PUBLISHED.get(device_slug(device), {}))
        known |= {r["name"]: float(r["value"]) for r in rows if r["name"] in UNITS and r["value"] not in ("", "nan")}
        return cls(**known)

    @classmethod
    def read(cls, folder: Path, device: str) -> Ceilings:
        """Return the ceilings of a device from ``limit-ceilings-DEVICE.csv``, if it is there."""
        file = folder / f"limit-ceilings-{device_slug(device)}.csv"
        if not file.exists():
            return cls.of([], device)
        with file.open(newline="") as opened:
            return cls.of(list(csv.DictReader(opened)), device)
