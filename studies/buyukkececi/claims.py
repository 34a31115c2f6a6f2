# SPDX-License-Identifier: BSD-3-Clause
"""Claims of Büyükkeçeci, Awile and Sbalzarini (2013), who measured a Tesla C2050, as numbers of today's files.

Their method is ``domain_copies``. A claim about GPUs rather than about the method counts the fastest method. Sizes are
those of their tables, unless said otherwise.
"""

from __future__ import annotations

import itertools
from typing import Any

from harness.claims import Claim, Files, Look, Row, Values, against, ratio, value
from harness.tables import number
from studies.buyukkececi.cases import DIRECTIONS, DTYPES, ORDERS
from studies.buyukkececi.convergence import rounding

FILE = "buyukkececi-{}"
TIMES, TABLES, ERRORS, STAGES = map(FILE.format, ("times", "tables", "convergence", "breakdown"))
GPU = ("cuda", "opencl")
THEIRS = {"method": "domain_copies", "backend": GPU}
KIND = ("ndim", "window")
BEST = {"direction": "interpolate", "window": "m4prime", "ndim": 3, "dtype": "float32"}  # the paper's best case


def table(column: str, by: tuple[str, ...] = (), **selection: Any) -> Look:
    """Return the expression of a column of the tables, of their method."""
    return value(TABLES, column, by, **THEIRS, **selection)


def versus(column: str, name: str, top: Any, bottom: Any, by: tuple[str, ...], **selection: Any) -> Look:
    """Return the expression of a column's number with ``name=top`` over that with ``name=bottom``, in the tables."""
    return ratio(TABLES, column, {name: top}, {name: bottom}, by, **selection)


def slope_error(row: Row) -> float:
    """Return the larger distance of a slope from the window's order, in both norms."""
    return max(abs(number(row, f"slope_{norm}") - ORDERS[row["window"]]) for norm in ("l2", "linf"))


def fitted(row: Row) -> bool:
    """Return whether a slope was fitted to a row's series."""
    return bool(row["slope_l2"])


def difference(row: Row) -> float:
    """Return the difference from the CPU's result in roundings."""
    return number(row, "difference") / rounding(row)


def growth(files: Files) -> Values:
    """Return the speedup at the largest size over that at the smallest, by case."""
    by, single = ("direction", *KIND), lambda r: r["threads"] != "1"
    gains: dict[tuple[str, ...], dict[int, float]] = {}
    asked = {"dtype": "float32", "order": "nodes"}
    speedups = ratio(TIMES, "total_s", {"backend": "cpu"}, THEIRS, (*by, "N"), where=single, **asked)(files)
    for (*case, count), speedup in speedups.items():
        gains.setdefault(tuple(case), {})[int(count)] = speedup
    return {case: s[max(s)] / s[min(s)] for case, s in gains.items() if len(s) > 1}


def kept(window: str) -> Look:
    """Return the expression of the error of moments below the window's order."""
    return value(ERRORS, "linf", ("ndim", "degree"), best=max, what="moments", window=window, dtype="float64",
                 degree=tuple(range(ORDERS[window])))  # fmt: skip


EACH = ("ndim", "window", "dtype")
KINDS = itertools.product(DIRECTIONS, (2, 3), ORDERS, DTYPES)
ALL = [dict(zip(("direction", *EACH), kind, strict=True)) for kind in KINDS]
PEAK = "share of the peak, theirs"
CLAIMS = (
    Claim("Linear converges with order 2, M'4 with 3: interpolation", "figure 11", "slope's distance from the order",
          value(ERRORS, slope_error, KIND, best=max, what="interpolate", dtype="float64", where=fitted),
          high=0.3),
    Claim("Linear converges with order 2, M'4 with 3: spreading of a lattice", "figure 11",
          "slope's distance from the order",
          value(ERRORS, slope_error, KIND, best=max, what="remesh", dtype="float64", where=fitted), high=0.3),
    Claim("... and spreading of the cloud", "in words", "error at the finest mesh",
          value(ERRORS, "l2", KIND, what="scatter", dtype="float64"), high=0.1),
    Claim("Linear conserves moments up to the first", "in words", "relative error", kept("cic"), high=1e-13),
    Claim("M'4 conserves moments up to the second", "in words", "relative error", kept("m4prime"), high=1e-13),
    Claim("Single precision does not converge below 1e-6", "figure 11", "least error, M'4, their function",
          value(ERRORS, "l2", ("ndim",), what="interpolate", window="m4prime", dtype="float32", width=15.0), 5e-7),
    Claim("Errors are identical on CPU and GPU", "figure 11", "difference of results, in roundings",
          value(ERRORS, difference, ("dtype",), best=max, backend=GPU, where=lambda r: r["what"] != "profile"),
          high=100),
    Claim("Interpolation is faster than spreading", "figures 12, 14", "spreading kernel's time over interpolation's",
          versus("kernel_s", "direction", "spread", "interpolate", EACH, **THEIRS), 1),
    Claim("... also for the fastest methods", "", "spreading's time over interpolation's, preparation included",
          versus("total_s", "direction", "spread", "interpolate", KIND, dtype="float32", backend=GPU), 1),
    Claim("Efficiency rises with the order", "table 2", f"{PEAK}, M'4 over linear",
          versus("of_peak", "window", "m4prime", "cic", ("direction", "ndim"), dtype="float32", **THEIRS), 1),
    Claim("Efficiency rises with the dimension", "table 2", f"{PEAK}, 3-D over 2-D",
          versus("of_peak", "ndim", 3, 2, ("direction", "window"), dtype="float32", **THEIRS), 1),
    Claim("P→M, M'4 in 3-D, reaches 42 % of peak", "42.0 %", PEAK,
          table("of_peak", **{**BEST, "direction": "spread"}), 0.9 * 0.42, unit="%"),
    Claim("M→P, M'4 in 3-D, reaches 63 % of peak", "62.9 %", PEAK, table("of_peak", **BEST), 0.9 * 0.629, unit="%"),
    Claim("... counting dummy particles", "", PEAK, table("of_peak_with_dummies", **BEST), 0.9 * 0.629, unit="%"),
    Claim("Linear kernels in 3-D sustain 70 % of bandwidth", "70 %", "least bytes, share of the bandwidth, theirs",
          table("of_bandwidth", ("direction",), window="cic", ndim=3, dtype="float32"), 0.6, unit="%"),
    Claim("M→P, M'4 in 3-D: 13 times the threaded CPU", "13.0", "speedup", table("speedup", **BEST), 13.0),
    Claim("... 5 times with transfers", "5.1", "speedup", table("speedup_transfer", **BEST), 5.1),
    Claim("That case has the largest speedup", "table 2", "its speedup over the largest",
          against(TABLES, "speedup", BEST, ALL, best=max, **THEIRS), 1),
    Claim("With transfers GPUs lose for linear windows", "0.3 to 0.6", "largest speedup of all methods",
          value(TABLES, "speedup_transfer", ("direction", "ndim", "dtype"), best=max, window="cic", backend=GPU),
          high=1),
    Claim("The speedup grows with the problem", "figures 12, 14", "at the largest size over that at the smallest",
          growth, 1),
    Claim("The particles' order does not matter", "in words", "time shuffled over that in order, theirs",
          ratio(TIMES, "total_s", {"order": "shuffled"}, {"order": "nodes"}, ("direction", *EACH, "nodes"), **THEIRS),
          high=1.25),
    Claim("Double precision takes twice as long", "in words", "time in double over that in single precision",
          versus("total_s", "dtype", "float64", "float32", ("direction", *KIND), **THEIRS), 1.6, 2.5),
    Claim("M→P, M'4 in 3-D: the kernel is 14 % of the time", "14 %", "share",
          value(STAGES, "share", stage="kernel", **THEIRS, **BEST), 0.07, 0.21, unit="%"),
    Claim("P→M, linear, 2-D, double: transfers are 80 %", "80 %", "share",
          value(STAGES, "share", stage="transfer", direction="spread", ndim=2, window="cic", dtype="float64", **THEIRS),
          0.4, 1.0, unit="%"),
    Claim("Atomics harm: avoiding them pays", "in words", "time without atomics over that of ``particle``",
          ratio(TABLES, "total_s", {"method": "domain_copies"}, {"method": "particle"}, EACH, direction="spread",
                backend=GPU), high=1),
    Claim("CUDA instead of OpenCL would gain a bit", "in words", "OpenCL's time over CUDA's, all methods",
          ratio(FILE.format("opencl-times"), "total_s", {"backend": "opencl"}, {"backend": "cuda"},
                ("direction", *EACH, "nodes", "order", "method"), bottom_file=TIMES,
                where=lambda r: r["nodes"] in ("2048", "128") and (r["ndim"], r["nodes"]) != ("2", "128")),
          1.0, 1.25),
)  # fmt: skip
