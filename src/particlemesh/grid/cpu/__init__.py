# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids on the processor: particles to cells, the ways to store them, and the searches."""
