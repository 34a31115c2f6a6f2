# SPDX-License-Identifier: BSD-3-Clause
"""The same Coulomb step by torch-pme, nvalchemi-toolkit-ops and OpenMM's CPU platform, in turns with ours."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import particlemesh as pm

_SYSTEMS = 20  # of many


@dataclass
class Peer:
    """Another library's step: ``call()`` computes energy and forces, ``wait()`` waits for it, ``forces()`` has them.

    ``times`` is the whole work over that of a call, which computes some of many systems.
    """

    name: str
    call: Callable[[], Any]
    wait: Callable[[], Any]
    forces: Callable[[], np.ndarray]
    times: float = 1.0


@dataclass
class Problem:
    """Charges in a cube, or in systems with a cube each, and the settings that all libraries share."""

    length: float
    positions: np.ndarray
    charges: np.ndarray
    nodes: int
    cutoff: float
    splitting: float
    order: int
    owners: np.ndarray | None = None


def missing(*modules: str) -> str:
    """Return which of some modules are not installed, as a sentence; empty if all are there."""
    gone = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"{' and '.join(gone)} not installed: no rows of {modules[-1]}." if gone else ""


def torch_pme(problem: Problem, on_gpu: bool) -> Peer | str:
    """Return torch-pme's step with energy and forces, or why there is none. It gets our list of pairs, untimed."""
    reason = missing("torch", "torchpme")
    if reason:
        return reason
    import torch

    if on_gpu and not torch.cuda.is_available():
        return "this torch has no CUDA: no rows of torchpme."
    from torchpme import CoulombPotential, PMECalculator

    device, dtype = "cuda" if on_gpu else "cpu", getattr(torch, problem.positions.dtype.name)
    calculator = PMECalculator(
        CoulombPotential(smearing=1 / (math.sqrt(2) * problem.splitting)),
        mesh_spacing=problem.length / problem.nodes, interpolation_nodes=problem.order,
    ).to(device=device, dtype=dtype)  # fmt: skip
    cell = torch.eye(3, dtype=dtype, device=device) * problem.length
    # It takes one system a call: some are enough to know the time of all.
    every: list[Any] = [slice(None)]
    if problem.owners is not None:
        every = [problem.owners == k for k in range(min(_SYSTEMS, int(problem.owners[-1]) + 1))]
    systems: list[Any] = []
    for some in every:
        i, j, turns = (
            torch.from_dlpack(a).to(device)
            for a in pm.neighbour_list("ijS", problem.positions[some], (problem.length,) * 3, problem.cutoff, half=True)
        )
        places = torch.tensor(problem.positions[some], device=device, requires_grad=True)
        q = torch.tensor(problem.charges[some], device=device)[:, None]
        systems.append((places, q, torch.stack([i, j], -1).long(), turns.to(dtype) @ cell))

    def call() -> None:
        for places, q, pairs, shifts in systems:
            places.grad = None
            distances = (places[pairs[:, 1]] - places[pairs[:, 0]] + shifts).norm(dim=1)
            potential = calculator(q, cell, places, pairs, distances)
            (q * potential).sum().backward()  # their potentials are halves

    def forces() -> np.ndarray:
        return np.concatenate([-places.grad.cpu().numpy() for places, *_ in systems])

    times = len(problem.charges) / sum(len(q) for _, q, *_ in systems)
    return Peer("torch-pme", call, torch.cuda.synchronize if on_gpu else lambda: None, forces, times)


def nvalchemi(problem: Problem, on_gpu: bool) -> Peer | str:
    """Return the step of nvalchemi-toolkit-ops with its list, energies and forces, or why there is none.

    Lists of the cell are prepared, and so is all that follows from the cell and the mesh.
    """
    reason = missing("torch", "nvalchemiops")
    if reason:
        return reason
    import torch

    if on_gpu and not torch.cuda.is_available():
        return "this torch has no CUDA: no rows of nvalchemiops."
    from nvalchemiops.torch.interactions.electrostatics.k_vectors import generate_k_vectors_pme
    from nvalchemiops.torch.interactions.electrostatics.pme import compute_bspline_moduli_1d, particle_mesh_ewald
    from nvalchemiops.torch.neighbors import neighbor_list, prepare_neighbor_list

    x = torch.tensor(problem.positions, device="cuda" if on_gpu else "cpu")
    q = torch.tensor(problem.charges, device=x.device)
    of = None if problem.owners is None else torch.tensor(problem.owners, device=x.device)
    systems = 1 if problem.owners is None else int(problem.owners[-1]) + 1
    cell = (torch.eye(3, dtype=x.dtype, device=x.device) * problem.length).repeat(systems, 1, 1)
    shape = (problem.nodes,) * 3
    longest = int(2 * len(x) / systems * 4.19 * problem.cutoff**3 / problem.length**3) + 32
    options: dict[str, Any] = dict(max_neighbors=longest, fixed_cell=True)
    if systems > 1:
        options["batch_idx"] = of
    elif on_gpu and x.dtype == torch.float32:
        options["method"] = "cluster_tile"
    periodic = torch.ones((systems, 3), dtype=torch.bool, device=x.device)
    state = prepare_neighbor_list(x, problem.cutoff, cell, periodic, **options)
    orders = [torch.fft.fftfreq(n, 1 / n, dtype=x.dtype, device=x.device) for n in shape[:2]]
    orders += [torch.fft.rfftfreq(shape[2], 1 / shape[2], dtype=x.dtype, device=x.device)]
    moduli = [compute_bspline_moduli_1d(m, n, problem.order) for m, n in zip(orders, shape, strict=True)]
    k, k_squared = generate_k_vectors_pme(cell, shape)
    kept = dict(
        k_vectors=k, k_squared=k_squared, moduli_x=moduli[0], moduli_y=moduli[1], moduli_z=moduli[2],
        cell_inv_t=torch.linalg.inv(cell).transpose(1, 2).contiguous(), volume=torch.linalg.det(cell).abs(),
    )  # fmt: skip
    answer: list[Any] = []

    def call() -> None:
        matrix, _, shifts = neighbor_list(x, cell=cell, batch_idx=of, state=state)
        answer[:] = particle_mesh_ewald(
            x, q, cell, problem.splitting, mesh_dimensions=shape, spline_order=problem.order, batch_idx=of,
            neighbor_matrix=matrix, neighbor_matrix_shifts=shifts, compute_forces=True, **kept,
        )  # fmt: skip

    wait = torch.cuda.synchronize if on_gpu else lambda: None
    return Peer("nvalchemi", call, wait, lambda: answer[1].cpu().numpy())


def openmm(problem: Problem, threads: int) -> Peer | str:
    """Return a step of OpenMM's CPU platform, or why there is none: energy, forces, and its list while it serves."""
    reason = missing("openmm")
    if reason:
        return reason
    if 2 * problem.cutoff > problem.length:
        return "OpenMM takes no cutoff above half of the box: no row of it."
    import openmm as mm

    constant = 138.93545764438206  # kJ/mol nm, which OpenMM multiplies with, to a few digits
    system, force = mm.System(), mm.NonbondedForce()
    force.setNonbondedMethod(mm.NonbondedForce.PME)
    force.setCutoffDistance(problem.cutoff)
    force.setPMEParameters(problem.splitting, *(problem.nodes,) * 3)
    force.setUseDispersionCorrection(False)
    for charge in problem.charges:
        system.addParticle(1.0)
        force.addParticle(float(charge), 0.1, 0.0)
    system.addForce(force)
    rows = np.eye(3) * problem.length
    system.setDefaultPeriodicBoxVectors(*(mm.Vec3(*row) for row in rows))
    context = mm.Context(
        system, mm.VerletIntegrator(0.0), mm.Platform.getPlatformByName("CPU"), {"Threads": str(threads)}
    )
    context.setPositions(problem.positions.astype(np.float64))
    state: list[Any] = []

    def call() -> None:
        state[:] = [context.getState(getForces=True, getEnergy=True)]

    def forces() -> np.ndarray:
        return np.asarray(state[0].getForces(asNumpy=True)._value) / constant

    return Peer("OpenMM, CPU", call, lambda: None, forces)
