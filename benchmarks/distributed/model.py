# SPDX-License-Identifier: BSD-3-Clause
"""What the rows of scaling.py take on many GPUs, from messages that the library works out and rows of one and two GPUs.

A row's time is that of one GPU, plus its rounds of messages, plus the times at which ranks agree; nothing overlaps.
Messages are those of ``Domain.messages``, of the transform's transfers and of ghosts, for the rank that sends most.
Three constants come from the measured rows of two GPUs (`calibrated`), by least squares of relative errors.
``tools/docs/distributed_derived.py`` writes the tables of docs/guide/distributed.rst from here.

    PYTHONPATH=benchmarks python -m distributed.model

writes ``results/distributed-predicted-nvidia-h200.csv``, with the rows of 2, 4 and 8 GPUs. With ``--counts`` it prints
what layouts of up to 4,096 ranks make of a step instead: rounds, launches, peers, bytes and imbalance.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from distributed.figures import EDGE, GOALS, MOVED, RADIUS, box_of, cubic, modes_of
from distributed.figures import domain_of as figure_domain
from distributed.landau import LENGTH, STEP
from harness.tables import RESULTS, Row, read, short, write
from particlemesh.apps.nufft.sizes import Law, Sizes, _gpu_seconds, choose
from particlemesh.apps.pme import parameters as costs_of_pme
from particlemesh.distributed import Domain
from particlemesh.distributed.surroundings import Surroundings
from particlemesh.distributed.transfer import Transfer, kind_for, layout_of, moves
from particlemesh.distributed.windows import reach_of

SUPPORT = 6  # nodes of a window
COMPLEX, REAL, INTEGERS = 8, 4, 16  # bytes per node: float32, and both parts of a complex number as 64-bit integers
SINGLE, EPS = np.dtype(np.float32), 1e-4
GPU = True  # whose applications choose sizes
DEVICE = "nvidia-h200"  # whose rows calibrate
MEMORY = 1e9 * float(read(RESULTS / f"gpu-nufft-{DEVICE}.csv")[0]["copy_gb_s"])  # bytes/s of a copy, read and written


@dataclass(frozen=True)
class Link:
    """How GPUs are joined: bytes/s that a GPU sends while it receives as much, and seconds of messages."""

    name: str
    speed: float
    round: float = 25e-6  # of a round of messages
    message: float = 3e-6  # more for each further rank in a round; two GPUs do not tell
    agreement: float = 0.0  # of all ranks, which wait for the host and the device

    def seconds(self, nbytes: float, peers: int) -> float:
        """Return the time of a round, with packing and unpacking."""
        return self.round + self.message * (peers - 1) + nbytes * (1 / self.speed + 4 / MEMORY) if peers else 0.0


PCIE, NDR = Link("PCIe 5", 40e9), Link("InfiniBand NDR", 35e9)


class World(NamedTuple):
    """The size of a world, for `layout_of`."""

    size: int


def domain_of(gpus: int, parts: str = "blocks") -> Domain:
    """Return a domain with a cube of nodes for each GPU, and GPUs in a block that is nearly a cube."""
    return Domain(pm.Mesh(cubic(gpus), (1.0,) * 3), gpus, parts)


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


def fft_messages(domain: Domain, link: Link, *, real: bool, kind: str | None = None) -> float:
    """Return the seconds of all transfers of a forward transform."""
    return sum(
        link.seconds(move.numbers * (COMPLEX if move.modes or not real else REAL), move.ranks)
        for move in transposes(domain, real=real, kind=kind)
    )


# ---- the rows of scaling.py -------------------------------------------------------------------------------------


class Round(NamedTuple):
    """Bytes that a rank sends in a round of messages, and to how many ranks."""

    nbytes: float
    peers: int


class Work(NamedTuple):
    """What a rank does for a row beside the work of one GPU."""

    rounds: list[Round]
    agreements: int

    @property
    def sent(self) -> float:
        """Bytes that the rank sends."""
        return sum(one.nbytes for one in self.rounds)

    def seconds(self, link: Link) -> float:
        """Return the time of messages and agreements."""
        return sum(link.seconds(*one) for one in self.rounds) + link.agreement * self.agreements


def solved(
    domain: Domain, rank: int, support: int, *, size: int = REAL, back: int | None = None,
    modes: tuple[int, ...] | None = None, fft: bool = True,
) -> list[Round]:  # fmt: skip
    """Return the rounds that fold a halo, transform the field there and back, and fill the halo.

    ``size`` and ``back`` are bytes per node on both ways: those of real or complex numbers, of one field or several.
    """
    back = size if back is None else back
    sides = domain.messages(rank, reach_of(support, 3))
    sent = [
        [sum(math.prod(piece.shape) for piece in some) for peer, some in side.items() if peer != rank] for side in sides
    ]
    fold, fill = (Round(each * sum(side), len(side)) for side, each in zip(sent, (size, back), strict=True))
    there, again = [], []
    if fft:
        nodes, real = layout_of(domain, World(domain.size)), size == REAL
        band = modes or (*nodes.shape[:-1], nodes.shape[-1] // 2 + 1 if real else nodes.shape[-1])
        for n, move in enumerate(moves(nodes, band, kind_for(nodes, band, real), rank)):
            wide = 2 if real and n else 1  # modes are complex
            ways = (there, size, move.send_counts), (again, back, move.receive_counts)
            for rounds, each, counts in () if move.trivial else ways:
                rounds.append(Round(wide * each * sum(counts), sum(count > 0 for count in counts)))
    return [fold, *there, *again[::-1], fill]


def ghosts(domain: Domain, rank: int, radius: float) -> Round:
    """Return the share of a rank's particles that others see within a radius, and how many ranks see any."""
    around, (part,), share = Surroundings(domain, rank, radius, SINGLE), domain.parts(rank), 0.0
    for to in around.neighbours:
        for box in around.seen_in(to):
            inside = zip(part.lower, part.upper, *box, strict=True)
            share += math.prod(max(0.0, min(b, d) - max(a, c)) / (b - a) for a, b, c, d in inside)
    return Round(share, len({to.rank for to in around.neighbours}))


def strays(domain: Domain, distance: float) -> Round:
    """Return the share of a rank's particles within so many nodes of its upper faces, and how many ranks are beyond."""
    cuts = [len({part.lower[axis] for part in domain.parts()}) for axis in range(3)]
    share = sum(distance * many / nodes for many, nodes in zip(cuts, domain.mesh.shape, strict=True) if many > 1)
    return Round(share, sum(min(2, many - 1) for many in cuts))


@functools.cache
def parameters(gpus: int, count: float) -> Any:
    """Return what PME chooses for so many charges of each GPU, uniform between -1/2 and 1/2."""
    costs = costs_of_pme.HALVES if GPU else costs_of_pme.CPU
    return costs_of_pme.choose(pm.Box(box_of(gpus)), int(count * gpus), 1e-5, costs, fourth=1.8)[0]


@functools.cache
def sizes(figure: str, gpus: int, edge: int, count: float) -> Sizes:
    """Return the window and the fine mesh of a non-uniform transform."""
    about = 1 << (int(count * gpus) - 1).bit_length()
    return choose(modes_of(figure, gpus, edge), EPS, Law(3, SINGLE, False), about, 2, SINGLE, not GPU)


def work_of(figure: str, gpus: int, rank: int, edge: int = EDGE, count: float | None = None) -> Work:
    """Return what a rank does for a row, with so many nodes along an edge of its part and so many particles."""
    count = GOALS[figure].particles if count is None else count
    domain = figure_domain(gpus, edge, weak=figure != "strong")
    few: list[tuple[Round, int]] = []  # particles that travel, and bytes of each
    agreements, rounds = 0, []
    if figure in ("weak", "few", "strong"):
        rounds = solved(domain, rank, SUPPORT, size=COMPLEX, fft=False)
    elif figure in ("deterministic", "reproducible"):
        rounds, agreements = solved(domain, rank, SUPPORT, size=INTEGERS, back=COMPLEX, fft=False), 1
    elif figure == "fft":
        rounds = solved(domain, rank, SUPPORT)
    elif figure == "positions":  # of a uniform move a quarter of the largest passes each face, on average
        few, agreements = [(strays(domain, MOVED / 2), 12)], 4
    elif figure == "grid":
        few, agreements = [(ghosts(domain, rank, RADIUS / count ** (1 / 3)), 20)], 4
    elif figure == "landau":  # as many pass a face as their mean velocity along its normal brings
        domain = Domain(pm.Mesh(cubic(gpus, edge), (LENGTH,) * 3), gpus)
        rounds = solved(domain, rank, 4, back=4 * REAL)  # potential and slopes
        passed = strays(
            Domain(pm.Mesh((edge,) * 3, (1.0,) * 3), gpus), 2 * STEP / math.sqrt(2 * math.pi) * edge / LENGTH
        )
        few, agreements = [(passed, size) for size in (12, 4, 16, 12, 12, 12)], 11 + len(rounds)
    elif figure in ("pme", "pme_large"):
        chosen = parameters(gpus, count)
        domain, support = Domain(pm.Mesh(chosen.shape, box_of(gpus)), gpus), chosen.window.support
        rounds = solved(domain, rank, support)
        seen, away = ghosts(domain, rank, chosen.cutoff), strays(domain, support % 2 / 2)
        few = [(seen, 20), (seen, 4), (away, 12), (away, 4), (away, 16)]
        agreements = 13  # others happen while a GPU sums over pairs
    else:
        chosen = sizes(figure, gpus, edge, count)
        domain = Domain(pm.Mesh(chosen.nodes, (1.0,) * 3), gpus, "slabs")
        rounds = solved(domain, rank, chosen.support, size=COMPLEX, modes=modes_of(figure, gpus, edge))
        few, agreements = [(strays(domain, chosen.support % 2 / 2), 8)] * 2, 7 + len(rounds)
    travel = [Round(size * count * share, peers) for (share, peers), size in few]
    return Work([one for one in (*travel, *rounds) if one.nbytes], agreements)


@functools.cache
def busiest(figure: str, gpus: int) -> Work:
    """Return what the rank does that sends most, of nine ranks."""
    ranks = sorted({gpus * n // 8 - (n == 8) for n in range(9)})
    return max((work_of(figure, gpus, rank) for rank in ranks), key=lambda work: work.sent)


# ---- seconds ----------------------------------------------------------------------------------------------------


# Bytes of a point: in a plan with its orders, at most, and of coordinates and both values. Copies of the fine mesh.
PLAN_POINT, USER_POINT, MESHES = 57, 28, 5
GPU_BYTES = 139 * 2**30


def nufft_bytes(a_mode: int, gpus: int = 8) -> float:
    """Return the bytes on a GPU of the large transforms of both types, with so many points for each mode."""
    points = a_mode * math.prod(modes_of("nufft_large", gpus)) / gpus
    nodes = math.prod(sizes("nufft_large", gpus, EDGE, points).nodes) / gpus
    return points * (2 * PLAN_POINT + USER_POINT) + MESHES * COMPLEX * nodes


@functools.cache
def measured(device: str = DEVICE) -> dict[tuple[str, int], Row]:
    """Return measured rows by figure and number of GPUs."""
    names = {goal.name: figure for figure, goal in GOALS.items()}
    rows = read(RESULTS / f"distributed-scaling-{device}.csv")
    return {(names[row["figure"]], int(row["ranks"])): row for row in rows if row["figure"] in names}


def one_gpu(figure: str, device: str = DEVICE) -> float:
    """Return the seconds of one GPU: measured, or for a row without, those of a similar one by the library's models."""
    row = next((row for (name, _), row in measured(device).items() if name == figure), None)
    if row is not None:
        return float(row["one_s"])
    if figure == "landau":
        like = sum(one_gpu(part, device) for part in ("positions", "fft"))  # of one field, though four come back
        return like * GOALS["landau"].particles / GOALS["fft"].particles
    return one_gpu(figure.removesuffix("_large"), device) * _model(figure, 1) / _model(figure.removesuffix("_large"), 1)


def _model(figure: str, gpus: int) -> float:
    """Return what the library's models say of a GPU's time, where a row's work follows from its sizes, or 1."""
    count = GOALS[figure].particles
    if figure.startswith("pme"):
        return float(parameters(gpus, count).seconds) / gpus
    if figure.startswith("nufft"):
        return _gpu_seconds(sizes(figure, gpus, EDGE, count), (), int(count * gpus), 2, 4) / gpus
    return 1.0


def local(figure: str, gpus: int, device: str = DEVICE) -> float:
    """Return the seconds of a GPU's local work beside others."""
    if figure == "strong":
        return one_gpu(figure, device) / gpus
    if figure == "reproducible":
        figure = "deterministic"  # which compares the same work with itself
    return one_gpu(figure, device) * _model(figure, gpus) / _model(figure, 1)


@functools.cache
def calibrated(device: str = DEVICE, without: str = "") -> Link:
    """Return NVLink, from the rows of two GPUs: round and bytes from their messages alone, agreements from the rest."""
    rows = {figure: row for (figure, ranks), row in measured(device).items() if ranks == 2 and figure != without}
    work = {figure: busiest(figure, 2) for figure in rows}
    seconds = np.array([float(row["seconds"]) for row in rows.values()])
    waited = np.array([float(row["exchange_s"]) for row in rows.values()])
    counts = np.array([(len(each.rounds), each.sent) for each in work.values()])
    once, byte = np.linalg.lstsq(counts / waited[:, None], np.ones(len(rows)), rcond=None)[0]
    link = Link("NVLink", float(1 / byte), float(once))
    left = seconds - [local(figure, 2, device) + each.seconds(link) for figure, each in work.items()]
    shares = np.array([each.agreements for each in work.values()]) / seconds
    return dataclasses.replace(link, agreement=float(shares @ (left / seconds) / (shares @ shares)))


def seconds_of(figure: str, gpus: int, link: Link | None = None, device: str = DEVICE) -> float:
    """Return the predicted seconds of a row; ``device`` is that whose rows say what one GPU takes."""
    return local(figure, gpus, device) + busiest(figure, gpus).seconds(link or calibrated())


def value_of(figure: str, gpus: int, link: Link | None = None) -> float:
    """Return the predicted result of a row in its unit."""
    value = one_gpu(figure) / seconds_of(figure, gpus, link)
    return 1 / value if GOALS[figure].unit == "times as long" else value


def rows_of(device: str, gpus: int) -> Iterator[Row]:
    """Yield the predicted rows of a device, with measured seconds where there are any.

    Only one GPU's seconds are those of the device; messages are always those of `DEVICE`. ``off`` is the error of a
    prediction that is calibrated without the row.
    """
    for figure, goal in GOALS.items():
        row = measured(device).get((figure, gpus))
        if device != DEVICE and row is None:
            continue
        work, seconds = busiest(figure, gpus), seconds_of(figure, gpus, device=device)
        alone, apart = one_gpu(figure, device), seconds_of(figure, gpus, calibrated(without=figure), device)
        known = None if row is None else float(row["seconds"])
        yield dict(
            figure=goal.name, device=device, ranks=gpus, particles=int(goal.particles), rounds=len(work.rounds),
            peers=max(one.peers for one in work.rounds), sent=int(work.sent), agreements=work.agreements,
            one_s=short(alone), messages_s=short(work.seconds(calibrated())), seconds=short(seconds),
            value=short(seconds / alone if goal.unit == "times as long" else alone / seconds), unit=goal.unit,
            measured_s="" if known is None else short(known), off="" if known is None else short(apart / known - 1),
        )  # fmt: skip


NVLINK = 2, 4, 8  # GPUs of one host
CASES = [(8, PCIE), (64, NDR), (256, NDR), (1024, NDR)]
PREDICTED = [*((DEVICE, gpus) for gpus in NVLINK), ("nvidia-h100-80gb-hbm3", 2)]


def elsewhere(link: Link) -> Link:
    """Return a link with the waits of the calibrated one, which are those of hosts."""
    return dataclasses.replace(calibrated(), name=link.name, speed=link.speed)


def predicted() -> list[Row]:
    """Return all predicted rows."""
    return [row for device, gpus in PREDICTED for row in rows_of(device, gpus)]


def print_counts() -> None:
    """Print the counts of layouts of up to 4,096 ranks, and the predicted seconds of a transform forward."""
    for gpus in (8, 64, 512, 1024, 4096):
        for parts in ("blocks", "pencils"):
            domain = domain_of(gpus, parts)
            row = counts(domain)._asdict() | {"NDR": fft_messages(domain, NDR, real=False)}
            print(f"{parts:8}", "  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


def main() -> None:
    """Write predictions, or print counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.counts:
        print_counts()
        return
    print(calibrated())
    print(write("distributed-predicted", DEVICE, predicted(), asked.out))


if __name__ == "__main__":
    main()
