# SPDX-License-Identifier: BSD-3-Clause
"""What all benchmarks share: clouds, clock, device, files and tables, claims, the command line."""
