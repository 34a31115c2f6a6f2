# SPDX-License-Identifier: BSD-3-Clause
"""Lines that the commands on files print: a label, and what there is to say, in 80 columns."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from particlemesh import Box, Mesh
from particlemesh.apps.files import Account, Particles, plain
from particlemesh.window import Window

LABEL = 12  # columns
ROW = re.compile(r"^(?P<chosen>[* ]) (?P<name>\w+) +(?P<rest>.*?)  +(?P<memory>[\d.]+ \wiB) +(?P<how>.+)$")


def say(console: Console, label: str, text: str, style: str | None = None) -> None:
    """Print a labelled line, continued below itself."""
    lines = textwrap.wrap(text, console.width - LABEL, break_long_words=False, break_on_hyphens=False)
    for n, line in enumerate(lines or [""]):
        console.print(f"{label if n == 0 else '':<{LABEL}}{line}", style=style, markup=False, soft_wrap=True)


def say_particles(console: Console, particles: Particles, frames: tuple[int, ...], count: int, dtype: Any) -> None:
    """Print how many particles there are, and which columns were taken of those that the file has."""
    of = "" if particles.frames == 1 else f" in {_frames(frames)} of {particles.frames}"
    values = ", ".join(particles.values) if particles.values else f"{particles.constant:g} for each"
    text = f"{count:,}{of}, {dtype}; positions: {', '.join(particles.positions)}; values: {values}"
    rest = [name for name in particles.columns if name not in (*particles.positions, *particles.values)]
    say(console, "particles", plain(text))
    for note in particles.notes:
        say(console, "", note)
    if rest:
        say(console, "", plain(f"also in the file: {', '.join(rest)}"), "dim")


def _frames(frames: tuple[int, ...]) -> str:
    return f"frame {frames[0]}" if len(frames) == 1 else f"{len(frames)} frames"


def say_box(console: Console, box: Box, origin: str, unit: str | None) -> None:
    """Print a box and where it is from."""
    lengths = " x ".join(f"{n:.6g}" for n in np.linalg.norm(box.matrix, axis=1)) + (f" {unit}" if unit else "")
    shape = "" if box.orthorhombic else ", triclinic"
    repeats = "".join(axis for axis, repeated in zip("xyz", box.periodic, strict=False) if repeated)
    axes = f"periodic along {repeats}" if repeats else "open"
    if repeats and not all(box.periodic):
        axes += f", open along {''.join(a for a, p in zip('xyz', box.periodic, strict=False) if not p)}"
    say(console, "box", f"{lengths}{shape}, {axes}, {origin}")


def say_mesh(console: Console, mesh: Mesh, why: str, window: Window) -> None:
    """Print a mesh and a window."""
    nodes = " x ".join(map(str, mesh.shape))
    spacing = ", ".join(f"{h:.6g}" for h in sorted(set(mesh.spacing.tolist())))
    say(console, "mesh", f"{nodes} nodes ({why}), spacing {spacing}")
    say(console, "window", f"{window.name}, support {window.support}")


def say_method(console: Console, account: Account, direction: str) -> None:
    """Print the method that a plan chose, and why."""
    rows = _rows(account.explanation, direction)
    chosen = next((row for row in rows if row["chosen"] == "*"), None)
    if chosen is None:
        say(console, "method", f"on {account.device}")
        return
    others = [row for row in rows if row is not chosen]
    reason = f"{chosen['how']} {_total(chosen)}"
    if others:
        reason += f"; next is {others[0]['name']} with {_total(others[0])}"
    say(console, "method", f"{chosen['name']} on {account.device}: {reason}")


def _rows(explanation: str, direction: str) -> list[dict[str, str]]:
    """Return the methods of a direction that are able, the fastest first."""
    rows, inside = [], False
    for line in explanation.splitlines():
        if line[:1] not in ("*", " "):
            inside = line.split(maxsplit=1)[:1] == [direction]
        elif inside and (match := ROW.match(line)):
            rows.append(match.groupdict())
    return sorted(rows, key=_seconds)


def _total(row: dict[str, str]) -> str:
    return re.split(r"  +", row["rest"])[-1].strip()


def _seconds(row: dict[str, str]) -> float:
    number, unit = _total(row).split()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def say_sums(console: Console, account: Account, field_sum: np.ndarray, mesh: Mesh) -> None:
    """Print the sum of the values, that of the field, and what was lost beyond open faces."""
    values, lost = np.atleast_1d(account.values), np.atleast_1d(account.lost)
    field_sum = np.atleast_1d(field_sum)
    several = len(values) > 1
    for k, total in enumerate(values):
        name = f" {k}" if several else ""
        say(console, f"sum{name}", f"values {_number(total)}, field {_number(field_sum[k])}")
        if not all(mesh.periodic):
            part = f" ({abs(lost[k] / total):.2%})" if total else ""
            gap = total - lost[k] - field_sum[k]
            say(console, "", f"lost beyond open faces {_number(lost[k])}{part}, not accounted for {abs(gap):.1e}")
            if account.beyond:
                say(console, "", f"{account.beyond:,} particles were beyond open faces")
        else:
            say(console, "", f"difference {abs(total - field_sum[k]):.1e}: spreading keeps the sum")


def _number(x: Any) -> str:
    return f"{x:.10g}" if not np.iscomplexobj(x) else f"{x.real:.8g}{x.imag:+.8g}j"


def say_time(console: Console, seconds: float, count: int, start: float, what: str = "particles") -> None:
    """Print how long the computation took, the rate, and how long the first call took that compiled or loaded code."""
    rate = count / seconds if seconds > 0 else 0.0
    say(
        console,
        "time",
        f"{seconds:.3g} s, {_rate(rate)} {what}/s, without files; {start:.3g} s to compile or load",
    )


def _rate(rate: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}"
    return f"{rate:.3g}"


def say_written(console: Console, path: Path, what: str) -> None:
    """Print where the result is."""
    say(console, "written", f"{path} ({path.stat().st_size / 2**20:.3g} MiB): {what}")
