# SPDX-License-Identifier: BSD-3-Clause
"""The picture of ``particlemesh demo``. Its functions import matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np

from particlemesh.apps.files import replacing

INK = "#2b2b2b"
QUIET = "#8a8a8a"
# Okabe and Ito's palette, without its yellow: safe for colour-blind readers and dark enough on white.
PALETTE = ("#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
TEXT: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # part of matplotlib: the same picture on every machine
    "mathtext.fontset": "dejavusans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
}


def density_and_error(
    path: str | PathLike,
    density_slice: np.ndarray,
    extent: tuple[float, float, float, float],
    errors: dict[str, list[tuple[int, float]]],
    title: str,
    units: str,
) -> None:
    """Write one wide PNG: a map of charge density, and error against mesh size for each window.

    Parameters
    ----------
    path : path-like
        File of the PNG.
    density_slice : ndarray, shape (K1, K2)
        Density at the nodes of a slice, or averaged over a slab, indexed [x, y].
    extent : (x0, x1, y0, y1)
        Borders of the slice, in nm.
    errors : dict
        Window name to its points (nodes per axis, relative error), from `demo.mesh_errors`. Errors are those
        of the mesh part of the electrostatic potential at the particles, root mean square. They are divided
        by the root-mean-square of that potential. Only finite positive points are drawn.
    title : str
        Headline above both panels.
    units : str
        Unit of the density for the colour bar, such as ``"e/nm³"``.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(TEXT):
        figure = Figure(figsize=(11.6, 5.2), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(0.055, 0.94, title, fontsize=14, fontweight="bold", va="center")
        _density(figure, np.asarray(density_slice), extent, units)
        _errors(figure.add_axes((0.568, 0.13, 0.345, 0.71)), errors)
        with replacing(path, overwrite=True) as part:
            figure.savefig(part, format="png")


def _density(figure, density, extent, units):
    axes = figure.add_axes((0.055, 0.13, 0.3185, 0.71))  # 0.3185 * 11.6 in = 0.71 * 5.2 in: a square
    # The few nodes nearest to ions must not determine the colour scale.
    limit = _round_up(float(np.quantile(np.abs(density), 0.99)))
    image = axes.imshow(
        density.T,
        origin="lower",
        extent=extent,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="bicubic",
        aspect="equal",
    )
    axes.set(xlabel="x / nm", ylabel="y / nm")
    axes.set_title("Charge density on the mesh", loc="left", pad=9)
    axes.tick_params(length=3)
    box = axes.get_position()
    bar_axes = figure.add_axes((box.x1 + 0.012, box.y0, 0.012, box.height))
    beyond = "both" if np.abs(density).max() > limit else "neither"
    bar = figure.colorbar(image, cax=bar_axes, extend=beyond, extendfrac=0.03)
    bar.set_ticks([-limit, -limit / 2, 0, limit / 2, limit])
    bar.ax.set_yticklabels([_signed(value) for value in (-limit, -limit / 2, 0, limit / 2, limit)])
    bar.set_label(units, labelpad=2)
    bar.outline.set_linewidth(0.8)
    bar.ax.tick_params(length=3)


def _errors(axes, errors):
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

    sizes, ends = set(), []
    for index, (name, points) in enumerate(errors.items()):
        points = sorted((k, e) for k, e in points if np.isfinite(e) and e > 0)
        if not points:
            continue
        k, e = zip(*points, strict=True)
        colour = PALETTE[index % len(PALETTE)]
        marker = MARKERS[index % len(MARKERS)]
        axes.loglog(k, e, color=colour, marker=marker, markersize=5, linewidth=1.8, clip_on=False, zorder=3)
        sizes.update(k)
        ends.append((e[-1], name, colour, _slope(k[-3:], e[-3:])))
    axes.set(xlabel="nodes per axis", ylabel="relative error (rms)")
    axes.set_title("Error of the mesh potential at the atoms", loc="left", pad=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    if not sizes:
        return
    axes.set_xlim(min(sizes) / 1.06, max(sizes) * 1.06)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes)))
    axes.set_xticklabels([str(k) for k in sorted(sizes)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=12))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = np.log10(axes.get_ylim())
    heights = _apart([(np.log10(value) - low) / (high - low) for value, _, _, _ in ends])
    for height, (_, name, colour, slope) in zip(heights, ends, strict=True):
        place = {"transform": axes.transAxes, "color": colour}
        axes.text(1.03, height, name, va="bottom", fontweight="bold", fontsize=9.5, **place)
        if slope:
            place["color"] = QUIET
            axes.text(1.03, height - 0.008, slope, va="top", fontsize=8.5, **place)


def _slope(sizes: Sequence[int], errors: Sequence[float]) -> str:
    """Return the label of the measured slope of the last points."""
    if len(sizes) < 2:
        return ""
    return f"slope {np.polyfit(np.log(sizes), np.log(errors), 1)[0]:+.1f}".replace("-", "−")


def _apart(heights: Sequence[float], gap: float = 0.095) -> list[float]:
    """Return heights (axes fraction) of the labels: those of the lines' ends, at least ``gap`` apart."""
    heights = list(heights)
    order = np.argsort(heights)
    for _ in range(50):
        for lower, upper in pairwise(order):
            missing = gap - (heights[upper] - heights[lower])
            if missing > 0:
                heights[lower] -= missing / 2
                heights[upper] += missing / 2
    return heights


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 6, 8 times a power of ten, whose half also has one digit."""
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step for step in (1, 2, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9)) * power)


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"
