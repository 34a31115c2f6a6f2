# SPDX-License-Identifier: BSD-3-Clause
"""How the mesh is cut into blocks of cells."""

import itertools

import pytest

import particlemesh as pm
from particlemesh.orders import block_order
from particlemesh.particles.stencil import axes_of
from particlemesh.window import window_of


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 7, 24, 50, 64, 97, 139])
def test_blocks_hold_all_nodes_and_the_last_is_not_alone_in_being_narrow(nodes, periodic):
    box = pm.Box((1.0,) * 3, periodic=periodic)
    axes = axes_of(pm.Mesh((nodes,) * 3, box, offset=0.0 if periodic else 0.5), window_of("bspline4"))
    for cells in itertools.product((1, 2), (1, 2, 5, 8), (1, 2, 3, 7, 8, 10, 13, 14)):
        blocks = block_order.blocks_of(axes, cells)
        for a, axis in enumerate(axes):
            count, wide, narrow = blocks.counts[a], blocks.wide[a], blocks.narrow[a]
            before = (axis.low + axis.extent - blocks.base[a]) - blocks.last[a]  # nodes of all but the last
            assert 0 < blocks.last[a] <= (narrow if wide < count else cells[a])
            assert before == min(wide, count - 1) * cells[a] + max(0, count - 1 - wide) * narrow
            assert (count - 1) * cells[a] < before + blocks.last[a]  # no more blocks than there must be
            if a and count > cells[a]:
                assert narrow - blocks.last[a] < max(1, cells[a] - narrow)  # at most a pair is cut
        assert blocks.narrow[0] == cells[0] and (cells[2] < 8 or cells[2] % 2 or blocks.narrow[2] % 2 == 0)


def test_what_cannot_be_ordered():
    window = window_of("bspline6")

    def ask(mesh, cells=(3, 3, 10), count=10, **more):
        return block_order.declines(axes_of(mesh, window), cells, count, **more)

    mesh = pm.Mesh((37, 41, 43), (1.0, 2.0, 3.0))
    assert ask(mesh) is None
    assert ask(mesh, count=2**32 - 1) is None
    assert "2**32 particles" in ask(mesh, count=2**32)
    assert "2**31 particles" in ask(mesh, count=2**31, stable=True)
    assert "9 x 3 x 10 cells" in ask(mesh, cells=(9, 3, 10))
    assert "0 x 3 x 10 cells" in ask(mesh, cells=(0, 3, 10))
    long = pm.Mesh((3 * 2**14, 6, 6), (1.0, 1.0, 1.0))
    assert ask(long) is None
    assert "16384 blocks along x" in ask(pm.Mesh((3 * 2**14 + 1, 6, 6), (1.0, 1.0, 1.0)))
    assert "2**32 blocks" in ask(pm.Mesh((2**14, 2**14, 2**14), (1.0, 1.0, 1.0)), cells=(1, 3, 4))
    assert "2**31 lines" in ask(pm.Mesh((2**17, 2**17), (1.0, 1.0)), cells=(1, 1, 8))
    assert ask(pm.Mesh((2**17, 2**17), (1.0, 1.0)), cells=(1, 2, 8)) is None
