# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives over ranks are those of one device: the adjoint of an exchange is the reverse exchange."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from ranks import on_threads

torch = pytest.importorskip("torch")

from particlemesh.autograd import torch as local  # noqa: E402 - needs torch
from particlemesh.autograd.torch import OverRanks  # noqa: E402

MESH = pm.Mesh((6, 5, 7), (1.0, 1.2, 0.9))
EVEN = pm.Mesh((6, 8), (1.0, 1.2))
COUNT = 12
# Ranks, mesh, cuts and options; the first of several ranks has no particles.
CASES = {
    "one": (1, MESH, "blocks", {}),
    "slabs": (2, EVEN, "slabs", {}),
    "blocks": (3, MESH, "blocks", dict(ghosts="particles")),
    "empty parts": (4, pm.Mesh((3, 8), (1.0, 1.0)), "slabs", {}),
}


def drawn(mesh, *shape, seed=1):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal(shape)) if shape else torch.from_numpy(
        rng.random((COUNT, mesh.ndim)) * mesh.box.lengths
    )  # fmt: skip


def mine_of(world):
    first = 0 if world.size == 1 else world.rank - 1
    return np.arange(COUNT)[first :: max(world.size - 1, 1)] if first >= 0 else np.arange(0)


def nodes_of(part):
    return (..., *(slice(a, a + n) for a, n in zip(part.lower, part.shape, strict=True)))


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def close(got, expected):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def loss_of(spread, interpolate, gradient, transform, x, values, field, weights):
    """Losses with and without slopes; ``weights`` are those of this rank's nodes and particles."""
    here, on_nodes, at_particles = weights
    spreads = spread(x, values)
    energy = (transform(spreads) * on_nodes).sum()
    loss = energy + (interpolate(field, x) ** 2 * at_particles).sum() + (here * spreads**2).sum()
    return loss + (gradient(field, x) ** 3).sum(), loss


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_one_device(name):
    size, mesh, cuts, options = CASES[name]
    x, values, field = drawn(mesh), drawn(mesh, 2, COUNT), drawn(mesh, *mesh.shape)
    on_nodes, here, at = drawn(mesh, *mesh.shape, seed=2), drawn(mesh, *mesh.shape, seed=3), drawn(mesh, COUNT, seed=4)
    k2 = [2 * np.pi * np.fft.fftfreq(n, 1 / n) for n in mesh.shape[:-1]] + [np.arange(mesh.shape[-1] // 2 + 1) * 2.0]
    factors = torch.from_numpy(np.exp(-0.05 * sum(k**2 for k in np.meshgrid(*k2, indexing="ij"))))
    axes = tuple(range(-mesh.ndim, 0))

    def smooth(spreads):
        modes = torch.fft.rfftn(spreads, dim=axes)
        return torch.fft.irfftn(modes**2 * factors, s=mesh.shape, dim=axes)

    def results(losses, arrays, directions):
        """First derivatives, and second ones along directions."""
        first = torch.autograd.grad(losses[0], arrays, retain_graph=True)
        again = torch.autograd.grad(losses[1], arrays, create_graph=True)
        along = sum((g * d).sum() for g, d in zip(again, directions, strict=True))
        return [*first, *torch.autograd.grad(along, arrays)]

    whole = [leaf(a) for a in (x, values, field)]
    directions = [drawn(mesh, *a.shape, seed=5) for a in whole]
    kind = dict(window="bspline5")
    expected = results(
        loss_of(
            lambda *a: local.spread(*a, mesh, **kind), lambda *a: local.interpolate(*a, mesh, **kind),
            lambda *a: local.gradient(*a, mesh, **kind), smooth, *whole, (here, on_nodes, at),
        ), whole, directions,
    )  # fmt: skip

    def work(world):
        ranks = OverRanks(pmd.Domain(mesh, world.size, cuts), world, threads=1, **kind, **options)
        some, nodes = mine_of(world), nodes_of(ranks.part)
        held = factors[tuple(slice(*r) for r in ranks.modes)]

        def smooth(spreads):
            return ranks.inverse(ranks.forward(spreads) ** 2 * held)

        cut = (some, (slice(None), some), nodes)
        arrays = [leaf(a[c]) for a, c in zip(whole, cut, strict=True)]
        loss = loss_of(
            ranks.spread, ranks.interpolate, ranks.gradient, smooth, *arrays, (here[nodes], on_nodes[nodes], at[some])
        )
        got = results(loss, arrays, [d[c] for d, c in zip(directions, cut, strict=True)])
        for one, of_all, c in zip(got, expected, cut * 2, strict=True):
            close(one, of_all[c])

    on_threads(size, work)


def test_gradcheck():
    world = pmd.World()
    ranks = OverRanks(pmd.Domain(EVEN, 1), world, "bspline4", threads=1)
    x, values = leaf(drawn(EVEN)[:3]), leaf(drawn(EVEN, 3))
    field, vectors = leaf(drawn(EVEN, *EVEN.shape)), leaf(drawn(EVEN, 3, 2))
    modes = leaf(ranks.forward(field))
    quick = dict(fast_mode=True)
    for call, arrays in (
        (ranks.spread, (x, values)), (ranks.interpolate, (field, x)), (ranks.gradient, (field, x)),
        (ranks.spread_gradient, (x, vectors)), (ranks.forward, (field,)), (ranks.inverse, (modes,)),
    ):  # fmt: skip
        assert torch.autograd.gradcheck(call, arrays, **quick)
    assert torch.autograd.gradgradcheck(ranks.spread, (x, values), **quick)


def test_what_is_refused():
    world = pmd.World()
    with pytest.raises(ValueError, match="2 parts for each rank"):
        OverRanks(pmd.Domain(EVEN, 1, per_rank=2), world)
    ranks = OverRanks(pmd.Domain(EVEN, 1), world, "bspline6", threads=1)
    x = leaf(drawn(EVEN))
    slopes = ranks.gradient(drawn(EVEN, *EVEN.shape), x)
    (one,) = torch.autograd.grad(slopes.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        torch.autograd.grad(one.sum(), x)

    field = OverRanks(pmd.Domain(EVEN, 1), world, "cic", threads=1).spread(x, drawn(EVEN, COUNT))
    with pytest.raises(RuntimeError, match="keep it until all derivatives"):
        field.sum().backward()

    def work(world):
        ranks = OverRanks(pmd.Domain(EVEN, 2), world, "cic", threads=1)
        bad = torch.full((1, 2), float("nan") if world.rank else 0.5, dtype=torch.float64)
        with pytest.raises(ValueError if world.rank else pmd.RankError, match="position"):
            ranks.spread(bad, torch.ones(1, dtype=torch.float64))

    on_threads(2, work)


def test_sums_over_ranks_and_shared_tensors():
    """A square of a sum over ranks, of numbers times a factor that all have: 2 s a on each rank, and 2 s^2 / factor."""

    def work(world):
        ranks = OverRanks(pmd.Domain(EVEN, world.size), world, "cic", threads=1)
        numbers, factor = leaf(torch.arange(3.0) + world.rank), leaf(torch.tensor(2.0))
        total = ranks.total(numbers.sum() * ranks.shared(factor))
        by_numbers, by_factor = torch.autograd.grad(total**2 / world.size, (numbers, factor), create_graph=True)
        (again,) = torch.autograd.grad(by_factor**2 / world.size, factor)
        return total.item(), by_numbers.tolist(), by_factor.item(), again.item()

    # The sum of all losses is (18 f)^2. Its slope by f is 2 (18^2) f, whose square has the slope 8 (18^4) f.
    assert on_threads(3, work) == [(36.0, [144.0] * 3, 1296.0, 8.0 * 18**4 * 2)] * 3


LONELY = {
    "spread": (lambda ranks, x, v: ranks.spread(x, v), (1, 0), "positions"),
    "values": (lambda ranks, x, v: ranks.spread(x, v), (0, 1), "values"),
    "both": (lambda ranks, x, v: ranks.spread(x, v), (1, 1), "positions and values"),
    "interpolate": (lambda ranks, x, v: ranks.interpolate(torch.zeros(ranks.part.shape), x), (1, 0), "positions"),
    "forward": (lambda ranks, x, v: ranks.forward(torch.zeros(ranks.part.shape) + v.sum()), (0, 1), "field"),
}


@pytest.mark.parametrize("name", LONELY)
def test_ranks_whose_inputs_need_other_derivatives_raise(name):
    call, needs, words = LONELY[name]

    def work(world):
        ranks = OverRanks(pmd.Domain(pm.Mesh((4, 4), (1.0, 1.0)), world.size), world, "tsc")
        inputs = torch.full((2, 2), 0.5), torch.ones(2)
        alike = [leaf(one) if need else one for one, need in zip(inputs, needs, strict=True)]
        given = alike if world.rank else inputs
        with pytest.raises(ValueError, match=f"on rank 0 nothing requires grad, and on rank 1 {words}:"):
            call(ranks, *given)
        with torch.no_grad():
            call(ranks, *given)
        result = call(ranks, *alike)
        (result.abs() ** 2).sum().backward()
        return [one.grad is not None for one in alike]

    assert on_threads(2, work) == [[bool(need) for need in needs]] * 2
