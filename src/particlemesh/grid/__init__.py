# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids: particles by cell, six ways to build, one way to query."""
