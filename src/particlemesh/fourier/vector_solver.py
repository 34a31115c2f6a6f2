# SPDX-License-Identifier: BSD-3-Clause
"""Vector fields of particles: spread vectors, transform, multiply and project, transform back, interpolate."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.checks import alone
from particlemesh.fourier.compensation import CHOICES, alias_sum, chosen, divisor
from particlemesh.fourier.engines import dense, plain
from particlemesh.fourier.green import table
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import PROJECTIONS, Projection
from particlemesh.fourier.solver import MeshSolver, Work
from particlemesh.mesh import Mesh, mesh_of
from particlemesh.plan import Plan
from particlemesh.window import DEFAULT, Window, window_of

_MOST_BYTES = 1 << 28  # of the fields that are transformed together


class VectorSolver(MeshSolver):
    r"""Vector field, at particles, of the vectors that the particles carry.

    With the density ``rho(x) = sum_p v[p] delta(x - x_p)`` of vectors, the field has the modes ``G(k) P(k) rho(k)``. P
    keeps the part of a vector across k (transverse, for flows without divergence), the part along k, or all. With
    ``green=lambda k2: 1 / k2`` the transverse field is the Stokes flow of point forces at viscosity 1.

    Particles may have form factors: with ``forms`` each particle carries m vectors, and vector number m enters and
    leaves times the form factor number m.

    The same operator has a square root: :meth:`sample` returns vectors with the covariance :meth:`field`.

    Parameters
    ----------
    mesh : Mesh
        Every axis is periodic and has no ghosts.
    window : Window or str
    green, kappa, alpha, of, zero
        As for :meth:`Transform.green`, real. For :meth:`sample` it is not negative.
    onto : {"transverse", "longitudinal", None}
        Which part of each mode is kept.
    forms : sequence of callables, optional
        Form factors: functions of ``k**2``, real. Their values at k = 0 are their own, whatever `zero` is, and
        finite unless the Green function is 0 there.
    compensation : {"auto", "continuous", "discrete", "aliases", None}
        What divides the modes: the square of the window's transform (see :class:`Solver`), or its sum over aliases.
        With "aliases" the field of a particle at its own place is exact on the average over places.
    **options
        Options of :class:`particlemesh.Plan`, such as ``dtype`` and ``backend``.

    Attributes
    ----------
    plan : particlemesh.Plan
        Spreads and interpolates.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import VectorSolver
    >>> mesh = pm.Mesh((24, 24, 24), (1.0, 1.0, 1.0))
    >>> stokes = VectorSolver(mesh, "bspline8", lambda k2: np.exp(-k2 / 200) / k2)
    >>> x = np.array([[0.1, 0.2, 0.3], [0.6, 0.2, 0.3]])
    >>> flow = stokes.set_positions(x).field(np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]))
    >>> flow.shape, bool(abs(flow.sum()) < 1e-5)  # two opposite forces: opposite velocities
    ((3, 2), True)
    """

    def __init__(
        self, mesh: Mesh, window: Window | str = DEFAULT, green: Any = "poisson", *, kappa: float | None = None,
        alpha: float | None = None, of: str = "k2", zero: float | None = None, onto: str | None = "transverse",
        forms: Sequence[Callable[..., Any]] = (), compensation: str | None = "auto", **options: Any,
    ) -> None:  # fmt: skip
        mesh = mesh_of(mesh)
        checks.all_periodic(mesh.periodic)
        self._onto = checks.one_of(onto, "onto", PROJECTIONS)
        if "systems" in options or options.get("order", "caller") != "caller":
            raise ValueError("a VectorSolver has no systems and keeps your order: leave out systems and order.")
        self.mesh, self.window = mesh, window_of(window)
        self.plan = Plan(mesh, self.window, **options)
        self._modes = Modes(mesh, real=True)
        factors, self._forms = vector_factors(
            self._modes, self.window, green, kappa=kappa, alpha=alpha, of=of, zero=zero, forms=forms,
            compensation=compensation,
        )  # fmt: skip
        self._factors = factors
        self._parts = max(1, len(forms))
        self._core = (self._parts, mesh.ndim) if len(forms) > 1 else (mesh.ndim,)
        self._given: dict[str, Any] = dict(
            green=green, kappa=kappa, alpha=alpha, of=of, zero=zero, onto=onto, forms=tuple(forms),
            compensation=compensation, **options,
        )  # fmt: skip
        self._projection: Projection | None = None
        self.busy = threading.RLock()

    def __repr__(self) -> str:
        return f"<VectorSolver: {self._onto}, {self._parts} vectors per particle; {self.plan!r}>"

    @property
    def nbytes(self) -> int:
        """Bytes of the solver's memory, those of its plan included."""
        return self.plan.nbytes + sum(held.nbytes for held in (self._work, self._projection) if held is not None)

    @alone
    def set_positions(self, positions: Any, *, check: bool = True) -> Self:
        """Set the particles' positions; see :meth:`particlemesh.Plan.set_positions`.

        Returns
        -------
        VectorSolver
            The solver itself.
        """
        self._not_recorded(positions)
        self.plan.set_positions(positions, check=check)
        return self

    @alone
    def field(self, vectors: Any, *, out: Any = None) -> Any:
        """Return the field at the particles.

        Parameters
        ----------
        vectors : array (..., d, N), or (..., m, d, N) with m > 1 form factors
            Real; leading axes are channels.
        out : array of the same shape, optional

        Returns
        -------
        array of the same shape
            Array of the library and device of ``vectors``.
        """
        work, plan = self._ready(), self.plan
        core = (*self._core, plan.count)
        operand = self._operand(work, vectors, core, len(core), "vectors")

        def spectra(part: Any) -> Any:
            field = work.take("field", (*part.shape[:-1], *self._modes.shape))
            plan.spread(part, out=field)
            return work.forward(field)

        return self._apply(work, operand, vectors, out, spectra, self._parts, 0)

    @alone
    def sample(self, noise: Any, *, out: Any = None) -> Any:
        """Return vectors at the particles with the covariance of :meth:`field`.

        Parameters
        ----------
        noise : array (..., d, *mesh.shape)
            Independent numbers of mean 0 and variance 1.
        out : array (..., d, N), optional
            With m > 1 form factors (..., m, d, N).

        Returns
        -------
        array (..., d, N), or (..., m, d, N)

        Raises
        ------
        ValueError
            If the Green function is negative somewhere.

        Examples
        --------
        The mean square of each component, without a projection, is that of ``field``:

        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import VectorSolver
        >>> mesh = pm.Mesh((8, 8), (1.0, 1.0))
        >>> solver = VectorSolver(mesh, "bspline6", lambda k2: np.exp(-k2 / 100), onto=None)
        >>> solver = solver.set_positions(np.array([[0.3, 0.4]]))
        >>> noise = np.random.default_rng(1).normal(size=(20000, 2, 8, 8))
        >>> exact = solver.field(np.array([[1.0], [0.0]]))[0, 0]
        >>> bool(abs((solver.sample(noise) ** 2).mean() / exact - 1) < 0.03)
        True
        """
        if (self._factors < 0).any():
            raise ValueError("the Green function is negative at some modes; only one without has a square root.")
        work = self._ready()
        operand = self._operand(work, noise, (self.mesh.ndim, *self.mesh.shape), 3, "noise")

        def spectra(part: Any) -> Any:
            return work.forward(part if plain(part) else dense(work.backend, part))

        return self._apply(work, operand, noise, out, spectra, 1, 1)

    # ---- stages ---------------------------------------------------------------------------------------

    def _ready(self) -> Work:
        self.plan.ready()
        work = self._work
        if work is None or work.owner is not self.plan.backend or work.dtype != self.plan.dtype:
            self._work = work = Work([self.plan], self._modes.shape)
            # Of the noise, whose modes have the variance `size`, the root of the factors is needed.
            root = np.sqrt(np.maximum(self._factors, 0) / work.engine.size)
            self._projection = Projection(
                work.backend, self._modes, (self._factors, root), work.dtype, forms=self._forms, onto=self._onto,
                threads=work.threads,
            )  # fmt: skip
        return work

    def _apply(
        self, work: Work, operand: operands.Operand, user: Any, out: Any, spectra: Callable[[Any], Any], parts: int,
        which: int,
    ) -> Any:  # fmt: skip
        projection, modes_of = self._projection, work.engine.spectrum_shape
        assert projection is not None  # it comes with the work

        def write(result: Any) -> None:
            for index in self._groups(operand.batch, work.dtype):
                source = spectra(operand.native[index]).reshape(-1, parts, self.mesh.ndim, *modes_of)
                target = source
                if parts != self._parts:
                    whole = (source.shape[0], self._parts, self.mesh.ndim, *modes_of)
                    target = work.take("parts", whole, work.engine.complex_dtype)
                projection(source, target, which)
                lead = result[index].shape[:-1]
                field = None if work.on_cpu else work.take("field", (*lead, *self._modes.shape))
                field = work.engine.backward(target.reshape((*lead, *modes_of)), field)
                self.plan.interpolate(field, out=result[index])

        cores = [(*self._core, self.plan.count)]
        return self._run(work, work.with_plans, (parts, which), operand, user, [out], cores, write)[0]

    def _groups(self, batch: tuple[int, ...], dtype: np.dtype) -> Any:
        """Yield indices of channels that are transformed together."""
        one = math.prod(self._core) * math.prod(self._modes.shape) * dtype.itemsize
        if math.prod(batch) * one <= _MOST_BYTES or not batch:
            return [(...,)]
        inner = math.prod(batch[1:]) * one
        if inner > _MOST_BYTES:
            return [(i, *rest) for i in range(batch[0]) for rest in self._groups(batch[1:], dtype)]
        step = max(1, _MOST_BYTES // max(inner, 1))
        return [(slice(i, min(i + step, batch[0])),) for i in range(0, batch[0], step)]


def vector_factors(
    modes: Modes, window: Window, green: Any, *, kappa: float | None, alpha: float | None, of: str,
    zero: float | None, forms: Any, compensation: str | None,
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:  # fmt: skip
    """Return real factors of modes, over volume and size, and the form factors (m, modes) if there are several."""
    checks.one_of(compensation, "compensation", (*CHOICES, "aliases"))

    def aliases(numbers: NDArray[Any], nodes: int, axis: int) -> NDArray[Any]:
        return alias_sum(window, 2 * math.pi * numbers / nodes)

    kind = chosen(compensation, green)
    divided = None if kind is None else aliases if kind == "aliases" else divisor(window, kind, 2)
    parameters = {"kappa": kappa, "alpha": alpha}
    factors = table(green, modes, of=of, zero=zero, parameters=parameters, divisor=divided)
    if factors.dtype.kind == "c":
        raise TypeError("green returns complex values; vectors need a real Green function.")
    factors = factors / (math.prod(modes.shape) * modes.mesh.node_volume)
    if callable(forms):
        raise TypeError("forms is a function; give a sequence of functions, one for each vector of a particle.")
    if not forms:
        return factors, None
    constant = modes.has_zero and bool(factors[(0,) * factors.ndim])
    shapes = np.stack([_form(form, n, modes, constant) for n, form in enumerate(forms)])
    return (factors * shapes[0] ** 2, None) if len(forms) == 1 else (factors, shapes)


def _form(form: Any, number: int, modes: Modes, constant: bool) -> NDArray[np.float64]:
    """Return a form factor at all modes; ``constant`` says whether its value at k = 0 counts."""
    what = f"forms[{number}]"
    if not callable(form):
        raise TypeError(f"{what} is {form!r}; give a function of k**2.")
    values = table(form, modes, of="k2", zero=None, parameters={})
    if values.dtype.kind == "c":
        raise TypeError(f"{what} returns complex values; form factors are real.")
    with np.errstate(all="ignore"):
        if constant and not np.isfinite(form(np.zeros((1,) * values.ndim))).all():
            raise ValueError(f"{what} is not finite at k = 0, where it counts; give a function that is.")
    return values
