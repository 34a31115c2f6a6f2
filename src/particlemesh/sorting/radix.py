# SPDX-License-Identifier: BSD-3-Clause
"""Stable sort of 32-bit keys with values on CUDA and OpenCL, in as few passes as the bits need.

Library sorts allocate and wait, so they cannot be captured in a graph, and each supports one backend only. This
one uses the tools of the other sorting kernels: counting and look-back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import As, Backend
from particlemesh.sorting.scan import Allocate

_MOST_BITS = 9  # of a digit: its counts per warp, and its tile's pairs, fit into local memory several times
_LEAST_BITS = 6  # narrower digits gain nothing and need more programs
KEYS = 20  # per work-item: tiles are long, so that they write runs of a digit
_RESIDENT = 5  # groups per multiprocessor: 96 registers, in which sm_90 holds 20 keys without spilling
_COUNTED = 16  # keys that a work-item of radix_count reads at once, QUADS * 4 in radix.c
_COUNTING_GROUPS = 512  # each adds its counts of digits to the total

_U32 = np.dtype(np.uint32)


class _SortPlan(NamedTuple):
    passes: int
    digit_bits: int
    tiles: int

    @property
    def words(self) -> int:
        """64-bit words of the control memory: tickets, counts of digits, words of tiles."""
        digits = 1 << self.digit_bits
        return self.passes + self.passes * digits * (1 + self.tiles) // 2

    @property
    def defines(self) -> dict[str, int]:
        return {
            "REAL_IS_DOUBLE": 0, "PASSES": self.passes, "DIGIT_BITS": self.digit_bits, "KEYS_AN_ITEM": KEYS,
            "RESIDENT_GROUPS": _RESIDENT,
        }  # fmt: skip


def _layout(backend: Backend, count: int, bits: int) -> _SortPlan:
    passes = max(1, -(-bits // _MOST_BITS))
    tile = backend.group_size * KEYS
    return _SortPlan(passes, max(_LEAST_BITS, -(-bits // passes)), -(-count // tile))


class _Memory(NamedTuple):
    control: Any
    pairs: tuple[tuple[Any, Any], ...]  # keys and values that passes write alternately


def reserve(backend: Backend, count: int, bits: int, allocate: Allocate, into: Any = None) -> _Memory:
    """Allocate all memory of :func:`sort` for ``count`` keys of ``bits`` bits."""
    layout = _layout(backend, count, bits)
    control = allocate("radix_control", (layout.words,), np.dtype(np.uint64))
    room = (max(count, 1),)
    pairs = []
    for n in range(min(layout.passes, 2)):
        # Only values can go to `into`, and only in the last pass.
        last = into is not None and layout.passes <= 2 and n == (layout.passes - 1) % 2
        keys = allocate(f"radix_keys{n}", room, _U32)
        pairs.append((keys, into if last else allocate(f"radix_values{n}", room, _U32)))
    return _Memory(control, tuple(pairs))


def sort(
    backend: Backend, keys: Any, count: int, bits: int, allocate: Allocate, values: Any = None, into: Any = None
) -> tuple[Any, Any]:
    """Sort keys and their values; equal keys keep their order.

    It submits kernels and a clear, so it never waits and can be captured. All memory comes from ``allocate``.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    keys : (count,) uint32
        Native array in C order that begins at a multiple of 16 bytes; not changed.
    count : int
        How many; fewer than 2**31.
    bits : int
        From 1 to 32; keys are less than ``2**bits``.
    allocate : callable (name, shape, dtype)
        Returns memory; names begin with ``radix_``.
    values : (count,) of 4 bytes each, optional
        The values of the keys; by default their indices.
    into : (count,) of 4 bytes each, optional
        The output of sorted values; by default from ``allocate``.

    Returns
    -------
    sorted_keys, sorted_values : (count,)
        Native arrays; elements after the first ``count`` are undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import backends
    >>> from particlemesh.sorting import radix
    >>> backend = backends.current("opencl")  # doctest: +SKIP
    >>> keys = backend.upload(np.array([5, 1, 5, 0], np.uint32))  # doctest: +SKIP
    >>> order = radix.sort(backend, keys, 4, 3, lambda _, *of: backend.empty(*of))[1]  # doctest: +SKIP
    >>> backend.download(order)  # doctest: +SKIP
    array([3, 1, 0, 2], dtype=uint32)
    """
    layout = _layout(backend, count, bits)
    control, pairs = reserve(backend, count, bits, allocate, into)
    output = pairs[(layout.passes - 1) % 2]
    if into is not None:
        output = output[0], into
    if count:
        backend.clear(control)
        groups = min(-(-count // (_COUNTED * backend.group_size)), _COUNTING_GROUPS)
        file, defines = "sorting/radix.c", layout.defines
        backend.kernel(file, "radix_count", defines)(groups * backend.group_size, keys, control, count)
        run = backend.kernel(file, "radix_pass", defines)
        for p in range(layout.passes):
            target = output if p == layout.passes - 1 else pairs[p % 2]
            operand = keys if values is None else values
            run(
                layout.tiles * backend.group_size, keys, As(operand, _U32), target[0], As(target[1], _U32), control,
                count, layout.tiles, p, int(values is not None),
            )  # fmt: skip
            keys, values = target
    return output
