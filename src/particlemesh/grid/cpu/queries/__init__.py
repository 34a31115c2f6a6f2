# SPDX-License-Identifier: BSD-3-Clause
"""What is asked of particles by cell, on the CPU: a vector of candidates is compared at a time."""
