# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids: particles by cell, six ways to build, one way to query."""

from particlemesh.grid.fixed import Fixed
from particlemesh.grid.linked_list_loose import LinkedListLoose
from particlemesh.grid.linked_list_packed import LinkedListPacked
from particlemesh.grid.linked_list_tight import LinkedListTight
from particlemesh.grid.method import Builder
from particlemesh.grid.scan import Scan
from particlemesh.grid.sort import Sort

METHODS: tuple[type[Builder], ...] = (Fixed, Scan, Sort, LinkedListLoose, LinkedListTight, LinkedListPacked)
