# SPDX-License-Identifier: BSD-3-Clause
"""What all methods stand on: their contract, launches of kernels, shared bases."""

from particlemesh.methods.contract import Method, Option, Problem

__all__ = ["Method", "Option", "Problem"]
