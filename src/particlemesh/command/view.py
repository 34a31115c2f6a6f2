# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh view``: fields in a window that you can turn, or on a page without a display. PyVista draws both."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.command import pictures
from particlemesh.command.consoles import check_outputs, refuse_idle, say_written
from particlemesh.command.pictures import INK, PALETTE, box_edges, surfaces


class Shown(NamedTuple):
    """A field to be shown."""

    values: np.ndarray  # (*mesh.shape), real
    mesh: pm.Mesh
    name: str


def pyvista() -> Any:
    """Return PyVista."""
    try:
        return importlib.import_module("pyvista")
    except ImportError as error:
        raise ImportError("view needs PyVista: pip install pyvista trame-pyvista.") from error


def has_display() -> bool:
    """Return whether windows can be opened here."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show(field: Shown, out: Path | None = None, *, level: float | None = None) -> Path | None:
    """Show a field in a window; without a display, or with ``out``, write a page .html instead and return its path.

    A field in 3-D is shown by surfaces on which it has a value, one in 2-D by colours; boxes have their true shape.
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
    shown = surfaces(mesh, values, level) if mesh.ndim == 3 else []
    plotter = library.Plotter(off_screen=off_screen)
    plotter.set_background("white")
    for value, points, faces in shown:
        triangles = np.concatenate([np.full((len(faces), 1), 3), faces], axis=1)
        colour = PALETTE[3] if value < 0 and len(shown) > 1 else PALETTE[0]
        plotter.add_mesh(library.PolyData(points, triangles.ravel()), color=colour, smooth_shading=True)
    if mesh.ndim == 2:
        plotter.add_mesh(_sheet(library, values, mesh, field.name), scalars=field.name, cmap="viridis")
    unit, edges = box_edges(mesh.ndim)
    corners = np.zeros((len(unit), 3))
    corners[:, : mesh.ndim] = mesh.box.origin + unit @ mesh.box.matrix
    lines = library.PolyData(corners, lines=np.insert(edges, 0, 2, axis=1).ravel())
    plotter.add_mesh(lines, color=INK, line_width=1.5)
    words = " and ".join(f"{value:.4g}" for value, _, _ in shown)
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


def _page(plotter: Any, out: Path) -> None:
    """Write a page that holds the scene; it is complete or not there."""
    export = plotter.trame.export_html if hasattr(plotter, "trame") else plotter.export_html
    try:
        with files.replacing(out, overwrite=True) as part:
            export(str(part))
    except ImportError as error:
        raise ImportError(f"a page needs more of PyVista ({error}): pip install trame-pyvista.") from error


def read_vti(path: Path) -> Shown:
    """Return the first array of VTK's image data, on nodes of an open box."""
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


def run(console: Any, file: Path, out: Path | None, level: float | None) -> None:
    """Show the field of a file in a window or on a page."""
    pyvista()  # before a large file is read
    check_outputs((file,), {"--out": out})
    if file.suffix.lower() == ".vti":
        shown = read_vti(file)
    else:
        field = files.read_field(file)
        values, name = pictures.real(field)
        shown = Shown(values, field.mesh, name)
    refuse_idle({"level"} if level is not None else set(), "level", shown.mesh.ndim == 3, "a surface needs 3 axes")
    page = show(shown, out, level=level)
    if page is not None:
        say_written(console, page, "a page that any browser shows")
