# SPDX-License-Identifier: BSD-3-Clause
"""The ceilings of a device, from ``limit-ceilings-DEVICE.csv`` or from a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.tables import read, slug

UNITS = {
    "memory": "byte/s", "l2": "byte/s", "l1": "byte/s", "l2_bytes": "byte", "fma_f32": "flop/s", "fma_f64": "flop/s",
    "tensor_f32": "flop/s", "tensor_f64": "flop/s", "add_f32": "real/s", "add_f64": "real/s", "launch": "s",
    "gather": "s",
}  # fmt: skip
# From the vendor's data sheet; adds to memory are the highest rate that walks have reached.
PUBLISHED = {
    "nvidia-h200": {
        "memory": 4.8e12, "l2_bytes": 60e6, "fma_f32": 67e12, "fma_f64": 34e12, "tensor_f32": 494e12,
        "tensor_f64": 67e12, "add_f32": 4.3e11, "add_f64": 1.4e11,
    },
}  # fmt: skip


class Ceilings(NamedTuple):
    """Ceilings of a device in SI units; NaN is unknown."""

    memory: float = math.nan  # bytes/s of a copy, read and written
    l2: float = math.nan  # bytes/s read
    l1: float = math.nan
    l2_bytes: float = math.nan
    fma_f32: float = math.nan  # flop/s, two per multiply-add
    fma_f64: float = math.nan
    tensor_f32: float = math.nan  # flop/s of products in TF32
    tensor_f64: float = math.nan
    add_f32: float = math.nan  # reals/s added at random nodes of a field in the cache
    add_f64: float = math.nan
    launch: float = math.nan  # seconds of an empty kernel, in a captured graph
    gather: float = math.nan  # seconds of the shortest kernel that gathers, in a captured graph

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], device: str) -> Ceilings:
        """Return the ceilings in rows of a CSV file; others are those of the table."""
        known = dict(PUBLISHED.get(slug(device), {}))
        known |= {r["name"]: float(r["value"]) for r in rows if r["name"] in UNITS and r["value"] not in ("", "nan")}
        return cls(**known)

    @classmethod
    def read(cls, folder: Path, device: str) -> Ceilings:
        """Return the ceilings of a device from ``limit-ceilings-DEVICE.csv``, if there is one."""
        return cls.of(read(folder / f"limit-ceilings-{slug(device)}.csv"), device)
