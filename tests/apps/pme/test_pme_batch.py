# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call are the systems one by one."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch

FINE = dict(cutoff=1.2, splitting=3.0, shape=(20, 24, 20), window="bspline8", coulomb_constant=1.7)
BOXES = np.array([np.eye(3) * 2.0, [[2.1, 0, 0], [0.3, 1.9, 0], [-0.2, 0.4, 2.2]], np.eye(3) * (1.8, 2.2, 2.0)])


def systems(boxes):
    rng = np.random.default_rng(14)
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)
    counts = (8, 3, 6)
    x = [(corners[:n] + rng.uniform(0.1, 0.6, (n, 3))) / 2 @ box for n, box in zip(counts, boxes, strict=True)]
    return x, [rng.normal(size=n) for n in counts]


@pytest.mark.parametrize(("own_boxes", "dtype"), [(False, "float32"), (True, "float64")])
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
    with pytest.raises(ValueError, match="lies where another one"):
        batch(x[0][[0, 0]], q[0][:2], np.zeros(2, int))
    assert batch(x[0][[0, 0]], q[0][:2], np.array([0, 1])).energy.shape == (2,)
    with pytest.raises(ValueError, match="systems"):
        PMEBatch(BOXES[0], 0)
