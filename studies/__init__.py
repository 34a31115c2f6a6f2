# SPDX-License-Identifier: BSD-3-Clause
"""Published papers, measured again: what only their figures need lies here, outside the package."""
