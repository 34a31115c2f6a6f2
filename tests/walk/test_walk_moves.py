# SPDX-License-Identifier: BSD-3-Clause
"""What the model of a walk says of its moves, against particles that are counted."""

from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from blocks import cut
from particlemesh.choosing.choice import METHODS
from particlemesh.methods.contract import Problem
from particlemesh.orders import block_order
from particlemesh.particles.stencil import axes_of
from particlemesh.walk import patch as patches

GPU = SimpleNamespace(name="cuda", units=132, facts=lambda: {"HAS_WARP": 1, "HAS_MMA": 1})
WALKS = {direction: {m.name: m for m in methods}["walk"] for direction, methods in METHODS.items()}


def problem_of(nodes, support, count, dtype="float32", components=1, **cloud):
    mesh = pm.Mesh((nodes,) * 3, (1.0,) * 3)
    return Problem(
        mesh, pm.bspline(support), np.dtype(dtype), components, 1, count, False, GPU, **cloud
    )  # fmt: skip


def counted(problem, patch, chunk):
    """Moves of every warp, of particles anywhere."""
    nodes = problem.mesh.shape[0]
    cell = np.random.default_rng(3).integers(0, nodes, (problem.count, 3))
    block = cut(block_order.blocks_of(axes_of(problem.mesh, problem.window), patch.cells), cell.T)[0].T
    order = np.lexsort((block[:, 0], block[:, 2], block[:, 1]))
    changes = np.concatenate([[True], (np.diff(block[order], axis=0) != 0).any(axis=1)])
    warps = [changes[n : n + chunk].copy() for n in range(0, problem.count - chunk + 1, chunk)]
    for warp in warps:
        warp[0] = True  # it begins somewhere
    return np.array([warp.sum() for warp in warps])


@pytest.mark.parametrize(
    ("nodes", "support", "count"),
    [
        (50, 2, 43_714),  # the last blocks along y and z have one row of seven
        (49, 2, 43_714),  # all are whole
        (51, 7, 37_532),
        (60, 8, 48_638),
        (48, 6, 20_535),
        (128, 6, 1_000_000),
        (24, 4, 2_000),
    ],
)
def test_the_slowest_warp_makes_about_as_many_moves(nodes, support, count):
    problem, walk = problem_of(nodes, support, count), WALKS["interpolate"]
    patch = walk.patch_for(problem, count)
    chunk = patches.chunk_of(problem, patch, 1, spreads=False)
    moves = counted(problem, patch, chunk)
    assert walk.most_moves(problem, patch, chunk) == pytest.approx(moves.max(), rel=0.4, abs=3)
    left, mean = walk.passed(problem, patch)
    assert mean / count * chunk == pytest.approx(moves.mean(), rel=0.15, abs=2)  # where it begins is no move
    assert left > 0


def test_no_warp_waits_for_a_thin_block():
    walk = WALKS["interpolate"]

    def most(nodes):
        problem = problem_of(nodes, 2, round(0.35 * nodes**3))
        patch = walk.patch_for(problem, problem.count)
        return walk.most_moves(problem, patch, 64), walk.cost(problem)[1]

    whole, thin = most(49), most(50)
    assert thin[0] < 2 * whole[0] and thin[1] < 1.2 * whole[1]


@pytest.mark.parametrize("direction", WALKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("components", [1, 2, 4, 6])
@pytest.mark.parametrize("count", [0, 1, 31, 10**4, 10**8])
def test_any_number_of_particles_has_a_time(direction, dtype, components, count):
    walk = WALKS[direction]

    def seconds(n, filled=1.0):
        return walk.cost(problem_of(64, 6, n, dtype, components, filled=filled))[1]

    assert 1e-6 < seconds(count) < 1 and 1e-6 < seconds(count, filled=0.01) < 1
    assert seconds(100 * count + 10**6) > seconds(count)


@pytest.mark.parametrize(("nodes", "edge", "support"), [(60, 36, 8), (90, 30, 6), (48, 24, 4), (100, 25, 2)])
def test_particles_of_a_lattice_move_windows_less_often(nodes, edge, support):
    sites = np.stack(np.unravel_index(np.arange(edge**3), (edge,) * 3), axis=-1)
    cell = ((sites + 0.5) * nodes / edge).astype(int)
    problem, walk = problem_of(nodes, support, edge**3, occupied=edge / nodes), WALKS["interpolate"]
    patch = walk.patch_for(problem, problem.count)
    cuts = block_order.blocks_of(axes_of(problem.mesh, problem.window), patch.cells)
    blocks = len(np.unique(cut(cuts, cell.T)[0], axis=1).T)
    left, moves = walk.passed(problem, patch)
    anywhere = walk.passed(problem_of(nodes, support, edge**3), patch)
    assert moves == pytest.approx(blocks, rel=0.3) and moves <= anywhere[1] and left <= anywhere[0]


def test_meshes_of_one_node_and_of_few_axes_have_times():
    for mesh in (pm.Mesh((1, 1, 1), (1.0,) * 3), pm.Mesh((64,), (1.0,)), pm.Mesh((5, 7), (1.0, 1.0))):
        problem = Problem(mesh, pm.bspline(6), np.dtype("float32"), 1, 1, 1000, False, GPU)
        for walk in WALKS.values():
            assert 0 < walk.cost(problem)[1] < 1e-2
