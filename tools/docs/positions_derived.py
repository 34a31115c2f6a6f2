# SPDX-License-Identifier: BSD-3-Clause
"""Write docs/guide/plans_positions.inc, the times of ``set_positions`` beside those of calls, from measured files.

python tools/docs/positions_derived.py
"""

import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "plans_positions.inc"
GPU = "limit-peer-nvidia-h100-80gb-hbm3.csv"
EPYC, XEON = "cpu-amd-epyc-2-threads.csv", "cpu-intel-r-xeon-r-processor-16-threads.csv"
# Words of the page, the file, and what its rows have.
ROWS = (
    ("NVIDIA H100", "10⁵", GPU, {"N": "100000", "dtype": "float32"}),
    ("NVIDIA H100", "10⁶", GPU, {"N": "1000000", "dtype": "float32"}),
    ("NVIDIA H100", "10⁶", GPU, {"N": "1000000", "dtype": "float64"}),
    ("NVIDIA H100", "10⁷", GPU, {"N": "10000000", "dtype": "float32"}),
    ("EPYC, 2 threads", "10⁶", EPYC, {"N": "1000000", "dtype": "float64", "threads": "2"}),
    ("Xeon, 16 threads", "10⁶", XEON, {"N": "1000000", "dtype": "float64", "threads": "16"}),
)
ALL = {"K": "128", "cloud": "uniform", "auto": "1", "p": "6", "width": "6"}  # where a file has the column


def seconds(file: str, chosen: dict[str, str]) -> list[float]:
    """Return the time of positions for spreading, of spreading, and of interpolating."""
    lines = (ROOT / "benchmarks" / "results" / file).read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    kept = [row for row in rows if all(row.get(key, value) == value for key, value in (ALL | chosen).items())]
    spread, interpolate = (
        next(row for row in kept if name in (row.get("direction"), row.get("operation")))
        for name in ("spread", "interpolate")
    )
    times = [spread.get("positions_s") or spread["setpts_ours_s"]]
    times += [row.get("graph_s") or row["ours_s"] for row in (spread, interpolate)]
    return [float(time) for time in times]


def table() -> str:
    """Return the table."""
    lines = [".. Written by tools/docs/positions_derived.py.", "", ".. list-table::", "   :header-rows: 1"]
    lines += ["   :widths: 30 14 14 16 12 14", ""]
    cells = [("device", "particles", "type", "set_positions", "spread", "interpolate")]
    for device, particles, file, chosen in ROWS:
        times = (f"{float(f'{1000 * time:.2g}'):g}" for time in seconds(file, chosen))
        cells.append((device, particles, chosen["dtype"], *times))
    for row in cells:
        lines += [f"   {'* -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
