# SPDX-License-Identifier: BSD-3-Clause
"""Velocities, noise and steps of spheres over ranks have the same bits, whatever the cuts."""

import hashlib

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.brownian import DistributedBrownianDynamics, DistributedRPY
from rank_cases import mine
from ranks import on_threads

BOX = np.array([[12.0, 0.0, 0.0], [1.0, 11.0, 0.0], [0.0, -0.7, 10.0]])
CUTS = ((2, "slabs", 1), (3, "blocks", 2), (4, "pencils", 3), (8, "bisection", 4), (1, "slabs", 5))


def spheres(dtype):
    rng = np.random.default_rng(4)
    x = (rng.random((90, 3)) @ BOX).astype(dtype)
    return x, rng.standard_normal((2, 90, 3)).astype(dtype), rng.choice([0.5, 1.0], 90)


def hashed(*arrays):
    return [hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for a in arrays]


def share(world, count):
    """Return this rank's part of what all have in one order, also none."""
    ends = np.linspace(0, count, world.size + 1).astype(int) if world.size < 8 else np.minimum(np.arange(9) * 13, count)
    return slice(ends[world.rank], ends[world.rank + 1] if world.rank + 1 < world.size else count)


def mobility(world, seed, parts, radius, **options):
    options = {"threads": 1 + seed % 2} | options
    return DistributedRPY(world, BOX, radius, accuracy=1e-3, cutoff=3.0, deterministic=True, parts=parts, **options)


def velocities(world, backend, dtype, parts, seed, many):
    x, forces, radii = spheres(dtype)
    here = mine(world, len(x), seed)
    rpy = mobility(world, seed, parts, radii[here] if many else 1.0).set_positions(backend.array(x[here]))
    moved = backend.host(rpy.velocity(backend.array(forces[:, here])))
    one = backend.host(rpy.velocity(backend.array(forces[0, here])))
    order = np.argsort(np.concatenate(world.allgather(here)))
    whole = [np.concatenate(world.allgather(a))[order] for a in (np.ascontiguousarray(moved.swapaxes(0, 1)), one)]
    return hashed(*whole), whole


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_velocities_have_the_bits_of_one_rank(backend, dtype, many):
    alone, (moved, one) = velocities(pmd.World(), backend, dtype, "blocks", 0, many)
    for size, *how in CUTS[: None if backend.name == "cpu" else 2]:
        got = on_threads(size, lambda world, how=how: velocities(world, backend, dtype, *how, many)[0])
        assert got == [alone] * size
    assert abs(one - moved[:, 0]).max() < 1e-5 * abs(one).max()


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("method", ["split", "lanczos"])
def test_noise_has_the_bits_of_one_rank(method, batch):
    def drawn(world, parts, seed):
        x = spheres("float64")[0]
        x[7] = x[3]  # two in one place go by their numbers
        rpy = mobility(world, seed, parts, 1.0).set_positions(x[share(world, len(x))])
        noise = rpy.noise(np.random.default_rng(9), *batch, method=method, tolerance=1e-3)
        return hashed(np.concatenate(world.allgather(np.ascontiguousarray(np.moveaxis(noise, -2, 0)))))

    alone = drawn(pmd.World(), "blocks", 0)
    for size, *how in CUTS:
        assert on_threads(size, lambda world, how=how: drawn(world, *how)) == [alone] * size


def push(r2, d, i, j, a, b, p, sum):
    for axis in range(3):
        sum[axis] -= p[0] * np.exp(-r2) * d[axis]


def test_steps_have_the_bits_of_one_rank():
    function = pm.PairFunction(None, push, results=3, parameters=(0.3,))

    def moved(world, parts, seed):
        x = spheres("float64")[0]
        domain = pmd.Domain(pm.Mesh((8, 8, 8), BOX), world.size, parts)
        grid = pmd.UniformGrid(domain, world, 2.0, deterministic=True)
        motion = DistributedBrownianDynamics(
            world, x[share(world, len(x))], mobility(world, seed, parts, 1.0),
            lambda places: grid.build(places).stream(None, function), time_step=0.02, seed=11,
        )  # fmt: skip
        motion.run(3)
        return hashed(np.concatenate(world.allgather(motion.positions)))

    alone = moved(pmd.World(), "blocks", 0)
    for size, *how in CUTS:
        assert on_threads(size, lambda world, how=how: moved(world, *how)) == [alone] * size


def test_a_restart_on_other_ranks_goes_on_with_the_same_bits(tmp_path):
    x, file = spheres("float64")[0], tmp_path / "state"

    def motion(world, parts):
        mine = np.ascontiguousarray(x[share(world, len(x))])
        return DistributedBrownianDynamics(world, mine, mobility(world, 0, parts, 1.0), time_step=0.02, seed=3)

    def begun(world):
        first = motion(world, "slabs")
        first.run(2)
        first.save(file)

    def gone_on(world, steps, made):
        state = made(world)
        state.run(steps)
        return hashed(np.concatenate(world.allgather(state.positions)))

    alone = gone_on(pmd.World(), 4, lambda world: motion(world, "blocks"))
    on_threads(2, begun)
    for size in (1, 3, 4):
        again = on_threads(size, lambda world: gone_on(world, 2, lambda w: DistributedBrownianDynamics.load(w, file)))
        assert again == [alone] * size
