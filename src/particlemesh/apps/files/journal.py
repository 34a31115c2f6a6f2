# SPDX-License-Identifier: BSD-3-Clause
"""Where the bytes of each frame are in a trajectory of HDF5: a file that was cut is read without HDF5's library."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HEAD = b"particlemesh frame "  # then JSON
LENGTH = 512  # bytes of an entry


def create(file: Any) -> Any:
    """Return a new dataset of entries, one for each frame."""
    return file.create_dataset("particlemesh/frames", (0,), f"S{LENGTH}", maxshape=(None,), chunks=(1,))


def entry(step: int, time: float, places: Mapping[str, tuple[int, np.ndarray]]) -> bytes:
    """Return the entry of a frame.

    Parameters
    ----------
    step : int
    time : float
    places : mapping of str to (int, ndarray)
        Where the bytes of each array are in the file.
    """
    arrays = {name: (at, zlib.crc32(data.data), data.dtype.str, data.shape) for name, (at, data) in places.items()}
    return HEAD + json.dumps({"step": int(step), "time": float(time), "arrays": arrays}).encode()


def whole_frames(path: Path) -> Iterator[tuple[int, float, dict[str, np.ndarray]]]:
    """Yield step, time and arrays of the frames whose bytes are all there, in the order of their steps."""
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as image:
        entries, at = {}, image.find(HEAD)
        while at >= 0:
            with contextlib.suppress(ValueError):  # it was cut
                frame = json.loads(image[at + len(HEAD) : at + LENGTH].rstrip(b"\0"))
                entries[frame["step"]] = frame
            at = image.find(HEAD, at + 1)
        for step, frame in sorted(entries.items()):
            arrays = {name: _whole_array(image, *where) for name, where in frame["arrays"].items()}
            whole = {name: array for name, array in arrays.items() if array is not None}
            if len(whole) == len(arrays):
                yield step, frame["time"], whole


def _whole_array(image: mmap.mmap, at: int, check: int, kind: str, shape: list[int]) -> np.ndarray | None:
    """Return an array, or None if its bytes are others."""
    data = image[at : at + np.dtype(kind).itemsize * math.prod(shape)]
    return np.frombuffer(data, kind).reshape(shape) if zlib.crc32(data) == check else None
