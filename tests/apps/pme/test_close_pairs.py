# SPDX-License-Identifier: BSD-3-Clause
"""Excluded pairs that are in one place, nearly in one place, or in a box whose lattice vectors are long."""

import itertools

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Dispersion, PMEBatch
from particlemesh.apps.pme.exclusions import short_vectors

LENGTH, PAIR = 1.3, [[0, 1]]
CALLS = {
    "charges": lambda x, q: PME((LENGTH,) * 3, accuracy=1e-4, exclusions=PAIR)(x, q),
    "batch": lambda x, q: PMEBatch((LENGTH,) * 3, 1, accuracy=1e-4)(x, q, np.zeros(3, int), exclusions=PAIR),
    "dipoles": lambda x, q: PME((LENGTH,) * 3, accuracy=1e-4, exclusions=PAIR)(x, q, dipoles=0.1 * np.ones((3, 3))),
    "dispersion": lambda x, q: Dispersion((LENGTH,) * 3, accuracy=1e-3)(x, abs(q), exclusions=PAIR),
}
SKEWED = np.array([[2.0, 0, 0], [3.1, 2.2, 0], [-4.9, 3.3, 2.4]])


@pytest.mark.parametrize("what", CALLS)
def test_a_pair_has_the_same_coordinates_or_a_distance(what):
    q = np.array([1.0, -1.0, 0.5])
    x = np.array([[0.9, 0.4, 0.5], [0.9, 0.4, 0.5], [0.6, 0.1, 0.6]])
    result = CALLS[what](x, q)
    assert np.isfinite(result.forces).all()
    for shift in (LENGTH, 1e-16, -LENGTH + 1e-16):
        close = x.copy()
        close[1, 0] += shift
        if (close[1] == close[0]).all():
            continue
        with pytest.raises(ValueError, match="lie on top|lies where|lie in one place"):
            CALLS[what](close, q)


def test_exclusions_of_long_lattice_vectors_act_on_the_nearest_image():
    rng = np.random.default_rng(5)
    x, q = rng.random((6, 3)) @ SKEWED, rng.normal(size=6)
    pairs = list(itertools.combinations(range(6), 2))
    images = np.array(list(itertools.product(range(-6, 7), repeat=3))) @ SKEWED
    lost = 0.0
    for i, j in pairs:
        lost += q[i] * q[j] / np.linalg.norm(images + x[j] - x[i], axis=1).min()
    whole, without = (PME(SKEWED, accuracy=1e-6, exclusions=e)(x, q).energy for e in ([], pairs))
    assert abs(whole - without - lost) < 1e-10 * abs(lost)


@pytest.mark.parametrize("seed", range(5))
def test_short_vectors_are_of_the_same_lattice_and_see_the_nearest_image(seed):
    rng = np.random.default_rng(seed)
    turns = np.linalg.inv(np.tril(rng.integers(-4, 5, (3, 3)), -1) + np.eye(3)).round()
    matrix = turns @ np.triu(rng.integers(-4, 5, (3, 3)), 1) @ rng.random((3, 3)) + turns @ (
        np.eye(3) + 0.3 * rng.random((3, 3))
    )
    short = short_vectors(matrix)
    change = matrix @ np.linalg.inv(short)
    np.testing.assert_allclose(change, change.round(), atol=1e-8)
    assert abs(abs(np.linalg.det(change)) - 1) < 1e-8
    near, far = (np.array(list(itertools.product(range(-n, n + 1), repeat=3))) @ short for n in (1, 4))
    for point in rng.random((20, 3)) - 0.5:
        d = point @ short
        assert np.linalg.norm(d + near, axis=1).min() <= np.linalg.norm(d + far, axis=1).min() * (1 + 1e-12)
