# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `matscipy.neighbours` has particlemesh's list, for matscipy's own tests of it."""

import matscipy.neighbours

from particlemesh.adapters.matscipy import neighbour_list

matscipy.neighbours.neighbour_list = neighbour_list
