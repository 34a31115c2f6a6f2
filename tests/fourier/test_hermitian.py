# SPDX-License-Identifier: BSD-3-Clause
"""Halves of symmetric bands and whole bands against sums over mode numbers, on every backend."""

import itertools

import numpy as np
import pytest

from particlemesh.fourier.bands import mode_numbers
from particlemesh.fourier.hermitian import Halves

BANDS = [(1,), (2,), (5,), (6,), (3, 4), (4, 1), (2, 3, 4), (3, 4, 5)]


def numbers_of(modes, order):
    return list(itertools.product(*(mode_numbers(m, order).tolist() for m in modes)))


def half_numbers(modes):
    axes = [range(-(m // 2), m // 2 + 1) for m in modes[:-1]]
    return list(itertools.product(*axes, range(modes[-1] // 2 + 1)))


def random(shape, dtype):
    rng = np.random.default_rng(2)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.result_type(dtype, np.complex64))


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("order", ["fft", "centred"])
@pytest.mark.parametrize("modes", BANDS, ids=str)
def test_halves_and_wholes(backend, modes, order, conjugate):
    dtype = "float32" if conjugate else "float64"
    halves = Halves(backend.library, modes, dtype, order)
    half, whole = random((2, *halves.shape), dtype), random((2, *modes), dtype)
    made = backend.host(halves.whole(backend.array(half), conjugate=conjugate)).reshape(2, -1)
    parts = backend.host(halves.half(backend.array(whole), conjugate=conjugate)).reshape(2, -1)
    for channel in range(2):
        upper = dict(zip(half_numbers(modes), half[channel].ravel(), strict=True))
        for k, mode in zip(numbers_of(modes, order), made[channel], strict=True):
            expected = upper[k] if k[-1] >= 0 else np.conj(upper[tuple(-n for n in k)])
            assert mode == (np.conj(expected) if conjugate else expected)
        every = dict(zip(numbers_of(modes, order), whole[channel].ravel(), strict=True))
        for k, part in zip(half_numbers(modes), parts[channel], strict=True):
            expected = (every.get(k, 0) + np.conj(every.get(tuple(-n for n in k), 0))) / 2
            assert part == pytest.approx(np.conj(expected) if conjugate else expected, rel=1e-6)


def test_no_fields(backend):
    halves = Halves(backend.library, (4, 5), "float64", "fft")
    assert backend.host(halves.whole(backend.array(np.empty((0, *halves.shape), complex)))).shape == (0, 4, 5)
