# SPDX-License-Identifier: BSD-3-Clause
"""How positions are given: none at all, a list, a tuple of axes. What a tuple means never depends on its length."""

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from particlemesh import backends

RNG = np.random.default_rng(7)
BOX = (1.0, 2.0, 3.0)
NOTHING = [(), [], np.zeros((0, 3)), ([], [], []), ((), (), ()), (np.zeros(0),) * 3]


def mesh(ndim):
    return pm.Mesh((6, 5, 7)[:ndim], BOX[:ndim])


def grid(ndim, **options):
    return pm.UniformGrid(BOX[:ndim], shape=(4, 3, 5)[:ndim], **options)


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
def test_an_empty_sequence_is_no_particles(nothing):
    field = pm.spread(nothing, [], mesh(3))
    assert field.shape == mesh(3).shape and not field.any()
    with pm.Plan(mesh(3), "cic") as plan:
        plan.set_positions(RNG.random((9, 3)))
        plan.set_positions(nothing)
        assert plan.count == 0 and plan.interpolate(np.ones(mesh(3).shape)).shape == (0,)
        plan.set_positions(nothing, check=False)
        assert plan.status.count == 0
    for options in ({}, {"dtype": "float32"}, {"dtype": "float64", "levels": 2}):
        if options.get("dtype") == "float32" and isinstance(nothing, np.ndarray):
            continue  # an array has a type of its own, and more precision is refused
        built = grid(3, **options).build(nothing)
        assert built.size == 0 and built.pairs(0.1).j.size == 0 and built.count(0.1).size == 0
        assert built.build(nothing, ()).size == 0
    full = grid(3).build(RNG.random((9, 3)))
    assert full.neighbours(nothing, 0.1).start.tolist() == [0]
    assert full.nearest(2, 0.1, nothing)[0].shape == (0, 2)
    i, j = pm.neighbour_list("ij", nothing, BOX, 0.1)
    assert i.size == j.size == 0
    assert pm.neighbour_list("j", nothing, BOX, 0.1, periodic=False).size == 0


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_tuple_is_one_sequence_for_each_axis(ndim, count):
    x = RNG.random((count, ndim)) * BOX[:ndim]
    q, expected = RNG.normal(size=count), grid(ndim).build(x)
    field, rows = pm.spread(x, q, mesh(ndim)), expected.pairs(0.6, half=False, quantities="jd")
    pairs = pm.neighbour_list("ijd", x, BOX[:ndim], 0.6)
    arrays = tuple(x.T)
    forms = {
        "arrays": arrays, "lists": tuple(a.tolist() for a in arrays), "tuples": tuple(tuple(a) for a in arrays),
        "arrays and lists": (arrays[0].tolist(), *arrays[1:]),
    }  # fmt: skip
    for name, given in forms.items():
        np.testing.assert_array_equal(pm.spread(given, q, mesh(ndim)), field, err_msg=name)
        with pm.Plan(mesh(ndim), "bspline4") as plan:
            plan.set_positions(given)
            np.testing.assert_array_equal(plan.spread(q), field, err_msg=name)
        built = grid(ndim).build(given)
        result = built.pairs(0.6, half=False, quantities="jd")
        for got, want in zip(
            (result.start, result.j, result.distance), (rows.start, rows.j, rows.distance), strict=True
        ):
            np.testing.assert_array_equal(got, want, err_msg=name)
        near, far = expected.neighbours(given, 0.6), expected.neighbours(x, 0.6)
        np.testing.assert_array_equal(near.j, far.j, err_msg=name)
        for got, want in zip(pm.neighbour_list("ijd", given, BOX[:ndim], 0.6), pairs, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_list_is_the_array_that_numpy_makes_of_it(ndim):
    for count in range(6):
        x = RNG.random((count, ndim)) * BOX[:ndim]
        q = RNG.normal(size=count)
        for given in (x.tolist(), [tuple(row) for row in x.tolist()], list(x)):
            np.testing.assert_array_equal(pm.spread(given, q, mesh(ndim)), pm.spread(x, q, mesh(ndim)))


def test_a_tuple_of_numbers_is_a_sequence_where_there_is_one_axis():
    q = np.arange(3.0)
    np.testing.assert_array_equal(pm.spread((0.1, 0.5, 0.7), q, mesh(1)), pm.spread([0.1, 0.5, 0.7], q, mesh(1)))
    np.testing.assert_array_equal(pm.spread((0.1,), q[1:2], mesh(1)), pm.spread([0.1], q[1:2], mesh(1)))
    with pytest.raises(ValueError, match=r"shapes \(\), \(\), \(\); one length is needed: \(n,\) for each axis"):
        pm.spread((0.1, 0.5, 0.7), q[:1], mesh(3))


CALLS = {
    "plan": lambda x, d: pm.Plan(mesh(d), "cic").set_positions(x),
    "unchecked plan": lambda x, d: pm.Plan(mesh(d), "cic").set_positions(x, check=False),
    "spread": lambda x, d: pm.spread(x, np.zeros(len(x)), mesh(d)),
    "grid": lambda x, d: grid(d).build(x),
    "neighbour_list": lambda x, d: pm.neighbour_list("ij", x, BOX[:d], 0.1),
    "points": lambda x, d: grid(d).build(np.zeros((1, d))).neighbours(x, 0.1),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_tuple_of_points_is_refused_in_words_whatever_their_number(call, ndim):
    for count in {1, 2, 4, 5} - {ndim}:
        points = tuple(map(tuple, RNG.random((count, ndim)).tolist()))
        text = rf"positions is a tuple of {count}; a tuple has one array or list \(n,\) per axis, {ndim} here"
        with pytest.raises(ValueError, match=text):
            CALLS[call](points, ndim)


@pytest.mark.parametrize("call", CALLS)
def test_a_ragged_list_is_refused_in_words(call):
    for ragged in ([[0.1, 0.2, 0.3], [0.4, 0.5]], [[0.1, 0.2, 0.3], 0.4], [[0.1, "b", 0.3]], [["a", "b", "c"]]):
        with pytest.raises(TypeError, match="positions is a list that makes no array of numbers; give an array, or"):
            CALLS[call](ragged, 3)
    with pytest.raises(
        ValueError, match=r"positions are arrays of shapes \(2,\), \(1,\), \(2,\); one length is needed"
    ):
        CALLS[call](([0.1, 0.2], [0.3], [0.4, 0.5]), 3)
    with pytest.raises(ValueError, match=r"shapes \(1, 2\), \(1, 2\), \(1, 2\); one length is needed: \(n,\) for each"):
        CALLS[call](([[0.1, 0.2]],) * 3, 3)


@pytest.mark.parametrize("call", CALLS)
def test_other_things_are_refused_in_words(call):
    for bad in (np.array([["a", "b", "c"]]), np.array([[None] * 3]), np.zeros((2, 3), "M8[s]")):
        with pytest.raises(TypeError, match="positions: dtype is .*; float32, float64, .* and integers are allowed"):
            CALLS[call](bad, 3)
    for bad in ({1: 2}, {0.1, 0.2}, "abc"):
        with pytest.raises(TypeError, match="positions is of type .*; give an array of one of these kinds: NumPy"):
            CALLS[call](bad, 3)
    for shape in ((3,), (2, 2), (1, 3, 1), (0, 2)):
        with pytest.raises(ValueError, match=r"positions have shape .*; in 3-D \(n, 3\) or a tuple"):
            CALLS[call](np.zeros(shape), 3)


def test_a_bad_particle_of_a_tuple_of_lists_is_named():
    x = RNG.random((4, 3))
    x[2, 1] = np.nan
    given = tuple(a.tolist() for a in x.T)
    for call in (CALLS["plan"], CALLS["grid"]):
        with pytest.raises(ValueError, match=r"the first is (particle )?2 at \([\d.]+, nan, [\d.]+\)"):
            call(given, 3)


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_a_named_device_gets_lists_and_nothing():
    x, q = RNG.random((5, 3)) * BOX, RNG.normal(size=5)
    expected = pm.spread(x, q, mesh(3))
    with pm.Plan(mesh(3), "bspline4", backend="opencl") as plan, grid(3, backend="opencl") as cells:
        for given in (x, x.tolist(), tuple(x.T), tuple(a.tolist() for a in x.T), (x[:, 0].tolist(), *x.T[1:])):
            plan.set_positions(given)
            np.testing.assert_allclose(plan.spread(q), expected, atol=1e-13)
            plan.set_positions(given, check=False)
            np.testing.assert_allclose(plan.spread(q), expected, atol=1e-13)
            assert cells.build(given).count(10.0).tolist() == grid(3).build(x).count(10.0).tolist()
        for nothing in NOTHING:
            plan.set_positions(nothing)
            assert not plan.spread([]).any()
            assert cells.build(nothing).size == 0


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_grids_over_ranks_take_positions_as_others_do(ndim, count):
    x = RNG.random((count, ndim))
    grid = pmd.UniformGrid(pmd.Domain(mesh(ndim), 1), pmd.World(), radius=0.3)
    for given in (x, tuple(x.T), tuple(x.T.tolist()), x.tolist(), *([tuple(x[:, 0].tolist())] if ndim == 1 else ())):
        np.testing.assert_array_equal(grid.build(given).positions, x)
    if count == 0:
        assert grid.build(()).numbers.size == 0
    with pytest.raises(ValueError, match=f"a tuple has one of .* per axis, {ndim} in all"):
        grid.build((*x.T, x[:, 0]))
