# SPDX-License-Identifier: BSD-3-Clause
"""Electrostatics of periodic systems by particle-mesh Ewald."""

from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result

__all__ = ["PME", "Result"]
