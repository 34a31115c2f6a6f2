# SPDX-License-Identifier: BSD-3-Clause
"""NCCL: device memory from GPU to GPU, one process for each."""

from __future__ import annotations

import importlib
import importlib.util
import socket
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from particlemesh.distributed.transports import Host, Op, Transport, is_host


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
        self._stream = self._cupy.cuda.Stream(non_blocking=True)

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
        with _Ordered(self._cupy, self._stream, since):
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
        with _Ordered(self._cupy, self._stream):
            self._communicator.allReduce(
                reals.data.ptr, result.data.ptr, reals.size, kind, getattr(self._nccl, f"NCCL_{op.upper()}"),
                self._stream.ptr,
            )  # fmt: skip
        return result.view(array.dtype)

    def alltoall(self, counts: np.ndarray) -> np.ndarray:
        return self._control.alltoall(counts)

    def allgather(self, thing: Any) -> list[Any]:
        return self._control.allgather(thing)


class _Ordered:
    """A stretch in which the stream of communication follows the caller's, or an event, and is then followed by it."""

    def __init__(self, cupy: Any, stream: Any, since: Any = None) -> None:
        self._stream, self._caller, self._since = stream, cupy.cuda.get_current_stream(), since

    def __enter__(self) -> None:
        self._stream.wait_event(self._caller.record() if self._since is None else self._since)

    def __exit__(self, *_: object) -> None:
        # Memory that is freed after this goes back to the caller's stream, which waits: nothing is overwritten.
        self._caller.wait_event(self._stream.record())


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
