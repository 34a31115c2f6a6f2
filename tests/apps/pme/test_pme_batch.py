# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call are the systems one by one."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch
from pme_cases import ewald, image

FINE = dict(cutoff=1.2, splitting=3.0, shape=(20, 24, 20), window="bspline8", coulomb_constant=1.7)
BOXES = np.array([np.eye(3) * 2.0, [[2.1, 0, 0], [0.3, 1.9, 0], [-0.2, 0.4, 2.2]], np.eye(3) * (1.8, 2.2, 2.0)])


def systems(boxes):
    rng = np.random.default_rng(14)
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)
    counts = (8, 3, 6)
    x = [(corners[:n] + rng.uniform(0.1, 0.6, (n, 3))) / 2 @ box for n, box in zip(counts, boxes, strict=True)]
    return x, [rng.normal(size=n) for n in counts]


@pytest.mark.parametrize("own_boxes", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_systems_are_as_if_alone(own_boxes, dtype):
    boxes = BOXES if own_boxes else BOXES[[1, 1, 1]]
    x, q = systems(boxes)
    owner, order = np.repeat([0, 1, 2], [8, 3, 6]), np.random.default_rng(1).permutation(17)
    batch = PMEBatch(boxes[1], 3, **FINE)
    arrays = [np.concatenate(a)[order].astype(dtype) for a in (x, q)]
    result = batch(*arrays, owner[order], boxes=boxes if own_boxes else None)
    assert result.forces.dtype == dtype
    tolerance = dict(rtol=1e-10, atol=1e-10) if dtype == "float64" else dict(rtol=1e-4, atol=1e-4)
    for s in range(3):
        alone = PME(boxes[s], **FINE)(x[s], q[s])
        back = np.argsort(order)[owner == s]
        np.testing.assert_allclose(result.energy[s], alone.energy, **tolerance)
        np.testing.assert_allclose(result.energies[back], alone.energies, **tolerance)
        np.testing.assert_allclose(result.forces[back], alone.forces, **tolerance)
        np.testing.assert_allclose(result.virial[s], alone.virial, **tolerance)


@pytest.mark.parametrize("own_boxes", [False, True])
def test_pairs_of_each_system_are_excluded_or_scaled(own_boxes):
    boxes = BOXES if own_boxes else BOXES[[1, 1, 1]]
    x, q = systems(boxes)
    x[0][1] = x[0][0]  # an excluded pair may lie in one place
    pairs = [[[0, 1], [5, 2]], [[2, 0]], [[4, 1], [0, 5]]]
    factors = [[0.0, 0.3], [0.5], [0.0, -1.0]]
    starts = [0, 8, 11]
    together = dict(
        exclusions=np.concatenate([np.array(p) + n for p, n in zip(pairs, starts, strict=True)]),
        factors=np.concatenate(factors),
    )
    owner, order = np.repeat([0, 1, 2], [8, 3, 6]), np.random.default_rng(1).permutation(17)
    together["exclusions"] = np.argsort(order)[together["exclusions"]]
    arrays = [np.concatenate(a)[order] for a in (x, q)]
    batch = PMEBatch(boxes[1], 3, **FINE)
    result = batch(*arrays, owner[order], boxes=boxes if own_boxes else None, **together)
    for s in range(3):
        alone = PME(boxes[s], **FINE, exclusions=pairs[s], factors=factors[s])(x[s], q[s])
        back = np.argsort(order)[owner == s]
        np.testing.assert_allclose(result.energy[s], alone.energy, rtol=1e-9)
        np.testing.assert_allclose(result.energies[back], alone.energies, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.forces[back], alone.forces, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(result.virial[s], alone.virial, rtol=1e-8, atol=1e-8)
    # Against a plain Ewald sum, and the pairs' own interaction.
    energy, _ = ewald(boxes[1], x[1], q[1])
    r = np.linalg.norm(image(x[1][0] - x[1][2], boxes[1]))
    np.testing.assert_allclose(result.energy[1], 1.7 * (energy - 0.5 * q[1][0] * q[1][2] / r), rtol=1e-4)


def test_empty_systems_and_moved_particles():
    x, q = systems(BOXES[[0, 0, 0]])
    batch = PMEBatch(BOXES[0], 4, **FINE)
    for shift in (0.0, 0.3):
        result = batch(x[0] + shift, q[0], np.full(8, 2))
        alone = PME(BOXES[0], **FINE)(x[0] + shift, q[0])
        np.testing.assert_allclose(result.energy, [0, 0, alone.energy, 0], rtol=1e-10)


def test_bad_arguments_are_explained():
    x, q = systems(BOXES[[0, 0, 0]])
    batch = PMEBatch(BOXES[0], 2, **FINE)
    with pytest.raises(ValueError, match="system"):
        batch(x[0], q[0], np.full(8, 2))
    with pytest.raises(ValueError, match="charges has shape"):
        batch(x[0], q[0][:4], np.zeros(8, int))
    both = np.concatenate(x[:2]), np.concatenate(q[:2]), np.repeat([0, 1], [8, 3])
    with pytest.raises(ValueError, match=r"pair \[7, 8\], whose particles are in the systems 0 and 1"):
        batch(*both, exclusions=[[0, 1], [8, 7]])
    with pytest.raises(ValueError, match=r"pair 0 of exclusions is \[3, 11\], and there are 11"):
        batch(*both, exclusions=[[11, 3]])
    with pytest.raises(ValueError, match="lies where another one"):
        batch(x[0][[0, 0]], q[0][:2], np.zeros(2, int))
    assert batch(x[0][[0, 0]], q[0][:2], np.array([0, 1])).energy.shape == (2,)
    with pytest.raises(ValueError, match="systems"):
        PMEBatch(BOXES[0], 0)
