# SPDX-License-Identifier: BSD-3-Clause
"""Nsight Compute's counters of the kernels of some rows: issue slots, pipes, memory, registers, occupancy.

Needs ``ncu`` and permission to read counters. Each row runs by itself, with one profiled call.

    python benchmarks/core/counters.py commands > ncu.sh && sh ncu.sh    # a file for each row
    python benchmarks/core/counters.py table out/limit-ncu/*.csv         # results/limit-counters-DEVICE.csv
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from core.rows import ROWS
from harness.bench import WALK, Bench
from harness.cases import Job
from harness.tables import RESULTS, commit, number, short, show, write

METHODS = {  # of a row
    "spread": (WALK,), "spread-real": (WALK,), "spread-p4": (WALK,), "spread-f64": (WALK,), "spread-4": (WALK,),
    "spread-some": (WALK, "owner"), "spread-few": ("owner",), "interpolate": (WALK, "tile"),
    "interpolate-some": (WALK, "tile", "ring", "direct"), "interpolate-few": ("direct",),
}  # fmt: skip
FOLDER = Path("out") / "limit-ncu"
# By default ncu fixes clocks at their base and flushes caches before every kernel, so that counters can be compared.
# Kernels then take longer than in a call.
OPTIONS = "--profile-from-start off --set full --csv --page raw --print-units base"
DEVICE = "NVIDIA H200"  # for files in which ncu does not name the device
ACTIVE, ELAPSED = ".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"
SCALES = {"": 1.0, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0, "ns": 1e-9, "us": 1e-6,
          "ms": 1e-3, "s": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip


class Counter(NamedTuple):
    """A column of the table, and its metrics: the first one in the file counts."""

    column: str
    head: str
    metrics: tuple[str, ...]


COUNTERS = (
    Counter("seconds", "time, ms", ("gpu__time_duration.sum",)),
    Counter("instructions", "warp instructions per particle", ("smsp__inst_executed.sum", "sm__inst_executed.sum")),
    Counter("issue", "issue slots", ("sm__inst_issued" + ACTIVE, "smsp__issue_active" + ACTIVE,
                                     "sm__issue_active" + ACTIVE)),
    Counter("fma", "FMA", ("sm__pipe_fma_cycles_active" + ACTIVE, "sm__inst_executed_pipe_fma" + ACTIVE)),
    Counter("alu", "ALU", ("sm__pipe_alu_cycles_active" + ACTIVE, "sm__inst_executed_pipe_alu" + ACTIVE)),
    Counter("lsu", "LSU", ("sm__inst_executed_pipe_lsu" + ACTIVE, "sm__inst_executed_pipe_lsu" + ELAPSED)),
    Counter("tensor", "tensor", ("sm__pipe_tensor_cycles_active" + ACTIVE,
                                 "sm__pipe_tensor_op_hmma_cycles_active" + ACTIVE,
                                 "sm__inst_executed_pipe_tensor_op_hmma" + ACTIVE)),
    Counter("tensor_f64", "tensor, float64", ("sm__pipe_tensor_op_dmma_cycles_active" + ACTIVE,
                                              "sm__inst_executed_pipe_tensor_op_dmma" + ACTIVE)),
    Counter("fp64", "FP64", ("sm__pipe_fp64_cycles_active" + ACTIVE, "sm__inst_executed_pipe_fp64" + ACTIVE)),
    Counter("dram", "DRAM", ("dram__throughput" + ELAPSED, "gpu__dram_throughput" + ELAPSED)),
    Counter("l2", "L2", ("lts__throughput" + ELAPSED, "lts__t_sectors" + ELAPSED)),
    Counter("l1", "L1", ("l1tex__throughput" + ACTIVE, "l1tex__throughput" + ELAPSED)),
    Counter("registers", "registers", ("launch__registers_per_thread",)),
    Counter("occupancy", "occupancy", ("sm__warps_active" + ACTIVE,)),
)  # fmt: skip
PLAIN = ("seconds", "instructions", "registers")  # all others are percentages


def commands(folder: Path) -> list[str]:
    """Return the command lines, one per row."""
    lines = [f"mkdir -p {folder}"]
    for key, methods in METHODS.items():
        for method in methods:
            run = f"python benchmarks/core/counters.py call {key} {method}"
            lines.append(f"ncu {OPTIONS} --log-file {folder / key}.{method}.csv {run}")
    return lines


def call(key: str, method: str, backend: str = "cuda") -> None:
    """Make one profiled call of a row, after two that compile and prepare."""
    row = next(row for row in ROWS if row.key == key)
    bench = Bench(backend)
    with bench.setup(Job(row.case, method)) as made:
        for _ in range(2):
            made.call()
        bench.place.wait()
        with _profiled(backend):
            made.call()
            bench.place.wait()


@contextlib.contextmanager
def _profiled(backend: str) -> Iterator[None]:
    """Let the profiler count inside."""
    if backend != "cuda":
        yield
        return
    import cupy

    cupy.cuda.runtime.profilerStart()
    try:
        yield
    finally:
        cupy.cuda.runtime.profilerStop()


# ---- what ncu counted -------------------------------------------------------------------------------------


def parsed(text: str) -> Iterable[dict[str, Any]]:
    """Yield kernel, device and every metric, in SI units, of each launch in an output of ncu."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise ValueError("no line begins with ID: give a file that ncu --csv --page raw wrote (--log-file).")
    table = csv.reader(io.StringIO("\n".join(line for line in lines[begin:] if not line.startswith("=="))))
    head = next(table)
    units = dict(zip(head, next(table), strict=True))
    for cells in table:
        if len(cells) != len(head):
            continue
        row: dict[str, Any] = dict(zip(head, cells, strict=True))
        yield {name: _number(value, units[name]) for name, value in row.items()}


def _number(value: str, unit: str) -> Any:
    """Return a number in SI units, or the text."""
    try:
        return float(value.replace(",", "")) * SCALES.get(unit, 1.0)
    except ValueError:
        return value


def counted(name: str, launch: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a launch; ``name`` is that of the file, a row and a method."""
    key, _, method = name.partition(".")
    row = next((row for row in ROWS if row.key == key), None)
    if row is None:
        raise ValueError(
            f"{key!r} is not a row; name the file ROW.METHOD.csv, with a row of {', '.join(r.key for r in ROWS)}."
        )
    columns: dict[str, Any] = dict(row=key, method=method, words=row.words, kernel=launch.get("Kernel Name", ""))
    for counter in COUNTERS:
        value = next((launch[m] for m in counter.metrics if isinstance(launch.get(m), float)), math.nan)
        columns[counter.column] = short(value / row.case.count if counter.column == "instructions" else value)
    return columns


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as text; a counter that is missing is empty."""

    def cell(column: str) -> str:
        value = number(row, column)
        if math.isnan(value):
            return ""
        if column == "seconds":
            return f"{value * 1e3:.3g}"
        return f"{value:.3g}" if column in PLAIN else f"{value:.0f} %"

    return (row["words"], row["kernel"], *(cell(c.column) for c in COUNTERS))


HEAD = ("row", "kernel", *(c.head for c in COUNTERS))
WIDTHS = (20, 12, *[6] * len(COUNTERS))


def table(files: list[Path], out: Path) -> list[dict[str, Any]]:
    """Read the files, print the table and write it as CSV."""
    rows, device, measured = [], DEVICE, commit()
    for file in files:
        for launch in parsed(file.read_text(encoding="utf-8")):
            device = str(launch.get("Device Name") or launch.get("device__attribute_display_name") or device)
            rows.append(counted(file.stem, launch) | dict(device=device, commit=measured))
    if not rows:
        raise SystemExit("No launches in these files.")
    show(device, HEAD, [cells(row) for row in rows])
    print(write("limit-counters", device, rows, out))
    return rows


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("commands", help="print the command lines")
    first.add_argument("--folder", type=Path, default=FOLDER)
    second = verbs.add_parser("call", help="make the call of a row, for ncu")
    second.add_argument("row", choices=METHODS)
    second.add_argument("method")
    third = verbs.add_parser("table", help="read what ncu wrote")
    third.add_argument("files", type=Path, nargs="+")
    third.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.verb == "commands":
        print(*commands(asked.folder), sep="\n")
    elif asked.verb == "call":
        call(asked.row, asked.method)
    else:
        table(asked.files, asked.out)


if __name__ == "__main__":
    main()
