# SPDX-License-Identifier: BSD-3-Clause
"""The choice between methods: by prediction, by measuring, within memory; and how it is explained."""

import functools
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh.choosing import candidates, predict
from particlemesh.choosing.candidates import Candidate, MethodNotSuitable
from particlemesh.methods.contract import Method, Problem

BACKEND = SimpleNamespace(name="cpu", free_bytes=lambda: 1000)
PROBLEM = Problem(pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0)), pm.bspline(4), np.dtype("float32"), 1, 10, 500, False, BACKEND)


def method(name, prepare, apply, scratch=0, reason=None, same_bits=False):
    """A method with given answers."""

    class Fake(Method):
        backends = frozenset({"cpu"})
        deterministic = same_bits
        declines = classmethod(lambda cls, problem: reason)
        scratch_bytes = classmethod(lambda cls, problem: scratch)
        cost = classmethod(lambda cls, problem: (prepare, apply))

    Fake.name = name
    return Fake


class Clock:
    """What methods take, whatever they say; remembers which were asked."""

    def __init__(self, **times):
        self.times, self.asked = times, []

    def __call__(self, asked):
        self.asked.append(asked.name)
        time = self.times[asked.name]
        if isinstance(time, Exception):
            raise time
        return time


def test_auto_takes_the_least_total():
    once, often = method("once", 0.0, 1.0), method("often", 5.0, 0.1)
    for applications, best in ((1, once), (5, once), (6, often), (1000, often)):
        assert candidates.choose((often, once), replace(PROBLEM, applications=applications), "auto") is best


@pytest.mark.parametrize("count", [0, 1, 1000, 10**7])
@pytest.mark.parametrize("shape", [(4000,), (64, 64), (8, 8, 8), (64, 64, 64)])
@pytest.mark.parametrize("name", ["cpu", "cuda", "opencl"])
def test_a_method_of_which_nothing_is_known_is_last(name, shape, count):
    """A naive one won a quarter of all problems once, by a model of no particular algorithm."""

    class Naive(Method):
        """Says nothing of its times."""

        name = "naive"
        backends = frozenset({"cpu", "cuda", "opencl"})
        deterministic = True

    where = SimpleNamespace(
        name=name, device="unknown", units=100, group_size=128, local_bytes=232_448, free_bytes=lambda: 10**12,
        facts=lambda: {"HAS_FP64": 1, "HAS_WARP": 1, "HAS_MMA": 1},
    )  # fmt: skip
    mesh = pm.Mesh(shape, (1.0,) * len(shape))
    predicted = predict.Timings(where, (), "").predict
    for direction, methods in METHODS.items():
        for window, applications, same in itertools.product((1, 4, 8), (1, 1000), (False, True)):
            asked = Problem(mesh, pm.bspline(window), np.dtype("float32"), 2, applications, count, same, where)
            cost = functools.partial(predicted, direction)
            assert candidates.choose((Naive, *methods), asked, "auto", cost) is not Naive
            assert candidates.choose((Naive,), asked, "auto", cost) is Naive
            assert candidates.choose((Naive, *methods), asked, "naive", cost) is Naive
    answers = [candidates.ask(m, asked, cost) for m in (Naive, *methods)]
    row = candidates.table("interpolate", answers, asked, None).splitlines()[1]
    assert row.startswith("  naive") and "no model, no measurements" in row and len(row) <= 100


def test_auto_goes_by_the_prediction_it_is_given():
    first, second = method("first", 0.0, 1.0), method("second", 0.0, 2.0)
    swapped = lambda asked, problem: (0.0, {"first": 2.0, "second": 1.0}[asked.name])  # noqa: E731
    assert candidates.choose((first, second), PROBLEM, "auto") is first
    assert candidates.choose((first, second), PROBLEM, "auto", swapped) is second
    assert candidates.choose((first, second), PROBLEM, "first", swapped) is first


def test_auto_leaves_memory_for_others_unless_no_method_can():
    greedy, frugal = method("greedy", 0.0, 1.0, scratch=400), method("frugal", 0.0, 2.0, scratch=300)
    assert candidates.choose((greedy, frugal), PROBLEM, "auto") is frugal
    assert candidates.choose((greedy,), PROBLEM, "auto") is greedy
    assert candidates.choose((greedy, frugal), PROBLEM, "greedy") is greedy
    with pytest.raises(MethodNotSuitable, match="huge: needs 1,001 bytes, 1,000 are free"):
        candidates.choose((method("huge", 0.0, 0.0, scratch=1001),), PROBLEM, "auto")


def test_measuring_takes_the_faster_whatever_was_predicted():
    first, second = method("first", 0.0, 1.0), method("second", 0.0, 2.0)
    clock = Clock(first=(0.0, 3.0), second=(4.0, 1.0))
    chosen, learned = candidates.measure((second, first), PROBLEM, clock)
    assert chosen is second
    assert clock.asked == ["first", "second"]  # the best prediction first
    assert learned == [Candidate(second, None, 4.0, 1.0, 0, True), Candidate(first, None, 0.0, 3.0, 0, True)]


@pytest.mark.parametrize(("apply", "wins"), [(0.96, False), (0.951, False), (0.949, True), (0.5, True)])
def test_a_newcomer_must_win_by_5_percent(apply, wins):
    first, second = method("first", 0.0, 1.0), method("second", 0.0, 1.5)
    chosen, _ = candidates.measure((first, second), PROBLEM, Clock(first=(0.0, 1.0), second=(0.0, apply)))
    assert chosen is (second if wins else first)


def test_a_method_predicted_5_times_slower_is_not_run():
    best, near, far = method("best", 0.0, 1.0), method("near", 40.0, 1.0), method("far", 40.1, 1.0)
    clock = Clock(best=(0.0, 1.0), near=(0.0, 2.0))
    chosen, learned = candidates.measure((far, near, best), PROBLEM, clock)
    assert chosen is best
    assert clock.asked == ["best", "near"]
    assert [c.measured for c in learned] == [False, True, True]
    assert (learned[0].prepare, learned[0].apply) == far.cost(PROBLEM)


def test_measuring_respects_memory_declines_and_determinism():
    bits = method("bits", 0.0, 1.0, same_bits=True)
    others = (
        method("greedy", 0.0, 0.1, scratch=400, same_bits=True), method("huge", 0.0, 0.1, scratch=2000, same_bits=True),
        method("unable", 0.0, 0.1, reason="no", same_bits=True), method("racing", 0.0, 0.1),
    )  # fmt: skip
    clock = Clock(bits=(0.0, 1.0))
    chosen, learned = candidates.measure((*others[:3], bits), PROBLEM, clock)
    assert chosen is bits
    assert clock.asked == ["bits"]
    assert [c.reason for c in learned[1:]] == ["needs 2,000 bytes, 1,000 are free", "no", None]
    # A reproducible choice does not look at memory, which is another in the next process.
    reproducible = replace(PROBLEM, deterministic=True)
    assert [candidates.ask(m, reproducible).reason for m in others[1:]] == [None, "no", "not deterministic"]
    assert not learned[0].measured and learned[0].reason is None


def test_without_memory_for_a_trial_the_next_best_is_tried():
    first, second = method("first", 0.0, 1.0), method("second", 0.0, 2.0)
    clock = Clock(first=MemoryError("9 bytes are not to be had"), second=(0.0, 2.0))
    chosen, learned = candidates.measure((first, second), PROBLEM, clock)
    assert chosen is second
    assert learned[0].reason == "no memory to try it: 9 bytes are not to be had"
    with pytest.raises(MethodNotSuitable, match="first: no memory to try it"):
        candidates.measure((first,), PROBLEM, clock)


def test_a_method_too_large_to_try_does_not_hide_one_that_was_not_tried():
    # What was out of reach of the best prediction is all that is left.
    first, second = method("first", 0.0, 1.0), method("second", 0.0, 20.0)
    chosen, learned = candidates.measure((first, second), PROBLEM, Clock(first=MemoryError("none")))
    assert chosen is second
    assert not learned[1].measured


def test_the_table_tells_all_and_fits_a_terminal():
    asked = [
        Candidate(method("quick", 0, 0), None, 1.5e-3, 2e-4, 3 << 20, True),
        Candidate(method("slow", 0, 0), None, 0.0, 2.0, 0),
        Candidate(method("unable", 0, 0), "this cannot be done, and " + 20 * "so on " + "until the end"),
    ]
    text = candidates.table("spread", asked, PROBLEM, asked[0].method)
    assert text.splitlines()[0].split() == [
        "spread",
        "prepare",
        "apply",
        "total",
        "of",
        "10",
        "memory",
        "N",
        "=",
        "500",
    ]
    assert "* quick " in text and "1.5 ms      200 us        3.5 ms" in text and "3.0 MiB   measured" in text
    assert "  slow " in text and "20 s" in text and "predicted" in text
    assert "declined: this cannot be done" in text and "so on until the end" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    assert "total  " in candidates.table("spread", asked, replace(PROBLEM, applications=1), None)


def test_a_named_method_that_declines_is_reported_and_explained():
    x, q = np.random.default_rng(1).random((50, 3)), np.ones(50)
    with pm.Plan(PROBLEM.mesh, "bspline4", method="walk") as plan:
        plan.set_positions(x)
        with pytest.raises(MethodNotSuitable, match="^method 'walk' cannot serve .* runs on cuda, opencl; name"):
            plan.spread(q)
        spread, interpolate = plan.explain().split("interpolate")[:2]
        assert "* " not in spread and "declined: runs on cuda, opencl" in spread
        assert "* " in interpolate
        plan.set_positions(x[:0])
        assert plan.explain().splitlines()[0].endswith("N = 0")


def test_memory_that_cannot_be_reserved_is_not():
    x = np.random.default_rng(1).random((50, 3))
    options = {"method": "group_mesh", "deterministic": True, "backend": "cpu", "dtype": "f8"}
    with pm.Plan(PROBLEM.mesh, "bspline4", **options) as plan:
        with pytest.raises(MethodNotSuitable, match="'group_mesh' cannot serve"):
            plan.reserve(10)
        plan.set_positions(x, check=False)
        assert plan.count == 50


def test_positions_as_far_away_as_numbers_go():
    with pm.Plan(pm.Mesh((8, 8, 8), (1e-3,) * 3), "bspline4", applications=1000) as plan, np.errstate(all="raise"):
        plan.set_positions(np.full((50, 3), 1.5e308))
        assert plan.spread(np.ones(50)).sum() == pytest.approx(50)


def test_columns_are_as_wide_as_what_they_tell():
    problem = replace(PROBLEM, applications=10**12)
    head, row = candidates.table(
        "spread", [candidates.ask(method("one", 1.0, 1.0), problem)], problem, None
    ).splitlines()
    assert head.index("memory") + len("memory") == row.index(" MiB") + len(" MiB")


@pytest.mark.parametrize("facts", [{}, {"derivatives": 2}, {"derivatives": 0, "fills": True}])
def test_a_method_cannot_ignore_what_it_says_to_have(facts):
    """It returned zeros for gradients once."""

    def apply(self, workspace, values, field, **_):
        """Know values only."""

    with pytest.raises(TypeError, match=r"Mine.apply has no parameter (gradient|fresh).*add it, or state derivatives"):
        type("Mine", (Method,), {"apply": apply, **facts})
    assert type("Mine", (Method,), {"apply": apply, "derivatives": 0})
    for methods in METHODS.values():
        for each in methods:
            with pytest.raises(TypeError, match="no parameter"):
                type("Mine", (each,), {"apply": apply})
