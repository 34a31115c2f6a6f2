# SPDX-License-Identifier: BSD-3-Clause
"""Prepare ``src/particlemesh/data/water.npz``: a small box of salt water, equilibrated with OpenMM.

    python tools/make_water_box.py [--output FILE]

Needs ``pip install openmm`` (8.1 or later); nothing else in this project does. Takes about four minutes on
two cores. The seeds are fixed, but a different version of OpenMM or another processor gives other positions:
a trajectory is chaotic. So the committed file, not this script, is what the tests and the demo read.

The system is TIP3P water (rigid, force field ``amber14/tip3p.xml``) in a cube of about 3.2 nm with 0.5 mol/l of
sodium chloride, minimised, then run for 10 ps at constant volume and 40 ps at constant pressure (300 K, 1 bar,
PME, 2 fs steps). The last frame is kept.

The file holds

=====================  ==========  =============  ===========================================================
key                    shape       unit           meaning
=====================  ==========  =============  ===========================================================
``positions``          ``(N, 3)``  nm             rounded to 1e-5; molecules are whole, oxygens are in the box
``charges``            ``(N,)``    e              partial charges, sum zero
``box``                ``(3, 3)``  nm             rows are the lattice vectors; a cube here
``elements``           ``(N,)``    --             chemical symbols
``reference_energy``   ``()``      kJ/mol         Coulomb energy of the periodic point charges
``reference_forces``   ``(N, 3)``  kJ/(mol nm)    minus its gradient
=====================  ==========  =============  ===========================================================

The reference is the electrostatic energy of *all* pairs, those within a molecule included (there are no
exclusions), of the point charges at the rounded positions with tin-foil boundary conditions: an Ewald sum in
double precision, converged to about 1e-9. Lennard-Jones terms and bonds are not in it.
"""

import argparse
import random
from pathlib import Path

import numpy as np
import openmm
from openmm import app, unit

EDGE = 3.2  # nm
SALT = 0.5  # mol/l
SEED = 2026
STEP = 2.0  # fs
CONSTANT_VOLUME = 5_000  # steps, 10 ps
CONSTANT_PRESSURE = 20_000  # steps, 40 ps
OUTPUT = Path(__file__).resolve().parents[1] / "src" / "particlemesh" / "data" / "water.npz"


def equilibrated():
    """Return topology, positions (nm), edge (nm) and charges (e) of the last frame."""
    random.seed(SEED)  # addSolvent picks the waters to replace by ions with it
    forcefield = app.ForceField("amber14/tip3p.xml")
    modeller = app.Modeller(app.Topology(), [] * unit.nanometer)
    modeller.addSolvent(
        forcefield,
        model="tip3p",
        boxSize=openmm.Vec3(EDGE, EDGE, EDGE) * unit.nanometer,
        ionicStrength=SALT * unit.molar,
    )
    system = forcefield.createSystem(
        modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=1.0 * unit.nanometer, rigidWater=True
    )
    barostat = openmm.MonteCarloBarostat(1.0 * unit.bar, 300 * unit.kelvin, 0)  # frequency 0: off
    barostat.setRandomNumberSeed(SEED)
    system.addForce(barostat)
    integrator = openmm.LangevinMiddleIntegrator(300 * unit.kelvin, 2.0 / unit.picosecond, STEP * unit.femtosecond)
    integrator.setRandomNumberSeed(SEED)
    platform = openmm.Platform.getPlatformByName("CPU")
    simulation = app.Simulation(
        modeller.topology, system, integrator, platform, {"Threads": "2", "DeterministicForces": "true"}
    )
    simulation.context.setPositions(modeller.positions)
    simulation.minimizeEnergy()
    simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, SEED)
    simulation.step(CONSTANT_VOLUME)
    barostat.setFrequency(25)
    simulation.context.reinitialize(preserveState=True)
    simulation.step(CONSTANT_PRESSURE)

    state = simulation.context.getState(getPositions=True)
    positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
    vectors = state.getPeriodicBoxVectors(asNumpy=True).value_in_unit(unit.nanometer)
    nonbonded = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    charges = [
        nonbonded.getParticleParameters(i)[0].value_in_unit(unit.elementary_charge)
        for i in range(system.getNumParticles())
    ]
    return modeller.topology, np.array(positions), float(vectors[0, 0]), np.array(charges)


def whole_molecules(topology, positions, edge):
    """Move each molecule so that its first atom is in ``[0, edge)`` and the others are beside it."""
    positions = positions.copy()
    for residue in topology.residues():
        atoms = [atom.index for atom in residue.atoms()]
        first = positions[atoms[0]]
        home = first - edge * np.floor(first / edge)
        apart = positions[atoms] - first
        positions[atoms] = home + apart - edge * np.round(apart / edge)
    return positions


def coulomb(positions, charges, edge, cutoff=1.5, tolerance=1e-10):
    """Return energy (kJ/mol) and forces (kJ/(mol nm)) of periodic point charges by an explicit Ewald sum."""
    system = openmm.System()
    system.setDefaultPeriodicBoxVectors((edge, 0, 0), (0, edge, 0), (0, 0, edge))
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.Ewald)
    force.setCutoffDistance(cutoff)
    force.setEwaldErrorTolerance(tolerance)
    force.setUseDispersionCorrection(False)
    for charge in charges:
        system.addParticle(1.0)
        force.addParticle(float(charge), 1.0, 0.0)  # no Lennard-Jones, and no exclusions are added
    system.addForce(force)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    state = context.getState(getEnergy=True, getForces=True)
    energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    return energy, np.array(forces)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output
    topology, positions, edge, charges = equilibrated()
    edge = round(edge, 5)
    positions = np.round(whole_molecules(topology, positions, edge), 5)
    charges = np.round(charges, 6)
    energy, forces = coulomb(positions, charges, edge)
    output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        output,
        positions=positions,
        charges=charges,
        box=np.diag([edge] * 3),
        elements=np.array([atom.element.symbol for atom in topology.atoms()], dtype="<U2"),
        reference_energy=np.float64(energy),
        reference_forces=np.round(forces, 6),
    )
    print(f"{output.name}: {len(charges)} atoms, edge {edge} nm, {energy:.4f} kJ/mol, {output.stat().st_size} B")


if __name__ == "__main__":
    main()
