# SPDX-License-Identifier: BSD-3-Clause
"""Fourier transforms of a field whose nodes are on many ranks."""

from __future__ import annotations

import math
import os
import platform
import threading
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.backends.cpu import at_most_cores, available_threads
from particlemesh.checks import alone
from particlemesh.distributed.domain import hash_of
from particlemesh.distributed.packing import sections
from particlemesh.distributed.staging import Staged
from particlemesh.distributed.transfer import (
    PENCILS,
    SLABS,
    Form,
    Part,
    Partition,
    Stage,
    Transfer,
    Work,
    fields_of,
    finished,
    kind_for,
    layout_of,
    moved,
    packing_of,
    shape_of,
    stages,
)
from particlemesh.window import transforms

AUTO = "auto"
_FEW = 16  # fields, of each of which a GPU transforms the first axis by itself


class FFT(checks.Fixed):
    r"""The discrete Fourier transform of a field on a domain, real or complex, in 1 to 3 dimensions.

    Few ranks transform slabs: all axes but the first, then, after one transpose, the first. Many ranks transform
    pencils: one axis after the other, with two transposes. Local transforms are those of
    ``scipy.fft``, or of cuFFT for CuPy arrays. A field in one dimension is transformed by one rank.

    On the CPU the modes are bit-identical for any number of ranks and any domain. Every line is transformed by the same
    function, and in the same order of axes. The mesh's ``offset`` has no effect, as in ``numpy.fft``.

    Parameters
    ----------
    domain : Domain
        Where fields are.
    world : World
        The ranks; as many as the domain has.
    real : bool
        Transform real fields, whose spectrum has half of the modes along the last axis; else complex fields.
    parts : {"auto", "slabs", "pencils"}
        How the axes are cut. By default slabs, or pencils where a model of messages says that they take a tenth less,
        or not every rank gets a slab.
    deterministic : bool
        On GPUs, transform one axis after the other, in the same order for any number of ranks. This takes longer.
        On the CPU it changes nothing.
    numbers : sequence of d sequences of int, optional
        Numbers of the modes to keep along each axis, in the order to keep them: :meth:`forward` returns no others, and
        to :meth:`inverse` others are zero. By default all, in the order of ``numpy.fft``.
    check : bool
        Let all ranks agree that their arguments are right and alike before they communicate. Without it, a call
        that raises on one rank leaves the others waiting.
    threads : int, optional
        CPU threads of this rank. By default the cores of a host are shared evenly by its ranks.

    Attributes
    ----------
    shape : tuple of int
        Nodes of the whole mesh.
    modes : tuple of int
        Modes of the whole spectrum.
    part : tuple of (int, int)
        Range of modes along each axis that this rank holds.
    parts : str
        How the axes are cut.

    Raises
    ------
    ValueError
        If the domain has another number of ranks than the world.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((4, 6), (1.0, 1.0)), world.size)
    >>> fft = pmd.FFT(domain, world)
    >>> field = np.random.default_rng(1).random((4, 6))
    >>> modes = fft.forward(field)
    >>> abs(modes - np.fft.rfft2(field)).max().round(12), abs(fft.inverse(modes) - field).max().round(12)
    (np.float64(0.0), np.float64(0.0))
    """

    def __init__(
        self, domain: Any, world: Any, real: bool = True, *, parts: str = AUTO, deterministic: bool = False,
        numbers: Any = None, check: bool = True, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.busy, self.world = threading.RLock(), world
        with world.agreement(f"FFT(cuts {hash_of(domain)}, {real=}, {parts=}, {deterministic=}, {check=})"):
            threads = at_most_cores(checks.threads(threads, None))
            self._lay_out(domain, real, parts, deterministic, numbers, check)
        fair = fair_threads(world)  # all ranks ask, also where one of them names a number
        self.threads = fair if threads is None else threads
        self._plans: dict[Any, Any] = {}  # of cuFFT, by device, dtype and lengths
        self._indices: dict[Any, Any] = {}  # of modes that are kept, by library, device and axes

    def _lay_out(self, domain: Any, real: bool, parts: str, deterministic: bool, numbers: Any, check: bool) -> None:
        self.domain, self.mesh, world = domain, domain.mesh, self.world
        self.real, self.deterministic = checks.flag(real, "real"), checks.flag(deterministic, "deterministic")
        self._check = checks.flag(check, "check")
        checks.one_of(parts, "parts", (AUTO, SLABS, PENCILS))
        nodes = layout_of(domain, world)
        self.shape = nodes.shape
        self._all = tuple(transforms.modes(n, self.real and a == len(self.shape) - 1) for a, n in enumerate(self.shape))
        self._numbers = self._all if numbers is None else _kept(numbers, self._all, self.shape)
        self._band = [
            None if len(k) == len(n) and (k == n).all() else k.astype(np.int64) % nodes
            for k, n, nodes in zip(self._numbers, self._all, self.shape, strict=True)
        ]
        self.modes = tuple(map(len, self._numbers))
        self.parts = kind_for(nodes, self.modes, self.real) if parts == AUTO else parts
        self._nodes, self._stages = nodes, stages(nodes, self.modes, self.parts)
        band = zlib.crc32(b"".join(k.tobytes() for k in self._numbers))
        self._alike = f"cuts {hash_of(domain)}, {self.parts}, modes {band}"  # what all ranks must have in common
        rank, first = world.rank, self._stages[0].layout
        after = [stage.transformed(self.modes) for stage in self._stages]
        pairs = list(zip(after, (stage.layout for stage in self._stages[1:]), strict=False))
        self._there = [Transfer(a, b, rank) for a, b in pairs]
        self._back = [Transfer(b, a, rank) for a, b in pairs]
        self._gather, self._scatter = Transfer(nodes, first, rank), Transfer(first, nodes, rank)
        self._spectra = after[-1]
        self.part: Part = self._spectra.parts[rank][0]

    def __repr__(self) -> str:
        kind = "real" if self.real else "complex"
        nodes = " x ".join(map(str, self.shape))
        return f"<FFT: {nodes} nodes, {kind}, {self.parts} on {self.world.size} ranks>"

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Modes of this rank along each axis."""
        return shape_of(self.part)

    def wavenumbers(self) -> tuple[NDArray[np.float64], ...]:
        """Return the Cartesian components of the wave vectors of this rank's modes.

        Returns
        -------
        tuple of d float64 ndarrays
            Angular wavenumbers in radians per length, which broadcast against this rank's spectrum: the local part of
            :meth:`particlemesh.Mesh.wavenumbers`.

        Raises
        ------
        ValueError
            If an axis is open.

        Examples
        --------
        >>> import particlemesh as pm, particlemesh.distributed as pmd
        >>> world = pmd.World()
        >>> fft = pmd.FFT(pmd.Domain(pm.Mesh((4, 6), (1.0, 1.0)), world.size), world)
        >>> [k.shape for k in fft.wavenumbers()]
        [(4, 1), (1, 4)]
        """
        checks.all_periodic(self.mesh.periodic)
        ndim, inverse = len(self.shape), self.mesh.box.inverse
        numbers = []
        for axis, (start, stop) in enumerate(self.part):
            along = self._numbers[axis][start:stop]
            numbers.append(along.reshape([-1 if a == axis else 1 for a in range(ndim)]))
        components = []
        for b in range(ndim):
            terms = [2 * np.pi * inverse[a, b] * n for a, n in enumerate(numbers) if inverse[a, b]]
            components.append(np.asarray(sum(terms[1:], start=terms[0])))
        return tuple(components)

    @alone
    def forward(self, field: Any) -> Any:
        r"""Return the modes of a field: ``sum_m field[m] exp(-2 pi i n m / K)``, not normalised.

        Parameters
        ----------
        field : array (..., \*part), or a tuple with one for each part of this rank
            This rank's nodes, real or complex as the transform. It is not changed.

        Returns
        -------
        complex array (..., \*spectrum_shape)
            This rank's modes, see ``part``.

        Raises
        ------
        ValueError, TypeError
            If the field has another shape or kind; then every rank raises.
        """
        arrays, form, kind = self._accepted(field, self._nodes, "field", self.real)
        with kind.scope():
            work = self._gather.after(lambda: arrays, self.world, form, self._check)
            if self.real:
                form = form._replace(dtype=np.result_type(form.dtype, np.complex64))
            for n, stage in enumerate(self._stages):
                fresh = n > 0 or not self._gather.trivial  # ours, so that it may be overwritten
                work = self._then(work, form, stage, True, n == 0, fresh)
                if n < len(self._there):
                    work = self._there[n].after(work, self.world, form, self._check)
            return finished(kind, work())

    @alone
    def inverse(self, spectrum: Any, *, norm: str = "backward") -> Any:
        r"""Return the field of modes: the inverse of :meth:`forward`.

        Parameters
        ----------
        spectrum : complex array (..., \*spectrum_shape)
            This rank's modes. It is not changed.
        norm : {"backward", "forward"}
            As for ``numpy.fft.ifftn``: "forward" does not divide by the number of nodes, which saves a pass.

        Returns
        -------
        array (..., \*part), or a tuple with one for each part of this rank
            This rank's nodes, real for real transforms.

        Raises
        ------
        ValueError, TypeError
            If the spectrum has another shape or kind, or ``norm`` is another word; then every rank raises.
        """
        arrays, form, kind = self._accepted(spectrum, self._spectra, "spectrum", False, norm)

        def given() -> list[Any]:
            return arrays

        with kind.scope():
            work: Work = given
            for n in reversed(range(len(self._stages))):
                work = self._then(work, form, self._stages[n], False, n == 0, n < len(self._stages) - 1)
                if n:
                    work = self._back[n - 1].after(work, self.world, form, self._check)
            if self.real:
                form = form._replace(dtype=np.zeros(0, form.dtype).real.dtype)
            factor = form.dtype.type(1 / math.prod(self.shape)) if norm == "backward" else None
            scaled = self._scatter.after(
                lambda: [_scaled(array, factor) for array in work()], self.world, form, self._check
            )
            return finished(kind, scaled())

    @alone
    def gather(self, spectrum: Any) -> Any:
        r"""Return all modes on every rank, which has memory for them.

        Parameters
        ----------
        spectrum : array (..., \*spectrum_shape)
            This rank's modes.

        Returns
        -------
        array (..., \*modes)
            Of the library and device of ``spectrum``.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> fft = pmd.FFT(pmd.Domain(pm.Mesh(8, 1.0), 1), pmd.World(), real=False, numbers=[[-1, 0, 1]])
        >>> abs(fft.gather(fft.forward(np.exp(2j * np.pi * np.arange(8) / 8)))).round(12)
        array([0., 0., 8.])
        """
        arrays, form, kind = self._accepted(spectrum, self._spectra, "spectrum", False)
        with kind.scope():
            whole = form.empty((*form.batch, *self.modes))
            counts = {rank: math.prod(shape_of(part)) for rank, (part,) in enumerate(self._spectra.parts)}
            buffer = form.buffer(sum(counts.values()))
            mine = form.xp.ascontiguousarray(arrays[0])
            self.world.exchange(dict.fromkeys(counts, mine), sections(buffer, counts, math.prod(form.batch)))
            packing_of([part for (part,) in self._spectra.parts]).unpack(whole, buffer)
            return kind.like(whole)

    def explain(self) -> str:
        """Return the layouts of this rank, with what it sends for a field without leading axes."""
        size = {True: "half the complex", False: "complex"}[self.real]
        lines = [f"{self!r}, {self.threads} thread{'s' * (self.threads > 1)} for each rank"]
        moves = [("from the domain", self._gather), *(("transpose", move) for move in self._there)]
        for (what, move), stage in zip(moves, self._stages, strict=True):
            if not move.trivial:
                peers = sum(count > 0 for count in move.send_counts)
                lines.append(f"  {what}: {sum(move.send_counts):,} numbers to {peers} ranks")
            lines.append(f"  axes {stage.axes} of {shape_of(stage.layout.parts[self.world.rank][0])}")
        return "\n".join([*lines, f"  spectrum: {self.spectrum_shape} of {self.modes} ({size} modes)"])

    # ---- local work -----------------------------------------------------------------------------------

    def _accepted(
        self, given: Any, layout: Partition, what: str, real: bool, norm: str = "backward"
    ) -> tuple[list[Any], Form, Staged]:
        """Return a rank's arrays and what they have in common, once all ranks have the same in common."""

        def accepted() -> tuple[str, tuple[list[Any], Form, Staged]]:
            checks.one_of(norm, "norm", ("backward", "forward"))
            arrays, form, kind = fields_of(given, layout.parts[self.world.rank], what)
            if real and form.dtype.kind == "c":
                raise TypeError(f"{what} is complex; this transform is of real fields: make it with real=False.")
            if not real and form.dtype.kind != "c":
                form = form._replace(dtype=np.result_type(form.dtype, np.complex64))
                arrays = [array.astype(form.dtype) for array in arrays]
            return f"FFT of {what}: {form.batch} fields of {form.dtype}, {norm}, {self._alike}", (arrays, form, kind)

        return self.world.alike(accepted, self._check)

    def _then(self, work: Work, form: Form, stage: Stage, forward: bool, first: bool, fresh: bool) -> Work:
        """Return work that transforms what other work returns."""
        return lambda: [self._local(form.xp, array, stage.axes, forward, first, fresh) for array in work()]

    def _local(self, xp: Any, array: Any, axes: tuple[int, ...], forward: bool, first: bool, fresh: bool) -> Any:
        """Transform axes that are whole here: the last one first on the way there, last on the way back."""
        ndim = len(self.shape)
        where = [axis - ndim for axis in reversed(axes)]
        if not forward:
            where.reverse()
        half = self.real and first
        if not array.size:
            return self._nothing(xp, array, axes, forward, half)
        fft, options = _library(xp, self.threads)
        grouped = xp is not np and not self.deterministic
        apart = grouped and ndim > 1 and math.prod(array.shape[:-ndim]) <= _FEW
        steps = [tuple(where)] if grouped else [(axis,) for axis in where]
        for step in steps:
            real = half and -1 in step
            array = array if forward else self._in_band(xp, array, step, False)
            along = tuple(sorted(step))
            if apart and step == (-ndim,) and array.size < 2**31:
                array = self._first_axis(xp, array, forward, fresh)
            elif forward:
                # Axes in the order of the sums: `fftn` transforms the last one of these first where it is real.
                array = (fft.rfftn if real else fft.fftn)(array, axes=along, overwrite_x=fresh, **options)
            else:
                sizes = {"s": [self.shape[axis] for axis in along]} if real else {}
                transform = fft.irfftn if real else fft.ifftn
                array = transform(array, axes=along, norm="forward", overwrite_x=fresh, **sizes, **options)
            array = self._in_band(xp, array, step, True) if forward else array
            fresh = True
        return array

    def _first_axis(self, xp: Any, array: Any, forward: bool, fresh: bool) -> Any:
        """Transform the mesh's first axis on a GPU, with its strides: CuPy would copy all to make it the last one."""
        from cupy.cuda import cufft

        ndim, kind = len(self.shape), {"F": cufft.CUFFT_C2C, "D": cufft.CUFFT_Z2Z}[array.dtype.char]
        nodes, lines = array.shape[-ndim], math.prod(array.shape[1 - ndim :])
        key = array.device.id, kind, nodes, lines
        if key not in self._plans:
            strides = (nodes,), lines, 1  # along a line, and from line to line
            self._plans[key] = cufft.PlanNd((nodes,), *strides, *strides, kind, lines, "C", 0, None)
        array = xp.ascontiguousarray(array)
        result = array if fresh else xp.empty_like(array)
        sign = cufft.CUFFT_FORWARD if forward else cufft.CUFFT_INVERSE
        for field, modes in zip(*(a.reshape(-1, nodes * lines) for a in (array, result)), strict=True):
            self._plans[key].fft(field, modes, sign)
        return result

    def _in_band(self, xp: Any, array: Any, axes: tuple[int, ...], crop: bool) -> Any:
        """Return the modes that are kept along some axes; or all, of which those that are not kept are zero."""
        order = sorted(axes)
        # A pass over two neighbouring axes moves half of the bytes of a pass over each.
        for some in (tuple(order[-2:]), *((axis,) for axis in order[:-2])):
            if all(self._band[axis] is None for axis in some):
                continue
            key, lengths = (None if xp is np else array.device.id, some), [len(self._all[axis]) for axis in some]
            if key not in self._indices:  # of the modes that are kept, in both axes together
                bands = [np.arange(len(self._all[a])) if self._band[a] is None else self._band[a] for a in some]
                self._indices[key] = xp.asarray(np.ravel_multi_index(np.ix_(*bands), lengths).ravel())
            index, before, after = self._indices[key], array.shape[: some[0]], array.shape[some[-1] :][1:]
            array = array.reshape(*before, -1, *after)
            if crop:
                array, lengths = xp.take(array, index, len(before)), [self.modes[axis] for axis in some]
            else:
                whole = xp.zeros((*before, math.prod(lengths), *after), array.dtype)
                whole[(..., index, *(slice(None),) * len(after))] = array
                array = whole
            array = array.reshape(*before, *lengths, *after)
        return array

    def _nothing(self, xp: Any, array: Any, axes: tuple[int, ...], forward: bool, half: bool) -> Any:
        """Return the transform of an array without nodes, which libraries refuse."""
        shape, lengths = list(array.shape), self.modes if forward else self.shape
        for axis in axes:
            at = axis - len(self.shape)
            shape[at] = lengths[axis] if shape[at] else 0
        dtype = array.dtype
        if half:
            dtype = np.result_type(dtype, np.complex64) if forward else array.real.dtype
        return xp.empty(shape, dtype)


def _kept(numbers: Any, every: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the numbers of modes that a user keeps along each axis, checked to be some of all."""
    if len(numbers) != len(shape):
        raise ValueError(f"numbers has {len(numbers)} entries; give one for each axis of {shape} nodes.")
    kept = []
    for axis, (given, nodes, known) in enumerate(zip(numbers, shape, every, strict=True)):
        band: np.ndarray = np.asarray(given)
        low = 0 if len(known) < nodes else -(nodes // 2)
        if band.ndim != 1 or band.dtype.kind not in "iu" or not ((band >= low) & (band <= nodes // 2)).all():
            raise ValueError(f"numbers of axis {axis} are not a list of integers that are modes of {nodes} nodes.")
        if len(set((band % nodes).tolist())) < len(band):
            raise ValueError(f"numbers of axis {axis} have a mode twice: give each once.")
        kept.append(band.astype(np.float64))
    return tuple(kept)


def _scaled(array: Any, factor: Any) -> Any:
    if factor is not None:
        array *= factor
    return array


class Remap(checks.Fixed):
    r"""Moves fields from one domain to another of the same mesh, such as one that was balanced anew.

    Parameters
    ----------
    source, target : Domain, or tuple of Parts
        Of one mesh, with as many ranks as the world. Parts are one for each rank, and hold each node once.
    world : World
    check : bool
        As for :class:`FFT`.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world, mesh = pmd.World(), pm.Mesh((4, 6), (1.0, 1.0))
    >>> remap = pmd.Remap(pmd.Domain(mesh, world.size), pmd.Domain(mesh, world.size, parts="slabs"), world)
    >>> remap(np.ones((4, 6))).shape
    (4, 6)
    """

    def __init__(self, source: Any, target: Any, world: Any, *, check: bool = True) -> None:
        self.world = world
        with world.agreement("Remap"):
            self._check = checks.flag(check, "check")
            before, after = layout_of(source, world), layout_of(target, world)
            if before.shape != after.shape:
                raise ValueError(f"the domains have {before.shape} and {after.shape} nodes; give one mesh.")
            self._transfer = Transfer(before, after, world.rank)
        self._alike = str(zlib.crc32(repr((before, after)).encode()))

    def __call__(self, field: Any) -> Any:
        r"""Return the rank's nodes of a field on the target.

        Parameters
        ----------
        field : array (..., \*part), or a tuple with one for each part of this rank
            The rank's nodes on the source.

        Returns
        -------
        array (..., \*part), or a tuple with one for each part of this rank
            Of the target. Where both domains are cut alike, these are the given arrays.
        """
        return moved(self._transfer, field, self.world, "remap", self._alike, self._check)


def fair_threads(world: Any) -> int:
    """Return the threads of a rank where the ranks of each host share its cores evenly; collective."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(available_threads())
    here = platform.node()
    neighbours = [cores for host, cores in world.allgather((here, sorted(usable))) if host == here]
    return max(1, len({core for cores in neighbours for core in cores}) // len(neighbours))


def _library(xp: Any, threads: int) -> tuple[Any, dict[str, Any]]:
    """Return the functions of ``scipy.fft`` for a kind of arrays, and their options."""
    if xp is np:
        import scipy.fft

        return scipy.fft, {"workers": threads}
    import cupyx.scipy.fft

    return cupyx.scipy.fft, {}
