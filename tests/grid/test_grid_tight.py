# SPDX-License-Identifier: BSD-3-Clause
"""Overlaps from tight lists, and the lists themselves, against NumPy."""

import numpy as np
import pytest

from clouds import BOXES, allocator, brute, cells_of, coordinates, positions, turns_of
from particlemesh import Box
from particlemesh.backends import cuda
from particlemesh.grid.queries.cloud import reach_record
from particlemesh.grid.queries.overlaps import overlaps_of_lists, too_wide
from particlemesh.grid.storage import TightLists
from ptx import without_nvrtc

pytestmark = pytest.mark.backends("cuda", "opencl")
BIT = (4, 2, 1)


class Built:
    """Tight lists by the kernel, on a device."""

    def __init__(self, backend, x, box, shape, half):
        self.backend, self.library = backend, backend.library
        self.cells = cells_of(box, shape, x.dtype)
        self.axes = 1 if half.ndim == 1 else 3
        missing = np.zeros((len(x), 3 - box.ndim), x.dtype)
        self.extents = backend.array(half if self.axes == 1 else np.hstack([missing, half]).astype(x.dtype))
        items = self.cells.keys(coordinates(backend, x, box), self.extents, self.axes)
        self.count = len(x)
        self.status = backend.array(np.zeros(8, np.uint64))
        heads = backend.array(np.zeros(self.cells.count, np.uint32))
        following = self.library.empty((max(8 * self.count, 1),), np.uint32)
        bounds = self.library.empty((max(self.count, 1), 4), x.dtype)
        turns = self.library.empty((max(self.count, 1),), np.uint64)
        if self.count:
            run = self.library.kernel("grid/builders/linked_list_tight.c", "linked_list_tight", items.defines)
            run(
                self.count, *items.arrays, self.status, heads, following, bounds, turns, self.count, *items.records,
                reach_record(self.cells),
            )  # fmt: skip
        self.lists = TightLists(heads, following, 8, BIT[-box.ndim :], bounds, turns)

    def overlaps(self, quantities="ijdDS", shape=None):
        pairs = overlaps_of_lists(
            self.library, self.cells, self.count, self.lists, self.status, self.extents if self.axes == 3 else None,
            self.axes, shape=shape, quantities=quantities, allocate_scratch=allocator(self.library),
        )  # fmt: skip
        fields = (pairs.i, pairs.j, pairs.shift, pairs.distance, pairs.vector)
        return [None if f is None else self.backend.host(f) for f in fields]

    def entries(self):
        """For each cell, its entries as (particle, mask)."""
        heads, following = self.backend.host(self.lists.heads), self.backend.host(self.lists.next)
        found = []
        for head in heads:
            own, link = [], int(head)
            while link:
                own.append(divmod(link - 1, 8))
                link = int(following[link - 1])
            found.append(own)
        return found


def reaches(half, box):
    """How far each particle reaches along each axis, in fractions."""
    if half.ndim == 1:
        return half[:, None].astype(float) * np.linalg.norm(box.inverse, axis=1)
    return half.astype(float) @ np.abs(box.inverse).T


def touched(x, box, shape, half):
    """The (particle, mask) of each cell, by the rules in tight.h."""
    s = (x.astype(float) - box.origin) @ box.inverse.T
    s -= turns_of(x, box)
    reach = reaches(half, box)
    cells = [[] for _ in range(np.prod(shape))]
    for i in range(len(x)):
        spans = []
        for a in range(box.ndim):
            low = int(np.floor((s[i, a] - reach[i, a]) * shape[a]))
            high = int(np.floor((s[i, a] + reach[i, a]) * shape[a]))
            if not box.periodic[a]:
                low, high = (min(max(c, 0), shape[a] - 1) for c in (low, high))
            elif shape[a] == 1:
                low, high = (-1, 0) if s[i, a] < 0.5 else (0, 1)
            spans.append([(low % shape[a], 0)] + [((low + 1) % shape[a], 1)] * (high > low))
        for combination in np.ndindex(*map(len, spans)):
            cell = mask = 0
            for a, n in enumerate(combination):
                along, bit = spans[a][n]
                cell = cell * shape[a] + along
                mask |= bit * BIT[3 - box.ndim + a]
            cells[cell].append((i, mask))
    return cells


def expected(x, box, half, shape=None):
    """Rows of i, j, S of what overlaps for certain, and of what may: float64 decides all but what touches."""
    boxes = half.ndim == 2 or shape == "box"
    half = np.broadcast_to(half[:, None] if half.ndim == 1 else half, (len(x), box.ndim)).astype(float)
    i, j, s, d = brute(x, box, 2 * np.sqrt((half.max(initial=0) ** 2) * box.ndim) + 1e-3)
    forward = (i < j) | ((i == j) & np.array([tuple(row) > (0,) * box.ndim for row in s], bool).reshape(len(s)))
    i, j, s, d = i[forward], j[forward], s[forward], d[forward]
    both = half[i] + half[j]
    if boxes:
        depth = (both - np.abs(d)).min(1, initial=np.inf)
    else:
        depth = both[:, 0] - np.sqrt((d**2).sum(1))
    slack = 20 * np.finfo(x.dtype).eps * (np.abs(box.matrix).sum() + np.abs(box.origin).sum())
    rows = np.column_stack([i, j, s]).astype(int)
    return {tuple(r) for r in rows[depth > slack]}, {tuple(r) for r in rows[depth > -slack]}


def check(backend, x, box, shape, half, as_shape=None):
    built = Built(backend, x, box, shape, half)
    assert not backend.host(built.status)[[0, 1, 3, 6, 7]].any()
    i, j, s, d, v = built.overlaps(shape=as_shape)
    assert i.dtype == j.dtype == s.dtype == np.int32 and d.dtype == v.dtype == x.dtype
    assert s.shape == v.shape == (len(i), box.ndim)
    rows = [tuple(r) for r in np.column_stack([i, j, s]).tolist()]
    sure, possible = expected(x, box, half, as_shape)
    assert len(set(rows)) == len(rows), "a pair came twice"
    assert sure <= set(rows) <= possible
    assert (np.diff(i) >= 0).all()
    far = x.astype(float)
    wanted = far[j] - far[i] + s @ box.matrix
    scale = np.abs(far).max(initial=1) * {4: 1e-6, 8: 1e-14}[x.dtype.itemsize]
    np.testing.assert_allclose(v, wanted, rtol=0, atol=scale)
    np.testing.assert_allclose(d, np.sqrt((wanted**2).sum(1)), rtol=0, atol=2 * scale)
    return built, len(rows)


def widest(box, shape):
    """The largest radius that cells can hold."""
    return 0.5 * min(1 / np.linalg.norm(row) / n for row, n in zip(box.inverse, shape, strict=True))


SHAPES = [(4, 3, 5), (2, 2, 2), (1, 1, 1), (1, 2, 3), (3, 1, 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_spheres(backend, name, dtype):
    box = BOXES[name]
    rng = np.random.default_rng(2)
    for n, shape in enumerate(SHAPES):
        shape = shape[-box.ndim :]
        x = positions(box, (120, 60, 25, 60, 60)[n], dtype, seed=n, turns=n % 3)
        radii = (widest(box, shape) * rng.random(len(x)) ** 0.5).astype(dtype)
        _, found = check(backend, x, box, shape, radii)
        assert found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_boxes(backend, name, dtype):
    box = BOXES[name]
    rng = np.random.default_rng(3)
    for n, shape in enumerate(SHAPES):
        shape = shape[-box.ndim :]
        x = positions(box, (120, 60, 25, 60, 60)[n], dtype, seed=10 + n, turns=n % 2)
        half = rng.random((len(x), box.ndim))
        half *= (0.5 * rng.random((len(x), 1)) ** 0.3) / (reaches(half, box) * np.array(shape)).max(1, keepdims=True)
        check(backend, x, box, shape, half.astype(dtype))


def test_cubes_of_radii(backend):
    box = BOXES["mixed 3-D"]
    x = positions(box, 100)
    radii = widest(box, (4, 3, 5)) * np.random.default_rng(4).random(100)
    _, cubes = check(backend, x, box, (4, 3, 5), radii, "box")
    _, spheres = check(backend, x, box, (4, 3, 5), radii, "sphere")
    assert cubes > spheres > 0


@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_few_particles(backend, count):
    for name in ("periodic 3-D", "open 3-D", "triclinic", "periodic 2-D"):
        box = BOXES[name]
        for shape in ((3, 2, 4), (1, 1, 1)):
            shape = shape[: box.ndim]
            x = positions(box, count)
            check(backend, x, box, shape, np.full(count, widest(box, shape)))


def test_all_in_one_cell_and_in_one_place(backend):
    box = BOXES["periodic 3-D"]
    rng = np.random.default_rng(5)
    near = box.origin + 1.2 + 0.1 * rng.random((80, 3))
    check(backend, near, box, (4, 3, 5), np.full(80, 0.03))
    same = np.tile(box.origin, (30, 1))
    _, found = check(backend, same, box, (4, 3, 5), np.zeros(30))
    assert found == 30 * 29 // 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("spacing", "offset"), [(1.0, 0.5), (1.0, 0.0), (0.1, 0.05), (0.3, 0.0), (0.7, 0.35)])
def test_spheres_as_wide_as_cells_that_touch(backend, spacing, offset, dtype):
    # Each touches its six neighbours, and its box the faces of cells; every touch is rounded differently.
    shape = (5, 4, 3)
    box = Box(spacing * np.array(shape, float), origin=(0.1, -0.2, 0.3))
    at = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), -1).reshape(-1, 3)
    x = np.random.default_rng(6).permutation(box.origin + (at + offset / spacing) * spacing).astype(dtype)
    touching = np.full(len(x), spacing / 2, dtype)
    check(backend, x, box, shape, touching)
    # A little wider, yet no wider than what passes for a cell: now all of them overlap for certain.
    slack = 4 * np.finfo(dtype).eps
    i, *_ = Built(backend, x, box, shape, (touching * (1 + slack)).astype(dtype)).overlaps("i")
    if spacing == 1.0 and dtype == np.float64:
        assert len(i) == 3 * len(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_no_touch_is_lost_to_rounding(backend, dtype, axis):
    # Pairs that touch on the face of a cell as wide as they are, so far as the type of the positions can tell, in a box
    # whose fractions round much.
    box = Box([[4.0, 0.0, 0.0], [3.0, 3.5, 0.0], [-2.5, 1.75, 3.0]], origin=(-2.0, -2.0, -1.5))
    shape, count, rng = (6, 6, 6), 4000, np.random.default_rng(7)
    normal = box.inverse[axis] / np.linalg.norm(box.inverse[axis])
    radius = dtype(min(0.5 / np.linalg.norm(box.inverse[axis]) / 6, widest(box, shape)))
    s = rng.random((count, 3))
    s[:, axis] = rng.integers(1, 6, count) / 6
    face = box.origin + s @ box.matrix
    first, second = (face - normal * radius).astype(dtype), (face + normal * radius).astype(dtype)
    for n in range(200):
        d = second.astype(np.longdouble) - first.astype(np.longdouble)
        apart = (d**2).sum(1) > (2 * np.longdouble(radius)) ** 2 * (1 - 2 * np.finfo(dtype).eps)
        second[apart, n % 3] = np.nextafter(second[apart, n % 3], first[apart, n % 3])
    fractions = np.hstack([box.fractional(first.astype(float)), box.fractional(second.astype(float))])
    sure = np.flatnonzero(~apart & (fractions > 0).all(1) & (fractions < 1).all(1))
    assert len(sure) > count / 2
    x = np.stack([first, second], 1).reshape(-1, 3)
    i, j, *_ = Built(backend, x, box, shape, np.full(2 * count, radius)).overlaps("ij")
    assert {(n, n + 1) for n in (2 * sure).tolist()} <= set(zip(i.tolist(), j.tolist(), strict=True))


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_large_and_small_ones_all_around_a_periodic_axis(backend, cells):
    box = Box(5.0, -1.0)
    rng = np.random.default_rng(11)
    x = box.origin + rng.permutation(np.arange(200.0))[:, None] / 200 * 5.0
    radii = np.where(rng.random(200) < 0.5, widest(box, (cells,)), 0.011)
    check(backend, x, box, (cells,), radii)


def test_only_what_is_asked_for(backend):
    box = BOXES["periodic 3-D"]
    x = positions(box, 60, turns=1)
    built = Built(backend, x, box, (4, 3, 5), np.full(60, widest(box, (4, 3, 5))))
    whole = built.overlaps()
    order = np.lexsort(whole[2].T.tolist() + [whole[1], whole[0]])
    for quantities in ("ij", "i", "jS", "d", "D", "ijD", ""):
        some = built.overlaps(quantities)
        for letter, own, full in zip("ijSdD", some, whole, strict=True):
            assert (own is not None) == (letter in quantities)
            if own is not None:
                assert own.shape == full.shape
                np.testing.assert_array_equal(np.sort(own, axis=0), np.sort(full[order], axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_every_particle_is_listed_in_the_cells_that_it_touches(backend, name, dtype):
    box = BOXES[name]
    rng = np.random.default_rng(8)
    for shape in SHAPES:
        shape = shape[-box.ndim :]
        x = positions(box, 60, dtype, turns=2)
        for half in (rng.random(60) * widest(box, shape), 0.3 * widest(box, shape) * rng.random((60, box.ndim))):
            built = Built(backend, x, box, shape, half.astype(dtype))
            wanted = touched(x, box, shape, half.astype(dtype))
            found = [sorted(cell) for cell in built.entries()]
            if dtype == np.float64:
                assert found == wanted
            else:
                assert sum(a != b for a, b in zip(found, wanted, strict=True)) <= 2
            record, turns = backend.host(built.lists.bounds), backend.host(built.lists.turns)
            np.testing.assert_array_equal(record[:, 3], half.astype(dtype) if half.ndim == 1 else 0)
            unpacked = np.stack([(turns >> np.uint64(21 * (2 - a))) & np.uint64(2**21 - 1) for a in range(3)], 1)
            off = unpacked.astype(np.int64)[:, 3 - box.ndim :] - 2**20
            np.testing.assert_array_equal(off, turns_of(x, box))
            folded = x.astype(float) - off @ box.matrix
            np.testing.assert_allclose(
                record[:, 3 - box.ndim : 3], folded, rtol=0, atol=2e-6 if dtype == np.float32 else 1e-14
            )


@pytest.mark.parametrize("name", BOXES)
def test_lists_by_numpy(backend, name):
    box = BOXES[name]
    for n, shape in enumerate(SHAPES):
        shape = shape[-box.ndim :]
        x = positions(box, 50, seed=n)
        radii = widest(box, shape) * np.random.default_rng(n).random(50)
        built = Built(backend, x, box, shape, radii)
        wanted = built.overlaps()
        heads, following = np.zeros(np.prod(shape), np.uint32), np.zeros(400, np.uint32)
        for cell, entries in enumerate(touched(x, box, shape, radii)):
            for i, mask in entries:
                following[8 * i + mask], heads[cell] = heads[cell], 8 * i + mask + 1
        bounds = np.zeros((50, 4))
        bounds[:, :3] = 0.0
        bounds[:, 3 - box.ndim : 3] = x
        bounds[:, 3] = radii
        arrays = [backend.array(a) for a in (heads, following, bounds)]
        built.lists = built.lists._replace(heads=arrays[0], next=arrays[1], bounds=arrays[2])
        found = built.overlaps()
        keys = [np.lexsort([*of[2].T, of[1], of[0]]) for of in (found, wanted)]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a[keys[0]], b[keys[1]], rtol=1e-13, atol=1e-13)


def test_bad_particles_are_left_out(backend):
    box = BOXES["mixed 3-D"]
    shape = (4, 3, 5)
    x = positions(box, 60)
    radii = np.full(60, 0.9 * widest(box, shape))
    x[3], x[10, 1], radii[17], radii[20], radii[21] = np.nan, 50.0, -1.0, np.nan, np.inf
    built = Built(backend, x, box, shape, radii)
    status = backend.host(built.status)
    assert status[[0, 1, 3]].tolist() == [1, 1, 3] and int(~status[2]) == 3
    assert too_wide(status, x.dtype) is None
    good = np.isfinite(x).all(1) & (x[:, 1] < 10) & (radii > 0) & np.isfinite(radii)
    among = np.flatnonzero(good)
    sure, possible = expected(x[good], box, radii[good])
    rows = {tuple(r) for r in np.column_stack(built.overlaps()[:3]).tolist()}
    assert {(among[r[0]], among[r[1]], *r[2:]) for r in sure} <= rows
    assert rows <= {(among[r[0]], among[r[1]], *r[2:]) for r in possible}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("boxes", [False, True])
def test_particles_wider_than_a_cell_are_told(backend, dtype, boxes):
    box = BOXES["mixed 3-D"]
    shape = (4, 3, 5)
    x = positions(box, 40, dtype)
    radius = widest(box, shape)
    half = np.full(40, 0.5 * radius, dtype)
    half[[8, 31, 30]] = [1.2 * radius, 1.5 * radius, 1.001 * radius]
    if boxes:
        half = np.stack([half, half / 2, half], 1)
    built = Built(backend, x, box, shape, half)
    status = backend.host(built.status)
    first, reach = too_wide(status, x.dtype)
    assert first == 8 and int(~status[2]) == 8 and status[3] == 3
    assert reach == pytest.approx(1.5 * radius, rel=1e-5)
    assert (backend.host(built.lists.bounds)[[8, 31, 30], 3] < 0).all()
    i, j, *_ = built.overlaps()
    assert len(i) and not np.isin([i, j], [8, 31, 30]).any()


def test_an_open_axis_of_two_cells_holds_anything(backend):
    box = Box((1.0, 1.0), periodic=False)
    x = positions(box, 30)
    check(backend, x, box, (2, 1), np.random.default_rng(9).random(30))


def test_what_lists_cannot_tell_is_refused(backend):
    box = BOXES["triclinic"]
    x = positions(box, 9)
    radii = Built(backend, x, box, (2, 2, 2), np.full(9, 0.1))
    with pytest.raises(ValueError, match="triclinic"):
        radii.overlaps(shape="box")
    with pytest.raises(ValueError, match="shape .*'cube'"):
        radii.overlaps(shape="cube")
    with pytest.raises(ValueError, match="half the edges of boxes"):
        Built(backend, x, box, (2, 2, 2), np.full((9, 3), 0.1)).overlaps(shape="sphere")


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("double", "compute"), [(0, 80), (1, 90)])
@pytest.mark.parametrize(("boxes", "edges", "extents"), [(0, 0, 1), (1, 0, 1), (1, 1, 3)])
def test_compiles_for_cuda(double, compute, boxes, edges, extents):
    defines = {"REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double, "KEYS_ARE_POSITIONS": 1}
    build = {**defines, "KEY_IS_64": 0, "EXTENTS": extents, "COUNT_IS_64": 0}
    assert b"linked_list_tight" in cuda.compile_only("grid/builders/linked_list_tight.c", build, compute)
    for lists in (0, 1):
        wants = dict.fromkeys(("WANT_I", "WANT_J", "WANT_SHIFT", "WANT_DISTANCE", "WANT_VECTOR"), lists)
        search = {**defines, "EXTENTS": 0, "BOXES": boxes, "HALF_EDGES": edges, "LISTS": lists, **wants}
        assert b"overlaps" in cuda.compile_only("grid/queries/overlaps.c", search, compute)
