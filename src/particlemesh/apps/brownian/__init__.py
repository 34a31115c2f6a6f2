# SPDX-License-Identifier: BSD-3-Clause
"""Brownian motion with hydrodynamic interactions: mobilities of spheres in a fluid, their noise, and the dynamics."""

from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.dynamics import BrownianDynamics
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum
from particlemesh.apps.brownian.free import FreeRPY
from particlemesh.apps.brownian.rank_dynamics import DistributedBrownianDynamics
from particlemesh.apps.brownian.ranks import DistributedRPY
from particlemesh.apps.brownian.rpy import RPY

__all__ = [
    "RPY",
    "WCA",
    "BrownianDynamics",
    "DistributedBrownianDynamics",
    "DistributedRPY",
    "Drag",
    "FreeRPY",
    "HarmonicBonds",
    "Sum",
]
