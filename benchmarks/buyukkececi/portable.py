# SPDX-License-Identifier: BSD-3-Clause
"""The same kernels through OpenCL and through CUDA on one GPU, from the two files of times."""

from __future__ import annotations

import statistics
from typing import Any

SAME = ("direction", "ndim", "window", "dtype", "nodes", "order", "method")


def portable(cuda: list[dict[str, Any]], opencl: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what OpenCL takes in units of CUDA's time, for whole calls on the largest problems, and a verdict."""
    known = {tuple(r[n] for n in SAME): float(r["total_s"]) for r in cuda if r["backend"] == "cuda"}
    most = {r["ndim"]: max(int(x["nodes"]) for x in cuda if x["ndim"] == r["ndim"]) for r in cuda}
    ratios: dict[str, list[float]] = {}
    for row in opencl:
        theirs = known.get(tuple(row[n] for n in SAME))
        if row["backend"] == "opencl" and theirs and int(row["nodes"]) == most.get(row["ndim"]):
            ratios.setdefault(row["method"], []).append(float(row["total_s"]) / theirs)
    if not ratios:
        raise LookupError("times through OpenCL")
    told = ", ".join(f"{name} {min(all_):.2g} to {max(all_):.2g}" for name, all_ in ratios.items())
    middle = statistics.median(ratio for all_ in ratios.values() for ratio in all_)
    return f"OpenCL over CUDA: {told}; {middle:.2f} in the median", "holds" if middle <= 1.25 else "partly"
