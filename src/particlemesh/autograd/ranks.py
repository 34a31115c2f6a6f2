# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, interpolation and transforms over many ranks: what derivatives of torch and JAX share.

A result of one rank depends on arrays of all, so that the derivative of a call is a call of all ranks, too. The adjoint
of an exchange is the reverse exchange. Each rank differentiates its share of a loss, which is the sum of all shares.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh import Mesh, Window
from particlemesh import distributed as pmd
from particlemesh.autograd import potentials
from particlemesh.autograd.frame import Frame, numbers_of
from particlemesh.autograd.pool import verb
from particlemesh.fourier.compensation import chosen
from particlemesh.window import DEFAULT

_ALL: weakref.WeakValueDictionary[str, Collective] = weakref.WeakValueDictionary()  # by the text that operators take
_NUMBERS = itertools.count()


class Library(NamedTuple):
    """What a library of arrays is asked for.

    Attributes
    ----------
    xp : module
        Torch or ``jax.numpy``.
    kind : type
        Of its arrays.
    like : callable
        ``like(numbers, array)`` returns an array of numbers with the dtype and device of ``array``.
    add : callable
        ``add(array, index, terms)`` returns an array with terms added to some of the numbers along its last axis.
    dense : callable
        Returns an array whose numbers are in C order, and no lazy conjugates.
    agreed : callable
        ``agreed(collective, **inputs)`` returns the inputs of a call, once all ranks differentiate by the same ones.
    linear : callable
        ``linear(array, there, back, again, shape, real)`` returns ``there(array)``, a linear function on all ranks,
        whose adjoint is ``back``. The adjoint of that is ``again``, by default ``there``. All take arrays without
        derivatives. The result has this shape, and is real or complex; by default as the array.
    transposes : bool
        Whether the derivative of a complex linear function is its transpose rather than its adjoint.
    differ, remedy : str
        What to say where ranks differentiate by other inputs.
    """

    xp: Any
    kind: type
    like: Callable[[Any, Any], Any]
    add: Callable[[Any, Any, Any], Any]
    dense: Callable[[Any], Any]
    agreed: Callable[..., list[Any]]
    linear: Callable[..., Any]
    transposes: bool
    differ: str
    remedy: str


COMPILED = -1  # instead of needs: a call in a compiled program


def named(name: str) -> Any:
    """Return the object of a text that an operator got."""
    ranks = _ALL.get(name)
    if ranks is None:
        raise RuntimeError(
            "the object that made this result over ranks is gone: keep it until all derivatives are taken."
        )
    return ranks


class Collective:
    """What makes results over ranks: all ranks make the same calls, and need the same derivatives.

    Attributes
    ----------
    world : particlemesh.distributed.World
    name : str
        The text for operators, which finds this object as long as it lives.
    """

    library: ClassVar[Library]

    def __init__(self, world: pmd.World) -> None:
        self.world, self.name = world, str(next(_NUMBERS))
        _ALL[self.name] = self

    def agree(self, names: tuple[str, ...], needs: int) -> None:
        """Raise an error unless all ranks differentiate by the same inputs; derivatives of calls that agreed are alike.

        ``needs`` has a bit for each input; those of a first derivative are above those of a second one. Ranks with
        more derivatives would wait for the others.
        """
        low, high = self.world.allreduce(np.array([needs, -needs], np.int64), "min").tolist()
        if low == -high:
            return
        every = [_words(*each) for each in self.world.allgather((names, needs))]
        other = next(rank for rank, text in enumerate(every) if text != every[0])
        raise ValueError(
            f"on rank 0 {self.library.differ.format(every[0])}, and on rank {other} {every[other]}: each rank would "
            f"wait for derivatives of the other. {self.library.remedy} on all ranks, also without particles."
        )

    def alike(self, *known: tuple[Any, Any]) -> bool:
        """Return whether all ranks have the same arrays as before; ``known`` are pairs of the array before and now."""
        same = all(
            a is not None and a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all()) for a, b in known
        )
        return bool(self.world.allreduce(int(same), "min"))


def _words(names: tuple[str, ...], needs: int) -> str:
    orders = ["inputs of a compiled program"] if needs == COMPILED else []
    while needs > 0:
        orders.append(" and ".join(name for n, name in enumerate(names) if needs >> n & 1))
        needs >>= len(names)
    return ", then ".join(reversed(orders)) or "nothing"


def run(spreads: bool, positions: Any, array: Any, order: int, name: str) -> Any:
    """Spread or interpolate arrays without derivatives; operators call it."""
    method = verb(spreads, order)  # raises for third derivatives
    return getattr(named(name).at(positions), method)(array)


def shape(spreads: bool, positions: Any, array: Any, order: int, name: str) -> tuple[int, ...]:
    """Return the shape of what `run` returns."""
    nodes, (count, axes) = named(name).part.shape, positions.shape
    if spreads:
        return (*array.shape[: array.ndim - 1 - order], *nodes)
    return (*array.shape[: array.ndim - len(nodes)], count, *(axes,) * order)


class OverRanks(Collective):
    """Differentiable calls over the ranks of a domain; those of torch and JAX have examples."""

    transfer: ClassVar[Any]

    @staticmethod
    def outside(*arrays: Any) -> None:
        """Raise an error in compiled programs, whose arrays have no numbers."""

    def __init__(self, domain: pmd.Domain, world: pmd.World, window: Window | str = DEFAULT, **options: Any) -> None:
        with world.agreement("OverRanks"):
            if domain.per_rank != 1:
                raise ValueError(f"the domain has {domain.per_rank} parts for each rank; give one with per_rank=1.")
        super().__init__(world)
        self._plan, self._options = pmd.Plan(domain, world, window, **options), options
        self._unit: OverRanks | None = None  # of a box of unit lengths, for derivatives by the cell
        self._fft = pmd.FFT(domain, world, deterministic=options.get("deterministic", False))
        self.part, self.modes = domain.parts(world.rank)[0], self._fft.part
        self._at: Any = None  # positions of the plan
        last, (first, end) = domain.mesh.shape[-1], self.modes[-1]
        numbers = np.arange(first, end)
        # How often a mode is in the field: with its conjugate, unless that is itself.
        times = np.where((numbers == 0) | (2 * numbers == last), 1.0, 2.0)
        self._times = times / np.prod(domain.mesh.shape)

    def at(self, positions: Any) -> pmd.Plan:
        """Return the plan at positions (N, d) of this rank: particles travel if those of any rank are others."""
        if not self.alike((self._at, positions)):
            self._at = None
            self._plan.set_positions(positions)
            self._at = self.library.xp.asarray(positions, copy=True)
        return self._plan

    def _call(self, spreads: bool, positions: Any, array: Any, order: int) -> Any:
        given = self.library.agreed(self, **{"positions": positions, "values" if spreads else "field": array})
        return self.transfer(spreads, *given, order, self.name)

    # ---- calls ----------------------------------------------------------------------------------------

    def spread(self, positions: Any, values: Any) -> Any:
        """Spread values of all ranks; differentiable by positions and values.

        Parameters
        ----------
        positions : array (N, d)
            Of this rank's particles, in any part.
        values : array (..., N)

        Returns
        -------
        array (..., *part.shape)
        """
        return self._call(True, positions, values, 0)

    def spread_gradient(self, positions: Any, vectors: Any) -> Any:
        """Spread vectors (..., N, d) with the window's derivative, the adjoint of :meth:`gradient`."""
        return self._call(True, positions, vectors, 1)

    def interpolate(self, field: Any, positions: Any) -> Any:
        """Interpolate a field; differentiable by field and positions.

        Parameters
        ----------
        field : array (..., *part.shape)
            The nodes of this rank.
        positions : array (N, d)

        Returns
        -------
        array (..., N)
            At this rank's particles.
        """
        return self._call(False, positions, field, 0)

    def gradient(self, field: Any, positions: Any) -> Any:
        """Interpolate a field's gradient (..., N, d), per user length unit; arguments are those of `interpolate`."""
        return self._call(False, positions, field, 1)

    def forward(self, field: Any) -> Any:
        """Return this rank's modes of a real field, as :meth:`particlemesh.distributed.FFT.forward` does."""
        (field,) = self.library.agreed(self, field=field)
        modes = (*field.shape[: -len(self.modes)], *(end - first for first, end in self.modes))
        return self.library.linear(field, self._fft.forward, self._from_modes, shape=modes, real=False)

    def inverse(self, modes: Any) -> Any:
        """Return this rank's nodes of a real field from its modes."""
        (modes,) = self.library.agreed(self, modes=modes)
        field = (*modes.shape[: -len(self.modes)], *self.part.shape)
        return self.library.linear(modes, self._fft.inverse, self._to_modes, shape=field, real=True)

    def _from_modes(self, slope: Any) -> Any:
        return self._fft.inverse(slope / self.library.like(self._times, slope.real))

    def _to_modes(self, slope: Any) -> Any:
        return self._fft.forward(slope) * self.library.like(self._times, slope)

    def potential(
        self, positions: Any, values: Any, *, cell: Any = None, green: Any = "poisson",
        kappa: Any = None, alpha: Any = None, zero: Any = None, compensation: str | None = "auto",
    ) -> Any:  # fmt: skip
        """Potential at this rank's particles of the density that all carry, as a Solver over ranks returns it.

        Differentiable by positions, values, cell, kappa and alpha. The last three are the same on all ranks, and so
        are the derivatives by them: those of the sum of all shares.

        Parameters
        ----------
        positions : array (N, d)
        values : array (..., N)
            Real.
        cell : array (d,) or (d, d), optional
            Lengths or lattice vectors as rows, instead of those of the mesh.
        green, kappa, alpha, zero, compensation
            As for :func:`particlemesh.autograd.torch.potential`.

        Returns
        -------
        array (..., N)
        """
        xp, kind, like = self.library.xp, self.library.kind, self.library.like
        given = {name: a for name, a in (("cell", cell), ("kappa", kappa), ("alpha", alpha)) if isinstance(a, kind)}
        positions, values, *arrays = self.library.agreed(self, positions=positions, values=values, **given)
        shared = dict(cell=cell, kappa=kappa, alpha=alpha)
        shared |= {name: self.shared(array) for name, array in zip(given, arrays, strict=True)}
        mesh, window = self._plan.domain.mesh, self._plan.window
        if self._unit is None:
            unit = Mesh(mesh.shape, (1.0,) * mesh.ndim, offset=mesh.offset)
            self._unit = type(self)(self._plan.domain.on(unit), self.world, window, **self._options)
        frame, ranks = Frame(positions, numbers_of(mesh), shared.pop("cell"), like, xp.linalg), self._unit
        nodes, (*tables, highest) = potentials.tables(mesh, window, chosen(compensation, green), self.modes)

        def transfer(spreads: bool, array: Any) -> Any:
            return ranks.spread(frame.fractions, array) if spreads else ranks.interpolate(array, frame.fractions)

        return potentials.solved(
            xp, frame, [transfer], mesh, values, nodes, [*(like(table, values) for table in tables), highest],
            self.library.add, green=green, zero=zero, transforms=(ranks.forward, ranks.inverse), **shared,
        )  # fmt: skip

    def total(self, share: Any) -> Any:
        """Return the sum of arrays of one shape over all ranks, on every rank; differentiable."""
        return self.library.linear(*self.library.agreed(self, share=share), self._sum, self._sum)

    def shared(self, array: Any) -> Any:
        """Return an array that all ranks have alike: derivatives by it are those of the sum of all shares."""
        # Slopes by it are on all ranks, too: derivatives of these are sums again.
        copy = functools.partial(self.library.xp.asarray, copy=True)
        return self.library.linear(*self.library.agreed(self, array=array), copy, self._sum, self._sum)

    def _sum(self, share: Any) -> Any:
        host = np.asarray(share.cpu() if hasattr(share, "cpu") else share)
        return self.library.like(self.world.allreduce(host.reshape(-1)), share).reshape(share.shape)

    def wavenumbers(self) -> tuple[np.ndarray, ...]:
        """Return the wave vectors of this rank's modes, as :meth:`particlemesh.distributed.FFT.wavenumbers` does."""
        return self._fft.wavenumbers()
