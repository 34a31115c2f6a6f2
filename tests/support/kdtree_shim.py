# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `KDTree` and `cKDTree` of SciPy are particlemesh's, for SciPy's own tests of them."""

import scipy.spatial

from particlemesh.adapters.scipy import KDTree


class cKDTree(KDTree):  # noqa: N801 - SciPy's name; its tests tell the two apart by name
    pass


scipy.spatial.KDTree, scipy.spatial.cKDTree = KDTree, cKDTree
