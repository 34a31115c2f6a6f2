# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of ``particlemesh dem``: a series of renderings, or an animation. Its functions import matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.dem import Energy, Simulation
from particlemesh.apps.files import replacing
from particlemesh.command.figures import INK, PALETTE, QUIET, TEXT
from particlemesh.command.spheres import extent, render

RAMP = ("#16365f", "#2b7aa6", "#86c2bd", "#f5e7bd", "#f2a14a", "#cc3b2b")  # from rest to the fastest
PANELS, FRAMES = 6, 72
# When a series looks, in parts of the run: most happens early.
MOMENTS = (0.0, 0.16, 0.30, 0.45, 0.65, 1.0)
BRIGHT = 0.8  # of the speed of a free fall down the box: the end of the colours
GAMMA = 0.6  # slow motion gets more of the colours than its part
MILLISECONDS = 60  # of one frame
INCHES, DPI = 11.6, 150
ABOVE = 0.15  # inches, for the time above a rendering
SIZES = (800, 1100)  # pixels of a rendering, for a series and for an animation


class Shot(NamedTuple):
    """One rendering."""

    time: float
    picture: np.ndarray  # (rows, columns, 3) uint8


class Camera:
    """Renders a simulation from one place, with one scale of colours.

    Parameters
    ----------
    simulation : Simulation
        At its start, with arrays of NumPy.
    speed : float
        Which is drawn in the last colour.
    size : int
        Pixels along the longest side of a box, about.
    """

    def __init__(self, simulation: Simulation, speed: float, size: int) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        self.size, self.radii = size, simulation.radii
        self.colours = LinearSegmentedColormap.from_list("speed", RAMP)
        self.scale = PowerNorm(GAMMA, 0, speed, clip=True)
        self.origin, lengths = (np.array(x, float) for x in (simulation.domain.origin, simulation.domain.lengths))
        endless = ~np.isfinite(lengths)
        if endless.any():  # such axes end where the particles are now
            x, r = simulation.positions, self.radii[:, None]
            self.origin[endless] = (x - r).min(axis=0)[endless]
            lengths[endless] = (x + r).max(axis=0)[endless] - self.origin[endless]
        self.edges = lengths
        self.window = extent(self.edges, size)

    def shoot(self, simulation: Simulation) -> Shot:
        """Return a rendering of the present state."""
        speeds = np.linalg.norm(simulation.velocities, axis=1)
        centres = simulation.positions - self.origin
        colours = self.colours(self.scale(speeds))[:, :3]
        picture = render(centres, self.radii, self.edges, colours, self.size, haze=0.2)
        return Shot(simulation.time, np.rint(picture[self.window] * 255).astype(np.uint8))


def moments(path: PathLike, steps: int) -> list[int]:
    """Return the steps of a run that the picture of this name shows: a series, or an animation if it ends in .gif."""
    parts = np.linspace(0, 1, FRAMES) if _moves(path) else np.array(MOMENTS)
    return sorted({round(part * steps) for part in parts.tolist()})


def camera(path: PathLike, simulation: Simulation, speed: float) -> Camera:
    """Return the camera of the picture of this name."""
    return Camera(simulation, BRIGHT * speed, SIZES[_moves(path)])


def draw(
    path: PathLike, camera: Camera, shots: Sequence[Shot], energies: Sequence[tuple[float, Energy]], title: str
) -> None:
    """Write the picture: a GIF if its name ends in .gif, and else a PNG.

    Parameters
    ----------
    path : path-like
    camera : Camera
        That of all shots.
    shots : sequence of Shot
    energies : sequence of (time, Energy)
        For the curves under a series.
    title : str
    """
    import matplotlib

    with matplotlib.rc_context(TEXT):
        if _moves(path):
            _animation(path, camera, shots, title)
        else:
            _series(path, camera, shots, energies, title)


def _moves(path: Any) -> bool:
    return str(path).lower().endswith(".gif")


def _figure(height: float, dpi: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _bar(figure: Any, place: tuple[float, float, float, float], camera: Camera, letters: float) -> None:
    """Draw the scale of colours, with letters of a size in points."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import MaxNLocator

    scale = ScalarMappable(camera.scale, camera.colours)
    bar = figure.colorbar(scale, cax=figure.add_axes(place), extend="max", orientation="horizontal")
    most = float(camera.scale.vmax or 0.0)
    bar.set_ticks([tick for tick in MaxNLocator(4).tick_values(0.0, most) if 0 <= tick <= most])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=letters, color=QUIET)
    bar.ax.set_title("speed / (m/s)", fontsize=letters, loc="left", pad=6)


def _series(path: Any, camera: Camera, shots: Sequence[Shot], energies: Sequence[Any], title: str) -> None:
    rows, columns = shots[0].picture.shape[:2]
    across = 3 if columns > rows else PANELS
    down = -(-len(shots) // across)
    width = (INCHES - 0.4) / across
    tall = width * rows / columns
    height = 0.75 + down * (tall + ABOVE) + 2.15
    figure = _figure(height, DPI)
    figure.text(0.03, 1 - 0.36 / height, title, fontsize=14, fontweight="bold", va="center")
    for n, shot in enumerate(shots):
        top = height - 0.75 - ABOVE - (n // across) * (tall + ABOVE)
        axes = figure.add_axes(
            ((0.2 + n % across * width) / INCHES, (top - tall) / height, width / INCHES, tall / height)
        )
        axes.imshow(shot.picture, interpolation="lanczos")
        axes.set_axis_off()
        axes.text(0.5, 1.0, f"{shot.time:.2f} s", transform=axes.transAxes, ha="center", va="bottom", fontsize=9.5)
    _curves(figure.add_axes((0.06, 0.55 / height, 0.62, 1.2 / height)), energies, [shot.time for shot in shots])
    _bar(figure, (0.76, 0.95 / height, 0.2, 0.12 / height), camera, 8.5)
    with replacing(path, overwrite=True) as part:
        figure.savefig(part, format="png")


def _curves(axes: Any, energies: Sequence[tuple[float, Energy]], marks: Sequence[float]) -> None:
    """Draw the energies over time, relative to the first total, and when the pictures were taken."""
    times = [time for time, _ in energies]
    whole = max(abs(energies[0][1].total), *(energy.total for _, energy in energies), 1e-300)
    kinds = {
        "total": (INK, lambda e: e.total), "gravity": (PALETTE[3], lambda e: e.gravity),
        "kinetic": (PALETTE[0], lambda e: e.translation + e.rotation),
        "elastic": (PALETTE[2], lambda e: e.normal + e.tangential),
    }  # fmt: skip
    for mark in marks:
        axes.axvline(mark, color="#dddddd", linewidth=0.8, zorder=0)
    for name, (colour, value) in kinds.items():
        axes.plot(times, [value(energy) / whole for _, energy in energies], color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="time / s", xlim=(min(times), max(times) or 1))
    axes.set_title("Energy / that of the start", loc="left", fontsize=10, pad=6)
    axes.legend(frameon=False, fontsize=8.5, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 0.98), handlelength=1.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)


def _animation(path: Any, camera: Camera, shots: Sequence[Shot], title: str) -> None:
    from PIL import Image

    rows, columns = shots[0].picture.shape[:2]
    wide = min(columns, 760)
    dpi = wide / INCHES
    tall = rows * wide / columns + 100  # pixels
    figure = _figure(tall / dpi, dpi)
    big = wide / 700 * 72 / dpi  # letters have the same size in pixels for any size of the figure
    figure.text(0.03, 1 - 22 / tall, title, fontsize=13 * big, fontweight="bold", va="center")
    clock = figure.text(0.97, 1 - 22 / tall, "", fontsize=12 * big, ha="right", va="center")
    _bar(figure, (0.03, 26 / tall, 0.35, 9 / tall), camera, 10 * big)
    axes = figure.add_axes((0, 50 / tall, 1, 1 - 100 / tall))
    axes.set_axis_off()
    image = axes.imshow(shots[0].picture, interpolation="lanczos")
    pages = []
    for shot in shots:
        image.set_data(shot.picture)
        clock.set_text(f"{shot.time:.2f} s")
        figure.canvas.draw()
        pages.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3]))
    # One palette for all frames, so that no colour flickers: that of a few frames side by side.
    few = [np.asarray(pages[n]) for n in np.linspace(0, len(pages) - 1, min(len(pages), 8)).astype(int)]
    palette = Image.fromarray(np.concatenate(few)).quantize(255, dither=Image.Dither.NONE)
    frames = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    options = dict(save_all=True, append_images=frames[1:], duration=MILLISECONDS, loop=0, optimize=True)
    with replacing(path, overwrite=True) as part:
        frames[0].save(part, format="GIF", **options)
