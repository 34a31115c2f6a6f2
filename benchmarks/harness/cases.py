# SPDX-License-Identifier: BSD-3-Clause
"""One call of one method on one problem.

Problems are clouds in a periodic cube of K^3 nodes; windows are cardinal B-splines of p nodes. Arrays are in the
caller's order unless a case says ``sorted``: values then come and go in the plan's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.clouds import REALS

DIRECTIONS = ("spread", "interpolate")


@dataclass(frozen=True)
class Case:
    """One problem: ``count`` particles in a cube of ``nodes``^3 nodes."""

    direction: str
    count: int
    nodes: int
    support: int = 6
    dtype: str = "float32"
    values: str = "complex"  # or "real", or a number of real components
    layout: str = "planar"  # of components: the first axis in memory, or (``interleaved``) the last
    cloud: str = "uniform"
    order: str = "caller"  # or "sorted"

    @property
    def reals(self) -> int:
        """Return the reals per particle."""
        return REALS[self.values]

    @property
    def size(self) -> int:
        """Return the bytes of a real."""
        return np.dtype(self.dtype).itemsize

    @property
    def density(self) -> float:
        """Return the particles per cell."""
        return self.count / self.nodes**3

    @property
    def kind(self) -> np.dtype[Any]:
        """Return the type of the values."""
        real = np.dtype(self.dtype)
        return np.result_type(real, np.complex64) if self.values == "complex" else real

    @property
    def batch(self) -> tuple[int, ...]:
        """Return the axes of values before that of the particles."""
        return () if self.values in ("real", "complex") else (int(self.values),)

    def columns(self) -> dict[str, Any]:
        """Return the case as columns of a CSV file."""
        return dict(
            direction=self.direction, N=self.count, K=self.nodes, p=self.support, dtype=self.dtype, values=self.values,
            layout=self.layout, cloud=self.cloud, order=self.order,
        )  # fmt: skip

    def smaller(self, times: int) -> Case:
        """Return a case with fewer nodes along each axis and as many particles per cell."""
        return replace(self, nodes=max(self.nodes // times, 8), count=max(self.count // times**3, 50))

    def __str__(self) -> str:
        more = [self.cloud] * (self.cloud != "uniform") + ["sorted"] * (self.order == "sorted")
        more += [self.layout] * bool(self.batch)
        what = f"{self.direction} {self.dtype} {self.values} p = {self.support} N = {self.count:,} K = {self.nodes}"
        return " ".join([what, *more])


@dataclass(frozen=True)
class Job:
    """A method with options, on a problem."""

    case: Case
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: Any = None  # a class of method that the library does not have, in place of ``method``

    @property
    def name(self) -> str:
        """Return the method's name."""
        return str(self.variant.name) if self.variant else self.method

    @property
    def chosen(self) -> str:
        """Return the options as a CSV file has them."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.options.items()))

    def __str__(self) -> str:
        return f"{' '.join(filter(None, (self.name, self.chosen)))}: {self.case}"
