# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics over ranks is that of one device, and goes on after a restart on another number of ranks."""

import copy

import numpy as np
import pytest

from particlemesh import distributed as pmd
from particlemesh.apps.brownian import (
    RPY,
    WCA,
    BrownianDynamics,
    DistributedBrownianDynamics,
    DistributedRPY,
    Drag,
    FreeRPY,
)
from ranks import on_threads

BOX, COUNT = (9.0, 8.0, 10.0), 40
RADII = np.random.default_rng(3).choice([0.7, 1.0], COUNT)
RPY_OPTIONS = dict(accuracy=1e-2, threads=1)


def shares(ends):
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def start(dtype="f8"):
    return (np.random.default_rng(1).random((COUNT, 3)) * BOX).astype(dtype)


def falling(x):
    force = 0 * x
    force[:, 1] += 0.1
    force[:, 2] -= 1.0
    return force


def placed(backend, x):
    """Return positions as steps take them: of CuPy on CUDA, else of NumPy."""
    return backend.array(x) if backend.name == "cuda" else np.array(x)


def host(x):
    return x if isinstance(x, np.ndarray) else x.get()


class Uneven:
    """A mobility of no neighbours that depends on the place."""

    def set_positions(self, x):
        self.factor = 1 + 0.1 * np.sin(x)

    def velocity(self, forces):
        return self.factor * forces

    def square_root(self, z):
        return np.sqrt(self.factor) * z


# Where the particles of each rank end, the mobility of some particles, options.
CASES = {
    "rpy": ([15, 40], lambda world, mine: (RPY, DistributedRPY)[world is not None], dict(integrator="midpoint")),
    "rpy, one has none": ([20, 20, 40], lambda world, mine: (RPY, DistributedRPY)[world is not None], {}),
    "drag": ([0, 40, 40], lambda world, mine: Drag(RADII[mine] if len(RADII[mine]) else 1.0), dict(forces=falling)),
    "drift": ([10, 20, 21, 40], lambda world, mine: Uneven(), dict(difference=1e-3)),
}


def made(kind, world, mine, options=RPY_OPTIONS):
    if kind is RPY:
        return RPY(BOX, RADII, **options)
    return DistributedRPY(world, BOX, RADII[mine], **options) if kind is DistributedRPY else kind


def on(backend):
    """Return options of a mobility where the backend is: it is named for arrays of the host."""
    return RPY_OPTIONS if backend.name == "cpu" else dict(accuracy=1e-2) | {"backend": backend.name}


@pytest.mark.backends("cpu", "cuda")
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_one_device(backend, name):
    compare(backend, name)


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("name", [name for name in CASES if "rpy" in name])
def test_steps_through_opencl_are_those_of_one_device(backend, name):
    compare(backend, name)


def compare(backend, name):
    ends, mobility, options = CASES[name]
    given = dict(forces=[falling], time_step=0.01, seed=3) | options
    whole = slice(0, COUNT)
    local = BrownianDynamics(
        placed(backend, start()), made(mobility(None, whole), None, whole, on(backend)), **given
    )  # fmt: skip
    local.run(3)

    def work(world):
        mine = shares(ends)[world.rank]
        kind = made(mobility(world, mine), world, mine, on(backend))
        dynamics = DistributedBrownianDynamics(world, placed(backend, start()[mine]), kind, **given)
        dynamics.run(3)
        assert (dynamics.step, dynamics.time) == (local.step, local.time)
        assert type(dynamics.positions) is type(local.positions)
        return mine, host(dynamics.positions)

    expected = host(local.positions)
    for mine, positions in on_threads(len(ends), work):
        assert abs(positions - expected[mine]).max(initial=0) < 1e-9
    assert abs(expected - start()).max() > 0.01


def test_a_restart_on_other_ranks_goes_on(backend, tmp_path):
    """The state of two ranks continues on one and on three, and that of OpenCL also on CPUs."""
    pytest.importorskip("h5py")
    x, given = placed(backend, start()), dict(forces=falling, time_step=0.01, seed=3)
    chosen = RPY(BOX, RADII, **RPY_OPTIONS).set_positions(start()).settings()
    chosen = {key: chosen[key] for key in ("splitting", "cutoff", "shape", "window")}
    local = BrownianDynamics(x, RPY(BOX, RADII, **on(backend), **chosen), **given)
    local.run(2)

    def first(world):
        mine = shares([25, 40])[world.rank]
        mobility = DistributedRPY(world, BOX, RADII[mine], **on(backend), **chosen)
        dynamics = DistributedBrownianDynamics(world, x[mine], mobility, **given)
        dynamics.run(1, trajectory=tmp_path / "path.xyz")
        dynamics.save(tmp_path / "state.h5")

    def second(world):
        mobility = None
        if backend.name == "opencl" and world.size == 4:
            mobility = DistributedRPY(world, BOX, RADII[10 * world.rank :][:10], **RPY_OPTIONS, **chosen)
        dynamics = DistributedBrownianDynamics.load(world, tmp_path / "state.h5", mobility, falling)
        dynamics.run(1)
        assert type(dynamics.positions) is type(x)
        assert dynamics.mobility._near.backend.name == (backend.name if mobility is None else "cpu")
        return host(dynamics.positions)

    on_threads(2, first)
    assert (tmp_path / "path.xyz").read_text().split("\n")[0] == str(COUNT)
    again = BrownianDynamics.load(tmp_path / "state.h5", forces=falling)
    again.run(1)
    assert abs(again.positions - local.positions).max() < 1e-9
    for size in (3, 4):
        assert abs(np.concatenate(on_threads(size, second)) - host(local.positions)).max() < 1e-9


def failing(x):
    if len(x) == 15:
        raise RuntimeError("no force")
    return falling(x)


def infinite(x):
    return falling(x) * (np.nan if len(x) == 15 else 1)


def interrupted(x):
    if len(x) == 15:
        raise KeyboardInterrupt("Ctrl-C")
    return falling(x)


WRONG = [(failing, "no force"), (infinite, "the force on particle 0 is"), (interrupted, "Ctrl-C")]


@pytest.mark.parametrize(("force", "words"), WRONG)
def test_an_error_on_one_rank_is_named_on_all(force, words):
    def work(world):
        mine = shares([25, 40])[world.rank]
        dynamics = DistributedBrownianDynamics(world, start()[mine], Drag(), force, time_step=0.01, seed=1)
        with pytest.raises((RuntimeError, FloatingPointError, KeyboardInterrupt)) as caught:
            dynamics.run(1)
        assert dynamics.step == 0
        dynamics.forces = falling
        dynamics.run(1)
        assert dynamics.step == 1
        return caught.value

    first, second = on_threads(2, work)
    assert isinstance(first, pmd.RankError)
    assert first.rank == 1
    assert words in str(first)
    assert words in str(second)


REFUSED = {
    "a mobility of one rank": (dict(mobility=RPY(BOX)), TypeError, "RPY sees the particles of one rank"),
    "free space": (dict(mobility=FreeRPY()), TypeError, "FreeRPY sees"),
    "forces of one rank": (dict(forces=[falling, WCA(BOX)]), TypeError, "WCA sees"),
    "temperature": (dict(temperature=-1.0), ValueError, "temperature"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_over_ranks_is_refused(name):
    options, kind, words = REFUSED[name]

    def work(world):
        given = dict(mobility=Drag(), time_step=0.1) | (options if world.rank else {})
        with pytest.raises((kind, pmd.RankError), match=words):
            DistributedBrownianDynamics(world, start(), **given)

    on_threads(2, work)


def test_ranks_of_two_types_are_refused():
    def work(world):
        with pytest.raises(pmd.RankError, match="of numpy in float32"):
            DistributedBrownianDynamics(world, start(("f4", "f8")[world.rank]), Drag(), time_step=0.1)

    on_threads(2, work)


def test_shear_copies_and_other_seeds_are_refused():
    def work(world):
        dynamics = DistributedBrownianDynamics(world, start(), Drag(), time_step=0.1)
        assert len(set(world.allgather(dynamics.seed))) == 1
        with pytest.raises(ValueError, match="boxes do not shear"):
            dynamics.shear_rate = 1.0
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.copy(dynamics)
        with pytest.raises(ValueError, match="give trajectory="):
            dynamics.run(1, every=2)
        with pytest.raises(pmd.RankError, match="calls seed"):
            dynamics.seed = world.rank
        wca = WCA(BOX)
        with pytest.raises(TypeError if world.rank else pmd.RankError, match="of one rank only"):
            dynamics.forces = wca if world.rank else None
        with pytest.raises(pmd.RankError, match="seed="):
            DistributedBrownianDynamics(world, start(), Drag(), time_step=0.1, seed=None if world.rank else 1)

    on_threads(2, work)
