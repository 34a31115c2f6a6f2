# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of the tutorials on potentials and power spectra, into docs/pictures.

``python tools/docs/fourier_pictures.py`` writes fourier_poisson.svg and fourier_power.svg in half a minute. Needs
matplotlib. Commit what it writes.
"""

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from pictures import BLUE, INK, ORANGE, QUIET, STYLE, save

import particlemesh as pm
from particlemesh.fourier import Solver, Transform, power_spectrum


def panel(width, height):
    """Return a figure and its only panel."""
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def poisson():
    """Eight charges on a ring: potential and forces."""
    angles = 2 * np.pi * np.arange(8) / 8
    positions = 0.5 + 0.3 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    charges = np.where(np.arange(8) % 2, -1.0, 1.0)
    mesh = pm.Mesh((64, 64), (1.0, 1.0))
    solver = Solver(mesh, "bspline6", green="ewald", alpha=20.0).set_positions(positions)
    forces = -charges[:, None] * solver.gradient(charges)
    transform = Transform(mesh, "bspline6")
    density = pm.spread(positions, charges, mesh, window="bspline6") / mesh.node_volume
    field = transform.apply(density, transform.green("ewald", alpha=20.0, compensation="spread"))
    figure, axes = panel(5.4, 4.4)
    most = np.abs(field).max()
    levels = np.linspace(-most, most, 22)
    image = axes.contourf(mesh.nodes(0), mesh.nodes(1), field.T, levels, cmap="RdBu_r")
    for sign, mark in ((1, "+"), (-1, "_")):
        x, y = positions[charges == sign].T
        axes.scatter(x, y, s=46, marker=mark, color="white", linewidths=1.6, zorder=4)
    axes.quiver(*positions.T, *forces.T, color=INK, width=0.007, scale=5, zorder=3)
    axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(0, 0.98), ylim=(0, 0.98))
    bar = figure.colorbar(image, ax=axes, label="potential")
    bar.set_ticks(np.linspace(-0.2, 0.2, 5))
    save(figure, "fourier_poisson.svg")


def power():
    """Clustered points: two ways to measure their spectrum, and the law."""
    mesh, sigma, sets = pm.Mesh((32, 32, 32), (1.0, 1.0, 1.0)), 0.01, 8
    ways = {
        "cic, divided by W²": ("cic", False, "window", ORANGE),
        "cic, divided by the sum over aliases": ("cic", False, "aliases", QUIET),
        "pcs, interlaced, divided by the sum over aliases": ("pcs", True, "aliases", BLUE),
    }
    totals = dict.fromkeys(ways, 0.0)
    for seed in range(sets):
        random = np.random.default_rng(seed)
        points = (random.random((8000, 1, 3)) + sigma * random.standard_normal((8000, 5, 3))).reshape(-1, 3)
        for name, (window, interlaced, compensation, _) in ways.items():
            spectrum = power_spectrum(
                points, np.ones(len(points)), mesh, window=window, interlaced=interlaced, compensation=compensation
            )
            totals[name] = totals[name] + spectrum.power * len(points) / sets
    figure, axes = panel(6.4, 4.0)
    k = np.linspace(1, spectrum.k[-1], 200)
    axes.plot(k, 1 + 4 * np.exp(-((k * sigma) ** 2)), color=INK, linewidth=1, label="law")
    for name, total in totals.items():
        axes.plot(spectrum.k, total, "o", color=ways[name][-1], markersize=4, label=name)
    axes.axvline(32 * np.pi, color=QUIET, linewidth=0.8, linestyle=":")
    axes.annotate(
        "highest mode", (32 * np.pi, 5.6), xytext=(-4, 0), textcoords="offset points", ha="right", color=QUIET
    )
    axes.set(xlabel="k", ylabel="power, in units of the shot noise", ylim=(0, 6))
    axes.legend(frameon=False, loc="lower left")
    save(figure, "fourier_power.svg")


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        poisson()
        power()
