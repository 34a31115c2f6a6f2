# SPDX-License-Identifier: BSD-3-Clause
"""Steps with dipoles by kernels: equal to the CPU's, without allocation and waits, in a CUDA graph."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME
from pme_cases import TRICLINIC, close, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
NAMES = ("energy", "energies", "forces", "virial", "potentials", "fields", "torques")


def system(dtype="float64"):
    x, q = random_charges(50)
    mu = np.sin(np.arange(150.0)).reshape(50, 3) * 0.3
    return [a.astype(dtype) for a in (x, q, mu)]


@pytest.mark.backends("opencl", "cuda")
def test_later_checks_name_the_particle(backend):
    x, q, mu = system()
    pme = PME(TRICLINIC, **COARSE, exclusions=[(2, 3)], factors=0.5, dtype="float64", backend=backend.name)
    bad = mu.copy()
    bad[[7, 11], 2] = np.nan
    twins, scaled = x.copy(), x.copy()
    twins[4], scaled[3] = twins[9], scaled[2]
    nan = np.where(np.arange(50) > 20, np.inf, q)
    for given, said in (
        ((x, q, bad), r"dipoles are not finite; the first is that of particle 7\."),
        ((x, nan, mu), r"charges are not finite; the first is that of particle 21\."),
        ((twins, q, mu), "on top of each other: 4 is"),
        ((scaled, q, mu), "on top of each other: 2 is"),
        ((x, q * 1e200, mu), "the energy is not finite"),
    ):
        arrays = [backend.array(a) for a in given]
        with pytest.raises(ValueError, match=said):
            pme(*arrays[:2], dipoles=arrays[2])
        pme(*arrays[:2], dipoles=arrays[2], check=False)
        with pytest.raises(ValueError, match=said):
            pme.check()
    moved = x.copy()
    moved[5] = np.nan
    pme(backend.array(moved), backend.array(q), dipoles=backend.array(mu), check=False)
    with pytest.raises(ValueError, match="5"):
        pme.check()
    result = pme(*(backend.array(a) for a in (x, q)), dipoles=backend.array(mu))
    close(result, PME(TRICLINIC, **COARSE, exclusions=[(2, 3)], factors=0.5)(x, q, dipoles=mu), 1e-12, backend.host)
