# SPDX-License-Identifier: BSD-3-Clause
"""Draw figures 2 and 3 of Barbieri et al. (2013) from the CSV file of the column, into docs/pictures.

``python tools/docs/column_pictures.py`` writes column_steps.svg and column_insertions.svg. Needs matplotlib only;
measures nothing. Run it again when ``benchmarks/results`` has new figures, and commit what it writes.
"""

import matplotlib
from grid_pictures import LOOKS, PLOT, Rows, figure_of, save, sizes_along
from pictures import INK, STYLE, command_line

DESIGNS = {  # designs of the file, and builders that grid_pictures.py has a colour for
    "storage linked_list_loose": "linked_list_loose", "storage linked_list_packed": "linked_list_packed",
    "storage linked_list_tight": "linked_list_tight", "storage fixed": "fixed column", "storage sort": "sort linear",
}  # fmt: skip


def lines(axes, rows, column, scale, powers):
    """Draw a column of every design by size; the fused design is the thick line."""
    for design in (*DESIGNS, "fused auto"):
        name, colour, _, marker = LOOKS[DESIGNS[design]] if design in DESIGNS else ("fused", INK, "-", "*")
        points = [p for p in rows.line("N", column, scale, design=design, cells=64) if p[0] in powers]
        if points:
            width = 1.6 if design in DESIGNS else 2.6
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=name, linewidth=width)
    sizes_along(axes, powers)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def steps(rows, folder, kind):
    """The paper's figure 2 today."""
    figure, (axes,) = figure_of(1, height=4.6)
    lines(axes, rows, "mpups", 1e-3, [2**power for power in range(7, 23)])
    axes.set_ylabel("10⁹ particle updates per second")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    save(figure, f"column_steps.{kind}", folder)


def insertions(rows, folder, kind):
    """The paper's figure 3 today."""
    figure, panels = figure_of(2, height=4.2)
    for axes, title, powers in zip(panels, ("small sizes", "large sizes"), (range(7, 15), range(15, 23)), strict=True):
        lines(axes, rows, "insertions", 1e-9, [2**power for power in powers])
        axes.set_title(title)
        axes.set_ylabel("10⁹ insertions per second, slowest step")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    save(figure, f"column_insertions.{kind}", folder)


def main():
    args = command_line(__doc__).parse_args()
    file = args.results / f"barbieri-column-{args.device}.csv"
    if not file.exists():
        raise SystemExit(f"{file} does not exist: run studies/barbieri/run.py on that device first.")
    with matplotlib.rc_context({**STYLE, **PLOT}):
        rows = Rows(file)
        for draw in (steps, insertions):
            draw(rows, args.out, args.kind)


if __name__ == "__main__":
    main()
