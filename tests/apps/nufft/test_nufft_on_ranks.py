# SPDX-License-Identifier: BSD-3-Clause
"""Transforms over ranks are as accurate as those of one device, and adjoint to each other."""

import copy

import numpy as np
import pytest

from particlemesh import distributed as pmd
from particlemesh.apps import nufft
from ranks import on_threads

# Modes, ranks, cuts of the fine mesh and options.
CASES = {
    "line": ((19,), 3, "slabs", dict(eps=1e-7)),
    "plane": ((20, 13), 4, "balanced", dict(eps=1e-10, isign=-1)),
    "space": ((6, 7, 8), 2, "blocks", dict(eps=1e-6, modeord=1)),
    "more ranks than modes": ((2, 3), 4, "slabs", dict(eps=1e-5, upsampfac=2.0)),
    "pencils": ((3, 2, 9), 4, "pencils", dict(eps=1e-8)),
    "float32": ((9, 12), 3, "slabs", dict(eps=1e-4, dtype="complex64")),
    "real": ((8, 9), 2, "slabs", dict(eps=1e-9, real=True)),
}
COUNT = 150


def drawn(modes, options, seed=1):
    """Points, values there of two vectors, and modes."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(options.get("dtype", "complex128"))
    x = rng.uniform(-4, 4, (len(modes), COUNT)).astype(kind.type(0).real.dtype)
    values, f = (rng.standard_normal((2, *s)) + 1j * rng.standard_normal((2, *s)) for s in ((COUNT,), modes))
    return (
        x,
        (values.real if options.get("real") else values).astype(x.dtype if options.get("real") else kind),
        f.astype(kind),
    )


def exact(x, modes, options, sign):
    """The matrix (modes, points) of the transform."""
    numbers = [np.arange(n) - n // 2 for n in modes]
    if options.get("modeord"):
        numbers = [np.fft.ifftshift(k) for k in numbers]
    k = np.stack(np.meshgrid(*numbers, indexing="ij"), -1).reshape(-1, len(modes))
    return np.exp(1j * sign * (k @ x.astype(float)))


def shares(size, crowded):
    """The points that each rank gives: the last of several ranks has none, or the first has all."""
    parts = (
        [np.arange(COUNT)] if crowded else np.array_split(np.random.default_rng(5).permutation(COUNT), max(size - 1, 1))
    )
    return [parts[rank] if rank < len(parts) else np.arange(0) for rank in range(size)]


@pytest.mark.parametrize("name", CASES)
def test_transforms_are_accurate_and_adjoint(name):
    modes, size, parts, options = CASES[name]
    x, values, f = drawn(modes, options)
    sign = options.get("isign", 1)
    matrix, given = exact(x, modes, options, sign), shares(size, name == "plane")
    threads = dict(options, parts=parts, nthreads=1)

    def work(world):
        some = given[world.rank]
        first = nufft.DistributedPlan(world, 1, modes, 2, **threads)
        first.setpts(*x[:, some])
        mine = (..., *(slice(*r) for r in first.part))
        second = nufft.DistributedPlan(world, 2, modes, 2, **dict(threads, isign=-sign))
        second.setpts(*x[:, some])
        held = np.ascontiguousarray(f[mine])
        given_values = np.ascontiguousarray(values[:, some])
        to_modes, to_points, adjoint = first.execute(given_values), second.execute(held), first.execute_adjoint(held)
        slopes = second.execute_gradient(held)
        return first.gather(to_modes), to_modes - first.gather(to_modes)[mine], to_points, adjoint, slopes

    spectrum = (values @ matrix.T).reshape(2, *modes)
    at_points = f.reshape(2, -1) @ matrix.conj()
    numbers = exact(x, modes, options, -sign)
    at_points = at_points.real if options.get("real") else at_points
    assert abs(numbers - matrix.conj()).max() < 1e-12
    scale = 2 * options["eps"]
    for some, (whole, difference, to_points, adjoint, slopes) in zip(given, on_threads(size, work), strict=True):
        assert whole.dtype == f.dtype
        assert np.linalg.norm(whole - spectrum) < scale * np.linalg.norm(spectrum)
        assert abs(difference).max(initial=0) == 0
        assert to_points.dtype == values.dtype
        assert np.linalg.norm(to_points - at_points[:, some]) <= scale * np.linalg.norm(at_points)
        rounding = 1e-5 if f.dtype == np.complex64 else 1e-12
        for same in (adjoint, slopes[0]):
            assert abs(same - to_points).max(initial=0) <= rounding * abs(at_points).max()
        assert slopes[1].shape == (2, len(some), len(modes))


def test_slopes_are_derivatives():
    f = np.zeros((5, 7), complex)
    f[2 + 1, 3 - 2] = 1
    x, y = np.random.default_rng(1).uniform(0, 6, (2, 20))

    def work(world):
        plan = nufft.DistributedPlan(world, 2, (5, 7), eps=1e-9, isign=1, nthreads=1)
        plan.setpts(x, y)
        return plan.execute_gradient(f[tuple(slice(*r) for r in plan.part)].copy())

    for values, slopes in on_threads(2, work):
        wave = np.exp(1j * (x - 2 * y))
        assert abs(values - wave).max() < 1e-8
        assert abs(slopes - wave[:, None] * np.array([1j, -2j])).max() < 1e-7


# Axes, ranks and options of type 3; of several ranks the first has no points and the last no frequencies.
TYPE_3 = {
    "line": (1, 3, dict(eps=1e-7)),
    "plane": (2, 4, dict(eps=1e-10, parts="balanced")),
    "space": (3, 2, dict(eps=1e-6, parts="blocks", isign=-1)),
    "one": (2, 1, dict(eps=1e-6)),
    "float32": (2, 3, dict(eps=1e-4, dtype="complex64")),
    "real around zero": (2, 2, dict(eps=1e-8, real=True)),
    "pencils": (3, 4, dict(eps=1e-5, parts="pencils")),
}


@pytest.mark.parametrize("name", TYPE_3)
def test_any_points_to_any_frequencies(name):
    axes, size, options = TYPE_3[name]
    x, values, _ = drawn((1,) * axes, options)
    rng = np.random.default_rng(4)
    s = (rng.uniform(-9, 9, (axes, 60)) + 7 * (name != "real around zero")).astype(x.dtype)
    f = (rng.standard_normal((2, 60)) + 1j * rng.standard_normal((2, 60))).astype(options.get("dtype", "complex128"))
    kept = {key: value for key, value in options.items() if key != "parts"}
    local = nufft.Plan(3, axes, 2, nthreads=1, **kept)
    local.setpts(*x, **dict(zip("stu", s, strict=False)))
    sums, adjoint, gradient = local.execute(values), local.execute_adjoint(f), local.execute_gradient(f)[1]

    def work(world):
        first, last = (world.rank == r and size > 1 for r in (0, size - 1))
        some = np.arange(0) if first else np.arange(COUNT)[world.rank - (size > 1) :: max(size - 1, 1)]
        asked = np.arange(0) if last else np.arange(60)[world.rank :: max(size - 1, 1)]
        plan = nufft.DistributedPlan(world, 3, axes, 2, nthreads=1, **options)
        for turn in (0.3, 0.0):  # meshes stay or are made anew
            plan.setpts(*(x[:, some] + x.dtype.type(turn)), **dict(zip("stu", s[:, asked], strict=False)))
        with pytest.raises(RuntimeError, match="type 3 has no modes"):
            plan.gather(f)
        held = np.ascontiguousarray(f[:, asked])
        results = plan.execute(values[:, some].copy()), plan.execute_adjoint(held), plan.execute_gradient(held)[1]
        return some, asked, results

    matrix = np.exp(1j * options.get("isign", 1) * (s.astype(float).T @ x.astype(float)))
    exact = values @ matrix.T
    rounding = 1e-5 if f.dtype == np.complex64 else max(1e-11, 1e-4 * options["eps"])  # windows are approximate
    for some, asked, (to_all, to_points, slopes) in on_threads(size, work):
        assert to_all.dtype == f.dtype
        assert np.linalg.norm(to_all - exact[:, asked]) <= 2 * options["eps"] * np.linalg.norm(exact)
        for got, expected in ((to_all, sums[:, asked]), (to_points, adjoint[:, some]), (slopes, gradient[:, some])):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            assert abs(got - expected).max(initial=0) <= rounding * np.linalg.norm(expected)


def test_an_error_of_a_frequency_is_named_on_all():
    def work(world):
        plan = nufft.DistributedPlan(world, 3, 1, nthreads=1)
        with pytest.raises((RuntimeError, ValueError), match=r"s\[2\] is nan"):
            plan.setpts(np.ones(3), s=np.array([0.0, 1.0, np.nan if world.rank else 2.0]))
        with pytest.raises(RuntimeError, match="no points yet"):
            plan.execute(np.ones(3, complex))
        plan.setpts(np.ones(0), s=np.ones(world.rank))  # nothing at all
        return plan.execute(np.ones(0, complex))

    assert [got.tolist() for got in on_threads(2, work)] == [[], [0]]


WRONG = {
    "points": lambda plan, bad: plan.setpts(np.full(3, np.nan if bad else 0.5)),
    "axes": lambda plan, bad: plan.setpts(np.zeros((3, 1 + bad)).squeeze()),
    "mask": lambda plan, bad: plan.setpts(np.ma.masked_greater(np.ones(3), 0) if bad else np.ones(3)),
    "values": lambda plan, bad: plan.execute(np.ones(3 + bad, complex)),
    "dtype": lambda plan, bad: plan.execute(np.ones(3, "c8" if bad else "c16")),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_on_one_rank_is_named_on_all(name):
    def work(world):
        plan = nufft.DistributedPlan(world, 1, 8, nthreads=1)
        plan.setpts(np.ones(3))
        with pytest.raises((RuntimeError, TypeError, ValueError)) as caught:
            WRONG[name](plan, world.rank == 1)
        return caught.value

    first, second = on_threads(2, work)
    assert isinstance(first, pmd.RankError)
    assert first.rank == 1
    assert str(second) in str(first)


@pytest.mark.parametrize(("kind", "options", "words"), [
    (1, dict(spreadinterponly=True), "distributed.Plan"),
    (1, dict(parts="rows"), "parts"), (4, {}, "transform type invalid"),
])  # fmt: skip
def test_what_has_no_meaning_over_ranks_is_refused(kind, options, words):
    def work(world):
        with pytest.raises((ValueError, RuntimeError), match=words):
            nufft.DistributedPlan(world, kind, 3 if kind == 3 else (8, 8), **options)

    on_threads(2, work)


def test_ranks_with_other_arguments_are_told():
    def work(world):
        with pytest.raises(pmd.RankError, match="rank 1 raised no error, but it calls DistributedPlan"):
            nufft.DistributedPlan(world, 1, 8, eps=1e-6 * (1 + world.rank))

    on_threads(2, work)


def test_a_plan_without_points_says_so_and_is_not_copied():
    plan = nufft.DistributedPlan(pmd.World(), 1, 8)
    for call in (
        lambda: plan.part,
        lambda: plan.execute(np.ones(1, complex)),
        lambda: plan.gather(np.ones(8, complex)),
    ):
        with pytest.raises(RuntimeError, match="call setpts first"):
            call()
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(plan)
