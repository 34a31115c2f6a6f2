# SPDX-License-Identifier: BSD-3-Clause
"""Sums over neighbours of deterministic grids: the same bits in any order, and right."""

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from grid_cases import Case, all_pairs
from grid_checks import put
from particlemesh.backends import cuda
from particlemesh.grid.queries import sums as sums_of_pairs
from ptx import case as case_for_nvrtc
from ptx import kernels_of

CASES = [
    Case("periodic", (4, 3, 5), "wrapped", 130, "f8"), Case("triclinic mixed", (4, 3, 3), "edges", 150, "f4"),
    Case("plane", (5, 4), "wrapped", 120, "f4"), Case("open line", (7,), "uniform", 60, "f8"),
]  # fmt: skip


def _weighted(r2, d, i, j, a, b, p, sum):
    weight = b[0] * np.exp(-r2 * p[0])
    if r2 > p[1]:
        sum[0] += weight
    for axis in range(3):
        sum[1 + axis] -= a[1] * weight * d[axis]


WEIGHTED = """
const real weight = b[0] * exp(-r2 * p[0]);
if (r2 > p[1]) sum[0] += weight;
for (int axis = 0; axis < 3; axis++) sum[1 + axis] -= a[1] * weight * d[axis];
"""
NAMES = {"stream", "values_of_units", "sums_of_words"}
FUNCTION = pm.PairFunction(WEIGHTED, _weighted, 4, 2, (1.5, 0.01))


@pytest.mark.parametrize(("members", "lanes"), [(0, 1), (0, 4), (8, 1)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_order_has_the_same_bits(backend, case, members, lanes, monkeypatch):
    if backend.name == "cpu" and (members or lanes > 1):
        pytest.skip("Threads of the CPU do not share a particle.")
    monkeypatch.setattr(sums_of_pairs, "members_of", lambda *_: members)  # on GPUs
    monkeypatch.setattr(sums_of_pairs, "lanes_of", lambda *_: lanes)
    x, rng = case.positions, np.random.default_rng(3)
    # One neighbour is a million times as heavy as others.
    values = (rng.standard_normal((len(x), 2)) * np.where(np.arange(len(x)) % 9, 1, 1e6)[:, None]).astype(case.dtype)
    order = rng.permutation(len(x))
    sums = []
    for cells, rows in ((case.cells, np.arange(len(x))), (tuple(n + 1 for n in case.cells), order)):
        with pm.UniformGrid(case.domain, shape=cells, deterministic=True) as grid:
            put(backend, grid, x[rows])
            out = backend.array(np.full((len(x), 4), np.nan, case.dtype), "strided")
            there = backend.host(grid.stream(0.6, FUNCTION, backend.array(values[rows], "reversed"), out=out))
            again = backend.host(grid.stream(0.6, FUNCTION, backend.array(values[rows])))
            np.testing.assert_array_equal(there, again)
            sums.append(there)
    np.testing.assert_array_equal(sums[0][order], sums[1])
    near = all_pairs(case.domain, x, 0.6)
    near = near.where(near.distance <= 0.6)
    v, r2 = values.astype(float), near.distance**2
    weight = v[near.j, 0] * np.exp(-1.5 * r2)
    slopes = -(v[near.i, 1] * weight)[:, None] * np.pad(near.vector, ((0, 0), (3 - near.vector.shape[1], 0)))
    terms = np.column_stack([np.where(r2 > 0.01, weight, 0), slopes])
    expected, size = np.zeros((2, len(x), 4))
    np.add.at(expected, near.i, terms)
    np.add.at(size, near.i, abs(terms))
    rounding = {"f4": 3e-6, "f8": 1e-13}[case.dtype]
    assert (abs(sums[0] - expected) <= rounding * (size + size.max(1, keepdims=True))).all()


def _plain(r2, d, i, j, a, b, p, sum):
    sum[0] += b[0]
    sum[1] += 1


PLAIN = pm.PairFunction("sum[0] += b[0]; sum[1] += 1;", _plain, 2, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_any_size_and_of_no_size(backend, dtype):
    """Small and large numbers keep their digits; what is not finite, or no pair, is seen."""
    info, count = np.finfo(dtype), 40
    x = np.linspace(0.1, 0.9, count).astype(dtype)
    with pm.UniformGrid(pm.Box(1.0, periodic=False), shape=3, deterministic=True) as grid:
        put(backend, grid, x)
        numbers = np.random.default_rng(0).standard_normal(count).astype(dtype)
        for scale in (info.tiny * 2**16, 1, info.max / 2**12):
            values = numbers * np.asarray(scale, dtype)
            sums = backend.host(grid.stream(2.0, PLAIN, backend.array(values)))
            expected = values.astype(np.longdouble).sum() - values
            assert abs(sums[:, 0] - expected).max() < 40 * info.eps * abs(values).max()
            assert (sums[:, 1] == count - 1).all()
        for wrong in (np.nan, np.inf, -np.inf):
            values = numbers.copy()
            values[7] = wrong
            sums = backend.host(grid.stream(2.0, PLAIN, backend.array(values)))
            assert np.isfinite(sums[7, 0]) and np.isnan(np.delete(sums[:, 0], 7)).all()
        values = np.zeros(count, dtype)
        assert not backend.host(grid.stream(2.0, PLAIN, backend.array(values)))[:, 0].any()
        assert not backend.host(grid.stream(0.0, PLAIN, backend.array(values))).any()
        put(backend, grid, x[:0])
        assert grid.stream(2.0, PLAIN, backend.array(values[:0])).shape == (0, 2)


def test_systems_have_the_bits_of_each_alone(backend):
    rng = np.random.default_rng(6)
    x, owner, values = rng.random((90, 3)), np.sort(rng.integers(0, 3, 90)).astype(np.int32), rng.random((90, 2))
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(3, 3, 3), systems=3, deterministic=True) as grid:
        grid.build(backend.array(x), system=backend.array(owner))
        together = backend.host(grid.stream(0.5, FUNCTION, backend.array(values)))
    for s in range(3):
        with pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4), deterministic=True) as grid:
            put(backend, grid, x[owner == s])
            alone = backend.host(grid.stream(0.5, FUNCTION, backend.array(values[owner == s])))
        np.testing.assert_array_equal(together[owner == s], alone)


def _nearest(r2, d, i, j, a, b, p, sum):
    sum[0] = max(sum[0], 1 / r2)


def _sometimes(r2, d, i, j, a, b, p, sum):
    sum[0] += 1
    if r2 < 1e-2:
        sum[0] = max(sum[0], 1)


def _passed_on(r2, d, i, j, a, b, p, sum):
    _plain(r2, d, i, j, a, b, p, sum)


def _by_itself(r2, d, i, j, a, b, p, sum):
    sum[int(sum[0])] += 1


@pytest.mark.parametrize(
    "wrong", [_nearest, _sometimes, _passed_on, _by_itself, eval("lambda r2, d, i, j, a, b, p, sum: None")]
)
def test_functions_that_do_not_only_add_are_refused(wrong):
    grid = pm.UniformGrid(1.0, shape=(4,), deterministic=True).build(np.array([0.1, 0.2, 0.9]))
    for source in (None,) if wrong.__name__ == "<lambda>" else (None, "sum[0] += 1;"):  # its text is not kept
        with pytest.raises(ValueError, match="the function has statements with sum that are not such as"):
            grid.stream(0.3, pm.PairFunction(source, wrong, 2, 1), np.ones(3))
    plain = pm.UniformGrid(1.0, shape=(4,)).build(np.array([0.1, 0.2, 0.9]))
    assert plain.stream(0.3, pm.PairFunction(None, _nearest)).round(6).ravel().tolist() == [100, 100, 25]


def _in_branches(r2, d, i, j, a, b, p, sum):
    k = 1  # an index of sum
    if r2 < 0.5: sum[k - 1] += b[0]; sum[k] -= 1  # fmt: skip  # noqa: E701, E702
    for axis in range(3):
        sum[axis * 0] += d[axis]


def test_functions_that_only_add_are_known():
    for function in (_in_branches, _weighted, _plain):
        pm.PairFunction(None, function, 4, 2, (1.5, 0.01)).check_adds(on_cpu=True)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum[0] = fmax(sum[0], 1 / r2);", "the source has statements with sum"),
        ("for (int v = 0; v < VALUES; v++) sum[0] += b[v];", "source uses VALUES, a name of the library's kernels"),
    ],
)
def test_sources_that_do_not_only_add_are_refused(backend, text, message):
    with pm.UniformGrid(1.0, shape=(4,), deterministic=True) as grid:
        put(backend, grid, np.array([0.1, 0.2, 0.9]))
        with pytest.raises(ValueError, match=message):
            grid.stream(0.3, pm.PairFunction(text, None, 2, 1), backend.array(np.ones(3)))


@pytest.mark.parametrize(
    ("dtype", "radius", "known"), [("f4", 4000.0, True), ("f4", 9000.0, False), ("f8", 9000.0, True)]
)
def test_sums_over_too_many_neighbours_are_nan(backend, dtype, radius, known):
    """In float32 fewer than 2^15: of more, sums would lose digits in silence."""
    with pm.UniformGrid(1.0, shape=(1,), deterministic=True) as grid:
        put(backend, grid, np.array([0.25, 0.75], dtype))
        sums = backend.host(grid.stream(radius, PLAIN, backend.array(np.array([1.0, 1e6], dtype))))
    others = 2 * radius
    assert (sums[:, 1] == 4 * radius).all() if known else np.isnan(sums).all()
    assert not known or abs(sums[0, 0] / (1e6 * others + others) - 1) < 1e-6


@pytest.mark.parametrize(("members", "real"), [case_for_nvrtc(8, "f4", id="eight"), case_for_nvrtc(0, "f8", id="one")])
def test_passes_compile_for_cuda(monkeypatch, members, real):
    case, opencl = Case("periodic", (4, 3, 5), "uniform", 130, real), Device.of("opencl")
    monkeypatch.setattr(sums_of_pairs, "members_of", lambda *_: members)
    with case.grid(deterministic=True) as grid:
        grid.build(opencl.array(case.positions))
        asked = kernels_of(
            monkeypatch, lambda: grid.stream(0.4, FUNCTION, opencl.array(np.ones((130, 2), real)))
        )  # fmt: skip
    passes = [(file, name, dict(defines)) for file, name, defines in asked if name in NAMES]
    assert {name for _, name, _ in passes} == NAMES and len(passes) == 4
    for file, name, defines in passes:
        assert name.encode() in cuda.compile_only(file, defines, 90, {"pair function": WEIGHTED})
