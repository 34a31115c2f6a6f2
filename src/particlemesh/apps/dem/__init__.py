# SPDX-License-Identifier: BSD-3-Clause
"""Granular matter: spheres that collide, found by uniform grids."""

from particlemesh.apps.dem.column import Column
from particlemesh.apps.dem.green import Green

__all__ = ["Column", "Green"]
