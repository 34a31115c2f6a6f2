# SPDX-License-Identifier: BSD-3-Clause
"""Measurements that the paper does not have: all methods of today, other clouds and values, cuSPARSE, ``auto``."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator

from harness.tables import number, size, span
from studies.guo.times import Times

HEAD, WIDTHS = ("question", "measured"), (35, 65)
APPLICATIONS = (1, 20, 100, 1000)


def fastest(t: Times, applications: int, figure: str) -> str:
    """Return which methods are the fastest, preparation included, and at how many sizes."""
    won = Counter(min(by, key=lambda m: by[m]) for by in t.totals(applications, figure).values())
    return ", ".join(f"{name} at {count}" for name, count in won.most_common()) + f" of {won.total()} sizes"


def automatic(t: Times, figure: str) -> str:
    """Return the automatic choice's time over the fastest method's."""
    ratios: dict[tuple[int, int, int], float] = {}
    for applications in APPLICATIONS:
        for (nodes, count), by in t.totals(applications, figure).items():
            for row in t.pick(figure=figure, options="", K=nodes, N=count):
                if str(applications) in row["auto"].split() and row["method"] in by:
                    ratios[nodes, count, applications] = by[row["method"]] / min(by.values())
    if not ratios:
        raise LookupError("the automatic choice")
    nodes, count, applications = worst = max(ratios, key=lambda at: ratios[at])
    near, middle = sum(ratio <= 1.1 for ratio in ratios.values()), statistics.median(ratios.values())
    return (
        f"within 10 % of the fastest at {near} of {len(ratios)}; {middle:.2f} times its time in the median, at most "
        f"{ratios[worst]:.1f} ({applications} spreads, N = {size(count)}, K = {nodes})"
    )


def products(t: Times) -> str:
    """Return the time of one product of the matrix, and of its construction, by method."""
    parts = []
    for row in t.pick(figure="cusparse"):
        apply, prepare = number(row, "apply_s"), number(row, "prepare_s")
        name = " ".join(filter(None, (row["method"], row["options"])))
        if row["note"]:
            parts.append(f"{name}: {row['note']}")
        elif not math.isnan(apply):
            parts.append(f"{name} {span(apply)}" + ("" if math.isnan(prepare) else f" (built in {span(prepare)})"))
    if not parts:
        raise LookupError("cuSPARSE")
    return "; ".join(parts)


def of_kind(t: Times, **kind: str) -> str:
    """Return the fastest methods of a kind of problem for 1 and for 100 spreads, with their times."""
    rows = [r for r in t.pick(figure="added_clouds", **kind) if not math.isnan(number(r, "apply_s"))]
    if not rows:
        raise LookupError(", ".join(kind.values()))
    largest, parts = max(rows, key=lambda r: int(r["N"]))["N"], []
    for n in (1, 100):
        totals = {r["method"]: number(r, "prepare_s") + n * number(r, "apply_s") for r in rows if r["N"] == largest}
        first = min(totals, key=lambda m: totals[m])
        plain = f", particle {span(totals['particle'])}" if first != "particle" and "particle" in totals else ""
        parts.append(f"{n}: {first} {span(totals[first])}{plain}")
    return "; ".join(parts)


PLAIN = {"cloud": "uniform", "dtype": "float32", "values": "real"}
KINDS: dict[str, dict[str, str]] = {
    "the paper's kind": {**PLAIN, "p": "6"}, "clustered": {"cloud": "clustered"}, "lattice": {"cloud": "lattice"},
    "float64": {**PLAIN, "dtype": "float64"}, "complex": {**PLAIN, "values": "complex"},
    "complex, float64": {"values": "complex", "dtype": "float64"}, "3 values per particle": {**PLAIN, "values": "3"},
    "8 values per particle": {**PLAIN, "values": "8"}, "p = 4": {**PLAIN, "p": "4"},
}  # fmt: skip


def answers(times: Times) -> list[tuple[str, str]]:
    """Return the rows of the table; a question without rows is not measured."""
    return list(_answers(times))


def _answers(t: Times) -> Iterator[tuple[str, str]]:
    looks: list[tuple[str, Callable[[], str]]] = []
    for figure, p in (("long_totals", 6), ("long_totals_p4", 4)):
        looks += [
            (f"Fastest method, {n} spread{'s' * (n > 1)}, p = {p}", lambda f=figure, n=n: fastest(t, n, f))
            for n in APPLICATIONS
        ]
        looks.append((f"The automatic choice, p = {p}", lambda f=figure: automatic(t, f)))
    looks.append(("One product of the matrix, float32, N = 10⁶, K = 128, p = 6", lambda: products(t)))
    for name, kind in KINDS.items():
        looks.append((f"Fastest for 1 and for 100 spreads, N = 10⁶, K = 128: {name}", lambda k=kind: of_kind(t, **k)))
    for question, look in looks:
        try:
            yield question, look()
        except LookupError as error:
            yield question, f"not measured: {error}".replace("'", "")
