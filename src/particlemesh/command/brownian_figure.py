# SPDX-License-Identifier: BSD-3-Clause
"""The picture of ``particlemesh brownian``. Its function imports matplotlib."""

from __future__ import annotations

from os import PathLike

import numpy as np

from particlemesh.apps.files import replacing
from particlemesh.command.brownian import Suspension
from particlemesh.command.figures import INK, PALETTE, QUIET, TEXT
from particlemesh.command.spheres import render

RAMP = ("#24557a", "#5b9cb8", "#f0e2c4", "#ec9a55", "#c2402a")  # from short to long ways
ROUND, FAINT = PALETTE[3], "#e6e6e6"


def suspension(path: str | PathLike, spheres: Suspension, title: str, mobility: str) -> None:
    """Write one wide PNG: the spheres, coloured by how far they moved, and the mean square displacement.

    Parameters
    ----------
    path : path-like
        File of the PNG.
    spheres : Suspension
    title : str
        Headline above the panels.
    mobility : {"rpy", "drag"}
        Which law the displacements are compared with.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    low, high = np.quantile(spheres.moved, (0.02, 0.98))
    colours, span = LinearSegmentedColormap.from_list("moved", RAMP), Normalize(low, high, clip=True)
    size = 720
    image = render(spheres.folded, 1.0, np.full(3, spheres.edge), colours(span(spheres.moved))[:, :3], size)
    with matplotlib.rc_context(TEXT):
        figure = Figure(figsize=(11.6, 5.2), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(0.045, 0.945, title, fontsize=14, fontweight="bold", va="center")
        axes = figure.add_axes((0.015, -0.015, 0.4303, 0.96))  # 0.4303 * 11.6 in = 0.96 * 5.2 in: a square
        axes.imshow(image, interpolation="lanczos")
        axes.set_axis_off()
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(span, colours), cax=figure.add_axes((0.447, 0.13, 0.009, 0.28)), extend="both"
        )
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2, labelsize=8.5, color=QUIET)
        bar.ax.set_title("distance moved / a", fontsize=8.5, loc="left", pad=8)
        _growth(figure.add_axes((0.59, 0.43, 0.365, 0.42)), spheres, mobility)
        _ratio(figure.add_axes((0.59, 0.12, 0.365, 0.22)), spheres)
        with replacing(path, overwrite=True) as part:
            figure.savefig(part, format="png")


def _growth(axes, spheres, mobility):
    """Draw the mean square displacement and its law."""
    t, law = spheres.times, 6 * spheres.law * spheres.times
    names = {"rpy": "6 μ kT t, μ of a sphere in the periodic box", "drag": "6 D t"}
    axes.loglog(t, law, color=INK, linewidth=1.4, label=names[mobility])
    if mobility == "rpy":
        axes.loglog(t, 6 * t, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), label="6 D t, one sphere alone")
    axes.loglog(t, spheres.squared, "o", color=ROUND, markersize=4.5, label="measured", zorder=3)
    axes.set_title("Mean square displacement / a²", loc="left", pad=9)
    axes.legend(frameon=False, fontsize=9, loc="upper left", handlelength=1.8)
    _plain(axes)
    axes.tick_params(labelbottom=False)


def _ratio(axes, spheres):
    """Draw what is measured relative to the law."""
    t, law = spheres.times, 6 * spheres.law * spheres.times
    axes.axhline(1, color=INK, linewidth=1.4)
    axes.errorbar(t, spheres.squared / law, spheres.errors / law, fmt="o", color=ROUND, markersize=4.5, linewidth=1.2)
    axes.set_xscale("log")
    axes.set(xlabel="time / (a²/D)")
    axes.set_title("measured / law", loc="left", fontsize=10, pad=6)
    _plain(axes)


def _plain(axes):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=3)
    axes.tick_params(which="minor", length=1.5)
