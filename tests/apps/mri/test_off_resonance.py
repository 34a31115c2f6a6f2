# SPDX-License-Identifier: BSD-3-Clause
"""Off-resonance against the direct sum with the phase: stated errors, the adjoint, coils by image, what is refused."""

import copy
import pickle

import numpy as np
import pytest

import mri_cases as mri
import nufft_cases as cases
from particlemesh.apps.mri import OffResonance

SHAPES = {1: (31,), 2: (12, 9), 3: (7, 6, 8)}
COUNT = 300


def problem(ndim, dtype="complex128", spread=60.0, offset=100.0):
    """Samples, their times, a smooth field map in Hz, and images with random phases."""
    rng, shape = np.random.default_rng(ndim), SHAPES[ndim]
    samples = np.stack(cases.points(rng, ndim, COUNT, dtype), axis=-1)
    times = np.tile(np.linspace(0.002, 0.03, 100), 3)
    axes = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    field = offset + spread * (sum(a**2 for a in axes) - 0.7 * axes[0])
    return samples, shape, field, times, cases.numbers(rng, (4, *shape), dtype)


def exact(images, samples, shape, field, times, maps=None):
    """The direct sum (b, N), or (b, c, N) with maps (b or 1, c, *shape)."""
    phase = np.exp(-2j * np.pi * np.outer(times, field.ravel())) * np.exp(-1j * samples @ cases.wave_numbers(shape))
    coils = images[:, None] if maps is None else images[:, None] * maps
    made = coils.reshape(*coils.shape[:2], -1) @ phase.T
    return made[:, 0] if maps is None else made


@pytest.mark.backends("cpu", "cuda")
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(
    ("accuracy", "interpolator"),
    [(3e-2, "hann"), (3e-2, "least-squares"), (1e-3, "least-squares"), (1e-7, "least-squares")],
)
def test_samples_have_the_stated_error(backend, ndim, accuracy, interpolator):
    samples, shape, field, times, images = problem(ndim)
    made = OffResonance(backend.array(samples), shape, field, times, accuracy=accuracy, interpolator=interpolator)
    assert made.error <= accuracy and made.segments > 1
    fewer = OffResonance(
        backend.array(samples), shape, field, times, segments=made.segments - 1, interpolator=interpolator
    )
    assert fewer.error > accuracy or accuracy < 1e-3  # of finer ones, errors of transforms count
    error = cases.error(backend.host(made.execute(backend.array(images))), exact(images, samples, shape, field, times))
    assert error < 1.3 * accuracy + made._plan.eps
    assert error > made.error / 10  # it is a measure, not a bound far away


def test_hann_needs_more_segments():
    samples, shape, field, times, _ = problem(2)
    least, hann = (
        OffResonance(samples, shape, field, times, accuracy=1e-2, interpolator=name).segments
        for name in ("least-squares", "hann")
    )
    assert 3 * least < hann


@pytest.mark.backends("cpu", "cuda")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("kind", [None, "all", "each"])
def test_the_adjoint_is_exact(backend, dtype, ndim, kind):
    samples, shape, field, times, images = problem(ndim, dtype)
    maps = None if kind is None else cases.numbers(np.random.default_rng(3), (4, 3, *shape), dtype)
    maps = maps[0] if kind == "all" else maps
    made = OffResonance(
        backend.array(samples), shape, field, times, maps=None if maps is None else backend.array(maps), accuracy=1e-2
    )
    forward = backend.host(made.execute(backend.array(images)))
    assert forward.shape == ((4, COUNT) if kind is None else (4, 3, COUNT)) and forward.dtype == dtype
    values = cases.numbers(np.random.default_rng(4), forward.shape, dtype)
    back = backend.host(made.execute_adjoint(backend.array(values)))
    assert back.shape == images.shape and back.dtype == dtype
    one, other = np.vdot(values, forward), np.vdot(back, images)
    size = np.linalg.norm(values) * np.linalg.norm(forward)
    assert abs(one - other) < (1e-5 if dtype == "complex64" else 1e-12) * size
    by_image = maps if kind == "each" else None if maps is None else maps[None]
    assert cases.error(forward, exact(images, samples, shape, field, times, by_image)) < 2e-2


@pytest.mark.parametrize("turns", [2.0, 60.0])
def test_errors_over_bins_are_those_of_pixels(turns):
    rng, shape = np.random.default_rng(6), (40, 36)
    samples, times = rng.uniform(-np.pi, np.pi, (COUNT, 2)), rng.uniform(0.01, 0.05, COUNT)
    field = 30.0 + turns / 0.04 * rng.beta(2, 5, shape)
    images = cases.numbers(rng, (2, *shape), "complex128")
    made = OffResonance(samples, shape, field, times, accuracy=1e-4)
    error = cases.error(made.execute(images), exact(images, samples, shape, field, times))
    assert made.error / 30 < error < 1.3 * made.error + made._plan.eps


def test_without_a_spread_it_is_a_transform():
    samples, shape, _, times, images = problem(2)
    made = OffResonance(samples, shape, np.full(shape, 40.0), times, accuracy=1e-9)
    assert made.segments == 1 and made.error <= 1e-9
    plain = images.reshape(4, -1) @ mri.matrix(samples, shape).T * np.sqrt(np.prod(shape) * 4.0)
    expected = plain * np.exp(-2j * np.pi * 40.0 * times)
    assert cases.error(made.execute(images), expected) < 1e-9
    assert made.execute(images[0]).shape == (COUNT,)
    assert made.execute_adjoint(expected[0]).shape == shape
    still = OffResonance(samples, shape, problem(2)[2], np.zeros(COUNT), accuracy=1e-9, interpolator="hann")
    assert still.segments == 1 and cases.error(still.execute(images), plain) < 1e-9


def test_noise_between_many_segments_stays_small():
    samples, shape, field, times, images = problem(2)
    many = OffResonance(samples, shape, field, times, segments=60, eps=1e-9)
    assert cases.error(many.execute(images), exact(images, samples, shape, field, times)) < 1e-7


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"samples": np.zeros((COUNT, 3))}, ValueError, r"give \(N, 2\)"),
        ({"field_map": np.zeros((12, 8))}, ValueError, r"field_map has shape \(12, 8\); give \(12, 9\)"),
        ({"field_map": np.full((12, 9), np.nan)}, ValueError, "field_map has numbers that are not finite"),
        ({"field_map": np.zeros((12, 9), complex)}, TypeError, "real"),
        ({"times": np.zeros(7)}, ValueError, "times has shape"),
        ({"times": np.linspace(0, 30, COUNT), "accuracy": 1e-9}, ValueError, "turns.*Hz and seconds"),
        ({"maps": np.zeros((2, 9, 12))}, ValueError, "maps have shape"),
        ({"interpolator": "linear"}, ValueError, "least-squares"),
        ({"segments": 4, "accuracy": 1e-3}, ValueError, "segments is 4 beside accuracy=0.001"),
        ({"segments": 0}, ValueError, "segments"),
        ({"real": True}, ValueError, "option real is True"),
        ({"isign": 1}, ValueError, "option isign"),
        ({"eps": 2.0}, ValueError, "give less than 1"),
        ({"accuracy": 5.0}, ValueError, "give less than 1"),
        ({"samples": np.zeros((COUNT, 2), "f2")}, TypeError, "samples are of type float16"),
        ({"samples": np.zeros((COUNT, 2), "f4"), "accuracy": 1e-8}, ValueError, "at least 1e-05"),
        ({"maps": np.full((2, 12, 9), np.nan)}, ValueError, "maps have numbers that are not finite"),
        ({"maps": np.ones((2, 12, 9), bool)}, TypeError, "maps is of type bool"),
        ({"maps": [1, 2]}, ValueError, r"maps have shape \(2,\)"),
        ({"field_map": np.linspace(0, 1e308, 108).reshape(12, 9), "times": np.arange(300.0)}, ValueError, "beyond"),
        ({"accuracy": 1e-9, "interpolator": "hann"}, ValueError, "256 segments by hann have an error"),
    ],
)
def test_what_is_refused(changed, error, said):
    samples, shape, field, times, _ = problem(2)
    arguments = {"samples": samples, "shape": shape, "field_map": field, "times": times} | changed
    if "turns" in said:  # of more pixels than segments
        arguments |= {"shape": (40, 9), "field_map": np.linspace(-200, 200, 360).reshape(40, 9)}
    with pytest.raises(error, match=said):
        OffResonance(**arguments)


def phase_errors(made, f, times):
    """Root mean square errors of the phases over pixels, at all times."""
    phases = np.exp(-2j * np.pi * np.outer(times, f.ravel()))
    made_of = made._rows.T.astype("c16") @ made._phases.reshape(made.segments, -1)
    return np.sqrt((abs(phases - made_of) ** 2).mean(1))


@pytest.mark.parametrize("accuracy", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_errors_are_those_of_pixels_where_frequencies_are_clustered(accuracy, seed):
    rng, n = np.random.default_rng(seed), 2000
    f = np.where(rng.random(n) < 0.5, rng.normal(0, 1, n), rng.choice([-300, 300], n) + rng.normal(0, 0.01, n))
    f[:seed] = rng.uniform(-5000, 5000, seed)
    times = np.linspace(0, 0.01, 150)
    made = OffResonance(rng.uniform(-3, 3, (150, 1)), (n,), f, times, accuracy=accuracy)
    assert phase_errors(made, f, times).max() <= 1.05 * made.error <= 1.06 * accuracy


@pytest.mark.parametrize("last", [2.2e-3, 2.2727e-3, 2.27273e-3, 1 / 440])
def test_segments_that_are_nearly_alike_do_not_amplify_rounding(last):
    """Water and fat, read out in nearly one turn between them."""
    rng, shape, count = np.random.default_rng(0), (32, 32), 400
    f, times = np.where(rng.random(shape) < 0.3, 440.0, 0.0), np.linspace(0, last, count)
    samples = rng.uniform(-np.pi, np.pi, (count, 2)).astype("f4")
    made = OffResonance(samples, shape, f, times)
    images = np.exp(2j * np.pi * rng.random((1, *shape))).astype("c8")
    error = cases.error(made.execute(images), exact(images, samples.astype("f8"), shape, f, times))
    assert error < 1.3 * made.error <= 1.3e-3


def test_a_burst_of_samples_hides_no_others():
    rng = np.random.default_rng(0)
    f, times = rng.normal(0, 100, (16, 16)), np.r_[np.linspace(0, 1e-6, 20000), np.linspace(1e-3, 20e-3, 20)]
    made = OffResonance(rng.uniform(-3, 3, (len(times), 2)), (16, 16), f, times)
    assert phase_errors(made, f, times).max() <= 1.05 * made.error <= 1.06e-3


def test_copies_and_pickles_work():
    samples, shape, field, times, images = problem(2)
    maps = np.ones((2, *shape))
    made = OffResonance(samples, shape, field, times, maps=maps, accuracy=1e-2)
    for array in (samples, field, times, maps):  # of the caller, who goes on
        array *= 0.5
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(other.execute(images), made.execute(images))


def test_wrong_data():
    samples, shape, field, times, images = problem(2)
    made = OffResonance(samples, shape, field, times, maps=images[:, None].repeat(2, 1))
    with pytest.raises(ValueError, match="there are 3 images, and maps for 4"):
        made.execute(images[:3])
    with pytest.raises(ValueError, match=r"images has shape \(9, 12\)"):
        made.execute(images[0].T)
    with pytest.raises(TypeError, match="images is of type list"):
        made.execute(images.tolist())
    with pytest.raises(TypeError, match="images is of type complex128, more than complex64 holds"):
        OffResonance(samples.astype("f4"), shape, field, times).execute(images)
    with pytest.raises(ValueError, match="values has shape"):
        made.execute_adjoint(np.zeros((4, COUNT), complex))
