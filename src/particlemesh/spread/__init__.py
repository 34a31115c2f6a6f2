# SPDX-License-Identifier: BSD-3-Clause
"""Spreading methods: ``METHODS`` is the list that everything else reads."""

from particlemesh.spread.colouring import Colouring
from particlemesh.spread.fixed_point import FixedPoint
from particlemesh.spread.particle import Particle

METHODS = (Particle, FixedPoint, Colouring)
