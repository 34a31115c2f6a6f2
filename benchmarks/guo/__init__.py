# SPDX-License-Identifier: BSD-3-Clause
"""What Guo et al. (2015), "Efficient particle-mesh spreading on GPUs", measured, measured again by ``run.py``."""
