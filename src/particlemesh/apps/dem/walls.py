# SPDX-License-Identifier: BSD-3-Clause
"""Walls: planes, the faces of a box, rectangles, discs, cylinders and cones; they may move and have their own law.

Loops over contacts see a wall as a row of numbers, see `Wall.row`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from particlemesh.apps.dem.contact import LAWS, Contact, Law
from particlemesh.apps.dem.cpu import nearest
from particlemesh.kernels import checks

MOST = 20  # walls: which ones a particle touches is one bit each of an integer that float32 holds
PLANE, REVOLVED, RECTANGLE = range(3)  # kinds of walls, as in step.c
POINT, AXIS, SIZES, SIDE, VELOCITY, SPIN, LAW = (
    slice(1, 4), slice(4, 7), slice(7, 11), slice(11, 14), slice(14, 17), 17, slice(18, 25),
)  # fmt: skip
COLUMNS = 26  # the last is the time of a step


def _unit(vector: Any, what: str) -> tuple[float, ...]:
    """Return a vector of length 1."""
    direction = np.array(checks.per_axis(vector, 3, what))
    length = np.abs(direction).max()
    if length == 0:
        raise ValueError(f"{what} is {vector!r}; a vector of nonzero length is needed.")
    if abs(math.hypot(*direction) - 1) > 1e-15:  # a normal of length 1 keeps its bits: a restart needs them
        direction = direction / length  # first, so that no square overflows
        direction = direction / np.linalg.norm(direction)
    return tuple((direction + 0.0).tolist())


@dataclass(frozen=True, repr=False)
class Wall:
    """What walls share: a first field that is a place, a velocity, a turn about the axis, and a law of contact."""

    _kind: ClassVar[int]
    _shape: ClassVar[dict[str, str]]  # of the fields of this shape: "point", "axis", "vector", or "size"

    velocity: Sequence[float] = field(default=(0.0, 0.0, 0.0), kw_only=True)
    spin: float = field(default=0.0, kw_only=True)
    contact: Contact | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, what in self._shape.items():
            value = getattr(self, name)
            if what == "axis":
                value = _unit(value, name)
            elif what == "size":
                value = checks.at_least_zero(value, name)
            else:
                value = checks.per_axis(value, 3, name)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "velocity", checks.per_axis(self.velocity, 3, "velocity"))
        object.__setattr__(self, "spin", checks.per_axis(self.spin, 1, "spin")[0])
        if not (self.contact is None or isinstance(self.contact, Contact)):
            raise TypeError(f"contact is a {type(self.contact).__name__}; give Hertz(...) or LinearSpring(...).")
        self._check()

    def _check(self) -> None:
        """Check sizes."""

    def __repr__(self) -> str:
        given = [f for f in fields(self) if f.name in self._shape or getattr(self, f.name) != f.default]
        given.sort(key=lambda f: f.name not in self._shape)
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"

    @property
    def place(self) -> np.ndarray:
        """The first field: the reference of torques."""
        return np.array(getattr(self, next(iter(self._shape))))

    def moved(self, time: float) -> Self:
        """Return the wall after a time."""
        if not any(self.velocity):
            return self
        name = next(iter(self._shape))
        given: dict[str, Any] = {name: tuple((self.place + time * np.array(self.velocity)).tolist())}
        return replace(self, **given)

    def geometry(self) -> tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]:
        """Return point, axis, four sizes and a direction across the axis."""
        raise NotImplementedError

    def row(self, law: Law) -> np.ndarray:
        """Return the numbers of a wall in step.c; `law` is that of particles."""
        point, axis, sizes, side = self.geometry()
        numbers = law if self.contact is None else self.contact.numbers()
        if numbers.hertz != law.hertz:
            raise TypeError(f"the contact of {self} has another law than that of particles: give the same class.")
        return np.array([self._kind, *point, *axis, *sizes, *side, *self.velocity, self.spin, *numbers.slopes(), 0.0])

    def state(self) -> list[float]:
        """Return all in 18 numbers: the shape, its fields, velocity, spin and law."""
        sizes = [number for name in self._shape for number in np.ravel(getattr(self, name)).tolist()]
        law = [math.nan] * 4 if self.contact is None else list(self.contact.arguments().values())
        padded = sizes + [0.0] * (9 - len(sizes))
        return [float(SHAPES.index(type(self))), *padded, *self.velocity, self.spin, *law]


def wall_of(state: Sequence[float], law: str) -> Wall:
    """Return the wall of a `Wall.state`."""
    shape, at = SHAPES[int(state[0])], 1
    given: dict[str, Any] = {}
    for name, what in shape._shape.items():
        width = 1 if what == "size" else 3
        given[name] = state[at] if width == 1 else tuple(state[at : at + 3])
        at += width
    arguments = state[14:18]
    contact = None if math.isnan(arguments[0]) else LAWS[law](*arguments)
    return shape(**given, velocity=tuple(state[10:13]), spin=state[13], contact=contact)


@dataclass(frozen=True, repr=False)
class Plane(Wall):
    """An infinite wall; particles are on the side to which its normal points.

    Parameters
    ----------
    point : 3 numbers
        Any point of the plane.
    normal : 3 numbers
        Direction of the normal, of any length but zero.
    velocity : 3 numbers
        With which the wall moves.
    spin : number
        Angular velocity about the normal through the point.
    contact : Hertz or LinearSpring, optional
        The law of contact of particles with this wall; by default that of particles with each other.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers.

    Examples
    --------
    >>> from particlemesh.apps.dem import Plane
    >>> Plane((0, 0, 1), (0, 0, 2))
    Plane(point=(0.0, 0.0, 1.0), normal=(0.0, 0.0, 1.0))
    """

    _kind = PLANE
    _shape: ClassVar[dict[str, str]] = {"point": "point", "normal": "axis"}

    point: Sequence[float]
    normal: Sequence[float]

    @property
    def offset(self) -> float:
        """Distance of the plane from the origin of coordinates, along the normal."""
        return float(np.dot(self.point, self.normal))

    def geometry(self) -> tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]:
        """Return point, axis, four sizes and a direction across the axis."""
        return self.point, self.normal, (self.offset, 0, 0, 0), _across(self.normal)


@dataclass(frozen=True, repr=False)
class Rectangle(Wall):
    """A rectangle of no thickness; particles may be on both sides.

    Parameters
    ----------
    corner : 3 numbers
    first, second : 3 numbers
        Edges from this corner; they are perpendicular.
    velocity, contact
        As for :class:`Plane`.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers, edges are not perpendicular, or the rectangle has a spin.

    Examples
    --------
    >>> from particlemesh.apps.dem import Rectangle
    >>> Rectangle((0, 0, 0), (1, 0, 0), (0, 2, 0), velocity=(0, 0, 0.1)).velocity
    (0.0, 0.0, 0.1)
    """

    _kind = RECTANGLE
    _shape: ClassVar[dict[str, str]] = {"corner": "point", "first": "vector", "second": "vector"}

    corner: Sequence[float]
    first: Sequence[float]
    second: Sequence[float]

    def _check(self) -> None:
        lengths = math.hypot(*self.first) * math.hypot(*self.second)
        if not abs(np.dot(self.first, self.second)) <= 1e-9 * lengths or lengths == 0:
            raise ValueError(f"first and second are {self.first} and {self.second}; give two perpendicular edges.")
        if self.spin:
            raise ValueError(f"spin is {self.spin:g}; a rectangle has no axis to turn about: leave out spin.")

    def geometry(self) -> tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]:
        """Return point, axis, four sizes and a direction across the axis."""
        first, second = np.array(self.first), np.array(self.second)
        middle = self.place + (first + second) / 2
        halves = math.hypot(*self.first) / 2, math.hypot(*self.second) / 2
        return middle.tolist(), _unit(np.cross(first, second), "normal"), (*halves, 0, 0), _unit(first, "first")


class _Revolved(Wall):
    """The surface that a line makes which turns about an axis: from (distance, height) to another one."""

    _kind = REVOLVED

    def line(self) -> tuple[float, float, float, float]:
        """Return distances from the axis, and heights along it, of both ends."""
        raise NotImplementedError

    def geometry(self) -> tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]:
        """Return point, axis, four sizes and a direction across the axis."""
        axis = getattr(self, list(self._shape)[1])
        return self.place.tolist(), axis, self.line(), _across(axis)

    def _check(self) -> None:
        begin, low, end, high = self.line()
        if begin == end and low == high:
            raise ValueError(f"{self} has no surface: give sizes above 0.")


@dataclass(frozen=True, repr=False)
class Disc(_Revolved):
    """A disc of no thickness, which may have a round hole; particles may be on both sides.

    Parameters
    ----------
    point : 3 numbers
        The centre.
    normal : 3 numbers
    radius : number
    hole : number
        Radius of the hole.
    velocity, spin, contact
        As for :class:`Plane`; it turns about the normal.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers, or the hole is larger than the disc.

    Examples
    --------
    >>> from particlemesh.apps.dem import Disc
    >>> Disc((0, 0, 0), (0, 0, 1), radius=0.1, hole=0.03).hole  # the bottom of a silo
    0.03
    """

    _shape: ClassVar[dict[str, str]] = {"point": "point", "normal": "axis", "radius": "size", "hole": "size"}

    point: Sequence[float]
    normal: Sequence[float]
    radius: float
    hole: float = 0.0

    def line(self) -> tuple[float, float, float, float]:
        """Return distances from the axis, and heights along it, of both ends."""
        if self.hole > self.radius:
            raise ValueError(f"hole is {self.hole:g} and radius {self.radius:g}: give a smaller hole.")
        return self.hole, 0.0, self.radius, 0.0


@dataclass(frozen=True, repr=False)
class Cylinder(_Revolved):
    """The side of a cylinder, without its ends; particles may be inside and outside.

    Parameters
    ----------
    point : 3 numbers
        The middle of one end.
    axis : 3 numbers
        Direction to the other end.
    radius, length : number
    velocity, spin, contact
        As for :class:`Plane`; it turns about the axis.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers.

    Examples
    --------
    >>> from particlemesh.apps.dem import Cylinder
    >>> Cylinder((0, 0, 0), (0, 1, 0), radius=0.1, length=0.05, spin=2.0).spin  # a drum that rotates
    2.0
    """

    _shape: ClassVar[dict[str, str]] = {"point": "point", "axis": "axis", "radius": "size", "length": "size"}

    point: Sequence[float]
    axis: Sequence[float]
    radius: float
    length: float

    def line(self) -> tuple[float, float, float, float]:
        """Return distances from the axis, and heights along it, of both ends."""
        return self.radius, 0.0, self.radius, self.length


@dataclass(frozen=True, repr=False)
class Cone(_Revolved):
    """The side of a cone or of a part of it, without ends: a hopper.

    Parameters
    ----------
    point : 3 numbers
        The middle of one end.
    axis : 3 numbers
        Direction to the other end.
    radius, end_radius : number
        Radii at the point and at the other end.
    length : number
        Along the axis.
    velocity, spin, contact
        As for :class:`Plane`; it turns about the axis.

    Raises
    ------
    ValueError, TypeError
        If these are not such numbers.

    Examples
    --------
    >>> from particlemesh.apps.dem import Cone
    >>> Cone((0, 0, 0), (0, 0, 1), radius=0.02, end_radius=0.1, length=0.1).end_radius
    0.1
    """

    _shape: ClassVar[dict[str, str]] = {
        "point": "point", "axis": "axis", "radius": "size", "end_radius": "size", "length": "size",
    }  # fmt: skip

    point: Sequence[float]
    axis: Sequence[float]
    radius: float
    end_radius: float
    length: float

    def line(self) -> tuple[float, float, float, float]:
        """Return distances from the axis, and heights along it, of both ends."""
        return self.radius, 0.0, self.end_radius, self.length


SHAPES = (Plane, Rectangle, Disc, Cylinder, Cone)  # by number in a state: new ones go to the end


def _across(axis: Sequence[float]) -> Sequence[float]:
    """Return a direction across an axis."""
    return _unit(np.cross(axis, np.eye(3)[int(np.argmin(np.abs(axis)))]), "axis")


def walls_of(given: Any, box_walls: list[Plane]) -> tuple[Wall, ...]:
    """Return the walls given and those of a box, checked one by one."""
    if isinstance(given, Wall) or not isinstance(given, Iterable):
        given = (given,)
    walls = (*given, *box_walls)
    for n, wall in enumerate(walls):
        if not isinstance(wall, SHAPES):
            shapes = ", ".join(shape.__name__ for shape in SHAPES[1:])
            raise TypeError(f"walls[{n}] is a {type(wall).__name__}; give Plane(point, normal), or {shapes}.")
    if len(walls) > MOST:
        raise ValueError(f"there are {len(walls)} walls, those of the box included; up to {MOST} are possible.")
    planes = {n: (*wall.normal, wall.offset) for n, wall in enumerate(walls) if isinstance(wall, Plane)}
    for n, row in planes.items():
        for m, earlier in planes.items():
            if m < n and np.abs(np.subtract(row, earlier)).max() <= 1e-12 * max(1.0, abs(row[3])):
                raise ValueError(
                    f"walls {m} and {n} are the same plane, {walls[n]}: its force would count twice. "
                    "Faces of the box are walls where the box is not periodic."
                )
    return walls


def table(walls: Iterable[Wall], law: Law) -> np.ndarray:
    """Return the rows of walls (W, COLUMNS)."""
    return np.array([wall.row(law) for wall in walls], np.float64).reshape(-1, COLUMNS)


def in_units(rows: np.ndarray, law: Law, step: float, length: float, mass: float, time: float) -> np.ndarray:
    """Return rows in other units, with the time of a step in the user's."""
    rows = rows.copy()
    rows[:, POINT] /= length
    rows[:, SIZES] /= length
    rows[:, VELOCITY] /= length / time
    rows[:, SPIN] *= time
    rows[:, -1] = step / time
    rows[:, LAW][:, :2] *= time * time / mass * (length if law.hertz else 1)
    return rows


def after(rows: np.ndarray, steps: int) -> np.ndarray:
    """Return the rows of walls that have moved for some steps."""
    rows, way = rows.copy(), steps * rows[:, -1:] * rows[:, VELOCITY]
    rows[:, POINT] += way
    rows[:, SIZES.start] += np.where(rows[:, 0] == PLANE, (rows[:, AXIS] * way).sum(1), 0.0)
    return rows


def apart(rows: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of places from walls, row by row, and unit vectors to the places.

    Behind a plane the distance is negative.
    """
    distance, unit = np.empty(len(x)), np.empty((len(x), 3))
    nearest(np.ascontiguousarray(rows), np.ascontiguousarray(x, np.float64), distance, unit)
    return distance, unit


def check_room(walls: tuple[Wall, ...], radius: float) -> None:
    """Check that a sphere of a radius fits between the planes.

    Raises
    ------
    ValueError
        If planes overlap so far that it does not.
    """
    planes = [wall for wall in walls if isinstance(wall, Plane)]
    if not planes:
        return
    from scipy.optimize import linprog

    normals = np.array([plane.normal for plane in planes])
    # Seen from the middle of the walls' points: rounding shall not grow with the distance from the origin.
    points = np.array([plane.point for plane in planes], np.float64)
    offsets = ((points - points.mean(0)) * normals).sum(1)
    scale = max(radius, float(np.abs(offsets).max()))
    # The largest sphere on the right side of all planes, in units of the scale, up to the radius.
    bounds = [(None, None)] * 3 + [(None, radius / scale)]
    matrix = np.hstack([-normals, np.ones((len(planes), 1))])
    solution = linprog((0, 0, 0, -1), A_ub=matrix, b_ub=-offsets / scale, bounds=bounds)
    room = float(solution.x[3]) * scale
    if room < radius * (1 - 1e-9):
        there = "no room at all" if room <= 0 else f"room for a sphere of radius {room:g}"
        raise ValueError(
            f"walls overlap: they leave {there}, and the largest particle has radius {radius:g}. Move the walls apart; "
            "normals point to the side of the particles."
        )


def check_inside(walls: tuple[Wall, ...], positions: np.ndarray) -> None:
    """Check that every centre is on the right side of every plane.

    Raises
    ------
    ValueError
        If one is not; the message names the first.
    """
    for n, wall in enumerate(walls):
        if not isinstance(wall, Plane):
            continue
        behind = positions @ wall.normal < wall.offset
        if behind.any():
            first = int(np.argmax(behind))
            raise ValueError(
                f"{int(behind.sum())} particles are behind wall {n}, {wall}; the first is particle {first} at "
                f"{tuple(positions[first].tolist())}. The normal points to the side of the particles."
            )
