# SPDX-License-Identifier: BSD-3-Clause
"""Büyükkeçeci, Awile and Sbalzarini (2013), measured again: a file for each figure or table."""
