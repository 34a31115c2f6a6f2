# SPDX-License-Identifier: BSD-3-Clause
"""Solvers and power spectra over ranks give what one device gives."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh import fourier
from ranks import on_threads

TILTED = [[3, 0, 0], [0.9, 2, 0], [-0.7, 0.6, 4]]
MESHES = {
    "cube": pm.Mesh((12, 10, 9), (3.0, 2.0, 4.0)),
    "tilted": pm.Mesh((9, 8, 11), TILTED, offset=0.25),
    "plane": pm.Mesh((7, 10), (1.0, 1.5)),
    "line": pm.Mesh(13, 2.0),
}
# Name: mesh, cuts, options of the solver.
SOLVERS = {
    "poisson": ("cube", {}, dict(green="poisson")),
    "ewald": ("tilted", dict(parts="slabs"), dict(green="ewald", alpha=2.0, interlaced=True)),
    "yukawa by ik": (
        "plane",
        dict(per_rank=2),
        dict(green="yukawa", kappa=2.0, gradient="ik", compensation="discrete"),
    ),
    "function": ("line", {}, dict(green=lambda k2: np.exp(-k2 / 9), slope=lambda k2: -np.exp(-k2 / 9) / 9, zero=2.0)),
}
METHODS = dict(method="colouring", interpolation="tiles", threads=1)


def cloud(mesh, dtype="f8", count=70, seed=4):
    rng = np.random.default_rng(seed)
    x = (rng.random((count, mesh.ndim)) @ mesh.box.matrix + mesh.box.origin).astype(dtype)
    return x, rng.standard_normal((2, count)).astype(dtype)


def shares(count, size, crowded=False):
    """The particles that each rank gives: the last of several has none, or the first has all."""
    if crowded:
        return [np.arange(count * (rank == 0)) for rank in range(size)]
    parts = np.array_split(np.random.default_rng(2).permutation(count), max(size - 1, 1))
    return [parts[rank] if rank < len(parts) else np.arange(0) for rank in range(size)]


def close(got, whole, some, tolerance):
    """Check what a rank got against what belongs to its particles, some of all; in units of the largest of all."""
    expected = whole[:, some] if some is not None else whole
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert abs(got - expected).max(initial=0) <= tolerance * abs(whole).max()


@pytest.mark.parametrize(("size", "dtype"), [(1, "f8"), (2, "f4"), (3, "f8"), (4, "f8")])
@pytest.mark.parametrize("name", SOLVERS)
def test_potentials_are_those_of_one_device(name, size, dtype):
    of, cuts, options = SOLVERS[name]
    mesh, tolerance = MESHES[of], 1e-12 if dtype == "f8" else 2e-5
    x, q = cloud(mesh, dtype)
    local = fourier.Solver(mesh, "bspline4", **options, **METHODS).set_positions(x)
    expected = local.potential_gradient_virial(q)
    given = shares(len(x), size, crowded=size == 3)
    domain = pmd.Domain(mesh, size, **cuts)

    def work(world):
        some = given[world.rank]
        solver = pmd.Solver(domain, world, "bspline4", **options, **METHODS).set_positions(x[some])
        results = solver.potential_gradient_virial(q[:, some])
        singles = solver.potential(q[:1, some]), solver.gradient(q[:1, some])
        if "interlaced" not in options:
            singles = *singles, solver.plan.interpolate(solver.potential_field(solver.plan.spread(q[:1, some])))
        return results, singles

    for some, (results, singles) in zip(given, on_threads(size, work), strict=True):
        for got, whole, of in zip(results, expected, (some, some, None), strict=True):
            close(got, whole, of, tolerance)
        for got, whole in zip(singles, (expected[0], expected[1], expected[0]), strict=False):
            close(got, whole[:1], some, tolerance)


@pytest.mark.parametrize(("name", "size", "dtype"), [
    ("cube", 4, "f4"), ("tilted", 3, "f8"), ("plane", 4, "f8"), ("line", 2, "f8"),
])  # fmt: skip
def test_fields_of_moments_and_virials_of_fields_are_those_of_one_device(name, size, dtype):
    mesh, tolerance = MESHES[name], 1e-12 if dtype == "f8" else 2e-5
    x, q = cloud(mesh, dtype)
    moments = np.random.default_rng(5).standard_normal(((mesh.ndim + 1) * (mesh.ndim + 2) // 2, len(x))).astype(dtype)
    local = fourier.Solver(mesh, "bspline4", green="ewald", alpha=2.0, **METHODS).set_positions(x)
    fields, of_moments = local.moment_fields(local.plan.spread(moments), virial=True)
    expected = local.plan.interpolate(fields), of_moments, local.potential_gradient_virial(q)[2]
    given, potentials = shares(len(x), size), local.potential(q)

    def work(world):
        some, per_rank = given[world.rank], 2 if name == "plane" else 1
        domain, parts = pmd.Domain(mesh, size, per_rank=per_rank), "pencils" if name == "cube" else "auto"
        solver = pmd.Solver(domain, world, "bspline4", green="ewald", alpha=2.0, parts=parts, **METHODS)
        solver.set_positions(x[some])
        spread = solver.plan.spread(moments[:, some])
        fields, virial = solver.moment_fields(spread, virial=True)
        alone = solver.plan.interpolate(solver.moment_fields(spread))
        field, of_field = solver.potential_field_virial(solver.plan.spread(q[:, some]))
        np.testing.assert_array_equal(alone, solver.plan.interpolate(fields))
        close(solver.plan.interpolate(field), potentials, some, 2 * tolerance)
        return alone, virial, of_field

    for some, results in zip(given, on_threads(size, work), strict=True):
        for got, whole, of in zip(results, expected, (some, None, None), strict=True):
            if got.ndim == 2 and of is not None:
                for one, row in zip(got[:, None], whole[:, None], strict=True):
                    close(one, row, of, tolerance)
            else:
                close(got, whole, of, tolerance)


def test_no_force_acts_on_all_particles_together():
    mesh = MESHES["cube"]
    x, q = cloud(mesh)

    def work(world):
        some = shares(len(x), 3)[world.rank]
        solver = pmd.Solver(pmd.Domain(mesh, 3), world, gradient="ik", **METHODS).set_positions(x[some])
        slopes = solver.gradient(q[0, some])
        return world.allreduce((q[0, some, None] * slopes).sum(0)), abs(slopes).max(initial=0)

    total, largest = zip(*on_threads(3, work), strict=True)
    assert abs(total[0]).max() < 1e-12 * max(largest)


@pytest.mark.parametrize(("size", "options"), [
    (1, dict(interlaced=False)), (2, dict(compensation="aliases", mu_bins=3)), (3, dict(multipoles=(0, 2))),
    (4, dict(interlaced=False, edges=[1.0, 6.0, 12.0], mu_bins=2, line_of_sight=(1, 1, 0))),
])  # fmt: skip
@pytest.mark.parametrize("name", ["cube", "tilted"])
def test_power_spectra_are_those_of_one_device(name, size, options):
    mesh = MESHES[name]
    x, q = cloud(mesh)
    w, other = 1 + q[0] ** 2, (x[::2] + 0.1, np.ones(len(x[::2])))
    for second in (None, other):
        expected = fourier.power_spectrum(x, w, mesh, other=second, **options)
        given = shares(len(x), size)

        def work(world, second=second, given=given):
            some = given[world.rank]
            mine = second if second is None else tuple(a[some[some < len(a)]] for a in second)
            return pmd.power_spectrum(x[some], w[some], pmd.Domain(mesh, size), world, other=mine, **options)

        for got in on_threads(size, work):
            for one in ("k", "power", "modes", "shot_noise", "edges", "mu"):
                a, b = getattr(got, one), getattr(expected, one)
                assert (a is None and b is None) or np.allclose(a, b, rtol=1e-11, atol=1e-13, equal_nan=True), one
            assert got.multipoles.keys() == expected.multipoles.keys()
            for order, values in expected.multipoles.items():
                np.testing.assert_allclose(got.multipoles[order], values, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("options", [
    lambda rank: dict(edges=[1.0, 6.0, 12.0 + rank]),
    lambda rank: dict(multipoles=(0, 2), line_of_sight=np.eye(2)[rank]),
])  # fmt: skip
def test_ranks_with_other_bins_are_an_error_on_all(options):
    def spectrum(world):
        pmd.power_spectrum(
            np.full((3, 2), 0.3), np.ones(3), pmd.Domain(pm.Mesh((8, 8), (1.0, 1.0)), 2), world, **options(world.rank)
        )

    assert all("power_spectrum" in str(error) for error in refused(spectrum))


def refused(calls, size=2):
    """The errors that the ranks raise for calls ``calls(world)``; each other rank names the first one that raised."""

    def work(world):
        with pytest.raises((ValueError, TypeError, pmd.RankError)) as caught:
            calls(world)
        return caught.value

    return on_threads(size, work)


WRONG = {
    "values": lambda solver, bad: solver.potential(np.ones(3) * (1j if bad else 1)),
    "shape": lambda solver, bad: solver.gradient(np.ones(3 + bad)),
    "moments": lambda solver, bad: solver.moment_fields(np.zeros((6 - bad, *solver.domain.parts(bad)[0].shape))),
    "virial": lambda solver, bad: solver.moment_fields(
        np.zeros((6, *solver.domain.parts(bad)[0].shape)), virial=2 if bad else True
    ),
    "positions": lambda solver, bad: solver.set_positions(np.full((3, 2), np.nan if bad else 0.5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_on_one_rank_is_named_on_all(name):
    def calls(world):
        solver = pmd.Solver(pmd.Domain(MESHES["plane"], 2), world, **METHODS).set_positions(np.ones((3, 2)) / 3)
        WRONG[name](solver, world.rank == 1)

    first, second = refused(calls)
    assert isinstance(first, pmd.RankError)
    assert first.rank == 1
    assert str(second) in str(first)


@pytest.mark.parametrize(("options", "words"), [
    (dict(green="ewald"), "needs alpha"), (dict(parts="rows"), "parts"), (dict(compensation="some"), "compensation"),
])  # fmt: skip
def test_wrong_options_are_refused_on_all_ranks(options, words):
    for error in refused(lambda world: pmd.Solver(pmd.Domain(MESHES["plane"], 2), world, **options)):
        assert words in str(error)


def smooth(k2):
    return np.exp(-k2 / 50) / k2


FUNCTIONS = {
    "green": lambda bad: dict(green=lambda k2: (1 + bad) * smooth(k2)),
    "slope": lambda bad: dict(green=smooth, slope=lambda k2: -(1 + bad) * smooth(k2) * (1 / 50 + 1 / k2)),
    "forms[1]": lambda bad: dict(forms=[np.ones_like, lambda k2: np.exp(-k2 / (400 + bad))]),
    "green of k": lambda bad: dict(green=lambda *k: (1 + bad) * smooth(sum(c**2 for c in k)), of="k"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [pmd.Solver, pmd.VectorSolver])
def test_other_functions_on_a_rank_are_refused_on_all(name, kind):
    """What functions give is compared, since two functions cannot be."""
    missing = "forms" if kind is pmd.Solver else "slope"
    if missing in name:
        pytest.skip(f"{kind.__name__} has no {missing}")
    made = FUNCTIONS[name]

    def calls(world):
        kind(pmd.Domain(MESHES["plane"], 2), world, **made(0.0), **METHODS)  # alike
        kind(pmd.Domain(MESHES["plane"], 2), world, **made(1e-12 * world.rank), **METHODS)  # to rounding
        kind(pmd.Domain(MESHES["plane"], 2), world, **made(1e-2 * world.rank), **METHODS)

    for error in refused(calls):
        assert isinstance(error, (ValueError, pmd.RankError))
        assert f"{name.split()[0]} is another function on some ranks" in str(error)


def test_what_has_no_meaning_over_ranks_is_refused():
    opened = pmd.Domain(pm.Mesh(8, pm.Box(1.0, periodic=False)), 1)
    with pytest.raises(ValueError, match="periodic"):
        pmd.Solver(opened)
    with pytest.raises(ValueError, match="two meshes"):
        pmd.Solver(pmd.Domain(MESHES["line"], 1), interlaced=True).potential_field(np.ones(13))
    with pytest.raises(ValueError, match="sum to 0"):
        pmd.power_spectrum(np.ones(2), np.array([1.0, -1.0]), pmd.Domain(MESHES["line"], 1))
    with pytest.warns(UserWarning, match="conserves energy"):
        pmd.Solver(pmd.Domain(MESHES["plane"], 1), gradient="window")
