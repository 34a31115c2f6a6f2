# SPDX-License-Identifier: BSD-3-Clause
"""Granular matter: spheres that collide, rub and roll, by the discrete element method."""

from particlemesh.apps.dem.contact import Hertz, LinearSpring
from particlemesh.apps.dem.results import Contacts, Energy
from particlemesh.apps.dem.simulation import Simulation
from particlemesh.apps.dem.walls import Plane

__all__ = ["Contacts", "Energy", "Hertz", "LinearSpring", "Plane", "Simulation"]
