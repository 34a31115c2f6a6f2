# SPDX-License-Identifier: BSD-3-Clause
"""Functions for positions that are used once; most make a plan."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from particlemesh import checks
from particlemesh.arrays.kinds import recorder_of
from particlemesh.arrays.operands import adopt, real_dtype
from particlemesh.arrays.positions import coordinates
from particlemesh.mesh import Mesh
from particlemesh.particles.locate import locate_all
from particlemesh.particles.located import DeviceParticles, Status
from particlemesh.particles.stencil import axes_of
from particlemesh.plan import Plan
from particlemesh.window import DEFAULT, Window, bspline, window_of

_OPTIONS = set(inspect.signature(Plan).parameters) - {
    "mesh",
    "window",
    "order",
    "systems",
}  # values are in the caller's order, of one system


@contextlib.contextmanager
def _plan(
    positions: Any, values: Any, what: str, mesh: Mesh, window: Window | str, options: dict[str, Any]
) -> Iterator[Plan]:
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(f"option {unknown[0]!r} is unknown; Plan takes {', '.join(sorted(_OPTIONS))}.")
    # The precision is that of the values; for integers, that of the positions.
    kind, array = adopt(values, what)
    if "dtype" not in options and kind.dtype(array).kind in "fc":
        options = {**options, "dtype": real_dtype(array, kind, what)}
    plan = Plan(mesh, window, **options)
    plan.set_positions(positions)
    recorded = recorder_of(array, *plan.tracked) is not None  # then derivatives will use the plan
    with contextlib.nullcontext() if recorded else plan:
        yield plan


def spread(
    positions: Any, values: Any, mesh: Mesh, *, window: Window | str = DEFAULT, out: Any = None, **options: Any
) -> Any:
    """Spread values onto a mesh: ``field[m] = sum_p W(x_m - x_p) values[p]``.

    Parameters
    ----------
    positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
        In the user's length unit. A list is converted by NumPy to points (N, d). A tuple has one array or list per
        axis.
    values : array (..., N)
        Real or complex. The result has their dtype; integers are computed in the dtype of the positions.
    mesh : Mesh
    window : Window or str
    out : array (..., *mesh.field_shape), optional
        Written and returned.
    **options
        Options of :class:`Plan` (``method``, ``backend``, ``deterministic``, ...).

    Returns
    -------
    array (..., *mesh.field_shape)
        Array of the same library and device as ``values``; not divided by the volume of a node.

    Raises
    ------
    ValueError, TypeError
        As for :class:`Plan` and its methods.

    Examples
    --------
    >>> import particlemesh as pm
    >>> pm.spread([0.5], [2.0], pm.Mesh(4, 1.0), window="cic")
    array([0., 0., 2., 0.])
    """
    with _plan(positions, values, "values", mesh, window, options) as plan:
        return plan.spread(values, out=out)


def interpolate(
    field: Any, positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, out: Any = None, **options: Any
) -> Any:
    """Interpolate a field at particles: ``values[p] = sum_m W(x_m - x_p) field[m]``.

    Parameters
    ----------
    field : array (..., *mesh.field_shape)
        Real or complex. The result has its dtype; integers are computed in the dtype of the positions.
    positions, mesh, window, **options
        As for :func:`spread`. The option ``interpolation`` names the method.
    out : array (..., N), optional
        Written and returned.

    Returns
    -------
    array (..., N)
        Array of the same library and device as ``field``.

    Raises
    ------
    ValueError, TypeError
        As for :class:`Plan` and its methods.

    Examples
    --------
    >>> import particlemesh as pm
    >>> pm.interpolate([0.0, 1.0, 2.0, 1.0], [0.375], pm.Mesh(4, 1.0), window="cic")
    array([1.5])
    """
    with _plan(positions, field, "field", mesh, window, options) as plan:
        return plan.interpolate(field, out=out)


def gradient(
    field: Any, positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, out: Any = None, **options: Any
) -> Any:
    """Interpolate a field's gradient at particles, per user length unit.

    Parameters
    ----------
    field, positions, mesh, window, **options
        As for :func:`interpolate`.
    out : array (..., N, d), optional
        Written and returned.

    Returns
    -------
    array (..., N, d)

    Raises
    ------
    ValueError, TypeError
        As for :class:`Plan` and its methods.

    Examples
    --------
    >>> import particlemesh as pm
    >>> pm.gradient([0.0, 1.0, 2.0, 1.0], [0.375], pm.Mesh(4, 1.0), window="cic")
    array([[4.]])
    """
    with _plan(positions, field, "field", mesh, window, options) as plan:
        return plan.gradient(field, out=out)


def hessian(
    field: Any, positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, out: Any = None, **options: Any
) -> Any:
    """Interpolate a field's second derivatives at particles, per user length unit squared.

    Parameters
    ----------
    field, positions, mesh, window, **options
        As for :func:`interpolate`. The window should be at least once differentiable, ``"tsc"`` or smoother: between
        nodes of ``"cic"`` only mixed derivatives differ from zero.
    out : array (..., N, d, d), optional
        Written and returned.

    Returns
    -------
    array (..., N, d, d)
        Symmetric.

    Raises
    ------
    ValueError, TypeError
        As for :class:`Plan` and its methods.

    Examples
    --------
    >>> import particlemesh as pm
    >>> pm.hessian([0.0, 1.0, 2.0, 1.0], [0.375], pm.Mesh(4, 1.0), window="tsc")
    array([[[-32.]]])
    """
    with _plan(positions, field, "field", mesh, window, options) as plan:
        return plan.hessian(field, out=out)


class Located(NamedTuple):
    """Where :func:`locate` finds particles.

    Attributes
    ----------
    cells : int32 array (N, d)
        The node of the mesh below each particle for windows of even support, and the nearest one for odd support. The
        stencil begins ``(support - 1) // 2`` nodes before it. On a periodic axis from 0 to K - 1.
    fractions : array (N, d)
        Where the particle is between nodes, centred as for :meth:`Window.weights`, in [-1/2, 1/2).
    """

    cells: Any
    fractions: Any


def locate(positions: Any, mesh: Mesh, *, window: Window | str = DEFAULT, check: bool = True) -> Located:
    """Return the cell and the fraction of each particle, exactly as plans on this mesh and on its parts have them.

    Parameters
    ----------
    positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
    mesh : Mesh
        Of a part, the whole mesh counts.
    window : Window or str
        Only its support counts.
    check : bool
        If False, never wait for the device. The last coordinate of the cell of a bad particle is then -2**31.

    Returns
    -------
    Located
        A named tuple of ``cells`` and ``fractions``. They have the library and device of the positions.

    Raises
    ------
    ValueError, TypeError
        If a position is not finite or outside an open axis; for other arguments as :meth:`Plan.set_positions`.

    Examples
    --------
    >>> import particlemesh as pm
    >>> found = pm.locate([0.3, -0.125], pm.Mesh(4, 1.0), window="cic")
    >>> found.cells.T, found.fractions.T.round(6)
    (array([[1, 3]], dtype=int32), array([[-0.3,  0. ]]))
    """
    whole, checked = mesh.whole, checks.flag(check, "check")
    kind, backend, x = coordinates(positions, mesh.ndim, None, upload=False)
    # Stencils that begin at the cell: with one node, or with two.
    axes = axes_of(whole, bspline(2 - window_of(window).support % 2))
    with kind.scope(x.user), backend.scope(*x.arrays):
        if backend.name == "cpu":
            cells, fractions, status = locate_all(x.arrays, axes, whole.box)
        else:
            room = DeviceParticles(backend, x.dtype, x.count)
            room.locate(backend, whole, axes, x, None)
            missing = 3 - mesh.ndim
            cells, fractions = room.node[missing:], room.fraction[missing:]
            status = room.post_status(backend)() if checked else Status(x.count, 0, 0, -1)
            backend.mark(*x.arrays, cells, fractions)
        if checked and (status.not_finite or status.outside):
            raise checks.bad_positions(status, positions, whole, unchecked=None)
        return Located(kind.wrap(cells.T), kind.wrap(fractions.T))
