# SPDX-License-Identifier: BSD-3-Clause
"""Claims of Guo et al. (2015), who measured a K40c, as numbers of today's files."""

from __future__ import annotations

from typing import Any

from harness.claims import Claim, Files, Row, Values, Where, against, by_case, of_option, power, ratio
from studies.guo.times import heuristic

FIVE = ("particle", "gather", "single_mesh", "group_mesh", "hybrid_mesh")  # the paper's methods
RIVALS = [{"method": name, "options": ""} for name in FIVE]
BUILT = ({"method": "single_mesh", "options": "construction=paper"}, {"method": "group_mesh", "options": ""},
         {"method": "hybrid_mesh", "options": ""})  # fmt: skip
BY = ("K", "N")
TIE = 1.05  # times that differ by less count as equal


def n(row: Row) -> int:
    """Return the number of particles of a row."""
    return int(row["N"])


def in_the_papers_way(row: Row) -> bool:
    """Return whether a structure was built as the paper does."""
    return any(all(row[name] == value for name, value in form.items()) for form in BUILT)


def fastest(method: str, column: str, where: Where | None = None, figure: str = "guo-long_totals") -> Any:
    """Return the expression of a method's time over the fastest of the paper's methods."""
    return against(figure, column, {"method": method, "options": ""}, RIVALS, BY, where=where)


def reductions(where: Where | None = None) -> Any:
    """Return the expression of the time by shuffle over that by shared memory."""
    shuffle, local = {"options": "reduction=shuffle"}, {"options": "reduction=local"}
    return ratio("guo-fig5", "apply_s", shuffle, local, BY, where=where)


def half_a_warp(files: Files) -> Values:
    """Return the time of 32 threads per row over that of 16, for rows of 16 entries and more."""
    rows = files.rows("guo-fig3", lambda r: float(r["asm"]) >= 16)
    units = [by_case((r for r in rows if f"threads_per_row={unit}" in r["options"].split()), "apply_s", BY)
             for unit in (32, 16)]  # fmt: skip
    return {at: seconds / units[1][at] for at, seconds in units[0].items() if at in units[1]}


def knee(files: Files) -> Values:
    """Return the N / K^3 at which the flat and the linear part of Gather's time meet, by K."""
    times = by_case(files.rows("guo-long_totals", method="gather"), "apply_s", BY)
    meets = {}
    for nodes in dict.fromkeys(k for k, _ in times):
        by_count = {int(count): s for (k, count), s in times.items() if k == nodes}
        first, last, cells = min(by_count), max(by_count), int(nodes) ** 3
        if first < cells / 4 and last > 4 * cells:
            meets[(nodes,)] = last * by_count[first] / by_count[last] / cells
    return meets


OVER = "time over the fastest of the five"
CLAIMS = (
    Claim("For one spread the particle method is the fastest", "long, 1 spread", OVER,
          fastest("particle", "total_1_s"), high=TIE),
    Claim("20 spreads, up to 10⁴ particles: still the particle method", "long, 20 spreads", OVER,
          fastest("particle", "total_20_s", lambda r: n(r) <= 10**4 and int(r["K"]) > 32), high=TIE),
    Claim("20 spreads, K = 32, 10⁴ to 10⁵ particles: single mesh", "long, 20 spreads", OVER,
          fastest("single_mesh", "total_20_s", lambda r: r["K"] == "32" and 10**4 <= n(r) <= 10**5), high=TIE),
    Claim("20 spreads, 10⁶ particles and more: group mesh", "long, 20 spreads", OVER,
          fastest("group_mesh", "total_20_s", lambda r: n(r) >= 10**6), high=TIE),
    Claim("Very many spreads (1000, from 10⁵ particles): hybrid mesh", "in words", OVER,
          fastest("hybrid_mesh", "total_1000_s", lambda r: n(r) >= 10**5), high=TIE),
    Claim("Spreading alone, up to 10⁴ particles: the particle method", "figure 8", OVER,
          fastest("particle", "apply_s", lambda r: n(r) <= 10**4, "guo-fig8"), high=TIE),
    Claim("Spreading alone, more particles: hybrid mesh", "figure 8", OVER,
          fastest("hybrid_mesh", "apply_s", lambda r: n(r) > 10**4, "guo-fig8"), high=TIE),
    Claim("The particle method's time grows very slightly faster than N", "figure 8",
          "exponent of N in the last decade",
          power("guo-fig8", "apply_s", "N", 9, method="particle"), 1.02, 1.25),
    Claim("Gather is flat while N is well below K³, then linear", "figure 8", "N / K³ where both parts meet", knee,
          1 / 3, 3),
    Claim("Gather takes longer than the particle method (Kepler)", "figure 7", "time over the particle method's",
          ratio("guo-fig7", "apply_s", {"method": "gather"}, {"method": "particle"}, BY), 1),
    Claim("Atomics are a small fraction of the particle method's time (Kepler)", "figure 6",
          "time over that with plain stores",
          ratio("guo-fig6", "apply_s", {"method": "particle"}, {"method": "particle, plain stores"}, BY), high=1.25),
    Claim("The heuristic finds the best compute unit", "figure 3", "time over the best unit's",
          of_option("guo-fig3", "apply_s", "threads_per_row", lambda r: str(heuristic(float(r["asm"]))), BY), high=1.1),
    Claim("32 threads per row gain nothing over 16", "figure 3", "time of 32 over that of 16, ASM 16 and more",
          half_a_warp, 0.95),
    Claim("Groups of 64 nodes are best for every ASM", "figure 4", "time over the best group's",
          of_option("guo-fig4", "apply_s", "group_size", lambda r: "64", BY), high=TIE),
    Claim("Warp shuffle is never slower than shared memory", "figure 5", "time over that with shared memory",
          reductions(), high=1.03),
    Claim("Above ASM 20 both take the same time", "figure 5", "time over that with shared memory",
          reductions(lambda r: float(r["asm"]) > 20), 1 / TIE, TIE),
    Claim("Group mesh is the fastest to build", "figure 9", "time over the fastest of the paper's three",
          against("guo-fig9", "prepare_s", BUILT[1], BUILT, BY), high=TIE),
    Claim("Hybrid mesh is generally the slowest to build", "figure 9", "time over the slowest of the paper's three",
          against("guo-fig9", "prepare_s", BUILT[2], BUILT, BY, best=max), 1 / TIE),
    Claim("Building costs O(K³) for few particles", "long", "exponent of K, N = 10³",
          power("guo-long_construction", "prepare_s", "K", 2, ("method",), N=1000, where=in_the_papers_way,
                method=("single_mesh", "group_mesh")), 2.1),
    Claim("Building costs O(N p³) for many particles", "long", "exponent of N, smallest mesh",
          power("guo-long_construction", "prepare_s", "N", 3, ("method",), K=32, where=in_the_papers_way,
                method=("single_mesh", "group_mesh")), 0.7),
)  # fmt: skip
