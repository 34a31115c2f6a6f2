# SPDX-License-Identifier: BSD-3-Clause
"""Uniform grids: particles by cell, several ways to build (``builders``), one way to query (``queries``)."""
