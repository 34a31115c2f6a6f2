# SPDX-License-Identifier: BSD-3-Clause
"""HDF5 files: own ones carry a checksum, and those of others are tried in a process of its own.

A damaged file reaches code that may crash or hang. So the first 512 bytes of own files have a checksum of the others,
which is compared before HDF5 reads them. HDF5 calls them a user block: other programs skip it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from particlemesh.apps.files.libraries import isolated, library
from particlemesh.apps.files.replacing import put

BLOCK = 512  # bytes, the shortest user block
MARK = b"particlemesh file, sha256 "
TRAJECTORY = b"particlemesh trajectory, whole: "  # then 0 while old bytes are replaced, else 1
HEADS = (b"\x89HDF\r\n\x1a\n", b"MATLAB 7.3", MARK, TRAJECTORY)  # HDF5's own, and user blocks in front of it
SECONDS = 30.0  # for what takes a tenth

# HDF5's library crashes or never returns on some damaged files. All that is read later is touched here. What is in
# other files is refused, since they may be anybody's: but for parts of virtual datasets in the file's own folder.
TRIAL = """
import os, sys, h5py
def inside(name, link):
    if isinstance(link, h5py.ExternalLink):
        return f"{name} is in another file, {link.filename}: give that file, or copy the data"
def touch(name, thing):
    dict(thing.attrs)
    if not isinstance(thing, h5py.Dataset) or not thing.shape or not thing.size: return
    if thing.external:
        return f"{name} is in another file, {thing.external[0][0]}: copy the data into this one"
    for part in thing.virtual_sources() if thing.is_virtual else ():
        other = os.path.realpath(os.path.join(folder, part.file_name))
        if part.file_name == ".": continue
        if not other.startswith(os.path.join(folder, "")):
            return f"{name} is in another folder, {part.file_name}: copy the data into this file"
        if not os.path.isfile(other):
            return f"{name} is in {part.file_name}, which is missing: put it beside this file"
        if other not in todo: todo.append(other)
    thing[:1], thing[-1:]
    if thing.chunks: thing.id.get_num_chunks()
todo = [os.path.realpath(path) for path in sys.argv[1:]]
for path in todo:
    folder = os.path.dirname(path)
    with h5py.File(path, "r") as file:
        dict(file.attrs)
        reason = file.visititems_links(inside) or file.visititems(touch)
    if reason: sys.exit(reason)
"""


class Disk(io.RawIOBase):
    """A file for HDF5's library, which crashes some time after a write that failed: here none fails.

    What lies beyond the old end goes to the disk at once. What replaces old bytes waits until `settle`, when the disk
    has had room for all the others. After an error `settle` raises it, and the file is as it was after the last one.

    A ``new`` file begins empty; otherwise it may exist.
    """

    def __init__(self, path: Path, new: bool) -> None:
        self._raw = path.open("w+b" if new or not path.exists() else "r+b", buffering=0)
        try:  # as HDF5's library does with files of its own
            import fcntl

            fcntl.flock(self._raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._raw.close()
            raise
        except (ImportError, OSError):  # Windows, and file systems without locks
            pass
        self._end = self._size = self._raw.seek(0, os.SEEK_END)
        self.empty = not self._end
        self._raw.seek(0)
        head = self._raw.read(len(TRAJECTORY) + 1)
        # Whether the file begins with TRAJECTORY, and whether it was cut while `settle` replaced old bytes.
        self.ours = (bool(head) and (TRAJECTORY + b"1").startswith(head)) or head.startswith(TRAJECTORY)
        self.torn = self.ours and (self._end < 2 * BLOCK or not head.endswith(b"1"))
        self.watched, self.place = memoryview(b""), 0  # data, and where such ones were written last
        self._at, self._waiting = 0, list[tuple[int, bytes]]()
        self._error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._raw.seek(self._at)
        done = self._raw.readinto(view)
        view[done:] = bytes(len(view) - done)
        for start, data in self._waiting:
            low, high = max(start, self._at), min(start + len(data), self._at + len(view))
            if low < high:
                view[low - self._at : high - self._at] = data[low - start : high - start]
        self._at += len(view)
        return len(view)

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        if len(data) == len(self.watched) and data[:64] == self.watched[:64]:
            self.place = self._at
        if self._at < self._end or self._error is not None:
            self._waiting.append((self._at, bytes(data)))
        else:
            try:
                self._put(self._at, data)
            except OSError as error:
                self._error = error
                self._waiting.append((self._at, bytes(data)))
        self._at += len(data)
        self._size = max(self._size, self._at)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        return self._size

    def _put(self, at: int, data: Any) -> None:
        self._raw.seek(at)
        put(self._raw, data)

    def mark(self) -> None:
        """Write `TRAJECTORY` into the user block of a new file."""
        self.ours = True
        self.seek(0)
        self.write((TRAJECTORY + b"1\n").ljust(BLOCK))

    def settle(self) -> None:
        """Finish what HDF5's library has flushed; an OSError if the disk did not take all of it."""
        try:
            if self._error is not None:
                raise self._error
            there = self._raw.seek(0, os.SEEK_END)
            self._put(there, bytes(max(0, self._size - there)))  # no holes, which need room later
            if self.ours and self._waiting:
                self._put(len(TRAJECTORY), b"0")
            for at, data in self._waiting:
                self._put(at, data)
            self._raw.truncate(self._size)
            if self.ours and self._waiting:
                self._put(len(TRAJECTORY), b"1")
        except OSError as error:
            self._error = error
            self._raw.truncate(self._end)
            raise
        self._waiting.clear()
        self._end = self._size

    def close(self) -> None:
        try:
            if not self.closed and self._error is None:
                self.settle()
        finally:
            self._raw.close()
            super().close()


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


def opened(path: Path) -> Any:
    """Return an open h5py file, after a check of its checksum, or that HDF5's library can read it."""
    h5py = library("h5py", "a file .h5", "files")
    if sealed(path, MARK) is False:
        raise ValueError("its checksum is another one: it has changed since it was written")
    try_alone(path)
    return h5py.File(path, "r")


def check_head(path: Path) -> None:
    """Raise an error if a file does not begin as HDF5 does."""
    with path.open("rb") as raw:
        head = raw.read(max(map(len, HEADS)))
    if not head.startswith(HEADS):
        raise ValueError(f"{path.name} does not begin as HDF5 does")


def try_alone(*paths: Path) -> None:
    """Read files in a process of its own; a ValueError if they are not HDF5, or that process fails."""
    for path in paths:
        check_head(path)
    limit = SECONDS + len(paths)
    try:
        done = subprocess.run(
            isolated(TRIAL, *map(str, paths)), capture_output=True, timeout=limit, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ValueError("HDF5's library does not return from it") from error
    if done.returncode < 0:
        raise ValueError("HDF5's library crashes on it")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ValueError(lines[-1] if lines else f"HDF5's library ends with {done.returncode}")
