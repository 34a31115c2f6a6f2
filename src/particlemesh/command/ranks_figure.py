# SPDX-License-Identifier: BSD-3-Clause
"""The picture of ``particlemesh distributed``. Its functions import matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.files import replacing
from particlemesh.command.figures import INK, PALETTE, QUIET, TEXT
from particlemesh.command.ranks import STAGES, Timing
from particlemesh.distributed import Domain, Part
from particlemesh.distributed.windows import reach_of

NODES, CLOUD, SUPPORT = 48, 4000, 6


def decomposition(path: str | PathLike, ranks: int, rows: Sequence[Timing]) -> None:
    """Write one wide PNG: blocks of a mesh, parts balanced for a clustered cloud with one's ghosts, and times.

    Parameters
    ----------
    path : path-like
        File of the PNG.
    ranks : int
        Parts to draw.
    rows : sequence of Timing
        Times by number of ranks.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(TEXT):
        figure = Figure(figsize=(14.0, 4.9), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        title = f"A mesh on {ranks} rank{'s' * (ranks > 1)}"
        figure.text(0.02, 0.94, title, fontsize=14, fontweight="bold", va="center")
        _blocks(figure.add_axes((0.0, 0.02, 0.31, 0.80), projection="3d"), ranks)
        _balanced(figure.add_axes((0.335, 0.13, 0.2464, 0.704)), ranks)  # a square
        _times(figure.add_axes((0.665, 0.17, 0.20, 0.66)), rows)
        with replacing(path, overwrite=True) as part:
            figure.savefig(part)


def _colour(rank: int) -> str:
    return PALETTE[rank % (len(PALETTE) - 1)]  # without black


def _blocks(axes: Any, ranks: int) -> None:
    """Draw the blocks of a cube, with gaps between them."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    domain = Domain(pm.Mesh((NODES,) * 3, (1.0,) * 3), ranks)
    for rank in range(ranks):
        for part in domain.parts(rank):
            low, high = np.array(part.lower) + 0.8, np.array(part.upper) - 0.8
            faces = Poly3DCollection(_faces(low, high), facecolor=_colour(rank), edgecolor="white", alpha=0.55)
            axes.add_collection3d(faces)
    axes.set(xlim=(0, NODES), ylim=(0, NODES), zlim=(0, NODES))
    axes.set_box_aspect((1, 1, 1))
    axes.view_init(elev=22, azim=-58)
    axes.set_axis_off()
    axes.set_title("blocks: the fewest ghost nodes", y=0.97)


def _faces(low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    faces = []
    for axis in range(3):
        others = [a for a in range(3) if a != axis]
        for end in (low, high):
            corners = np.tile(low, (4, 1))
            corners[:, axis] = end[axis]
            corners[1:3, others[0]], corners[2:4, others[1]] = high[others[0]], high[others[1]]
            faces.append(corners)
    return faces


def _balanced(axes: Any, ranks: int) -> None:
    """Draw a clustered cloud in a plane, parts of equal numbers of particles, and the ghosts of one of them."""
    from matplotlib.patches import Rectangle

    rng = np.random.default_rng(3)
    centres = rng.random((7, 2))
    x = centres[rng.integers(0, len(centres), CLOUD)] + 0.055 * rng.standard_normal((CLOUD, 2))
    x = np.concatenate([x, rng.random((CLOUD // 4, 2))]) % 1.0
    mesh = pm.Mesh((NODES, NODES), (1.0, 1.0))
    cells = np.minimum((x * NODES).astype(np.int64), NODES - 1)
    counts = np.histogramdd(cells, bins=[np.arange(NODES + 1)] * 2)[0]
    domain = Domain(mesh, ranks).balanced(counts)
    owners = domain.owner(cells)
    axes.scatter(*x.T, s=1.6, c=[_colour(rank) for rank in owners], linewidths=0)
    parts = domain.parts()
    shown = ranks // 2
    for part in parts:
        axes.add_patch(Rectangle(*_rectangle(part), fill=False, edgecolor=INK, linewidth=1.1))
    (below, above), _ = reach_of(SUPPORT, 2)
    if ranks > 1:
        lower, sizes = np.array(parts[shown].lower), np.array(parts[shown].shape)
        outer = (lower - below) / NODES, (sizes + below + above) / NODES
        for image in np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), -1).reshape(-1, 2):
            axes.add_patch(Rectangle(
                outer[0] + image, *outer[1], facecolor=_colour(shown), alpha=0.16, edgecolor=_colour(shown),
                linewidth=1.0, linestyle=(0, (3, 2)),
            ))  # fmt: skip
    shares = np.bincount(owners, minlength=ranks)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.set_title("balanced for a cloud, with one part's ghosts")
    axes.text(
        0.5, -0.05, f"largest part: {shares.max() / shares.mean():.2f} of the mean", ha="center", va="top", color=QUIET
    )


def _rectangle(part: Part) -> tuple[tuple[float, float], float, float]:
    (left, bottom), (width, height) = part.lower, part.shape
    return (left / NODES, bottom / NODES), width / NODES, height / NODES


def _times(axes: Any, rows: Sequence[Timing]) -> None:
    """Draw the stages of a step on each number of ranks, one above the other."""
    places, below = np.arange(len(rows)), np.zeros(len(rows))
    for stage, name in enumerate(STAGES):
        heights = np.array([row.seconds[stage] for row in rows]) * 1e3
        axes.bar(
            places, heights, 0.62, bottom=below, color=PALETTE[stage], label=name, edgecolor="white", linewidth=0.7
        )
        below += heights
    for place, total in zip(places, below, strict=True):
        axes.text(place, total, f"{below[0] / total:.0%}", ha="center", va="bottom", fontsize=9)
    axes.set_xticks(places, [str(row.ranks) for row in rows])
    axes.set(xlabel="ranks", ylabel="ms per call", ylim=(0, 1.12 * below.max()), xlim=(-0.6, len(rows) - 0.4))
    axes.set_title(f"weak scaling: {rows[0].particles:,} particles per rank", loc="left", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
