# SPDX-License-Identifier: BSD-3-Clause
"""The storages of a grid, made from the cell of each particle; negative cells are left out.

Every result is the same for any number of threads: each thread takes a range of particles, and what the ranges
found is joined in their order. The method ``scan`` is `particlemesh.sorting.cpu.counting_sort`.
"""

from particlemesh.grid.cpu.lists import Lists, PackedLists, linked_list, linked_list_packed, order_of_lists
from particlemesh.grid.cpu.slots import FixedCells, fixed, order_of_slots
from particlemesh.grid.cpu.sorting import SortedCells, sort
from particlemesh.grid.cpu.tight import linked_list_tight
from particlemesh.sorting.cpu import counting_sort

__all__ = [
    "FixedCells",
    "Lists",
    "PackedLists",
    "SortedCells",
    "counting_sort",
    "fixed",
    "linked_list",
    "linked_list_packed",
    "linked_list_tight",
    "order_of_lists",
    "order_of_slots",
    "sort",
]
