# SPDX-License-Identifier: BSD-3-Clause
"""Electrostatics over ranks is that of one device."""

import copy
import importlib

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.brownian import BrownianDynamics, DistributedRPY
from particlemesh.apps.pme import PME, ChargeEquilibration, DistributedPME, InducedDipoles
from pme_cases import close
from ranks import on_threads

BOXES = {"right": (3.0, 2.0, 4.0), "tilted": [[3, 0, 0], [0.9, 2, 0], [-0.7, 0.6, 4]]}
PAIRS = np.array([[0, 1], [3, 60], [5, 80], [60, 61], [2, 88]])
EXCLUDED = dict(exclusions=PAIRS, factors=[0, 0.5, 0, 0.25, 0])
COUNT, OF_ALL = 90, ("energy", "virial")
# Box, dtype, where the particles of each rank end, options.
CASES = {
    "one rank": ("right", "f8", [90], EXCLUDED),
    "two ranks": ("tilted", "f8", [35, 90], dict(gradient="ik", parts="slabs")),
    "all on the first": ("right", "f8", [90, 90, 90], EXCLUDED | dict(splitting="gaussian")),
    "one has none": ("tilted", "f8", [40, 40, 70, 90], EXCLUDED | dict(shape=(9, 7, 11), window="bspline5")),
    "float32": ("right", "f4", [20, 60, 90], EXCLUDED | dict(accuracy=1e-4)),
}


def drawn(box, dtype="f8", seed=1):
    rng = np.random.default_rng(seed)
    x = rng.random((COUNT, 3)) @ pm.Box(box).matrix
    for i, j in PAIRS:
        x[j] = x[i] + 0.1 * rng.standard_normal(3)
    return x.astype(dtype), rng.standard_normal((2, COUNT)).astype(dtype)


def shares(ends):
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_one_device(name):
    of, dtype, ends, options = CASES[name]
    box, given = BOXES[of], dict(accuracy=1e-5, threads=1) | options
    x, q = drawn(box, dtype)
    q = q if name == "two ranks" else q[:1]
    local = PME(box, **{key: value for key, value in given.items() if key != "parts"})
    expected = local(x, q, fields=True)
    moved = local(x + 0.3, q[0])

    def work(world):
        mine = shares(ends)[world.rank]
        pme = DistributedPME(world, box, **given)
        first = pme(x[mine], q[:, mine], fields=True)
        again = shares([*(end // 2 for end in ends[:-1]), COUNT])[world.rank]
        columns = tuple(np.ascontiguousarray(c) for c in (x[again] + 0.3).T.astype(dtype))
        second = pme(columns, q[0, again], virial=name != "two ranks")
        for what in ("cutoff", "split", "shape", "window"):  # errors follow from sums over ranks
            assert getattr(pme.parameters, what) == getattr(local.parameters, what)
        return mine, first, again, second

    tolerance = 1e-12 if dtype == "f8" else 3e-5
    results = on_threads(len(ends), work)
    for mine, first, again, second in results:
        for field in ("energy", "virial", "energies", "forces", "potentials", "fields"):
            got, whole = getattr(first, field), getattr(expected, field)
            part = whole if field in OF_ALL else whole[:, mine]
            assert got.shape == part.shape
            assert got.dtype == part.dtype
            assert abs(got - part).max(initial=0) <= tolerance * abs(whole).max(), field
        assert (second.virial is None) == (name == "two ranks")
        assert abs(second.energy - moved.energy) <= 10 * tolerance * abs(moved.energies).max()
        assert abs(second.forces - moved.forces[again]).max(initial=0) <= 10 * tolerance * abs(moved.forces).max()
    if options.get("gradient") == "ik":
        total = sum(first.forces.sum(1) for _, first, *_ in results)
        assert abs(total).max() < 1e-10 * abs(expected.forces).max()


# Numbers beside charges, box, dtype, where the particles of each rank end, options.
ALL = "dipoles", "quadrupoles", "widths"
MULTIPOLES = {
    "dipoles": (ALL[:1], "tilted", "f8", [35, 90], dict(parts="slabs")),
    "all": (ALL, "right", "f8", [40, 40, 90], EXCLUDED),
    "dipoles of pairs": (ALL[:1], "right", "f8", [40, 40, 70, 90], EXCLUDED | dict(splitting="prolate")),
    "dipoles in float32": (ALL[:1], "tilted", "f4", [20, 60, 90], EXCLUDED | dict(accuracy=1e-4)),
    "quadrupoles": (ALL[1:2], "tilted", "f8", [90, 90, 90, 90], dict(parts="slabs")),
    "widths": (ALL[2:], "right", "f8", [10, 90], dict(splitting="prolate", parts="pencils")),
    "all in float32": (ALL, "tilted", "f4", [45, 90], EXCLUDED | dict(accuracy=1e-4, parts="bisection")),
    "all on one rank": (ALL, "tilted", "f8", [90], EXCLUDED | dict(deterministic=True)),
}


def multipoles(names, dtype="f8"):
    rng = np.random.default_rng(8)
    mu, half, widths = rng.normal(size=(COUNT, 3)), rng.normal(size=(COUNT, 3, 3)), rng.uniform(0, 0.1, COUNT)
    made = dict(zip(ALL, (0.2 * mu, 0.02 * (half + half.swapaxes(1, 2)), widths), strict=True))
    return {name: made[name].astype(dtype) for name in names}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", MULTIPOLES)
def test_a_step_with_multipoles_is_that_of_one_device(name):
    names, of, dtype, ends, options = MULTIPOLES[name]
    box, given = BOXES[of], dict(accuracy=1e-5, threads=1) | options
    x, q, more = *drawn(box, dtype), multipoles(names, dtype)
    local = PME(box, **{key: value for key, value in given.items() if key != "parts"})
    expected = local(x, q[0], **more)

    def work(world):
        mine = shares(ends)[world.rank]
        pme, arrays = DistributedPME(world, box, **given), {key: array[mine] for key, array in more.items()}
        before = pme(x[mine], q[:, mine])
        result = pme(x[mine], q[0, mine], **arrays)
        assert "typical force" in pme.explain()
        again = pme(x[mine], q[0, mine], **arrays, virial=False, check=False)
        pme.check()
        assert pme.parameters.cutoff == local.parameters.cutoff
        return mine, before, result, again

    tolerance = 1e-11 if dtype == "f8" else 1e-4
    for mine, before, result, again in on_threads(len(ends), work):
        assert before.forces.shape == (2, len(x[mine]), 3)
        assert type(result) is type(expected)
        assert again.virial is None
        np.testing.assert_array_equal(again.forces, result.forces)
        for field, whole in vars(expected).items():
            got = getattr(result, field)
            part = whole if field in OF_ALL else whole[mine]
            assert (got.shape, got.dtype) == (part.shape, part.dtype)
            scale = abs(whole).max() if field in ("virial", "energy") else np.median(abs(whole))
            assert abs(got - part).max(initial=0) <= tolerance * max(scale, abs(part).max(initial=0)), field


def test_a_free_cutoff_is_long_enough_for_the_widths_of_all_ranks():
    x, q = drawn(BOXES["right"])
    widths = np.where(np.arange(COUNT) < 50, 0.0, 0.3)
    whole = PME(BOXES["right"], 1e-4, splitting="gaussian")
    whole(x, q[0])
    short = whole.parameters.cutoff
    whole = PME(BOXES["right"], 1e-4, splitting="gaussian")
    expected = whole(x, q[0], widths=widths)
    assert whole.parameters.cutoff > short

    def work(world):
        mine = shares([50, 90])[world.rank]
        pme = DistributedPME(world, BOXES["right"], 1e-4, splitting="gaussian", threads=1)
        return pme(x[mine], q[0, mine], widths=widths[mine]).energy, pme.parameters.cutoff

    for energy, cutoff in on_threads(2, work):
        assert cutoff == whole.parameters.cutoff
        assert abs(energy - expected.energy) < 1e-11 * abs(expected.energies).sum()


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("names", [(), ALL[:1], ALL], ids=["charges", "dipoles", "all"])
def test_kernels_of_a_rank_equal_the_cpu(backend, monkeypatch, names):
    """Over ranks arrays of PyOpenCL are refused, since grids take them to the host; kernels work with them."""
    monkeypatch.setattr(DistributedPME, "_alike", lambda self, accepted: self.world.alike(accepted))
    x, q, more = *drawn(BOXES["tilted"]), multipoles(names)
    options = dict(cutoff=0.9, splitting=4.0, shape=(16, 12, 20), window="bspline6") | EXCLUDED
    expected = DistributedPME(pmd.World(), BOXES["tilted"], **options)(x, q[0], **more)
    pme, arrays = DistributedPME(pmd.World(), BOXES["tilted"], **options), map(backend.array, (x, q[0], *more.values()))
    result = pme(next(arrays), next(arrays), **dict(zip(more, arrays, strict=True)))
    close(result, expected, 1e-12, backend.host)


NOT_ALIKE = {
    "infinite dipoles": (
        lambda n: dict(dipoles=np.full((n, 3), np.inf)),
        "dipoles are not finite; the first is that of",
    ),
    "sheared": (lambda n: dict(quadrupoles=np.tile([[0, 1, 0]] * 3, (n, 1, 1)) * 1.0), "quadrupoles are not symmetric"),
    "wide": (lambda n: dict(widths=np.full(n, 9.0)), "widths are larger than"),
    "negative": (lambda n: dict(widths=np.full(n, -0.1)), "widths are negative; the first is that of particle 0"),
    "shape": (lambda n: dict(dipoles=np.ones((n, 2))), "dipoles has shape"),
    "others": (lambda n: {}, "['charges', 'quadrupoles']"),
}


@pytest.mark.parametrize("name", NOT_ALIKE)
def test_multipoles_that_are_wrong_on_one_rank_are_named_on_all(name):
    change, words = NOT_ALIKE[name]
    x, q = drawn(BOXES["right"])

    def work(world):
        mine = shares([50, 90])[world.rank]
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1, cutoff=0.9)
        bad = change(len(x[mine]))
        key = next(iter(bad), "quadrupoles")
        good = {key: multipoles([key])[key][mine]}
        given = bad if world.rank else good
        with pytest.raises((ValueError, pmd.RankError)) as caught:
            pme(x[mine], q[0, mine], **given)
        assert np.isfinite(pme(x[mine], q[0, mine], **good).energy)
        return str(caught.value)

    with np.errstate(all="ignore"):
        for message in on_threads(2, work):
            assert words in message


WRONG = {
    "nan": (lambda x, q: (x, np.full_like(q, np.nan)), "charges are not finite"),
    "shape": (lambda x, q: (x, q[1:]), "charges"),
    "place": (lambda x, q: (x * np.inf, q), "finite"),
    "sets": (lambda x, q: (x, np.stack([q, q])), ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_on_one_rank_is_named_on_all(name):
    change, words = WRONG[name]
    x, q = drawn(BOXES["right"])

    def work(world):
        mine = shares([50, 90])[world.rank]
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1)
        pme(x[mine], q[0, mine])
        given = x[mine], q[0, mine]
        with pytest.raises((ValueError, TypeError, pmd.RankError)) as caught:
            pme(*(change(*given) if world.rank == 1 else given))
        pme(*given)
        return caught.value

    first, second = on_threads(2, work)
    assert isinstance(first, pmd.RankError)
    assert words in str(first)
    assert words in str(second)


def test_particles_in_one_place_are_named_on_all_ranks():
    x, q = drawn(BOXES["right"])
    x[70] = x[10]

    def work(world):
        mine = shares([50, 90])[world.rank]
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1)
        with pytest.raises(ValueError, match="lie on top of each other") as caught:
            pme(x[mine], q[0, mine])
        pme(x[mine], q[0, mine], check=False)
        with pytest.raises(ValueError, match="lie on top of each other"):
            pme.check()
        return str(caught.value)

    first, second = on_threads(2, work)
    assert "10 is in the place" in first
    assert "20 is in the place" in second  # of this rank's particles


@pytest.mark.parametrize(("dtype", "distance"), [("f4", 1e-13), ("f8", 1e-110)])
def test_particles_whose_forces_are_not_finite_are_named_on_all_ranks(dtype, distance):
    """The energy of particles at such a distance is finite."""
    x, q = (a.astype(dtype) for a in drawn(BOXES["right"]))
    x[[10, 70]] = 0
    x[70, 0] = distance

    def work(world):
        mine = shares([50, 90])[world.rank]
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-3, threads=1)
        with np.errstate(all="ignore"):
            with pytest.raises(ValueError, match="forces or fields are not finite: charges are too large") as caught:
                pme(x[mine], q[0, mine])
            assert np.isfinite(pme(x[mine], q[0, mine], check=False).energy)
            with pytest.raises(ValueError, match="forces or fields are not finite"):
                pme.check()
        return str(caught.value)

    first, second = on_threads(2, work)
    assert "particle 10." in first
    assert "particle 20." in second  # of this rank's particles


@pytest.mark.parametrize(("options", "words"), [
    (dict(box=pm.Box((1.0,) * 3, periodic=(True, True, False))), "over ranks every axis is periodic"),
    (dict(parts="rows"), "parts"), (dict(accuracy=2.0), "below 1"),
])  # fmt: skip
def test_what_has_no_meaning_over_ranks_is_refused(options, words):
    def work(world):
        with pytest.raises(ValueError, match=words):
            DistributedPME(world, **dict(box=(1.0,) * 3) | options)

    on_threads(2, work)


def test_other_pairs_on_a_rank_and_pairs_of_nobody_are_refused():
    def work(world):
        with pytest.raises(pmd.RankError, match="exclusions"):
            DistributedPME(world, (1.0,) * 3, exclusions=[[0, 1 + world.rank]])
        pme = DistributedPME(world, (1.0,) * 3, accuracy=1e-2, exclusions=[[0, 5]], threads=1)
        with pytest.raises(ValueError, match=r"is \[0, 5\], and there are 4 particles"):
            pme(np.random.default_rng(world.rank).random((2, 3)), np.ones(2))

    on_threads(2, work)


def test_nothing_is_reserved_or_copied_or_checked_before_a_step():
    pme = DistributedPME(pmd.World(), (1.0,) * 3)
    with pytest.raises(TypeError, match="call it"):
        pme.reserve(10)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(pme)
    with pytest.raises(RuntimeError, match="no step"):
        pme.check()


def test_a_rank_without_memory_stops_all_and_keeps_nothing_of_the_step():
    x, q = drawn(BOXES["right"])

    def work(world):
        pme = DistributedPME(world, BOXES["right"], accuracy=1e-2, threads=1)
        here = shares([45, 90])[world.rank]
        before = pme(x[here], q[:, here])
        core = pme._core
        take = core.take

        def scarce(name, *given):
            if world.rank == 0 and name == "sums":
                raise MemoryError("no room")
            return take(name, *given)

        core.take = scarce
        with pytest.raises(MemoryError if world.rank == 0 else pmd.RankError, match="no room"):
            pme(x[here], q[:, here])
        core.take = take
        bad = x[here] * (np.nan if world.rank else 1.0)
        with pytest.raises((ValueError, pmd.RankError), match="finite"):
            pme(bad, q[:, here])
        assert core._meanwhile is None
        assert np.array_equal(pme(x[here], q[:, here]).forces, before.forces)

    on_threads(2, work)


@pytest.mark.parametrize("library", [None, "torch", "jax"])
def test_what_knows_one_rank_refuses_a_pme_over_ranks(library):
    """Each rank would take its particles for all."""
    pme = DistributedPME(pmd.World(), (2.0, 2.0, 2.0), accuracy=1e-3)
    if library is None:
        for kind in (InducedDipoles, ChargeEquilibration):
            with pytest.raises(TypeError, match="pme is of type DistributedPME; give a particlemesh.apps.pme.PME"):
                kind(pme)
        mobility = DistributedRPY(pmd.World(), (8.0, 8.0, 8.0), accuracy=1e-2)
        with pytest.raises(TypeError, match="the same noise: call DistributedBrownianDynamics"):
            BrownianDynamics(np.zeros((1, 3)), mobility, time_step=0.1)
        return
    module = pytest.importorskip(library)
    energy = importlib.import_module(f"particlemesh.apps.pme.{library}").energy
    array = module.tensor if library == "torch" else module.numpy.asarray
    with pytest.raises(TypeError, match="each rank would take its particles for all: call energy of"):
        energy(pme, array(np.zeros((1, 3))), array(np.zeros(1)))
