# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids: builds and neighbour lists, on every backend and beside peers."""
