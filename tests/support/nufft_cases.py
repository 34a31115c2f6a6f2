# SPDX-License-Identifier: BSD-3-Clause
"""Problems of non-uniform Fourier transforms and their direct sums."""

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


def wave_numbers(modes, modeord=0):
    """Numbers (d, prod(modes)) of all modes."""
    axes = [np.arange(n) - n // 2 for n in modes]
    axes = [np.fft.ifftshift(k) for k in axes] if modeord else axes
    return np.stack([k.ravel() for k in np.meshgrid(*axes, indexing="ij")]).astype(np.float64)


def sums(values, at, to, sign):
    """``sum_j values[..., j] exp(sign i to_k . at_j)`` in float64, for coordinates (d, N) and (d, M)."""
    phases = np.exp(sign * 1j * (np.asarray(to, np.float64).T @ np.asarray(at, np.float64)))
    return np.asarray(values).astype(np.complex128) @ phases.T


def modes_of(strengths, x, modes, sign, modeord=0):
    """Type 1 by its definition."""
    return sums(strengths, np.stack(x), wave_numbers(modes, modeord), sign).reshape(strengths.shape[:-1] + modes)


def values_of(coefficients, x, modes, sign, modeord=0):
    """Type 2 by its definition."""
    flat = coefficients.reshape(coefficients.shape[: coefficients.ndim - len(modes)] + (-1,))
    return sums(flat, wave_numbers(modes, modeord), np.stack(x), sign)


def error(result, exact):
    """Relative l2 error."""
    return np.linalg.norm(np.asarray(result) - exact) / np.linalg.norm(exact)
