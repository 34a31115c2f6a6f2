# SPDX-License-Identifier: BSD-3-Clause
"""Factors of modes and coordinates against the window's transform and NumPy's phases."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.nufft import factors
from particlemesh.fourier.bands import mode_numbers

WINDOWS = [(2, 2.0), (7, 1.3), (8, 1.6), (16, 2.6)]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("support", "sigma"), WINDOWS)
def test_factors_of_modes_divide_by_the_window(support, sigma, half):
    window = pm.prolate(support, sigma)
    values = factors.of_modes(window, 40, 15, "centred", half)
    angles = 2 * np.pi / 40 * mode_numbers(15, "centred", half=half)
    np.testing.assert_array_equal(values, 1 / window.fourier(angles))
    with pytest.raises(ValueError, match="read-only"):  # it is kept for the next plan
        values[0] = 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(("support", "sigma"), WINDOWS)
def test_factors_of_coordinates(support, sigma, ndim, threads):
    rng, window = np.random.default_rng(5), pm.prolate(support, sigma)
    centres, middles, spacings = rng.normal(size=(3, ndim)) * [[3.0], [50.0], [0.1]]
    # Both ends of the band and its middle are among them.
    columns = [c + np.pi / sigma / h * np.linspace(-1, 1, 9001) for c, h in zip(centres, spacings, strict=True)]
    for column in columns:
        column.flags.writeable = False
    moved = [x - c for x, c in zip(columns, centres, strict=True)]
    phase = np.exp(1j * sum(m * x for m, x in zip(middles, moved, strict=True)))
    values = factors.of_coordinates(columns, centres, middles, np.complex128, threads)
    assert np.abs(values - phase).max() < 1e-12
    divided = factors.of_coordinates(columns, centres, middles, np.complex128, threads, window, spacings)
    transform = np.prod([window.fourier(h * x) for h, x in zip(spacings, moved, strict=True)], axis=0)
    assert np.abs(divided * transform - phase).max() < 1e-13 / transform.min()
    single = factors.of_coordinates(columns, centres, middles, np.complex64, threads, window, spacings)
    assert single.dtype == np.complex64
    np.testing.assert_allclose(single, divided, rtol=1e-6)
