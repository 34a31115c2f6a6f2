# SPDX-License-Identifier: BSD-3-Clause
"""Particles with the pairs between them as bonds, in files that other programs draw and simulate."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.libraries import Format, by_ending, listing
from particlemesh.apps.files.replacing import check_free, replacing
from particlemesh.apps.files.tables import FORMATS
from particlemesh.apps.files.trajectory import GSD, ExtendedXYZ, Frame, writer

BONDED = GSD, ExtendedXYZ


def check_pairs(path: Any, overwrite: bool = False) -> bool:
    """Return whether a name is that of a file of bonds, and not of a table of pairs.

    Raises
    ------
    ImportError
        If the format's library is missing.
    ValueError
        If no format has the ending, or the file exists and may not be replaced.
    """
    form: type[Format] = by_ending((*FORMATS, *BONDED), path, f"out is {str(path)!r}; give a name that ends in")
    form.load()
    check_free(path, overwrite)
    return form in BONDED


@listing(ENDINGS=BONDED)
def write_bonds(path: Any, positions: Any, box: Box | None, i: Any, j: Any, *, overwrite: bool = False) -> None:
    """Write particles with a bond for each of some pairs: ENDINGS.

    In .gsd they are ``bonds/group``. In .xyz they are a column ``bonds`` in ASE's notation, at the particle i of each.
    ``3(1),7(1)`` are bonds to the particles 3 and 7, counted from 0. ``_`` is none.

    Parameters
    ----------
    path : path-like
    positions : array (N, 3)
    box : Box or None
        A .gsd needs one.
    i, j : int arrays (B,)
        The particles of each bond, which is listed once.
    overwrite : bool
        Whether to replace a file that exists.

    Raises
    ------
    ImportError
        If the format's library is missing.
    ValueError
        If a bond is listed twice or joins a particle with itself: files do not tell images apart. Or if something does
        not fit the format.

    Examples
    --------
    >>> import tempfile, numpy as np, particlemesh as pm
    >>> from pathlib import Path
    >>> from particlemesh.apps.files import write_bonds
    >>> x, box = np.array([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]]), pm.Box([1.0, 1.0, 1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bonds(f"{folder}/pair.xyz", x, box, *pm.neighbour_list("ij", x, box, 0.3, half=True))
    ...     print(Path(f"{folder}/pair.xyz").read_text().splitlines()[2])
    X 0.1 0.5 0.5 1(1)
    """
    if not check_pairs(path, overwrite):
        raise ValueError(f"{path} is a table: give a name that ends in .gsd or .xyz.")
    points, pairs = np.asarray(positions), np.stack([np.asarray(i), np.asarray(j)], axis=-1).astype(np.int64)
    if points.shape[1:] != (3,):
        raise ValueError(f"positions have shape {points.shape}; files of bonds have three axes: (n, 3).")
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(points):
        raise ValueError(f"bonds go from particle {pairs.min()} to {pairs.max()}; there are {len(points)}.")
    ends = np.sort(pairs, axis=1)
    order = np.lexsort(ends.T[::-1])
    again = (np.diff(ends[order], axis=0, prepend=-1) == 0).all(axis=1)
    twice = pairs[order[again | (ends[order, 0] == ends[order, 1])]]
    if len(twice):
        raise ValueError(
            f"{len(twice)} bonds are listed twice or join a particle with itself, such as that of {twice[0, 0]} and "
            f"{twice[0, 1]}. These files do not tell images apart: take a smaller radius, or write a table with S."
        )
    frame = Frame(0, 0.0, points, box, bonds=pairs[order])
    with replacing(path, overwrite) as part, writer(part, frame) as file:
        file.write(frame)
