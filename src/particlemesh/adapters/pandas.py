# SPDX-License-Identifier: BSD-3-Clause
"""Particles in a DataFrame: results for each particle are columns with the frame's index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh import checks, functions
from particlemesh.adapters import check, library
from particlemesh.arrays.kinds import of_pandas
from particlemesh.grid.neighbour_list import neighbour_list as search
from particlemesh.mesh import Mesh

__all__ = ["gradient", "interpolate", "neighbour_list", "positions"]

_AXES = ("x", "y", "z")


def positions(frame: Any, columns: Sequence[str] | None = None) -> np.ndarray:
    """Return the positions of a DataFrame.

    Parameters
    ----------
    frame : pandas.DataFrame
    columns : sequence of d names, optional
        By default those of x, y and z that the frame has.

    Returns
    -------
    (N, d) ndarray
        Missing numbers are NaN, which plans refuse. Columns may be of NumPy, pandas (Float64) or Arrow.

    Raises
    ------
    ValueError
        If a column is missing, or there are two of the name.
    TypeError
        If it is no DataFrame, or a column holds other things than real numbers.

    Examples
    --------
    >>> import pandas
    >>> from particlemesh.adapters.pandas import positions
    >>> positions(pandas.DataFrame({"q": [1, -1], "x": [0.5, 1.5], "y": [0.0, 2.0]}))
    array([[0.5, 0. ],
           [1.5, 2. ]])
    """
    check(frame, ("columns", "dtypes", "iloc"), "a pandas.DataFrame")
    chosen = [name for name in _AXES if name in frame.columns] if columns is None else list(columns)
    missing = [name for name in chosen if name not in frame.columns]
    if missing or not 1 <= len(chosen) <= 3:
        wrong = f"has no column {missing[0]!r}" if missing else f"gives {len(chosen)} columns of positions"
        raise ValueError(
            f"the frame {wrong}; its columns are {list(frame.columns)}: give columns=, one to three names."
        )
    twice = [name for name in chosen if list(frame.columns).count(name) > 1]
    if twice:
        raise ValueError(f"the frame has the column {twice[0]!r} twice: rename one.")
    numbers = of_pandas(frame[chosen])
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"columns {chosen} have dtypes {[str(t) for t in frame[chosen].dtypes]}; give real numbers.")
    return numbers


def interpolate(
    field: Any, frame: Any, mesh: Mesh, *, columns: Sequence[str] | None = None, name: str | None = None, **options: Any
) -> Any:
    """Interpolate a field at the particles of a DataFrame.

    Parameters
    ----------
    field : array (K1, ..., Kd)
    frame : pandas.DataFrame
    mesh : Mesh
    columns : sequence of d names, optional
        As for :func:`positions`.
    name : str, optional
        Of the result.
    **options
        Of :func:`particlemesh.interpolate`, such as ``window``.

    Returns
    -------
    pandas.Series
        One value for each row, with the frame's index.

    Raises
    ------
    ValueError, TypeError
        As for :func:`positions` and :func:`particlemesh.interpolate`.

    Examples
    --------
    >>> import numpy as np, pandas, particlemesh as pm
    >>> from particlemesh.adapters.pandas import interpolate
    >>> frame = pandas.DataFrame({"x": [0.375, 0.5]}, index=["one", "two"])
    >>> frame["phi"] = interpolate(np.array([0.0, 1.0, 2.0, 1.0]), frame, pm.Mesh(4, 1.0), window="cic")
    >>> frame
             x  phi
    one  0.375  1.5
    two  0.500  2.0
    """
    pandas = library("pandas", "pandas", "a DataFrame")
    values = np.asarray(functions.interpolate(_one(field, mesh), positions(frame, columns), mesh, **options))
    return pandas.Series(values, frame.index, name=name)


def gradient(field: Any, frame: Any, mesh: Mesh, *, columns: Sequence[str] | None = None, **options: Any) -> Any:
    """Interpolate a field's gradient at the particles of a DataFrame.

    Parameters
    ----------
    field, frame, mesh, columns, **options
        As for :func:`interpolate`.

    Returns
    -------
    pandas.DataFrame
        One column for each axis, with the names of the columns of positions and the frame's index.

    Raises
    ------
    ValueError, TypeError
        As for :func:`interpolate`.

    Examples
    --------
    >>> import numpy as np, pandas, particlemesh as pm
    >>> from particlemesh.adapters.pandas import gradient
    >>> frame = pandas.DataFrame({"x": [0.375, 0.625]})
    >>> gradient(np.array([0.0, 1.0, 2.0, 1.0]), frame, pm.Mesh(4, 1.0), window="cic")["x"].tolist()
    [4.0, -4.0]
    """
    pandas = library("pandas", "pandas", "a DataFrame")
    slopes = np.asarray(functions.gradient(_one(field, mesh), positions(frame, columns), mesh, **options))
    names = [axis for axis in _AXES if axis in frame.columns] if columns is None else list(columns)
    return pandas.DataFrame(slopes, frame.index, names)


def neighbour_list(frame: Any, box: Any, radius: Any, *, columns: Sequence[str] | None = None, **options: Any) -> Any:
    """Return all pairs of a DataFrame's particles within a distance.

    Parameters
    ----------
    frame : pandas.DataFrame
    box, radius, **options
        As for :func:`particlemesh.neighbour_list`.
    columns : sequence of d names, optional
        As for :func:`positions`.

    Returns
    -------
    pandas.DataFrame
        A row for each pair: ``i`` and ``j``, labels of the frame's index, and the distance ``d``.

    Raises
    ------
    ValueError, TypeError
        As for :func:`positions` and :func:`particlemesh.neighbour_list`.

    Examples
    --------
    >>> import pandas
    >>> from particlemesh.adapters.pandas import neighbour_list
    >>> frame = pandas.DataFrame({"x": [0.1, 0.9, 0.5], "y": 0.5}, index=["a", "b", "c"])
    >>> neighbour_list(frame, (1.0, 1.0), 0.25, half=True).round(6)
       i  j    d
    0  a  b  0.2
    """
    pandas = library("pandas", "pandas", "a DataFrame")
    i, j, d = search("ijd", positions(frame, columns), box, radius, **options)
    return pandas.DataFrame({"i": frame.index[i], "j": frame.index[j], "d": d})


def _one(field: Any, mesh: Mesh) -> Any:
    """Return a field that is one of the mesh; a column holds no batch."""
    if np.shape(field) != mesh.field_shape:
        checks.trailing_shape(np.shape(field), mesh.field_shape, "field")
        raise ValueError(f"field has shape {np.shape(field)}; a column needs one field {mesh.field_shape}.")
    return field
