# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of spreading and interpolation by values, fields, positions and box: import ``.torch`` or ``.jax``."""
