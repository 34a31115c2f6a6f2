# SPDX-License-Identifier: BSD-3-Clause
"""The backend of mri-nufft against direct sums: coils, weights, libraries of arrays, updates, gradients."""

import copy
import pickle

import numpy as np
import pytest

import mri_cases as mri
import nufft_cases as cases

mrinufft = pytest.importorskip("mrinufft", reason="mri-nufft is not installed")
import test_off_resonance as off_resonance  # noqa: E402

from particlemesh.apps.mri import MRIParticlemesh, OffResonance, density  # noqa: E402

pytestmark = [
    pytest.mark.backends("cpu", "cuda"),
    pytest.mark.filterwarnings("ignore:Samples will be rescaled"),
    pytest.mark.filterwarnings("ignore:Lipschitz constant did not converge"),
]
EPS = {"complex64": 1e-5, "complex128": 1e-9}
SHAPES = {1: (31,), 2: (12, 9), 3: (7, 10, 8)}
COUNT = 80


def problem(dtype, ndim, n_batchs, n_coils, sense):
    rng, shape = np.random.default_rng(ndim), SHAPES[ndim]
    samples = np.stack(cases.points(rng, ndim, COUNT, dtype), axis=-1)
    maps = cases.numbers(rng, (n_coils, *shape), dtype) if sense else None
    images = cases.numbers(rng, (n_batchs, 1 if sense else n_coils, *shape), dtype)
    return samples, shape, maps, images, cases.numbers(rng, (n_batchs, n_coils, COUNT), dtype)


def operator(*arguments, **options):
    return mrinufft.get_operator("particlemesh")(*arguments, **options)


def test_it_is_registered():
    assert mrinufft.get_operator("particlemesh") is MRIParticlemesh
    assert "particlemesh" in mrinufft.list_backends(available_only=True)


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_batchs", "n_coils", "sense", "n_trans"),
    [(1, 1, False, None), (2, 3, False, None), (2, 3, False, 2), (2, 3, True, None), (3, 2, True, 4), (2, 3, True, 1)],
    ids=str,
)
def test_both_directions(backend, dtype, ndim, n_batchs, n_coils, sense, n_trans):
    samples, shape, maps, images, values = problem(dtype, ndim, n_batchs, n_coils, sense)
    weights = np.random.default_rng(5).uniform(0.5, 2, COUNT).astype(samples.dtype)
    op = operator(
        samples, shape, density=weights, n_coils=n_coils, n_batchs=n_batchs, n_trans=n_trans, smaps=maps,
        squeeze_dims=False, eps=EPS[dtype],
    )  # fmt: skip
    given, coefficients = backend.array(images), backend.array(values)
    made, back, consistent = op.op(given), op.adj_op(coefficients), op.data_consistency(given, coefficients)
    assert type(made) is type(given)
    exact = mri.samples_of(images, samples, shape, maps)
    for result, expected in (
        (made, exact),
        (back, mri.images_of(values, samples, shape, maps, weights)),
        (consistent, mri.images_of(exact - values, samples, shape, maps, weights)),
    ):
        result = backend.host(result)
        assert result.dtype == np.dtype(dtype)
        assert result.shape == expected.shape
        assert cases.error(result, expected) < 2 * EPS[dtype]
    np.testing.assert_array_equal(backend.host(given), images)
    np.testing.assert_array_equal(backend.host(coefficients), values)


@pytest.mark.parametrize("n_trans", [None, 2, 6])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_each_image_may_have_maps(backend, ndim, n_trans):
    samples, shape, _, images, values = problem("complex128", ndim, 4, 3, True)
    maps = cases.numbers(np.random.default_rng(8), (4, 3, *shape), "complex128")
    op = operator(
        samples, shape, n_coils=3, n_batchs=4, n_trans=n_trans, smaps=backend.array(maps), squeeze_dims=False, eps=1e-9
    )
    made, back = (backend.host(a) for a in (op.op(backend.array(images)), op.adj_op(backend.array(values))))
    for b in range(4):
        one = slice(b, b + 1)
        assert cases.error(made[b], mri.samples_of(images[one], samples, shape, maps[b])[0]) < 2e-9
        assert cases.error(back[b], mri.images_of(values[one], samples, shape, maps[b])[0]) < 2e-9
    assert np.vdot(values, made) == pytest.approx(np.vdot(back, images), rel=1e-12)
    _, slopes = op.op_and_gradient(backend.array(images))
    one = operator(samples, shape, n_coils=3, smaps=maps[2], squeeze_dims=False, eps=1e-9)
    np.testing.assert_allclose(
        backend.host(slopes)[2], one.op_and_gradient(images[2:3])[1][0], atol=1e-8 * abs(backend.host(slopes)).max()
    )


def test_maps_of_images_keep_their_numbers():
    samples, shape, _, images, _ = problem("complex128", 2, 4, 3, True)
    maps = cases.numbers(np.random.default_rng(8), (4, 3, *shape), "complex128")
    op = operator(samples, shape, n_coils=3, n_batchs=4, smaps=maps)
    with pytest.raises(ValueError, match="smaps are of 4 images"):
        op.n_batchs = 2
    with pytest.raises(ValueError, match="there are 3 smaps"):
        op.n_coils = 4
    with pytest.raises(ValueError, match="smaps are of 3 images, and n_batchs is 4"):
        op.smaps = maps[:3]
    with pytest.raises(ValueError, match="smaps have shape"):
        op.smaps = maps[None]
    with pytest.warns(UserWarning, match="n_coils becomes 2"):
        op.smaps = maps[:, :2]
    assert op.op(images).shape == (4, 2, COUNT)
    np.testing.assert_array_equal(copy.deepcopy(op).op(images), op.op(images))


def test_off_resonance_of_mri_nufft_is_ours_with_the_other_sign_of_the_field():
    """Its frequencies are in bins: errors fall with their width. Both beside the direct sum."""
    samples, shape, field, times, images = off_resonance.problem(2, "complex64", offset=0.0)
    exact = off_resonance.exact(images[:1], samples, shape, field, times)[0]
    ours = OffResonance(samples, shape, field, times, accuracy=1e-4).execute(images[0])
    assert cases.error(ours, exact) < 2e-4
    for backend in ("particlemesh", "finufft"):
        if backend not in mrinufft.list_backends(available_only=True):
            continue
        errors = []
        for bins in (200, 2000):
            plain = (
                operator(samples, shape)
                if backend == "particlemesh"
                else mrinufft.get_operator(backend)(samples, shape)
            )
            theirs = plain.with_off_resonance_correction(
                times.astype("f4"), b0_map=-field.astype("f4"), mask=np.ones(shape, bool),
                interpolator={"name": "svd", "L": 15, "n_bins": bins},
            )  # fmt: skip
            errors.append(cases.error(theirs.op(images[0]) * plain.norm_factor, exact))
        assert errors[1] < 1e-2 and errors[1] < errors[0] / 5


@pytest.mark.parametrize("sense", [False, True])
def test_without_weights_it_is_the_adjoint(backend, sense):
    samples, shape, maps, images, values = problem("complex128", 2, 2, 3, sense)
    op = operator(samples, shape, n_coils=3, n_batchs=2, smaps=maps, squeeze_dims=False, eps=1e-4)
    made, back = (backend.host(a) for a in (op.op(backend.array(images)), op.adj_op(backend.array(values))))
    # Exactly, although eps is large: both directions are built of the same numbers.
    assert np.vdot(values, made) == pytest.approx(np.vdot(back, images), rel=1e-12)


def test_outputs_and_squeezed_axes():
    samples, shape, _, images, values = problem("complex128", 2, 1, 3, False)
    op = operator(samples, shape, n_coils=3)
    assert op.op(images[0]).shape == (3, COUNT)
    assert op.adj_op(values[0]).shape == (3, *shape)
    ksp, img = np.empty_like(values), np.empty_like(images)
    np.testing.assert_array_equal(op.op(images, ksp), ksp[0])
    assert cases.error(ksp, mri.samples_of(images, samples, shape)) < 1e-5
    np.testing.assert_array_equal(op.adj_op(values, img), img[0])
    single = operator(samples, shape)
    assert single.op(images[0, 0]).shape == (COUNT,)
    assert single.adj_op(values[0, 0]).shape == shape


def test_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    samples, shape, maps, images, _ = problem("complex64", 2, 1, 3, True)
    op = operator(torch.as_tensor(samples), shape, n_coils=3, smaps=torch.as_tensor(maps))
    samples_of = op.op(torch.as_tensor(images))
    assert isinstance(samples_of, torch.Tensor)
    assert cases.error(samples_of.numpy(), mri.samples_of(images, samples, shape, maps)[0]) < 1e-5


def test_cycles_per_pixel_are_radians_over_two_pi():
    samples, shape, _, images, _ = problem("complex128", 2, 1, 1, False)
    radians, cycles = operator(samples, shape), operator(samples / (2 * np.pi), shape)
    np.testing.assert_allclose(cycles.op(images), radians.op(images), rtol=0, atol=1e-5)


def test_new_samples():
    samples, shape, maps, images, _ = problem("complex128", 2, 2, 3, True)
    other = np.stack(cases.points(np.random.default_rng(9), 2, 50, "complex128"), axis=-1)
    op = operator(samples, shape, density="pipe", n_coils=3, n_batchs=2, smaps=maps, eps=1e-9)
    op.op(images)
    op.samples = other.reshape(5, 10, 2)
    assert cases.error(op.op(images), mri.samples_of(images, other, shape, maps)) < 1e-9
    np.testing.assert_allclose(op.density, density(other, shape), rtol=1e-6)
    given = operator(samples, shape, density=np.ones(COUNT))
    with pytest.raises(ValueError, match="80 density weights and 50 new samples"):
        given.update_samples(other)
    given.update_samples(samples[::-1].copy())
    assert given.density is not None
    with pytest.raises(TypeError, match="float32; the operator's is float64"):
        given.update_samples(samples.astype(np.float32))


def test_pipe_is_real_and_takes_mri_nuffts_arguments():
    samples = mri.radial(11, 32)
    weights = MRIParticlemesh.pipe(samples / (2 * np.pi), (16, 16), max_iter=3, osf=1.5, normalize=False)
    np.testing.assert_allclose(weights, density(samples, (16, 16), 3, 1.5, normalise=False), rtol=1e-9)
    for method in (True, "pipe", {"name": "pipe"}):
        op = operator(samples, (16, 16), density=method)
        assert op.density.dtype == np.float64
        # Samples on the edge of k-space are folded to either side.
        np.testing.assert_allclose(op.density, density(samples, (16, 16)), rtol=5e-3)


def test_the_largest_eigenvalue():
    np.random.seed(1)  # noqa: NPY002 - mri-nufft draws where its iteration starts; poor starts need more steps
    samples, shape, maps, _, _ = problem("complex128", 2, 2, 3, True)
    op = operator(samples, shape, n_coils=3, n_batchs=2, smaps=maps)
    largest = np.linalg.norm(mri.matrix(samples, shape), 2) ** 2
    assert op.get_lipschitz_cst(200) == pytest.approx(largest, rel=2e-2)
    assert op.n_coils == 3
    assert op.smaps is not None


def test_the_other_sign_of_the_exponent():
    samples, shape, maps, images, values = problem("complex128", 2, 2, 3, True)
    op = operator(samples, shape, n_coils=3, n_batchs=2, smaps=maps, squeeze_dims=False, eps=1e-9)
    with op.grad_traj_plan():
        made, back, (both, slopes) = op.op(images), op.adj_op(values), op.op_and_gradient(images)
    assert cases.error(made, mri.samples_of(images, -samples, shape, maps.conj())) < 1e-9
    assert cases.error(back, mri.images_of(values, -samples, shape, maps.conj())) < 1e-9
    np.testing.assert_allclose(both, made, atol=1e-9)
    np.testing.assert_array_equal(op.smaps, maps)
    op.smaps = maps.conj()
    op.update_samples(-samples)
    np.testing.assert_allclose(slopes, -op.op_and_gradient(images)[1], atol=1e-9)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("sense", [False, True])
def test_gradients_by_the_trajectory_are_differences(backend, ndim, sense):
    samples, shape, maps, images, _ = problem("complex128", ndim, 2, 3, sense)
    options = dict(n_coils=3, n_batchs=2, smaps=maps, squeeze_dims=False, eps=1e-9)
    values, slopes = operator(samples, shape, **options).op_and_gradient(backend.array(images))
    values, slopes = backend.host(values), backend.host(slopes)
    assert slopes.shape == (*values.shape, ndim)
    assert cases.error(values, mri.samples_of(images, samples, shape, maps)) < 1e-9
    step = 1e-5
    for axis, unit in enumerate(np.eye(ndim)):
        ahead, behind = (mri.samples_of(images, samples + s * unit, shape, maps) for s in (step, -step))
        assert cases.error(slopes[..., axis], (ahead - behind) / (2 * step)) < 1e-7


WRONG = {
    "samples": [
        (np.zeros((4, 3)), r"samples have shape \(4, 3\)"), (np.full((4, 2), 3), "int64"), (np.zeros(4), r"\(4,\)"),
        (np.zeros((4, 2), complex), "complex128"), (np.full((4, 2), np.nan), "samples: there are"),
        ([[0.0, 0.0]], "samples is of type list"), (np.zeros((4, 2), np.float16), "float16"),
    ],
    "shape": [((12.5, 9), "shape is 12.5"), ((12, 0), "shape is 0"), (12, "shape is 12"), ((), "shape is"),
              ((2, 2, 2, 2), "shape is")],
    "density": [
        (np.ones((COUNT, 1)), r"density has shape \(80, 1\); give one weight per sample: \(80,\)"),
        (np.ones((1, COUNT)), r"density has shape \(1, 80\)"), (np.ones(COUNT - 1), r"density has shape \(79,\)"),
        (np.ones(COUNT, complex), "density is of type complex128; give real weights"), (np.ones(()), r"shape \(\)"),
        (np.full(COUNT, np.inf), "density: there are numbers"),
        (np.full(COUNT, "1"), "density is of type"),
        ([1.0] * COUNT, "density is of type list; give an array"), ("no method", "no method"),
        (3, "density is of type int; give an array"),
        (lambda samples, shape: np.ones((len(samples), 1)), r"density has shape \(80, 1\)"),
    ],
    "smaps": [(np.zeros((1, 4, 4)), r"smaps have shape \(1, 4, 4\); give \(n_coils, 12, 9\)"),
              (np.zeros((0, 12, 9)), "smaps have shape"), (np.zeros((1, 12, 9), bool), "smaps are of type bool"),
              (np.zeros((12, 9)), "smaps have shape"), (3, "smaps method"),
              (np.full((2, 12, 9), np.nan), "smaps: there are numbers that are not finite"),
              (np.full((2, 12, 9), 1 + 1j * np.inf), "smaps: there are numbers that are not finite")],
    "n_coils": [(0, "n_coils"), (1.5, "n_coils"), ("two", "n_coils"), (None, "n_coils")],
    "n_batchs": [(0, "n_batchs"), (-1, "n_batchs"), (2.5, "n_batchs")],
    "n_trans": [(0, "n_trans"), (1.5, "n_trans"), ("all", "n_trans")],
    "squeeze_dims": [("no", "squeeze_dims"), (2, "squeeze_dims")],
    "eps": [(0, "eps"), (-1.0, "eps"), (np.nan, "eps"), ("small", "eps")],
    "upsampfac": [(0.5, "upsampfac")],
    "real": [(True, "option real is True")],
    "spreadinterponly": [(1, "option spreadinterponly is 1")],
    "dtype": [("complex64", "option dtype")],
    "modeord": [(3, "modeord")],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "message"), [(name, *each) for name, all_ in WRONG.items() for each in all_])
def test_bad_arguments_are_named(name, value, message):
    """At construction: nothing is left for the first transform."""
    samples, shape, *_ = problem("complex128", 2, 1, 1, False)
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        operator(**(dict(samples=samples, shape=shape) | {name: value}))


@pytest.mark.parametrize("sense", [False, True])
def test_bad_data_and_outputs_are_named_and_change_nothing(sense):
    samples, shape, maps, images, values = problem("complex128", 2, 2, 3, sense)
    op = operator(samples, shape, n_batchs=2, n_coils=3, smaps=maps, density=np.ones(COUNT))
    made, back = op.op(images), op.adj_op(values)
    for call, name, right in ((op.op, "data", images), (op.adj_op, "coeffs", values)):
        swapped = np.concatenate([right] * 3)[:3].reshape(3, *right.shape[1:])
        for wrong in (right[..., :-1], right[0], right[None], np.swapaxes(swapped, 0, 1)[:, :1], right[..., None]):
            with pytest.raises(ValueError, match=f"{name} has shape"):
                call(wrong)
        for wrong in (right.astype(str), right.real > 0, right.tolist(), 3.0, None):
            with pytest.raises(TypeError, match=f"{name} is of type"):
                call(wrong)
    with pytest.raises(TypeError, match="obs_data is of type list; give an array of NumPy, CuPy or PyTorch"):
        op.data_consistency(images, values.tolist())
    with pytest.raises(ValueError, match="obs_data has shape"):
        op.data_consistency(images, values[:, :2])
    for call, name, given, result in ((op.op, "ksp", images, values), (op.adj_op, "img", values, images)):
        for wrong in (
            np.zeros_like(result).astype(np.complex64), np.zeros_like(result).real.copy(), np.zeros_like(result[:1]),
            np.zeros((*result.shape, 2), complex)[..., 0], result.tolist(),
        ):  # fmt: skip
            with pytest.raises((TypeError, ValueError), match=f"{name}|array"):
                call(given, wrong)
            assert not np.any(wrong) or isinstance(wrong, list)
        if result.shape == given.shape:
            with pytest.raises(ValueError, match="shares memory"):
                call(given, given)
    np.testing.assert_array_equal(op.op(images), made)
    np.testing.assert_array_equal(op.adj_op(values), back)


def test_what_is_kept_is_the_operators_own_and_what_can_be_set_is_obeyed():
    samples, shape, _, _, values = problem("complex128", 2, 1, 3, False)
    given, weights = samples.copy(), np.random.default_rng(1).uniform(0.5, 2, COUNT)
    op = operator(given, shape, density=weights, n_coils=3, eps=1e-9, squeeze_dims=False)
    exact = mri.images_of(values, samples, shape, None, weights)
    weights_then = weights.copy()
    given[:], weights[:] = 0.1, 7
    assert cases.error(op.adj_op(values), exact) < 1e-8
    for name in (
        "shape",
        "dtype",
        "cpx_dtype",
        "eps",
        "n_trans",
        "n_samples",
        "norm_factor",
        "backend",
        "no_such_name",
    ):
        with pytest.raises(AttributeError):
            setattr(op, name, getattr(op, name, 1))
    op.squeeze_dims = True
    assert op.adj_op(values).shape == (3, *shape)
    op.squeeze_dims = False
    op.density = 2 * weights_then
    assert cases.error(op.adj_op(values), 2 * exact) < 1e-8
    op.density = None
    assert cases.error(op.adj_op(values), mri.images_of(values, samples, shape)) < 1e-8
    op.smaps, op.n_batchs = maps_of(3, shape), 2
    with pytest.raises(ValueError, match="n_coils is 2, and there are 3 smaps"):
        op.n_coils = 2
    assert op.op(np.ones((2, 1, *shape))).shape == (2, 3, COUNT)
    # Weights that are given replace a method for good.
    op.compute_density("pipe")
    by_method, op.density = op.density, None  # as solvers of mri-nufft do
    op.density = by_method
    op.update_samples(0.5 * samples)
    np.testing.assert_allclose(op.density, density(0.5 * samples, shape), rtol=1e-6)
    op.compute_density(np.full(COUNT, 3.0))
    op.update_samples(samples[::-1].copy())
    np.testing.assert_array_equal(op.density, 3)
    for wrong in (np.zeros((4, 3)), np.zeros(8)):
        for unsafe in (False, True):
            with pytest.raises(ValueError, match="samples have shape"):
                op.update_samples(wrong, unsafe=unsafe)


def maps_of(n_coils, shape):
    return cases.numbers(np.random.default_rng(8), (n_coils, *shape), "complex128")


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_copies_are_independent(through):
    samples, shape, _, images, _ = problem("complex128", 2, 1, 1, False)
    op = operator(samples, shape, density=np.ones(COUNT), eps=1e-9)
    made = op.op(images)
    other = through(op)
    other.update_samples(0.5 * samples)
    np.testing.assert_array_equal(op.op(images), made)
    assert cases.error(other.op(images), mri.samples_of(images, 0.5 * samples, shape)[0, 0]) < 1e-8


@pytest.mark.parametrize("weights", [None, "pipe", np.empty(0)])
def test_no_samples_have_no_values_and_a_black_image(weights):
    op = operator(np.empty((0, 2)), (6, 5), density=weights)
    assert op.op(np.ones((6, 5))).shape == (0,)
    np.testing.assert_array_equal(op.adj_op(np.empty(0)), np.zeros((6, 5)))
