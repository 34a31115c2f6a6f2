# SPDX-License-Identifier: BSD-3-Clause
"""What queries of a grid return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import kind_of


@dataclass(frozen=True, slots=True, repr=False)
class Pairs:
    """Pairs of particles within a distance; quantities that were not requested are None.

    P is the number of pairs, d the number of axes. In the format ``"dense"`` (rows, width) stands for P, and where
    ``j`` is -1 there is no pair.

    ``len(pairs)`` is P, and ``i, j = pairs`` unpacks both particles of each pair. Rows of the format ``"csr"`` give
    ``i`` also where only ``j`` was requested.

    Parameters
    ----------
    start : (rows + 1,) int64
        With ``"csr"``: row k holds the pairs ``start[k]`` to ``start[k + 1]`` (excluded).
    i, j : (P,) int32
        The two particles of each pair, or the query point and the particle.
    shift : (P, d) int32
        S: how many times each lattice vector is added to j's position to get the image of j that i sees.
    distance : (P,)
        Length of ``vector``, in the unit of the positions.
    vector : (P, d)
        ``x[j] - x[i] + S @ box.matrix``, in the unit of the positions.
    count : (rows,) int32
        With ``"dense"``: how many pairs each row has.

    Examples
    --------
    >>> from particlemesh.grid.results import Pairs
    >>> pairs = Pairs(start=[0, 1, 1], j=[1])
    >>> pairs.distance is None
    True

    >>> import numpy as np, particlemesh as pm
    >>> grid = pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))
    >>> pairs = grid.pairs(0.2)
    >>> i, j = pairs
    >>> len(pairs), i, j
    (2, array([0, 2], dtype=int32), array([2, 0], dtype=int32))
    """

    start: Any = None
    i: Any = None
    j: Any = None
    shift: Any = None
    distance: Any = None
    vector: Any = None
    count: Any = None

    def __repr__(self) -> str:
        held = ((name, getattr(self, name)) for name in self.__slots__)
        shapes = [f"{name} {getattr(array, 'shape', (len(array),))}" for name, array in held if array is not None]
        return f"<Pairs: {', '.join(shapes)}>"

    def __len__(self) -> int:
        if self.count is not None:
            return int(on_host(self.count).sum())
        for array in (self.j, self.i, self.distance, self.vector, self.shift):
            if array is not None:
                return int(array.shape[0]) if hasattr(array, "shape") else len(array)
        return 0 if self.start is None else int(on_host(self.start)[-1])

    def __iter__(self) -> Iterator[Any]:
        i = self._rows() if self.i is None and self.start is not None else self.i
        if i is None or self.j is None:
            raise ValueError("these pairs do not have both i and j: ask for quantities='ij'.")
        return iter((i, self.j))

    def _rows(self) -> Any:
        """Return the row of each pair of a ``"csr"`` list, as an array of the kind of ``start``."""
        lengths = np.diff(on_host(self.start))
        i = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        kind = kind_of(self.start)
        if kind is None or kind.home == "cpu":
            return i if kind is None else kind.wrap(i)
        backend = kind.backend(self.start)
        with kind.scope(self.start), backend.scope(kind.native(self.start)):
            return kind.wrap(backend.upload(i))


def on_host(array: Any) -> np.ndarray:
    """Return an array of any kind as NumPy's; waits for a device."""
    kind = kind_of(array)
    if kind is None:
        return np.asarray(array)
    native, backend = kind.native(array), kind.backend(array)
    with kind.scope(array), backend.scope(native):
        return backend.download(native)
