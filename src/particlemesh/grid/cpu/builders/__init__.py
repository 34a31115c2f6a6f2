# SPDX-License-Identifier: BSD-3-Clause
"""The storages of a grid, made from the cell of each particle; negative cells are left out.

Results do not depend on the number of threads: each thread takes a range of particles, and the ranges are joined in
their order.
"""
