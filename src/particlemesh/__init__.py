# SPDX-License-Identifier: BSD-3-Clause
"""Move values between particles and a regular mesh, and find which particles are near each other, on GPUs and CPUs."""

from particlemesh.box import Box as Box
from particlemesh.choosing.candidates import MethodNotSuitable as MethodNotSuitable
from particlemesh.functions import gradient as gradient
from particlemesh.functions import interpolate as interpolate
from particlemesh.functions import spread as spread
from particlemesh.grid.neighbour_list import neighbor_list as neighbor_list
from particlemesh.grid.neighbour_list import neighbour_list as neighbour_list
from particlemesh.grid.pair_function import PairFunction as PairFunction
from particlemesh.grid.results import Pairs as Pairs
from particlemesh.grid.uniform_grid import UniformGrid as UniformGrid
from particlemesh.mesh import Mesh as Mesh
from particlemesh.particles.located import Status as Status
from particlemesh.plan import Plan as Plan
from particlemesh.window import Window as Window
from particlemesh.window import bspline as bspline
from particlemesh.window import fitted as fitted
from particlemesh.window import m4prime as m4prime

__version__ = "0.1.0"
