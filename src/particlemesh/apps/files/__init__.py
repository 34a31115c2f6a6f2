# SPDX-License-Identifier: BSD-3-Clause
"""Particles, fields and tables in the formats of other programs; checkpoints and trajectories of applications."""

from particlemesh.apps.files.accumulate import (
    Account,
    interpolate_particles,
    particles_spectrum,
    spread_particles,
)  # fmt: skip
from particlemesh.apps.files.bonds import check_pairs as check_pairs
from particlemesh.apps.files.bonds import write_bonds
from particlemesh.apps.files.fields import Field, check_field, read_field, write_field
from particlemesh.apps.files.libraries import endings as endings
from particlemesh.apps.files.libraries import plain as plain
from particlemesh.apps.files.pairs import particles_pairs
from particlemesh.apps.files.particles import Chunk, Configuration, Particles, open_particles, read_particles
from particlemesh.apps.files.parts import read_field_parts, write_field_parts
from particlemesh.apps.files.replacing import check_free as check_free
from particlemesh.apps.files.replacing import replacing as replacing
from particlemesh.apps.files.tables import Table, check_table, writing_table

__all__ = [
    "Account", "Chunk", "Configuration", "Field", "Particles", "Table", "check_field", "check_table",
    "interpolate_particles", "open_particles", "particles_pairs", "particles_spectrum", "read_field",
    "read_field_parts", "read_particles", "spread_particles", "write_bonds", "write_field", "write_field_parts",
    "writing_table",
]  # fmt: skip
