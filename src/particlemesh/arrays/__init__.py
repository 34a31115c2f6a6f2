# SPDX-License-Identifier: BSD-3-Clause
"""From a user's array to a kernel and back, one way.

``kinds`` adapts NumPy, CuPy, PyOpenCL and torch; ``views`` says where an array's reals lie; ``memory`` compares the
memory of two arrays. ``operands`` (values, fields) and ``positions`` stand on these three. The folder imports backends
and the words of errors (``checks``), nothing else of the package.
"""
