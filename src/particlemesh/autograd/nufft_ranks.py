# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms over many ranks: what derivatives of torch and JAX share.

Slopes are those of one device: modes times ik, frequencies times ix, and the transform again. Each rank multiplies the
modes or frequencies that it has.
"""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import numpy as np

from particlemesh import distributed as pmd
from particlemesh.apps import nufft
from particlemesh.autograd.nufft_facts import both_sets, check_types, shape_with, with_axes
from particlemesh.autograd.ranks import Collective, named


def facts_of(text: str) -> tuple[Any, int]:
    """Return the object and the sign of the exponent of an operator's text."""
    name, sign = json.loads(text)
    return named(name), sign


def axes_of(text: str) -> tuple[Any, int]:
    """Return the numbers of this rank's modes along each axis, and the sign of the exponent."""
    ranks, sign = facts_of(text)
    return ranks.numbers, sign


def shape(spreads: bool, points: Any, array: Any, order: int, text: str) -> tuple[int, ...]:
    """Return the shape of the modes of strengths (..., N), if it spreads, or of the sums of modes."""
    return shape_with(facts_of(text)[0].shape, spreads, points, array)


def run(spreads: bool, points: Any, array: Any, order: int, text: str) -> Any:
    """Return the sums of types 1 or 2; operators call it."""
    ranks, sign = facts_of(text)
    return ranks.sums(1, sign, spreads, (points,), array, shape(spreads, points, array, order, text))


def run_3(spreads: bool, points: Any, frequencies: Any, array: Any, order: int, text: str) -> Any:
    """Return the sums of type 3; operators call it."""
    (ranks, sign), count = facts_of(text), len(frequencies if spreads else points)
    return ranks.sums(3, sign, spreads, (points, frequencies), array, (*array.shape[:-1], count))


class NUFFTOverRanks(Collective):
    """Differentiable non-uniform transforms of many ranks; those of torch and JAX have examples."""

    as_complex: ClassVar[Any]
    transfer: ClassVar[Any]  # of types 1 and 2
    transfer_3: ClassVar[Any]

    def __init__(self, world: pmd.World, n_modes: int | tuple[int, ...], *, eps: float = 1e-6, **options: Any) -> None:
        with world.agreement("NUFFTOverRanks"):
            for name in ("modeord", "spreadinterponly", "real"):
                if name in options:
                    raise TypeError(f"option {name!r} is not allowed here; modes ascend, and values are complex.")
        super().__init__(world)
        self._sizes = (n_modes,) if isinstance(n_modes, int) else tuple(n_modes)
        self._eps, self._options = eps, options
        self._plans: dict[Any, tuple[Any, Any]] = {}  # with their points
        plan = self._plan(1, 1, "complex128")
        plan.setpts(*np.zeros((len(self._sizes), 0)))
        self.part: tuple[tuple[int, int], ...] = plan.part
        self.shape = tuple(stop - start for start, stop in self.part)
        self.numbers = tuple(
            self.library.xp.arange(start, stop) - n // 2
            for n, (start, stop) in zip(self._sizes, self.part, strict=True)
        )

    def _plan(self, kind: int, number: int, dtype: str) -> nufft.DistributedPlan:
        sizes: Any = self._sizes if kind == 1 else len(self._sizes)
        return nufft.DistributedPlan(self.world, kind, sizes, number, self._eps, 1, dtype, **self._options)

    def _at(self, kind: int, number: int, dtype: str, points: tuple[Any, ...]) -> Any:
        """Return the plan of a type at points; they travel if those of any rank are others."""
        key, none = (kind, number, dtype), [None] * len(points)
        plan, known = self._plans.get(key, (None, none))
        if not self.alike(*zip(known, points, strict=True)):
            plan = plan or self._plan(*key)
            self._plans[key] = plan, none
            columns = [self.library.dense(side.T) for side in points]
            missing = [None] * (3 - len(self._sizes))
            plan.setpts(*columns[0], *(missing if kind == 3 else ()), *(columns[1] if kind == 3 else ()))
            if kind == 1 and plan.part != self.part:
                raise RuntimeError("so many points cut the modes anew: give upsampfac, which keeps the mesh.")
            self._plans[key] = plan, [self.library.xp.asarray(side, copy=True) for side in points]
        return plan

    def sums(
        self, kind: int, sign: int, spreads: bool, points: tuple[Any, ...], array: Any, shape: tuple[int, ...]
    ) -> Any:
        """Return the sums of a plan, of this shape; operators call it."""
        core = 1 if spreads or kind == 3 else len(self._sizes)
        inner, dense = array.shape[array.ndim - core :], self.library.dense
        number = math.prod(array.shape[: array.ndim - core])
        if not number:
            return self.library.like(np.zeros(shape), array)
        # The plan has exp(ikx) and its adjoint: transposes and the other sign are complex conjugates.
        turned = (sign < 0) != (self.library.transposes and not spreads)
        vectors = dense(array.conj() if turned else array).reshape(number, *inner)
        plan = self._at(kind, number, str(array.dtype).removeprefix("torch."), points)
        result = (plan.execute if spreads else plan.execute_adjoint)(vectors).reshape(shape)
        return dense(result.conj()) if turned else result

    def _text(self, sign: int) -> str:
        return json.dumps([self.name, -1 if sign < 0 else 1])

    def nufft1(self, points: Any, strengths: Any, *, isign: int = 1) -> Any:
        """Type 1: this rank's modes of the strengths of all ranks, ``f[k] = sum_j c[j] exp(i isign k . x_j)``.

        Parameters
        ----------
        points : array (N, d), or (N,) in 1-D
            Of this rank, in radians.
        strengths : array (..., N)
            Complex or real, with the same leading axes on all ranks.
        isign : int
            Sign of the exponent.

        Returns
        -------
        complex array (..., *shape)
        """
        points, strengths = self.library.agreed(self, points=points, strengths=strengths)
        check_types("strengths", strengths, points=points)
        points = with_axes(points, len(self._sizes))
        return self.transfer(True, points, self.as_complex(strengths), 0, self._text(isign))

    def nufft2(self, points: Any, modes: Any, *, isign: int = -1) -> Any:
        """Type 2: sums of the modes of all ranks at this rank's points, ``c[j] = sum_k f[k] exp(i isign k . x_j)``.

        Parameters
        ----------
        points : array (N, d), or (N,) in 1-D
        modes : array (..., *shape)
            Those of this rank, complex or real.
        isign : int

        Returns
        -------
        complex array (..., N)
        """
        points, modes = self.library.agreed(self, points=points, modes=modes)
        check_types("modes", modes, points=points)
        points = with_axes(points, len(self._sizes))
        # Sums at points are the transpose, or the adjoint of the transform with the other sign.
        text = self._text(isign if self.library.transposes else 1 if isign < 0 else -1)
        return self.transfer(False, points, self.as_complex(modes), 0, text)

    def nufft3(self, points: Any, strengths: Any, frequencies: Any, *, isign: int = 1) -> Any:
        """Type 3: sums at this rank's frequencies, ``f[k] = sum_j c[j] exp(i isign s_k . x_j)``, of all strengths.

        Parameters
        ----------
        points : array (N, d), or (N,) in 1-D
        strengths : array (..., N)
        frequencies : array (M, d), or (M,) in 1-D
            Of this rank, in radians per length of the points. The modes of the object do not matter.
        isign : int

        Returns
        -------
        complex array (..., M)
        """
        given = self.library.agreed(self, points=points, strengths=strengths, frequencies=frequencies)
        points, frequencies = both_sets(*given)
        return self.transfer_3(True, points, frequencies, self.as_complex(given[1]), 0, self._text(isign))
