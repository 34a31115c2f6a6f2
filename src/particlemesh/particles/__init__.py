# SPDX-License-Identifier: BSD-3-Clause
"""Positions to stencils: the first node and the fraction of every particle, per configuration."""
