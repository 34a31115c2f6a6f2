# SPDX-License-Identifier: BSD-3-Clause
"""Queries over particles by cell on the CPU: candidates are compared a vector at a time."""
