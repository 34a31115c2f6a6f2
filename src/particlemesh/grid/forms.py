# SPDX-License-Identifier: BSD-3-Clause
"""Forms of a list of pairs: sorted in other ways, with the nearest neighbours only, by rows, or as a matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import kind_of

SORTS = ("i", "j", "d")
COUNTS = "ns"  # letters of what is counted: neighbours of each particle, and where the pairs of each begin


def checked(quantities: Any, sort_by: Any, most: Any, *, half: bool) -> int | None:
    """Check what a list is asked for, and return ``most`` as an integer."""
    if not isinstance(quantities, str):
        raise _wrong_letters(quantities)
    checks.one_of(sort_by, "sort_by", SORTS)
    if most is not None and half:
        raise ValueError(
            "half=True lists a pair at one of its particles, and most counts neighbours of each: give one."
        )
    return None if most is None else checks.integer(most, "most", 0, 2**31 - 1)


@functools.cache
def needed(quantities: str, sort_by: str, most: int | None) -> str:
    """Return the letters of a list from which that of ``quantities`` is made."""
    if not quantities or set(quantities) - set("ijdDSns") or len(set(quantities)) < len(quantities):
        raise _wrong_letters(quantities)
    if "s" in quantities and sort_by == "j":
        raise ValueError("sort_by is 'j', and 's' is where the pairs of each i begin: sort by 'i' or 'd'.")
    listed = "".join(letter for letter in quantities if letter not in COUNTS)
    if sort_by != "i" or most is not None:  # of equal distances, the smaller index and image come first
        return listed + "".join(letter for letter in "ijSd" if letter not in listed)
    return listed + "i" * (listed != quantities and "i" not in listed)


def _wrong_letters(quantities: Any) -> ValueError:
    return ValueError(f"quantities is {quantities!r}; give letters of 'ijdDSns', each at most once.")


def arranged(arrays: dict[str, Any], quantities: str, count: int, sort_by: str, most: int | None) -> dict[str, Any]:
    """Return the arrays of ``quantities`` for ``count`` particles, from those of :func:`needed`, sorted by i."""

    def make(xp: Any, **by_letter: Any) -> dict[str, Any]:
        some = len(by_letter["i"]) > 0  # not every library sorts and counts nothing
        if some and (most is not None or sort_by == "d"):
            by_letter = _by(xp, by_letter, "jdi")
        if some and most is not None:
            begin = xp.searchsorted(by_letter["i"], by_letter["i"])
            keep = xp.arange(len(begin)) - begin < most
            by_letter = {letter: array[keep] for letter, array in by_letter.items()}
        if any(letter in quantities for letter in COUNTS):
            numbers = xp.bincount(by_letter["i"], minlength=count) if len(by_letter["i"]) else xp.zeros(count, np.int64)
            starts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(numbers, dtype=np.int64)])
            by_letter |= {"n": numbers.astype(np.int32), "s": starts}
        if some and sort_by == "j":
            by_letter = _by(
                xp, {letter: array for letter, array in by_letter.items() if letter not in COUNTS}, "ij"
            ) | {letter: array for letter, array in by_letter.items() if letter in COUNTS}
        return {letter: by_letter[letter] for letter in quantities}

    return _through(make, arrays)


def chosen(of: Any, count: int) -> np.ndarray:
    """Return the indices of some of ``count`` particles, ascending, from indices or a mask of any kind.

    Raises
    ------
    TypeError, ValueError
        If they are neither, or an index is that of no particle; the first such one is named.
    """
    kind, array = operands.adopt(of, "of")
    backend = kind.backend(array)
    with kind.scope(array), backend.scope(kind.native(array)):
        host = np.asarray(backend.download(kind.native(array)))
    if host.dtype == bool and host.shape == (count,):
        return np.flatnonzero(host)
    if host.ndim != 1 or (host.dtype.kind not in "iu" and host.size):
        raise TypeError(
            f"of has dtype {host.dtype} and shape {host.shape}; give indices of particles (M,), or a mask ({count},)."
        )
    wrong = np.flatnonzero((host < 0) | (host >= count))
    if wrong.size:
        raise ValueError(f"of[{wrong[0]}] is {host[wrong[0]]}; allowed are 0 to {count - 1}.")
    return np.unique(host.astype(np.int64))


def rows_of(arrays: dict[str, Any], of: np.ndarray, count: int) -> dict[str, Any]:
    """Return the pairs of some of ``count`` particles, from all of a list."""

    def make(xp: Any, **by_letter: Any) -> dict[str, Any]:
        mask = xp.zeros(count, bool)
        mask[xp.asarray(of)] = True
        keep = mask[by_letter["i"]]
        return {letter: array[keep] for letter, array in by_letter.items()}

    return _through(make, arrays)


def neighbour_matrix(i: Any, values: Any, count: int, columns: int | None = None, *, fill: Any = 0) -> Any:
    """Return what pairs have as a matrix with a row for each particle, from a list that is sorted by particle.

    Parameters
    ----------
    i : int array (P,)
        The particle of each pair, ascending: ``i`` of :func:`particlemesh.neighbour_list`.
    values : array (P, ...)
        Of the same kind: ``j``, ``S``, ``d``, ``D``, or anything else that pairs have.
    count : int
        Number of particles.
    columns : int, optional
        Columns of the matrix; by default as many as a particle has neighbours at most.
    fill : number
        Of the places that no neighbour takes.

    Returns
    -------
    array (N, K, ...)
        A row for each particle, a column for each neighbour. With the type of ``values``. Neighbours keep their order.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or a particle has more neighbours than there are columns.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> x = np.array([[0.1], [0.2], [0.35], [0.8]])
    >>> i, j = pm.neighbour_list("ij", x, (1.0,), 0.26)
    >>> pm.neighbour_matrix(i, j, count=4, fill=-1).tolist()
    [[1, 2], [0, 2], [0, 1], [-1, -1]]
    """
    count = checks.integer(count, "count", 0, 2**31 - 1)
    columns = None if columns is None else checks.integer(columns, "columns", 0, 2**31 - 1)
    kind, of_particles = operands.adopt(i, "i")
    other, of_pairs = operands.adopt(values, "values")
    if kind is not other or kind.dtype(of_particles).kind not in "iu":
        raise TypeError(f"i and values are arrays of {kind.name} and {other.name}: give one kind, and integers i.")
    with np.errstate(all="ignore"):
        held = np.asarray(fill).astype(other.dtype(of_pairs)) if np.ndim(fill) == 0 else None
    if held is None or not (held == fill or (held != held and fill != fill)):
        raise ValueError(f"fill is {fill!r}; give one number that {other.dtype(of_pairs)} holds.")
    if len(of_particles.shape) != 1 or tuple(of_pairs.shape[:1]) != tuple(of_particles.shape):
        raise ValueError(
            f"i has shape {tuple(of_particles.shape)} and values {tuple(of_pairs.shape)}: give one value a pair."
        )

    def make(xp: Any, i: Any, values: Any) -> dict[str, Any]:
        if len(i) and (i[0] < 0 or i[-1] >= count or bool((i[1:] < i[:-1]).any())):
            raise ValueError(f"i must ascend from 0 to {count - 1} at most: give a list that is sorted by i.")
        column = xp.arange(len(i)) - (xp.searchsorted(i, i) if len(i) else 0)
        longest = int(column.max()) + 1 if len(i) else 0
        wide = longest if columns is None else columns
        if longest > wide:
            raise ValueError(
                f"a particle has {longest} neighbours, more than columns = {wide}: give {longest} or more."
            )
        matrix = xp.full((count, wide, *values.shape[1:]), fill, values.dtype)
        matrix[i, column] = values
        return {"matrix": matrix}

    return _through(make, {"i": of_particles, "values": of_pairs})["matrix"]


def _through(make: Callable[..., dict[str, Any]], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return what ``make(xp, **arrays)`` returns, for arrays of any kind; it gets NumPy's or CuPy's."""
    first = next(iter(arrays.values()))
    kind = kind_of(first)
    assert kind is not None
    with kind.scope(first):
        backend, native = kind.backend(first), {name: kind.native(array) for name, array in arrays.items()}
        with backend.scope(*native.values()):
            if backend.name == "cuda":
                import cupy

                made = make(cupy, **native)
            else:  # OpenCL has no library of sorts: the host takes its arrays
                made = make(np, **{name: backend.download(array) for name, array in native.items()})
                made = {name: backend.upload(np.ascontiguousarray(array)) for name, array in made.items()}
            return {name: kind.wrap(array) for name, array in made.items()}


def _by(xp: Any, arrays: dict[str, Any], letters: str) -> dict[str, Any]:
    """Return arrays sorted by those of letters, the last one first; then by images."""
    images = [arrays["S"][:, axis] for axis in reversed(range(arrays["S"].shape[1]))]
    keys = images + [arrays[letter] for letter in letters]
    order = xp.lexsort(keys if xp is np else xp.stack([key.astype(np.float64) for key in keys]))
    return {letter: array[order] for letter, array in arrays.items()}
