# SPDX-License-Identifier: BSD-3-Clause
"""Draw the README's chart of times against other libraries, from the CSV files of benchmarks, into docs/pictures.

``python tools/docs/peer_pictures.py`` writes peers.svg. Measures nothing. A test compares `ratios` with the README.
"""

import csv
import math
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
DIRECTIONS = ("spread", "interpolate")
CPU = {
    "finufft, EPYC, 2 threads": "cpu-amd-epyc-2-threads.csv",
    "finufft, Xeon, 16 threads": "cpu-intel-r-xeon-r-processor-16-threads.csv",
}
GPU = {
    "cuFINUFFT, NVIDIA H100": "limit-peer-nvidia-h100-80gb-hbm3.csv",
    "cuFINUFFT, NVIDIA H200": "limit-peer-nvidia-h200.csv",
}


def ratios(results=RESULTS):
    """Return the peer's time over ours for every measured case, by peer and direction."""
    ratios_of = {}
    for name, file in CPU.items():
        uniform = {"cloud": "uniform", "N": "1000000", "K": "128", "threads": name.split()[-2]}
        rows = [row for row in rows_of(results / file) if uniform.items() <= row.items()]
        ratios_of[name] = {d: [float(row["ratio"]) for row in rows if row["operation"] == d] for d in DIRECTIONS}
    for name, file in GPU.items():
        best = {}  # of our methods, for each case
        for row in rows_of(results / file):
            case = tuple(row[key] for key in ("direction", "dtype", "p", "K", "N"))
            best[case] = max(best.get(case, 0.0), float(row["ratio"]))
        ratios_of[name] = {d: [ratio for case, ratio in best.items() if case[0] == d] for d in DIRECTIONS}
    return ratios_of


def rows_of(file):
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def mean(values):
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def cells(ratios_of):
    """Return the cells of the README's table: mean and least ratio of each direction, by peer."""
    return {name: [f"{mean(by[d]):.1f} ({min(by[d]):.1f})" for d in DIRECTIONS] for name, by in ratios_of.items()}


def draw(ratios_of, folder, kind):
    """Draw each case as a dot and the mean as a bar; right of the line at 1 we are faster."""
    import matplotlib.pyplot as plt
    from grid_pictures import save
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
    from pictures import BLUE, INK, ORANGE, QUIET

    figure, axes = plt.subplots(figsize=(9.2, 3.7), layout="constrained")
    place, labels = 0.0, []
    for name, by in ratios_of.items():
        for direction, colour in zip(DIRECTIONS, (BLUE, ORANGE), strict=True):
            axes.barh(place, mean(by[direction]) - 1, left=1, height=0.55, color=colour, alpha=0.35)
            axes.plot(by[direction], [place] * len(by[direction]), "o", color=colour, markersize=3.5)
            labels.append((place, f"{name}: {direction}"))
            place -= 1
        place -= 0.4
    axes.set_xscale("log")
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks([at for at, _ in labels], [text for _, text in labels])
    axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 3, 5, 10, 20]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="x", color=QUIET, alpha=0.3, linewidth=0.6)
    axes.set_xlabel("time of the peer / our time: one dot for each case, bars are geometric means")
    save(figure, f"peers.{kind}", folder)


def main():
    import matplotlib
    from grid_pictures import PLOT
    from pictures import STYLE, command_line

    args = command_line(__doc__).parse_args()
    with matplotlib.rc_context({**STYLE, **PLOT}):
        draw(ratios(args.results), args.out, args.kind)


if __name__ == "__main__":
    main()
