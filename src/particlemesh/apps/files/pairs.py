# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of the particles of a file within a radius, one slab of the box after the other."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Box, neighbour_list
from particlemesh.apps.files.accumulate import Account, _nothing
from particlemesh.apps.files.particles import CHUNK, Particles
from particlemesh.kernels import checks

BINS = 4096  # along the axis that slabs divide
SHARE = 0.25  # of the particles in memory belong to the slab, at least; else most of the work would be done again
FEW = 100  # particles of a first call, which compiles or loads code

Part = tuple[dict[str, np.ndarray], np.ndarray]


def particles_pairs(
    particles: Particles, box: Box, radius: float, quantities: str = "ijd", *, frame: int = -1, size: int = CHUNK,
    half: bool = False, backend: str | None = None, folder: Any = None, progress: Callable[[int], None] = _nothing,
    account: Account | None = None,
) -> Iterator[Part]:  # fmt: skip
    """Yield the pairs of the particles of a file within a radius, in parts.

    Up to ``size`` particles are searched at once. More are sorted along an axis into a file without a name, then
    searched in slabs. Each slab sees the particles up to ``radius`` beside it. The particles' file is then read three
    times.

    Parameters
    ----------
    particles : Particles
    box : Box
    radius : float
        Pairs with distance ≤ ``radius``, in the unit of the positions.
    quantities : str
        Letters of "ijdDS", as for :func:`particlemesh.neighbour_list`; i and j are places in the file.
    frame : int
        The last one by default.
    size : int
        Most particles in memory, more where a slab with what is beside it has more.
    half : bool
        Each pair once, with i < j.
    backend : {"cpu", "cuda", "opencl"}, optional
    folder : path-like, optional
        Place of the file without a name; by default the system's. It takes 28 bytes per particle for float64 in 3-D.
    progress : callable (int)
        Called after each part with its number of particles.
    account : Account, optional
        Filled while this goes on.

    Yields
    ------
    columns : dict of str to ndarray (P,) or (P, d)
        By letter. If there are several parts, i does not ascend.
    counts : ndarray (n,) of int
        Numbers of neighbours of the part's n particles, both sides counted.

    Raises
    ------
    ValueError, TypeError, MemoryError
        As for :func:`particlemesh.neighbour_list` and `Particles.chunks`.
    OSError
        If there is no room for the file without a name.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import open_particles, particles_pairs
    >>> x = np.random.default_rng(1).random((1000, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/dust.npz", positions=x, box=[1.0, 1.0, 1.0])
    ...     with open_particles(f"{folder}/dust.npz") as particles:
    ...         parts = list(particles_pairs(particles, particles.box(), 0.1, size=600))
    >>> len(parts) > 1, sum(len(columns["d"]) for columns, _ in parts)
    (True, 4242)
    """
    half = checks.flag(half, "half")
    account = account if account is not None else Account()
    needed = "".join(dict.fromkeys(f"ij{quantities}" + "S" * half))
    kept: list[np.ndarray] = []
    low, high = np.full(box.ndim, np.inf), np.full(box.ndim, -np.inf)
    for chunk in particles.chunks(size, frame):
        if not account.particles:
            began = time.perf_counter()
            account.dtype = chunk.positions.dtype
            neighbour_list(needed, chunk.positions[:FEW], box, radius, half=half, backend=backend)
            account.start = time.perf_counter() - began
        account.particles += len(chunk.positions)
        if account.particles <= size:
            kept.append(chunk.positions)
        else:
            kept.clear()
        fractions = _fractions(box, chunk.positions)
        low, high = np.minimum(low, fractions.min(axis=0)), np.maximum(high, fractions.max(axis=0))
    if account.particles <= size:
        points = np.concatenate(kept)
        began = time.perf_counter()
        arrays = neighbour_list(needed, points, box, radius, half=half, backend=backend)
        account.seconds += time.perf_counter() - began
        columns = dict(zip(needed, arrays, strict=True))
        counts = sum(np.bincount(columns[side], minlength=len(points)) for side in "ij"[: 1 + half])
        progress(len(points))
        yield {letter: columns[letter] for letter in quantities}, np.asarray(counts)
        return
    slabs = _Slabs(box, radius, low, high)
    for chunk in particles.chunks(size, frame):
        slabs.count(chunk.positions)
    with slabs.sorted(particles, frame, size, account.dtype, folder) as (places, positions):
        for slab, beside in slabs.parts(size):
            ranges = (slab, *beside)
            points, names = (np.concatenate([array[part] for part in ranges]) for array in (positions, places))
            began = time.perf_counter()
            arrays = neighbour_list(needed, points, box, radius, backend=backend)
            columns, inside = dict(zip(needed, arrays, strict=True)), slab.stop - slab.start
            rows = int(np.searchsorted(columns["i"], inside))  # i ascends: pairs of the slab's particles come first
            columns = {letter: array[:rows] for letter, array in columns.items()}
            counts = np.bincount(columns["i"], minlength=inside)
            columns |= {side: names[columns[side]] for side in "ij"}
            if half:
                once = _once(columns["i"], columns["j"], columns["S"])
                columns = {letter: array[once] for letter, array in columns.items()}
            account.seconds += time.perf_counter() - began
            progress(inside)
            yield {letter: columns[letter] for letter in quantities}, counts


def _fractions(box: Box, positions: np.ndarray) -> np.ndarray:
    """Return positions in lattice vectors, float64, from 0 to 1 along periodic axes."""
    fractions = box.fractional(positions.astype(np.float64, copy=False))
    return np.where(box.periodic, np.clip(fractions - np.floor(fractions), 0, 1), fractions)


def _once(i: np.ndarray, j: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return which pairs have i < j, or are of a particle and its image with a positive first shift."""
    first = np.take_along_axis(shifts, (shifts != 0).argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray((i < j) | ((i == j) & (first > 0)))


class _Slabs:
    """Bins along the longest axis; slabs are runs of bins."""

    def __init__(self, box: Box, radius: float, low: np.ndarray, high: np.ndarray) -> None:
        heights = 1 / np.linalg.norm(np.linalg.inv(box.matrix), axis=0)  # distances of the box's faces
        periodic = np.array(box.periodic)
        low, high = np.where(periodic, 0.0, low), np.where(periodic, 1.0, high)
        self.box, self.axis = box, int(np.argmax((high - low) * heights))
        self.low, self.periodic = low[self.axis], bool(periodic[self.axis])
        self.width = (high[self.axis] - self.low) / BINS or 1.0  # a plane is in one bin
        # One bin more than the radius spans: fractions are rounded.
        self.reach = int(min(math.ceil(min(radius / heights[self.axis] / self.width, BINS)) + 1, BINS))
        self.counts = np.zeros(BINS, np.int64)

    def bins(self, positions: np.ndarray) -> np.ndarray:
        """Return the bin of each particle."""
        along = (_fractions(self.box, positions)[:, self.axis] - self.low) / self.width
        return np.clip(along.astype(np.int64), 0, BINS - 1)

    def count(self, positions: np.ndarray) -> None:
        """Count the particles of a part by bin."""
        self.counts += np.bincount(self.bins(positions), minlength=BINS)

    @contextlib.contextmanager
    def sorted(
        self, particles: Particles, frame: int, size: int, dtype: Any, folder: Any
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
        """Yield places in the file and positions of all particles, by bin; they are in a file without a name."""
        total, ndim = int(self.counts.sum()), self.box.ndim
        place = np.dtype(np.int32 if total < 2**31 else np.int64)
        split = total * place.itemsize + -total * place.itemsize % 8
        length = split + total * ndim * dtype.itemsize
        where = Path(tempfile.gettempdir() if folder is None else folder)
        free = shutil.disk_usage(where).free
        if free < length:  # a map of a file without room ends the process
            raise OSError(f"{total:,} particles are sorted in a file of {length:,} bytes: {where} has {free:,} free.")
        with tempfile.TemporaryFile(dir=where) as file:
            file.truncate(length)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, length)
            places = np.memmap(file, place, "r+", 0, (total,))
            positions = np.memmap(file, dtype, "r+", split, (total, ndim))
            nexts, done = np.cumsum(self.counts) - self.counts, 0
            for chunk in particles.chunks(size, frame):
                bins = self.bins(chunk.positions)
                order = np.argsort(bins, kind="stable")
                counts = np.bincount(bins, minlength=BINS)
                target = np.arange(len(bins)) + np.repeat(nexts - (np.cumsum(counts) - counts), counts)
                places[target], positions[target] = done + order, chunk.positions[order]
                nexts, done = nexts + counts, done + len(bins)
            yield places, positions
            del places, positions

    def parts(self, size: int) -> Iterator[tuple[slice, list[slice]]]:
        """Yield the ranges of each slab's particles, and of those beside it."""
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        first = 0
        while first < BINS:
            slab = slice(0, 0)
            for last in range(first + 1, BINS + 1):
                larger = slice(int(starts[first]), int(starts[last]))
                beside = [slice(int(starts[a]), int(starts[b])) for a, b in self.beside(first, last)]
                inside = larger.stop - larger.start
                loaded = inside + sum(part.stop - part.start for part in beside)
                if loaded > size and slab.stop > slab.start and slab.stop - slab.start >= SHARE * loaded:
                    break
                slab, chosen, end = larger, beside, last
            if slab.stop > slab.start:
                yield slab, chosen
            first = end

    def beside(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of bins within the radius of a run of bins."""
        below, above = first - self.reach, last + self.reach
        if self.periodic and above - below >= BINS:
            below, above = last - BINS, last
        turns = (0, -BINS, BINS) if self.periodic else (0,)
        ranges = ((max(a + n, 0), min(b + n, BINS)) for n in turns for a, b in ((below, first), (last, above)))
        return [(a, b) for a, b in ranges if a < b]
