# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan: the first node of each stencil, and the fraction.

GPUs keep particles in the caller's order, and methods make the orders that they need. The CPU sorts particles by tile
at once, because every method there needs that order (``orders/cpu/particles.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.positions import Coordinates, frame_record
from particlemesh.backends.base import As, Backend, Record, Unread, kept
from particlemesh.mesh import Mesh
from particlemesh.particles.stencil import MISSING, Axis, NodeMap, base_of, node_map
from particlemesh.particles.systems import Systems
from particlemesh.particles.workspace import Workspace

_NO_BLOCKS = Record("=15i", *[0] * 15)  # for kernels that could count but do not


class Status(NamedTuple):
    """Counts of bad particles in the last ``set_positions``.

    Attributes
    ----------
    count : int
        Particles.
    not_finite, outside : int
        Particles with a NaN or an infinity, and particles outside an open axis; both have zero weight.
    first_bad : int
        Index of the first such particle, -1 if there is none.
    non_finite_values : bool
        Whether any value was not finite. Only methods that sum in integers detect it.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> plan = pm.Plan(pm.Mesh(8, 1.0, periodic=False))
    >>> status = plan.set_positions(np.array([[0.5], [1.5], [np.nan]]), check=False).status
    >>> status.count, status.not_finite, status.outside, status.first_bad
    (3, 1, 1, 1)
    """

    count: int  # type: ignore[assignment]  # hides the tuple's method of that name
    not_finite: int
    outside: int
    first_bad: int
    non_finite_values: bool = False


class DeviceParticles:
    """Particles on a GPU: ``node`` (3, rows) int32 and ``fraction`` (3, rows), missing axes first.

    ``rows`` is the capacity; the first ``count`` of each row are in use. A particle with zero weight has
    ``node == -2**31``. If methods read orders only, both are stored packed (``particles/packed.h``), in two thirds of
    the memory, and unpacked when they are read. Unpacking returns bit-identical values.
    """

    by_block: ClassVar[None] = None  # never sorted
    kinds: ClassVar[None] = None

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int) -> None:
        self.rows = rows
        self.count = 0
        self.dtype = dtype
        self._backend = kept(backend, {})
        self._records: dict[str, tuple[Record, ...]] = {}  # of a mesh, by type of the positions
        self._packed: Any = None
        self._node: Any = None
        self._fraction: Any = None
        self.forms = False, False  # whether the particles are stored packed, and unpacked
        self._axes = (MISSING, MISSING, MISSING)
        self.status = backend.upload(np.zeros(3, np.uint64))  # not finite, outside, ~first bad

    def make_room(self, *, packed: bool) -> None:
        """Allocate memory for packed or unpacked particles."""
        backend, rows = self._backend, self.rows
        if packed and self._packed is None:
            size = rows * self.dtype.itemsize  # the words of four reals per particle
            self._packed = allocate(backend, (size,), np.dtype(np.uint32), f"the stencils of {rows:,} particles")
        elif not packed and self._node is None:
            node = allocate(backend, (3, rows), np.dtype(np.int32), f"the nodes of {rows:,} particles")
            self._fraction = allocate(backend, (3, rows), self.dtype, f"the fractions of {rows:,} particles")
            self._node = node

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in (self._packed, self._node, self._fraction) if a is not None)

    @property
    def node(self) -> Any:
        """First nodes of stencils."""
        self._unpack()
        return self._node

    @property
    def fraction(self) -> Any:
        """Centred fractions."""
        self._unpack()
        return self._fraction

    def located(self) -> tuple[bool, Any, Any]:
        """Return whether the particles are packed, and ``node`` and ``fraction``, or twice the packed array."""
        return (True, self._packed, self._packed) if self.forms[0] else (False, self.node, self.fraction)

    def _unpack(self) -> None:
        self.make_room(packed=False)
        packed, unpacked = self.forms
        if packed and not unpacked and self.count:
            kernel = self._backend.kernel(
                "particles/locate.c", "unpack_particles", self._defines(self.dtype, packed=True)
            )
            kernel(
                self.count, self._packed, self._node, self._fraction, self.count, self.rows, axes_record(self._axes)
            )  # fmt: skip
        self.forms = packed, True

    def unpack_again(self) -> None:
        """Unpack ``node`` and ``fraction`` again when they are next read, as the packed ones may have changed."""
        self.forms = self.forms[0], not self.forms[0]

    def _defines(self, coordinate: np.dtype, *, packed: bool) -> dict[str, int]:
        wide = {"REAL_IS_DOUBLE": self.dtype, "COORDINATE_IS_DOUBLE": coordinate}
        return {**{name: int(t.itemsize == 8) for name, t in wide.items()}, "PACKED": int(packed)}

    def take_over(self, backend: Backend, other: DeviceParticles) -> None:
        """Copy the particles of ``other``, which has less memory."""
        used = min(other.rows, self.rows)
        packed, _ = other.forms
        self.make_room(packed=packed)
        if used and packed:
            words = used * self.dtype.itemsize
            backend.copy(self._packed[:words], other._packed[:words])
        elif used:
            backend.copy(self._node[:, :used], other.node[:, :used])
            backend.copy(self._fraction[:, :used], other.fraction[:, :used])
        self.count, self.status = other.count, other.status
        self.forms, self._axes = (packed, not packed), other._axes

    def locate(
        self, backend: Backend, mesh: Mesh, axes: tuple[Axis, Axis, Axis], x: Coordinates, threads: Any, *,
        packed: bool = False, counting: Any = None, strays: Any = None,
    ) -> None:  # fmt: skip
        """Locate particles, and count them by the blocks of a ``Counting``; ``status`` records bad positions.

        If there are several systems, ``axes`` are those of all. Of a part of a mesh, ``strays`` lists those elsewhere,
        and they are not bad: see distributed/migration.py.
        """
        packed = packed and packable(axes, self.dtype)
        self.make_room(packed=packed)
        self.set_count(x.count, axes, packed=packed)
        backend.clear(self.status)
        if strays is not None:
            backend.clear(strays[:4])
        if x.count == 0:
            return
        defines = self._defines(x.dtype, packed=packed) | {"COUNTING": int(counting is not None)}
        work: As = Unread(self.status)
        blocks = _NO_BLOCKS
        if counting is not None:
            work, blocks = As(counting.work, np.uint32), counting.blocks.record
            defines |= counting.defines
        of_systems: tuple[Any, ...] = ()
        if x.systems is not None:
            defines["SYSTEMS"] = 1
            of_systems = x.system, x.systems.count, x.systems.pitch
        part = any(axis.part for axis in axes)
        if part:
            defines["PART"] = 1
        of_strays: tuple[Any, ...] = ()
        if strays is not None:
            defines["STRAYS"] = 1
            of_strays = strays, strays.shape[0] // 4 - 1
        kernel = self._backend.kernel("particles/locate.c", "locate", defines)
        records = self._records.get(x.dtype.char)
        if records is None:
            of_one = axes if x.systems is None else x.systems.axes
            exact = node_map(of_one, mesh.box, x.dtype)
            records = self._records[x.dtype.char] = (
                nodes_record(exact), frame_record(mesh.box), axes_record(axes, exact.base, of_one, part=part)
            )  # fmt: skip
        unused = Unread(self.status)
        outputs = (unused, unused, self._packed) if packed else (self._node, self._fraction, unused)
        kernel(
            x.count, *x.arguments(), *outputs, self.status, work, *of_systems, *of_strays, x.count, self.rows,
            x.record(), *records, blocks,
        )  # fmt: skip

    def set_count(self, count: int, axes: tuple[Axis, Axis, Axis], *, packed: bool) -> None:
        """Set the number of particles and their layout, once the kernels that locate them are submitted."""
        self.count, self._axes = count, axes
        self.forms = packed, not packed

    def place(self, workspace: Workspace) -> None:
        """Do nothing: particles are in place."""

    def post_status(self, backend: Backend) -> Callable[[], Status]:
        """Send the status record to the host, and return what reads it, which waits for the device."""
        return post_status(backend, self.status, self.count)


def post_status(backend: Backend, record: Any, count: int) -> Callable[[], Status]:
    """Send the record of ``count`` particles to the host, and return what reads it, which waits for the device."""
    posted = backend.post(record)
    return lambda: _status_of(posted.read()[0], count)


def _status_of(record: np.ndarray, count: int) -> Status:
    not_finite, outside, first = record.tolist()
    bad = not_finite + outside
    return Status(count, not_finite, outside, int(~np.uint64(first)) if bad else -1)


def nodes_record(exact: NodeMap) -> Record:
    """Return ``Nodes`` of particles/locate.c."""
    reals = (exact.slopes.ravel(), exact.centre, exact.edge, exact.lower, exact.upper, [exact.unit])
    return Record(f"=3q40{exact.slopes.dtype.char}", *exact.fold, *np.concatenate(reals))


def axes_record(
    axes: tuple[Axis, Axis, Axis], base: tuple[int, int, int] = (0, 0, 0),
    of_one: tuple[Axis, Axis, Axis] | None = None, *, part: bool = False,
) -> Record:  # fmt: skip
    """Return ``Axes`` of particles/locate.c; ``of_one`` are those of one of several systems."""
    numbers = *(a.count for a in of_one or axes), *base, *base_of(axes)
    if part:
        numbers = *numbers, *(a.low for a in axes), *(a.low + a.extent - 1 for a in axes)
    return Record(f"={len(numbers)}i", *numbers)


def packable(axes: tuple[Axis, Axis, Axis], dtype: np.dtype) -> bool:
    """Return whether the first nodes of stencils fit the bits of packed particles."""
    most = 2 ** (21 if dtype.itemsize == 8 else 18)  # AXIS_BITS of particles/packed.h
    return all(a.low + a.extent - b <= most for a, b in zip(axes, base_of(axes), strict=True))


def lost_fraction(workspace: Workspace, systems: Systems | None = None, outside: float = 0.0) -> np.ndarray:
    """Return for each particle the sum of its weights at nodes outside the field; ``outside`` for bad particles."""
    particles, count = workspace.particles, workspace.count
    node = workspace.backend.download(particles.node)[:, :count]
    fraction = workspace.backend.download(particles.fraction)[:, :count].astype(np.float64)
    whole = np.ones(count)
    inside = np.ones(count)
    for a, axis in enumerate(workspace.axes):
        if axis.support == 1 and axis.size == 1 and axis.scale == 0:
            continue  # a missing axis
        weights = workspace.window.weights(fraction[a])
        at = node[a][:, None].astype(np.int64) + np.arange(axis.support)
        begin, end = 0, axis.size
        if systems is not None and a == 3 - workspace.mesh.ndim:
            at -= (node[a][:, None] - systems.axes[a].low) // systems.pitch * systems.pitch
            begin, end = systems.kept
        exists = np.ones_like(at, bool) if axis.wraps else (at >= begin) & (at < end)
        whole *= weights.sum(-1)
        # Where every node exists both sums are the same number, so that the loss is exactly zero.
        inside *= np.where(exists.all(-1), weights.sum(-1), (weights * exists).sum(-1))
    weighted = node[2] != -(2**31)
    return np.where(weighted, whole - inside, outside)
