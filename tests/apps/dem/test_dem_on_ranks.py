# SPDX-License-Identifier: BSD-3-Clause
"""Spheres of many ranks move as on one device, bit by bit."""

import contextlib
import copy
import threading

import numpy as np
import pytest

import mpi
from dem_cases import ROUGH, loose
from particlemesh import distributed as pmd
from particlemesh.apps.dem import Cylinder, DistributedSimulation, Hertz, LinearSpring, Plane, Simulation, simulation
from ranks import on_threads

COUNT, STEPS = 120, 50
SPRING = LinearSpring(stiffness=3e3, restitution=0.6, friction=0.4)
DRUM = Cylinder((2.5, -1, 6), (0, 1, 0), radius=20.0, length=8.0, spin=0.5, contact=Hertz(2e4, 0.3, 0.5, 0.9))
LIFT = Plane((0, 0, 0.0), (0, 0.1, 1), velocity=(0.2, 0, 1.0), spin=2.0)
# Options beside those of `spheres`, and where the spheres of each rank end.
CASES = {
    "one rank": ({}, [120]),
    "walls": ({}, [50, 120]),
    "periodic": (dict(periodic=True), [10, 30, 120]),
    "float32": (dict(dtype="float32", contact=SPRING), [0, 60, 60, 120]),
    "all on one": (dict(spread=(0.25, 0.54), periodic=(False, True, True)), [0, 120, 120]),
    "walls that move": (dict(box=None, periodic=False, walls=[LIFT, DRUM]), [40, 80, 120]),
    "few": (dict(count=2, periodic=True), [1, 1, 1, 2]),
}


def spheres(count=COUNT, spread=(0.46, 0.53), **options):
    """Positions, radii, velocities and spins, and the options of a simulation in which many touch."""
    x, radii, v, side = loose(max(count, 9), spread=spread)
    spins = np.random.default_rng(5).normal(size=x.shape)
    given = dict(density=1.0, contact=ROUGH, box=(side, side + 0.1, 2 * side), periodic=(True, False, False))
    given |= dict(gravity=20.0, deterministic=True, threads=1) | options
    return tuple(a[:count] for a in (x, radii, v, spins)), given


def share(ends, world):
    return slice(([0, *ends])[world.rank], ends[world.rank])


def local_of(particles, given):
    x, radii, v, spins = particles
    return Simulation(x, radii, v, spins=spins, **given)


def ranks_of(world, particles, given, mine):
    x, radii, v, spins = (a[mine] for a in particles)
    return DistributedSimulation(world, x, radii, v, spins=spins, **given)


def same(got, expected):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype, name
            assert np.array_equal(got[name], value, equal_nan=True), name
        else:
            assert got[name] == value, name


def check_reports(here, local, mine):
    """Check what a rank reports against what one device reports of all."""
    assert len(here) == len(here.positions) == mine.stop - mine.start
    for name in ("positions", "velocities", "spins", "radii", "masses"):
        assert np.array_equal(getattr(here, name), getattr(local, name)[mine]), name
    for name in ("step", "time", "time_step", "critical_time_step", "gravity", "walls", "contact", "rebuilds"):
        assert getattr(here, name) == getattr(local, name), name
    assert np.allclose(here.energy, local.energy, rtol=1e-12, atol=1e-12 * local.energy.total)
    forces, expected = here.wall_forces, local.wall_forces
    assert np.allclose(forces, expected, rtol=1e-9, atol=1e-9 * abs(np.array(expected)).max(initial=0))
    touching, whole = here.contacts, local.contacts
    first = (whole.i >= mine.start) & (whole.i < mine.stop)
    for name in touching._fields:
        got, of_all = getattr(touching, name), getattr(whole, name)
        assert np.allclose(got, of_all[first], rtol=1e-9, atol=1e-9 * abs(of_all).max(initial=0)), name


@pytest.fixture
def unhurried(backend, request):
    """The backend, where it compiles quickly, or in a thorough run."""
    if backend.name == "opencl" and request.config.thins:
        pytest.skip("PoCL compiles slowly: this is for --thorough and GPUs")
    return backend


def on(backend):
    """Return options that place spheres of the host's arrays."""
    return {} if backend.name == "cpu" else {"backend": backend.name, "threads": None}


def moves_as_one(world, options, ends):
    particles, given = spheres(**options)
    local, mine = local_of(particles, given), share(ends, world)
    here = ranks_of(world, particles, given, mine)
    check_reports(here, local, mine)
    for one in (local, here):
        one.run(STEPS)
    check_reports(here, local, mine)
    same(here.state(), local.state())


@pytest.mark.parametrize("name", CASES)
def test_ranks_get_the_bits_of_one_device(backend, name):
    options, ends = CASES[name]
    on_threads(len(ends), lambda world: moves_as_one(world, options | on(backend), ends))


@mpi.on_ranks(1, 3)
def test_bits_over_mpi(world):
    moves_as_one(world, dict(periodic=(True, True, False)), [20, 20, 120][-world.size :])


def test_without_order_only_rounding_differs():
    particles, given = spheres(deterministic=False)
    local = local_of(particles, given)
    local.run(STEPS)
    expected = local.positions

    def work(world):
        here = ranks_of(world, particles, given, share([50, 120], world))
        here.run(STEPS)
        assert np.allclose(here.gathered(here.positions), expected, rtol=0, atol=1e-9)

    on_threads(2, work)


def test_what_is_set_between_runs(unhurried):
    """Each change of a simulation is made on all ranks, and spheres come and go."""
    particles, given = spheres(**on(unhurried))
    local = local_of(particles, given)
    ends = [30, 70, 120]
    others = np.full(COUNT, False)
    others[5:COUNT:7] = True

    def change(one, mine, last, n):
        if n == 0:
            one.time_step = 0.5 * one.time_step
            one.gravity = (3.0, 1.0, -10.0)
        elif n == 1:
            one.positions = one.positions + np.array([0.4, 0.0, 0.0])
            one.velocities = 0.5 * one.velocities
            one.spins = -1.0 * one.spins
        elif n == 2:
            one.contact = Hertz(young=2e4, restitution=0.9, friction=0.1)
            one.walls = [one.walls[0], Plane((0, 0, -0.1), (0, 0, 1)), *one.walls[2:]]
        elif n == 3:
            new = np.array([[1.0, 2.0, 9.0], [3.0, 2.0, 9.0]])[: 2 * last]
            one.insert(new, 0.4, velocities=(0, 0, -3.0), density=2.0)
        else:
            extra = [True, False] * last
            one.remove(np.append(others[mine], extra).astype(bool))

    states = []
    for n in range(5):
        change(local, slice(0, COUNT), 1, n)
        local.run(20)
        states.append(local.state())

    def work(world):
        mine = share(ends, world)
        here = ranks_of(world, particles, given, mine)
        for n, expected in enumerate(states):
            change(here, mine, int(world.rank == 2), n)
            here.run(20)
            same(here.state(), expected)

    on_threads(3, work)


def test_checkpoints_continue_on_another_number_of_ranks(backend, tmp_path):
    pytest.importorskip("h5py")
    particles, given = spheres(walls=[LIFT], box=None, periodic=False, **on(backend))
    local = local_of(particles, given)
    local.run(30)
    half = local.state()
    local.save(tmp_path / "local.h5")
    local.run(30)
    end = local.state()

    def first(world):
        here = ranks_of(world, particles, given, share([20, 90, 120], world))
        here.run(30)
        here.save(tmp_path / "ranks.h5")
        same(here.state(), half)

    on_threads(3, first)
    same(Simulation.load(tmp_path / "ranks.h5").state(), half)

    def second(world):
        for name in ("ranks", "local"):
            again = DistributedSimulation.load(world, tmp_path / f"{name}.h5", threads=given["threads"])
            assert again.backend == backend.name
            same(again.state(), half)
            again.run(30)
            same(again.state(), end)

    on_threads(2, second)
    if backend.name != "cpu":  # which rounds otherwise
        (x,) = set(on_threads(1, lambda world: on_the_cpu(DistributedSimulation.load, world, tmp_path / "ranks.h5")))
        assert np.allclose(np.frombuffer(x).reshape(-1, 3), end["positions"], rtol=0, atol=1e-6)


def on_the_cpu(load, world, path):
    again = load(world, path, backend="cpu")
    again.run(30)
    return again.gathered(again.positions).tobytes()


@pytest.mark.backends("opencl", "cuda")
def test_arrays_of_a_device_come_back_as_such(backend):
    """Also on a rank without spheres; ranks on two kinds of device are refused."""
    (x, radii, v, spins), given = spheres(count=2, threads=None)
    local = Simulation(x, radii, v, spins=spins, **given | on(backend))
    local.run(20)
    expected = {name: getattr(local, name) for name in ("positions", "velocities", "spins")}

    def work(world):
        mine = share([0, 1, 2], world)
        places = backend.array(x[mine])
        here = DistributedSimulation(world, places, radii[mine], v[mine], spins=backend.array(spins[mine]), **given)
        here.velocities = here.velocities
        here.run(20)
        assert here.backend == backend.name
        assert here._motion.engine.ran == 20  # walls move, also on a rank without spheres
        for name, whole in expected.items():
            assert type(getattr(here, name)) is type(places)
            assert np.array_equal(backend.host(getattr(here, name)), whole[mine])
        with pytest.raises(pmd.RankError, match=f"on '{backend.name}'"):
            DistributedSimulation(world, places if world.rank else x[mine], radii[mine], **given)

    on_threads(3, work)


def test_a_trajectory_is_that_of_one_device(tmp_path):
    particles, given = spheres()
    local_of(particles, given).run(4, every=2, trajectory=tmp_path / "local.xyz")

    def work(world):
        here = ranks_of(world, particles, given, share([50, 120], world))
        here.run(4, every=2, trajectory=tmp_path / "ranks.xyz", progress=True)

    on_threads(2, work)
    assert (tmp_path / "ranks.xyz").read_text() == (tmp_path / "local.xyz").read_text()


WRONG = {
    "shape": (dict(velocities=np.zeros((7, 3))), ValueError, "velocities has shape"),
    "law": (dict(contact="hertz"), TypeError, "give Hertz"),
    "nan": (dict(spins=(np.nan, 0, 0)), ValueError, "spins are not finite"),
    "too large": (dict(radii=9.0), ValueError, "repeats after"),
    "threads": (dict(threads=-1), ValueError, "threads"),
}


def raised(world, call, kind, message, culprit=1):
    with pytest.raises(kind if world.rank == culprit else pmd.RankError, match=message) as caught:
        call()
    if world.rank != culprit:
        assert caught.value.rank == culprit


@pytest.mark.parametrize("name", WRONG)
def test_a_rank_that_gives_what_is_wrong_ends_all(name):
    wrong, kind, message = WRONG[name]
    (x, radii, v, _), given = spheres(count=20)

    def work(world):
        mine = share([10, 20], world)
        arguments = dict(positions=x[mine], radii=radii[mine], velocities=v[mine]) | given
        raised(world, lambda: DistributedSimulation(world, **arguments | (wrong if world.rank else {})), kind, message)

    on_threads(2, work)


def test_ranks_that_differ_or_fail_later(unhurried):
    particles, given = spheres(count=20, **on(unhurried))
    (x, radii, *_), ends = particles, [10, 20]

    def work(world):
        mine, bad = share(ends, world), world.rank == 1
        here = ranks_of(world, particles, given, mine)
        before = here.state()
        with pytest.raises(pmd.RankError, match="gravity"):
            here.gravity = 1.0 + bad
        with pytest.raises(pmd.RankError, match="a run of"):
            here.run(3 + bad)
        raised(world, lambda: setattr(here, "positions", x[mine][bad:]), ValueError, "positions has shape")
        raised(world, lambda: here.remove(np.zeros(10 + bad, bool)), ValueError, "which is bool")
        into = np.array([x[0]]) if bad else np.zeros((0, 3))  # sphere 0 is rank 0's, and its owner says so
        with pytest.raises((ValueError, pmd.RankError), match="the deepest is that of particles 0 and 20"):
            here.insert(into, 0.5, density=1.0)
        same(here.state(), before)
        with pytest.raises((ValueError, pmd.RankError), match="of particles"):
            DistributedSimulation(world, x[:1] + 0.01 * world.rank, radii[:1], **given)
        with pytest.raises(TypeError):
            copy.copy(here)
        assert f"10 of 20 spheres on <World: rank {world.rank}" in repr(here)
        here.velocities = np.where(np.arange(10) == 3, 1e300 if bad else 1.0, 0.0)[:, None] * np.ones(3)
        for _ in range(2):  # also the second time none waits
            with pytest.raises((FloatingPointError, pmd.RankError), match=r"particle \d+ is at"):
                here.run(5)

    on_threads(2, work)


def test_an_interrupt_of_one_rank_ends_the_run_of_all(unhurried, monkeypatch):
    particles, given = spheres(count=20, **on(unhurried))
    me = threading.local()

    @contextlib.contextmanager
    def pressed():
        yield lambda: me.rank == 1 and me.here.step > 0
        if me.rank == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "deferred", pressed)

    def work(world):
        here = ranks_of(world, particles, given, share([10, 20], world))
        me.rank, me.here = world.rank, here
        with pytest.raises(KeyboardInterrupt):
            here.run(1000)
        assert 0 < here.step < 1000
        assert len(set(world.allgather(here.step))) == 1

    on_threads(2, work)
