# SPDX-License-Identifier: BSD-3-Clause
"""Laws of distributed work with arrays in device memory, one GPU for each rank. Prints each law that held.

mpiexec -n 2 python -m mpi4py tests/distributed/gpu_ranks.py [nccl]
"""

import functools
import sys
import traceback

import cupy
import numpy as np
import pytest
from mpi4py import MPI

import particlemesh as pm
import test_distributed_fft as ffts
import test_distributed_grids as grids
import test_plans_on_ranks as plans
import test_residents as residents
import test_same_bits as same_bits
from dem_cases import ROUGH, loose
from particlemesh import distributed as pmd
from particlemesh.apps.brownian import RPY, BrownianDynamics, DistributedBrownianDynamics, DistributedRPY
from particlemesh.apps.dem import DistributedSimulation, Simulation
from rank_cases import assembled, near, numbers, positions

COUNT = 600  # particles of the laws of this file


def give(thing):
    """Return arrays of the host, or tuples of them, in the memory of this rank's GPU."""
    if isinstance(thing, tuple):
        return tuple(map(give, thing))
    return cupy.asarray(thing) if isinstance(thing, np.ndarray) else thing


def take(thing):
    """Return results on the host; they were on this rank's GPU."""
    if isinstance(thing, tuple):
        return tuple(map(take, thing))
    if isinstance(thing, cupy.ndarray):
        assert thing.device == cupy.cuda.Device()
        return thing.get()
    assert not isinstance(thing, np.ndarray), "a result came back on the host"
    return thing


class OnGpu:
    """A plan or a route that gets arrays of a GPU, for tests that are written for NumPy."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        thing = getattr(self._inner, name)
        if name == "route":
            return OnGpu(thing)
        if not callable(thing):
            return thing

        @functools.wraps(thing)
        def call(*arrays, **options):
            result = thing(*map(give, arrays), **{key: give(value) for key, value in options.items()})
            return self if result is self._inner else take(result)

        return call


def plan_of(row, world, **options):
    """Return a domain and a plan as ``rank_cases.plan_of`` does, on GPUs."""
    domain = pmd.Domain(row.mesh, world.size, row.parts, row.per_rank)
    return domain, OnGpu(pmd.Plan(domain, world, row.window, ghosts=row.ghosts, **options))


def modes_are_scipys(world, item):
    """Compare a transform and its inverse with SciPy's, and with one GPU's."""
    shape, dtype, real, by = item
    domain, whole = pmd.Domain(ffts.mesh_of(shape), world.size), ffts.whole_field(shape, dtype, real)
    expected = ffts.reference(shape, dtype, real)
    fft = pmd.FFT(domain, world, real, parts=by)
    given = give(ffts.local(whole, domain.parts(world.rank)))
    modes = fft.forward(given)
    back = fft.inverse(modes)
    pieces = world.allgather((take(modes), fft.part))
    limit = 20 * np.finfo(dtype).eps
    assert abs(ffts.joined(pieces, (2, *fft.modes)) - expected).max() <= limit * abs(expected).max()
    assert abs(take(back) - take(given)).max() <= limit * abs(whole).max()


def pairs_are_those_of_one_grid(world, name):
    """Compare full and half lists over ranks with those of one grid on the host."""
    c = grids.CASES[name]
    i, j, shift = pm.neighbour_list("ijS", c.x, c.box, c.radius)
    grid = pmd.UniformGrid(pmd.Domain(c.mesh, world.size, **c.cuts), world, c.radius)
    grid.build(give(grids.dealt(c.x, world.rank, world.size)))
    full, half = (grid.pairs(half=half, format="coo", quantities="ijS") for half in (False, True))
    pairs = [world.allgather(tuple(take(getattr(p, name)) for name in ("i", "j", "shift"))) for p in (full, half)]
    every = [(int(a), int(b), *map(int, s)) for p in pairs[0] for a, b, s in zip(*p, strict=True)]
    expected = {(int(a), int(b), *map(int, s)) for a, b, s in zip(i, j, shift, strict=True)}
    assert len(every) == len(expected)
    assert set(every) == expected
    once = set.union(*(grids.half_of(*p) for p in pairs[1]))
    assert sum(len(p[0]) for p in pairs[1]) == len(once) == len(i) // 2
    assert once == grids.half_of(i, j, shift)


def one_rank_has_them_all(world, ghosts):
    """The last rank gives all particles, the others none; then no rank has any."""
    mesh = pm.Mesh((7, 6, 5), (1.0, 1.0, 1.0))
    x = positions(mesh, COUNT)
    values, last = numbers((len(x),), np.complex128), world.rank == world.size - 1
    some = slice(None) if last else slice(0)
    domain = pmd.Domain(mesh, world.size, per_rank=2)
    plan = pmd.Plan(domain, world, "bspline4", ghosts=ghosts).set_positions(give(x[some]))
    field = plan.spread(give(values[some]))
    expected = pm.Plan(mesh, "bspline4").set_positions(x).spread(values)
    near(assembled(domain, world, take(field)), expected)
    assert plan.interpolate(field).shape == values[some].shape
    field = plan.set_positions(cupy.empty((0, 3))).spread(cupy.empty(0))
    assert not any(part.any() for part in field)
    assert plan.interpolate(field).shape == (0,)


def all_ranks_raise(world, _):
    """One rank's bad position is everybody's error, and the plan is as it was."""
    mesh = pm.Mesh((8, 6, 7), (1.0, 1.0, 1.0))
    plan = pmd.Plan(pmd.Domain(mesh, world.size), world, "tsc")
    x = np.random.default_rng(world.rank).random((COUNT, 3))
    before = take(plan.set_positions(give(x)).spread(give(np.ones(COUNT))))
    bad = x.copy()
    bad[3, 1] = np.nan if world.rank == world.size - 1 else 0.5
    last = world.size - 1
    with pytest.raises(ValueError if world.rank == last else pmd.RankError) as error:
        plan.set_positions(give(bad))
    assert world.rank == last or error.value.rank == last
    near(take(plan.spread(give(np.ones(COUNT)))), before)


def a_step_keeps_sums(world, dtype):
    """A step whose particles stay at their owners, on a stream of the caller's."""
    mesh = pm.Mesh((16, 12, 20), (1.0, 1.0, 1.0))
    x = positions(mesh, COUNT, world.rank).astype(dtype)
    with cupy.cuda.Stream(non_blocking=True):
        plan = pmd.Plan(pmd.Domain(mesh, world.size), world, "bspline6").set_positions(give(x))
        there = plan.route.send(give(x))
        plan.set_positions(there)
        assert world.allreduce(plan.route.moved) == 0
        values = give(numbers((len(there),), dtype))
        field = plan.spread(values)
        total, expected = (world.allreduce(float(a.sum(dtype="f8"))) for a in (field, values))
        assert abs(total - expected) < 1e3 * np.finfo(dtype).eps
        in_place, copied = plan.interpolate(field), plan.interpolate(field.copy())  # of the window, and of a new one
        assert in_place.shape == values.shape
        assert np.array_equal(take(in_place), take(copied))


def spheres_move_as_on_one_rank(world, deterministic):
    """Velocities, roots and steps of spheres are those of one rank."""
    rng = np.random.default_rng(3)
    x, force = rng.random((80, 3)) * 10, rng.standard_normal((3, 80, 3))
    radii = rng.choice([0.7, 1.0], 80)
    local = RPY((10.0, 10.0, 10.0), radii, accuracy=1e-4).set_positions(x)
    chosen = {name: getattr(local.parameters, name) for name in ("splitting", "cutoff", "shape", "window")}
    some = slice(80 * world.rank // world.size, 80 * (world.rank + 1) // world.size)
    rpy = DistributedRPY(world, local.box, radii[some], accuracy=1e-4, deterministic=deterministic, **chosen)
    rpy.set_positions(cupy.asarray(x[some]))
    vectors = cupy.asarray(np.ascontiguousarray(force[:, some]))
    for verb in (rpy.velocity, rpy.square_root):
        whole = getattr(local, verb.__name__)(force)
        assert abs(take(verb(vectors)) - whole[:, some]).max(initial=0) < 1e-10 * abs(whole).max()
    motion = DistributedBrownianDynamics(world, cupy.asarray(x[some]), rpy, time_step=0.01, seed=1)
    alone = RPY(local.box, radii, accuracy=1e-4, **chosen)
    expected = BrownianDynamics(cupy.asarray(x), alone, time_step=0.01, seed=1)
    for each in (motion, expected):
        each.run(3)
    assert abs(take(motion.positions) - take(expected.positions)[some]).max(initial=0) < 1e-10


def grains_have_the_bits_of_one_rank(world, dtype):
    """Grains that touch and migrate move as on one GPU."""
    x, radii, v, side = loose(120, spread=(0.46, 0.53))
    some = slice(120 * world.rank // world.size, 120 * (world.rank + 1) // world.size)
    given = dict(density=1.0, contact=ROUGH, box=(side, side + 0.1, 2 * side), periodic=(True, False, False))
    given |= dict(gravity=20.0, deterministic=True)
    local = Simulation(cupy.asarray(x.astype(dtype)), radii, v, **given)
    here = DistributedSimulation(world, cupy.asarray(x[some].astype(dtype)), radii[some], v[some], **given)
    for one in (local, here):
        one.run(50)
    for name in ("positions", "velocities", "spins"):
        assert np.array_equal(take(getattr(here, name)), take(getattr(local, name))[some])
    assert here.rebuilds == local.rebuilds > 1


def law(function):
    return lambda world, item: function(world, *(() if item is None else (item,)))


LAWS = [
    *((law(test.test_on_ranks[0]), test.__name__, test.test_on_ranks[2]) for test in (
        plans.test_every_verb_does_what_one_rank_does, plans.test_second_derivatives,
        plans.test_routes_are_their_own_inverse,
        same_bits.test_fields_and_values_have_the_bits_of_one_rank, residents.test_small_moves_and_back,
    )),
    (modes_are_scipys, "modes_are_scipys", [
        (s, d, r, by) for s in ffts.SHAPES[3:6] for d, r in (("f4", True), ("f8", False)) for by in ("slabs", "pencils")
    ]),
    (pairs_are_those_of_one_grid, "pairs_are_those_of_one_grid", list(grids.CASES)),
    (one_rank_has_them_all, "one_rank_has_them_all", ["nodes", "particles", "replicated"]),
    (all_ranks_raise, "all_ranks_raise", [None]),
    (grains_have_the_bits_of_one_rank, "grains_have_the_bits_of_one_rank", ["float32", "float64"]),
    (spheres_move_as_on_one_rank, "spheres_move_as_on_one_rank", [False, True]),
    (a_step_keeps_sums, "a_step_keeps_sums", ["float32", "float64"]),
]  # fmt: skip


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(transport="nccl"):
    ranks = MPI.COMM_WORLD
    cupy.cuda.Device(ranks.Get_rank() % cupy.cuda.runtime.getDeviceCount()).use()
    world = pmd.World(ranks, transport)
    plans.plan_of = same_bits.plan_of = residents.plan_of = plan_of
    plans.OPTIONS.clear()  # the referee's: methods of the CPU, which GPUs do not have
    failed = 0
    for function, name, items in LAWS:
        for item in items:
            error = None
            try:
                function(world, item)
            except Exception:  # all laws are tried
                error = traceback.format_exc()
            errors = [(rank, e) for rank, e in enumerate(ranks.allgather(error)) if e is not None]
            failed += bool(errors)
            if world.rank == 0:
                say("FAILED" if errors else "held", name, "" if item is None else item)
                for rank, text in errors:
                    say(f"rank {rank}: {text}")
    if world.rank == 0:
        say(f"{failed} failed over {world.transport}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
