# SPDX-License-Identifier: BSD-3-Clause
"""Repeated calls do not repeat what follows from sizes alone, and what is kept never shows in a result."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.choosing import candidates, choice, predict
from particlemesh.interpolate import tiles as interpolate_tiles
from particlemesh.orders.cpu import particles
from particlemesh.spread import colouring
from particlemesh.window import transforms

MESH = pm.Mesh((7, 8, 9), (1.0, 2.0, 3.0))
SAME_MESH = pm.Mesh((7, 8, 9), (1.0, 2.0, 3.0))


def positions(count):
    return np.random.default_rng(count).random((count, 3))


@pytest.fixture
def asked(monkeypatch):
    """Return the methods that were asked about problems, with nothing kept from before."""
    names, ask = [], candidates.ask
    monkeypatch.setattr(candidates, "ask", lambda m, *more: (names.append(m.name), ask(m, *more))[1])
    monkeypatch.setattr(choice, "_choices", {})
    return names


def test_single_calls_of_equal_sizes_choose_once(asked):
    x, values = positions(50), np.ones(50)
    first = pm.spread(x, values, MESH)
    once = len(asked)
    assert once > 0
    again = pm.spread(x, values, SAME_MESH)
    assert len(asked) == once
    assert (first == again).all()
    pm.interpolate(first, x, MESH)
    assert len(asked) > once


@pytest.mark.parametrize(
    "other",
    [
        lambda: pm.spread(positions(51), np.ones(51), MESH),
        lambda: pm.spread(positions(50), np.ones(50), pm.Mesh((7, 8, 10), 3 * (1.0,))),
        lambda: pm.spread(positions(50), np.ones(50), MESH, window="cic"),
        lambda: pm.spread(positions(50), np.ones(50, np.float32), MESH),
        lambda: pm.spread(positions(50), np.ones(50), MESH, components=2),
        lambda: pm.spread(positions(50), np.ones(50), MESH, applications=1000),
        lambda: pm.spread(positions(50), np.ones(50), MESH, options={"single_mesh": {"threads_per_row": 8}}),
        lambda: (predict.forget(), pm.spread(positions(50), np.ones(50), MESH)),
    ],
)  # fmt: skip
def test_another_problem_is_chosen_for_itself(asked, other):
    pm.spread(positions(50), np.ones(50), MESH)
    once = len(asked)
    other()
    assert len(asked) > once


def test_a_method_that_is_new_is_asked(asked, monkeypatch):
    class Own(colouring.Colouring):
        name = "own"

        @classmethod
        def cost(cls, problem):
            return 0.0, 0.0

    x, values = positions(50), np.ones(50)
    expected = pm.spread(x, values, MESH)
    monkeypatch.setitem(choice.METHODS, "spread", (*choice.METHODS["spread"], Own))
    plan = pm.Plan(MESH).set_positions(x)
    assert (plan.spread(values) == expected).all()
    assert asked[-1] == "own"


def test_kept_choices_are_bounded(asked, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_CHOICES", 3)
    for count in range(1, 9):
        pm.spread(positions(count), np.ones(count), MESH)
    assert 0 < len(choice._choices) <= 3


def test_large_problems_are_chosen_anew(asked):
    mesh = pm.Mesh(2**20, 1.0)
    for calls in (1, 2):
        pm.spread([0.5], [1.0], mesh)
        assert len(asked) == calls * len(choice.METHODS["spread"])


def test_repeated_calls_compile_nothing_and_cut_no_mesh_anew():
    compiled = (
        colouring._spread_tasks,
        interpolate_tiles._read_tasks,
        particles._count_cells,
        particles._place_in_cells,
    )
    x, values = positions(40), np.ones(40)
    read_only = x.copy()
    read_only.setflags(write=False)

    def call(x):
        field = pm.spread(x, values, MESH)
        pm.interpolate(field, x, MESH)
        pm.gradient(field, x, MESH)

    call(x)
    before = [len(function.signatures) for function in compiled], particles._tiling.cache_info().misses
    for again in (x, read_only, np.asfortranarray(x), tuple(x.T)):
        call(again)
    assert ([len(function.signatures) for function in compiled], particles._tiling.cache_info().misses) == before


# ---- compensation -------------------------------------------------------------------------------------


@pytest.fixture
def transformed(monkeypatch):
    """Return the calls of a window's transforms, with nothing kept from before."""
    calls = []
    for name in ("fourier", "symbol"):
        plain = getattr(pm.Window, name)
        monkeypatch.setattr(pm.Window, name, lambda w, k, p=plain, n=name: (calls.append(n), p(w, k))[1])
    transforms._cached.cache_clear()
    yield calls
    transforms._cached.cache_clear()


@pytest.mark.parametrize(("kind", "name"), [("continuous", "fourier"), ("discrete", "symbol")])
def test_compensation_transforms_a_window_once(transformed, kind, name):
    first = MESH.compensation("bspline4", kind)
    assert transformed == [name] * 3
    again = SAME_MESH.compensation(pm.bspline(4), kind)
    assert transformed == [name] * 3
    assert (first == again).all()


def test_writing_to_a_compensation_changes_no_other():
    first = MESH.compensation("bspline4")
    expected = first.copy()
    first[...] = 7
    assert (MESH.compensation("bspline4") == expected).all()
    line = pm.Mesh(8, 1.0)
    one = line.compensation("cic")
    one *= 2
    assert (line.compensation("cic") * 2 == one).all()


def test_kept_transforms_are_distinguished():
    cases = [
        (window, kind, power, real)
        for window in ("cic", "bspline4") for kind in ("continuous", "discrete") for power in (1, 2)
        for real in (False, True)
    ]  # fmt: skip
    kept = [MESH.compensation(w, k, power=p, real=r) for w, k, p, r in cases * 2]
    transforms._cached.cache_clear()
    for (window, kind, power, real), result in zip(cases * 2, kept, strict=True):
        transforms._cached.cache_clear()
        assert (MESH.compensation(window, kind, power=power, real=real) == result).all()


def test_transforms_of_long_axes_are_not_kept(transformed, monkeypatch):
    monkeypatch.setattr(transforms, "MOST_NODES", 8)
    MESH.compensation("cic")
    MESH.compensation("cic")
    assert len(transformed) == 4  # of the axis of 9 nodes twice


def test_a_transform_that_vanishes_is_refused_each_time_for_its_axis():
    odd, mesh = pm.Window("odd", [(0.5,), (0.5,)]), pm.Mesh((3, 4), (1.0, 1.0))
    for _ in range(2):
        with pytest.raises(ValueError, match="'odd' vanishes at mode 2 of axis 1"):
            mesh.compensation(odd, "discrete")
