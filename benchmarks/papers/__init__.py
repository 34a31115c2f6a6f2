# SPDX-License-Identifier: BSD-3-Clause
"""Measurements of published papers, repeated, and their claims re-tested."""
