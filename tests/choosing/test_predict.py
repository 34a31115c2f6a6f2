# SPDX-License-Identifier: BSD-3-Clause
"""What lies between measured times, and what methods' models say of any problem."""

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import cpu as cpu_backend
from particlemesh.choosing import predict, tables
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.tables import Row
from particlemesh.interpolate.octets import Octets
from particlemesh.interpolate.ring import Ring
from particlemesh.interpolate.shares import Local
from particlemesh.interpolate.tile import Tile
from particlemesh.methods.contract import Problem
from particlemesh.spread.walk import Walk
from particlemesh.spread.walk_fixed import WalkFixed

FACTS = {"HAS_VECTOR_ATOMIC": 1, "HAS_FP64": 1, "HAS_WARP": 1, "HAS_MMA": 1}
GPU = SimpleNamespace(
    name="cuda",
    device="a GPU",
    units=100,
    group_size=128,
    local_bytes=232_448,
    facts=lambda: FACTS,
    free_bytes=lambda: 10**11,
)  # as models ask it


def problem(
    shape=(64, 64, 64), support=4, dtype="float32", components=1, count=10**5, options=None, backend=GPU, **more
):
    mesh, real = pm.Mesh(shape, (1.0,) * len(shape)), np.dtype(dtype)
    return Problem(mesh, pm.bspline(support), real, components, 1, count, False, backend, options or {}, **more)


def test_between_places_and_beyond_them():
    line = predict.Interpolation(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0], [1.0]]))
    for where, expected in ((0.0, 0.0), (1.0, 2.0), (3.0, 1.0), (-5.0, 0.0), (9.0, 1.0)):
        assert line(np.array([where])) == pytest.approx([expected], abs=1e-8)
    for where, expected in ((0.5, 1.0), (2.0, 1.5)):  # on the way from one to the next, without corners
        assert line(np.array([where])) == pytest.approx([expected], rel=0.3)
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


@pytest.mark.parametrize("method", [Tile, Ring, Octets])
def test_a_first_prediction_tries_few_tiles(method, monkeypatch):
    """All measured problems are looked at, each once: a process would spend half a minute before its first step."""
    tried = []
    of = Local.of.__func__
    monkeypatch.setattr(
        Local, "of", classmethod(lambda cls, *given, **more: tried.append(1) or of(cls, *given, **more))
    )
    (table,) = (t for t in tables.shipped("cuda") if t.device == "NVIDIA H200")
    timings = predict.Timings(GPU, table.rows, "")
    for _ in range(2):
        assert timings.ratios("interpolate", method).size
    measured = sum(row.method == method.name for row in table.rows)
    assert measured > 100
    assert len(tried) < 200 * measured


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


# ---- the processor ----------------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def measured_on_processors():
    """Yield direction, method, what was measured and its threads, of the files of measured times."""
    regret = "regret-intel-r-xeon-r-processor-2-50ghz-2-threads.csv"
    for row in csv.DictReader((RESULTS / regret).read_text().splitlines()):
        case = row["nodes"], row["support"], row["dtype"], row["components"], row["particles"], row["filled"]
        for one in row["times"].split():
            method, prepare, apply = one.split(":")
            if method == "hybrid_mesh":  # measured while it had a matrix of its own
                continue
            yield row["direction"], method, case, int(row["in_order"]), 2, float(prepare), float(apply)
    for file in sorted(RESULTS.glob("cpu-*.csv")):
        for row in csv.DictReader(file.read_text().splitlines()):
            if row["cloud"] == "uniform":
                case = row["K"], row["width"], row["dtype"], 1, row["N"], 1.0
                method = {"spread": "colouring", "interpolate": "tiles"}[row["operation"]]
                yield row["operation"], method, case, 0, int(row["threads"]), 0.0, float(row["ours_s"])


def test_models_alone_are_within_a_factor_of_two_on_common_processors():
    ratios = []
    cpu = backends.current("cpu")
    for direction, name, case, in_order, threads, prepare, apply in measured_on_processors():
        nodes, support, dtype, components, particles, filled = case
        row = Row(
            direction, name, int(nodes), int(support), dtype, int(components), int(particles), float(filled), in_order,
            1.0, prepare, apply,
        )  # fmt: skip
        method = next(m for m in METHODS[direction] if m.name == name)
        predicted = method.cost(predict.problem_of(row, cpu, threads=threads))
        ratios += [t / s for t, s in zip(predicted, (prepare, apply), strict=True) if s > 0]
    ratios = np.array(ratios)
    within = np.mean((ratios > 0.5) & (ratios < 2))
    assert len(ratios) > 400 and within > 0.92, within
    assert ratios.min() > 0.25 and ratios.max() < 4, (ratios.min(), ratios.max())


@pytest.mark.parametrize("shape", [(512,), (10**5,), (64, 64), (512, 512), (16, 16, 16), (100, 100, 100)])
@pytest.mark.parametrize("support", [2, 6])
@pytest.mark.parametrize("count", [300, 10**4, 10**6])
def test_sums_in_integers_are_not_the_fastest_on_a_processor(shape, support, count):
    """Measured on an EPYC they take 1 to 4 times as long as reals; predicted as faster, they spread along lines."""
    methods = {m.name: m for m in METHODS["spread"]}
    for dtype, components in (("float32", 1), ("float64", 2)):
        asked = problem(shape, support, dtype, components, count, backend=backends.current("cpu"), threads=1)
        integers, reals = (sum(methods[name].cost(asked)) for name in ("fixed_point", "colouring"))
        assert integers > 1.15 * reals


@pytest.mark.parametrize(("theirs", "ours"), [(2, 16), (16, 2), (4, 4), (1, 3)])
def test_times_of_another_processor_are_taken_for_its_threads(monkeypatch, theirs, ours):
    """A table of a common processor serves others: more threads than it had make calls shorter, as the models say."""
    monkeypatch.setattr(cpu_backend, "available_threads", lambda: ours)
    cpu = backends.current("cpu")
    row = Row("spread", "colouring", 64, 4, "float32", 1, 10**6, 1.0, 0, 1.0, 0.0, 1.0)
    colouring = next(m for m in METHODS["spread"] if m.name == "colouring")
    modelled = [colouring.cost(predict.problem_of(row, cpu, threads=n))[1] for n in (theirs, ours)]
    times = predict.Timings(cpu, (row,), "", threads=theirs)
    _, took = times.predict("spread", colouring, predict.problem_of(row, cpu))
    assert took == pytest.approx(modelled[1] / modelled[0], rel=1e-3)


def test_threads_that_a_plan_names_count(monkeypatch):
    monkeypatch.setattr(cpu_backend, "available_threads", lambda: 16)
    x = np.random.default_rng(1).random((100_000, 3))
    times = []
    for threads in (1, 8, None):
        with pm.Plan(pm.Mesh((32, 32, 32), (1.0,) * 3), "cic", threads=threads) as plan:
            plan.set_positions(x)
            times.append(METHODS["interpolate"][-1].cost(plan.methods.problem())[1])
    assert METHODS["interpolate"][-1].name == "tiles"
    assert times[0] > 4 * times[1] > 4 * times[2]
