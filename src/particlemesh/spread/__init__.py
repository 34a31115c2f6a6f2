# SPDX-License-Identifier: BSD-3-Clause
"""Spreading methods: ``METHODS`` is the list that everything else reads."""

from particlemesh.spread.colouring import Colouring
from particlemesh.spread.domain_copies import DomainCopies
from particlemesh.spread.fixed_point import FixedPoint
from particlemesh.spread.gather import Gather
from particlemesh.spread.gather_list import GatherList
from particlemesh.spread.group_mesh import GroupMesh
from particlemesh.spread.hybrid_mesh import HybridMesh
from particlemesh.spread.line_mesh import LineMesh
from particlemesh.spread.ordered import Ordered
from particlemesh.spread.owner import Owner
from particlemesh.spread.particle import Particle
from particlemesh.spread.single_mesh import SingleMesh
from particlemesh.spread.walk import Walk
from particlemesh.spread.walk_fixed import WalkFixed

METHODS = (
    Particle,
    Ordered,
    FixedPoint,
    Gather,
    GatherList,
    SingleMesh,
    GroupMesh,
    HybridMesh,
    LineMesh,
    DomainCopies,
    Walk,
    WalkFixed,
    Owner,
    Colouring,
)
