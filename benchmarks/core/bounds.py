# SPDX-License-Identifier: BSD-3-Clause
"""Lower bounds of a problem's time on a device, from the problem and the device's ceilings alone.

Useful work is C p^3 + p^2 multiply-adds per particle with C reals (weights along an axis are not counted). The least
bytes are positions and values once, and the field once: written by spreading, read where particles reach by
interpolation. Spreading by atomics also clears the field before it adds. It adds each real by itself: those of every
particle, or those of the windows that walks along x flush, whichever are fewer (`walked`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from core.device import Ceilings
from harness.cases import Case

CHUNKS = 8000  # concurrent walks, about
CHUNK = (32, 512)  # particles of a walk, at least and at most


def multiply_adds(case: Case) -> float:
    """Return the useful multiply-adds of all particles."""
    return case.count * (case.reals * case.support**3 + case.support**2)


def intensity(case: Case) -> float:
    """Return useful flops by least bytes."""
    return 2 * multiply_adds(case) / least_bytes(case)


def field_bytes(case: Case) -> float:
    """Return the bytes of the field."""
    return case.nodes**3 * case.reals * case.size


def reached(case: Case) -> float:
    """Return the bytes of the nodes that particles reach, were they uniform."""
    return field_bytes(case) * -math.expm1(-case.density * case.support**3)


def least_bytes(case: Case) -> float:
    """Return the bytes that have to come from memory and go there."""
    particles = case.count * case.size * (3 + case.reals)
    return particles + (field_bytes(case) if case.direction == "spread" else reached(case))


def walked(case: Case) -> float:
    """Return the reals of all windows of walks along x, for the better of two window sizes."""
    least = math.inf
    for depth in (8, 16):  # nodes of a window along z; along y 8
        wide, deep = 9 - case.support, depth + 1 - case.support
        deep -= deep % 2 if case.dtype == "float32" else 0
        if wide < 1 or deep < 1:
            continue
        columns = math.ceil(case.nodes / wide) * math.ceil(case.nodes / deep)
        levels = case.nodes * -math.expm1(-case.count / columns * case.support / case.nodes)
        chunk = min(max(case.count / CHUNKS, CHUNK[0]), CHUNK[1])
        ends = case.support * case.count / chunk
        least = min(least, (columns * levels + ends) * 8 * depth * case.reals)
    return least


def directly(case: Case) -> float:
    """Return the reals of all contributions."""
    return float(case.count * case.support**3 * case.reals)


def parts(case: Case, device: Ceilings) -> dict[str, float]:
    """Return the seconds of each limit by its name, without limits that are unknown for the device."""
    double = case.dtype == "float64"
    flops = 2 * multiply_adds(case)
    fma, tensor = (device.fma_f64, device.tensor_f64) if double else (device.fma_f32, device.tensor_f32 / 3)
    rate = max((r for r in (fma, tensor) if not math.isnan(r)), default=math.nan)  # TF32 takes three products
    seconds = {"memory": least_bytes(case) / device.memory, "multiply-adds": flops / rate}
    if case.direction == "spread":
        fits = field_bytes(case) < device.l2_bytes
        clear = field_bytes(case) / (device.l2 if fits and not math.isnan(device.l2) else device.memory)
        reals = min(walked(case), directly(case))
        seconds["adds to memory"] = clear + reals / (device.add_f64 if double else device.add_f32)
        seconds["launches"] = 2 * device.launch
    else:
        row = math.ceil(case.support * case.reals * case.size / 32) * 32
        by_row = case.count * case.support**2 * row / device.l1
        by_window = walked(case) * case.size / device.l2
        seconds["loads"] = min(by_row, by_window) if not math.isnan(by_row + by_window) else math.nan
        seconds["launches"] = device.gather
    return {name: time for name, time in seconds.items() if not math.isnan(time)}


def bound(case: Case, device: Ceilings) -> tuple[str, float]:
    """Return the limit with the most seconds, and these seconds; an empty name and NaN if none is known."""
    limits = parts(replace(case, cloud="uniform"), device)
    if not limits:
        return "", math.nan
    name = max(limits, key=lambda part: limits[part])
    return name, limits[name]
