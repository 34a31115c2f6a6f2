# SPDX-License-Identifier: BSD-3-Clause
"""Draw the figures of Büyükkeçeci et al. (2013) from benchmarks' CSV files, into docs/pictures.

``python tools/docs/buyukkececi_pictures.py`` writes buyukkececi_convergence.svg, _noise.svg, _times.svg and
_breakdown.svg. Needs matplotlib only; measures nothing. Run it again when ``benchmarks/results`` has new figures, and
commit what it writes.
"""

import matplotlib
from grid_pictures import GREEN, PLOT, SKY, YELLOW, Rows, figure_of, save
from matplotlib.ticker import FuncFormatter, NullLocator
from pictures import BLUE, INK, ORANGE, QUIET, STYLE, command_line

WINDOWS = {"cic": "linear", "m4prime": "M'₄"}
DIRECTIONS = {"spread": "particle → mesh", "interpolate": "mesh → particle"}
STAGES = {"transfer": ORANGE, "ordering": SKY, "extended mesh": GREEN, "kernel": BLUE, "stitch, collect": YELLOW}
SHOWN = 1 / 8  # width of the function


def grid_of(rows, columns, width, height):
    """Return a figure and its panels, row by row."""
    figure, _ = figure_of(1, width, height)
    figure.clear()
    return figure, figure.subplots(rows, columns, squeeze=False)


def plain(axes, x="", y=""):
    """Grid, labels, and numbers as people write them."""
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def nodes_along(axes, nodes):
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def convergence(files, folder, kind):
    """Errors against the spacing: lines are the processor's, crosses the device's."""
    rows = files["convergence"]
    figure, panels = grid_of(2, 2, 9.2, 7.6)
    device = next((r["backend"] for r in rows.rows if r["backend"] != "cpu"), None)
    for line, what in zip(panels, ("interpolate", "remesh"), strict=True):
        for axes, (window, name) in zip(line, WINDOWS.items(), strict=True):
            for dims, colour in ((2, BLUE), (3, ORANGE)):
                for dtype, fill in (("float64", colour), ("float32", "white")):
                    for norm, dashes in (("l2", (0, (4, 2))), ("linf", (0, (1, 1.5)))):
                        case = dict(what=what, window=window, ndim=dims, dtype=dtype, width=SHOWN)
                        points = rows.line("nodes", norm, backend="cpu", **case)
                        if points:
                            axes.plot(*zip(*points, strict=True), linestyle=dashes, marker="s", color=colour,
                                      markerfacecolor=fill, markersize=5.5, linewidth=1.1)  # fmt: skip
                        points = rows.line("nodes", norm, backend=device, **case) if device else []
                        if points:
                            axes.plot(*zip(*points, strict=True), "x", color=INK, markersize=5)
            theirs = rows.line("nodes", "l2", what=what, window=window, ndim=2, dtype="float32", width=15.0,
                               backend="cpu")  # fmt: skip
            if theirs:
                axes.plot(*zip(*theirs, strict=True), color=QUIET, marker="o", markersize=3.5, linewidth=1)
            order = 2 if window == "cic" else 3
            points = rows.line("nodes", "l2", what=what, window=window, ndim=2, dtype="float64", width=SHOWN,
                               backend="cpu")  # fmt: skip
            if points:
                (n0, e0), (n1, _) = points[0], points[-1]
                axes.plot([n0, n1], [0.3 * e0, 0.3 * e0 * (n0 / n1) ** order], color=INK, linewidth=1.2)
                axes.annotate(f"order {order}", (n1, 0.3 * e0 * (n0 / n1) ** order), xytext=(-6, -2), fontsize=9,
                              textcoords="offset points", ha="right", va="top")  # fmt: skip
                nodes_along(axes, [p[0] for p in points])
            axes.set_yscale("log")
            axes.set_title(
                f"{name}, {'mesh → particle, cloud' if what == 'interpolate' else 'particle → mesh, lattice'}"
            )
            plain(axes, "nodes of an axis, 1/h", "relative error")
    handles = [
        panels[0][0].plot([], [], color=BLUE, marker="s", label="2-D")[0],
        panels[0][0].plot([], [], color=ORANGE, marker="s", label="3-D")[0],
        panels[0][0].plot([], [], color=QUIET, marker="s", markerfacecolor="white", label="float32")[0],
        panels[0][0].plot([], [], color=INK, linestyle=(0, (4, 2)), label="l²")[0],
        panels[0][0].plot([], [], color=INK, linestyle=(0, (1, 1.5)), label="max")[0],
        panels[0][0].plot([], [], "x", color=INK, label="GPU")[0],
        panels[0][0].plot([], [], color=QUIET, marker="o", markersize=3.5, label="their g, 2-D float32, l²")[0],
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7)
    save(figure, f"buyukkececi_convergence.{kind}", folder)


def noise(files, folder, kind):
    """Spreading a random cloud does not converge to the function, and what it looks like."""
    rows = files["convergence"]
    figure, (left, right) = figure_of(2, height=4.0)
    for window, colour in (("cic", BLUE), ("m4prime", ORANGE)):
        for dims, fill in ((2, colour), (3, "white")):
            case = dict(window=window, ndim=dims, dtype="float64", backend="cpu")
            label = f"{WINDOWS[window]}, {dims}-D"
            lattice = rows.line("nodes", "l2", what="remesh", width=15.0, **case)
            random = rows.line("nodes", "l2", what="scatter", **case)
            expected = rows.line("nodes", "expected", what="scatter", **case)
            if random:
                left.plot(*zip(*random, strict=True), "o", color=colour, markerfacecolor=fill, label=label)
                left.plot(*zip(*expected, strict=True), color=colour, linewidth=1, linestyle=(0, (3, 2)))
            if lattice:
                left.plot(*zip(*lattice, strict=True), color=colour, marker="s", markersize=4, markerfacecolor=fill)
        profile = rows.line("at", "found", what="profile", window=window, backend="cpu")
        if profile:
            right.plot(*zip(*profile, strict=True), color=colour, linewidth=1.1, label=WINDOWS[window])
    exact = rows.line("at", "exact", what="profile", window="cic", backend="cpu")
    if exact:
        right.plot(*zip(*exact, strict=True), color=INK, linewidth=1.6, label="g")
    nodes_along(left, sorted({float(r["nodes"]) for r in rows.pick(what="scatter", ndim=2, backend="cpu")}))
    left.set_yscale("log")
    left.set_title("circles: their cloud; squares: a lattice")
    plain(left, "nodes of an axis, 1/h", "relative error, l²")
    right.set_title("their cloud on a line of nodes, 2-D")
    plain(right, "y", "what a node gets")
    left.legend(loc="upper left", bbox_to_anchor=(0, 0.9), ncols=2)
    right.legend(ncols=3, loc="lower center")
    right.set_ylim(bottom=-0.8)
    save(figure, f"buyukkececi_noise.{kind}", folder)


def times(files, folder, kind):
    """Times from particles in no order to the result, against the size, in single precision."""
    rows = files["times"]
    figure, panels = grid_of(2, 4, 12.4, 6.6)
    for line, direction in zip(panels, DIRECTIONS, strict=True):
        for axes, (dims, window) in zip(line, [(d, w) for d in (2, 3) for w in WINDOWS], strict=True):
            case = dict(direction=direction, ndim=dims, window=window, dtype="float32", order="nodes")
            here = [r for r in rows.pick(**case) if r["backend"] != "cpu"]
            there = [r for r in rows.pick(**case) if r["backend"] == "cpu"]
            for method in dict.fromkeys(r["method"] for r in here):
                if method not in ("particle", "domain_copies"):
                    curve(axes, [r for r in here if r["method"] == method], "#c2c2c2", label="other methods",
                          linewidth=0.9)  # fmt: skip
            curve(axes, [r for r in here if r["method"] == "particle"], GREEN, marker="^", label="particle")
            curve(axes, [r for r in here if r["method"] == "domain_copies"], BLUE, marker="o",
                  label="domain_copies, theirs")  # fmt: skip
            sent = {int(r["N"]): float(r["transfer_s"]) * 1e3 for r in here}
            if sent:
                axes.plot(*zip(*sorted(sent.items()), strict=True), color=ORANGE, linestyle=(0, (3, 2)),
                          label="transfers alone")  # fmt: skip
            curve(axes, [r for r in there if r["threads"] != "1"], INK, marker="s", label="processor, all threads")
            curve(axes, [r for r in there if r["threads"] == "1"], QUIET, marker="s", label="processor, one thread")
            axes.set_xscale("log")
            axes.set_yscale("log")
            counts = sorted({int(r["N"]) for r in here})
            axes.set_xticks(counts, [f"{n / 1e6:.2g} M" for n in counts])
            axes.minorticks_off()
            axes.set_title(f"{WINDOWS[window]} {dims}-D, {'P→M' if direction == 'spread' else 'M→P'}")
            plain(axes, "particles" if direction == "interpolate" else "", "ms" if (dims, window) == (2, "cic") else "")
    handles = {}
    for axes in panels.ravel():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    save(figure, f"buyukkececi_times.{kind}", folder)


def curve(axes, rows, colour, label, marker=None, linewidth=1.6):
    """Draw total times of rows, the fastest of each size."""
    best = {}
    for row in rows:
        best[int(row["N"])] = min(best.get(int(row["N"]), float("inf")), float(row["total_s"]) * 1e3)
    if best:
        axes.plot(*zip(*sorted(best.items()), strict=True), color=colour, marker=marker, label=label,
                  linewidth=linewidth)  # fmt: skip


def breakdown(files, folder, kind):
    """Which stage takes which share of the time, transfers included."""
    rows = files["breakdown"]
    cases = [(d, n, w, t) for d in DIRECTIONS for n in (2, 3) for w in WINDOWS for t in ("float32", "float64")]
    theirs = {("interpolate", 3, "m4prime", "float32"): "a", ("spread", 2, "cic", "float64"): "b"}
    figure, panels = figure_of(2, 9.2, 4.4)
    for axes, direction in zip(panels, DIRECTIONS, strict=True):
        shown = [c for c in cases if c[0] == direction]
        names = []
        for place, (way, dims, window, dtype) in enumerate(reversed(shown)):
            case = dict(direction=way, ndim=dims, window=window, dtype=dtype, method="domain_copies")
            left, whole = 0.0, sum(float(r["seconds"]) for r in rows.pick(**case))
            for stage, colour in STAGES.items():
                for row in rows.pick(stage=stage, **case):
                    axes.barh(place, 100 * float(row["seconds"]) / whole, left=left, color=colour, height=0.7)
                    left += 100 * float(row["seconds"]) / whole
            if whole:
                axes.text(101, place, f"{whole * 1e3:.3g} ms", va="center", fontsize=9)
            mark = theirs.get((way, dims, window, dtype))
            names.append(f"{WINDOWS[window]} {dims}-D {dtype[5:]} bit" + (f" ({mark})" if mark else ""))
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_xlim(0, 118)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("% of the time")
        axes.set_title(DIRECTIONS[direction])
    handles = [panels[0].barh([0], [0], color=colour, label=stage) for stage, colour in STAGES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    save(figure, f"buyukkececi_breakdown.{kind}", folder)


def main():
    args = command_line(__doc__).parse_args()
    names = {
        what: args.results / f"buyukkececi-{what}-{args.device}.csv" for what in ("convergence", "times", "breakdown")
    }
    files = {what: Rows(path) for what, path in names.items() if path.exists()}
    with matplotlib.rc_context({**STYLE, **PLOT}):
        for draw, what in ((convergence, "convergence"), (noise, "convergence"), (times, "times"),
                           (breakdown, "breakdown")):  # fmt: skip
            if what in files:
                draw(files, args.out, args.kind)


if __name__ == "__main__":
    main()
