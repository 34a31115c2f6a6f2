# SPDX-License-Identifier: BSD-3-Clause
"""A pair function that many tests share: a sum over pairs takes seconds to compile for the CPU, once for its text."""

import particlemesh as pm


def add_value(r2, d, i, j, a, b, p, sum):
    sum[0] += b[0]


VALUES = pm.PairFunction("sum[0] += b[0];", add_value, results=1, values=1)
