# SPDX-License-Identifier: BSD-3-Clause
"""Figure 11: errors against the spacing, on the CPU and on a GPU, which must agree to rounding.

Parts, by the column ``what``:

``interpolate``
    Mesh → particle on their cloud. The mesh has ghost nodes with the function, so that particles near the faces meet
    no edge.
``remesh``
    Particle → mesh of a lattice of particles, all moved by the same fraction of h. A node then has the weights of an
    interpolation from the lattice, and the error falls with the window's order. Errors are taken on nodes whose
    stencils touch no face. The shift is neither 0 nor 1/2 h, where M'4 is exact or better than its order.
``scatter``
    Particle → mesh of their cloud. A node gets ``sum_p W g(x_p)``, about ``g`` times ``n = sum_p W``, and n does not
    become 1 on finer meshes: a node sees as many particles as before. The error is noise that stays.
``profile``
    The same, on the nodes of a line through the middle of a 2-D mesh.
``moments``
    Particle → mesh of their cloud: ``sum_m f_m x_m^a`` against ``sum_p q_p x_p^a``, on a mesh with ghosts. For one
    particle ``sum_m W(x_m - x) x_m^k = x^k`` for each k below the window's order, by axis. So sums of products of such
    powers are conserved for any cloud: up to the second moment for M'4, the first for linear. The next degree is not;
    ``expected`` has its error, which follows from the window.
``spread by method``, ``interpolate by method``
    Their cloud by every method of every place, for ``difference``.

In all rows ``difference`` is the largest difference from the first place's result, relative to its largest number.

Errors are relative: l2 is ``|e|_2 / |g|_2``, linf ``max |e| / max |g|``. ``slope_l2``, ``slope_linf`` are least-squares
slopes of their logarithms against that of h, for ``COARSEST`` nodes and more and errors above ``FLOOR`` roundings; they
are the same in all rows of a series, and empty for fewer than three points. The rounding of ``remesh`` grows with the
mesh: a coordinate is rounded relative to the box, 1/h times more relative to the spacing, and each particle
differently. So the weights of a node no longer add up to 1.

The width w of ``exp(-|x - 1/2|^2 / w)``: theirs is 15. Linear interpolation errs by at most ``h^2 / 8 max|g''|`` per
axis, ``h^2 / (4 w)``. With w = 15 that is 2e-5 at h = 1/32 and 2e-7 at h = 1/256, below several roundings
of 6e-8 in single precision; M'4 starts there. The next terms are smaller by h^2 / w, so the coarsest mesh limits w:
w = 1/8 has errors 120 times larger, and h^2 / w below 1/100 from h = 1/32 on. Both widths are measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import particlemesh as pm
from harness.inside import method_of, window_of
from harness.place import Place
from studies.buyukkececi.cases import (
    DTYPES,
    SEED,
    THEIR_WIDTH,
    WINDOWS,
    Case,
    bump,
    call_of,
    cloud,
    on_nodes,
)

WIDTHS = (1 / 8, THEIR_WIDTH)
NODES = {2: (16, 32, 48, 64, 128, 256, 512), 3: (16, 24, 32, 48, 64)}
SMALL_NODES = {2: (16, 32, 64, 96), 3: (16, 32, 40, 48)}
COARSEST, FLOOR = 32, 10  # nodes per axis; roundings
GHOSTS = 2  # nodes that M'4 reaches beyond a face
SHIFT = (0.3, 0.2, 0.35)  # of the lattice, in h, by axis
PROFILE = 64  # nodes per axis
AGREE = 32  # nodes per axis at which all methods are compared
MOMENTS = 300_000  # particles: moments are summed on the host
COLUMNS = ("what", "ndim", "window", "dtype", "width", "nodes", "N", "method", "l2", "linf", "slope_l2", "slope_linf",
           "degree", "expected", "difference", "at", "found", "exact")  # fmt: skip
SERIES = ("what", "ndim", "window", "dtype", "width", "backend")
FITTED = ("interpolate", "remesh", "scatter")  # parts with slopes


def cases(small: bool) -> list[tuple[Case, float]]:
    """Return the problems, each with the width of its function."""
    kinds = itertools.product((2, 3), WINDOWS, DTYPES, WIDTHS)
    return [
        (Case("spread", ndim, window, dtype, n), width)
        for ndim, window, dtype, width in kinds
        if not small or dtype == "float64" or (ndim, window) == (2, "cic")  # the rest takes long to compile
        for n in (SMALL_NODES if small else NODES)[ndim]
    ]


def all_methods(case: Case, width: float, small: bool) -> bool:
    """Return whether all methods are compared in a case."""
    return (case.nodes, width) == (AGREE, THEIR_WIDTH) and (
        not small or (case.ndim, case.window, case.dtype) == (2, "cic", "float32")
    )


def measure(
    places: list[Place], case: Case, width: float, seed: int = SEED, methods: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a problem, for every place; others are compared with the first place.

    ``methods`` adds the results of all methods for their cloud.
    """
    turned = replace(case, direction="interpolate")
    ghosts = pm.Mesh(case.mesh.shape, (1.0,) * case.ndim, ghosts=GHOSTS)
    x = cloud(case, seed)
    q, g = bump(x, width).astype(case.dtype), on_nodes(ghosts, width).astype(case.dtype)
    lattice, exact = _lattice(case), on_nodes(case.mesh, width)
    inner = (slice(3, -3),) * case.ndim
    first: dict[str, np.ndarray] = {}

    def row(place: Place, what: str, result: tuple[np.ndarray, str], **known: Any) -> dict[str, Any]:
        base = first.setdefault(what, result[0].astype(np.float64))
        difference = float(np.abs(result[0] - base).max() / np.abs(base).max())
        known = {name: _short(x) if isinstance(x, float) else x for name, x in known.items()}
        known |= dict(what=what, ndim=case.ndim, window=case.window, dtype=case.dtype, width=width, nodes=case.nodes,
                      N=case.count, method=result[1], difference=_short(difference))  # fmt: skip
        return {**{name: known.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}

    for place in places:
        result = _run(place, turned, x, g, ghosts)
        yield row(place, "interpolate", result, **_norms(result[0], bump(x, width)))
        result = _run(place, case, lattice, bump(lattice, width).astype(case.dtype), case.mesh)
        yield row(place, "remesh", result, **_norms(result[0][inner], exact[inner]))
        if width != THEIR_WIDTH:
            continue  # the rest does not depend on the width
        result = _run(place, case, x, q, case.mesh)
        yield row(place, "scatter", result, **_norms(result[0], exact), expected=noise(case))
        if case.ndim == 2 and case.nodes == PROFILE and case.dtype == "float64":
            line = case.nodes // 2
            for at, value, right in zip(case.mesh.nodes(1), result[0][line], exact[line], strict=True):
                yield row(place, "profile", result, at=float(at), found=float(value), exact=float(right))
        result = _run(place, case, x, q, ghosts)
        for degree in range(4) if case.count <= MOMENTS else ():
            error, expected = moment_error(degree, result[0], ghosts, x, q, window_of(case.window))
            yield row(place, "moments", result, degree=degree, linf=error, expected=expected)
        for problem, source in ((case, q), (turned, g)) if methods else ():
            for method in problem.candidates(place)[1]:
                with place.attempt(f"convergence: {method}, {problem}"):
                    result = _run(place, problem, x, source, ghosts, method)
                    yield row(place, f"{problem.direction} by method", result)


def _run(
    place: Place, case: Case, x: np.ndarray, source: np.ndarray, mesh: pm.Mesh, method: str = "auto"
) -> tuple[np.ndarray, str]:
    """Spread or interpolate by the automatic choice or a named method; return the result and the method."""
    with case.plan(method, place.name, mesh) as plan:
        plan.set_positions(place.upload(x))
        result = place.download(call_of(case, plan, place.upload(source)))
        return np.array(result), method_of(plan, case.direction).name


def _lattice(case: Case) -> np.ndarray:
    node = np.indices((case.nodes,) * case.ndim).reshape(case.ndim, -1).T
    return ((node + np.array(SHIFT[: case.ndim])) / case.nodes).astype(case.dtype)


def _norms(result: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    error = np.abs(result - exact)
    return dict(l2=float(np.sqrt((error**2).sum() / (exact**2).sum())), linf=float(error.max() / exact.max()))


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def noise(case: Case) -> float:
    """Return the standard deviation of ``n = sum_p W``, which is the error of ``scatter``, for random particles.

    Particles are independent, each uniform over 4 h around its node. The variance is the sum over particles of
    ``E W^2 - (E W)^2``. Over a lattice the first is the integral of W^2, the second the sum of the squares of
    W's averages over 4 h. Both are products over axes. Their cloud's n has the mean 1.
    """
    window, fine, far = window_of(case.window), 1000, 8
    w = window(np.abs((np.arange(-far * fine, far * fine) + 0.5) / fine))
    below = np.concatenate([[0.0], np.cumsum(w)]) / fine  # the integral from -far on
    averages = [(below[(far + j + 2) * fine] - below[(far + j - 2) * fine]) / 4 for j in range(-4, 5)]
    squares, means = (w**2).sum() / fine, sum(a**2 for a in averages)
    return math.sqrt(squares**case.ndim - means**case.ndim)


def moment_error(
    degree: int, field: np.ndarray, mesh: pm.Mesh, x: np.ndarray, q: np.ndarray, window: pm.Window
) -> tuple[float, float]:
    """Return the largest relative error of the moments of a degree, measured and as the window's polynomials give it.

    Relative to ``sum_p |q_p| |x_p^a|``; all products of powers of a degree. The second number is zero for degrees
    below the window's order.
    """
    x, q, field = x.astype(np.float64), q.astype(np.float64), field.astype(np.float64)
    nodes = [mesh.nodes(axis, ghosts=True) for axis in range(mesh.ndim)]
    spread_powers = [[_spread_power(k, x[:, a], mesh, window) for k in range(degree + 1)] for a in range(mesh.ndim)]
    worst, expected = 0.0, 0.0
    for powers in itertools.product(range(degree + 1), repeat=mesh.ndim):
        if sum(powers) != degree:
            continue
        moment = field
        for axis in reversed(range(mesh.ndim)):
            moment = moment @ nodes[axis] ** powers[axis]
        exact, known = q.copy(), q.copy()
        for axis, power in enumerate(powers):
            exact *= x[:, axis] ** power
            known *= spread_powers[axis][power]
        size = np.abs(exact).sum()
        worst = max(worst, abs(float(moment) - exact.sum()) / size)
        expected = max(expected, abs(known.sum() - exact.sum()) / size)
    return worst, expected if degree >= window.order else 0.0


def _spread_power(power: int, x: np.ndarray, mesh: pm.Mesh, window: pm.Window) -> np.ndarray:
    """Return ``sum_m W(x_m - x) x_m^power`` along an axis, for each x."""
    h = float(mesh.spacing[0])
    first = np.floor(x / h).astype(int) - 2
    total = np.zeros_like(x)
    for j in range(6):
        node = first + j
        total += window(np.abs(node - x / h)) * (node * h) ** power
    return total


def rounding(row: dict[str, Any]) -> float:
    """Return the rounding of a row's results."""
    return float(np.finfo(row["dtype"]).eps) * (float(row["nodes"]) if row["what"] == "remesh" else 1)


def finish(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the slope of each series into its rows."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["what"] in FITTED:
            series.setdefault(tuple(row[name] for name in SERIES), []).append(row)
    for points, norm in itertools.product(series.values(), ("l2", "linf")):
        fine = [p for p in points if p["nodes"] >= COARSEST and p[norm] > FLOOR * rounding(p)]
        slope: Any = ""
        if len(fine) >= 3:
            logs = np.log([[p["nodes"], p[norm]] for p in fine])
            slope = round(float(-np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 3)
        for point in points:
            point[f"slope_{norm}"] = slope
    return rows
