# SPDX-License-Identifier: BSD-3-Clause
"""Files that applications share: checkpoints in HDF5, trajectories in the formats of other programs."""
