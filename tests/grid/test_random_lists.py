# SPDX-License-Identifier: BSD-3-Clause
"""Random lists on the CPU against all images of all pairs: thin, skewed, open and small boxes, any unit, ties.

A case is made by its number: ``check(17)`` repeats one. ``--thorough`` tries 10⁵.
"""

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from grid_cases import all_pairs, check_answer, check_counts, entries, rounding

CPU = Device.of("cpu")
CASES, ALL, PART = 400, 100_000, 2_000


def box_of(rng):
    d = int(rng.integers(1, 4))
    matrix = np.diag(10 ** rng.uniform(-1.2, 0.6, d))
    if d > 1 and rng.random() < 0.5:
        matrix += np.tril(rng.uniform(-1, 1, (d, d)) * rng.choice([0.3, 1.5]), -1)
    return pm.Box(matrix, rng.uniform(-1, 1, d) * rng.integers(0, 2), tuple(bool(p) for p in rng.random(d) < 0.6))


def lattice(rng, real):
    """Points on a lattice in a cubic box, and a radius at which many distances are: all is exact but the roots."""
    d, side = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    x = rng.integers(0, side, (int(rng.integers(2, 14)), d)).astype(real)
    box = pm.Box((float(side),) * d, periodic=tuple(bool(p) for p in rng.random(d) < 0.6))
    return box, x, float(np.sqrt(rng.integers(1, 2 * side * side)))


def check(number):
    """Compare one call with the oracle; lengths are in a unit that is a power of two."""
    rng = np.random.default_rng(number)
    real = np.dtype(rng.choice(["f4", "f8"]))
    ties = rng.random() < 0.3
    if ties:
        box, x, radius = lattice(rng, real)
    else:
        box = box_of(rng)
        far = np.where(box.periodic, rng.choice([0, 3]), 0)
        s = rng.uniform(-far, 1 + far, (int(rng.integers(1, 40)), box.ndim))
        x = (s @ box.matrix + box.origin).astype(real)
        radius = float(10 ** rng.uniform(-1.5, 0.3))
    if (np.floor(2 * radius * np.linalg.norm(box.inverse, axis=1)) * np.array(box.periodic) + 1).prod() > 500:
        radius /= 8  # the oracle takes all images
    unit = 2.0 ** rng.integers(*{"f4": (-40, 58), "f8": (-300, 300)}[real.name[0] + str(real.itemsize)])
    factor = real.type(unit)
    here = pm.Box(box.matrix * unit, box.origin * unit, box.periodic)
    given, half = x * factor, bool(rng.random() < 0.5)
    oracle = all_pairs(box, x, radius + rounding(box, x, radius))
    band = rounding(box, x, radius)
    if ties:
        band, apart = 0.0, oracle.distance.astype(real)
        limit = float(real.type(radius))
    if rng.random() < 0.5:
        reach = np.full(len(x), real.type(radius * unit) / 2) if rng.random() < 0.3 else radius * unit
        i, j, shift, d, vector = pm.neighbour_list("ijSdD", given, here, reach, half=half)
    else:
        cells = [int(n) for n in rng.integers(1, 5, box.ndim)]
        grid = pm.UniformGrid(here, shape=cells).build(np.clip(given, *_open(here, given)))
        pairs = grid.pairs(radius * unit, half=half, quantities="ijSdD")
        _, j, shift, d, vector = entries(CPU, pairs)
        i = pairs.i
        if not ties:
            check_counts(grid.count(radius * unit), len(x), oracle, radius, band)
    listed = (i, j, shift, d / factor, vector / factor)
    if ties:
        near = apart.astype(float) <= limit
        assert (d / factor).max(initial=0) <= real.type(radius)
        assert len(i) == (near.sum() if not half else (near & _first(oracle)).sum())
    else:
        check_answer(box, x, radius, listed, oracle, half=half)


def _open(box, x):
    """Bounds that leave points in a box of orthogonal axes, and others where they are."""
    if not box.orthorhombic:
        return -np.inf, np.inf
    low, high = box.origin.astype(x.dtype), (box.origin + box.lengths).astype(x.dtype)
    return np.where(box.periodic, -np.inf, low).astype(x.dtype), np.where(box.periodic, np.inf, high).astype(x.dtype)


def _first(oracle):
    from grid_cases import forward

    return forward(oracle.i, oracle.j, oracle.shift)


@pytest.mark.parametrize("part", range(ALL // PART))
def test_random_lists_are_those_of_all_pairs(part, request):
    if not request.config.getoption("--thorough") and part:
        pytest.skip("the first cases run; --thorough runs all")
    for number in range(part * PART, part * PART + (PART if request.config.getoption("--thorough") else CASES)):
        try:
            check(number)
        except Exception as error:
            error.add_note(f"case {number}")
            raise
