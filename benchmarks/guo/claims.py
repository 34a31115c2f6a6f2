# SPDX-License-Identifier: BSD-3-Clause
"""What Guo et al. (2015) found on a K40c, and what the CSV files of ``run.py`` say of it today.

Measures nothing. A verdict follows from the figures by the rule that its function states; nothing is typed in.

    python benchmarks/guo/claims.py [--device nvidia-h200] [--results DIR] [--docs docs/performance]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from guo.added import ADDED
from guo.times import OF_PAPER, Problem, Times, heuristic, plain, size, span
from measure import RESULTS

HOLDS, PARTLY, FAILS = "holds", "partly", "does not hold"
TIE = 1.05  # times that differ by less are alike
Answer = tuple[str, str]  # what is measured, and the verdict
Look = Callable[[Times], Answer]


def verdict(won: int, of: int) -> str:
    """Return the verdict on a claim that is true at ``won`` of ``of`` sizes: partly from half of them on."""
    return HOLDS if won == of else PARTLY if 2 * won >= of else FAILS


def graded(whole: bool, half: bool) -> str:
    """Return the verdict where one test says that a claim holds, and a weaker one that it does so in part."""
    return HOLDS if whole else PARTLY if half else FAILS


def best_of(tables: dict[Problem, dict[str, float]], name: str) -> Answer:
    """Return at how many sizes a method is the fastest of all, and where it is furthest from it."""
    behind = {at: by[name] / min(by.values()) for at, by in tables.items() if name in by}
    if not behind:
        raise LookupError(name)
    won = [at for at, ratio in behind.items() if ratio <= TIE]
    told = f"fastest at {len(won)} of {len(tables)} sizes"
    if len(behind) < len(tables):
        told += f", declined at {len(tables) - len(behind)}"
    if len(won) < len(behind):
        nodes, count = worst = max(behind, key=lambda at: behind[at])
        first = min(tables[worst], key=lambda m: tables[worst][m])
        told += f"; at most {behind[worst]:.1f} times the fastest ({first}, N = {size(count)}, K = {nodes})"
    return told, verdict(len(won), len(tables))


def total(name: str, applications: int, where: Callable[[int, int], bool]) -> Look:
    """Is a method the fastest of the paper's five, preparation included?"""

    def look(t: Times) -> Answer:
        found = {at: by for at, by in t.totals(applications, OF_PAPER).items() if where(*at)}
        return best_of(found, name)

    return look


def alone(name: str, where: Callable[[int], bool]) -> Look:
    """Is a method the fastest of the paper's five, preparation not counted?"""

    def look(t: Times) -> Answer:
        found: dict[Problem, dict[str, float]] = {}
        for method in OF_PAPER:
            for at, seconds in (column(t, "apply_s", "fig8", method) or {}).items():
                if where(at[1]):
                    found.setdefault(at, {})[method] = seconds
        return best_of(found, name)

    return look


def column(t: Times, name: str, figure: str, method: str, options: str = "") -> dict[Problem, float] | None:
    """Return a table of the file, or None."""
    try:
        return t.table(name, figure=figure, method=method, options=options)
    except LookupError:
        return None


def growth(t: Times) -> Answer:
    """Does the particle method's time grow a little faster than N? By 1.02 to 1.25 as a power, in the last decade."""
    times = {n: s for (_, n), s in t.table("apply_s", figure="fig8", method="particle").items()}
    last = max(times)
    parts = [n for n in times if n <= last / 9]
    if not parts:
        raise LookupError("a decade of sizes")
    first = max(parts)
    power = math.log(times[last] / times[first]) / math.log(last / first)
    return f"as N to the {power:.2f}, from {size(first)} to {size(last)}", graded(1.02 < power <= 1.25, power > 0.98)


def knee(t: Times) -> Answer:
    """Is Gather flat up to K^3 and linear beyond? Both lines must cross between a third of K^3 and three times it."""
    found = {}
    every = t.table("apply_s", figure="long_totals", method="gather")
    for nodes in sorted({k for k, _ in every}):
        times = {n: s for (k, n), s in every.items() if k == nodes}
        first, last = min(times), max(times)
        if last > 4 * nodes**3 and first < nodes**3 / 4:
            found[nodes] = last * times[first] / times[last] / nodes**3
    if not found:
        raise LookupError("Gather far on both sides of K^3")
    near = [k for k, at in found.items() if 1 / 3 <= at <= 3]
    told = ", ".join(f"{plain(at)} K³ (K = {nodes})" for nodes, at in found.items())
    return f"the flat and the linear part meet at {told}", verdict(len(near), len(found))


def gather_slower(t: Times) -> Answer:
    """Does Gather's application take longer than the particle method at every size?"""
    ours, theirs = (t.table("apply_s", figure="fig7", method=m) for m in ("particle", "gather"))
    ratios = {at[1]: theirs[at] / ours[at] for at in theirs if at in ours}
    told = ", ".join(f"{plain(ratios[n])} at N = {size(n)}" for n in (min(ratios), max(ratios)))
    told = f"{min(ratios.values()):.2f} to {plain(max(ratios.values()))} times the particle method's time; {told}"
    return told, verdict(sum(r > 1 for r in ratios.values()), len(ratios))


def units(t: Times) -> Answer:
    """Is the heuristic's unit within 10 % of the best one, everywhere, or at least in the median?"""
    behind, best = {}, {}
    for at, times in t.by_option("fig3", "threads_per_row").items():
        best[at] = min(times, key=lambda unit: times[unit])
        chosen = str(heuristic(t.asm("fig3", at)))
        if chosen in times:
            behind[at] = times[chosen] / times[best[at]]
    if not behind:
        raise LookupError("the heuristic's units")
    worst, middle = max(behind, key=lambda at: behind[at]), statistics.median(behind.values())
    told = (
        f"its choice takes {middle:.2f} times the best's time in the median, at most {behind[worst]:.2f} (ASM "
        f"{plain(t.asm('fig3', worst))}, K = {worst[0]}: {heuristic(t.asm('fig3', worst))} chosen, {best[worst]} best)"
    )
    return told, graded(behind[worst] <= 1.1, middle <= 1.1)


def half_a_warp(t: Times) -> Answer:
    """Do 32 threads gain less than 5 % over 16 where rows have 16 entries or more, in the mean?"""
    found = t.by_option("fig3", "threads_per_row")
    ratios = {
        at: by["32"] / by["16"] for at, by in found.items() if {"16", "32"} <= by.keys() and t.asm("fig3", at) >= 16
    }
    if not ratios:
        raise LookupError("units of 16 and 32 at ASM 16 and more")
    mean = math.exp(statistics.mean(map(math.log, ratios.values())))
    told = f"32 threads take {mean:.2f} of the time of 16 in the mean, {min(ratios.values()):.2f} at best"
    return told, graded(min(ratios.values()) >= 0.95, mean >= 0.95)


def group_size(t: Times) -> Answer:
    """Is a group of 64 within 5 % of the best, everywhere, or at least in the median?"""
    found = t.by_option("fig4", "group_size")
    behind = {at: by["64"] / min(by.values()) for at, by in found.items() if "64" in by}
    if not behind:
        raise LookupError("groups of 64")
    worst = max(behind, key=lambda at: behind[at])
    first = min(found[worst], key=lambda name: found[worst][name])
    told = (
        f"64 takes {statistics.median(behind.values()):.2f} times the best's time in the median, at most "
        f"{behind[worst]:.2f} (ASM {plain(t.asm('fig4', worst))}, {first} best)"
    )
    return told, graded(behind[worst] <= TIE, statistics.median(behind.values()) <= TIE)


def shuffle_ratios(t: Times) -> dict[Problem, float]:
    """Return the time by shuffle over that by shared memory."""
    found = t.by_option("fig5", "reduction")
    return {at: by["shuffle"] / by["local"] for at, by in found.items() if {"shuffle", "local"} <= by.keys()}


def never_worse(t: Times) -> Answer:
    """Does shuffle take at most 3 % more than shared memory at every size?"""
    ratios = shuffle_ratios(t)
    worst = max(ratios, key=lambda at: ratios[at])
    told = f"{min(ratios.values()):.2f} to {ratios[worst]:.2f} of the time by shared memory"
    return f"{told}, the most at ASM {plain(t.asm('fig5', worst))}", verdict(
        sum(r <= 1.03 for r in ratios.values()), len(ratios)
    )


def equal_above_20(t: Times) -> Answer:
    """Are the two within 5 % of each other at every size with ASM above 20?"""
    ratios = {at: r for at, r in shuffle_ratios(t).items() if t.asm("fig5", at) > 20}
    if not ratios:
        raise LookupError("both reductions at ASM above 20")
    told = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} of the time by shared memory"
    return told, verdict(sum(abs(r - 1) <= 0.05 for r in ratios.values()), len(ratios))


def atomics(t: Times) -> Answer:
    """Are atomics at most a fifth of the particle method's time, against plain stores in their place?"""
    ours = t.table("apply_s", figure="fig6", method="particle")
    told, parts = [], []
    for name in ("stores", "adds"):
        without = t.table("apply_s", figure="fig6", method=f"particle, plain {name}")
        parts.append([1 - without[at] / ours[at] for at in without if at in ours])
        ratios = [1 / (1 - part) for part in parts[-1]]
        told.append(f"{min(ratios):.2f} to {max(ratios):.2f} times the time with plain {name}")
    return f"the method takes {', '.join(told)}", verdict(sum(p <= 0.2 for p in parts[0]), len(parts[0]))


def building(t: Times) -> dict[str, dict[Problem, float]]:
    """Return the preparation of the paper's three structures, single mesh in the paper's way."""
    single = "single_mesh", "construction=paper"
    names = {"single_mesh": single, "group_mesh": ("group_mesh", ""), "hybrid_mesh": ("hybrid_mesh", "")}
    found = {name: column(t, "prepare_s", "fig9", *form) for name, form in names.items()}
    missing = [name for name, times in found.items() if times is None]
    if missing:
        raise LookupError(f"construction of {', '.join(missing)}")
    return {name: times for name, times in found.items() if times is not None}


def construction(name: str, slowest: bool) -> Look:
    """Is one of the three structures the fastest to build, or the slowest, at every size?"""

    def look(t: Times) -> Answer:
        times = building(t)
        sizes = sorted(set.intersection(*(set(by) for by in times.values())))
        pick = max if slowest else min
        slack = TIE if not slowest else 1 / TIE
        won = 0
        for at in sizes:
            ratio = times[name][at] / pick(by[at] for by in times.values())
            won += ratio >= slack if slowest else ratio <= slack
        told = ", ".join(f"{span(by[sizes[-1]])} {label}" for label, by in times.items())
        sorting = column(t, "prepare_s", "fig9", "single_mesh")
        if sorting and sizes[-1] in sorting:
            told += f"; {span(sorting[sizes[-1]])} single_mesh by sorting"
        word = "slowest" if slowest else "fastest"
        return f"{word} at {won} of {len(sizes)} sizes; N = {size(sizes[-1][1])}: {told}", verdict(won, len(sizes))

    return look


def crossover(t: Times) -> Answer:
    """Does construction grow as K^3 for the fewest particles, and as N for the most? By powers of 0.7 and more."""
    told, passed, tests = [], 0, 0
    for name, options in (("single_mesh", "construction=paper"), ("group_mesh", "")):
        times = t.table("prepare_s", figure="long_construction", method=name, options=options)
        meshes, sizes = sorted({k for k, _ in times}), sorted({n for _, n in times})
        few = [k for k in meshes if (k, sizes[0]) in times]
        many = [n for n in sizes if (meshes[0], n) in times]
        if len(few) < 2 or len(many) < 2:
            raise LookupError("two meshes and two sizes")
        by_mesh = math.log(times[few[-1], sizes[0]] / times[few[-2], sizes[0]]) / (3 * math.log(few[-1] / few[-2]))
        by_size = math.log(times[meshes[0], many[-1]] / times[meshes[0], many[-2]]) / math.log(many[-1] / many[-2])
        doubled = [n for n in sizes if times.get((meshes[-1], n), 0) > 2 * times[meshes[-1], sizes[0]]]
        turn = f", twice the least time from N = {size(doubled[0])} in {meshes[-1]}³" if doubled else ""
        told.append(f"{name}: as K³ to the {by_mesh:.2f}, then as N to the {by_size:.2f}{turn}")
        passed, tests = passed + (by_mesh >= 0.7) + (by_size >= 0.7), tests + 2
    return "; ".join(told), verdict(passed, tests)


CLAIMS: tuple[tuple[str, str, Look], ...] = (
    ("For one spread the particle method is the fastest", "long, 1 spread", total("particle", 1, lambda k, n: True)),
    ("20 spreads, few particles: still the particle method", "long, 20 spreads",
     total("particle", 20, lambda k, n: n <= 10**4 and k > 32)),
    ("20 spreads, K = 32, 10⁴ to 10⁵ particles: single mesh", "long, 20 spreads",
     total("single_mesh", 20, lambda k, n: k == 32 and 10**4 <= n <= 10**5)),
    ("20 spreads, many particles: group mesh", "long, 20 spreads",
     total("group_mesh", 20, lambda k, n: n >= 10**6)),
    ("Very many spreads: hybrid mesh (here 1000, from 10⁵ particles on)", "in words",
     total("hybrid_mesh", 1000, lambda k, n: n >= 10**5)),
    ("Spreading alone, few particles: the particle method", "figure 8", alone("particle", lambda n: n <= 10**4)),
    ("Spreading alone, otherwise: hybrid mesh", "figure 8", alone("hybrid_mesh", lambda n: n > 10**4)),
    ("The particle method's time grows very slightly faster than N", "figure 8", growth),
    ("Gather is flat while N is well below K³, then linear", "figure 8", knee),
    ("Gather takes longer than the particle method (Kepler)", "figure 7", gather_slower),
    ("Atomics are a small fraction of the particle method's time (Kepler)", "figure 6", atomics),
    ("The heuristic finds the best compute unit", "figure 3", units),
    ("32 threads a row gain nothing over 16", "figure 3", half_a_warp),
    ("Groups of 64 nodes are best for every ASM", "figure 4", group_size),
    ("Warp shuffle is never worse than shared memory", "figure 5", never_worse),
    ("Above ASM 20 the two are alike", "figure 5", equal_above_20),
    ("Group mesh is the fastest to build", "figure 9", construction("group_mesh", slowest=False)),
    ("Hybrid mesh is generally the slowest to build", "figure 9", construction("hybrid_mesh", slowest=True)),
    ("Building costs O(K³) for few particles, O(N p³) for many", "long", crossover),
)  # fmt: skip


def answers(times: Times) -> list[tuple[str, str, str, str]]:
    """Return claim, where it is in the paper, what is measured today and a verdict, for every claim."""
    found = []
    for text, where, look in CLAIMS:
        try:
            here, judged = look(times)
        except (LookupError, ValueError) as error:
            here, judged = f"not measured: {error}".replace("'", ""), ""
        found.append((text, where, here, judged))
    return found


def additions(times: Times) -> list[tuple[str, str]]:
    """Return question and answer of what the paper does not have."""
    found = []
    for question, look in ADDED:
        try:
            found.append((question, look(times)))
        except (LookupError, ValueError) as error:
            found.append((question, f"not measured: {error}".replace("'", "")))
    return found


def restructured(head: tuple[str, ...], widths: str, rows: list[tuple[str, ...]], device: str) -> str:
    """Return a table for the documentation's pages."""
    lines = [f".. Written by benchmarks/guo/claims.py from benchmarks/results/guo-*-{device}.csv.", "",
             ".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]  # fmt: skip
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print both tables, and write them for the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="nvidia-h200", help="as in the names of the CSV files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="write guo_claims.inc and guo_added.inc into this folder")
    asked = parser.parse_args()
    times = Times.read(asked.results, asked.device)
    judged, added = answers(times), additions(times)
    for head, rows in ((("claim", "paper", "here", "so it"), judged), (("added", "here"), added)):
        table = Table(*head, title=asked.device, width=110, show_lines=True)
        for row in rows:
            table.add_row(*row)
        Console(width=110).print(table)
    if asked.docs:
        first = restructured(("in the paper", "where", "here", "so it"), "30 12 43 15", judged, asked.device)
        (asked.docs / "guo_claims.inc").write_text(first, encoding="utf-8")
        second = restructured(("added", "here"), "35 65", added, asked.device)
        (asked.docs / "guo_added.inc").write_text(second, encoding="utf-8")


if __name__ == "__main__":
    main()
