# SPDX-License-Identifier: BSD-3-Clause
"""The command ``particlemesh``: ``info``, ``demo``, ``tune``, ``warm``, applications, commands on files, and ``cite``.

Commands import their modules when they run, so that ``--help`` loads no GPU library.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from particlemesh.apps.files import bonds, endings, fields, particles, tables, trajectory
from particlemesh.apps.files.libraries import listing
from particlemesh.apps.files.particles import CHUNK
from particlemesh.backends import starting
from particlemesh.command import consoles

starting.begun()
app = typer.Typer(
    help="Move values between particles and a regular mesh, and find neighbours, on GPUs and CPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)

WIDTH = consoles.WIDTH
TRAJECTORIES, PARTICLES, WRITTEN, READ, ROWS, BONDED = (
    endings(formats, notes=True, last=" or ")
    for formats in (trajectory.FORMATS, particles.FORMATS, fields.FORMATS, fields.READ, tables.FORMATS, bonds.BONDED)
)


def _version(requested: bool) -> None:
    if requested:
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


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, show_default=False, **more)


Picture = Annotated[Path, typer.Option(help="Picture; needs matplotlib.")]
Backend = Annotated[str, typer.Option(help="cpu, cuda or opencl.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Checkpoint = Annotated[
    Path, typer.Option(help="Written at the end and after Ctrl-C; by default the file of --restart, if given.")
]
Often = Annotated[int, typer.Option(min=0, help="Also write the checkpoint every so many steps; 0: never.")]
Replace = Annotated[bool, typer.Option("--overwrite", help="Replace the checkpoint of another run.")]
Restart = Annotated[Path | None, _option("Continue from this checkpoint, by --steps further steps.")]


@app.command()
def info(
    everything: Annotated[bool, typer.Option("--all", help="Test all methods, without a time limit.")] = False,
) -> None:
    """List the backends of this machine and test their methods.

    Each result is printed when its test ends. Methods that plans select by default come first. A method is compiled at
    its first use. Without --all, no test is started after 8 s.
    """
    from particlemesh.command.info import info

    raise typer.Exit(0 if info(consoles.console(), everything) else 1)


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Particle file, such as .npz, with positions, charges and box, in nm and e.", show_default=False
        ),
    ] = None,
    out: Picture = Path("out/demo.png"),
    nodes: Annotated[int, typer.Option(min=8, max=1024, help="Nodes per axis for the comparison.")] = 48,
    sizes: Annotated[str, typer.Option(help="Nodes per axis for the picture.")] = "16,24,32,48,64,96",
) -> None:
    """Run every method on a box of salt water.

    Spread its charges and interpolate the field by every method on every available backend, and compare the
    results. Draw the charge density and the error of the electrostatic potential.
    """
    from particlemesh.command import demo

    with consoles.alone("demo") as console:
        system = demo.system(file)
        edges = _sizes(sizes)
        consoles.check_outputs((file,), {"--out": out})
        consoles.check_ending(out, ".png")
    raise typer.Exit(0 if demo.demo(console, system, nodes, edges, out) else 1)


@app.command()
def tune(
    backend: Annotated[str | None, _option("cuda, opencl or cpu; by default the first available one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer problems, in less than a minute.")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Measure only methods whose code has changed; keep the other times.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only print the stored times of this machine.")] = False,
) -> None:
    """Measure the methods on this machine for the automatic choice.

    Run it once. It takes at most four minutes, and writes times to a file in your cache folder. Plans read this file.
    If you interrupt the command, it writes the times measured so far.
    """
    from particlemesh.command import tune

    with consoles.alone("tune") as console:
        stated = {name for name, value in (("quick", quick), ("changed", changed)) if value}
        consoles.refuse_idle(stated, "quick changed", not show, "--show only prints")
        tune.show(console, backend) if show else tune.report(console, backend, quick, changed)


@app.command()
def warm() -> None:
    """Compile once what common calls on the CPU need.

    Later programs then start without a wait. The command calls plans of five windows, grids, neighbour lists, solvers,
    power spectra, NUFFT and PME once in each dimension and precision, in several processes. Code for GPUs is compiled
    at its first use, in a second or two.
    """
    from particlemesh.command import warm

    with consoles.alone("warm") as console:
        warm.warm(console)


@app.command()
def brownian(
    context: typer.Context,
    count: Annotated[int, typer.Option(min=2, max=10**7, help="Number of spheres.")] = 500,
    fraction: Annotated[float, typer.Option(help="Volume fraction, at most 0.4.")] = 0.15,
    steps: Annotated[int, typer.Option(min=1, max=10**7, help="Time steps.")] = 250,
    time_step: Annotated[
        float, typer.Option(help="In a²/D: squared radius / diffusion coefficient of a single sphere.")
    ] = 0.002,
    mobility: Annotated[
        str, typer.Option(help="rpy (Rotne-Prager-Yamakawa), or drag: no hydrodynamic interactions.")
    ] = "rpy",
    integrator: Annotated[str, typer.Option(help="euler or midpoint.")] = "euler",
    accuracy: Annotated[float, typer.Option(help="Relative error of the mobility.")] = 1e-3,
    shear_rate: Annotated[float, typer.Option(help="Shear rate of a flow along x that grows with y, in D/a².")] = 0.0,
    seed: Seed = 1,
    backend: Backend = "cpu",
    checkpoint: Checkpoint = Path("out/brownian.h5"),
    checkpoint_every: Often = 0,
    restart: Restart = None,
    overwrite: Replace = False,
    out: Picture = Path("out/brownian.png"),
) -> None:
    """Simulate spheres that diffuse in a fluid.

    Run Brownian dynamics of a suspension of soft spheres, compare their mean square displacement with its
    short-time limit, and draw the spheres. In shear, displacements across the flow are compared. Ctrl-C ends
    the run and writes a checkpoint.
    """
    from particlemesh.command import brownian

    options, given = consoles.given(context, locals())
    with consoles.alone("brownian") as console:
        brownian.run(console, options, given)


@app.command()
def dem(
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, max=10**9, help="Number of spheres.")] = 8000,
    shape: Annotated[str, typer.Option(help="Initial state: column, which collapses, or rain.")] = "column",
    radius: Annotated[float, typer.Option(help="Mean radius in m.")] = 0.005,
    polydispersity: Annotated[float, typer.Option(help="Largest relative deviation of radii, below 0.9.")] = 0.0,
    contact: Annotated[str, typer.Option(help="Contact law: hertz or spring.")] = "hertz",
    young: Annotated[float, typer.Option(help="Young's modulus in Pa, for hertz.")] = 5e6,
    stiffness: Annotated[float, typer.Option(help="Spring constant in N/m, for spring.")] = 5e3,
    restitution: Annotated[float, typer.Option(help="Coefficient of restitution, 0 to 1.")] = 0.7,
    friction: Annotated[float, typer.Option(help="Coulomb's friction coefficient.")] = 0.1,
    density: Annotated[float, typer.Option(help="Mass density in kg/m³.")] = 2500.0,
    gravity: Annotated[float, typer.Option(help="Acceleration in m/s², downwards.")] = 9.81,
    steps: Annotated[int | None, _option("Time steps; by default 4 free-fall times.", min=1, max=10**12)] = None,
    time_step: Annotated[
        float | None, _option("In s; by default 0.1 of the critical step (hertz), or 1/63 of a contact (spring).")
    ] = None,
    seed: Seed = 1,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Bitwise reproducible results.")] = False,
    method: Annotated[str, typer.Option(help="Builder of the grid of cells, by name.")] = "auto",
    backend: Annotated[str | None, _option("cpu, cuda or opencl; by default cpu.")] = None,
    trajectory: Annotated[Path | None, _option(f"Trajectory: {TRAJECTORIES}.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between frames of the trajectory.")] = 100,
    checkpoint: Checkpoint = Path("out/dem.h5"),
    checkpoint_every: Often = 0,
    restart: Restart = None,
    overwrite: Replace = False,
    out: Annotated[Path, typer.Option(help="Picture: a series .png, or an animation .gif.")] = Path("out/dem.png"),
) -> None:
    """Simulate spheres that fall, collide and settle.

    Run a granular simulation by the discrete element method, in SI units. Print energy, contacts and speed,
    write checkpoints and a trajectory, and draw the spheres. Ctrl-C ends the run and writes a checkpoint.
    """
    from particlemesh.command import dem

    options, given = consoles.given(context, locals())
    with consoles.alone("dem") as console:
        dem.run(console, *dem.prepare(options, given), options)


@app.command()
def distributed(
    particles: Annotated[float, typer.Option(help="Particles per rank, such as 1e6.")] = 1e5,
    nodes: Annotated[int, typer.Option(min=8, max=1024, help="Nodes per axis of each rank's block.")] = 32,
    backend: Annotated[str, typer.Option(help="cpu, or cuda with one GPU per rank.")] = "cpu",
    transport: Annotated[str, typer.Option(help="How arrays of GPUs travel: auto, host, mpi or nccl.")] = "auto",
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Timed calls; their median is printed.")] = 5,
    out: Picture = Path("out/distributed.png"),
) -> None:
    """Test and time the ranks of this run.

    Start it by mpiexec -n 4 particlemesh distributed. Compare the results of all ranks with those of one rank, time
    1, 2, 4, ... of the ranks, and draw how they share a mesh.
    """
    from particlemesh.command import distributed

    options: Any = dict(particles=particles, nodes=nodes, backend=backend, transport=transport, repeats=repeats)
    with consoles.reporting("distributed") as console:
        passed = distributed.report(console, out, **options)
    raise typer.Exit(0 if passed else 1)


# ---- on files ---------------------------------------------------------------------------------------------

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
Where = Annotated[str | None, _option("cpu, cuda or opencl; by default cpu.")]
Method = Annotated[str, typer.Option(help="Method, by name; auto: the least predicted time.")]
Outside = Annotated[str, typer.Option(help="Particles beyond open faces: error, or lose (weight 0).")]
Chunk = Annotated[int, typer.Option(min=1, max=10**9, help="Largest number of particles in memory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Drawn = Annotated[Path | None, _option("Picture: .png, .pdf, .svg or .jpg.", "--picture")]
Kind = Annotated[str, typer.Option(help="Kind of picture in 3-D: projection, slice or isosurface.")]
Axis = Annotated[str, typer.Option(help="Axis of the projection, or normal to the slice: x, y, z; triclinic: a, b, c.")]
At = Annotated[float | None, _option("Position of the slice; by default the middle.")]
Level = Annotated[
    float | None, _option("Value on the isosurface; by default it encloses half of the sum of all magnitudes.")
]
Scale = Annotated[str, typer.Option(help="Colour scale: linear or log.")]


def _run(command: str, context: typer.Context, names: dict[str, Any]) -> None:
    """Do the work of a command on files, which has its name in `file_work`."""
    options, stated = consoles.given(context, names)
    with consoles.reporting(command) as console:
        from particlemesh.command import file_work

        work = getattr(file_work, command)
        with consoles.over_ranks(console, command in file_work.OVER_RANKS) as world:
            work(console, stated, SimpleNamespace(**options), **({} if world is None else {"world": world}))


@app.command()
@listing(PARTS=particles.IN_PARTS)
def spread(
    context: typer.Context, file: File,
    out: Annotated[Path, typer.Option(help=f"Field: {WRITTEN}.")] = Path("out/field.npz"),
    positions: Positions = None, values: Values = None, topology: Topology = None, frames: Frames = "-1",
    box: Cell = None, origin: Origin = None, periodic: Periodic = None, shape: Shape = None, spacing: Spacing = None,
    offset: Offset = 0.0, window: Name = "bspline4", order: Order = None,
    density: Annotated[bool, typer.Option("--density", help="Divide by the volume per node.")] = False,
    dtype: Real = None, backend: Where = None, method: Method = "auto",
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
    dtype: Real = None, backend: Where = None, method: Method = "auto", outside: Outside = "error",
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
    out: Annotated[Path | None, _option(f"Table: {ROWS}. Bonds: {BONDED}. By default only the summary.")] = None,
    positions: Positions = None, topology: Topology = None, frames: Frame = "-1", box: Cell = None,
    origin: Origin = None, periodic: Periodic = None,
    quantities: Annotated[str, typer.Option(help="Columns: i, j, d (distance), D (vector), S (shift).")] = "ijd",
    half: Annotated[bool, typer.Option("--half", help="List each pair once.")] = False,
    backend: Where = None, chunk: Chunk = CHUNK, overwrite: Overwrite = False,
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
    out: Annotated[Path | None, _option(f"Table: {ROWS}; by default all bins are printed.")] = None,
    of_field: Annotated[bool, typer.Option("--field", help=f"FILE is a field: {READ}.")] = False,
    positions: Positions = None, values: Values = None, topology: Topology = None, frames: Frame = "-1",
    box: Cell = None, origin: Origin = None, shape: Shape = None, spacing: Spacing = None, window: Name = "pcs",
    order: Order = None,
    interlaced: Annotated[bool, typer.Option(help="Average over two shifted meshes, which reduces aliasing.")] = True,
    compensation: Annotated[
        str, typer.Option(help="window or aliases; with --field it needs the --window of spreading.")
    ] = "window",
    other: Annotated[Path | None, _option("Second file, for the cross spectrum, with the same columns.")] = None,
    other_values: Annotated[str | None, _option("Values of --other; by default as --values.")] = None,
    multipoles: Annotated[str | None, _option("Even orders of multipoles, such as 0,2,4.")] = None,
    line_of_sight: Annotated[str | None, _option("For --multipoles: x, or 0,1,1; by default the last axis.")] = None,
    dtype: Real = None, backend: Where = None, method: Method = "auto", chunk: Chunk = CHUNK, picture: Drawn = None,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Compute the power spectrum of particles or of a field.

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
    with consoles.alone("view") as console:
        from particlemesh.command import view

        view.run(console, file, out, level)


# ---- papers -----------------------------------------------------------------------------------------------


@app.command()
def cite(method: Annotated[str | None, _option("Only the papers of this method, builder or window.")] = None) -> None:
    """Print the papers of methods, builders and windows as BibTeX."""
    uses = _uses()
    if method is not None:
        known = sorted({name for users in uses.values() for name, _ in users})
        names = {method, _family(_window_name(method))}  # bspline6 and cic belong to bspline
        uses = {key: [(n, text) for n, text in users if n in names] for key, users in uses.items()}
        if not any(uses.values()):
            consoles.complain("cite", f"{method!r} has no paper; choose from {', '.join(known)}.")
            raise typer.Exit(2)
    entries = bibliography()
    for key, users in uses.items():
        for name, text in users:
            typer.echo(f"% {name}: {text}")
        if users:
            typer.echo(f"{entries[key]}\n")


def _sizes(text: str) -> tuple[int, ...]:
    """Return numbers of nodes from ``16,24,32``."""
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and 8 <= int(word) <= 1024 for word in words):
        raise ValueError(f"--sizes is {text!r}; give whole numbers of 8 to 1024, such as 16,32,64.")
    return tuple(sorted({int(word) for word in words}))


def bibliography() -> dict[str, str]:
    """Return the entries of reference.bib by key."""
    text = (files("particlemesh") / "reference.bib").read_text(encoding="utf-8")
    return {entry[1]: entry[0] for entry in re.finditer(r"^@\w+\{(\w+),.*?^\}$", text, re.DOTALL | re.MULTILINE)}


def _uses() -> dict[str, list[tuple[str, str]]]:
    """Return bibliography keys, each with the names and summaries of its users."""
    from particlemesh.choosing.choice import METHODS
    from particlemesh.grid.builders import METHODS as BUILDERS
    from particlemesh.window import WINDOWS as NAMED

    methods: Iterable[Any] = itertools.chain(*METHODS.values(), BUILDERS)
    users = [(method.cite, method.name, summary(method)) for method in methods]
    for make in NAMED.values():
        window, text = make(), summary(getattr(make, "func", make)).removeprefix("Return ")
        users.append((window.cite, _family(window.name), f"window, {text}"))
    uses: dict[str, list[tuple[str, str]]] = {}
    for key, name, text in dict.fromkeys(users):  # each once
        if key:
            uses.setdefault(key, []).append((name, text))
    return uses


def _window_name(name: str) -> str:
    """Return the name of a window, bspline2 for cic; return other names unchanged."""
    from particlemesh.window import WINDOWS as NAMED

    return NAMED[name]().name if name in NAMED else name


def _family(name: str) -> str:
    """Return the common name of windows that differ by their order: bspline for bspline6."""
    from particlemesh.window import WINDOWS as NAMED

    stem = re.sub(r"\d+$", "", name)
    return stem if sum(re.fullmatch(rf"{re.escape(stem)}\d+", other) is not None for other in NAMED) > 1 else name


def summary(documented: Any) -> str:
    """Return the first sentence of a docstring on one line, without its references."""
    first = (documented.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    return re.sub(r" \[\w+\]_", "", first).replace("`", "")
