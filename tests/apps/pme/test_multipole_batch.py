# SPDX-License-Identifier: BSD-3-Clause
"""Multipoles of many systems in one call are those of each system alone."""

import numpy as np
import pytest

from multipole_ewald import system
from particlemesh.apps.pme import PME, PMEBatch
from pme_cases import close

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=1.7, splitting=3.0, shape=(36, 40, 36), window="bspline12", coulomb_constant=1.5)
COUNTS, SCALES = (6, 0, 5, 1), (1.0, 1.1, 0.95, 1.0)
NAMES = "dipoles", "quadrupoles", "widths"


def systems():
    """Numbers of each system, and of all in a mixed order, with the system of each particle."""
    each = [system(BOX * scale, count, seed) for seed, (count, scale) in enumerate(zip(COUNTS, SCALES, strict=True))]
    order = np.random.default_rng(1).permutation(sum(COUNTS))
    whole = [np.concatenate(arrays)[order] for arrays in zip(*each, strict=True)]
    return each, whole, np.repeat(np.arange(4), COUNTS)[order].astype(np.int32), np.argsort(order)


def call(made, arrays, *others, **options):
    return made(*arrays[:2], *others, **dict(zip(NAMES, arrays[2:], strict=True)), **options)


@pytest.mark.backends("cpu", "opencl", "cuda")
def test_each_system_has_what_it_has_alone(backend):
    dtype = "float64" if backend.name == "cpu" else "float32"  # each compiles
    each, whole, owner, place = systems()
    boxes = np.array([BOX * scale for scale in SCALES])
    batch = PMEBatch(BOX, 4, **FINE, dtype=dtype, backend=backend.name)
    batch.reserve(len(owner), quadrupoles=True)
    pairs = place[[[0, 1], [2, 4], [7, 9]]]  # of the first and of the third system
    factors = np.array([0.0, 0.5, 0.8])
    more = dict(boxes=boxes, exclusions=pairs, factors=factors)
    result = call(batch, [backend.array(a.astype(dtype)) for a in whole], backend.array(owner), **more)
    first, tolerance = 0, 1e-11 if dtype == "float64" else 1e-5
    for s, (count, arrays) in enumerate(zip(COUNTS, each, strict=True)):
        excluded = {0: ([[0, 1], [2, 4]], [0.0, 0.5]), 2: ([[1, 3]], [0.8])}.get(s)
        known = {} if excluded is None else dict(zip(("exclusions", "factors"), excluded, strict=True))
        alone = call(PME(boxes[s], **FINE, **known), arrays)
        some = place[first : first + count]
        first += count
        for name, exact in vars(alone).items():
            mine = backend.host(getattr(result, name))
            mine = mine[s] if name in ("energy", "virial") else mine[some]
            largest = abs(backend.host(getattr(result, name))).max()
            np.testing.assert_allclose(mine, exact, rtol=0, atol=tolerance * largest, err_msg=f"{name} {s}")


def test_dipoles_alone_are_those_of_a_pme():
    (x, q, mu, _, _), *_ = systems()[0]
    batch, pme = PMEBatch(BOX, 1, **FINE), PME(BOX, **FINE)
    plain, result = pme(x, q, dipoles=mu), batch(x, q, np.zeros(6, int), dipoles=mu)
    for name in ("energies", "forces", "fields", "torques", "potentials"):
        np.testing.assert_allclose(getattr(result, name), getattr(plain, name), rtol=1e-5, atol=1e-6)
    close(call(batch, [x, q, mu, 0 * x[:, :, None] * x[:, None], 0 * q], np.zeros(6, int)), result, 1e-12)


@pytest.mark.backends("cpu", "opencl")
@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (2, np.nan, "widths are not finite; the first is that of particle 3 of system"),
        (3, np.arange(9.0).reshape(3, 3), "not symmetric; the first is that of particle 3 of system"),
        (4, -1.0, "widths are negative; the first is that of particle 3 of system"),
        (4, 1.0, "Gaussians are no points.*particle 3 of system"),
    ],
)
def test_bad_numbers_name_particle_and_system(backend, place, value, message):
    _, whole, owner, _ = systems()
    whole[place][3] = value
    batch = PMEBatch(BOX * 1.1, 4, **FINE)
    with pytest.raises(ValueError, match=message):
        call(batch, [backend.array(a) for a in whole], backend.array(owner))


def test_bad_pairs_and_free_parameters():
    each, whole, owner, place = systems()
    batch = PMEBatch(BOX * 1.1, 4, 1e-5)
    with pytest.raises(ValueError, match="particles of different systems do not interact"):
        call(batch, whole, owner, exclusions=place[[[0, 7]]])
    boxes = np.array([BOX * scale for scale in SCALES])
    result = call(batch, whole, owner, boxes=boxes)
    assert batch.parameters.splitting != "prolate"
    exact = call(PME(BOX, 1e-9), each[0])
    np.testing.assert_allclose(result.energy[0], exact.energy, rtol=1e-4)
