# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the weights of the nodes around a particle, as tables of polynomials."""

from particlemesh.window.fitting import fitted as fitted
from particlemesh.window.shape_function import MAX_DEGREE as MAX_DEGREE
from particlemesh.window.shape_function import MAX_SUPPORT as MAX_SUPPORT
from particlemesh.window.spheroidal import spheroidal as spheroidal
from particlemesh.window.window import DEFAULT as DEFAULT
from particlemesh.window.window import WINDOWS as WINDOWS
from particlemesh.window.window import Window as Window
from particlemesh.window.window import bspline as bspline
from particlemesh.window.window import kaiser_bessel as kaiser_bessel
from particlemesh.window.window import m4prime as m4prime
from particlemesh.window.window import peskin4 as peskin4
from particlemesh.window.window import prolate as prolate
from particlemesh.window.window import window_of as window_of
