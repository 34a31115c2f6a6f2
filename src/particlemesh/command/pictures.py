# SPDX-License-Identifier: BSD-3-Clause
"""All pictures of the commands: fields, spectra, spheres and times. matplotlib is imported when one is drawn."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.files import replacing

INK, QUIET, FAINT = "#2b2b2b", "#8a8a8a", "#e6e6e6"
# Okabe and Ito's palette, without its yellow: safe for colour-blind readers and dark enough on white.
PALETTE = ("#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],  # part of matplotlib: the same on every machine
    "mathtext.fontset": "dejavusans", "font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left",
    "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9, "legend.frameon": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.linewidth": 0.8, "xtick.major.size": 3, "ytick.major.size": 3, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "grid.color": FAINT,
    "axes.prop_cycle": f"cycler('color', {[colour[1:] for colour in PALETTE]})",
}  # fmt: skip
KINDS = ("projection", "slice", "isosurface")
SUFFIXES = (".png", ".pdf", ".svg", ".jpg")
SCALES = ("linear", "log")
MOST = 1600  # pixels of a map along an axis
MANY = 2 * 10**6  # triangles, which matplotlib draws in a minute
DECADES = 4  # of a logarithmic scale of colours
AXES, LATTICE = ("x", "y", "z"), ("a", "b", "c")
LIBRARIES = {"skimage": "scikit-image", "pyvista": "PyVista"}  # that have marching cubes


@contextlib.contextmanager
def figure(path: Path, width: float, height: float, title: str = "", dpi: float = 150, **saved: Any) -> Iterator[Any]:
    """Yield an empty figure (inches) and write it to a file at the end; the file is complete or not there."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12)
        drawn = Figure(figsize=(width, height), dpi=dpi, facecolor="white", layout=layout)
        if title:
            drawn.suptitle(title, fontsize=14, fontweight="bold", x=0.02, ha="left")
        yield drawn
        with replacing(path, overwrite=True) as part:
            drawn.savefig(part, format=path.suffix[1:].lower(), **saved)


# ---- fields and spectra -----------------------------------------------------------------------------------


def save_picture(
    path: Path, field: np.ndarray, mesh: pm.Mesh, kind: str = "projection", *, axis: int | str = -1,
    at: float | None = None, level: float | None = None, length_units: str = "", name: str = "field",
    scale: str = "linear",
) -> None:  # fmt: skip
    """Write a picture of a real, finite field: in 3-D a projection, a slice or an isosurface, in 2-D a map.

    Boxes have their true shape. Nodes are centres of pixels; along periodic axes the picture ends at the faces. An
    axis is a number, or a name: x, y, z, or a, b, c of a lattice vector. By default, the nodes beyond the level of an
    isosurface have half of the sum of the field's magnitudes. A field of both signs then has two surfaces. A field in
    1-D is a line.
    """
    check_picture(path, kind, scale)
    along = axis_of(mesh, axis)
    if scale == "log" and (field.min() < 0 or not field.max() > 0):
        raise ValueError("scale is 'log', and the field has negative values, or no positive one: use 'linear'.")
    with figure(path, 7.2, 6.2, bbox_inches="tight", pad_inches=0.15) as drawn:
        if mesh.ndim == 1:
            _line(drawn, mesh, field, name, length_units, scale)
        elif kind == "isosurface":
            _isosurface(drawn, mesh, field, level, name, length_units)
        else:
            _map(drawn, flat(mesh, field, kind, along, at), name, length_units, scale)


def save_spectrum(path: Path, k: Any, power: Any, shot_noise: Any = None) -> None:
    """Write a picture of a power spectrum and its shot noise, where they are positive, on logarithmic axes."""
    check_picture(path)
    k, lines = np.asarray(k, float), {"power": (power, "-", PALETTE[3]), "shot noise": (shot_noise, ":", QUIET)}
    with figure(path, 7.2, 4.6, bbox_inches="tight", pad_inches=0.15) as drawn:
        axes = drawn.add_subplot(xscale="log", yscale="log", xlabel="k / (rad per length)", ylabel="power / volume")
        for label, (numbers, style, colour) in lines.items():
            y = np.full(k.shape, np.nan) if numbers is None else np.asarray(numbers, float)
            shown = np.isfinite(y) & (y > 0) & (k > 0)
            if label == "power" and not shown.any():
                raise ValueError("the spectrum has no finite positive power, so there is nothing to draw.")
            if shown.any():
                axes.plot(k[shown], y[shown], style, color=colour, linewidth=1.6, label=label)
        axes.legend()


def check_picture(path: Path, kind: str = "projection", scale: str = "linear") -> None:
    """Raise the ImportError or ValueError that `save_picture` would raise for such a picture of any field."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install matplotlib, or 'particlemesh[plot]'.") from error
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the picture is {str(path)!r}; its name must end in one of {', '.join(SUFFIXES)}.")
    for value, what, choices in ((kind, "kind", KINDS), (scale, "scale", SCALES)):
        if value not in choices:
            raise ValueError(f"{what} is {value!r}; allowed are {', '.join(map(repr, choices))}.")
    if kind == "isosurface":
        marching_cubes()


def real(field: Any) -> tuple[np.ndarray, str]:
    """Return one real field and its name: the magnitude of complex values, the first of several components."""
    values, name = field.values, field.name
    if values.ndim > field.mesh.ndim:
        values, name = values.reshape(-1, *field.mesh.shape)[0], f"{name}[0]"
    return (np.abs(values), f"|{name}|") if np.iscomplexobj(values) else (values, name)


def _label(name: str, units: str) -> str:
    return f"{name} / {units}" if units else name


def _line(drawn: Any, mesh: pm.Mesh, values: np.ndarray, name: str, length_units: str, scale: str) -> None:
    axes = drawn.add_subplot(xlabel=_label("x", length_units), ylabel=name, yscale=scale)
    x, y, (edge,), (low,) = mesh.nodes(0), values, mesh.box.lengths, mesh.box.origin
    if mesh.periodic[0]:  # from face to face
        x, y = np.concatenate([x - edge, x, x + edge]), np.tile(y, 3)
    axes.plot(x, y, color=PALETTE[3], linewidth=1.6)
    axes.set_xlim(low, low + edge)


class Plane(NamedTuple):
    """Values in a parallelogram: ``corner + s rows[0] + t rows[1]`` for fractions s and t of the box from 0 to 1."""

    values: np.ndarray  # (K1, K2), one for each node
    centres: tuple[np.ndarray, np.ndarray]  # fractions of the nodes along both axes, ascending
    periodic: tuple[bool, bool]
    corner: np.ndarray  # (2,)
    rows: np.ndarray  # (2, 2), lattice vectors in the plane of the paper
    labels: tuple[str, str]
    what: str  # the values, in words
    integrated: bool  # along the line of sight


def axis_of(mesh: pm.Mesh, axis: int | str) -> int:
    """Return the number of an axis, given by its number or by its name: x, y, z, or a, b, c."""
    for names in (AXES, LATTICE):
        if axis in names[: mesh.ndim]:
            return names.index(str(axis))
    if isinstance(axis, int) and -mesh.ndim <= axis < mesh.ndim:
        return axis % mesh.ndim
    raise ValueError(f"axis is {axis!r}; this mesh has the axes {', '.join(_names(mesh)[: mesh.ndim])}.")


def _names(mesh: pm.Mesh) -> tuple[str, ...]:
    return AXES if mesh.box.orthorhombic else LATTICE


def _fractions(mesh: pm.Mesh, axis: int) -> np.ndarray:
    """Return the places of an axis's nodes in units of its lattice vector, from the origin."""
    return np.asarray((mesh.start[axis] + np.arange(mesh.shape[axis]) + mesh.offset[axis]) / mesh.intervals[axis])


def flat(mesh: pm.Mesh, field: np.ndarray, kind: str, axis: int, at: float | None) -> Plane:
    """Return a projection or a slice of a field in 3-D, or a field in 2-D as it is.

    A projection is the integral along the lattice vector ``axis``, seen along it. A slice is the layer of nodes nearest
    to ``at``. ``at`` is a coordinate, or in a triclinic box a distance from its origin along that vector.
    """
    box, straight = mesh.box, mesh.box.orthorhombic
    one, two = (n for n in range(mesh.ndim) if mesh.ndim == 2 or n != axis)
    values, rows, origin, what = field, box.matrix[[one, two]], box.origin, ""
    name, through = _names(mesh)[axis], mesh.ndim == 3 and kind == "projection"
    if through:
        values, what = field.sum(axis=axis) * mesh.spacing[axis], f"integral along {name}"
        sight = box.matrix[axis] / box.lengths[axis]
        rows, origin = rows - np.outer(rows @ sight, sight), origin - (origin @ sight) * sight
    elif mesh.ndim == 3:
        nodes, low, length = mesh.nodes(axis), box.origin[axis] if straight else 0.0, box.lengths[axis]
        place = low + length / 2 if at is None else float(at)
        if not low <= place <= low + length:
            raise ValueError(f"at is {at}; {name} goes from {low:g} to {low + length:g}.")
        away = nodes - place
        if mesh.periodic[axis]:
            away -= np.rint(away / length) * length
        layer = int(np.abs(away).argmin())
        values, what = np.take(field, layer, axis=axis), f"{name} = {nodes[layer]:.4g}"
        origin = origin + _fractions(mesh, axis)[layer] * box.matrix[axis]
    if straight or mesh.ndim == 2:
        labels, corner, rows = (AXES[one], AXES[two]), box.origin[[one, two]], rows[:, [one, two]]
    else:  # the first vector points to the right
        right = rows[0] / np.linalg.norm(rows[0])
        up = rows[1] - (rows[1] @ right) * right
        turn = np.stack([right, up / np.linalg.norm(up)])
        usual = np.allclose(turn, np.eye(3)[:2], atol=1e-12)
        labels = ("x", "y") if usual else (f"along {LATTICE[one]}", f"across {LATTICE[one]}")
        rows, corner = rows @ turn.T, origin @ turn.T if usual else np.zeros(2)
    centres = _fractions(mesh, one), _fractions(mesh, two)
    repeats = mesh.periodic[one], mesh.periodic[two]
    return Plane(values, centres, repeats, np.asarray(corner), np.asarray(rows), labels, what, through)


def filled(plane: Plane, most: int) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Return values that cover the box, and the fractions (s0, s1, t0, t1) of the edges of their pixels.

    Each node is the centre of a pixel. Along a periodic axis nodes are repeated until the pixels reach both faces. More
    than ``most`` pixels along an axis are averaged.
    """
    values, edges = plane.values, list[float]()
    for axis, (centres, repeats) in enumerate(zip(plane.centres, plane.periodic, strict=True)):
        count = len(centres)
        step = 1 / count if repeats else (centres[-1] - centres[0]) / max(count - 1, 1) or 1.0
        low, first, last = centres[0] - step / 2, 0, count
        if repeats:  # pixels are numbered from that of node 0
            first, last = math.floor(-low * count + 1e-9), math.ceil((1 - low) * count - 1e-9)
            values = np.take(values, np.arange(first, last) % count, axis=axis)
        many = -(-(last - first) // most)
        starts = np.arange(0, last - first, many)
        sizes = np.diff([*starts, last - first])
        values = np.add.reduceat(values, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
        # The last pixel may average fewer nodes; it is drawn as wide as the others, and cut off at the face.
        edges += [low + first * step, low + (first + many * len(starts)) * step]
    return values, (edges[0], edges[1], edges[2], edges[3])


def _map(drawn: Any, plane: Plane, name: str, length_units: str, scale: str) -> None:
    from matplotlib.patches import Polygon
    from matplotlib.transforms import Affine2D

    values, extent = filled(plane, MOST)
    axes = drawn.add_subplot()
    colours, norm, beyond = _colours(values, scale)
    image = axes.imshow(values.T, origin="lower", extent=extent, cmap=colours, norm=norm, interpolation="nearest")
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = plane.rows.T, plane.corner
    image.set_transform(Affine2D(matrix) + axes.transData)
    outline = plane.corner + np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) @ plane.rows
    box = axes.add_patch(Polygon(outline, closed=True, fill=False, edgecolor=INK, linewidth=0.9))
    image.set_clip_path(box)
    low, high = outline.min(axis=0), outline.max(axis=0)
    straight = not (plane.rows[0, 1] or plane.rows[1, 0])
    margin = 0.0 if straight else 0.02 * (high - low).max()
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
    axes.spines[["left", "bottom"]].set_visible(straight)
    axes.set(xlabel=_label(plane.labels[0], length_units), ylabel=_label(plane.labels[1], length_units))
    axes.set_title(plane.what, pad=8)
    words = _label(f"∫ {name}", length_units) if plane.integrated else name
    width, height = high - low
    drawn.colorbar(image, ax=axes, extend=beyond, fraction=0.046, shrink=min(1.0, height / width), label=words)


def _colours(values: np.ndarray, scale: str) -> tuple[str, Any, str]:
    """Return colours, their scale, and which ends values are beyond, so that a few extreme nodes pale no others."""
    from matplotlib.colors import LogNorm, Normalize

    low, high = float(values.min()), float(values.max())
    colours, kind, clip = "viridis", Normalize, False
    first, last = (float(q) for q in np.quantile(values, (0.001, 0.998)))
    if scale == "log":
        first, last = max(float(values[values > 0].min(initial=high)), high / 10**DECADES), high
        kind, clip, last = LogNorm, True, max(last, first * 1.001)
    elif low < 0 < high:
        last = float(np.quantile(np.abs(values), 0.998)) or max(-low, high)
        colours, first = "RdBu_r", -last
    elif low == high:
        first, last = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    else:
        first, last = (low, high) if first == last else (first, last)
        first, last = 0.0 if 0 <= first < 0.2 * last else first, 0.0 if 0.2 * first < last <= 0 else last
    ends = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    return colours, kind(first, last, clip=clip), ends[low < first, high > last]


# ---- isosurfaces ------------------------------------------------------------------------------------------


def half_level(values: np.ndarray) -> list[float]:
    """Return the level whose outside has half of the sum of magnitudes, with both signs if the field has both."""
    size = np.sort(np.abs(values), axis=None)[::-1]
    total = np.cumsum(size)
    if not total[-1] > 0:
        raise ValueError("the field is zero everywhere and has no isosurface.")
    half = float(size[np.searchsorted(total, 0.5 * total[-1])])
    return [sign * half for sign, there in ((1.0, values.max() >= half), (-1.0, values.min() <= -half)) if there]


def surfaces(mesh: pm.Mesh, values: np.ndarray, level: float | None) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Return a level, points (P, 3) and triangles (T, 3) of each isosurface; they close across periodic faces."""
    # One more layer along periodic axes, the first again.
    wrapped = np.pad(values, [(0, int(flag)) for flag in mesh.periodic], mode="wrap")
    if min(wrapped.shape) < 2:
        raise ValueError(f"an isosurface needs two nodes along every axis; the mesh has {mesh.shape}.")
    levels, drawn = [level] if level is not None else half_level(values), []
    low, high = values.min(), values.max()
    for value in levels:
        if low < value < high:
            points, faces = marching_cubes()(wrapped, value)
            fraction = (points + np.array(mesh.offset)) / np.array(mesh.intervals)
            drawn.append((value, mesh.box.origin + fraction @ mesh.box.matrix, faces))
    if not sum(len(faces) for _, _, faces in drawn):
        raise ValueError(f"no surface at level {levels[0]:.6g}: the field goes from {low:.6g} to {high:.6g}.")
    return drawn


def marching_cubes() -> Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]:
    """Return the function that a library has: from values and a level to points, in nodes, and triangles."""
    for name, function in (("skimage", _by_skimage), ("pyvista", _by_vtk)):
        if find_spec(name) is not None:
            return function
    raise ImportError(
        "an isosurface needs scikit-image or PyVista: pip install scikit-image. Projections need neither of them."
    )


def _by_skimage(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    from skimage.measure import marching_cubes

    return marching_cubes(values, level)[:2]


def _by_vtk(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    import pyvista

    image = pyvista.ImageData(dimensions=values.shape)
    image.point_data["values"] = values.ravel(order="F")
    surface = image.contour([level], scalars="values", compute_normals=False)
    return np.asarray(surface.points, float), np.asarray(surface.faces).reshape(-1, 4)[:, 1:]


def box_edges(ndim: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners (2**ndim, ndim) of the unit box, and its edges (E, 2) as pairs of them."""
    unit = np.array(list(itertools.product((0, 1), repeat=ndim)))
    pairs = itertools.combinations(range(len(unit)), 2)
    return unit, np.array([pair for pair in pairs if np.abs(unit[pair[0]] - unit[pair[1]]).sum() == 1])


def _isosurface(
    drawn: Any, mesh: pm.Mesh, values: np.ndarray, level: float | None, name: str, length_units: str
) -> None:
    from matplotlib.colors import LightSource
    from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

    shown = surfaces(mesh, values, level)
    triangles = np.concatenate([points[faces] for _, points, faces in shown])
    if len(triangles) > MANY:
        raise ValueError(
            f"the surface has {len(triangles):,} triangles; at most {MANY:,} are drawn: give another level."
        )
    colours = ["#f58237" if value > 0 or len(shown) == 1 else "#3790d6" for value, _, _ in shown]
    axes = drawn.add_subplot(projection="3d", computed_zorder=False)
    facecolors = np.repeat(colours, [len(faces) for _, _, faces in shown])
    light = LightSource(azdeg=225, altdeg=45)
    axes.add_collection3d(Poly3DCollection(triangles, facecolors=facecolors, shade=True, lightsource=light, zorder=2))
    unit, edges = box_edges()
    corners = mesh.box.origin + unit @ mesh.box.matrix
    axes.add_collection3d(Line3DCollection(corners[edges], colors=INK, linewidths=0.7, zorder=1))
    low, high = corners.min(axis=0), corners.max(axis=0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect(high - low, zoom=1.0)
    axes.set(**{f"{label}label": _label(label, length_units) for label in AXES})
    for side in (axes.xaxis, axes.yaxis, axes.zaxis):
        side.pane.set_visible(False)
    axes.grid(False)
    words = " and ".join(f"{value:.3g}" for value, _, _ in shown).replace("-", "−")
    drawn.suptitle(f"{name} = {words}", fontsize=11, x=0.02, ha="left")


# ---- spheres ----------------------------------------------------------------------------------------------

TURN, TILT = np.radians(33.0), np.radians(17.0)
DISTANCE = 3.4  # of the eye from the middle of the box, in longest edges
LIGHT = np.array([-0.30, 0.45])  # where a sphere is brightest, in radii from its centre
CROWDED = 50_000  # spheres beyond which those behind others are left out


def _seen(points: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places (N, 2) in the picture in longest edges, heights towards the eye, and the scale of lengths there."""
    (ct, st), (cu, su) = (np.cos(TURN), np.sin(TURN)), (np.cos(TILT), np.sin(TILT))
    turn = np.array([[1, 0, 0], [0, cu, -su], [0, su, cu]]) @ [[ct, st, 0], [0, 0, 1], [st, -ct, 0]]
    x, y, z = (turn @ (points - edges / 2).T) / edges.max()
    near = 0.62 * DISTANCE / (DISTANCE - z)
    return np.stack([x * near, y * near], axis=1), z, near


def render(
    centres: np.ndarray, radii: Any, edges: np.ndarray, colours: np.ndarray, size: int, haze: float = 0.5
) -> np.ndarray:
    """Return a picture (rows, columns, 3) of shaded spheres in a box whose corner is at 0, as bytes.

    Parameters
    ----------
    centres, radii, colours : array (N, 3), (N,) or one number, (N, 3) RGB from 0 to 1
    size : int
        Pixels of a cube's picture along each side, about.
    haze : float
        How pale the farthest spheres are, from 0 to 1.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import EllipseCollection, LineCollection
    from matplotlib.figure import Figure

    unit, pairs = box_edges()
    corners, heights, _ = _seen(unit * edges, edges)
    low, high = corners.min(axis=0) - 0.02, corners.max(axis=0) + 0.02
    drawn = Figure(figsize=np.ceil((high - low) * size) / 100, dpi=100, facecolor="white")
    axes = drawn.add_axes((0, 0, 1, 1), xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_axis_off()
    in_front = (pairs == heights.argmax()).any(axis=1)
    for zorder, some in ((0, ~in_front), (2, in_front)):
        axes.add_collection(LineCollection(corners[pairs[some]], colors="#5c6673", linewidths=0.8, zorder=zorder))
    places, z, near = _seen(centres, edges)
    radius = np.broadcast_to(radii, z.shape) / edges.max() * near
    order = np.argsort(-z)
    if len(order) > CROWDED:  # the nearest in each cell of the picture
        cell = max(float(radius.min()) / 3, 1 / size)
        column, row = np.floor((places[order] - low) / cell).astype(np.int64).T
        order = order[np.sort(np.unique(column * 2**32 + row, return_index=True)[1])]
    order = order[::-1]
    places, z, radius = places[order], z[order], radius[order]
    # Each sphere is a few discs, smaller and brighter towards the light.
    layers = int(np.clip(0.7 * size * np.median(radius), 1, 10)) if len(z) else 1
    t = (np.arange(layers) / layers if layers > 1 else np.array([0.5]))[:, None]
    bright = np.asarray(colours, float)[order, None] * (0.5 + 0.62 * t**0.6) + 0.25 * t**5
    behind = ((z.max() - z) / max(np.ptp(z), 1e-9))[:, None, None] ** 1.2 if len(z) else np.empty((0, 1, 1))
    bright = np.clip(bright, 0, 1) * (1 - haze * behind) + haze * behind * [0.93, 0.95, 0.97]
    size_of, place_of = 2 * radius[:, None] * (1 - t[:, 0]), places[:, None] + radius[:, None, None] * t * LIGHT
    discs = dict(offsets=place_of.reshape(-1, 2), facecolors=bright.reshape(-1, 3), linewidths=0, zorder=1)
    across = size_of.ravel()
    axes.add_collection(
        EllipseCollection(across, across, 0 * across, units="xy", offset_transform=axes.transData, **discs)
    )
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


# ---- pictures of the commands -----------------------------------------------------------------------------


def demo(
    path: Path, density: np.ndarray, extent: Any, errors: dict[str, list[tuple[int, float]]], title: str, units: str
) -> None:
    """Draw a slice of the charge density, indexed [x, y], and errors against nodes per axis for each window."""
    with figure(path, 11.6, 5.2, title) as drawn:
        left, right = drawn.subplots(1, 2)
        # The few nodes nearest to ions must not determine the colour scale.
        limit = float(np.quantile(np.abs(density), 0.99)) or 1.0
        image = left.imshow(
            density.T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="bicubic"
        )
        left.set(xlabel="x / nm", ylabel="y / nm", title="Charge density on the mesh")
        left.spines[:].set_visible(True)
        drawn.colorbar(image, ax=left, extend="both", label=units)
        sizes = set()
        for marker, (name, points) in zip(itertools.cycle(MARKERS), errors.items()):
            good = np.array(sorted((k, e) for k, e in points if np.isfinite(e) and e > 0))
            if len(good):
                last = np.log(good[-3:])
                slope = (
                    f", slope {np.polyfit(last[:, 0], last[:, 1], 1)[0]:+.1f}".replace("-", "−")
                    if len(good) > 1
                    else ""
                )
                right.loglog(*good.T, marker=marker, markersize=5, linewidth=1.8, label=name + slope)
                sizes.update(good[:, 0].astype(int).tolist())
        right.set(
            xlabel="nodes per axis", ylabel="relative error (rms)", title="Error of the mesh potential at the atoms"
        )
        if sizes:
            right.set_xticks(sorted(sizes), map(str, sorted(sizes)))
            right.minorticks_off()
            right.grid(True, axis="y")
            right.legend(loc="lower left")


def brownian(path: Path, spheres: Any, title: str, hydrodynamic: bool) -> None:
    """Draw the spheres, coloured by how far they moved, and the mean square displacement beside its law."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.ticker import LogLocator

    ramp = ("#24557a", "#5b9cb8", "#f0e2c4", "#ec9a55", "#c2402a")  # from short to long ways
    colours = LinearSegmentedColormap.from_list("moved", ramp)
    low, high = np.quantile(spheres.moved, (0.02, 0.98))
    span = Normalize(low, high, clip=True)
    image = render(spheres.folded, 1.0, np.full(3, spheres.edge), colours(span(spheres.moved))[:, :3], 1000)
    t, factor = spheres.times, 2 * spheres.axes
    law = factor * spheres.law * t
    with figure(path, 11.6, 5.2, title) as drawn:
        axes = drawn.subplot_mosaic(
            [["spheres", "growth"], ["spheres", "ratio"]], width_ratios=(1.2, 1), height_ratios=(2, 1)
        )
        axes["spheres"].imshow(image, interpolation="lanczos")
        axes["spheres"].set_axis_off()
        place = axes["spheres"].inset_axes((1.01, 0.1, 0.015, 0.4))
        bar = drawn.colorbar(ScalarMappable(span, colours), cax=place, extend="both")
        bar.ax.set_title("distance\nmoved / a", fontsize=8.5, pad=8)
        bar.outline.set_visible(False)
        growth, ratio = axes["growth"], axes["ratio"]
        word = f"{factor} μ kT t, μ of a sphere in the periodic box" if hydrodynamic else f"{factor} D t"
        growth.loglog(t, law, color=INK, linewidth=1.4, label=word)
        if hydrodynamic:
            alone = dict(color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label=f"{factor} D t, one sphere alone")
            growth.loglog(t, factor * t, **alone)
        growth.loglog(t, spheres.squared, "o", color=PALETTE[3], markersize=4.5, label="measured", zorder=3)
        growth.set(title="Mean square displacement / a²" + " across the flow" * (spheres.axes == 2))
        growth.legend(loc="upper left")
        growth.tick_params(labelbottom=False)
        error = dict(fmt="o", color=PALETTE[3], markersize=4.5, linewidth=1.2)
        ratio.errorbar(t, spheres.squared / law, spheres.errors / law, **error)
        ratio.axhline(1, color=INK, linewidth=1.4)
        ratio.set(xscale="log", xlabel="time / (a²/D)", title="measured / law", xlim=growth.get_xlim())
        for panel in (growth, ratio):
            panel.grid(True, axis="y")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter("")


class Film:
    """Renderings of a DEM run in one scale of colours: a series .png, or an animation .gif.

    Parameters
    ----------
    path : Path
        Its suffix says which.
    simulation : Simulation
        At its start, with arrays of NumPy.
    speed : float
        Of a free fall down the box.
    steps : int
        Of the whole run.
    """

    RAMP = ("#16365f", "#2b7aa6", "#86c2bd", "#f5e7bd", "#f2a14a", "#cc3b2b")  # from rest to the fastest
    MOMENTS = (0.0, 0.16, 0.30, 0.45, 0.65, 1.0)  # of a series, in parts of the run: most happens early
    FRAMES, MILLISECONDS = 72, 60  # of an animation, and of one frame
    SIZES = (800, 1100)  # pixels of a rendering, for a series and for an animation
    DPI, WIDTH = 150, 11.6

    def __init__(self, path: Path, simulation: Any, speed: float, steps: int) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        self.path, self.moves = path, path.suffix.lower() == ".gif"
        self.shots: list[tuple[float, np.ndarray]] = []  # times and pictures
        parts = np.linspace(0, 1, self.FRAMES).tolist() if self.moves else self.MOMENTS
        self.steps = {simulation.step + round(part * steps) for part in parts}
        self.colours = LinearSegmentedColormap.from_list("speed", self.RAMP)
        self.scale = PowerNorm(0.6, 0, 0.8 * speed, clip=True)  # slow motion gets more of the colours than its part
        self.radii = simulation.radii
        self.origin, self.edges = (np.array(x, float) for x in (simulation.domain.origin, simulation.domain.lengths))
        endless = ~np.isfinite(self.edges)
        if endless.any():  # such axes end where the particles are now
            x, r = simulation.positions, self.radii[:, None]
            self.origin[endless] = (x - r).min(axis=0)[endless]
            self.edges[endless] = (x + r).max(axis=0)[endless] - self.origin[endless]

    def shoot(self, simulation: Any) -> None:
        """Add a rendering of the present state."""
        colours = self.colours(self.scale(np.linalg.norm(simulation.velocities, axis=1)))[:, :3]
        centres = simulation.positions - self.origin
        picture = render(centres, self.radii, self.edges, colours, self.SIZES[self.moves], haze=0.2)
        self.shots.append((simulation.time, picture))

    def save(self, energies: Sequence[tuple[float, Any]], title: str) -> None:
        """Write the picture; a series has the curves of the energies below it."""
        (self._animation if self.moves else self._series)(energies, title)

    def _bar(self, drawn: Any, place: Any) -> None:
        from matplotlib.cm import ScalarMappable
        from matplotlib.ticker import MaxNLocator

        most, scale = float(self.scale.vmax or 0.0), ScalarMappable(self.scale, self.colours)
        ticks = [tick for tick in MaxNLocator(4).tick_values(0.0, most) if tick <= most]
        bar = drawn.colorbar(scale, cax=drawn.add_axes(place), extend="max", orientation="horizontal", ticks=ticks)
        bar.outline.set_visible(False)
        bar.ax.set_title("speed / (m/s)", fontsize=9, pad=6)

    def _series(self, energies: Sequence[tuple[float, Any]], title: str) -> None:
        rows, columns = self.shots[0][1].shape[:2]
        across = 3 if columns > rows else len(self.MOMENTS)
        down = -(-len(self.shots) // across)
        tall = down * (self.WIDTH / across * rows / columns + 0.25)  # inches of the renderings
        height = 0.6 + tall + 2.0
        with figure(self.path, self.WIDTH, height, title, dpi=self.DPI) as drawn:
            drawn.set_layout_engine("none")
            grid = drawn.add_gridspec(down, across, left=0.01, right=0.99, wspace=0.02, hspace=0.1,
                                      bottom=2.0 / height, top=1 - 0.75 / height)  # fmt: skip
            for place, (time, picture) in zip(grid, self.shots, strict=False):
                axes = drawn.add_subplot(place)
                axes.imshow(picture, interpolation="lanczos")
                axes.set_axis_off()
                axes.set_title(f"{time:.2f} s", loc="center", fontsize=9.5, pad=2)
            _energies(drawn.add_axes((0.06, 0.5 / height, 0.62, 1.1 / height)), energies, [t for t, _ in self.shots])
            self._bar(drawn, (0.76, 0.9 / height, 0.2, 0.12 / height))

    def _animation(self, energies: Sequence[tuple[float, Any]], title: str) -> None:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

        rows, columns = self.shots[0][1].shape[:2]
        wide = min(columns, 760) / 100
        tall = wide * rows / columns + 1.2
        with matplotlib.rc_context(STYLE):
            drawn = Figure(figsize=(wide, tall), dpi=100, facecolor="white")
            canvas = FigureCanvasAgg(drawn)
            drawn.text(0.03, 1 - 0.2 / tall, title, fontsize=1.35 * wide, fontweight="bold", va="center")
            clock = drawn.text(0.97, 0.3 / tall, "", fontsize=11, ha="right", va="center")
            self._bar(drawn, (0.03, 0.3 / tall, 0.35, 0.09 / tall))
            axes = drawn.add_axes((0, 0.7 / tall, 1, 1 - 1.1 / tall))
            axes.set_axis_off()
            image, pages = axes.imshow(self.shots[0][1], interpolation="lanczos"), []
            for time, picture in self.shots:
                image.set_data(picture)
                clock.set_text(f"{time:.2f} s")
                canvas.draw()
                pages.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]))
        # One palette for all frames, so that no colour flickers: that of a few frames side by side.
        few = [np.asarray(pages[n]) for n in np.linspace(0, len(pages) - 1, min(len(pages), 8)).astype(int)]
        palette = Image.fromarray(np.concatenate(few)).quantize(255, dither=Image.Dither.NONE)
        first, *others = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
        options = dict(save_all=True, append_images=others, duration=self.MILLISECONDS, loop=0, optimize=True)
        with replacing(self.path, overwrite=True) as part:
            first.save(part, format="GIF", **options)


def _energies(axes: Any, energies: Sequence[tuple[float, Any]], marks: Sequence[float]) -> None:
    """Draw the energies over time, relative to the first total, and when the renderings were taken."""
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
    axes.set_title("Energy / that of the start", fontsize=10, pad=6)
    axes.legend(ncols=4, loc="lower right", bbox_to_anchor=(1.0, 0.98), handlelength=1.4)


def distributed(path: Path, ranks: int, rows: Sequence[Any], stages: Sequence[str]) -> None:
    """Draw blocks of a mesh, parts balanced for a clustered cloud with the ghosts of one, and times by ranks."""
    with figure(path, 14.0, 4.9, f"A mesh on {ranks} rank{'s' * (ranks > 1)}") as drawn:
        drawn.set_layout_engine("none")
        _blocks(drawn.add_axes((0.0, 0.02, 0.31, 0.80), projection="3d"), ranks)
        _balanced(drawn.add_axes((0.335, 0.13, 0.2464, 0.704)), ranks)  # a square
        axes, places, below = drawn.add_axes((0.665, 0.17, 0.20, 0.66)), np.arange(len(rows)), np.zeros(len(rows))
        for name, seconds in zip(stages, zip(*(row.seconds for row in rows), strict=True), strict=True):
            milliseconds = np.array(seconds) * 1e3
            axes.bar(places, milliseconds, 0.62, bottom=below, label=name, edgecolor="white", linewidth=0.7)
            below += milliseconds
        for place, total in zip(places, below, strict=True):
            axes.text(place, total, f"{below[0] / total:.0%}", ha="center", va="bottom", fontsize=9)
        axes.set_xticks(places, [str(row.ranks) for row in rows])
        axes.set(xlabel="ranks", ylabel="ms per call", ylim=(0, 1.12 * below.max()), xlim=(-0.6, len(rows) - 0.4))
        axes.set_title(f"weak scaling: {rows[0].particles:,} particles per rank", fontsize=10)
        axes.legend(reverse=True, loc="center left", bbox_to_anchor=(1.02, 0.5))


NODES, CLOUD = 48, 4000  # of the mesh and the particles that are drawn


def _blocks(axes: Any, ranks: int) -> None:
    """Draw the blocks of a cube, with gaps between them."""
    from particlemesh.distributed import Domain

    domain = Domain(pm.Mesh((NODES,) * 3, (1.0,) * 3), ranks)
    owned = [(rank, part) for rank in range(ranks) for part in domain.parts(rank)]
    corners = np.array([part.lower for _, part in owned]) + 0.8
    sizes = np.array([part.shape for _, part in owned]) - 1.6
    colours = [_rank_colour(rank) for rank, _ in owned]
    axes.bar3d(*corners.T, *sizes.T, color=colours, edgecolor="white", alpha=0.6)
    axes.set(xlim=(0, NODES), ylim=(0, NODES), zlim=(0, NODES), box_aspect=(1, 1, 1))
    axes.view_init(elev=22, azim=-58)
    axes.set_axis_off()
    axes.set_title("blocks: the fewest ghost nodes", y=0.97, loc="center")


def _balanced(axes: Any, ranks: int) -> None:
    """Draw a clustered cloud in a plane, parts of equal numbers of particles, and the ghosts of one of them."""
    from matplotlib.patches import Rectangle

    from particlemesh.distributed import Domain
    from particlemesh.distributed.windows import reach_of

    rng = np.random.default_rng(3)
    centres = rng.random((7, 2))
    x = centres[rng.integers(0, len(centres), CLOUD)] + 0.055 * rng.standard_normal((CLOUD, 2))
    x = np.concatenate([x, rng.random((CLOUD // 4, 2))]) % 1.0
    cells = np.minimum((x * NODES).astype(np.int64), NODES - 1)
    counts = np.histogramdd(cells, bins=[np.arange(NODES + 1)] * 2)[0]
    domain = Domain(pm.Mesh((NODES, NODES), (1.0, 1.0)), ranks).balanced(counts)
    owners, parts, shown = domain.owner(cells), domain.parts(), ranks // 2
    axes.scatter(*x.T, s=1.6, c=[_rank_colour(rank) for rank in owners], linewidths=0)
    lower, sizes = (np.array([getattr(part, name) for part in parts]) / NODES for name in ("lower", "shape"))
    for corner, size in zip(lower, sizes, strict=True):
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=INK, linewidth=1.1))
    if ranks > 1:
        below, above = (n / NODES for n in reach_of(6, 2)[0])
        dashed: Any = dict(
            facecolor=_rank_colour(shown), edgecolor=_rank_colour(shown), alpha=0.16, linestyle=(0, (3, 2))
        )
        for image in itertools.product((-1, 0, 1), repeat=2):
            axes.add_patch(Rectangle(lower[shown] - below + image, *(sizes[shown] + below + above), **dashed))
    shares = np.bincount(owners, minlength=ranks)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.set_title("balanced for a cloud, with one part's ghosts", loc="center")
    axes.set_xlabel(f"largest part: {shares.max() / shares.mean():.2f} of the mean", color=QUIET)


def _rank_colour(rank: int) -> str:
    return PALETTE[rank % (len(PALETTE) - 1)]  # without black
