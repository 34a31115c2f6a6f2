# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of non-uniform transforms over ranks are those of one device, of any order."""

import functools

import numpy as np
import pytest

from differentiating import Jax, in_both, in_each
from particlemesh import distributed as pmd
from ranks import on_threads

COUNT, EPS = 12, 1e-11
# Ranks and modes; the first of several ranks has no points, and with two modes the last ones have no modes.
CASES = {"one": (1, (9,)), "space": (2, (4, 5, 3)), "plane": (3, (6, 7)), "few modes": (4, (3, 2)), "line": (2, (8,))}


def drawn(*shape, seed=1, complex=True):
    rng = np.random.default_rng(seed)
    reals = rng.standard_normal((2, *shape))
    return reals[0] + 1j * reals[1] if complex else reals[0]


def mine_of(world):
    first = 0 if world.size == 1 else world.rank - 1
    return np.arange(COUNT)[first :: max(world.size - 1, 1)] if first >= 0 else np.arange(0)


def over_ranks(library, *given, **options):
    return library.module("autograd.{}_nufft_ranks").NUFFTOverRanks(*given, nthreads=1, **options)


def local(library, verb):
    return getattr(library.module("autograd.{}_nufft3" if verb == "nufft3" else "autograd.{}_nufft"), verb)


def loss_of(library, transforms, *weights):
    """Cubes mix all numbers, and a batch of two has a loss with weights of its own."""
    one, two, three = transforms
    on_modes, on_points, on_frequencies = map(library.array, weights)

    def loss(x, c, f, s):
        total = (abs(one(x, c)) ** 3 * on_modes).sum() + (abs(two(x, f)) ** 3 * on_points).sum()
        return total + (abs(three(x, c, s)) ** 3 * on_frequencies).sum()

    return loss


@in_each(5)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("isign", [1, -1])
def test_derivatives_are_those_of_one_device(name, isign, library):
    (size, modes), library = CASES[name], library()
    x, s = 3 * drawn(COUNT, len(modes), complex=False), 2 * drawn(COUNT, len(modes), seed=7, complex=False)
    whole = x, drawn(2, COUNT), drawn(2, *modes, seed=2), s
    weights = [drawn(*shape, seed=3, complex=False) for shape in (modes, (COUNT,), (COUNT,))]
    directions = [drawn(*a.shape, seed=5, complex=a.dtype.kind == "c") for a in whole]
    one, two, three = (local(library, f"nufft{n}") for n in (1, 2, 3))
    alone = (
        lambda x, c: one(x, c, modes, eps=EPS, isign=isign), lambda x, f: two(x, f, eps=EPS, isign=isign),
        lambda x, c, s: three(x, c, s, eps=EPS, isign=isign),
    )  # fmt: skip
    with library.wide():
        total, expected = library.twice(library.compiled(loss_of(library, alone, *weights)), whole, directions)

    def work(world):
        with library.wide():
            ranks, some = over_ranks(library, world, modes, eps=EPS), mine_of(world)
            held = (..., *(slice(*r) for r in ranks.part))
            cut = some, (slice(None), some), held, some
            arrays, along = ([a[c] for a, c in zip(given, cut, strict=True)] for given in (whole, directions))
            given = (
                lambda x, c: ranks.nufft1(x, c, isign=isign), lambda x, f: ranks.nufft2(x, f, isign=isign),
                lambda x, c, s: ranks.nufft3(x, c, s, isign=isign),
            )  # fmt: skip
            loss = loss_of(library, given, weights[0][held], weights[1][some], weights[2][some])
            share, got = library.twice(loss, arrays, along)
            for one, of_all, c in zip(got, expected, cut * 2, strict=True):
                assert one.shape == of_all[c].shape
                assert abs(one - of_all[c]).sum() <= 1e-7 * abs(of_all).max()
            return share

    assert sum(on_threads(size, work)) == pytest.approx(total, rel=1e-8)


@in_both
def test_differences(library):
    library = library()
    with library.wide():
        ranks = over_ranks(library, pmd.World(), (4, 5), eps=1e-12)
        x, c, f, s = drawn(3, 2, complex=False), drawn(3), drawn(4, 5), drawn(2, 2, complex=False)
        for verb, arrays, isign in (("nufft1", (x, c), -1), ("nufft2", (x, f), 1), ("nufft3", (x, c, s), -1)):
            call = functools.partial(getattr(ranks, verb), isign=isign)
            library.check(call, arrays, 1 if library.name == "jax" else 2)  # JAX compiles each mode of each order


@in_both
def test_single_precision_and_real_values(library):
    library = library()
    x, c = 3 * drawn(COUNT, 2, complex=False), drawn(COUNT, complex=False)
    with library.wide():
        expected = np.asarray(local(library, "nufft1")(library.array(x), library.array(c), (6, 7), eps=EPS, isign=-1))

    def work(world):
        ranks, some = over_ranks(library, world, (6, 7), eps=1e-4), mine_of(world)
        points, strengths = (library.array(a[some].astype(np.float32)) for a in (x, c))
        modes = ranks.nufft1(points, strengths, isign=-1)
        assert str(modes.dtype).removeprefix("torch.") == "complex64"
        assert abs(np.asarray(modes) - expected[tuple(slice(*r) for r in ranks.part)]).max() < 2e-3
        (slope,) = library.slopes(lambda c: (abs(ranks.nufft1(points, c)) ** 2).sum(), [c[some].astype(np.float32)])[1]
        assert str(slope.dtype).removeprefix("torch.") == "float32"
        assert ranks.nufft1(points, library.array(np.zeros((0, len(some)), np.float32))).shape == (0, *ranks.shape)

    on_threads(2, work)


@in_both
def test_what_is_refused(library):
    library = library()
    x, c = drawn(COUNT, 1, complex=False), drawn(COUNT)
    with pytest.raises(TypeError, match="option 'modeord' is not allowed here"):
        over_ranks(library, pmd.World(), 4, modeord=1)
    with library.wide():
        ranks, strengths = over_ranks(library, pmd.World(), 4), library.array(c)
        with pytest.raises(ValueError, match=r"strengths has shape \(11,\); its last axes must be \(12,\)"):
            ranks.nufft1(library.array(x), library.array(c[1:]))
        with pytest.raises(TypeError, match="strengths have dtype complex128 and points float32"):
            ranks.nufft1(library.array(x.astype(np.float32)), strengths)
        with pytest.raises(RuntimeError, match="keep it until all derivatives"):
            library.slopes(lambda x: abs(over_ranks(library, pmd.World(), 4).nufft1(x, strengths)).sum(), [x])

    def work(world):
        with library.wide():
            ranks, given = over_ranks(library, world, 4), (x, c)

            def loss(*given):
                return abs(ranks.nufft1(*given)).sum()

            with pytest.raises(ValueError, match=library.lonely.format("points")):
                library.slopes(loss, given, [0]) if world.rank else loss(*map(library.array, given))

    on_threads(2, work)


def test_compiled_programs_refuse_transforms_over_ranks():
    library = Jax()
    with library.wide():
        ranks, x, c = over_ranks(library, pmd.World(), 4), drawn(COUNT, 1, complex=False), drawn(COUNT)
        frequencies = drawn(COUNT, 1, complex=False)
        for call in (lambda x: ranks.nufft1(x, c), lambda x: ranks.nufft3(x, c, frequencies)):
            with pytest.raises(NotImplementedError, match="Compile the parts between the calls"):
                library.jax.jit(library.jax.grad(lambda x: abs(call(x)).sum()))(x)  # noqa: B023 - called here
