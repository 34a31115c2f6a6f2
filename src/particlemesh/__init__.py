# SPDX-License-Identifier: BSD-3-Clause
"""Move values between particles and a regular mesh, and find which particles are near each other, on GPUs and CPUs."""

from particlemesh.backends import starting as _starting  # noqa: F401 - first: what follows may be interrupted
from particlemesh.box import Box
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import register
from particlemesh.functions import gradient, hessian, interpolate, locate, spread
from particlemesh.grid.forms import neighbour_matrix
from particlemesh.grid.neighbour_list import neighbor_list, neighbour_list
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.results import Pairs
from particlemesh.grid.skin import SkinList
from particlemesh.grid.uniform_grid import UniformGrid
from particlemesh.mesh import Mesh
from particlemesh.particles.located import Status
from particlemesh.plan import Plan
from particlemesh.window import Window, bspline, fitted, kaiser_bessel, m4prime, peskin4, prolate, window_of

__version__ = "0.2.0"

__all__ = [
    "Box",
    "Mesh",
    "MethodNotSuitable",
    "PairFunction",
    "Pairs",
    "Plan",
    "SkinList",
    "Status",
    "UniformGrid",
    "Window",
    "bspline",
    "fitted",
    "gradient",
    "hessian",
    "interpolate",
    "kaiser_bessel",
    "locate",
    "m4prime",
    "neighbor_list",
    "neighbour_list",
    "neighbour_matrix",
    "peskin4",
    "prolate",
    "register",
    "spread",
    "window_of",
]
