# SPDX-License-Identifier: BSD-3-Clause
"""Induced dipoles, energy and forces of polarizable charges beside those of OpenMM's AMOEBA.

Needs ``openmm`` in the environment: ``pip install openmm``.
"""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, InducedDipoles

mm = pytest.importorskip("openmm", reason="openmm is not installed")

COULOMB = 138.935456  # kJ/mol nm / e**2, that of OpenMM's AMOEBA to the digits given
LENGTH, SPLITTING, NODES = 1.6, 5.4, 80


def amoeba(x, q, alpha, thole, cutoff):
    """Return induced dipoles, energy and forces by OpenMM; mutual polarization, no other moments."""
    system, force = mm.System(), mm.AmoebaMultipoleForce()
    force.setNonbondedMethod(mm.AmoebaMultipoleForce.PME)
    force.setPolarizationType(mm.AmoebaMultipoleForce.Mutual)
    force.setMutualInducedTargetEpsilon(1e-9)
    force.setMutualInducedMaxIterations(500)
    force.setCutoffDistance(cutoff)
    force.setPMEParameters(SPLITTING, NODES, NODES, NODES)
    for charge, volume in zip(q, alpha, strict=True):
        system.addParticle(1.0)
        force.addMultipole(
            float(charge), [0.0] * 3, [0.0] * 9, mm.AmoebaMultipoleForce.NoAxisType, -1, -1, -1, thole,
            float(volume) ** (1 / 6), float(volume),
        )  # fmt: skip
    system.addForce(force)
    system.setDefaultPeriodicBoxVectors(*(mm.Vec3(*row) for row in LENGTH * np.eye(3)))
    context = mm.Context(system, mm.VerletIntegrator(0.0), mm.Platform.getPlatformByName("Reference"))
    context.setPositions(x)
    state = context.getState(getEnergy=True, getForces=True)
    induced = np.array([list(v) for v in force.getInducedDipoles(context)])
    return induced, state.getPotentialEnergy()._value, np.array(state.getForces(asNumpy=True)._value)


@pytest.mark.parametrize(("thole", "near"), [(0.39, 0.0), (0.39, 0.11), (0.8, 0.11)])
def test_dipoles_energy_and_forces_are_those_of_amoeba(thole, near):
    """Charges that may be near each other: there damping decides."""
    rng = np.random.default_rng(5)
    x = (np.stack(np.meshgrid(*[np.arange(3)] * 3), -1).reshape(-1, 3) + 0.4 * rng.random((27, 3))) * LENGTH / 3
    if near:
        x[1], x[3] = x[0] + near * np.array([0.6, 0.64, 0.48]), x[2] + near * np.array([0.0, -1.0, 0.0])
    q = rng.normal(scale=0.5, size=27)
    q -= q.mean()
    alpha = rng.uniform(0.5e-3, 1.5e-3, 27)  # nm**3
    induced, energy, forces = amoeba(x, q, alpha, thole, 0.79)
    pme = PME((LENGTH,) * 3, cutoff=0.79, splitting=SPLITTING, shape=64, window="bspline10", coulomb_constant=COULOMB)
    result = InducedDipoles(pme, 1e-10, thole=thole)(x, q, alpha / COULOMB)
    assert np.linalg.norm(result.induced - induced) <= 3e-6 * np.linalg.norm(induced)
    assert abs(result.energy / energy - 1) <= 1e-7
    assert np.linalg.norm(result.forces - forces) <= 4e-6 * np.linalg.norm(forces)
