# SPDX-License-Identifier: BSD-3-Clause
"""Figure 11: errors against the spacing, on the processor and on a GPU, which must agree to rounding.

Parts, by the column ``what``:

``interpolate``
    Mesh → particle on their cloud. The mesh has ghost nodes that carry the function, too, so that particles near the
    faces meet no edge.
``remesh``
    Particle → mesh of a lattice of particles, all moved by the same fraction of h. The weights that a node gets are
    then those of an interpolation from the lattice to the node, and the error falls with the window's order. Errors are
    taken on nodes that no face is within reach of. The shift is neither 0 nor 1/2 h, where M'4 is exact or better
    than its order.
``scatter``
    Particle → mesh of their cloud. A node gets ``sum_p W g(x_p)``, about ``g`` times ``n = sum_p W``, and n does not
    become 1 however fine the mesh is: a node sees as many particles as before. The error is noise that stays.
``profile``
    The same, on the nodes of a line through the middle of a 2-D mesh.
``moments``
    Particle → mesh of their cloud: ``sum_m f_m x_m^a`` against ``sum_p q_p x_p^a``, on a mesh with ghosts. For one
    particle ``sum_m W(x_m - x) x_m^k = x^k`` for each k below the window's order, by axis, so sums of products of such
    powers are conserved whatever the cloud: up to the second moment for M'4, the first for linear. The degree after
    is not; by how much, follows from the window and is written beside.
``spread by method``, ``interpolate by method``
    Their cloud by every method of every place; ``difference`` is what counts.

In all rows ``difference`` is the largest difference from what the first place made of the same problem, relative to the
largest of its numbers.

Errors are relative: l2 is ``|e|_2 / |g|_2``, linf ``max |e| / max |g|``. ``slope_l2``, ``slope_linf`` are least-squares
slopes of their logarithms against that of h, from ``COARSEST`` nodes on and over errors above ``FLOOR`` roundings; the
same in all rows of a series, none where fewer than three points are left. A rounding of ``remesh`` grows with the
mesh: a coordinate is rounded to a part of the box, 1/h times more in spacings, and each particle differently, so that
the weights of a node no longer add up to 1.

The width w of ``exp(-|x - 1/2|^2 / w)``: theirs is 15. Linear interpolation errs by at most ``h^2 / 8 max|g''|`` an
axis, ``h^2 / (4 w)``. With w = 15 that is 2e-5 at h = 1/32 and 2e-7 at h = 1/256, where single precision, which
rounds by 6e-8 several times, has nothing left to show; M'4 starts there. The terms that follow are smaller by h^2 /
w, so w may be as small as the coarsest mesh resolves: w = 1/8 has errors 120 times larger, and h^2 / w below 1/100
from h = 1/32 on. Both are measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import particlemesh as pm
from buyukkececi.cases import DTYPES, ORDERS, SEED, THEIR_WIDTH, WINDOWS, Case, bump, cloud, on_nodes
from particlemesh.window import Window, window_of
from place import Place

WIDTHS = (1 / 8, THEIR_WIDTH)
NODES = {2: (16, 32, 48, 64, 128, 256, 512), 3: (16, 24, 32, 48, 64)}
SMALL_NODES = {2: (16, 32, 64, 96), 3: (16, 32, 40, 48)}
COARSEST, FLOOR = 32, 10  # nodes of an axis; roundings
GHOSTS = 2  # nodes that M'4 reaches beyond a face
SHIFT = (0.3, 0.2, 0.35)  # of the lattice, in h, by axis
PROFILE = 64  # nodes of an axis
MOMENTS = 300_000  # particles: moments are summed up on the host
COLUMNS = ("what", "ndim", "window", "dtype", "width", "nodes", "N", "method", "l2", "linf", "slope_l2", "slope_linf",
           "degree", "expected", "difference", "at", "found", "exact")  # fmt: skip
SERIES = ("what", "ndim", "window", "dtype", "width", "backend")


def cases(small: bool) -> list[tuple[Case, float]]:
    """Return the problems, each with the width of its function."""
    nodes = SMALL_NODES if small else NODES
    return [
        (Case("spread", ndim, window, dtype, n), width)
        for ndim, window, dtype, width in itertools.product((2, 3), WINDOWS, DTYPES, WIDTHS)
        for n in nodes[ndim]
    ]


def measure(
    places: list[Place], case: Case, width: float, seed: int = SEED, methods: bool = False
) -> Iterator[dict[str, Any]]:
    """Return the rows of a problem, for every place; the first is the one that the others are compared with.

    ``methods`` asks for what every method makes of their cloud, too.
    """
    ghosts = pm.Mesh(case.mesh.shape, (1.0,) * case.ndim, ghosts=GHOSTS)
    x = cloud(case, seed)
    q = bump(x, width).astype(case.dtype)
    lattice = _lattice(case)
    g, at_particles = on_nodes(ghosts, width).astype(case.dtype), bump(x, width)
    plain = on_nodes(case.mesh, width)
    inner = (slice(3, -3),) * case.ndim
    first: dict[str, np.ndarray] = {}

    def row(place: Place, what: str, method: str, result: np.ndarray, **known: Any) -> dict[str, Any]:
        base = first.setdefault(what, result.astype(np.float64))
        difference = float(np.abs(result - base).max() / np.abs(base).max())
        known = dict(what=what, ndim=case.ndim, window=case.window, dtype=case.dtype, width=width, nodes=case.nodes,
                     N=case.count, method=method, difference=_short(difference), **known)  # fmt: skip
        return {**{name: known.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}

    for place in places:
        turned = replace(case, direction="interpolate")
        found, method = _run(place, turned, x, g, ghosts)
        yield row(place, "interpolate", method, found, **_norms(found, at_particles))

        found, method = _run(place, case, lattice, bump(lattice, width).astype(case.dtype), case.mesh)
        yield row(place, "remesh", method, found, **_norms(found[inner], plain[inner]))

        if width != THEIR_WIDTH:
            continue  # once is enough for what does not depend on it
        found, method = _run(place, case, x, q, case.mesh)
        yield row(place, "scatter", method, found, **_norms(found, plain), expected=_short(noise(case)))
        if case.ndim == 2 and case.nodes == PROFILE and case.dtype == "float64":
            middle = case.nodes // 2
            for at, value, exact in zip(case.mesh.nodes(1), found[middle], plain[middle], strict=True):
                yield row(place, "profile", method, found, at=_short(at), found=_short(value), exact=_short(exact))

        found, method = _run(place, case, x, q, ghosts)
        for degree in range(4) if case.count <= MOMENTS else ():
            error, expected = moment_error(degree, found, ghosts, x, q, window_of(case.window))
            yield row(place, "moments", method, found, degree=degree, linf=_short(error), expected=_short(expected))

        for problem, source in ((case, q), (turned, g)) if methods else ():
            for method in place.methods(problem.direction):
                if problem.declines(method, place.backend) is None:
                    made = []
                    with place.attempt(f"convergence: {method.name}, {problem}"):
                        made.append(_run(place, problem, x, source, ghosts, method.name)[0])
                    for found in made:
                        yield row(place, f"{problem.direction} by method", method.name, found)


def _run(
    place: Place, case: Case, x: np.ndarray, source: np.ndarray, mesh: pm.Mesh, method: str = "auto"
) -> tuple[np.ndarray, str]:
    """Spread or interpolate, by the method that the library chooses unless one is named; return result and name."""
    direction = case.direction
    plan = case.plan(method, place.name, mesh)
    plan.set_positions(place.upload(x))
    result = (plan.spread if direction == "spread" else plan.interpolate)(place.upload(source))
    name = plan._method(direction).name
    host = place.download(result)
    plan.close()
    return np.array(host), name


def _lattice(case: Case) -> np.ndarray:
    shift = np.array(SHIFT[: case.ndim])
    node = np.indices((case.nodes,) * case.ndim).reshape(case.ndim, -1).T
    return ((node + shift) / case.nodes).astype(case.dtype)


def _norms(found: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    error = np.abs(found - exact)
    return dict(l2=_short(math.sqrt((error**2).sum() / (exact**2).sum())), linf=_short(error.max() / exact.max()))


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def noise(case: Case) -> float:
    """Return the standard deviation of ``n = sum_p W``, what the error of ``scatter`` is, for random particles.

    Particles are independent, each uniform over 4 h around its node. The variance is the sum over particles of
    ``E W^2 - (E W)^2``; over a lattice of them the first is the integral of W^2, the second the sum of the squares of
    W's averages over 4 h. Both are products over axes. Their cloud's n has the mean 1.
    """
    window, fine, far = window_of(case.window), 1000, 8
    w = window(np.abs((np.arange(-far * fine, far * fine) + 0.5) / fine))
    below = np.concatenate([[0.0], np.cumsum(w)]) / fine  # the integral from -far on
    averages = [(below[(far + j + 2) * fine] - below[(far + j - 2) * fine]) / 4 for j in range(-4, 5)]
    squares, means = (w**2).sum() / fine, sum(a**2 for a in averages)
    return math.sqrt(squares**case.ndim - means**case.ndim)


def moment_error(
    degree: int, field: np.ndarray, mesh: pm.Mesh, x: np.ndarray, q: np.ndarray, window: Window
) -> tuple[float, float]:
    """Return the largest relative error of the moments of a degree, and what the window's polynomials say it is.

    Relative to ``sum_p |q_p| |x_p^a|``; all products of powers of a degree. The second number is zero for degrees
    below the window's order.
    """
    x, q, field = x.astype(np.float64), q.astype(np.float64), field.astype(np.float64)
    nodes = [mesh.nodes(axis, ghosts=True) for axis in range(mesh.ndim)]
    spread_powers = [[_spread_power(k, x[:, a], mesh, window) for k in range(degree + 1)] for a in range(mesh.ndim)]
    worst, told = 0.0, 0.0
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
        told = max(told, abs(known.sum() - exact.sum()) / size)
    return worst, told if degree >= window.order else 0.0


def _spread_power(power: int, x: np.ndarray, mesh: pm.Mesh, window: Window) -> np.ndarray:
    """Return ``sum_m W(x_m - x) x_m^power`` along an axis, for each x."""
    h = float(mesh.spacing[0])
    first = np.floor(x / h).astype(int) - 2
    total = np.zeros_like(x)
    for j in range(6):
        node = first + j
        total += window(np.abs(node - x / h)) * (node * h) ** power
    return total


def finish(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the slope of each series into its rows."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["what"] in ("interpolate", "remesh", "scatter"):
            series.setdefault(tuple(row[name] for name in SERIES), []).append(row)
    for points in series.values():
        for norm in ("l2", "linf"):
            fitted = slope(points, norm)
            for point in points:
                point[f"slope_{norm}"] = "" if math.isnan(fitted) else round(fitted, 3)
    return rows


def slope(points: list[dict[str, Any]], norm: str) -> float:
    """Return the slope of log(error) against log(h) over what is neither coarse nor rounding."""
    x, y = [], []
    for point in points:
        rounding = float(np.finfo(point["dtype"]).eps) * (point["nodes"] if point["what"] == "remesh" else 1)
        if point["nodes"] >= COARSEST and point[norm] > FLOOR * rounding:
            x.append(-math.log(point["nodes"]))
            y.append(math.log(point[norm]))
    return float(np.polyfit(x, y, 1)[0]) if len(x) >= 3 else math.nan


def report(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Return a line for each series."""
    seen = set()
    for row in rows:
        key = tuple(row[name] for name in SERIES)
        if key in seen or row["what"] not in ("interpolate", "remesh", "scatter"):
            continue
        seen.add(key)
        order = 0 if row["what"] == "scatter" else ORDERS[row["window"]]
        yield (f"{row['what']:12s}{row['ndim']}-D {WINDOWS[row['window']]:7s}{row['dtype']:8s} w = {row['width']:<6g}"
               f"{row['backend']:7s} slopes {row['slope_l2']}, {row['slope_linf']} (order {order})")  # fmt: skip
