# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of the energy of charges over ranks are those of one device."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, DistributedPME
from ranks import on_threads

torch = pytest.importorskip("torch")

from particlemesh.apps.pme import torch as local  # noqa: E402 - needs torch
from particlemesh.apps.pme.torch_ranks import energy  # noqa: E402
from particlemesh.autograd.torch import OverRanks, potential  # noqa: E402

BOXES = {"right": [3.0, 2.0, 4.0], "tilted": [[3, 0, 0], [0.9, 2, 0], [-0.7, 0.6, 4]]}
PAIRS = np.array([[0, 1], [3, 20], [25, 8], [20, 21], [2, 28]])
EXCLUDED = dict(exclusions=PAIRS, factors=[0, 0.5, 0, 0.25, 0])
COUNT = 30
# Box, where the particles of each rank end, options.
CASES = {
    "one rank": ("tilted", [30], EXCLUDED),
    "two ranks": ("tilted", [12, 30], dict(parts="slabs", splitting="gaussian")),
    "all on the first": ("right", [30, 30, 30], EXCLUDED),
    "one has none": ("tilted", [8, 8, 22, 30], EXCLUDED),
}


def drawn(box, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.random((COUNT, 3)) @ pm.Box(box).matrix
    return torch.from_numpy(x), torch.from_numpy(rng.standard_normal(COUNT))


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def slopes(loss, arrays, directions, times=1.0):
    """First derivatives, and second ones along directions; ``times``: the share of what all ranks have."""
    first = torch.autograd.grad(loss, arrays, create_graph=True)
    shares = (1.0, 1.0, times)
    along = sum(t * (g * d).sum() for t, g, d in zip(shares, first, directions, strict=True))
    return [a.detach() for a in (*first, *torch.autograd.grad(along, arrays))]


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_one_device(name):
    of, ends, options = CASES[name]
    given = dict(accuracy=1e-4, threads=1) | options
    x, q = drawn(BOXES[of])
    whole = [leaf(a) for a in (x, q, 1.01 * torch.tensor(BOXES[of], dtype=torch.float64))]
    rng = np.random.default_rng(4)
    directions = [torch.from_numpy(rng.standard_normal(a.shape)) for a in whole]
    alone = PME(BOXES[of], **{key: value for key, value in given.items() if key != "parts"})
    total = local.energy(alone, whole[0], whole[1], cell=whole[2])
    expected = slopes(total, whole, directions)

    def work(world):
        first = ([0, *ends])[world.rank]
        cut = slice(first, ends[world.rank]), slice(first, ends[world.rank]), slice(None)
        arrays = [leaf(a[c]) for a, c in zip(whole, cut, strict=True)]
        pme = DistributedPME(world, BOXES[of], **given)
        share = energy(pme, arrays[0], arrays[1], cell=arrays[2])
        got = slopes(share, arrays, [d[c] for d, c in zip(directions, cut, strict=True)], 1 / world.size)
        for one, of_all, c in zip(got, expected, cut * 2, strict=True):
            assert one.shape == of_all[c].shape
            assert (one - of_all[c]).abs().sum() <= 1e-8 * of_all.abs().max()
        plain = energy(pme, arrays[0].detach(), arrays[1].detach(), cell=arrays[2].detach())
        assert plain == share
        return share.item()

    assert sum(on_threads(len(ends), work)) == pytest.approx(total.item(), rel=1e-9)


def test_forces_are_those_of_a_step():
    x, q = drawn(BOXES["right"])

    def work(world):
        mine = slice(0, 11) if world.rank else slice(11, COUNT)
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-6, threads=1)
        here = leaf(x[mine])
        share = energy(pme, here, q[mine])
        result = pme(x[mine], q[mine])
        assert (torch.autograd.grad(share, here)[0] + result.forces).abs().max() < 1e-9 * result.forces.abs().max()
        return share.item(), float(result.energy)

    (one, total), (two, _) = on_threads(2, work)
    assert one + two == pytest.approx(total, rel=1e-10)


def test_differences():
    x, q = drawn(BOXES["right"])
    cell = torch.tensor(BOXES["tilted"], dtype=torch.float64)
    pme = DistributedPME(pmd.World(), BOXES["right"], accuracy=1e-4, threads=1)

    def call(x, q, cell):
        return energy(pme, x, q, cell=cell)

    arrays = leaf(x), leaf(q), leaf(cell)
    assert torch.autograd.gradcheck(call, arrays, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, arrays, fast_mode=True)


GREENS = dict(green="yukawa"), dict(green="ewald"), dict(green=lambda k2: 1 / (1 + k2), zero=1)


@pytest.mark.parametrize("green", GREENS, ids=["yukawa", "ewald", "function"])
def test_potentials_over_ranks_are_those_of_one_device(green):
    mesh = pm.Mesh((6, 5, 8), BOXES["right"])
    x, q = drawn(BOXES["right"])
    numbers = {name: 2.0 for name in ("kappa", "alpha") if green["green"] == dict(kappa="yukawa", alpha="ewald")[name]}
    whole = [leaf(a) for a in (x, q, torch.tensor(BOXES["tilted"], dtype=torch.float64))]
    named = {name: leaf(torch.tensor(number, dtype=torch.float64)) for name, number in numbers.items()}
    options = dict(green, compensation="continuous")
    phi = potential(*whole[:2], mesh, window="bspline4", cell=whole[2], **options, **named)
    expected = torch.autograd.grad((phi**3).sum(), [*whole, *named.values()])

    def work(world):
        ranks = OverRanks(pmd.Domain(mesh, world.size), world, "bspline4", threads=1)
        mine = slice(0, 11) if world.rank else slice(11, COUNT)
        arrays = [leaf(a[c]) for a, c in zip(whole, (mine, mine, slice(None)), strict=True)]
        mine_named = {name: leaf(number) for name, number in named.items()}
        got = ranks.potential(*arrays[:2], cell=arrays[2], **options, **mine_named)
        torch.testing.assert_close(got, phi[mine], rtol=1e-9, atol=1e-9)
        slopes = torch.autograd.grad((got**3).sum(), [*arrays, *mine_named.values()])
        for one, of_all, c in zip(slopes, expected, (mine, mine, ..., ...), strict=False):
            torch.testing.assert_close(one, of_all[c], rtol=1e-8, atol=1e-8 * float(of_all.abs().max()))
        total = ranks.total(got.sum() ** 2)
        assert total.item() == pytest.approx(sum(phi[m].sum().item() ** 2 for m in (slice(0, 11), slice(11, COUNT))))

    on_threads(2, work)


def test_what_is_refused():
    given, q = drawn(BOXES["right"])
    with pytest.raises(TypeError, match="pme is of type PME; give a particlemesh.apps.pme.DistributedPME"):
        energy(PME(BOXES["right"], 1e-3), given, q)

    def work(world):
        pme, x = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1), given + 0.01 * world.rank
        with pytest.raises((TypeError, pmd.RankError), match="charges have dtype"):
            energy(pme, x, q.float() if world.rank else q)
        with pytest.raises(ValueError, match="on rank 0 nothing requires grad, and on rank 1 charges:"):
            energy(pme, x, leaf(q) if world.rank else q)
        with pytest.raises(pmd.RankError, match="in "):
            energy(pme, x, q, cell=torch.tensor([3.0, 2.0, 4.0 + world.rank], dtype=torch.float64))

    on_threads(2, work)


def test_values_come_back_from_places():
    """The adjoint of bringing values to ghosts adds those of ghosts."""
    mesh = pm.Mesh((6, 6, 6), BOXES["right"])
    x, _ = drawn(BOXES["right"])

    def work(world):
        mine = [slice(0, 4), slice(4, 4), slice(4, COUNT)][world.rank]
        grid = pmd.UniformGrid(pmd.Domain(mesh, world.size), world, 0.6).build(x[mine].numpy())
        rng = np.random.default_rng(world.rank)
        values = rng.standard_normal((len(x[mine]), 2))
        there = grid.at_places(values)
        weights = rng.standard_normal(there.shape)
        back = grid.from_places(weights)
        assert back.shape == values.shape
        with pytest.raises((ValueError, pmd.RankError), match="places is needed"):
            grid.from_places(weights[1:] if world.rank == 2 else weights)
        return (there * weights).sum(), (values * back).sum()

    one, two = np.sum(on_threads(3, work), 0)
    assert one == pytest.approx(two, rel=1e-12)
