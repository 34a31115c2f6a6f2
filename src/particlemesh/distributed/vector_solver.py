# SPDX-License-Identifier: BSD-3-Clause
"""Vector fields of particles on many ranks: spread vectors, transform, multiply and project, and back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.checks import alone
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.fft import FFT
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.solver import agree_on_functions
from particlemesh.distributed.staging import Staged, several
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World, together
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import PROJECTIONS
from particlemesh.fourier.vector_solver import vector_factors
from particlemesh.window import DEFAULT, Window


class VectorSolver(checks.Fixed):
    r"""Vector field at particles of many ranks: the distributed :class:`particlemesh.fourier.VectorSolver`.

    Particles travel as for :class:`Plan`, and results come back to the caller's rank and order. All methods are
    collective.

    Parameters
    ----------
    domain : Domain
        The mesh and its parts. Every axis is periodic.
    world : World, optional
        The ranks; a single one by default.
    window, green, kappa, alpha, of, zero, onto, forms, compensation
        As for :class:`particlemesh.fourier.VectorSolver`, and the same on every rank.
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

    Examples
    --------
    >>> import numpy as np, particlemesh as pm, particlemesh.distributed as pmd
    >>> world = pmd.World()
    >>> domain = pmd.Domain(pm.Mesh((24, 24, 24), (1.0, 1.0, 1.0)), world.size)
    >>> stokes = pmd.VectorSolver(domain, world, "bspline8", lambda k2: np.exp(-k2 / 200) / k2)
    >>> x = np.array([[0.1, 0.2, 0.3], [0.6, 0.2, 0.3]])
    >>> flow = stokes.set_positions(x).field(np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]))
    >>> flow.shape, bool(abs(flow.sum()) < 1e-5)  # two opposite forces: opposite velocities
    ((3, 2), True)
    """

    def __init__(
        self, domain: Domain, world: World | None = None, window: Window | str = DEFAULT, green: Any = "poisson", *,
        kappa: float | None = None, alpha: float | None = None, of: str = "k2", zero: float | None = None,
        onto: str | None = "transverse", forms: Sequence[Callable[..., Any]] = (), compensation: str | None = "auto",
        parts: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        self.busy, self.world = threading.RLock(), World() if world is None else world
        self.plan = Plan(domain, self.world, window, **options)
        self.domain, self.mesh, self.window = domain, domain.mesh, self.plan.window
        self._check = options.get("check", True)
        name = type(green).__name__ if callable(green) else green
        with self.world.agreement(f"VectorSolver({name}, {kappa=}, {alpha=}, {of=}, {zero=}, {onto=}, {parts=})"):
            checks.all_periodic(self.mesh.periodic)
            forms = forms if callable(forms) else tuple(forms)
            self._onto = checks.one_of(onto, "onto", PROJECTIONS)
        self.fft = FFT(
            domain, self.world, parts=parts, deterministic=options.get("deterministic", False), check=self._check,
            threads=options.get("threads"),
        )  # fmt: skip
        self._modes = Modes(self.mesh, real=True, part=self.fft.part)
        with self.world.agreement(f"factors of {'no' if callable(forms) else len(forms)} forms, {compensation=}"):
            factors, self._forms = vector_factors(
                self._modes, self.window, green, kappa=kappa, alpha=alpha, of=of, zero=zero, forms=forms,
                compensation=compensation,
            )  # fmt: skip
        named = {f"forms[{n}]": (form, "k2") for n, form in enumerate(forms)}
        agree_on_functions(self.world, self.mesh, ({"green": (green, of)} if callable(green) else {}) | named)
        self._negative = bool(self.world.allreduce(int((factors < 0).any()), "max"))
        # Of the noise, whose modes have the number of nodes as variance, the root is needed.
        self._factors = factors, np.sqrt(np.maximum(factors, 0) / math.prod(self._modes.shape))
        self._core = (*(() if self._forms is None else (len(self._forms),)), self.mesh.ndim)
        self._tables: dict[Any, tuple[Any, ...]] = {}  # by library and dtype

    def __repr__(self) -> str:
        return f"<VectorSolver over ranks: {self._onto}; {self.plan!r}>"

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's plan and tables."""
        tables = (array for _, forms, unit in self._tables.values() for array in (*unit, forms))
        factors = (array for factors, _, _ in self._tables.values() for array in factors)
        return self.plan.nbytes + sum(int(array.nbytes) for array in (*tables, *factors) if array is not None)

    @alone
    def set_positions(self, positions: Any, *, check: bool = True) -> Self:
        """Set the positions of this rank's particles; see :meth:`Plan.set_positions`.

        Returns
        -------
        VectorSolver
            The solver itself.
        """
        self.plan.set_positions(positions, check=check)
        return self

    @alone
    def field(self, vectors: Any) -> Any:
        """Return the field at this rank's particles, of the vectors of all ranks.

        Parameters
        ----------
        vectors : array (..., d, N), or (..., m, d, N) with m > 1 form factors
            Real, of this rank's particles; leading axes are channels.

        Returns
        -------
        array of the same shape
            Array of the library and device of ``vectors``.
        """

        def accepted() -> tuple[str, Staged]:
            given, core = Staged(vectors, "vectors"), (*self._core, self.plan.count)
            if given.native.dtype.kind == "c" or given.native.shape[-len(core) :] != core:
                shape = f"shape {given.native.shape} and dtype {given.native.dtype}"
                raise ValueError(f"vectors has {shape}; real numbers (..., {str(core)[1:]} are needed.")
            return "field", given

        given = self.world.alike(accepted, self._check)
        with given.scope():
            return self._returned(given, self.plan.spread(given.native), 0)

    @alone
    def sample(self, noise: Any) -> Any:
        r"""Return vectors at this rank's particles with the covariance of :meth:`field`.

        Parameters
        ----------
        noise : array (..., d, \*part), or tuple with one for each part of this rank
            Independent numbers of mean 0 and variance 1, at this rank's nodes.

        Returns
        -------
        array (..., d, N), or (..., m, d, N) with m > 1 form factors

        Raises
        ------
        ValueError
            If the Green function is negative somewhere.
        """

        def accepted() -> tuple[str, Staged]:
            if self._negative:
                raise ValueError("the Green function is negative at some modes; only one without has a square root.")
            self.plan.route  # noqa: B018 - raises before positions
            return "sample", Staged(several(noise, self.domain.per_rank, "noise")[0], "noise")

        given = self.world.alike(accepted, self._check)
        with given.scope():
            return self._returned(given, noise, 1)

    def _returned(self, given: Staged, field: Any, which: int) -> Any:
        """Return what a field gives at particles, by the factors (0) or their root, of one vector each (1)."""
        modes = Staged(self.fft.forward(field), "modes").native
        product = together(self.world, self._check, "", lambda: self._projected(modes, which))
        return given.like(self.plan.interpolate(self.fft.inverse(product, norm="forward")))

    def _projected(self, modes: Any, which: int) -> Any:
        """Return spectra (..., [m,] d, modes) times factors, projected; of noise (..., d, modes) for the root."""
        factors, forms, unit = self._on(module_of(modes), modes.real.dtype)
        axis = modes.ndim - self.mesh.ndim - 1  # of components
        several = forms is not None
        vector = modes
        if several and not which:
            axis -= 1
            vector = (forms[:, None] * modes).sum(axis)
        if self._onto is not None:
            components = [vector[(..., c, *(slice(None),) * self.mesh.ndim)] for c in range(self.mesh.ndim)]
            along = sum(u * v for u, v in zip(unit, components, strict=True))
            parallel = module_of(modes).stack([u * along for u in unit], axis)
            vector = parallel if self._onto == "longitudinal" else vector - parallel
        vector = vector * factors[which]
        return forms[:, None] * module_of(modes).expand_dims(vector, axis) if several else vector

    def _on(self, xp: Any, dtype: np.dtype) -> tuple[Any, ...]:
        """Return factors, form factors and directions of k in a library and precision, made at the first use."""
        key = xp.__name__, dtype
        if key not in self._tables:
            slopes = [np.broadcast_to(k, self._modes.spectrum_shape) for k in self._modes.slopes]
            length = np.sqrt(sum(k * k for k in slopes))
            unit = [np.divide(k, length, out=np.zeros(k.shape), where=length > 0) for k in slopes]

            def placed(array: Any) -> Any:
                return xp.asarray(np.ascontiguousarray(array, dtype))

            forms = None if self._forms is None else placed(self._forms)
            self._tables[key] = tuple(map(placed, self._factors)), forms, tuple(map(placed, unit))
        return self._tables[key]
