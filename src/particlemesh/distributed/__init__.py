# SPDX-License-Identifier: BSD-3-Clause
"""One mesh over many processes and GPUs: communicators, decompositions, plans."""

from particlemesh.distributed.domain import Domain, Part
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.routes import Route
from particlemesh.distributed.world import RankError, World

__all__ = ["Domain", "Part", "Plan", "RankError", "Route", "World"]
