# SPDX-License-Identifier: BSD-3-Clause
"""Sizes at which indices wrap and kernels fail: none, one, primes, below the support, past 31 bits."""

import importlib.resources
import re
from pathlib import Path

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import METHODS
from particlemesh.backends import base
from particlemesh.methods.contract import Problem

SOURCE = Path(str(importlib.resources.files("particlemesh")))


class Elsewhere:
    """A backend that is only asked what it has."""

    def __init__(self, name, free=2**40):
        self.name, self._free, self.group_size, self.units = name, free, 128, 132
        self.local_bytes = 232_448

    def free_bytes(self):
        return self._free

    def facts(self):
        return {"HAS_WARP": 1, "HAS_MMA": 1}


def problem(backend, shape=(4096, 4096, 4096), count=2**33, free=2**40, dtype="float64"):
    mesh = pm.Mesh(shape, (1.0,) * len(shape))
    return Problem(mesh, pm.bspline(6), np.dtype(dtype), 4, 1, count, False, Elsewhere(backend, free))


@pytest.mark.parametrize("method", [m for methods in METHODS.values() for m in methods])
def test_guards_and_estimates_are_computed_in_python_integers(method):
    for backend in method.backends:
        huge = problem(backend)
        expected = method.scratch_bytes(huge)
        assert type(expected) is int
        assert expected >= 0
        small = method.scratch_bytes(problem(backend, shape=(8, 8, 8), count=10))
        assert expected >= small  # not wrapped round
        if method.declines(huge) is None:
            prepare, apply = method.cost(huge)
            assert prepare >= 0
            assert apply > method.cost(problem(backend, shape=(64, 64, 64), count=10**6))[1]


def test_a_mesh_counts_its_nodes_exactly():
    mesh = pm.Mesh((2**31 - 1,) * 3, (1.0, 1.0, 1.0))
    assert mesh.size == (2**31 - 1) ** 3
    with pytest.raises(ValueError, match=r"shape\[1\] is 2147483648; 1 to 2147483647 is allowed"):
        pm.Mesh((4, 2**31), (1.0, 1.0))


def test_kernels_index_fields_and_values_in_64_bits():
    # A product of an int and a stride of a struct is 64-bit when the stride is; int strides would wrap.
    text = (SOURCE / "particles" / "stencil.h").read_text()
    for struct in ("Field", "Values"):
        body = re.search(r"typedef struct \{([^}]*)\} " + struct + ";", text)[1]
        for line in body.splitlines():
            if re.search(r"stride|offset|channel|particle", line.split("//")[0]):
                assert re.match(r"\s*i64 ", line), line


def test_a_field_past_two_to_the_31_bytes_of_strides(backend):
    # The last of three batch entries starts 3 GiB behind the first: the address needs 64 bits, the memory between is
    # not touched. Backends that cannot allocate it here say so.
    gap = 3 * 2**30 // 2 // 4
    try:
        store = backend.library.empty((2 * gap + 64,), np.float32)
        first = backend.view(store, (3, 4), np.float32, 0, (4 * gap, 4))
        probe = backend.view(store, (4,), np.float32, 8 * gap, (4,))
        backend.library.clear(first)
        backend.host(probe) if backend.name != "opencl" else None
    except Exception as error:  # any backend's own out of memory
        pytest.skip(f"{backend.name} has no 3 GiB to give here: {type(error).__name__}")
    mesh = pm.Mesh((4,), 1.0)
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(np.array([0.5, 0.75], np.float32)))
        q = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
        plan.spread(backend.array(q), out=first)
        values = backend.host(plan.interpolate(first))
    np.testing.assert_array_equal(values, q)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("gap", [0, 2])
def test_clearing_an_array_leaves_what_is_around_it(backend, axes, gap):
    shape, room = (3, 4, 5), 3 * (4 + gap) * 5 + 8
    store = backend.library.upload(np.ones(room, np.float32))
    strides, step = [0, 0, 0], 4
    for axis in axes:
        strides[axis] = step
        step *= shape[axis] + (gap if axis == 1 else 0)
    view = backend.view(store, shape, np.float32, 16, tuple(strides))
    assert base.gapless(view) == (gap == 0 or axes[-1] == 1)
    backend.library.clear(view)
    assert not backend.host(view).any()
    assert backend.host(store).sum() == room - 60


def test_what_has_no_gaps_fills_its_addresses():
    rng = np.random.default_rng(3)
    seen = [0, 0]
    for _ in range(20000):
        shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, 4, rng.integers(0, 4)).tolist())
        steps = rng.permutation(len(shape)).tolist()
        strides, step = [0] * len(shape), 4
        for axis in steps:
            strides[axis] = step
            step *= shape[axis]
        if shape and rng.random() < 0.6:  # a gap, the same element again, from the end, or an axis that does not matter
            strides[rng.integers(len(shape))] = int(rng.choice([-4, 0, 4, 8, 16, 36]))
        view = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), shape, strides, writeable=False)
        places = sorted(sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(shape))
        expected = places == [4 * n for n in range(len(places))]
        assert base.gapless(view) == expected, (shape, strides)
        seen[expected] += 1
    assert min(seen) > 1000


def test_no_library_primitive_that_is_wrong_above_two_to_the_31():
    banned = re.compile(r"\b(cupy|cp|_cupy\(\))\.(cumsum|cumprod|take|searchsorted|histogram|bincount|unique)\b")
    method = re.compile(r"(?<!\bnp)\.(cumsum|cumprod)\(")
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert not banned.search(text), path
        if path.parent.name in ("spread", "interpolate", "backends", "sorting", "orders", "particles"):
            assert not method.search(text), path


def test_nothing_at_all(backend, law):
    for shape in ((4, 3, 2), (1, 1, 1)):  # other numbers of axes, and no particles, are in `test_covering.py`
        mesh = pm.Mesh(shape, (1.0,) * len(shape))
        d = len(shape)
        with law.plan(mesh, "bspline4") as plan:
            plan.set_positions(backend.array(np.zeros((0, d))))
            assert plan.count == 0
            assert plan.status[:2] == (0, 0)
            field = backend.host(plan.spread(backend.array(np.zeros(0))))
            np.testing.assert_array_equal(field, np.zeros(shape))
            np.testing.assert_array_equal(backend.host(plan.spread_gradient(backend.array(np.zeros((0, d))))), field)
            f = backend.array(np.ones(shape))
            assert plan.interpolate(f).shape == (0,)
            value, gradient = plan.value_and_gradient(f)
            assert value.shape == (0,)
            assert gradient.shape == (0, d)
            assert plan.lost(backend.array(np.zeros(0))) == 0
            plan.set_positions(backend.array(np.full((2, d), 0.5)))
            none = plan.spread(backend.array(np.zeros((0, 2))))  # a batch of none
            assert none.shape == (0, *shape)
            assert plan.interpolate(none).shape == (0, 2)
            total = backend.host(plan.spread(backend.array(np.ones(2)))).sum()
            assert total == pytest.approx(2)


@pytest.mark.parametrize("batch", [(0,), (0, 0), (2, 0), (0, 2), (3, 0, 2)])
def test_batches_of_none(backend, batch):
    with pm.Plan(pm.Mesh((4, 3), (1.0, 1.0)), "cic") as plan:
        plan.set_positions(backend.array(np.full((2, 2), 0.5)))
        field = plan.spread(backend.array(np.zeros((*batch, 2))))
        assert field.shape == (*batch, 4, 3)
        assert plan.interpolate(backend.array(np.zeros((*batch, 4, 3)))).shape == (*batch, 2)
        assert plan.gradient(field).shape == (*batch, 2, 2)


def test_few_particles(backend, law):
    mesh = pm.Mesh((6, 7, 5), (1.0, 1.0, 1.0))
    rng = np.random.default_rng(1)
    x, q, f = rng.random((257, 3)), rng.normal(size=257), rng.normal(size=mesh.shape)
    each = np.stack([oracle.spread(mesh, pm.bspline(2), x[p : p + 1], q[p : p + 1]) for p in range(257)])
    values = oracle.interpolate(mesh, pm.bspline(2), x, f)
    with law.plan(mesh, "bspline2") as plan:
        for count in (257, 256, 255, 129, 128, 127, 33, 32, 31, 2, 1, 0):  # of one plan, which keeps larger buffers
            plan.set_positions(backend.array(x[:count]))
            result = backend.host(plan.spread(backend.array(q[:count])))
            np.testing.assert_allclose(result, each[:count].sum(0), atol=1e-13)
            result = backend.host(plan.interpolate(backend.array(f)))
            np.testing.assert_allclose(result, values[:count], atol=1e-13)


@pytest.mark.parametrize("direction", METHODS)
def test_memory_that_is_not_there_declines_the_method(direction):
    from particlemesh.choosing.candidates import choose

    for method in METHODS[direction]:
        for backend in method.backends:
            needed = method.scratch_bytes(problem(backend, shape=(64, 64, 64), count=1000))
            if needed:
                short = problem(backend, shape=(64, 64, 64), count=1000, free=needed - 1)
                with pytest.raises(pm.MethodNotSuitable, match=f"needs {needed:,} bytes, {needed - 1:,} are free"):
                    choose(METHODS[direction], short, method.name)


@pytest.mark.parametrize("dtype", ["foo", 3, "int32", np.complex64, np.float16])
def test_types_that_are_not_real_are_refused_in_words(dtype):
    with pytest.raises(TypeError, match="dtype is .*; give 'float32' or 'float64'"):
        pm.Plan(pm.Mesh(4, 1.0), "cic", dtype=dtype)


def test_unknown_combinations_raise(backend):
    mesh = pm.Mesh(4, 1.0)
    with pytest.raises(ValueError, match="method is 'spam'; choose 'auto', 'measure' or one of particle"):
        pm.Plan(mesh, "cic", method="spam")
    with pytest.raises(ValueError, match="interpolation is 'colours'; choose 'auto', 'measure' or one of"):
        pm.Plan(mesh, "cic", interpolation="colours")
    with pytest.raises(ValueError, match="backend 'hip' is unknown; choose one of cpu, cuda, opencl"):
        pm.Plan(mesh, "cic", backend="hip")
    with pytest.raises(ValueError, match="'bspline17'"):
        pm.Plan(mesh, "bspline17")
    for option in ("method", "interpolation", "order"):
        for several in (np.array(["walk", "auto"]), ["auto"], {"walk"}):
            with pytest.raises(ValueError, match=f"{option} is .*; choose "):
                pm.Plan(mesh, "cic", **{option: several})
    for said in ("no", 1, None, np.array(True)):
        with pytest.raises(TypeError, match="deterministic is .*; give True or False"):
            pm.Plan(mesh, "cic", deterministic=said)
    for direction, methods in METHODS.items():
        option = "method" if direction == "spread" else "interpolation"
        for method in methods:
            reasons = []
            if backend.name not in method.backends:
                reasons.append(({}, f"runs on {', '.join(sorted(method.backends))}; name another"))
            elif not method.deterministic:
                reasons.append(({"deterministic": True}, "not deterministic; name another"))
            for more, text in reasons:
                with pm.Plan(mesh, "cic", **{option: method.name}, **more) as plan:
                    with pytest.raises(pm.MethodNotSuitable, match=f"{method.name!r} cannot.*{re.escape(text)}"):
                        plan.set_positions(backend.array(np.array([0.5])))
                        getattr(plan, direction)(backend.array(np.ones(4 if direction == "interpolate" else 1)))
