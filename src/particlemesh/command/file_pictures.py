# SPDX-License-Identifier: BSD-3-Clause
"""What ``--picture`` and ``particlemesh view`` draw of fields and spectra in files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from particlemesh.apps import files
from particlemesh.command import file_report as report
from particlemesh.command import pictures, view
from particlemesh.command.consoles import check_outputs, refuse_idle
from particlemesh.fourier import Spectrum


@dataclass
class Picture:
    """The options of a picture; without a path there is none."""

    path: Path | None = None
    kind: str = "projection"
    axis: str = "z"
    at: float | None = None
    level: float | None = None
    scale: str = "linear"

    def check(self, stated: set[str], ndim: int | None = None) -> None:
        """Raise what is wrong before anything is computed.

        Parameters
        ----------
        stated : set of str
            Names of the options that were given.
        ndim : int, optional
            Axes of the field that is drawn; None before they are known.

        Raises
        ------
        ImportError, ValueError
            If a library is missing, or an option is not allowed or would change nothing.
        """
        refuse_idle(stated, "kind axis at level scale", self.path is not None, "this needs --picture")
        if self.path is None:
            return
        pictures.check_picture(self.path, self.kind, self.scale)
        refuse_idle(stated, "kind axis at level", ndim in (None, 3), "this needs a mesh with 3 axes")
        refuse_idle(stated, "at", self.kind == "slice", "it needs --kind slice")
        refuse_idle(stated, "level", self.kind == "isosurface", "it needs --kind isosurface")
        refuse_idle(stated, "axis scale", self.kind != "isosurface", "an isosurface has neither")

    def of_field(self, field: files.Field, length_units: str | None) -> AbstractContextManager[None]:
        """Draw a field, if a picture is asked for; it appears after the other outputs, which the caller writes inside.

        Drawing comes first, since it may fail.
        """

        def draw(path: Path) -> None:
            values, name = real(field)
            axis: Any = self.axis if field.mesh.ndim == 3 else -1
            pictures.save_picture(
                path, values, field.mesh, self.kind, axis=axis, at=self.at, level=self.level, name=name,
                length_units=length_units or "", scale=self.scale,
            )  # fmt: skip

        return self._appears(draw)

    def of_spectrum(self, spectrum: Spectrum) -> AbstractContextManager[None]:
        """Draw a power spectrum as `of_field` draws a field."""
        return self._appears(lambda path: pictures.save_spectrum(path, spectrum.k, spectrum.power, spectrum.shot_noise))

    @contextlib.contextmanager
    def _appears(self, draw: Callable[[Path], None]) -> Iterator[None]:
        if self.path is None:
            yield
            return
        with files.replacing(self.path, overwrite=True) as part:
            draw(part)
            yield

    def say(self, console: Console, ndim: int | None = None) -> None:
        """Print which picture was written."""
        if self.path is not None:
            what = f"picture, {self.kind}" if ndim == 3 else "picture"
            report.say_written(console, self.path, what)


def real(field: files.Field) -> tuple[np.ndarray, str]:
    """Return one real field and its name: the magnitude of complex values, the first of several components."""
    values, name = field.values, field.name
    if values.ndim > field.mesh.ndim:
        values, name = values.reshape(-1, *field.mesh.shape)[0], f"{name}[0]"
    return (np.abs(values), f"|{name}|") if np.iscomplexobj(values) else (values, name)


def show(console: Console, file: Path, out: Path | None, level: float | None) -> None:
    """Show the field of a file in a window or on a page.

    Raises
    ------
    ImportError, ValueError, OSError
        If PyVista is missing, the file cannot be read, or its field cannot be shown.
    """
    view.pyvista()  # before a large file is read
    check_outputs((file,), {"--out": out})
    if file.suffix.lower() == ".vti":
        shown = view.read_vti(file)
    else:
        field = files.read_field(file)
        values, name = real(field)
        shown = view.Shown(values, field.mesh, name)
    refuse_idle({"level"} if level is not None else set(), "level", shown.mesh.ndim == 3, "a surface needs 3 axes")
    page = view.show(shown, out, level=level)
    if page is not None:
        report.say_written(console, page, "a page that any browser shows")
