# SPDX-License-Identifier: BSD-3-Clause
"""Few particles on the CPU: located, ordered and listed in one compiled call each, with the bits of the steps."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.grid.cpu import queries
from particlemesh.sorting import cpu
from tracing import functions_entered

TRICLINIC = pm.Box([[1.0, 0.0, 0.0], [0.3, 1.1, 0.0], [-0.2, 0.1, 0.9]])
BOXES = {
    "periodic": pm.Box((1.0, 1.2, 0.9)), "open": pm.Box((1.0, 1.2, 0.9), periodic=False),
    "mixed": pm.Box((1.0, 1.2, 0.9), (0.1, -0.2, 0.0), (True, False, True)), "triclinic": TRICLINIC,
    "plane": pm.Box((1.0, 1.2)), "line": pm.Box(1.0),
}  # fmt: skip


@pytest.fixture
def step_by_step(monkeypatch):
    """Return a function that makes a call by the steps that many particles take."""

    def make(call):
        with monkeypatch.context() as patch:
            patch.setattr(queries, "_FEW", 0)
            patch.setattr(queries, "PARTICLES_PER_THREAD", 0)
            patch.setattr(cpu, "_FEW", -1)
            patch.setattr(queries, "list_few", None)
            patch.setattr(queries, "_place_few", None)
            patch.setattr(cpu, "sort_few", None)
            return call()

    return make


def cloud(box, dtype, far, count=90):
    """Positions in the box and, along periodic axes, up to ``far`` boxes beyond."""
    rng = np.random.default_rng(len(box.periodic) + far)
    fractions = rng.random((count, box.ndim)) + rng.integers(-far, far + 1, (count, box.ndim)) * np.array(box.periodic)
    return (fractions @ box.matrix + box.origin).astype(dtype)


def same(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize(("half", "far"), [(False, 0), (True, 2)])
def test_one_call_has_the_bits_of_the_steps(step_by_step, name, dtype, half, far):
    box = BOXES[name]
    x = cloud(box, dtype, far)
    for radius in (0.15, 1.4):  # smaller and larger than the box
        for letters in ("ijdDS", "ijS", "j", "dD"):

            def lists(radius=radius, letters=letters):
                listed = pm.neighbour_list(letters, x, box, radius, half=half)
                return listed if isinstance(listed, tuple) else (listed,)

            expected = step_by_step(lists)
            assert len(expected[0]) > 10
            for _ in range(2):
                same(lists(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["input", "grid"])
@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
@pytest.mark.parametrize("half", [False, True])
def test_searches_of_a_grid_have_the_bits_of_the_steps(step_by_step, dtype, order, form, half):
    x = cloud(BOXES["mixed"], dtype, 1)
    x[:, 1] = np.clip(x[:, 1], -0.2, 1.0)
    radii = np.random.default_rng(1).random(90).astype(dtype) / 5
    grid = pm.UniformGrid(BOXES["mixed"], shape=(4, 3, 5))
    for radius in (0.3, radii):

        def search(radius=radius):
            pairs = grid.build(x, radii).pairs(radius, half=half, order=order, format=form, quantities="ijdDS")
            points = grid.neighbours(x[::-1] + 0.03, 0.3, quantities="ijdDS") if hasattr(grid, "neighbours") else pairs
            return [getattr(of, field) for of in (pairs, points) for field in type(of).__slots__]

        expected = step_by_step(search)
        for _ in range(2):
            same(search(), expected)


def test_calls_of_one_form_may_bring_other_particles():
    """Nothing of earlier particles is in what calls share: box, radius and cells."""
    box = BOXES["triclinic"]
    for seed in range(4):
        x = np.random.default_rng(seed).random((90, 3)) @ box.matrix
        before = x.copy()
        i, j, shift = pm.neighbour_list("ijS", x, box, 0.3)
        distance = np.linalg.norm(x[:, None] - x, axis=2)
        expected = sum(
            int((np.linalg.norm(x[None] + np.array(s) @ box.matrix - x[:, None], axis=2) <= 0.3).sum())
            for s in np.ndindex(3, 3, 3) for s in [np.array(s) - 1]
        ) - 90  # fmt: skip
        assert len(i) == expected
        np.testing.assert_allclose(
            np.linalg.norm(x[j] - x[i] + shift @ box.matrix, axis=1) <= 0.3 + 1e-12, np.ones(len(i))
        )
        assert ((distance[i, j] <= 0.3) | shift.any(axis=1)).all()
        np.testing.assert_array_equal(x, before)


BAD = {
    "letters": (lambda x: pm.neighbour_list("ijk", x, (1.0,) * 3, 0.2), ValueError, "quantities is 'ijk'"),
    "radius": (lambda x: pm.neighbour_list("ij", x, (1.0,) * 3, -0.2), ValueError, "radius is -0.2"),
    "true": (lambda x: pm.neighbour_list("ij", x, (1.0,) * 3, True), TypeError, "radius is True"),
    "axes": (lambda x: pm.neighbour_list("ij", x[:, :2], (1.0,) * 3, 0.2), ValueError, "positions have shape"),
    "box": (lambda x: pm.neighbour_list("ij", x, (1.0, -1.0, 1.0), 0.2), ValueError, "-1"),
    "type": (lambda x: pm.neighbour_list("ij", x.astype(complex), (1.0,) * 3, 0.2), TypeError, "complex128"),
    "nan": (
        lambda x: pm.neighbour_list("ij", np.where(x == x[7], np.nan, x), (1.0,) * 3, 0.2),
        ValueError,
        "first is 7",
    ),
    "far": (lambda x: pm.neighbour_list("ij", x + 2.0**21, (1.0,) * 3, 0.2), ValueError, "outside the box"),
    "mask": (lambda x: pm.neighbour_list("ij", np.ma.array(x), (1.0,) * 3, 0.2), TypeError, "masked arrays"),
    "huge": (lambda x: pm.neighbour_list("ij", x.astype("f4"), (1.0,) * 3, 1e30), ValueError, "radius"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_between_good_calls_too(name):
    x = cloud(BOXES["periodic"], "float64", 0)
    call, error, message = BAD[name]
    messages = set()
    for _ in range(3):
        with pytest.raises(error) as caught:
            call(x)
        messages.add(str(caught.value))
        expected = pm.neighbour_list("ij", x, (1.0,) * 3, 0.2)
        same(pm.neighbour_list("ij", x, (1.0,) * 3, 0.2), expected)
    assert len(messages) == 1
    assert message in messages.pop()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_repeated_call_enters_few_functions(dtype):
    x = cloud(BOXES["periodic"], dtype, 0)
    grid = pm.UniformGrid((1.0, 1.2, 0.9), cell_size=0.2).build(x)
    calls = {
        "neighbour_list": (lambda: pm.neighbour_list("ijS", x, (1.0, 1.2, 0.9), 0.2), 75),
        "pairs": (lambda: grid.pairs(0.2), 70),
        "build": (lambda: grid.build(x), 85),
    }
    for name, (call, most) in calls.items():
        for _ in range(3):
            call()
        assert functions_entered(call) <= most, name
