# SPDX-License-Identifier: BSD-3-Clause
"""What tests of orders by blocks share: which block a node is in, and how particles are dealt to them."""

import numpy as np

from particlemesh.orders import block_order


def cut(blocks, node):
    """Blocks of nodes (3, N), and their places in these, found by laying all blocks side by side."""
    block, offset = [], []
    for at, base, *ways in zip(node, blocks.base, blocks.counts, blocks.wide, blocks.cells, blocks.narrow, strict=True):
        count, wide, cells, narrow = ways
        begin = base + np.concatenate([[0], np.cumsum([cells] * wide + [narrow] * (count - wide))])
        block.append(np.searchsorted(begin, at, side="right") - 1)
        offset.append(at - begin[block[-1]])
    return np.array(block), np.array(offset)


def number_of(blocks, block):
    """Numbers of blocks (3, N) in the order: line by line, along the axis that lines have."""
    slow, fast = (axis for axis in range(3) if axis != blocks.along)
    line = block[slow] * blocks.counts[fast] + block[fast]
    return line * blocks.counts[blocks.along] + block[blocks.along]


def staged_from(monkeypatch, count):
    """Deal particles to buckets from a count on."""
    monkeypatch.setattr(block_order, "STAGED_FROM", dict.fromkeys(block_order.STAGED_FROM, count))
