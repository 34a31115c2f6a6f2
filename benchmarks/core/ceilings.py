# SPDX-License-Identifier: BSD-3-Clause
"""Ceilings of a device: bandwidths, multiply-adds, matrix products, adds to memory, the shortest call.

On CUDA a kernel of its own measures each (``ceilings.cu``); elsewhere only the bandwidth of copies is measured. Other
ceilings come from a table by device, if it has them. The column ``how`` says which it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from core.device import PUBLISHED, UNITS
from harness.place import Place
from harness.tables import short, slug
from particlemesh.backends import nvrtc

SOURCE = Path(__file__).with_name("ceilings.cu")
THREADS = 256
TARGET = 2**24  # bytes that adds go to: a complex field of 128^3 nodes in float32, which stays in the cache


def rows(place: Place, small: bool) -> list[dict[str, Any]]:
    """Measure, and return a row for each known ceiling."""
    ceilings = {"memory": (_copy(place, 2**22 if small else 2**29), "measured: copy")}
    if place.name == "cuda":
        ceilings |= _Kernels(place).measured()
    for name, value in PUBLISHED.get(slug(place.device), {}).items():
        ceilings.setdefault(name, (value, "published"))
    return [
        dict(name=name, value=short(ceilings[name][0]), unit=unit, how=ceilings[name][1], **place.facts)
        for name, unit in UNITS.items()
        if name in ceilings
    ]


def _copy(place: Place, nbytes: int) -> float:
    """Return the bytes per second of a copy, read and written."""
    source = place.upload(np.zeros(nbytes // 4, np.float32))
    target = place.backend.empty(source.shape, source.dtype)
    return 2 * nbytes / place.clock.seconds(lambda: place.backend.copy(target, source), budget=0.05)


class _Kernels:
    """The kernels of ``ceilings.cu``, and their times."""

    def __init__(self, place: Place) -> None:
        import cupy

        self.cupy, self.place, self.clock = cupy, place, place.clock
        device = cupy.cuda.Device()
        self.facts = device.attributes
        self.units = int(self.facts["MultiProcessorCount"])
        self.compute = int(device.compute_capability)
        self.module = nvrtc.module(SOURCE.read_text(), str(SOURCE), self.compute)

    def seconds(self, name: str, groups: int, arguments: tuple[Any, ...], threads: int = THREADS) -> float:
        """Return the seconds of a kernel, replayed from a captured graph."""
        kernel = self.module.get_function(name)
        return self.clock.graph(lambda: kernel((groups,), (threads,), arguments), 5, 5)

    def measured(self) -> dict[str, tuple[float, str]]:
        """Return each ceiling and how it was measured."""
        ceilings = {"l2_bytes": (float(self.facts["L2CacheSize"]), "by the driver")}
        looks: tuple[tuple[str, Callable[[], float]], ...] = (
            ("l2", self.second_level), ("l1", self.first_level), ("fma_f32", lambda: self.multiply_adds("f32")),
            ("fma_f64", lambda: self.multiply_adds("f64")), ("add_f32", lambda: self.adds("f32")),
            ("add_f64", lambda: self.adds("f64")), ("launch", self.launch), ("gather", self.gather),
        )  # fmt: skip
        if self.compute >= 80:
            looks += (("tensor_f32", lambda: self.products("f32")), ("tensor_f64", lambda: self.products("f64")))
        for name, look in looks:
            with self.place.attempt(f"ceiling {name}"):
                ceilings[name] = (look(), "measured")
        return ceilings

    def second_level(self) -> float:
        nbytes, turns = 2**24, 20
        data, to = self.cupy.zeros(nbytes // 4, np.float32), self.cupy.zeros(1, np.float32)
        arguments = data, to, np.uint32(nbytes // 16), np.int32(turns)
        return nbytes * turns / self.seconds("read_l2", 8 * self.units, arguments)

    def first_level(self) -> float:
        groups, turns = 4 * self.units, 2000
        data, to = self.cupy.zeros(4096 * groups, np.float32), self.cupy.zeros(1, np.float32)
        return groups * THREADS * turns * 64 / self.seconds("read_l1", groups, (data, to, np.int32(turns)))

    def multiply_adds(self, kind: str) -> float:
        real, groups, turns = self._real(kind), 8 * self.units, 500
        arguments = self.cupy.zeros(1, real), real(0.999), real(1e-3), np.int32(turns)
        flops = 2 * 128 * turns * groups * THREADS
        return flops / self.seconds(f"multiply_adds_{kind}", groups, arguments)

    def products(self, kind: str) -> float:
        real, groups, turns = self._real(kind), 4 * self.units, 2000
        a = np.uint32(0) if kind == "f32" else real(0)
        flops = 8 * turns * groups * THREADS // 32 * 2 * (16 * 8 * 8 if kind == "f32" else 8 * 8 * 4)
        return flops / self.seconds(f"matrix_{kind}", groups, (self.cupy.zeros(1, real), a, a, np.int32(turns)))

    def adds(self, kind: str) -> float:
        """Return the best of the forms: reals one by one, in twos, in fours; random sectors, pairs of them, lines."""
        real, groups, turns = self._real(kind), 8 * self.units, 50
        forms = {"add_f64": 1} if kind == "f64" else {"add_f32": 1}
        if kind == "f32" and self.compute >= 90:
            forms |= {"add_f32x2": 2, "add_f32x4": 4}
        mesh = self.cupy.zeros(TARGET // np.dtype(real).itemsize, real)
        rates = []
        for (name, wide), run in itertools.product(forms.items(), (1, 2, 4)):
            arguments = mesh, np.uint32(TARGET // 32), np.uint32(run), np.int32(turns)
            rates.append(wide * groups * THREADS * turns / self.seconds(name, groups, arguments))
        return max(rates)

    def launch(self) -> float:
        to = self.cupy.zeros(1, np.float32)
        kernel = self.module.get_function("nothing")
        return self.clock.graph(lambda: kernel((1,), (32,), (to,)), 20, 7)

    def gather(self) -> float:
        count = 10_000
        index = self.cupy.asarray(np.random.default_rng(1).permutation(count).astype(np.uint32))
        data, to = self.cupy.zeros(count, np.float32), self.cupy.zeros(count, np.float32)
        kernel = self.module.get_function("shortest_gather")
        groups = -(-count // 128)
        return self.clock.graph(lambda: kernel((groups,), (128,), (index, data, to, np.int32(count))), 20, 7)

    def _real(self, kind: str) -> type[Any]:
        return np.float32 if kind == "f32" else np.float64
