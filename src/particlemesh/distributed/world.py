# SPDX-License-Identifier: BSD-3-Clause
"""All processes of a run: their ranks, how they exchange arrays, and how they agree on errors."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from particlemesh import checks
from particlemesh.distributed.transports import (
    Alone,
    Aware,
    Host,
    Nccl,
    Op,
    Transport,
    cuda_aware,
    missing,
    module_of,
    share_devices,
)

_NO_KIND = 2**31
T = TypeVar("T")
TRANSPORTS = "auto", "host", "mpi", "nccl"


class RankError(RuntimeError):
    """Another rank raised an error, so that this rank stopped before it would have waited for ever.

    Attributes
    ----------
    rank : int
        The first rank that raised.

    Examples
    --------
    >>> error = RankError(2, "ValueError: no particles")
    >>> print(error)
    rank 2 raised ValueError: no particles
    """

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} raised {message}")
        self.rank = rank
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rank, self.message)


class World(checks.Fixed):
    """A communicator and the way in which arrays travel.

    All methods are collective: every rank calls them in the same order.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        Its ranks. It is duplicated, so that our messages and the program's never meet. Without one the world is a
        single rank, which needs no MPI. Each rank takes the GPU with its number on the host, if all ranks there have
        the same current device of CuPy and see several. So make a World before arrays, or choose devices before it.
    transport : {"auto", "host", "mpi", "nccl"}
        How arrays in device memory travel; arrays of NumPy always go through MPI. ``"host"`` copies them to the host
        and back. ``"mpi"`` gives them to a CUDA-aware MPI. ``"nccl"`` needs one GPU for each process. ``"auto"`` takes
        NCCL where every rank has a GPU of its own and CuPy has NCCL, else a CUDA-aware MPI, else the host.

    Attributes
    ----------
    rank : int
        This process, from 0.
    size : int
        Number of processes.
    transport : str
        The transport in use, ``"alone"`` for a single rank without a communicator.

    Raises
    ------
    ImportError
        If mpi4py, or CuPy for NCCL, is not installed.
    ValueError
        If the transport is not one of these, or does not work on some rank.

    Examples
    --------
    >>> import numpy as np
    >>> world = World()
    >>> world.rank, world.size, world.allreduce(3.0)
    (0, 1, 3.0)
    >>> rows, counts = world.alltoallv(np.arange(4.0), [4])
    >>> rows, counts
    (array([0., 1., 2., 3.]), array([4]))
    """

    def __init__(self, communicator: Any = None, transport: str = "auto") -> None:
        checks.one_of(transport, "transport", TRANSPORTS)
        self._transport = Alone() if communicator is None else _transport(communicator.Dup(), transport)

    @classmethod
    def over(cls, transport: Transport) -> World:
        """Return a world over a transport of one's own.

        Examples
        --------
        >>> World.over(Alone()).size
        1
        """
        world = cls()
        world._transport = transport
        return world

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a World cannot be copied or pickled, since it talks to other ranks: make another World.")

    @property
    def rank(self) -> int:
        """Number of the process, from 0."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self._transport.size

    @property
    def transport(self) -> str:
        """Name of the transport."""
        return self._transport.name

    def __repr__(self) -> str:
        return f"<World: rank {self.rank} of {self.size}, transport {self.transport!r}>"

    def exchange(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], meanwhile: Callable[[], None] | None = None,
        since: Any = None,
    ) -> None:  # fmt: skip
        """Exchange arrays in C order with some ranks, in one round.

        Parameters
        ----------
        sends, receives : dict of arrays by rank
            What goes to each rank, and memory for what each rank sends: of the same number of bytes as there. Empty
            arrays are not sent. A message of a rank to itself is copied.
        meanwhile : function, optional
            Work of this rank that needs neither; with NCCL, what it launches runs while messages travel.
        since : mark, optional
            From :meth:`mark`: messages do not wait for what was launched on a device after it.

        Examples
        --------
        >>> import numpy as np
        >>> got = np.empty(2)
        >>> World().exchange({0: np.ones(2)}, {0: got})
        >>> got
        array([1., 1.])
        """
        if not all(array.flags.c_contiguous for array in (*sends.values(), *receives.values())):
            raise ValueError("an array of a message is not in C order; give one that is, of dense memory.")
        out = {rank: array for rank, array in sends.items() if array.size}
        into = {rank: array for rank, array in receives.items() if array.size}
        if (target := into.pop(self.rank, None)) is not None:
            target[...] = out.pop(self.rank).reshape(target.shape)
        if out or into:
            self._transport.exchange_while(out, into, meanwhile, since)
        elif meanwhile is not None:
            meanwhile()

    def mark(self, array: Any) -> Any:
        """Return a mark for :meth:`exchange`, behind all work on an array's device that was launched up to now."""
        return self._transport.mark(array)

    def alltoallv(self, rows: Any, counts: Any) -> tuple[Any, np.ndarray]:
        """Send consecutive rows of an array to each rank, and return the rows for this rank, in the order of ranks.

        Parameters
        ----------
        rows : (n, ...) array
            First those for rank 0, then those for rank 1, and so on; of one dtype on all ranks.
        counts : (size,) ints
            Rows for each rank; their sum is n.

        Returns
        -------
        rows : (m, ...) array
        counts : (size,) int64 array
            Rows from each rank.
        """
        counts = np.ascontiguousarray(counts, np.int64)
        if counts.shape == (self.size,) and int(counts.sum()) != rows.shape[0]:
            raise ValueError(f"counts add up to {int(counts.sum())}; there are {rows.shape[0]} rows.")
        return self.move(rows, counts, self.counts(counts))

    def counts(self, counts: Any) -> np.ndarray:
        """Tell every rank how much this one has for it, and return what every rank has for this one.

        Parameters
        ----------
        counts : (size,) or (size, k) ints

        Returns
        -------
        int64 array (size, ...)
        """
        counts = np.ascontiguousarray(counts, np.int64)
        if counts.shape[:1] != (self.size,):
            raise ValueError(f"counts has shape {counts.shape}; one row for each of {self.size} ranks is needed.")
        return self._transport.alltoall(counts)

    def move(self, rows: Any, leaving: np.ndarray, coming: np.ndarray) -> tuple[Any, np.ndarray]:
        """Do the work of :meth:`alltoallv` for numbers of rows that both sides know."""
        xp = module_of(rows)
        rows = xp.ascontiguousarray(rows, rows.dtype.newbyteorder("="))
        result = xp.empty((int(coming.sum()), *rows.shape[1:]), rows.dtype)
        ends, starts = np.cumsum(leaving), np.cumsum(coming)
        sends = {r: rows[ends[r] - n : ends[r]] for r, n in enumerate(leaving) if n}
        receives = {r: result[starts[r] - n : starts[r]] for r, n in enumerate(coming) if n}
        self.exchange(sends, receives)
        return result, coming

    def allreduce(self, value: Any, op: Op = "sum") -> Any:
        """Return the sum, maximum or minimum over all ranks, element by element; the same on every rank.

        Parameters
        ----------
        value : number or array
            Of the same shape and dtype on every rank. Complex numbers can be summed only.
        op : {"sum", "max", "min"}
        """
        checks.one_of(op, "op", ("sum", "max", "min"))
        array = value if getattr(value, "ndim", 0) else np.asarray(value.get() if hasattr(value, "get") else value)
        result = self._transport.allreduce(array, op)
        return result if result.ndim else result[()].item()

    def exact_sum(self, numbers: Any) -> Any:
        """Return sums over the last axis and over all ranks, with the same bits in whatever order numbers are.

        Numbers are rounded to whole units, so small that sums lose nothing of the largest number. Sums of whole units
        are exact in float64.

        Parameters
        ----------
        numbers : array (..., n)
            Real, of NumPy or CuPy; n may differ between ranks.

        Returns
        -------
        float64 array (...) of NumPy, or number
            NaN where a number is not finite.

        Raises
        ------
        TypeError
            If numbers are not such an array.
        RankError
            If another rank raised, or has other leading axes.

        Examples
        --------
        >>> import numpy as np
        >>> numbers = np.random.default_rng(1).standard_normal(1000)
        >>> bool(World().exact_sum(numbers) == World().exact_sum(numbers[::-1]))
        True
        """

        def checked() -> tuple[str, Any]:
            known = isinstance(numbers, np.ndarray) or hasattr(numbers, "__cuda_array_interface__")
            if not (known and numbers.ndim and getattr(numbers.dtype, "kind", "?") in "biuf"):
                raise TypeError(f"numbers is {type(numbers)}; give an array (..., n) of NumPy or CuPy, real.")
            return f"exact_sum of {numbers.shape[:-1]}", module_of(numbers).asarray(numbers, np.float64)

        wide, xp = self.alike(checked), module_of(numbers)
        largest = xp.abs(wide).max(-1) if wide.shape[-1] else xp.zeros(wide.shape[:-1])
        known = self.allgather((largest if xp is np else largest.get(), wide.shape[-1]))
        largest, count = np.max([most for most, _ in known], 0), sum(n for _, n in known)
        finite = np.isfinite(largest)
        exponent, bits = np.frexp(np.where(finite, largest, 0.0))[1], max(count.bit_length(), 1)
        exponent = np.maximum(exponent, -1000)
        left = wide * xp.asarray(np.ldexp(1.0, -exponent))[..., None]
        rounding, units, words = 1.5 * 2.0**bits, 2.0 ** (52 - bits), []
        with np.errstate(invalid="ignore", over="ignore"):  # of numbers that are not finite, and of sums that are not
            for _ in range(2):
                whole = (left + rounding) - rounding
                words.append(whole.sum(-1))
                left = (left - whole) * units
            host = xp.stack(words)
            upper, lower = self.allreduce(host if xp is np else host.get())
            return np.where(finite, np.ldexp(upper + lower / units, exponent), np.nan)[()]

    def allgather(self, thing: Any) -> list[Any]:
        """Return a small Python object of every rank, in the order of ranks."""
        return self._transport.allgather(thing)

    def alike(self, work: Callable[[], tuple[str, T]], check: bool = True) -> T:
        """Return the result of local work, once no rank has failed in it and all say that they make the same call.

        Parameters
        ----------
        work : function
            Returns a text that is the same on every rank, and its result.
        check : bool
            If False, ranks do not wait for each other, and one that raises raises alone.

        Raises
        ------
        RankError
            If another rank raised, or makes another call.

        Examples
        --------
        >>> from particlemesh import distributed as pmd
        >>> pmd.World().alike(lambda: ("a sum of two", 1 + 1))
        2
        """

        def numbered() -> tuple[str, None, T]:
            call, result = work()
            return call, None, result

        return agreed(self, checks.flag(check, "check"), numbered)[0]

    def agree(self, error: BaseException | None = None, call: str = "", kind: int | None = None) -> int | None:
        """Raise on every rank if one rank has an error, or if the ranks do not make the same call.

        One small reduction, so that no rank communicates with one that has failed.

        Parameters
        ----------
        error : exception, optional
            What went wrong on this rank. It is raised here.
        call : str
            What this rank is about to do: the same text is expected of every rank.
        kind : int, optional
            A number of at least 0 that must be the same on all ranks that give one.

        Returns
        -------
        int or None
            The number that ranks gave.

        Raises
        ------
        RankError
            On ranks without an error: it names the first rank with one, and its message. Also where calls differ.
        """
        mark = zlib.crc32(call.encode())
        failed = self.size if error is None else self.rank
        kinds = (_NO_KIND, 0) if kind is None else (kind, -kind)
        mine = np.array([failed, mark, -mark, *kinds], np.int64)
        first, low, high, least, most = self._transport.allreduce(mine, "min").tolist()
        if first == self.size and low == -high and (least == -most or least == _NO_KIND):
            return None if least == _NO_KIND else least
        reports = self.allgather((None if error is None else f"{type(error).__name__}: {error}", call, kind))
        if error is not None:
            raise error
        if first < self.size:
            raise RankError(first, reports[first][0])
        if low != -high:
            other = next(rank for rank, (_, its, _) in enumerate(reports) if its != reports[0][1])
            raise RankError(other, f"no error, but it calls {reports[other][1]}, and rank 0 calls {reports[0][1]}.")
        one = next(rank for rank, (_, _, its) in enumerate(reports) if its == least)
        other = next(rank for rank, (_, _, its) in enumerate(reports) if its not in (None, least))
        raise RankError(
            other, f"no error, but its arrays differ in dtype from those of rank {one}: give all ranks one."
        )

    def announce(self, columns: int, call: str, work: Callable[[], tuple[T, Any]]) -> tuple[T, np.ndarray]:
        """Do work of this rank, and tell every rank the numbers for it that follow; raise where any rank has raised.

        It is :meth:`counts` and :meth:`agree` in one exchange, for ranks that have agreed on the call.

        Parameters
        ----------
        columns : int
            How many numbers there are for each rank.
        call : str
            What the rank is about to do.
        work : function
            Returns a result, and int64 (size, columns).

        Returns
        -------
        result
        numbers : int64 array (size, columns)
            What every rank has for this one.

        Raises
        ------
        RankError
            On ranks whose work has not failed, if another rank's has.

        Examples
        --------
        >>> World().announce(1, "a step", lambda: ("done", [[3]]))
        ('done', array([[3]]))
        """
        error: BaseException | None = None
        result: Any = None
        table = np.zeros((self.size, columns + 1), np.int64)
        try:
            result, table[:, :columns] = work()
        except BaseException as caught:  # noqa: BLE001 - agree raises it, an interrupt too
            error = caught
            table[:, columns] = 1
        coming = self._transport.alltoall(table)
        if coming[:, columns].any():
            self.agree(error, call)
        return result, np.ascontiguousarray(coming[:, :columns])

    @contextlib.contextmanager
    def agreement(self, call: str = "") -> Iterator[None]:
        """Return a context for local work, whose end is :meth:`agree`.

        Examples
        --------
        >>> with World().agreement("a step"):
        ...     local = 1 + 1
        """
        error = None
        try:
            yield
        except BaseException as caught:  # noqa: BLE001 - agree raises it, an interrupt too
            error = caught
        self.agree(error, call)


def agreed(world: World, check: bool, work: Callable[[], tuple[str, int | None, T]]) -> tuple[T, int | None]:
    """Work on this rank, then agree on errors, on the call and on a number: see :meth:`World.agree`.

    ``work`` returns the call, the number and its result; what is returned is the result, and the number that ranks
    gave. With ``check=False`` a rank that raises raises alone, and the number is its own.
    """
    error: BaseException | None = None
    call, number, result = "", None, None
    try:
        call, number, result = work()
    except BaseException as caught:  # noqa: BLE001 - agree raises it, an interrupt too
        error = caught
    if check:
        number = world.agree(error, call, number)
    elif error is not None:
        raise error
    return result, number  # type: ignore[return-value]  # agree has raised where there is none


def together(world: World, check: bool, call: str, work: Callable[[], T]) -> T:
    """Return the result of local work, once no rank has failed in it; with ``check=False`` at once.

    Examples
    --------
    >>> together(World(), True, "a sum", lambda: 1 + 1)
    2
    """
    return agreed(world, check, lambda: (call, None, work()))[0]


def _transport(communicator: Any, name: str) -> Transport:
    """Return the transport of a name, which every rank agrees on."""
    try:
        host = Host(communicator)
    except ImportError as error:
        raise ImportError("a communicator needs mpi4py: pip install mpi4py, with an MPI library.") from error
    share_devices(host)
    if name == "host":
        return host
    why = missing(host) if name in ("auto", "nccl") else "not asked for"
    if why is None:
        return Nccl(host)
    if name == "nccl":
        raise ValueError(f"transport 'nccl' does not work: {why}. Use 'host', which copies through host memory.")
    aware = all(host.allgather(cuda_aware()))
    if name == "mpi" and not aware:
        raise ValueError("this MPI library does not say that it takes device memory: use transport 'host' or 'nccl'.")
    return Aware(communicator) if aware else host
