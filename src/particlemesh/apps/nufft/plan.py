# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a non-uniform Fourier transform, with FINUFFT's interface."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.nufft import shapes
from particlemesh.apps.nufft.few import core_of
from particlemesh.apps.nufft.nonuniform import NonUniform
from particlemesh.apps.nufft.options import Options
from particlemesh.apps.nufft.shapes import ArgumentError, Space, Spaces
from particlemesh.apps.nufft.sizes import Law, Sizes, window_for
from particlemesh.apps.nufft.uniform import Uniform
from particlemesh.kernels import Fixed, alone, checks, overlap

_REAL: dict[np.dtype, np.dtype] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
_ENDS = {1: ("points", "modes"), 2: ("modes", "points"), 3: ("points", "frequencies")}
_ONE = [slice(0, 1)]
_ALONE = contextlib.nullcontext()
_MOST_BYTES = 2**28  # of the fine meshes of vectors that are transformed together


class Plan(Fixed):
    r"""Non-uniform fast Fourier transform: construction depends on sizes, `setpts` on points, `execute` on values.

    ======  ====================================================  ==============================
    type    ``execute``                                           default sign
    ======  ====================================================  ==============================
    1       ``f[k] = sum_j c[j] exp(i isign k . x_j)``            +1
    2       ``c[j] = sum_k f[k] exp(i isign k . x_j)``            -1
    3       ``f[k] = sum_j c[j] exp(i isign s_k . x_j)``          +1
    ======  ====================================================  ==============================

    Arguments, attributes and messages are those of FINUFFT [barnett2019]_ and cuFINUFFT [shih2021]_, so that
    ``import particlemesh.apps.nufft as finufft`` is all that a program changes. Arrays may be of NumPy, CuPy, PyTorch,
    JAX or PyOpenCL; results are of the same library and device.

    Parameters
    ----------
    nufft_type : {1, 2, 3}
        Type of the transform.
    n_modes_or_dim : int or tuple of 1 to 3 ints
        Modes per axis, from ``-(n // 2)`` to ``(n - 1) // 2``. For type 3 the number of axes.
    n_trans : int
        Vectors that share the points.
    eps : float
        Relative l2 error to reach, for random values. If the precision, ``upsampfac`` or the number of points does
        not allow it, a warning names what they allow.
    isign : int, optional
        Sign of the exponent: negative, or else positive.
    dtype : {"complex128", "complex64"}
        Type of values; points have the real type of the same precision.
    **opts
        ``modeord``: 0 for ascending modes, 1 for the order of ``numpy.fft``. ``upsampfac``: nodes of the fine mesh
        per mode and axis; by default the one of least predicted time. ``nthreads``: CPU threads. ``maxbatchsize``:
        vectors that are transformed together. ``spreadinterponly``: spread to, or interpolate from, a mesh of
        ``n_modes`` nodes on [-pi, pi). ``allow_eps_too_small``: no warning. ``gpu_device_id``: number of the device,
        by default that of the arrays. Of particlemesh: ``real=True`` for real values at points, and ``method``,
        ``interpolation``, ``applications``, ``deterministic`` of `particlemesh.Plan`. Options that tune
        the peers' kernels have no effect here. Unknown ones are warned about.

    Raises
    ------
    RuntimeError, TypeError
        If an argument is not allowed; the message has FINUFFT's words and what was given.

    Notes
    -----
    With ``real=True`` types 1 and 3 take real strengths, and type 2 returns the real part of the sum. Types 1 and 2
    take about 0.6 of the time (``benchmarks/results/nufft-*.csv``) and half of the memory. Type 3 saves time at the
    points if the frequencies lie around 0.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps import nufft
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.uniform(-np.pi, np.pi, (2, 1000))
    >>> strengths = rng.normal(size=1000) + 1j * rng.normal(size=1000)
    >>> plan = nufft.Plan(1, (20, 30), eps=1e-9)
    >>> plan.setpts(x, y)
    >>> modes = plan.execute(strengths)
    >>> exact = (strengths * np.exp(1j * (3 * x - 7 * y))).sum()
    >>> modes.shape, bool(abs(modes[10 + 3, 15 - 7] - exact) < 1e-8 * abs(strengths).sum())
    ((20, 30), True)
    """

    def __init__(
        self,
        nufft_type: int,
        n_modes_or_dim: Any,
        n_trans: Any = 1,
        eps: float = 1e-6,
        isign: int | None = None,
        dtype: Any = "complex128",
        **opts: Any,
    ) -> None:
        if nufft_type not in (1, 2, 3):
            raise ArgumentError(f"transform type invalid: nufft_type is {nufft_type!r}; give 1, 2 or 3.")
        self._type = int(nufft_type)
        self._dtype = np.dtype(dtype)
        if self._dtype not in _REAL:
            raise ArgumentError(
                f"dtype (precision type) must be single or double: Expected complex64 or complex128, not {dtype}."
            )
        self._real_dtype = _REAL[self._dtype]
        self._n_modes, self._dim = shapes.modes_of(self._type, n_modes_or_dim)
        if not isinstance(n_trans, numbers.Integral) or n_trans < 1:
            raise ArgumentError(f"number of transforms ntrans invalid: n_trans is {n_trans!r}; give 1 or more.")
        self._n_trans = int(n_trans)
        sign = (-1 if self._type == 2 else 1) if isign is None else isign
        self._sign = -1 if checks.per_axis(sign, 1, "isign")[0] < 0 else 1
        self._given = opts
        self._options = Options.of(opts)
        self._values_dtype = self._real_dtype if self._options.real else self._dtype
        self._law = Law(self._dim, self._real_dtype, twice=self._type == 3)
        self._eps = self._tolerance(checks.positive(eps, "eps"))
        self._core: Any = None  # Uniform, NonUniform, or a particlemesh.Plan that spreads only
        self._spaces: Spaces | None = None  # None without points
        self._spaces_for: tuple[Any, ...] = ()  # kind, backend, points and frequencies
        self._named = 0.0  # the estimate of errors that a warning has named
        self.busy = threading.RLock()

    def _tolerance(self, eps: float) -> float:
        reachable = self._law.reachable(self._options.upsampfac)
        if eps >= reachable:
            return eps
        if not self._options.quiet:
            with_factor = f" and upsampfac={self._options.upsampfac}" if self._options.upsampfac else ""
            warnings.warn(
                f"eps tolerance too small to achieve: eps is {eps:g}; {self._dtype}{with_factor} reaches about "
                f"{reachable:.1e} in {self._dim}-D of type {self._type}, which is used.",
                stacklevel=3,
            )
        return reachable

    @property
    def type(self) -> int:
        """Type of the transform: 1, 2 or 3."""
        return self._type

    @property
    def dtype(self) -> np.dtype:
        """Type of modes: complex64 or complex128."""
        return self._dtype

    @property
    def dim(self) -> int:
        """Number of axes."""
        return self._dim

    @property
    def n_modes(self) -> tuple[int, ...]:
        """Modes per axis; ones for type 3."""
        return self._n_modes

    @property
    def n_trans(self) -> int:
        """Vectors that share the points."""
        return self._n_trans

    @property
    def eps(self) -> float:
        """Tolerance in use."""
        return self._eps

    def __repr__(self) -> str:
        size = f"{self._dim}-D" if self._type == 3 else " x ".join(map(str, self._n_modes)) + " modes"
        state = "no points" if self._spaces is None else f"{self._spaces.ends['points'].shape[0]:,} points"
        core = ""
        if isinstance(self._core, (Uniform, NonUniform)):
            sizes = self._core.sizes
            core = f"; {sizes.support} nodes, mesh {' x '.join(map(str, sizes.nodes))}, error {sizes.error:.1e}"
        return f"<nufft.Plan: type {self._type}, {size}, {self._dtype.name}, eps {self._eps:g}, {state}{core}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without points.
        size = self._dim if self._type == 3 else self._n_modes
        options = {"eps": self._eps, "isign": self._sign, "dtype": self._dtype.name, **self._given}
        return functools.partial(type(self), self._type, size, self._n_trans, **options), ()

    # ---- points ---------------------------------------------------------------------------------------

    @alone
    def setpts(self, x: Any = None, y: Any = None, z: Any = None, s: Any = None, t: Any = None, u: Any = None) -> None:
        """Set the points, and for type 3 the frequencies.

        The fine mesh follows from the number of points, for type 3 from the boxes of points and frequencies. Points
        that move a little keep it. Results never depend on the points that the plan had before.

        Parameters
        ----------
        x, y, z : array (N,)
            Coordinates of the points, one array per axis; types 1 and 2 fold them into a period of 2 pi.
        s, t, u : array (M,)
            Coordinates of the frequencies of type 3.

        Raises
        ------
        RuntimeError, TypeError
            If an array does not have the plan's precision or the right shape.
        ValueError
            If a coordinate is not finite. The plan keeps its earlier points.
        MemoryError
            If there is too little memory. A plan of type 3 may have no points then, which `execute` says.
        """
        with self._agreement("setpts"):
            points, others = [x, y, z], [s, t, u]
            if self._type != 3 and any(a is not None for a in others):
                raise ArgumentError(f"s, t and u are frequencies of type 3, and this plan is of type {self._type}.")
            count = shapes.check_points(points, "xyz", self._dim, self._real_dtype)
            targets = shapes.check_points(others, "stu", self._dim, self._real_dtype) if self._type == 3 else 0
            kinds = {shapes.kind(a, name) for a, name in zip(points + others, "xyzstu", strict=True) if a is not None}
            if len(kinds) > 1:
                raise ArgumentError(f"coordinates are of {' and '.join(k.name for k in kinds)}; give one library.")
            (kind,) = kinds
            backend = kind.backend(x)
            self._check_device(backend)
            with kind.scope(x):  # a mask or a derivative is an error of all ranks
                sides = [tuple(kind.native(a) for a in some[: self._dim] if a is not None) for some in (points, others)]
        with kind.scope(x), backend.scope(*sides[0]):
            if self._type == 3:
                core: Any = self._nonuniform(backend)
                core.set_points(*sides)
            else:
                core = self._uniform(backend, count)
                (core.set_positions if self._options.spreadinterponly else core.set_points)(sides[0])
        self._core = core
        key = kind, backend, count, targets, self._held_modes(core)
        if self._spaces is None or self._spaces_for != key:
            numbers = self._dtype if not self._options.spreadinterponly else self._values_dtype
            self._spaces_for, self._spaces = key, Spaces(
                kind, backend, self._n_trans, Space("points", (count,), self._values_dtype),
                Space("modes", key[-1], numbers), Space("frequencies", (targets,), self._dtype),
            )  # fmt: skip
        self._name_the_error()

    def _name_the_error(self) -> None:
        """Warn once if these points, or a given oversampling, do not allow the tolerance."""
        if self._options.spreadinterponly or self._options.quiet:
            return
        error = self._core.sizes.error
        if error > max(2 * self._eps, self._named):
            self._named = error
            mesh = " x ".join(map(str, self._core.sizes.nodes))
            warnings.warn(
                f"eps is {self._eps:g}; with these points and a mesh of {mesh} nodes, rounding and aliases allow about "
                f"{error:.1e}: give another upsampfac or none, complex128, or fewer points at a time.",
                stacklevel=4,
            )

    def _check_device(self, backend: Any) -> None:
        device, given = self._options.device, getattr(backend, "ordinal", None)
        if device is not None and given is not None and device != given:
            raise ArgumentError(f"gpu_device_id is {device}, and the points are on device {given}.")

    def _nonuniform(self, backend: Any) -> NonUniform:
        """Return the core of type 3, which is kept."""
        if self._core is not None and backend is self._core.backend:
            return self._core
        return NonUniform(
            backend, self._eps, self._law, self._options.upsampfac, self._real_dtype, self._options.real,
            self._options.of_plans(backend),
        )  # fmt: skip

    def _uniform(self, backend: Any, count: int) -> Any:
        """Return the core of types 1 and 2; it is kept as long as the number of points leads to the same one."""
        real, period = self._options.real, (2 * math.pi,) * self._dim
        if self._options.spreadinterponly:
            if self._spaces is not None and backend is self._spaces.backend:
                return self._core
            sigma = self._options.upsampfac or 2.0
            support = self._law.support(self._eps, sigma)
            sizes = Sizes(support, sigma, self._n_modes, self._law.error(support, sigma))
            mesh = pm.Mesh(self._n_modes, period, origin=(-math.pi,) * self._dim)
            return pm.Plan(
                mesh, window_for(sizes, self._eps), dtype=self._real_dtype.name, components=1 if real else 2,
                **self._options.of_plans(backend),
            )  # fmt: skip
        make, sizes = core_of(
            backend, self._n_modes, self._eps, self._law, count, self._n_trans, self._real_dtype, self._options
        )
        if type(self._core) is make and self._core.backend is backend and self._core.sizes == sizes:
            return self._core
        return make(
            backend, self._n_modes, sizes, self._eps, self._real_dtype, lengths=period, origin=(0.0,) * self._dim,
            order=("centred", "fft")[self._options.modeord], real=real, options=self._options.of_plans(backend),
        )  # fmt: skip

    # ---- values ---------------------------------------------------------------------------------------

    @alone
    def execute(self, data: Any, out: Any = None) -> Any:
        """Transform values: strengths (n_trans, N) for types 1 and 3, modes (n_trans, *n_modes) for type 2.

        Parameters
        ----------
        data : array
            In C order; another order is copied with a warning. The first axis may be missing if n_trans is 1.
        out : array, optional
            The result's memory, in C order.

        Returns
        -------
        array
            Modes (n_trans, *n_modes) of type 1, values (n_trans, N) of type 2, (n_trans, M) of type 3. The first axis
            is missing if `data` has none.

        Raises
        ------
        RuntimeError, TypeError
            If no points are set, or the type or shape of an array does not fit.
        """
        return self._execute(data, out, forward=True)

    @alone
    def execute_adjoint(self, data: Any, out: Any = None) -> Any:
        """Apply the adjoint: arrays are those of `execute` with input and output exchanged.

        The adjoint of a plan with ``isign`` s has the exponent's sign -s. The gradient of a loss by the strengths of
        type 1 is the adjoint of the loss's gradient by the modes.
        """
        return self._execute(data, out, forward=False)

    @alone
    def execute_gradient(self, data: Any) -> tuple[Any, Any]:
        """Return sums at the points and their gradients by the points, in one pass.

        The sums are those of `execute` for type 2, and those of `execute_adjoint` for types 1 and 3. For gradients by
        the frequencies of type 3, exchange points and frequencies.

        Parameters
        ----------
        data : array (n_trans, *n_modes), or (n_trans, M) for type 3
            Modes, or values at the frequencies.

        Returns
        -------
        values : array (n_trans, N)
        gradients : array (n_trans, N, dim)
            Derivatives by x, y and z.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps import nufft
        >>> x, modes = np.linspace(0, 6, 5), np.zeros(9, complex)
        >>> modes[4 + 3] = 1
        >>> plan = nufft.Plan(2, (9,), eps=1e-9, isign=1)
        >>> plan.setpts(x)
        >>> values, slopes = plan.execute_gradient(modes)
        >>> bool(abs(slopes[:, 0] - 3j * np.exp(3j * x)).max() < 1e-7)
        True
        """
        if self._options.spreadinterponly:
            raise ArgumentError("execute_gradient needs a Fourier transform: leave out spreadinterponly.")
        sign = self._sign if self._type == 2 else -self._sign
        with self._agreement("execute_gradient"):
            spaces, source = self._with_points(), "frequencies" if self._type == 3 else "modes"
            call = self._core.gradient if self._type == 3 else self._core.to_points_and_slopes
            native, batch = spaces.taken(data, source)
        with spaces.kind.scope(data), spaces.backend.scope(native):
            values = spaces.dense(native, source)
            results = spaces.empty("points"), spaces.empty("points", self._dim)
            for part in self._parts():
                for result, piece in zip(results, call(values[part], sign), strict=True):
                    spaces.backend.copy(result[part], piece)
            return spaces.given(results[0], batch), spaces.given(results[1], batch)

    def _execute(self, data: Any, out: Any, forward: bool) -> Any:
        source, target = _ENDS[self._type] if forward else _ENDS[self._type][::-1]
        with self._agreement("execute to " + target):
            spaces, sign = self._with_points(), self._sign if forward else -self._sign
            native, batch = spaces.taken(data, source)
            with spaces.kind.scope(data), spaces.backend.scope(native):
                values = spaces.dense(native, source)
                result = spaces.result(out, target)
                if out is not None and overlap(values, result):
                    raise ArgumentError("Argument `out` shares memory with `data`; give a separate array.")
        with spaces.kind.scope(data), spaces.backend.scope(native):
            call = self._call(target)

            def transform() -> None:
                for part in self._parts():
                    call(values[part], sign, result[part])

            if isinstance(self._core, (Uniform, NonUniform)):
                self._core.replays((target, sign), (values, result), transform)
            else:
                transform()
            return spaces.given(result, batch) if out is None else out

    def _agreement(self, call: str) -> Any:
        """Return a context for the checks of a call, before which nothing has happened."""
        return _ALONE

    def _held_modes(self, core: Any) -> tuple[int, ...]:
        """Return how many modes per axis a call takes or returns."""
        return self._n_modes

    def _with_points(self) -> Spaces:
        if self._spaces is None or (self._type == 3 and not self._core.has_points):
            raise RuntimeError("this plan has no points yet: call setpts first.")
        return self._spaces

    def _call(self, target: str) -> Callable[[Any, int, Any], Any]:
        """Return the function (values, sign, result) of a direction."""
        core, copy = self._core, self._with_points().backend.copy
        if self._options.spreadinterponly:
            only = core.spread if target == "modes" else core.interpolate
            return lambda values, sign, result: only(values, out=result)
        if self._type == 3:
            one_way = core.adjoint if target == "points" else core.forward
            return lambda values, sign, result: copy(result, one_way(values, sign))
        call: Callable[[Any, int, Any], Any] = core.to_modes if target == "modes" else core.to_points
        return call

    def _parts(self) -> list[slice]:
        """Return the vectors that are transformed together."""
        most = self._options.batch
        if self._n_trans == 1:
            return _ONE
        if not most:
            spread_only = self._options.spreadinterponly
            most = self._n_trans if spread_only else max(1, _MOST_BYTES // max(1, self._core.field_bytes))
        return [slice(i, min(i + most, self._n_trans)) for i in range(0, self._n_trans, most)]
