# SPDX-License-Identifier: BSD-3-Clause
"""Excluded pairs that are in one place, nearly in one place, or in a box whose lattice vectors are long."""

import itertools

import numpy as np
import pytest

from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, Dispersion, DistributedPME, PMEBatch
from particlemesh.apps.pme.direct import pair_function, smooth_part
from particlemesh.apps.pme.exclusions import short_vectors
from particlemesh.apps.pme.split import Smooth

LENGTH, PAIR = 1.3, [[0, 1]]
ROUGH = dict(box=(LENGTH,) * 3, accuracy=1e-4)


def batch(x, q, exclusions=None, factors=0.0):
    call = PMEBatch(**ROUGH, systems=1)
    return call(x, q, np.zeros(3, int), exclusions=exclusions, factors=factors)


def over_ranks(x, q, **pairs):
    return DistributedPME(pmd.World(), **ROUGH, **pairs)(x, q)


CALLS = {
    "charges": lambda x, q, **pairs: PME(**ROUGH, **pairs)(x, q),
    "list": lambda x, q, **pairs: PME(**ROUGH, skin=0.1, **pairs)(x, q),
    "dipoles": lambda x, q, **pairs: PME(**ROUGH, **pairs)(x, q, dipoles=0.1 * np.ones_like(x)),
    "widths": lambda x, q, **pairs: PME(**ROUGH, **pairs)(x, q, widths=np.zeros_like(q)),
    "batch": batch,
    "ranks": over_ranks,
}
SKEWED = np.array([[2.0, 0, 0], [3.1, 2.2, 0], [-4.9, 3.3, 2.4]])
PLACE = "lie on top of each other|lies where another one lies"


def pair_at(shift, dtype):
    """Three particles, of which the second is at a distance from the first; None: the next number."""
    x = np.array([[0.9, 0.4, 0.5], [0.9, 0.4, 0.5], [0.6, 0.1, 0.6]], dtype)
    x[1, 0] = np.nextafter(x[0, 0], dtype(9)) if shift is None else x[0, 0] + dtype(shift)
    return x, np.array([1.0, -1.0, 0.5], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("what", CALLS)
def test_excluded_pairs_have_any_distance(what, dtype):
    """Also that of rounding, within the box or across its faces: forces change as little as positions."""
    at, size = CALLS[what](*pair_at(0, dtype), exclusions=PAIR), 2e-5 if dtype is np.float32 else 1e-12
    for shift in (None, 3e-7, 1e-5, 1e-3, LENGTH, -LENGTH, LENGTH - 3e-7):
        result = CALLS[what](*pair_at(shift, dtype), exclusions=PAIR)
        distance = abs(shift or 0) if abs(shift or 0) < 0.1 else 3e-7
        for name in ("energy", "forces", "virial"):
            mine, exact = getattr(result, name), getattr(at, name)
            assert abs(mine - exact).max() <= (size + 20 * distance) * abs(at.forces).max(), (shift, name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pairs", [{}, dict(exclusions=PAIR, factors=0.5)], ids=["free", "scaled"])
@pytest.mark.parametrize("what", CALLS)
def test_only_the_same_place_is_refused_of_other_pairs(what, pairs, dtype):
    with pytest.raises(ValueError, match=PLACE):
        CALLS[what](*pair_at(0, dtype), **pairs)
    if what in ("dipoles", "widths") and dtype is np.float32:
        return  # which does not hold the powers of 1 / r that their functions take
    for shift in (None, 1e-5, 1e-3):
        x, q = pair_at(shift, dtype)
        result, distance = CALLS[what](x, q, **pairs), float(x[1, 0]) - float(x[0, 0])
        pull = pairs.get("factors", 1.0) / distance**2
        if what == "dipoles":
            assert np.isfinite(result.forces).all()
            assert abs(result.forces[0, 0]) > pull
        else:
            np.testing.assert_allclose(result.forces[:2, 0], [pull, -pull], rtol=1e-3)


def test_coefficients_have_the_same_coordinates_or_a_distance():
    def call(x, q):
        return Dispersion((LENGTH,) * 3, accuracy=1e-3)(x, abs(q), exclusions=PAIR)

    assert np.isfinite(call(*pair_at(0, np.float64)).forces).all()
    for shift in (LENGTH, None, 1e-15 - LENGTH):
        with pytest.raises(ValueError, match="lies where|lie in one place"):
            call(*pair_at(shift, np.float64))


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


def test_making_a_function_compiles_none_of_its_parts():
    pair_function(Smooth(1.0, np.zeros((1, 17))), 1, False)
    assert smooth_part(17, 3).signatures == []
