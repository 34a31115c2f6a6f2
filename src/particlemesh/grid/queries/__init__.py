# SPDX-License-Identifier: BSD-3-Clause
"""What is asked of particles by cell, on CUDA and OpenCL: pairs, counts, nearest, overlaps and sums."""
