# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of particles: spread, transform, multiply, transform back, interpolate; memory is kept between calls."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.geometry import check_size
from particlemesh.box import Box
from particlemesh.busy import alone
from particlemesh.fourier.compensation import CHOICES, chosen, divisor
from particlemesh.fourier.green import named, table
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.on_mesh import OnMesh
from particlemesh.fourier.strain import tables as strain_tables
from particlemesh.fourier.work import MESHES, Work, outputs, same_positions, stages
from particlemesh.mesh import Mesh
from particlemesh.particles.systems import matrices
from particlemesh.plan import Plan
from particlemesh.window import DEFAULT, Window, window_of

GRADIENTS = ("window", "ik")


class Solver(OnMesh):
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
        compensation: str | None = "auto", gradient: str | None = None, interlaced: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh is of type {type(mesh).__name__}; give a particlemesh.Mesh.")
        if any(map(any, mesh.ghosts)):
            raise ValueError("the mesh has ghosts; give the solver a mesh without: it adds those that it needs.")
        checks.one_of(compensation, "compensation", CHOICES)
        checks.one_of(gradient, "gradient", (None, *GRADIENTS))
        self._gradient = gradient or ("window" if isinstance(green, str) and green == "ewald" else "ik")
        self.mesh = mesh
        support = window_of(window).support
        # Ghosts of open axes keep what spreads beyond the box.
        self._wide = Mesh(
            mesh.shape, mesh.box, offset=mesh.offset, ghosts=[0 if p else support // 2 + 1 for p in mesh.periodic]
        )
        self.plan = Plan(self._wide, window, **options)
        self.window = self.plan.window
        self._plans = [self.plan]
        if checks.flag(interlaced, "interlaced"):
            checks.all_periodic(mesh.periodic)
            if options.get("order", "caller") != "caller":
                raise ValueError("interlaced meshes sort particles differently: leave out order, or interlaced.")
            # Green functions and the window's transform are the same on every shifted mesh.
            self._plans.append(Plan(self._wide.shifted(0.5), window, **options))
        self._modes = Modes(self._wide, real=True)
        parameters = {"kappa": kappa, "alpha": alpha}
        kind = chosen(compensation, green)
        self._divisor = None if kind is None else divisor(self.window, kind, 2)
        self._green = functools.partial(table, green, of=of, zero=zero, parameters=parameters, divisor=self._divisor)
        if slope is not None and not (callable(slope) and callable(green) and of == "k2"):
            raise ValueError("slope is for a function green of k2: give a function for both, or leave it out.")
        self._slope = slope if callable(green) else named(green, parameters).slope
        count = self.plan.systems
        self._stack = () if count is None else (count,)  # axes of fields and spectra before those of the mesh
        self._rows: np.ndarray | None = None  # lattice vectors of systems with boxes of their own
        self._common = self._by_box = [self._factors(self._modes)]
        self._each = [self._modes]  # of systems with boxes of their own, theirs
        at_zero = self._common[0].flat[0] * np.prod(self._modes.shape) * mesh.node_volume
        self._described = (
            f"{green if isinstance(green, str) else 'a function'} (at k = 0: {at_zero:g}), compensation {kind}"
        )
        if callable(green) and compensation == "auto" and self._rough():
            warnings.warn(
                "the Green function is not smooth on this mesh: give compensation=None for point charges, or "
                "'continuous' for a smooth density of many particles per node. The default is 'continuous'.",
                stacklevel=2,
            )
        if self._gradient == "window" and self._rough():
            warnings.warn(
                "gradient='window' conserves energy, but the Green function is not smooth on this mesh. So each "
                "particle pulls itself, and more on a finer mesh. gradient='ik' conserves momentum instead.",
                stacklevel=2,
            )
        self._given: dict[str, Any] = dict(
            green=green, kappa=kappa, alpha=alpha, of=of, zero=zero, slope=slope, compensation=compensation,
            gradient=gradient, interlaced=interlaced, **options,
        )  # fmt: skip
        self._work: Work | None = None
        self._set: list[Any] = []  # of each plan what is new with its positions, when both had the solver's
        self._token: Any = None
        self.busy = threading.RLock()

    def __repr__(self) -> str:
        return f"<Solver: {self._described}; {self.plan!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without positions.
        return functools.partial(type(self), self.mesh, self.window, **self._given), ()

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
        work = self._ready()
        self._place_slopes(work)
        if checks.flag(virial, "virial"):
            self._strain(work)
        with work.backend.scope():
            self._token = work.backend.follow(self._token)
            work.reserve(count, checks.integer(channels, "channels", 1, 2**31))
            if self._plans[1:]:
                work.reserve_halves(count, channels, self.mesh.ndim, self._stack if virial else None)
        return self

    @alone
    def set_positions(self, positions: Any, *, system: Any = None, boxes: Any = None, check: bool = True) -> Self:
        """Set the particles' positions; see :meth:`particlemesh.Plan.set_positions`.

        Tables of the Green function are made on the host, again when ``boxes`` differ from those of the call before.

        Returns
        -------
        Solver
            The solver itself.
        """
        rows, factors, each = None, self._common, [self._modes]
        if boxes is not None and self.plan.stack is not None:
            boxes = rows = matrices(boxes, self.plan.stack)
            same = self._rows is not None and np.array_equal(rows, self._rows)
            each = self._each if same else [Modes(self._boxed(row), real=True) for row in rows]
            factors = self._by_box if same else [self._factors(modes) for modes in each]
        for plan in self._plans:
            plan.set_positions(positions, system=system, boxes=boxes, check=check)
        self._rows, self._by_box, self._each = rows, factors, each
        self._set = [plan.tracked for plan in self._plans]
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
        return self._solve(values, "pg", outputs(out, "potential", "gradient"))

    @alone
    def potential_gradient_virial(
        self, values: Any, *, out: tuple[Any, Any, Any] | None = None
    ) -> tuple[Any, Any, Any]:
        """Return potential, gradient, and the virial of the energy ``sum(values * potential) / 2``, in one pass.

        The virial is the derivative of this energy by a strain of the box and of the particles in it. Positions and
        lattice vectors x become ``x + strain @ x``. It is exact for the energy of the mesh. Every axis is periodic.

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
            If an axis is open, or the Green function is the user's and `slope` is not given.

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
        return self._solve(values, "pgv", outputs(out, "potential", "gradient", "virial"))

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
            f"stages: {', '.join(stages(self.mesh.ndim * (self._gradient == 'ik'), len(self._plans) > 1))}",
            f"memory: {work.nbytes:,} bytes for fields, spectra, tables; {self.nbytes - work.nbytes:,} bytes of plans",
            self.plan.explain(),
        ]
        return "\n".join(lines)

    # ---- tables ---------------------------------------------------------------------------------------

    def _boxed(self, row: np.ndarray) -> Mesh:
        """Return the mesh in the box of a system."""
        return Mesh(self.mesh.shape, Box(row, self.mesh.box.origin), offset=self.mesh.offset)

    def _factors(self, modes: Modes, slope: int | None = None) -> np.ndarray:
        """Return the factors of a box's modes, of the potential or of its slope along an axis, without the i."""
        return self._green(modes, slope=slope) / (np.prod(modes.shape) * modes.mesh.node_volume)

    def _stacked(self, tables: list[np.ndarray]) -> np.ndarray:
        """Return the tables of all boxes as one."""
        return np.broadcast_to(np.stack(tables), (*self._stack, *tables[0].shape)) if self._stack else tables[0]

    def _place_slopes(self, work: Work) -> None:
        """Make the tables of slopes by ik, once for a box."""
        if self._gradient == "ik" and not work.slopes:
            axes = range(self.mesh.ndim)
            work.place_slopes([self._stacked([self._factors(m, axis) for m in self._each]) for axis in axes])

    def _rough(self) -> bool:
        """Return whether the highest modes have more than a tenth of the largest ``k**2`` times the Green function."""
        modes = self._modes
        values = abs(self._common[0]) * modes.k2
        highest = np.zeros(values.shape, bool)
        for axis, nodes in enumerate(modes.shape):
            if self._divisor is not None:
                values = values * modes.along(axis, self._divisor(modes.numbers(axis), nodes, axis))
            highest |= modes.along(axis, (2 * abs(modes.numbers(axis)) >= nodes - 1) & (nodes > 1))
        return bool(values[highest].max(initial=0) > 0.1 * values.max())

    # ---- stages ---------------------------------------------------------------------------------------

    def _ready(self) -> Work:
        backend, dtype = self.plan.backend, self.plan.dtype
        if backend is None or dtype is None:
            raise RuntimeError("this solver has no particles yet: call set_positions first.")
        work = self._work
        if work is None or work.owner is not backend or work.dtype != dtype:
            self._work = work = Work(backend, dtype, self._modes.shape, self._stack, self.plan.threads)
        if work.by_box is not self._by_box:
            work.place(self._by_box, self._stacked(self._by_box))
        return work

    def _take(self, values: Any) -> tuple[Work, operands.Operand]:
        work, plan = self._ready(), self.plan
        same_positions(self._plans, self._set, self._rows is not None)
        upload = plan.uploads
        operand = operands.take(values, (plan.count,), 1, work.dtype, work.owner, "values", upload=upload)
        if operand.native.dtype != work.dtype:
            raise TypeError("values are complex; give real and imaginary parts as two channels.")
        return work, operand

    def _density_field(self, work: Work, plan: Plan, operand: operands.Operand) -> Any:
        """Return the padded field that the values are spread to."""
        whole = work.take("field", operand.batch, work.field_shape)
        if self._modes.padded:
            work.backend.clear(whole)
        plan.spread(operand.native, out=whole[self._inner()], accumulate=self._modes.padded)
        return whole

    def _solve(self, values: Any, parts: str, outs: list[Any]) -> tuple[Any, ...]:
        """Return the parts: p for the potential, g for its gradient, v for the virial; in this order."""
        work, operand = self._take(values)
        operands.check_apart(*(o for o in outs if o is not None))
        ndim, count = self.mesh.ndim, self.plan.count
        cores = {"p": (count,), "g": (count, ndim), "v": (*self._stack, ndim, ndim)}
        with operand.kind.scope(values), work.backend.scope(operand.native):
            self._token = work.backend.follow(self._token)
            results = {p: self._result(work, operand, o, cores[p]) for p, o in zip(parts, outs, strict=True)}
            natives = {p: result.native for p, result in results.items()}
            if len(self._plans) == 1:
                self._write(work, self.plan, operand, natives)
            else:
                one, other = ({p: work.take(p + mesh, operand.batch, cores[p]) for p in parts} for mesh in MESHES)
                self._write(work, self._plans[0], operand, one)
                self._write(work, self._plans[1], operand, other)
                for p, native in natives.items():
                    work.average(one[p], other[p])
                    work.backend.copy(native, one[p])
            work.backend.mark(operand.native, *natives.values())
            return tuple(result.finish() for result in results.values())

    def _write(self, work: Work, plan: Plan, operand: operands.Operand, natives: dict[str, Any]) -> None:
        """Write the parts that a plan's mesh gives."""
        phi, slopes, virial = (natives.get(p) for p in "pgv")
        field = self._density_field(work, plan, operand)
        spectrum = work.forward(field, operand.batch)
        if virial is not None:
            work.write_virial(self._strain(work), spectrum, virial)
        if slopes is not None:
            largest = work.factors.largest * max(float((1 / m.mesh.spacing).max()) for m in self._each)
            check_size(largest, work.dtype, "gradients of potentials of a charge of size 1")
        if slopes is not None and self._gradient == "ik":
            self._place_slopes(work)
            work.interpolate_by_ik(plan, spectrum, operand.batch, self._inner(), phi, slopes)
        else:
            work.interpolate(plan, spectrum, None if work.on_cpu else field, self._inner(), phi, slopes)

    def _result(self, work: Work, operand: operands.Operand, out: Any, core: tuple[int, ...]) -> operands.Result:
        upload = self.plan.uploads
        return operands.give(
            out, operand, operand.batch + core, len(core), len(core), work.owner, accumulate=False, upload=upload
        )

    def _strain(self, work: Work) -> Any:
        """Return the sums of the virial; their tables are made once for a box."""
        if work.strain is None:
            if not all(self.mesh.periodic):
                raise ValueError("the virial needs every axis periodic; this mesh has an open one.")
            if self._slope is None:
                raise ValueError("green is a function; for the virial also give Solver its derivative by k2: slope=.")
            tables = [
                strain_tables(modes, factors, self._slope, self._divisor)
                for modes, factors in zip(self._each, self._by_box, strict=True)
            ]
            work.place_strain(tables, self.mesh.ndim)
        return work.strain
