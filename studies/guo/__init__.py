# SPDX-License-Identifier: BSD-3-Clause
"""Guo et al. (2015), "Efficient particle-mesh spreading on GPUs", measured again."""
