# SPDX-License-Identifier: BSD-3-Clause
"""Steps of dispersion by kernels, without waiting, in a CUDA graph; pairs that are left out or scaled."""

import numpy as np
import pytest

from particlemesh.apps.pme import Dispersion, Result
from pme_cases import TRICLINIC, close, image, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5", mixing="lorentz-berthelot", shift=True)
PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
NAMES = ("energy", "energies", "forces", "virial")


def numbers(dtype="float64", count=50):
    x, _ = random_charges(count)
    rng = np.random.default_rng(2)
    return [a.astype(dtype) for a in (x, rng.uniform(0.2, 0.35, count), rng.uniform(0.5, 2, count))]


def test_out_is_written_and_later_checks_raise():
    x, sigma, epsilon = numbers()
    call = Dispersion(TRICLINIC, **COARSE)
    first = call(x, sigma=sigma, epsilon=epsilon)
    out = Result(np.empty(()), np.empty((50, 2))[:, 0], np.empty((50, 3)), np.empty((3, 3)))
    assert call(x, sigma=sigma, epsilon=epsilon, check=False, out=out).forces is out.forces
    close(out, first, 1e-14)
    call.check()
    epsilon[7] = np.nan
    with pytest.raises(ValueError, match="epsilon has 1 elements that are not finite; the first is 7"):
        call(x, sigma=sigma, epsilon=epsilon)
    call(x, sigma=sigma, epsilon=epsilon, check=False)
    with pytest.raises(ValueError, match="numbers are not finite; the first is that of particle 7"):
        call.check()
    with pytest.raises(TypeError, match="give a Result"):
        call(x, sigma=sigma, epsilon=sigma, out=first.forces)
    with pytest.raises(TypeError, match="give dtype='float64'"):
        Dispersion(TRICLINIC, **COARSE, dtype="float32")(x, sigma)
    with pytest.raises(ValueError, match="reserve needs to know"):
        Dispersion(TRICLINIC).reserve(10)
    with pytest.raises(RuntimeError, match="no step yet"):
        Dispersion(TRICLINIC).check()


@pytest.mark.parametrize("shift", [False, True])
def test_pairs_lose_what_they_have_within_the_cutoff_and_beyond(shift):
    x, sigma, epsilon = numbers()
    options = dict(COARSE, shift=shift)
    call = Dispersion(TRICLINIC, **options)
    whole = call(x, sigma=sigma, epsilon=epsilon)
    r = np.array([[np.linalg.norm(image(b - a, TRICLINIC)) for b in x] for a in x])
    r[range(50), range(50)] = 1.0
    near, far = np.unravel_index([r.argmin(), r.argmax()], r.shape)
    for (i, j), factor in zip((near, far), (0.25, 0.0), strict=True):
        pair = call(x, sigma=sigma, epsilon=epsilon, exclusions=[(i, j)], factors=factor)
        root = 2 * np.sqrt(epsilon) * sigma**3
        energy = -root[i] * root[j] / r[i, j] ** 6
        if r[i, j] < options["cutoff"]:
            s6 = ((sigma[i] + sigma[j]) / 2 / r[i, j]) ** 6
            well = 4 * np.sqrt(epsilon[i] * epsilon[j])
            energy = well * (s6**2 - s6)
        if not shift or r[i, j] > options["cutoff"]:
            np.testing.assert_allclose(pair.energy - whole.energy, (factor - 1) * energy, rtol=1e-9)
        h = 1e-6
        for a in range(3):
            ends = []
            for step in (h, -h):
                moved = x.copy()
                moved[i, a] += step
                ends.append(
                    call(moved, sigma=sigma, epsilon=epsilon, exclusions=[(i, j)], factors=factor).energy
                    - call(moved, sigma=sigma, epsilon=epsilon).energy
                )
            change = pair.forces[i, a] - whole.forces[i, a]
            np.testing.assert_allclose(change, -(ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-6)


def test_an_excluded_pair_may_lie_in_one_place():
    x, sigma, epsilon = numbers()
    x[1] = x[0]
    call = Dispersion(TRICLINIC, **COARSE)

    def energy(*left_out, **pairs):
        keep = np.delete(np.arange(50), left_out)
        return call(x[keep], sigma=sigma[keep], epsilon=epsilon[keep], **pairs).energy

    # Energies are sums over pairs. Of the excluded one images remain: those of a particle and itself.
    root = 2 * np.sqrt(epsilon[:2]) * sigma[:2] ** 3
    images = 2 * call(x[:1], root[:1]).energy / root[0] ** 2 * root.prod()
    expected = energy(0) + energy(1) - energy(0, 1) + images
    np.testing.assert_allclose(energy(exclusions=[(0, 1)]), expected, rtol=1e-10)
    for pairs in ({}, {"exclusions": [(0, 1)], "factors": 0.5}):
        with pytest.raises(ValueError, match="particle [01] lies where another one lies"):
            call(x, sigma=sigma, epsilon=epsilon, **pairs)
