# SPDX-License-Identifier: BSD-3-Clause
"""Values in the place of the library's constants are in effect while measured, decide there, and are gone after."""

import contextlib
import functools
import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import particlemesh as pm  # noqa: E402
from limit import thresholds  # noqa: E402
from limit.bench import Bench  # noqa: E402
from limit.thresholds import CONSTANTS, Scan  # noqa: E402
from particlemesh.interpolate import ordered, particle  # noqa: E402
from particlemesh.orders import block_order  # noqa: E402
from particlemesh.particles.stencil import axes_of  # noqa: E402
from particlemesh.spread.particle import LANES as SPREAD_LANES  # noqa: E402
from particlemesh.walk import patch  # noqa: E402
from test_limit_benchmarks import bench  # noqa: E402

NAMES = {constant.name: constant for constant in CONSTANTS}
each = pytest.mark.parametrize("constant", CONSTANTS, ids=NAMES)


def there(constant):
    """What the library has at the moment."""
    owner = constant.owner
    return dict(owner) if isinstance(owner, dict) else getattr(owner, constant.attribute)


def plan_of(case):
    """A plan as far as decisions look at it, on a large GPU."""
    mesh, window, dtype = pm.Mesh((case.nodes,) * 3, (1.0,) * 3), pm.bspline(case.support), np.dtype(case.dtype)
    chip = SimpleNamespace(units=132, facts=lambda: {"HAS_MMA": 1})
    axes = axes_of(mesh, window)
    return SimpleNamespace(mesh=mesh, window=window, axes=axes, dtype=dtype, backend=chip, count=case.count)


def decided(job):
    """All that constants decide of a job."""
    case, plan = job.case, plan_of(job.case)
    walk = patch.patch_of(plan, dict.fromkeys(patch.OPTIONS), case.count)
    chunk = patch.chunk_of(plan, walk, case.reals, spreads=case.direction == "spread")
    total, sorting = block_order.blocks_of(plan.axes, walk.cells).total, case.order == "sorted"
    shift = block_order._shift(case.count, total, case.size, sorting)
    lanes = ordered.Ordered().lanes(plan, case.reals), particle.LANES, SPREAD_LANES
    walked = job.method == "walk", (walk, chunk, patch.resident(walk, case.reals), shift)
    return str(walked if walked[0] else lanes)


# ---- the table --------------------------------------------------------------------------------------------


@each
def test_values_decide_in_their_cases(constant):
    assert constant.shipped in constant.values and len(set(constant.values)) == len(constant.values) > 1
    assert 1 < len(constant.jobs) <= 4
    decisions = {}
    for value in constant.values:
        with thresholds.in_effect(constant, value):
            decisions[value] = [decided(job) for job in constant.jobs]
    for several in zip(*decisions.values(), strict=True):
        assert len(set(several)) > 1  # in every case
    assert len({tuple(d) for d in decisions.values()}) == len(constant.values)  # and no two values are the same
    assert decisions[constant.shipped] == [decided(job) for job in constant.jobs]


def test_what_takes_the_place_of_functions_is_the_same_with_the_shipped_numbers():
    for nodes, support, dtype, count in itertools.product(
        (24, 128, 256), (4, 6), ("float32", "float64"), (1, 10**4, 2**16 - 1, 2**16, 2**19, 2**19 + 1, 10**7)
    ):
        plan = plan_of(thresholds.Case("spread", count, nodes, support, dtype))
        walk = patch.patch_of(plan, dict.fromkeys(patch.OPTIONS), count)
        for spreads in (True, False):
            shipped = patch.chunk_of(plan, walk, 2, spreads=spreads)
            assert thresholds.chunks(1)(plan, walk, 2, spreads=spreads) == shipped
        assert thresholds.groups(0)(walk, 2) == patch.resident(walk, 2)


# ---- measuring --------------------------------------------------------------------------------------------


class Recorded:
    """A bench that measures nothing, and notes what the library has meanwhile."""

    def __init__(self, constant, error=None):
        self.constant, self.error, self.small, self.seen, self.facts = constant, error, False, [], {}

    @contextlib.contextmanager
    def setup(self, case, method, options):
        yield SimpleNamespace(plan=None, call=lambda: self.seen.append(there(self.constant)))

    def seconds(self, call):
        call()
        if self.error is not None:
            raise self.error
        return 2e-3, 1e-3

    def _tidy(self):
        pass

    def preparing(self, made, direction):
        made.call()
        if self.error is not None:
            raise self.error
        return 3e-3, 1e-3, "graph"


@each
def test_a_value_holds_while_it_is_measured_and_the_shipped_one_afterwards(constant):
    before, here = there(constant), Recorded(constant)
    after = []
    for row in thresholds.rows(here, Scan(constant, constant.jobs[0])):
        after.append(there(constant))
        wanted = {"apply": 1e-3, "order": 3e-3}[row["what"]]
        assert (row["constant"], row["seconds"], row["by"], row["note"]) == (constant.name, wanted, "graph", "")
        assert row["shipped"] == (row["value"] == constant.told(constant.shipped))
    assert len(after) == len(constant.values) * len(constant.what)
    assert all(found == before for found in [*after, there(constant)])
    seen = list(dict.fromkeys(map(str, here.seen)))
    assert len(seen) == len(constant.values)
    if isinstance(before, dict):  # a value may be one entry of it
        assert seen == [str(before | constant.made(value)) for value in constant.values]
    elif not callable(before):
        assert seen == [str(constant.made(value)) for value in constant.values]


@each
@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), pm.MethodNotSuitable("too small"), MemoryError("full")])
def test_the_shipped_value_is_back_after_an_error(constant, error):
    before, here, scan = there(constant), Recorded(constant, error), Scan(constant, constant.jobs[0])
    if isinstance(error, ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):
            list(thresholds.rows(here, scan))
    else:
        found = list(thresholds.rows(here, scan))
        assert all(row["note"] == str(error) and math.isnan(row["seconds"]) for row in found) and found
    assert there(constant) == before and here.seen


@pytest.mark.backends("cuda", "opencl")
def test_kernels_of_a_plan_are_made_with_the_value(backend, monkeypatch):
    here, constant = bench(backend.name), NAMES["spread.particle.LANES"]
    case = replace(constant.jobs[0].case, count=150, nodes=16, support=4)
    asked, make = [], type(here.place.backend).kernel

    @functools.wraps(make)
    def kernel(self, file, name, defines=None, *more, **options):
        if name == "spread_particle":
            asked.append((defines["LANES_ALL"], defines["LANES_ROW"]))
        return make(self, file, name, defines, *more, **options)

    monkeypatch.setattr(type(here.place.backend), "kernel", kernel)
    found = list(thresholds.rows(here, Scan(constant, replace(constant.jobs[0], case=case))))
    assert list(dict.fromkeys(asked)) == [(8, 8), (8, 4)]  # the shipped value and another one in a small run
    assert [(row["value"], row["shipped"]) for row in found] == [("8 8", 1), ("8 4", 0)]
    assert all(row["seconds"] > 0 and row["device"] and "commit" in row for row in found)
    for value in constant.values:  # whatever the lanes, the sums are the same
        with thresholds.in_effect(constant, value), here.setup(case, "particle") as made:
            made.call()
            assert here._error(case, made.result()) < 1e-6


@pytest.mark.backends("cuda", "opencl")
def test_order_and_window_of_a_plan_are_those_of_the_value(backend):
    here, constant = bench(backend.name), NAMES["patch._CROWDED"]
    case = replace(constant.jobs[0].case, count=1400, nodes=16, support=4)  # 8.5 particles in a narrow block
    tiles, errors = [], []
    for value in constant.values:
        with thresholds.in_effect(constant, value), here.setup(case, "walk") as made:
            made.call()
            tiles.append(made.plan._method("spread").patch(made.plan.workspace).tiles)
            errors.append(here._error(case, made.result()))
    assert tiles == [1, 2, 2] and max(errors) < 1e-6


def test_a_processor_has_none_of_these_constants():
    assert thresholds.jobs(Bench("cpu", small=True)) == []


def test_what_is_compiled_beforehand_has_as_many_particles_a_cell():
    here = SimpleNamespace(small=False, names=lambda direction: ["walk", "particle", "ordered"])
    scans, tries = thresholds.jobs(here), thresholds.tries(here)
    assert len(scans) == sum(len(constant.jobs) for constant in CONSTANTS)
    each_value = [(scan, value) for scan in scans for value in scan.constant.values]
    for (scan, value), (tried, with_value) in zip(each_value, tries, strict=True):
        case, small = scan.job.case, tried.job.case
        assert (tried.constant, with_value, tried.job.method) == (scan.constant, value, scan.job.method)
        assert small.count <= 10**6 and small.density == pytest.approx(case.density, rel=1e-4)
        assert replace(small, count=case.count, nodes=case.nodes) == case


# ---- what the rows say ------------------------------------------------------------------------------------


def test_a_line_for_each_constant():
    rows = [
        dict(constant="a", value=value, shipped=str(int(value == "2")), what="apply", method="walk", direction="spread",
             N=n, K=8, p=4, dtype="float32", values="real", seconds=seconds)
        for n, times in ((10, (1.0, 1.5, 3.0)), (20, (2.0, 2.0, 1.0)))
        for value, seconds in zip("123", times, strict=True)
    ]  # fmt: skip
    (line,) = thresholds.summary(rows)
    assert line == "a = 2: 1.225 times what the best value takes (1), over 2 cases; 2.000 in the worst"
    rows[4]["seconds"] = "nan"
    assert thresholds.summary(rows) == ["a = 2: not measured"]
    assert thresholds.summary([]) == []
