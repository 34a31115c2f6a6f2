# SPDX-License-Identifier: BSD-3-Clause
"""Random calls on the CPU against the plain oracle, each made by its number: ``random_calls.run(17)`` repeats one.

A call that should work has to give what NumPy gives. One with a hostile argument has to be refused by an error that
the library itself raises. Either way arrays of the user stay as they were, and a plan or grid answers as before.
"""

import os
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

import oracle
import particlemesh as pm
from devices import Device, names
from grid_cases import all_pairs, check_answer, check_counts, entries, rounding
from particlemesh.grid.builders import METHODS as BUILDERS

SOURCE = str(Path(pm.__file__).parent)
ERRORS = (ValueError, TypeError, MemoryError, pm.MethodNotSuitable)
CPU = Device.of("cpu")
WINDOWS = ["cic", "tsc", "bspline4"]
MORE_WINDOWS = ["ngp", "m4prime", "peskin4", "bspline5", "bspline6", "kaiser_bessel4", "bspline8"]
REAL = {"f4": "f4", "f8": "f8", "c8": "f4", "c16": "f8"}


class Calls:
    """The arguments of one call, drawn one after the other."""

    def __init__(self, number, more):
        self.rng = np.random.default_rng(number)
        self.more = more  # windows and methods that take long to compile
        self.watched = []

    def pick(self, values):
        return values[self.rng.integers(len(values))]

    def chance(self, p):
        return self.rng.random() < p

    def array(self, host):
        """The array in any memory order, watched: it has to stay as it is."""
        host = np.asarray(host)
        d = host.ndim
        order = (self.rng.permutation(d).tolist(), self.rng.integers(1, 4, d).tolist(), (self.rng.random(d) < 0.3))
        array = CPU.array(host, self.pick(["planar", order, order]))
        self.watched.append((array, array.copy()))
        if self.chance(0.3):
            array.setflags(write=False)
        return array

    def box(self, d):
        size = 10 ** self.rng.uniform(-2, 2)
        matrix = np.diag(size * self.rng.uniform(0.5, 2, d))
        if d > 1 and self.chance(0.4):
            matrix = matrix + size * 0.4 * np.tril(self.rng.uniform(-1, 1, (d, d)), -1)
        return pm.Box(matrix, size * self.rng.uniform(-2, 2, d), tuple(bool(p) for p in self.rng.random(d) < 0.6))

    def positions(self, box, count, real, turns=2, corners=0.1):
        """Some on faces, where rounding chooses the image: not for ghosts and windows that jump or bend there."""
        s = self.rng.random((count, box.ndim)) * 0.998 + 0.001
        corners = self.rng.random(s.shape) < corners
        s = np.where(corners & np.array(box.periodic), self.rng.integers(0, 2, s.shape), s)
        s = s + self.rng.integers(-turns, turns + 1, s.shape) * np.array(box.periodic)
        return (s @ box.matrix + box.origin).astype(real)

    def numbers(self, shape, dtype):
        values = self.rng.normal(size=shape)
        return (values + 1j * self.rng.normal(size=shape) if dtype[0] == "c" else values).astype(dtype)


def mesh_of(call, window):
    d = call.rng.integers(1, 4)
    box, support = call.box(d), pm.Plan(pm.Mesh(4, 1.0), window).window.support
    shape, offset, ghosts = [], [], []
    for periodic in box.periodic:
        faces = not periodic and call.chance(0.5)
        shape.append(int(call.pick([1, 2, 3, 5, 8, 13])) + faces)
        offset.append(call.pick([0.0, 0.5, -0.3, 17.25]) if periodic else 0.0 if faces else 0.5)
        reach = support // 2 + 1
        ghosts.append(call.pick([(0, 0), (0, 0), (reach, reach + 1)]) if periodic else call.pick([(0, 0), (1, 2)]))
    if any(abs(o) > 1 for o, g in zip(offset, ghosts, strict=True) if g != (0, 0)):
        offset = [min(o, 0.5) for o in offset]
    return pm.Mesh(tuple(shape), box, offset=offset, ghosts=ghosts)


def batched(function, mesh, window, x, values, core):
    """An oracle's results for any batch."""
    batch = values.shape[: values.ndim - core]
    flat = values.reshape(int(np.prod(batch)), *values.shape[len(batch) :])
    result = function(mesh, window, x, flat)
    return result.reshape(*batch, *result.shape[1:])


def close(result, expected, scale, dtype):
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert result.dtype == np.dtype(dtype), (result.dtype, dtype)
    eps = 3e-4 if REAL[dtype] == "f4" else 1e-9
    assert np.abs(result - expected).max(initial=0) <= eps * max(float(scale), 1e-30), np.abs(result - expected).max()


# ---- arguments that are refused -----------------------------------------------------------------------------


def bad_positions(call, x):
    def with_one(value):
        y = x.astype(float)
        y[0, -1] = value
        return y

    return call.pick([
        lambda: with_one(np.nan), lambda: with_one(np.inf), lambda: x[..., None], lambda: np.hstack([x, x, x, x]),
        lambda: x.astype(str), lambda: x.astype(object), lambda: x.astype(complex),
        lambda: x.astype(np.float16), lambda: None, lambda: "positions", lambda: np.float64(3.0),
        lambda: np.ma.masked_array(x, x > 0), dict, lambda: x.astype("M8[s]"),
    ])()  # fmt: skip


def bad_values(call, q):
    return call.pick([
        lambda: np.concatenate([q, q[..., :1]], axis=-1), lambda: np.concatenate([q, q, q], axis=-1),
        lambda: q.astype(str), lambda: q.astype(object), lambda: q.real.astype(np.float16), lambda: None,
        lambda: "values", lambda: np.ma.masked_array(q, q == q), lambda: object(), lambda: q.astype("M8[s]"),
    ])()  # fmt: skip


BAD_OPTIONS = [
    {"method": "nope"}, {"method": 3}, {"interpolation": None}, {"threads": 0}, {"threads": -1}, {"threads": "2"},
    {"threads": 2.5}, {"dtype": "f2"}, {"dtype": "i4"}, {"dtype": "nothing"}, {"deterministic": "no"},
    {"deterministic": 1}, {"backend": "nope"}, {"backend": 7}, {"components": 0}, {"components": -3},
    {"components": 1.5}, {"components": 2**70}, {"applications": 0}, {"applications": 2**70}, {"options": {"nope": {}}},
    {"options": {"particle": {"x": 1}}}, {"options": 3}, {"order": "nope"}, {"window": "bspline99"}, {"window": None},
    {"window": 3}, {"nope": 1},
]  # fmt: skip
BAD_MESHES = [
    ((0,), {}), ((-1, 4), {}), ((1.5,), {}), ((2**40,) * 3, {}), (("3",), {}), ((), {}), (None, {}), ((4,) * 4, {}),
    ((4, 4), {"offset": np.nan}), ((4, 4), {"offset": "x"}), ((4, 4), {"ghosts": -1}), ((4, 4), {"ghosts": 1.5}),
    ((4, 4), {"ghosts": (1, 2, 3)}), ((4, 4), {"periodic": "no"}), ((4, 4), {"periodic": (True,) * 3}),
    ((4, 4), {"origin": (np.inf, 0)}), ((4, 4), {"ghosts": 2**31}),
]  # fmt: skip
BAD_BOXES = [
    0.0, -1.0, np.nan, np.inf, (1.0, 0.0), [[1.0, 2.0], [2.0, 4.0]], np.ones((2, 3)), "box", None, (1.0,) * 4, (),
    1j, [[1.0, np.nan], [0.0, 1.0]], np.ones((4, 4)), {},
]  # fmt: skip
BAD_RADII = [np.nan, -1.0, np.inf, "1", None, 1j, 1e300, np.ones((2, 2)), object()]


def refused(action, what):
    """The library refuses in words of its own: the last frame of the trace is a ``raise`` of its source."""
    try:
        action()
    except ERRORS as caught:
        error = caught
    else:
        raise AssertionError(f"{what}: taken silently")
    last = traceback.extract_tb(error.__traceback__)[-1]
    signature = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    raised_here = last.filename.startswith(SOURCE) and (last.line or "").startswith("raise")
    assert signature or raised_here, f"{what}: {error!r} by accident in {last.filename}:{last.lineno}"
    assert len(str(error).split()) >= 4, f"{what}: {error!r} is no sentence"


# ---- the calls ----------------------------------------------------------------------------------------------


def field_call(call):
    """Spreading, interpolation and gradients, at once or by a plan."""
    window = call.pick(WINDOWS + MORE_WINDOWS if call.more else WINDOWS)
    mesh = mesh_of(call, window)
    count = int(call.pick([0, 1, 2, 5, 9]))
    dtype = call.pick(["f4", "f8", "c8", "c16"])
    real = "f8" if REAL[dtype] == "f8" or call.chance(0.3) else "f4"
    smooth = window not in ("ngp", "cic", "kaiser_bessel4") and not np.any(mesh.ghosts)
    x = call.positions(mesh.box, count, real, corners=0.1 if smooth else 0.0)
    if not all(mesh.periodic):  # rounding to float32 has not left an open axis
        s = (x.astype(float) - mesh.box.origin) @ np.linalg.inv(mesh.box.matrix)
        x = x[((s > 0) & (s < 1) | np.array(mesh.periodic)).all(1)]
        count = len(x)
    batch = call.pick([(), (), (2,), (1, 2), (0,), (2, 3)])
    q, v = call.numbers(batch + (count,), dtype), call.numbers(batch + (count, mesh.ndim), dtype)
    f = call.numbers(batch + mesh.field_shape, dtype)
    options = {"window": window, "deterministic": call.chance(0.2)}
    if call.chance(0.3):
        options["threads"] = int(call.pick([1, 2, 3]))
    if REAL[dtype] == "f4" and x.dtype == np.float64:
        options["dtype"] = "float32"
    if call.chance(0.3) and not options["deterministic"]:
        options["method"] = call.pick(names("spread", "cpu") if call.more else ["auto", "colouring"])
    which = pm.Plan(mesh, window).window
    slope = np.abs(np.array(mesh.intervals)[:, None] * np.linalg.inv(mesh.box.matrix).T).max(initial=0)
    if window == "peskin4":  # its second derivative has no bound: rounding of positions to 1e-16 moves slopes by 1e-8
        slope *= 1e2
    largest = lambda a: np.abs(a).max(initial=0) * max(count, 1) * 4  # noqa: E731

    def exact(verb):
        if verb == "spread":
            return batched(oracle.spread, mesh, which, x, q, 1), largest(q)
        if verb == "spread_gradient":
            return batched(oracle.spread_gradient, mesh, which, x, v, 2), largest(v) * slope * 3
        if verb == "interpolate":
            return batched(oracle.interpolate, mesh, which, x, f, mesh.ndim), largest(f)
        return batched(oracle.gradient, mesh, which, x, f, mesh.ndim), largest(f) * slope * 3

    given = {"spread": q, "spread_gradient": v, "interpolate": f, "gradient": f}
    if call.chance(0.4):  # at once
        verb = call.pick(["spread", "interpolate", "gradient"])
        first, second = (x, given[verb]) if verb == "spread" else (given[verb], x)
        result = getattr(pm, verb)(call.array(first), call.array(second), mesh, **options)
        close(result, *exact(verb), dtype)
        if call.chance(0.5):
            return refuse_field_call(call, verb, x, given[verb], mesh, options)
        return None
    with pm.Plan(mesh, **options) as plan:
        plan.set_positions(call.array(x))
        for verb in call.pick([["spread"], ["interpolate"], list(given)]):
            result, scale = exact(verb)
            close(getattr(plan, verb)(call.array(given[verb])), result, scale, dtype)
            out = np.ones_like(CPU.array(result.astype(dtype), call.pick(["planar", "strided", "reversed", "fortran"])))
            add = call.chance(0.5) and verb.startswith("spread")
            assert getattr(plan, verb)(call.array(given[verb]), out=out, **({"accumulate": True} if add else {})) is out
            close(out, result + (1 if add else 0), scale + 1, dtype)
        before = plan.spread(q.copy()), plan.status, plan.count
        for _ in range(3):
            refuse_plan_call(call, plan, x, q, f, dtype)
        assert (plan.status, plan.count) == before[1:], "an error has changed the plan"
        close(plan.spread(q.copy()), before[0], largest(q), dtype)
    return None


def refuse_field_call(call, verb, x, values, mesh, options):
    first, second = (x, values) if verb == "spread" else (values, x)
    function, kind = getattr(pm, verb), call.rng.integers(4)
    if kind == 0 and len(x):
        bad = bad_positions(call, x)
        arguments = (bad, second) if verb == "spread" else (first, bad)
        refused(lambda: function(*arguments, mesh, **options), f"positions {bad!r}")
    elif kind == 1:
        wrong = call.pick(BAD_OPTIONS)
        refused(lambda: function(first, second, mesh, **{**options, **wrong}), f"options {wrong}")
    elif kind == 2:
        wrong = call.pick([None, "mesh", 3, mesh.shape, mesh.box])
        refused(lambda: function(first, second, wrong, **options), f"mesh {wrong!r}")
    elif len(x) and values.size:
        bad = bad_values(call, values)
        arguments = (x, bad) if verb == "spread" else (bad, x)
        refused(lambda: function(*arguments, mesh, **options), f"values {bad!r}")


def refuse_plan_call(call, plan, x, q, f, dtype):
    kind = call.rng.integers(6)
    if kind == 0 and len(x):
        bad = bad_positions(call, x)
        refused(lambda: plan.set_positions(bad), f"positions {bad!r}")
    elif kind == 1 and q.size:
        bad = bad_values(call, q)
        refused(lambda: plan.spread(bad), f"values {bad!r}")
    elif kind == 2 and f.size:
        bad = bad_values(call, f)
        refused(lambda: plan.interpolate(bad), f"field {bad!r}")
    elif kind == 3:
        shape = f.shape[: f.ndim - plan.mesh.ndim] + plan.mesh.field_shape
        read_only = np.zeros(shape, dtype)
        read_only.setflags(write=False)
        bad = call.pick([read_only, np.zeros(shape + (2,), dtype), np.zeros(shape, "i4"), np.zeros(shape, "f2"), [], 3])
        refused(lambda: plan.spread(q, out=bad), f"out {bad!r}")
    elif kind == 4:
        bad = call.pick([-1, 1.5, "many", None, 2**70])
        refused(lambda: plan.reserve(bad), f"reserve {bad!r}")
    elif kind == 5:
        bad = call.pick(["no", 1, None, np.ones(2)])
        refused(lambda: plan.spread(q, out=np.zeros(q.shape[:-1] + plan.mesh.field_shape, dtype), accumulate=bad),
                f"accumulate {bad!r}")  # fmt: skip


def construction_call(call):
    """Boxes, meshes, plans and grids of arguments that cannot be."""
    shape, options = call.pick(BAD_MESHES)
    refused(lambda: pm.Mesh(shape, (1.0,) * max(1, len(shape or ())), **options), f"Mesh({shape!r}, {options})")
    box = call.pick(BAD_BOXES)
    refused(lambda: pm.Box(box), f"Box({box!r})")
    refused(lambda: pm.Mesh((4,) * max(1, np.ndim(box)), box), f"Mesh of box {box!r}")
    wrong = call.pick(BAD_OPTIONS)
    refused(lambda: pm.Plan(pm.Mesh(4, 1.0), **wrong), f"Plan({wrong})")
    wrong = call.pick([
        {"shape": 0}, {"shape": "4"}, {"shape": (4, 4)}, {"shape": 2**31}, {"cell_size": 0.0}, {"cell_size": np.nan},
        {"cell_size": -1.0}, {"cell_size": "1"}, {}, {"shape": 4, "cell_size": 0.1}, {"shape": 4, "levels": 0},
        {"shape": 4, "levels": 99}, {"shape": 4, "method": "nope"}, {"shape": 4, "threads": 0},
        {"shape": 4, "deterministic": "no"}, {"shape": 4, "queries": 1}, {"shape": 4, "dtype": "i4"},
        {"shape": 4, "backend": "nope"}, {"shape": 4, "capacity": 3}, {"shape": 4, "periodic": "yes"},
    ])  # fmt: skip
    refused(lambda: pm.UniformGrid(1.0, **wrong), f"UniformGrid({wrong})")


def grid_of(call):
    d = call.rng.integers(1, 4)
    box, real = call.box(d), call.pick(["f4", "f8"])
    x = call.positions(box, int(call.pick([0, 1, 2, 9, 20])), real)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    return box, x, float(np.dtype(real).type(thickness * call.pick([0.0, 0.05, 0.3, 0.7, 1.3])))


def grid_call(call):
    box, x, radius = grid_of(call)
    inside = (x.astype(float) - box.origin) @ np.linalg.inv(box.matrix)
    x = x[((inside > 0) & (inside < 1) | np.array(box.periodic)).all(1)]
    builder = call.pick(BUILDERS)
    cells = tuple(int(n) for n in call.pick([1, 2, 3, 5]) * np.ones(box.ndim, int))
    thickness = (1 / np.linalg.norm(box.inverse, axis=1) / cells).min()
    radii = (call.rng.random(len(x)) * 0.49 * thickness).astype(x.dtype)
    with pm.UniformGrid(box, shape=cells, method=builder.name, threads=int(call.pick([1, 2]))) as grid:
        grid.build(call.array(x), call.array(radii))
        oracle_pairs, half = all_pairs(box, x, radius), call.chance(0.5)
        form = call.pick(["csr", "coo", "dense"])
        pairs = entries(CPU, grid.pairs(radius, half=half, format=form, quantities="ijdDS"))
        check_answer(box, x, radius, pairs, oracle_pairs, half=half)
        check_counts(grid.count(radius), len(x), oracle_pairs, radius, rounding(box, x, radius))
        points = call.positions(box, 4, x.dtype)
        near = entries(CPU, grid.neighbours(call.array(points), radius, quantities="ijdDS"))
        check_answer(box, x, radius, near, all_pairs(box, x, radius, points), points=points)
        before = grid.order.copy(), grid.status
        for _ in range(3):
            kind, wrong = call.rng.integers(6), call.pick(BAD_RADII)
            if kind == 0 and len(x):
                bad = bad_positions(call, x)
                refused(lambda bad=bad: grid.build(bad, radii), f"positions {bad!r}")
            elif kind == 1 and not (isinstance(wrong, float) and wrong == 1e300 and not any(box.periodic)):
                verb = call.pick(["pairs", "count"])
                refused(lambda verb=verb, wrong=wrong: getattr(grid, verb)(wrong), f"{verb} within {wrong!r}")
            elif kind == 2:
                k = call.pick([0, -1, 129, 1.5, "1", None, 2**70])
                refused(lambda k=k: grid.nearest(k, radius), f"nearest {k!r}")
            elif kind == 3:
                bad = call.pick(["x", "ii", None, 3, "ij "])
                refused(lambda bad=bad: grid.pairs(radius, quantities=bad), f"quantities {bad!r}")
            elif kind == 4:
                more = call.pick([{"half": "no"}, {"format": "x"}, {"order": 3}, {"check": None}, {"width": -1},
                                  {"capacity": 1.5}])  # fmt: skip
                refused(lambda more=more: grid.pairs(radius, **more), f"pairs({more})")
            elif len(x):
                bad = call.pick([radii[:-1], -1.0 - radii, radii.astype(str), np.nan * radii, radii.astype("f2"), "1"])
                refused(lambda bad=bad: grid.build(x, bad), f"radii {bad!r}")
        np.testing.assert_array_equal(grid.order, before[0])
        assert grid.status == before[1], "an error has changed the grid"


def neighbour_call(call):
    box, x, radius = grid_of(call)
    half = call.chance(0.5)
    i, j, d, vector, shift = pm.neighbour_list("ijdDS", call.array(x), box, radius, half=half)
    check_answer(box, x, radius, (i, j, shift, d, vector), all_pairs(box, x, radius), half=half)
    wrong = call.pick(BAD_RADII)
    if not (isinstance(wrong, float) and wrong == 1e300):
        refused(lambda: pm.neighbour_list("ij", x, box, wrong), f"radius {wrong!r}")
    if len(x):
        bad = bad_positions(call, x)
        refused(lambda: pm.neighbour_list("ij", bad, box, radius), f"positions {bad!r}")
    letters = call.pick(["x", "ii", None, 3])
    refused(lambda: pm.neighbour_list(letters, x, box, radius), f"letters {letters!r}")


KINDS = [field_call, field_call, field_call, grid_call, neighbour_call, construction_call]


def run(number, more=False):
    """Make one call, or several that belong together."""
    call = Calls(number, more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KINDS[number % len(KINDS)](call)
    for array, copy in call.watched:
        np.testing.assert_array_equal(array, copy, "the user's array has changed")


def paths():
    """Where a process of its own finds this file and the library."""
    return os.pathsep.join([str(Path(__file__).parent), str(Path(SOURCE).parent)])


def run_all(first, last, more=False, stop=True):
    """Make many; report those that fail, and how to repeat them."""
    failures = []
    for number in range(first, last):
        if not stop:
            sys.stderr.write(f"{number}\n")  # the last is the one that crashed
        try:
            run(number, more)
        except Exception as error:
            again = f"PYTHONPATH=src:tests/support python -c 'import random_calls; random_calls.run({number}, {more})'"
            failures.append(f"{again}\n    {type(error).__name__}: {str(error)[:600]}")
            if stop:
                raise AssertionError(failures[-1]) from error
    return failures


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:3])
    for failure in run_all(first, last, more="more" in sys.argv, stop=False):
        sys.stdout.write(f"{failure}\n")
