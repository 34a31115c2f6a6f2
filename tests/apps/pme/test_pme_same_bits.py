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


def moments(count, dtype):
    """Dipoles, quadrupoles and widths."""
    rng = np.random.default_rng(6)
    mu, half, widths = rng.normal(size=(count, 3)), rng.normal(size=(count, 3, 3)), rng.uniform(0, 0.05, count)
    made = 0.1 * mu, 0.01 * (half + half.swapaxes(1, 2)), widths
    return dict(zip(("dipoles", "quadrupoles", "widths"), (a.astype(dtype) for a in made), strict=True))


def results(world, dtype, parts, seed, exclusions, names=()):
    """Return energy, energies, forces, potentials and fields of all ions, and hashes of these and of others."""
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
    more = {name: array[here] for name, array in moments(240, dtype).items() if name in names}
    charges = q[here] if names else np.stack([q[here], abs(q[here])])
    result = pme(x[here], charges, virial=True, fields=True, **more)
    rows = [
        np.concatenate(world.allgather(np.ascontiguousarray(np.moveaxis(a, charges.ndim - 1, 0))))[place]
        for name, a in vars(result).items()
        if name not in ("energy", "virial")
    ]
    return [hashed(a) for a in (result.energy, *rows)], result.energy, rows


@pytest.mark.turns(4)
@pytest.mark.parametrize("names", [("dipoles",), ("dipoles", "quadrupoles", "widths")], ids=["dipoles", "all"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("listed", [True, False])
def test_multipoles_have_the_bits_of_one_rank(listed, dtype, names):
    pairs = np.stack([np.arange(200), np.arange(200) + 7], 1) if listed else None
    alone, _, rows = results(pmd.World(), dtype, "blocks", 0, pairs, names)
    for size, *how in CUTS[:3]:
        assert on_threads(size, lambda world, how=how: results(world, dtype, *how, pairs, names)[0]) == [alone] * size
    (x, q), more = ions(240, dtype), moments(240, dtype)
    given = {name: more[name].astype(float) for name in names}
    plain = PME(BOX, accuracy=1e-4, cutoff=0.9, exclusions=pairs, factors=0.25 if listed else 0.0)
    forces = plain(x.astype(float), q.astype(float), **given).forces
    assert abs(rows[1] - forces).max() < 2e-3 * np.sqrt((forces**2).mean())


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
