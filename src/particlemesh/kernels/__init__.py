# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of your own beside a plan: arrays of any library in and out, devices, and the kernel dialect.

A program takes the user's arrays (:func:`take`) and gives arrays of the same library back (:func:`give`). In between it
works on native arrays, with a compiled kernel (:func:`compile_kernel`) or a loop on threads
(:mod:`particlemesh.kernels.cpu`).
:mod:`particlemesh.kernels.checks` checks its other arguments. The applications of this library are such programs.
"""

from particlemesh.arrays.kinds import Kind, allocate, kind_of
from particlemesh.arrays.lattices import DeviceBoxes
from particlemesh.arrays.operands import adopt, check_apart, overlap
from particlemesh.arrays.positions import Coordinates, coordinates, indices, lattices
from particlemesh.backends import current as backend
from particlemesh.backends.base import As, Backend, CompilationError, Record, Unread, kept
from particlemesh.backends.branches import Branch, branch_of
from particlemesh.backends.tapes import Replays
from particlemesh.checks import Fixed, alone, through_forks
from particlemesh.kernels.arrays import InOrder, Operand, Output, compile_kernel, give, take, to_host
from particlemesh.sorting.scan import allocate_counts, scan

__all__ = [
    "As",
    "Backend",
    "Branch",
    "CompilationError",
    "Coordinates",
    "DeviceBoxes",
    "Fixed",
    "InOrder",
    "Kind",
    "Operand",
    "Output",
    "Record",
    "Replays",
    "Unread",
    "adopt",
    "allocate",
    "allocate_counts",
    "alone",
    "backend",
    "branch_of",
    "check_apart",
    "compile_kernel",
    "coordinates",
    "give",
    "indices",
    "kept",
    "kind_of",
    "lattices",
    "overlap",
    "scan",
    "take",
    "through_forks",
    "to_host",
]
