# SPDX-License-Identifier: BSD-3-Clause
"""Energies and forces over ranks have the same bits, whatever the cuts and wherever particles begin."""

import hashlib

import numpy as np
import pytest

from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, DistributedPME
from rank_cases import mine
from ranks import on_threads

CUTS = ((2, "slabs", 1), (3, "blocks", 2), (4, "pencils", 3), (8, "bisection", 4), (1, "slabs", 5))
BOX = np.array([[3.0, 0.0, 0.0], [0.4, 2.5, 0.0], [0.2, -0.3, 2.2]])


def ions(count, dtype):
    rng = np.random.default_rng(5)
    x = (rng.random((count, 3)) @ BOX).astype(dtype)
    q = rng.standard_normal(count).astype(dtype)
    return x, q - q.mean()


def hashed(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def results(world, dtype, parts, seed, exclusions):
    """Return energy, energies, forces, potentials and fields of all ions, and hashes of them."""
    x, q = ions(240, dtype)
    # Without particles of their own some ranks are empty; numbers of particles are those of a shuffled order.
    here = mine(world, len(x), seed)
    order = np.concatenate(world.allgather(here))
    place = np.empty(len(x), np.int64)
    place[order] = np.arange(len(x))
    pairs = None if exclusions is None else place[exclusions]
    pme = DistributedPME(
        world, BOX, accuracy=1e-4, cutoff=0.9, deterministic=True, dtype=dtype, threads=1 + seed % 2, parts=parts,
        exclusions=pairs, factors=0.0 if pairs is None else 0.25,
    )  # fmt: skip
    result = pme(x[here], np.stack([q[here], abs(q[here])]), virial=True, fields=True)
    rows = [
        np.concatenate(world.allgather(np.ascontiguousarray(np.moveaxis(a, 1, 0))))[place]
        for a in (result.energies, result.forces, result.potentials, result.fields)
    ]
    return [hashed(a) for a in (result.energy, *rows)], result.energy, rows


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_ranks_and_cuts_have_the_bits_of_one(dtype, listed):
    rng = np.random.default_rng(2)
    # Chains: each particle has several partners, on other ranks, too.
    pairs = np.stack([np.arange(200), np.arange(200) + rng.integers(1, 40, 200)], 1) if listed else None
    alone, energy, rows = results(pmd.World(), dtype, "blocks", 0, pairs)
    for size, *how in CUTS:
        assert on_threads(size, lambda world, how=how: results(world, dtype, *how, pairs)[0]) == [alone] * size
    x, q = (a.astype(np.float64) for a in ions(240, dtype))
    for c, charges in enumerate((q, abs(q))):
        plain = PME(BOX, accuracy=1e-4, cutoff=0.9, exclusions=pairs, factors=0.25 if listed else 0.0)(x, charges)
        size = np.sqrt((plain.forces**2).mean())
        assert abs(rows[1][:, c] - plain.forces).max() < 2e-3 * size
        assert abs(energy[c] - plain.energy) < 1e-4 * abs(plain.energies).sum()
