# SPDX-License-Identifier: BSD-3-Clause
"""Random charges in random boxes against direct sums: energies, forces, virials and exclusions."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch
from pme_cases import ewald_sum, image

BLOCKS, SYSTEMS = 10, 64


def charges(rng, matrix):
    """A few charges, no two of which are near each other."""
    count = int(rng.integers(2, 7))
    fractions = np.zeros((0, 3))
    while len(fractions) < count:
        new = rng.random(3)
        d = (fractions - new + 0.5) % 1 - 0.5
        if not len(d) or np.linalg.norm(d @ matrix, axis=1).min() > 0.2:
            fractions = np.vstack([fractions, new])
    q = rng.normal(size=count)
    return (fractions + rng.integers(-2, 3, (count, 3))) @ matrix, q - (rng.random() < 0.5) * q.mean()


def failures_of(seed):
    """Compare a batch of systems, and one of them alone with an exclusion; return what differs."""
    rng = np.random.default_rng(seed)
    boxes = np.array([np.diag(rng.uniform(1.5, 2.5, 3)) + np.tril(rng.uniform(-0.4, 0.4, (3, 3)), -1)
                      for _ in range(SYSTEMS)])  # fmt: skip
    systems = [charges(rng, box) for box in boxes]
    x, q = (np.concatenate([s[n] for s in systems]) for n in (0, 1))
    owner = np.repeat(np.arange(SYSTEMS), [len(s[1]) for s in systems])
    batch = PMEBatch((2.5, 2.5, 2.5), SYSTEMS, 1e-9)
    result, wrong = batch(x, q, owner, boxes=boxes), []
    for n, (box, (at, values)) in enumerate(zip(boxes, systems, strict=True)):
        energy, forces = ewald_sum(box, at, values)
        size = (values**2).sum() + abs(forces).max()
        differences = {
            "energy": abs(result.energy[n] - energy), "forces": abs(result.forces[owner == n] - forces).max(),
            "trace": abs(np.trace(result.virial[n]) + energy),
        }  # fmt: skip
        wrong += [f"seed {seed}, system {n}: {k} {d / size:.1e}" for k, d in differences.items() if d > 1e-6 * size]
    factor = rng.choice([0.0, 0.5, 1.5])
    d = image(at[1] - at[0], box)
    more = (factor - 1) * values[0] * values[1] / np.linalg.norm(d)
    alone = PME(box, 1e-9, exclusions=[[1, 0]], factors=factor)(at, values)
    force = alone.forces[1] - forces[1] - more * d / (d @ d)
    if max(abs(alone.energy - energy - more), abs(force).max()) > 1e-6 * (size + abs(more) / (d @ d)):
        wrong.append(f"seed {seed}: {alone.energy}, by sums {energy + more}")
    return wrong


def test_random_systems_are_direct_sums():
    assert failures_of(0) == []


@pytest.mark.parametrize("block", range(BLOCKS))
def test_ten_thousand_random_systems(block, request):
    if not request.config.getoption("--thorough"):
        pytest.skip("takes minutes: with --thorough")
    wrong = [text for seed in range(1 + 16 * block, 17 + 16 * block) for text in failures_of(seed)]
    assert not wrong, "\n".join(wrong)
