# SPDX-License-Identifier: BSD-3-Clause
r"""Splitting, cutoff, window and mesh for an accuracy, at the least predicted time.

Errors are root mean squares of velocities, relative to the velocity of a single sphere in the box. The forces have
random directions, and the spheres are in random places.

- **Cutoff.** The pairs beyond it would add ``n int (2 f**2 + (f + g)**2) / 3 d^3r`` to the mean square, and a sphere's
  own images ``1/V int (f + g/3) d^3r`` to the velocity.
- **Mesh.** Let ``r(kh)`` be the ratio of the window's transform at the alias of a mode and at the mode. Two spheres in
  random places see ``n int G(k)**2 2/3 * 2 r**2 d^3k / (2 pi)**3``, per axis. A sphere sees its own aliases: they add
  ``int G(k) 2/3 * 2 r d^3k / (2 pi)**3`` times a cosine of its place between nodes.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import particlemesh as pm
from particlemesh.apps.brownian import formulas
from particlemesh.fourier import good_size

Array = NDArray[np.float64]
SUPPORTS = range(4, 15)  # of B-splines
FLOOR = {np.dtype(np.float32): 3e-6, np.dtype(np.float64): 1e-13}  # errors that rounding leaves at best
_MOST_NODES = 768**3  # however long the box is
_RANGE = 5.0  # of kh in tables of windows: beyond pi there are no modes


@dataclass(frozen=True)
class Parameters:
    """What the mobility is computed with.

    Attributes
    ----------
    splitting : float
        Inverse length xi of Hasimoto's factor.
    cutoff : float
        Largest distance of the near part.
    shape : tuple of int
        Nodes of the mesh.
    window : particlemesh.Window
    near_error, far_error : float
        Predicted relative errors of both parts.
    pairs : float
        Expected pairs, from both sides.
    """

    splitting: float
    cutoff: float
    shape: tuple[int, ...]
    window: pm.Window
    near_error: float
    far_error: float
    pairs: float

    @property
    def error(self) -> float:
        """Predicted relative error of velocities."""
        return math.hypot(self.near_error, self.far_error)


@dataclass(frozen=True)
class System:
    """What errors and times depend on.

    Attributes
    ----------
    box : particlemesh.Box
    radius : float
        Largest radius: the near part reaches farther, the larger the spheres.
    smallest : float
        Smallest radius.
    count : int
        Spheres.
    """

    box: pm.Box
    radius: float
    smallest: float
    count: int

    @property
    def volume(self) -> float:
        """Volume of the box."""
        return float(abs(np.linalg.det(self.box.matrix)))

    @property
    def density(self) -> float:
        """Spheres per volume."""
        return self.count / self.volume

    @property
    def scale(self) -> float:
        """Mobility of one sphere in the box at viscosity 1: what errors are relative to."""
        ratio = min(1.0, self.radius / self.volume ** (1 / 3))
        alone = 1 - 2.837297 * ratio + 4 * math.pi / 3 * ratio**3
        return max(alone, 0.1) / (6 * math.pi * self.radius)

    @property
    def edges(self) -> Array:
        """Lengths of the lattice vectors."""
        return np.asarray(np.linalg.norm(self.box.matrix, axis=1))


def near_errors(system: System, xi: float) -> tuple[Array, Array]:
    """Return cutoffs, ascending, and the relative error of each.

    Examples
    --------
    >>> box = pm.Box((20.0, 20.0, 20.0))
    >>> r, error = near_errors(System(box, 1.0, 1.0, 200), 0.5)
    >>> bool(1e-12 < np.interp(10.0, r, error) < 1e-7)
    True
    """
    r = np.linspace(0, 2 * system.radius + 7 / xi, 500)
    f, g = formulas.near_tensor(r, system.radius, system.radius, xi)
    step = 4 * math.pi * (r[1] - r[0])
    square = system.density * step * _from_right(r**2 * (2 * f**2 + (f + g) ** 2) / 3)
    images = step / system.volume * _from_right(r**2 * abs(f + g / 3))
    return r, np.sqrt(square + images**2) / system.scale


def _from_right(values: Array) -> Array:
    return np.cumsum(values[::-1])[::-1]


@functools.lru_cache(64)
def _aliases(window: pm.Window) -> tuple[Array, Array, Array]:
    """Return kh, and means over directions of ``2 r**2`` and of ``2 r`` for aliases along one axis."""
    x = np.linspace(0, _RANGE, 400)
    inside = x < math.pi
    ratio = np.ones((2, len(x)))
    transform = window.fourier(x[inside])
    for n, turn in enumerate((-2 * math.pi, 2 * math.pi)):
        ratio[n, inside] = np.clip(window.fourier(x[inside] + turn) / transform, -1, 1)
    ratio[0, ~inside] = 0
    return x, _mean_up_to(2 * (ratio**2).sum(0)), _mean_up_to(2 * ratio.sum(0))


def _mean_up_to(values: Array) -> Array:
    """Return the mean of values on 0 to x, at each x of an equidistant table."""
    total = np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2)])
    return np.asarray(total / np.maximum(np.arange(len(values)), 1))


def far_errors(system: System, xi: float, window: pm.Window, spacings: Array) -> Array:
    """Return the relative errors of meshes with these node spacings.

    Examples
    --------
    >>> box = pm.Box((20.0, 20.0, 20.0))
    >>> far_errors(System(box, 1.0, 1.0, 200), 0.5, pm.bspline(8), np.array([2.0, 0.5])) < 1e-4
    array([False,  True])
    """
    k, weights = formulas.quadrature(xi)  # with H / (2 pi**2)
    shape = formulas.sinc(k * system.smallest) ** 2
    x, pair, single = _aliases(window)
    kh = np.minimum(np.outer(spacings, k), _RANGE)
    # d^3k G**2 = 4 pi k**2 dk (H s)**2 / k**4, and the weights hold 4 pi H dk / (2 pi)**3.
    green = formulas.screening(k * k, xi) * shape**2 / k**2
    square = system.density * 2 / 3 * 3 * (np.interp(kh, x, pair) * (weights * green)).sum(1)
    self_ = 2 / 3 * math.sqrt(3 / 2) * (np.interp(kh, x, single) * (weights * shape)).sum(1)
    return np.asarray(np.sqrt(square + self_**2) / system.scale)


def choose(
    system: System, accuracy: float, seconds: Callable[[float, tuple[int, ...], int], float], *,
    splitting: float | None = None, cutoff: float | None = None, shape: Any = None, window: pm.Window | None = None,
    most_pairs: float = math.inf,
) -> Parameters:  # fmt: skip
    """Return the parameters of least predicted time that reach an accuracy; those that are given stay.

    Parameters
    ----------
    system : System
    accuracy : float
    seconds : callable
        Time of one product for pairs, nodes of the mesh and the window's support.
    splitting, cutoff, shape, window
        Parameters that are given.
    most_pairs : float
        The most pairs that memory holds.
    """
    share = accuracy / math.sqrt(2)
    trials = [window] if window is not None else [pm.bspline(p) for p in SUPPORTS]
    best: tuple[float, float, Parameters | None] = (math.inf, math.inf, None)
    for xi in _splittings(system, splitting):
        r, errors = near_errors(system, xi)
        first = min(int(np.searchsorted(-errors, -share)), len(r) - 1)
        # Spheres that overlap are always near, however coarse the accuracy: a cutoff of 0 would have no cells.
        reach = max(float(r[first]), 2 * system.radius) if cutoff is None else float(cutoff)
        pairs = system.count * system.density * 4 * math.pi / 3 * reach**3
        near = float(np.interp(reach, r, errors))
        if splitting is None and cutoff is None and pairs > most_pairs:
            continue
        for trial in trials:
            nodes = tuple(shape) if shape is not None else _nodes(system, xi, trial, share)
            if nodes is None:
                continue
            spacing = float(np.max(system.edges / nodes))
            far = float(far_errors(system, xi, trial, np.array([spacing]))[0])
            candidate = Parameters(xi, reach, nodes, trial, near, far, pairs)
            # What misses the accuracy comes after all that meets it.
            missed = max(candidate.error / accuracy, 1.02)
            key = (missed, seconds(pairs, nodes, trial.support), candidate)
            if key[:2] < best[:2]:
                best = key
    if best[2] is None:
        raise MemoryError(
            f"no splitting reaches accuracy {accuracy:g} with at most {most_pairs:.3g} pairs and {_MOST_NODES:,} "
            "nodes: choose a larger accuracy, or give splitting, cutoff and shape."
        )
    return best[2]


def _splittings(system: System, given: float | None) -> list[float]:
    if given is not None:
        return [float(given)]
    length = system.volume ** (1 / 3)
    low, high = 2.0 / length, max(4.0 / length, 1.5 / system.smallest)
    return list(np.geomspace(low, high, max(8, int(4 * math.log2(high / low)))))


def _nodes(system: System, xi: float, window: pm.Window, share: float) -> tuple[int, ...] | None:
    """Return the fewest nodes with which a window reaches its share of the accuracy."""
    spacings = np.geomspace(0.15, 3.0, 64) / xi
    good = np.flatnonzero(far_errors(system, xi, window, spacings) <= share)
    if not len(good):
        return None
    nodes = tuple(good_size(max(window.support, math.ceil(edge / spacings[good[-1]]))) for edge in system.edges)
    return nodes if math.prod(nodes) <= _MOST_NODES else None


def for_system(
    box: pm.Box, radii: Array, count: int, accuracy: float, dtype: np.dtype, backend: Any, given: dict[str, Any],
    applications: int, vectors: int = 1,
) -> Parameters:  # fmt: skip
    """Return the parameters of a mobility; warn if they or the type do not reach the accuracy."""
    if accuracy < FLOOR[dtype] / 4:  # the default is not so far below
        warnings.warn(
            f"accuracy is {accuracy:g}, and rounding in {dtype} leaves errors of about {FLOOR[dtype]:g}: ask for less"
            f"{', or use float64' * (dtype.itemsize < 8)}.",
            stacklevel=4,
        )
    accuracy = max(accuracy, FLOOR[dtype])
    system = System(box, float(radii.max()), float(radii.min()), max(count, 1))
    bytes_of_pair = 7 * dtype.itemsize + 8  # lists and blocks
    chosen = choose(
        system, accuracy,
        functools.partial(seconds, count, dtype.itemsize, backend.name == "cpu", applications, vectors),
        most_pairs=backend.free_bytes() / 3 / bytes_of_pair, **given,
    )  # fmt: skip
    if chosen.error > 1.05 * accuracy:
        warnings.warn(
            f"these parameters reach an error of about {chosen.error:.1e}, and accuracy is {accuracy:g}: give a larger "
            "cutoff, a finer mesh, or leave them to be chosen.",
            stacklevel=4,
        )
    return chosen


def seconds(
    count: int, size: int, on_cpu: bool, applications: int, vectors: int, pairs: float, nodes: tuple[int, ...],
    support: int,
) -> float:  # fmt: skip
    """Return the predicted seconds of a product, and its share of the blocks' making: two CPU threads, or an H200."""
    mesh = float(math.prod(nodes))
    if not on_cpu:
        making = 4e-10 / applications * pairs
        near = pairs * size * (1.4e-12 * -(-vectors // 16) + 0.42e-12 * vectors)
        # Of a component, both ways: medians of the fastest methods in the shipped times of an H200, with 0.005 to 2
        # particles per node. They are alike for windows of 4 to 16 nodes, but wide ones in float64 have `octets`.
        node = 1.5e-12 if size == 4 else 2.5e-12 if support <= 8 else 0.9e-12
        moving = node * count * support**3
        return making + near + 3 * vectors * (moving + 5e-12 * mesh * size)
    lanes = -(-3 * support // 8) * 8
    spreading = 2e-9 * count * (25 + 0.0155 * size * lanes * support**2)
    making = 250e-9 / applications * pairs
    transforms = 6e-9 * mesh * (2 + 0.65 * math.log2(mesh)) * size / 8
    return making + vectors * (2.5e-9 * pairs + spreading + transforms)
