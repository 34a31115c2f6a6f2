# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of conventions: ``python tools/docs/pictures.py`` writes docs/pictures/nodes.svg and windows.svg.

Needs matplotlib only. Run it again after a change of conventions and commit what it writes.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, QUIET, BLUE, ORANGE = "#2b2b2b", "#8a8a8a", "#0072B2", "#D55E00"
ROOT = Path(__file__).resolve().parents[2]
PICTURES, PAGES, RESULTS = ROOT / "docs" / "pictures", ROOT / "docs" / "performance", ROOT / "benchmarks" / "results"
STYLE = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "font.size": 10,
    "text.color": INK,
    "svg.hashsalt": "particlemesh",  # the same bytes every time
}


def command_line(description, device="nvidia-h200"):
    """Return the command line of a script that draws pictures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=device, help="as in the names of the CSV files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=PICTURES, help="where the pictures go")
    parser.add_argument("--kind", default="svg", help="png to look at them")
    return parser


def canvas(width, height, left, right, bottom, top):
    """Return figure and axes in which one unit is the same length in x and y, without any frame."""
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.axis("off")
    return figure, axes


def save(figure, name):
    figure.savefig(PICTURES / name, metadata={"Date": None})


def axis_of_nodes(axes, y, count, offset, spacing, name, formula, *, image=False, ghosts=0):
    """Draw one axis of a mesh; its box is from 0 to 6 in all rows."""
    axes.text(-7.1, y + 0.12, name, fontweight="bold", va="bottom")
    axes.text(-7.1, y - 0.08, formula, color=QUIET, va="top", fontsize=9)
    axes.fill([0, 6, 6, 0], [y - 0.42, y - 0.42, y + 0.42, y + 0.42], color="#eef3f7", linewidth=0)
    reach = ghosts * spacing + 0.45 if ghosts or image else 0
    axes.plot([-reach, 6 + reach - (spacing if ghosts else 0)], [y, y], color=QUIET, linewidth=0.9, zorder=1)
    for edge in (0, 6):
        axes.plot([edge, edge], [y - 0.42, y + 0.42], color=INK, linewidth=1.4, zorder=2)
    for i in range(-ghosts, count + ghosts + image):
        inside = 0 <= i < count
        x = (i + offset) * spacing
        colour = BLUE if inside else ORANGE if ghosts else QUIET
        axes.plot(x, y, "o", markersize=9, color=colour, markerfacecolor=colour if inside else "white", zorder=3)
        label = str(i).replace("-", "−") if inside or ghosts else "0"
        axes.text(x, y - 0.55, label, ha="center", va="top", fontsize=9, color=colour)


def nodes():
    """Where the nodes of an axis are."""
    figure, axes = canvas(9.2, 5.5, -7.3, 8.7, -2.9, 7.8)
    axes.text(0, 7.3, "origin", ha="center", fontsize=9)
    axes.text(6, 7.3, "origin + L", ha="center", fontsize=9)
    axis_of_nodes(axes, 6.4, 6, 0, 1, "periodic", "offset 0:  h = L / K", image=True)
    axis_of_nodes(axes, 4.5, 6, 0.5, 1, "periodic or open", "offset 0.5:  h = L / K")
    axis_of_nodes(axes, 2.6, 6, 0, 1.2, "open", "offset 0:  h = L / (K − 1)")
    axis_of_nodes(axes, 0.7, 6, 0, 1, "periodic with 2 ghosts", "never wraps:  K + 4 nodes are stored", ghosts=2)
    for start, end, y, bend, colour, text in (
        (7, 1, -0.25, -0.3, ORANGE, "fold_ghosts adds each ghost to its image"),
        (1, 7, -1.35, 0.3, BLUE, "fill_ghosts copies the other way"),
    ):
        arrow = {
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 1.2,
            "connectionstyle": f"arc3,rad={bend / 3}",
        }
        axes.annotate("", xy=(end, y), xytext=(start, y), arrowprops=arrow)
        axes.text(4, y - 0.92 + (0.12 if colour == BLUE else 0), text, ha="center", fontsize=9, color=colour)
    save(figure, "nodes.svg")


def bspline(order, x):
    """Return the centred B-spline of an order at x, by its recurrence."""
    if order == 1:
        return ((x >= -0.5) & (x < 0.5)).astype(float)
    half = order / 2
    left, right = bspline(order - 1, x + 0.5), bspline(order - 1, x - 0.5)
    return ((half + x) * left + (half - x) * right) / (order - 1)


def window(axes, order, particle, left, heading, rule):
    """Draw a window around its particle, and the weights that it gives to the nodes."""
    x = np.linspace(particle - order / 2, particle + order / 2, 301)
    scale = 3.6
    axes.plot(left + x, scale * bspline(order, x - particle), color=QUIET, linewidth=1.2)
    axes.plot([left - 0.3, left + 6.3], [0, 0], color=QUIET, linewidth=0.9, zorder=1)
    reached = np.abs(np.arange(7) - particle) < order / 2
    for i in range(7):
        colour = BLUE if reached[i] else QUIET
        fill = colour if reached[i] else "white"
        if reached[i]:
            weight = scale * float(bspline(order, np.array([i - particle]))[0])
            axes.plot([left + i, left + i], [0, weight], color=BLUE, linewidth=2.2)
        axes.plot(left + i, 0, "o", markersize=8, color=colour, markerfacecolor=fill, zorder=3)
        axes.text(left + i, -0.28, str(i), ha="center", va="top", fontsize=9, color=colour)
    axes.plot([left + particle] * 2, [0, scale * 0.8], color=ORANGE, linewidth=1, linestyle=(0, (3, 2)))
    axes.plot(left + particle, 0, "D", markersize=6, color=ORANGE, zorder=4)
    axes.text(left + particle, scale * 0.82, f"u = {particle}", color=ORANGE, ha="center", fontsize=9)
    axes.text(left - 0.3, 3.5, heading, fontweight="bold")
    axes.text(left - 0.3, -1.15, rule, fontsize=9)


def windows():
    """Which nodes a particle reaches, for an even and an odd support."""
    figure, axes = canvas(9.2, 3.1, -0.7, 14.7, -1.5, 3.9)
    window(axes, 4, 2.3, 0, "even support: bspline4", "cell floor(u) = 2, fraction 0.3: nodes 1 to 4")
    window(axes, 3, 2.7, 8, "odd support: bspline3", "node floor(u + 1/2) = 3, fraction −0.3: nodes 2 to 4")
    save(figure, "windows.svg")


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        nodes()
        windows()
