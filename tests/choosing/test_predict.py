# SPDX-License-Identifier: BSD-3-Clause
"""What lies between measured times, and what methods' models say of any problem."""

from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.choosing import predict
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.tables import Row
from particlemesh.methods.contract import Problem
from particlemesh.spread.walk import Walk
from particlemesh.spread.walk_fixed import WalkFixed

FACTS = {"HAS_VECTOR_ATOMIC": 1, "HAS_FP64": 1, "HAS_WARP": 1, "HAS_MMA": 1}
GPU = SimpleNamespace(
    name="cuda", device="a GPU", units=100, group_size=128, facts=lambda: FACTS, free_bytes=lambda: 10**11
)  # as models ask it


def problem(shape=(64, 64, 64), support=4, dtype="float32", components=1, count=10**5, options=None, **more):
    mesh = pm.Mesh(shape, (1.0,) * len(shape))
    return Problem(mesh, pm.bspline(support), np.dtype(dtype), components, 1, count, False, GPU, options or {}, **more)


def test_between_places_and_beyond_them():
    line = predict.Interpolation(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0], [1.0]]))
    for where, wanted in ((0.0, 0.0), (1.0, 2.0), (3.0, 1.0), (-5.0, 0.0), (9.0, 1.0)):
        assert line(np.array([where])) == pytest.approx([wanted], abs=1e-8)
    for where, wanted in ((0.5, 1.0), (2.0, 1.5)):  # on the way from one to the next, without corners
        assert line(np.array([where])) == pytest.approx([wanted], rel=0.3)
    steps = np.diff([line(np.array([x]))[0] for x in (0.998, 0.999, 1.0, 1.001, 1.002)])
    assert np.abs(np.diff(steps)).max() < 1e-3


def test_a_trend_is_found_where_places_are_few():
    rng = np.random.default_rng(1)
    places, slope = rng.random((20, 3)), np.array([1.0, -2.0, 0.5])
    plane = predict.Interpolation(places, (places @ slope)[:, None])
    inside = places[:10].mean(axis=0)
    assert plane(inside) == pytest.approx([inside @ slope], abs=1e-6)


def test_the_same_place_twice_has_what_lies_between():
    twice = predict.Interpolation(np.array([[0.0], [0.0], [1.0]]), np.array([[1.0], [3.0], [5.0]]))
    assert 1.0 <= twice(np.array([0.0]))[0] <= 3.0


# ---- models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (5000,), (8, 300), (3, 5, 7), (64, 64, 64), (400, 400, 400)])
@pytest.mark.parametrize("support", [2, 5, 8, 9])
@pytest.mark.parametrize("count", [0, 1, 1000, 10**7])
@pytest.mark.parametrize("filled", [1.0, 1e-3])
def test_every_model_gives_times(shape, support, count, filled):
    if min(shape) < support:
        shape = tuple(max(n, support) for n in shape)
    for dtype, components in (("float32", 1), ("float64", 2)):
        asked = problem(shape, support, dtype, components, count, filled=filled)
        for methods in METHODS.values():
            for method in (m for m in methods if "cuda" in m.backends and m.declines(asked) is None):
                times = method.cost(asked)
                assert all(np.isfinite(t) and 0 <= t < 1e4 for t in times), (method.name, times)


@pytest.mark.parametrize("cloud", [{}, {"filled": 0.01}, {"in_order": True}])
def test_more_particles_take_longer_to_walk(cloud):
    for walk in (Walk, METHODS["interpolate"][[m.name for m in METHODS["interpolate"]].index("walk")]):
        times = [walk.cost(problem(count=count, **cloud))[1] for count in (10**5, 10**6, 10**7)]
        assert times == sorted(times) and times[2] > 2 * times[0]


def test_a_cluster_is_walked_in_less_time():
    assert Walk.cost(problem((200, 200, 200), filled=0.01))[1] < 0.7 * Walk.cost(problem((200, 200, 200)))[1]


@pytest.mark.parametrize("chosen", [{"levels": 2}, {"levels": 3}, {"patch": 16}, {"form": "multiply"}])
def test_options_of_a_method_do_not_change_what_includes_it(chosen):
    times = predict.Timings(GPU, (), "")
    asked = problem(support=4, options={"walk": chosen})
    assert times.predict("spread", WalkFixed, asked) == times.predict("spread", WalkFixed, problem(support=4))


def test_what_a_method_declines_was_not_measured():
    row = Row("spread", "walk", 64, 4, "float32", 1, 10**5, 1.0, 0, 1.0, 1e-5, 2e-5)
    spoilt = row._replace(support=9)
    asked = predict.problem_of(row._replace(nodes=50), GPU)
    assert Walk.declines(predict.problem_of(spoilt, GPU))
    with_it, without = (
        predict.Timings(GPU, rows, "").predict("spread", Walk, asked) for rows in ((row, spoilt), (row,))
    )
    assert with_it == without != Walk.cost(asked)
