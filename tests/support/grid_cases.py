# SPDX-License-Identifier: BSD-3-Clause
"""Clouds of particles for grids, and what plain float64 NumPy finds in them by comparing all with all images.

Rounding may decide whether a particle on a face is in this cell or the next, and whether a pair at the radius is one.
Such answers are free: an oracle knows what must be found and what may be.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

import particlemesh as pm

SKEWED = np.array([[2.0, 0.0, 0.0], [0.5, 1.75, 0.0], [-0.25, 0.375, 1.5]])
ORIGIN = (-1.3, 0.4, 2.0)
BOXES = {
    "periodic": pm.Box((3.0, 2.0, 2.5), ORIGIN),
    "open": pm.Box((3.0, 2.0, 2.5), ORIGIN, periodic=False),
    "mixed": pm.Box((3.0, 2.0, 2.5), ORIGIN, periodic=(True, False, True)),
    "exact": pm.Box((8.0, 4.0, 2.0)),  # halves, quarters, eighths: nothing rounds
    "long": pm.Box((100.0, 1.0, 1.0), ORIGIN),
    "triclinic": pm.Box(SKEWED, ORIGIN),
    "triclinic mixed": pm.Box(SKEWED, ORIGIN, periodic=(False, True, True)),
    "left-handed": pm.Box(SKEWED[[1, 0, 2]], periodic=(True, True, False)),
    "plane": pm.Box((3.0, 2.0), (5.0, -7.0)),
    "open plane": pm.Box((3.0, 2.0), periodic=False),
    "skewed plane": pm.Box([[2.0, 0.0], [0.75, 1.5]], periodic=(True, False)),
    "long plane": pm.Box((1.0, 100.0), (-0.5, -50.0)),
    "line": pm.Box(3.0, -1.0),
    "open line": pm.Box(3.0, periodic=False),
}


class Case(NamedTuple):
    """Which particles in which cells."""

    box: str
    cells: tuple[int, ...]
    cloud: str
    count: int
    dtype: str

    def __str__(self):
        return f"{self.box}-{self.cloud}-{'x'.join(map(str, self.cells))}-{self.dtype}".replace(" ", "_")

    @property
    def domain(self):
        return BOXES[self.box]

    @property
    def positions(self):
        return _positions(self)

    def grid(self, **options):
        return pm.UniformGrid(self.domain, shape=self.cells, **options)


CASES = [
    Case("periodic", (4, 3, 5), "uniform", 130, "f4"), Case("periodic", (6, 4, 5), "edges", 150, "f8"),
    Case("periodic", (4, 3, 5), "wrapped", 130, "f8"), Case("open", (4, 3, 5), "edges", 150, "f4"),
    Case("open", (30, 20, 25), "settled", 100, "f8"), Case("mixed", (4, 3, 5), "wrapped", 130, "f4"),
    Case("mixed", (3, 2, 1), "clustered", 140, "f8"), Case("exact", (8, 4, 2), "lattice", 96, "f4"),
    Case("exact", (8, 4, 2), "edges", 150, "f8"), Case("long", (100, 1, 1), "wrapped", 130, "f4"),
    Case("long", (50, 2, 2), "uniform", 130, "f8"), Case("triclinic", (4, 3, 3), "lattice", 96, "f8"),
    Case("triclinic", (4, 3, 3), "perturbed", 96, "f8"), Case("triclinic mixed", (4, 3, 3), "edges", 150, "f4"),
    Case("left-handed", (3, 4, 2), "wrapped", 130, "f8"), Case("plane", (5, 4), "edges", 120, "f4"),
    Case("plane", (5, 4), "wrapped", 150, "f8"), Case("open plane", (1, 1), "uniform", 100, "f8"),
    Case("skewed plane", (5, 3), "wrapped", 150, "f4"), Case("long plane", (1, 60), "uniform", 150, "f8"),
    Case("line", (9,), "edges", 100, "f4"), Case("open line", (9,), "uniform", 100, "f8"),
    Case("periodic", (4, 3, 5), "one cell", 100, "f4"), Case("triclinic", (4, 3, 3), "coincident", 100, "f8"),
]  # fmt: skip


def fractions(cloud, box, cells, count, rng):
    """Fractions of the box, within [0, 1] on open axes."""
    d, periodic = box.ndim, np.array(box.periodic)
    s = rng.random((count, d))
    if cloud == "wrapped":
        s += rng.integers(-3, 4, (count, d)) * periodic
    elif cloud in ("lattice", "perturbed"):
        axes = [np.arange(n if p else n + 1) / n for n, p in zip(cells, box.periodic, strict=True)]
        s = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, d)
        s = s[rng.permutation(len(s))]
    elif cloud == "clustered":
        s = rng.random((3, d))[rng.integers(0, 3, count)] * 0.5 + 0.25 + rng.normal(0, 0.02, (count, d))
    elif cloud == "settled":
        s[:, -1] /= 8
    elif cloud == "edges":
        faces = np.stack([rng.integers(0, n + 1, count) / n for n in cells], -1)
        s = np.where(rng.random((count, d)) < 0.7, faces, s)
    elif cloud == "one cell":
        s = (s + np.array(cells) // 2) / cells
    elif cloud == "coincident":
        s = s[rng.integers(0, 10, count)]
    return s


@functools.cache
def _positions(case):
    box, real = case.domain, np.dtype(case.dtype).type
    rng = np.random.default_rng(7)
    s = fractions(case.cloud, box, case.cells, case.count, rng)
    x = (s @ box.matrix + box.origin).astype(real)
    if case.cloud == "perturbed":
        x += 1e-15 * rng.choice([-1, 0, 1], x.shape)
    if case.cloud == "edges":  # an ulp below, on, and above the faces
        x = np.choose(rng.integers(0, 3, x.shape), [np.nextafter(x, real(-np.inf)), x, np.nextafter(x, real(np.inf))])
    if box.orthorhombic:
        low, high = box.origin.astype(real), (box.origin + box.lengths).astype(real)
        x = np.where(box.periodic, x, np.clip(x, low, high))
    x = np.ascontiguousarray(x, real)
    x.setflags(write=False)
    return x


def rounding(box, x, reach=0.0):
    """How far a distance between images may be off, in the type of x: of folding, shifts and differences."""
    size = np.abs(x.astype(float)).max(initial=0) + np.abs(box.origin).max() + np.abs(box.matrix).sum() + 2 * reach
    return 8 * np.finfo(x.dtype).eps * size


def turns_of(box, x):
    """Whole turns that take positions into the box, in float64."""
    s = (x.astype(float) - box.origin) @ box.inverse.T
    return np.floor(s).astype(int) * np.array(box.periodic)


# ---- cells ------------------------------------------------------------------------------------------------


def touched(box, cells, x, reach=None, slack=0.0):
    """The first and last cell along each axis that [x - reach, x + reach] touches, not folded; (N, d) each.

    ``slack`` times the rounding of fractions is added to the reach.
    """
    d = x.astype(float) - box.origin
    margin = np.finfo(x.dtype).eps * (np.abs(box.inverse) @ (np.abs(x.astype(float)).max(0, initial=0)
             + 2 * np.abs(box.origin) + np.abs(box.matrix).sum(0)))  # fmt: skip
    s = d @ box.inverse.T
    wide = 0.0
    if reach is not None and np.ndim(reach) == 2:
        wide = reach.astype(float) @ np.abs(box.inverse).T
    elif reach is not None:
        wide = np.multiply.outer(np.asarray(reach, float), np.linalg.norm(box.inverse, axis=1))
    low = np.floor((s - wide - slack * margin) * cells).astype(int)
    high = np.floor((s + wide + slack * margin) * cells).astype(int)
    for a in range(box.ndim):
        if not box.periodic[a]:
            low[:, a], high[:, a] = np.clip([low[:, a], high[:, a]], 0, cells[a] - 1)
    return low, high


def level_shape(cells, level):
    return tuple(max(1, n >> level) for n in cells)


def levels_of(box, cells, levels, radii, count):
    """The finest level whose cells are no thinner than each particle; radii are no limit cases."""
    thickness = (1 / np.linalg.norm(box.inverse, axis=1) / np.array(cells)).min()
    if radii is None:
        return np.zeros(count, int)
    wide = 2 * np.asarray(radii, float)
    wide = np.broadcast_to(wide if wide.ndim < 2 else wide.max(1), (count,))
    return sum((wide > thickness * 2**level).astype(int) for level in range(levels - 1)) + np.zeros(count, int)


def check_cells(box, cells, x, keys, levels=1, radii=None):
    """Particle i is in cell keys[i], or on a face of it."""
    level = levels_of(box, cells, levels, radii, len(x))
    first = np.cumsum([0] + [int(np.prod(level_shape(cells, n))) for n in range(levels)])
    for here in range(levels):
        of = level == here
        shape = level_shape(cells, here)
        low, high = touched(box, shape, x[of], slack=8)
        offset = np.stack(np.unravel_index(keys[of] - first[here], shape), -1)
        fits = (offset == low % shape) | (offset == high % shape)
        assert fits.all(), (x[of][~fits.all(1)], offset[~fits.all(1)])


def walk(storage, cells):
    """What a storage holds, cell by cell, by nothing but its description: lists of particles, or (particle, mask)."""
    kind = type(storage).__name__
    if kind == "SortedCells":
        order = storage.order
        if order is None:
            bits = np.int32 if storage.records.dtype == np.float32 else np.int64
            order = np.ascontiguousarray(storage.records[:, 3]).view(bits)
        ends = storage.start[1:] if storage.ends is None else storage.ends
        return [order[first:end].tolist() for first, end in zip(storage.start[:cells], ends, strict=False)]
    if kind == "Slots":
        places = np.arange(storage.capacity) * storage.slot_stride
        return [storage.slots[c * storage.cell_stride + places[: storage.counts[c]]].tolist() for c in range(cells)]
    links = storage.nodes[:, 3] if kind == "PackedLists" else storage.next
    if kind == "PackedLists":
        links = np.ascontiguousarray(links).view(np.int32 if links.dtype == np.float32 else np.int64)
    lists = []
    links = links.tolist()
    for head in storage.heads[:cells].tolist():
        held, entry = [], head
        while entry:
            held.append(entry - 1)
            entry = links[entry - 1]
            assert len(held) <= len(links), "a list goes round in a circle"
        lists.append([divmod(e, storage.entries) for e in held] if kind == "TightLists" else held)
    return lists


# ---- pairs ------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Pairs i, j with S, D = x[j] - x[i] + S @ matrix and d = |D|."""

    i: np.ndarray
    j: np.ndarray
    shift: np.ndarray
    vector: np.ndarray
    distance: np.ndarray

    def where(self, which):
        return Found(*(a[which] for a in self))


def all_pairs(box, x, reach, points=None):
    """Every image of a particle that may be within reach of a particle, but not itself, or of a point."""
    same_points = points is None
    x, p = x.astype(float), (x if same_points else points).astype(float)
    turns, p_turns = turns_of(box, x), turns_of(box, p)
    folded, p_folded = x - turns @ box.matrix, p - p_turns @ box.matrix
    most = np.floor(reach * np.linalg.norm(box.inverse, axis=1) + 1.01).astype(int) * np.array(box.periodic)
    parts = []
    for image in itertools.product(*(range(-m, m + 1) for m in most)):
        d = folded[None] + np.array(image) @ box.matrix - p_folded[:, None]
        r2 = (d * d).sum(-1)
        near = r2 <= (reach * (1 + 1e-5)) ** 2 + 1e-9
        if same_points and not any(image):
            np.fill_diagonal(near, False)
        i, j = np.nonzero(near)
        shift = np.array(image, int) - turns[j] + p_turns[i]
        parts.append(Found(i, j, shift, d[i, j], np.sqrt(r2[i, j])))
    return Found(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def forward(i, j, shift):
    """Which pairs a half list keeps: i < j, or an image of itself whose S is lexicographically above 0."""
    keep = i < j
    ahead, open_ = np.zeros(len(i), bool), np.ones(len(i), bool)
    for a in range(shift.shape[1]):
        ahead |= open_ & (shift[:, a] > 0)
        open_ &= shift[:, a] == 0
    return keep | ((i == j) & ahead)


def turned(i, j, shift):
    """The same pairs, each in the direction that a half list has."""
    keep = forward(i, j, shift)
    return np.where(keep, i, j), np.where(keep, j, i), np.where(keep[:, None], shift, -shift)


def codes(i, j, shift):
    """One number for each pair."""
    assert np.abs(shift).max(initial=0) < 2**9
    code = i.astype(np.int64) << 16 | j.astype(np.int64)
    for a in range(shift.shape[1]):
        code = code << 10 | (shift[:, a].astype(np.int64) + 2**9)
    return code


def check_pairs(i, j, shift, oracle, sure, possible):
    """Every sure pair is listed, every listed pair is possible, none is listed twice."""
    result = codes(i, j, shift)
    assert len(np.unique(result)) == len(result), "a pair is listed twice"
    expected = codes(oracle.i, oracle.j, oracle.shift)
    lost = ~np.isin(expected[sure], result)
    assert not lost.any(), ("lost", oracle.where(sure).where(lost))
    extra = ~np.isin(result, expected[possible])
    assert not extra.any(), ("not a pair", i[extra], j[extra], shift[extra])


# ---- answers ----------------------------------------------------------------------------------------------

RADII = {"exact": 1.0, "long": 2.5, "long plane": 2.5, "line": 0.2, "open line": 0.2}  # others: 0.5


@functools.cache
def oracle_of(case):
    """The pairs of a case within its radius, and some more."""
    return all_pairs(case.domain, case.positions, radius_of(case) * 1.01 + rounding(case.domain, case.positions))


def radius_of(case):
    return RADII.get(case.box, 0.5)


def entries(backend, pairs):
    """Lists of any format as flat arrays: i, j, shift, distance, vector (None: not asked for)."""
    fields = {name: getattr(pairs, name) for name in ("start", "i", "j", "shift", "distance", "vector", "count")}
    start, i, j, shift, distance, vector, count = (None if a is None else backend.host(a) for a in fields.values())
    if count is not None:  # dense
        full = np.arange(j.shape[1]) < count[:, None]
        np.testing.assert_array_equal(j >= 0, full)
        rows = np.nonzero(full)[0]
        i = rows if i is None else np.where(i[full] == rows, i[full], -9)
        return i, j[full], *(None if a is None else a[full] for a in (shift, distance, vector))
    if start is not None:
        assert start.dtype == np.int64 and start[0] == 0
        length = next(len(a) for a in (i, j, shift, distance, vector) if a is not None)
        assert start[-1] == length
        rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
        np.testing.assert_array_equal(rows if i is None else i, rows)
        i = rows
    return i, j, shift, distance, vector


def check_answer(box, x, radius, listed, oracle, *, half=False, points=None, apart=None):
    """Check pairs i, j, S, d, D against an oracle; ``radius`` is one number or one for each pair of the oracle.

    ``apart``: what has to be within the radius, if that is not the oracle's distance.
    """
    i, j, shift, distance, vector = listed
    of = x if points is None else points
    band = rounding(box, np.concatenate([x, of]), np.max(radius, initial=0))
    apart = oracle.distance if apart is None else apart
    sure, possible = apart <= radius - band, apart <= radius + band
    if half:
        sure = sure & forward(oracle.i, oracle.j, oracle.shift)
        possible = possible & forward(oracle.i, oracle.j, oracle.shift)
    check_pairs(i, j, shift, oracle, sure, possible)
    expected = x[j].astype(float) - of[i].astype(float) + shift @ box.matrix
    np.testing.assert_allclose(vector, expected, rtol=0, atol=band)
    np.testing.assert_allclose(distance, np.linalg.norm(expected, axis=1), rtol=0, atol=2 * band)
    assert distance.dtype == vector.dtype == x.dtype
    assert i.dtype.kind == "i" and j.dtype == shift.dtype == np.int32


def check_counts(counts, rows, oracle, radius, band):
    """How many pairs each row has, but for those at the radius."""
    least = np.bincount(oracle.i[oracle.distance <= radius - band], minlength=rows)
    most = np.bincount(oracle.i[oracle.distance <= radius + band], minlength=rows)
    assert counts.shape == (rows,) and counts.dtype == np.int32
    assert ((least <= counts) & (counts <= most)).all()
