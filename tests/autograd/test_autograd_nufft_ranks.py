# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of non-uniform transforms over ranks are those of one device, of any order."""

import numpy as np
import pytest

from particlemesh import distributed as pmd
from ranks import on_threads

torch = pytest.importorskip("torch")

from particlemesh.autograd.torch_nufft import nufft1, nufft2  # noqa: E402 - needs torch
from particlemesh.autograd.torch_nufft3 import nufft3  # noqa: E402
from particlemesh.autograd.torch_nufft_ranks import NUFFTOverRanks  # noqa: E402

COUNT, EPS = 13, 1e-11
# Ranks and modes; the first of several ranks has no points, and with two modes the last ones have no modes.
CASES = {"one": (1, (9,)), "line": (2, (8,)), "plane": (3, (6, 7)), "few modes": (4, (3, 2)), "space": (2, (4, 5, 3))}


def drawn(*shape, seed=1, complex=True):
    rng = np.random.default_rng(seed)
    reals = rng.standard_normal((2, *shape))
    return torch.from_numpy(reals[0] + 1j * reals[1] if complex else reals[0])


def mine_of(world):
    first = 0 if world.size == 1 else world.rank - 1
    return np.arange(COUNT)[first :: max(world.size - 1, 1)] if first >= 0 else np.arange(0)


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def slopes(loss, arrays, directions):
    """First derivatives, and second ones along directions."""
    first = torch.autograd.grad(loss, arrays, create_graph=True)
    along = sum((g * d.conj()).real.sum() for g, d in zip(first, directions, strict=True))
    return [a.detach() for a in (*first, *torch.autograd.grad(along, arrays))]


def losses(transforms, x, c, f, s, on_modes, on_points, on_frequencies):
    """Cubes mix all numbers, and a batch of two has a loss with weights of its own."""
    one, two, three = transforms
    total = (one(x, c).abs() ** 3 * on_modes).sum() + (two(x, f).abs() ** 3 * on_points).sum()
    return total + (three(x, c, s).abs() ** 3 * on_frequencies).sum()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("isign", [1, -1])
def test_derivatives_are_those_of_one_device(name, isign):
    size, modes = CASES[name]
    x, s = 3 * drawn(COUNT, len(modes), complex=False), 2 * drawn(COUNT, len(modes), seed=7, complex=False)
    whole = [leaf(a) for a in (x, drawn(2, COUNT), drawn(2, *modes, seed=2), s)]
    weights = [drawn(*shape, seed=3, complex=False) for shape in (modes, (COUNT,), (COUNT,))]
    directions = [drawn(*a.shape, seed=5, complex=a.is_complex()) for a in whole]
    local = (
        lambda x, c: nufft1(x, c, modes, eps=EPS, isign=isign), lambda x, f: nufft2(x, f, eps=EPS, isign=isign),
        lambda x, c, s: nufft3(x, c, s, eps=EPS, isign=isign),
    )  # fmt: skip
    loss = losses(local, *whole, *weights)
    expected = slopes(loss, whole, directions)

    def work(world):
        ranks, some = NUFFTOverRanks(world, modes, eps=EPS, nthreads=1), mine_of(world)
        held = (..., *(slice(*r) for r in ranks.part))
        cut = some, (slice(None), some), held, some
        arrays = [leaf(a[c]) for a, c in zip(whole, cut, strict=True)]
        given = (
            lambda x, c: ranks.nufft1(x, c, isign=isign), lambda x, f: ranks.nufft2(x, f, isign=isign),
            lambda x, c, s: ranks.nufft3(x, c, s, isign=isign),
        )  # fmt: skip
        share = losses(given, *arrays, weights[0][held], weights[1][some], weights[2][some])
        got = slopes(share, arrays, [d[c] for d, c in zip(directions, cut, strict=True)])
        for one, of_all, c in zip(got, expected, cut * 2, strict=True):
            assert one.shape == of_all[c].shape
            assert (one - of_all[c]).abs().sum() <= 1e-7 * of_all.abs().max()
        return share.item()

    assert sum(on_threads(size, work)) == pytest.approx(loss.item(), rel=1e-8)


def test_differences():
    ranks = NUFFTOverRanks(pmd.World(), (4, 5), eps=1e-12, nthreads=1)
    x, c, f, s = leaf(drawn(3, 2, complex=False)), leaf(drawn(3)), leaf(drawn(4, 5)), leaf(drawn(2, 2, complex=False))
    for call, arrays in ((ranks.nufft1, (x, c)), (ranks.nufft2, (x, f)), (ranks.nufft3, (x, c, s))):
        assert torch.autograd.gradcheck(call, arrays, fast_mode=True)
        assert torch.autograd.gradgradcheck(call, arrays, fast_mode=True)


def test_single_precision_and_real_values():
    x, c = 3 * drawn(COUNT, 2, complex=False), drawn(COUNT, complex=False)
    expected = nufft1(x, c, (6, 7), eps=EPS)

    def work(world):
        ranks, some = NUFFTOverRanks(world, (6, 7), eps=1e-4, nthreads=1), mine_of(world)
        strengths = leaf(c[some].float())
        modes = ranks.nufft1(x[some].float(), strengths)
        assert modes.dtype == torch.complex64
        assert (modes - expected[tuple(slice(*r) for r in ranks.part)]).abs().max() < 2e-3
        (slope,) = torch.autograd.grad(modes.abs().square().sum(), strengths)
        assert slope.dtype == torch.float32
        assert ranks.nufft1(x[some].float(), strengths.new_zeros((0, len(some)))).shape == (0, *ranks.shape)

    on_threads(2, work)


def test_what_is_refused():
    x, c = drawn(COUNT, 1, complex=False), drawn(COUNT)
    with pytest.raises(TypeError, match="option 'modeord' is not allowed here"):
        NUFFTOverRanks(pmd.World(), 4, modeord=1)
    ranks = NUFFTOverRanks(pmd.World(), 4)
    with pytest.raises(ValueError, match=r"strengths has shape \(12,\); its last axes must be \(13,\)"):
        ranks.nufft1(x, c[1:])
    with pytest.raises(TypeError, match="strengths have dtype complex128 and points float32"):
        ranks.nufft1(x.float(), c)
    result = NUFFTOverRanks(pmd.World(), 4).nufft1(leaf(x), c)
    with pytest.raises(RuntimeError, match="keep it until all derivatives"):
        result.abs().sum().backward()

    def work(world):
        ranks = NUFFTOverRanks(world, 4)
        with pytest.raises(ValueError, match="on rank 0 nothing requires grad, and on rank 1 points:"):
            ranks.nufft1(leaf(x) if world.rank else x, c)

    on_threads(2, work)
