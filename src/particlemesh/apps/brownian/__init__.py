# SPDX-License-Identifier: BSD-3-Clause
"""Brownian dynamics of spheres in a fluid."""

from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.dynamics import BrownianDynamics
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum

__all__ = ["WCA", "BrownianDynamics", "Drag", "HarmonicBonds", "Sum"]
