# SPDX-License-Identifier: BSD-3-Clause
"""The table of docs/performance/expected.rst from benchmarks/results: ``python tools/docs/expected_derived.py``."""

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "performance" / "expected.inc"
EPYC, XEON, H100, H200 = (
    "amd-epyc-2-threads", "intel-r-xeon-r-processor-16-threads", "nvidia-h100-80gb-hbm3", "nvidia-h200",
)  # fmt: skip
DEVICES = {EPYC: "EPYC, 2 threads", XEON: "Xeon, 16 threads", H100: "H100", H200: "H200"}


def seconds(name, column, **cells):
    """Return the number in the one row of a file with these cells."""
    with (ROOT / "benchmarks" / "results" / f"{name}.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == str(value) for key, value in cells.items())]
    (row,) = rows
    return float(row[column])


def of_plans(count, operation, column, dtype="float32", width=4):
    """Return times of a plan by device."""
    times = {}
    for device, threads in ((EPYC, 2), (XEON, 16)):
        if count > 1_000_000 and device == EPYC:
            continue
        row = dict(operation=operation, dtype=dtype, width=width, cloud="uniform", N=count, K=128, threads=threads)
        times[device] = seconds(f"cpu-{device}", {"call": "ours_s", "positions": "setpts_ours_s"}[column], **row)
    for device in (H100, H200):
        row = dict(auto=1, direction=operation, N=count, K=128, p=width, dtype=dtype, values="complex", layout="planar")
        times[device] = seconds(f"limit-peer-{device}", f"{column}_s", cloud="uniform", order="caller", **row)
    return times


def rows():
    """Return problems, each with its times by device."""
    of_lists = dict(group="single", systems=1, neighbours=26, half=0, library="particlemesh")
    of_nufft = dict(type=1, N=1_000_000, modes=64, library="particlemesh")
    of_grains = dict(design="simulation", before=0, dtype="float64")
    return {
        "spread 10⁶ complex values onto 128³ nodes": of_plans(1_000_000, "spread", "call"),
        "interpolate 10⁶ complex values": of_plans(1_000_000, "interpolate", "call"),
        "locate and sort 10⁶ new positions": of_plans(1_000_000, "spread", "positions"),
        "spread 10⁷ complex values": of_plans(10_000_000, "spread", "call"),
        "list the 26 neighbours of each of 10⁵ particles": {
            device: seconds(f"grid-lists-{device}", "seconds", N=100_000, **of_lists) for device in (EPYC, H200)
        },
        "NUFFT of type 1: 10⁶ points, 64³ modes, error 10⁻⁶, complex128": {
            EPYC: seconds(f"nufft-{EPYC}", "execute_s", eps="1e-06", **of_nufft),
            H200: seconds(f"gpu-nufft-{H200}", "call_s", eps="1e-06", dtype="complex128", stage="execute", **of_nufft),
        },
        "PME: forces on 92,224 charges, error 10⁻⁴, float32": {
            H200: seconds(f"pme-{H200}", "call_s", count=92224, virial=False, stage="step, prolate"),
        },
        "Stokesian velocities of 10⁴ spheres, float32": {
            H200: seconds(
                f"brownian-{H200}", "call_s", part="product", count=10000, dtype="float32", method="RPY", vectors=1
            ),
        },
        "a step of 10⁵ grains that fall": {
            EPYC: 1e5 / seconds(f"dem-steps-{EPYC}", "updates_per_s", count=100_000, **of_grains),
            H200: 1e5 / seconds(f"dem-steps-{H200}", "updates_per_s", count=131_072, **of_grains),
        },
    }  # fmt: skip


def short(number):
    """Return two digits, without an exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:.2g}"


def table():
    """Return the table in milliseconds."""
    lines = [".. list-table:: Milliseconds of a call", "   :header-rows: 1", "   :widths: 44 14 14 14 14", ""]
    lines += [f"   {'* -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(("problem", *DEVICES.values()))]
    for problem, times in rows().items():
        lines.append(f"   * - {problem}")
        lines += [f"     - {short(1e3 * times[d])}" if d in times else "     - –" for d in DEVICES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
