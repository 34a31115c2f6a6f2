# SPDX-License-Identifier: BSD-3-Clause
"""The plan: sizes once, positions once a configuration, values as often as wanted."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

import numpy as np

from particlemesh import backends, checks, operands, select
from particlemesh.arrays import Kind
from particlemesh.backends.base import Record
from particlemesh.interpolate import METHODS as INTERPOLATE_METHODS
from particlemesh.lost import lost_fraction
from particlemesh.mesh import Mesh
from particlemesh.method import Method, Problem
from particlemesh.particles import Particles, Status
from particlemesh.spread import METHODS as SPREAD_METHODS
from particlemesh.stencil import axes_of
from particlemesh.window import Window, window_of


class Plan:
    """Spread and interpolate on one mesh with one window, for as many particle sets and values as wanted.

    Construction depends on sizes, :meth:`set_positions` on positions, the rest on values. A plan is not
    to be shared between threads. Work on a GPU goes to the caller's current stream or queue and is not
    waited for; only ``set_positions`` (unless ``check=False``), ``status``, ``check`` and ``lost`` wait.

    Parameters
    ----------
    mesh : Mesh
        Where the nodes are.
    window : Window or str
        The window, or its name (``"bspline6"``, ``"cic"``, ``"m4prime"``, ...).
    dtype : {"float32", "float64"}, optional
        Real type of the values. By default that of the positions when they first come.
    components : int
        Reals per particle to plan for (2 for complex values); any number is served.
    applications : int
        Spreads or interpolations expected for one configuration; steers the automatic choice.
    method, interpolation : str
        Method of each direction, by name; ``"auto"`` takes the one that predicts the least time.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the arrays are. If named, host arrays are copied there and back.
    deterministic : bool
        Only methods that give the same bits for the same call.
    threads : int, optional
        Most threads on the CPU; by default what suits the number of particles.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    References
    ----------
    The three phases follow [barnett2019]_; the methods cite their own sources, see :meth:`explain`.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> mesh = pm.Mesh(shape=(8, 8, 8), box=(1.0, 1.0, 1.0))
    >>> plan = pm.Plan(mesh, window="bspline4")
    >>> plan.set_positions(np.array([[0.5, 0.5, 0.5], [0.1, 0.9, 0.3]]))
    >>> field = plan.spread(np.array([1.0, -3.0]))
    >>> float(round(field.sum(), 12))
    -2.0
    """

    def __init__(
        self,
        mesh: Mesh,
        window: Window | str,
        *,
        dtype: Any = None,
        components: int = 1,
        applications: int = 1,
        method: str = "auto",
        interpolation: str = "auto",
        backend: str | None = None,
        deterministic: bool = False,
        threads: int | None = None,
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh is of type {type(mesh).__name__}; give a particlemesh.Mesh.")
        self.mesh = mesh
        self.window = window_of(window)
        checks.enough_ghosts(mesh, self.window.support)
        self.dtype = None if dtype is None else checks.real_type(dtype)
        self.components = checks.integer(components, "components", 1, 2**31)
        self.applications = checks.integer(applications, "applications", 1, 2**63)
        self.threads = None if threads is None else checks.integer(threads, "threads", 1, 4096)
        self.deterministic = bool(deterministic)
        self._wanted = {"spread": method, "interpolate": interpolation}
        for what, name in self._wanted.items():
            checks.method_name(name, _METHODS[what], "method" if what == "spread" else "interpolation")
        self._named = backend
        self.backend: Any = None if backend is None else backends.current(backend)
        self.axes = axes_of(mesh, self.window)
        self._kind: Kind | None = None
        self.particles: Any = None
        self._spare: Particles | None = None
        self._methods: dict[str, Method] = {}
        self._prepared: set[str] = set()
        self._scratch: dict[str, Any] = {}
        self._token: Any = None  # the stream that last worked for this plan
        self._closed = False
        self.shared: dict[Any, Any] = {}  # orderings, kept for one configuration
        if self.dtype is not None:
            self._bind(self.dtype)

    # ---- lifetime -------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # A recipe, never handles: the copy starts without positions.
        options = dict(
            dtype=None if self.dtype is None else self.dtype.name, components=self.components,
            applications=self.applications, method=self._wanted["spread"],
            interpolation=self._wanted["interpolate"], backend=self._named,
            deterministic=self.deterministic, threads=self.threads,
        )  # fmt: skip
        return _rebuild, (self.mesh, self.window, options)

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the plan's memory; using it afterwards is a RuntimeError. May be called twice."""
        self._closed = True
        self.particles = self._spare = None
        self._methods.clear()
        self._scratch.clear()
        self.shared.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of memory the plan holds."""
        held = [self.particles, self._spare, *self._scratch.values(), *self.shared.values()]
        return sum(int(x.nbytes) for x in held if x is not None)

    def _bind(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        char = dtype.char
        self.window_record = Record(f"={self.window.table.size}{char}", *self.window.table.ravel())
        # d(node coordinate) / d(position); rows and columns of missing axes are zero.
        slope = np.zeros((3, 3))
        d = self.mesh.ndim
        slope[3 - d :, 3 - d :] = np.array(self.mesh.intervals)[:, None] * self.mesh.box.inverse
        self.jacobian_record = Record(f"=9{char}", *slope.ravel())
        self.jacobian = np.ascontiguousarray(slope[:, 3 - d :].astype(dtype))

    @contextlib.contextmanager
    def _scope(self, kind: Kind, array: Any, *natives: Any) -> Any:
        with kind.scope(array), self.backend.scope(*natives):
            self._token = self.backend.follow(self._token)
            yield
            self.backend.mark(*natives)

    # ---- positions ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of particles."""
        return self.particles.count if self.particles is not None else 0

    @property
    def capacity(self) -> int:
        """Particles that fit without allocation."""
        return self.particles.rows if self.particles is not None else 0

    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles, so that later calls allocate nothing.

        The plan must know where it runs and in which type: name ``backend`` and ``dtype``, or set
        positions once before.

        Parameters
        ----------
        count : int
            Particles.

        Raises
        ------
        ValueError
            If backend or dtype are not known yet.

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
        if self.backend is None or self.dtype is None:
            raise ValueError("reserve needs to know where and in which type: give Plan backend= and dtype=.")
        with self.backend.scope():
            if self.capacity < count:
                held = self.particles
                self._spare = Particles(self.backend, self.dtype, count)
                self.particles = Particles(self.backend, self.dtype, count)
                if held is not None:
                    self.particles.take_over(self.backend, held)
            for what in _METHODS:
                self._method(what).reserve(self)

    def set_positions(self, positions: Any, *, check: bool = True) -> None:
        """Take a particle configuration: everything that depends on positions only.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Positions in the user's length unit; any strides; never modified. Periodic axes fold any finite
            number; an open axis takes ``[origin, origin + length]``, both ends included.
        check : bool
            If False, never synchronise and, after :meth:`reserve`, never allocate: particles that are not
            finite or off an open axis get zero weight and are recorded in :attr:`status`.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis (the first one is named), or the shape is
            wrong. The plan keeps its former positions.
        """
        self._open()
        kind, backend, x = operands.coordinates(
            positions, self.mesh.ndim, self.backend, upload=self._named is not None
        )
        first = positions[0] if isinstance(positions, tuple) else positions
        dtype = x.dtype if self.dtype is None else self.dtype
        with kind.scope(first), backend.scope(*x.arrays):
            token = backend.follow(self._token)
            room = self._spare
            if room is None or room.rows < x.count or not check:
                room = self.particles if not check and self.capacity >= x.count else None
            if room is None:
                room = Particles(backend, dtype, max(x.count, self.capacity))
            room.locate(backend, self.mesh, self.axes, x, self.threads)
            if check:
                status = room.read_status(backend)
                if status.not_finite or status.outside:
                    raise checks.bad_positions(status, positions, self.mesh)
            # Nothing can fail from here on: the new configuration takes the old one's place.
            if self.dtype is None:
                self._bind(dtype)
            self.backend, self._kind, self._token = backend, kind, token
            if room is not self.particles:
                self.particles, self._spare = room, self.particles
            self._prepared.clear()
            self.shared.clear()

    @property
    def status(self) -> Status:
        """What the last :meth:`set_positions` found; waits for the device."""
        self._ready()
        with self.backend.scope():
            status = self.particles.read_status(self.backend)
        bad = sum(int(m.non_finite_values()) for m in self._methods.values())
        return status._replace(non_finite_values=bad)

    def check(self) -> None:
        """Raise for what unchecked calls have recorded.

        Raises
        ------
        ValueError
            If positions were not finite or off an open axis, or values were not finite where it matters.
        """
        status = self.status
        if status.not_finite or status.outside:
            raise checks.bad_positions(status, None, self.mesh)
        if status.non_finite_values:
            raise ValueError("values were not all finite; the field is NaN everywhere.")

    # ---- values ---------------------------------------------------------------------------------------

    def spread(self, values: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread values onto the mesh: ``field[m] = sum_p W(x_m - x_p) values[p]``.

        Parameters
        ----------
        values : array (..., N)
            Real or complex.
        out : array (..., *mesh.field_shape), optional
            Written (added to, if ``accumulate``) and returned. Any memory order.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        array (..., *mesh.field_shape)
            Of the kind, device and type of ``values``; not divided by any volume.
        """
        return self._spread(values, (self.count,), out, accumulate, gradient=False)

    def spread_gradient(self, vectors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread vectors against the window's slope: the exact adjoint of :meth:`gradient`.

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
        return self._spread(vectors, (self.count, self.mesh.ndim), out, accumulate, gradient=True)

    def _spread(self, values: Any, core: tuple[int, ...], out: Any, accumulate: bool, gradient: bool) -> Any:
        self._ready()
        if accumulate and out is None:
            raise ValueError("accumulate=True adds to out: give out=.")
        backend, upload = self.backend, self._named is not None
        what = "vectors" if gradient else "values"
        came = operands.take(values, core, self.dtype, backend, what, upload=upload)
        with self._scope(came.kind, values, came.native, out):
            shape = came.batch + self.mesh.field_shape
            result = operands.give(
                out, came, shape, self.mesh.ndim, backend, accumulate=accumulate, upload=upload
            )
            method = self._method("spread")
            self._prepare("spread", method)
            if not accumulate:
                backend.clear(result.native)
            if self.count and came.view.channels:
                method.apply(self, came.view, _three_axes(result.view), gradient=gradient)
            backend.mark(result.native)
            return result.finish()

    def interpolate(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field at the particles: ``values[p] = sum_m W(x_m - x_p) field[m]``.

        Parameters
        ----------
        field : array (..., *mesh.field_shape)
            Real or complex, any memory order.
        out : array (..., N), optional

        Returns
        -------
        array (..., N)
        """
        return self._interpolate(field, True, False, out)[0]

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
        return self._interpolate(field, False, True, out)[1]

    def value_and_gradient(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Interpolate value and gradient in one pass; see :meth:`interpolate` and :meth:`gradient`."""
        values, gradient = self._interpolate(field, True, True, out)
        return values, gradient

    def _interpolate(self, field: Any, value: bool, gradient: bool, out: Any) -> tuple[Any, Any]:
        self._ready()
        backend, upload = self.backend, self._named is not None
        outs = out if value and gradient and out is not None else (out, out)
        if len(outs) != 2:
            raise ValueError(f"out has {len(outs)} arrays; value and gradient need two.")
        came = operands.take(field, self.mesh.field_shape, self.dtype, backend, "field", upload=upload)
        with self._scope(came.kind, field, came.native, *outs):
            shapes = (came.batch + (self.count,), came.batch + (self.count, self.mesh.ndim))
            results = [
                operands.give(o, came, shape, core, backend, accumulate=False, upload=upload) if wanted else None
                for wanted, o, shape, core in zip((value, gradient), outs, shapes, (1, 2), strict=True)
            ]
            method = self._method("interpolate")
            self._prepare("interpolate", method)
            if self.count and came.view.channels:
                views = [None if r is None else r.view for r in results]
                method.apply(self, _three_axes(came.view), views[0], gradient=views[1])
            backend.mark(*(r.native for r in results if r is not None))
            ready = [None if r is None else r.finish() for r in results]
            return ready[0], ready[1]

    def lost(self, values: Any) -> Any:
        """Sum what :meth:`spread` loses past open edges; waits for the device.

        Parameters
        ----------
        values : array (..., N)

        Returns
        -------
        NumPy array (...)
            ``sum_p values[p] * (weights of p outside the mesh)``, in double precision.
        """
        self._ready()
        came = operands.take(values, (self.count,), self.dtype, self.backend, "values", upload=self._named is not None)
        with self._scope(came.kind, values, came.native):
            host = self.backend.download(came.native)
            return host @ lost_fraction(self)

    def empty_field(self, *batch: int, layout: str = "planar", dtype: Any = None) -> Any:
        """Return an uninitialised field of shape ``(*batch, *mesh.field_shape)``.

        Parameters
        ----------
        *batch : int
            Batch axes.
        layout : {"planar", "interleaved"}
            Where the batch axes lie in memory: first, or last (the values of one node side by side).
        dtype : dtype, optional
            The plan's real type by default; a complex type of the same precision may be asked for.
        """
        self._open()
        if self.dtype is None or self.backend is None:
            raise ValueError("the plan does not know its arrays yet: set positions, or give backend= and dtype=.")
        checks.one_of(layout, "layout", ("planar", "interleaved"))
        wanted = np.dtype(self.dtype if dtype is None else dtype)
        sizes = tuple(checks.integer(n, "batch", 0, 2**62) for n in batch)
        kind = self._kind
        host = kind is not None and kind.home == "cpu"
        empty = np.empty if host or self.backend.name == "cpu" else self.backend.empty
        shape = self.mesh.field_shape
        with self.backend.scope():
            if layout == "planar":
                field = empty(sizes + shape, wanted)
            else:
                field = empty(shape + sizes, wanted)
                order = (*range(len(shape), len(shape) + len(sizes)), *range(len(shape)))
                field = field.transpose(order)
            return field if kind is None else kind.wrap(field)

    # ---- methods --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """Return what methods are asked about."""
        count = max(self.count, self.capacity) if not self.count else self.count
        return Problem(
            self.mesh, self.window, self.dtype, self.components, self.applications, count,
            self.deterministic, self.backend,
        )  # fmt: skip

    def _method(self, what: str) -> Method:
        method = self._methods.get(what)
        if method is None:
            chosen = select.choose(_METHODS[what], self.problem(), self._wanted[what])
            method = self._methods[what] = chosen()
        return method

    def _prepare(self, what: str, method: Method) -> None:
        if what not in self._prepared:
            method.prepare(self)
            self._prepared.add(what)

    def scratch(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return memory for a method, kept under ``name`` for its next call."""
        held = self._scratch.get(name)
        if held is None or held.shape != shape or held.dtype != dtype:
            self._scratch.pop(name, None)
            held = self._scratch[name] = self.backend.empty(shape, dtype)
        return held

    def explain(self) -> str:
        """Return each method's estimate, or why it declined; the chosen ones are starred.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> plan = pm.Plan(pm.Mesh((8, 8), (1.0, 1.0)), "cic")
        >>> plan.set_positions(np.random.default_rng(1).random((100, 2)))
        >>> print(plan.explain())  # doctest: +ELLIPSIS
        spread ...
        """
        self._ready()
        problem = self.problem()
        return "\n".join(
            select.table(what, _METHODS[what], problem, type(self._method(what))) for what in _METHODS
        )

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("this plan is closed; make a new one.")

    def _ready(self) -> None:
        self._open()
        if self.particles is None:
            raise RuntimeError("this plan has no particles yet: call set_positions first.")


_METHODS: dict[str, tuple[type[Method], ...]] = {"spread": SPREAD_METHODS, "interpolate": INTERPOLATE_METHODS}


def _three_axes(field: Any) -> Any:
    """Return the view of a field with three node axes; missing ones come first, one node thick."""
    missing = 5 - len(field.shape)
    if missing:
        field.shape = (field.shape[0], *(1,) * missing, *field.shape[1:])
        field.strides = (field.strides[0], *(0,) * missing, *field.strides[1:])
    return field


def _rebuild(mesh: Mesh, window: Window, options: dict[str, Any]) -> Plan:
    return Plan(mesh, window, **options)
