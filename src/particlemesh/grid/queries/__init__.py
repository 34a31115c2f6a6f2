# SPDX-License-Identifier: BSD-3-Clause
"""Queries over particles by cell on CUDA and OpenCL: pairs, counts, nearest, overlaps and sums."""
