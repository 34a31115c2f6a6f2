# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are transformed as tables of short ones equal rows that SciPy transforms whole."""

import numpy as np
import pytest
import scipy.fft

from particlemesh import backends
from particlemesh.fourier import long_axis
from particlemesh.fourier.bands import Bands

ROWS = [4, 12, 30, 144, 210, 1000, 1024]


@pytest.fixture
def short(monkeypatch):
    """Let short rows be long, and threads claim few numbers."""
    monkeypatch.setattr(long_axis, "_LONG", 4)
    monkeypatch.setattr(long_axis, "_SHARE", 3)
    long_axis._split.cache_clear()
    yield
    long_axis._split.cache_clear()


def numbers(shape, dtype, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def close(a, b):
    eps = np.finfo(a.dtype).eps
    assert a.shape == b.shape and np.abs(a - b).max() <= 8 * eps * np.linalg.norm(b)


@pytest.mark.parametrize("n", [*ROWS, 1 << 17, 2**3 * 3**3 * 5**3 * 7])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_transformed_as_scipy_does(n, dtype, threads, request):
    if n < 1 << 17:
        request.getfixturevalue("short")
    rows = numbers((2, n), dtype)
    for sign, expected in ((-1, scipy.fft.fft(rows)), (1, scipy.fft.ifft(rows, norm="forward"))):
        close(long_axis.transform(rows.copy(), np.empty_like(rows), sign, threads), expected)
    real = np.ascontiguousarray(rows[0].real)
    if not long_axis.is_long(n, real=True):
        return
    kept, modes, room = real.copy(), np.empty(n // 2 + 1, dtype), np.empty(n // 2, dtype)
    close(long_axis.real_to_modes(real, modes, room, threads), scipy.fft.rfft(kept))
    assert (real == kept).all()
    some = numbers(n // 2 + 1, dtype, 2)  # zero and highest mode have imaginary parts, which a real field ignores
    close(long_axis.modes_to_real(some.copy(), real, threads), scipy.fft.irfft(some, n, norm="forward"))


def test_rows_that_have_no_two_factors_stay_whole(short):
    assert [n for n in range(2, 40) if not long_axis.is_long(n)] == [2, 3]
    assert not long_axis.is_long(131) and not long_axis.is_long(8191) and not long_axis.is_long(15, real=True)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("nodes", "modes"), [((240,), (100,)), ((240,), (240,)), ((6, 144), (5, 77)), ((3, 4, 24),) * 2]
)
@pytest.mark.parametrize("order", ["fft", "centred"])
@pytest.mark.parametrize("scaled", [False, True])
def test_bands_of_long_rows_are_those_of_whole_rows(real, nodes, modes, order, scaled, request):
    cpu, rng = backends.current("cpu"), np.random.default_rng(2)
    field = rng.normal(size=(2, *nodes)) if real else numbers((2, *nodes), np.complex128)
    shape = (*modes[:-1], modes[-1] // 2 + 1) if real else modes
    factors = [rng.random(m) for m in shape] if scaled else None
    band = numbers((2, *shape), np.complex128)

    def results():
        bands = Bands(cpu, nodes, modes, factors, real=real, order=order, threads=2)
        for _ in range(2):  # kept memory is used again
            wide = np.empty((2, *nodes[:-1], 2 * nodes[-1]), field.dtype)[..., ::2]
            wide[...] = field
            yield bands.to_modes(field.copy())
            yield bands.to_modes(wide, np.empty((2, *shape), np.complex128))
            assert (wide == field).all()  # strided fields are not overwritten
            yield bands.to_nodes(band)
            yield bands.to_nodes(band, np.empty_like(field))

    kept = band.copy()
    expected = [*results()]
    request.getfixturevalue("short")
    split = [*results()]
    for a, b in zip(split, expected, strict=True):
        close(a, b)
    assert (band == kept).all()
    assert not any(np.shares_memory(a, b) for i, a in enumerate(split) for b in split[:i])
