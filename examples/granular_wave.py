# SPDX-License-Identifier: BSD-3-Clause
"""A column of spheres collapses, runs as a wave along a floor, and climbs a beach at the end of the box.

    python examples/granular_wave.py
    python examples/granular_wave.py --backend cuda --count 1000000 --trajectory wave.vtu --picture wave.png

The beach is a tilted plane beside the walls of the box. ParaView opens wave.vtu.series. The picture is a view from the
side, coloured by speed; it needs matplotlib.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

from particlemesh.apps.dem import Hertz, Plane, Simulation

RADIUS, DENSITY, GRAVITY = 0.005, 2500.0, 9.81  # m, kg/m³, m/s²
SLOPE, FOOT = math.radians(20.0), 0.6  # of the beach, which begins at this part of the floor


def column(count: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Return spheres in the left part of a box, on a lattice with a little disorder, and the box."""
    site = 2.1 * RADIUS
    deep = max(round((count / 6) ** (1 / 3)), 2)
    wide, high = 2 * deep, math.ceil(count / (2 * deep**2))
    n = np.arange(count)
    cells = np.stack([n % wide, n // wide % deep, n // (wide * deep)], axis=1)
    positions = (cells + 0.5) * site + rng.uniform(-0.02, 0.02, (count, 3)) * RADIUS
    return positions, (3 * wide * site, deep * site, 1.2 * high * site)


def wave(count: int, friction: float, backend: str, deterministic: bool = True) -> Simulation:
    """Return the column, at rest in its box."""
    positions, box = column(count, np.random.default_rng(1))
    beach = Plane(point=(FOOT * box[0], 0, 0), normal=(-math.sin(SLOPE), 0, math.cos(SLOPE)))
    return Simulation(
        positions, RADIUS, density=DENSITY, box=box, periodic=(False, True, False), walls=[beach], gravity=GRAVITY,
        contact=Hertz(young=5e6, poisson=0.3, restitution=0.7, friction=friction), backend=backend,
        deterministic=deterministic,
    )  # fmt: skip


def draw(path: str, views: Sequence[tuple[float, np.ndarray, np.ndarray]], box: Sequence[float]) -> None:
    """Draw times, positions and speeds from the side."""
    import matplotlib.pyplot as plt
    from matplotlib.collections import EllipseCollection

    fastest = max(float(speeds.max()) for _, _, speeds in views) or 1.0
    figure, panels = plt.subplots(len(views), 1, figsize=(9, (0.4 + 8 * box[2] / box[0]) * len(views)), sharex=True)
    for axes, (time, x, speeds) in zip(panels, views, strict=True):
        near = np.argsort(-x[:, 1])  # the nearest last, on top
        discs = EllipseCollection(
            2 * RADIUS, 2 * RADIUS, 0, units="xy", offsets=x[near][:, [0, 2]], offset_transform=axes.transData,
            array=speeds[near], clim=(0, 0.8 * fastest), cmap="YlGnBu_r", edgecolor="0.15", linewidth=0.25,
        )  # fmt: skip
        axes.add_collection(discs)
        axes.plot([FOOT * box[0], box[0]], [0, (1 - FOOT) * box[0] * math.tan(SLOPE)], color="0.3")
        axes.set(aspect="equal", xlim=(0, box[0]), ylim=(0, box[2]), ylabel="z / m")
        axes.text(0.98, 0.9, f"{time:.2f} s", transform=axes.transAxes, ha="right", va="top")
    panels[-1].set_xlabel("x / m")
    figure.subplots_adjust(hspace=0.08)
    figure.colorbar(discs, ax=panels, label="speed / (m/s)", extend="max", fraction=0.03, pad=0.02, aspect=45)
    figure.savefig(path, dpi=130, bbox_inches="tight")


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="a column of spheres collapses and climbs a beach")
    parser.add_argument("--backend", choices=("cpu", "opencl", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=3000, help="spheres")
    parser.add_argument("--friction", type=float, default=0.05)
    parser.add_argument("--falls", type=float, default=4.0, help="length of the run, in times that a fall takes")
    parser.add_argument("--trajectory", help="a file .vtu, .gsd, .xyz or .h5")
    parser.add_argument("--checkpoint", help="a file .h5, written at the end")
    parser.add_argument("--picture", help="a file .png")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> dict[str, float]:
    """Run the wave, print a table, and return how far it went and the energy at the end."""
    chosen = options(words)
    motion = wave(chosen.count, chosen.friction, chosen.backend)
    box = motion.domain.lengths
    pieces = 8
    steps = math.ceil(chosen.falls * math.sqrt(2 * box[2] / GRAVITY) / motion.time_step / pieces)
    print(f"{len(motion):,} spheres, {pieces * steps:,} steps of {motion.time_step:.3g} s on {motion.backend}\n")
    print(f"{'time / s':>9}{'front / m':>11}{'height / m':>12}{'kinetic / J':>13}{'total / J':>11}{'contacts':>10}")
    begin = motion.energy.total
    farthest, views = 0.0, []
    for piece in range(pieces + 1):
        if piece:
            motion.run(steps, **({"trajectory": chosen.trajectory, "every": steps} if chosen.trajectory else {}))
        x, energy = motion.positions, motion.energy
        front = float(np.quantile(x[:, 0], 0.99))  # single spheres fly ahead
        farthest = max(farthest, front)
        row = f"{motion.time:>9.3f}{front:>11.3f}{x[:, 2].max():>12.3f}"
        print(f"{row}{energy.translation + energy.rotation:>13.3g}{energy.total:>11.4g}{len(motion.contacts.i):>10,}")
        if piece % 2 == 0:
            views.append((motion.time, x, np.linalg.norm(motion.velocities, axis=1)))
    if chosen.checkpoint:
        motion.save(chosen.checkpoint)
    if chosen.picture:
        draw(chosen.picture, views, box)
    return {"farthest": farthest / box[0], "left": motion.energy.total / begin}


if __name__ == "__main__":
    main()
