# SPDX-License-Identifier: BSD-3-Clause
"""The output of ``particlemesh brownian``: one table of 80 columns, and a picture."""

from __future__ import annotations

import math
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from particlemesh import backends
from particlemesh.command import brownian
from particlemesh.command.report import _bar, _table

ROWS = 8


def suspend(console: Console, out: Path, backend: str, **options: Any) -> None:
    """Run a suspension, print what it did, and draw it.

    Raises
    ------
    ValueError
        If an option is not allowed, or the backend is not available.
    """
    _check(backend, options)
    count, fraction, steps, mobility = (options[name] for name in ("count", "fraction", "steps", "mobility"))
    interactions = f"{'with' if mobility == 'rpy' else 'without'} hydrodynamic interactions"
    title = f"{count:,} spheres, volume fraction {fraction:g}, {interactions}"
    console.print(title)
    began = time.perf_counter()
    with _bar(console) as bar:
        task = bar.add_task("melting a lattice", total=steps)

        def progress() -> None:
            bar.update(task, description="Brownian dynamics", advance=1)

        spheres = brownian.run(backend=backend, progress=progress, **options)
    seconds = time.perf_counter() - began
    console.print(f"box edge {spheres.edge:.4g} a, {steps} steps of {options['time_step']:g} a²/D, {seconds:.1f} s\n")
    table = _table(">time", ">mean square displacement", ">law", ">measured / law", ">error")
    law = 6 * spheres.law * spheres.times
    last = len(spheres.times) - 1
    for k in sorted({round(n * last / (ROWS - 1)) for n in range(ROWS)}):
        cells = spheres.times[k], spheres.squared[k], law[k]
        ratio, error = spheres.squared[k] / law[k], spheres.errors[k] / law[k]
        table.add_row(*(f"{x:.4g}" for x in cells), f"{ratio:.4f}", f"{error:.4f}")
    console.print(table)
    console.print(
        f"law: 6 x {spheres.law:.5f} D t, exact for short times and time steps; repulsion and\n"
        "hydrodynamic interactions slow the spheres later. a: radius, D: diffusion\n"
        "coefficient of one sphere alone\n",
        style="dim",
    )
    if find_spec("matplotlib") is None:
        console.print("picture: none, matplotlib is missing: pip install 'particlemesh\\[plot]'")
        return
    from particlemesh.command.brownian_figure import suspension

    out.parent.mkdir(parents=True, exist_ok=True)
    suspension(out, spheres, title, mobility)
    console.print(f"picture: {escape(str(out))}", soft_wrap=True)


def _check(backend: str, options: dict[str, Any]) -> None:
    if not 0 < options["fraction"] <= brownian.DENSEST:
        raise ValueError(f"--fraction is {options['fraction']:g}; give a number above 0, up to {brownian.DENSEST:g}.")
    for name in ("time_step", "accuracy"):
        if not (0 < options[name] < math.inf):
            raise ValueError(f"--{name.replace('_', '-')} is {options[name]:g}; give a positive number.")
    choices = {"mobility": brownian.MOBILITIES, "integrator": ("euler", "midpoint")}
    for name, allowed in choices.items():
        if options[name] not in allowed:
            raise ValueError(f"--{name} is {options[name]!r}; give {' or '.join(allowed)}.")
    if backend not in backends.NAMES:
        raise ValueError(f"--backend is {backend!r}; give one of {', '.join(backends.NAMES)}.")
    reason = backends.module(backend).available()
    if reason is not None:
        raise ValueError(f"{backend} is not available: {reason}.")
