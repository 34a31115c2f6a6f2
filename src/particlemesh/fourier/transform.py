# SPDX-License-Identifier: BSD-3-Clause
"""A mesh in Fourier space: transforms of fields, wave vectors, Green functions, compensation."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh import backends, checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import allocate
from particlemesh.arrays.operands import COMPLEX
from particlemesh.backends.base import Backend, kept
from particlemesh.backends.cpu import at_most_cores
from particlemesh.checks import alone
from particlemesh.fourier.bands import Bands
from particlemesh.fourier.compensation import KINDS, POWERS, USES, divisor, noise_of, transform_of
from particlemesh.fourier.engines import dense, plain
from particlemesh.fourier.green import table
from particlemesh.fourier.modes import Modes
from particlemesh.fourier.multiply import Factors, checked
from particlemesh.functions import spread
from particlemesh.mesh import Mesh, mesh_of
from particlemesh.window import DEFAULT, Window, window_of


class Transform(checks.Fixed):
    """Fourier transforms of the fields of a mesh, with everything that depends on the wave vectors.

    A field ``f`` has the modes ``F[k] = sum_m f[m] exp(-i k (x_m - corner))``, in the order of ``rfftn`` or ``fftn``.
    The corner is the box's origin, so meshes with different offsets have comparable modes. Any array kind works;
    results have the kind and the device of the input. Tables of wave vectors and factors are NumPy arrays, float64.

    Open axes are padded with zeros, so that products of spectra are convolutions in free space.

    Parameters
    ----------
    mesh : Mesh
        Any box, shape and offset. Periodic axes have no ghosts.
    window : Window or str
        Window of :meth:`compensation` and :meth:`modes`.
    real : bool
        Transform real fields to half of their modes; else complex fields.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default that of the arrays. If named, host arrays are copied there and back.
    dtype : {"float32", "float64"}, optional
        Real type; by default that of each field.
    threads : int, optional
        CPU threads.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.fourier import Transform
    >>> mesh = pm.Mesh((8, 6), (2 * np.pi, 2 * np.pi))
    >>> transform = Transform(mesh)
    >>> field = np.cos(mesh.nodes(0))[:, None] * np.ones(6)
    >>> (abs(transform.forward(field)).round(12)[:2, 0] / 48).tolist()
    [0.0, 0.5]
    >>> abs(transform.gradient(field)[0] + np.sin(mesh.nodes(0))[:, None]).max().round(12)
    np.float64(0.0)
    """

    def __init__(
        self, mesh: Mesh, window: Window | str = DEFAULT, *, real: bool = True, backend: str | None = None,
        dtype: Any = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        mesh = mesh_of(mesh)
        self.mesh, self.window = mesh, window_of(window)
        self.real = checks.flag(real, "real")
        self.dtype: Any = None if dtype is None else checks.real_type(dtype)
        self.threads = at_most_cores(checks.threads(threads, backend))
        self._named = backend
        self._given: dict[str, Any] = dict(real=self.real, backend=backend, dtype=self.dtype, threads=self.threads)
        self._device = None if backend is None else backends.current(backend)
        self.layout = Modes(mesh, self.real)
        self._bands: dict[Any, Bands] = {}  # by direction, backend and dtype
        self.busy = threading.RLock()
        self._tokens: dict[int, Any] = {}  # of the last call's stream, by backend

    def __repr__(self) -> str:
        kind = "real" if self.real else "complex"
        return f"<Transform: {' x '.join(map(str, self.shape))} nodes, {kind}, {self.window.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), self.mesh, self.window, **self._given), ()  # arguments, never handles

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per axis of the transform, zeros of open axes included."""
        return self.layout.shape

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Modes per axis."""
        return self.layout.spectrum_shape

    @property
    def wavenumbers(self) -> tuple[NDArray[np.float64], ...]:
        """Cartesian components of k in radians per length; they broadcast against a spectrum.

        The highest mode of an even axis is +k and -k. It has the positive sign on the last axis of real transforms,
        and the negative one on other axes.
        """
        return self.layout.vectors()

    @property
    def k2(self) -> NDArray[np.float64]:
        """``k**2`` of every mode, read-only, for :attr:`wavenumbers`."""
        return self.layout.k2

    # ---- tables ---------------------------------------------------------------------------------------

    def green(
        self, green: Any = "poisson", *, kappa: float | None = None, alpha: float | None = None, of: str = "k2",
        zero: float | None = None, compensation: str | None = None,
    ) -> NDArray[Any]:  # fmt: skip
        r"""Return a Green function at all modes: ``potential = green * density``.

        Along open axes it is the one of free space, by a cut-off beyond the largest distance [vico2016]_.

        Parameters
        ----------
        green : {"poisson", "yukawa", "ewald"}, ProlateGreen or callable
            ``1 / k**2`` solves ``-laplace(phi) = rho`` (without 4 pi), ``1 / (k**2 + kappa**2)`` the screened equation.
            ``exp(-k**2 / (4 alpha**2)) / k**2`` is the long-range part of an Ewald sum. A function gets arrays.
        kappa : float
            Inverse screening length, for "yukawa".
        alpha : float
            Inverse width of the Gaussians, for "ewald".
        of : {"k2", "k"}
            What a function gets: ``k**2``, or the d components of k. A function f of k has ``f(-k) = conj(f(k))``
            if it leaves real fields real.
        zero : float, optional
            Value at k = 0. By default the function's own; where it is infinite, 0: a uniform background neutralises
            the box. Not allowed with open axes.
        compensation : {"spread", "potential"}, optional
            Multiply by these factors of :meth:`compensation`. With open axes this is more accurate than to multiply
            the table by them, because the function is cut off afterwards.

        Returns
        -------
        NumPy array (\*spectrum_shape)
            At the highest mode of even axes, +k and -k are averaged.

        Raises
        ------
        ValueError
            If a parameter is missing, superfluous or not positive, or if a function is not finite beyond k = 0.

        Examples
        --------
        >>> import particlemesh as pm
        >>> from particlemesh.fourier import Transform
        >>> Transform(pm.Mesh(4, 2 * np.pi)).green("yukawa", kappa=1.0)
        array([1. , 0.5, 0.2])
        """
        checks.one_of(compensation, "compensation", (*POWERS, None))
        return table(
            green, self.layout, of=of, zero=zero, parameters={"kappa": kappa, "alpha": alpha},
            divisor=None if compensation is None else divisor(self.window, "continuous", POWERS[compensation]),
        )  # fmt: skip

    def compensation(
        self, use: str = "potential", *, kind: str = "continuous", interlaced: bool = False
    ) -> NDArray[np.float64]:
        r"""Return the factors that undo the window.

        Parameters
        ----------
        use : {"spread", "potential", "power"}
            With "spread" modes of one spreading are divided by the window's transform W. With "potential" they are
            divided by ``W**2``, for spreading and interpolation. With "power" the power of shot noise is divided by
            the sum of ``W**2`` over aliases. It is then flat up to the highest mode.
        kind : {"continuous", "discrete"}
            Transform W of the window itself or of its samples at the nodes; not for "power".
        interlaced : bool
            For "power": of modes from :meth:`modes` with ``interlaced=True``.

        Returns
        -------
        NumPy array (\*spectrum_shape)

        Raises
        ------
        ValueError
            If the transform vanishes at a mode.

        Examples
        --------
        >>> import particlemesh as pm
        >>> from particlemesh.fourier import Transform
        >>> transform = Transform(pm.Mesh(2, 1.0), "cic")
        >>> transform.compensation("spread").round(6), transform.compensation("power").round(6)
        (array([1.      , 2.467401]), array([1., 3.]))
        """
        checks.one_of(use, "use", USES)
        checks.one_of(kind, "kind", KINDS)
        checks.flag(interlaced, "interlaced")
        if use == "power":
            if kind != "continuous":
                raise ValueError("use='power' sums the continuous transform over aliases: leave out kind.")
            return np.asarray(1 / noise_of(self.window, self.layout, interlaced))
        if interlaced:
            raise ValueError(f"use={use!r} is the same for interlaced meshes: leave out interlaced.")
        return np.asarray(1 / transform_of(self.window, self.layout, kind) ** POWERS[use])

    # ---- fields ---------------------------------------------------------------------------------------

    @alone
    def forward(self, field: Any) -> Any:
        r"""Return the modes of a field.

        Parameters
        ----------
        field : array (..., \*mesh.field_shape)
            Real, or complex for complex transforms; it is not changed.

        Returns
        -------
        complex array (..., \*spectrum_shape)
            Not divided by the number of nodes.
        """
        return self._call(field, self.mesh.field_shape, "field", self._forward)

    @alone
    def inverse(self, spectrum: Any) -> Any:
        r"""Return the field of modes: the inverse of :meth:`forward`.

        Parameters
        ----------
        spectrum : complex array (..., \*spectrum_shape)
            It is not changed.

        Returns
        -------
        array (..., \*mesh.field_shape)
            Real for real transforms.
        """
        return self._call(spectrum, self.spectrum_shape, "spectrum", self._inverse)

    @alone
    def apply(self, field: Any, factors: NDArray[Any]) -> Any:
        r"""Return a field with its modes multiplied by factors; :class:`Solver` keeps them between calls.

        Parameters
        ----------
        field : array (..., \*mesh.field_shape)
        factors : NumPy array (\*spectrum_shape)
            Real or complex, such as ``transform.green("poisson")``.
        """
        values = checked(factors, self.spectrum_shape)

        def call(backend: Backend, native: Any, dtype: np.dtype) -> Any:
            spectrum = self._forward(backend, native, dtype)
            flat = spectrum.reshape(-1, *self.spectrum_shape)
            Factors(backend, values, dtype, threads=self.threads)(flat, flat)
            return self._inverse(backend, spectrum, dtype)

        return self._call(field, self.mesh.field_shape, "field", call)

    @alone
    def gradient(self, field: Any) -> Any:
        r"""Return the gradient of a field at its nodes, by ik.

        The highest mode of an even axis has no slope along this axis at the nodes.

        Parameters
        ----------
        field : array (..., \*mesh.field_shape)

        Returns
        -------
        array (..., d, \*mesh.field_shape)
            Per user length unit.

        Raises
        ------
        ValueError
            If an axis is open: a padded field has a jump.
        """
        checks.all_periodic(self.mesh.periodic)
        slopes = self.layout.slopes

        def call(backend: Backend, native: Any, dtype: np.dtype) -> Any:
            spectrum, ndim = self._forward(backend, native, dtype), len(self.shape)
            batch = spectrum.shape[: spectrum.ndim - ndim]
            flat = spectrum.reshape(-1, *self.spectrum_shape)
            target = allocate(backend, (len(flat), ndim, *self.spectrum_shape), flat.dtype, "slopes")
            for axis, slope in enumerate(slopes):
                whole = np.broadcast_to(slope, self.spectrum_shape)
                Factors(backend, whole, dtype, turns=True, threads=self.threads)(flat, target, axis, ndim)
            return self._inverse(backend, target.reshape(*batch, ndim, *self.spectrum_shape), dtype)

        return self._call(field, self.mesh.field_shape, "field", call)

    def modes(self, positions: Any, values: Any, *, interlaced: bool = False, **options: Any) -> Any:
        r"""Return the modes of particles: ``sum_p values[p] W(k) exp(-i k (x_p - corner))`` and aliases.

        Parameters
        ----------
        positions, values
            As for :func:`particlemesh.spread`.
        interlaced : bool
            Average over the mesh and its twin shifted by half a node along every axis. Aliases with an odd sum of
            their numbers then cancel [sefusatti2016]_. It spreads twice.
        **options
            Options of :class:`particlemesh.Plan`.

        Returns
        -------
        complex array (..., \*spectrum_shape)
            Not compensated: multiply by :meth:`compensation`. Interlaced meshes tell both signs of the highest mode of
            an even axis apart; here it has the sign of :attr:`wavenumbers`.

        Raises
        ------
        ValueError
            If interlaced and an axis is open.
        """
        spectra = self.spectra(positions, values, interlaced, options)
        if len(spectra) == 1:
            return spectra[0]
        # Halved first: the sum of two numbers of a kind is in that kind on every backend.
        return spectra[0] * _half(spectra[0]) + spectra[1] * _half(spectra[1])

    def spectra(self, positions: Any, values: Any, interlaced: bool, options: dict[str, Any]) -> list[Any]:
        """Return the modes of the mesh, and of its twin if interlaced."""
        options = {"backend": self._named, "threads": self.threads, **options}
        options = {key: value for key, value in options.items() if value is not None}
        if self.dtype is not None:
            options.setdefault("dtype", self.dtype.name)
        transforms = [self]
        if checks.flag(interlaced, "interlaced"):
            checks.all_periodic(self.mesh.periodic)
            transforms.append(Transform(self.mesh.shifted(0.5), self.window, **self._given))
        return [one.forward(spread(positions, values, one.mesh, window=self.window, **options)) for one in transforms]

    # ---- native arrays --------------------------------------------------------------------------------

    def _call(self, array: Any, core: tuple[int, ...], what: str, work: Any) -> Any:
        """Return ``work`` of a user's array as an array of its kind."""
        kind, array = operands.adopt(array, what)
        backend = self._device if self._device is not None else kind.backend(array)
        dtype = operands.real_dtype(array, kind, what) if self.dtype is None else self.dtype
        wants_complex = what == "spectrum" or not self.real
        if not wants_complex and kind.dtype(array).kind == "c":
            raise TypeError(f"{what} is complex; this transform is of real fields: give Transform real=False.")
        operand = operands.take(array, core, 3, dtype, backend, what, upload=self._named is not None)
        with operand.kind.scope(array), backend.scope(operand.native):
            self._tokens[id(backend)] = backend.follow(self._tokens.get(id(backend)))
            native = operand.native
            if wants_complex and native.dtype != COMPLEX[dtype]:
                native = native.astype(COMPLEX[dtype])
            result = work(backend, native, dtype)
            backend.mark(operand.native, result)
            return operand.kind.wrap(result if operand.kind.home == backend.name else backend.download(result))

    def _direction(self, backend: Backend, dtype: np.dtype, forward: bool) -> Bands:
        bands = self._bands.get((forward, id(backend), dtype))
        if bands is None:
            factors = self.layout.phases()
            if not forward:
                factors = [f.conj() for f in factors] if factors else [np.ones(n) for n in self.spectrum_shape]
                factors[0] = factors[0] / np.prod(self.shape)
            device = backend if backend.name == "cpu" else kept(backend, {})
            bands = Bands(device, self.shape, self.shape, factors, dtype, real=self.real, threads=self.threads)
            self._bands[forward, id(backend), dtype] = bands
        return bands

    def _forward(self, backend: Backend, native: Any, dtype: np.dtype) -> Any:
        if self.layout.padded:
            native = self._padded(backend, native)
        elif not self.real or not plain(native):  # a complex transform works in place
            native = dense(backend, native)
        return self._direction(backend, dtype, True).to_modes(native)

    def _inverse(self, backend: Backend, native: Any, dtype: np.dtype) -> Any:
        if not plain(native):
            native = dense(backend, native)
        field = self._direction(backend, dtype, False).to_nodes(native)
        return dense(backend, field[self._inner()]) if self.layout.padded else field

    def _inner(self) -> tuple[Any, ...]:
        return (..., *(slice(0, n) for n in self.mesh.field_shape))

    def _padded(self, backend: Backend, native: Any) -> Any:
        batch = tuple(native.shape[: native.ndim - len(self.shape)])
        whole = allocate(backend, batch + self.shape, native.dtype, "a padded field")
        backend.clear(whole)
        backend.copy(whole[self._inner()], native)
        return whole


def _half(array: Any) -> Any:
    return np.float32(0.5) if "64" in str(array.dtype) else 0.5  # complex64 stays complex64 in PyOpenCL
