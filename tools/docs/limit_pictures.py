# SPDX-License-Identifier: BSD-3-Clause
"""Draw how close spreading and interpolation come to the limit, from the CSV files of benchmarks, into docs/pictures.

``python tools/docs/limit_pictures.py`` writes limit_density.svg, limit_roofline.svg and limit_peer.svg. Needs
matplotlib only; measures nothing. Run it again when ``benchmarks/results`` has new figures, and commit what it writes.
"""

import csv
import math
import sys

import matplotlib
import numpy as np
from grid_pictures import PINK, PLOT, SKY, save
from guo_pictures import DASHED, LOOKS, figure_of, logarithmic, name_ends
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter
from pictures import BLUE, INK, ORANGE, QUIET, ROOT, STYLE, command_line

sys.path.insert(0, str(ROOT / "benchmarks"))
from core.device import Ceilings
from core.report import DEVICE
from harness.tables import size

PEER = "cuFINUFFT"
RED = "#B2182B"
NAVY = "#0B2F5B"
COLOURS = {**LOOKS, "walk": RED, "walk_fixed": "#E58A93", "ordered": ORANGE, "stored": "#7A5195", "tiles": PINK,
           "owner": NAVY, "tile": NAVY, "ring": "#7A8B00", "direct": "#009E73", PEER: "#8C510A"}  # fmt: skip
DOTTED = (0, (1, 1.5))
PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}
DIRECTIONS = ("spread", "interpolate")
# Of the roofline: a shape for each kind of values, filled for six nodes, open for four.
SHAPES = {("float32", "real"): "o", ("float32", "complex"): "s", ("float64", "complex"): "D"}
KINDS = {("float32", "real"): "float32 real", ("float32", "complex"): "float32 complex",
         ("float64", "complex"): "float64 complex"}  # fmt: skip


def read(folder, part, device):
    """Return the rows of a file, none if it is not there."""
    file = folder / f"limit-{part}-{device}.csv"
    if not file.exists():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def number(row, column):
    """Return a number of a row, NaN where there is none."""
    return float(row.get(column) or math.nan)


def colour_of(method):
    """Return a method's colour; forms of the walk have one."""
    return COLOURS.get(method, RED if method.startswith("walk") else QUIET)


def density(rows, folder, kind):
    """Particles a second against particles a cell: a line for every method, and the peer."""
    supports = sorted({r["p"] for r in rows}, key=int)
    figure, panels = figure_of(len(DIRECTIONS), max(len(supports), 1), 10.4, 8.2, sharex=True, sharey="row")
    for direction, row in zip(DIRECTIONS, panels, strict=True):
        named = []
        for support, axes in zip(supports, row, strict=False):
            ends = []
            chosen = [r for r in rows if r["direction"] == direction and r["p"] == support]
            for method, options in dict.fromkeys(
                (r["method"], "" if r["method"] == PEER else r["options"]) for r in chosen
            ):
                mine = [r for r in chosen if r["method"] == method and (method == PEER or r["options"] == options)]
                points = sorted((number(r, "density"), number(r, "rate")) for r in mine)
                points = [p for p in points if p[1] > 0]
                ends += line(axes, points, method, options)
            named.append((axes, ends))
            logarithmic(axes, "particles a cell" if direction == DIRECTIONS[-1] else None,
                        "10⁹ particles a second" if axes is row[0] else None)  # fmt: skip
            axes.set_title(f"{direction}, {support} nodes along an axis")
        plain(row[0])
        for axes, ends in named:  # the limits are those of the whole row by now
            name_ends(axes, ends, gap=0.058)
    save(figure, f"limit_density.{kind}", folder)


def line(axes, points, method, options):
    """Draw a method's line, and return its end, named."""
    if not points:
        return []
    main = method in (PEER, "walk")
    dashes = DASHED if options else {PEER: DOTTED, "ordered": "-."}.get(method, "-")  # single_mesh has its colour
    colour = colour_of(method)
    axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, marker="o", markersize=4 if main else 3,
              linewidth=2.4 if main and not options else 1.3, zorder=3 if main else 2,
              markerfacecolor="white" if options else colour)  # fmt: skip
    label = f"{method} {options.partition('=')[2]}".strip()
    return [(*points[-1], label, colour)]


def plain(axes):
    """Label a logarithmic axis of rates by plain numbers."""
    axes.yaxis.set_major_locator(FixedLocator([10.0**n for n in range(-4, 4)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


# ---- the roofline -----------------------------------------------------------------------------------------


def roofline(rows, ceilings, folder, kind):
    """Useful flops a second against useful flops a least byte, and the ceilings: many particles, all kinds."""
    figure, (panels,) = figure_of(1, len(DIRECTIONS), 10.4, 6.0, sharey=True)
    counts = sorted({int(r["N"]) for r in rows})[-2:]
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        chosen = [r for r in rows if r["direction"] == direction and int(r["N"]) in counts]
        chosen = [r for r in chosen if number(r, "gflops") > 0]
        x = [number(r, "intensity") for r in chosen] or [1.0]
        left, right = min(x) / 2.2, max(x) * 2.2
        roofs(axes, ceilings, left, right, direction)
        for row in chosen:
            colour = colour_of(row["method"])
            at, shape = (number(row, "intensity"), number(row, "gflops") / 1e3), SHAPES[row["dtype"], row["values"]]
            axes.plot(*at, shape, color=colour, markerfacecolor=colour if row["p"] == "6" else "white",
                      markersize=width_of(int(row["N"]), counts), markeredgewidth=1.4, zorder=3)  # fmt: skip
        logarithmic(axes, "useful flops a least byte", "useful Tflop/s" if axes is panels[0] else None)
        axes.set_xlim(left, right)
        axes.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.set_title(direction)
    methods = list(dict.fromkeys(r["method"] for r in rows if int(r["N"]) in counts))
    handles = [Line2D([], [], color=colour_of(m), marker="s", linestyle="", label=m) for m in methods]
    handles += [Line2D([], [], color=INK, marker=SHAPES[k], linestyle="", markerfacecolor="white", label=KINDS[k])
                for k in SHAPES]  # fmt: skip
    for count in counts:
        label = f"{size(count)} particles"
        handles.append(
            Line2D([], [], color=INK, marker="s", linestyle="", markersize=width_of(count, counts), label=label)
        )
    handles.append(Line2D([], [], color=INK, marker="s", linestyle="", label="filled: 6 nodes, open: 4"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    save(figure, f"limit_roofline.{kind}", folder)


def width_of(count, counts):
    """Return how large the marks of so many particles are."""
    return 7.5 if count == counts[-1] else 4.5


def roofs(axes, ceilings, left, right, direction):
    """Draw the ceilings that are known."""
    x = np.geomspace(left, right, 50)
    slopes = [("memory", ceilings.memory, INK), ("second-level cache", ceilings.l2, QUIET)]
    top = max((v for v in (ceilings.fma_f32, ceilings.tensor_f32 / 3) if not math.isnan(v)), default=math.nan)
    for name, rate, colour in slopes:
        if math.isnan(rate):
            continue
        y = x * rate / 1e12
        y = np.minimum(y, top / 1e12) if not math.isnan(top) else y
        axes.plot(x, y, color=colour, linewidth=1.4, zorder=1)
        at = left * 1.15
        axes.text(at, at * rate / 1e12 * 1.12, name, color=colour, fontsize=8.5, rotation=38, rotation_mode="anchor")
    flats = [
        ("multiply-adds, float32", ceilings.fma_f32, "-"), ("multiply-adds, float64", ceilings.fma_f64, "-"),
        ("matrices, TF32 three times", ceilings.tensor_f32 / 3, DASHED),
        ("matrices, float64", ceilings.tensor_f64, DASHED),
    ]  # fmt: skip
    if direction == "spread":  # an add to memory for each contribution: two flops
        flats.append(("an add to memory a contribution", 2 * ceilings.add_f32, DOTTED))
    placed = []
    for name, rate, dashes in flats:
        if math.isnan(rate):
            continue
        axes.axhline(rate / 1e12, color=SKY if dashes != DOTTED else BLUE, linewidth=1.2, linestyle=dashes, zorder=1)
        below = dashes == DOTTED or any(abs(math.log(rate / other)) < 0.25 for other in placed)
        placed.append(rate)
        axes.text(right * 0.96, rate / 1e12 * (0.93 if below else 1.05), name, ha="right", color=INK, fontsize=8.5,
                  va="top" if below else "bottom", bbox=PAPER)  # fmt: skip


# ---- the peer ---------------------------------------------------------------------------------------------


def against_peer(rows, folder, kind):
    """How many times as fast as the peer's kernels the best method is, by particles a cell."""
    figure, (panels,) = figure_of(1, len(DIRECTIONS), 10.4, 4.2, sharey=True)
    shades = {"64": "#8FB8DE", "128": "#3274B0", "256": "#0B2E59"}
    best = {}
    for row in rows:
        at = tuple(row[name] for name in ("direction", "dtype", "p", "K", "N"))
        if number(row, "ratio") > number(best.get(at, {"ratio": "0"}), "ratio"):
            best[at] = row
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        for (where, dtype, support, nodes, count), row in best.items():
            if where == direction:
                colour = shades.get(nodes, INK)
                shape, fill = "D" if dtype == "float64" else "s", colour if support == "6" else "white"
                axes.plot(int(count) / int(nodes) ** 3, number(row, "ratio"), shape, color=colour, markersize=6,
                          markerfacecolor=fill)  # fmt: skip
        logarithmic(axes, "particles a cell", "its kernel time over ours" if axes is panels[0] else None)
        axes.axhline(1, color=INK, linewidth=1)
        axes.yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 2, 3, 5, 10, 20]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.set_title(direction)
    handles = [Line2D([], [], color=c, marker="s", linestyle="", label=f"{k}³ nodes") for k, c in shades.items()]
    handles += [Line2D([], [], color=INK, marker=m, linestyle="", markerfacecolor="white", label=name)
                for m, name in (("s", "float32"), ("D", "float64"))]  # fmt: skip
    handles.append(Line2D([], [], color=INK, marker="s", linestyle="", label="filled: 6 nodes, open: 4"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6)
    save(figure, f"limit_peer.{kind}", folder)


def main():
    args = command_line(__doc__, DEVICE).parse_args()
    files = {part: read(args.results, part, args.device) for part in ("density", "roofline", "peer")}
    with matplotlib.rc_context({**STYLE, **PLOT}):
        if files["density"]:
            density(files["density"], args.out, args.kind)
        if files["roofline"]:
            roofline(files["roofline"], Ceilings.read(args.results, args.device), args.out, args.kind)
        if files["peer"]:
            against_peer(files["peer"], args.out, args.kind)
    missing = [part for part, rows in files.items() if not rows]
    if missing:
        raise SystemExit(f"No files limit-*-{args.device}.csv in {args.results} for {', '.join(missing)}.")


if __name__ == "__main__":
    main()
