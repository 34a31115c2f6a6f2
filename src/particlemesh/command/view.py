# SPDX-License-Identifier: BSD-3-Clause
"""Fields in a window that one can turn, or on a page that needs no display. PyVista draws both."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps.files import replacing
from particlemesh.command.isosurfaces import half_level, surface

ABOVE, BELOW, INK = "#cc5c1a", "#1a6bb3", "#2b2b2b"


class Shown(NamedTuple):
    """A field to be shown."""

    values: np.ndarray  # (*mesh.shape), real
    mesh: pm.Mesh
    name: str


def pyvista() -> Any:
    """Return PyVista.

    Raises
    ------
    ImportError
        If it is missing.
    """
    try:
        return importlib.import_module("pyvista")
    except ImportError as error:
        raise ImportError("view needs PyVista: pip install pyvista trame-pyvista.") from error


def has_display() -> bool:
    """Return whether windows can be opened here."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show(field: Shown, out: Path | None = None, *, level: float | None = None) -> Path | None:
    """Show a field in a window; without a display, or with ``out``, write a page instead.

    A field in 3-D is shown by surfaces on which it has a value, one in 2-D by colours; boxes have their true shape.

    Parameters
    ----------
    field : Shown
    out : Path, optional
        The page .html. Without a display it is ``out/view.html`` by default.
    level : float, optional
        Value on the surface, as for :func:`particlemesh.command.pictures.save_picture`.

    Returns
    -------
    Path or None
        The page; None if there was a window.

    Raises
    ------
    ImportError
        If PyVista is missing, or what it writes pages with.
    ValueError
        If the field is in 1-D or not finite, or has no surface at the level.
    """
    if out is None and not has_display():
        out = Path("out/view.html")
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page is {str(out)!r}; its name must end in .html.")
    plotter = scene(field, level, off_screen=out is not None)
    try:
        if out is None:
            plotter.show(title=field.name)
        else:
            _page(plotter, out)
    finally:
        plotter.close()
    return out


def scene(field: Shown, level: float | None, *, off_screen: bool) -> Any:
    """Return PyVista's plotter with a field and the edges of its box."""
    library = pyvista()
    values, mesh = np.asarray(field.values, np.float64), field.mesh
    if mesh.ndim == 1:
        raise ValueError("this field is in 1-D: draw it with --picture.")
    if not np.isfinite(values).all():
        raise ValueError("the field has values that are not finite, and a view needs all of them.")
    surfaces = []
    if mesh.ndim == 3:
        levels = half_level(values) if level is None else [level]
        surfaces = [(value, *surface(mesh, values, value)) for value in levels]
        if not any(len(faces) for _, _, faces in surfaces):
            raise ValueError(f"no surface at level {levels[0]:.6g}: from {values.min():.6g} to {values.max():.6g}.")
    plotter = library.Plotter(off_screen=off_screen)
    plotter.set_background("white")
    for value, points, faces in surfaces:
        if len(faces):
            triangles = np.concatenate([np.full((len(faces), 1), 3), faces], axis=1)
            colour = BELOW if value < 0 and len(surfaces) > 1 else ABOVE
            plotter.add_mesh(library.PolyData(points, triangles.ravel()), color=colour, smooth_shading=True)
    if mesh.ndim == 2:
        plotter.add_mesh(
            _sheet(library, values, mesh, field.name), scalars=field.name, cmap="viridis", show_edges=False
        )
    plotter.add_mesh(_edges(library, mesh.box), color=INK, line_width=1.5)
    words = " and ".join(f"{value:.4g}" for value, _, _ in surfaces)
    plotter.add_text(f"{field.name}{' = ' * bool(words)}{words}", font_size=10, color=INK)
    if mesh.ndim == 2:
        plotter.view_xy()
    return plotter


def _sheet(library: Any, values: np.ndarray, mesh: pm.Mesh, name: str) -> Any:
    """Return the nodes of a field in 2-D as a surface, closed across periodic faces."""
    values = np.pad(values, [(0, int(flag)) for flag in mesh.periodic], mode="wrap")
    index = np.stack(np.meshgrid(*map(np.arange, values.shape), indexing="ij"), axis=-1)
    places = mesh.box.origin + (index + np.array(mesh.offset)) / np.array(mesh.intervals) @ mesh.box.matrix
    sheet = library.StructuredGrid(places[..., 0], places[..., 1], np.zeros(values.shape))
    sheet.point_data[name] = values.ravel(order="F")
    return sheet


def _edges(library: Any, box: pm.Box) -> Any:
    unit = np.stack(np.meshgrid(*[[0.0, 1.0]] * box.ndim, indexing="ij"), axis=-1).reshape(-1, box.ndim)
    corners = np.zeros((len(unit), 3))
    corners[:, : box.ndim] = box.origin + unit @ box.matrix
    lines = [(2, a, b) for a in range(len(unit)) for b in range(a) if np.abs(unit[a] - unit[b]).sum() == 1]
    return library.PolyData(corners, lines=np.ravel(lines))


def _page(plotter: Any, out: Path) -> None:
    """Write a page that holds the scene; it is complete or not there."""
    export = plotter.trame.export_html if hasattr(plotter, "trame") else plotter.export_html
    try:
        with replacing(out, overwrite=True) as part:
            export(str(part))
    except ImportError as error:
        raise ImportError(f"a page needs more of PyVista ({error}): pip install trame-pyvista.") from error


def read_vti(path: Path) -> Shown:
    """Return the first array of VTK's image data, on nodes of an open box.

    Raises
    ------
    ValueError
        If there is no such file, it is damaged, or it has no array of real numbers at its nodes.
    """
    library = pyvista()
    if not path.is_file():
        raise ValueError(f"{path} does not exist, or is no file.")
    try:
        image = library.read(path)
        points, name = image.point_data, next(iter(image.point_data.keys()), None)
        shape = tuple(int(n) for n in image.dimensions)
        values = None if name is None else np.asarray(points[name])
    except Exception as error:  # noqa: BLE001 - VTK raises almost anything for damaged files
        raise ValueError(f"{path} cannot be read as a field .vti: {' '.join(str(error).split())[:300]}.") from None
    if values is None or values.shape != (int(np.prod(shape)),) or values.dtype.kind not in "iuf":
        raise ValueError(f"{path} has no array of real numbers, one for each node: it is damaged, or made of cells.")
    axes = [axis for axis in range(3) if shape[axis] > 1]
    if not axes or any(step <= 0 for step in image.spacing):
        raise ValueError(f"{path} has {shape} nodes with spacings {image.spacing}: it is damaged.")
    rows = np.asarray(image.direction_matrix).T * (np.array(image.spacing) * (np.array(shape) - 1))[:, None]
    box = pm.Box(rows[np.ix_(axes, axes)], np.array(image.origin)[axes], periodic=False)
    mesh = pm.Mesh([shape[axis] for axis in axes], box)
    return Shown(values.reshape(shape, order="F").reshape(mesh.shape), mesh, str(name))
