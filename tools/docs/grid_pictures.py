# SPDX-License-Identifier: BSD-3-Clause
"""Draw the figures of uniform grids from the CSV files of benchmarks, into docs/pictures.

``python tools/docs/grid_pictures.py`` writes grid_build.svg, grid_clouds.svg, grid_paper.svg and grid_pairs.svg. Needs
matplotlib only; measures nothing. Run it again when ``benchmarks/results`` has new figures, and commit what it writes.
"""

import csv
import math

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from pictures import BLUE, INK, ORANGE, QUIET, STYLE, command_line

GREEN, PINK, SKY, YELLOW = "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
# One colour for each kind of builder; dashes are its second form.
LOOKS = {
    "linked_list_loose": ("list, loose", BLUE, "-", "o"),
    "linked_list_packed": ("list, packed", SKY, "-", "s"),
    "linked_list_tight": ("list, tight", PINK, "-", "v"),
    "fixed column": ("fixed, by column", GREEN, "-", "D"),
    "fixed row": ("fixed, by row", GREEN, (0, (3, 2)), "D"),
    "scan": ("scan", ORANGE, "-", "^"),
    "sort linear": ("sort", YELLOW, "-", "P"),
    "sort morton": ("sort, Morton", YELLOW, (0, (3, 2)), "P"),
    "CUB 18 bits": ("CUB sort of ready keys", QUIET, (0, (1, 1.5)), None),
    "CUB 21 bits": ("CUB sort of ready keys", QUIET, (0, (1, 1.5)), None),
}
PLOT = {
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


class Rows:
    """Rows of a CSV, picked by the values of their columns."""

    def __init__(self, file):
        with file.open(newline="") as opened:
            self.rows = list(csv.DictReader(opened))

    def pick(self, **values):
        """Return rows whose columns have these values, written as in the file."""
        return [r for r in self.rows if all(r[name] == str(value) for name, value in values.items())]

    def line(self, x, y, scale=1.0, **values):
        """Return (x, y) of the rows picked, in the order of x, without those that have no number."""
        points = sorted((float(r[x]), float(r[y]) * scale) for r in self.pick(**values) if r[y] not in ("", "nan"))
        return [p for p in points if not math.isnan(p[1])]


def figure_of(panels, width=9.2, height=3.9):
    """Return a figure and its panels in a row."""
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def size(count, _=None):
    """Return a number of particles as people write it."""
    for unit, name in ((2**20, " M"), (2**10, " K")):
        if count >= unit:
            return f"{count / unit:g}{name}"
    return f"{count:g}"


def sizes_along(axes, counts):
    """Label an axis of particles by powers of two."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("particles")


def rates_up(axes, what):
    """Label a logarithmic axis of rates with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(what)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def save(figure, name, folder):
    figure.savefig(folder / name, metadata={"Date": None} if name.endswith("svg") else None, dpi=110)


def build(rows, folder, kind):
    """Insertions a second of all builders against the number of particles, for two grids."""
    figure, panels = figure_of(2, height=4.6)
    for axes, cells in zip(panels, (64, 128), strict=True):
        for builder, (name, colour, dashes, marker) in LOOKS.items():
            group = "peer" if builder.startswith("CUB") else "size"
            storage = "sorted" if group == "peer" else "ids"
            columns = dict(group=group, builder=builder, storage=storage, cells=cells, source="measured")
            if group == "size":
                columns["stable"] = 0
            points = rows.line("N", "rate", 1e-9, **columns)
            if points:
                axes.plot(*zip(*points, strict=True), linestyle=dashes, color=colour, marker=marker, label=name,
                          markerfacecolor="white" if dashes != "-" else colour)  # fmt: skip
        if cells == 64:
            axes.plot(2**20, 2, "*", color=INK, markersize=10, label="the paper: list on a GTX 660")
        axes.set_title(f"{cells}³ cells")
        sizes_along(axes, [2**p for p in range(10, 25, 2)])
        rates_up(axes, "10⁹ insertions per second")
    bottom = min(axes.get_ylim()[0] for axes in panels)
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(bottom, top)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save(figure, f"grid_build.{kind}", folder)


def clouds(rows, folder, kind):
    """How long the builders take on other clouds, against uniform particles in random order."""
    names = ("clustered", "settled", "nearly sorted", "lattice")
    figure, panels = figure_of(2, height=3.9)
    builders = [b for b in LOOKS if not b.startswith("CUB")]
    for axes, count in zip(panels, (2**20, 2**22), strict=True):
        for place, builder in enumerate(builders):
            _, colour, dashes, marker = LOOKS[builder]
            base = rows.line("N", "graph_s", group="size", builder=builder, storage="ids", stable=0, cells=64, N=count)
            for step, cloud in enumerate(names):
                here = rows.line("N", "graph_s", group="cloud", builder=builder, storage="ids", cloud=cloud, N=count)
                if base and here:
                    axes.plot(step + (place - 3.5) * 0.1, here[0][1] / base[0][1], marker or "o", color=colour,
                              markerfacecolor="white" if dashes != "-" else colour, markersize=6)  # fmt: skip
        axes.axhline(1, color=QUIET, linewidth=1)
        axes.set_xticks(range(len(names)), names)
        axes.set_title(f"{size(count)} particles, 64³ cells")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator([0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5, 7, 10, 20]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.set_ylabel("time, uniform in random order = 1")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    handles = [
        panels[0].plot([], [], LOOKS[b][3], color=LOOKS[b][1], label=LOOKS[b][0],
                       markerfacecolor="white" if LOOKS[b][2] != "-" else LOOKS[b][1])[0]
        for b in builders
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    save(figure, f"grid_clouds.{kind}", folder)


def paper(rows, folder, kind):
    """The paper's figure 3 today: the five builders that it compares, at small and at large sizes."""
    figure, panels = figure_of(2, height=4.2)
    shown = ("linked_list_loose", "linked_list_packed", "linked_list_tight", "fixed column", "sort morton")
    for axes, powers in zip(panels, (range(10, 15), range(15, 21)), strict=True):
        for builder in shown:
            name, colour, _, marker = LOOKS[builder]
            points = rows.line("N", "rate", 1e-9, group="size", builder=builder, storage="ids", stable=0, cells=64)
            points = [p for p in points if p[0] in [2**power for power in powers]]
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=name)
        axes.set_title("small sizes" if powers.start == 10 else "large sizes")
        sizes_along(axes, [2**power for power in powers])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("10⁹ insertions per second")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    save(figure, f"grid_paper.{kind}", folder)


def pairs(rows, folder, kind):
    """Particles and pairs a second of neighbour lists, the build of the grid included."""
    figure, (left, right) = figure_of(2, height=4.2)
    shapes = (
        ("half list", dict(list="half", order="grid"), BLUE, "o"),
        ("full list", dict(list="full", order="grid"), ORANGE, "^"),
        ("full list, caller's order", dict(list="full", order="input"), YELLOW, "s"),
        ("counts only", dict(list="count"), GREEN, "D"),
    )
    for name, columns, colour, marker in shapes:
        for group, dashes in (("size", "-"), ("periodic", (0, (3, 2)))):
            points = rows.line("N", "particles_per_s", 1e-9, group=group, **columns)
            if points:
                axes = left.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=dashes,
                                 markerfacecolor=colour if group == "size" else "white")[0]  # fmt: skip
                axes.set_label(name if group == "size" else None)
        more = rows.line("neighbours", "pairs_per_s", 1e-9, group="neighbours", N=2**20, **columns)
        more += rows.line("neighbours", "pairs_per_s", 1e-9, group="size", N=2**20, **columns)
        if more and "caller" not in name:
            right.plot(*zip(*sorted(more), strict=True), color=colour, marker=marker)
    for row in rows.pick(group="published"):
        label = row["quantities"].replace("nvalchemi-toolkit-ops", "nvalchemi") + ", " + row["cloud"].split(" ")[0]
        if row["N"] and row["neighbours"] == "26":
            left.plot(float(row["N"]), float(row["particles_per_s"]) / 1e9, "*", color=INK, markersize=10)
            left.annotate(f"{label},\npublished", (float(row["N"]), float(row["particles_per_s"]) / 1e9),
                          xytext=(8, -3), textcoords="offset points", fontsize=8, va="center")  # fmt: skip
        if row["pairs_per_s"]:
            right.plot(float(row["neighbours"]), float(row["pairs_per_s"]) / 1e9, "*", color=INK, markersize=10)
    theirs = rows.line("N", "particles_per_s", 1e-9, group="vesin", list="full")
    if theirs:
        left.plot(*zip(*theirs, strict=True), color=QUIET, marker="x", label="vesin, full, float64")
    left.set_title("about 26 neighbours (dashed: periodic)")
    sizes_along(left, [2**14, 2**17, 2**20, 2**22])
    rates_up(left, "10⁹ particles per second, with the build")
    right.set_title("1 M particles (stars: nvalchemi, H100, published)")
    right.set_xscale("log")
    right.xaxis.set_major_locator(FixedLocator([6, 26, 100, 400, 1892]))
    right.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    right.xaxis.set_minor_locator(NullLocator())
    right.set_xlabel("neighbours of a particle")
    rates_up(right, "10⁹ pairs per second, with the build")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    save(figure, f"grid_pairs.{kind}", folder)


def main():
    args = command_line(__doc__).parse_args()
    with matplotlib.rc_context({**STYLE, **PLOT}):
        rows = Rows(args.results / f"grid-build-{args.device}.csv")
        for draw in (build, clouds, paper):
            draw(rows, args.out, args.kind)
        pairs(Rows(args.results / f"grid-pairs-{args.device}.csv"), args.out, args.kind)


if __name__ == "__main__":
    main()
