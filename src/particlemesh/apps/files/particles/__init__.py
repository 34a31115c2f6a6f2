# SPDX-License-Identifier: BSD-3-Clause
"""Particles in files. ``FORMATS`` lists the formats; the ending of a file's name selects one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.libraries import listing
from particlemesh.apps.files.particles.atoms import Data, Dump, ExtendedXYZ
from particlemesh.apps.files.particles.gsd import GSD
from particlemesh.apps.files.particles.hdf5 import HDF5
from particlemesh.apps.files.particles.molecules import Molecules
from particlemesh.apps.files.particles.npz import NPZ
from particlemesh.apps.files.particles.openpmd import OpenPMD as OpenPMD  # a form of HDF5
from particlemesh.apps.files.particles.parquet import Parquet
from particlemesh.apps.files.particles.points import Points
from particlemesh.apps.files.particles.reader import Reader
from particlemesh.apps.files.particles.selection import Particles, open_reader
from particlemesh.apps.files.particles.text import Text

FORMATS: tuple[type[Reader], ...] = (
    NPZ, HDF5, GSD, ExtendedXYZ, Dump, Data, Molecules, Points, Text, Parquet,
)  # fmt: skip
IN_PARTS = tuple(form for form in FORMATS if form.in_parts)


class Configuration(NamedTuple):
    """All particles of a frame."""

    positions: np.ndarray  # (N, d)
    values: np.ndarray  # (..., N)
    box: Box | None


@listing(ENDINGS=FORMATS, PARTS=IN_PARTS)
def open_particles(
    path: Any, *, positions: str | None = None, values: str | float | None = None, topology: Any = None
) -> Particles:
    """Open a file of particles, to read it in parts.

    The ending of the name selects the format: ENDINGS.

    Files PARTS may be larger than the memory. Others are read a frame at a time.

    Parameters
    ----------
    path : path-like
    positions : str, optional
        Name of a column (N, d), or names of d columns with commas between them. By default the column with a usual
        name (positions, position, pos, coordinates, coords, xyz), or x, y and z.
    values : str or float, optional
        Name of a column (N,) or (N, c), names of several columns, or one number for all particles; 1 by default. A
        text that is a number is the column of that name, if there is one.
    topology : path-like, optional
        File with what a trajectory of molecules lacks: charges and masses.

    Returns
    -------
    Particles
        A context manager, which closes the file.

    Raises
    ------
    ImportError
        If the format's library is missing: ``pip install 'particlemesh[files]'``.
    ValueError
        If there is no such file or column, the ending is unknown, or the file is damaged.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from particlemesh.apps.files import open_particles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/few.npz", positions=np.eye(3), charges=[1.0, 2.0, 3.0], box=[2.0, 2.0, 2.0])
    ...     with open_particles(f"{folder}/few.npz", values="charges") as particles:
    ...         sums = [float(chunk.values.sum()) for chunk in particles.chunks(size=2)]
    ...         box = particles.box()
    >>> sums, box.lengths
    ([3.0, 3.0], array([2., 2., 2.]))
    """
    return Particles(open_reader(FORMATS, path, topology), positions, values)


def read_particles(
    path: Any, *, positions: str | None = None, values: str | float | None = None, topology: Any = None, frame: int = -1
) -> Configuration:
    """Return all particles of a frame.

    Parameters
    ----------
    path, positions, values, topology
        As for :func:`open_particles`.
    frame : int
        From 0 on, or from -1 backwards; the last by default.

    Returns
    -------
    Configuration
        With ``positions (N, d)``, ``values (..., N)`` and ``box``, None if the file has none.

    Raises
    ------
    ImportError, ValueError
        As for :func:`open_particles`; if the file has no such frame; if a number is not finite.
    """
    with open_particles(path, positions=positions, values=values, topology=topology) as particles:
        chunks = list(particles.chunks(frame=frame))
        points = np.concatenate([chunk.positions for chunk in chunks])
        numbers = np.concatenate([chunk.values for chunk in chunks], axis=-1)
        return Configuration(points, numbers, particles.box(frame))
