# SPDX-License-Identifier: BSD-3-Clause
"""What commands share: consoles, tables and labelled lines, errors, checks of options and of names of outputs."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.replacing import FULL
from particlemesh.apps.interrupts import deferred

WIDTH, LABEL = 80, 12  # columns of every table, and of the labels of lines


def console(*, stderr: bool = False) -> Any:
    """Return a console of `WIDTH` columns; rich is loaded here."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False, stderr=stderr)


def complain(command: str, what: Any, style: str = "red") -> None:
    """Print an error or a warning of a command as one line on standard error."""
    text = " ".join(str(what).split()) or "there is not enough memory."  # what a MemoryError does not say
    console(stderr=True).print(f"particlemesh {command}: {text}", style=style, markup=False, soft_wrap=True)


class Stopped(Exception):  # noqa: N818 - a wish of the user
    """Ctrl-C has ended the run; the message says how to continue."""


@contextlib.contextmanager
def reporting(command: str) -> Iterator[Any]:
    """Yield a console; an error becomes one line on standard error and exit code 2, `Stopped` one and exit code 130.

    So does a warning, and the command goes on.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("default", category=UserWarning, module="particlemesh")
            warnings.showwarning = lambda message, *_, **__: complain(command, message, "yellow")
            yield console()
    except Stopped as stopped:
        complain(command, stopped, "yellow")
        raise typer.Exit(130) from None  # as shells have it: 128 + SIGINT
    except (ValueError, TypeError, ImportError, OSError, MemoryError, FloatingPointError) as error:
        if (
            isinstance(error, OSError)
            and error.errno in FULL
            and str(error) == f"[Errno {error.errno}] {os.strerror(error.errno)}"
        ):
            error = OSError(f"the standard output cannot be written ({error.strerror})")  # files are named
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - Python would write it again at its end
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        complain(command, f"{error}{notes}")
        raise typer.Exit(2) from None


# What launchers of MPI tell each process: how many there are.
_PROCESSES = "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE"
EXPECTED = ValueError, TypeError, ImportError, OSError, MemoryError, FloatingPointError, typer.Exit


@contextlib.contextmanager
def over_ranks(console: Any, served: bool) -> Iterator[Any]:
    """Yield the world of the processes that MPI has started, or None where this is the only one.

    The first rank prints what ranks have to say, also the error of another. ``served`` says whether the command takes
    ranks.
    """
    count = max((int(os.environ[n]) for n in _PROCESSES if os.environ.get(n, "").isdecimal()), default=1)
    if count < 2:
        yield None
        return
    try:
        from mpi4py import MPI
    except ImportError:
        text = f"MPI has started {count} processes, and mpi4py is missing: pip install mpi4py, or start one process."
        raise ImportError(text) from None
    from particlemesh import distributed as pmd

    world = pmd.World(MPI.COMM_WORLD, "host")
    console.quiet = world.rank > 0
    try:
        if not served:
            raise ValueError(f"this command takes one process, and MPI has started {count}: start it without mpiexec.")
        yield world
    except (*EXPECTED, pmd.RankError) as error:  # all ranks have one
        if world.rank:
            raise typer.Exit(2) from None
        raise ValueError(str(error)) if isinstance(error, pmd.RankError) else error  # noqa: B904 - its own
    except BaseException:  # others would wait for this rank for ever
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
        raise


@contextlib.contextmanager
def alone(command: str) -> Iterator[Any]:
    """Yield a console as `reporting` does, to a command that takes one process."""
    with reporting(command) as console, over_ranks(console, served=False):
        yield console


def given(context: typer.Context, names: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the options of a command by name, and the names of those that do not have their default.

    ``names`` are the command's local names: some versions of Typer keep paths as text in the context.
    """
    options = {name: names[name] for name in context.params}
    return options, {n for n in options if context.get_parameter_source(n).name != "DEFAULT"}  # type: ignore[union-attr]


def refuse_idle(stated: set[str], names: str, acts: bool, why: str) -> None:
    """Raise an error if one of the options ``names`` was given and has no effect, since ``acts`` is false."""
    idle = [f"--{name.replace('_', '-')}" for name in names.split() if name in stated]
    if idle and not acts:
        raise ValueError(f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect: {why}.")


def check_ending(out: Path, *endings: str, option: str = "--out") -> None:
    """Raise an error unless a file has one of these endings, which say what it is."""
    if out.suffix.lower() not in endings:
        raise ValueError(f"{option} is {str(out)!r}; give a name that ends in {' or '.join(endings)}.")


def check_choice(option: str, value: str | None, allowed: Collection[str]) -> None:
    """Raise an error unless an option is None or one of the allowed values."""
    if value is not None and value not in allowed:
        words = " or ".join(allowed) if len(allowed) < 3 else f"one of {', '.join(allowed)}"
        raise ValueError(f"--{option} is {value!r}; give {words}.")


def check_backend(name: str | None) -> None:
    """Raise an error if a backend is unknown, or not available here, with its reason."""
    from particlemesh import backends

    check_choice("backend", name, backends.NAMES)
    if name is not None and (reason := backends.module(name).available()) is not None:
        raise ValueError(f"{name} is not available: {reason}.")


def check_positive(options: Mapping[str, Any], *names: str) -> None:
    """Raise an error if one of the options is neither None nor a positive finite number."""
    for name in names:
        if options[name] is not None and not 0 < options[name] < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} is {options[name]:g}; give a positive number.")


def check_outputs(read: Iterable[Path | None], written: Mapping[str, Path | None], overwrite: bool = True) -> None:
    """Raise an error unless every output, by the option that names it, has a name of its own and can be written.

    Inputs are never replaced; other files are with ``overwrite``.
    """
    from particlemesh.apps.files import check_free

    places: dict[str, tuple[str, Path]] = {}
    inputs = {path.resolve() for path in read if path is not None}
    for option, path in written.items():
        if path is None:
            continue
        place = path.resolve()
        if place in inputs or (path.exists() and any(other.exists() and path.samefile(other) for other in inputs)):
            raise ValueError(f"{path} is an input: give the output another name.")
        key = str(place).casefold()  # some disks do not tell letters apart
        if key in places:
            other, name = places[key]
            both = f"both {path}" if name.resolve() == place else f"{name} and {path}, one file on some disks"
            raise ValueError(f"{other} and {option} are {both}: give each output its own name.")
        places[key] = option, path
        check_free(path, overwrite)


# ---- output -----------------------------------------------------------------------------------------------


def table(*columns: str) -> Any:
    """Return an empty table; columns with names that start with > are right-aligned."""
    from rich.table import Table

    empty = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in columns:
        justify: Any = "right" if name.startswith(">") else "left"
        empty.add_column(name.removeprefix(">"), justify=justify, no_wrap=True)
    return empty


def say(console: Any, label: str, text: str, style: str | None = None) -> None:
    """Print a labelled line, continued below itself."""
    lines = textwrap.wrap(text, console.width - LABEL, break_long_words=False, break_on_hyphens=False)
    for n, line in enumerate(lines or [""]):
        console.print(f"{label if n == 0 else '':<{LABEL}}{line}", style=style, markup=False, soft_wrap=True)


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def picture(console: Any, out: Path, draw: Callable[[], None]) -> None:
    """Draw a picture, if matplotlib is installed, and say where it is."""
    if can_draw():
        out.parent.mkdir(parents=True, exist_ok=True)
        draw()
    text = f"picture: {out}" if can_draw() else "no picture: matplotlib is not installed: pip install matplotlib"
    console.print(text, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a short time in words."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def plural(count: int, noun: str) -> str:
    """Return a number of things: 1 rank, 2 ranks."""
    return f"{count} {noun}{'s' * (count != 1)}"


def say_written(console: Any, path: Path, what: str) -> None:
    """Print where the result is."""
    say(console, "written", f"{path} ({path.stat().st_size / 2**20:.3g} MiB): {what}")


def checkpoint_of(options: Mapping[str, Any], given: set[str], stored: Collection[str]) -> Path | None:
    """Return the checkpoint that a run writes, or None without h5py, once all outputs can be written.

    ``given`` are the options that do not have their default, and ``stored`` those that a checkpoint holds. That of
    another run stays, unless the user overwrites it.
    """
    missing = find_spec("h5py") is None
    if missing and given & {"checkpoint", "checkpoint_every", "restart"}:
        library("h5py", "a checkpoint")
    excess = sorted(given.intersection(stored))
    if options["restart"] is not None and excess:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in excess)
        raise ValueError(f"{names} cannot be given with --restart: the checkpoint contains them.")
    restart = options["restart"]
    path = options["checkpoint"] if restart is None or "checkpoint" in given else restart
    written = {"--out": options["out"], "--trajectory": options.get("trajectory")}
    check_outputs((options["restart"],), written)  # the checkpoint may take the place of the one read
    check_outputs((), written | {"--checkpoint": None if missing else path})
    if "checkpoint" in given:
        check_ending(path, ".h5", ".hdf5", option="--checkpoint")
    if not missing and path.exists() and not options["overwrite"] and not (restart and path.samefile(restart)):
        raise ValueError(
            f"the checkpoint {path} exists: continue it (--restart {path}), give another name (--checkpoint), or "
            "replace it (--overwrite)."
        )
    return None if missing else path


def again(options: Mapping[str, Any], given: set[str], stored: Collection[str]) -> str:
    """Return the options that a restart needs again: those that were given and that a checkpoint does not hold."""
    names = sorted(given.difference(stored, ("steps", "restart", "checkpoint", "overwrite")))
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(options[name]))}" for name in names)


class Saving:
    """Checkpoints of a simulation with ``step`` and ``save(path)``, at multiples of ``every`` steps and at the end."""

    def __init__(self, simulation: Any, path: Path | None, every: int, again: str = "") -> None:
        self.simulation, self.path, self._again = simulation, path, again
        self.every = 0 if path is None else every

    def now(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.simulation.save(self.path)

    def due(self) -> None:
        """Write it, if the present step has one."""
        if self.every and self.simulation.step % self.every == 0:
            self.now()

    @contextlib.contextmanager
    def stoppable(self, command: str, last: int) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether Ctrl-C was pressed; at the end write the checkpoint.

        After Ctrl-C, `Stopped` says how to continue up to the step ``last``.
        """
        try:
            with deferred() as interrupted:
                yield interrupted
                self.now()
        except KeyboardInterrupt:
            said = f"interrupted at step {self.simulation.step:,}"
            if self.path is None:
                raise Stopped(f"{said}; no checkpoint, since h5py is missing: pip install h5py") from None
            left = last - self.simulation.step
            how = f"particlemesh {command} --restart {shlex.quote(str(self.path))} --steps {left}{self._again}"
            raise Stopped(
                f"{said}; the checkpoint is {self.path}. {f'Continue with: {how}' if left else 'All steps are done.'}"
            ) from None
