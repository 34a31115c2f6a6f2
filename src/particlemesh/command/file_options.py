# SPDX-License-Identifier: BSD-3-Clause
"""From the options of the commands on files to boxes, meshes, windows and frames."""

from __future__ import annotations

import math

import numpy as np

import particlemesh as pm
from particlemesh.apps.files import Particles
from particlemesh.apps.files.boxes import lattice
from particlemesh.apps.files.particles import CHUNK
from particlemesh.window import WINDOWS, Window, window_of

AXES = "xyz"
LONGEST = 64  # default nodes along the longest axis
MOST_NODES = 2**33  # of a mesh: 64 GiB in double precision


def numbers(text: str, option: str, allowed: tuple[int, ...]) -> np.ndarray:
    """Return numbers with commas between them."""
    try:
        values = np.array([float(word) for word in text.split(",")])
    except ValueError:
        values = np.array([math.nan])
    if not np.isfinite(values).all() or len(values) not in allowed:
        many = " or ".join(map(str, allowed))
        raise ValueError(f"{option} is {text!r}; give {many} numbers with commas between them.")
    return values


def periodic_axes(text: str, ndim: int) -> tuple[bool, ...]:
    """Return which axes repeat, from letters of x, y and z, or none."""
    letters = "" if text == "none" else text
    if (not letters and text != "none") or set(letters) - set(AXES[:ndim]) or len(set(letters)) < len(letters):
        raise ValueError(f"--periodic is {text!r}; give letters of {AXES[:ndim]}, or none.")
    return tuple(axis in letters for axis in AXES[:ndim])


def box_of(
    particles: Particles, frames: tuple[int, ...], box: str | None, origin: str | None, periodic: str | None,
    size: int = CHUNK, dtype: str | None = None,
) -> tuple[pm.Box, str]:  # fmt: skip
    """Return the box of frames, and where it is from.

    ``box`` has lengths, lengths and angles, the rows of a matrix, or "fit" for the bounds of the particles. What is
    fitted holds positions as ``dtype`` rounds them, and has at most ``size`` particles in memory at once.
    """
    ndim = particles.ndim
    flags = None if periodic is None else periodic_axes(periodic, ndim)
    corner = None if origin is None else numbers(origin, "--origin", (ndim,))
    if box == "fit":
        if corner is not None:
            raise ValueError("--box fit has an origin of its own: leave out --origin.")
        low, high = particles.bounds(frames, size, dtype)
        flags = flags or (False,) * ndim
        return pm.Box(high - low, origin=low, periodic=flags), "fitted to the particles"
    if box is None:
        stored = particles.box(frames, periodic=flags, origin=corner)
        if stored is None:
            lengths = ",".join(["10"] * ndim)
            raise ValueError(f"{particles.path} has no box: give --box, such as {lengths}, or --box fit for open axes.")
        if stored.ndim != ndim:
            raise ValueError(
                f"{particles.path} has a box of {stored.ndim} axes and positions of {ndim}: give --box or --positions."
            )
        if flags is None and corner is None:
            return stored, f"from the file{', which does not state the periodicity' if particles.unsaid else ''}"
        return stored, "from the file, but for --periodic or --origin"
    count = {1: (1,), 2: (2, 4), 3: (3, 6, 9)}[ndim]
    given = numbers(box, "--box", count)
    if ndim == 3 and len(given) == 6:
        given = lattice(given[:3], given[3:])
    elif len(given) == ndim * ndim > 1:
        given = given.reshape(ndim, ndim)
    return pm.Box(given, origin=corner, periodic=True if flags is None else flags), "from --box"


def mesh_of(box: pm.Box, shape: str | None, spacing: str | None, offset: float) -> tuple[pm.Mesh, str]:
    """Return the mesh of a box, and why it has these nodes."""
    edges = np.linalg.norm(box.matrix, axis=1)
    ndim = box.ndim
    if shape is not None and spacing is not None:
        raise ValueError("--shape and --spacing are both given: give one of them.")
    if shape is not None:
        try:
            nodes = [int(word) for word in shape.replace("x", ",").split(",")]
        except ValueError:
            nodes = []
        if len(nodes) not in (1, ndim) or min(nodes) < 1:
            raise ValueError(f"--shape is {shape!r}; give 1 or {ndim} numbers of nodes, such as 64 or 64,64,32.")
        nodes, why = nodes * (ndim // len(nodes)), "given"
    else:
        if spacing is not None:
            step, why = numbers(spacing, "--spacing", (1, ndim)), f"for spacing up to {spacing}"
            if not (step > 0).all():
                raise ValueError(f"--spacing is {spacing!r}; give lengths above 0.")
        else:
            step, why = np.array([edges.max() / LONGEST]), f"{LONGEST} along the longest axis by default"
        if (edges / step > 2**31 - 2).any():
            raise ValueError(f"--spacing is {spacing!r}; the box has edges {edges.tolist()}: give a larger one.")
        between = np.ceil(edges / step * (1 - 1e-12)).astype(np.int64)
        ends = [0 if repeats or offset == 0.5 else 1 for repeats in box.periodic]  # open axes have nodes on both faces
        nodes = [max(1, int(n)) + more for n, more in zip(between, ends, strict=True)]
    if math.prod(nodes) > MOST_NODES:
        raise ValueError(f"the mesh has {' x '.join(map(str, nodes))} nodes; up to {MOST_NODES:,} are allowed.")
    return pm.Mesh(nodes, box, offset=offset), why


def window_named(name: str, order: int | None) -> Window:
    """Return a window by its name and, for families, its order."""
    full = name if order is None else f"{name}{order}"
    if full in WINDOWS:
        return window_of(full)
    families = sorted({key.rstrip("0123456789") for key in WINDOWS if key[-1].isdigit() and key != "peskin4"})
    if order is None and name in families:
        raise ValueError(f"--window is {name!r}, which has many orders: give --order, such as 4.")
    named = name if order is None else f"{name} --order {order}"
    single = [key for key in WINDOWS if key.rstrip("0123456789") not in families]
    raise ValueError(f"--window is {named}; give {', '.join(single)}, or one of {', '.join(families)} with --order.")


def summing(window: Window) -> Window:
    """Return a window whose weights sum to 1 at every particle, so that sums are kept and constants reproduced."""
    sums = window.weights(np.linspace(-0.5, 0.5, 33)).sum(axis=-1)
    if abs(sums - 1).max() > 1e-6:
        raise ValueError(
            f"--window is {window.name}, whose weights sum to {sums.mean():.4g}: sums would not be conserved. "
            "Give a B-spline, m4prime or peskin4."
        )
    return window


def frames_of(particles: Particles, text: str) -> tuple[int, ...]:
    """Return frames from a number, a slice such as 10:20:2, or all."""
    try:
        if text == "all" or ":" in text:
            words = ["", ""] if text == "all" else text.split(":")
            chosen = range(particles.frames)[slice(*(int(word) if word else None for word in words))]
        else:
            number = int(text)
            chosen = range(number, number + 1)
            if not -particles.frames <= number < particles.frames:
                chosen = range(0)
    except (ValueError, TypeError):
        raise ValueError(f"--frames is {text!r}; give a number, a slice such as 10:20:2, or all.") from None
    if not chosen:
        raise ValueError(f"--frames is {text!r}, but {particles.path} has {particles.frames}: give some of 0 to "
                         f"{particles.frames - 1}, or -1 for the last.")  # fmt: skip
    return tuple(chosen)


def one_frame(particles: Particles, text: str) -> int:
    """Return a single frame."""
    frames = frames_of(particles, text)
    if len(frames) > 1:
        raise ValueError(f"--frames is {text!r}, which are {len(frames)} frames; give one number here.")
    return frames[0]
