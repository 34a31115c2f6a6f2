# SPDX-License-Identifier: BSD-3-Clause
"""Trajectories in files that other programs read, through the libraries of these formats."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import mmap
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.hdf5 import BLOCK, Disk
from particlemesh.apps.files.libraries import Format, by_ending
from particlemesh.apps.files.replacing import FULL, check_free, naming, only_writer, put, replacing


class Frame(NamedTuple):
    """The state of a simulation at one step, in the host's memory. What is None, a file does not have."""

    step: int
    time: float
    positions: np.ndarray  # (N, 3)
    box: Box | None = None
    radii: np.ndarray | None = None  # (N,) or one
    velocities: np.ndarray | None = None  # (N, 3)
    spins: np.ndarray | None = None  # (N, 3), angular velocities
    bonds: np.ndarray | None = None  # (B, 2), particles that a bond joins; in .gsd and .xyz

    def columns(self) -> dict[str, np.ndarray]:
        """Return what there is beside positions by name, a row per particle."""
        there = {"velocity": self.velocities, "angular_velocity": self.spins}
        columns = {name: values for name, values in there.items() if values is not None}
        if self.radii is not None:
            columns["radius"] = np.broadcast_to(self.radii, (len(self.positions),)).copy()
        return columns


class Writer(Format):
    """A file that takes one frame after the other.

    ``last`` is the step of its last frame, -1 if it has none. ``before`` is what `open` has read of that frame.
    """

    kind, extra = "a trajectory ", "io"
    precision: ClassVar[float] = 0.0  # of numbers in the file, relative to the largest

    def __init__(self, path: Path, frame: Frame) -> None:
        self.path = path
        self.last = -1
        self.before: Frame | None = None
        self.held = contextlib.ExitStack()  # what `close` closes
        self.library = self.load()
        try:
            with naming(path):
                self.held.enter_context(only_writer(path))
                self.open(frame)
            self._compare(frame)
        except BaseException:
            self.close()
            raise

    def open(self, frame: Frame) -> None:
        """Open the file for frames like this one, and set ``last`` and ``before``."""
        raise NotImplementedError

    def append(self, frame: Frame) -> None:
        """Append a frame."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        self.held.close()

    def write(self, frame: Frame) -> None:
        """Append a frame, unless the file has it."""
        if frame.step > self.last:
            with naming(self.path):
                self.append(frame)
            self.last = frame.step

    def same(self, there: int, count: int) -> None:
        """Check the number of particles of a file that exists."""
        if there != count:
            self.refuse(f"{there} particles", count)

    def refuse(self, there: object, here: object) -> NoReturn:
        """Raise an error that says what the file has, and what the simulation has."""
        raise ValueError(f"{self.path} has {there}, this simulation {here}: give another file.")

    def _compare(self, frame: Frame) -> None:
        """Check that a simulation may go on from the last frame of the file."""
        if self.last > frame.step:
            raise ValueError(
                f"{self.path} has frames up to step {self.last}, and this simulation is at step {frame.step}: "
                "remove the file, or give another one."
            )
        before = self.before
        if before is None:
            return
        self.same(len(before.positions), len(frame.positions))
        if frame.time < before.time - 1e-9 * abs(before.time):
            self.refuse(f"frames up to time {before.time:g}", f"is at time {frame.time:g}")
        if frame.step > before.step:
            return
        extent = 0.0 if frame.box is None else abs(frame.box.matrix).max()
        for name, there, here, least in (
            ("positions", before.positions, frame.positions, extent),
            ("velocities", before.velocities, frame.velocities, 0.0),
            ("angular velocities", before.spins, frame.spins, 0.0),
        ):
            if there is not None and here is not None:
                allowed = self.precision * max(least, abs(here).max(initial=0.0))
                if not np.allclose(there, here, rtol=0, atol=allowed, equal_nan=True):
                    raise ValueError(
                        f"{self.path} has other {name} at step {frame.step} than this simulation: give another file."
                    )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with naming(self.path):
            self.close()


class GSD(Writer):
    """HOOMD-blue's format: float32, positions within the box and counts of images, the box centred at 0.

    The log has what the format has no word for: which axes repeat, and where the box begins.
    """

    suffixes = (".gsd",)
    module = "gsd.hoomd"
    note = "HOOMD-blue, float32"
    precision = 1e-6

    def open(self, frame: Frame) -> None:
        if frame.box is None:
            raise ValueError("a trajectory .gsd needs a box: give the simulation one, or write another format.")
        rows = frame.box.matrix
        if np.triu(rows, 1).any() or (np.diagonal(rows) <= 0).any():
            raise ValueError(
                "a trajectory .gsd has its first lattice vector along x and its second in the plane of x and y: "
                "turn the box, or write another format."
            )
        try:
            if self.path.exists():
                _forget_cut_frames(self.path)
            if not self.path.exists():  # without a frame it cannot be continued
                self.held.callback(lambda: None if self.last >= 0 else self.path.unlink(missing_ok=True))
            self.file = self.held.enter_context(self.library.open(self.path, "r+" if self.path.exists() else "x"))
        except (RuntimeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise ValueError(f"{self.path} is no GSD file that can be continued: give another file.") from error
        if len(self.file):
            shot = self.file[len(self.file) - 1]
            self.last = int(shot.configuration.step)
            lx, ly, lz, xy, xz, yz = map(float, shot.configuration.box)
            rows = np.array([[lx, 0, 0], [xy * ly, ly, 0], [xz * lz, yz * lz, lz]])
            corner = shot.log.get("box/origin", -rows.sum(axis=0) / 2)
            positions = shot.particles.position + shot.particles.image @ rows + rows.sum(axis=0) / 2 + corner
            self.before = Frame(
                self.last, float(np.ravel(shot.log.get("time", -np.inf))[0]), positions,
                velocities=shot.particles.velocity, spins=shot.log.get("particles/angular_velocity"),
            )  # fmt: skip

    def append(self, frame: Frame) -> None:
        assert frame.box is not None  # open() refuses this
        box, positions = frame.box, frame.positions
        rows = box.matrix
        (lx, ly, lz), periodic = np.diagonal(rows), np.array(box.periodic)
        shot = self.library.Frame()
        shot.configuration.step = frame.step
        shot.configuration.box = [lx, ly, lz, rows[1, 0] / ly, rows[2, 0] / lz, rows[2, 1] / lz]
        folded = box.fold(positions) if periodic.any() else positions
        shot.particles.N = len(positions)
        shot.particles.position = folded - box.origin - rows.sum(axis=0) / 2
        images = np.where(periodic, np.rint((positions - folded) @ box.inverse.T), 0)
        if abs(images).max(initial=0) >= 2**31:
            raise ValueError(f"{self.path} counts images of the box up to 2**31, and a particle is beyond: write .h5.")
        shot.particles.image = images.astype(np.int32)
        columns = frame.columns()
        if "radius" in columns:
            shot.particles.diameter = 2 * columns["radius"]
        if "velocity" in columns:
            shot.particles.velocity = columns["velocity"]
        if "angular_velocity" in columns:
            shot.log["particles/angular_velocity"] = columns["angular_velocity"]
        if frame.bonds is not None:
            shot.bonds.N, shot.bonds.types = len(frame.bonds), ["bond"]
            shot.bonds.group, shot.bonds.typeid = frame.bonds, np.zeros(len(frame.bonds), np.uint32)
        # The format has a box around 0 that repeats along all axes.
        shot.log |= {
            "time": np.array([frame.time]), "box/periodic": periodic.astype(np.uint8), "box/origin": box.origin,
        }  # fmt: skip
        self.file.append(shot)
        self.file.flush()  # else a process that is killed leaves no frame


# The library neither finds nor leaves out frames that were cut.
# Of a GSD file: its first bytes, where its index begins at first, an entry, and bytes of a number by its type.
_GSD_MAGIC, _GSD_FIRST = b"\xdf\x65" * 4, 256
_GSD_ENTRY = np.dtype(
    [("frame", "<u8"), ("rows", "<u8"), ("location", "<i8"), ("columns", "<u4"), ("id", "<u2"), ("type", "u1"),
     ("flags", "u1")]
)  # fmt: skip
_GSD_BYTES = np.array([0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1], np.uint64)


def _forget_cut_frames(path: Path) -> None:
    """Take cut frames out of the index of a GSD file; remove a file that holds no whole one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_GSD_FIRST)
    if not _GSD_MAGIC.startswith(head[:8]):
        return
    location, entries = np.frombuffer(head[:24], "<u8")[1:3].tolist() if len(head) >= 24 else (_GSD_FIRST, 0)
    if location == _GSD_FIRST and size < location + max(entries, 1) * _GSD_ENTRY.itemsize:
        path.unlink()  # data follow the first index
        return
    if size < location + entries * _GSD_ENTRY.itemsize:
        return
    index = np.memmap(path, _GSD_ENTRY, "r+", location, entries)
    bytes_each = _GSD_BYTES[np.minimum(index["type"], len(_GSD_BYTES) - 1)]
    cut = index["location"].astype(np.uint64) + index["rows"] * index["columns"] * bytes_each > size
    if cut.any():
        index[index["frame"] >= index["frame"][cut].min()] = np.zeros((), _GSD_ENTRY)
        index.flush()
        if not index["location"].any():
            path.unlink()


class H5MD(Writer):
    """Datasets ``particles/all/position/value`` (frames, N, 3), ``step`` and ``time``: unfolded, in their own type.

    The box and the radii are those of all frames.
    ``particlemesh/frames`` says where the bytes of each frame are, for files that were cut.
    """

    suffixes = (".h5",)
    module = "h5py"
    note = "H5MD"

    def open(self, frame: Frame) -> None:
        self.values: dict[str, Any] = {}
        refusal = f"{self.path} is no HDF5 file that can be continued: give another file."
        try:
            self.disk = Disk(self.path, new=False)
        except BlockingIOError as error:
            raise ValueError(
                f"{self.path} is open in another program: close it there, or give another name."
            ) from error
        except OSError as error:
            raise ValueError(refusal) from error
        try:
            if self.disk.torn:
                raise OSError(refusal)
            if self.disk.empty:
                self.file = self.library.File(self.disk, "w", userblock_size=BLOCK)
                self.disk.mark()
            else:
                self.file = self.library.File(self.disk, "r+")
        except BaseException as error:
            self.disk.close()
            if not isinstance(error, OSError):
                raise
            if not self.disk.ours:
                raise ValueError(refusal) from error
            self._rescue(frame)
            self.open(frame)
            return
        self.held.callback(self.disk.close)
        self.held.callback(self.file.close)
        if "particles/all/position" in self.file:
            self._continue(frame)
        elif len(self.file):
            raise ValueError(f"{self.path} holds something else than a trajectory: give another file.")
        else:
            self._begin(frame.box)

    def _continue(self, frame: Frame) -> None:
        """Find the last frame of a file that exists."""
        self.data, self.places = self.file["particles/all/position"], self.file.get("particlemesh/frames")
        steps = self.step = self.data["step"]
        self.time = self.data["time"]
        elements = self.data.parent
        if len(steps):
            self.last = int(steps[-1])
            self._same_for_all(frame)
            read = {name: elements[name]["value"][len(steps) - 1] for name in frame.columns() if name != "radius"}
            self.before = Frame(
                self.last, float(self.time[len(steps) - 1]), self.data["value"][len(steps) - 1],
                velocities=read.get("velocity"), spins=read.get("angular_velocity"),
            )  # fmt: skip
        elif self.places is not None:  # nothing that counts
            for name in list(self.file):
                del self.file[name]
            self._begin(frame.box)
            return
        # The step is written last: what a frame has left that was not finished is cut off.
        self.time.resize(len(steps), axis=0)
        for element in elements.values():
            if isinstance(element, self.library.Group) and "value" in element:
                element["value"].resize(len(steps), axis=0)

    def _same_for_all(self, frame: Frame) -> None:
        """Check what a file has once for all frames."""
        elements, value = self.data.parent, self.data["value"]
        self.same(value.shape[1], len(frame.positions))
        if value.dtype != frame.positions.dtype:
            self.refuse(f"positions in {value.dtype}", frame.positions.dtype)
        group, box = elements.get("box", {}), None
        if isinstance(group.get("edges"), self.library.Dataset):
            words, origin = (group.attrs.get(key, (0.0,) * 3) for key in ("boundary", "origin"))
            periodic = [word in ("periodic", b"periodic") for word in words]
            box = Box(group["edges"][()], origin=origin, periodic=periodic)
        elif "edges" in group:
            self.refuse("a box in each frame", "one for all")
        if repr(box) != repr(frame.box):
            self.refuse(box or "no box", frame.box or "has none")
        names = {"velocity", "angular_velocity", "radius"}
        for name in sorted(names & ({*elements} ^ {*frame.columns()})):
            if name in elements:
                self.refuse(f"frames with {name}", "has none")
            raise ValueError(f"{self.path} has frames without {name}: give another file.")
        if frame.radii is not None:
            radii, there = frame.columns()["radius"], np.broadcast_to(elements["radius"][()], len(frame.positions))
            for k in np.flatnonzero(radii != there)[:1]:
                self.refuse(f"radius {there[k]:g} of particle {k}", f"{radii[k]:g}")

    def _begin(self, box: Box | None) -> None:
        """Write what a new file has beside frames."""
        import particlemesh

        self.places = self.file.create_dataset("particlemesh/frames", (0,), f"S{ENTRY}", maxshape=(None,), chunks=(1,))
        self.file.create_group("h5md").attrs["version"] = (1, 1)
        self.file.create_group("h5md/author").attrs["name"] = "unknown"
        creator = self.file.create_group("h5md/creator")
        creator.attrs.update(name="particlemesh", version=particlemesh.__version__)
        edges = self.file.create_group("particles/all/box")
        periodic = (False,) * 3 if box is None else box.periodic
        edges.attrs.update(dimension=3, boundary=["periodic" if repeats else "none" for repeats in periodic])
        if box is not None:
            edges["edges"] = box.lengths if box.orthorhombic else box.matrix
            edges.attrs["origin"] = box.origin
        self.data = self.file.create_group("particles/all/position")
        self.step = self.data.create_dataset("step", (0,), np.int64, maxshape=(None,))
        self.time = self.data.create_dataset("time", (0,), np.float64, maxshape=(None,))

    def append(self, frame: Frame) -> None:
        columns, places = {"position": frame.positions, **frame.columns()}, dict[str, tuple[int, np.ndarray]]()
        radii = columns.pop("radius", None)
        if radii is not None and "radius" not in self.data.parent:
            self.data.parent["radius"] = radii  # for all times
        for name, values in columns.items():
            if name not in self.values:
                self.values[name] = self._values(name, values)
            into = self.values[name]
            values = np.ascontiguousarray(values, into.dtype)
            self.disk.watched = values.reshape(-1).view(np.uint8).data
            _extend(into, values)
            into.flush()
            places[name] = self.disk.place, values
        _extend(self.time, frame.time)
        _extend(self.step, frame.step)
        if self.places is not None:
            _extend(self.places, _entry(frame, places))
        self.file.flush()
        self.disk.settle()

    def _values(self, name: str, like: np.ndarray) -> Any:
        """Return the dataset of a quantity, which is made for arrays like this one."""
        element = self.data.parent.require_group(name)
        if "step" not in element:
            element["step"], element["time"] = self.step, self.time  # links: the same datasets
        if "value" not in element:
            most, each = (None, *(n or None for n in like.shape)), (1, *(n or 1 for n in like.shape))
            element.create_dataset("value", (0, *like.shape), like.dtype, maxshape=most, chunks=each)
        return element["value"]

    def _rescue(self, frame: Frame) -> None:
        """Put the whole frames of a file that was cut into a new one."""
        with replacing(self.path, overwrite=True) as part, H5MD(part, frame) as new:
            for step, time, columns, check in _whole_frames(self.path):
                x, v, w = columns["position"], columns.get("velocity"), columns.get("angular_velocity")
                self.same(len(x), len(frame.positions))
                if check not in (None, _check(frame)):
                    raise ValueError(
                        f"{self.path} was cut, and has another box or other radii than this simulation: "
                        "give another file."
                    )
                new.write(Frame(step, time, x, frame.box, frame.radii, v, w))


def _extend(dataset: Any, value: Any) -> None:
    """Append to a dataset of HDF5 along its first axis."""
    dataset.resize(len(dataset) + 1, axis=0)
    dataset[-1] = value


# Where the bytes of each frame are in a file of HDF5: one that was cut is read without HDF5's library.
HEAD = b"particlemesh frame "  # then JSON
ENTRY = 512  # bytes


def _entry(frame: Frame, places: Mapping[str, tuple[int, np.ndarray]]) -> bytes:
    """Return the entry of a frame, whose arrays begin at these bytes of the file."""
    arrays = {name: (at, zlib.crc32(data.data), data.dtype.str, data.shape) for name, (at, data) in places.items()}
    entry = {"step": int(frame.step), "time": float(frame.time), "arrays": arrays, "check": _check(frame)}
    return HEAD + json.dumps(entry).encode()


def _check(frame: Frame) -> int:
    """Return a checksum of what the file has once for all frames."""
    return zlib.crc32(frame.columns().get("radius", np.zeros(0)).tobytes(), zlib.crc32(repr(frame.box).encode()))


def _whole_frames(path: Path) -> Iterator[tuple[int, float, dict[str, np.ndarray], int | None]]:
    """Yield step, time, arrays and `_check` of the frames whose bytes are all there, in the order of their steps."""
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as image:
        entries, at = {}, image.find(HEAD)
        while at >= 0:
            with contextlib.suppress(ValueError):  # it was cut
                frame = json.loads(image[at + len(HEAD) : at + ENTRY].rstrip(b"\0"))
                entries[frame["step"]] = frame
            at = image.find(HEAD, at + 1)
        for step, frame in sorted(entries.items()):
            whole = {}
            for name, (start, check, kind, shape) in frame["arrays"].items():
                data = image[start : start + np.dtype(kind).itemsize * math.prod(shape)]
                if zlib.crc32(data) == check:
                    whole[name] = np.frombuffer(data, kind).reshape(shape)
            if len(whole) == len(frame["arrays"]):
                yield step, frame["time"], whole, frame.get("check")


class ExtendedXYZ(Writer):
    """Text that ASE and OVITO read: unfolded, 12 digits, the cell in each frame."""

    suffixes = (".xyz",)
    note = "OVITO, 12 digits"
    precision = 1e-8  # of files with 8 decimals
    names: ClassVar = {"velocity": "velo"}  # as OVITO has them

    def open(self, frame: Frame) -> None:
        self.end = 0  # of the last whole frame; what follows is of one that was cut
        if not self.path.exists() or not self.path.stat().st_size:
            return
        head = b"%d\n" % len(frame.positions)
        with self.path.open("rb") as file:
            first, second = file.readline(20), file.readline(12)
            if first.strip().isdigit() and first.endswith(b"\n"):
                self.same(int(first), len(frame.positions))
            ours = any(name.startswith(second) or second.startswith(name) for name in (b"Lattice=", b"Properties="))
            if not (head.startswith(first) and ours):
                raise ValueError(f"{self.path} is no trajectory of particlemesh: give another file.")
            size = file.seek(0, os.SEEK_END)
            span = 1 << 16
            while not self.end:
                begin = max(0, size - span)
                file.seek(begin)
                self._last_whole(begin, file.read(), head)
                if not begin:
                    break
                span *= 4

    def _last_whole(self, begin: int, text: bytes, head: bytes) -> None:
        """Look for the last whole frame in the end of the file, which begins at a byte."""
        starts = [match.end() for match in re.finditer(rb"\n(?=%b(?:Lattice|Properties)=)" % head, text)]
        if not begin:
            starts.insert(0, 0)
        for start in reversed(starts):
            lines = text[start:].split(b"\n", int(head) + 2)
            step = re.search(rb"\bstep=(\d+)", lines[1]) if len(lines) == int(head) + 3 else None
            if step:
                self.last, self.end = int(step[1]), begin + len(text) - len(lines[-1])
                self.before = None if not int(head) else _xyz_frame(self.last, lines[1].decode(), lines[2:-1])
                return

    def append(self, frame: Frame) -> None:
        box, fields, columns = frame.box, "species:S:1:pos:R:3", frame.columns()
        for name, values in columns.items():
            fields += f":{self.names.get(name, name)}:R:{math.prod(values.shape[1:])}"
        fields += ":bonds:S:1" * (frame.bonds is not None)
        head = f"Properties={fields} step={frame.step} time={float(frame.time)!r}"
        if box is None:
            head += ' pbc="F F F"'
        else:
            origin = f' Origin="{_words(box.origin)}"' if box.origin.any() else ""
            head = (
                f'Lattice="{_words(box.matrix)}" {head}{origin} pbc="{" ".join("FT"[flag] for flag in box.periodic)}"'
            )
        text = io.StringIO()
        text.write(f"{len(frame.positions)}\n{head}\n")
        rows = np.column_stack([frame.positions, *columns.values()])
        line = "X" + " %.12g" * rows.shape[1]
        if frame.bonds is None:
            np.savetxt(text, rows, line)
        else:
            words: list[list[str]] = [[] for _ in rows]
            for i, j in frame.bonds.tolist():
                words[i].append(f"{j}(1)")
            text.writelines(
                f"{line % tuple(row)} {','.join(some) or '_'}\n" for row, some in zip(rows, words, strict=True)
            )
        with self.path.open("ab", buffering=0) as file:
            file.truncate(self.end)
            try:
                put(file, text.getvalue().encode())
            except OSError:
                file.truncate(self.end)
                raise
            self.end = file.tell()


def _words(numbers: np.ndarray) -> str:
    """Return numbers as text that gives the same ones."""
    return " ".join(map(repr, np.asarray(numbers, np.float64).ravel().tolist()))


def _xyz_frame(step: int, head: str, rows: list[bytes]) -> Frame:
    """Return what is compared of a frame of extended XYZ, whose first column has names."""
    fields = re.search(r"Properties=(\S+)", head)[1].split(":")  # type: ignore[index]  # it is ours
    ends = np.cumsum([int(width) for width in fields[2::3]])
    table = np.loadtxt(rows, usecols=range(1, ends[-1]), ndmin=2).reshape(len(rows), -1)
    columns = dict(zip(fields[3::3], np.split(table, ends[1:-1] - 1, axis=1), strict=True))
    time = re.search(r"\btime=(\S+)", head)
    return Frame(
        step, -np.inf if time is None else float(time[1]), columns["pos"],
        velocities=columns.get("velo"), spins=columns.get("angular_velocity"),
    )  # fmt: skip


class VTU(Writer):
    """ParaView's points, a file per frame, and ``NAME.vtu.series`` with their times, which ParaView opens."""

    suffixes = (".vtu",)
    module = "meshio"
    note = "ParaView, a file per frame"

    def open(self, frame: Frame) -> None:
        read = importlib.import_module("meshio.vtu").read  # that for all formats ends the program where it cannot read
        self.series = self.path.with_name(f"{self.path.name}.series")
        self.files: list[dict[str, Any]] = []
        if self.series.exists():
            try:
                self.files = _listed(self.series.read_text(encoding="utf-8"))
                steps = [int(shot["name"].rpartition("_")[2].removesuffix(".vtu")) for shot in self.files]
                while self.files and self._cut(self.files[-1]["name"]):
                    self.files.pop()
                if not self.files:
                    return
                shot = read(str(self.path.with_name(self.files[-1]["name"])))
                self.last = steps[len(self.files) - 1]
                self.before = Frame(
                    self.last, float(self.files[-1]["time"]), shot.points,
                    velocities=shot.point_data.get("velocity"), spins=shot.point_data.get("angular_velocity"),
                )  # fmt: skip
            except (
                ValueError, LookupError, TypeError, AttributeError, OSError, SyntaxError, self.library.ReadError,
            ) as error:  # fmt: skip
                raise ValueError(f"{self.series} is no series of ours: remove it, or give another file.") from error

    def append(self, frame: Frame) -> None:
        name = f"{self.path.stem}_{frame.step:010d}.vtu"
        vertices = [("vertex", np.arange(len(frame.positions))[:, None])]
        mesh = self.library.Mesh(frame.positions, vertices, point_data=frame.columns())
        files = [*self.files, {"name": name, "time": frame.time}]
        part = self.path.with_name(f"{self.path.name}.part")
        try:
            self.library.write(part, mesh, file_format="vtu")
            if frame.box is not None:
                box = frame.box
                settings = {"box": box.matrix, "origin": box.origin, "periodic": np.array(box.periodic, np.float64)}
                _put_fields(part, settings)
            os.replace(part, self.path.with_name(name))  # noqa: PTH105 - as one step
            part.write_text(json.dumps({"file-series-version": "1.0", "files": files}, indent=1), encoding="utf-8")
            os.replace(part, self.series)  # noqa: PTH105 - as one step
        finally:
            part.unlink(missing_ok=True)
        self.files = files

    def _cut(self, name: str) -> bool:
        """Return whether the file of a frame is missing, or lacks its end."""
        path = self.path.with_name(name)
        return not (path.is_file() and path.read_bytes().rstrip().endswith(b"</VTKFile>"))


# How a series of ours begins.
_SERIES = '{\n "file-series-version": "1.0",\n "files": ['


def _listed(text: str) -> list[dict[str, Any]]:
    """Return the entries of a series, which may be cut if it is one of ours."""
    try:
        return json.loads(text)["files"]
    except json.JSONDecodeError:
        if not text.startswith(_SERIES[: len(text)]):
            raise
    entries, brace, _ = text[len(_SERIES) :].rpartition("}")
    return json.loads(f"{_SERIES}{entries}{brace}]}}")["files"]


def _put_fields(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Add arrays of the whole file to a .vtu, which meshio reads and does not write."""
    fields = "".join(
        f'<DataArray type="Float64" Name="{name}" NumberOfTuples="{array.size}" format="ascii">'
        f"{_words(array)}</DataArray>"
        for name, array in arrays.items()
    )
    grid = b"<UnstructuredGrid>"
    before, _, after = path.read_bytes().partition(grid)
    path.write_bytes(before + grid + f"<FieldData>{fields}</FieldData>".encode() + after)


FORMATS: tuple[type[Writer], ...] = (GSD, H5MD, VTU, ExtendedXYZ)


def writer(path: Any, frame: Frame) -> Writer:
    """Return the open file of a trajectory, by the ending of its name.

    ``frame`` is the present state, which is not written. A ValueError says that the ending is unknown, or that this
    state cannot follow the file's last frame.
    """
    path = Path(path)
    form = by_ending(FORMATS, path, f"trajectory is {str(path)!r}; give a name that ends in")
    check_free(path, overwrite=True)
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder: make it, or give another name.")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{path} cannot be written to: give another name.")
    return form(path, frame)
