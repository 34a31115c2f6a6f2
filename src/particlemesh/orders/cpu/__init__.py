# SPDX-License-Identifier: BSD-3-Clause
"""The order by tiles on the CPU, and what walks over its particles."""
