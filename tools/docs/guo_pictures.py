# SPDX-License-Identifier: BSD-3-Clause
"""Draw the figures of Guo et al. (2015) from the CSV files of benchmarks, into docs/pictures.

``python tools/docs/guo_pictures.py`` writes guo_choices.svg, guo_atomics.svg, guo_spreading.svg, guo_construction.svg,
guo_totals.svg and guo_best.svg. Needs matplotlib only; measures nothing. Run it again when ``benchmarks/results`` has
new figures, and commit what it writes.
"""

import itertools
import math
import sys

import matplotlib
from grid_pictures import GREEN, PINK, PLOT, SKY, YELLOW, save
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from pictures import BLUE, INK, ORANGE, QUIET, ROOT, STYLE, command_line

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))
from studies.guo.times import Times, heuristic, number, size

# One colour for each method everywhere; dashes are a second form of it.
LOOKS = {
    "particle": BLUE,
    "fixed_point": QUIET,
    "gather": GREEN,
    "gather_list": "#7A5195",
    "single_mesh": ORANGE,
    "group_mesh": PINK,
    "hybrid_mesh": YELLOW,
    "line_mesh": INK,
    "domain_copies": SKY,
    "colouring": "#8C6D31",
}
SHADES = ("#BFD7EA", "#8FB8DE", "#5F97CC", "#3274B0", "#1B4F86", "#0B2E59")  # of what has an order: units, sizes
BY_MESH = {32: SHADES[1], 64: SHADES[2], 128: SHADES[3], 256: SHADES[5]}
TIMES = (1, 20, 100, 1000)
DASHED = (0, (3, 2))


def figure_of(rows, columns, width=9.2, height=3.9, **share):
    """Return a figure and its panels, row by row."""
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def logarithmic(axes, below, beside):
    """Give both axes powers of ten, and quiet lines."""
    axes.set(xscale="log", yscale="log")
    if below:
        axes.set_xlabel(below)
    if beside:
        axes.set_ylabel(beside)
    axes.grid(color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())


def ratios(axes, ticks):
    """Label a logarithmic axis of ratios by plain numbers."""
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.axhline(1, color=QUIET, linewidth=1)


def points_of(times, column, **columns):
    """Return (N, seconds) in the order of N, without what was not measured."""
    points = [(int(r["N"]), number(r, column)) for r in times.pick(**columns)]
    return sorted((n, s) for n, s in points if s > 0)


def draw(axes, points, colour, dashes="-", label=None):
    """Draw a line with its points, and return its end, named."""
    if not points:
        return []
    axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, marker="o", markersize=3,
              markerfacecolor="white" if dashes != "-" else colour)  # fmt: skip
    return [(*points[-1], label, colour)]


def name_ends(axes, ends, gap=0.052):
    """Write the lines' names beside their ends, so far apart that they can be read."""
    low, high = (math.log(v) for v in axes.get_ylim())
    places = sorted([(math.log(y) - low) / (high - low), name, colour] for _, y, name, colour in ends)
    for _ in range(300):
        for place in places[:1] + places[-1:]:
            place[0] = min(max(place[0], 0.02), 0.98)
        for lower, upper in itertools.pairwise(places):
            excess = gap - (upper[0] - lower[0])
            if excess > 1e-6:
                lower[0] -= excess / 2
                upper[0] += excess / 2
    for place, name, colour in places:
        axes.text(1.02, place, name, transform=axes.transAxes, color=colour, va="center", fontsize=8.5)


def relative(times, figure, option):
    """Return the time over the best's as (ASM, ratio) by option, and for each ASM which option is which."""
    by_problem = {}
    for row in times.pick(figure=figure):
        seconds = number(row, "apply_s")
        chosen = dict(part.split("=") for part in row["options"].split())
        if seconds > 0 and option in chosen:
            at = (int(row["K"]), float(row["asm"]))
            by_problem.setdefault(at, {})[chosen[option]] = seconds
    lines = {}
    for (nodes, asm), by in sorted(by_problem.items()):
        for value, seconds in by.items():
            lines.setdefault((value, nodes), []).append((asm, seconds / min(by.values())))
    return lines, by_problem


def choices(times, folder, kind):
    """The paper's figures 3, 4 and 5: compute unit, group size, reduction, against contributions per node."""
    figure, (panels,) = figure_of(1, 3, 10.4, 3.9)
    for axes, number_of, option, heading in (
        (panels[0], "fig3", "threads_per_row", "single mesh: threads of a row"),
        (panels[1], "fig4", "group_size", "group mesh: nodes of a group"),
    ):
        lines, _ = relative(times, number_of, option)
        values = sorted({value for value, _ in lines}, key=int)
        shown = max((k for _, k in lines if k <= 128), default=None)
        ends = []
        for shade, value in zip(SHADES[-len(values) :] if values else (), values, strict=True):
            points = lines.get((value, shown), [])
            ends += draw(axes, points, shade, label=value)
            rings = [p for p in points if number_of == "fig3" and str(heuristic(p[0])) == value]
            if rings:
                axes.plot(*zip(*rings, strict=True), "o", color=ORANGE, markersize=8, markerfacecolor="none")
        logarithmic(axes, "contributions per node", "time, the best = 1" if axes is panels[0] else None)
        wide = axes.get_ylim()[1] > 5  # labels this close would touch
        ratios(axes, (1, 1.5, 2, 3, 5, 10, 20) if wide else (1, 1.1, 1.2, 1.5, 2, 3, 5))
        axes.set_title(heading)
        name_ends(axes, ends)
    if panels[0].lines:
        panels[0].text(0.36, 0.99, "rings: the heuristic's", color=ORANGE, transform=panels[0].transAxes, va="top",
                       fontsize=8.5)  # fmt: skip
    _, by_problem = relative(times, "fig5", "reduction")
    both = sorted((asm, by["shuffle"] / by["local"]) for (_, asm), by in by_problem.items() if len(by) == 2)
    draw(panels[2], both, ORANGE)
    logarithmic(panels[2], "contributions per node", None)
    ratios(panels[2], (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2))
    panels[2].set_title("shuffle / shared memory")
    save(figure, f"guo_choices.{kind}", folder)


def atomics(times, folder, kind):
    """The paper's figures 6 and 7: the particle method with and without atomics, and beside Gather."""
    figure, (panels,) = figure_of(1, 2, 9.2, 3.9, sharey=True)
    plain = (("particle", "atomic", BLUE, "-"), ("particle, plain adds", "plain adds", SKY, DASHED),
             ("particle, plain stores", "plain stores", QUIET, DASHED))  # fmt: skip
    ends = [[], []]
    for method, label, colour, dashes in plain:
        ends[0] += draw(panels[0], points_of(times, "apply_s", figure="fig6", method=method), colour, dashes, label)
    for method in ("particle", "gather", "gather_list"):
        points = points_of(times, "apply_s", figure="fig7", method=method)
        ends[1] += draw(panels[1], points, LOOKS[method], label=method)
    meshes = sorted({int(r["K"]) for r in times.pick(figure="fig7")})
    for axes, heading in zip(panels, ("the particle method", "Gather and its list"), strict=True):
        logarithmic(axes, "particles", "seconds of a spread" if axes is panels[0] else None)
        axes.set_title(f"{heading}, {meshes[0]}³ points" if meshes else heading)
    for nodes in meshes[:1]:
        panels[1].axvline(nodes**3, color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
        panels[1].text(nodes**3, 0.98, " K³", transform=panels[1].get_xaxis_transform(), va="top", color=QUIET)
    for axes, named in zip(panels, ends, strict=True):
        name_ends(axes, named)
    save(figure, f"guo_atomics.{kind}", folder)


def spreading(times, folder, kind):
    """The paper's figures 8 and 9: spreading alone, and building alone."""
    figure, (panels,) = figure_of(1, 2, 10.4, 5.0)
    for axes, number_of, column, heading in (
        (panels[0], "fig8", "apply_s", "spreading alone"),
        (panels[1], "fig9", "prepare_s", "preparing alone"),
    ):
        ends = []
        for method in times.methods(number_of):
            columns = dict(figure=number_of, method=method)
            colour = LOOKS.get(method, QUIET)
            ends += draw(axes, points_of(times, column, options="", **columns), colour, label=method)
            paper = points_of(times, column, options="construction=paper", **columns)
            ends += draw(axes, paper, colour, DASHED, f"{method}, paper's way")
        logarithmic(axes, "particles", "seconds")
        meshes = {int(r["K"]) for r in times.pick(figure=number_of)}
        axes.set_title(f"{heading}, {', '.join(f'{k}³' for k in meshes)} points")
        name_ends(axes, ends)
    save(figure, f"guo_spreading.{kind}", folder)


def construction(times, folder, kind):
    """The long version's figures of construction: every mesh."""
    figure, (panels,) = figure_of(1, 2, 9.2, 4.2, sharey=True)
    for axes, method in zip(panels, ("single_mesh", "group_mesh"), strict=True):
        for nodes in sorted({int(r["K"]) for r in times.pick(figure="long_construction")}):
            columns = dict(figure="long_construction", method=method, K=nodes)
            paper = points_of(times, "prepare_s", options="construction=paper", **columns)
            default = points_of(times, "prepare_s", options="", **columns)
            draw(axes, default, BY_MESH.get(nodes, INK), DASHED if paper else "-")
            draw(axes, paper, BY_MESH.get(nodes, INK))
            if axes.lines:
                axes.lines[-1].set_label(f"K = {nodes}")
        logarithmic(axes, "particles", "seconds to prepare" if axes is panels[0] else None)
        axes.set_title("single_mesh, the paper's way (dashed: sorting)" if method == "single_mesh" else method)
        axes.yaxis.set_major_locator(LogLocator())
        if axes.lines:
            axes.legend(loc="upper left", reverse=True)
    save(figure, f"guo_construction.{kind}", folder)


def totals(times, folder, kind):
    """The long version's figures of totals: preparing once and spreading n times, the particle method = 1."""
    meshes = sorted({int(r["K"]) for r in times.pick(figure="long_totals")})
    shown = [n for n in TIMES if n != 100]
    figure, panels = figure_of(len(shown), max(len(meshes), 1), 10.4, 7.6, sharex=True, sharey="row")
    handles = {}
    for row, applications in enumerate(shown):
        for axes, nodes in zip(panels[row], meshes, strict=False):
            column = f"total_{applications}_s"
            base = dict(points_of(times, column, figure="long_totals", method="particle", K=nodes))
            for method in times.methods("long_totals"):
                default = points_of(times, column, figure="long_totals", method=method, options="", K=nodes)
                points = [(n, s / base[n]) for n, s in default if n in base]
                if points and method != "particle":
                    draw(axes, points, LOOKS.get(method, QUIET))
                    handles[method] = axes.lines[-1]
            logarithmic(axes, "particles" if row == len(shown) - 1 else None, None)
            ratios(axes, [10.0**power for power in range(-3, 6)])
            axes.axhline(1, color=BLUE, linewidth=1.6)
            axes.set_title(f"K = {nodes}" if row == 0 else "")
        panels[row][0].set_ylabel(f"{applications} spread{'s' * (applications > 1)}\ntime, particle = 1")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    save(figure, f"guo_totals.{kind}", folder)


def best(times, folder, kind):
    """Which method of all is the fastest, preparation included, by particles and mesh."""
    figure, (panels,) = figure_of(1, len(TIMES), 10.4, 2.7, sharey=True)
    seen = {}
    for axes, applications in zip(panels, TIMES, strict=True):
        fastest = times.totals(applications)
        meshes, sizes = sorted({k for k, _ in fastest}), sorted({n for _, n in fastest})
        for (nodes, count), by in fastest.items():
            method = min(by, key=lambda name: by[name])
            x, y = sizes.index(count), meshes.index(nodes)
            tile = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, color=LOOKS.get(method, QUIET), linewidth=0)
            axes.add_patch(tile)
            seen[method] = tile
        axes.set(xlim=(-0.6, len(sizes) - 0.4), ylim=(-0.6, len(meshes) - 0.4))
        whole = [i for i, n in enumerate(sizes) if round(math.log10(n), 6) % 1 == 0]
        axes.set_xticks(whole, [size(sizes[i]) for i in whole])
        axes.set_yticks(range(len(meshes)), [f"{k}³" for k in meshes])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{applications} spread{'s' * (applications > 1)}")
        axes.set_xlabel("particles")
    figure.legend(seen.values(), seen.keys(), loc="outside lower center", ncols=8)
    save(figure, f"guo_best.{kind}", folder)


def main():
    args = command_line(__doc__).parse_args()
    times = Times.read(args.results, args.device)
    with matplotlib.rc_context({**STYLE, **PLOT}):
        for picture in (choices, atomics, spreading, construction, totals, best):
            picture(times, args.out, args.kind)


if __name__ == "__main__":
    main()
