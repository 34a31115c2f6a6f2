# SPDX-License-Identifier: BSD-3-Clause
"""Potentials of particles on many ranks: spread, transform, multiply, transform back, interpolate."""

from __future__ import annotations

import math
import threading
import warnings
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import kind_of
from particlemesh.checks import alone
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.fft import FFT
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.staging import Staged, several
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World, together
from particlemesh.fourier.green import table
from particlemesh.fourier.influence import Influence
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.moments import Moments, moments_of
from particlemesh.fourier.multiply import Strain
from particlemesh.window import DEFAULT, Window

_ALIKE = 1e-6  # of a function's largest value: what processors may round in other ways
_NAMES = {"p": "potential", "g": "gradient", "pg": "potential_and_gradient", "pgv": "potential_gradient_virial"}


class Solver(checks.Fixed):
    r"""Potential and gradient, at particles of many ranks: the distributed :class:`particlemesh.fourier.Solver`.

    Particles travel as for :class:`Plan`, and results come back to the caller's rank and order. Every axis of the mesh
    is periodic. All methods are collective, except ``explain``.

    Parameters
    ----------
    domain : Domain
        The mesh and its parts.
    world : World, optional
        The ranks; a single one by default.
    window, green, kappa, alpha, of, zero, slope, compensation, gradient, interlaced
        As for :class:`particlemesh.fourier.Solver`. Give all ranks the same. A function `green` sees the modes of one
        rank.
    parts : {"auto", "slabs", "pencils"}
        As for :class:`FFT`.
    **options
        Options of :class:`Plan`, such as ``ghosts`` and ``deterministic``.

    Attributes
    ----------
    plan : Plan
        Spreads and interpolates.
    fft : FFT
        Transforms.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or an axis is open.
    RankError
        If another rank raised, or makes another solver.

    Warns
    -----
    UserWarning
        On rank 0, as :class:`particlemesh.fourier.Solver` does.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((32, 32, 32), (2.0, 2.0, 2.0)), world.size)
    >>> solver = pmd.Solver(domain, world, "bspline8", green="ewald", alpha=4.5)
    >>> ions = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    >>> charges = (-1.0) ** ions.sum(1)
    >>> phi = 4 * np.pi * solver.set_positions(ions).potential(charges)
    >>> float(round(2 * 4.5 / np.pi**0.5 - phi[0] * charges[0], 5))  # the Madelung constant of rock salt
    1.74756
    """

    def __init__(
        self, domain: Domain, world: World | None = None, window: Window | str = DEFAULT, green: Any = "poisson", *,
        kappa: float | None = None, alpha: float | None = None, of: str = "k2", zero: float | None = None,
        slope: Any = None, compensation: str | None = "auto", gradient: str | None = None, interlaced: bool = False,
        parts: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        self.busy, self.world = threading.RLock(), World() if world is None else world
        self.plan = Plan(domain, self.world, window, **options)
        self.domain, self.mesh, self.window = domain, domain.mesh, self.plan.window
        self._check = options.get("check", True)

        def made() -> tuple[str, None]:
            checks.all_periodic(self.mesh.periodic)
            checks.one_of(parts, "parts", ("auto", "slabs", "pencils"))
            checks.flag(interlaced, "interlaced")
            self._influence = Influence(
                self.window, green, kappa=kappa, alpha=alpha, of=of, zero=zero, slope=slope, compensation=compensation,
                gradient=gradient,
            )  # fmt: skip
            name = type(green).__name__ if callable(green) else green
            said = f"{kappa=}, {alpha=}, {of=}, {zero=}, {compensation=}, {gradient=}, {interlaced=}, {parts=}"
            said += f", {'a' if callable(slope) else 'no'} slope"
            return f"Solver({name}, {said})", None

        self.world.alike(made)
        functions = {"green": (green, of), "slope": (slope, "k2")}
        agree_on_functions(self.world, self.mesh, {k: f for k, f in functions.items() if callable(f[0])})
        self._plans = [self.plan]
        if interlaced:
            self._plans.append(Plan(domain.shifted(0.5), self.world, window, **options))
        self.fft = FFT(
            domain, self.world, parts=parts, deterministic=options.get("deterministic", False), check=self._check,
            threads=options.get("threads"),
        )  # fmt: skip
        self._threads = options.get("threads")
        self._modes = Modes(self.mesh, real=True, part=self.fft.part)
        self._size = math.prod(self._modes.shape)

        def factored() -> tuple[np.ndarray, tuple[float, float]]:
            factors = self._influence.factors(self._modes)
            return factors, self._influence.peaks(self._modes, factors)

        self._factors, peaks = together(self.world, True, "factors of modes", factored)
        zero_mode = self._factors.flat[0] * self.mesh.node_volume * self._size if self._modes.has_zero else 0.0
        self._at_zero = float(self.world.allreduce(zero_mode))
        self._tables: dict[Any, Any] = {}  # by slope, library and dtype
        cautions = self._influence.cautions(*self.world.allreduce(np.array(peaks), "max").tolist())
        for caution in cautions if self.world.rank == 0 else ():
            warnings.warn(caution, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Solver over ranks: {self.plan!r}>"

    # ---- verbs ----------------------------------------------------------------------------------------

    @alone
    def set_positions(self, positions: Any, *, check: bool = True) -> Self:
        """Set the positions of this rank's particles; see :meth:`Plan.set_positions`.

        Returns
        -------
        Solver
            The solver itself.
        """
        for plan in self._plans:
            plan.set_positions(positions, check=check)
        return self

    def potential(self, values: Any) -> Any:
        """Return the potential at this rank's particles, of the particles of all ranks.

        Parameters
        ----------
        values : array (..., N)
            Real numbers of this rank's particles; leading axes are channels.

        Returns
        -------
        array (..., N)
            Array of the library and device of ``values``.
        """
        return self._solve(values, "p")[0]

    def gradient(self, values: Any) -> Any:
        """Return the gradient of the potential at this rank's particles, per user length unit: array (..., N, d)."""
        return self._solve(values, "g")[0]

    def potential_and_gradient(self, values: Any) -> tuple[Any, Any]:
        """Return potential (..., N) and gradient (..., N, d) in one pass."""
        return self._solve(values, "pg")

    def potential_gradient_virial(self, values: Any) -> tuple[Any, Any, Any]:
        """Return potential, gradient, and the virial (..., d, d) of ``sum(values * potential) / 2``, in one pass.

        The sum is over the particles of all ranks, and the virial is the same on every rank. See
        :meth:`particlemesh.fourier.Solver.potential_gradient_virial`.
        """
        return self._solve(values, "pgv")

    @alone
    def potential_field(self, field: Any) -> Any:
        r"""Return the potential at this rank's nodes of what was spread there.

        Parameters
        ----------
        field : array (..., \*part), or tuple with one for each part of this rank
            Sums of values at the nodes, as ``plan.spread`` returns them.

        Returns
        -------
        array (..., \*part), or tuple
            Of the library and device of ``field``.

        Raises
        ------
        ValueError
            If the solver is interlaced, which has two meshes.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> solver = pmd.Solver(pmd.Domain(pm.Mesh((16, 16), (1.0, 1.0)), 1), green="ewald", alpha=6.0)
        >>> x, q = np.random.default_rng(1).random((5, 2)), np.ones(5)
        >>> plan = solver.set_positions(x).plan
        >>> bool(np.allclose(plan.interpolate(solver.potential_field(plan.spread(q))), solver.potential(q)))
        True
        """
        return self._of_field(field)[0]

    @alone
    def potential_field_virial(self, field: Any) -> tuple[Any, ...]:
        """Return the potential at this rank's nodes, and the virial (..., d, d) of ``sum(field * potential) / 2``.

        The sum is over the nodes of all ranks, and the virial is the same on every rank. See
        :meth:`particlemesh.fourier.Solver.potential_field_virial`.
        """
        return self._of_field(field, virial=True)

    @alone
    def moment_fields(self, fields: Any, *, virial: bool = False) -> Any:
        r"""Return potential, slopes and second derivatives at this rank's nodes, of charges, dipoles and quadrupoles.

        See :meth:`particlemesh.fourier.Solver.moment_fields`.

        Parameters
        ----------
        fields : array (m, \*part), or tuple with one for each part of this rank
            Sums of moments at the nodes, as ``plan.spread`` returns them; m is 3, 6 or 10 in 1-D, 2-D or 3-D.
        virial : bool
            Also return the derivative of the energy of all ranks by a strain, the same on every rank.

        Returns
        -------
        array (m, \*part), or tuple with one for each part of this rank; with `virial` a pair of this and (d, d).

        Examples
        --------
        The potential of a charge of 1, and its slope along x, as charges have them:

        >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
        >>> domain = pmd.Domain(pm.Mesh((24, 24), (1.0, 1.0)), 1)
        >>> solver = pmd.Solver(domain, window="bspline8", green="ewald", alpha=6.0)
        >>> plan = solver.set_positions(np.array([[0.3, 0.4], [0.5, 0.5]])).plan
        >>> moments = np.zeros((6, 2))
        >>> moments[0, 0] = 1.0
        >>> plan.interpolate(solver.moment_fields(plan.spread(moments)))[:2, 1].round(4)
        array([ 0.044 , -0.4304])
        >>> potential, slope = solver.potential_and_gradient(moments[0])
        >>> round(float(potential[1]), 4), round(float(slope[1, 0]), 4)
        (0.044, -0.4304)
        """
        results = self._of_field(fields, moments_of(self.mesh.ndim), virial)
        return results if virial else results[0]

    @alone
    def explain(self) -> str:
        """Return the Green function, what the transform sends, and what the plan does; not collective."""
        green = f"green: {self._influence.described(self._at_zero)}"
        return f"{green}\n{self.fft.explain()}\n{self.plan.explain()}"

    # ---- a call ---------------------------------------------------------------------------------------

    @alone
    def _solve(self, values: Any, parts: str) -> tuple[Any, ...]:
        """Return the parts: p for the potential, g for its gradient, v for the virial; in this order."""

        def accepted() -> tuple[str, Staged]:
            given = Staged(values, "values")
            if given.native.dtype.kind == "c":
                raise TypeError("values is complex; give real and imaginary parts as two channels.")
            if "v" in parts:
                self._influence.check_virial(self._modes)
            return _NAMES[parts], given

        given = self.world.alike(accepted, self._check)
        with given.scope():
            results = [self._on_mesh(plan, given.native, parts) for plan in self._plans]
            means = [sum(each[1:], start=each[0]) / len(each) for each in zip(*results, strict=True)]
            return tuple(map(given.like, means))

    def _of_field(self, field: Any, moments: int = 0, virial: Any = False) -> tuple[Any, ...]:
        """Return the potential at the nodes, or all fields of moments; and the virial if asked for."""

        def accepted() -> tuple[str, Staged]:
            if len(self._plans) > 1:
                raise ValueError("an interlaced solver has two meshes: make one without, or call potential.")
            given = Staged(several(field, self.domain.per_rank, "field")[0], "field")
            batch = given.native.shape[: -self.mesh.ndim]
            if moments and batch != (moments,):
                raise ValueError(f"fields have shape {given.native.shape}; {moments} fields are needed.")
            if checks.flag(virial, "virial"):
                self._influence.check_virial(self._modes)
            return f"potential of {batch} fields, {moments=}, {virial=}", given

        given = self.world.alike(accepted, self._check)
        spectrum = Staged(self.fft.forward(field), "modes").native
        with given.scope():
            if moments:
                spectrum = self._worked(lambda: self._with_moments(spectrum, expand=False))
            density = spectrum[0] if moments else spectrum
            more = [given.like(self._virial(density))] if virial else []

            def product() -> Any:
                of_field = self._times(density, [None])[0]
                if not moments:
                    return of_field
                spectrum[0] = of_field
                return self._with_moments(spectrum, expand=True)

            return self.fft.inverse(given.like(self._worked(product)), norm="forward"), *more

    def _with_moments(self, spectra: Any, *, expand: bool) -> Any:
        """Return dense spectra (m, *modes), which `Moments` has changed."""
        kind: Any = kind_of(spectra)
        key = "moments", kind.home, spectra.dtype
        if key not in self._tables:
            self._tables[key] = Moments(kind.backend(spectra), [self._modes], 1, spectra.real.dtype, self._threads)
        dense = module_of(spectra).ascontiguousarray(spectra)
        self._tables[key](dense, expand=expand)
        return dense

    def _on_mesh(self, plan: Plan, values: Any, parts: str) -> list[Any]:
        """Return what one mesh gives, native arrays."""
        ndim, results = self.mesh.ndim, {}
        spectrum = self.fft.forward(plan.spread(values))
        if "v" in parts:
            results["v"] = self._virial(spectrum)
        if "g" in parts and self._influence.gradient == "ik":
            tables = [*([None] if "p" in parts else []), *range(ndim)]
            fields = self.fft.inverse(
                self._worked(lambda: module_of(spectrum).stack(self._times(spectrum, tables), -ndim - 1)),
                norm="forward",
            )
            several = plan.interpolate(fields)  # (..., tables, N)
            results |= dict(p=several[..., 0, :], g=module_of(several).moveaxis(several[..., -ndim:, :], -2, -1))
        else:
            field = self.fft.inverse(self._worked(lambda: self._times(spectrum, [None]))[0], norm="forward")
            if "g" not in parts:
                results["p"] = plan.interpolate(field)
            else:
                results["p"], results["g"] = plan.value_and_gradient(field)
        return [results[part] for part in parts]

    def _times(self, spectrum: Any, slopes: list[int | None]) -> list[Any]:
        """Return products of a spectrum: with the factors of the potential for None, with those of slopes."""
        return [spectrum * self._table(slope, spectrum) for slope in slopes]

    def _table(self, slope: int | None, spectrum: Any) -> Any:
        """Return factors in a spectrum's library and precision, made at the first use."""
        xp = module_of(spectrum)
        key = slope, xp.__name__, spectrum.dtype
        if key not in self._tables:
            factors = self._factors if slope is None else 1j * self._influence.factors(self._modes, slope)
            kind = spectrum.dtype if np.iscomplexobj(factors) else spectrum.real.dtype
            self._tables[key] = xp.asarray(np.asarray(factors, kind))
        return self._tables[key]

    def _strain(self, like: Any) -> Strain:
        """Return the sums of the virial for numbers like these, made at the first use."""
        dtype = like.real.dtype
        kind: Any = kind_of(like)
        key = "strain", kind.home, dtype
        if key not in self._tables:
            tables = [self._influence.strain(self._modes, self._factors, dtype)]
            self._tables[key] = Strain(kind.backend(like), tables, self.mesh.ndim, self._threads)
        return self._tables[key]

    def _virial(self, spectrum: Any) -> Any:
        """Return the derivatives (..., d, d) by strain of the energies of spectra, the same on every rank."""
        ndim, xp, real = self.mesh.ndim, module_of(spectrum), spectrum.real.dtype
        batch = spectrum.shape[:-ndim]

        def summed() -> Any:
            strain, rows = self._strain(spectrum), math.prod(batch)
            partial = xp.zeros(rows * strain.shares * strain.terms, np.float64 if xp is np else real)
            totals = xp.empty((rows, ndim, ndim), real)
            if rows:
                strain(xp.ascontiguousarray(spectrum).reshape(rows, *self._factors.shape), partial, totals)
            return totals.astype(np.float64)

        return self.world.allreduce(self._worked(summed)).reshape(*batch, ndim, ndim).astype(real)

    def _worked(self, work: Any) -> Any:
        """Return the result of local work, once no rank has failed in it."""
        return together(self.world, self._check, "", work)


def agree_on_functions(world: World, mesh: Any, functions: dict[str, tuple[Any, str]]) -> None:
    """Raise an error on all ranks if functions of k differ between them at the modes along the longest axis.

    Parameters
    ----------
    world : World
    mesh : Mesh
        Periodic.
    functions : dict of str to (function, "k2" or "k")
        By name; as many on all ranks.
    """
    if not functions:
        return
    axis, modes = int(np.argmax(mesh.shape)), [(0, 1)] * mesh.ndim
    modes[axis] = min(1, mesh.shape[axis] // 2), mesh.shape[axis] // 2 + 1
    along = Modes(mesh, real=True, part=modes)

    def worked() -> np.ndarray:
        rows = [table(f, along, of=of, zero=None, parameters={}).ravel() for f, of in functions.values()]
        values = np.stack(rows).astype(np.complex128).view(np.float64)
        return np.stack([values, -values])

    low, high = world.allreduce(together(world, True, "functions of k", worked), "min") * [[[1]], [[-1]]]
    scale = np.maximum(abs(low), abs(high)).max(1)
    for name, apart, most in zip(functions, (high - low).max(1), scale, strict=True):
        if apart > _ALIKE * most:
            raise ValueError(f"{name} is another function on some ranks: their values differ; give all ranks the same.")
