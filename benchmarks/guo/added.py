# SPDX-License-Identifier: BSD-3-Clause
"""What the paper does not have: all methods of today, other clouds and values, cuSPARSE, the automatic choice."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable

from guo.times import Times, heuristic, number, size, span


def fastest(applications: int, figure: str = "long_totals") -> Callable[[Times], str]:
    """Which method is the fastest of all, preparation included, at how many sizes?"""

    def look(t: Times) -> str:
        won = Counter(min(by, key=lambda m: by[m]) for by in t.totals(applications, figure=figure).values())
        return ", ".join(f"{name} at {count}" for name, count in won.most_common()) + f" of {won.total()} sizes"

    return look


def automatic(figure: str) -> Callable[[Times], str]:
    """How far is the automatic choice from the best?"""

    def look(t: Times) -> str:
        behind: dict[tuple[int, int, int], float] = {}
        for applications in (1, 20, 100, 1000):
            for (nodes, count), by in t.totals(applications, figure=figure).items():
                for row in t.pick(figure=figure, options="", K=nodes, N=count):
                    if str(applications) in row["auto"].split() and row["method"] in by:
                        behind[nodes, count, applications] = by[row["method"]] / min(by.values())
        if not behind:
            raise LookupError("what the automatic choice takes")
        nodes, count, applications = worst = max(behind, key=lambda at: behind[at])
        near = sum(ratio <= 1.1 for ratio in behind.values())
        middle = statistics.median(behind.values())
        return (
            f"within 10 % of the fastest at {near} of {len(behind)}; {middle:.2f} times its time in the median, at "
            f"most {behind[worst]:.1f} ({applications} spreads, N = {size(count)}, K = {nodes})"
        )

    return look


def beside_cusparse(t: Times) -> str:
    """How long does one product take, and the construction?"""
    parts = []
    for row in t.pick(figure="cusparse"):
        apply, prepare = number(row, "apply_s"), number(row, "prepare_s")
        name = " ".join(filter(None, (row["method"], row["options"])))
        if row["note"]:
            parts.append(f"{name}: {row['note']}")
        elif not math.isnan(apply):
            built = "" if math.isnan(prepare) else f" (built in {span(prepare)})"
            parts.append(f"{name} {span(apply)}{built}")
    if not parts:
        raise LookupError("cuSPARSE")
    return "; ".join(parts)


def kinds(**wanted: str) -> Callable[[Times], str]:
    """Which methods are the fastest for 1 and for 100 spreads of another kind, and how long do they take?"""

    def look(t: Times) -> str:
        found = [r for r in t.pick(figure="added_clouds", **wanted) if not math.isnan(number(r, "apply_s"))]
        if not found:
            raise LookupError(", ".join(wanted.values()))
        largest = max(int(r["N"]) for r in found)
        found = [r for r in found if int(r["N"]) == largest]
        parts = []
        for n in (1, 100):
            totals = {r["method"]: number(r, "prepare_s") + n * number(r, "apply_s") for r in found}
            first = min(totals, key=lambda m: totals[m])
            plain = f", particle {span(totals['particle'])}" if first != "particle" and "particle" in totals else ""
            parts.append(f"{n}: {first} {span(totals[first])}{plain}")
        return "; ".join(parts)

    return look


def by_asm(figure: str, option: str, chosen: Callable[[float], int]) -> Callable[[Times], str]:
    """Which value of an option is the best for rows of which length, and how far from it is the paper's choice?"""

    def look(t: Times) -> str:
        edges, parts = (0.0, 1.0, 4.0, 16.0, 64.0, 1024.0, math.inf), []
        found = t.by_option(figure, option)
        for low, high in itertools.pairwise(edges):
            near = [(t.asm(figure, at), by) for at, by in found.items() if low <= t.asm(figure, at) < high]
            values = set.intersection(*(set(by) for _, by in near)) if near else set()
            if not values:
                continue
            # The value whose times are the shortest in the geometric mean of all problems of this kind.
            means = {v: math.exp(statistics.mean(math.log(by[v] / min(by.values())) for _, by in near)) for v in values}
            best = min(means, key=lambda v: (means[v], int(v)))
            behind = [by[str(chosen(asm))] / by[best] for asm, by in near if str(chosen(asm)) in by]
            paper = f" ({statistics.median(behind):.2f} with the paper's)" if behind else ""
            span_of = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} and more"
            parts.append(f"ASM {span_of}: {best}{paper}")
        return "; ".join(parts)

    return look


PLAIN = {"cloud": "uniform", "dtype": "float32", "values": "real"}
ADDED: tuple[tuple[str, Callable[[Times], str]], ...] = (
    ("Fastest of all methods for 1 spread", fastest(1)),
    ("for 20", fastest(20)),
    ("for 100", fastest(100)),
    ("for 1000", fastest(1000)),
    ("with p = 4, for 1 spread", fastest(1, "long_totals_p4")),
    ("for 20", fastest(20, "long_totals_p4")),
    ("for 1000", fastest(1000, "long_totals_p4")),
    ("The automatic choice, with p = 6, to which its costs were fitted", automatic("long_totals")),
    ("and with p = 4", automatic("long_totals_p4")),
    ("Best threads of a row of single mesh", by_asm("fig3", "threads_per_row", heuristic)),
    ("Best nodes of a group of group mesh", by_asm("fig4", "group_size", lambda asm: 64)),
    ("One product of the matrix, float32, N = 10⁶, K = 128, p = 6", beside_cusparse),
    ("Fastest for 1 and for 100 spreads, N = 10⁶, K = 128: the paper's kind", kinds(**PLAIN, p="6")),
    ("clustered", kinds(cloud="clustered")),
    ("lattice", kinds(cloud="lattice")),
    ("float64", kinds(**{**PLAIN, "dtype": "float64"})),
    ("complex", kinds(**{**PLAIN, "values": "complex"})),
    ("complex, float64", kinds(values="complex", dtype="float64")),
    ("3 values a particle", kinds(**{**PLAIN, "values": "3"})),
    ("8 values a particle", kinds(**{**PLAIN, "values": "8"})),
    ("p = 4", kinds(**PLAIN, p="4")),
)
