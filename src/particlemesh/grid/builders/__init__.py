# SPDX-License-Identifier: BSD-3-Clause
"""How particles get into cells: one file for each builder, its kernel beside it, its name in ``METHODS``."""

from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.fixed import FixedSlots
from particlemesh.grid.builders.linked_list_loose import LinkedListLoose
from particlemesh.grid.builders.linked_list_packed import LinkedListPacked
from particlemesh.grid.builders.linked_list_tight import LinkedListTight
from particlemesh.grid.builders.scan import Scan
from particlemesh.grid.builders.sort import Sort

METHODS: tuple[type[Builder], ...] = (FixedSlots, Scan, Sort, LinkedListLoose, LinkedListTight, LinkedListPacked)
