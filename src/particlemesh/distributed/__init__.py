# SPDX-License-Identifier: BSD-3-Clause
"""One mesh over many processes and GPUs: communicators, decompositions, plans, transforms, solvers and grids."""

from particlemesh.distributed.domain import Domain, Part
from particlemesh.distributed.fft import FFT, Remap
from particlemesh.distributed.grids import UniformGrid
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.routes import Route
from particlemesh.distributed.solver import Solver
from particlemesh.distributed.spectra import power_spectrum
from particlemesh.distributed.vector_solver import VectorSolver
from particlemesh.distributed.whole import whole_field
from particlemesh.distributed.world import RankError, World

__all__ = [
    "FFT",
    "Domain",
    "Part",
    "Plan",
    "RankError",
    "Remap",
    "Route",
    "Solver",
    "UniformGrid",
    "VectorSolver",
    "World",
    "power_spectrum",
    "whole_field",
]
