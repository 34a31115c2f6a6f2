# SPDX-License-Identifier: BSD-3-Clause
"""Engines and bands against sums over nodes and modes, on every backend."""

import numpy as np
import pytest

from particlemesh import backends
from particlemesh.fourier import bands
from particlemesh.fourier.bands import Bands, mode_numbers
from particlemesh.fourier.engines import BACKWARD, FORWARD, engine, good_size

SHAPES = [(1,), (7,), (12,), (5, 6), (8, 3), (4, 5, 6), (3, 4, 7)]
DTYPES = ["float32", "float64"]


def tolerance(dtype):
    return 40 * np.finfo(dtype).eps


def random(shape, dtype, *, real, seed=1):
    rng = np.random.default_rng(seed)
    field = rng.standard_normal(shape)
    return (field if real else field + 1j * rng.standard_normal(shape)).astype(
        dtype if real else np.result_type(dtype, np.complex64)
    )


def oracle(field, shape, numbers, sign):
    """Sum over all nodes, one axis after the other, with exact phases."""
    result = field.astype(np.complex128)
    for axis, (n, k) in enumerate(zip(shape, numbers, strict=True)):
        phase = np.exp(sign * 2j * np.pi * (np.outer(k, np.arange(n)) % n) / n)
        result = np.moveaxis(np.tensordot(phase, result, (1, axis - len(shape))), 0, axis - len(shape))
    return result


def close(a, b, dtype):
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0) <= tolerance(dtype) * max(np.abs(b).max(initial=0), 1)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_engines_equal_sums_over_nodes(backend, shape, dtype, real):
    fft = engine(backend.library, shape, dtype, real=real)
    field = random((2, *shape), dtype, real=real)
    numbers = [mode_numbers(n, half=real and a == len(shape) - 1) for a, n in enumerate(shape)]
    spectrum = fft.forward(backend.array(field))
    close(backend.host(spectrum), oracle(field, shape, numbers, FORWARD), dtype)
    back = fft.backward(spectrum)
    assert back.dtype == field.dtype
    close(backend.host(back), field * np.prod(shape), dtype)


@pytest.mark.parametrize("sign", [FORWARD, BACKWARD])
def test_complex_engines_work_in_place(backend, sign):
    fft = engine(backend.library, (4, 5), "float64", real=False)
    field = random((3, 4, 5), "float64", real=False)
    fft.reserve(3)
    given = backend.array(field)
    assert fft.run(given, sign, given) is given
    close(backend.host(given), oracle(field, (4, 5), [mode_numbers(4), mode_numbers(5)], sign), "float64")


BANDS = [((12,), (5,)), ((12,), (4,)), ((8,), (8,)), ((9, 6), (4, 3)), ((6, 8, 10), (3, 4, 6)), ((5, 7, 9), (5, 2, 9))]


def band(backend, nodes, modes, dtype, order, real, complex_factors):
    """Return a band, its mode numbers and its factors."""
    rng = np.random.default_rng(3)
    halves = [real and a == len(nodes) - 1 for a in range(len(nodes))]
    numbers = [mode_numbers(m, order, half=h) for m, h in zip(modes, halves, strict=True)]
    factors = [1 + rng.random(len(k)) + complex_factors * 1j * rng.random(len(k)) for k in numbers]
    bands = Bands(backend.library, nodes, modes, factors, dtype, order=order, real=real)
    bands.reserve(2)
    product = np.ones(())
    for f in factors:
        product = np.multiply.outer(product, f)
    return bands, numbers, product


@pytest.mark.parametrize(("real", "sign"), [(True, FORWARD), (False, FORWARD), (False, BACKWARD)])
@pytest.mark.parametrize("order", ["fft", "centred"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("nodes", "modes"), BANDS)
def test_a_band_is_cut_out_with_its_factors(backend, nodes, modes, dtype, order, real, sign):
    bands, numbers, product = band(backend, nodes, modes, dtype, order, real, complex_factors=sign == FORWARD)
    field = random((2, *nodes), dtype, real=real)
    expected = oracle(field, nodes, numbers, sign) * product
    close(backend.host(bands.to_modes(backend.array(field), sign=sign)), expected, dtype)
    out = backend.array(np.full((2, *bands.shape), np.nan, bands.complex_dtype))
    assert bands.to_modes(backend.array(field), out, sign=sign) is out
    close(backend.host(out), expected, dtype)


@pytest.mark.parametrize("sign", [FORWARD, BACKWARD])
@pytest.mark.parametrize("order", ["fft", "centred"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("nodes", "modes"), BANDS)
def test_a_band_is_padded_with_zeros(backend, nodes, modes, dtype, order, sign):
    bands, numbers, product = band(backend, nodes, modes, dtype, order, False, complex_factors=True)
    given = random((2, *bands.shape), dtype, real=False)
    expected = given * product
    for axis, (n, k) in enumerate(zip(nodes, numbers, strict=True)):
        phase = np.exp(sign * 2j * np.pi * (np.outer(np.arange(n), k) % n) / n)
        expected = np.moveaxis(np.tensordot(phase, expected, (1, axis - len(nodes))), 0, axis - len(nodes))
    close(backend.host(bands.to_nodes(backend.array(given), sign=sign)), expected, dtype)
    out = backend.array(np.full((2, *nodes), np.nan, bands.complex_dtype))
    assert bands.to_nodes(backend.array(given), out, sign=sign) is out
    close(backend.host(out), expected, dtype)


@pytest.mark.parametrize(("nodes", "modes"), BANDS)
def test_a_real_band_comes_back_as_a_real_field(backend, nodes, modes):
    """A field with the band's modes only is recovered; the Nyquist mode of an even band counts as two."""
    bands, numbers, _ = band(backend, nodes, modes, "float64", "fft", True, complex_factors=False)
    odd = tuple(m - 1 + m % 2 for m in modes)
    inner = Bands(backend.library, nodes, odd, None, "float64", real=True)
    smooth = inner.to_nodes(inner.to_modes(backend.array(random(nodes, "float64", real=True))))
    modes_of = backend.host(inner.to_modes(smooth)) / np.prod(nodes)
    plain = Bands(backend.library, nodes, modes, None, "float64", real=True)
    back = backend.host(plain.to_nodes(plain.to_modes(smooth))) / np.prod(nodes)
    close(back, backend.host(smooth), "float64")
    assert np.abs(modes_of).max() > 0
    assert bands.shape == tuple(len(k) for k in numbers)


@pytest.mark.backends("cpu")
@pytest.mark.parametrize(("nodes", "modes"), BANDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_a_real_transform_are_the_whole(backend, monkeypatch, nodes, modes, dtype):
    made, _, _ = band(backend, nodes, modes, dtype, "fft", True, complex_factors=False)
    field = random((3, *nodes), dtype, real=True)
    whole = made.to_modes(field.copy())
    back = made.to_nodes(whole.copy())
    monkeypatch.setattr(bands, "_PART", 200)
    for given in (field, np.asfortranarray(field)):
        close(made.to_modes(given), whole, dtype)
    out = np.full_like(field, np.nan)
    assert made.to_nodes(whole.copy(), out) is out
    for result in (out, made.to_nodes(whole.copy()), made.to_nodes(whole.copy(), np.asfortranarray(out))):
        close(result, back, dtype)


def test_sizes_have_small_factors():
    assert [good_size(n) for n in (1, 2, 11, 13, 101, 257)] == [2, 2, 12, 14, 108, 270]


def test_bands_refuse_what_does_not_fit():
    cpu = backends.current("cpu")
    with pytest.raises(ValueError, match="at most as many modes as nodes"):
        Bands(cpu, (4,), (5,))
    with pytest.raises(ValueError, match="one factor per mode"):
        Bands(cpu, (4,), (3,), [np.ones(4)])
    with pytest.raises(ValueError, match="order"):
        Bands(cpu, (4,), (3,), order="random")
    with pytest.raises(ValueError, match="sign"):
        Bands(cpu, (4,), (3,), real=True).to_modes(np.zeros(4), sign=1)


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_another_type_are_refused(backend, real, dtype):
    other = DTYPES[dtype == "float32"]
    plan = Bands(backend.library, (16,), (9,), dtype=dtype, real=real)
    for call, array in (
        (plan.to_modes, random((16,), other, real=real)), (plan.to_nodes, random(plan.shape, other, real=False))
    ):  # fmt: skip
        with pytest.raises(TypeError, match="has dtype .* and these bands take"):
            call(backend.array(array))
