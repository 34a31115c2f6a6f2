# SPDX-License-Identifier: BSD-3-Clause
"""Electrostatics of periodic systems by particle-mesh Ewald."""

from particlemesh.apps.pme.batch import PMEBatch
from particlemesh.apps.pme.dipoles import DipoleResult
from particlemesh.apps.pme.dispersion import Dispersion
from particlemesh.apps.pme.equilibration import ChargeEquilibration, EquilibrationResult
from particlemesh.apps.pme.induced import InducedDipoles, InducedResult
from particlemesh.apps.pme.multipoles import MultipoleResult
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.ranks import DistributedPME
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.slab import slab_correction

__all__ = [
    "PME",
    "ChargeEquilibration",
    "DipoleResult",
    "Dispersion",
    "DistributedPME",
    "EquilibrationResult",
    "InducedDipoles",
    "InducedResult",
    "MultipoleResult",
    "PMEBatch",
    "Result",
    "slab_correction",
]
