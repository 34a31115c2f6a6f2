# SPDX-License-Identifier: BSD-3-Clause
"""Differentiable transforms of type 3 against plain sums, and their derivatives."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")

from particlemesh.autograd.torch_nufft3 import nufft3  # noqa: E402

F64 = torch.float64
EPS = 1e-11


def arrays(axes, count=5, targets=4, batch=2):
    draw = torch.Generator().manual_seed(4)
    x = 7 * torch.rand((count, axes), dtype=F64, generator=draw) - 2
    s = 4 * torch.rand((targets, axes), dtype=F64, generator=draw) + 1
    c = torch.randn((batch, count), dtype=torch.complex128, generator=draw)
    return x.requires_grad_(), c.requires_grad_(), s.requires_grad_()


def plain(x, c, s, isign=1):
    return c @ torch.exp(1j * isign * (x @ s.T))


@pytest.mark.parametrize("isign", [1, -1])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_sums_and_slopes_are_those_of_plain_sums(axes, isign):
    given = arrays(axes)
    result, expected = nufft3(*given, eps=EPS, isign=isign), plain(*given, isign)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
    slopes = [torch.autograd.grad(r.abs().square().sum(), given) for r in (result, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-8)


def test_operators_compile_and_batch():
    x, c, s = arrays(2)
    compiled = torch.compile(nufft3, fullgraph=True, backend="aot_eager")
    slopes = [torch.autograd.grad(call(x, c, s).abs().sum(), (x, c, s)) for call in (compiled, nufft3)]
    torch.testing.assert_close(*slopes)
    torch.testing.assert_close(torch.func.vmap(lambda c: nufft3(x, c, s))(c), nufft3(x, c, s))
    several = torch.stack([x, x + 1]).detach()
    both = torch.func.vmap(nufft3, (0, 0, None))(several, c, s)
    torch.testing.assert_close(both[1], nufft3(several[1], c[1], s))
    assert nufft3(torch.zeros((0, 2)), torch.zeros((3, 0)), s.float()).equal(torch.zeros((3, 4), dtype=torch.complex64))


def test_what_is_not_allowed_is_named():
    x, c, s = arrays(2)
    with pytest.raises(ValueError, match=r"points have shape \(5, 2\) and frequencies \(4, 1\)"):
        nufft3(x, c, s[:, :1])
    with pytest.raises(ValueError, match=r"strengths has shape \(2, 4\); its last axis must be \(5,\)"):
        nufft3(x, c[:, :4], s)
    with pytest.raises(TypeError, match="option 'real' is not allowed here"):
        nufft3(x, c, s, real=True)


def test_jax_has_the_same_sums_and_derivatives():
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    from particlemesh.autograd.jax_nufft3 import nufft3 as other

    def same(result, expected):
        torch.testing.assert_close(torch.tensor(np.array(result)), expected)

    given = arrays(2)
    options, expected = dict(eps=EPS, isign=-1), nufft3(*given, eps=EPS, isign=-1)
    with jax.enable_x64(True):
        x, c, s = (jax.numpy.asarray(a.detach().numpy()) for a in given)
        same(other(x, c, s, eps=EPS), nufft3(*given, eps=EPS).detach())
        value, slopes = jax.jit(
            jax.value_and_grad(lambda *a: (abs(other(*a, **options)) ** 2).sum(), (0, 1, 2))
        )(x, c, s)  # fmt: skip
        mixed = jax.jit(jax.jacfwd(jax.grad(lambda x, s: other(x, c, s, **options).real.sum()), 1))(x, s)
    loss = expected.abs().square().sum()
    same(value, loss.detach())
    for ours, theirs in zip(slopes, torch.autograd.grad(loss, given), strict=True):
        same(ours.conj(), theirs)  # torch's derivative by a complex number is the conjugate
    x, c, s = given
    second = torch.autograd.functional.hessian(lambda x, s: nufft3(x, c, s, **options).real.sum(), (x, s))
    same(mixed, second[0][1])


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("nufft_type", [1, 2, 3])
def test_what_the_pool_saw_before_decides_nothing(library, nufft_type):
    """A plan that had other points gives the bits of a new one."""
    if library == "jax":
        jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
        from particlemesh.autograd import jax_nufft as of_modes
        from particlemesh.autograd import jax_nufft3 as of_frequencies
        from particlemesh.autograd.jax_operators import POOL

        array, host = jax.numpy.asarray, np.asarray
    else:
        from particlemesh.autograd import torch_nufft as of_modes
        from particlemesh.autograd import torch_nufft3 as of_frequencies
        from particlemesh.autograd.torch import POOL

        array, host = torch.asarray, torch.Tensor.numpy

    def call(seed, count, scale):
        rng = np.random.default_rng(seed)
        x, s = scale * rng.uniform(-3, 3, (count, 2)), scale * rng.uniform(-9, 9, (30, 2))
        modes, strengths = rng.normal(size=(8, 30)) + 0j, rng.normal(size=count) + 1j
        x, s, modes, strengths = (
            array(a.astype(t)) for a, t in ((x, "f4"), (s, "f4"), (modes, "c8"), (strengths, "c8"))
        )
        if nufft_type == 3:
            return host(of_frequencies.nufft3(x, strengths, s, eps=1e-4))
        if nufft_type == 1:
            return host(of_modes.nufft1(x, strengths, (8, 30), eps=1e-4))
        return host(of_modes.nufft2(x, modes, eps=1e-4))

    POOL.clear()
    expected = call(0, 50, 1.0)
    POOL.clear()
    for seed, count, scale in ((1, 50, 1.05), (2, 50, 0.8), (3, 170, 1.3), (4, 50, 3.0)):
        call(seed, count, scale)
    np.testing.assert_array_equal(call(0, 50, 1.0), expected)
