# SPDX-License-Identifier: BSD-3-Clause
"""How arrays and small objects get from rank to rank: what a transport is; alone, through MPI, and by NCCL."""

from __future__ import annotations

import abc
import contextlib
import importlib
import importlib.util
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

Op: TypeAlias = Literal["sum", "max", "min"]
CHUNK = 2**30  # bytes of one MPI message: counts of MPI 3 have 31 bits
_FIRST = -5  # the most urgent stream of CUDA: messages need few processors, and others wait for them


def is_host(array: Any) -> bool:
    """Return whether an array is in host memory."""
    return isinstance(array, np.ndarray)


def module_of(array: Any) -> Any:
    """Return the module of a native array: NumPy or CuPy."""
    return np if is_host(array) else importlib.import_module("cupy")


class Transport(abc.ABC):
    """What moves data between ranks.

    All members are collective, `exchange` among the ranks that it names. Arrays are contiguous, of NumPy or CuPy.
    """

    name: ClassVar[str]
    rank: int
    size: int

    @abc.abstractmethod
    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        """Send an array to each rank of ``sends`` and fill that of each rank in ``receives``; never to itself."""

    def mark(self, array: Any) -> Any:
        """Return a mark behind what has been launched up to now where an array is, or None."""
        return None

    def exchange_while(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], meanwhile: Callable[[], None] | None = None,
        since: Any = None,
    ) -> None:  # fmt: skip
        """Do the work of `exchange`, and other work of this rank, at the same time where the transport can.

        Messages need what was launched before the mark ``since`` only.
        """
        self.exchange(sends, receives)
        if meanwhile is not None:
            meanwhile()

    @abc.abstractmethod
    def allreduce(self, array: Any, op: Op) -> Any:
        """Return the element-wise result over all ranks, the same on each."""

    @abc.abstractmethod
    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        """Give int64 ``counts[r]`` to each rank r; return what each rank gave."""

    @abc.abstractmethod
    def allgather(self, thing: Any) -> list[Any]:
        """Return a small object of each rank."""


class Alone(Transport):
    """One rank, without any library."""

    name = "alone"
    rank, size = 0, 1

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        if sends or receives:
            raise ValueError(f"one rank cannot exchange with ranks {sorted({*sends, *receives})}.")

    def allreduce(self, array: Any, op: Op) -> Any:
        return array.copy()

    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        return counts.copy()

    def allgather(self, thing: Any) -> list[Any]:
        return [thing]


class Host(Transport):
    """MPI on host memory; arrays on a device are copied to the host and back."""

    name = "host"

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI

        self._mpi, self._communicator = MPI, communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        outgoing = {rank: array if is_host(array) else array.get() for rank, array in sends.items()}
        incoming = {
            rank: array if is_host(array) else np.empty(array.shape, array.dtype) for rank, array in receives.items()
        }
        self._messages(outgoing, incoming)
        for rank, array in receives.items():
            if not is_host(array):
                array.set(incoming[rank])

    def _messages(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        """Post all messages in pieces that MPI can count, and wait."""
        requests: list[Any] = []
        for arrays, post in ((receives, self._communicator.Irecv), (sends, self._communicator.Isend)):
            for rank, array in arrays.items():
                whole = array.reshape(-1).view(np.uint8)
                pieces = (whole[first : first + CHUNK] for first in range(0, whole.size, CHUNK))
                requests.extend(post([piece, self._mpi.BYTE], rank) for piece in pieces)
        self._mpi.Request.Waitall(requests)

    def allreduce(self, array: Any, op: Op) -> Any:
        host = np.asarray(array if is_host(array) else array.get(), array.dtype.newbyteorder("="), order="C")
        result = np.empty_like(host)
        self._communicator.Allreduce(host, result, getattr(self._mpi, op.upper()))
        return result if is_host(array) else _like(array, result)

    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        result = np.empty_like(counts)
        self._communicator.Alltoall(counts, result)
        return result

    def allgather(self, thing: Any) -> list[Any]:
        return list(self._communicator.allgather(thing))


class Aware(Host):
    """MPI that reads and writes device memory itself. It knows nothing of streams, so that ours is waited for."""

    name = "mpi"

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        if not all(map(is_host, (*sends.values(), *receives.values()))):
            import cupy

            cupy.cuda.get_current_stream().synchronize()
        self._messages(sends, receives)


def _like(array: Any, host: np.ndarray) -> Any:
    """Return a copy of a host array on the device of a CuPy array."""
    result = array.copy()
    result.set(host)
    return result


def cuda_aware() -> bool:
    """Return whether the MPI library says that it takes device memory.

    Open MPI says so in its Python-visible information; MPICH and its relatives by the variables that switch it on.
    """
    import os

    from mpi4py import MPI

    vendor = MPI.get_vendor()[0]
    if vendor == "Open MPI":
        info = MPI.INFO_ENV
        return "cuda" in (info.Get("mpi_memory_alloc_kinds") or "") or _open_mpi_has_cuda()
    return os.environ.get("MPICH_GPU_SUPPORT_ENABLED") == "1" or os.environ.get("MV2_USE_CUDA") == "1"


def _open_mpi_has_cuda() -> bool:
    """Ask Open MPI's own function, which its library exports where it was built with CUDA."""
    import ctypes

    try:
        ask = ctypes.CDLL(None).MPIX_Query_cuda_support
    except AttributeError:
        return False
    return bool(ask())


class Nccl(Transport):
    """One communicator, one communication stream, one group a round; host memory goes through MPI.

    Rounds of one communicator in several streams, or a send and a receive outside of one group, can wait for each other
    for ever. The stream of communication waits for the caller's, and the caller's for it, on the device.

    Parameters
    ----------
    control
        The transport of host memory and of small objects.
    cupy
        The module, given by tests.
    """

    name = "nccl"

    def __init__(self, control: Transport, cupy: Any = None) -> None:
        self._cupy, self._control = importlib.import_module("cupy") if cupy is None else cupy, control
        self._nccl = self._cupy.cuda.nccl
        self.rank, self.size = control.rank, control.size
        token = control.allgather(self._nccl.get_unique_id() if self.rank == 0 else None)[0]
        self._communicator = self._nccl.NcclCommunicator(self.size, token, self.rank)
        self._stream = self._cupy.cuda.Stream(non_blocking=True, priority=_FIRST)

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        self.exchange_while(sends, receives)

    def mark(self, array: Any) -> Any:
        return None if is_host(array) else self._cupy.cuda.get_current_stream().record()

    def exchange_while(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], meanwhile: Callable[[], None] | None = None,
        since: Any = None,
    ) -> None:  # fmt: skip
        arrays = [*sends.values(), *receives.values()]
        if all(map(is_host, arrays)):
            self._control.exchange_while(sends, receives, meanwhile)
            return
        with self._ordered(since):
            self._nccl.groupStart()
            try:
                for rank, array in receives.items():
                    self._communicator.recv(*self._bytes(array), rank, self._stream.ptr)
                for rank, array in sends.items():
                    self._communicator.send(*self._bytes(array), rank, self._stream.ptr)
            finally:
                self._nccl.groupEnd()
            if meanwhile is not None:
                meanwhile()

    @contextlib.contextmanager
    def _ordered(self, since: Any = None) -> Iterator[None]:
        """Let the stream of communication follow the caller's, or an event, and the caller's follow it afterwards."""
        caller = self._cupy.cuda.get_current_stream()
        self._stream.wait_event(caller.record() if since is None else since)
        try:
            yield
        finally:  # memory that is freed after this goes back to the caller's stream, which waits
            caller.wait_event(self._stream.record())

    def _bytes(self, array: Any) -> tuple[int, int, int]:
        return array.data.ptr, array.nbytes, self._nccl.NCCL_INT8

    def allreduce(self, array: Any, op: Op) -> Any:
        if is_host(array):
            return self._control.allreduce(array, op)
        array = self._cupy.ascontiguousarray(array)  # NCCL knows no strides
        reals = array.view(array.real.dtype) if array.dtype.kind == "c" else array
        result = self._cupy.empty_like(reals)
        code = {"f4": "FLOAT32", "f8": "FLOAT64", "i4": "INT32", "i8": "INT64", "u4": "UINT32", "u8": "UINT64"}
        kind = getattr(self._nccl, f"NCCL_{code[reals.dtype.str[1:]]}")
        with self._ordered():
            self._communicator.allReduce(
                reals.data.ptr, result.data.ptr, reals.size, kind, getattr(self._nccl, f"NCCL_{op.upper()}"),
                self._stream.ptr,
            )  # fmt: skip
        return result.view(array.dtype)

    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        return self._control.alltoall(counts)

    def allgather(self, thing: Any) -> list[Any]:
        return self._control.allgather(thing)


def missing(host: Host) -> str | None:
    """Return what NCCL lacks on some rank, or None; the same on every rank."""
    answers = host.allgather(_device())
    for rank, (why, _) in enumerate(answers):
        if why is not None:
            return f"rank {rank} {why}"
    places = [place for _, place in answers]
    if len(set(places)) < len(places):
        shared = next(place for place in places if places.count(place) > 1)
        return f"several ranks use the GPU {shared[1]} of {shared[0]}: choose a device for each before you make a World"
    return None


def share_devices(host: Host) -> None:
    """Give each rank of a host the GPU with its number there, if all have the same one and see several.

    Ranks that have chosen a device keep it. The GPU becomes CuPy's current device of this thread.
    """
    here, count = _device()[1], 0
    with contextlib.suppress(Exception):  # without a driver, or without CuPy
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    every = host.allgather((here, count))
    beside = [rank for rank, ((name, _), _) in enumerate(every) if name == here[0]]
    if len(beside) > 1 and {every[rank] for rank in beside} == {(here, count)} and count > 1:
        cupy.cuda.Device(beside.index(host.rank) % count).use()


def _device() -> tuple[str | None, tuple[str, str]]:
    """Return why this rank cannot use NCCL, or None, and its host and GPU."""
    nowhere = socket.gethostname(), ""
    if importlib.util.find_spec("cupy") is None:
        return "has no CuPy", nowhere
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() == 0:
            return "has no GPU", nowhere
        from cupy.cuda import nccl

        if not nccl.available:
            return "has a CuPy without NCCL", nowhere
        return None, (nowhere[0], cupy.cuda.Device().pci_bus_id)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises, the transport is not there
        return f"has no GPU that works ({type(error).__name__}: {error})", nowhere
