# SPDX-License-Identifier: BSD-3-Clause
"""Draw the windows and their errors into docs/pictures: ``python tools/docs/window_pictures.py``; measures nothing.

window_shapes.svg has the windows and their slopes, window_errors.svg the error of a wave against its length in nodes.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from grid_pictures import PINK, PLOT, SKY, save
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from pictures import BLUE, INK, ORANGE, QUIET, STYLE, command_line

import particlemesh as pm

SHAPES = (("cic", SKY), ("bspline4", BLUE), ("bspline6", INK), ("m4prime", ORANGE), ("peskin4", PINK))
TURNS = np.arange(-30, 31)


def of(name):
    """Return a window by its name; prolate windows by their support."""
    return pm.prolate(int(name.removeprefix("prolate"))) if name.startswith("prolate") else NAMED[name]


NAMED = {f"bspline{n}": pm.bspline(n) for n in (2, 3, 4, 6, 8)}
NAMED |= {"cic": pm.bspline(2), "tsc": pm.bspline(3), "m4prime": pm.m4prime(), "peskin4": pm.peskin4()}


def aliases(window, length):
    """Return the error of a wave of some nodes' length: the rms of its aliases over itself, after compensation."""
    k = 2 * np.pi / np.asarray(length, float)
    transform = window.fourier(k[..., None] + 2 * np.pi * TURNS)
    wave, others = transform[..., TURNS == 0], transform[..., TURNS != 0]
    return np.linalg.norm(others, axis=-1) / abs(wave[..., 0])


def shapes(folder, kind):
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    x = np.linspace(-3, 3, 1201)
    for name, colour in SHAPES:
        panels[0].plot(x, of(name)(x), color=colour, label=name)
        if name != "cic":
            panels[1].plot(x, of(name).derivative(x), color=colour)
    for axes, title in zip(panels, ("window", "its slope"), strict=True):
        axes.axhline(0, color=QUIET, linewidth=0.8, zorder=0)
        axes.set(title=title, xlabel="distance of the node / spacing")
    panels[0].legend(frameon=False)
    save(figure, f"window_shapes.{kind}", folder)


def errors(folder, kind):
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 4.0), sharey=True, layout="constrained")
    length = np.geomspace(2.02, 64, 400)
    splines = [(f"bspline{n}", colour) for n, colour in ((2, SKY), (3, PINK), (4, BLUE), (6, INK), (8, QUIET))]
    others = [("bspline4", BLUE), ("m4prime", ORANGE), ("peskin4", PINK), ("prolate4", SKY), ("prolate6", INK)]
    for axes, names, title in zip(panels, (splines, others), ("B-splines", "other windows"), strict=True):
        for name, colour in names:
            line = "--" if name.startswith("prolate") else "-"
            axes.plot(length, aliases(of(name), length), line, color=colour, label=name)
        axes.set(xscale="log", yscale="log", ylim=(1e-10, 3), title=title, xlabel="nodes per wavelength")
        axes.xaxis.set_major_locator(FixedLocator([2, 4, 8, 16, 32, 64]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(color=QUIET, alpha=0.25, linewidth=0.6)
        axes.legend(frameon=False, loc="lower left")
    panels[0].set_ylabel("aliases / wave")
    save(figure, f"window_errors.{kind}", folder)


if __name__ == "__main__":
    arguments = command_line(__doc__).parse_args()
    with matplotlib.rc_context({**STYLE, **PLOT}):
        shapes(arguments.out, arguments.kind)
        errors(arguments.out, arguments.kind)
