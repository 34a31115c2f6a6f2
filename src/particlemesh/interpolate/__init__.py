# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation methods: ``METHODS`` is the list that everything else reads."""

from particlemesh.interpolate.direct import Direct
from particlemesh.interpolate.domain_copies import DomainCopies
from particlemesh.interpolate.octets import Octets
from particlemesh.interpolate.ordered import Ordered
from particlemesh.interpolate.particle import Particle
from particlemesh.interpolate.ring import Ring
from particlemesh.interpolate.stored import Stored
from particlemesh.interpolate.tile import Tile
from particlemesh.interpolate.tiles import Tiles
from particlemesh.interpolate.walk import Walk

METHODS = (Particle, Ordered, Direct, DomainCopies, Stored, Walk, Tile, Ring, Octets, Tiles)
