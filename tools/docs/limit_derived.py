# SPDX-License-Identifier: BSD-3-Clause
"""What the page *How spreading reaches the limit* derives: tables and pictures that follow from the algorithm alone.

``python tools/docs/limit_derived.py`` writes limit_written.svg and limit_drift.svg into docs/pictures, and into
docs/performance limit_blocks.inc, limit_counted.inc and limit_words.inc, which has the figures of
``benchmarks/results`` that the text of the pages quotes. Measures nothing. Run it again after a change of walks or with
new results, and commit what it writes.
"""

import math
import sys
from pathlib import Path

import matplotlib
import numpy as np
from grid_pictures import PLOT, save
from guo_pictures import DASHED, figure_of, logarithmic
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter
from pictures import BLUE, INK, ORANGE, PAGES, QUIET, ROOT, STYLE, bspline, command_line

sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "src"))
import particlemesh as pm
from core.report import DEVICE
from particlemesh.particles.workspace import Sizes
from particlemesh.walk import patch

RED = "#B2182B"
DOTTED = (0, (1, 1.5))
BY = "\u00d7"
SUPPORTS = tuple(patch.SUPPORTS)
CHUNK = 512  # particles of a warp in the picture: what walks take on a large GPU
WIDTHS = {1: 1.5, 2: 2.8}  # of lines, by tiles
STEP = 8  # particles of a matrix instruction
NAMES = ("limit_density", "limit_roofline", "limit_peer")  # what limit_pictures.py draws


def walk_of(support, tiles, *, double=False, matrix=True):
    """Return the walk for a window of `support` nodes: its levels and cells."""
    sizes = Sizes(pm.Mesh((64,) * 3, (1.0,) * 3), pm.bspline(support), np.dtype(np.float64 if double else np.float32),
                  components=1, applications=1, count=1, deterministic=False, backend=None)  # fmt: skip
    options = {"form": "matrix" if matrix else "multiply", "patch": 8 * tiles, "levels": None, "chunk": None}
    return patch.patch_of(sizes, options, 1)


def restructured(head, widths, rows):
    """Return a table for the page."""
    lines = [".. Written by tools/docs/limit_derived.py.", "", ".. list-table::", "   :header-rows: 1",
             f"   :widths: {widths}", ""]  # fmt: skip
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


# ---- nodes that are written, instructions -------------------------------------------------------------------


def written(walk, density, chunk=math.inf):
    """Return the nodes that are added to memory, a cell of the mesh."""
    x, y, z = walk.cells
    moves = -(-walk.levels // x)
    reached = -np.expm1(-density * x * y * z * moves)
    return 64 * walk.tiles * (reached / (y * z) + moves * x * density / chunk)


def blocks():
    """Return the table of blocks by support."""
    rows = []
    for support in SUPPORTS:
        row = [str(support), str(walk_of(support, 2).levels)]
        for tiles in (1, 2):
            walk = walk_of(support, tiles)
            row += [_cells(walk), f"{64 * tiles / (walk.cells[1] * walk.cells[2]):.2f}"]
        row.append(f"{patch._CROWDED / math.prod(walk_of(support, 1).cells):.2f}")
        row += [_cells(walk_of(support, tiles, double=True)) for tiles in (1, 2)]
        rows.append(tuple(row))
    head = ("p", "levels", "block, T = 1", "nodes written per cell", "block, T = 2", "nodes written per cell",
            "T = 1 from a density of", "block, T = 1, float64", "block, T = 2, float64")  # fmt: skip
    return restructured(head, "6 8 13 12 13 12 12 12 12", rows)


def _cells(walk):
    return f" {BY} ".join(map(str, walk.cells))


def step(levels, reals, tiles):
    """Return the instructions of a lane for eight particles: weights, values, reads, products, sums; float32."""
    each = reals * tiles
    return (6 * levels, 4 * each, 2 * -(-levels // 4) + 2 + 2 * each, 3 * levels // 2 * each, 2 * levels * each)


def multiply(levels, reals, tiles):
    """Return the instructions of a lane for a particle, by multiplying and adding."""
    return levels + 1 + 2 * reals * tiles * (2 + levels)


def counted():
    """Return the table of instructions."""
    rows = []
    for support in (4, 6, 8):
        for reals in (1, 2, 4):
            tiles = 2 if support == 8 else 1
            levels = walk_of(support, tiles).levels
            parts, single = step(levels, reals, tiles), multiply(levels, reals, tiles)
            total = sum(parts)
            rows.append((str(support), str(reals), str(tiles), *map(str, parts), str(total), f"{total / STEP:.1f}",
                         f"{total / STEP / reals:.1f}", str(single), str(-(-total // single))))  # fmt: skip
    head = ("p", "reals", "T", "A", "B", "reads", "products", "sums", "total", "per particle",
            "per particle and real", "multiply form, per particle", "step cheaper from")  # fmt: skip
    return restructured(head, "5 6 5 6 6 7 9 6 7 9 11 12 9", rows)


def expected_steps(mean):
    """Return the expected number of steps that a block takes whose particles are Poisson distributed."""
    most = int(mean + 12 * math.sqrt(mean) + 60)
    n = np.arange(most)
    logs = -mean + n * math.log(mean) - np.array([math.lgamma(k + 1) for k in n])
    return float((np.exp(logs) * np.ceil(n / STEP)).sum())


def staging(walk, support, reals):
    """Return the instructions of a lane to lay out the rows of one particle: weights, moves, values, writes."""
    _, y, z = walk.cells
    moves = 8 * math.ceil(math.log2(y)) + 8 * walk.tiles * math.ceil(math.log2(z))
    return 3 * (support**2 / 2 + 1) + moves + 8 * reals * walk.tiles + 2 * (2 + reals * walk.tiles)


def instructions(walk, support, reals, density):
    """Return warp instructions a particle: rows, steps, and what leaves and moves up once a block."""
    x, y, z = walk.cells
    each, mean = reals * walk.tiles, density * x * y * z
    adds = 1 if walk.pairs and reals <= 2 else 2  # of a lane's two nodes
    leaving = -math.expm1(-mean * -(-walk.levels // x)) * (2 * each * walk.levels + x * walk.tiles * adds)
    work = sum(step(walk.levels, reals, walk.tiles)) * expected_steps(mean) if walk.matrix else (
        multiply(walk.levels, reals, walk.tiles) * mean)  # fmt: skip
    return staging(walk, support, reals) / 32 + (work + leaving) / mean


def densities(folder, kind):
    """Nodes that are written, and instructions, against density: what decides between windows."""
    figure, panels = figure_of(2, 2, 7.6, 6.6, sharex=True)
    x = np.geomspace(3e-3, 40, 160)
    for support, (left, right) in zip((6, 4), panels, strict=True):
        left.plot(x, support**3 * x, color=QUIET, linestyle=DASHED)
        for tiles, colour in ((1, BLUE), (2, ORANGE)):
            walk, wide = walk_of(support, tiles), {"color": colour, "linewidth": WIDTHS[tiles]}
            left.plot(x, written(walk, x), **wide)
            left.plot(x, written(walk, x, CHUNK), color=colour, linestyle=DOTTED)
            right.plot(x, [instructions(walk, support, 1, d) for d in x], **wide)
        plain = walk_of(support, 1, matrix=False)
        right.plot(x, [instructions(plain, support, 1, d) for d in x], color=RED, linestyle=DASHED)
        narrow = walk_of(support, 1).cells
        for axes in (left, right):
            logarithmic(axes, "particles a cell" if support == 4 else None, None)
            axes.axvline(patch._CROWDED / math.prod(narrow), color=INK, linewidth=0.9)
            axes.xaxis.set_major_locator(FixedLocator([0.01, 0.1, 1, 10]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        left.set_ylim(0.5, 100)
        right.set_ylim(5, 200)
        for axes, ticks in ((left, (1, 2, 5, 10, 20, 50, 100)), (right, (5, 10, 20, 50, 100, 200))):
            axes.yaxis.set_major_locator(FixedLocator(ticks))
        left.set_title(f"nodes written a cell, p = {support}")
        right.set_title(f"instructions a particle, p = {support}")
    handles = [
        Line2D([], [], color=BLUE, linewidth=WIDTHS[1], label=f"window 8 {BY} 8"),
        Line2D([], [], color=ORANGE, linewidth=WIDTHS[2], label=f"window 8 {BY} 16"),
        Line2D([], [], color=INK, linestyle=DOTTED, label=f"with ends of chunks of {CHUNK}"),
        Line2D([], [], color=QUIET, linestyle=DASHED, label="every contribution by itself"),
        Line2D([], [], color=RED, linestyle=DASHED, label=f"multiply form, window 8 {BY} 8"),
        Line2D([], [], color=INK, linewidth=0.9, label="where walks go over"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=10)
    save(figure, f"limit_written.{kind}", folder)


# ---- rounding -----------------------------------------------------------------------------------------------

EXTRA = 2  # bits that the adder of the tensor core has beyond those of float32
NOTHING = -(10**4)  # exponent of zero


def upper(x):
    """Return the upper 19 bits of float32 numbers."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def exponents(x):
    """Return e where a number is 2^e times one to two."""
    return np.where(x == 0, NOTHING, np.frexp(np.where(x == 0, 1.0, x))[1] - 1)


def cut(x, digit):
    """Return numbers without what is below 2^digit."""
    unit = np.ldexp(1.0, digit)
    return np.trunc(x / unit) * unit


def matrix_unit(c, a, b):
    """Return c (nodes,) + the sum of a b (nodes, 8): exact products, cut where the greatest term's digits end."""
    a, b, c = (upper(v).astype(float) if v.ndim > 1 else v.astype(float) for v in (a, b, c))
    terms = np.concatenate([c[:, None], a * b], axis=1)
    where = np.concatenate([exponents(c)[:, None], exponents(a) + exponents(b)], axis=1)
    greatest = where.max(axis=1)
    live = greatest > NOTHING // 2
    total = cut(terms, (np.where(live, greatest, 0) - 23 - EXTRA)[:, None]).sum(axis=1)
    return np.where(live, cut(total, exponents(total) - 23), 0).astype(np.float32)


def drift(steps=200, nodes=1500, support=6):
    """Return by form of arithmetic the relative error of nodes after each step of eight particles."""
    rng = np.random.default_rng(1)
    zero, exact = np.zeros(nodes, np.float32), np.zeros(nodes)
    sums = {name: zero.copy() for name in ("one", "inside", "outside", "plain")}
    errors = {name: [] for name in sums}
    for _ in range(steps):
        x, y, z = bspline(support, rng.uniform(-support / 2, support / 2, (3, nodes, STEP))).astype(np.float32)
        q = rng.standard_normal((nodes, STEP)).astype(np.float32)
        exact += (x.astype(float) * y * z * q).sum(axis=1)
        a, b = x * y, z * q
        (a_high, b_high), (a_low, b_low) = (upper(a), upper(b)), (a - upper(a), b - upper(b))

        def three(c, pairs=((a_low, b_high), (a_high, b_low), (a_high, b_high))):
            for left, right in pairs:
                c = matrix_unit(c, left, right)
            return c

        sums["one"] += matrix_unit(zero, a_high, b_high)
        sums["inside"] = three(sums["inside"])
        sums["outside"] += three(zero)
        for k in range(STEP):  # rounded once, as a fused multiply-add is
            added = x[:, k].astype(float) * (y[:, k] * b[:, k])
            sums["plain"] = (sums["plain"] + added).astype(np.float32)
        for name, total in sums.items():
            errors[name].append(float(np.linalg.norm(total - exact) / np.linalg.norm(exact)))
    return errors


def drifts(folder, kind):
    """How errors grow with the steps that a level of the window sees."""
    figure, ((axes,),) = figure_of(1, 1, 6.4, 4.2)
    errors = drift()
    looks = {"one": (QUIET, "-", "one product"), "inside": (ORANGE, "-", "three products, sums inside"),
             "outside": (BLUE, "-", "three products, sums outside"),
             "plain": (RED, DASHED, "multiply form, float32")}  # fmt: skip
    for name, (colour, dashes, label) in looks.items():
        axes.plot(range(1, 1 + len(errors[name])), errors[name], color=colour, linestyle=dashes, label=label,
                  linewidth=2)  # fmt: skip
    logarithmic(axes, "steps of eight particles", "relative l2 error of the nodes")
    axes.set_ylim(3e-8, 3e-3)
    axes.axhline(1e-6, color=INK, linewidth=0.9)
    axes.text(1, 1.12e-6, "what is allowed", fontsize=9.5, va="bottom")
    axes.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    figure.legend(loc="outside lower center", ncols=2, fontsize=10)
    save(figure, f"limit_drift.{kind}", folder)


# ---- words of the abstract ------------------------------------------------------------------------------------

MISSING = "(not measured yet)"


def words(results, device):
    """Return substitutions for the page: what files say of walks."""
    from core import report
    from harness.claims import Files

    files = Files(device, results)
    by_key = report.of_rows(files.all_rows("limit-rows"))
    lines = [".. Written by tools/docs/limit_derived.py from benchmarks/results/limit-*.csv.", ""]
    for name, key in (("spread_rate", "spread"), ("spread_real_rate", "spread-real"), ("spread_f64_rate", "spread-f64"),
                      ("interpolate_rate", "interpolate")):  # fmt: skip
        value = by_key[key].walk
        lines.append(f".. |{name}| replace:: {MISSING if math.isnan(value) else f'{value:.3g} {BY} 10⁹'}")
    lines.append(f".. |crowded| replace:: {patch._CROWDED}")
    lines.append(f".. |few| replace:: {patch._FEW}")
    value = by_key["error-spread"].walk
    shown = MISSING if math.isnan(value) else report.figure(value, report.ERROR)
    lines.append(f".. |spread_error| replace:: {shown}")
    counters = files.all_rows("limit-counters")
    keys = ("spread", "spread-real", "spread-f64", "spread-some", "interpolate", "interpolate-some")
    asked = [(key, key, "walk") for key in keys]
    asked += [("spread-owner", "spread-some", "owner"), ("interpolate-tile", "interpolate-some", "tile")]
    for name, key, method in asked:
        lines.append(f".. |{name.replace('-', '_')}_fullest| replace:: {fullest(counters, key, method)}")
    return "\n".join([*lines, ""])


def fullest(counters, name, method):
    """Return which of the counted units of a row's longest kernel is used most, and how much."""
    from core.counters import COUNTERS, PLAIN
    from harness.tables import number

    launches = [row for row in counters if (row["row"], row["method"]) == (name, method)]
    if not launches:
        return MISSING
    longest = max(launches, key=lambda row: number(row, "seconds"))
    units = {c.head: number(longest, c.column) for c in COUNTERS if c.column not in (*PLAIN, "occupancy")}
    units = {head: share for head, share in units.items() if not math.isnan(share)}
    if not units:
        return MISSING
    most = max(units, key=lambda head: units[head])
    return f"{most}, {units[most]:.0f} %"


def placeholders(folder, pages):
    """Write a word in the place of pictures and a table that there are no figures for yet."""
    for name in NAMES:
        if not (folder / f"{name}.svg").exists():
            figure, ((axes,),) = figure_of(1, 1, 6.4, 1.2)
            axes.axis("off")
            axes.text(0.5, 0.5, "not measured yet", ha="center", color=QUIET, fontsize=12)
            save(figure, f"{name}.svg", folder)
    counters = pages / "limit_counters.inc"
    if not counters.exists():
        counters.write_text("Not counted yet: ``benchmarks/core/counters.py`` counts them.\n", encoding="utf-8")


def main():
    parser = command_line(__doc__, DEVICE)
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the tables go")
    args = parser.parse_args()
    for name, text in (("blocks", blocks()), ("counted", counted()), ("words", words(args.results, args.device))):
        (args.pages / f"limit_{name}.inc").write_text(text, encoding="utf-8")
    with matplotlib.rc_context({**STYLE, **PLOT}):
        densities(args.out, args.kind)
        drifts(args.out, args.kind)
        placeholders(args.out, args.pages)


if __name__ == "__main__":
    main()
