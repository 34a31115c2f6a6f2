# SPDX-License-Identifier: BSD-3-Clause
"""How much of a box particles fill: clusters are as dense as many more particles would be."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.box import Box
from particlemesh.geometry import Coordinates

SAMPLE = 1024  # particles that are looked at
PARTS = {1: 512, 2: 22, 3: 8}  # of an axis, by axes: about 500 of the box
# Particles times applications from which on it pays to look, which takes about 0.1 ms.
WORTH, WORTH_ON_CPU = 100_000, 10_000


def worth(backend: Backend, particles: int, applications: int) -> bool:
    """Return whether so much is to be done that it pays to look."""
    return particles * applications >= (WORTH_ON_CPU if backend.name == "cpu" else WORTH)


def filled(backend: Backend, box: Box, x: Coordinates) -> float:
    """Return the fraction of a box in which particles are, from a few of them; waits for the device.

    One over the box's parts times the chance that two particles are in the same one: 1 for particles anywhere.
    """
    stride = max(1, x.count // SAMPLE)
    rows = {id(array): backend.download(array[::stride]) for array in {id(a): a for a in x.arrays}.values()}
    found = [rows[id(array)] for array in x.arrays]
    sample = np.stack([f if f.ndim == 1 else f[:, axis] for axis, f in enumerate(found)], axis=-1)
    parts = PARTS[box.ndim]
    with np.errstate(all="ignore"):  # positions may be as far away as numbers go
        fractions = np.mod(box.fractional(sample), 1)
    fractions = np.where(np.isfinite(fractions), fractions, 0)
    cells = (fractions * parts).astype(np.int64).clip(0, parts - 1)
    inside = np.bincount(np.ravel_multi_index(tuple(cells.T), (parts,) * box.ndim))
    pairs = float((inside * (inside - 1)).sum())  # of different particles: few of them do not look like a cluster
    alike = pairs / (len(sample) * max(len(sample) - 1, 1))
    return float(min(1.0, 1 / max(alike * parts**box.ndim, 1.0)))
