# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a method: one algorithm, in one direction.

A method is one Python file, and one kernel file of the same stem beside it, except on the CPU. Its class
is in the folder's ``METHODS`` tuple, with its citation. Everything that lists methods (tests, benchmarks,
``explain()``, the documentation's table, the automatic choice) reads that tuple.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.particles.workspace import Sizes, Workspace


@dataclass(frozen=True)
class Problem(Sizes):
    """What a method is asked about: sizes, and how the particles lie as far as that is known."""

    filled: float = 1.0  # of the box, by particles: clusters fill little of it
    in_order: bool = False  # neighbours in memory are neighbours in space
    occupied: float = 1.0  # of the layers of cells across an axis: particles of a lattice lie in some of them
    # The share of the particles of each crowd, and the fraction of the box that all would fill as densely; empty if
    # particles are of one crowd. Models know no crowds: predictions ask them for each crowd (choosing/predict.py).
    crowds: tuple[tuple[float, float], ...] = ()

    @property
    def beyond_cache(self) -> float:
        """Share of the field, where particles are, beyond a large GPU's second-level cache (40 MB of an H200's 60)."""
        return max(0.0, 1 - 40e6 / (self.nodes * self.filled * self.components * self.dtype.itemsize))


@dataclass(frozen=True)
class Option:
    """What a user may choose of a method.

    ``allowed`` lists the values, or is a range of integers, or ``tuple`` for a tuple of positive integers. If the
    default is none of these, it means that the method chooses.
    """

    default: Any
    allowed: tuple[Any, ...] | range | type
    words: str

    def suits(self, value: Any) -> bool:
        """Return whether ``value`` may be given."""
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if isinstance(self.allowed, tuple):
            return any(type(value) is type(a) and value == a for a in (*self.allowed, self.default))
        if isinstance(self.allowed, range):
            return value is self.default or (whole and value in self.allowed)
        integers = isinstance(value, tuple) and all(type(n) is int and n > 0 for n in value)
        return value is self.default or (integers and len(value) > 0)

    def allowed_words(self) -> str:
        """Return what is allowed, in words."""
        if isinstance(self.allowed, tuple):
            return "one of " + ", ".join(repr(a) for a in dict.fromkeys((self.default, *self.allowed)))
        if isinstance(self.allowed, range):
            return f"an integer from {self.allowed.start:,} to {self.allowed[-1]:,}"
        return "a tuple of positive integers"


class Method:
    """One algorithm, in one direction. Subclasses state facts and fill in ``apply``.

    An instance belongs to one plan. ``prepare`` runs once per particle configuration and may keep what
    it builds on ``self``; ``apply`` runs once per set of values and must not synchronise. Scratch
    memory comes from ``workspace.scratch(name, shape, dtype)``, which keeps it for the next call.
    """

    name: ClassVar[str]
    cite: ClassVar[str] = ""  # key into reference.bib
    backends: ClassVar[frozenset[str]]
    derivatives: ClassVar[int] = 1  # highest order of derivatives, which `apply` takes
    deterministic: ClassVar[bool] = False  # equal calls return bit-identical results
    order_independent: ClassVar[bool] = False  # bit-identical for any permutation of the particles
    # Bit-identical however a mesh is cut: what a particle gives or gets follows from its stencil alone.
    cut_independent: ClassVar[bool] = False
    reads_stencils: ClassVar[bool] = True  # `particles.node` and `fraction` on GPUs, not only orders by block
    confines_non_finite: ClassVar[bool] = True  # NaN and infinity reach no further than the stencil
    prepares: ClassVar[bool]  # whether it has a `prepare` of its own
    prepares_orders: ClassVar[bool] = False  # what `prepare` makes is in `workspace.orders` and its memory alone
    fills: ClassVar[bool] = False  # spreading writes every node of the field, which may be uncleared if `fresh`
    stores_weights: ClassVar[bool] = False  # of every particle: expensive to prepare, for many applications
    options: ClassVar[Mapping[str, Option]] = {}
    includes: ClassVar[type[Method] | None] = None  # another method, all of whose work this one does, and more

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.prepares = cls.prepare is not Method.prepare
        taken = inspect.signature(cls.apply).parameters
        needed = ["gradient", "hessian"][: cls.derivatives]
        ignored = [name for name in needed + ["fresh"] * cls.fills if name not in taken]
        # With *arrays it hands on what it is given.
        if ignored and not any(p.kind is p.VAR_POSITIONAL for p in taken.values()):
            raise TypeError(
                f"{cls.__name__}.apply has no parameter {' and no '.join(ignored)}, so it would ignore what it stands "
                f"for: add it, or state derivatives = {1 if 'gradient' in taken else 0}"
                f"{' and fills = False' if cls.fills else ''} in the class."
            )

    @classmethod
    def option(cls, sizes: Sizes, name: str) -> Any:
        """Return what was chosen for one of the method's options."""
        return sizes.options.get(cls.name, {}).get(name, cls.options[name].default)

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        """Return why this method cannot serve ``problem``, or None."""
        return None

    @classmethod
    def note(cls, sizes: Sizes) -> str:
        """Return what ``explain()`` says of how it works for these particles."""
        return ""

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        """Return the bytes of memory it takes beside positions, values and field."""
        return 0

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of ``prepare`` and of one ``apply``.

        Measurements on a device correct this (``choosing/``). A model that grows with the problem as the times do
        needs fewer of them, and serves devices without any. This default models no particular
        algorithm. It decides only which problems ``particlemesh tune`` measures: until then the automatic choice takes
        the method last.
        """
        slow = 100.0 if problem.backend.name == "cpu" else 1.0
        prepare = 0.0 if not cls.prepares else 5e-5 + problem.count * 1e-10 * slow
        adds = problem.count * problem.stencil * problem.components * 4e-12
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 3e12
        return prepare, 5e-6 + (adds + cleared) * slow

    @classmethod
    def has_model(cls) -> bool:
        """Return whether ``cost`` is the method's own, or that of a base made for its kind."""
        return getattr(cls.cost, "__func__", cls.cost) is not Method.cost.__func__  # type: ignore[attr-defined]

    def non_finite_values(self) -> bool:
        """Return whether unchecked values were not finite since the last configuration."""
        return False

    def reserve(self, workspace: Workspace) -> None:
        """Allocate what ``prepare`` and ``apply`` will take for ``workspace.capacity`` particles."""

    def prepare(self, workspace: Workspace) -> None:
        """Do what depends on the positions only."""

    # ---- methods whose sums are integers ---------------------------------------------------------------

    integers: ClassVar[bool] = False  # has the three below

    def bounds(self, workspace: Workspace, values: View, bounds: Any, *, gradient: bool, hessian: bool) -> None:
        """Write the exponents of :meth:`particlemesh.Plan.bounds` to a native int32 array."""
        raise NotImplementedError

    def add_integers(
        self, workspace: Workspace, values: View, bounds: Any, sums: View, *, gradient: bool, hessian: bool
    ) -> None:
        """Add to integers in the units that ``bounds`` fix; parts of their view are neighbours in memory."""
        raise NotImplementedError

    def convert(self, workspace: Workspace, sums: View, bounds: Any, field: View) -> None:
        """Write the field that integers stand for; both views have any number of nodes."""
        raise NotImplementedError

    # ---- all methods -----------------------------------------------------------------------------------

    def apply(self, workspace: Workspace, *arrays: Any, **form: Any) -> None:
        """Spread: ``apply(workspace, values, field)`` adds to the field. Interpolate: ``(workspace, field, values)``.

        Both arrays are views (``arrays.View``): ``values`` of shape (channels, particles, parts), ``field``
        (channels, nx, ny, nz, parts), both real; parts is 2 for complex numbers. Spreading takes
        ``gradient=True`` for the adjoint of the gradient: ``values`` is then (channels, particles, axes, parts). A
        method that ``fills`` takes ``fresh=True``: it then overwrites the field.
        Interpolation takes ``gradient=View`` of that shape, and ``values`` may be None: value, gradient, or
        both in one pass. Methods with ``derivatives = 2`` also take ``hessian=``, likewise with two axes.
        """
        raise NotImplementedError
