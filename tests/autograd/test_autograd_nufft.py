# SPDX-License-Identifier: BSD-3-Clause
"""Differentiable non-uniform Fourier transforms against plain sums, and their derivatives."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")

from particlemesh.autograd.torch_nufft import nufft1, nufft2  # noqa: E402
from particlemesh.autograd.torch_nufft3 import nufft3  # noqa: E402

F64 = torch.float64
SIZES = [(9,), (6, 7), (4, 5, 3)]
EPS = 1e-11


def arrays(n_modes, count=5, batch=2):
    draw = torch.Generator().manual_seed(4)
    x = 7 * torch.rand((count, len(n_modes)), dtype=F64, generator=draw) - 2
    c = torch.randn((batch, count), dtype=torch.complex128, generator=draw)
    f = torch.randn((batch, *n_modes), dtype=torch.complex128, generator=draw)
    return x.requires_grad_(), c.requires_grad_(), f.requires_grad_()


def phases(x, n_modes, isign):
    axes = torch.meshgrid(*(torch.arange(-(n // 2), (n + 1) // 2, dtype=F64) for n in n_modes), indexing="ij")
    return torch.exp(1j * isign * torch.tensordot(x, torch.stack(axes), 1))  # (N, *n_modes)


@pytest.mark.parametrize("isign", [1, -1])
@pytest.mark.parametrize("n_modes", SIZES, ids=str)
def test_transforms_and_slopes_are_those_of_plain_sums(n_modes, isign):
    x, c, f = arrays(n_modes)
    exact = phases(x, n_modes, isign)
    for result, expected, given in [
        (nufft1(x, c, n_modes, eps=EPS, isign=isign), torch.tensordot(c, exact, 1), (x, c)),
        (nufft2(x, f, eps=EPS, isign=isign), torch.tensordot(f, exact.movedim(0, -1), len(n_modes)), (x, f)),
    ]:
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
        slopes = [torch.autograd.grad(r.abs().square().sum(), given, retain_graph=True) for r in (result, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-8)


def test_third_derivatives_by_points():
    x, f = torch.tensor([0.3, 1.1], dtype=F64, requires_grad=True), torch.zeros(7, dtype=F64)
    f[3 + 2] = 1  # exp(2 i x)
    value = nufft2(x, f, eps=EPS, isign=1).real.sum()
    for _ in range(3):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    torch.testing.assert_close(value, 8 * torch.sin(2 * x))


def test_operators_compile_and_batch():
    n_modes, (x, c, f) = (6, 7), arrays((6, 7))
    compiled = torch.compile(lambda x, c: nufft1(x, c, n_modes), fullgraph=True, backend="aot_eager")
    slopes = [
        torch.autograd.grad(call(x, c).abs().sum(), (x, c)) for call in (compiled, lambda *a: nufft1(*a, n_modes))
    ]
    torch.testing.assert_close(*slopes)
    torch.testing.assert_close(torch.func.vmap(lambda f: nufft2(x, f))(f), nufft2(x, f))
    several = torch.stack([x, x + 1]).detach()
    both = torch.func.vmap(nufft2)(several, f)
    torch.testing.assert_close(both[1], nufft2(several[1], f[1]))


def test_compiled_transforms_follow_their_sizes():
    to_modes = torch.compile(lambda x, c, n: nufft1(x, c, n), fullgraph=True, backend="eager")
    to_points = torch.compile(nufft2, fullgraph=True, backend="eager")
    for n_modes in ((4, 4), (6, 4), (8, 5)):
        x, c, f = arrays(n_modes)
        torch.testing.assert_close(to_modes(x, c, n_modes), nufft1(x, c, n_modes))
        torch.testing.assert_close(to_points(x, f), nufft2(x, f))


def test_single_precision_real_values_and_no_points():
    x, c, _ = arrays((6, 7))
    result = nufft1(x.float(), c.real.float(), (6, 7), eps=1e-4)
    assert result.dtype == torch.complex64
    torch.testing.assert_close(result, nufft1(x, c.real, (6, 7), eps=EPS).to(torch.complex64), rtol=0, atol=2e-3)
    (slope,) = torch.autograd.grad(nufft1(x, c.real, (6, 7)).abs().square().sum(), c)
    assert slope.is_complex()
    assert nufft1(torch.zeros((0, 2)), torch.zeros((3, 0)), (6, 7)).equal(torch.zeros((3, 6, 7), dtype=torch.complex64))


def test_what_is_not_allowed_is_named():
    x, c, _ = arrays((6, 7))
    with pytest.raises(ValueError, match=r"points has shape \(5, 2\); \(n, 1\) is needed"):
        nufft1(x, c, 9)
    with pytest.raises(ValueError, match=r"strengths has shape \(2, 4\); its last axes must be \(5,\)"):
        nufft1(x, c[:, :4], (6, 7))
    with pytest.raises(TypeError, match="option 'modeord' is not allowed here"):
        nufft1(x, c, (6, 7), modeord=1)
    with pytest.raises(ValueError, match="eps"):
        nufft1(x, c, (6, 7), eps=-1.0)
    with pytest.raises(ValueError, match="not finite"):
        nufft1(x * math.nan, c, (6, 7))


def test_jax_has_the_same_transforms_and_derivatives():
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    from particlemesh.autograd import jax_nufft as other

    def same(result, expected):
        torch.testing.assert_close(torch.tensor(np.array(result)), expected)

    n_modes = (6, 7)
    x, c, f = arrays(n_modes)
    with jax.enable_x64(True):
        points, strengths, modes = (jax.numpy.asarray(a.detach().numpy()) for a in (x, c, f))
        for isign in (1, -1):
            options = dict(eps=EPS, isign=isign)
            for expected, call, array in [
                (nufft1(x, c, n_modes, **options), lambda x, a: other.nufft1(x, a, n_modes, **options), strengths),  # noqa: B023
                (nufft2(x, f, **options), lambda x, a: other.nufft2(x, a, **options), modes),  # noqa: B023
            ]:
                same(jax.jit(call)(points, array), expected)
                loss = lambda x, a, call=call: (abs(call(x, a)) ** 2).sum()  # noqa: E731
                by_points, by_array = jax.jit(jax.grad(loss, (0, 1)))(points, array)
                slopes = torch.autograd.grad(expected.abs().square().sum(), (x, c if array is strengths else f))
                same(by_points, slopes[0])
                same(by_array.conj(), slopes[1])  # torch's derivative by a complex number is the conjugate
        waves = lambda x: other.nufft2(x, modes[0], eps=EPS).real.sum()  # noqa: E731
        hessians = [jax.jit(jax.hessian(waves))(points), jax.jit(jax.jacrev(jax.jacfwd(waves)))(points)]
    second = torch.autograd.functional.hessian(lambda x: nufft2(x, f[0].detach(), eps=EPS).real.sum(), x)
    for hessian in hessians:
        same(hessian, second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.complex64, torch.int32])
def test_strengths_and_points_of_two_precisions_are_refused(dtype):
    x = torch.rand((3, 2), dtype=F64)
    for call in (
        lambda: nufft1(x, torch.ones(3).to(dtype), (4, 4)), lambda: nufft2(x, torch.ones(4, 4).to(dtype)),
        lambda: nufft3(x, torch.ones(3).to(dtype), x), lambda: nufft3(x, torch.ones(3).double(), x.float()),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"dtype.* give one precision"):
            call()
