# SPDX-License-Identifier: BSD-3-Clause
"""What a step on many GPUs takes, from the messages that the library works out and the speed of links.

Weak scaling: every GPU has a part of the mesh and its particles, which are at their owners. Messages are those of
``Domain.messages`` and of the transform's transfers, for the busiest of some ranks; times are sums, without overlap.
``tools/docs/distributed_derived.py`` writes the tables of docs/guide/distributed.rst from here.

    PYTHONPATH=benchmarks python -m distributed.model

prints what layouts of up to 4,096 ranks make of a step: rounds, launches, peers, bytes and imbalance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import particlemesh as pm
from particlemesh.distributed import Domain
from particlemesh.distributed.transfer import Transfer, kind_for, layout_of, moves
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


def transfers(domain: Domain, *, real: bool, rank: int | None = None, kind: str | None = None) -> list[Transfer]:
    """Return what a rank, by default one in the middle, sends in a forward transform, trivial transfers among it."""
    nodes = layout_of(domain, World(domain.size))
    last = nodes.shape[-1] // 2 + 1 if real else nodes.shape[-1]
    modes = (*nodes.shape[:-1], last)
    kind = kind_for(nodes, modes, real) if kind is None else kind
    return moves(nodes, modes, kind, domain.size // 2 if rank is None else rank)


def transposes(domain: Domain, *, real: bool, kind: str | None = None) -> list[Exchange]:
    """Return the transfers of a forward transform: from the domain, then between its stages."""
    return [
        Exchange(sum(move.send_counts), sum(count > 0 for count in move.send_counts), n > 0)
        for n, move in enumerate(transfers(domain, real=real, kind=kind)) if not move.trivial
    ]  # fmt: skip


class Counts(NamedTuple):
    """What the layouts of a domain make of a step: a halo folded and filled, a transform forward and back."""

    ranks: int
    rounds: int
    launches: int  # and copies, of one rank
    peers: int  # of the round with most
    nbytes: float  # that a rank sends, complex64
    imbalance: float  # of bytes: the busiest of some ranks over their mean
    nodes: float  # of the largest part over the mean


def counts(domain: Domain, *, real: bool = False, kind: str | None = None) -> Counts:
    """Return the counts of the busiest of nine ranks, without running any."""
    size, each = domain.size, []
    for rank in sorted({size * n // 8 - (n == 8) for n in range(9)}):
        messages = domain.messages(rank, reach_of(SUPPORT, 3))
        sides = [{r: some for r, some in side.items() if r != rank} for side in messages]
        nodes = sum(math.prod(piece.shape) for side in sides for some in side.values() for piece in some)
        # Fold and fill: packed, then added or unpacked; filling copies the part.
        rounds, launches, peers, nbytes = (2, 5, max(map(len, sides)), nodes * COMPLEX) if nodes else (0, 1, 0, 0)
        for n, move in enumerate(transfers(domain, real=real, rank=rank, kind=kind)):
            if not move.trivial:
                sent, got = (sum(numbers) for numbers in (move.send_counts, move.receive_counts))
                rounds, launches = rounds + 2, launches + 2 * (bool(sent) + bool(got) + 1)
                peers = max(peers, sum(count > 0 for count in move.send_counts))
                nbytes += (sent + got) * (REAL if real and n == 0 else COMPLEX)
        each.append((rounds, launches, peers, nbytes))
    most = [max(column) for column in zip(*each, strict=True)]
    mean = sum(row[3] for row in each) / len(each)
    largest = max(part.size for part in domain.parts()) * size * domain.per_rank / domain.mesh.size
    return Counts(size, *most, most[3] / mean if mean else 1.0, largest)


def fft_local(*, real: bool) -> float:
    """Return the seconds of a local transform of one GPU's nodes: three axes, each read and written once."""
    return 3 * 2 * EDGE**3 * (REAL if real else COMPLEX) / MEMORY


def fft_messages(domain: Domain, link: Link, *, real: bool, kind: str | None = None) -> float:
    """Return the seconds of all transfers of a forward transform, with packing and unpacking."""
    total = 0.0
    for move in transposes(domain, real=real, kind=kind):
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


def main() -> None:
    """Print the counts of layouts of up to 4,096 ranks, and the predicted seconds of a transform forward."""
    for gpus in (8, 64, 512, 1024, 4096):
        for parts in ("blocks", "pencils"):
            domain = domain_of(gpus, parts)
            row = counts(domain)._asdict() | {"NDR": fft_messages(domain, NDR, real=False)}
            print(f"{parts:8}", "  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
