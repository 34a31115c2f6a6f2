# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of particles: spread, transform, multiply, transform back, interpolate; memory is kept between calls."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import allocate, recorder_of
from particlemesh.arrays.lattices import DeviceBoxes
from particlemesh.arrays.positions import arrays_given, check_size
from particlemesh.backends.base import Backend, kept
from particlemesh.backends.tapes import Replays
from particlemesh.box import Box
from particlemesh.checks import alone
from particlemesh.fourier.engines import engine, plain
from particlemesh.fourier.influence import Influence
from particlemesh.fourier.modes import Modes, with_ghosts
from particlemesh.fourier.moments import Moments, moments_of
from particlemesh.fourier.multiply import Factors, Strain
from particlemesh.mesh import Mesh
from particlemesh.particles.systems import matrices
from particlemesh.plan import Plan
from particlemesh.window import DEFAULT, Window

_MESHES = " of the mesh", " of its twin"  # whose results an interlaced solver averages


class Work:
    """What a solver has on a plan's backend: the engine of transforms of fields with ``nodes``, and memory by name."""

    def __init__(self, plans: Sequence[Plan], nodes: tuple[int, ...]) -> None:
        plan, *_ = plans
        owner, dtype = plan.backend, plan.dtype
        if owner is None or dtype is None:
            raise RuntimeError("this solver has no particles yet: call set_positions first.")
        self.owner, self.dtype, self.threads = owner, dtype, plan.threads
        self.on_cpu = owner.name == "cpu"
        self.backend: Backend = owner if self.on_cpu else kept(owner, {})
        self.engine = engine(self.backend, nodes, dtype, real=True, threads=plan.threads)
        self.with_plans, self.alone = Replays(self.backend, *plans), Replays(self.backend)
        self._memory: dict[str, Any] = {}
        self._token: Any = None  # of the last call's stream

    def follow(self) -> None:
        """Order later work after that of the last call."""
        self._token = self.backend.follow(self._token)

    @property
    def nbytes(self) -> int:
        """Bytes of the engine and the memory."""
        return self.engine.nbytes + sum(int(m.nbytes) for m in self._memory.values())

    def take(self, name: str, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """Return memory, kept between calls and grown if it is too small."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            self._memory.pop(name, None)
            memory = self._memory[name] = allocate(self.backend, (size,), dtype or self.dtype, f"the solver's {name}")
        return memory[:size].reshape(shape)

    def forward(self, field: Any) -> Any:
        """Return the spectra of fields (..., *nodes)."""
        engine = self.engine
        if self.on_cpu:  # SciPy allocates its results
            return engine.forward(field)
        lead = tuple(field.shape[: field.ndim - len(engine.spectrum_shape)])
        return engine.forward(field, self.take("spectrum", lead + engine.spectrum_shape, engine.complex_dtype))


class MeshSolver(checks.Fixed):
    """What solvers share: a plan, its work, and the way of arrays into a call and out of it."""

    mesh: Mesh
    window: Window
    plan: Plan
    _given: dict[str, Any]  # arguments of the constructor
    _work: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without positions.
        kind: Any = type(self)
        return functools.partial(kind, self.mesh, self.window, **self._given), ()

    def _not_recorded(self, positions: Any, instead: str = "") -> None:
        """Check that torch does not record what happens to positions: their gradients would be lost."""
        if recorder_of(*arrays_given(positions)) is not None:
            name = type(self).__name__
            raise TypeError(f"the positions require grad, and a {name} has no derivatives: {instead}detach them.")

    def _operand(
        self, work: Work, array: Any, core: tuple[int, ...], axes: int, name: str, parts: str = "channels"
    ) -> operands.Operand:
        """Return a user's real array; ``parts`` is what complex numbers could be given as."""
        operand = operands.take(array, core, axes, work.dtype, work.owner, name, upload=self.plan.uploads)
        if operand.native.dtype != work.dtype:
            raise TypeError(f"{name} is complex; give real and imaginary parts as two {parts}.")
        return operand

    def _run(
        self, work: Work, replays: Replays, what: Any, operand: operands.Operand, array: Any, outs: Sequence[Any],
        cores: Sequence[tuple[int, ...]], write: Callable[..., None],
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return the user's arrays, of the operand's batch and these cores, whose native arrays ``write`` writes.

        ``what`` it does is repeated by ``replays``.
        """
        operands.check_apart(*(o for o in outs if o is not None))
        with operand.kind.scope(array), work.backend.scope(operand.native):
            work.follow()
            results = [
                operands.give(
                    out, operand, operand.batch + core, len(core), len(core), work.owner, accumulate=False,
                    upload=self.plan.uploads,
                )
                for out, core in zip(outs, cores, strict=True)
            ]  # fmt: skip
            natives = [result.native for result in results]
            if work.on_cpu:
                write(*natives)
            else:
                replays(what, (operand.native, *natives), lambda: write(*natives))
            work.backend.mark(operand.native, *natives)
            return tuple(result.finish() for result in results)


class Solver(MeshSolver):
    r"""Potential and gradient, at particles, of the density that the particles carry.

    With the density ``rho(x) = sum_p values[p] delta(x - x_p)``, the potential solves ``-laplace(phi) = rho``, or has
    another Green function. The solver spreads the values and divides by the volume of a node. It multiplies modes by
    the Green function and by the compensation of the window for both directions, and interpolates.

    Open axes are in free space: the field is padded, and particles may lie anywhere in the box.

    On a GPU, calls with ``out`` after :meth:`reserve` allocate nothing and never wait. Call each of them once, then a
    CUDA graph can capture it.

    Parameters
    ----------
    mesh : Mesh
        Any box, shape and offset, without ghosts.
    window : Window or str
    green, kappa, alpha, of, zero
        As for :meth:`Transform.green`.
    slope : callable, optional
        For a function `green` of k2: its derivative by k2, of an array, which the virial needs.
    compensation : {"auto", "continuous", "discrete", None}
        Transform whose square divides the modes: of the window itself, of its samples at the nodes (as in
        smooth particle-mesh Ewald [essmann1995]_), or none.
        The default "auto" is none for "poisson" and "yukawa", and "continuous" for all others. With "poisson",
        "continuous" is for smooth densities of many particles per node: potentials of point charges oscillate with it,
        and their forces do not converge.
    gradient : {"ik", "window", None}
        "ik" multiplies by ik, with a transform per axis. Forces then conserve momentum to rounding, and no particle
        pulls itself. "window" interpolates with the window's slope, with one transform. This is the exact gradient of
        the interpolated potential, so energy is conserved, and each particle pulls itself. This force is small only if
        the Green function is smooth on the mesh. For point charges it grows with finer meshes. None is "window" for
        "ewald" and "ik" for all others.
    interlaced : bool
        Average over the mesh and its twin shifted by half a node along every axis [sefusatti2016]_. This takes twice
        the time, and most of the error of aliases cancels. Every axis is periodic.
    margin : int
        Further nodes on each side of open axes. There the Green function passes smoothly into its copy, so that
        :meth:`moment_fields` may differentiate it. An error of 1e-12 needs 8.
    **options
        Options of :class:`particlemesh.Plan`, such as ``dtype`` and ``backend``. With ``order="sorted"`` values and
        results are in the order of ``solver.plan.order``. With ``systems`` one call serves all systems.

    Attributes
    ----------
    plan : particlemesh.Plan
        Spreads and interpolates; along open axes its mesh has ghosts. Positions are set by the solver only if
        it has ``boxes``, or is interlaced and has a second plan.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.

    Warns
    -----
    UserWarning
        If the Green function is not smooth on the mesh, and the gradient is that of the window. If the function is
        yours, also if `compensation` is not given.

    Examples
    --------
    The Madelung constant of rock salt, from Gaussian charges that hardly overlap:

    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import Solver
    >>> ions = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    >>> charges = (-1.0) ** ions.sum(1)
    >>> solver = Solver(pm.Mesh((32, 32, 32), (2.0, 2.0, 2.0)), "bspline8", green="ewald", alpha=4.5)
    >>> phi = 4 * np.pi * solver.set_positions(ions).potential(charges)
    >>> float(round(2 * 4.5 / np.pi**0.5 - phi[0] * charges[0], 5))  # minus the charge's own Gaussian
    1.74756
    """

    def __init__(
        self, mesh: Mesh, window: Window | str = DEFAULT, green: Any = "poisson", *, kappa: float | None = None,
        alpha: float | None = None, of: str = "k2", zero: float | None = None, slope: Any = None,
        compensation: str | None = "auto", gradient: str | None = None, interlaced: bool = False, margin: int = 0,
        **options: Any,
    ) -> None:  # fmt: skip
        self.mesh, self._wide = mesh, with_ghosts(mesh, window)
        self.plan = Plan(self._wide, window, **options)
        self.window = self.plan.window
        self._plans = [self.plan]
        if checks.flag(interlaced, "interlaced"):
            if not all(mesh.periodic):
                raise ValueError(
                    f"axis {mesh.periodic.index(False)} is open: leave out interlaced or give a periodic box."
                )
            if options.get("order", "caller") != "caller":
                raise ValueError("interlaced meshes sort particles differently: leave out order, or interlaced.")
            # Green functions and the window's transform are the same on every shifted mesh.
            self._plans.append(Plan(self._wide.shifted(0.5), window, **options))
        if checks.integer(margin, "margin", 0, 2**20) and all(mesh.periodic):
            raise ValueError(f"margin is {margin} and every axis is periodic: leave it out, it is that of open axes.")
        self._modes = Modes(self._wide, real=True, margin=margin)
        self._influence = Influence(
            self.window, green, kappa=kappa, alpha=alpha, of=of, zero=zero, slope=slope, compensation=compensation,
            gradient=gradient,
        )  # fmt: skip
        self._gradient = self._influence.gradient
        count = self.plan.systems
        self._stack = () if count is None else (count,)  # axes of fields and spectra before those of the mesh
        self._rows: Any = None  # lattice vectors of systems with boxes of their own, or DeviceBoxes
        self._by_box: Any
        self._common = self._by_box = [self._influence.factors(self._modes)]
        self._each = [self._modes]  # of systems with boxes of their own, theirs
        at_zero = self._common[0].flat[0] * np.prod(self._modes.shape) * mesh.node_volume
        self._described = self._influence.described(at_zero)
        for caution in self._influence.cautions(*self._influence.peaks(self._modes, self._common[0])):
            warnings.warn(caution, stacklevel=2)
        self._given: dict[str, Any] = dict(
            green=green, kappa=kappa, alpha=alpha, of=of, zero=zero, slope=slope, compensation=compensation,
            gradient=gradient, interlaced=interlaced, margin=margin, **options,
        )  # fmt: skip
        # A padded field has the nodes of the mesh at its beginning.
        self._inner = (..., *(slice(0, n) for n in self._wide.field_shape))
        self._set: list[Any] = []  # of each plan what is new with its positions, when both had the solver's
        self.busy = threading.RLock()

    def __repr__(self) -> str:
        return f"<Solver: {self._described}; {self.plan!r}>"

    @property
    def nbytes(self) -> int:
        """Bytes of the solver's memory, those of its plan included."""
        return sum(plan.nbytes for plan in self._plans) + (0 if self._work is None else self._work.nbytes)

    @alone
    def reserve(self, count: int, channels: int = 1, *, virial: bool = False) -> Self:
        """Allocate for up to ``count`` particles and ``channels`` values of each.

        The solver needs its backend and dtype: give ``backend`` and ``dtype``, or set positions first.

        Parameters
        ----------
        count, channels : int
        virial : bool
            Also for the virial.

        Raises
        ------
        ValueError
            If the backend or dtype is not known yet.
        """
        for each in self._plans:
            each.reserve(count)
        work, channels = self._ready(), checks.integer(channels, "channels", 1, 2**31)
        if self._gradient == "ik":
            self._slopes(work)
        if checks.flag(virial, "virial"):
            self._strain(work)
        with work.backend.scope():
            work.follow()
            work.reserve(count, channels)
            for mesh in _MESHES if self._plans[1:] else ():
                work.take("p" + mesh, (channels, count))
                work.take("g" + mesh, (channels, count, self.mesh.ndim))
                if virial:
                    work.take("v" + mesh, (channels, *self._stack, self.mesh.ndim, self.mesh.ndim))
        return self

    @alone
    def set_positions(self, positions: Any, *, system: Any = None, boxes: Any = None, check: bool = True) -> Self:
        """Set the particles' positions; see :meth:`particlemesh.Plan.set_positions`.

        Tables of the Green function are made on the host, again when ``boxes`` differ from those of the call before.
        Those of :class:`particlemesh.kernels.DeviceBoxes` are made on the GPU.

        Returns
        -------
        Solver
            The solver itself.
        """
        self._not_recorded(positions, "call particlemesh.autograd.torch.potential, or ")
        rows: Any = None
        factors: Any = self._common
        each = [self._modes]
        if boxes is not None and self.plan.stack is not None:
            boxes = rows = matrices(boxes, self.plan.stack)
        if isinstance(rows, DeviceBoxes):
            factors = rows
        elif rows is not None:
            same = isinstance(self._rows, np.ndarray) and np.array_equal(rows, self._rows)
            each = self._each if same else [Modes(self._boxed(row), real=True) for row in rows]
            factors = self._by_box if same else [self._influence.factors(modes) for modes in each]
        for plan in self._plans:
            plan.set_positions(positions, system=system, boxes=boxes, check=check)
        self._rows, self._by_box, self._each = rows, factors, each
        self._set = [plan.tracked for plan in self._plans]
        if factors is rows and rows is not None:
            work = self._ready()
            with work.backend.scope():
                work.follow()
                work.derived.write()
        return self

    @alone
    def potential(self, values: Any, *, out: Any = None) -> Any:
        """Return the potential at the particles.

        Parameters
        ----------
        values : array (..., N)
            Real; leading axes are channels.
        out : array (..., N), optional

        Returns
        -------
        array (..., N)
            Array of the library and device of ``values``.
        """
        return self._solve(values, "p", [out])[0]

    @alone
    def gradient(self, values: Any, *, out: Any = None) -> Any:
        """Return the gradient of the potential at the particles, per user length unit: array (..., N, d)."""
        return self._solve(values, "g", [out])[0]

    @alone
    def potential_and_gradient(self, values: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Return potential (..., N) and gradient (..., N, d) in one pass; ``out`` is a pair of such arrays."""
        return self._solve(values, "pg", _outputs(out, "potential", "gradient"))

    @alone
    def potential_gradient_virial(
        self, values: Any, *, out: tuple[Any, Any, Any] | None = None
    ) -> tuple[Any, Any, Any]:
        """Return potential, gradient, and the virial of the energy ``sum(values * potential) / 2``, in one pass.

        The virial is the derivative of this energy by a strain of the box and of the particles in it. Positions and
        lattice vectors x become ``x + strain @ x``. It is exact for the energy of the mesh. Along open axes the mesh is
        strained with the box, which changes the energy by errors of the mesh only.

        Parameters
        ----------
        values : array (..., N)
        out : tuple of arrays (..., N), (..., N, d), (..., d, d), optional

        Returns
        -------
        potential : array (..., N)
        gradient : array (..., N, d)
        virial : array (..., d, d)
            With systems, (..., systems, d, d).

        Raises
        ------
        ValueError
            If the Green function is the user's and `slope` is not given.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> x, q = np.random.default_rng(1).random((20, 3)), np.ones(20)
        >>> energies = []
        >>> for length in (1 - 1e-4, 1.0, 1 + 1e-4):
        ...     solver = Solver(pm.Mesh((8, 8, 8), (length, 1.0, 1.0)), green="ewald", alpha=3.0)
        ...     phi, slope, virial = solver.set_positions(x * (length, 1, 1)).potential_gradient_virial(q)
        ...     energies.append(q @ phi / 2)
        ...     if length == 1:
        ...         exact = virial[0, 0]
        >>> bool(np.isclose(exact, (energies[2] - energies[0]) / 2e-4, rtol=1e-6))
        True
        """
        return self._solve(values, "pgv", _outputs(out, "potential", "gradient", "virial"))

    @alone
    def potential_field(self, field: Any, *, out: Any = None) -> Any:
        """Return the potential at the nodes of what was spread there.

        Between ``plan.spread`` and ``plan.interpolate`` this makes what :meth:`potential` makes. Dipoles, for example,
        are spread by ``plan.spread_gradient``, and second derivatives are interpolated.

        Parameters
        ----------
        field : array (..., *plan.mesh.field_shape)
            Sums of values at the nodes, as spread. With systems, the axis before the last ones has theirs.
        out : array of the same shape, optional
            Other memory than that of ``field``.

        Returns
        -------
        array
            Of the library and device of ``field``.

        Raises
        ------
        ValueError, TypeError
            If the shape or type does not fit, or the solver is interlaced, which has two meshes.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> solver = Solver(pm.Mesh((16, 16), (1.0, 1.0)), green="ewald", alpha=6.0)
        >>> x, q = np.random.default_rng(1).random((5, 2)), np.ones(5)
        >>> plan = solver.set_positions(x).plan
        >>> phi = plan.interpolate(solver.potential_field(plan.spread(q)))
        >>> bool(np.allclose(phi, solver.potential(q)))
        True
        """
        return self._on_mesh(field, (out,))[0]

    @alone
    def potential_field_virial(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Return the potential at the nodes and the virial of the energy ``sum(field * potential) / 2``.

        As for :meth:`potential_gradient_virial`, the virial is the derivative of this energy by a strain. The sums at
        the nodes stay as they are, as those of values at particles that move with the box.

        Parameters
        ----------
        field : array (..., *plan.mesh.field_shape)
            As for :meth:`potential_field`.
        out : tuple of arrays (..., *plan.mesh.field_shape), (..., d, d), optional

        Returns
        -------
        potential : array (..., *plan.mesh.field_shape)
        virial : array (..., d, d)
            With systems, (..., systems, d, d).

        Raises
        ------
        ValueError, TypeError
            As for :meth:`potential_field` and :meth:`potential_gradient_virial`.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> solver = Solver(pm.Mesh((16, 16), (1.0, 1.0)), green="ewald", alpha=6.0)
        >>> x, q = np.random.default_rng(1).random((5, 2)), np.ones(5)
        >>> plan = solver.set_positions(x).plan
        >>> _, virial = solver.potential_field_virial(plan.spread(q))
        >>> bool(np.allclose(virial, solver.potential_gradient_virial(q)[2]))
        True
        """
        return self._on_mesh(field, _outputs(out, "potential", "virial"))

    @alone
    def moment_fields(self, fields: Any, *, virial: bool = False, out: tuple[Any, ...] | None = None) -> Any:
        r"""Return potential, slopes and second derivatives at the nodes, of charges, dipoles and quadrupoles there.

        The density of a particle is ``(q - mu . grad + Q : grad grad / 2) delta``. Its moments are q, mu, and Q as the
        coefficients of second derivatives: ``Q[a, a] / 2`` and, with a < b, ``Q[a, b]``. In 3-D these are 10 numbers,
        in the order of the upper triangle: xx, xy, xz, yy, yz, zz. Each is spread by ``plan.spread``. All derivatives
        are products with ik. So the energy is half of the sum of moments times results at the particles. With open axes
        give the solver a ``margin``: otherwise errors are about 1e-5 of the largest results.

        Parameters
        ----------
        fields : array (m, \*plan.mesh.field_shape)
            Sums of moments at the nodes, as spread; m is 3, 6 or 10 in 1-D, 2-D or 3-D. With systems, the axis before
            the last ones has theirs.
        virial : bool
            Also return the derivative of the energy by a strain of the box and of the particles in it. Wave vectors in
            the density stay as they are.
        out : tuple of arrays, optional
            For the fields, and for the virial if asked for.

        Returns
        -------
        array (m, \*plan.mesh.field_shape), or tuple
            The potential, its first and its second derivatives, in the same order; and the virial (..., d, d).

        Raises
        ------
        ValueError, TypeError
            As for :meth:`potential_field`.

        Examples
        --------
        The field of a dipole is the slope of a potential of two charges:

        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> solver = Solver(pm.Mesh((16, 16), (1.0, 1.0)), "bspline8", green="ewald", alpha=6.0)
        >>> plan = solver.set_positions(np.array([[0.3, 0.4], [0.5, 0.5]])).plan
        >>> dipole = np.zeros((6, 2))
        >>> dipole[1, 0] = 1.0  # along x, of the first particle
        >>> phi = plan.interpolate(solver.moment_fields(plan.spread(dipole)))[0, 1]
        >>> bool(np.isclose(phi, -solver.gradient(np.array([1.0, 0.0]))[1, 0], rtol=1e-3))
        True
        """
        names = ("fields", "virial")[: 1 + checks.flag(virial, "virial")]
        results = self._on_mesh(fields, _outputs(out, *names), moments=moments_of(self.mesh.ndim))
        return results if virial else results[0]

    def explain(self) -> str:
        """Return a description of the stages, their engines and memory, and of the plan's methods.

        Examples
        --------
        >>> import particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> print(Solver(pm.Mesh((8, 8), (1.0, 1.0))).set_positions([[0.5, 0.5]]).explain())  # doctest: +ELLIPSIS
        green: poisson (at k = 0: 0), compensation None
        ...
        """
        work = self._ready()
        nodes = " x ".join(map(str, self._modes.shape))
        lines = [
            f"green: {self._described}",
            f"transform: {nodes} nodes, {'padded for open axes, ' * self._modes.padded}{work.engine.describe()}",
            f"stages: {', '.join(_stages(self.mesh.ndim * (self._gradient == 'ik'), len(self._plans) > 1))}",
            f"memory: {work.nbytes:,} bytes for fields, spectra, tables; {self.nbytes - work.nbytes:,} bytes of plans",
            self.plan.explain(),
        ]
        return "\n".join(lines)

    # ---- tables ---------------------------------------------------------------------------------------

    def _boxed(self, row: np.ndarray) -> Mesh:
        """Return the mesh in the box of a system."""
        return Mesh(self.mesh.shape, Box(row, self.mesh.box.origin), offset=self.mesh.offset)

    def _stacked(self, tables: list[np.ndarray]) -> np.ndarray:
        """Return the tables of all boxes as one."""
        return np.broadcast_to(np.stack(tables), (*self._stack, *tables[0].shape)) if self._stack else tables[0]

    def _ready(self) -> _Work:
        """Return engine, memory and tables on the plan's backend, in its type; those of these boxes are made once."""
        work = self._work
        if work is None or work.owner is not self.plan.backend or work.dtype != self.plan.dtype:
            self._work = work = _Work(self._plans, self._modes.shape, self._stack)
        if work.by_box is not self._by_box:
            if isinstance(self._by_box, DeviceBoxes):
                work.derived = self._influence.derived(self._by_box, self._modes, work.dtype)
                work.factors = work.derived.factors()
            else:
                work.derived = None
                work.factors = Factors(work.backend, self._stacked(self._by_box), work.dtype, threads=work.threads)
            work.by_box, work.slopes, work.strain, work.slopes_fit = self._by_box, [], None, False
            work.moments = None
            work.with_plans.clear()
            work.alone.clear()
        return work

    def _slopes(self, work: _Work) -> list[Factors]:
        """Return the tables of slopes by ik, without the i; they are made once for a box."""
        if not work.slopes:
            tables = [
                self._stacked([self._influence.factors(m, axis) for m in self._each]) for axis in range(self.mesh.ndim)
            ]
            work.slopes = [Factors(work.backend, t, work.dtype, turns=True, threads=work.threads) for t in tables]
        return work.slopes

    def _strain(self, work: _Work) -> Strain:
        """Return the sums of the virial; their tables are made once for a box."""
        if work.strain is None and work.derived is not None:
            self._influence.check_virial(self._modes)
            work.strain = work.derived.strain(work.threads)
        elif work.strain is None:
            pairs = zip(self._each, self._by_box, strict=True)
            tables = [self._influence.strain(modes, factors, work.dtype) for modes, factors in pairs]
            work.strain = Strain(work.backend, tables, self.mesh.ndim, work.threads)
        return work.strain

    # ---- a call ---------------------------------------------------------------------------------------

    def _check_positions(self) -> None:
        """Check that the plans have particles: with a twin, or with tables of boxes, those that the solver has set."""
        self.plan.ready()
        # What a plan tracks is another object for each set of positions.
        alike = [id(each.tracked) for each in self._plans] == [id(tracked) for tracked in self._set]
        if not alike and (len(self._plans) > 1 or self._rows is not None or self.plan.boxes is not None):
            raise RuntimeError(
                "the plan has positions that its solver did not set completely: the other mesh, or the tables of "
                "boxes, have others. Call set_positions of the solver."
            )

    def _solve(self, values: Any, parts: str, outs: list[Any]) -> tuple[Any, ...]:
        """Return the parts: p for the potential, g for its gradient, v for the virial; in this order."""
        work, count, ndim = self._ready(), self.plan.count, self.mesh.ndim
        self._check_positions()
        operand = self._operand(work, values, (count,), 1, "values")
        cores = {"p": (count,), "g": (count, ndim), "v": (*self._stack, ndim, ndim)}

        def write(*natives: Any) -> None:
            given = dict(zip(parts, natives, strict=True))
            if len(self._plans) == 1:
                self._write(work, self.plan, operand, given)
                return
            halves = [{p: work.take(p + mesh, (*operand.batch, *cores[p])) for p in parts} for mesh in _MESHES]
            for plan, half in zip(self._plans, halves, strict=True):
                self._write(work, plan, operand, half)
            for p, native in given.items():
                work.average(halves[0][p], halves[1][p])
                work.backend.copy(native, halves[0][p])

        return self._run(work, work.with_plans, parts, operand, values, outs, [cores[p] for p in parts], write)

    def _write(self, work: _Work, plan: Plan, operand: operands.Operand, natives: dict[str, Any]) -> None:
        """Write the parts that a plan's mesh gives."""
        phi, slopes, virial = (natives.get(p) for p in "pgv")
        padded, inner = self._modes.padded, self._inner
        field = work.take("field", (*operand.batch, *work.field_shape))
        if padded:
            work.backend.clear(field)
        plan.spread(operand.native, out=field[inner], accumulate=padded)
        spectrum = work.forward(field)
        if virial is not None:
            work.write_virial(self._strain(work), spectrum, virial)
        if slopes is not None and not work.slopes_fit:
            largest = work.factors.largest * max(float((1 / m.mesh.spacing).max()) for m in self._each)
            check_size(largest, work.dtype, "gradients of potentials of a charge of size 1")
            work.slopes_fit = True
        if slopes is not None and self._gradient == "ik":
            self._write_by_ik(work, plan, spectrum, operand.batch, phi, slopes)
            return
        field = work.multiply_and_return(spectrum, field)[inner]
        if slopes is None:
            plan.interpolate(field, out=phi)
        elif phi is None:
            plan.gradient(field, out=slopes)
        else:
            plan.value_and_gradient(field, out=(phi, slopes))

    def _write_by_ik(
        self, work: _Work, plan: Plan, spectrum: Any, batch: tuple[int, ...], phi: Any, slopes: Any
    ) -> None:
        """Write slopes (..., N, d), and the potential (..., N) if ``phi`` is not None, with a transform for each."""
        count, tables = plan.count, self._slopes(work) if phi is None else [work.factors, *self._slopes(work)]
        source = spectrum.reshape(-1, *work.spectrum_shape)
        rows = (source.shape[0], len(tables))
        product = work.take("slopes", (*rows, *work.spectrum_shape), work.engine.complex_dtype)
        for part, factors in enumerate(tables):
            factors(source, product, part, len(tables))
        fields = work.engine.backward(product, None if work.on_cpu else work.take("fields", (*rows, *work.field_shape)))
        values = work.take("particles", (*rows, count))
        plan.interpolate(fields[self._inner], out=values)
        if not (count and rows[0]):
            return
        values = values.reshape(*batch, len(tables), count)
        if phi is not None:
            work.backend.copy(phi, values[..., 0, :])
            values = values[..., 1:, :]
        leading = range(values.ndim - 2)  # the parts of a gradient are last
        work.backend.copy(slopes, values.transpose((*leading, values.ndim - 1, values.ndim - 2)))

    def _on_mesh(self, field: Any, outs: Sequence[Any], moments: int = 0) -> tuple[Any, ...]:
        """Return the potential at the nodes, and the virial if there is a second output; or all fields of moments."""
        if len(self._plans) > 1:
            raise ValueError("an interlaced solver has two meshes: make one without, or call potential.")
        work, padded, inner = self._ready(), self._modes.padded, self._inner
        self._check_positions()
        strain = self._strain(work) if len(outs) > 1 else None
        lead = (moments,) if moments else ()
        core = (*lead, *self._stack, *self._wide.field_shape)
        operand = self._operand(work, field, core, len(core), "fields" if moments else "field", "fields")
        if moments and operand.batch:
            raise ValueError(f"fields have shape {operand.batch + core}; {core} is needed.")
        if moments and work.moments is None:
            systems = math.prod(self._stack)
            rows = None if work.derived is None else work.derived.rows
            work.moments = Moments(work.backend, self._each, systems, work.dtype, work.threads, rows)

        def write(target: Any, *virials: Any) -> None:
            given, whole = operand.native, None
            if padded or not (plain(given) and plain(target)):
                whole = work.take("field", (*operand.batch, *lead, *work.field_shape))
                if padded:
                    work.backend.clear(whole)
                work.backend.copy(whole[inner], given)
            spectrum = work.forward(given if whole is None else whole)
            density = spectrum
            if moments:
                work.moments(spectrum, expand=False)
                density = spectrum[0]
            if strain is not None:
                work.write_virial(strain, density, *virials)
            flat = density.reshape(-1, *work.spectrum_shape)
            work.factors(flat, flat)
            if moments:
                work.moments(spectrum, expand=True)
            potential = work.engine.backward(spectrum, target if whole is None else whole)
            if whole is not None:
                work.backend.copy(target, potential[inner])

        cores = [core, (*self._stack, *(self.mesh.ndim,) * 2)][: len(outs)]
        return self._run(work, work.alone, ("field", moments), operand, field, outs, cores, write)


class _Work(Work):
    """The engine and memory of a solver, and its tables."""

    def __init__(self, plans: Sequence[Plan], nodes: tuple[int, ...], stack: tuple[int, ...]) -> None:
        super().__init__(plans, nodes)
        self.field_shape, self.spectrum_shape = (*stack, *nodes), (*stack, *self.engine.spectrum_shape)
        self.by_box: Any = []  # what the tables are made of
        self.derived: Any = None  # `Derived` tables of boxes on a GPU
        self.factors: Factors
        self.slopes: list[Factors] = []
        self.strain: Strain | None = None
        self.moments: Any = None
        self.slopes_fit = False  # whether the type holds slopes of the potential

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(t.nbytes for t in (self.factors, *self.slopes, self.strain) if t is not None)

    def multiply_and_return(self, spectrum: Any, memory: Any) -> Any:
        """Return the potential of a spectrum, which is overwritten; on the CPU in new memory."""
        flat = spectrum.reshape(-1, *self.spectrum_shape)
        self.factors(flat, flat)
        return self.engine.backward(spectrum, None if self.on_cpu else memory)

    def write_virial(self, strain: Strain, spectrum: Any, target: Any) -> None:
        """Write the derivatives by strain of the energies of spectra (..., *modes) to an array (..., d, d)."""
        rows = math.prod(target.shape[:-2])
        if not rows:
            return
        partial, totals = self.take_virial(strain, rows)
        strain(spectrum.reshape(rows, *self.engine.spectrum_shape), partial.reshape(-1), totals)
        self.backend.copy(target, totals.reshape(target.shape))

    def take_virial(self, strain: Strain, rows: int) -> tuple[Any, Any]:
        """Return memory for the shares and the totals of the virials of so many spectra."""
        real = np.dtype(np.float64) if self.on_cpu else self.dtype
        shares = self.take("shares", (rows, strain.shares, strain.terms), real)
        return shares, self.take("virial", (rows, strain.ndim, strain.ndim))

    def average(self, target: Any, other: Any) -> None:
        """Replace numbers of a dense array by the mean of them and those of another."""
        if self.on_cpu:
            np.add(target, other, out=target)
            np.multiply(target, 0.5, out=target)
        elif target.size:
            defines = {"REAL_IS_DOUBLE": int(self.dtype == np.float64)}
            kernel = self.backend.kernel("fourier/average.c", "average", defines)
            kernel(target.size, target.reshape(-1), other.reshape(-1), target.size)

    def reserve(self, count: int, channels: int) -> None:
        """Allocate for so many particles and channels, and the tables that there are."""
        engine, parts = self.engine, 1 + len(self.slopes)
        systems = math.prod(self.field_shape) // engine.size
        self.take("field", (channels, *self.field_shape))
        engine.reserve(channels * systems)
        if self.strain is not None:
            self.take_virial(self.strain, channels * systems)
        if not self.on_cpu:
            self.take("spectrum", (channels, *self.spectrum_shape), engine.complex_dtype)
        if self.slopes:
            self.take("slopes", (channels, parts, *self.spectrum_shape), engine.complex_dtype)
            self.take("particles", (channels, parts, count))
            if not self.on_cpu:
                self.take("fields", (channels, parts, *self.field_shape))
            engine.reserve(channels * parts * systems)
            engine.reserve(channels * len(self.slopes) * systems)


def _stages(slopes: int, interlaced: bool) -> list[str]:
    """Return what a solver does, with transforms of ``slopes`` components by ik."""
    names = ["spread", "forward", "multiply", "backward", "interpolate"]
    if slopes:
        names[2:4] = [f"multiply by the table and {slopes} times by ik", f"backward {1 + slopes} x"]
    return [f"on the mesh and on its twin: {names[0]}", *names[1:], "average"] if interlaced else names


def _outputs(out: Any, *names: str) -> list[Any]:
    """Return one output for each name, or None for each."""
    if out is None:
        return [None] * len(names)
    if not (isinstance(out, (tuple, list)) and len(out) == len(names)):
        raise TypeError(f"out is of type {type(out).__name__}; give one array for each of {', '.join(names)}.")
    return list(out)
