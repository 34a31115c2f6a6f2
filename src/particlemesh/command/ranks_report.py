# SPDX-License-Identifier: BSD-3-Clause
"""The output of ``particlemesh distributed``: tests, times on 1, 2, 4, ... ranks, and a picture. Rank 0 prints."""

from __future__ import annotations

import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from particlemesh import backends
from particlemesh.command import ranks
from particlemesh.command.report import _table, _time


def report(
    console: Console, out: Path, *, particles: float, nodes: int, backend: str, transport: str, repeats: int
) -> bool:
    """Test and time the ranks of this run; return whether all tests passed, the same on every rank.

    Raises
    ------
    ValueError
        If an option is not allowed, or the backend or transport is not available.
    """
    count = _count(particles)
    if backend not in ("cpu", "cuda"):
        raise ValueError(f"--backend is {backend!r}; give cpu or cuda.")
    if (reason := backends.module(backend).available()) is not None:
        raise ValueError(f"{backend} is not available: {reason}.")
    xp = ranks.take_device(backend)
    world, communicator = ranks.world_of_all(transport)
    try:
        return _run(console if world.rank == 0 else Console(quiet=True), out, world, communicator, xp,
                    count=count, nodes=nodes, backend=backend, transport=transport, repeats=repeats)  # fmt: skip
    except BaseException:
        if communicator is None or world.size == 1:
            raise
        # The others would wait for this rank for ever.
        traceback.print_exc()
        sys.stderr.flush()
        communicator.Abort(1)
        raise


def _run(
    console: Console, out: Path, world: Any, communicator: Any, xp: Any, *, count: int, nodes: int, backend: str,
    transport: str, repeats: int,
) -> bool:  # fmt: skip
    console.print(f"{plural(world.size, 'rank')}, transport {world.transport!r}, {backend}")
    if communicator is None:
        console.print("mpi4py is not installed: this is one rank. pip install mpi4py", style="yellow")
    elif world.size == 1:
        console.print("start more ranks by: mpiexec -n 4 particlemesh distributed", style="dim")
    ranks.compile_once(world, communicator, xp)
    table, passed = _table("test", ">error", ">allowed", "result"), True
    for test in ranks.tests(world, xp):
        passed = passed and test.passed
        word = "passed" if test.passed else "[bold red]FAILED[/bold red]"
        table.add_row(test.name, f"{test.error:.1g}", f"{test.allowed:.1g}", word)
    console.print("", table, "", sep="\n")

    title = f"weak scaling: {count:,} particles and {nodes}^3 nodes per rank, float32, {ranks.WINDOW}"
    console.print(title)
    rows = list(ranks.timings(world, communicator, transport, backend, xp, count, nodes, repeats))
    table = _table(">ranks", *(f">{name}" for name in ranks.STAGES), ">efficiency")
    first = sum(rows[0].seconds)
    for row in rows:
        table.add_row(str(row.ranks), *map(_time, row.seconds), f"{first / sum(row.seconds):.0%}")
    console.print(table)
    if (shared := _shared(world, backend)) is not None:
        console.print(shared, style="dim")
    console.print()
    if world.rank == 0:
        _picture(console, out, world.size, rows)
    return passed


def plural(count: int, noun: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> plural(1, "rank"), plural(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


def _count(particles: float) -> int:
    if not (1000 <= particles <= 1e10 and particles == int(particles)):
        raise ValueError(f"--particles is {particles:g}; give a whole number from 1000 to 1e10, such as 1e6.")
    return int(particles)


def _shared(world: Any, backend: str) -> str | None:
    """Return a sentence where ranks share what they compute with; efficiencies then say nothing about links."""
    from particlemesh.backends.cpu import available_threads

    if backend == "cpu":
        cores = available_threads()
        return f"up to {plural(world.size, 'rank')} share {plural(cores, 'core')}: a rank has fewer as ranks increase"
    import cupy

    places = world.allgather(cupy.cuda.Device().pci_bus_id)
    return None if len(set(places)) == len(places) else "several ranks share a GPU"


def _picture(console: Console, out: Path, size: int, rows: list[ranks.Timing]) -> None:
    if find_spec("matplotlib") is None:
        console.print("picture: none, matplotlib is missing: pip install matplotlib")
        return
    from particlemesh.command.ranks_figure import decomposition

    out.parent.mkdir(parents=True, exist_ok=True)
    decomposition(out, size, rows)
    console.print(f"picture: {escape(str(out))}", soft_wrap=True)
