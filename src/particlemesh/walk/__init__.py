# SPDX-License-Identifier: BSD-3-Clause
"""The walk: a warp moves along x with a patch of the mesh in its registers. Shared by both directions."""
