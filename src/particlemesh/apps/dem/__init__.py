# SPDX-License-Identifier: BSD-3-Clause
"""Granular matter: spheres that collide, rub and roll, by the discrete element method."""

from particlemesh.apps.dem.contact import Hertz, LinearSpring
from particlemesh.apps.dem.overlaps import relaxed_positions
from particlemesh.apps.dem.ranks import DistributedSimulation
from particlemesh.apps.dem.results import Contacts, Energy, WallForces
from particlemesh.apps.dem.simulation import Simulation
from particlemesh.apps.dem.walls import Cone, Cylinder, Disc, Plane, Rectangle

__all__ = [
    "Cone",
    "Contacts",
    "Cylinder",
    "Disc",
    "DistributedSimulation",
    "Energy",
    "Hertz",
    "LinearSpring",
    "Plane",
    "Rectangle",
    "Simulation",
    "WallForces",
    "relaxed_positions",
]
