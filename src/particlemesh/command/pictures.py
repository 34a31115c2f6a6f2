# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of fields: a projection, a slice or an isosurface, with axes in units. Needs matplotlib."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.files import replacing
from particlemesh.command import planes
from particlemesh.command.figures import INK, PALETTE, QUIET, TEXT
from particlemesh.command.isosurfaces import half_level, marching_cubes, surface

KINDS = ("projection", "slice", "isosurface")
SUFFIXES = (".png", ".pdf", ".svg", ".jpg")
SCALES = ("linear", "log")
MOST = 1600  # pixels of a map along an axis
MANY = 2 * 10**6  # triangles, which matplotlib draws in a minute
DECADES = 4  # of a logarithmic scale of colours


def save_picture(
    path: str | os.PathLike[str],
    field: Any,
    mesh: pm.Mesh,
    kind: str = "projection",
    *,
    axis: int | str = -1,
    at: float | None = None,
    level: float | None = None,
    units: str = "",
    length_units: str = "",
    title: str = "",
    name: str = "field",
    scale: str = "linear",
) -> None:
    """Write a picture of a field; the suffix of the file names its format.

    A box is drawn in its true shape, also a triclinic one. Nodes are centres of pixels. Along periodic axes the picture
    ends at the faces of the box, and pixels there show the nodes beyond.

    Parameters
    ----------
    path : path-like
        A file .png, .pdf, .svg or .jpg. It is complete or not there.
    field : array (*mesh.shape) or (*mesh.field_shape)
        Real, on the host. Ghosts are left out. A field in 1-D is drawn as a line, one in 2-D as a map.
    mesh : Mesh
        No part of another mesh.
    kind : {"projection", "slice", "isosurface"}
        In 3-D: the integral along an axis, a layer of nodes, or the surface on which the field has a value.
    axis : int or str
        Of the projection or across the slice: a number, or the name x, y, z, or a, b, c of a lattice vector.
    at : float, optional
        Place of a slice along the axis; by default the middle. The nearest layer of nodes is drawn.
    level : float, optional
        Value on the isosurface. By default, the nodes beyond it have half of the sum of the field's magnitudes. A field
        of both signs then has two surfaces.
    units, length_units : str
        Of the field and of lengths, such as ``"e/nm³"`` and ``"nm"``.
    title, name : str
        Headline, and the name of the field for the scale of colours.
    scale : {"linear", "log"}
        Of the colours. ``"log"`` needs a field without negative values; at most four decades are shown.

    Raises
    ------
    ImportError
        If matplotlib is missing, or for an isosurface both scikit-image and PyVista.
    ValueError
        If the field does not fit the mesh, is complex, or has no finite value; or an argument is not allowed.
    """
    if kind == "isosurface" and mesh.ndim != 3:
        raise ValueError(f"an isosurface needs a mesh with 3 axes, and this one has {mesh.ndim}: leave kind out.")
    check_picture(path, kind, scale)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    if level is not None and (kind != "isosurface" or not np.isfinite(level)):
        raise ValueError(f"level is {level}; it is a finite number, for kind='isosurface'.")
    if at is not None and (kind != "slice" or mesh.ndim != 3):
        raise ValueError(f"at is {at}; it is for kind='slice' of a mesh with 3 axes.")
    along = planes.axis_of(mesh, axis)
    values = _values(field, mesh)
    if scale == "log" and (np.nanmin(values) < 0 or not np.nanmax(values) > 0):
        raise ValueError("scale is 'log', and the field has negative values, or no positive one: use 'linear'.")
    with matplotlib.rc_context(TEXT):
        figure = Figure(figsize=(7.2, 6.2), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        if mesh.ndim == 1:
            _line(figure, mesh, values, name, units, length_units, scale)
        elif kind == "isosurface":
            _isosurface(figure, mesh, values, level, name, units, length_units)
        else:
            plane = planes.flat(mesh, values, kind, along, at)
            _map(figure, plane, name, units, length_units, scale)
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.02, ha="left")
        _save(figure, path)


def save_spectrum(path: str | os.PathLike[str], k: Any, power: Any, shot_noise: Any = None) -> None:
    """Write a picture of a power spectrum, on logarithmic axes.

    Parameters
    ----------
    path : path-like
        As for `save_picture`.
    k, power : array (bins,)
        Bins with no finite positive number are left out.
    shot_noise : array (bins,), optional
        Drawn beside it, where it is positive.

    Raises
    ------
    ImportError, ValueError
        As for `save_picture`; or if no bin can be drawn.
    """
    check_picture(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    k, lines = np.asarray(k, float), [(power, "power", "-"), (shot_noise, "shot noise", ":")]
    with matplotlib.rc_context(TEXT):
        figure = Figure(figsize=(7.2, 4.6), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xscale="log", yscale="log")
        for (numbers, label, style), colour in zip(lines, (PALETTE[3], QUIET), strict=True):
            y = np.full(k.shape, np.nan) if numbers is None else np.asarray(numbers, float)
            with np.errstate(invalid="ignore"):
                shown = np.isfinite(y) & (y > 0) & (k > 0)
            if label == "power" and not shown.any():
                raise ValueError("the spectrum has no finite positive power, so there is nothing to draw.")
            if shown.any():
                axes.plot(k[shown], y[shown], style, color=colour, linewidth=1.6, label=label)
        axes.set(xlabel="k / (rad per length)", ylabel="power / volume")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        _save(figure, Path(path))


def check_picture(path: str | os.PathLike[str], kind: str = "projection", scale: str = "linear") -> None:
    """Raise what `save_picture` would raise for such a picture of any field, before there is one.

    Raises
    ------
    ImportError, ValueError
        As for `save_picture`.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install matplotlib, or 'particlemesh[plot]'.") from error
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"the picture is {str(path)!r}; its name must end in one of {', '.join(SUFFIXES)}.")
    for value, what, choices in ((kind, "kind", KINDS), (scale, "scale", SCALES)):
        if value not in choices:
            raise ValueError(f"{what} is {value!r}; allowed are {', '.join(map(repr, choices))}.")
    if kind == "isosurface":
        marching_cubes()


def _values(field: Any, mesh: pm.Mesh) -> np.ndarray:
    """Return the field without ghosts in double precision; what is not finite becomes NaN."""
    values = np.asarray(field)
    if mesh.is_part:
        raise ValueError("this mesh is a part of another one: give the whole mesh and its field.")
    if values.dtype.kind not in "iufb":
        hint = "give its .real, .imag or abs()" if values.dtype.kind == "c" else "real numbers are needed"
        raise ValueError(f"the field has dtype {values.dtype}: {hint}.")
    if values.shape not in (mesh.shape, mesh.field_shape):
        raise ValueError(f"the field has shape {values.shape}; one field {mesh.shape} is drawn: choose one of a batch.")
    if values.shape != mesh.shape:
        inner = zip(mesh.ghosts, mesh.shape, strict=True)
        values = values[tuple(slice(lower, lower + nodes) for (lower, _), nodes in inner)]
    values = values.astype(np.float64)
    good = np.isfinite(values)
    if not good.any():
        raise ValueError("the field has no finite value, so there is nothing to draw.")
    values[~good] = np.nan
    return values


def _save(figure: Any, path: Path) -> None:
    """Write a figure; the file is complete or not there."""
    with replacing(path, overwrite=True) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), bbox_inches="tight", pad_inches=0.15)


def _label(name: str, units: str) -> str:
    return f"{name} / {units}" if units else name


def _line(figure: Any, mesh: pm.Mesh, values: Any, name: str, units: str, length_units: str, scale: str) -> None:
    axes = figure.add_subplot()
    x, y = mesh.nodes(0), values
    if mesh.periodic[0]:  # from face to face
        edge = mesh.box.lengths[0]
        x, y = np.concatenate([x - edge, x, x + edge]), np.tile(y, 3)
    axes.plot(x, y, color=PALETTE[3], linewidth=1.6)
    axes.set(xlabel=_label("x", length_units), ylabel=_label(name, units), yscale=scale)
    axes.set_xlim(mesh.box.origin[0], mesh.box.origin[0] + mesh.box.lengths[0])
    axes.spines[["top", "right"]].set_visible(False)


def _map(figure: Any, plane: planes.Plane, name: str, units: str, length_units: str, scale: str) -> None:
    from matplotlib.patches import Polygon
    from matplotlib.transforms import Affine2D

    values, extent = planes.filled(plane, MOST)
    axes = figure.add_subplot(aspect="equal")
    colours, norm, beyond = _colours(values, scale)
    image = axes.imshow(values.T, origin="lower", extent=extent, cmap=colours, norm=norm, interpolation="nearest")
    rows, corner = plane.rows, plane.corner
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = rows.T, corner
    image.set_transform(Affine2D(matrix) + axes.transData)
    outline = corner + np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) @ rows
    box = Polygon(outline, closed=True, fill=False, edgecolor=INK, linewidth=0.9)
    axes.add_patch(box)
    image.set_clip_path(box)
    low, high = outline.min(axis=0), outline.max(axis=0)
    straight = not (rows[0, 1] or rows[1, 0])
    margin = 0.0 if straight else 0.02 * (high - low).max()
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    axes.set_aspect("equal")  # imshow has set it for the extent
    axes.spines[["top", "right", *(() if straight else ("left", "bottom"))]].set_visible(False)
    axes.set(xlabel=_label(plane.labels[0], length_units), ylabel=_label(plane.labels[1], length_units))
    axes.set_title(plane.what, loc="left", pad=8)
    if plane.integrated:
        units = " · ".join(part for part in (units, length_units) if part)
        name = f"∫ {name}"
    width, height = high - low
    bar = figure.colorbar(image, ax=axes, extend=beyond, fraction=0.046, pad=0.03, shrink=min(1.0, height / width))
    bar.set_label(_label(name, units))
    bar.outline.set_linewidth(0.8)


def _colours(values: np.ndarray, scale: str) -> tuple[str, Any, str]:
    """Return colours, their scale, and which ends values are beyond: a few extreme nodes do not make the rest pale."""
    from matplotlib.colors import LogNorm, Normalize

    good = values[np.isfinite(values)]
    low, high = float(good.min()), float(good.max())
    if scale == "log":
        smallest = float(good[good > 0].min()) if (good > 0).any() else high
        bottom = max(smallest, high / 10**DECADES)
        return "viridis", LogNorm(bottom, max(high, bottom * 1.001), clip=True), "min" if low < bottom else "neither"
    if low < 0 < high:
        limit = float(np.quantile(np.abs(good), 0.998)) or max(-low, high)
        return "RdBu_r", Normalize(-limit, limit), _ends(low < -limit, high > limit)
    if low == high:
        return "viridis", Normalize(low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)), "neither"
    first, last = (float(q) for q in np.quantile(good, (0.001, 0.998)))
    first, last = (low, high) if first == last else (first, last)
    if 0 <= first < 0.2 * last:
        first = 0.0
    if last <= 0 and last > 0.2 * first:
        last = 0.0
    return "viridis", Normalize(first, last), _ends(low < first, high > last)


def _ends(below: bool, above: bool) -> str:
    return "both" if below and above else "min" if below else "max" if above else "neither"


def _isosurface(
    figure: Any, mesh: pm.Mesh, values: np.ndarray, level: float | None, name: str, units: str, length_units: str
) -> None:
    from matplotlib.colors import LightSource
    from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

    if np.isnan(values).any():
        raise ValueError("the field has values that are not finite, and an isosurface needs all of them.")
    levels = [level] if level is not None else half_level(values)
    axes = figure.add_subplot(projection="3d", computed_zorder=False)
    drawn = []
    light = LightSource(azdeg=225, altdeg=45)
    triangles, colours = [], []
    for value in levels:
        points, faces = surface(mesh, values, value)
        if len(faces):
            corners = points[faces]
            normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            size = np.linalg.norm(normals, axis=1, keepdims=True)
            shade = np.abs(light.shade_normals(normals / np.where(size > 0, size, 1.0), fraction=1.0))
            colour = np.array([0.80, 0.36, 0.10] if value > 0 or len(levels) == 1 else [0.10, 0.42, 0.70])
            triangles.append(corners)
            colours.append(np.clip(colour * (0.45 + 0.65 * shade[:, None]), 0, 1))
            drawn.append(f"{value:.3g}".replace("-", "−"))
    if not triangles:
        low, high = values.min(), values.max()
        raise ValueError(f"no surface at level {levels[0]:.6g}: the field goes from {low:.6g} to {high:.6g}.")
    count = sum(map(len, triangles))
    if count > MANY:
        raise ValueError(f"the surface has {count:,} triangles, the most is {MANY:,}: give another level.")
    axes.add_collection3d(
        Poly3DCollection(np.concatenate(triangles), facecolors=np.concatenate(colours), edgecolors="none", zorder=2)
    )
    unit = np.array([(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    corners = mesh.box.origin + unit @ mesh.box.matrix
    edges = [(a, b) for a in range(8) for b in range(a) if abs(unit[a] - unit[b]).sum() == 1]
    axes.add_collection3d(Line3DCollection([corners[[a, b]] for a, b in edges], colors=INK, linewidths=0.7, zorder=1))
    low, high = corners.min(axis=0), corners.max(axis=0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect(high - low)
    axes.set(**{f"{label}label": _label(label, length_units) for label in planes.AXES})
    for side in (axes.xaxis, axes.yaxis, axes.zaxis):
        side.pane.set_visible(False)
    axes.grid(False)
    axes.set_title(f"{name} = {' and '.join(drawn)}{f' {units}' if units else ''}", loc="left", pad=0)
