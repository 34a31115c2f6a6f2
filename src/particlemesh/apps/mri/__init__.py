# SPDX-License-Identifier: BSD-3-Clause
"""Magnetic resonance imaging: a backend of mri-nufft, off-resonance, and weights for the density of samples.

Importing this module registers the backend: ``mrinufft.get_operator("particlemesh")``. Without mri-nufft there are
`density` and `OffResonance`.
"""

from importlib import import_module as _import
from importlib.util import find_spec as _find_spec
from typing import Any as _Any

from particlemesh.apps.mri.density import density
from particlemesh.apps.mri.off_resonance import OffResonance

__all__ = ["OffResonance", "density"]

if _find_spec("mrinufft") is not None:
    _import("mrinufft")  # first: it may load the operator itself, as one of its backends

    from particlemesh.apps.mri.operator import MRIParticlemesh

    __all__ += ["MRIParticlemesh"]


def __getattr__(name: str) -> _Any:
    if name == "MRIParticlemesh":
        raise ImportError("particlemesh.apps.mri.MRIParticlemesh needs mri-nufft: pip install mri-nufft.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
