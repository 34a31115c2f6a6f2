# SPDX-License-Identifier: BSD-3-Clause
"""The measurements of Büyükkeçeci et al.: errors fall as they must, and the rest runs and is judged by numbers."""

import functools
import itertools
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from buyukkececi import claims, fig11_convergence, fig12_14_times, fig13_breakdown, tables
from buyukkececi.cases import ORDERS, THEIR_WIDTH, Case
from buyukkececi.claims import Results
from particlemesh import backends
from place import Place

NODES = {2: (32, 48, 64), 3: (32, 40, 48)}
RESOLVED = {"cic": THEIR_WIDTH, "m4prime": 1 / 8}  # widths whose errors are neither rounding nor coarse


@functools.cache
def errors(window, ndim, dtype, width):
    rows = []
    for nodes in NODES[ndim]:
        rows += fig11_convergence.measure([Place("cpu")], Case("spread", ndim, window, dtype, nodes), width)
    return fig11_convergence.finish(rows)


@pytest.mark.parametrize(
    ("window", "ndim", "dtype"),
    [*((w, d, "float64") for w in ORDERS for d in (2, 3)), ("cic", 2, "float32")],
)
def test_errors_fall_with_the_order_of_the_window(window, ndim, dtype):
    width = RESOLVED[window] if dtype == "float64" else 1 / 8
    rows = errors(window, ndim, dtype, width)
    for what in ("interpolate", "remesh"):
        row = next(r for r in rows if r["what"] == what)
        assert row["slope_l2"] == pytest.approx(ORDERS[window], abs=0.2)
        assert row["slope_linf"] == pytest.approx(ORDERS[window], abs=0.2)


@pytest.mark.parametrize(("window", "ndim"), list(itertools.product(ORDERS, (2, 3))))
def test_moments_are_conserved_and_the_cloud_is_noise(window, ndim):
    rows = errors(window, ndim, "float64", THEIR_WIDTH)
    moments = [r for r in rows if r["what"] == "moments"]
    for row in moments:
        if row["degree"] < ORDERS[window]:
            assert row["linf"] < 1e-14
        else:
            assert row["linf"] == pytest.approx(row["expected"], rel=1e-3, abs=1e-14)
    assert all(r["linf"] > 1e-9 for r in moments if r["degree"] == ORDERS[window])
    noise = [r for r in rows if r["what"] == "scatter"]
    assert all(r["l2"] == pytest.approx(r["expected"], rel=0.1) for r in noise)
    assert abs(noise[0]["slope_l2"]) < 0.2


def test_operations_of_a_particle():
    counted = {(w, d): tables.operations(w, d) for w in ORDERS for d in (2, 3)}
    assert counted == {("cic", 2): 18, ("cic", 3): 34, ("m4prime", 2): 84, ("m4prime", 3): 220}
    assert "220" in tables.__doc__


def few_methods(place):
    """Return the place with their method and the simplest only: compiling takes long."""
    every = place.methods
    place.methods = lambda direction: [m for m in every(direction) if m.name in ("particle", "domain_copies")]
    return place


@pytest.mark.opencl
@pytest.mark.parametrize("direction", ["spread", "interpolate"])
def test_times_and_breakdown_have_their_columns(direction):
    places = [Place("cpu")]
    if backends.module("opencl").available() is None:
        places.append(few_methods(Place("opencl")))
    case = Case(direction, 2, "cic", "float32", 16)
    times = list(fig12_14_times.measure(places, case, {}, small=True))
    assert {r["threads"] for r in times if r["backend"] == "cpu"} >= {1, places[0].threads}
    breakdown = [r for place in places for r in fig13_breakdown.measure(place, case)]
    for rows, columns in ((times, fig12_14_times.COLUMNS), (breakdown, fig13_breakdown.COLUMNS)):
        for row in rows:
            assert list(row)[: len(columns)] == list(columns)
            assert {"device", "commit", "seed"} <= row.keys()
    table = tables.rows(times, breakdown)
    assert {r["method"] for r in table} == {r["method"] for r in times}
    assert all(r["gflops"] > 0 for r in table)
    assert len(tables.printed(table)) == len(places) - 1
    if len(places) > 1:
        stages = {r["stage"] for r in breakdown if r["method"] == "domain_copies"}
        assert {"transfer", "ordering", "kernel", "stitch, collect"} <= stages
        assert {r["stage"] for r in breakdown if r["method"] == "particle"} >= {"transfer", "kernel"}
        for method in ("particle", "domain_copies"):
            assert sum(r["share"] for r in breakdown if r["method"] == method) == pytest.approx(1, abs=1e-3)


def test_a_place_compares_its_results_with_the_first():
    case = Case("spread", 2, "cic", "float32", 16)
    rows = list(fig11_convergence.measure([Place("cpu"), Place("cpu")], case, THEIR_WIDTH, methods=True))
    assert all(r["difference"] < 1e-5 for r in rows)
    assert {"spread by method", "interpolate by method"} <= {r["what"] for r in rows}


# ---- verdicts ---------------------------------------------------------------------------------------------


def table_rows(**numbers):
    """Return a row of the tables for every case; a number may depend on direction, axes, window and type."""
    rows = []
    for direction, ndim, window, dtype in itertools.product(
        ("spread", "interpolate"), (2, 3), ORDERS, ("float32", "float64")
    ):
        case = (direction, ndim, window, dtype)
        row = dict(direction=direction, ndim=ndim, window=window, dtype=dtype, nodes=64, N=64**ndim, backend="cuda")
        for method in ("domain_copies", "particle"):
            known = {k: v(method, *case) if callable(v) else v for k, v in numbers.items()}
            rows.append({k: str(v) for k, v in {**row, "method": method, **known}.items()})
    return rows


def verdict(text, **files):
    (claim,) = [c for c in claims.CLAIMS if c.text.startswith(text)]
    return claim.look(Results(**files))[1]


@pytest.mark.parametrize(
    ("text", "column", "holds", "fails"),
    [
        ("Interpolation is faster", "kernel_s", lambda m, d, *_: 2 if d == "spread" else 1, 1),
        ("... whatever", "total_s", lambda m, d, *_: 2 if d == "spread" else 1, 1),
        ("Efficiency rises", "of_peak", lambda m, d, n, w, t: n + 4 * (w == "m4prime"), 0.1),
        ("Linear kernels in 3-D", "of_bandwidth", 0.7, 0.2),
        ("M→P, M'4 in 3-D: 13 times", "speedup", 14, 0.5),
        ("... 5 times", "speedup_transfer", 6, 0.5),
        ("With transfers GPUs lose", "speedup_transfer", 0.5, 2),
        ("Double precision", "total_s", lambda m, d, n, w, t: int(t[5:]), 1),
        ("Atomics harm", "total_s", lambda m, *_: 1 if m == "domain_copies" else 2, 1),
    ],
)
def test_claims_about_tables_have_both_verdicts(text, column, holds, fails):
    assert verdict(text, tables=table_rows(**{column: holds})) == "holds"
    assert verdict(text, tables=table_rows(**{column: fails})) == "does not hold"


def test_claims_about_peaks_know_dummies():
    low = dict(of_peak=0.1, of_peak_with_dummies=0.2)
    for text in ("P→M, M'4 in 3-D, reaches", "M→P, M'4 in 3-D, reaches"):
        assert verdict(text, tables=table_rows(of_peak=0.7, of_peak_with_dummies=0.9)) == "holds"
        assert verdict(text, tables=table_rows(of_peak=0.2, of_peak_with_dummies=0.7)) == "with dummies"
        assert verdict(text, tables=table_rows(**low)) == "does not hold"
    most = table_rows(speedup=lambda m, d, n, w, t: n + 4 * (w == "m4prime") + 2 * (d == "interpolate"))
    assert verdict("That case", tables=most) == "holds"
    assert verdict("That case", tables=table_rows(speedup=1)) == "elsewhere"


def test_claims_about_stages_and_sizes():
    for text, case, stage in (
        ("M→P, M'4 in 3-D: the kernel", ("interpolate", 3, "m4prime", "float32"), "kernel"),
        ("P→M, linear, 2-D, double: transfers", ("spread", 2, "cic", "float64"), "transfer"),
    ):
        row = dict(zip(("direction", "ndim", "window", "dtype"), map(str, case), strict=True), method="domain_copies")
        paper = 0.14 if stage == "kernel" else 0.80
        for share, said in ((paper, "holds"), (0.01, "less")):
            assert verdict(text, breakdown=[dict(row, stage=stage, share=str(share))]) == said
    rows = []
    for direction, ndim, window, count in itertools.product(("spread", "interpolate"), (2, 3), ORDERS, (100, 1000)):
        row = dict(direction=direction, ndim=ndim, window=window, dtype="float32", order="nodes", N=count)
        rows.append(dict(row, backend="cpu", method="tiles", threads=8, total_s=count))
        rows.append(dict(row, backend="cuda", method="domain_copies", threads="", total_s=10))
    text = [{k: str(v) for k, v in row.items()} for row in rows]
    assert verdict("The speedup grows", times=text) == "holds"
    slow = [dict(r, total_s="1" if r["backend"] == "cpu" else r["N"]) for r in text]
    assert verdict("The speedup grows", times=slow) == "does not hold"
    for factor, said in ((1.0, "holds"), (3.0, "costs something")):
        ways = [
            dict(r, order=o, nodes="32", total_s=str(f)) for r in text for o, f in (("nodes", 1), ("shuffled", factor))
        ]
        assert verdict("The particles' order", times=ways) == said


def test_claims_about_errors():
    def row(**known):
        blank = dict.fromkeys(fig11_convergence.COLUMNS, "")
        base = dict(what="interpolate", ndim=2, window="cic", dtype="float64", width=15.0, nodes=32, backend="cpu")
        return {k: str(v) for k, v in {**blank, **base, **known}.items()}

    for slope, said in ((2.1, "holds"), (1.0, "does not hold")):
        rows = [row(what=w, slope_l2=slope, slope_linf=slope) for w in ("interpolate", "remesh")]
        rows += [row(what=w, window="m4prime", slope_l2=slope + 1, slope_linf=slope + 1)
                 for w in ("interpolate", "remesh")]  # fmt: skip
        assert verdict("Linear converges", convergence=rows) == said
    for off, said in ((1e-15, "holds, to rounding"), (1e-5, "does not hold")):
        rows = [row(l2=0.01, difference=0), row(l2=0.01, difference=off, backend="cuda")]
        assert verdict("Errors are identical", convergence=rows) == said
    for error, said in ((0.6, "does not hold"), (0.01, "holds")):
        assert verdict("In both directions", convergence=[row(what="scatter", l2=error)]) == said
    for error, said in ((1e-6, "holds"), (1e-9, "lower")):
        one = row(window="m4prime", dtype="float32", l2=error)
        assert verdict("Single precision", convergence=[one]) == said
    for kept, said in ((1e-16, "holds"), (1e-3, "does not hold")):
        rows = [row(what="moments", window=w, degree=d, linf=1e-2 if d == n else kept)
                for w, n in ORDERS.items() for d in range(4)]  # fmt: skip
        assert verdict("Moments", convergence=rows) == said


def test_what_was_not_measured_is_said_and_not_judged(tmp_path):
    rows = claims.answers(Results.of("no-such-device", tmp_path))
    assert len(rows) == len(claims.CLAIMS)
    assert all(here.startswith("not in the files") and said == "" for *_, here, said in rows)
