# SPDX-License-Identifier: BSD-3-Clause
"""CSV files named by benchmark and device, and tables for a terminal and for the documentation."""

from __future__ import annotations

import csv
import importlib.metadata
import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
PEERS = BENCHMARKS / "peers"
Row = dict[str, Any]


# ---- CSV files --------------------------------------------------------------------------------------------


def slug(device: str) -> str:
    """Return a device's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def write(name: str, device: str, rows: list[Row], folder: Path = RESULTS) -> Path:
    """Write rows as ``NAME-DEVICE.csv`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{slug(device)}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file without its comments; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def number(row: Row, column: str) -> float:
    """Return a number of a row, NaN if the cell is empty."""
    value = row.get(column)
    return math.nan if value in (None, "") else float(value)


def short(number: float) -> float:
    """Return a number with five digits, as files have it."""
    return float(f"{number:.5g}")


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, NaN if there are no ratios."""
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


# ---- what a row says of device and software ---------------------------------------------------------------


def processor() -> str:
    """Return the processor's name and its threads."""
    from particlemesh.backends.cpu import available_threads

    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'processor'} {available_threads()} threads"


def commit() -> str:
    """Return the measured commit: $PARTICLEMESH_COMMIT, else git's, else nothing."""
    given, git = os.environ.get("PARTICLEMESH_COMMIT"), shutil.which("git")
    if given or git is None:
        return given or ""
    command = [git, "-C", str(BENCHMARKS), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def facts(backend: Any) -> dict[str, str]:
    """Return the columns about device and software for one of the library's backends."""
    versions = dict.fromkeys(("cupy", "cuda_runtime", "cuda_driver"), "")
    if backend.name == "cuda":
        import cupy

        runtime = cupy.cuda.runtime
        versions = dict(cupy=cupy.__version__, cuda_runtime=str(runtime.runtimeGetVersion()),
                        cuda_driver=str(runtime.driverGetVersion()))  # fmt: skip
    return dict(
        device=processor() if backend.name == "cpu" else str(backend.device), backend=backend.name,
        python=platform.python_version(), numpy=importlib.metadata.version("numpy"), **versions, commit=commit(),
    )  # fmt: skip


# ---- tables for people ------------------------------------------------------------------------------------

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


MOST_COLUMNS, ASIDE = 9, 3  # of a printed table; rows of a turned one


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as wide as the terminal; one of many columns is turned, a few of its rows side by side."""
    if len(head) > MOST_COLUMNS:
        rows = list(rows)
        for first in range(0, len(rows), ASIDE):
            turned = list(zip(head, *rows[first : first + ASIDE], strict=True))
            show(title, turned[0], turned[1:])
        return
    table = Table(*(Column(cell, overflow="fold") for cell in head), title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def list_table(source: str, head: Sequence[str], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in reStructuredText, which names the files that its numbers come from."""
    lines = [f".. Written by benchmarks/report.py from {source}.", "", ".. list-table::", "   :header-rows: 1",
             f"   :widths: {' '.join(map(str, widths))}", ""]  # fmt: skip
    for row in [head, *(rows or [("none", *[""] * (len(head) - 1))])]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def plain(value: float) -> str:
    """Return a number with three digits."""
    if value == 0 or 1e-3 <= abs(value) < 999.5:
        return f"{value:.3g}"
    return f"{value:.1e}".replace("e-0", "e-") if abs(value) < 1 else f"{value:,.0f}"


def span(seconds: float) -> str:
    """Return a time with its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "-" if math.isnan(seconds) else f"{seconds * 1e9:.3g} ns"


def size(count: float) -> str:
    """Return a number of particles as a power of ten: 3·10⁴."""
    power = round(math.log10(count), 6) if count > 0 else 0
    lead = round(10 ** (power - math.floor(power)), 1)
    return f"{'' if lead == 1 else f'{lead:g}·'}10{str(math.floor(power)).translate(SUPERSCRIPTS)}"
