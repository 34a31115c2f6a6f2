# SPDX-License-Identifier: BSD-3-Clause
"""Between all modes of real fields and the half that a transform computes, in one pass on every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import COMPLEX
from particlemesh.backends.base import Backend, Record
from particlemesh.backends.cpu import plain, ranges, run, threads_for
from particlemesh.backends.jit import compiled

_FILE = "fourier/hermitian.c"


class Halves(checks.Fixed):
    """Whole bands of modes (b, *modes), and halves (b, *shape) of symmetric bands.

    The whole has the numbers ``-(m // 2)`` to ``(m - 1) // 2`` of each axis. The half has ``-(m // 2)`` to ``m // 2``,
    ascending, and 0 to ``m // 2`` of the last axis.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    modes : sequence of 1 to 3 ints
        Modes per axis of the whole.
    dtype : {"float32", "float64"}
        Real type.
    order : {"fft", "centred"}
        Order of the whole: 0, 1, ..., -1, or ascending.
    threads : int, optional
        CPU threads.

    Examples
    --------
    >>> from particlemesh.kernels import backend
    >>> halves = Halves(backend("cpu"), (3,), "float64", "centred")
    >>> halves.whole(np.array([[1.0, 2 + 1j]]))
    array([[2.-1.j, 1.+0.j, 2.+1.j]])
    >>> halves.half(np.array([[2 - 1j, 1 + 5j, 0]])).tolist()
    [[(1+0j), (1+0.5j)]]
    """

    def __init__(
        self, backend: Backend, modes: Sequence[int], dtype: Any, order: str, threads: int | None = None
    ) -> None:
        self.backend, self.modes, self.order = backend, tuple(modes), checks.one_of(order, "order", ("fft", "centred"))
        self.dtype = np.dtype(dtype)
        reach = [m // 2 for m in self.modes]
        self.shape = (*(2 * n + 1 for n in reach[:-1]), reach[-1] + 1)
        missing = (1,) * (3 - len(self.modes))
        self._sizes = (*missing, *self.modes), (*(0 for _ in missing), *reach)
        self._threads = threads

    def whole(self, half: Any, out: Any = None, *, conjugate: bool = False) -> Any:
        """Return all modes of real fields from their half.

        Parameters
        ----------
        half : native array (b, *shape)
            Dense and complex.
        out : native array (b, *modes), optional
            Dense and complex.
        conjugate : bool
            Return the conjugates.
        """
        return self._launch("unfold", half, self.shape, self.modes, out, conjugate)

    def half(self, whole: Any, out: Any = None, *, conjugate: bool = False) -> Any:
        """Return the half of the Hermitian part ``(f[k] + conj(f[-k])) / 2``; modes off the band are 0.

        Parameters
        ----------
        whole : native array (b, *modes)
            Dense and complex.
        out : native array (b, *shape), optional
            Dense and complex.
        conjugate : bool
            Return the conjugates.
        """
        return self._launch("fold", whole, self.modes, self.shape, out, conjugate)

    def _launch(
        self, name: str, source: Any, given: tuple[int, ...], shape: tuple[int, ...], out: Any, conjugate: bool
    ) -> Any:
        checks.flag(conjugate, "conjugate")
        if out is None:
            out = allocate(self.backend, (source.shape[0], *shape), COMPLEX[self.dtype], "modes")
        for array, core in ((source, given), (out, shape)):
            if tuple(array.shape) != (source.shape[0], *core):
                raise ValueError(f"modes have shape {tuple(array.shape)}; {(source.shape[0], *core)} is needed.")
        count, centred = math.prod(out.shape), self.order == "centred"
        if not count:
            return out
        if self.backend.name == "cpu":
            call, (modes, reach) = {"unfold": _unfold, "fold": _fold}[name], self._sizes
            rows = count // shape[-1]
            run(
                call, threads_for(self._threads, count // 8), plain(source), out.reshape(-1), modes, reach, centred,
                conjugate, rows, max(1, min(4096 // shape[-1], rows)),
            )  # fmt: skip
            return out
        half, whole = (source, out) if name == "unfold" else (out, source)
        # The offset of a PyOpenCL array is not part of its pointer.
        at = [int(getattr(a, "offset", 0)) // self.dtype.itemsize for a in (half, whole)]
        record = Record("=10q", *self._sizes[0], *self._sizes[1], *at, int(centred), int(conjugate))
        kernel = self.backend.kernel(_FILE, name, {"REAL_IS_DOUBLE": int(self.dtype == np.float64)})
        kernel(count, source, out, count, record)
        return out


@compiled
def _number(i, modes, centred):
    """Return the number of a mode at an index of the whole."""
    if centred:
        return i - modes // 2
    return i - modes if i > (modes - 1) // 2 else i


@compiled
def _place(k, modes, centred):
    """Return the whole's index of a number, or -1."""
    if k < -(modes // 2) or k > (modes - 1) // 2:
        return -1
    if centred:
        return k + modes // 2
    return k + modes if k < 0 else k


@compiled
def _unfold(half, whole, modes, reach, centred, conjugate, rows, share, counter):
    """Write all modes, row by row along the last axis; each thread claims shares of the rows."""
    nx, ny, nz = modes
    hy, hz = 2 * reach[1] + 1, reach[2] + 1
    zero = nz // 2 if centred else 0  # where number 0 is
    last = 0 if centred else (nz + 1) // 2  # where the most negative number is
    for begin, end in ranges(counter, rows, share):
        for row in range(begin, end):
            channel, line = row // (nx * ny), row % (nx * ny)
            x, y = _number(line // ny, nx, centred), _number(line % ny, ny, centred)
            first = channel * (2 * reach[0] + 1)
            source = half[((first + x + reach[0]) * hy + y + reach[1]) * hz :][:hz]
            opposite = half[((first - x + reach[0]) * hy - y + reach[1]) * hz :][:hz]
            to = whole[row * nz + zero :][: (nz + 1) // 2]
            for k in range(to.size):
                to[k] = source[k].conjugate() if conjugate else source[k]
            to = whole[row * nz + last :][: nz // 2]
            for k in range(to.size):
                mode = opposite[to.size - k]
                to[k] = mode if conjugate else mode.conjugate()


@compiled
def _fold(whole, half, modes, reach, centred, conjugate, rows, share, counter):
    """Write the half of the Hermitian part, row by row along the last axis."""
    nx, ny, nz = modes
    wide, long, hz = 2 * reach[0] + 1, 2 * reach[1] + 1, reach[2] + 1
    halved = whole.real.dtype.type(0.5)
    zero, behind = nz // 2 if centred else 0, nz // 2 if centred else nz  # where number 0 is, and k before it -k
    for begin, end in ranges(counter, rows, share):
        for row in range(begin, end):
            channel, line = row // (wide * long), row % (wide * long)
            x, y = line // long - reach[0], line % long - reach[1]
            i, j = _place(x, nx, centred), _place(y, ny, centred)
            to = half[row * hz :][:hz]
            to[:] = 0
            if i >= 0 and j >= 0:
                source = whole[((channel * nx + i) * ny + j) * nz + zero :]
                for k in range((nz + 1) // 2):
                    to[k] = source[k] * halved
            i, j = _place(-x, nx, centred), _place(-y, ny, centred)
            if i >= 0 and j >= 0:
                at = ((channel * nx + i) * ny + j) * nz
                to[0] += whole[at + zero].conjugate() * halved
                for k in range(1, nz // 2 + 1):
                    to[k] += whole[at + behind - k].conjugate() * halved
            if conjugate:
                for k in range(hz):
                    to[k] = to[k].conjugate()
