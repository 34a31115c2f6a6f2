# SPDX-License-Identifier: BSD-3-Clause
"""From a user's array to a kernel and back.

``kinds`` adapts NumPy, CuPy, PyOpenCL, torch and JAX, any other library by DLPack, and columns of pandas. ``operands``
makes inputs and outputs of values and fields: their shapes, the strides of their reals, the memory they share.
``positions`` makes kernel arguments of positions, systems and boxes.
"""
