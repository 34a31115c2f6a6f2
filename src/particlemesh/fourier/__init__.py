# SPDX-License-Identifier: BSD-3-Clause
"""Fields in Fourier space: transforms, bands of modes, Green functions, solvers and spectra."""

from particlemesh.fourier.bands import Bands, mode_numbers
from particlemesh.fourier.correlation import Correlation, correlation_function
from particlemesh.fourier.engines import good_size
from particlemesh.fourier.hermitian import Halves
from particlemesh.fourier.prolate import ProlateGreen
from particlemesh.fourier.solver import Solver
from particlemesh.fourier.spectra import Spectrum, binned_power, power_spectrum
from particlemesh.fourier.survey import survey_spectrum
from particlemesh.fourier.transform import Transform
from particlemesh.fourier.vector_solver import VectorSolver

__all__ = [
    "Bands",
    "Correlation",
    "Halves",
    "ProlateGreen",
    "Solver",
    "Spectrum",
    "Transform",
    "VectorSolver",
    "binned_power",
    "correlation_function",
    "good_size",
    "mode_numbers",
    "power_spectrum",
    "survey_spectrum",
]
