# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: MDAnalysis has particlemesh's capped distances, for MDAnalysis' own tests of them."""

import MDAnalysis.lib.distances

from particlemesh.adapters.mdanalysis import capped_distance, self_capped_distance

MDAnalysis.lib.distances.capped_distance = capped_distance
MDAnalysis.lib.distances.self_capped_distance = self_capped_distance
