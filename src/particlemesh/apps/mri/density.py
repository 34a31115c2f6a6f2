# SPDX-License-Identifier: BSD-3-Clause
"""Weights that make up for the density of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.apps import nufft
from particlemesh.apps.nufft import shapes
from particlemesh.kernels import checks

# A window with few nodes: what lies beyond twice the field of view does not matter.
_EPS = 1e-3


def density(
    samples: Any, shape: tuple[int, ...], iterations: int = 10, oversampling: float = 2.0, normalise: bool = True
) -> Any:
    """Return weights of samples in k-space, by the iteration of Pipe and Menon [pipe_menon1999]_.

    Real weights w are spread onto a mesh and interpolated back. Dividing them by the result makes the density of the
    weighted samples uniform, and the point spread function narrow.

    Parameters
    ----------
    samples : array (N, d)
        Radians per pixel, from -pi to pi; float32 or float64; of NumPy, CuPy or PyTorch.
    shape : tuple of d ints
        Pixels of the image.
    iterations : int
        Number of divisions.
    oversampling : float
        Nodes of the mesh per pixel. The window spans a few nodes. With one node per pixel it would be too wide in
        k-space to tell neighbouring samples apart.
    normalise : bool
        Whether an image of ones keeps its mean when it is transformed, weighted and transformed back by
        `MRIParticlemesh`.

    Returns
    -------
    array (N,)
        Positive weights of the samples' type.

    Raises
    ------
    ValueError, TypeError
        If the samples do not fit the shape, or an argument is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.mri import density
    >>> radius, angle = np.meshgrid(np.linspace(-np.pi, np.pi, 64), np.arange(51) * np.pi / 51)
    >>> spokes = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)
    >>> weights = density(spokes, (32, 32)).reshape(51, 64)[0, 32:]
    >>> (weights[[5, 10, 20]] / weights[10]).round(1)  # the density of spokes falls with the radius
    array([0.5, 1. , 2. ])
    """
    checks.flag(normalise, "normalise")
    shape, kind = image_shape(shape), shapes.kind(samples, "samples")
    if len(samples.shape) != 2 or samples.shape[1] != len(shape):
        raise ValueError(
            f"samples have shape {tuple(samples.shape)}; for images of shape {shape} give (N, {len(shape)})."
        )
    checks.integer(iterations, "iterations", 0, 10**6)
    checks.positive(oversampling, "oversampling")
    columns = [samples[:, axis] for axis in range(len(shape))]
    real = kind.dtype(samples)
    dtype = np.result_type(real, np.complex64)
    if not samples.shape[0]:
        return samples[:, 0]
    nodes = tuple(max(1, round(oversampling * n)) for n in shape)
    plan = nufft.Plan(1, nodes, eps=_EPS, dtype=dtype, upsampfac=2.0, spreadinterponly=True, real=True)
    plan.setpts(*columns)
    backend = kind.backend(samples)
    weights = _ones(kind, backend, samples, (samples.shape[0],), real)
    for _ in range(iterations):
        weights = weights / plan.execute_adjoint(plan.execute(weights))
    if not normalise:
        return weights
    transform = nufft.Plan(2, shape, eps=_EPS, dtype=dtype)
    transform.setpts(*columns)
    image = transform.execute_adjoint(weights * transform.execute(_ones(kind, backend, samples, shape, dtype)))
    # Each of the two transforms of an operator divides by the square root of this.
    return weights * (math.prod(shape) * 2 ** len(shape) / float(abs(image).mean()))


def image_shape(shape: Any) -> tuple[int, ...]:
    """Return the pixels of an image: one to three integers."""
    if not hasattr(shape, "__len__") or isinstance(shape, str) or not 1 <= len(shape) <= 3:
        raise ValueError(f"shape is {shape!r}; give the pixels of an image along 1, 2 or 3 axes.")
    return tuple(checks.integer(n, "shape", 1, 2**30) for n in shape)


def _ones(kind: Any, backend: Any, like: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return ones of a kind on the device of an array."""
    with kind.scope(like), backend.scope(kind.native(like)):
        return kind.wrap(backend.upload(np.ones(shape, dtype)))
