# SPDX-License-Identifier: BSD-3-Clause
"""Weights for the density of samples: the point spread function, the radial ramp, norms, and bad input."""

import numpy as np
import pytest

import nufft_cases as cases
from mri_cases import radial
from particlemesh.apps.mri import density

SHAPE = (32, 32)


def spread_function(samples, weights, shape):
    """The point spread function on twice the field of view, by its definition; 1 in the middle."""
    modes = tuple(2 * n for n in shape)
    modes_of_weights = cases.modes_of(weights, samples.T, modes, 1)
    return modes_of_weights / modes_of_weights[tuple(n // 2 for n in modes)]


@pytest.mark.turns(2)
@pytest.mark.backends("cpu", "cuda")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_point_spread_function_becomes_narrow(backend, dtype):
    samples = radial(51, 64).astype(dtype)
    weights = density(backend.array(samples), SHAPE)
    assert type(weights) is type(backend.array(samples))
    weights = backend.host(weights)
    assert weights.dtype == dtype
    assert (weights > 0).all()
    flat, before = (spread_function(samples, w, SHAPE) for w in (weights, np.ones(len(samples))))
    # Samples without gaps in a disc of k-space have the disc's transform as their point spread function.
    k = cases.wave_numbers((64, 64)) / 64
    k = k[:, np.hypot(*k) < 0.5]
    disc = cases.modes_of(np.ones(k.shape[1]), 2 * np.pi * k, (64, 64), 1) / k.shape[1]
    radius = np.hypot(*cases.wave_numbers((64, 64))).reshape(64, 64)
    near, lobes = radius < 16, (radius > 3) & (radius < 30)
    assert np.linalg.norm((flat - disc)[near]) < 0.12 * np.linalg.norm((before - disc)[near])
    assert np.abs(flat[lobes]).max() < 1.1 * np.abs(disc[lobes]).max() < 0.4 * np.abs(before[lobes]).max()


def test_weights_of_spokes_grow_with_the_radius():
    samples = radial(51, 64)
    weights, radius = density(samples, SHAPE, iterations=30), np.hypot(*samples.T)
    between = (radius > 0.3) & (radius < 2.6)
    ratio = weights[between] / radius[between]
    assert ratio.std() < 0.05 * ratio.mean()


def test_normalised_weights_keep_the_mean_of_ones():
    samples = radial(51, 64)
    weights = density(samples, SHAPE)
    ones = cases.values_of(np.ones(SHAPE), samples.T, SHAPE, -1)
    back = cases.modes_of(weights * ones, samples.T, SHAPE, 1) / (4 * np.prod(SHAPE))
    assert np.abs(back).mean() == pytest.approx(1, rel=5e-3)
    raw = density(samples, SHAPE, normalise=False)
    np.testing.assert_allclose(weights / raw, (weights / raw)[0], rtol=1e-12)


def test_dense_samples_without_iterations_have_weight_one():
    samples = radial(5, 8)
    given = samples.copy()
    np.testing.assert_array_equal(density(samples, SHAPE, iterations=0, normalise=False), 1)
    np.testing.assert_array_equal(samples, given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(samples=np.zeros((4, 3)), shape=SHAPE), r"samples have shape \(4, 3\)"),
        (dict(samples=np.zeros((4, 2)), shape=SHAPE, iterations=-1), "iterations"),
        (dict(samples=np.zeros((4, 2)), shape=SHAPE, oversampling=0), "oversampling"),
        (dict(samples=[[0.0, 0.0]], shape=SHAPE), "samples"),
        (dict(samples=np.zeros((4, 2), int), shape=SHAPE), "int64"),
        (dict(samples=np.zeros(4), shape=SHAPE), r"samples have shape \(4,\)"),
        (dict(samples=np.full((4, 2), np.nan), shape=SHAPE), "finite"),
        (dict(samples=np.zeros((4, 2)), shape=(32.5, 32)), "shape is 32.5"),
        (dict(samples=np.zeros((4, 2)), shape=32), "shape is 32"),
        (dict(samples=np.zeros((4, 2)), shape=(32, 0)), "shape is 0"),
        (dict(samples=np.zeros((4, 2)), shape=SHAPE, normalise="yes"), "normalise"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        density(**arguments)


def test_one_axis():
    # Twice as dense on one half: half of the weight.
    samples = np.concatenate([np.arange(-64, 0) * np.pi / 64, np.arange(128) * np.pi / 128])[:, None]
    weights = density(samples, (32,), normalise=False)
    assert weights[20:50].mean() == pytest.approx(2 * weights[90:150].mean(), rel=0.01)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_samples_have_no_weights(dtype):
    weights = density(np.empty((0, 2), dtype), SHAPE)
    assert weights.shape == (0,)
    assert weights.dtype == dtype
