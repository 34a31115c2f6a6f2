# SPDX-License-Identifier: BSD-3-Clause
"""Open axes are fitted to the particles, where these are: a device sends ends to the host, and no positions."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.arrays.positions import coordinates
from particlemesh.box import Box
from particlemesh.grid import neighbour_list
from particlemesh.grid.ends import Cloud, Lattice, ends_on_device, ends_on_host
from particlemesh.grid.neighbour_list import drop_grids
from particlemesh.grid.systems import SystemBoxes, fitted


def plain(x, system, count):
    """The ends of each system by a loop."""
    ends = np.empty((2, x.shape[1], count))
    ends[0], ends[1] = np.inf, -np.inf
    for row, s in zip(x, system, strict=True):
        if 0 <= s < count and np.isfinite(row).all():
            ends[:, :, s] = np.minimum(ends[0, :, s], row), np.maximum(ends[1, :, s], row)
    return ends


def ends_by(backend, x, system, count):
    if backend.name == "cpu":
        return ends_on_host(list(x.T), system, count)
    native = backends.current(backend.name)
    _, _, there = coordinates(backend.array(x), x.shape[1], None, upload=False)
    ids = None if system is None else backend.array(system.astype("i4"))
    with native.scope(*there.arrays):
        return ends_on_device(there, native, ids, count)


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize(("count", "ndim"), [(0, 3), (1, 1), (33, 2), (700, 3)])
@pytest.mark.parametrize("order", ["one", "sorted", "mixed", "wrong"])
def test_ends_are_those_of_a_loop(backend, count, ndim, real, order):
    random = np.random.default_rng(count)
    x = (random.normal(size=(count, ndim)) * 10.0 ** random.integers(-9, 9, (count, 1))).astype(real)
    x[1::50] = np.nan
    x[2::60, 0] = np.inf
    x[3::7] = 0
    system = random.integers(-1 if order == "wrong" else 0, 9, count)
    if order == "sorted":
        system.sort()
    if order == "one":
        known, result = plain(x, np.zeros(count, int), 1), ends_by(backend, x, None, 1)
    else:
        known, result = plain(x, system, 8), ends_by(backend, x, system, 8)
    assert result.shape == known.shape
    tolerance = 0 if real == "f4" or backend.name == "cpu" else 2.0**-22
    np.testing.assert_allclose(result, known, rtol=tolerance, atol=2e-38 * (tolerance > 0))
    assert (result[0] <= known[0]).all() and (result[1] >= known[1]).all()


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("far", [1e39, -1e300])
def test_doubles_beyond_float32_have_no_ends_on_a_device(backend, far):
    assert ends_by(backend, np.array([[far, 0.0]]), None, 1) is None


BOXES = {
    "straight": np.diag([2.0, 3.0, 1.0]),
    "leaning away": np.array([[2.0, 0.5, 0], [0.3, 3, 0], [0.7, 0.2, 1]]),  # coordinates decide the third axis alone
    "leaning": np.array([[2.0, 0, 0.5], [0.3, 3, 0.2], [0.7, 0.2, 1]]),
}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("far", [0.0, 1e5])
def test_open_axes_hold_the_particles_and_are_hardly_longer(box, far):
    random = np.random.default_rng(3)
    x, system = random.random((300, 3)) * (3, 0.01, 40) + far, np.sort(random.integers(0, 6, 300))
    x[system == 4] = x[system == 4][:1]  # one place
    system[system == 5] = 4
    domain = Box(BOXES[box], periodic=(True, False, False))
    boxes = SystemBoxes(domain, np.broadcast_to(domain.matrix, (6, 3, 3)), np.zeros((6, 3)))

    def cloud(x):
        return Cloud(ends_on_host(list(x.T), system, 6), x.dtype, lambda: list(x.T), lambda: system)

    longer = fitted(boxes, cloud(x), 0.2)
    np.testing.assert_array_equal(longer.rows[:, 0], boxes.rows[:, 0])
    fractions = np.einsum("sab,...sb->...sa", longer.inverse[system], x - longer.origins[system])[:, 1:]
    assert ((fractions >= 0) & (fractions <= 1)).all()
    per = np.linalg.norm(domain.inverse, axis=1)[1:]
    for s in range(5):  # the last one is empty
        here = (x[system == s] @ domain.inverse.T)[:, 1:]
        span = np.maximum(np.ptp(here, axis=0), 0.2 * per)
        length = np.linalg.norm(longer.rows[s, 1:], axis=1) / np.linalg.norm(domain.matrix[1:], axis=1)
        assert (length >= span).all()
        assert (length <= 1.07 * span + 1e-9 * far).all()
    moved = x + 1e-9 * np.where(x < x.mean(0), 1, -1)
    assert fitted(boxes, cloud(moved), 0.2) is longer
    assert fitted(boxes, cloud(x * 1.2), 0.2) is not longer


def test_an_axis_that_some_systems_open_has_room_for_no_image():
    x, system = np.array([[0.1], [0.9], [0.1], [0.9]]), np.array([0, 0, 1, 1])
    cloud = Cloud(ends_on_host(list(x.T), system, 2), x.dtype, lambda: list(x.T), lambda: system)
    lattice = Lattice(np.zeros((1, 2)), np.ones((1, 1, 2)))
    (lengths,), (begins,) = lattice.fit(cloud, 0.3, np.array([[True, False]]), np.array([True]))
    assert lengths[0] == 1 and begins[0] == 0 and lengths[1] >= 0.8 + 0.3 and begins[1] <= 0.1


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("systems", [None, 5])
def test_a_device_sends_no_positions_where_axes_are_open(backend, monkeypatch, systems):
    random = np.random.default_rng(1)
    count = 3000
    x, system = random.random((count, 3)).astype("f4"), np.sort(random.integers(0, systems or 1, count)).astype("i4")
    options = {} if systems is None else {"system": backend.array(system), "boxes": np.ones((systems, 3))}
    drop_grids()
    sent = []
    native = type(backends.current(backend.name))
    download = native.download
    monkeypatch.setattr(native, "download", lambda self, array: sent.append(array.nbytes) or download(self, array))
    i, j = pm.neighbour_list("ij", backend.array(x), (1.0,) * 3, 0.06, periodic=(True, True, False), **options)
    assert max(sent) < 4 * count
    monkeypatch.undo()
    host = {} if systems is None else {"system": system, "boxes": np.ones((systems, 3))}
    known = pm.neighbour_list("ij", x, (1.0,) * 3, 0.06, periodic=(True, True, False), **host)
    result = np.stack([backend.host(i), backend.host(j)], 1)
    assert sorted(map(tuple, result)) == sorted(zip(*(a.tolist() for a in known), strict=True))


def rows_of(backend, arrays):
    """Pairs with their shifts and distances, sorted."""
    i, j, shift, d = map(backend.host, arrays)
    order = np.lexsort((*shift.T, j, i))
    return i[order], j[order], shift[order], d[order]


WHERE = {
    "here": lambda x: x,
    "far": lambda x: x + np.array([0, 3e4, -7e5]),
    "apart": lambda x: np.where(np.arange(len(x))[:, None] % 2, x, x * (1, 1, 1e9)),
    "beyond": lambda x: np.where(np.arange(len(x))[:, None] == 3, x + (0, 0, 1e24), x),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("periodic", [(False, False, False), (True, False, False), (True, True, False)])
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("systems", [None, "even", "uneven"])
def test_few_particles_are_compared_without_a_fit_and_give_the_same_list(
    backend, monkeypatch, where, periodic, real, systems
):
    random = np.random.default_rng(sum(periodic))
    count = 230 if systems is None else 1400
    x = WHERE[where](random.random((count, 3)) * 1.7).astype(real)
    options = {}
    if systems is not None:  # most of the uneven ones are small, and one is not
        odds = np.ones(9) if systems == "even" else np.array([1.0] * 8 + [40.0])
        given = random.choice(9, count, p=odds / odds.sum()).astype("i4")
        options = {"system": backend.array(given), "boxes": 1 + random.random((9, 3))}
    radius = backend.array(random.random(count).astype(real) / 8) if where == "here" and systems is None else 0.21
    lists, fits = [], []
    fit = Lattice.fit
    monkeypatch.setattr(Lattice, "fit", lambda *a: fits.append(1) or fit(*a))
    for together in (neighbour_list._TOGETHER, 0):
        monkeypatch.setattr(neighbour_list, "_TOGETHER", together)
        arrays = pm.neighbour_list("ijSd", backend.array(x), (1.0, 1.3, 1.7), radius, periodic=periodic, **options)
        lists.append(rows_of(backend, arrays))
        if together:
            crowded = systems == "uneven" and not any(periodic)
            assert bool(fits) == (where == "beyond" or crowded)
    assert len(lists[0][0]) > 50
    for few, fitted_first in zip(*lists, strict=True):
        np.testing.assert_array_equal(few, fitted_first)


@pytest.mark.parametrize("matrix", BOXES)
@pytest.mark.parametrize("periodic", [(False, False, False), (True, False, True)])
def test_few_particles_in_leaning_boxes_and_bad_ones_go_the_same_way(backend, matrix, periodic):
    x = np.random.default_rng(4).random((60, 3)) * 2 - 0.5
    i = pm.neighbour_list("i", backend.array(x), BOXES[matrix], 0.6, periodic=periodic)
    turns = np.array(list(itertools.product(*(range(-6, 7) if turned else [0] for turned in periodic))))
    away = (x[:, None] - x[None]).reshape(-1, 1, 3) + turns @ BOXES[matrix]
    assert len(backend.host(i)) == (np.linalg.norm(away, axis=2) <= 0.6).sum() - 60
    x[7, 1] = np.nan
    with pytest.raises(ValueError, match="1 not finite of 60 particles; the first is 7"):
        pm.neighbour_list("i", backend.array(x), BOXES[matrix], 0.6, periodic=periodic)


@pytest.mark.parametrize(
    ("radius", "each"), [(0.0, [1, 1, 0, 0]), (1e-30, [2, 2, 2, 0]), (1e25, [3] * 4), (1e300, [3] * 4)]
)
def test_few_particles_are_found_with_radii_of_every_size(backend, radius, each):
    x = np.array([[0.0, 0, 0], [0, 0, 0], [1e-31, 0, 0], [1, 2, 3]])
    i = backend.host(pm.neighbour_list("i", backend.array(x), (1.0,) * 3, radius, periodic=False))
    np.testing.assert_array_equal(np.bincount(i, minlength=4), each)


@pytest.mark.parametrize("systems", [False, True])
@pytest.mark.parametrize("periodic", [(False,) * 3, (True, True, False)])
@pytest.mark.parametrize(("unit", "far"), [(1e-100, 0), (1e-60, 0), (1.0, 0), (1.0, 2e18), (1.0, 1e25), (1e90, 0)])
def test_leaning_boxes_take_any_unit_and_open_ones_any_place(backend, unit, far, periodic, systems):
    far = 0 if any(periodic) else far
    matrix = np.array([[1.0, 0, 0], [0.3, 1, 0], [0.2, 0.4, 1]])
    x = np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.2, 0.2, 0.3], [0.9, 0.9, 0.1]])
    options = {"system": backend.array(np.zeros(4, "i4")), "boxes": unit * matrix[None]} if systems else {}
    given = (x + (far, 0, 0)) * unit
    i, j, d = pm.neighbour_list("ijd", backend.array(given), matrix * unit, 0.5 * unit, periodic=periodic, **options)
    if far:  # the first coordinates are one number now
        expected = {(a, b) for a in range(3) for b in range(3) if a != b}
    else:
        turns = np.array([(a, b, 0) for a in range(-2, 3) for b in range(-2, 3)] if any(periodic) else [(0, 0, 0)])
        near = np.linalg.norm(x[None, :, None] - x[:, None, None] + turns @ matrix, axis=3) <= 0.5
        expected = {(a, b) for a in range(4) for b in range(4) if a != b and near[a, b].any()}
    assert {*zip(backend.host(i).tolist(), backend.host(j).tolist(), strict=True)} == expected
    assert (backend.host(d) <= 0.5 * unit).all()
