# SPDX-License-Identifier: BSD-3-Clause
"""Particles by first node, and the walk over those that reach a node."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.methods.launches import Group, defines
from particlemesh.orders import node_order

BOX = pm.Box((1.0, 2.0, 3.0), periodic=(True, False, True))
MESHES = {
    "odd": pm.Mesh((5, 7, 9), (1.0, 2.0, 3.0)),
    "open": pm.Mesh((5, 4, 3), BOX, offset=0.5),
    "ghosts": pm.Mesh((4, 5, 6), (1.0, 2.0, 3.0), ghosts=4),
    "small": pm.Mesh((1, 3, 2), (1.0, 2.0, 3.0)),
    "open along z": pm.Mesh((5, 6), pm.Box((1.0, 2.0), periodic=(True, False)), offset=0.5),
    "line": pm.Mesh((7,), (1.0,)),
}
WALK = """
#include "spread/meeting.h"

KERNEL walk(GLOBAL const u32* start, GLOBAL u32* met, const i64 nodes, const i64 count, const Lattice lattice)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        const int z = (int)(n % lattice.size[2]), y = (int)(n / lattice.size[2] % lattice.size[1]);
        const int x = (int)(n / lattice.size[2] / lattice.size[1]);
        for (int kx = 0; kx < SUPPORT_X; kx++)
            for (int ky = 0; ky < SUPPORT_Y; ky++) {
                const i64 line = line_meeting(&lattice, x, y, kx, ky);
                if (line < 0) continue;
                Run run = {0};
                while (next_run(&run, &lattice, z))
                    for (int c = run.cell; c < run.cell + run.cells; c++) {
                        const int kz = run.k + run.cell + run.cells - 1 - c;
                        for (u32 p = start[line + c]; p < start[line + c + 1]; p++)
                            met[(n * count + p) * SUPPORT_X * SUPPORT_Y * SUPPORT_Z
                                + (kx * SUPPORT_Y + ky) * SUPPORT_Z + kz] += 1;
                    }
            }
    }
}
"""


def plan_of(backend, mesh, support, count=23):
    rng = np.random.default_rng(support)
    x = mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths
    x[2] = np.nan
    plan = pm.Plan(mesh, f"bspline{support}", backend=backend.name, dtype="float32")
    plan.reserve(count)
    plan.set_positions(backend.array(x), check=False)
    return plan, x


@pytest.mark.parametrize("support", [1, 4, 5])
@pytest.mark.parametrize("mesh", MESHES)
def test_the_walk_meets_every_contribution_once(backend, mesh, support, tmp_path):
    if backend.name == "cpu":
        pytest.skip("processors have the order of tiles")
    mesh = MESHES[mesh]
    plan, x = plan_of(backend, mesh, support)
    count, found = len(x), node_order.node_order(plan.workspace)
    order, rank = (plan.backend.download(a)[:count] for a in (found.order, found.rank))
    start = plan.backend.download(found.start)[: node_order.cells(plan.workspace) + 1]
    assert start[-1] == count - 1
    assert sorted(order) == list(range(count))
    assert rank[2] == -1
    assert all(order[rank[i]] == i for i in range(count) if i != 2)

    node = plan.backend.download(plan.particles.node)[:, :count]
    fraction = plan.backend.download(plan.particles.fraction)[:, :count]
    placed = plan.backend.download(found.node)[: 3 * found.rows].reshape(3, -1)
    np.testing.assert_array_equal(placed[:, : count - 1], node[:, order[:-1]])
    placed = plan.backend.download(found.fraction)[: 3 * found.rows].reshape(3, -1)
    np.testing.assert_array_equal(placed[:, : count - 1], fraction[:, order[:-1]])

    sizes, supports = [a.size for a in plan.workspace.axes], [a.support for a in plan.workspace.axes]
    nodes, stencil = int(np.prod(sizes)), int(np.prod(supports))
    met = plan.backend.upload(np.zeros(nodes * count * stencil, np.uint32))
    file = tmp_path / "walk.c"
    file.write_text(WALK)
    facts = defines(plan.workspace, Group(1, 1, 0), 1, GRADIENT=0, LANES_ALL=1, LANES_ROW=1)
    walk = plan.backend.kernel(str(file), "walk", facts)
    walk(nodes, found.start, met, nodes, count, found.lattice)
    met = plan.backend.download(met).reshape(nodes, count, *supports)
    wanted = np.zeros_like(met)
    for p in range(count):
        if order[p] == 2:
            continue
        for k in np.ndindex(*supports):
            at = [int(f) + j for f, j in zip(node[:, order[p]], k, strict=True)]
            at = [n % a.size if a.wraps else n for n, a in zip(at, plan.workspace.axes, strict=True)]
            if all(0 <= n < a.size for n, a in zip(at, plan.workspace.axes, strict=True)):
                wanted[(np.ravel_multi_index(at, sizes), p, *k)] += 1
    np.testing.assert_array_equal(met, wanted)


def test_particles_of_a_cell_keep_their_order(backend):
    if backend.name == "cpu":
        pytest.skip("processors have the order of tiles")
    plan, _ = plan_of(backend, MESHES["small"], 4, count=200)
    found = node_order.node_order(plan.workspace)
    order, start = plan.backend.download(found.order), plan.backend.download(found.start)
    for begin, end in itertools.pairwise(start):
        assert (np.diff(order[begin:end]) > 0).all()
