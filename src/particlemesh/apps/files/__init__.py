# SPDX-License-Identifier: BSD-3-Clause
"""Files: particles and fields in the formats of other programs; checkpoints and trajectories of applications."""

from particlemesh.apps.files.fields import Field, check_field, read_field, write_field
from particlemesh.apps.files.particles import Configuration, open_particles, read_particles
from particlemesh.apps.files.particles.selection import Chunk, Particles

__all__ = [
    "Chunk", "Configuration", "Field", "Particles", "check_field", "open_particles", "read_field", "read_particles",
    "write_field",
]  # fmt: skip
