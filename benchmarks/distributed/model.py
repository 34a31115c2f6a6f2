# SPDX-License-Identifier: BSD-3-Clause
"""What a step on many GPUs takes, from the messages that the library works out and the speed of links.

Weak scaling: every GPU has a part of the mesh and its particles, which are at their owners. Messages are those of
``Domain.messages`` and of the transform's transfers, for the busiest of some ranks; times are sums, without overlap.
``tools/docs/distributed_derived.py`` writes the tables of docs/guide/distributed.rst from here.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import particlemesh as pm
from particlemesh.distributed import Domain
from particlemesh.distributed.transfer import Transfer, kind_for, layout_of, stages
from particlemesh.distributed.windows import reach_of

SUPPORT, EDGE = 6, 256  # nodes of a window; nodes along an edge of a GPU's part
COMPLEX, REAL, INTEGERS = 8, 4, 16  # bytes per node: float32, and both parts of a complex number as 64-bit integers
MEMORY = 4e12  # bytes/s that a transform or a copy reads and writes on an H200


class Local(NamedTuple):
    """Seconds of the local work of a GPU."""

    particles: float
    spread: float
    interpolate: float


# complex float32 on an H200: 20 and 16 G particles/s for 10^8, 11 and 9 for 10^7 in 256^3 nodes
MANY, FEW = Local(1e8, 1e8 / 20e9, 1e8 / 16e9), Local(1e7, 1e7 / 11e9, 1e7 / 9e9)


@dataclass(frozen=True)
class Link:
    """How GPUs are joined: bytes/s that a GPU sends while it receives as much, and seconds of messages."""

    name: str
    halos: float
    transposes: float
    round: float = 25e-6  # of a round of messages; measured: 19 to 40 µs
    message: float = 3e-6  # more for each further rank in a round

    def seconds(self, nbytes: float, ranks: int, speed: float) -> float:
        """Return the time of a round."""
        return self.round + self.message * ranks + nbytes / speed if ranks else 0.0


NVLINK = Link("NVLink", 300e9, 300e9)  # measured between two H200: 266 to 300 GB/s
PCIE = Link("PCIe 5", 40e9, 40e9)
NDR = Link("InfiniBand NDR", 40e9, 35e9)


class World(NamedTuple):
    """The size of a world, for `layout_of`."""

    size: int


def domain_of(gpus: int, parts: str = "blocks") -> Domain:
    """Return a domain with a cube of nodes for each GPU, and GPUs in a block that is nearly a cube."""
    grid = min(
        ((a, b, gpus // a // b) for a in range(1, gpus + 1) if gpus % a == 0 for b in range(1, gpus // a + 1)
         if gpus // a % b == 0), key=lambda g: (sum(g), g),
    )  # fmt: skip
    return Domain(pm.Mesh(tuple(EDGE * n for n in sorted(grid, reverse=True)), (1.0,) * 3), gpus, parts)


def halo(domain: Domain) -> tuple[int, int]:
    """Return the ghost nodes that a rank in the middle receives, and from how many ranks."""
    rank = domain.size // 2
    held = domain.messages(rank, reach_of(SUPPORT, 3)).held
    others = {peer: sum(math.prod(piece.shape) for piece in pieces) for peer, pieces in held.items() if peer != rank}
    return sum(others.values()), len(others)


class Exchange(NamedTuple):
    """Numbers that a rank sends in one transfer of a forward transform, and to how many ranks."""

    numbers: int
    ranks: int
    modes: bool  # complex numbers, also in a real transform


def transposes(domain: Domain, *, real: bool) -> list[Exchange]:
    """Return the transfers of a forward transform: from the domain, then between its stages."""
    nodes, rank = layout_of(domain, World(domain.size)), domain.size // 2
    last = nodes.shape[-1] // 2 + 1 if real else nodes.shape[-1]
    modes = (*nodes.shape[:-1], last)
    passed = stages(nodes, modes, kind_for(nodes, modes))
    layouts = [passed[0].layout.resized(2, last), *(stage.layout for stage in passed[1:])]
    moves = [Transfer(nodes, passed[0].layout, rank)]
    moves += [Transfer(a, b, rank) for a, b in itertools.pairwise(layouts)]
    return [
        Exchange(sum(move.send_counts), sum(count > 0 for count in move.send_counts), n > 0)
        for n, move in enumerate(moves) if not move.trivial
    ]  # fmt: skip


def fft_local(*, real: bool) -> float:
    """Return the seconds of a local transform of one GPU's nodes: three axes, each read and written once."""
    return 3 * 2 * EDGE**3 * (REAL if real else COMPLEX) / MEMORY


def fft_messages(domain: Domain, link: Link, *, real: bool) -> float:
    """Return the seconds of all transfers of a forward transform, with packing and unpacking."""
    total = 0.0
    for move in transposes(domain, real=real):
        nbytes = move.numbers * (COMPLEX if move.modes or not real else REAL)
        total += link.seconds(nbytes, move.ranks, link.transposes) + 4 * nbytes / MEMORY
    return total


class Step(NamedTuple):
    """Predicted times of a step in seconds, and efficiencies against one GPU."""

    halo: float
    transform: float  # messages of a complex transform forward and back
    spread_interpolate: float
    deterministic: float
    with_fft: float
    with_real_fft: float
    few: float


def predicted(domain: Domain, link: Link) -> Step:
    """Return what a step takes on the GPUs of a domain."""
    nodes, ranks = halo(domain)
    once = link.seconds(nodes * COMPLEX, ranks, link.halos)
    # Integers are folded twice as wide, and ranks agree on their scale first.
    integers = link.seconds(nodes * INTEGERS, ranks, link.halos) + link.round

    def efficiency(local: float, messages: float) -> float:
        return local / (local + messages)

    many, few = MANY.spread + MANY.interpolate, FEW.spread + FEW.interpolate
    both = {real: 2 * fft_messages(domain, link, real=real) for real in (False, True)}
    return Step(
        2 * once, both[False], efficiency(many, 2 * once), efficiency(many, integers + once),
        efficiency(many + 2 * fft_local(real=False), 2 * once + both[False]),
        # Real values: half the bytes of a halo, and the same time for spreading, which atomics do not limit.
        efficiency(many + 2 * fft_local(real=True), link.seconds(nodes * REAL, ranks, link.halos) * 2 + both[True]),
        efficiency(few, 2 * once),
    )  # fmt: skip


CASES = [(2, NVLINK), (4, NVLINK), (8, NVLINK), (8, PCIE), (64, NDR), (256, NDR), (1024, NDR)]
