# SPDX-License-Identifier: BSD-3-Clause
"""From a user's array to a kernel and back.

``kinds`` adapts NumPy, CuPy, PyOpenCL, torch and JAX. ``exchange`` adapts any other library by DLPack, and columns of
pandas. ``views`` describes the memory layout of an array's reals. ``memory`` compares the memory of two arrays.
``operands`` (values, fields) and ``positions`` use these four.
"""
