# SPDX-License-Identifier: BSD-3-Clause
"""The commands on files: ``spread``, ``interpolate``, ``neighbours`` and ``spectrum``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from particlemesh.apps.files import endings, fields, particles, tables
from particlemesh.apps.files.libraries import listing
from particlemesh.apps.files.particles import CHUNK
from particlemesh.command.consoles import given, reporting

app = typer.Typer(rich_markup_mode=None)
PARTICLES, WRITTEN, READ, ROWS = (
    endings(formats, notes=True, last=" or ")
    for formats in (particles.FORMATS, fields.FORMATS, fields.READ, tables.FORMATS)
)


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, show_default=False, **more)


File = Annotated[Path, typer.Argument(help=f"Particles: {PARTICLES}.")]
Positions = Annotated[str | None, _option("Column, or columns as x,y,z; by default those with the usual names.")]
Values = Annotated[str | None, _option("Column, product a*b, columns as a,b, or a number; 1 by default.")]
Topology = Annotated[Path | None, _option("Topology file, with charges and masses, of a trajectory of molecules.")]
Frames = Annotated[str, typer.Option(help="Frame number, slice such as 10:20:2, or all; -1: the last.")]
Frame = Annotated[str, typer.Option("--frames", help="Frame number; -1: the last.")]
Cell = Annotated[
    str | None,
    _option("Lengths, lengths and angles, lattice vectors, or fit (bounds of the particles); by default the file's."),
]
Origin = Annotated[str | None, _option("Origin of the box: its lower corner.")]
Periodic = Annotated[str | None, _option("Periodic axes, such as xy, or none; by default those of the file, or all.")]
Shape = Annotated[str | None, _option("Nodes per axis: 64 or 64,64,32.")]
Spacing = Annotated[str | None, _option("Largest mesh spacing, instead of --shape.")]
Offset = Annotated[float, typer.Option(help="Position of node 0 in mesh spacings; 0 or 0.5 on open axes.")]
Name = Annotated[str, typer.Option(help="Name, such as pcs or bspline6, or a family with --order.")]
Order = Annotated[int | None, _option("Order of the window's family.")]
Real = Annotated[str | None, _option("float32 or float64; by default that of the positions.")]
Backend = Annotated[str | None, _option("cpu, cuda or opencl.")]
Method = Annotated[str, typer.Option(help="Method, by name; auto: the least predicted time.")]
Outside = Annotated[str, typer.Option(help="Particles beyond open faces: error, or lose (weight 0).")]
Chunk = Annotated[int, typer.Option(min=1, max=10**9, help="Largest number of particles in memory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Drawn = Annotated[Path | None, _option("Picture: .png, .pdf, .svg or .jpg.", "--picture")]
Kind = Annotated[str, typer.Option(help="Kind of picture in 3-D: projection, slice or isosurface.")]
Axis = Annotated[str, typer.Option(help="Axis of the projection, or normal to the slice: x, y, z; triclinic: a, b, c.")]
At = Annotated[float | None, _option("Position of the slice; by default the middle.")]
Level = Annotated[float | None, _option("Value on the isosurface; by default half of the field is beyond it.")]
Scale = Annotated[str, typer.Option(help="Colour scale: linear or log.")]


def _run(command: str, context: typer.Context, names: dict[str, Any]) -> None:
    """Do the work of a command on files, which has its name in `file_work`."""
    options, stated = given(context, names)
    with reporting(command) as console:
        from particlemesh.command import file_work

        getattr(file_work, command)(console, stated, SimpleNamespace(**options))


@app.command()
@listing(PARTS=particles.IN_PARTS)
def spread(
    context: typer.Context, file: File,
    out: Annotated[Path, typer.Option(help=f"Field: {WRITTEN}.")] = Path("out/field.npz"),
    positions: Positions = None, values: Values = None, topology: Topology = None, frames: Frames = "-1",
    box: Cell = None, origin: Origin = None, periodic: Periodic = None, shape: Shape = None, spacing: Spacing = None,
    offset: Offset = 0.0, window: Name = "bspline4", order: Order = None,
    density: Annotated[bool, typer.Option("--density", help="Divide by the volume per node.")] = False,
    dtype: Real = None, backend: Backend = None, method: Method = "auto",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Reproducible methods only.")] = False,
    outside: Outside = "error", chunk: Chunk = CHUNK, picture: Drawn = None, kind: Kind = "projection",
    axis: Axis = "z", at: At = None, level: Level = None, scale: Scale = "linear", overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Spread the particles of a file onto a mesh.

    Write the field, and print the method, the sums of values and field, and the rate. Several frames are averaged.
    Files PARTS may be larger than the memory.
    """
    _run("spread", context, locals())


@app.command()
def interpolate(
    context: typer.Context, file: File,
    field: Annotated[Path, typer.Option(help=f"Field: {READ}.")],
    out: Annotated[Path, typer.Option(help=f"Table: {ROWS}.")] = Path("out/values.npz"),
    positions: Positions = None, topology: Topology = None, frames: Frame = "-1",
    window: Name = "bspline4", order: Order = None,
    gradient: Annotated[bool, typer.Option("--gradient", help="Also write the gradient.")] = False,
    dtype: Real = None, backend: Backend = None, method: Method = "auto", outside: Outside = "error",
    chunk: Chunk = CHUNK, overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Interpolate a field at the particles of a file.

    The mesh and the box are those of the field. Write positions, values and gradients.
    """
    _run("interpolate", context, locals())


@app.command()
@listing(PARTS=particles.IN_PARTS)
def neighbours(
    context: typer.Context, file: File,
    radius: Annotated[float, typer.Option(help="Largest distance of a pair.")],
    out: Annotated[Path | None, _option(f"Table: {ROWS}; by default only the summary.")] = None,
    positions: Positions = None, topology: Topology = None, frames: Frame = "-1", box: Cell = None,
    origin: Origin = None, periodic: Periodic = None,
    quantities: Annotated[str, typer.Option(help="Columns: i, j, d (distance), D (vector), S (shift).")] = "ijd",
    half: Annotated[bool, typer.Option("--half", help="List each pair once.")] = False,
    backend: Backend = None, chunk: Chunk = CHUNK, overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """List the pairs of particles within a radius.

    Print the numbers of neighbours and the distances, and write the pairs. Files PARTS may be
    larger than the memory: more particles than --chunk are searched in slabs. The pairs of a slab must fit into memory.
    """
    _run("neighbours", context, locals())


@app.command()
@listing(PARTS=particles.IN_PARTS)
def spectrum(
    context: typer.Context, file: File,
    out: Annotated[Path | None, _option(f"Table: {ROWS}; by default only the summary.")] = None,
    of_field: Annotated[bool, typer.Option("--field", help=f"FILE is a field: {READ}.")] = False,
    positions: Positions = None, values: Values = None, topology: Topology = None, frames: Frame = "-1",
    box: Cell = None, origin: Origin = None, shape: Shape = None, spacing: Spacing = None, window: Name = "pcs",
    order: Order = None,
    interlaced: Annotated[bool, typer.Option(help="Average over two shifted meshes, which reduces aliasing.")] = True,
    compensation: Annotated[
        str, typer.Option(help="window or aliases; with --field it needs the --window of spreading.")
    ] = "window",
    dtype: Real = None, backend: Backend = None, method: Method = "auto", chunk: Chunk = CHUNK, picture: Drawn = None,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Compute the power spectrum of the particles of a file, or of a field.

    The box is periodic along all axes. Files PARTS may be larger than the memory.
    """
    _run("spectrum", context, locals())


@app.command()
def view(
    file: Annotated[Path, typer.Argument(help=f"Field: {WRITTEN}.")],
    out: Annotated[Path | None, _option("Page .html instead of a window; without a display, out/view.html.")] = None,
    level: Level = None,
) -> None:
    """Show a field in a window that you can turn, or on a page.

    Needs PyVista: pip install 'particlemesh[view]'. It shows magnitudes of complex values, and the first of several
    components.
    """
    with reporting("view") as console:
        from particlemesh.command import view

        view.run(console, file, out, level)
