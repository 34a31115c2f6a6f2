# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `vesin.metatomic` has particlemesh's lists, for vesin's own tests of them."""

import vesin.metatomic as theirs
from vesin.metatomic import _model

from particlemesh.adapters import metatomic as ours

theirs.NeighborList = _model.NeighborList = ours.NeighborList
theirs.neighbor_lists_for_model = _model.neighbor_lists_for_model = ours.neighbor_lists_for_model
