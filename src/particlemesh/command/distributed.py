# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh distributed``: tests and times of the ranks of this run. Rank 0 prints."""

from __future__ import annotations

import contextlib
import importlib
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.fft

import particlemesh as pm
from particlemesh import backends
from particlemesh import distributed as pmd
from particlemesh.backends.cpu import available_threads
from particlemesh.command import consoles, pictures
from particlemesh.distributed.fft import fair_threads
from particlemesh.distributed.transfer import ranges

WINDOW, RADIUS = "bspline6", 1.5  # radius of pairs in mean distances of particles
TESTED = (24, 15, 20)  # nodes of the test's mesh
STAGES = ("positions", "spread", "interpolate", "FFT and back", "half pairs")


class Test(NamedTuple):
    """One law: the largest error of all ranks, and what is allowed."""

    name: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether the law holds."""
        return self.error <= self.allowed


class Timing(NamedTuple):
    """Seconds of each stage on some ranks, the slowest of them."""

    ranks: int
    particles: int  # of each rank
    nodes: tuple[int, ...]
    seconds: tuple[float, ...]


def world_of_all(transport: str) -> tuple[pmd.World, Any]:
    """Return the world of all processes, and its communicator; without mpi4py one rank and None."""
    try:
        from mpi4py import MPI
    except ImportError:
        return pmd.World(), None
    return pmd.World(MPI.COMM_WORLD, transport), MPI.COMM_WORLD


def report(console: Any, out: Path, *, particles: float, backend: str, transport: str, **options: int) -> bool:
    """Test and time the ranks of this run; return whether all tests passed, the same on every rank."""
    consoles.check_ending(out, ".png", ".pdf", ".svg", ".jpg")
    consoles.check_outputs((), {"--out": out})
    if not (1000 <= particles <= 1e10 and particles == int(particles)):
        raise ValueError(f"--particles is {particles:g}; give a whole number from 1000 to 1e10, such as 1e6.")
    consoles.check_choice("backend", backend, ("cpu", "cuda"))
    consoles.check_backend(backend)
    world, communicator = world_of_all(transport)
    xp = np if backend == "cpu" else importlib.import_module("cupy")
    console.quiet = world.rank > 0
    try:
        return _run(console, out, world, communicator, xp, int(particles), backend, transport, **options)
    except BaseException:
        if communicator is not None and world.size > 1:  # the others would wait for this rank for ever
            traceback.print_exc()
            sys.stderr.flush()
            communicator.Abort(1)
        raise


def _run(
    console: Any, out: Path, world: pmd.World, communicator: Any, xp: Any, particles: int, backend: str, transport: str,
    *, nodes: int, repeats: int,
) -> bool:  # fmt: skip
    console.print(f"{consoles.plural(world.size, 'rank')}, transport {world.transport!r}, {backend}")
    if communicator is None:
        console.print("mpi4py is not installed: this is one rank. pip install mpi4py", style="yellow")
    elif world.size == 1:
        console.print("start more ranks with: mpiexec -n 4 particlemesh distributed", style="dim")
    compile_once(world, communicator, xp)
    table, passed = consoles.table("test", ">error", ">allowed", "result"), True
    for test in tests(world, xp):
        passed = passed and test.passed
        word = "passed" if test.passed else "[bold red]FAILED[/bold red]"
        table.add_row(test.name, f"{test.error:.1g}", f"{test.allowed:.1g}", word)
    console.print("", table, "", sep="\n")
    console.print(f"weak scaling: {particles:,} particles and {nodes}^3 nodes per rank, float32, {WINDOW}")
    rows = list(timings(world, communicator, transport, backend, xp, particles, nodes, repeats))
    table = consoles.table(">ranks", *(f">{name}" for name in STAGES), ">efficiency")
    first = sum(rows[0].seconds)
    for row in rows:
        efficiency = f"{first / sum(row.seconds):.0%}"
        table.add_row(str(row.ranks), *map(consoles.duration, row.seconds), efficiency)
    console.print(table)
    if (shared := _shared(world, backend)) is not None:
        console.print(shared, style="dim")
    console.print()
    if world.rank == 0:
        consoles.picture(console, out, lambda: pictures.distributed(out, world.size, rows, STAGES))
    return passed


def _shared(world: pmd.World, backend: str) -> str | None:
    """Return a sentence where ranks share what they compute with; efficiencies then say nothing about links."""
    if backend == "cpu":
        ranks, cores = (consoles.plural(*of) for of in ((world.size, "rank"), (available_threads(), "core")))
        return f"up to {ranks} share {cores}: the more ranks, the fewer cores for each"
    import cupy

    places = world.allgather(cupy.cuda.Device().pci_bus_id)
    return None if len(set(places)) == len(places) else "several ranks share a GPU"


# ---- tests ------------------------------------------------------------------------------------------------


def tests(world: pmd.World, xp: Any) -> Iterator[Test]:
    """Yield the laws of distributed work, each compared with one rank's result for the same particles.

    Every rank has the whole problem, small and in float64, and gives a share of it.
    """
    mesh = pm.Mesh(TESTED, [[3, 0, 0], [0.4, 2, 0], [-0.3, 0.5, 2.5]])
    rng = np.random.default_rng(11)
    x = (rng.random((3000, 3)) ** 2) @ mesh.box.matrix  # denser in a corner
    q = rng.standard_normal(len(x)) + 1j * rng.standard_normal(len(x))
    mine = slice(len(x) * world.rank // world.size, len(x) * (world.rank + 1) // world.size)
    domain = pmd.Domain(mesh, world.size)
    here = (..., *(slice(*r) for r in ranges(domain.parts(world.rank)[0])))

    def test(name: str, got: Any, expected: Any, allowed: float) -> Test:
        got, expected = (array if isinstance(array, np.ndarray) else array.get() for array in (got, expected))
        scale = float(np.abs(expected).max()) if expected.size else 1.0
        error = float(np.abs(got - expected).max()) / scale if got.size else 0.0
        return Test(name, max(world.allgather(error)), allowed)

    whole = pm.Plan(mesh, WINDOW).set_positions(x)
    field = whole.spread(q)
    plan = pmd.Plan(domain, world, WINDOW).set_positions(xp.asarray(x[mine]))
    values = xp.asarray(q[mine])
    part = plan.spread(values)
    yield test("spread", part, field[here], 1e-12)
    yield test("interpolate", plan.interpolate(part), whole.interpolate(field)[mine], 1e-12)
    yield test("gradient", plan.gradient(part), whole.gradient(field)[mine], 1e-12)

    there = plan.route.send(values)
    yield test("particles to their owners and back", plan.route.back(there), q[mine], 0.0)

    same = pmd.Plan(domain, world, WINDOW, deterministic=True).set_positions(xp.asarray(x[mine])).spread(values)
    alone = pmd.Plan(pmd.Domain(mesh, 1), pmd.World(), WINDOW, deterministic=True).set_positions(xp.asarray(x))
    yield test("deterministic: the bits of one rank", same, alone.spread(xp.asarray(q))[here], 0.0)

    fft = pmd.FFT(domain, world, real=False)
    modes, back = fft.forward(part), fft.inverse(fft.forward(part))
    place = tuple(slice(*r) for r in fft.part)
    yield test("FFT", modes, scipy.fft.fftn(field)[place], 1e-13)
    yield test("FFT and back", back, field[here], 1e-13)

    radius = 0.2
    expected = pm.UniformGrid(mesh.box, cell_size=radius).build(x)
    grid = pmd.UniformGrid(domain, world, radius).build(xp.asarray(x[mine]))
    yield test("neighbours of each particle", grid.count(), expected.count(radius)[mine], 0.0)
    kept = sum(world.allgather(len(grid.pairs(half=True))))
    yield Test("each pair on one rank", abs(kept - len(expected.pairs(radius, half=True))), 0)
    yield _failure(world, plan, values)


def _failure(world: pmd.World, plan: Any, values: Any) -> Test:
    """Let the last rank give one value too few, and count the ranks that do not raise."""
    wrong, raised = values[:-1] if world.rank == world.size - 1 else values, True
    with contextlib.suppress(ValueError, pmd.RankError):
        plan.spread(wrong)
        raised = False
    return Test("an error on one rank is raised by all", float(sum(world.allgather(not raised))), 0)


# ---- times ------------------------------------------------------------------------------------------------


def timings(
    world: pmd.World, communicator: Any, transport: str, backend: str, xp: Any, particles: int, edge: int,
    repeats: int,
) -> Iterator[Timing]:  # fmt: skip
    """Yield times of weak scaling on 1, 2, 4, ... of the ranks, with as many particles and nodes along an edge of each.

    Ranks that are left out wait.
    """
    for ranks in sorted({*(2**n for n in range(world.size.bit_length()) if 2**n <= world.size), world.size}):
        taking = world.rank < ranks
        group = None if communicator is None else communicator.Split(0 if taking else 1, world.rank)
        seconds = None
        cube = pmd.Domain(pm.Mesh((64,) * 3, (1.0,) * 3), ranks)
        cut = tuple(len({part.lower[a] for part in cube.parts()}) for a in range(3))
        if taking:
            part = world if group is None else pmd.World(group, transport)
            seconds = _stages(part, backend, xp, particles, edge, cut, repeats)
        rest(communicator)
        columns = zip(*world.allgather(seconds)[:ranks], strict=True)
        yield Timing(ranks, particles, tuple(edge * n for n in cut), tuple(map(max, columns)))


def compile_once(world: pmd.World, communicator: Any, xp: Any) -> None:
    """Let rank 0 compile what the tests need, while the others rest: they then find it in the cache."""
    if world.size > 1:
        if world.rank == 0:
            for _ in tests(pmd.World(), xp):
                pass
        rest(communicator)


def rest(communicator: Any) -> None:
    """Wait for all ranks asleep: MPI's own waiting would take cores from those that are timed."""
    if communicator is not None:
        done = communicator.Ibarrier()
        while not done.Test():
            time.sleep(0.002)


def _stages(
    world: pmd.World, backend: str, xp: Any, particles: int, edge: int, cut: tuple[int, ...], repeats: int
) -> tuple[float, ...]:
    """Return a rank's seconds of each stage."""
    mesh = pm.Mesh(tuple(edge * n for n in cut), tuple(map(float, cut)))
    domain = pmd.Domain(mesh, world.size, parts=cut)
    (part,), rng = domain.parts(world.rank), np.random.default_rng(world.rank)
    low, size = (np.array(n, np.float32) / edge for n in (part.lower, part.shape))
    x = xp.asarray(low + size * rng.random((particles, 3), dtype=np.float32))
    q = xp.asarray(rng.random(particles, dtype=np.float32))
    threads = fair_threads(world)
    plan = pmd.Plan(domain, world, WINDOW, applications=100, threads=threads)
    fft = pmd.FFT(domain, world, threads=threads)
    radius = RADIUS / particles ** (1 / 3)
    grid = pmd.UniformGrid(domain, world, radius, threads=threads)
    field: Any = plan.set_positions(x).spread(q)
    calls: list[Callable[[], Any]] = [
        lambda: plan.set_positions(x), lambda: plan.spread(q), lambda: plan.interpolate(field),
        lambda: fft.inverse(fft.forward(field)), lambda: grid.build(x).pairs(half=True, order="local"),
    ]  # fmt: skip
    return tuple(_median(call, world, backends.current(backend).synchronize, repeats) for call in calls)


def _median(call: Callable[[], Any], world: pmd.World, wait: Callable[[], Any], repeats: int) -> float:
    times = []
    for repeat in range(repeats + 1):
        wait()
        world.agree()  # all begin together
        begin = time.perf_counter()
        call()
        wait()
        if repeat:  # the first compiles
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
