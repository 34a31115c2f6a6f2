# SPDX-License-Identifier: BSD-3-Clause
"""The Fourier operator of magnetic resonance imaging, as a backend of mri-nufft."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from mrinufft._array_compat import _to_numpy_cupy, auto_cast, get_array_module, with_numpy_cupy
from mrinufft._utils import proper_trajectory
from mrinufft.operators.base import FourierOperatorBase, _ToggleGradPlanMixin

from particlemesh.apps import nufft
from particlemesh.apps.mri.density import density as pipe_density
from particlemesh.apps.mri.density import image_shape
from particlemesh.kernels import Fixed, checks


class MRIParticlemesh(Fixed, _ToggleGradPlanMixin, FourierOperatorBase):
    r"""Samples of images in k-space: ``y[b, c, j] = 1/s sum_k S[b, c, k] x[b, k] exp(-i k . samples[j])``.

    S are the sensitivities of coils, and s is ``sqrt(prod(shape) 2**d)``, as in all backends of mri-nufft.
    Arrays may be of NumPy, CuPy and PyTorch; sums are formed where the data are, and results are returned there. Maps
    and weights move there at their first use.

    Parameters
    ----------
    samples : array (..., d)
        Trajectory in radians per pixel; numbers within ±0.5 are taken for cycles per pixel, as everywhere in mri-nufft.
        Their type, float32 or float64, is that of the operator: data are converted to it.
    shape : tuple of d ints
        Pixels of an image; d is 1, 2 or 3.
    density : bool, str, dict, callable or real array (N,)
        Weights that the adjoint applies. True: those of `pipe`. An array is copied.
    n_coils, n_batchs : int
        Coils, and images.
    n_trans : int, optional
        Coil images that are transformed together; by default all. Fewer take less memory.
    smaps : array (n_coils, *shape) or (n_batchs, n_coils, *shape), optional
        Sensitivities, of all images or of each. Without them an image has a coil axis. They are not copied: set others
        rather than change them.
    squeeze_dims : bool
        Whether results lack axes of coils and batches of length 1.
    eps : float
        Relative l2 error of the transforms.
    **options
        Those of `particlemesh.apps.nufft.Plan`.

    Raises
    ------
    ValueError
        If a shape does not fit, or a number is not finite.
    TypeError
        If a type does not fit: samples are float32 or float64, weights real.

    Examples
    --------
    >>> import numpy as np
    >>> import mrinufft
    >>> import particlemesh.apps.mri
    >>> samples = np.random.default_rng(1).uniform(-np.pi, np.pi, (500, 2))
    >>> operator = mrinufft.get_operator("particlemesh")(samples, (16, 16), n_coils=4)
    >>> operator.op(np.ones((4, 16, 16))).shape
    (4, 500)
    """

    backend = "particlemesh"
    available = True
    autograd_available = True

    def __init__(
        self, samples: Any, shape: tuple[int, ...], density: Any = False, n_coils: int = 1, n_batchs: int = 1,
        n_trans: int | None = None, smaps: Any = None, squeeze_dims: bool = True, eps: float = 1e-6, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._shape = image_shape(shape)
        self._samples = self._trajectory(samples)
        self._dtype = np.dtype(self._samples.dtype)
        self.n_coils = checks.integer(n_coils, "n_coils", 1, 2**31)
        self.n_batchs = checks.integer(n_batchs, "n_batchs", 1, 2**31)
        self._n_trans = None if n_trans is None else checks.integer(n_trans, "n_trans", 1, 2**31)
        self.squeeze_dims = squeeze_dims
        for name in ("real", "spreadinterponly", "gpu_spreadinterponly", "n_trans", "isign", "dtype"):
            if options.get(name):
                raise ValueError(f"option {name} is {options[name]!r}; the transforms of an operator decide it.")
        self._options = options
        self._eps = nufft.Plan(2, self._shape, 1, eps, -1, self.cpx_dtype, **options).eps  # its arguments are checked
        self._conjugated = False
        self._plans: dict[tuple[Any, int], nufft.Plan] = {}  # by library and number of vectors
        self.compute_density(density)
        self.compute_smaps(smaps)

    def __getstate__(self) -> dict[str, Any]:
        # Plans have the points of one operator: a copy makes its own.
        return {**self.__dict__, "_plans": {}}

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels of an image."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """Type of samples and weights: float32 or float64."""
        return self._dtype

    @property
    def eps(self) -> float:
        """Relative l2 error of the transforms."""
        return self._eps

    @property
    def n_trans(self) -> int | None:
        """Coil images that are transformed together, or None for all."""
        return self._n_trans

    @property
    def squeeze_dims(self) -> bool:
        """Whether results lack axes of coils and batches of length 1."""
        return self._squeeze

    @squeeze_dims.setter
    def squeeze_dims(self, value: bool) -> None:
        self._squeeze = checks.flag(value, "squeeze_dims")

    def _trajectory(self, samples: Any, unsafe: bool = False) -> Any:
        """Return samples (N, d) in radians per pixel: a copy."""
        samples, ndim = _native(samples, "samples"), len(self._shape)
        shape = tuple(samples.shape)
        if not shape or shape[-1] != ndim or (unsafe and len(shape) != 2):
            raise ValueError(
                f"samples have shape {shape}; for images of shape {self._shape} give "
                f"({'N' if unsafe else '...'}, {ndim})."
            )
        if samples.dtype not in (np.float32, np.float64):
            raise TypeError(f"samples are of type {samples.dtype}; give float32 or float64.")
        return (
            (samples if unsafe or not samples.size else proper_trajectory(samples, normalize="pi"))
            .reshape(-1, ndim)
            .copy()
        )

    # ---- what belongs to a configuration ----------------------------------------------------------------

    @FourierOperatorBase.smaps.setter
    def smaps(self, maps: Any) -> None:
        """Set sensitivities (n_coils, *shape) or (n_batchs, n_coils, *shape), or None."""
        if maps is not None:
            maps = _native(maps, "smaps")
            *lead, coils = given = maps.shape[: -len(self.shape)] or (0,)
            if maps.shape[len(given) :] != self.shape or not coils or len(lead) > 1:
                raise ValueError(
                    f"smaps have shape {tuple(maps.shape)}; give (n_coils, {str(self.shape)[1:]} or (n_batchs, "
                    f"n_coils, {str(self.shape)[1:]}."
                )
            if lead and lead[0] != self.n_batchs:
                raise ValueError(f"smaps are of {lead[0]} images, and n_batchs is {self.n_batchs}: give maps of each.")
            if maps.dtype.kind not in "fciu":
                raise TypeError(f"smaps are of type {maps.dtype}; give real or complex numbers.")
            if coils != self.n_coils:
                warnings.warn(f"n_coils becomes {coils}, the number of smaps; it was {self.n_coils}.", stacklevel=2)
                self._smaps, self.n_coils = None, coils
        self._smaps = maps

    def compute_smaps(self, method: Any = None) -> None:
        """Set sensitivities: an array as for the constructor, None, or a method of mri-nufft, by name or a function."""
        if hasattr(method, "shape"):
            self.smaps = method
        else:
            super().compute_smaps(method)

    @FourierOperatorBase.n_coils.setter
    def n_coils(self, number: int) -> None:
        """Set the number of coils: that of the sensitivities, if there are any."""
        number = checks.integer(number, "n_coils", 1, 2**31)
        if self._smaps is not None and number != (coils := self._smaps.shape[-len(self.shape) - 1]):
            raise ValueError(f"n_coils is {number}, and there are {coils} smaps: set smaps instead.")
        self._n_coils = number

    @FourierOperatorBase.n_batchs.setter
    def n_batchs(self, number: int) -> None:
        """Set the number of images."""
        number = checks.integer(number, "n_batchs", 1, 2**31)
        images = len(self._smaps) if self._smaps is not None and self._by_image else number
        if number != images:
            raise ValueError(f"n_batchs is {number}, and smaps are of {images} images: set smaps to None first.")
        self._n_batchs = number

    @FourierOperatorBase.density.setter
    def density(self, weights: Any) -> None:
        """Set real weights (N,), or None."""
        if weights is not None:
            weights = _native(weights, "density")
            if tuple(weights.shape) != (self.n_samples,):
                raise ValueError(
                    f"density has shape {tuple(weights.shape)}; give one weight per sample: ({self.n_samples},)."
                )
            if weights.dtype.kind not in "fiu":
                raise TypeError(f"density is of type {weights.dtype}; give real weights.")
            weights = weights.astype(self.dtype)  # a copy
        self._density = weights

    def compute_density(self, method: Any = None) -> None:
        """Set weights: an array (N,), None, True or "pipe" for `pipe`, or another method of mri-nufft."""
        if method is None or method is False or hasattr(method, "shape") or not self.n_samples:
            given = np.empty(0) if not self.n_samples and not hasattr(method, "shape") else method
            self.density = None if method is None or method is False else given
            self._density_method = None
            return
        if not (isinstance(method, (bool, str, dict)) or callable(method)):
            _native(method, "density")  # lists and numbers have no type: the error says what to give
        before, self._density_method = self._density_method, None
        try:
            super().compute_density(True if isinstance(method, str) and method == "pipe" else method)
        except BaseException:
            self._density_method = before
            raise

    def update_samples(self, new_samples: Any, *, unsafe: bool = False) -> None:
        """Take another trajectory; meshes and methods are kept.

        Parameters
        ----------
        new_samples : array (..., d)
            Samples as for the constructor, of the operator's type.
        unsafe : bool
            Whether the samples are (N, d) in radians per pixel already, and are not scaled.

        Notes
        -----
        Weights by a method are computed again. Those that the constructor or `compute_density` got as an array are kept
        if their number fits.
        """
        samples = self._trajectory(new_samples, checks.flag(unsafe, "unsafe"))
        if samples.dtype != self.dtype:
            raise TypeError(f"the new samples are of type {samples.dtype}; the operator's is {self.dtype}.")
        given = self._density if self._density_method is None else None
        if given is not None and len(given) != len(samples):
            raise ValueError(
                f"there are {len(given)} density weights and {len(samples)} new samples: set density first."
            )
        self.restore((samples, self._smaps, given))
        if self._density_method is not None:
            self.compute_density(self._density_method)

    @property
    def state(self) -> tuple[Any, Any, Any]:
        """Trajectory, maps and weights, for `restore`."""
        return self._samples, self._smaps, self._density

    def restore(self, state: tuple[Any, Any, Any]) -> None:
        """Take trajectory, maps and weights that the operator had."""
        moved = state[0] is not self._samples
        self._samples, self._smaps, self._density = state
        if moved:
            for (xp, _), plan in self._plans.items():
                self._set_points(plan, xp)

    def toggle_grad_traj(self) -> None:
        """Change the sign of the exponent, and conjugate the maps."""
        self._conjugated = not self._conjugated
        if self._smaps is not None:
            self._smaps = self._smaps.conj()

    @classmethod
    def pipe(
        cls, kspace_loc: Any, volume_shape: tuple[int, ...], max_iter: int = 10, osf: float = 2, normalize: bool = True
    ) -> Any:
        """Return weights for the density of samples; see `particlemesh.apps.mri.density`."""
        samples = _native(kspace_loc, "kspace_loc")
        if samples.size:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Samples will be rescaled")
                samples = proper_trajectory(samples, normalize="pi")
        return pipe_density(samples, tuple(volume_shape), max_iter, osf, normalize)

    # ---- transforms -------------------------------------------------------------------------------------

    @with_numpy_cupy
    def op(self, data: Any, ksp: Any = None) -> Any:
        """Return the samples of images.

        Parameters
        ----------
        data : array (n_batchs, 1 with smaps or else n_coils, *shape)
            Images; axes of length 1 may be missing.
        ksp : array (n_batchs, n_coils, N), optional
            Memory of the result, in C order.

        Returns
        -------
        array (n_batchs, n_coils, N)
        """
        return self._safe_squeeze(self.to_samples(data, ksp))

    @with_numpy_cupy
    def adj_op(self, coeffs: Any, img: Any = None) -> Any:
        """Return the images of samples times weights: the adjoint of `op` if there are no weights.

        Parameters
        ----------
        coeffs : array (n_batchs, n_coils, N)
            Samples; axes of length 1 may be missing.
        img : array (n_batchs, 1 with smaps or else n_coils, *shape), optional
            Memory of the result, in C order.

        Returns
        -------
        array (n_batchs, 1 with smaps or else n_coils, *shape)
        """
        return self._safe_squeeze(self.to_images(coeffs, img))

    @with_numpy_cupy
    def data_consistency(self, image_data: Any, obs_data: Any) -> Any:
        """Return ``adj_op(op(image_data) - obs_data)``."""
        observed = self._data(obs_data, "obs_data", self.ksp_full_shape)
        residual = self.to_samples(image_data)
        residual -= observed
        return self._safe_squeeze(self.to_images(residual))

    @with_numpy_cupy
    def op_and_gradient(self, data: Any) -> Any:
        """Return the samples of images and their derivatives by the trajectory, in one pass.

        Parameters
        ----------
        data : array (n_batchs, 1 with smaps or else n_coils, *shape)
            Images.

        Returns
        -------
        samples : array (n_batchs, n_coils, N)
        gradients : array (n_batchs, n_coils, N, d)
            Derivatives by the coordinates of each sample, in radians per pixel.
        """
        images, shape = self._data(data, "data", self.img_full_shape), self.ksp_full_shape
        xp = get_array_module(images)
        values, slopes = xp.empty(shape, self.cpx_dtype), xp.empty((*shape, len(self.shape)), self.cpx_dtype)
        for part in self._parts():
            vectors = self._coil_images(images, part)
            pieces = self._plan(vectors).execute_gradient(vectors)
            for result, piece in zip((values, slopes), pieces, strict=True):
                result[part] = self._turned(piece).reshape(result[part].shape)
        values /= self.norm_factor
        slopes /= self.norm_factor
        return values, slopes

    def to_samples(self, data: Any, out: Any = None) -> Any:
        """Return the samples (n_batchs, n_coils, N) of images."""
        images = self._data(data, "data", self.img_full_shape)
        result = self._target(out, "ksp", self.ksp_full_shape, images)
        for part in self._parts():
            vectors = self._coil_images(images, part)
            # A part is contiguous: whole batches, or coils of one.
            target = result[part].reshape(len(vectors), self.n_samples)
            self._plan(vectors).execute(vectors, target)
        result = self._turned(result, out)
        result /= self.norm_factor
        return result

    def to_images(self, coeffs: Any, out: Any = None, weighted: bool = True) -> Any:
        """Return the images (n_batchs, 1 or n_coils, *shape) of samples."""
        samples = self._data(coeffs, "coeffs", self.ksp_full_shape)
        xp = get_array_module(samples)
        result = self._target(out, "img", self.img_full_shape, samples)
        if weighted:
            samples = self.weighted(samples)
        if self._conjugated:
            samples = samples.conj()
        samples = xp.ascontiguousarray(samples)
        if self.uses_sense:
            result[...] = 0
        for part in self._parts():
            vectors = samples[part]
            vectors = vectors.reshape(vectors.shape[0] * vectors.shape[1], self.n_samples)
            plan = self._plan(vectors)
            if not self.uses_sense:
                plan.execute_adjoint(vectors, result[part].reshape(len(vectors), *self.shape))
                continue
            images = self._turned(plan.execute_adjoint(vectors)).reshape(*samples[part].shape[:2], *self.shape)
            result[part[0], 0] += (images * self._maps_of(part, xp).conj()).sum(1)
        if not self.uses_sense:
            result = self._turned(result, out)
        result /= self.norm_factor
        return result

    def _parts(self) -> Iterator[tuple[slice, slice]]:
        """Yield batches and coils that are transformed together."""
        together = self.n_trans or self.n_batchs * self.n_coils
        coils, batches = min(together, self.n_coils), max(1, together // self.n_coils)
        for b in range(0, self.n_batchs, batches):
            for c in range(0, self.n_coils, coils):
                yield slice(b, min(b + batches, self.n_batchs)), slice(c, min(c + coils, self.n_coils))

    def _data(self, array: Any, name: str, shape: tuple[int, ...]) -> Any:
        """Return data of a shape, from which axes of length 1 may be missing, as complex numbers."""
        if not hasattr(array, "shape"):
            raise TypeError(f"{name} is of type {type(array).__name__}; give an array of NumPy, CuPy or PyTorch.")
        given, core = tuple(array.shape), shape[2:]
        lead = given[: len(given) - len(core)]
        if (
            given[len(lead) :] != core
            or len(lead) > 2
            or [n for n in lead if n != 1] != [n for n in shape[:2] if n != 1]
        ):
            raise ValueError(f"{name} has shape {given}; give {shape}, or without its axes of length 1 before {core}.")
        if array.dtype.kind not in "fciu":
            raise TypeError(f"{name} is of type {array.dtype}; give numbers.")
        return auto_cast(array, self.cpx_dtype).reshape(shape)

    def _target(self, out: Any, name: str, shape: tuple[int, ...], data: Any) -> Any:
        """Return the memory of a result, or new memory in the library of the data."""
        xp = get_array_module(data)
        if out is None:
            return xp.empty(shape, self.cpx_dtype)
        if get_array_module(out) is not xp or out.dtype != self.cpx_dtype or not out.flags.c_contiguous:
            raise TypeError(f"{name} must be an array of {xp.__name__} of type {self.cpx_dtype} in C order.")
        self._data(out, name, shape)
        if xp.may_share_memory(out, data):
            raise ValueError(f"{name} shares memory with the data; give a separate array.")
        return out.reshape(shape)

    def _coil_images(self, images: Any, part: tuple[slice, slice]) -> Any:
        """Return images of coils (vectors, *shape)."""
        xp = get_array_module(images)
        if self.uses_sense:
            coil_images = images[part[0]] * self._maps_of(part, xp).astype(self.cpx_dtype, copy=False)
        else:
            coil_images = images[part]
        coil_images = coil_images.reshape(-1, *self.shape)
        return xp.ascontiguousarray(coil_images.conj() if self._conjugated else coil_images)

    @property
    def _by_image(self) -> bool:
        """Whether each image has sensitivities of its own."""
        return self._smaps is not None and self._smaps.ndim == len(self.shape) + 2

    def _maps_of(self, part: tuple[slice, slice], xp: Any) -> Any:
        """Return the sensitivities (1 or batch, coils, *shape) of a part."""
        maps = self._near("_smaps", xp)
        return maps[part] if self._by_image else maps[None, part[1]]

    def _turned(self, array: Any, out: Any = None) -> Any:
        """Return an array, or its conjugate for the other sign of the exponent."""
        if not self._conjugated:
            return array
        return get_array_module(array).conj(array, out=array)

    def weighted(self, samples: Any) -> Any:
        """Return samples times the density weights, if there are any."""
        if self._density is None:
            return samples
        return samples * self._near("_density", get_array_module(samples)).astype(self.dtype, copy=False)

    def _near(self, name: str, xp: Any) -> Any:
        """Return maps or weights in the library of the data; they stay there."""
        setattr(self, name, _moved(getattr(self, name), xp))
        return getattr(self, name)

    def _plan(self, vectors: Any) -> nufft.Plan:
        """Return the plan for vectors of a library."""
        key = get_array_module(vectors), len(vectors)
        if key not in self._plans:
            plan = nufft.Plan(2, self.shape, len(vectors), self.eps, -1, self.cpx_dtype, **self._options)
            self._set_points(plan, key[0])
            self._plans[key] = plan
        return self._plans[key]

    def _set_points(self, plan: nufft.Plan, xp: Any) -> None:
        samples = _moved(self._samples, xp)
        plan.setpts(*(samples[:, axis] for axis in range(len(self.shape))))

    def make_autograd(self, *, wrt_data: bool = True, wrt_traj: bool = False, paired_batch: bool = False) -> Any:
        """Return a PyTorch module with this operator; gradients by the trajectory take one pass."""
        from particlemesh.apps.mri.gradients import Differentiable

        return Differentiable(self, wrt_data=wrt_data, wrt_traj=wrt_traj, paired_batch=paired_batch)


def _moved(array: Any, xp: Any) -> Any:
    """Return an array of NumPy or CuPy in one of these libraries."""
    if get_array_module(array) is xp:
        return array
    return array.get() if xp is np else xp.asarray(array)


def _native(array: Any, name: str) -> Any:
    """Return a user's array as one of NumPy or CuPy, all of it finite."""
    if not hasattr(array, "shape"):
        raise TypeError(f"{name} is of type {type(array).__name__}; give an array of NumPy, CuPy or PyTorch.")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and the mask would be lost: index it, or fill in zeros.")
    (array,), _ = _to_numpy_cupy([array])
    if array.dtype.kind in "fc" and not get_array_module(array).isfinite(array).all():
        raise ValueError(f"{name}: there are numbers that are not finite.")
    return array
