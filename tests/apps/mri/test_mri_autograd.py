# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of mri-nufft's module with our backend, against PyTorch's own of the operator's matrix."""

import numpy as np
import pytest

import nufft_cases as cases

mrinufft = pytest.importorskip("mrinufft", reason="mri-nufft is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("deepinv", reason="deepinv, which mri-nufft's autograd imports, is not installed")
import particlemesh.apps.mri  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore:Samples will be rescaled")
SHAPE, COUNT, COILS, IMAGES = (7, 6), 40, 3, 2
RNG = np.random.default_rng(4)


def tensor(*shape):
    return torch.as_tensor(cases.numbers(RNG, shape, "complex128"))


def trajectory():
    return torch.as_tensor(RNG.uniform(-np.pi, np.pi, (COUNT, 2)))


def module(samples, smaps, weights=None, **options):
    operator = mrinufft.get_operator("particlemesh")(
        samples.numpy(), SHAPE, density=weights, n_coils=COILS, n_batchs=IMAGES, squeeze_dims=False, eps=1e-10,
        smaps=None if smaps is None else smaps.numpy(),
    )  # fmt: skip
    return operator.make_autograd(wrt_data=True, wrt_traj=True, **options)


def exact(samples, smaps, images):
    """Samples by the matrix; differentiable."""
    matrix = torch.exp(-1j * (samples @ torch.as_tensor(cases.wave_numbers(SHAPE)))) / mri_norm()
    coils = images if smaps is None else images * smaps
    return coils.reshape(IMAGES, COILS, -1) @ matrix.T


def exact_adjoint(samples, smaps, values, weights):
    matrix = torch.exp(1j * (samples @ torch.as_tensor(cases.wave_numbers(SHAPE)))) / mri_norm()
    coils = ((values * weights) @ matrix).reshape(IMAGES, COILS, *SHAPE)
    return coils if smaps is None else (coils * smaps.conj()).sum(1, keepdim=True)


def mri_norm():
    return np.sqrt(np.prod(SHAPE) * 4)


def assert_same_gradients(actual, expected, of_found, of_expected):
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-8)
    target = torch.ones_like(expected) * (0.3 - 0.7j)
    losses = [(result - target).abs().pow(2).sum() for result in (actual, expected)]
    gradients = [torch.autograd.grad(loss, of) for loss, of in zip(losses, (of_found, of_expected), strict=True)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sense", [False, True])
def test_by_data_and_trajectory_with_weights(sense):
    smaps, weights = tensor(COILS, *SHAPE) if sense else None, RNG.uniform(0.5, 2, COUNT)
    samples = trajectory()
    ours = module(samples, smaps, weights)
    moving = samples.clone().requires_grad_()
    images = tensor(IMAGES, 1 if sense else COILS, *SHAPE).requires_grad_()
    values = tensor(IMAGES, COILS, COUNT).requires_grad_()
    assert_same_gradients(
        ours.op(images), exact(moving, smaps, images), (images, ours.samples), (images, moving)
    )  # fmt: skip
    assert_same_gradients(
        ours.adj_op(values), exact_adjoint(moving, smaps, values, torch.as_tensor(weights)),
        (values, ours.samples), (values, moving),
    )  # fmt: skip


def test_batches_have_gradients_by_their_own_maps_and_trajectories():
    ours = module(trajectory(), tensor(COILS, *SHAPE), paired_batch=True)
    smaps, samples = tensor(2, COILS, *SHAPE), torch.stack([trajectory(), trajectory()])
    images, values = tensor(2, IMAGES, 1, *SHAPE), tensor(2, IMAGES, COILS, COUNT)
    one = torch.tensor(1.0, dtype=torch.float64)
    for result, expected, data in (
        (ours.op, exact, images),
        (ours.adj_op, lambda s, m, v: exact_adjoint(s, m, v, one), values),
    ):
        data.requires_grad_()
        given, moving = (samples.clone().requires_grad_() for _ in range(2))
        assert_same_gradients(
            result(data, smaps=smaps, samples=given),
            torch.stack([expected(*each) for each in zip(moving, smaps, data, strict=True)]),
            (data, given), (data, moving),
        )  # fmt: skip


def test_a_field_map_needs_its_operator():
    ours = module(trajectory(), None)
    with pytest.raises(ValueError, match="with_off_resonance_correction"):
        ours.op(tensor(IMAGES, COILS, *SHAPE), field_map=tensor(*SHAPE))


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_mri_nuffts_own_module_takes_the_toggled_operator():
    """The path of operators with a field map: one transform per axis, with the other sign for the adjoint."""
    from mrinufft.operators.autodiff import MRINufftAutoGrad

    samples, smaps = trajectory(), tensor(COILS, *SHAPE)
    ours = MRINufftAutoGrad(module(samples, smaps).nufft_op, wrt_data=True, wrt_traj=True)
    moving, values = samples.clone().requires_grad_(), tensor(IMAGES, COILS, COUNT)
    one = torch.tensor(1.0, dtype=torch.float64)
    actual, expected = ours.adj_op(values), exact_adjoint(moving, smaps, values, one)
    target = tensor(*expected.shape)
    gradients = [
        torch.autograd.grad((result - target).abs().pow(2).sum(), of)[0]
        for result, of in ((actual, ours.samples), (expected, moving))
    ]
    # mri-nufft's grid also starts at -n/2 for odd n; only the even axis is comparable.
    torch.testing.assert_close(gradients[0][:, 1], gradients[1][:, 1], rtol=1e-6, atol=1e-7)
