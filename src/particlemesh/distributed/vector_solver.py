# SPDX-License-Identifier: BSD-3-Clause
"""Vector fields of particles on many ranks: spread vectors, transform, multiply and project, and back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import kind_of
from particlemesh.checks import alone
from particlemesh.distributed.domain import Domain
from particlemesh.distributed.fft import FFT
from particlemesh.distributed.plan import Plan
from particlemesh.distributed.solver import agree_on_functions
from particlemesh.distributed.staging import Staged, several
from particlemesh.distributed.transports import module_of
from particlemesh.distributed.world import World, together
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import PROJECTIONS, Projection
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
        self._check, self._threads = options.get("check", True), options.get("threads")
        name = type(green).__name__ if callable(green) else green
        with self.world.agreement(f"VectorSolver({name}, {kappa=}, {alpha=}, {of=}, {zero=}, {onto=}, {parts=})"):
            checks.all_periodic(self.mesh.periodic)
            forms = forms if callable(forms) else tuple(forms)
            self._onto = checks.one_of(onto, "onto", PROJECTIONS)
        self.fft = FFT(
            domain, self.world, parts=parts, deterministic=options.get("deterministic", False), check=self._check,
            threads=self._threads,
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
        self._tables: dict[Any, Projection] = {}  # by library and dtype

    def __repr__(self) -> str:
        return f"<VectorSolver over ranks: {self._onto}; {self.plan!r}>"

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's plan and tables."""
        return self.plan.nbytes + sum(each.nbytes for each in self._tables.values())

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
        kind: Any = kind_of(modes)
        key = kind.home, modes.real.dtype
        if key not in self._tables:
            self._tables[key] = Projection(
                kind.backend(modes), self._modes, self._factors, key[1], forms=self._forms, onto=self._onto,
                threads=self._threads,
            )  # fmt: skip
        shape, xp = self._modes.spectrum_shape, module_of(modes)
        core = (1 if which else math.prod(self._core[:-1]), self.mesh.ndim, *shape)
        lead = modes.shape[: modes.ndim - len(shape) - (1 if which else len(self._core))]
        source = xp.ascontiguousarray(modes).reshape(math.prod(lead), *core)
        target = xp.empty((*lead, *self._core, *shape), modes.dtype)
        self._tables[key](source, target.reshape(len(source), -1, *core[1:]) if target.size else source, which)
        return target
