# SPDX-License-Identifier: BSD-3-Clause
"""Rows in which every pair of values of any two factors occurs; made when tests are collected, so never out of date.

Greedy, after Cohen et al.'s AETG: each row starts from a pair that is still missing and takes, factor by factor, the
value that completes most missing pairs. No randomness, so the same factors give the same rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np


def covering(factors: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return rows, a value for each factor, that hold every pair of values of two different factors."""
    lists = list(factors.values())
    ends = np.cumsum([len(values) for values in lists])
    ranges = [np.arange(end - len(values), end) for values, end in zip(lists, ends, strict=True)]
    factor = np.repeat(np.arange(len(lists)), [len(values) for values in lists])  # of each value, all in one list
    order = sorted(range(len(lists)), key=lambda f: -len(lists[f]))
    missing = factor[:, None] != factor  # both (v, w) and (w, v)
    used = np.zeros(len(factor), int)
    rows = []
    while missing.any():
        left = missing.sum(axis=1)
        pair = np.where(missing, left[:, None] + left, 0)
        first, second = np.unravel_index(pair.argmax(), pair.shape)
        row = {int(factor[first]): int(first), int(factor[second]): int(second)}
        for f in order:
            if f not in row:
                gains = missing[ranges[f]][:, list(row.values())].sum(axis=1)
                best = max(range(len(gains)), key=lambda n, f=f, gains=gains: (gains[n], -used[ranges[f][n]]))
                row[f] = int(ranges[f][best])
        chosen = np.array([row[f] for f in range(len(lists))])
        missing[np.ix_(chosen, chosen)] = False
        used[chosen] += 1
        rows.append(tuple(lists[f][v - ranges[f][0]] for f, v in enumerate(chosen)))
    return rows
