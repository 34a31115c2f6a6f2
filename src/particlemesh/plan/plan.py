# SPDX-License-Identifier: BSD-3-Clause
"""The plan: sizes at construction, positions once per configuration, values in each call."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, Self

import numpy as np

from particlemesh import backends, checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of, recorder_of
from particlemesh.arrays.operands import COMPLEX
from particlemesh.arrays.positions import Coordinates, arrays_given, coordinates
from particlemesh.backends.base import Backend
from particlemesh.backends.cpu import at_most_cores
from particlemesh.backends.tapes import Tapes
from particlemesh.checks import alone, in_use
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import BY_ITSELF, KEYWORDS, METHODS, Choice
from particlemesh.ghosts import check_enough
from particlemesh.mesh import Mesh, mesh_of
from particlemesh.orders import block_order, sorted_particles
from particlemesh.particles.located import Status, lost_fraction, packable
from particlemesh.particles.systems import Boxes, Systems, assign_systems
from particlemesh.particles.workspace import Memory, Workspace
from particlemesh.plan import calls
from particlemesh.plan import integers as sums
from particlemesh.plan.calls import Located, PlanMethods, Rooms, Tracked
from particlemesh.walk.by_block import cells_to_sort_by
from particlemesh.window import DEFAULT, Window, window_of

_CELLS_FOR = functools.partial(cells_to_sort_by, tuple(itertools.chain(*METHODS.values())))
_COUNTS = {2: "two", 3: "three"}


class Plan(checks.Fixed):
    """Spread and interpolate on one mesh with one window, for any number of particle sets and values.

    Construction depends on sizes, :meth:`set_positions` on positions, the other methods on values. Only one thread may
    use a plan at a time: a call from a second thread raises a RuntimeError. A plan enqueues GPU work on the caller's
    current stream or queue. Only ``set_positions`` (unless ``check=False``), ``status``, ``check``, ``lost``, the
    trials of ``"measure"``, and copies from and to the host wait for the device.

    Parameters
    ----------
    mesh : Mesh
        The nodes and their box.
    window : Window or str
        The window, or its name (``"bspline6"``, ``"cic"``, ``"m4prime"``, ...); ``"bspline4"`` by default.
    dtype : {"float32", "float64"}, optional
        Real type of the values. By default that of the first positions.
    components : int
        Expected reals per particle (2 for complex values); calls may have any number.
    applications : int
        Expected spreads or interpolations per configuration; the automatic choice uses it.
    method, interpolation : str
        Method of each direction, by name. ``"auto"`` selects the method with the least predicted time. ``"measure"``
        times the fastest candidates on the plan's positions with generated values, and waits for the device.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default the device of the arrays. If named, host arrays are copied there and back.
    deterministic : bool
        Use reproducible methods only: equal calls return bit-identical results. If the mesh is a part of another
        (:meth:`Mesh.part`), use those whose results also do not depend on how that is cut.
    threads : int, optional
        Largest number of CPU threads, 1 to 4096; by default it depends on the number of particles. The plan never uses
        more threads than the cores available to this process.
    options : dict of dicts, optional
        Options by method name: ``{"single_mesh": {"threads_per_row": 8}}``. The documentation's table of methods
        lists them.
    systems : int, optional
        Number of systems, each with particles of its own on a mesh of this shape and box. One call serves all of them:
        ``set_positions`` takes ``system``, the index of each particle's system, and fields have the shape
        ``(..., systems, *mesh.field_shape)``.
    order : {"caller", "sorted"}
        Order of values in calls. The plan's order, ``"sorted"``, is faster. Callers then sort their arrays by
        :attr:`order`, which has the index in the caller's order of each particle.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.

    References
    ----------
    The three phases follow [barnett2019]_. Each method has its own reference.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> mesh = pm.Mesh(shape=(8, 8, 8), box=(1.0, 1.0, 1.0))
    >>> plan = pm.Plan(mesh, window="bspline4").set_positions([[0.5, 0.5, 0.5], [0.1, 0.9, 0.3]])
    >>> field = plan.spread(np.array([1.0, -3.0]))
    >>> float(round(field.sum(), 12))
    -2.0
    >>> plan  # doctest: +ELLIPSIS
    <Plan: 8 x 8 x 8 nodes, bspline4, float64 on cpu, 2 particles; method ..., interpolation 'auto'>

    Values in the plan's order:

    >>> positions, charges = np.random.default_rng(1).random((100, 3)), np.arange(100.0)
    >>> plan = pm.Plan(mesh, window="bspline4", order="sorted").set_positions(positions)
    >>> positions, charges = positions[plan.order], charges[plan.order]
    >>> field = plan.spread(charges)
    >>> abs(field - pm.spread(positions, charges, mesh)).max().round(9)
    np.float64(0.0)
    """

    def __init__(
        self,
        mesh: Mesh,
        window: Window | str = DEFAULT,
        *,
        dtype: Any = None,
        components: int = 1,
        applications: int = 1,
        method: str = "auto",
        interpolation: str = "auto",
        backend: str | None = None,
        deterministic: bool = False,
        threads: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        order: str = "caller",
        systems: int | None = None,
    ) -> None:
        mesh = mesh_of(mesh)
        self.mesh = mesh
        self.window = window_of(window)
        check_enough(mesh, self.window.support)
        self._dtype: Any = None if dtype is None else checks.real_type(dtype)
        self.components = checks.integer(components, "components", 1, 2**31)
        self.applications = checks.integer(applications, "applications", 1, 2**63)
        self.threads = at_most_cores(checks.threads(threads, backend))
        self.deterministic = checks.flag(deterministic, "deterministic")
        choice = Choice({"spread": method, "interpolate": interpolation}, self.deterministic)
        for what, name in choice.names.items():
            checks.method_name(name, METHODS[what], KEYWORDS[what], BY_ITSELF)
        self.options = candidates.options_of(options, METHODS.values())
        self._sorted = checks.one_of(order, "order", ("caller", "sorted")) == "sorted"
        self._order: Any = None  # of sorted particles, in the user's kind
        self._named = backend
        self.uploads = backend is not None  # whether host arrays are copied to the backend, and results back
        if backend is not None:
            for what, name in choice.names.items():
                candidates.check_backend(METHODS[what], name, KEYWORDS[what], backend)
        self._device: Any = None if backend is None else backends.current(backend)
        self.systems: int | None = None if systems is None else checks.integer(systems, "systems", 1, 2**31)
        if self.systems is not None:
            checks.not_a_part(mesh, "systems")
        self.stack = None if self.systems is None else Systems(mesh, self.window, self.systems)
        self.field_shape: tuple[int, ...] = (
            mesh.field_shape if self.systems is None else (self.systems, *mesh.field_shape)
        )
        self._boxes: Boxes | None = None  # of systems, where they differ from the mesh's
        self._kind: Kind | None = None
        self._tracked = Tracked()
        self._rooms = Rooms(mesh, self._sorted)
        self._tapes = Tapes()
        self.methods = PlanMethods(self, choice, self._tapes)
        self._chosen_for = 0  # particles
        self._reserved = False  # methods stay, because their memory is allocated
        self._token: Any = None  # the stream of the last call
        self._closed = False
        self.busy = threading.RLock()
        # None until backend and dtype are known; without particles until positions are set.
        self._workspace: Workspace | None = None
        if self._device is not None and self._dtype is not None:
            self._workspace = self._bare(self._device, self._dtype)

    __init__.__qualname__ = "Plan"  # the name in Python's errors about arguments

    # ---- positions ----------------------------------------------------------------------------------------

    @alone
    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles, so that later calls allocate nothing.

        Many methods allocate memory for derivatives in their first such call. Before you capture
        :meth:`Plan.spread_gradient`, :meth:`Plan.gradient` or second derivatives, call them once. So does any call of a
        plan with ``systems`` for their fields.

        The plan needs its backend and dtype: give ``backend`` and ``dtype``, or set positions first.

        Parameters
        ----------
        count : int
            Particles.

        Raises
        ------
        ValueError
            If the backend or dtype is not known yet.

        Examples
        --------
        >>> import particlemesh as pm
        >>> plan = pm.Plan(pm.Mesh(16, 1.0), "cic", backend="cpu", dtype="float64")
        >>> plan.reserve(1000)
        >>> plan.capacity
        1000
        """
        self._open()
        count = checks.integer(count, "count", 0, 2**62)
        workspace = self._workspace
        if workspace is None:
            raise ValueError("reserve needs a backend and a dtype: give Plan backend= and dtype=.")
        self.methods.choice.check_reserve(self.count)
        backend = workspace.backend
        with backend.scope():
            self.follow()
            if workspace.particles is None or workspace.capacity < count:
                room = self._rooms.larger(workspace, count)
                # Methods get larger memory; their preparation is not copied there.
                self._workspace = workspace = workspace.over(room, room.count)
                workspace.memory.counted = None
                self.methods.prepared = frozenset()
                self._tapes.clear()  # they hold addresses of the old memory
            methods = [self.methods.of(what) for what in METHODS]
            self._rooms.reserve(workspace, packed=self.methods.pack(count))
            if self._sorted:
                workspace.particles.reserve(workspace, _CELLS_FOR, stencils=not self.methods.pack(count))
            for method in methods:
                method.reserve(workspace)
            self._reserved = True

    @alone
    def set_positions(self, positions: Any, *, system: Any = None, boxes: Any = None, check: bool = True) -> Self:
        """Set the particles' positions and do all work that depends on them only.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Positions in the user's length unit, with any strides; never modified. A list is converted by NumPy to
            points (N, d). A tuple has one array or list per axis. Periodic axes fold any finite number; an open axis
            allows ``[origin, origin + length]``, both ends included.
        system : int array (N,)
            The system of each particle, for a plan with ``systems``; any order. Indices on the host are always checked.
            Particles with an index of no system count as outside on a GPU.
        boxes : array (S, d) or (S, d, d), optional
            The box of each system on a periodic mesh, if they differ: lengths, or lattice vectors as rows. Their origin
            is that of the mesh's box. Derivatives are per user length in each box. Arrays on a GPU are read back;
            :class:`particlemesh.kernels.DeviceBoxes` stay there.
        check : bool
            If False, never synchronise and, after :meth:`reserve`, never allocate. Particles that are not finite or
            off an open axis then get zero weight and are recorded in :attr:`status`. A CUDA graph can capture such
            a call. The plan has no notice of replays: after a capture, each call outside of captures prepares
            again. Graphs reuse the preparation of graphs captured before them: replay them in that order.

        Returns
        -------
        Plan
            The plan itself.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis (the message names the first), or the shape is
            wrong. The plan keeps its previous positions.
        TypeError
            If positions are not real numbers of a supported dtype.
        """
        self._open()
        checks.flag(check, "check")
        recorder = recorder_of(*arrays_given(positions))
        if recorder is not None:
            recorder.track(self, positions, system=system, boxes=boxes, check=check)
            return self
        if system is None and boxes is None and self._set_from_tape(positions, check):
            return self
        kind, backend, x = coordinates(positions, self.mesh.ndim, self.backend, upload=self.uploads)
        if self._reserved and not check and x.count > self.capacity:
            raise ValueError(
                f"{x.count} particles, but room is reserved for {self.capacity}: reserve({x.count}) first."
            )
        with kind.scope(x.user), backend.scope(*x.arrays):
            located = self.locate(kind, backend, x, system, boxes, check=check, positions=positions)
            backend.mark(*x.arrays)
            self._check_located(located, positions)
            self.take(located, x, check=check)
        return self

    @property
    def count(self) -> int:
        """Number of particles."""
        return 0 if self._workspace is None else self._workspace.count

    @property
    def capacity(self) -> int:
        """Number of particles that fit without allocation."""
        return 0 if self._workspace is None else self._workspace.capacity

    @property
    def order(self) -> Any:
        """Index in the caller's order of each particle, for plans with ``order="sorted"``.

        An integer array (N,) of the library and device of the positions. ``values[plan.order]`` are in the order of
        the values of :meth:`spread` and :meth:`interpolate`. Particles with zero weight come last.

        The array is the plan's memory, and the next :meth:`set_positions` overwrites it. NumPy arrays are read-only.
        Never write to arrays on a GPU: kernels use their numbers unchecked as indices. CPU tensors are copies. If the
        positions were copied from the host to a GPU, the array is a host copy, which waits for the device.

        Raises
        ------
        RuntimeError
            If the plan has ``order="caller"``, or no positions yet.
        """
        if not self._sorted:
            raise RuntimeError("this plan keeps your order; to have a sorted one, make it with order='sorted'.")
        self.ready()
        if self._order is None:
            with self.backend.scope():
                self.follow()
                host = self.backend.download(self.particles.order)
                self._order = host if self._kind is None else self._kind.wrap(host)
        elif self._kind is not None:
            with self._kind.scope(self._order), self.backend.scope(self._order):
                self.follow()
        return self._order

    @property
    @alone
    def status(self) -> Status:
        """Counts of bad particles in the last :meth:`set_positions`; waits for the device."""
        self.ready()
        with self.backend.scope():
            self.follow()
            status = self.particles.post_status(self.backend)()
        return status._replace(non_finite_values=self.methods.non_finite_values())

    def check(self) -> None:
        """Raise an error for bad positions and values that unchecked calls have recorded.

        Raises
        ------
        ValueError
            If positions were not finite or off an open axis, or if values were not finite and the field is NaN.
        """
        status = self.status
        if status.not_finite or status.outside:
            raise checks.bad_positions(status, None, self.mesh, unchecked=True, systems=self.systems)
        if status.non_finite_values:
            raise ValueError("values were not all finite; the field is NaN everywhere: give finite values.")

    # ---- values -------------------------------------------------------------------------------------------

    def spread(self, values: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread values onto the mesh: ``field[m] = sum_p W(x_m - x_p) values[p]``.

        Parameters
        ----------
        values : array (..., N)
            Real or complex.
        out : array (..., *mesh.field_shape), optional
            Written (or added to, with ``accumulate``) and returned; any memory order.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        array (..., *mesh.field_shape)
            Array of the library, device and dtype of ``values``; not divided by any volume.
        """
        return self._spread("spread", 0, values, out, accumulate)

    def spread_gradient(self, vectors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread vectors with the window's derivative: the exact adjoint of :meth:`gradient`.

        Parameters
        ----------
        vectors : array (..., N, d)
            Real or complex, per user length unit.
        out, accumulate
            As for :meth:`spread`.

        Returns
        -------
        array (..., *mesh.field_shape)
        """
        return self._spread("spread_gradient", 1, vectors, out, accumulate)

    def spread_hessian(self, tensors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread tensors with the window's second derivatives: the exact adjoint of :meth:`hessian`.

        Only the symmetric part of each tensor counts.

        Parameters
        ----------
        tensors : array (..., N, d, d)
            Real or complex, per user length unit squared.
        out, accumulate
            As for :meth:`spread`.

        Returns
        -------
        array (..., *mesh.field_shape)

        Raises
        ------
        MethodNotSuitable
            If the plan names a method without second derivatives.
        """
        return self._spread("spread_hessian", 2, tensors, out, accumulate)

    def interpolate(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field at the particles: ``values[p] = sum_m W(x_m - x_p) field[m]``.

        Parameters
        ----------
        field : array (..., *mesh.field_shape)
            Real or complex, any memory order. A NaN or infinite node spoils every particle whose stencil has it. With
            the method ``walk`` it also spoils some particles whose stencils begin up to 15 nodes away.
        out : array (..., N), optional

        Returns
        -------
        array (..., N)
        """
        return self._interpolate("interpolate", (0,), field, (out,))

    def gradient(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's gradient at the particles, per user length unit.

        Parameters
        ----------
        field : array (..., *mesh.field_shape)
        out : array (..., N, d), optional

        Returns
        -------
        array (..., N, d)
        """
        return self._interpolate("gradient", (1,), field, (out,))

    def hessian(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's second derivatives at the particles, per user length unit squared.

        They are the derivatives of the window's polynomials: of ``"cic"`` and other piecewise linear windows only the
        mixed ones differ from zero. Where they jump, at the ends of the pieces, a particle has those of its piece.

        The plan takes a method with second derivatives: its own if that has them, else the one of those with the least
        predicted time. On the CPU they take one gradient per axis, on GPUs one pass.

        Parameters
        ----------
        field : array (..., *mesh.field_shape)
        out : array (..., N, d, d), optional

        Returns
        -------
        array (..., N, d, d)
            Symmetric.

        Raises
        ------
        MethodNotSuitable
            If the plan names a method without second derivatives.

        Examples
        --------
        The field x**2 on open nodes, whose second derivative is 2:

        >>> import numpy as np, particlemesh as pm
        >>> mesh = pm.Mesh(9, pm.Box(2.0, periodic=False))
        >>> plan = pm.Plan(mesh, "tsc").set_positions([0.9, 1.2])
        >>> plan.hessian(mesh.nodes(0) ** 2).round(12)
        array([[[2.]],
        <BLANKLINE>
               [[2.]]])
        """
        return self._interpolate("hessian", (2,), field, (out,))

    def value_and_gradient(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Interpolate value and gradient in one pass; see :meth:`interpolate` and :meth:`gradient`."""
        return self._interpolate_together("value and gradient", 2, field, out)

    def value_gradient_hessian(self, field: Any, *, out: tuple[Any, Any, Any] | None = None) -> tuple[Any, Any, Any]:
        """Interpolate value, gradient and second derivatives in one call; see :meth:`hessian`."""
        return self._interpolate_together("value, gradient and hessian", 3, field, out)

    @alone
    def lost(self, values: Any, *, outside: bool = False) -> Any:
        """Sum the values that :meth:`spread` loses beyond open faces; waits for the device.

        Parameters
        ----------
        values : array (..., N)
        outside : bool
            Whether to add the values of particles outside an open axis, which unchecked positions may have.

        Returns
        -------
        NumPy array (...)
            ``sum_p values[p] * (weights of p outside the mesh)``, in double precision.
        """
        self.ready()
        checks.flag(outside, "outside")
        upload = self.uploads
        operand = operands.take(values, (self.count,), 1, self.dtype, self.backend, "values", upload=upload)
        with operand.kind.scope(values), self.backend.scope(operand.native):
            if self.methods.captured:
                self.workspace.forget()
            host = self.backend.download(operand.native)
            return host @ lost_fraction(self.workspace, self.stack, float(outside))

    def empty_field(self, *batch: int, layout: str = "planar", dtype: Any = None) -> Any:
        """Return an uninitialised field of shape ``(*batch, *mesh.field_shape)``.

        Parameters
        ----------
        *batch : int
            Batch axes.
        layout : {"planar", "interleaved"}
            Place of the batch axes in memory: first, or last (the values of one node are adjacent).
        dtype : numpy.dtype, optional
            The plan's real type by default, or the complex type of the same precision.
        """
        self._open()
        if self.dtype is None or self.backend is None:
            raise ValueError("this plan has no backend or dtype yet: set positions, or give backend= and dtype=.")
        checks.one_of(layout, "layout", ("planar", "interleaved"))
        number = np.dtype(self.dtype if dtype is None else dtype)
        checks.one_of(number, "dtype", (self.dtype, COMPLEX[self.dtype]))
        sizes = tuple(checks.integer(n, "batch", 0, 2**62) for n in batch)
        kind = self._kind
        host = kind is not None and kind.home == "cpu"
        empty = np.empty if host or self.backend.name == "cpu" else self.backend.empty
        shape = self.field_shape
        with self.backend.scope():
            if layout == "planar":
                field = empty(sizes + shape, number)
            else:
                field = empty(shape + sizes, number)
                order = (*range(len(shape), len(shape) + len(sizes)), *range(len(shape)))
                field = field.transpose(order)
            return field if kind is None else kind.wrap(field)

    # ---- sums in integers, which no order of particles and no cut of the mesh changes --------------------

    @alone
    def bounds(self, values: Any, *, derivative: int = 0) -> Any:
        """Return what bounds the sums of :meth:`spread_integers`; never waits for the device.

        Entry 0 is an exponent n: of values below 1 any node gets a sum below 2**n. It follows from the window and the
        largest number of particles in one cell, which are those whose stencils begin at the same node. Each further
        entry is an exponent e for one real of the values: all of them are below 2**e. The array's elementwise maximum
        over parts does not depend on the cuts, if all particles of a cell are in one part.

        Parameters
        ----------
        values : array (..., N), or (..., N, d) or (..., N, d, d) for derivatives
            As for :meth:`spread`, :meth:`spread_gradient` or :meth:`spread_hessian`.
        derivative : {0, 1, 2}
            Which of these.

        Returns
        -------
        int32 array (1 + R,)
            Array of the library and device of ``values``. R is the number of fields, twice that for complex values,
            where each real part is followed by its imaginary part. An entry is 2**20 if any value was not finite.
        """
        return sums.bounds(self, values, derivative)

    @alone
    def spread_integers(
        self, values: Any, bounds: Any, *, derivative: int = 0, out: Any = None, accumulate: bool = False
    ) -> Any:
        """Spread values into a field of 64-bit integers.

        Each particle's contribution to a node is multiplied by ``2**(62 - bounds[0] - bounds[1 + r])`` for real r and
        rounded to an integer. Sums of integers are exact, in any order. They cannot overflow if ``bounds`` holds for
        all particles of the whole mesh.

        Parameters
        ----------
        values, derivative
            As for :meth:`bounds`.
        bounds : int32 array (1 + R,)
            From :meth:`bounds`, or the maximum of such arrays over parts.
        out : int64 array of the result's shape, optional
            Written (or added to, with ``accumulate``) and returned; any memory order.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        int64 array (..., *mesh.field_shape), or (..., 2, *mesh.field_shape) for complex values
            Array of the library and device of ``values``.
        """
        return sums.spread(self, values, bounds, derivative, out, accumulate)

    @alone
    def convert(self, integers: Any, bounds: Any, *, dtype: Any = None, out: Any = None) -> Any:
        """Return the field that integers stand for: ``integers * 2**(bounds[0] + bounds[1 + r] - 62)``, rounded once.

        Parameters
        ----------
        integers : int64 array (..., *nodes), or (..., 2, *nodes) for a complex dtype
            From :meth:`spread_integers`, or sums of these. The last d axes may have any lengths.
        bounds : int32 array (1 + R,)
            The same as for :meth:`spread_integers`.
        dtype : dtype, optional
            The plan's real type by default, or the complex type of the same precision.
        out : array of the result's shape, optional
            Written and returned; any memory order.

        Returns
        -------
        array (..., *nodes)
            NaN for each real whose bound says that values were not finite.
        """
        return sums.convert(self, integers, bounds, dtype, out)

    # ---- reports and lifetime -----------------------------------------------------------------------------

    @alone
    def explain(self) -> str:
        """Return a table of each method's predicted or measured time, or its reason for declining.

        A star marks the chosen methods. *Prepare* runs once per configuration, *apply* once per call. The third
        column is one *prepare* and the plan's ``applications`` times *apply*.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> plan = pm.Plan(pm.Mesh((8, 8), (1.0, 1.0)), "cic")
        >>> plan = plan.set_positions(np.random.default_rng(1).random((100, 2)))
        >>> print(plan.explain())  # doctest: +ELLIPSIS
        spread ...
        """
        self.ready()
        with self.backend.scope():
            table = self.methods.explain()
        return table + (f"\norder: {self.particles}, sorted by set_positions" if self._sorted else "")

    def to_xarray(self, field: Any, **labels: Any) -> Any:
        """Return a field as an xarray.DataArray with the coordinates of the plan's nodes.

        See :func:`particlemesh.adapters.xarray.to_xarray` for ``labels``: names and units.
        """
        adapter = importlib.import_module("particlemesh.adapters.xarray")  # by name: it stands above plans
        return adapter.to_xarray(self.mesh, field, **labels)

    @property
    def nbytes(self) -> int:
        """Bytes of the plan's memory."""
        held = () if self._workspace is None else (self.particles, self._rooms.spare, self._workspace.memory)
        return sum(int(x.nbytes) for x in held if x is not None)  # orders lie in scratch memory

    def __repr__(self) -> str:
        nodes = " x ".join(map(str, self.field_shape))
        where = "any backend" if self.backend is None else self.backend.name
        dtype = "float32 or float64" if self.dtype is None else self.dtype.name
        state = "closed" if self._closed else f"{self.count:,} particles" if self.particles else "no particles"
        return f"<Plan: {nodes} nodes, {self.window.name}, {dtype} on {where}, {state}; {self.methods}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without positions.
        options: dict[str, Any] = dict(
            dtype=None if self.dtype is None else self.dtype.name, components=self.components,
            applications=self.applications, method=self.methods.choice.names["spread"],
            interpolation=self.methods.choice.names["interpolate"], backend=self._named,
            deterministic=self.deterministic, threads=self.threads,
            options={name: dict(chosen) for name, chosen in self.options.items()},
            order="sorted" if self._sorted else "caller", systems=self.systems,
        )  # fmt: skip
        return functools.partial(type(self), self.mesh, self.window, **options), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the plan's memory. Later calls raise a RuntimeError; closing twice is allowed."""
        self._closed = True
        self._workspace = self._rooms.spare = self._order = self._boxes = None
        self.methods.known.clear()
        self._tapes.clear()

    # ---- for other parts of the library -------------------------------------------------------------------

    @property
    def backend(self) -> Any:
        """Backend of the plan; None until it is named or positions are set."""
        return self._device if self._workspace is None else self._workspace.backend

    @property
    def dtype(self) -> Any:
        """Real type of the values; None until it is named or positions are set."""
        return self._dtype if self._workspace is None else self._workspace.dtype

    @property
    def particles(self) -> Any:
        """The located particles; None without positions."""
        return None if self._workspace is None else self._workspace.particles

    workspace: Any = property(attrgetter("_workspace"), doc="All that methods see of the plan; None without a backend.")
    tracked: Any = property(attrgetter("_tracked"), doc="Positions that derivatives are taken by.")
    boxes: Any = property(attrgetter("_boxes"), doc="Boxes of systems where they differ from the mesh's, or None.")

    def track(self, positions: Any) -> None:
        """Take derivatives of later calls by these positions: one tensor, or a tuple of one per axis."""
        self._tracked = Tracked(arrays_given(positions))

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        token = self._workspace.backend.follow(self._token)  # type: ignore[union-attr]  # there is one
        if token is not self._token:
            self._token = token
        return token

    def ready(self) -> None:
        """Check that the plan is open and has particles."""
        workspace = self._workspace
        if workspace is None or workspace.particles is None:
            self._open()
            raise RuntimeError("this plan has no particles yet: call set_positions first.")

    def _spread(self, verb: str, order: int, values: Any, out: Any, accumulate: bool) -> Any:
        """Spread the adjoint of derivatives of an order."""
        self.ready()
        checks.flag(accumulate, "accumulate")
        call = functools.partial(calls.spread, self, order, values, out, accumulate)
        return self._again((verb, bool(accumulate)), values, (out,), call)

    def _interpolate_together(self, verb: str, count: int, field: Any, out: Any) -> Any:
        """Interpolate the first ``count`` results in one call."""
        self.ready()
        outs = (None,) * count if out is None else out
        if not isinstance(outs, (tuple, list)):
            raise TypeError(f"out is of type {type(out).__name__}; {verb} need a tuple of {_COUNTS[count]} arrays.")
        if len(outs) != count:
            raise ValueError(f"out has {len(outs)} arrays; {verb} need {_COUNTS[count]}.")
        operands.check_apart(*outs)
        return self._interpolate(verb, range(count), field, tuple(outs))

    def _interpolate(self, verb: str, orders: Sequence[int], field: Any, outs: tuple[Any, ...]) -> Any:
        """Interpolate derivatives of one or several orders at once; an output of None is a new array."""
        self.ready()
        return self._again(verb, field, outs, functools.partial(calls.interpolate, self, orders, field, outs))

    def _again(self, what: Any, given: Any, outs: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Make a call with an input; from the third call for arrays of the same form on, replay its launches."""
        kind = kind_of(given)
        recorder = recorder_of(given, *self._tracked) if self._tracked or kind is None or kind.records else None
        if recorder is not None:
            return recorder.record(self, what, given, *outs)
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            # Calls on the host are not taped. A capture and calls after it prepare again.
            if kind is None or kind.home == "cpu" or self.methods.captured:
                return call()
            with kind.scope(given):
                if self.backend.capturing():
                    return call()
                if outs[0] is None and all(out is None for out in outs[1:]):
                    new = functools.partial(kind.new, like=given, backend=self.backend)
                    return self._tapes.again(self, what, (given,), call, state=self.methods, new_array=new)
                return self._tapes.again(self, what, (given, *outs), call, outs if outs[1:] else outs[0], self.methods)
        finally:
            self.busy.release()

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    # ---- how positions become particles -------------------------------------------------------------------

    def _bare(self, backend: Backend, dtype: np.dtype) -> Workspace:
        """Return a workspace without particles."""
        mesh = self.mesh if self.stack is None else self.stack.stacked
        return Workspace(
            mesh, self.window, dtype, self.components, self.applications, 0, self.deterministic, backend,
            self.options, self._sorted, self.threads,
            memory=Memory(backend, self._tapes.clear, self.methods.without_scratch),
        )  # fmt: skip

    def locate(
        self, kind: Kind, backend: Backend, x: Coordinates, system: Any, boxes: Any, *, check: bool, strays: Any = None,
        positions: Any = None,
    ) -> Located:  # fmt: skip
        """Locate particles; with ``check`` those that the plan has stay as they are.

        Coordinates that the user's ``positions`` hold are located from a tape if these lie where earlier ones did. With
        ``strays``, memory of ``distributed/migration.py``, a GPU lists particles that are elsewhere.
        """
        self._token = backend.follow(self._token)
        before = self._workspace or self._bare(backend, x.dtype if self._dtype is None else self._dtype)
        of_boxes = None
        if self.stack is not None or system is not None or boxes is not None:
            of_boxes = assign_systems(x, self.stack, system, boxes, before, upload=self.uploads, before=self._boxes)
        room = self._rooms.room(before, x.count, check)
        workspace = before.over(room, x.count)
        packed = backend.name != "cpu" and self.methods.pack(x.count) and packable(before.axes, before.dtype)
        options = {} if strays is None else {"strays": strays}

        def locate() -> tuple[bool, Any, Any]:
            counting = None if backend.name == "cpu" else block_order.counting(workspace)
            room.locate(
                backend, self.mesh, workspace.axes, x, self.threads, packed=packed, counting=counting, **options
            )
            return packed, counting, room.post_status(backend) if check else None

        columns = arrays_given(positions)
        stays = positions is not None and self._stays(room, x.count)
        # Kernels on a tape read the caller's memory, no converted copies.
        taped = stays and all(any(backend.same_memory(array, c) for c in columns) for array in x.arrays)
        if taped and not backend.capturing():
            packed, counting, status = self._tapes.again(self, self._locating(room, check), columns, locate)
        else:
            packed, counting, status = locate()
        return Located(workspace, kind, packed, counting, status, of_boxes, stays)

    def _set_from_tape(self, positions: Any, check: bool) -> bool:
        """Set positions that lie where earlier ones did, from a tape; return whether there is one."""
        before, columns = self._workspace, arrays_given(positions)
        room = None if before is None else self._rooms.spare if check else before.particles
        if before is None or room is None or room.rows < before.count or not self.methods.outlast_positions():
            return False
        backend = before.backend
        entry = self._tapes.find(self, self._locating(room, check), columns)
        if not entry:
            return False
        tape, (packed, counting, status) = entry
        kind: Any = kind_of(columns[0])  # another library's arrays may have that form, too
        with kind.scope(columns[0]), backend.scope(*columns):
            if backend.capturing():
                return False
            tape.play(self.follow(), *columns)
            backend.mark(*columns)
            workspace = before.over(room, before.count)
            workspace.memory.counted = None
            room.set_count(before.count, workspace.axes, packed=packed)
            located = Located(workspace, kind, packed, counting, status, None, stays=True)
            self._check_located(located, positions)
            self.methods.capturing = False
            self._adopt(located)
        return True

    def _stays(self, room: Any, count: int) -> bool:
        """Return whether tapes stay valid for ``count`` particles: as many as before, in memory of before."""
        held = room is self.particles or room is self._rooms.spare
        return held and self.count == count and self.methods.outlast_positions()

    def _locating(self, room: Any, check: bool) -> tuple[Any, ...]:
        """Return what decides how as many positions as before are located in ``room``."""
        return "positions", check, id(room), self.workspace.memory.block_cells, self.methods.pack(self.count)

    def _check_located(self, located: Located, positions: Any) -> None:
        """Raise the error of bad positions, if they are checked; waits for the device."""
        if located.status is not None and ((status := located.status()).not_finite or status.outside):
            raise checks.bad_positions(status, positions, self.mesh, systems=self.systems)

    def take(self, located: Located, x: Coordinates, *, check: bool) -> None:
        """Take located particles, of coordinates ``x``, in the place of those that the plan has.

        With ``check`` their arrangement may be sampled to choose methods, which waits.
        """
        workspace, methods = located.workspace, self.methods
        choose_again = not (self._reserved or self._chosen_for / 2 <= x.count <= self._chosen_for * 2)
        if check and choose_again and self.systems is None:
            methods.choice.sample_arrangement(workspace, x)
        elif choose_again:
            methods.choice.assume_uniform()
        if self._sorted:
            workspace.particles.choose_blocks(workspace, _CELLS_FOR)
        if choose_again:
            methods.known.clear()  # another method may be faster for this number
            self._chosen_for, workspace.memory.block_cells = x.count, None
        methods.capturing = bool(not check and workspace.backend.capturing())
        methods.captured = methods.captured or methods.capturing
        if workspace.backend.name != "cpu" and (choose_again or not located.stays or methods.captured):
            self._tapes.clear()
        self._adopt(located)

    def _adopt(self, located: Located) -> None:
        """Replace the old configuration: nothing can fail any more."""
        workspace, room, before = located.workspace, located.workspace.particles, self.particles
        vars(self).update(_kind=located.kind, _boxes=located.boxes, _tracked=Tracked())
        self.methods.prepared = frozenset()
        if located.counting is not None:
            # An order overwrites the counts, so a graph that is replayed needs counts that were made in it.
            workspace.memory.counted = located.counting.blocks.cells, workspace.backend.capturing()
        self._workspace = workspace.over(None, 0)  # the memory of the particles before may be overwritten below
        room.place(workspace)
        self._workspace = workspace
        self._order = sorted_particles.shown(room, located.kind, workspace.backend) if self._sorted else None
        self._rooms.leave(before, room)
