# SPDX-License-Identifier: BSD-3-Clause
"""The host memory that a process can still allocate.

Linux grants addresses without memory and kills the process that uses them. So the size of a large array is compared
with the free memory before it is allocated.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

_CGROUP = Path("/sys/fs/cgroup")  # of a container, version 2
_FRESH = 0.02  # seconds for which a reading is valid
_LARGE = 1 << 26  # bytes: smaller arrays are not compared
_last = [-math.inf, 0]  # the time of the last reading, and its bytes


def free_bytes() -> int:
    """Return the bytes that are free, page caches included, within the limits of a container."""
    now = time.monotonic()
    if now - _last[0] > _FRESH:
        _last[:] = now, min(_of_machine(), _of_container())
    return int(_last[1])


def _of_machine() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return 1024 * int(text.split("MemAvailable:", 1)[1].split(maxsplit=1)[0])
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**62  # unknown here


def _of_container() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):  # "max": no limit
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        stat = (_CGROUP / "memory.stat").read_text(encoding="ascii")
        return max(0, most - used + int(stat.split("inactive_file ", 1)[1].split(maxsplit=1)[0]))
    return 2**62


def check_room(size: int, what: str) -> None:
    """Raise a MemoryError if ``size`` bytes are not free.

    Raises
    ------
    MemoryError
        With both numbers.
    """
    if size >= _LARGE and size > (free := free_bytes()):
        raise MemoryError(f"cannot allocate {size:,} bytes for {what}: {free:,} are free.")


def empty(shape: tuple[int, ...] | int, dtype: Any, what: str) -> np.ndarray:
    """Return a new array, or raise a MemoryError before the system kills the process."""
    check_room(math.prod((shape,) if isinstance(shape, int) else shape) * np.dtype(dtype).itemsize, what)
    return np.empty(shape, dtype)
