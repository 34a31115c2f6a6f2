# SPDX-License-Identifier: BSD-3-Clause
"""Tables of measured times per device: those shipped with the package, and those of ``particlemesh tune``.

Both have one format, so a user's table becomes a shipped one by copying it to this folder: a few lines of facts, then
CSV. A problem of a table is a periodic mesh of ``nodes`` along each of its ``axes``; ``components`` are reals per
particle.
"""

from __future__ import annotations

import csv
import functools
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from particlemesh.backends.cpu import available_threads
from particlemesh.backends.folders import cache
from particlemesh.choosing.sources import fingerprint

FORMAT = "5"
SHIPPED = Path(__file__).parent
FACTS = ("format", "backend", "device", "measured")  # of the first lines; fingerprints follow, one line per method
MOST = {"support": 16, "nodes": 2**30, "axes": 3}  # larger numbers mean a damaged file
MOST_SECONDS = 1e6


class Row(NamedTuple):
    """The times of one method on one problem, in seconds."""

    direction: str
    method: str
    nodes: int
    support: int
    dtype: str
    components: int
    particles: int
    filled: float  # fraction of the box with particles
    in_order: int  # whether particles were in order
    occupied: float  # fraction of the layers of cells across an axis with particles
    prepare: float
    apply: float
    axes: int = 3


class TableError(ValueError):
    """A file that is not a table."""


@dataclass(frozen=True)
class Table:
    """The measured times of a device."""

    backend: str
    device: str
    measured: str  # the day
    sources: dict[str, str] = field(repr=False)  # fingerprints of the measured code, from `sources_of`
    rows: tuple[Row, ...] = field(repr=False)

    def changed(self) -> list[str]:
        """Return the methods whose sources have changed since the measurement: ``"spread/walk"``."""
        now = sources_of(self.backend, self.rows)
        return [name for name in now if self.sources.get(name) != now[name]]

    def valid(self) -> tuple[Row, ...]:
        """Return the rows of methods whose sources are those that were measured."""
        changed = self.changed()
        return tuple(row for row in self.rows if f"{row.direction}/{row.method}" not in changed)


def device_of(backend: Any) -> str:
    """Return the name under which a device's times are kept: the driver's name, for processors with the threads."""
    if backend.name != "cpu":
        return str(backend.device)
    threads = available_threads()
    return f"{_processor() or backend.device}, {threads} thread{'s' if threads > 1 else ''}"


def threads_of(device: str) -> int | None:
    """Return the threads in the name of a processor, as :func:`device_of` gives it; None for other devices."""
    match = re.search(r", (\d+) threads?$", device)
    return None if match is None else int(match[1])


@functools.cache
def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    try:
        text = facts.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has it
        return ""
    match = re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE)
    return match[1] if match else ""


def sources_of(backend: str, rows: Iterable[Row]) -> dict[str, str]:
    """Return a fingerprint of each method that has rows, by direction and name: ``"spread/walk"``."""
    named = sorted({(row.direction, row.method) for row in rows})
    return {f"{direction}/{method}": fingerprint(backend, direction, method) for direction, method in named}


def folder() -> Path | None:
    """Return the folder of this user's tables, ``$XDG_CACHE_HOME/particlemesh/timings``; None without a home folder."""
    return cache("particlemesh", "timings")


def path_of(backend: str, device: str) -> Path | None:
    """Return the file of a device, which need not exist; None without a home folder."""
    slug, where = re.sub(r"[^a-z0-9]+", "-", f"{backend} {device}".lower()).strip("-"), folder()
    return None if where is None else where / f"{slug}.csv"


def place_for(backend: str, device: str) -> Path:
    """Return the file of a device; creates its folder, and checks that it is writable.

    Raises
    ------
    ValueError
        If there is no writable folder.
    """
    path = path_of(backend, device)
    if path is None:
        raise ValueError("there is no home folder to keep times in; name a folder in XDG_CACHE_HOME.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, where the file of times should be: remove it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.stem}-", suffix=".part"):
            return path
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(path: Path, error: OSError) -> ValueError:
    reason = error.strerror or str(error)
    return ValueError(f"{path} cannot be written ({reason}); name another folder in XDG_CACHE_HOME.")


def read(path: Path) -> Table:
    """Return the table of a file.

    Raises
    ------
    TableError
        If it is not a table.
    OSError
        If it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        split = [line.removeprefix("# ").partition(": ") for line in lines if line.startswith("# ")]
        facts = {name: value for name, _, value in split}
        if facts.get("format") != FORMAT:
            raise TableError(f"{path} is not a table of format {FORMAT}")
        lines_of_rows = (line for line in lines if not line.startswith("#"))
        rows = tuple(_row(cells) for cells in csv.DictReader(lines_of_rows))
        if not rows:
            raise TableError(f"{path} has no rows")
        fingerprints = {name: value for name, value in facts.items() if "/" in name}
        return Table(facts["backend"], facts["device"], facts["measured"], fingerprints, rows)
    except TableError:
        raise
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path} cannot be understood ({type(error).__name__}: {error})") from error


def _row(cells: dict[str, str]) -> Row:
    whole = {name: int(cells[name]) for name in ("nodes", "support", "components", "particles", "axes")}
    prepare, apply, *shares = (float(cells[name]) for name in ("prepare", "apply", "filled", "occupied"))
    within = all(0 <= t <= MOST_SECONDS for t in (prepare, apply)) and all(0 < share <= 1 for share in shares)
    if not within or any(not 1 <= n <= MOST.get(name, 2**40) for name, n in whole.items()):
        raise ValueError(f"numbers out of range: {cells}")
    if cells["in_order"] not in ("0", "1"):
        raise ValueError(f"in_order {cells['in_order']!r}")
    if cells["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype {cells['dtype']!r}")
    return Row(
        cells["direction"], cells["method"], whole["nodes"], whole["support"], cells["dtype"],
        whole["components"], whole["particles"], shares[0], int(cells["in_order"]), shares[1], prepare, apply,
        whole["axes"],
    )  # fmt: skip


def write(table: Table) -> Path:
    """Write a table to the user's folder atomically, and return its file; the last writer wins.

    Raises
    ------
    ValueError
        If it cannot be written.
    """
    path = place_for(table.backend, table.device)
    try:
        _write(table, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _write(table: Table, path: Path) -> None:
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            facts = {**table.__dict__, "format": FORMAT}
            file.writelines(f"# {name}: {facts[name]}\n" for name in FACTS)
            file.writelines(f"# {name}: {value}\n" for name, value in table.sources.items())
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Row._fields)
            writer.writerows(_digits(table.rows))
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _digits(rows: Iterable[Row]) -> Iterable[tuple[Any, ...]]:
    return (tuple(f"{v:.4g}" if isinstance(v, float) else v for v in row) for row in rows)


@functools.cache
def shipped(backend: str) -> tuple[Table, ...]:
    """Return the tables of a backend that are shipped with the package; the others are not read."""
    return tuple(read(path) for path in sorted(SHIPPED.glob(f"{backend}-*.csv")))


def stored(backend: str, device: str) -> Table | None:
    """Return the table of a device: this user's, else one that is shipped; None if there is none.

    Raises
    ------
    TableError, OSError
        If this user's file cannot be read.
    """
    path = path_of(backend, device)
    measured_here = () if path is None or not path.exists() else (read(path),)
    return next((t for t in (*measured_here, *shipped(backend)) if (t.backend, t.device) == (backend, device)), None)
