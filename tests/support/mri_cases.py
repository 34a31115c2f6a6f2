# SPDX-License-Identifier: BSD-3-Clause
"""Trajectories, and the matrix of an operator of magnetic resonance imaging."""

import numpy as np

import nufft_cases as cases


def radial(spokes, readouts):
    """Samples (spokes * readouts, 2) on diameters of a disc of k-space, in radians per pixel."""
    radius = np.linspace(-np.pi, np.pi, readouts, endpoint=False)
    angle = np.arange(spokes)[:, None] * np.pi / spokes
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)


def matrix(samples, shape):
    """The matrix (N, prod(shape)) of one coil, in complex128."""
    phases = np.asarray(samples, np.float64) @ cases.wave_numbers(shape)
    return np.exp(-1j * phases) / np.sqrt(np.prod(shape) * 2.0 ** len(shape))


def samples_of(images, samples, shape, maps=None):
    """Samples (b, c, N) of images (b, 1 or c, *shape)."""
    coils = images if maps is None else images * maps
    return coils.reshape(*coils.shape[:2], -1) @ matrix(samples, shape).T


def images_of(values, samples, shape, maps=None, weights=1.0):
    """Images (b, 1 or c, *shape) of samples (b, c, N)."""
    coils = ((values * weights) @ matrix(samples, shape).conj()).reshape(*values.shape[:2], *shape)
    return coils if maps is None else (coils * maps.conj()).sum(1, keepdims=True)
