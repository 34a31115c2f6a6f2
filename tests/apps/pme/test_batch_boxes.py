# SPDX-License-Identifier: BSD-3-Clause
"""Boxes of a batch that change: given on the device they stay there, given on the host they are sent once."""

import contextlib

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch
from particlemesh.backends import cuda, tapes
from particlemesh.fourier.engines import HostEngine
from pme_cases import TRICLINIC, close
from quiet import quiet

OWNERS = np.repeat(np.arange(3), [20, 11, 30]).astype(np.int32)
PAIRS = dict(exclusions=[(0, 1), (5, 7), (31, 60)], factors=[0.0, 0.5, 0.8333])
GAUSSIAN = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5", coulomb_constant=1.7)
PROLATE = dict(cutoff=1.3, bandwidth=12.0, shape=(10, 9, 12), window="bspline6", coulomb_constant=1.7)
# The last one is thinner than the cutoff, and turned around.
SHAPES = np.stack([TRICLINIC, TRICLINIC[[1, 0, 2]] * 1.05, np.diag([1.1, 3.0, 2.6])])


def systems(boxes, seed=3):
    """Fractions of boxes, and charges without a sum, of particles that are not near each other."""
    rng = np.random.default_rng(seed)
    x = np.empty((len(OWNERS), 3))
    for s, box in enumerate(boxes):
        sites = np.stack(np.meshgrid(*[np.arange(4) / 4] * 3, indexing="ij"), -1).reshape(-1, 3)
        own = s == OWNERS
        x[own] = (rng.permutation(sites)[: own.sum()] + rng.uniform(0, 0.1, (own.sum(), 3))) @ box
    q = rng.standard_normal(len(OWNERS))
    return x, q - (np.bincount(OWNERS, q) / np.bincount(OWNERS))[OWNERS]


@pytest.fixture
def copies(backend, monkeypatch):
    """Counts how often numbers are read back, which waits, and how often they are sent."""
    kind, counts, inside = type(backend.library), {"read": 0, "sent": 0, "else": 0}, []

    def counted(where, name, what):
        call = getattr(where, name)

        def wrapped(*arguments, **options):
            counts[what] += not inside
            inside.append(name)
            try:
                return call(*arguments, **options)
            finally:
                inside.pop()

        monkeypatch.setattr(where, name, wrapped)

    for name, what in (("download", "read"), ("read", "read"), ("upload", "sent")):
        counted(kind, name, what)
    for posted in (tapes.Posted, cuda.Pinned):
        counted(posted, "read", "read")
    # Without pyvkfft the host transforms OpenCL arrays. From a tape it would do so unnoticed.
    counted(HostEngine, "run", "else")
    run = HostEngine.run
    monkeypatch.setattr(HostEngine, "run", lambda engine, *given: (engine.backend.untaped(), run(engine, *given))[1])
    return counts


def strained(step):
    return SHAPES * (1 + 0.001 * step * np.arange(1, 4)[:, None, None])


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("there", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("kind", ["charges", "multipoles"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_call_with_other_boxes_waits_once_and_sends_little(backend, copies, there, kind, dtype):
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype=dtype, backend=backend.name)
    more = {} if kind == "charges" else {"dipoles": backend.array(np.ones((len(OWNERS), 3), dtype))}
    owners = backend.array(OWNERS)
    for step in range(5):
        boxes = strained(step)
        x, q = (backend.array(a.astype(dtype)) for a in systems(boxes))
        given = backend.array(boxes.astype(dtype)) if there else boxes
        copies.update(read=0, sent=0)
        batch(x, q, owners, boxes=given, **more, **PAIRS)
        if step > 2:
            assert (copies["read"], copies["sent"]) == (1, 0 if there else 1)
    copies.update(read=0, sent=0)
    batch(x, q, owners, boxes=given, **more, **PAIRS, check=False)
    assert (copies["read"], copies["sent"]) == (0, 0)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("options", [GAUSSIAN, PROLATE], ids=["gaussian", "prolate"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boxes_on_the_device_are_as_those_of_the_host(backend, options, dtype):
    batch = PMEBatch(1.2 * TRICLINIC, 3, **options, dtype=dtype, backend=backend.name)
    fresh = PMEBatch(1.2 * TRICLINIC, 3, **options)
    lengths = np.array([[3.0, 2.7, 2.8], [3.1, 2.9, 3.3], [1.0, 3.0, 2.2]])
    # Boxes shrink by half and grow again, so that what the host relies on changes.
    cases = strained(0), strained(1), 0.5 * SHAPES, lengths, strained(4)
    for boxes in cases:
        whole = boxes if boxes.ndim == 3 else boxes[:, :, None] * np.eye(3)
        x, q = systems(whole)
        x, q, boxes, whole = (a.astype(dtype) for a in (x, q, boxes, whole))
        backwards = backend.array(boxes[::-1])[::-1]  # strides may be negative
        result = batch(backend.array(x), backend.array(q), backend.array(OWNERS), boxes=backwards, fields=True, **PAIRS)
        expected = fresh(*(a.astype(float) for a in (x, q)), OWNERS, boxes=whole.astype(float), fields=True, **PAIRS)
        close(result, expected, 1e-11 if dtype == "float64" else 3e-5, backend.host)


@pytest.mark.backends("opencl", "cuda")
def test_replays_follow_boxes_past_a_bound_and_other_pairs_and_systems(backend):
    """A step is recorded at its second time, so that each bound and each set of pairs comes more often."""
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype="float64", backend=backend.name)
    fresh, rng = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN), np.random.default_rng(8)
    for turn in range(36):
        boxes = strained(turn % 3) * (0.6 if turn // 3 % 2 else 1.0)
        (x, q), pairs = systems(boxes, turn), PAIRS if turn // 6 % 2 else {}
        order = np.arange(len(OWNERS)) if pairs else rng.permutation(len(OWNERS))
        given = x[order], q[order], OWNERS[order]
        check = turn % 3 != 2  # boxes are within the bound of the call before
        there = boxes if turn > 11 else backend.array(boxes)
        result = batch(*map(backend.array, given), boxes=there, check=check, **pairs)
        close(result, fresh(*given, boxes=boxes, **pairs), 1e-10, backend.host)


@pytest.mark.backends("opencl", "cuda")
def test_multipoles_in_boxes_on_the_device(backend):
    rng = np.random.default_rng(5)
    n = len(OWNERS)
    more = dict(dipoles=rng.normal(size=(n, 3)), quadrupoles=rng.normal(size=(n, 3, 3)), widths=rng.random(n) / 10)
    more["quadrupoles"] = more["quadrupoles"] + more["quadrupoles"].swapaxes(1, 2)
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype="float64", backend=backend.name)
    fresh = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN)
    for boxes in (strained(0), strained(3)):
        x, q = systems(boxes)
        there = {name: backend.array(a) for name, a in more.items()}
        given = backend.array(x), backend.array(q), backend.array(OWNERS)
        result = batch(*given, boxes=backend.array(boxes), **there, **PAIRS)
        close(result, fresh(x, q, OWNERS, boxes=boxes, **more, **PAIRS), 1e-10, backend.host)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (np.where(np.arange(3)[:, None] == 1, 0.0, [3.0, 3.0, 3.0]), r"boxes\[1\] is \[0.0, 0.0, 0.0\]"),
        (np.where(np.arange(3)[:, None] == 2, np.nan, [3.0, 3.0, 3.0]), r"boxes\[2\] is \[nan"),
        (-np.full((3, 3), 3.0), r"boxes\[0\] is \[-3.0"),
        (np.stack([SHAPES[0], SHAPES[1][[0, 0, 1]], SHAPES[2]]), r"boxes\[1\] is \[\["),
        (SHAPES * [[[1.0]], [[50.0]], [[1.0]]], "lattice vector 0 of box 1 has length"),
    ],
    ids=["zero", "nan", "negative", "flat", "long"],
)
def test_wrong_boxes_on_the_device_are_named(backend, boxes, message):
    batch = PMEBatch(1.2 * TRICLINIC, 3, 1e-3, dtype="float64", backend=backend.name)
    x, q = map(backend.array, systems(SHAPES))
    given = x, q, backend.array(OWNERS)
    for _ in range(2):  # with and without boxes before
        with pytest.raises(ValueError, match=message):
            batch(*given, boxes=backend.array(boxes))
        before = backend.host(batch(*given, boxes=backend.array(SHAPES)).energy)
    batch(*given, boxes=backend.array(boxes), check=False)
    with pytest.raises(ValueError, match=message):
        batch.check()
    after = backend.host(batch(*given, boxes=backend.array(SHAPES)).energy)
    np.testing.assert_allclose(after, before, rtol=1e-13)  # sums of the mesh have any order


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thinner_boxes_without_a_check_are_not_finite_and_an_error_of_the_next_check(backend, dtype):
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype=dtype, backend=backend.name)
    x, q = (backend.array(a.astype(dtype)) for a in systems(SHAPES))
    given = x, q, backend.array(OWNERS)
    first = batch(*given, boxes=backend.array(SHAPES))
    one = SHAPES * np.array([1.0, 0.4, 1.0])[:, None, None]
    thin = batch(*given, boxes=backend.array(one), check=False)  # and nobody calls check
    assert np.isfinite(backend.host(thin.energy)).tolist() == [True, False, True]
    assert (np.isfinite(backend.host(thin.forces)) == (OWNERS != 1)[:, None]).all()
    again = batch(*given, boxes=backend.array(SHAPES), check=False)
    np.testing.assert_allclose(backend.host(again.energy), backend.host(first.energy), rtol=1e-5)
    batch(*given, boxes=backend.array(1.1 * SHAPES), check=False)
    batch.check()
    batch(*given, boxes=backend.array(0.4 * SHAPES), check=False)
    with pytest.raises(ValueError, match="boxes are smaller than those of the last call with check=True"):
        batch.check()


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(("dtype", "factors"), [("float64", [1e-9, 1.0, 1.0]), ("float32", [1.0, 1e37, 1.0])])
def test_boxes_beyond_what_is_possible_leave_later_ones_as_they_are(backend, dtype, factors):
    """Their bounds are those that the next call begins with: it fails by them, and begins anew."""
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype=dtype, backend=backend.name)
    x, q = (backend.array(a.astype(dtype)) for a in systems(SHAPES))
    given = x, q, backend.array(OWNERS)
    good, bad = (backend.array((SHAPES * np.reshape(f, (-1, 1, 1))).astype(dtype)) for f in ([1.0] * 3, factors))
    expected = backend.host(batch(*given, boxes=good).energy)
    for check in (True, False):
        with contextlib.suppress(ValueError):
            batch(*given, boxes=bad, check=check)
            batch.check()
        np.testing.assert_array_equal(backend.host(batch(*given, boxes=good).energy), expected)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("boxes", [np.ones((2, 3)), np.ones((3, 2)), np.ones((3, 3), complex)])
def test_arrays_on_the_device_that_are_no_boxes(backend, boxes):
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype="float64", backend=backend.name)
    x, q = map(backend.array, systems(SHAPES))
    with pytest.raises(ValueError, match=r"boxes has shape .* and dtype"):
        batch(x, q, backend.array(OWNERS), boxes=backend.array(boxes))


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
def test_a_step_is_made_once_for_particles_that_have_left_the_box(backend, many):
    x, q = systems(np.stack([TRICLINIC] * 3))
    options = dict(**GAUSSIAN, dtype="float64", backend=backend.name)
    call = PMEBatch(TRICLINIC, 3, **options) if many else PME(TRICLINIC, **options)
    given = [q, OWNERS] if many else [q]
    for _ in range(4):
        call(*map(backend.array, [x + TRICLINIC[1], *given]))
    assert call._core.clean  # else a step is made again, with checks that wait


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reserved_calls_with_other_boxes_allocate_nothing_and_never_wait(backend, dtype):
    batch = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN, dtype=dtype, backend=backend.name).reserve(len(OWNERS))
    x, q = (backend.array(a.astype(dtype)) for a in systems(SHAPES))
    first, second = (backend.array(strained(step).astype(dtype)) for step in (0, 1))
    owners = backend.array(OWNERS)
    out = batch(x, q, owners, boxes=first, **PAIRS)
    batch(x, q, owners, boxes=first, **PAIRS, out=out, check=False)
    with quiet(backend):
        for boxes in (second, first, second):
            batch(x, q, owners, boxes=boxes, **PAIRS, out=out, check=False)
    batch(x, q, owners, boxes=second, **PAIRS, out=out, check=False)
    batch.check()
    expected = PMEBatch(1.2 * TRICLINIC, 3, **GAUSSIAN)(
        *(backend.host(a).astype(float) for a in (x, q)), OWNERS, boxes=backend.host(second), **PAIRS
    )
    close(out, expected, 1e-11 if dtype == "float64" else 3e-5, backend.host)
