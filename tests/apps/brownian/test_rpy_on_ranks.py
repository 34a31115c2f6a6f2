# SPDX-License-Identifier: BSD-3-Clause
"""The mobility over ranks is that of one device, and so is its noise."""

import copy

import numpy as np
import pytest

import mpi
from kinds import KINDS
from particlemesh import backends
from particlemesh import distributed as pmd
from particlemesh.apps.brownian import RPY, DistributedRPY
from ranks import on_threads

BOX, COUNT = [[9, 0, 0], [1.5, 8, 0], [-1, 0.5, 10]], 60
MANY = np.random.default_rng(3).choice([0.7, 1.0, 1.2], COUNT)
# Where the spheres of each rank end, dtype, radii, options.
CASES = {
    "one rank": ([60], "f8", 1.0, {}),
    "two ranks": ([25, 60], "f8", MANY, dict(parts="slabs", window="bspline6")),
    "all on the first": ([60, 60, 60], "f8", 1.0, dict(deterministic=True)),
    "one has none": ([20, 20, 21, 60], "f8", MANY, {}),
    "float32": ([20, 60], "f4", 1.0, {}),
}


def shares(ends):
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def drawn(dtype="f8", seed=1):
    rng = np.random.default_rng(seed)
    x = rng.random((COUNT, 3)) @ np.array(BOX, float)
    return x.astype(dtype), rng.standard_normal((3, COUNT, 3)).astype(dtype)


def chosen(local, backend):
    """Return the parameters that the CPU has chosen, where another backend would choose others."""
    if backend.name == "cpu":
        return {}
    return {name: getattr(local.parameters, name) for name in ("splitting", "cutoff", "shape", "window")}


@pytest.mark.parametrize("name", CASES)
def test_velocities_and_noise_are_those_of_one_device(backend, name):
    ends, dtype, radius, options = CASES[name]
    x, force = drawn(dtype)
    given = dict(accuracy=1e-4, threads=1) | options
    local = RPY(BOX, radius, **{key: value for key, value in given.items() if key != "parts"}).set_positions(x)
    waves = np.random.default_rng(5).standard_normal((3, 3, *local.parameters.shape)).astype(dtype)
    expected = [
        local.velocity(force), local.velocity(force[0]), local.square_root(force, tolerance=1e-2),
        local.square_root(force[0], tolerance=1e-2), local.square_root(force, method="split", waves=waves),
    ]  # fmt: skip
    iterations = local.info.iterations
    expected += [local.noise(np.random.default_rng(7), 2), local.noise(np.random.default_rng(7), method="lanczos")]
    moved = local.set_positions(x + 1).velocity(force[0])

    def work(world):
        mine = shares(ends)[world.rank]
        radii = radius[mine] if np.ndim(radius) else radius
        rpy = DistributedRPY(world, BOX, radii, **given | chosen(local, backend)).set_positions(backend.array(x[mine]))
        assert rpy.parameters == local.parameters
        nodes = pmd.Domain(rpy._far.mesh, world.size, options.get("parts", "blocks")).parts(world.rank)[0]
        part = backend.array(waves[(..., *map(slice, nodes.lower, nodes.upper))].reshape(3, 3, *nodes.shape))
        vectors, one = backend.array(force[:, mine]), backend.array(force[0, mine])
        results = [
            rpy.velocity(vectors), rpy.velocity(one), rpy.square_root(vectors, tolerance=1e-2),
            rpy.square_root(one, tolerance=1e-2), rpy.square_root(vectors, method="split", waves=part),
        ]  # fmt: skip
        assert rpy.info.iterations == iterations
        results += [rpy.noise(np.random.default_rng(7), 2), rpy.noise(np.random.default_rng(7), method="lanczos")]
        assert rpy.nbytes > 0 and "predicted error" in rpy.explain()
        results.append(rpy.set_positions(backend.array(x[mine] + 1)).velocity(one))
        assert all(type(result) is type(vectors) for result in results)
        return mine, [backend.host(result) for result in results]

    tolerance = 1e-11 if dtype == "f8" else 1e-5
    for mine, results in on_threads(len(ends), work):
        for got, whole in zip(results, [*expected, moved], strict=True):
            part = whole[..., mine, :]
            assert got.shape == part.shape
            assert got.dtype == part.dtype
            assert abs(got - part).max(initial=0) <= tolerance * abs(whole).max()


@mpi.on_ranks(1, 3)
def test_velocities_over_mpi(world):
    x, force = drawn()
    mine = shares([15, 15, 60] if world.size > 1 else [60])[world.rank]
    given = dict(accuracy=1e-2, threads=1)
    expected = RPY(BOX, **given).set_positions(x)
    rpy = DistributedRPY(world, BOX, **given).set_positions(x[mine])
    for verb in ("velocity", "square_root"):
        got, whole = getattr(rpy, verb)(force[:, mine].copy()), getattr(expected, verb)(force)
        assert abs(got - whole[:, mine]).max(initial=0) < 1e-11 * abs(whole).max()


WRONG = {
    "nan": (lambda x, f: (x, np.full_like(f, np.nan)), "forces are not all finite"),
    "shape": (lambda x, f: (x, f[1:]), "forces"),
    "place": (lambda x, f: (x * np.inf, f), "finite"),
    "columns": (lambda x, f: (x[:, :2], f), "positions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_on_one_rank_is_named_on_all(backend, name):
    change, words = WRONG[name]
    x, force = drawn()

    def work(world):
        mine = shares([30, 60])[world.rank]
        rpy = DistributedRPY(world, BOX, accuracy=1e-2, threads=1).set_positions(backend.array(x[mine]))
        given = x[mine], force[0, mine]
        places, vectors = map(backend.array, change(*given) if world.rank == 1 else given)
        with pytest.raises((ValueError, TypeError, pmd.RankError)) as caught:
            rpy.set_positions(places).velocity(vectors)
        rpy.set_positions(backend.array(given[0])).velocity(backend.array(given[1]))
        return caught.value

    first, second = on_threads(2, work)
    assert isinstance(first, pmd.RankError)
    assert first.rank == 1
    assert words in str(first)
    assert words in str(second)


@pytest.mark.opencl
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_array_comes_back_as_it_was_given(name):
    kind, (x, force) = KINDS[name], drawn()
    if (reason := backends.module(kind.home).available()) is not None:
        pytest.skip(f"{kind.home} does not work here: {reason}")
    local = RPY(BOX, accuracy=1e-2).set_positions(x)

    def work(world):
        mine = shares([20, 60])[world.rank]
        vectors = kind.make(force[0, mine])
        velocity = DistributedRPY(world, **local.settings()).set_positions(kind.make(x[mine])).velocity(vectors)
        assert kind.place(velocity) == kind.place(vectors)
        return kind.host(velocity)

    expected = local.velocity(force[0])
    assert abs(np.concatenate(on_threads(2, work)) - expected).max() < 1e-11 * abs(expected).max()


@pytest.mark.backends("opencl", "cuda")
def test_arrays_of_two_kinds_of_device_are_an_error_on_all_ranks(backend):
    def work(world):
        x, force = drawn()
        rpy = DistributedRPY(world, BOX, accuracy=1e-2)
        with pytest.raises(pmd.RankError, match=f"in float64 on '{backend.name}'"):
            rpy.set_positions(backend.array(x) if world.rank else x)
        rpy.set_positions(backend.array(x))
        with pytest.raises((TypeError, pmd.RankError), match=r"forces is a NumPy array and the work is on"):
            rpy.velocity(force[0] if world.rank else backend.array(force[0]))

    on_threads(2, work)


def test_what_has_no_meaning_over_ranks_is_refused():
    def work(world):
        with pytest.raises(ValueError, match="parts"):
            DistributedRPY(world, BOX, parts="rows")
        rpy = DistributedRPY(world, BOX, accuracy=1e-2)
        with pytest.raises(RuntimeError, match="no positions yet"):
            rpy.velocity(np.zeros((1, 3)))
        with pytest.raises(TypeError, match="of one rank"):
            rpy.linear_operator()
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.copy(rpy)
        with pytest.raises((ValueError, pmd.RankError), match="3 positions and 2 radii"):
            DistributedRPY(world, BOX, np.ones(2 + world.rank)).set_positions(np.zeros((3, 3)))

    on_threads(2, work)


def test_one_radius_is_that_of_all_ranks():
    def work(world):
        with pytest.raises(pmd.RankError, match=r"radius=1\.5"):
            DistributedRPY(world, BOX, radius=1 + world.rank / 2)

    on_threads(2, work)
