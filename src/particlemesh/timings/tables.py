# SPDX-License-Identifier: BSD-3-Clause
"""What methods took on a device: tables that come with the package, and those that ``particlemesh tune`` wrote.

One format for both, so that a user's table becomes a shipped one by copying it to this folder: a few lines of facts,
then CSV. A problem of a table is a periodic cube of ``nodes`` along each of three axes; ``components`` are reals a
particle.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import math
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from particlemesh.backends.cpu import available_threads
from particlemesh.caches import home

FORMAT = "1"
PACKAGE = Path(__file__).parents[1]
SHIPPED = Path(__file__).parent
FACTS = ("format", "backend", "device", "sources", "measured")  # of the first lines


class Row(NamedTuple):
    """One method on one problem; times in seconds."""

    direction: str
    method: str
    nodes: int
    support: int
    dtype: str
    components: int
    particles: int
    filled: float  # of the box, by particles
    prepare: float
    apply: float


class TableError(ValueError):
    """A file that is not a table."""


@dataclass(frozen=True)
class Table:
    """What was measured on a device."""

    backend: str
    device: str
    sources: str  # fingerprint of what was measured
    measured: str  # the day
    rows: tuple[Row, ...] = field(repr=False)


def device_of(backend: Any) -> str:
    """Return the name under which a device's times are kept: as the driver calls it, for processors with threads."""
    if backend.name != "cpu":
        return str(backend.device)
    threads = available_threads()
    return f"{_processor() or backend.device}, {threads} thread{'s' if threads > 1 else ''}"


@functools.cache
def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    try:
        text = facts.read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is none but on Linux
        return ""
    found = re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE)
    return found[1] if found else ""


def sources() -> str:
    """Return a fingerprint of all that decides what methods take: their code, and that under them."""
    digest = hashlib.sha256()
    folders = [PACKAGE / name for name in ("backends", "binning", "interpolate", "spread")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".c", ".h"}]
    for path in sorted([*files, PACKAGE / "fused.py", PACKAGE / "tiled.py"]):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def folder() -> Path:
    """Return where this user's tables are: ``$XDG_CACHE_HOME/particlemesh/timings``."""
    return home("XDG_CACHE_HOME", ".cache") / "particlemesh" / "timings"


def path_of(backend: str, device: str) -> Path:
    """Return the file of a device, which need not be there."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{backend} {device}".lower()).strip("-")
    return folder() / f"{slug}.csv"


def read(path: Path) -> Table:
    """Return the table of a file.

    Raises
    ------
    TableError
        If it is none.
    OSError
        If it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        split = [line.removeprefix("# ").partition(": ") for line in lines if line.startswith("# ")]
        facts = {name: value for name, _, value in split}
        if facts.get("format") != FORMAT:
            raise TableError(f"{path} is not a table of format {FORMAT}")
        written = csv.DictReader(line for line in lines if not line.startswith("#"))
        rows = tuple(_row(row) for row in written)
        if not rows:
            raise TableError(f"{path} has no rows")
        return Table(facts["backend"], facts["device"], facts["sources"], facts["measured"], rows)
    except TableError:
        raise
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path} cannot be understood ({type(error).__name__}: {error})") from error


def _row(written: dict[str, str]) -> Row:
    whole = {name: int(written[name]) for name in ("nodes", "support", "components", "particles")}
    prepare, apply, filled = (float(written[name]) for name in ("prepare", "apply", "filled"))
    within = all(math.isfinite(t) and t >= 0 for t in (prepare, apply)) and 0 < filled <= 1
    if min(whole.values()) < 1 or not within:
        raise ValueError(f"numbers out of range: {written}")
    if written["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype {written['dtype']!r}")
    return Row(
        written["direction"], written["method"], whole["nodes"], whole["support"], written["dtype"],
        whole["components"], whole["particles"], filled, prepare, apply,
    )  # fmt: skip


def write(table: Table) -> Path:
    """Write a table to the user's folder, whole or not at all, and return its file; the last writer wins."""
    path = path_of(table.backend, table.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            facts = {**table.__dict__, "format": FORMAT}
            file.writelines(f"# {name}: {facts[name]}\n" for name in FACTS)
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Row._fields)
            writer.writerows(_digits(table.rows))
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return path


def _digits(rows: Iterable[Row]) -> Iterable[tuple[Any, ...]]:
    return (tuple(f"{v:.4g}" if isinstance(v, float) else v for v in row) for row in rows)


@functools.cache
def shipped() -> tuple[Table, ...]:
    """Return the tables that come with the package."""
    return tuple(read(path) for path in sorted(SHIPPED.glob("*.csv")))
