# SPDX-License-Identifier: BSD-3-Clause
"""Slabs against the two-dimensional Ewald sum of Parry."""

import itertools

import numpy as np
import pytest
from scipy.special import erf, erfc

from particlemesh.apps.pme import PME, slab_correction

LENGTH, HEIGHT = 1.0, 5.0
BOX = (LENGTH, 1.2, HEIGHT)
FINE = dict(cutoff=1.1, splitting=5.4, shape=(40, 48, 200), window="bspline12")
VECTORS = np.array([[1.0, 0, 0], [0.3, 1.2, 0], [0.2, -0.1, HEIGHT]])  # the lattice is tilted


def parry(x, q, plane, a=3.0):
    """Return the energy of a slab with lattice vectors (2, 2), after Parry; any net charge, without background."""
    area = abs(np.linalg.det(plane))
    reciprocal = 2 * np.pi * np.linalg.inv(plane).T
    d = x[:, None] - x
    total = 0.0
    for n in itertools.product(range(-6, 7), repeat=2):
        r = np.sqrt(((d + np.append(np.array(n) @ plane, 0)) ** 2).sum(-1))
        r[r == 0] = np.inf
        total += (q[:, None] * q * erfc(a * r) / r).sum() / 2
    z = d[..., 2]
    for n in itertools.product(range(-8, 9), repeat=2):
        if n == (0, 0):
            continue
        k = np.array(n) @ reciprocal
        size = np.linalg.norm(k)
        fade = np.exp(size * z) * erfc(size / (2 * a) + a * z) + np.exp(-size * z) * erfc(size / (2 * a) - a * z)
        total += (q[:, None] * q * np.cos(d[..., :2] @ k) * fade).sum() * np.pi / (2 * area * size)
    flat = z * erf(a * z) + np.exp(-((a * z) ** 2)) / (a * np.sqrt(np.pi))
    return total - np.pi / area * (q[:, None] * q * flat).sum() - a / np.sqrt(np.pi) * (q**2).sum()


def slab(net):
    rng = np.random.default_rng(4)
    x = rng.random((7, 3)) * (1, 1.2, 1.0) + (0, 0, 1.5)
    q = rng.normal(size=7)
    return x, q - (q.sum() - net) / 7


@pytest.mark.parametrize("net", [0.0, 1.7])
@pytest.mark.parametrize("axis", [2, 0])
def test_energy_and_forces_are_those_of_a_two_dimensional_sum(net, axis):
    x, q = slab(net)
    turn = np.roll(np.arange(3), axis + 1)  # the third coordinate becomes the slab's axis
    box = np.array(BOX)[turn]
    fine = {**FINE, "shape": tuple(np.array(FINE["shape"])[turn])}
    turned = x[:, turn]
    whole, more = PME(box, **fine)(turned, q), slab_correction(turned, q, box, axis=axis)
    exact = parry(x, q, np.diag(BOX[:2]))
    np.testing.assert_allclose(whole.energy + more.energy, exact, rtol=1e-8)
    np.testing.assert_allclose(more.energies.sum(), more.energy, rtol=1e-12)
    forces = (whole.forces + more.forces)[:, np.argsort(turn)]
    h = 1e-4
    for i, direction in ((0, 2), (3, 0), (5, 1)):
        step = np.zeros_like(x)
        step[i, direction] = h
        slope = (parry(x + step, q, np.diag(BOX[:2])) - parry(x - step, q, np.diag(BOX[:2]))) / (2 * h)
        np.testing.assert_allclose(forces[i, direction], -slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("net", [0.0, -0.8])
def test_triclinic_slabs_and_their_virial(net):
    x, q = slab(net)
    fine = {**FINE, "cutoff": 1.0, "splitting": 6.0, "shape": (48, 54, 216)}
    energy = PME(VECTORS, **fine)(x, q).energy + slab_correction(x, q, VECTORS).energy
    np.testing.assert_allclose(energy, parry(x, q, VECTORS[:2, :2]), rtol=1e-7)
    h = 1e-5
    virial = slab_correction(x, q, VECTORS).virial
    for a, b in itertools.product(range(3), repeat=2):
        ends = []
        for sign in (1, -1):
            deform = np.eye(3)
            deform[a, b] += sign * h
            ends.append(slab_correction(x @ deform.T, q, VECTORS @ deform.T).energy)
        np.testing.assert_allclose(virial[a, b], (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-7)


def test_sets_of_charges_and_the_origin():
    x, q = slab(1.0)
    both = slab_correction(x, np.stack([q, 2 * q]), BOX)
    one = slab_correction(x + (0, 0, 3.7), q, BOX)
    np.testing.assert_allclose(both.energy, [one.energy, 4 * one.energy], rtol=1e-12)
    np.testing.assert_allclose(both.forces[1], 4 * one.forces, atol=1e-12)
    assert both.virial.shape == (2, 3, 3)
    single = slab_correction(x.astype(np.float32), q.astype(np.float32), BOX)
    assert single.forces.dtype == np.float32
    np.testing.assert_allclose(single.forces, one.forces, atol=1e-5)


def test_bad_arguments_are_explained():
    x, q = slab(0.0)
    with pytest.raises(ValueError, match="thick and the box is 0.5 high"):
        slab_correction(x, q, (1.0, 1.0, 0.5))
    with pytest.raises(ValueError, match="axis"):
        slab_correction(x, q, BOX, axis=3)
    with pytest.raises(ValueError, match=r"charges has shape \(6,\)"):
        slab_correction(x, q[:6], BOX)
