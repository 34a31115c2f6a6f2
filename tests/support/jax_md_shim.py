# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: JAX MD's `partition.neighbor_list` is particlemesh's, for JAX MD's own tests of it."""

from jax_md import partition

from particlemesh.adapters.jax_md import neighbor_list

partition.neighbor_list = neighbor_list
