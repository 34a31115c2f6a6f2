# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: pymatgen's structures search by particlemesh, for pymatgen's own tests of neighbours."""

import pymatgen.core.lattice
import pymatgen.core.structure
import pymatgen.optimization.neighbors

from particlemesh.adapters.pymatgen import find_points_in_spheres, get_neighbor_list

pymatgen.optimization.neighbors.find_points_in_spheres = find_points_in_spheres
pymatgen.core.structure.IStructure.get_neighbor_list = get_neighbor_list
if hasattr(pymatgen.core.lattice, "find_points_in_spheres"):
    pymatgen.core.lattice.find_points_in_spheres = find_points_in_spheres
