# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of the energy of charges over ranks are those of one device."""

import numpy as np
import pytest

import particlemesh as pm
from differentiating import Jax, Torch, in_both, in_each
from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, DistributedPME
from ranks import on_threads

BOXES = {"right": [3.0, 2.0, 4.0], "tilted": [[3, 0, 0], [0.9, 2, 0], [-0.7, 0.6, 4]]}
PAIRS = np.array([[0, 1], [3, 20], [25, 8], [20, 21], [2, 28]])
EXCLUDED = dict(exclusions=PAIRS, factors=[0, 0.5, 0, 0.25, 0])
COUNT = 30
# Box, where the particles of each rank end, options.
CASES = {
    "one rank": ("tilted", [30], EXCLUDED),
    "four ranks": ("tilted", [8, 12, 22, 30], dict(parts="slabs", splitting="gaussian")),
    "one has none": ("right", [8, 8, 30], EXCLUDED),
    "all on the first": ("tilted", [30, 30], EXCLUDED),
}


def drawn(box, seed=1):
    rng = np.random.default_rng(seed)
    return rng.random((COUNT, 3)) @ pm.Box(box).matrix, rng.standard_normal(COUNT)


def energies(library):
    """Return the function of one device, and that of ranks."""
    return library.module("apps.pme.{}").energy, library.module("apps.pme.{}_ranks").energy


@in_each(4)
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_one_device(name, library):
    (of, ends, options), library = CASES[name], library()
    alone, over_ranks = energies(library)
    given = dict(accuracy=1e-4, threads=1) | options
    whole = *drawn(BOXES[of]), 1.01 * np.array(BOXES[of], float)
    rng = np.random.default_rng(4)
    directions = [rng.standard_normal(a.shape) for a in whole]
    one = PME(BOXES[of], **{key: value for key, value in given.items() if key != "parts"})
    one(*whole[:2])  # chooses parameters for these charges
    with library.wide():
        total, expected = library.twice(
            library.compiled(lambda x, q, cell: alone(one, x, q, cell=cell)), whole, directions
        )

    def work(world):
        mine = slice(([0, *ends])[world.rank], ends[world.rank])
        cut = mine, mine, slice(None)
        arrays, along = ([a[c] for a, c in zip(all_of, cut, strict=True)] for all_of in (whole, directions))
        pme = DistributedPME(world, BOXES[of], **given)

        def loss(x, q, cell):
            return over_ranks(pme, x, q, cell=cell)

        with library.wide():
            share, got = library.twice(loss, arrays, along, (1.0, 1.0, 1 / world.size))
            for one, of_all, c in zip(got, expected, cut * 2, strict=True):
                assert one.shape == of_all[c].shape
                assert abs(one - of_all[c]).sum() <= 1e-8 * abs(of_all).max()
            plain = loss(*map(library.array, arrays)).item()  # of JAX another compiled program
            assert plain == pytest.approx(share, rel=1e-13 if library.name == "jax" else 0, abs=0)
        return share

    assert sum(on_threads(len(ends), work)) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(("dtype", "library"), [("float64", Torch), ("float32", Torch), ("float32", Jax)])
def test_forces_are_those_of_a_step(dtype, library):
    (x, q), library = (a.astype(dtype) for a in drawn(BOXES["right"])), library()
    _, energy = energies(library)
    rounding = 1e-9 if dtype == "float64" else 3e-5

    def work(world):
        mine = slice(0, 11) if world.rank else slice(11, COUNT)
        accuracy = 1e-6 if dtype == "float64" else 1e-3
        pme = DistributedPME(world, BOXES["right"], accuracy=accuracy, threads=1, **EXCLUDED)
        with library.wide():
            share, (slope,) = library.slopes(lambda x: energy(pme, x, library.array(q[mine])), [x[mine]])
            slope, result = library.host(slope), pme(x[mine], q[mine])
            assert slope.dtype == dtype
            assert abs(slope + result.forces).max() < rounding * abs(result.forces).max()
            return share.item(), float(result.energy)

    (one, total), (two, _) = on_threads(2, work)
    assert one + two == pytest.approx(total, rel=0.1 * rounding)


@in_both
def test_differences(library):
    x, q = drawn(BOXES["right"])
    library, cell = library(), np.array(BOXES["tilted"], float)
    _, energy = energies(library)
    pme = DistributedPME(pmd.World(), BOXES["right"], accuracy=1e-4, threads=1)
    with library.wide():
        order = 1 if library.name == "jax" else 2  # JAX compiles each mode of each order
        library.check(lambda x, q, cell: energy(pme, x, q, cell=cell), (x, q, cell), order)


GREENS = dict(green="yukawa"), dict(green="ewald"), dict(green=lambda k2: 1 / (1 + k2), zero=1)


@in_each(3)
@pytest.mark.parametrize("green", GREENS, ids=["yukawa", "ewald", "function"])
def test_potentials_over_ranks_are_those_of_one_device(green, library):
    mesh, library = pm.Mesh((6, 5, 8), BOXES["right"]), library()
    functions = library.module("autograd.{}")
    names = [name for name in ("kappa", "alpha") if green["green"] == dict(kappa="yukawa", alpha="ewald")[name]]
    whole = *drawn(BOXES["right"]), np.array(BOXES["tilted"], float), *(np.array(2.0) for _ in names)
    options = dict(green, compensation="continuous")

    def alone(x, q, cell, *numbers):
        named = dict(zip(names, numbers, strict=True))
        return functions.potential(x, q, mesh, window="bspline4", cell=cell, **options, **named)

    with library.wide():
        phi = np.asarray(library.compiled(alone)(*map(library.array, whole)))
        expected = library.slopes(library.compiled(lambda *given: (alone(*given) ** 3).sum()), whole)[1]

    def work(world):
        ranks = functions.OverRanks(pmd.Domain(mesh, world.size), world, "bspline4", threads=1)
        mine = slice(0, 11) if world.rank else slice(11, COUNT)
        cut = mine, mine, ..., ...
        arrays = [a[c] for a, c in zip(whole, cut, strict=False)]

        def here(x, q, cell, *numbers):
            return ranks.potential(x, q, cell=cell, **options, **dict(zip(names, numbers, strict=True)))

        with library.wide():
            got = here(*map(library.array, arrays))
            np.testing.assert_allclose(np.asarray(got), phi[mine], rtol=1e-9, atol=1e-9)
            slopes = library.slopes(lambda *given: (here(*given) ** 3).sum(), arrays)[1]
            for one, of_all, c in zip(slopes, expected, cut, strict=False):
                one, of_all = library.host(one), library.host(of_all)
                np.testing.assert_allclose(one, of_all[c], rtol=1e-8, atol=1e-8 * abs(of_all).max())
            total = ranks.total(got.sum() ** 2).item()
        assert total == pytest.approx(sum(phi[m].sum() ** 2 for m in (slice(0, 11), slice(11, COUNT))))

    on_threads(2, work)


@in_both
def test_what_is_refused(library):
    library = library()
    _, energy = energies(library)
    given, q = drawn(BOXES["right"])
    with library.wide():
        with pytest.raises(TypeError, match="pme is of type PME; give a particlemesh.apps.pme.DistributedPME"):
            energy(PME(BOXES["right"], 1e-3), library.array(given), library.array(q))

    def work(world):
        pme, x = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1), given + 0.01 * world.rank
        with library.wide():

            def share(x, q, **cell):
                return energy(pme, x, q, **cell)

            arrays = library.array(x), library.array(q)
            with pytest.raises((TypeError, pmd.RankError), match="charges have dtype"):
                share(arrays[0], library.array(q.astype(np.float32)) if world.rank else arrays[1])
            with pytest.raises(ValueError, match=library.lonely.format("charges")):
                library.slopes(share, (x, q), [1]) if world.rank else share(*arrays)
            with pytest.raises(pmd.RankError, match="in "):
                share(*arrays, cell=library.array(np.array([3.0, 2.0, 4.0 + world.rank])))
            touching = np.concatenate([x[:1], x[:1]]) if world.rank else x[:0]
            with pytest.raises((ValueError, pmd.RankError), match="particles lie on top of each other"):
                share(library.array(touching), library.array(q[: len(touching)]))

    on_threads(2, work)


def test_compiled_programs_refuse_energies_over_ranks():
    """Every rank raises before a message, and goes on."""
    library = Jax()
    _, energy = energies(library)

    def work(world):
        jax, (x, q) = library.jax, (a.astype(np.float32)[world.rank :: 2] for a in drawn(BOXES["right"]))
        pme, q = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1), library.array(q)
        for call in (jax.jit, jax.vmap, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f)), jax.hessian):
            given = x[None] if call is jax.vmap else x
            with pytest.raises(NotImplementedError, match="Compile the parts between the calls"):
                call(lambda x: energy(pme, x, q))(given)
        return energy(pme, x, q).item()

    assert np.isfinite(on_threads(2, work)).all()


def test_values_come_back_from_places():
    """The adjoint of bringing values to ghosts adds those of ghosts."""
    mesh = pm.Mesh((6, 6, 6), BOXES["right"])
    x, _ = drawn(BOXES["right"])

    def work(world):
        mine = [slice(0, 4), slice(4, 4), slice(4, COUNT)][world.rank]
        grid = pmd.UniformGrid(pmd.Domain(mesh, world.size), world, 0.6).build(x[mine])
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
