# SPDX-License-Identifier: BSD-3-Clause
"""A checksum in front of an HDF5 file, compared before HDF5 reads it.

The first 512 bytes are what HDF5 calls a user block: other programs skip it. A damaged file would otherwise reach code
that may crash or hang.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 512  # bytes, the shortest user block


@contextlib.contextmanager
def sealing(h5py: Any, path: Path, mark: bytes) -> Iterator[Any]:
    """Yield an HDF5 file in memory; then write it, behind a mark and its checksum, and wait for the disk.

    HDF5's library never sees the disk: after a write that failed it may crash when the next file is closed.
    """
    with h5py.File(path, "w", driver="core", backing_store=False) as file:
        yield file
        file.flush()
        image = file.id.get_file_image()
    with path.open("wb") as raw:
        raw.write(_block(mark, hashlib.sha256(image).hexdigest().encode()))
        raw.write(image)
        raw.flush()
        os.fsync(raw.fileno())


def seal(path: Path, mark: bytes) -> None:
    """Write a mark and the checksum of what follows into the user block of a closed file, and wait for the disk."""
    with path.open("r+b") as raw:
        digest = _digest(raw)
        raw.seek(0)
        raw.write(_block(mark, digest))
        raw.flush()
        os.fsync(raw.fileno())


def sealed(path: Path, mark: bytes) -> bool | None:
    """Return whether the checksum of a file is right; None if the file does not begin with the mark."""
    with path.open("rb") as raw:
        head = raw.read(BLOCK)
        return head == _block(mark, _digest(raw)) if head.startswith(mark) else None


def _block(mark: bytes, digest: bytes) -> bytes:
    return (mark + digest + b"\n").ljust(BLOCK, b" ")


def _digest(raw: Any) -> bytes:
    """Return the checksum of what follows the user block."""
    raw.seek(BLOCK)
    return hashlib.file_digest(raw, "sha256").hexdigest().encode()
