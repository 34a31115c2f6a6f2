# SPDX-License-Identifier: BSD-3-Clause
"""Write tests/covering.csv: rows in which every pair of values of any two factors occurs.

Greedy, after Cohen et al.'s AETG: each row starts from a pair that is still missing and takes, factor by factor,
the value that completes most missing pairs. No randomness, so the same factors give the same rows. Run it after
adding a method: ``python tools/covering.py``.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from pathlib import Path

from particlemesh.interpolate import METHODS as INTERPOLATE_METHODS
from particlemesh.spread import METHODS as SPREAD_METHODS

FILE = Path(__file__).parents[1] / "tests" / "covering.csv"
FACTORS: dict[str, list[str]] = {
    "method": [f"spread-{m.name}" for m in SPREAD_METHODS] + [f"interpolate-{m.name}" for m in INTERPOLATE_METHODS],
    "window": [*(f"bspline{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 16)), "m4prime", "peskin4", "kaiser_bessel6"],
    "precision": ["float32", "float64", "mixed"],
    "kind": ["real", "complex"],
    "dimension": ["1", "2", "3"],
    "boundary": ["periodic", "open-cells", "open-faces", "mixed", "ghosts", "triclinic", "triclinic-mixed"],
    "size": ["odd", "prime", "even", "one", "below-support", "anisotropic"],
    "batch": ["none", "1", "2", "3", "5", "2x3"],
    "layout": ["planar", "interleaved", "strided", "reversed"],
    "count": ["0", "1", "2", "31", "32", "33"],
}

Pair = tuple[int, str, int, str]


def pairs_of(row: list[str | None]) -> set[Pair]:
    """Return the pairs of values that stand in a row, whose unknown values are None."""
    known = [(f, value) for f, value in enumerate(row) if value is not None]
    return {(f, a, g, b) for (f, a), (g, b) in itertools.combinations(known, 2)}


def all_pairs(factors: dict[str, list[str]]) -> set[Pair]:
    """Return every pair of values of two different factors."""
    lists = list(factors.values())
    return {
        (f, a, g, b)
        for f, g in itertools.combinations(range(len(lists)), 2)
        for a, b in itertools.product(lists[f], lists[g])
    }


def covering(factors: dict[str, list[str]] = FACTORS) -> list[list[str]]:
    """Return rows that hold every pair."""
    lists = list(factors.values())
    order = sorted(range(len(lists)), key=lambda f: -len(lists[f]))
    missing = all_pairs(factors)
    used: Counter[tuple[int, str]] = Counter()
    rows = []
    while missing:
        left = Counter(value for f, a, g, b in missing for value in ((f, a), (g, b)))
        f, a, g, b = max(sorted(missing), key=lambda p: left[p[:2]] + left[p[2:]])
        row: list[str | None] = [None] * len(lists)
        row[f], row[g] = a, b
        for h in order:
            if row[h] is None:

                def gain(value: str, h: int = h, row: list[str | None] = row) -> tuple[int, int]:
                    trial = [value if k == h else x for k, x in enumerate(row)]
                    return len(pairs_of(trial) & missing), -used[h, value]

                row[h] = max(lists[h], key=gain)
        missing -= pairs_of(row)
        used.update(enumerate(x for x in row if x is not None))
        rows.append([x for x in row if x is not None])
    return rows


def text(rows: list[list[str]]) -> str:
    """Return the file's content."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([list(FACTORS), *rows])
    return stream.getvalue()


if __name__ == "__main__":
    FILE.write_text(text(covering()))
