# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a pair function over neighbours, against all pairs with all images."""

import pickle

import numpy as np
import pytest

from clouds import BOXES, allocator, brute, cloud_of, positions
from particlemesh import Box
from particlemesh.backends import cuda
from particlemesh.backends.base import CompilationError
from particlemesh.grid.queries.pair_function import PairFunction
from particlemesh.grid.queries.sums import sums
from ptx import without_nvrtc

pytestmark = pytest.mark.backends("cuda", "opencl")

# Every argument takes part; the weight falls to zero at the radius, so that rounding there does not matter.
EVERYTHING = """
const real fade = p[0] - r2;   // as a line of comment
const real weight = fade * fade * (a[0] + 2 * b[1]);
sum[0] += weight;
for (int axis = 0; axis < 3; axis++) sum[1 + axis] += weight * d[axis];
if (i < j) { sum[4] += fade * (real)(2 * i + j); return; }
sum[4] -= p[1] * fade;
"""


def everything(r2, d, i, j, a, b, p, sum):
    fade = p[0] - r2
    weight = fade * fade * (a[0] + 2 * b[1])
    sum[0] += weight
    for axis in range(3):
        sum[1 + axis] += weight * d[axis]
    if i < j:
        sum[4] += fade * (2 * i + j)
    else:
        sum[4] -= p[1] * fade


def expected(x, box, radius, values, p):
    i, j, _, d = brute(x, box, radius)
    r2 = (d**2).sum(1)
    keep = r2 <= radius**2
    i, j, d, r2 = i[keep], j[keep], d[keep], r2[keep]
    sums = np.zeros((len(x), 5))
    fade = p[0] - r2
    weight = fade**2 * (values[i, 0] + 2 * values[j, 1])
    np.add.at(sums[:, 0], i, weight)
    for axis in range(box.ndim):
        np.add.at(sums[:, 1 + 3 - box.ndim + axis], i, weight * d[:, axis])
    np.add.at(sums[:, 4], i, np.where(i < j, fade * (2 * i + j), -p[1] * fade))
    return sums


def found(backend, x, box, shape, radius, function, values=None, order="planar", **options):
    cloud = cloud_of(backend, x, box, shape, **options)
    given = None if values is None else backend.array(values, order)
    result = sums(cloud, radius, function, given, allocate=allocator(backend.library))
    assert result.dtype == x.dtype
    return backend.host(result)


def check(backend, x, box, shape, radius, **options):
    values = np.random.default_rng(8).random((len(x), 2)).astype(x.dtype)
    p = (radius**2, 0.75)
    function = PairFunction(EVERYTHING, everything, 5, 2, p)
    sums = found(backend, x, box, shape, radius, function, values, **options)
    wanted = expected(x, box, radius, values.astype(np.float64), p)
    scale = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(sums, wanted, rtol=0, atol=scale * {4: 3e-5, 8: 1e-12}[x.dtype.itemsize])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_of_everything_a_function_sees(backend, name, dtype):
    box = BOXES[name]
    x = positions(box, 130, dtype, turns=1)
    check(backend, x, box, (4, 3, 5)[: box.ndim], 1.2)
    check(backend, x, box, (2, 1, 1)[: box.ndim], 2.1, scattered=True)


@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_of_few_particles(backend, count):
    for name in ("periodic 3-D", "open 3-D", "triclinic 2-D"):
        box = BOXES[name]
        check(backend, positions(box, count), box, (3, 2, 3)[: box.ndim], 1.5)
        check(backend, positions(box, count), box, (1, 1, 1)[: box.ndim], 4.5)


@pytest.mark.parametrize("order", ["planar", "fortran", "strided", "reversed"])
def test_values_of_any_strides(backend, order):
    box = BOXES["periodic 3-D"]
    check(backend, positions(box, 70), box, (3, 2, 3), 1.5, order=order)


def test_of_one_value_and_of_none(backend):
    box = BOXES["periodic 2-D"]
    x = positions(box, 60)
    charge = np.random.default_rng(3).normal(size=60)
    i, j, _, d = brute(x, box, 1.0)
    near = (d**2).sum(1) <= 1
    product = PairFunction("sum[0] += a[0] * b[0];", None, 1, 1)
    wanted = np.zeros(60)
    np.add.at(wanted, i[near], charge[i[near]] * charge[j[near]])
    for given in (charge, charge[:, None]):
        np.testing.assert_allclose(found(backend, x, box, (4, 3), 1.0, product, given)[:, 0], wanted, atol=1e-13)
    counts = found(backend, x, box, (4, 3), 1.0, PairFunction("sum[0] += 1;", None, 1))
    np.testing.assert_array_equal(counts[:, 0], np.bincount(i[near], minlength=60))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_particles_in_one_place_and_at_the_radius(backend, dtype):
    box = Box((4.0, 4.0, 4.0))
    x = np.tile(np.array([[0.25, 0.5, 3.75], [1.25, 0.5, 3.75]], dtype), (20, 1))
    counts = found(backend, x, box, (4, 4, 4), 1.0, PairFunction("sum[0] += 1; sum[1] += r2 == 0;", None, 2))
    np.testing.assert_array_equal(counts, np.tile([39.0, 19.0], (40, 1)))


def test_cells_of_several_sizes(backend):
    box = BOXES["mixed 3-D"]
    x = positions(box, 150)
    radii = np.random.default_rng(7).choice([0.1, 0.4, 0.9, 2.0], 150)
    check(backend, x, box, (8, 6, 10), 1.1, levels=3, radii=radii)


def test_particles_that_were_left_out_have_zeros(backend):
    box = BOXES["open 3-D"]
    x = positions(box, 40)
    x[3], x[39] = np.nan, 1e9
    counts = found(backend, x, box, (3, 3, 3), 9.0, PairFunction("sum[0] += 1;", None, 1))[:, 0]
    assert counts[[3, 39]].tolist() == [0, 0] and (np.delete(counts, [3, 39]) == 37).all()


def test_the_same_bits_for_the_same_order(backend):
    box = BOXES["triclinic"]
    cloud = cloud_of(backend, positions(box, 200, np.float32), box, (4, 3, 5))
    function = PairFunction("sum[0] += exp(-r2) * cos(d[0]) / pow(1 + r2, (real)1.5);", None, 1)
    runs = [backend.host(sums(cloud, 1.5, function, allocate=allocator(backend.library))) for _ in range(3)]
    assert runs[0].any()
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_new_parameters_are_used(backend):
    box = BOXES["periodic 3-D"]
    x = positions(box, 30)
    cloud = cloud_of(backend, x, box, (3, 2, 3))
    totals = [
        backend.host(
            sums(cloud, 1.5, PairFunction("sum[0] += p[0];", None, 1, 0, [w]), allocate=allocator(backend.library))
        )
        for w in (1.0, 3.0)
    ]
    assert totals[0].any()
    np.testing.assert_array_equal(3 * totals[0], totals[1])


def test_an_error_names_the_line_of_the_users_text(backend):
    box = BOXES["periodic 3-D"]
    wrong = PairFunction("real w = r2;\nsum[0] += w;\nsum[1] += nothing;\n", None, 2)
    # NVIDIA's OpenCL goes by lines of the whole program, whatever #line says; there the line itself must do.
    heard = backend.name == "cuda" or not backend.library.facts().get("HAS_PTX")
    with pytest.raises(CompilationError, match=r"pair function[:\"(]+3" if heard else "sum.1. .= nothing"):
        found(backend, positions(box, 5), box, (2, 2, 2), 1.0, wrong)


def test_of_any_radius(backend):
    one = PairFunction("sum[0] += 1;", None, 1)
    for dtype in (np.float32, np.float64):
        x = positions(BOXES["open 3-D"], 30, dtype)
        assert (found(backend, x, BOXES["open 3-D"], (3, 2, 2), 1e300, one) == 29).all()
        with pytest.raises(ValueError, match="radius is"):
            found(backend, x, BOXES["periodic 3-D"], (3, 2, 2), 1e10, one)


def test_only_with_a_source(backend):
    box = BOXES["periodic 3-D"]
    with pytest.raises(TypeError, match="give it source"):
        found(backend, positions(box, 5), box, (2, 2, 2), 1.0, PairFunction(None, everything, 5, 2, (1.0, 2.0)))


def test_what_a_pair_function_is_made_of():
    whole = PairFunction(EVERYTHING, everything, 5, 2, np.array([[1, 2], [3, 4]]))
    assert whole.parameters == (1.0, 2.0, 3.0, 4.0)
    copy = pickle.loads(pickle.dumps(whole))
    assert (copy.source, copy.function, copy.results, copy.values) == (EVERYTHING, everything, 5, 2)
    sums, d = np.zeros(5), np.array([0.0, 1.0, 0.5])
    whole.compiled(1.25, d, 0, 1, np.ones(2), np.ones(2), np.array(whole.parameters), sums)
    plain = np.zeros(5)
    everything(1.25, d, 0, 1, np.ones(2), np.ones(2), np.array(whole.parameters), plain)
    np.testing.assert_array_equal(sums, plain)
    again = PairFunction(None, whole.compiled, 5, 2)
    assert again.compiled is whole.compiled
    with pytest.raises(TypeError, match="give it function"):
        _ = PairFunction("", None, 1).compiled
    for wrong, error in (
        ((None, None, 1), TypeError), ((3, None, 1), TypeError), (("", 3, 1), TypeError), (("", None, 0), ValueError),
        (("", None, 65), ValueError), (("", None, 1, -1), ValueError), (("", None, 1.5), TypeError),
        (("", None, 1, 0, "x"), TypeError), (("", None, 1, 0, 1j), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            PairFunction(*wrong)


def test_values_are_as_many_as_the_function_takes():
    two, none = PairFunction("", None, 1, 2), PairFunction("", None, 1)
    two.check_values((7, 2), 7)
    none.check_values(None, 7)
    PairFunction("", None, 1, 1).check_values((7,), 7)
    for function, shape in ((two, None), (two, (7,)), (two, (6, 2)), (two, (7, 3)), (none, (7,)), (none, (7, 0))):
        with pytest.raises(ValueError, match="PairFunction of"):
            function.check_values(shape, 7)


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("double", "compute"), [(0, 80), (1, 90), (0, 100)])
@pytest.mark.parametrize("scattered", [0, 1])
def test_compiles_for_cuda(double, compute, scattered):
    defines = {
        "REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double, "KEYS_ARE_POSITIONS": 1,
        "CELLS_ARE_SCATTERED": scattered, "EXTENTS": 0, "RESULTS": 5, "VALUES": 2,
    }  # fmt: skip
    texts = {"pair function": EVERYTHING + "sum[1] += exp(-r2) * cos(d[0]) / pow(1 + r2, (real)1.5);"}
    cubin = cuda.compile_only("grid/queries/sums.c", defines, compute, texts)
    assert b"stream" in cubin and b"gather_values" in cubin
    none = {**defines, "VALUES": 0, "RESULTS": 1}
    assert b"stream" in cuda.compile_only("grid/queries/sums.c", none, compute, {"pair function": "sum[0] += r2;"})
    with pytest.raises(CompilationError, match=r"pair function\(2\)"):
        cuda.compile_only("grid/queries/sums.c", none, compute, {"pair function": "\nsum[0] += nothing;"})
