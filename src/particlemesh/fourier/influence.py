# SPDX-License-Identifier: BSD-3-Clause
"""What solvers multiply modes with: a Green function, the compensation of a window, and their derivatives."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.lattices import DeviceBoxes
from particlemesh.backends.base import Backend, Record
from particlemesh.fourier.compensation import CHOICES, chosen, divisor
from particlemesh.fourier.green import Green, known, table
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import Factors, Strain, strain_tables
from particlemesh.fourier.prolate import ProlateGreen
from particlemesh.window import Window

GRADIENTS = ("window", "ik")


class Influence:
    """Tables of factors for any modes of a mesh: all of them, or those of one rank.

    Parameters are those of :class:`particlemesh.fourier.Solver`.

    Attributes
    ----------
    gradient : {"window", "ik"}
        How solvers take the gradient.
    """

    def __init__(
        self, window: Window, green: Any, *, kappa: float | None, alpha: float | None, of: str, zero: float | None,
        slope: Any, compensation: str | None, gradient: str | None,
    ) -> None:  # fmt: skip
        checks.one_of(compensation, "compensation", CHOICES)
        checks.one_of(gradient, "gradient", (None, *GRADIENTS))
        parameters = {"kappa": kappa, "alpha": alpha}
        function = known(green, parameters)
        if slope is not None and not (callable(slope) and function is None and of == "k2"):
            raise ValueError("slope is for a function green of k2: give a function for both, or leave it out.")
        self.gradient = gradient or ("window" if green == "ewald" or isinstance(green, ProlateGreen) else "ik")
        kind = chosen(compensation, green)
        self._divisor = None if kind is None else divisor(window, kind, 2)
        self._table = functools.partial(table, green, of=of, zero=zero, parameters=parameters, divisor=self._divisor)
        self._slope = slope if function is None else function.slope
        self._function, self._zero = function, zero
        self._guessed = function is None and compensation == "auto"
        self._green, self._kind = green if isinstance(green, (str, Green)) else "a function", kind

    def described(self, at_zero: float) -> str:
        """Return a line about the Green function, which has a value at k = 0, and the compensation."""
        return f"{self._green} (at k = 0: {at_zero:g}), compensation {self._kind}"

    def factors(self, modes: Modes, slope: int | None = None) -> NDArray[Any]:
        """Return the factors of modes, of the potential or of its slope along an axis, without the i."""
        return self._table(modes, slope=slope) / (np.prod(modes.shape) * modes.mesh.node_volume)

    def strain(self, modes: Modes, factors: NDArray[Any], dtype: Any = np.float64) -> NDArray[Any]:
        """Return the tables of the virial for the factors of the potential."""
        self.check_virial(modes)
        return strain_tables(modes, factors, self._function, self._slope, self._divisor, dtype)

    def check_virial(self, modes: Modes) -> None:
        """Raise a ValueError if there is no virial for these modes."""
        if self._slope is None:
            raise ValueError("green is a function; for the virial also give Solver its derivative by k2: slope=.")

    def derived(self, boxes: DeviceBoxes, modes: Modes, dtype: Any) -> Derived:
        """Return tables for boxes on a GPU.

        Raises
        ------
        ValueError
            If the kernel does not know the Green function, or the gradient needs more tables.
        """
        numbers = None if self._function is None else self._function.numbers()
        if numbers is None or isinstance(self._zero, complex) or self.gradient != "window":
            raise ValueError(
                "boxes on a GPU need a real Green function of ours, and gradient='window': give boxes on the host."
            )
        divisors = [np.ones(n) for n in modes.spectrum_shape]
        if self._divisor is not None:
            divisors = [self._divisor(modes.numbers(a), n, a) for a, n in enumerate(modes.shape)]
        first = self.factors(modes).flat[0] * np.prod(modes.shape) * modes.mesh.node_volume
        zero = float(first * math.prod(d[0] for d in divisors))
        return Derived(boxes, modes, dtype, self._function, (*numbers[0], zero), numbers[1], divisors)

    def peaks(self, modes: Modes, factors: NDArray[Any]) -> tuple[float, float]:
        """Return the largest ``k**2`` times the Green function at the highest modes, and at all."""
        values = abs(factors) * modes.k2
        highest = np.zeros(values.shape, bool)
        for axis, nodes in enumerate(modes.shape):
            if self._divisor is not None:
                values = values * modes.along(axis, self._divisor(modes.numbers(axis), nodes, axis))
            highest |= modes.along(axis, (2 * abs(modes.numbers(axis)) >= nodes - 1) & (nodes > 1))
        return float(values[highest].max(initial=0)), float(values.max(initial=0))

    def cautions(self, highest: float, largest: float) -> list[str]:
        """Return warnings for peaks: where the highest have more than a tenth of the largest, a mesh is too coarse."""
        warnings = []
        if highest > 0.1 * largest and self._guessed:
            warnings.append(
                "the Green function is not smooth on this mesh: give compensation=None for point charges, or "
                "'continuous' for a smooth density of many particles per node. The default is 'continuous'."
            )
        if highest > 0.1 * largest and self.gradient == "window":
            warnings.append(
                "gradient='window' conserves energy, but the Green function is not smooth on this mesh. So each "
                "particle pulls itself, and more on a finer mesh. gradient='ik' conserves momentum instead."
            )
        return warnings


class Derived:
    """Tables for boxes on a GPU, written there whenever the boxes change.

    Attributes
    ----------
    rows : native array (S, 3, d)
        Reciprocal vectors times ``2 pi``.
    """

    def __init__(
        self, boxes: DeviceBoxes, modes: Modes, dtype: Any, green: Any, numbers: tuple[float, ...],
        pairs: NDArray[Any], divisors: list[NDArray[Any]],
    ) -> None:  # fmt: skip
        self._boxes, self._modes, self.dtype, self._green = boxes, modes, np.dtype(dtype), green
        self._backend: Backend = boxes.backend
        self._missing = missing = 3 - len(modes.shape)
        self._divisors = self._backend.upload(np.concatenate([np.ones(missing), *divisors]))
        self._pairs = self._backend.upload(np.ascontiguousarray(pairs))
        self._band = Record(
            "=8q", *[1] * missing, *modes.spectrum_shape, *[1] * missing, *modes.shape, self._size, boxes.count
        )
        self._numbers = Record("=4dq", *numbers, len(pairs))
        self._table = self._room(*modes.spectrum_shape)
        self._of_strain: Any = None
        self.rows = self._room(3, len(modes.shape))

    @property
    def _size(self) -> int:
        return math.prod(self._modes.spectrum_shape)

    def _room(self, *shape: int) -> Any:
        return allocate(self._backend, (self._boxes.count, *shape), self.dtype, "tables of boxes")

    def factors(self) -> Factors:
        """Return the factors of the potential."""
        # The lowest mode has about the largest one: only its order of magnitude counts.
        longest = self._boxes.bounds.longest
        largest = abs(self._green((2 * math.pi / max(longest)) ** 2)) / math.prod(longest)
        return Factors(self._backend, self._table, self.dtype, largest=largest)

    def strain(self, threads: int | None) -> Strain:
        """Return the sums of the virial."""
        ndim = len(self._modes.shape)
        self._of_strain = self._room(ndim * (ndim + 1) // 2, self._size)
        self._write(self._of_strain)
        return Strain(self._backend, self._of_strain, ndim, threads)

    def write(self) -> None:
        """Write the tables that there are."""
        for out in (self._table, self._of_strain):
            if out is not None:
                self._write(out)
        count, facts = self._boxes.count, self._facts()
        self._backend.kernel("fourier/influence.c", "reciprocals", facts)(
            self.rows.size, self._boxes.numbers, self.rows, count, self._missing
        )

    def _facts(self, terms: int = 0) -> dict[str, int]:
        return {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(self.dtype.itemsize == 8), "TERMS": terms}

    def _write(self, out: Any) -> None:
        facts = self._facts(0 if out is self._table else out.shape[1])
        self._backend.kernel("fourier/influence.c", "influence", facts)(
            self._size * self._boxes.count, self._boxes.numbers, self._divisors, self._pairs, out, self._missing,
            self._band, self._numbers,
        )  # fmt: skip
