# SPDX-License-Identifier: BSD-3-Clause
"""The command ``particlemesh``: ``info``, ``demo``, ``tune`` and ``cite``.

What a command needs is imported when it runs, so that ``--help`` and completion touch no GPU.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Move values between particles and a regular mesh, and find neighbours, on GPUs and CPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)

WIDTH = 80  # of every table: what a terminal has at least, and what fits a bug report
WINDOWS = ("cic", "m4prime", "bspline4", "bspline6")
NODES = 48  # along each axis of the demo's mesh, 0.07 nm for the water: the usual 0.1 nm and some
SIZES = (16, 24, 32, 48, 64, 96)  # of the picture


def _console() -> Any:
    from rich.console import Console

    return Console(width=WIDTH, highlight=False)


def _version(wanted: bool) -> None:
    if wanted:
        import particlemesh as pm

        typer.echo(pm.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Move values between particles and a regular mesh, and find neighbours, on GPUs and CPUs."""


@app.command()
def info() -> None:
    """Tell what works on this machine, and test it."""
    from particlemesh.command import report

    raise typer.Exit(0 if report.info(_console()) else 1)


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Argument(help="An .npz with positions (N, 3), charges (N,) and box, in nm and e.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the picture goes; needs matplotlib.")] = Path("out/demo.png"),
    nodes: Annotated[int, typer.Option(min=8, max=1024, help="Nodes along each axis of the tests' mesh.")] = NODES,
    sizes: Annotated[str, typer.Option(help="Nodes along each axis of the picture's meshes.")] = ",".join(
        map(str, SIZES)
    ),
) -> None:
    """Try every method on a box of salt water.

    Spreads its charges and interpolates them back by every method on every backend that works here, compares
    the results, and draws the charge density and the error of the electrostatic potential.
    """
    from particlemesh.command import report

    console = _console()
    try:
        system = report.system(file)
        edges = _sizes(sizes)
    except ValueError as wrong:
        console.print(f"particlemesh demo: {wrong}", style="red", markup=False)
        raise typer.Exit(2) from None
    raise typer.Exit(0 if report.demo(console, system, WINDOWS, nodes, edges, out) else 1)


@app.command()
def tune(
    backend: Annotated[
        str | None,
        typer.Option(help="cuda, opencl or cpu; by default the first of them that works.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less than a minute, and fewer problems.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Only print what is known of the devices here.")] = False,
) -> None:
    """Measure what methods take on this machine, once, so that the right one is chosen.

    Takes at most four minutes and writes a small file to your cache folder, which plans then read.
    """
    from particlemesh.command import report

    console = _console()
    try:
        report.timings(console, backend) if show else report.tune(console, backend, quick)
    except ValueError as wrong:
        console.print(f"particlemesh tune: {wrong}", style="red", markup=False)
        raise typer.Exit(2) from None


@app.command()
def cite(
    method: Annotated[str | None, typer.Option(help="Only the papers of this method, builder or window.")] = None,
) -> None:
    """Print the papers behind methods, builders and windows, as BibTeX."""
    uses = _uses()
    if method is not None:
        known = sorted({name for whose in uses.values() for name, _ in whose})
        names = {method, _family(_own_name(method))}  # bspline6 is one of bspline, and so is cic
        uses = {key: [(n, why) for n, why in whose if n in names] for key, whose in uses.items()}
        if not any(uses.values()):
            said = f"particlemesh cite: {method!r} has no paper; these do: {', '.join(known)}."
            _console().print(said, style="red", markup=False)
            raise typer.Exit(2)
    entries = bibliography()
    for key, whose in uses.items():
        for name, why in whose:
            typer.echo(f"% {name}: {why}")
        if whose:
            typer.echo(f"{entries[key]}\n")


def _sizes(text: str) -> tuple[int, ...]:
    """Return numbers of nodes from ``16,24,32``."""
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and 8 <= int(word) <= 1024 for word in words):
        raise ValueError(f"--sizes is {text!r}; give whole numbers of 8 to 1024, such as 16,32,64.")
    return tuple(sorted({int(word) for word in words}))


def bibliography() -> dict[str, str]:
    """Return the entries of reference.bib by their keys."""
    text = (files("particlemesh") / "reference.bib").read_text(encoding="utf-8")
    return {found[1]: found[0] for found in re.finditer(r"^@\w+\{(\w+),.*?^\}$", text, re.DOTALL | re.MULTILINE)}


def _uses() -> dict[str, list[tuple[str, str]]]:
    """Return bibliography keys, each with the names that cite it and why."""
    from particlemesh.choosing.choice import METHODS
    from particlemesh.grid.builders import METHODS as BUILDERS
    from particlemesh.window import WINDOWS as NAMED

    uses: dict[str, list[tuple[str, str]]] = {}
    listed: tuple[Any, ...] = (*METHODS.values(), BUILDERS)
    for methods in listed:
        for method in methods:
            entry = (method.name, summary(method))
            if method.cite and entry not in uses.setdefault(method.cite, []):
                uses[method.cite].append(entry)
    for make in NAMED.values():
        window = make()
        why = summary(getattr(make, "func", make)).removeprefix("Return ")
        entry = (_family(window.name), f"window, {why}")
        if window.cite and entry not in uses.setdefault(window.cite, []):
            uses[window.cite].append(entry)
    return uses


def _own_name(name: str) -> str:
    """Return what a window calls itself, bspline2 for cic; other names as they are."""
    from particlemesh.window import WINDOWS as NAMED

    return NAMED[name]().name if name in NAMED else name


def _family(name: str) -> str:
    """Return the common name of windows that differ by their order: bspline of bspline6."""
    from particlemesh.window import WINDOWS as NAMED

    stem = re.sub(r"\d+$", "", name)
    return stem if sum(re.fullmatch(rf"{re.escape(stem)}\d+", other) is not None for other in NAMED) > 1 else name


def summary(thing: Any) -> str:
    """Return the first sentence of a docstring on one line, without its references."""
    first = (thing.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    return re.sub(r" \[\w+\]_", "", first).replace("`", "")
