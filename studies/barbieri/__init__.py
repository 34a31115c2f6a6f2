# SPDX-License-Identifier: BSD-3-Clause
"""Barbieri et al. (2013): a column of spheres that falls, on every grid and in fused kernels, and its claims."""
