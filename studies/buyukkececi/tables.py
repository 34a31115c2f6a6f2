# SPDX-License-Identifier: BSD-3-Clause
"""Tables 2 and 3: speedup over the threaded CPU, with and without transfers; operations per second.

A row for every case of theirs and every method on the device, from the rows of ``times`` and ``breakdown``. Speedups
are those of whole calls from particles in any order: the time of the CPU's fastest method with all its threads, over
that of the method. Rates are those of the kernel alone.

Operations per particle: "only counting floating-point multiply and add operations" of the kernels. The paper does not
give their number, nor does it say whether dummy particles count. Here a particle counts once and a dummy never:

- Weights, once per axis. Each of P nodes has a polynomial of degree D by Horner's scheme: 2 D operations.
  ``2 d P D``: linear (P = 2, D = 1) 4 per axis, M'4 (P = 4, D = 3) 24 per axis.
- Sums. Spreading multiplies the value by the P weights of the first axis, each product by those of the next, and adds
  the last ``P^d`` products to the nodes: ``sum_{k=1}^{d} P^k`` multiplications, ``P^d`` additions. Interpolation is the
  transpose and has one addition less, which is not subtracted.

===========  ====  =======  ====  =====
window       d     weights  sums  total
===========  ====  =======  ====  =====
linear       2     8        10    18
linear       3     12       22    34
M'4          2     48       36    84
M'4          3     72       148   220
===========  ====  =======  ====  =====

Methods that store weights count as if their kernels computed them. Our kernels do more: lanes that share a particle
each compute weights. So do theirs, which compute weights anew along axes that change.

Least bytes per particle: d node numbers (4 bytes) and d fractions, one value, and of the
mesh, which has a node per particle, one real that is read (interpolation) or read and written (spreading).
"""

from __future__ import annotations

from typing import Any

from core.device import Ceilings
from harness.inside import window_of
from harness.tables import short
from studies.buyukkececi.cases import DIRECTIONS, TABLE_NODES, WINDOWS

# Tables 2 (C2050) and 3 (HD 6970), single and double precision: speedup without and with transfers; GFLOP/s and its
# fraction of peak, single precision only.
PAPER: dict[tuple[str, str, int], tuple[Any, ...]] = {
    ("spread", "cic", 2): ((3.0, 0.6, 1.8, 0.3, 124.2, 0.121), (0.7, 0.3, 0.5, 0.2, 95.9, 0.035)),
    ("spread", "cic", 3): ((2.3, 0.6, 1.8, 0.4, 112.6, 0.109), (0.5, 0.3, 0.5, 0.2, 83.8, 0.031)),
    ("spread", "m4prime", 2): ((4.3, 1.7, 2.9, 0.6, 180.8, 0.176), (1.7, 0.8, 1.3, 0.5, 154.1, 0.057)),
    ("spread", "m4prime", 3): ((4.8, 1.7, 3.1, 1.0, 432.6, 0.420), (2.1, 1.1, 1.5, 0.8, 184.2, 0.068)),
    ("interpolate", "cic", 2): ((1.8, 0.4, 1.8, 0.3, 64.3, 0.062), (0.4, 0.2, 0.4, 0.2, 57.0, 0.021)),
    ("interpolate", "cic", 3): ((1.9, 0.6, 1.5, 0.4, 199.9, 0.194), (0.4, 0.2, 0.4, 0.2, 242.8, 0.090)),
    ("interpolate", "m4prime", 2): ((4.8, 1.3, 3.6, 0.8, 273.1, 0.265), (2.0, 0.8, 1.6, 0.7, 414.5, 0.153)),
    ("interpolate", "m4prime", 3): ((13.0, 5.1, 8.5, 2.8, 648.1, 0.629), (5.7, 2.8, 3.9, 1.8, 889.0, 0.329)),
}
CASE = ("direction", "ndim", "window", "dtype", "nodes", "N")


def operations(window: str, ndim: int) -> int:
    """Return the multiplications and additions of a particle."""
    shape = window_of(window)
    p, weights = shape.support, 2 * ndim * shape.support * shape.degree
    return weights + p**ndim + sum(p**k for k in range(1, ndim + 1))


def least_bytes(direction: str, ndim: int, dtype: str) -> int:
    """Return the least bytes that a kernel moves per particle, on a mesh with a node per particle."""
    real = 4 if dtype == "float32" else 8
    return ndim * (4 + real) + real + (2 if direction == "spread" else 1) * real


def peaks(device: str) -> dict[str, float]:
    """Return the peaks of a device without tensor cores, NaN if unknown."""
    known = Ceilings.of([], device)
    return {"float32": known.fma_f32, "float64": known.fma_f64, "bytes": known.memory}


def rows(times: list[dict[str, Any]], breakdown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables' rows, for the largest problems that are not larger than the paper's."""
    kernels = {_key(r): r for r in breakdown if r["stage"] == "kernel"}
    nodes = {d: max((int(r["nodes"]) for r in times if int(r["ndim"]) == d and int(r["nodes"]) <= most), default=0)
             for d, most in TABLE_NODES.items()}  # fmt: skip
    largest = [r for r in times if int(r["nodes"]) == nodes[int(r["ndim"])] and r["order"] == "nodes"]
    table = []
    for row in largest:
        case = [row[name] for name in CASE]
        here = [r for r in largest if r["backend"] == "cpu" and [r[name] for name in CASE] == case]
        threaded = [float(r["total_s"]) for r in here if str(r["threads"]) != "1"]
        single = [float(r["total_s"]) for r in here if str(r["threads"]) == "1"]
        if (row["backend"] == "cpu" and str(row["threads"]) == "1") or not threaded:
            continue
        kernel = kernels.get(_key(row))
        seconds = float(kernel["seconds"] if kernel else 0) or float(row["apply_s"])  # 0: too short for the clock
        total, sent = float(row["total_s"]), float(row["transfer_s"] or 0)
        count, window, ndim, dtype = int(row["N"]), row["window"], int(row["ndim"]), row["dtype"]
        rate = operations(window, ndim) * count / seconds
        bandwidth = least_bytes(row["direction"], ndim, dtype) * count / seconds
        peak = peaks(row["device"])
        slots = float(kernel["slots"] or 1) if kernel else 1.0
        tesla, cayman = PAPER[row["direction"], window, ndim]
        first = 0 if dtype == "float32" else 2
        rates = tesla[4:] if first == 0 else (tesla[4] / 2, tesla[5])  # "half of those", "efficiencies remain the same"
        table.append({
            **{name: row[name] for name in CASE}, "method": row["method"], "auto": row["auto"],
            "cpu_s": short(min(threaded)), "total_s": total, "transfer_s": sent, "kernel_s": short(seconds),
            "speedup": short(min(threaded) / total), "speedup_transfer": short(min(threaded) / (total + sent)),
            "speedup_one_thread": short(min(single) / (total + sent)) if single else "",
            "operations": operations(window, ndim), "gflops": short(rate / 1e9), "of_peak": short(rate / peak[dtype]),
            "slots": slots, "of_peak_with_dummies": short(slots * rate / peak[dtype]),
            "bytes": least_bytes(row["direction"], ndim, dtype), "of_bandwidth": short(bandwidth / peak["bytes"]),
            "c2050_speedup": tesla[first], "c2050_speedup_transfer": tesla[first + 1], "c2050_gflops": rates[0],
            "c2050_of_peak": rates[1], "hd6970_speedup": cayman[first], "hd6970_speedup_transfer": cayman[first + 1],
            **{name: row[name] for name in row if name in ("device", "backend", "commit", "seed")},
        })  # fmt: skip
    return table


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in (*CASE, "order", "method", "backend"))


HEAD = ("case", "C2050", "domain_copies", "fastest", "GFLOP/s, of peak", "of bandwidth")
WIDTHS = (22, 14, 14, 22, 16, 12)


def printed(table: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the tables for people, a line per case: speedups without / with transfers, and rates."""

    def speedups(row: dict[str, Any], prefix: str = "") -> str:
        pair = (row[f"{prefix}speedup"], row[f"{prefix}speedup_transfer"])
        return " / ".join(f"{float(x):.2g}" if float(x) < 10 else f"{float(x):.0f}" for x in pair)

    lines: list[tuple[str, ...]] = []
    on_device = [r for r in table if r["backend"] != "cpu"]
    for case in dict.fromkeys(tuple(str(r[name]) for name in CASE) for r in on_device):
        rows = [r for r in on_device if tuple(str(r[name]) for name in CASE) == case]
        direction, ndim, window, dtype, *_ = case
        best = max(rows, key=lambda r: float(r["speedup"]))
        theirs = next((r for r in rows if r["method"] == "domain_copies"), None)
        rate = f"{float(theirs['gflops']):.0f} ({float(theirs['of_peak']):.1%})" if theirs else ""
        lines.append((
            f"{DIRECTIONS[direction]} {WINDOWS[window]} {ndim}-D {dtype[5:]} bit", speedups(best, "c2050_"),
            speedups(theirs) if theirs else "", f"{speedups(best)} ``{best['method']}``", rate,
            f"{float(theirs['of_bandwidth']):.0%}" if theirs else "",
        ))  # fmt: skip
    return lines
