# SPDX-License-Identifier: BSD-3-Clause
"""From positions to stencils: the first node and the fraction of each particle."""
