# SPDX-License-Identifier: BSD-3-Clause
"""Draw how a walk works, for the page *How spreading reaches the limit*, into docs/pictures.

``python tools/docs/limit_sketches.py`` writes limit_window.svg, limit_walk.svg, limit_product.svg and limit_order.svg.
Needs matplotlib only. Run it again after a change of walks or of their order, and commit what it writes.
"""

import matplotlib
import numpy as np
from grid_pictures import save
from matplotlib.patches import FancyArrowPatch, Rectangle
from pictures import BLUE, INK, ORANGE, QUIET, STYLE, bspline, canvas, command_line

SUPPORT = 6  # nodes of the window function in all sketches
PALE, PAPER = "#dcebf5", "#f4f4f4"
SMALL = 11
BY = "\u00d7"


def text(axes, x, y, words, **how):
    """Write words, centred by default."""
    axes.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": SMALL, **how})


def box(axes, x, y, wide, high, **how):
    """Draw a rectangle from its lower left corner."""
    axes.add_patch(Rectangle((x, y), wide, high, **{"linewidth": 1.0, "edgecolor": INK, "facecolor": "none", **how}))


def arrow(axes, start, end, colour=INK, **how):
    """Draw an arrow."""
    looks = {"arrowstyle": "-|>", "mutation_scale": 12, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0, **how}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **looks))


# ---- the window ---------------------------------------------------------------------------------------------


def plane(axes, left, tiles):
    """Draw a window in the plane of y and z, its block, and the stencils of two particles at the block's ends."""
    wide, cells = 8 * tiles, (9 - SUPPORT, 3 if tiles == 1 else 10)
    box(axes, left - 0.45, -0.45, cells[1] - 0.1, cells[0] - 0.1, facecolor=PALE, edgecolor="none", zorder=0)
    for z in range(wide):
        for y in range(8):
            first = y < cells[0] and z < cells[1]
            axes.plot(left + z, y, "o", markersize=4.2 if first else 3.2, color=INK if first else QUIET, zorder=2)
    box(axes, left - 0.6, -0.6, wide + 0.2, 8.2, linewidth=1.6)
    for (y, z), colour, dashes in (((0, 0), BLUE, "-"), ((cells[0] - 1, cells[1] - 1), ORANGE, (0, (4, 1.5)))):
        box(axes, left + z - 0.4, y - 0.4, SUPPORT - 0.2, SUPPORT - 0.2, edgecolor=colour, linestyle=dashes,
            linewidth=1.8, zorder=3)  # fmt: skip
        at = left + z + 2.2, y + 2.3
        axes.plot(*at, "D", markersize=6.5, color=colour, zorder=4)
        axes.plot(left + z, y, "o", markersize=8, color=colour, markerfacecolor="none", markeredgewidth=1.6, zorder=4)
    text(axes, left + wide / 2 - 0.5, 8.55, f"T = {tiles}: 8 {BY} {wide}, block {cells[0]} {BY} {cells[1]}",
         fontweight="bold", fontsize=SMALL + 0.5)  # fmt: skip
    rows(axes, left, wide, cells[1] - 1)


def rows(axes, left, wide, last):
    """Draw the particles' weights along z at their places: what is not reached is zero."""
    for begin, fraction, colour, y in ((0, 0.2, BLUE, -4.0), (last, 0.2, ORANGE, -6.0)):
        for z in range(wide):
            box(axes, left + z - 0.5, y, 1, 1.5, edgecolor=QUIET, linewidth=0.7)
            if begin <= z < begin + SUPPORT:
                weight = float(bspline(SUPPORT, np.array(z - begin - SUPPORT / 2 + 1 - fraction)))
                box(axes, left + z - 0.32, y, 0.64, 2.4 * weight + 0.04, facecolor=colour, edgecolor="none")
            else:
                text(axes, left + z, y + 0.7, "0", color=QUIET, fontsize=SMALL - 1)


def window(folder, kind):
    """Blocks of cells and their windows, and rows of weights."""
    figure, axes = canvas(7.4, 4.75, -2.6, 27.6, -9.2, 10.2)
    plane(axes, 0.0, 1)
    plane(axes, 11.0, 2)
    arrow(axes, (-1.3, -0.4), (-1.3, 2.4))
    text(axes, -1.9, 1.0, "y", fontsize=SMALL + 1)
    arrow(axes, (-0.4, -1.2), (2.4, -1.2))
    text(axes, 3.1, -1.2, "z", fontsize=SMALL + 1)
    text(axes, 12.5, -8.0, "shaded: the block, where stencils may begin; rings: where those of two particles do.\n"
         "Below: the two particles' weights along z, at their places in the window", linespacing=1.5)  # fmt: skip
    save(figure, f"limit_window.{kind}", folder)


# ---- the walk -----------------------------------------------------------------------------------------------


def levels(axes, y, begin, gone, entered):
    """Draw the levels of the mesh along x and which of them are in the window."""
    for x in range(18):
        inside = begin <= x < begin + SUPPORT
        new = entered and begin + SUPPORT - entered <= x < begin + SUPPORT
        left = x in gone
        face, edge = (PALE, BLUE) if inside else ("#f8dccb", ORANGE) if left else (PAPER, QUIET)
        box(axes, x - 0.4, y, 0.8, 2.2, facecolor="white" if new else face, edgecolor=edge,
            linewidth=1.4 if inside or left else 0.7, linestyle=(0, (2, 1.5)) if new else "-")  # fmt: skip
        if left:
            arrow(axes, (x, y - 0.1), (x, y - 0.95), ORANGE)
        text(axes, x, y + 2.55, str(x), fontsize=SMALL - 1, color=edge)
    for up in (0.5, 1.0, 1.6):
        axes.plot(begin + 2.2 + 0.22 * up, y + up, "D", markersize=4.8, color=INK)


def walk(folder, kind):
    """Three moments of a walk along x."""
    figure, axes = canvas(7.4, 6.25, -0.9, 18.0, -2.0, 13.96)
    states = (
        (10.0, 3, (), 0, "Particles whose stencils begin at 3: six levels get what they add."),
        (5.1, 4, (3,), 1, "Then at 4: level 3 is done and leaves, level 9 comes in as zeros."),
        (0.2, 12, (4, 5, 6, 7, 8, 9), 6, "None before 12: all six leave, and the window begins anew."),
    )
    for y, begin, gone, entered, words in states:
        levels(axes, y, begin, gone, entered)
        text(axes, -0.4, y + 3.4, words, ha="left", fontsize=SMALL + 0.5)
    text(axes, 8.5, -1.6, "blue: in registers     dashed: new, zeros     orange: added to memory", color=INK)
    save(figure, f"limit_walk.{kind}", folder)


# ---- the product --------------------------------------------------------------------------------------------

G, T = 2, 1  # of the lane whose numbers are shown: lane 4 g + t
Z = "z = 0 4 1 5 2 6 3 7"  # of a narrow window


def matrix(axes, left, top, high, wide, mine, name):
    """Draw a matrix, and the elements that the lane has, by their names."""
    for i in range(1, high):
        axes.plot([left, left + wide], [top - i, top - i], color=QUIET, linewidth=0.6)
    for j in range(1, wide):
        axes.plot([left + j, left + j], [top - high, top], color=QUIET, linewidth=0.6)
    for (i, j), held in mine.items():
        box(axes, left + j, top - i - 1, 1, 1, facecolor=ORANGE, edgecolor=QUIET, linewidth=0.6, zorder=3)
        text(axes, left + j + 0.5, top - i - 0.5, held, color="white", fontweight="bold", zorder=4)
    box(axes, left, top - high, wide, high, linewidth=1.5)
    text(axes, left + wide / 2, top + 1.55, name, fontweight="bold", fontsize=SMALL + 2)


def side(axes, x, top, count, words, colour=INK):
    """Name rows beside a matrix."""
    axes.plot([x, x], [top - 0.15, top - count + 0.15], color=colour, linewidth=2)
    text(axes, x - 0.45, top - count / 2, words, rotation=90, color=colour, ha="center")


def product(folder, kind):
    """The product of one instruction: what is in its matrices, and what of that one lane has."""
    figure, axes = canvas(6.4, 8.6, -3.0, 20.4, -2.9, 28.55)
    a = {(G, T): "a0", (G + 8, T): "a1", (G, T + 4): "a2", (G + 8, T + 4): "a3"}
    b = {(T, G): "b0", (T + 4, G): "b1"}
    c = {(G, 2 * T): "c0", (G, 2 * T + 1): "c1", (G + 8, 2 * T): "c2", (G + 8, 2 * T + 1): "c3"}
    matrix(axes, 11, 26, 8, 8, b, f"B: values {BY} weights along z")
    matrix(axes, 0, 16, 16, 8, a, f"A: weights of x {BY} y")
    matrix(axes, 11, 16, 16, 8, c, "C: the window")
    for left, top in ((0, 16), (11, 16)):
        axes.plot([left, left + 8], [top - 8, top - 8], color=INK, linewidth=1.5)
        text(axes, left + 4, top + 0.5, "particle 0 … 7" if left == 0 else Z)
    text(axes, 15, 26.5, Z)
    for left in (0, 11):
        side(axes, left - 0.45, 16, 8, "level l:  y = 0 … 7")
        side(axes, left - 0.45, 8, 8, "level l + 1:  y = 0 … 7")
    side(axes, 10.55, 26, 8, "particle 0 … 7")
    text(axes, -2.0, 24.7, f"16 {BY} 8 {BY} 8", ha="left", fontsize=SMALL + 3, fontweight="bold")
    text(axes, -2.0, 23.3, "eight particles are added\nto two levels of the window", ha="left", va="top")
    text(
        axes,
        -2.0,
        20.6,
        f"orange: lane {4 * G + T} = 4g + t,\nwith g = {G}, t = {T}",
        ha="left",
        va="top",
        color=ORANGE,
    )
    text(axes, 7.5, -0.9, "c0 is at z = t and c1 at z = t + 4,")
    text(axes, 7.5, -2.0, "so that four lanes' c0 are neighbours in memory")
    save(figure, f"limit_product.{kind}", folder)


# ---- the order ----------------------------------------------------------------------------------------------

SHADES = ("#BFD7EA", "#8FB8DE", "#5F97CC", "#3274B0", "#F6CFB4", "#EFA376")
INKS = (INK, INK, "white", "white", INK, INK)  # upon these
LINES = (19, 5, 0, 27, 9, 12)  # particles of each line of blocks


def words_of_record(axes, y):
    """Draw which bits a record of float32 has."""
    words = (
        ("fraction along x", ((3, "x"), (3, "y"), (2, "bx"))),
        ("fraction along y", ((4, "z"), (4, "bx"))),
        ("fraction along z", ((8, "bx"),)),
    )
    scale = 0.62
    for n, (fraction, low) in enumerate(words):
        top = y - 1.9 * n
        box(axes, 0, top, 24 * scale, 1.4, facecolor=PALE)
        text(axes, 12 * scale, top + 0.7, f"{fraction}: 24 bits")
        at = 24.0
        for bits, name in reversed(low):  # as they lie, the highest first
            box(axes, at * scale, top, bits * scale, 1.4, facecolor="#f8dccb" if name == "bx" else "white")
            text(axes, (at + bits / 2) * scale, top + 0.7, name, fontsize=SMALL - (1 if bits < 3 else 0))
            at += bits
    top = y - 1.9 * len(words)
    box(axes, 0, top, 32 * scale, 1.4, facecolor=PAPER)
    text(axes, 16 * scale, top + 0.7, "which particle: 32 bits")
    text(axes, 20.6, y - 1.25, "x, y, z: the cell\nwithin the block\nbx: the block's\nplace along x", ha="left")


def order(folder, kind):
    """Lines of blocks along x, the records in their order, and the warps' shares of them."""
    figure, axes = canvas(7.0, 6.3, -0.6, 26.6, -7.4, 17.1)
    for line in range(6):
        by, bz = divmod(line, 3)
        x, y = 1.0 + 4.2 * bz, 11.6 + 2.2 * by
        for bx in range(4, -1, -1):
            box(axes, x + 0.28 * bx, y + 0.28 * bx, 3.4, 1.6, facecolor=SHADES[line], linewidth=0.7)
        text(axes, x + 1.7, y + 0.8, f"line {line}", color=INKS[line])
    arrow(axes, (14.0, 11.7), (15.2, 12.9))
    text(axes, 15.6, 13.3, "x")
    text(axes, 16.6, 15.0, "Blocks of one (by, bz)\nare a line along x.", ha="left")
    text(axes, 16.6, 12.2, "Records lie line by line,\nin a line block by block:", ha="left", va="top")
    scale = 26.0 / sum(LINES)
    at = 0.0
    for line, count in enumerate(LINES):
        box(axes, at, 7.6, count * scale, 1.6, facecolor=SHADES[line], linewidth=0.7)
        if count:
            text(axes, at + count * scale / 2, 8.4, str(line), color=INKS[line])
        at += count * scale
    chunk, begin, n = 16, 0, 0
    while begin < sum(LINES):
        end = min(begin + chunk, sum(LINES))
        box(axes, begin * scale + 0.08, 5.9, (end - begin) * scale - 0.16, 1.1, edgecolor=ORANGE, linewidth=1.4)
        text(axes, (begin + end) / 2 * scale, 6.45, f"warp {n}", color=ORANGE)
        begin, n = end, n + 1
    text(axes, 0, 4.7, "Every warp takes as many, whichever lines they are of; line 2 is empty.", ha="left", color=INK)
    text(axes, 0, 2.1, "A record of float32: four words, 16 bytes", ha="left", fontweight="bold", fontsize=SMALL + 0.5)
    words_of_record(axes, -0.2)
    save(figure, f"limit_order.{kind}", folder)


def main():
    args = command_line(__doc__).parse_args()
    with matplotlib.rc_context(STYLE):
        for picture in (window, walk, product, order):
            picture(args.out, args.kind)


if __name__ == "__main__":
    main()
