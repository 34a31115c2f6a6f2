# SPDX-License-Identifier: BSD-3-Clause
"""Cutoff, splitting, window and mesh from a target accuracy: error formulae and a model of the cost.

Errors are those of forces, root mean square, over a typical force: that of two charges of root-mean-square size at
the mean distance ``d = (V / N)**(1/3)``. Charges at random places have

- in real space ``2 sqrt(d / rc) exp(-(alpha rc)**2)`` [kolafa1992]_,
- on the mesh ``sqrt(d I)`` as for P3M [hockney_eastwood]_. I is the integral over wave vectors of a squared difference:
  between the force of the mesh and that of the Gaussian charges. It is averaged over where both particles lie between
  nodes. The formula is here for one axis at a time, for any window.
- on the mesh also a force of each particle on itself, which depends on where it lies between nodes. It follows from the
  harmonics of ``q**2 phi(x, x) / 2``, with phi the potential at x of a charge at x. It is larger than the error of all
  others where Gaussians are narrower than the distance of particles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

import particlemesh as pm
from particlemesh.apps.pme.split import Inverse, Prolate, Split
from particlemesh.fourier import good_size
from particlemesh.kernels import Backend

# Of the accuracy, for each half: formulae take particles at random places, and others have up to twice their errors.
SHARE = 0.53
ORDERS = (4, 5, 6, 7, 8, 10, 12)
_ALIASES = np.arange(-3, 4)
FOURTH = 2.0  # mean fourth power of unknown charges over the square of their mean square: 1 if of one size, 3 if normal


class Crowd(NamedTuple):
    """By how much errors of the mesh and of pairs are larger than those of charges at random places."""

    mesh: float
    pairs: float

    def __str__(self) -> str:
        return f"crowded: errors are {self.pairs:g} (pairs) and {self.mesh:g} (mesh) times those at random places"


NOT_CROWDED = Crowd(1.0, 1.0)


@dataclass(frozen=True)
class Parameters:
    """What a calculation uses, and the errors that it expects of charges, relative to a typical force.

    Boxes with lattice vectors up to the longest have the mesh's error at most twice the accuracy.
    """

    cutoff: float
    split: Split
    shape: tuple[int, ...]
    window: pm.Window
    real_error: float
    mesh_error: float
    seconds: float
    fourth: float = FOURTH
    crowd: Crowd = NOT_CROWDED
    longest: tuple[float, ...] = (math.inf,) * 3
    most_images: ClassVar[int] = 2**18  # in a sum of float32: with more, potentials of 20 charges lose three digits

    def images(self, vectors: np.ndarray, dtype: np.dtype) -> float:
        """Return how many images of a particle are within the cutoff, for periodic lattice vectors (n, 3).

        0 if a type holds sums over any number of them, or if there is less than one.
        """
        rows = vectors / self.cutoff  # products of lengths may be beyond any type
        images = (1, 2, math.pi, 4 / 3 * math.pi)[len(rows)] / math.sqrt(np.linalg.det(rows @ rows.T))
        return images if dtype.itemsize < 8 and images > 1 else 0.0

    def check_images(self, number: float) -> None:
        """Raise an error if float32 loses the digits of sums over so many images of particles.

        Potentials of charges of both signs cancel, the more the more images there are.
        """
        if number > self.most_images:
            raise ValueError(
                f"about {number:.2g} images of particles are within the cutoff, and float32 holds sums of "
                f"{self.most_images:,}: give a smaller cutoff, or float64."
            )

    @property
    def splitting(self) -> float | str:
        """The argument ``splitting`` that makes this split: the inverse width of a Gaussian, or "prolate"."""
        return self.split.splitting if isinstance(self.split, Inverse) else "prolate"

    @property
    def bandwidth(self) -> float | None:
        """That of the prolate function, or None."""
        return self.split.bandwidth if isinstance(self.split, Prolate) else None

    @property
    def error(self) -> float:
        """Both errors together."""
        return math.hypot(self.real_error, self.mesh_error)


@dataclass(frozen=True)
class Costs:
    """Seconds of a pair, of a node of a particle's stencil, of a mesh node and level of the transforms, of a call."""

    pair: float
    node: float
    level: float
    call: float  # of few particles, at least; no part of what is compared when parameters are chosen

    def seconds(self, count: int, pairs: float, support: int, nodes: int) -> float:
        """Return the time of a step."""
        return count * (self.pair * pairs + self.node * support**3) + self.level * nodes * math.log2(max(nodes, 2))


# Of a thread of an EPYC 9005, measured in double precision; of an H200, from times of transforms and of spreading.
CPU, GPU = Costs(2.4e-8, 0.8e-9, 1.5e-9, 1e-3), Costs(9.0e-12, 2.7e-12, 1.6e-12, 2e-5)
HALVES = replace(GPU, pair=5.5e-12)  # where each pair is computed once: grid/queries/sums.py


def costs_on(backend: Backend, dtype: np.dtype) -> Costs:
    """Return the costs of a backend."""
    halves = dtype.itemsize == 4 and backend.facts().get("HAS_VECTOR_ATOMIC")
    return CPU if backend.name == "cpu" else HALVES if halves else GPU


_CROWD = 15  # charges in a cube of the cutoff, 64 neighbours


_POINTS, _WEIGHTS = legendre.leggauss(32)


@functools.lru_cache(maxsize=64)  # those of one split serve all windows
def _integrand(split: Split, spacing: float) -> tuple[NDArray[np.float64], ...]:
    """Return weights along and across an axis, ``k**2`` and the Green function (aliases, along, across)."""
    edge = math.pi / spacing
    end, highest = min(edge, split.highest), split.highest
    x = (_POINTS + 1) / 2 * end  # along the axis; the integrand is even
    # Across, the smooth part ends the integral. It peaks where the wave vector is short.
    y = highest * ((_POINTS + 1) / 2) ** 2
    across = _WEIGHTS * highest * (_POINTS + 1) / 2 * y
    k2 = (x + 2 * edge * _ALIASES[:, None])[:, :, None] ** 2 + y**2
    return _WEIGHTS * end, across, k2, split.transform(k2)


def _axis(split: Split, spacing: float, transforms: NDArray[np.float64]) -> tuple[float, float]:
    """Return the squared errors of aliases along one axis: of pairs, an integral, and of a particle's force on itself.

    ``transforms`` are those of the window at the points of the integral and their aliases.
    """
    along, across, k2, green = _integrand(split, spacing)
    main = len(_ALIASES) // 2
    mesh = green[main] / transforms[main][:, None] ** 2
    squares = transforms**2
    others = (1 - np.eye(len(_ALIASES))) @ squares  # of the other aliases: no difference of sums, which would cancel
    terms = (mesh * squares[:, :, None] - green) ** 2 + mesh**2 * (squares * others)[:, :, None]
    total = (k2 * terms).sum(0)
    itself = 0.0
    for harmonic in range(1, len(_ALIASES)):
        products = (transforms[harmonic:] * transforms[:-harmonic]).sum(0)
        amplitude = (along * products) @ mesh @ across / (2 * math.pi) ** 2
        itself += (2 * math.pi / spacing * harmonic * amplitude) ** 2 / 2
    return float(along @ total @ across) / (2 * math.pi) ** 2, float(itself)


@functools.lru_cache(maxsize=64)
def _transforms(window: pm.Window, spacings: tuple[float, ...], highest: float) -> NDArray[np.float64]:
    """Return the window's transform at the points of the integrals and their aliases, for each spacing."""
    ends = np.minimum(math.pi, np.array(spacings) * highest)
    angles = ends[:, None, None] * (_POINTS + 1) / 2 + 2 * math.pi * _ALIASES[:, None]
    return window.fourier(angles.ravel()).reshape(angles.shape)


@functools.lru_cache(maxsize=1024)
def _table(window: pm.Window, split: Split) -> tuple[NDArray[np.float64], ...]:
    """Return logarithms of spacings, and of both errors of one axis, all ascending, for a split of unit size."""
    spacings = np.geomspace(*split.spacings, 22)
    transforms = _transforms(window, tuple(spacings), split.highest)
    integrals, itself = np.array([_axis(split, float(h), t) for h, t in zip(spacings, transforms, strict=True)]).T
    # On fine meshes the error rises steeply with the spacing, until rounding hides it: there the power law goes on.
    least = (spacings[1] / spacings[0]) ** 1.5  # the slope of the lowest window's error is twice that
    hidden = np.flatnonzero((integrals[1:] < least * integrals[:-1]) & (spacings[1:] < 1))
    first = int(hidden[-1]) + 1 if len(hidden) else 0
    slant = 1 + 1e-9 * np.arange(len(integrals) - first)
    rising = [np.maximum.accumulate(errors[first:]) * slant for errors in (integrals, itself)]
    return np.log(spacings[first:]), *(np.log(errors) / 2 for errors in rising)


def _errors(
    window: pm.Window, split: Split, distance: float, fourth: float, crowd: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return logarithms of spacings in the split's unit, and of the relative error of the forces from one axis."""
    shape, unit = split.unit
    spacings, pairs, itself = _table(window, shape)
    reach = math.log(distance * unit)
    pairs = pairs + math.log(crowd)
    return spacings, np.logaddexp(reach + 2 * pairs, math.log(fourth) + 4 * reach + 2 * itself) / 2


def _interpolated(x: float, known: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return linear interpolation, or extrapolation from the last two points."""
    k = int(np.clip(np.searchsorted(known, x), 1, len(known) - 1))
    slope = (values[k] - values[k - 1]) / max(known[k] - known[k - 1], 1e-12)
    return float(values[k] + slope * (x - known[k]))


def mesh_error(
    window: pm.Window, split: Split, spacings: Sequence[float], distance: float, fourth: float = FOURTH,
    crowd: float = 1.0,
) -> float:  # fmt: skip
    """Return the relative error of the mesh's forces; ``spacings`` are those along the lattice vectors."""
    table = _errors(window, split, distance, fourth, crowd)
    logs = [_interpolated(math.log(split.unit[1] * h), *table) for h in spacings]
    return split.mesh_share(distance) * math.sqrt(sum(math.exp(min(2 * e, 700.0)) for e in logs))


def spacing_for(
    window: pm.Window, split: Split, error: float, distance: float, fourth: float = FOURTH, crowd: float = 1.0
) -> float:
    """Return the distance of nodes with which the mesh makes an error: the inverse of `mesh_error` in a cube."""
    spacings, errors = _errors(window, split, distance, fourth, crowd)
    target = math.log(error / split.mesh_share(distance) / math.sqrt(3))
    return math.exp(min(_interpolated(target, errors, spacings), 2.0)) / split.unit[1]


def sizes_of(rows: NDArray[Any], k: float, of_trace: float = -2 / 3) -> NDArray[np.float64]:
    """Return squares of ``q + mu . k + k . Q . k / 2`` (N,), without mixed ones, in their mean over directions of k.

    By default a trace of Q counts as in forces, where it has no field.

    Parameters
    ----------
    rows : array (N, 1), (N, 4), (N, 10) or (N, 11)
        Of which the first ten are a charge, a dipole and the upper triangle of a quadrupole.
    """
    squares, moments = np.zeros((len(rows), 10)), rows[:, :10].astype(np.float64)
    squares[:, : moments.shape[1]] = moments**2
    trace = moments[:, [4, 7, 9]].sum(1) ** 2 if moments.shape[1] > 4 else 0.0
    full = (squares[:, 4:] * [1, 2, 2, 1, 2, 1]).sum(1)
    return np.asarray(squares[:, 0] + squares[:, 1:4].sum(1) * k**2 / 3 + (2 * full + of_trace * trace) * k**4 / 60)


def error_of_moments(known: Parameters, box: pm.Box, count: float, rows: NDArray[Any]) -> float:
    """Return the relative error of forces of charges, dipoles and quadrupoles, from mean squares of their numbers.

    Each derivative multiplies errors by their wavenumber k, and forces by the inverse of the mean distance.

    Parameters
    ----------
    rows : array (N, 4) or (N, 11)
        As for `sizes_of`.
    """
    k, distance = known.split.steepness(known.cutoff), (box.volume / max(count, 1)) ** (1 / 3)
    typical = sizes_of(rows, 1 / distance).mean()
    return error_of(known, box, count) * float(sizes_of(rows, k, 1.0).mean() / typical) if typical > 0 else 0.0


def longest_vectors(known: Parameters, box: pm.Box, count: int, error: float) -> tuple[float, ...]:
    """Return the longest lattice vectors with which the mesh makes an error, at least 1.05 times those of the box."""
    distance = (box.volume / max(count, 1)) ** (1 / 3)
    spacing = spacing_for(known.window, known.split, error, distance, known.fourth, known.crowd.mesh)
    return tuple(np.maximum(spacing * np.array(known.shape), 1.05 * box.lengths).tolist())


def cells(box: pm.Box, reach: float, count: int = 0) -> list[float]:
    """Return sides of cells: of half the reach, and thinner ones along the axis in which cells are read in one go.

    Grids on GPUs search for eight particles together if many are near them. Then cells are for a ``count`` of particles
    in the box: eight in a column fill a cube. That takes 0.82 to 0.94 of the time (H200).
    """
    sides, density = (reach / 2, reach / 2, reach / 4), count / box.volume
    if density * reach**3 > _CROWD:
        side = min(max(1.1 * (8 / density) ** (1 / 3), reach / 2), reach)
        sides = (side, side, min(max(1 / (density * side**2), reach / 16), reach / 4))  # about one particle in a cell
    thickness = 1 / np.linalg.norm(box.inverse, axis=1)
    return [min(t, side) for t, side in zip(thickness, sides, strict=True)]


def check_finite(array: Any, what: str, axis: int = -1) -> None:
    """Raise an error that names the first particle if a number is not finite; waits.

    Parameters
    ----------
    array : array
        Of NumPy, CuPy, torch or JAX.
    what : str
        Whose numbers: "charges".
    axis : int
        That of the particles.

    Examples
    --------
    >>> check_finite(np.array([1.0, np.nan]), "charges")
    Traceback (most recent call last):
        ...
    ValueError: charges of 1 of 2 particles are not finite; the first is particle 1. Give finite numbers.
    """
    bad = array - array != 0
    if not bool(bad.any()):
        return
    host = np.asarray(bad.get() if hasattr(bad, "get") else bad.cpu() if hasattr(bad, "cpu") else bad)
    first: np.ndarray = np.moveaxis(host, axis, 0).reshape(host.shape[axis], -1).max(1)
    k = int(first.argmax())
    raise ValueError(
        f"{what} of {first.sum()} of {len(first)} particles are not finite; the first is particle {k}. "
        "Give finite numbers."
    )


def check_vectors(rows: np.ndarray, longest: Any) -> None:
    """Raise an error that names the first of boxes (S, 3, 3) with a lattice vector that is longer than the longest."""
    lengths = np.linalg.norm(rows, axis=-1)
    if (lengths > longest).any():
        box, axis = map(int, np.argwhere(lengths > longest)[0])
        raise ValueError(
            f"lattice vector {axis} of box {box} has length {lengths[box, axis]:.6g}. The nodes of the mesh serve the "
            f"accuracy up to {longest[axis]:.6g}, and would lose it in silence: construct it with the largest box."
        )


def fourth_power(charges: NDArray[Any], owners: NDArray[Any] | None = None) -> float:
    """Return the mean fourth power of charges (..., N) over the square of their mean square: of the worst set or owner.

    >>> fourth_power(np.array([1.0, -1.0, 1.0])), fourth_power(np.array([2.0, 0.0, 0.0, 0.0]))
    (1.0, 4.0)
    """
    sets = charges.reshape(math.prod(charges.shape[:-1]), charges.shape[-1]).astype(np.float64)
    # Systems that do not exist raise an error later.
    owners = (
        np.repeat(np.arange(len(sets)), sets.shape[1]) if owners is None else np.unique(owners, return_inverse=True)[1]
    )
    known = np.isfinite(sets.ravel()) & (sets.ravel() != 0)
    largest = np.zeros(1 + owners.max(initial=0))
    np.maximum.at(largest, owners[known], abs(sets.ravel()[known]))
    ratios = np.divide(sets.ravel(), largest[owners], out=np.zeros(sets.size), where=known)
    squares, fourths, counts = (np.bincount(owners, weights) for weights in (ratios**2, ratios**4, None))
    some = squares > 0
    return float((fourths[some] * counts[some] / squares[some] ** 2).max()) if some.any() else FOURTH


def crowding(
    known: Parameters, x: NDArray[Any], box: pm.Box, rows: NDArray[np.float64] | None = None,
    owners: NDArray[Any] | None = None, count: int | None = None, add: Callable[[Any], Any] = np.asarray,
) -> Crowd:  # fmt: skip
    """Return by how much errors of crowded particles are larger than those at random places.

    Errors of forces are sums over neighbours of random sign, so they grow with the root of the density of neighbours.
    Those of the mesh come from neighbours within the width of the smooth part, those of pairs from others beyond the
    cutoff. So particles are counted in cells as large as a ball of 1.2 widths, and one of 1.5 cutoffs. They are counted
    twice, in cells that cut heaps in other places.

    Counts are integers, so the answer depends on no order. It is in eighths, and 1 for all that particles at random
    places have by chance.

    Parameters
    ----------
    known : Parameters
        For charges that are not crowded.
    x : array (N, 3)
        Positions, on the host. Those that are not finite are left out.
    box : Box
    rows : array (S, 3, 3), optional
        Lattice vectors of systems; then the most crowded system decides.
    owners : integers (N,), optional
        The system of each particle. Those that do not exist raise an error later.
    count : int, optional
        Particles of all ranks.
    add : callable
        Adds up counts over ranks.

    Examples
    --------
    >>> x, box = np.random.default_rng(1).random((1000, 3)), pm.Box((1.0, 1.0, 4.0))
    >>> known, _ = choose(box, 1000, 1e-2, CPU)
    >>> crowding(known, x * box.lengths, box), crowding(known, x, box)
    (Crowd(mesh=1.0, pairs=1.0), Crowd(mesh=1.875, pairs=1.75))
    """
    rows, count = box.matrix[None] if rows is None else rows, len(x) if count is None else count
    inverse, width = np.linalg.inv(rows), known.cutoff / math.sqrt(known.split.variation(known.cutoff))
    at: Any = 0  # of each particle, among systems
    if owners is not None:
        there = (owners >= 0) & (owners < len(rows))
        x, at = x[there], owners[there]
    fractions = []
    with np.errstate(over="ignore", invalid="ignore"):
        d = x.astype(np.float64) - box.origin
        for axis, periodic in enumerate(box.periodic):
            # Element by element: products of matrices would round in the order of particles.
            terms = [d[:, row] * inverse[at, row, axis] for row in range(3)]
            fraction = terms[0] + terms[1] + terms[2]
            fractions.append(fraction - np.floor(fraction) if periodic else fraction)
        finite = np.isfinite(fractions[0] + fractions[1] + fractions[2])
    thickness, crowds = 1 / np.linalg.norm(inverse, axis=1), []
    for reach in (1.2 * width, 1.5 * known.cutoff):
        side = (4 / 3 * math.pi) ** (1 / 3) * reach
        while (cells := np.maximum(np.rint(thickness / side), 1)).prod(1).sum() > len(rows) + count:
            side *= 1.1  # particles are too few to tell
        each = cells.prod(1).astype(np.int64)
        first, counts = np.cumsum(each) - each, []
        # Atoms of crystals often lie on simple fractions of the box: no cell ends there.
        for shift in (0.38, 0.88):
            place = np.zeros(len(x))
            for axis, periodic in enumerate(box.periodic):
                along = cells[at, axis]
                level = np.floor(fractions[axis] * along + shift * periodic)
                level = np.where(level < along, level, 0) if periodic else np.clip(level, 0, along - 1)
                place = place * along + level
            counts.append(np.bincount((place + first[at])[finite].astype(np.int64), minlength=each.sum()))
        both = add(np.stack(counts))
        together, some = np.add.reduceat(both * (both - 1), first, 1).mean(0), np.add.reduceat(both[0], first)
        chance = 3 * np.sqrt(2 * (each - 1.0)) * some / each
        squares = (together - chance)[some > 0] * each[some > 0] / some[some > 0].astype(np.float64) ** 2
        crowds.append(max(1.0, round(8 * math.sqrt(max(squares.max(initial=0.0), 0.0))) / 8))
    return Crowd(*crowds)


def error_of(known: Parameters, box: pm.Box, count: float) -> float:
    """Return the error of parameters for another number of particles in the box."""
    distance = (box.volume / max(count, 1)) ** (1 / 3)
    ends = [int(not periodic) for periodic in box.periodic]
    spacings = (box.lengths / (np.array(known.shape) - ends)).tolist()
    mesh = mesh_error(known.window, known.split, spacings, distance, known.fourth, known.crowd.mesh)
    return math.hypot(known.crowd.pairs * known.split.real_error(known.cutoff, distance), mesh)


def choose(
    box: pm.Box,
    count: int,
    accuracy: float,
    costs: Costs,
    *,
    split: Any = Prolate,
    fourth: float = FOURTH,
    crowd: Crowd = NOT_CROWDED,
    **given: Any,
) -> tuple[Parameters, str]:
    """Return the cheapest parameters that reach an accuracy, and a warning or "". Those given are kept.

    If none reach it, the most accurate ones are returned. The warning says that what follows from the given parameters
    takes more than a hundred times the time of free ones.

    Parameters
    ----------
    split : type
        How the interaction is split.
    fourth : float
        The mean fourth power of the charges over the square of their mean square.
    crowd : Crowd
    **given
        ``cutoff``, ``splitting`` or ``bandwidth`` (the number of a split), ``shape`` and ``window``, or None.

    Raises
    ------
    ValueError
        If it does so with the time that any call takes.
    """
    given = {name: value for name, value in given.items() if value is not None}
    chosen = _cheapest(box, count, accuracy, costs, split, fourth, crowd, **given)
    taken = math.inf if chosen is None else _chosen_seconds(box, count, costs, chosen, given)
    if chosen is not None and taken <= _DEAR * costs.seconds(count, 1.0, ORDERS[0], 1):  # free ones take longer
        return chosen, ""
    free = _cheapest(box, count, accuracy, costs, split, fourth, crowd) if given else chosen
    if chosen is not None and free is not None and taken <= _DEAR * free.seconds:
        return chosen, ""
    names = " and ".join(given) or "no parameters"
    words = f"accuracy {accuracy:.3g} with the given {names} needs a mesh of more than 2**33 nodes"
    if chosen is not None:
        words = words.replace("a mesh of more than 2**33 nodes", f"{_sizes(chosen)}: {taken:.1g} s a step")
    if free is not None:
        words += f"; free parameters take {free.seconds:.1g} s with {_sizes(free)}"
    words += f". Leave out {names}, or give a larger accuracy"
    words += "." if "shape" in given else ", or give shape as well to have this mesh."
    if chosen is None or (free is not None and taken > _DEAR * (free.seconds + costs.call)):
        raise ValueError(words)
    return chosen, words


def _sizes(p: Parameters) -> str:
    return f"cutoff {p.cutoff:.4g}, {' x '.join(map(str, p.shape))} nodes and {p.window.name}"


_DEAR = 100


def _chosen_seconds(box: pm.Box, count: int, costs: Costs, chosen: Parameters, given: dict[str, Any]) -> float:
    """Return the time of what was chosen: not of pairs within a given cutoff, nor of a given mesh."""
    pairs = 0.0 if "cutoff" in given else 4 / 3 * math.pi * chosen.cutoff**3 * count / box.volume
    nodes = 1 if "shape" in given else _padded(box, chosen.shape, chosen.window)
    return costs.seconds(count, pairs, 0, nodes)


def _padded(box: pm.Box, shape: Sequence[int], window: pm.Window) -> int:
    """Return the nodes of the transforms."""
    # With ghosts for windows at open faces, and twice as many for a convolution that does not wrap around.
    return math.prod(n if p else 2 * (n + window.support) for n, p in zip(shape, box.periodic, strict=True))


@functools.lru_cache(maxsize=8)  # charges that are not crowded choose twice
def _cheapest(
    box: pm.Box, count: int, accuracy: float, costs: Costs, kind: type[Split], fourth: float, crowd: Crowd, *,
    cutoff: float | None = None, splitting: float | None = None, bandwidth: float | None = None,
    shape: tuple[int, ...] | None = None, window: pm.Window | None = None,
) -> Parameters | None:  # fmt: skip
    """Return the cheapest parameters that reach an accuracy, or else the most accurate, or None without a mesh."""
    distance = (box.volume / max(count, 1)) ** (1 / 3)
    lengths = box.lengths  # the window is a function of the product of wave and lattice vectors
    ends = [int(not periodic) for periodic in box.periodic]  # nodes on both faces of open axes
    share = SHARE * accuracy
    windows = [window] if window is not None else [pm.bspline(order) for order in ORDERS]
    best: tuple[bool, float, Parameters] | None = None
    number = splitting if bandwidth is None else bandwidth
    for rc in _cutoffs(kind, distance, float(lengths.max()), share / crowd.pairs, cutoff, number):
        split = kind.of(rc, distance, share / crowd.pairs, number)
        pairs = 4 / 3 * math.pi * (rc / distance) ** 3
        if best is not None and (False, costs.seconds(count, pairs, 0, 1)) > best[:2]:
            break  # the pairs alone take longer, as those of longer cutoffs
        for each in windows:
            nodes = shape
            if nodes is None:
                h = max(spacing_for(each, split, share, distance, fourth, crowd.mesh), 1e-12 * lengths.max())
                least = [max(2, math.ceil(t / h) + end) for t, end in zip(lengths, ends, strict=True)]
                if math.prod(least) > 2**33:
                    continue
                # Open axes are padded, to another number.
                nodes = tuple(n if end else good_size(n) for n, end in zip(least, ends, strict=True))
            spacings = (lengths / (np.array(nodes) - ends)).tolist()
            of_pairs = crowd.pairs * split.real_error(rc, distance)
            of_mesh = mesh_error(each, split, spacings, distance, fourth, crowd.mesh)
            seconds = costs.seconds(count, pairs, each.support, _padded(box, nodes, each))
            candidate = Parameters(rc, split, nodes, each, of_pairs, of_mesh, seconds, fourth, crowd)
            misses = candidate.error > 1.05 * accuracy
            rank = misses, candidate.error if misses else seconds
            if best is None or rank < best[:2]:
                best = (*rank, candidate)
    return None if best is None else best[2]


def _cutoffs(
    kind: type[Split], distance: float, length: float, error: float, cutoff: float | None, number: float | None
) -> list[float]:
    """Return the cutoffs to choose from, the shortest first."""
    if cutoff is None and number is not None:
        cutoff = kind.cutoff_of(number, distance, error)
    if cutoff is not None:
        return [cutoff]
    return [float(c) for c in np.geomspace(0.7 * distance, max(2.0 * distance, min(20.0 * distance, 4.0 * length)), 40)]
