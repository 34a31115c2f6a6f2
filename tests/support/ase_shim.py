# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `ase.neighborlist` has particlemesh's functions and classes, for ASE's own tests of them."""

import ase.neighborlist

from particlemesh.adapters import ase as ours

for name in ours.__all__:
    if hasattr(ase.neighborlist, name):
        setattr(ase.neighborlist, name, getattr(ours, name))
ase.neighborlist.get_connectivity_matrix = ours.NeighborList.get_connectivity_matrix
