# SPDX-License-Identifier: BSD-3-Clause
"""Lists that are kept while nothing has moved by more than half of a skin: always those of a fresh search."""

import functools
from typing import NamedTuple

import numpy as np
import pytest

import particlemesh as pm

SKEWED = np.array([[2.0, 0.0, 0.0], [0.5, 1.75, 0.0], [-0.25, 0.375, 1.5]])


class Walk(NamedTuple):
    """Systems whose particles walk at random."""

    periodic: object = True
    lattice: object = (2.0, 1.7, 1.4)
    systems: int = 0  # 0: one, without indices
    boxes: bool = False
    radii: bool = False
    half: bool = False
    real: str = "f8"


WALKS = {
    "periodic": Walk(), "half": Walk(half=True), "open": Walk(periodic=False), "mixed": Walk((True, False, True)),
    "triclinic": Walk(lattice=SKEWED), "triclinic mixed": Walk((False, True, True), SKEWED, half=True),
    "float32": Walk(real="f4"), "plane": Walk((True, False), (2.0, 1.7)), "line": Walk(True, (3.0,)),
    "radii": Walk(radii=True), "one box": Walk(systems=5), "systems": Walk(systems=5, boxes=True, half=True),
    "open systems": Walk(False, systems=5, radii=True), "small": Walk(lattice=(0.5, 0.6, 0.7)),
    "triclinic systems": Walk((False, True, True), SKEWED, systems=5, boxes=True),
    "axes of systems": Walk(np.arange(15).reshape(5, 3) % 4 > 0, systems=5, boxes=True),
}  # fmt: skip
RADIUS, SKIN, EMPTY = 0.4, 0.12, 3


class Walkers:
    """The particles of a walk, and the arguments of both searches."""

    def __init__(self, walk, count=90, seed=1):
        self.walk, self.rng = walk, np.random.default_rng(seed)
        self.real = np.dtype(walk.real).type
        box = np.array(walk.lattice, float)
        self.rows = np.diag(box) if box.ndim == 1 else box
        self.d = len(self.rows)
        self.options = {"half": walk.half, "periodic": walk.periodic}
        self.system = np.zeros(count, int)
        if walk.systems:
            self.system = self.rng.integers(0, walk.systems, count)
            self.system[self.system == EMPTY] = 0
            self.options["system"] = self.system
        self.boxes = np.broadcast_to(self.rows, (max(walk.systems, 1), self.d, self.d))
        if walk.boxes:
            self.boxes = self.boxes * self.rng.uniform(0.8, 1.2, (walk.systems, 1, 1))
        self.x = np.einsum("nd,nde->ne", self.rng.random((count, self.d)), self.boxes[self.system]).astype(self.real)
        self.radius = RADIUS
        if walk.radii:
            self.radius = self.rng.uniform(0.1, 0.25, count).astype(self.real)
        self.periodic = np.broadcast_to(walk.periodic, (len(self.boxes), self.d))

    @property
    def given(self):
        return {"boxes": self.boxes} if self.walk.boxes else {}

    def kept(self, letters="ijSdD", skin=SKIN, **options):
        return pm.SkinList(letters, self.rows, self.radius, skin, **self.options, **self.given, **options)

    def fresh(self, letters="ijSdD"):
        return pm.neighbour_list(letters, self.x, self.rows, self.radius, **self.options, **self.given)

    def step(self, length, who=slice(None)):
        """Move particles, and put some into other images."""
        self.x[who] += self.rng.normal(0, length, self.x[who].shape).astype(self.real)
        turns = self.rng.integers(-2, 3, self.x.shape) * self.periodic[self.system]
        turns[self.rng.random(len(turns)) < 0.8] = 0
        self.x += np.einsum("nd,nde->ne", turns, self.boxes[self.system]).astype(self.real)


def ordered(i, j, shift, *rest):
    order = np.lexsort((*shift.T, j, i))
    return [array[order] for array in (i, j, shift, *rest)]


def check_equal(kept, fresh, real):
    assert all(a.dtype == b.dtype for a, b in zip(kept, fresh, strict=True))
    kept, fresh = ordered(*kept), ordered(*fresh)
    for a, b in zip(kept[:3], fresh[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(kept[3:], fresh[3:], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=100 * np.finfo(real).eps)


class Referee:
    """What brute force says about who has moved too far: particles and lattice points compared in float64."""

    def __init__(self, walkers, skin=SKIN):
        self.walkers, self.skin, self.before = walkers, skin, walkers.x.astype(float)

    def moved(self):
        w = self.walkers
        move = w.x.astype(float) - self.before
        # The nearest image, among all those around the one by fractions.
        lengths = []
        turns = np.rint(np.einsum("nd,nde->ne", move, np.linalg.inv(w.boxes)[w.system])) * w.periodic[w.system]
        for image in np.stack(np.meshgrid(*[[-1, 0, 1]] * w.d), -1).reshape(-1, w.d):
            away = turns + image * w.periodic[w.system]
            lengths.append(np.linalg.norm(move - np.einsum("nd,nde->ne", away, w.boxes[w.system]), axis=1))
        far = np.min(lengths, 0) > self.skin / 2
        systems = np.zeros(len(w.boxes), bool)
        systems[w.system[far]] = True
        chosen = systems[w.system]
        self.before[chosen] = w.x[chosen]
        return systems


@pytest.mark.parametrize("name", WALKS)
def test_every_call_equals_a_fresh_list(name):
    walkers = Walkers(WALKS[name])
    kept, referee = walkers.kept(), Referee(walkers)
    check_equal(kept(walkers.x), walkers.fresh(), walkers.real)
    assert kept.rebuilt.all()
    searches = np.ones(len(walkers.boxes), int)
    for step in range(12):
        # One system walks farther than the others.
        walkers.step(0.012, slice(None) if step % 3 else walkers.system == 1)
        check_equal(kept(walkers.x), walkers.fresh(), walkers.real)
        moved = referee.moved()
        np.testing.assert_array_equal(kept.rebuilt, moved)
        searches += moved
    np.testing.assert_array_equal(kept.rebuilds, searches)
    assert searches.max() < 13, "nothing was kept"


@pytest.mark.parametrize("exact", [True, False])
def test_letters_are_those_of_a_list(exact):
    walkers = Walkers(WALKS["systems"])
    kept = walkers.kept("nsDdSji", exact=exact)
    kept(walkers.x)
    walkers.step(0.002)
    n, s, vector, d, shift, j, i = kept(walkers.x)
    assert not kept.rebuilt.any()
    np.testing.assert_array_equal(n, np.bincount(i, minlength=len(n)))
    np.testing.assert_array_equal(s, np.concatenate([[0], np.cumsum(n)]))
    assert (n.dtype, s.dtype) == (np.int32, np.int64)
    within = d <= RADIUS
    assert within.all() == exact
    check_equal([a[within] for a in (i, j, shift, d, vector)], walkers.fresh(), walkers.real)


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("skin", [0.5, 0.3])
def test_half_of_the_skin_is_the_limit_to_the_last_digit(real, skin):
    real = np.dtype(real).type
    half = real(skin / 2)
    kept = pm.SkinList("ij", (8.0, 8.0), 0.5, skin)
    x = np.zeros((2, 2), real)
    kept(x)
    for place, moved in ((np.nextafter(half, real(0)), False), (half, False), (np.nextafter(half, real(1)), True)):
        y = x.copy()
        y[1, 0] = place
        kept(y)
        assert kept.rebuilt == [moved]


@functools.cache
def _stretched(kind):
    rng = np.random.default_rng(5)
    stretch = np.eye(3) + 0.01 * rng.normal(size=(3, 3))
    return {"wider": 1.01 * np.eye(3), "narrower": 0.99 * np.eye(3), "sheared": stretch, "much": 0.7 * np.eye(3)}[kind]


@pytest.mark.parametrize("kind", ["wider", "narrower", "sheared", "much"])
@pytest.mark.parametrize("name", ["periodic", "triclinic", "triclinic mixed", "plane", "radii", "triclinic systems"])
def test_changed_boxes_shorten_the_way_or_search_again(name, kind):
    walkers = Walkers(WALKS[name])
    kept = walkers.kept()
    kept(walkers.x)
    original, base, places = walkers.boxes, walkers.rows, walkers.x.copy()
    stretch, calls = _stretched(kind)[: walkers.d, : walkers.d], 0
    for step in range(6):  # particles move with the box, and a little beside
        share = min(step, 3) / 3
        now = np.eye(walkers.d) * (1 - share) + stretch * share
        walkers.boxes, walkers.rows = original @ now, base @ now
        walkers.x = places @ now
        walkers.step(0.003)
        box = {"boxes": walkers.boxes} if walkers.walk.boxes else {"box": walkers.rows}
        check_equal(kept(walkers.x, **box), walkers.fresh(), walkers.real)
        calls += kept.rebuilt.sum()
    occupied = len(np.unique(walkers.system))
    assert calls >= occupied if kind == "much" else calls <= 3 * occupied


def test_a_stretched_box_keeps_a_list_as_long_as_the_rule_says():
    # Radius 0.4 and skin 0.2: in a box of 0.9 of the edges a particle may go (0.9 * 0.6 - 0.4) / 2 = 0.07.
    x = np.array([[0.2, 0.2], [0.6, 0.2]])
    for edge, away, moved in ((0.9, 0.069, False), (0.9, 0.071, True), (1.1, 0.099, False), (0.66, 0.0, True)):
        kept = pm.SkinList("ij", (2.0, 2.0), 0.4, 0.2)
        kept(x)
        kept(edge * x + [[0.0, away], [0.0, 0.0]], box=(2 * edge, 2 * edge))
        assert kept.rebuilt == [moved], (edge, away)
        kept(edge * x + [[0.0, away], [0.0, 0.0]])  # the box stays
        assert not kept.rebuilt


def test_lattices_keep_the_pairs_at_the_radius():
    x = np.stack(np.meshgrid(*[0.25 * np.arange(4)] * 3), -1).reshape(-1, 3)
    kept = pm.SkinList("n", (1.0, 1.0, 1.0), 0.25, 0.1)
    assert (kept(x) == 6).all()
    assert (kept(x + 1e-3) <= 6).all()
    assert (kept(x) == 6).all()
    assert kept.rebuilds == [1]


def test_no_particles_and_one():
    for x in (np.zeros((0, 3)), np.full((1, 3), 0.5)):
        kept = pm.SkinList("ijS", (1.0, 1.0, 1.0), 0.3, 0.1)
        for _ in range(2):
            i, j, shift = kept(x)
            assert i.shape == j.shape == (0,)
            assert shift.shape == (0, 3)
    empty = pm.SkinList("i", (1.0, 1.0), 0.3, 0.1, system=np.zeros(0, int), boxes=np.ones((2, 2)))
    assert empty(np.zeros((0, 2))).size == 0


X = np.random.default_rng(3).random((20, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda kept: kept(X[:19]), "make another list for other particles"),
        (lambda kept: kept(X.astype("f4")), "make another list for other particles"),
        (lambda kept: kept(np.where(np.arange(20)[:, None] == 7, np.nan, X)), "the first is 7"),
        (lambda kept: kept(X, boxes=np.ones((2, 3))), "no systems"),
        (lambda kept: kept(X, box=(1.0, 1.0)), "box has 2 axes"),
    ],
)
def test_errors_say_what_to_do_and_change_nothing(call, words):
    kept = pm.SkinList("ijSdD", (1.0, 1.0, 1.0), 0.3, 0.1)
    before = kept(X)
    with pytest.raises((ValueError, TypeError), match=words):
        call(kept)
    after = kept(X)
    assert not kept.rebuilt.any()
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("ijx", (1.0,), 0.3, 0.1), {}, "letters of"),
        (("ij", (1.0,), 0.3, -0.1), {}, "at least zero"),
        (("ij", (1.0,), 0.3, 0.1), {"boxes": np.ones((2, 1))}, "but not system"),
        (("ij", (1.0,), 0.3, 0.1), {"exact": 1}, "exact"),
    ],
)
def test_arguments_are_checked(arguments, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        pm.SkinList(*arguments, **options)


@pytest.mark.parametrize("name", ["periodic", "triclinic systems", "plane"])
def test_torch_differentiates_kept_distances(name):
    torch = pytest.importorskip("torch")
    walkers = Walkers(WALKS[name])
    kept = walkers.kept("ijSdD")
    kept(walkers.x)
    walkers.step(0.003)
    boxed = {"boxes": walkers.boxes} if walkers.walk.boxes else {"box": walkers.rows}
    slopes = []
    for search in ("kept", "fresh"):
        x = torch.tensor(walkers.x, requires_grad=True)
        key, numbers = next(iter(boxed.items()))
        lattice = torch.tensor(np.array(numbers), requires_grad=True)
        if search == "kept":
            answer = kept(x, **{key: lattice})
        else:
            given = (lattice,) if key == "box" else (walkers.rows,)
            options = {"boxes": lattice} if key == "boxes" else {}
            answer = pm.neighbour_list("ijSdD", x, *given, walkers.radius, **walkers.options, **options)
        *indices, d, vector = answer
        ((d**2).sum() + (vector**3).sum() + 1 / (1 + d).sum()).backward()
        slopes.append((x.grad.numpy(), lattice.grad.numpy()))
        check_equal([a.detach().numpy() for a in (*indices, d, vector)], walkers.fresh(), walkers.real)
    assert not kept.rebuilt.any()
    for a, b in zip(*slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("name", ["mixed", "triclinic systems", "radii", "line", "float32"])
def test_devices_keep_lists(backend, name):
    walkers = Walkers(WALKS[name])
    kept, referee = walkers.kept(), Referee(walkers)
    kept(backend.array(walkers.x))
    for step in range(6):
        walkers.step(0.012, walkers.system == step % 2)
        answer = [backend.host(a) for a in kept(backend.array(walkers.x))]
        check_equal(answer, walkers.fresh(), walkers.real)
        moved = referee.moved()
        assert kept.rebuilt.all() if moved.any() else not kept.rebuilt.any()
        if moved.any():
            referee.before = walkers.x.astype(float)


def of_tables(n, j, *tables):
    """The rows of tables as a list."""
    i = np.repeat(np.arange(len(n)), n)
    filled = np.arange(j.shape[1]) < n[:, None]
    assert (j[~filled] == -1).all()
    return i.astype(np.int32), j[filled], *(table[filled] for table in tables)


@pytest.mark.parametrize("name", ["half", "triclinic", "systems", "one box", "float32", "plane"])
def test_rows_of_one_width_are_decided_on_the_device(backend, name):
    walkers = Walkers(WALKS[name])
    walkers.x[:, ~walkers.periodic[0]] = np.clip(walkers.x[:, ~walkers.periodic[0]], 0.3, 1.2)
    systems = walkers.walk.systems or None
    box = pm.Box(walkers.rows, periodic=walkers.walk.periodic)
    grid = pm.UniformGrid(box, cell_size=RADIUS + SKIN, systems=systems)
    if backend.name != "cpu":
        grid.build(backend.array(walkers.x), **({"system": backend.array(walkers.system)} if systems else {}))
    system = {"system": walkers.system} if systems else {}
    kept = pm.SkinList("njSdD", grid, RADIUS, SKIN, half=walkers.walk.half, width=60, **system, **walkers.given)
    kept(backend.array(walkers.x))
    referee, searches = Referee(walkers), np.ones(len(walkers.boxes), int)
    for step in range(6):
        walkers.step(0.012, walkers.system == step % 2)
        tables = [backend.host(a) for a in kept(backend.array(walkers.x))]
        check_equal(of_tables(*tables), walkers.fresh(), walkers.real)
        moved = referee.moved()
        np.testing.assert_array_equal(backend.host(kept.rebuilt), moved)
        searches += moved
    np.testing.assert_array_equal(backend.host(kept.rebuilds), searches)
    kept.check()


def test_rows_that_are_too_long_are_told(backend):
    grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.4)
    if backend.name != "cpu":
        grid.build(backend.array(X))
    kept = pm.SkinList("j", grid, 0.35, 0.05, width=2)
    with pytest.raises(OverflowError, match="width="):
        kept(backend.array(X))
        kept.check()


@pytest.mark.parametrize("name", ["periodic", "triclinic systems"])
def test_jax_differentiates_kept_distances(name):
    jax = pytest.importorskip("jax")
    lists = pytest.importorskip("particlemesh.autograd.jax")
    walkers, room = Walkers(WALKS[name]), 4000
    key, lattice = ("boxes", walkers.boxes) if walkers.walk.boxes else ("box", walkers.rows)
    kept = walkers.kept("dD")

    def total(answer):
        d, vector, number = answer
        there = jax.numpy.arange(room) < number
        return (jax.numpy.where(there, d, 0) ** 2).sum() + (vector**3).sum()

    def of_kept(x, lattice):
        return total(lists.kept_list(kept, x, **{key: lattice}, capacity=room))

    def of_fresh(x, lattice):
        given, options = (walkers.rows, {"boxes": lattice}) if key == "boxes" else (lattice, {})
        return total(lists.neighbour_list("dD", x, given, walkers.radius, **walkers.options, **options, capacity=room))

    slope, fresh = (jax.jit(jax.grad(function, (0, 1))) for function in (of_kept, of_fresh))
    arrays = jax.numpy.asarray(walkers.x), jax.numpy.asarray(lattice)
    for _ in range(2):
        for a, b in zip(slope(*arrays), fresh(*arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        walkers.x += walkers.rng.normal(0, 0.001, walkers.x.shape)
        arrays = jax.numpy.asarray(walkers.x), arrays[1]
    assert not kept.rebuilt.any()
    if key == "box":
        with pytest.raises(TypeError, match="give capacity"):
            jax.jit(lambda x: lists.kept_list(kept, x))(arrays[0])
