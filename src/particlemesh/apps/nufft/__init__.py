# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform fast Fourier transforms of types 1, 2 and 3, with FINUFFT's interface.

Replace ``import finufft`` by ``import particlemesh.apps.nufft as finufft``, or cufinufft likewise.
"""

from particlemesh.apps.nufft.plan import Plan
from particlemesh.apps.nufft.ranks import DistributedPlan
from particlemesh.apps.nufft.shapes import ArgumentError
from particlemesh.apps.nufft.simple import transform as _transform

nufft1d1, nufft1d2, nufft1d3 = (_transform(1, n) for n in (1, 2, 3))
nufft2d1, nufft2d2, nufft2d3 = (_transform(2, n) for n in (1, 2, 3))
nufft3d1, nufft3d2, nufft3d3 = (_transform(3, n) for n in (1, 2, 3))

__all__ = [
    "ArgumentError",
    "DistributedPlan",
    "Plan",
    "nufft1d1",
    "nufft1d2",
    "nufft1d3",
    "nufft2d1",
    "nufft2d2",
    "nufft2d3",
    "nufft3d1",
    "nufft3d2",
    "nufft3d3",
]
