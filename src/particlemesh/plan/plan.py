# SPDX-License-Identifier: BSD-3-Clause
"""The plan: sizes at construction, positions once per configuration, values in each call."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.views import COMPLEX
from particlemesh.busy import alone
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.choosing.choice import METHODS
from particlemesh.methods.contract import Method
from particlemesh.particles.located import Status
from particlemesh.particles.lost import lost_fraction
from particlemesh.plan.integers import Integers


class Plan(Integers):
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
    >>> bool(np.allclose(field, pm.spread(positions, charges, mesh)))
    True
    """

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
        self._ready()
        if self._order is None:
            with self.backend.scope():
                self._token = self.backend.follow(self._token)
                host = self.backend.download(self.particles.order)
                self._order = host if self._kind is None else self._kind.wrap(host)
        elif self._kind is not None:
            with self._kind.scope(self._order), self.backend.scope(self._order):
                self._token = self.backend.follow(self._token)
        return self._order

    @property
    @alone
    def status(self) -> Status:
        """Counts of bad particles in the last :meth:`set_positions`; waits for the device."""
        self._ready()
        with self.backend.scope():
            status = self.particles.read_status(self.backend)
        # A method that is not prepared has read no values of these particles; its record is of earlier ones.
        bad = any(m.non_finite_values() for what, m in self._methods.items() if what in self._prepared)
        return status._replace(non_finite_values=bad)

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

    # ---- values ---------------------------------------------------------------------------------------

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
        self._ready()
        checks.flag(accumulate, "accumulate")

        def call() -> Any:
            return self._spread(values, 0, out, accumulate)

        return self._again(("spread", bool(accumulate)), (values, out), call, out)

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
        self._ready()
        checks.flag(accumulate, "accumulate")

        def call() -> Any:
            return self._spread(vectors, 1, out, accumulate)

        return self._again(("spread_gradient", bool(accumulate)), (vectors, out), call, out)

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
        self._ready()
        checks.flag(accumulate, "accumulate")

        def call() -> Any:
            return self._spread(tensors, 2, out, accumulate)

        return self._again(("spread_hessian", bool(accumulate)), (tensors, out), call, out)

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
        self._ready()
        return self._again("interpolate", (field, out), lambda: self._interpolate(field, {0: out})[0], out)

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
        self._ready()
        return self._again("gradient", (field, out), lambda: self._interpolate(field, {1: out})[0], out)

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
        self._ready()
        return self._again("hessian", (field, out), lambda: self._interpolate(field, {2: out})[0], out)

    def value_and_gradient(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Interpolate value and gradient in one pass; see :meth:`interpolate` and :meth:`gradient`."""
        return self._together(field, "value and gradient", 2, out)

    def value_gradient_hessian(self, field: Any, *, out: tuple[Any, Any, Any] | None = None) -> tuple[Any, Any, Any]:
        """Interpolate value, gradient and second derivatives in one call; see :meth:`hessian`."""
        return self._together(field, "value, gradient and hessian", 3, out)

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
        self._ready()
        checks.flag(outside, "outside")
        upload = self._named is not None
        operand = operands.take(values, (self.count,), 1, self.dtype, self.backend, "values", upload=upload)
        with operand.kind.scope(values), self.backend.scope(operand.native):
            if self._captured:
                self._working().forget()
            host = self.backend.download(operand.native)
            return host @ lost_fraction(self._working(), self._systems, float(outside))

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
        shape = self._shape
        with self.backend.scope():
            if layout == "planar":
                field = empty(sizes + shape, number)
            else:
                field = empty(shape + sizes, number)
                order = (*range(len(shape), len(shape) + len(sizes)), *range(len(shape)))
                field = field.transpose(order)
            return field if kind is None else kind.wrap(field)

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
        self._ready()
        chosen: dict[str, type[Method] | None] = dict.fromkeys(METHODS)
        with self.backend.scope():
            for what in METHODS:
                with contextlib.suppress(MethodNotSuitable):  # the table has the reason
                    chosen[what] = type(self._method(what))
            table = self._choice.explanation(self._working(), chosen)
            for what, method in chosen.items():
                table += self._second_derivatives(what, method)
        if self._sorted:
            table += f"\norder: {self.particles}, sorted by set_positions"
        return table
