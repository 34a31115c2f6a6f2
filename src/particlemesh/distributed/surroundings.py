# SPDX-License-Identifier: BSD-3-Clause
"""Where particles are in a domain, which of them another rank must see as ghosts, and the box that holds them all.

Coordinates are in nodes: u = (x - origin) K / L - offset, so that cell floor(u) is what a domain asks for. Nothing here
communicates: all ranks work out the same neighbours.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.positions import open_bounds
from particlemesh.box import Box
from particlemesh.distributed.domain import Domain, Part

# Of a reach: ghosts and boxes are a little wider than the radius, so that rounding hides no pair.
SLACK = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}

Image = tuple[int, ...]


class Neighbour(NamedTuple):
    """A rank that sees particles of this one, by an image of them: so many periods are added along each axis."""

    rank: int
    image: Image


class Placed(NamedTuple):
    """Particles in the cells of a domain."""

    # Each has one entry per axis.
    cells: tuple[Any, ...]  # of the whole mesh, int32 (N,); zero where the axis is not cut
    periods: tuple[Any, ...]  # that are added to get into the mesh, int32 (N,); zero where the axis is not cut
    coordinates: tuple[Any, ...]  # in nodes with these periods, float64 (N,); None where the axis is not cut


def upward(image: Image) -> bool:
    """Return whether the first nonzero number of an image is positive.

    Examples
    --------
    >>> upward((0, 1, -1)), upward((0, 0, 0)), upward((-1, 1, 1))
    (True, False, False)
    """
    return next((n > 0 for n in image if n), False)


class Surroundings:
    """What a rank's parts and those of the others are to each other, within a distance.

    Parameters
    ----------
    domain : Domain
    rank : int
    radius : float
        Ghosts are the particles within this distance, in the user's unit.
    dtype : numpy.dtype
        Of the positions: how much rounding moves them.
    cut : bool
        Treat every axis as cut, so that vectors between particles have the same bits for any cuts: images are always
        ghosts.

    Examples
    --------
    >>> import particlemesh as pm
    >>> around = Surroundings(Domain(pm.Mesh(8, 1.0), 4), 0, 0.1, np.dtype(np.float64))
    >>> around.neighbours
    [Neighbour(rank=1, image=(0,)), Neighbour(rank=3, image=(1,))]
    """

    def __init__(self, domain: Domain, rank: int, radius: float, dtype: Any, cut: bool = False) -> None:
        self.domain, self.rank, self.mesh = domain, rank, domain.mesh
        self._nodes, self._periodic = self.mesh.shape, self.mesh.periodic
        self._scale = np.array(self.mesh.intervals, np.float64)
        self._offset = np.array(self.mesh.offset)
        # The thickness of n cells across their faces is n / (K |b|), with the reciprocal vector b.
        across = np.linalg.norm(self.mesh.box.inverse, axis=1) * self._scale
        self.coefficients = self.mesh.box.inverse * self._scale[:, None]  # nodes per length
        # Images of positions far from zero are rounded to the digits that these have.
        far = np.abs(self.mesh.box.origin) + np.abs(self.mesh.box.matrix).sum(0)
        rounded = np.finfo(dtype).eps * float(far.max()) * float(np.linalg.norm(self.mesh.box.inverse, axis=1).max())
        self._slack = max(SLACK[np.dtype(dtype)], 8 * rounded)
        self.reach = (radius * across + self._scale * self._slack) * (1 + self._slack)
        # Along an axis that every part has for itself the local grid finds images; open axes get room beyond the faces.
        alone = domain.size == 1
        spans = [
            {(p.lower[a], p.upper[a]) for p in domain.parts() if p.size} <= {(0, n)} for a, n in enumerate(self._nodes)
        ]
        self.cut = tuple(cut or not p or not (alone or s) for p, s in zip(self._periodic, spans, strict=True))

    def place(self, x: Any, xp: Any) -> Placed:
        """Return the cells of positions (N, d), the same for the same position on any rank.

        The steps are single products and sums: a matrix product may round in another order for other numbers of rows.
        """
        d, box = self.mesh.ndim, self.mesh.box
        nothing = xp.zeros(x.shape[0], np.int32)
        cells, periods, coordinates = [nothing] * d, [nothing] * d, [None] * d
        for a in range(d):
            if not self.cut[a]:
                continue
            u: Any = None
            for b in range(d):
                if box.inverse[a, b]:
                    moved = x[:, b].astype(np.float64)
                    if box.origin[b]:
                        moved -= box.origin[b]
                    moved *= self.coefficients[a, b]
                    u = moved if u is None else u + moved
            if self._offset[a]:
                u -= self._offset[a]
            down = xp.floor(u)
            if self._periodic[a]:
                # Whole periods leave a cell within the mesh, for coordinates of any size.
                away = xp.floor_divide(down, self._nodes[a])
                away *= -1
                down += away * self._nodes[a]
                u += away * self._nodes[a]
                periods[a] = away.astype(np.int32)
            cells[a], coordinates[a] = down.astype(np.int32), u
        return Placed(tuple(cells), tuple(periods), tuple(coordinates))

    # ---- neighbours -----------------------------------------------------------------------------------

    @cached_property
    def neighbours(self) -> list[Neighbour]:
        """The ranks that see this rank's particles, and by which images; never the particles themselves."""
        owned = [part for part in self.domain.parts(self.rank) if part.size]
        most, near_to = self._most, []
        for rank in range(self.domain.size):
            images: set[Image] = set()
            for part, other in itertools.product(owned, (p for p in self.domain.parts(rank) if p.size)):
                near = (
                    [n for n in range(-most[a], most[a] + 1) if self._near(part, n, other, a)] for a in range(len(most))
                )
                images.update(itertools.product(*near))
            near_to += [Neighbour(rank, image) for image in sorted(images) if rank != self.rank or any(image)]
        return near_to

    @cached_property
    def _most(self) -> list[int]:
        """Numbers of periods along each axis that may bring two parts together."""
        return [
            int(np.ceil(self.reach[a] / n)) + 1 if self.cut[a] and self._periodic[a] else 0
            for a, n in enumerate(self._nodes)
        ]

    @cached_property
    def images(self) -> list[Image]:
        """Numbers of periods that may bring two parts together."""
        return list(itertools.product(*(range(-m, m + 1) for m in self._most)))

    def _near(self, part: Part, periods: int, other: Part, axis: int) -> bool:
        """Return whether a part, moved by periods along an axis, is within reach of another one there."""
        low, high = self._range(other, axis)
        mine, shift, reach = self._range(part, axis), periods * self._nodes[axis], self.reach[axis]
        return not self.cut[axis] or (mine[0] + shift <= high + reach and mine[1] + shift >= low - reach)

    def _range(self, part: Part, axis: int) -> tuple[float, float]:
        """Return where particles of a part are along an axis; the outermost parts of an open axis have no end."""
        low, high = float(part.lower[axis]), float(part.upper[axis])
        if not self._periodic[axis]:
            low = -np.inf if part.lower[axis] == 0 else low
            high = np.inf if part.upper[axis] == self._nodes[axis] else high
        return low, high

    def seen_in(self, to: Neighbour) -> list[tuple[list[float], list[float]]]:
        """Return the boxes, in nodes, whose particles a neighbour sees by an image: low and high on three axes."""
        boxes = []
        for part in self.domain.parts(to.rank):
            if part.size:
                low, high = [-np.inf] * 3, [np.inf] * 3
                for a, nodes in enumerate(self._nodes):
                    if self.cut[a]:
                        first, last = self._range(part, a)
                        shift = to.image[a] * nodes
                        low[a], high[a] = first - self.reach[a] - shift, last + self.reach[a] - shift
                boxes.append((low, high))
        return boxes

    def seen(self, placed: Placed, to: Neighbour, xp: Any) -> Any:
        """Return the indices of the particles that a neighbour sees by an image, ascending."""
        seen = None
        for low, high in self.seen_in(to):
            near = None
            for a, u in enumerate(placed.coordinates):
                if self.cut[a]:
                    one = (u >= low[a]) & (u <= high[a])
                    near = one if near is None else near & one
            if near is None:  # no axis is cut: everything is near
                return xp.arange(placed.cells[0].shape[0])
            seen = near if seen is None else seen | near
        return xp.flatnonzero(seen)

    # ---- the local box --------------------------------------------------------------------------------

    @cached_property
    def box(self) -> Box:
        """A box with room for this rank's particles and ghosts, open along axes that are cut."""
        box = self.mesh.box
        if not any(self.cut):
            return box
        owned = [part for part in self.domain.parts(self.rank) if part.size]
        rows, origin = box.matrix.copy(), box.origin.copy()
        for a in range(self.mesh.ndim):
            if self.cut[a]:
                end = 0 if self._periodic[a] else 1  # particles lie up to half a cell before the first node
                low = min((part.lower[a] for part in owned), default=0) - end
                high = max((part.upper[a] for part in owned), default=1) + end
                room = self.reach[a] + self._slack * self._scale[a]  # ghosts lie within the reach
                first, last = low - room + self._offset[a], high + room + self._offset[a]
                origin += first / self._scale[a] * box.matrix[a]
                rows[a] *= (last - first) / self._scale[a]
        periodic = [whole and not cut for whole, cut in zip(self._periodic, self.cut, strict=True)]
        return Box(rows, origin=origin, periodic=periodic)


def moved(x: Any, periods: tuple[Any, ...], matrix: np.ndarray, axes: tuple[bool, ...]) -> Any:
    """Return positions (N, d) with periods added along some axes, in their own dtype; the others keep their bits.

    Examples
    --------
    >>> moved(np.array([[0.25, 0.5]]), (np.array([1]), np.array([0])), np.diag([2.0, 3.0]), (True, False))
    array([[2.25, 0.5 ]])
    """
    result = x
    for a, here in enumerate(axes):
        if here and bool(periods[a].any()):
            if result is x:
                result = x.copy()
            for b in range(x.shape[1]):
                if matrix[a, b]:
                    result[:, b] += (periods[a] * matrix[a, b]).astype(x.dtype)
    return result


def check_inside(box: Box, x: Any, xp: Any) -> None:
    """Check positions (N, d) of NumPy or CuPy; the first bad particle is named."""
    bad = ~xp.isfinite(x).all(1)
    if bool(bad.any()):
        first = int(xp.flatnonzero(bad)[0])
        raise ValueError(f"particle {first} of {x.shape[0]} is at {x[first]}; positions must be finite.")
    lower, upper = open_bounds(box.origin, box.inverse, box.lengths, box.orthorhombic, x.dtype)
    for a, periodic in enumerate(box.periodic):
        if periodic:
            continue
        place = (
            x[:, a]
            if box.orthorhombic
            else sum((x[:, b] - box.origin[b]) * box.inverse[a, b] for b in range(x.shape[1]))
        )
        bad = (place < lower[a]) | (place > upper[a])
        if bool(bad.any()):
            first = int(xp.flatnonzero(bad)[0])
            raise ValueError(f"particle {first} of {x.shape[0]} is at {x[first]}, outside of the open axis {a}.")
