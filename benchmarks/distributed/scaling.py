# SPDX-License-Identifier: BSD-3-Clause
"""Steps on several GPUs against the same work on one GPU, in the same run.

Writes ``results/distributed-scaling-DEVICE.csv``, on rank 0. One process has one GPU; particles are at their owners.
The time of one GPU is that of ``particlemesh.Plan``, ``particlemesh.UniformGrid`` and a transform of one rank, on the
slowest of all GPUs. Deterministic sums have two rows, since those of a plan over ranks promise more: the same bits for
any number of ranks. One compares them with the same plan on one rank, the other with ``particlemesh.Plan``.
``exchange_s`` and ``agree_s`` are parts of a further run that waits before and after each message, so that they say
where time goes; ``sent`` is what the busiest rank sends in bytes. ``model.py`` beside it predicts all rows. On 8 GPUs
the large rows have 8*10^7 charges, and 1024^3 modes with as many points as fit. ``remark`` is what a plasma does.

    mpiexec -n 2 --bind-to none python -m mpi4py benchmarks/distributed/scaling.py
    mpiexec -n 2 --bind-to none python -m mpi4py benchmarks/distributed/scaling.py --small --backend cpu --out /tmp
    mpiexec -n 2 --bind-to none python -m mpi4py benchmarks/distributed/scaling.py --trace --only grid

``--trace`` measures and writes nothing. It prints where the time of one call goes, on one GPU and on rank 0 of all.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from distributed.figures import EDGE, GOALS, MOVED, RADIUS, box_of, cubic, domain_of, modes_of
from distributed.landau import GAMMA, Plasma
from distributed.trace import Stages, profile, table
from harness.tables import RESULTS, Row, facts, short, write
from particlemesh import backends
from particlemesh import distributed as pmd
from particlemesh.apps import nufft, pme
from particlemesh.distributed.transports import Transport

WINDOW, DTYPE = "bspline6", np.float32
Call = Callable[[], Any]


class Timed(Transport):
    """A transport that waits for the device around each message and adds up times and bytes."""

    name = "timed"

    def __init__(self, inner: Transport, wait: Call) -> None:
        self.inner, self.wait = inner, wait
        self.rank, self.size = inner.rank, inner.size
        self.clear()

    def clear(self) -> None:
        """Forget all times."""
        self.exchange_s = self.agree_s = 0.0
        self.sent = self.rounds = 0

    def exchange(self, sends: Any, receives: Any) -> None:
        self.rounds, self.sent = self.rounds + 1, self.sent + sum(array.nbytes for array in sends.values())
        self.exchange_s += self._timed(lambda: self.inner.exchange(sends, receives))[1]

    def allreduce(self, array: Any, op: Any) -> Any:
        return self._agree(lambda: self.inner.allreduce(array, op))

    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        return self._agree(lambda: self.inner.alltoall(counts))

    def allgather(self, thing: Any) -> list[Any]:
        return self._agree(lambda: self.inner.allgather(thing))

    def _agree(self, work: Call) -> Any:
        result, seconds = self._timed(work)
        self.agree_s += seconds
        return result

    def _timed(self, work: Call) -> tuple[Any, float]:
        self.wait()
        begin = time.perf_counter()
        result = work()
        self.wait()
        return result, time.perf_counter() - begin


class Work(NamedTuple):
    """A call to time, after another one that is not timed."""

    call: Call
    before: Call = lambda: None


Make = Callable[[], Work]


class Bench:
    """All ranks, and what they measure together."""

    def __init__(self, world: pmd.World, backend: str, small: bool, repeats: int, trace: bool = False) -> None:
        self.world, self.small, self.repeats = world, small, 2 if small else repeats
        self.backend = backends.current(backend)
        self.xp = np
        if backend == "cuda":
            import cupy

            self.xp = cupy
        self.wait = self.backend.synchronize
        self.timed = Timed(world._transport, self.wait)
        self.stages = Stages(world._transport, None if self.xp is np else self.xp) if trace else None
        self.watched = pmd.World.over(self.stages or self.timed)
        self.edge = 16 if small else EDGE
        self.generator = self.xp.random.default_rng(world.rank + 1)

    # ---- problems -------------------------------------------------------------------------------------

    def count(self, figure: str) -> int:
        """Return the number of particles of each rank."""
        particles = GOALS[figure].particles
        return int(particles // 5e4) if self.small else int(particles)

    def domain(self, *, weak: bool = True) -> pmd.Domain:
        """Return a domain with a cube of nodes for each rank, or for all together."""
        return domain_of(self.world.size, self.edge, weak=weak)

    def cloud(self, domain: pmd.Domain, count: int) -> Any:
        """Return particles that are uniform in this rank's part, and not on its faces: others may own these."""
        (part,), spacing = domain.parts(self.world.rank), domain.mesh.spacing
        low = np.array(part.lower) * spacing
        size = np.array(part.shape) * spacing
        above = np.where(low > 0, np.nextafter(low.astype(DTYPE), DTYPE(np.inf)), DTYPE(0))
        below = np.nextafter((low + size).astype(DTYPE), DTYPE(0))
        x = self.xp.asarray(low, DTYPE) + self.xp.asarray(size, DTYPE) * self.generator.random((count, 3), dtype=DTYPE)
        return self.xp.minimum(self.xp.maximum(x, self.xp.asarray(above)), self.xp.asarray(below))

    def values(self, count: int, *, real: bool) -> Any:
        """Return random numbers for particles."""
        reals = self.generator.random((count, 1 if real else 2), dtype=DTYPE)
        return reals[:, 0] if real else reals.view(np.complex64)[:, 0]

    # ---- timing ---------------------------------------------------------------------------------------

    def seconds(self, work: Work) -> float:
        """Return the median time of a call on the slowest rank; all begin together."""
        times = []
        for repeat in range(self.repeats + 1):
            work.before()
            self.wait()
            self.world.agree()
            begin = time.perf_counter()
            work.call()
            self.wait()
            if repeat:  # the first compiles and allocates
                times.append(time.perf_counter() - begin)
        return max(statistics.median(of_rank) for of_rank in self.world.allgather(times))

    def row(self, figure: str, one: Make, over: Callable[[pmd.World], Work], count: int, remark: str = "") -> Row:
        """Return the row of a figure; works are made one after the other, so that memory holds one of them."""
        goal, alone = GOALS[figure], self.seconds(one())
        self.free()
        together = self.seconds(over(self.world))
        self.free()
        self.trace(goal.name, one, over)
        watched = over(self.watched)
        watched.before()
        watched.call()
        watched.before()
        self.timed.clear()
        watched.call()
        spent = self.world.allgather((self.timed.exchange_s, self.timed.agree_s, self.timed.sent, self.timed.rounds))
        value = together / alone if goal.unit == "times as long" else alone / together
        return dict(
            figure=goal.name, ranks=self.world.size, transport=self.world.transport, particles=count, small=self.small,
            seconds=short(together), one_s=short(alone), value=short(value), unit=goal.unit, reach=goal.reach,
            stretch=goal.stretch, exchange_s=short(max(s[0] for s in spent)), agree_s=short(max(s[1] for s in spent)),
            sent=max(s[2] for s in spent), rounds=max(s[3] for s in spent), remark=remark, **facts(self.backend),
        )  # fmt: skip

    def free(self) -> None:
        """Return memory that nothing holds to the device."""
        gc.collect()  # plans may hold themselves
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()

    def trace(self, name: str, one: Make, over: Callable[[pmd.World], Work]) -> None:
        """Print where the time of one call goes, with one GPU and with all."""
        if self.stages is None:
            return
        for what, make in (("one GPU", one), ("all GPUs", lambda: over(self.watched))):
            work = make()
            for _ in range(3):
                work.before()
                work.call()
            work.before()
            stages = self.stages.traced(work.call, self.wait)
            work.before()
            self.wait()
            functions = profile(work.call)
            waits = [s for s in stages if s[0] in ("counts", "allgather") or s[0].startswith("allreduce")]
            agreeing = self.world.allgather(sum(host for _, host, _ in waits))
            if self.world.rank == 0:
                each = ", ".join(f"{seconds * 1e6:.1f}" for seconds in agreeing)
                print(f"\n{name}: {what}\n{table(stages)}\nus in {len(waits)} agreements, by rank: {each}\n{functions}")

    # ---- figures --------------------------------------------------------------------------------------

    def step(self, domain: pmd.Domain, world: pmd.World, x: Any, q: Any, *, fft: bool = False, **options: Any) -> Work:
        """Return a spread and an interpolation over ranks, with a transform and back between them."""
        plan = pmd.Plan(domain, world, WINDOW, applications=1000, check=False, **options).set_positions(x)
        if not fft:
            return Work(lambda: plan.interpolate(plan.spread(q)))
        both = pmd.FFT(domain, world, check=False)
        return Work(lambda: plan.interpolate(both.inverse(both.forward(plan.spread(q)))))

    def alone(self, x: Any, q: Any, *, fft: bool = False, over: bool = False, **options: Any) -> Work:
        """Return the same step of one GPU with one rank's nodes; ``over``: by a plan over ranks, which are one."""
        mesh = pm.Mesh((self.edge,) * 3, (1.0,) * 3)
        if over:
            return self.step(pmd.Domain(mesh, 1), pmd.World(), x, q, fft=fft, **options)
        plan = pm.Plan(mesh, WINDOW, applications=1000, **options).set_positions(x)
        if not fft:
            return Work(lambda: plan.interpolate(plan.spread(q)))
        both = pmd.FFT(pmd.Domain(mesh, 1), pmd.World())
        return Work(lambda: plan.interpolate(both.inverse(both.forward(plan.spread(q)))))

    def weak(self, figure: str, *, real: bool = False, fft: bool = False, over: bool = False, **options: Any) -> Row:
        """Return a row of weak scaling."""
        count, domain = self.count(figure), self.domain()
        x, q = self.cloud(domain, count), self.values(count, real=real)
        local = self.generator.random((count, 3), dtype=DTYPE)
        return self.row(
            figure, lambda: self.alone(local, q, fft=fft, over=over, **options),
            lambda world: self.step(domain, world, x, q, fft=fft, **options), count,
        )  # fmt: skip

    def strong(self) -> Row:
        """Return the row of strong scaling: one mesh and its particles on all ranks."""
        total, domain = self.count("strong"), self.domain(weak=False)
        count = total // self.world.size
        x, q = self.cloud(domain, count), self.values(count, real=False)
        local, charges = self.generator.random((total, 3), dtype=DTYPE), self.values(total, real=False)
        return self.row(
            "strong", lambda: self.alone(local, charges), lambda world: self.step(domain, world, x, q), total
        )

    def positions(self) -> Row:
        """Return the row of new positions, up to `MOVED` cells from those before along each axis."""
        count, domain = self.count("positions"), self.domain()
        x, spacing = self.cloud(domain, count), float(domain.mesh.spacing[0])
        step = (self.generator.random((count, 3), dtype=DTYPE) - DTYPE(0.5)) * DTYPE(2 * MOVED * spacing)
        near = x + step
        local = self.generator.random((count, 3), dtype=DTYPE)
        moved = local + step

        def one() -> Work:
            plan = pm.Plan(pm.Mesh((self.edge,) * 3, (1.0,) * 3), WINDOW)
            return Work(lambda: plan.set_positions(moved), lambda: plan.set_positions(local))

        def over(world: pmd.World) -> Work:
            many = pmd.Plan(domain, world, WINDOW)
            return Work(lambda: many.set_positions(near), lambda: many.set_positions(x))

        return self.row("positions", one, over, count)

    def grid(self) -> Row:
        """Return the row of grids and half lists of pairs."""
        count, domain = self.count("grid"), self.domain()
        radius = RADIUS / count ** (1 / 3)
        x, local = self.cloud(domain, count), self.generator.random((count, 3), dtype=DTYPE)

        def one() -> Work:
            alone = pm.UniformGrid((1.0,) * 3, cell_size=radius)
            return Work(lambda: alone.build(local).pairs(radius, half=True, quantities="ij"))

        def over(world: pmd.World) -> Work:
            many = pmd.UniformGrid(domain, world, radius)
            return Work(lambda: many.build(x).pairs(half=True, order="local", quantities="ij"))

        return self.row("grid", one, over, count)

    def pme(self, figure: str) -> Row:
        """Return a row of electrostatics: as many charges for each rank, in a box that grows with their number."""
        count, ranks = self.count(figure), self.world.size
        charges, box = self.values(count, real=True) - DTYPE(0.5), box_of(ranks)
        first = pme.DistributedPME(self.world, box)  # its mesh says where parts end
        first(self.cloud(pmd.Domain(pm.Mesh((64,) * 3, box), ranks), count), charges, check=False)
        domain = pmd.Domain(pm.Mesh(first.parameters.shape, box), ranks)
        del first
        x, local = self.cloud(domain, count), self.generator.random((count, 3), dtype=DTYPE)

        def one() -> Work:
            alone = pme.PME((1.0,) * 3)
            return Work(lambda: alone(local, charges, check=False))

        def over(world: pmd.World) -> Work:
            many = pme.DistributedPME(world, box)
            return Work(lambda: many(x, charges, check=False))

        return self.row(figure, one, over, count)

    def nufft(self, figure: str) -> Row:
        """Return a row of both transforms: 512 x 256 x 256 modes for each rank, or 512^3."""
        count, ranks = self.count(figure), self.world.size
        domain = pmd.Domain(pm.Mesh((64,) * 3, (1.0,) * 3), ranks, parts="slabs")
        turn, values = DTYPE(2 * np.pi), self.values(count, real=False)

        def both(plan: Callable[..., Any], n_modes: tuple[int, ...], points: list[Any]) -> Work:
            first, second = (plan(kind, n_modes, eps=1e-4, dtype="complex64") for kind in (1, 2))
            for each in (first, second):
                each.setpts(*points)
            return Work(lambda: second.execute(first.execute(values)))

        def one() -> Work:
            points = [turn * self.generator.random(count, dtype=DTYPE) for _ in range(3)]
            return both(nufft.Plan, modes_of(figure, 1, self.edge), points)

        def over(world: pmd.World) -> Work:
            points = [turn * axis for axis in self.cloud(domain, count).T]
            self.free()
            return both(functools.partial(nufft.DistributedPlan, world), modes_of(figure, ranks, self.edge), points)

        return self.row(figure, one, over, count)

    def landau(self) -> Row:
        """Return the row of a plasma's time step, which remarks how its wave fades and what its energy does."""
        count, shape = self.count("landau"), cubic(self.world.size, self.edge)
        gamma, change = Plasma(shape, self.world, count * self.world.size, self.xp, DTYPE).run()

        def one() -> Work:
            return Work(Plasma((self.edge,) * 3, pmd.World(), count, self.xp, DTYPE).step)

        def over(world: pmd.World) -> Work:
            return Work(Plasma(shape, world, count * world.size, self.xp, DTYPE).step)

        remark = f"rate {gamma:.4f}, theory {GAMMA:.4f}; the energy changed by {change:.1e} of the field's"
        return self.row("landau", one, over, count, remark)

    def rows(self, names: list[str]) -> Iterator[Row]:
        """Yield the rows of some figures."""
        figures: dict[str, Callable[[], Row]] = {
            "weak": lambda: self.weak("weak"), "fft": lambda: self.weak("fft", real=True, fft=True),
            "few": lambda: self.weak("few"), "strong": self.strong,
            "deterministic": lambda: self.weak("deterministic", deterministic=True, over=True),
            "reproducible": lambda: self.weak("reproducible", deterministic=True),
            "positions": self.positions, "grid": self.grid, "landau": self.landau,
            "pme": lambda: self.pme("pme"), "pme_large": lambda: self.pme("pme_large"),
            "nufft": lambda: self.nufft("nufft"), "nufft_large": lambda: self.nufft("nufft_large"),
        }  # fmt: skip
        for name in names:
            yield figures[name]()
            self.free()


def one_device(backend: str) -> None:
    """Take one GPU for each process of a host."""
    if backend == "cuda":
        import cupy

        names = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
        local = next((int(os.environ[name]) for name in names if name in os.environ), 0)
        cupy.cuda.Device(local % cupy.cuda.runtime.getDeviceCount()).use()


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--transport", default="auto", help="auto, nccl, mpi or host")
    parser.add_argument("--small", action="store_true", help="tiny cases, which show that all of it works")
    parser.add_argument("--only", nargs="+", choices=list(GOALS), default=list(GOALS), metavar="FIGURE")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--trace", action="store_true", help="print where the time goes, and write nothing")
    asked = parser.parse_args()
    one_device(asked.backend)
    from mpi4py import MPI

    world = pmd.World(MPI.COMM_WORLD, asked.transport)
    bench = Bench(world, asked.backend, asked.small, asked.repeats, asked.trace)
    rows = []
    for row in bench.rows(asked.only):
        rows.append(row)
        if world.rank == 0:
            print(f"{row['figure']}: {row['value']:.3f} {row['unit']} (goals {row['reach']}, {row['stretch']}); "
                  f"{row['seconds'] * 1e3:.3g} ms, one rank {row['one_s'] * 1e3:.3g} ms, of which waiting "
                  f"{row['exchange_s'] * 1e3:.3g} ms in {row['rounds']} rounds", flush=True)  # fmt: skip
            if not asked.trace:  # after each, so that a run that is cut leaves what it has
                print(write("distributed-scaling", row["device"], rows, asked.out))


if __name__ == "__main__":
    main()
