# SPDX-License-Identifier: BSD-3-Clause
"""Functions of pairs that would be taken wrongly: what they are made of, what they see, and errors in their text."""

import pickle
import re

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import Case, all_pairs
from grid_checks import put
from particlemesh.backends import source
from particlemesh.grid.queries import sums as sums_of_pairs

CASE = Case("plane", (5, 4), "wrapped", 80, "f8")


def _everything(r2, d, i, j, a, b, p, sum):
    fade = p[0] - r2
    weight = fade * fade * (a[0] + 2 * b[1])
    sum[0] += weight
    for axis in range(3):
        sum[1 + axis] += weight * d[axis]
    if i < j:
        sum[4] += fade * (2 * i + j)
        return
    sum[4] -= p[1] * fade


EVERYTHING = """
const real fade = p[0] - r2;   // as a line of comment
const real weight = fade * fade * (a[0] + 2 * b[1]);
sum[0] += weight;
for (int axis = 0; axis < 3; axis++) sum[1 + axis] += weight * d[axis];
if (i < j) { sum[4] += fade * (real)(2 * i + j); return; }
sum[4] -= p[1] * fade;
"""
WHOLE = pm.PairFunction(EVERYTHING, _everything, 5, 2, (0.36, 0.75))


@pytest.mark.parametrize(
    ("text", "adds"),
    [
        ("sum[0] += 1; if (r2 > p[0]) sum [ 1 ] -= r2;", True),
        ("sum[a[0] > 0] += b[0];", False),  # not recognised: one work-item is right, too
        ("sum[0] = fmax(sum[0], r2);", False),
        ("sum[0] += sum[1];", False),
        ("real *of = sum; of[0] = 1;", False),
        ("sum[0]++;", False),
        ("if ((sum[0] += r2) > 3) sum[1] += 1;", False),
        ("{ sum[0] += 1; } if (r2 > 1) { sum[1] += 1; }", True),
        ("", True),
    ],
)
def test_only_functions_that_add_are_shared_by_work_items(text, adds):
    assert pm.PairFunction(text, None, 2, 3, (1.0,)).only_adds is adds


def _counted(r2, d, i, j, a, b, p, sum):
    sum[0] += p[0]


def _above(r2, d, i, j, a, b, p, sum):
    sum[0] += p[0] > 1


@pytest.mark.parametrize(("members", "lanes"), [(0, 1), (0, 4), (4, 1)])
def test_comments_returns_and_branches_of_a_text_are_kept(backend, monkeypatch, members, lanes):
    monkeypatch.setattr(sums_of_pairs, "members_of", lambda *_: members)  # on GPUs
    monkeypatch.setattr(sums_of_pairs, "lanes_of", lambda *_: lanes)  # on GPUs work-items share a particle's neighbours
    # The weight falls to zero at the radius, so that rounding there does not matter.
    x, oracle = CASE.positions, all_pairs(CASE.domain, CASE.positions, 0.6)
    near = oracle.where(oracle.distance <= 0.6)
    values, (at, loss) = np.random.default_rng(8).random((80, 2)), WHOLE.parameters
    fade = at - near.distance**2
    weight = fade**2 * (values[near.i, 0] + 2 * values[near.j, 1])
    last = np.where(near.i < near.j, fade * (2 * near.i + near.j), -loss * fade)
    columns = [weight, 0 * weight, *(weight * near.vector.T), last]  # vectors of a plane are in the last two of three
    expected = np.stack([np.bincount(near.i, c, 80) for c in columns], -1)
    with CASE.grid() as grid:
        put(backend, grid, x)
        for order in ("planar", "fortran", "strided", "reversed"):
            sums = backend.host(grid.stream(0.6, WHOLE, backend.array(values, order)))
            np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_new_parameters_are_used_and_repeated_sums_are_the_same(backend):
    with CASE.grid(deterministic=True) as grid:
        put(backend, grid, CASE.positions)
        one, three, again = (
            backend.host(grid.stream(0.5, pm.PairFunction("sum[0] += p[0];", _counted, 1, 0, [w]))) for w in (1, 3, 1)
        )
        assert one.any()
        np.testing.assert_array_equal(3 * one, three)
        np.testing.assert_array_equal(one, again)
        np.testing.assert_array_equal(one[:, 0], backend.host(grid.count(0.5)))


def test_sums_are_written_to_out_of_any_strides(backend):
    values = np.random.default_rng(8).random((80, 2))
    with CASE.grid(deterministic=True) as grid:
        put(backend, grid, CASE.positions)
        expected = backend.host(grid.stream(0.6, WHOLE, backend.array(values)))
        for order in ("planar", "fortran", "strided", "reversed"):
            out = backend.array(np.full((80, 5), np.nan), order)
            assert grid.stream(0.6, WHOLE, backend.array(values), out=out) is out
            np.testing.assert_array_equal(backend.host(out), expected)
        given = backend.array(values)
        for wrong, error, message in (
            (backend.array(np.zeros((80, 4))), ValueError, r"this call writes \(80, 5\) of float64"),
            (backend.array(np.zeros((80, 5), "f4")), ValueError, "dtype float32"),
            ([[0.0] * 5] * 80, TypeError, "out is of type list"),
        ):
            with pytest.raises(error, match=message):
                grid.stream(0.6, WHOLE, given, out=wrong)


def test_parts_of_a_pair_function_are_checked_and_kept_by_copies():
    whole = pm.PairFunction(EVERYTHING, _everything, 5, 2, np.array([[1, 2], [3, 4]]))
    assert whole.parameters == (1.0, 2.0, 3.0, 4.0)
    copy = pickle.loads(pickle.dumps(whole))
    assert (copy.source, copy.function, copy.results, copy.values) == (EVERYTHING, _everything, 5, 2)
    with pytest.raises(TypeError, match="give it function"):
        pm.UniformGrid(1.0, shape=4).build(np.array([0.5, 0.6])).stream(0.2, pm.PairFunction("", None, 1))
    for wrong, error in (
        ((None, None, 1), TypeError), ((3, None, 1), TypeError), (("", 3, 1), TypeError), (("", None, 0), ValueError),
        (("", None, 65), ValueError), (("", None, 1, -1), ValueError), (("", None, 1.5), TypeError),
        (("", None, 1, 0, "x"), TypeError), (("", None, 1, 0, 1j), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            pm.PairFunction(*wrong)


def test_values_are_as_many_as_the_function_takes():
    two, none = pm.PairFunction("", None, 1, 2), pm.PairFunction("", None, 1)
    with pm.UniformGrid(1.0, shape=4) as grid:
        grid.build(np.linspace(0.1, 0.8, 7))
        for function, shape in ((two, None), (two, (7,)), (two, (6, 2)), (two, (7, 3)), (none, (7,)), (none, (7, 0))):
            with pytest.raises(ValueError, match="PairFunction of"):
                grid.stream(0.2, function, None if shape is None else np.ones(shape))


def of_text(body):
    """A pair function whose body is one expression or statement."""
    scope = {}
    exec(f"def f(r2, d, i, j, a, b, p, sum): {body}", scope)
    return scope["f"]


@pytest.mark.parametrize(
    ("source", "body", "said"),
    [("sum[3] += 1;", "sum[3] += r2", "sum[3], but results is 1"),
     ("sum[0] += a[0];", "sum[0] += a[0]", "a[0], but values is 0"),
     ("sum[0] += r2 * b [ 2 ];", "sum[0] += b[2]", "b[2], but values is 0"),
     ("const real q = p[3]; sum[0] += q;", "sum[0] += p[3]", "p[3], but the number of parameters is 1"),
     ("sum[0] += d[3];", "sum[0] += d[3]", "d[3], but the number of coordinates is 3"),
     (None, "[sum.__setitem__(k, r2) for k in range(5)]", "sum[1], but results is 1")],
)  # fmt: skip
def test_indices_beyond_what_is_there_are_named(source, body, said):
    """Compiled code would read or write foreign memory without a word."""
    for texts in [(source, None)] * (source is not None) + [(None, of_text(body))]:
        with pytest.raises(ValueError, match=re.escape(said)):
            pm.PairFunction(*texts, results=1, parameters=(1.0,))


def test_what_is_returned_is_refused_and_arrays_of_the_body_are_its_own():
    with pytest.raises(TypeError, match=r"returns a .*float.*add to sum\[0\]"):
        pm.PairFunction(None, of_text("return 1 / r2"), results=1)
    pm.PairFunction("real w[2], a[4]; a[3] = r2; /* sum[9] */ sum[0] += a[3]; // p[7]", None, results=1)


def test_a_function_for_one_processor_needs_no_place_for_the_other():
    def coulomb(r2, d, i, j, a, b, p, sum):
        sum[0] += a[0] * b[0] / r2**0.5

    assert pm.PairFunction(function=coulomb, values=1).results == 1
    assert pm.PairFunction("sum[0] += r2;").function is None
    with pytest.raises(TypeError, match="needs source, C for GPUs, or function"):
        pm.PairFunction()


def test_a_function_with_other_arguments_is_refused():
    with pytest.raises(TypeError, match=r"function takes 2 arguments; f\(r2, d, i, j, a, b, p, sum\) is needed"):
        pm.PairFunction(function=lambda r2, d: None)


OWN = """
#define MINE(x) ((x) * 2)
%: define TWICE 2
#if MINE(1) == TWICE /* a
 b */
sum[0] += MINE(r2);
#else
sum[0] += 1;
#endif"""


@pytest.mark.backends("opencl", "cuda")
def test_macros_of_a_text_end_with_it(backend):
    with CASE.grid() as grid:
        put(backend, grid, CASE.positions)
        plain, macros = (
            backend.host(grid.stream(0.5, pm.PairFunction(text, None, 1))) for text in ("sum[0] += 2 * r2;", OWN)
        )
        assert plain.any()
        # Texts with directives have a work-item for each particle, others may have several, which add in another order.
        np.testing.assert_allclose(macros, plain, rtol=20 * np.finfo(plain.dtype).eps)
        with pytest.raises(
            ValueError, match="the pair function defines LANE, which the library's kernels use: give oth"
        ):
            grid.stream(0.5, pm.PairFunction("#define LANE 2\nsum[0] += LANE;", None, 1))


@pytest.mark.parametrize("prelude", ["cuda", "opencl"])
@pytest.mark.parametrize("file", ["grid/queries/sums.c", "grid/queries/cluster_sums.c", "apps/pme/exclusions.c"])
def test_names_of_a_program_are_no_macros_of_a_text(file, prelude):
    def program(text):
        return source.program(f"backends/{prelude}.h", file, {"RESULTS": 1}, {"pair function": text})

    without = program("")
    assert program("#define MINE 2\n#undef MINE\n#define YOURS") == without.replace(
        '"pair function"\n', '"pair function"\n#define MINE 2\n#undef MINE\n#define YOURS\n#undef MINE\n#undef YOURS'
    )
    names = set(re.findall(r"\b[A-Za-z_]\w*\b", source.bare(without)))
    assert {"RESULTS", "real", "KERNEL", "sum", "i64"} <= names and len(names) > 200
    for name in sorted(names)[::7]:
        for word in ("define", "undef"):
            with pytest.raises(ValueError, match=rf"defines {name}, which the library's kernels use"):
                program(f"# {word} {name}(x) 2\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('#line 7 "x"\nsum[0] += 1;', "source has #line; only #define, #undef and conditions such as #if are allowed"),
        ("#include <math.h>", "source has #include"), ("  #  pragma unroll", "source has #pragma"),
        ("#def\\\nine A\n#err\\\nor", "source has #error"), ("/* a */ %:line 3", "source has #line"),
        ("#", "source has #;"),
        ("barrier(CLK_LOCAL_MEM_FENCE);", "source has barrier: work-items without a pair never get there"),
        ("WARP_SYNC(0);", "source has WARP_SYNC"), ("__syncthreads();", "source has __syncthreads"),
        ("sum[0] += work_group_reduce_add(r2);", "source has work_group_reduce_add"),
        ('_Pragma("unroll")', "source has _Pragma"),
        ("#if 0", "source ends within"), ("#endif\n#if 1", "source ends within"), ("#else\n", "source ends within"),
        ("sum[0] += 1; } DEVICE void f() {", "source ends within"), ("if (r2 > 1) {", "source ends within"),
        ("sum[0] += 1; /* open", "source ends within"), ("}", "source ends within"),
    ],
)  # fmt: skip
def test_what_would_change_the_kernel_around_a_text_is_refused(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        pm.PairFunction(text, None, 1)


def test_what_only_looks_like_that_is_allowed():
    for text in (
        "", "// barrier( {\nsum[0] += 1; /* } #line */", "{ if (r2 > 1) { sum[0] += 1; } }",
        "#define A {\n#define B }\nA B",
        "int barriers = 1; sum[0] += barriers;", '#ifdef A\n#if 1\n#elif 2\n#else\n#endif\n#endif',
    ):  # fmt: skip
        assert pm.PairFunction(text, None, 1).text == text


def test_parameters_are_numbers_in_the_type_of_positions(backend):
    with pytest.raises(ValueError, match="NaN is none"):
        pm.PairFunction("", _counted, parameters=[1.0, np.nan])
    for value, said in ((1e300, "not all are finite in float32: use float64 positions"), (np.inf, None)):
        function = pm.PairFunction("sum[0] += p[0] > 1;", _above, 1, 0, [value])
        for dtype in ("f4", "f8"):
            with pm.UniformGrid(1.0, shape=4) as grid:
                put(backend, grid, np.array([0.1, 0.15, 0.92], dtype))
                if said and dtype == "f4":
                    with pytest.raises(ValueError, match=said):
                        grid.stream(0.2, function)
                else:
                    assert backend.host(grid.stream(0.2, function)).ravel().tolist() == [2, 1, 1]
