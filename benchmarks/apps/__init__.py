# SPDX-License-Identifier: BSD-3-Clause
"""Steps of applications: the whole beside its stages and beside the same program by hand."""
