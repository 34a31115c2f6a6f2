# SPDX-License-Identifier: BSD-3-Clause
"""The output of ``particlemesh brownian``: one table of 80 columns, and a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape

from particlemesh import backends
from particlemesh.apps.progress import bar
from particlemesh.command import brownian
from particlemesh.command.brownian import Trace
from particlemesh.command.consoles import check_picture, refuse_idle
from particlemesh.command.going_on import Saving, Stopped, checkpoint_of, stoppable
from particlemesh.command.report import _table

ROWS = 8


def suspend(console: Console, options: Mapping[str, Any], given: set[str]) -> None:
    """Run a suspension, print what it did, and draw it.

    Parameters
    ----------
    console : Console
    options : mapping
        Those of the command by name.
    given : set of str
        Names of those that do not have their default.

    Raises
    ------
    Stopped
        After Ctrl-C, once the checkpoint is written.
    ValueError, ImportError
        If an option is not allowed, or the backend is not available.
    """
    _check(options["backend"], options)
    checkpoint, steps = checkpoint_of(options, given, brownian.STORED), options["steps"]
    refuse_idle(given, "accuracy", options["mobility"] == "rpy", "--mobility drag is exact")
    began = time.perf_counter()
    if options["restart"] is None:
        with bar("melting a lattice", None, console):
            try:
                motion = brownian.simulation(options)
            except KeyboardInterrupt:
                raise Stopped("interrupted before the first step; there is nothing to go on from") from None
    else:
        motion = brownian.loaded(options["restart"])
    saving, trace, last = Saving(motion, checkpoint, options["checkpoint_every"]), Trace(motion), motion.step + steps
    title = _title(motion)
    console.print(title)
    with stoppable("brownian", saving, last) as interrupted, bar("Brownian dynamics", steps, console) as advance:
        while motion.step < last and not interrupted():
            motion.run(1)
            trace.take()
            advance()
            saving.due()
    spheres, seconds = trace.suspension(), time.perf_counter() - began
    console.print(f"box edge {spheres.edge:.4g} a, {steps} steps of {motion.time_step:g} a²/D, {seconds:.1f} s\n")
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
    if checkpoint is not None:
        console.print(f"checkpoint: {escape(str(checkpoint))}", soft_wrap=True)
    if find_spec("matplotlib") is None:
        console.print("picture: none, matplotlib is missing: pip install matplotlib")
        return
    from particlemesh.command.brownian_figure import suspension

    out = options["out"]
    out.parent.mkdir(parents=True, exist_ok=True)
    suspension(out, spheres, title, brownian.mobility_of(motion))
    console.print(f"picture: {escape(str(out))}", soft_wrap=True)


def _title(motion: Any) -> str:
    """Return what a simulation is, in one line."""
    count = len(motion.positions)
    fraction = count * 4 * math.pi / 3 / motion.box.volume
    interactions = "with" if brownian.mobility_of(motion) == "rpy" else "without"
    return f"{count:,} spheres, volume fraction {fraction:.3g}, {interactions} hydrodynamic interactions"


def _check(backend: str, options: Mapping[str, Any]) -> None:
    if not 0 < options["fraction"] <= brownian.DENSEST:
        raise ValueError(f"--fraction is {options['fraction']:g}; give a number above 0, up to {brownian.DENSEST:g}.")
    for name in ("time_step", "accuracy"):
        if not (0 < options[name] < math.inf):
            raise ValueError(f"--{name.replace('_', '-')} is {options[name]:g}; give a positive number.")
    choices = {"mobility": brownian.MOBILITIES, "integrator": ("euler", "midpoint")}
    for name, allowed in choices.items():
        if options[name] not in allowed:
            raise ValueError(f"--{name} is {options[name]!r}; give {' or '.join(allowed)}.")
    check_picture(options["out"], ".png")
    if backend not in backends.NAMES:
        raise ValueError(f"--backend is {backend!r}; give one of {', '.join(backends.NAMES)}.")
    reason = backends.module(backend).available()
    if reason is not None:
        raise ValueError(f"{backend} is not available: {reason}.")
