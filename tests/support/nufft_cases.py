# SPDX-License-Identifier: BSD-3-Clause
"""Problems of non-uniform Fourier transforms and their direct sums."""

import functools

import numpy as np

REAL = {"complex64": np.float32, "complex128": np.float64}
SHAPES = {1: (31,), 2: (12, 9), 3: (7, 10, 8)}
POINTS, TARGETS = 150, 70


def numbers(rng, shape, dtype):
    """Complex or real normal numbers."""
    values = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return values.astype(dtype)


def points(rng, ndim, count, dtype, half=np.pi):
    return [rng.uniform(-half, half, count).astype(REAL[dtype]) for _ in range(ndim)]


def numbers_along(modes, modeord=0):
    axes = [np.arange(n) - n // 2 for n in modes]
    return [np.fft.ifftshift(k) for k in axes] if modeord else axes


def wave_numbers(modes):
    """Numbers (d, prod(modes)) of all modes."""
    return np.stack([k.ravel() for k in np.meshgrid(*numbers_along(modes), indexing="ij")]).astype(np.float64)


def waves(x, modes, sign, modeord):
    """``exp(sign i k . x_j)`` (prod(modes), N), as products of waves along each axis."""
    numbers = numbers_along(modes, modeord)
    along = (np.exp(sign * 1j * np.outer(k, a.astype(np.float64))) for k, a in zip(numbers, x, strict=True))
    return functools.reduce(lambda a, b: (a[:, None] * b).reshape(len(a) * len(b), b.shape[1]), along)


def sums(values, at, to, sign):
    """``sum_j values[..., j] exp(sign i to_k . at_j)`` in float64, for coordinates (d, N) and (d, M)."""
    phases = np.exp(sign * 1j * (np.asarray(to, np.float64).T @ np.asarray(at, np.float64)))
    return np.asarray(values).astype(np.complex128) @ phases.T


def modes_of(strengths, x, modes, sign, modeord=0):
    """Type 1 by its definition."""
    result = strengths.astype(np.complex128) @ waves(x, modes, sign, modeord).T
    return result.reshape(strengths.shape[:-1] + modes)


def values_of(coefficients, x, modes, sign, modeord=0):
    """Type 2 by its definition."""
    flat = coefficients.reshape(coefficients.shape[: coefficients.ndim - len(modes)] + (-1,))
    return flat.astype(np.complex128) @ waves(x, modes, sign, modeord)


def error(result, exact):
    """Relative l2 error."""
    return np.linalg.norm(np.asarray(result) - exact) / np.linalg.norm(exact)
