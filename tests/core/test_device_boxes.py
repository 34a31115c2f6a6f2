# SPDX-License-Identifier: BSD-3-Clause
"""What a GPU derives from boxes there: numbers of plans, grids, solvers and images, beside those of the host."""

from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme.exclusions import Exclusions, Images, boxes, write_images
from particlemesh.backends import cuda
from particlemesh.backends.tapes import Tapes
from particlemesh.fourier import ProlateGreen, Solver
from particlemesh.grid.room import Room
from particlemesh.grid.systems import DerivedBoxes, SystemBoxes
from particlemesh.kernels import DeviceBoxes
from ptx import without_nvrtc

COUNT = 40


def drawn(ndim, seed=0, leaning=True):
    """Lattice vectors of boxes: leaning, straight, long and short, right- and left-handed."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.5, 2, (COUNT, ndim, 1)) * np.eye(ndim)
    if leaning:
        rows[::2] += rng.uniform(-0.4, 0.4, (COUNT // 2, ndim, ndim)) * (1 - np.eye(ndim))
        rows[::5] = rows[::5, ::-1]
    return rows * 10.0 ** rng.uniform(-1, 1, (COUNT, 1, 1))


def given(backend, box, rows):
    return DeviceBoxes(backend.library, box, COUNT).set(backend.array(rows))


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["lengths", "vectors", "host"])
def test_numbers_and_facts(backend, ndim, dtype, form):
    rows = drawn(ndim, leaning=form != "lengths").astype(dtype)
    there = DeviceBoxes(backend.library, pm.Box((1.0,) * ndim), COUNT)
    lengths = np.diagonal(rows, axis1=1, axis2=2)
    there.set(rows if form == "host" else backend.array(rows if form == "vectors" else lengths.copy()))
    numbers, rows = backend.host(there.numbers), rows.astype(float)
    inverse = np.linalg.inv(rows).swapaxes(1, 2)
    first = 3 - ndim
    for at, expected in ((0, rows), (9, inverse)):
        matrices = numbers[:, at : at + 9].reshape(-1, 3, 3)
        np.testing.assert_allclose(matrices[:, first:, first:], expected, rtol=1e-13, atol=1e-14 * abs(expected).max())
        np.testing.assert_array_equal(matrices[:, :first], np.broadcast_to(np.eye(3)[:first], (COUNT, first, 3)))
    volume = abs(np.linalg.det(rows))
    np.testing.assert_allclose(numbers[:, 18:20], np.stack([volume, volume ** (1 / ndim)], 1), rtol=1e-13)
    assert (numbers[:, 20] == (rows == np.eye(ndim) * rows).all((1, 2))).all()
    per, norms = np.linalg.norm(inverse, axis=2), np.linalg.norm(rows, axis=2)
    longest, shortest, most = there.look(backend.host(there.facts))
    for read, exact in ((longest, norms.max(0)), (shortest, norms.min(0)), (most, per.max(0))):
        np.testing.assert_allclose(read, exact, rtol=1e-13)
    for bound, exact in ((there.bounds.per, per.max(0)), (there.bounds.longest, norms.max(0))):
        assert (bound >= exact).all()
        assert (bound <= 2**0.25 * exact * (1 + 1e-13)).all()


@pytest.mark.backends("opencl", "cuda")
def test_bounds_follow_boxes_and_replace_those_that_are_too_thin(backend):
    rows, box = drawn(3), pm.Box((3.0, 4.0, 5.0))
    there = given(backend, box, rows)
    facts = backend.host(there.facts)
    assert there.confirm(facts)
    there.set(backend.array(rows / 4))
    numbers = backend.host(there.numbers)
    thin = (np.linalg.norm(np.linalg.inv(rows / 4), axis=1) > there.bounds.per).any(1)
    assert thin.any()
    np.testing.assert_array_equal(numbers[thin, :9], np.broadcast_to(box.matrix.ravel(), (thin.sum(), 9)))
    assert not there.confirm(backend.host(there.facts))
    np.testing.assert_array_equal(backend.host(there.numbers)[:, :9], rows.reshape(-1, 9) / 4)
    assert there.confirm(backend.host(there.facts))
    there.set(backend.array(rows))  # much larger ones have their own bounds again
    assert not there.confirm(backend.host(there.facts))
    assert there.bounds == given(backend, box, rows).bounds


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("of_host", [False, True])
def test_boxes_that_change_about_a_bound_keep_one(backend, of_host):
    """Work that is recorded for some bounds would be recorded anew for each of them."""
    rows = [side * np.tile(np.eye(3), (COUNT, 1, 1)) for side in (1.0, 0.99, 0.98)]
    there = given(backend, pm.Box((1.0, 1.0, 1.0)), rows[0])
    seen = []
    for _ in range(3):
        for row in rows:
            there.set(row if of_host else backend.array(row))
            there.confirm(backend.host(there.facts))
            seen.append(there.bounds.per)
            assert (np.array(seen[-1]) * np.diag(row[0]) >= 1).all()
    assert len(set(seen[1:])) == 1


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_a_grid(backend, ndim, dtype):
    """Of boxes with other faces, the first and last numbers inside are those of the host, to the bit."""
    box = pm.Box(np.full(ndim, 1.7), origin=np.linspace(-0.3, 5.1, ndim), periodic=np.arange(ndim) != 1)
    rows = drawn(ndim)
    room = Room(backend.library, Tapes())
    there = backend.host(DerivedBoxes(given(backend, box, rows)).on(room, np.dtype(dtype)))
    host = SystemBoxes(box, rows, np.broadcast_to(box.origin, (COUNT, ndim))).table(np.dtype(dtype))
    straight = host[:, 37] == 1
    np.testing.assert_array_equal(there[straight, 30:36], host[straight, 30:36])
    eps = np.finfo(dtype).eps
    assert (abs(there - host) <= 8 * eps * abs(host).max(0)).all()
    tails = slice(21, 30)  # what rounding takes off is small
    np.testing.assert_allclose(there[:, tails], host[:, tails], rtol=1e-5)


GREENS = {
    "ewald": dict(green="ewald", alpha=3.0, zero=-0.7),
    "poisson": dict(green="poisson", compensation="discrete", gradient="window"),
    "yukawa": dict(green="yukawa", kappa=2.0, gradient="window"),
    "prolate": dict(green=ProlateGreen(9.0, 0.5)),
}


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("shape", [(8,), (6, 7), (4, 6, 8), (5, 6, 7)])
@pytest.mark.parametrize("name", GREENS)
@pytest.mark.filterwarnings("ignore:gradient='window'")
def test_solvers_in_boxes_on_the_device(backend, shape, name):
    ndim, rng = len(shape), np.random.default_rng(1)
    mesh, rows = pm.Mesh(shape, (1.0,) * ndim), drawn(ndim, 3)
    x, q = rng.random((200, ndim)), rng.normal(size=200)
    system = rng.integers(0, COUNT, 200).astype(np.int32)
    x = np.einsum("na,nab->nb", x, rows[system])
    there, host = (
        Solver(mesh, "bspline4", **GREENS[name], systems=COUNT, backend=kind, dtype="float64")
        for kind in (backend.name, "cpu")
    )
    on_device = given(backend, mesh.box, rows)
    for scale in (1.0, 1.1):
        on_device.set(backend.array(scale * rows))
        there.set_positions(backend.array(scale * x), system=backend.array(system), boxes=on_device)
        host.set_positions(scale * x, system=system, boxes=scale * rows)
        results = there.potential_gradient_virial(backend.array(q))
        for result, expected in zip(results, host.potential_gradient_virial(q), strict=True):
            np.testing.assert_allclose(backend.host(result), expected, rtol=0, atol=2e-11 * abs(expected).max())
        fields = rng.normal(size=((ndim + 1) * (ndim + 2) // 2, COUNT, *shape))
        derived = backend.host(there.moment_fields(backend.array(fields)))
        expected = host.moment_fields(fields)
        scales = abs(expected).max(tuple(range(1, expected.ndim)), keepdims=True)
        assert (abs(derived - expected) <= 1e-11 * scales).all()
    host.set_positions(x, system=system)  # and back to the box of the mesh
    there.set_positions(backend.array(x), system=backend.array(system))
    np.testing.assert_allclose(
        backend.host(there.potential(backend.array(q))), host.potential(q), rtol=1e-9, atol=1e-12
    )


@pytest.mark.backends("opencl", "cuda")
def test_solvers_whose_tables_need_the_host_refuse_boxes_on_the_device(backend):
    mesh, x = pm.Mesh((4, 4), (1.0, 1.0)), backend.array(np.zeros((3, 2)))
    boxes_there = given(backend, mesh.box, drawn(2))
    options = dict(systems=COUNT, backend=backend.name, dtype="float64")
    for green in (dict(green=lambda k2: 1 / (1 + k2), compensation=None), dict(green="ewald", alpha=1, gradient="ik")):
        solver = Solver(mesh, **green, **options)
        with pytest.raises(ValueError, match="boxes on a GPU need a real Green function of ours"):
            solver.set_positions(x, system=backend.array(np.zeros(3, np.int32)), boxes=boxes_there)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearest_images_in_boxes_on_the_device(backend, dtype):
    rng = np.random.default_rng(2)
    rows = drawn(3)
    rows[::3] = np.einsum(
        "sab,sbc->sac", rng.integers(-3, 4, (len(rows[::3]), 3, 3)) * np.tri(3, k=-1) + np.eye(3), rows[::3]
    )
    there = given(backend, pm.Box((1.0,) * 3), rows)
    memory = backend.library.empty((20 * COUNT,), dtype)
    core = SimpleNamespace(
        rows=there, systems=COUNT, dtype=np.dtype(dtype), backend=there.backend, take=lambda name, size: memory[:size],
        exclusions=Exclusions((), 0.0),
    )  # fmt: skip
    write_images(core)
    lattices, near = backend.host(boxes(core).lattices).astype(float), boxes(core).near
    for row, numbers in zip(rows, lattices, strict=True):
        expected = Images.of(row, np.dtype(dtype))
        scale = np.repeat(
            [abs(expected.matrix).max(), abs(expected.inverse).max(), expected.near, expected.least], [9, 9, 1, 1]
        )
        np.testing.assert_allclose(numbers / scale, np.array(expected.numbers()) / scale, atol=8 * np.finfo(dtype).eps)
        integers = np.stack(np.meshgrid(*[np.arange(-9, 10)] * 3), -1).reshape(-1, 3)
        shortest = np.linalg.norm((integers @ expected.matrix.astype(float))[(integers != 0).any(1)], axis=1).min()
        assert near <= shortest / 2


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize(
    ("file", "name", "facts"),
    [
        ("arrays/lattices.c", "derive_lattices", {}), ("arrays/lattices.c", "facts_of_lattices", {}),
        ("particles/systems.c", "map_systems", {"MOVES": 1}), ("grid/systems.c", "numbers_of_systems", {}),
        ("fourier/influence.c", "influence", {"TERMS": 0}), ("fourier/influence.c", "influence", {"TERMS": 6}),
        ("fourier/influence.c", "reciprocals", {"TERMS": 0}), ("apps/pme/images.c", "images", {}),
    ],
)  # fmt: skip
def test_kernels_of_boxes_compile_for_cuda(file, name, facts, wide):
    facts = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": wide, **facts}
    assert name.encode() in cuda.compile_only(file, facts, 90)


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("wide", [0, 1])
def test_the_look_at_results_compiles_for_cuda(wide):
    assert b"look_over" in cuda.compile_only("apps/pme/finite.c", {"REAL_IS_DOUBLE": wide}, 90)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("host", [True, False])
def test_rounding_at_a_bound_replaces_no_box(backend, host):
    """Turned cubes, whose faces are apart by a power of two but for rounding, which differs on host and device."""
    rows = 2 * np.linalg.qr(np.random.default_rng(4).normal(size=(COUNT, 3, 3)))[0]
    there = DeviceBoxes(backend.library, pm.Box((3.0,) * 3), COUNT).set(rows if host else backend.array(rows))
    assert there.bounds.per == (0.5, 0.5, 0.5)
    np.testing.assert_array_equal(backend.host(there.numbers)[:, :9], rows.reshape(-1, 9))
    there.set(backend.array(rows[::-1].copy()))
    assert there.confirm(backend.host(there.facts))
    np.testing.assert_array_equal(backend.host(there.numbers)[:, :9], rows[::-1].reshape(-1, 9))
