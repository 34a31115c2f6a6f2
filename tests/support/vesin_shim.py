# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `vesin` has particlemesh's lists, for vesin's own tests of them."""

import vesin

from particlemesh.adapters import vesin as ours

vesin.NeighborList, vesin.ase_neighbor_list = ours.NeighborList, ours.ase_neighbor_list
