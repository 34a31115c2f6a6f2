# SPDX-License-Identifier: BSD-3-Clause
"""Numbers that are not finite are an error of every face, which names the first particle, and its system."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Dispersion, PMEBatch, slab_correction
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
FIRST, LATER = 7, 11  # particles with bad numbers; the first is named
X, Q = random_charges(20)
SYSTEM = np.arange(20) % 2
FACES = {
    "charges": lambda x, q, mu, more: PME(TRICLINIC, **COARSE)(x, q),
    "sets": lambda x, q, mu, more: PME(TRICLINIC, **COARSE)(x, np.stack([Q, q])),
    "list": lambda x, q, mu, more: PME(TRICLINIC, **COARSE, skin=0.1)(x, q),
    "dipoles": lambda x, q, mu, more: PME(TRICLINIC, **COARSE)(x, q, dipoles=mu),
    "batch": lambda x, q, mu, more: PMEBatch(TRICLINIC, 2, **COARSE)(x, q, SYSTEM),
    "slab": lambda x, q, mu, more: slab_correction(x, q, np.diag((3.0, 3.0, 9.0))),
    "coefficients": lambda x, q, mu, more: Dispersion(TRICLINIC, **COARSE)(x, q),
    "sigma": lambda x, q, mu, more: Dispersion(TRICLINIC, **COARSE)(x, sigma=abs(q), epsilon=more),
    "epsilon": lambda x, q, mu, more: Dispersion(TRICLINIC, **COARSE)(x, sigma=more, epsilon=abs(q)),
}


def spoiled(array, value):
    array = array.copy()
    array[[FIRST, LATER]] = value
    return array


def numbers():
    return X, Q, np.ones((20, 3)) * Q[:, None], np.full(20, 0.3)


def refused(face, x, q, mu, more, named=str(FIRST)):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=rf"finite.*\b{named}\b"):
        FACES[face](x, q, mu, more)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("face", FACES)
def test_positions_and_charges_of_every_face(face, value):
    x, q, mu, more = numbers()
    refused(face, spoiled(x, value), q, mu, more)
    refused(face, x, spoiled(q, value), mu, more)
    FACES[face](x, q, mu, more)  # the state is as before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_dipoles_and_second_numbers(value):
    x, q, mu, more = numbers()
    refused("dipoles", x, q, spoiled(mu, (0.0, value, 0.0)), more, "particle 7")
    refused("sigma", x, q, mu, spoiled(more, value))
    refused("epsilon", x, q, mu, spoiled(more, value))


def test_the_system_is_named():
    x, q, mu, more = numbers()
    refused("batch", x, spoiled(q, np.nan), mu, more, "particle 7 of system 1")
    for boxes in ([[3.0, 3.0, 3.0], [3.0, np.nan, 3.0]], np.stack([np.eye(3), np.full((3, 3), np.inf)])):
        with pytest.raises(ValueError, match=r"boxes\[1\]"):
            PMEBatch(TRICLINIC, 2, **COARSE)(x, q, SYSTEM, boxes=boxes)


@pytest.mark.parametrize("make", [PME, Dispersion, lambda box: PMEBatch(box, 2), lambda b: slab_correction(X, Q, b)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_boxes(make, value):
    with pytest.raises(ValueError, match=r"finite|beyond"):
        make((3.0, value, 3.0))


def test_numbers_too_large_for_their_energy():
    huge = np.full(20, 1e200)
    for face in ("charges", "dipoles", "batch", "slab", "coefficients"):
        with np.errstate(all="ignore"), pytest.raises(ValueError, match="not finite: .*too large"):
            FACES[face](X, huge, 0 * X, 0)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_energies_that_are_differentiated(library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    pme = PME(TRICLINIC, **COARSE)
    if library == "torch":
        from torch import as_tensor as array

        from particlemesh.apps.pme.torch import energy
    else:
        from jax.numpy import asarray as array

        from particlemesh.apps.pme.jax import energy
    x, q = X.astype("f4"), Q.astype("f4")
    with pytest.raises(Exception, match=r"charges of 2 of 20 particles are not finite; the first is particle 7\."):
        float(energy(pme, array(x), array(spoiled(q, np.nan))))
    with pytest.raises(Exception, match=r"not finite.* 7"):
        float(energy(pme, array(spoiled(x, np.nan)), array(q)))
    energy(pme, array(x), array(q))


def two_near_each_other(dtype, distance):
    """Particles of which the second and the fourth are so near each other, beside a corner of the box."""
    x = X.astype(dtype)
    x[[1, 3]] = 0
    x[3, 0] = distance
    return x, Q.astype(dtype), np.ones((20, 3), dtype)


# Energies of charges are finite at such a distance, and forces are not; and those of dipoles.
DISTANCES = {("float32", 0): 1e-13, ("float64", 0): 1e-110, ("float32", 1): 1e-7, ("float64", 1): 1e-45}


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("more", [(), ("dipoles",), ("dipoles", "widths")], ids=["charges", "dipoles", "multipoles"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_particles_whose_forces_are_not_finite(backend, dtype, many, more):
    x, q, mu = two_near_each_other(dtype, DISTANCES[dtype, min(len(more), 1)])
    options = dict(**COARSE, dtype=dtype, backend=backend.name)
    call = PMEBatch(TRICLINIC, 2, **options) if many else PME(TRICLINIC, **options)
    numbers = {"dipoles": mu, "widths": np.zeros(20, dtype)}
    given = [x, q, *[SYSTEM.astype(np.int32)] * many]
    there = {name: backend.array(numbers[name]) for name in more}
    for _turn in range(3):  # later calls are played from tapes
        with np.errstate(all="ignore"):
            result = call(*map(backend.array, given), **there, check=False)
        assert np.isfinite(backend.host(result.energy)).all() == (not more or (not many and len(more) == 1))
        assert not np.isfinite(backend.host(result.forces)).all()
        named = "particle 1 of system 1" if many else r"particle 1\."
        for refused in (call.check, lambda: call(*map(backend.array, given), **there)):
            with np.errstate(all="ignore"), pytest.raises(ValueError, match=f"not finite.*too near.*{named}"):
                refused()
