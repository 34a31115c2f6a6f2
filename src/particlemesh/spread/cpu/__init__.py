# SPDX-License-Identifier: BSD-3-Clause
"""Spreading on the processor: stored matrices."""
