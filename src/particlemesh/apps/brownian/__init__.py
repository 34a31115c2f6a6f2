# SPDX-License-Identifier: BSD-3-Clause
"""Brownian motion with hydrodynamic interactions: the periodic Rotne-Prager-Yamakawa mobility and its noise."""

from particlemesh.apps.brownian.rpy import RPY

__all__ = ["RPY"]
