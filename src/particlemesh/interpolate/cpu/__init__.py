# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation on the processor: stored weights."""
