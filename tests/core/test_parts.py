# SPDX-License-Identifier: BSD-3-Clause
"""Parts of a mesh: values, errors, and particles that are located exactly as on the whole mesh."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from parts import add, cut, ghosts_for, owned, places, taken

LENGTHS = (3.1, 2.2, 2.7)
TILTED = np.diag(LENGTHS) + np.tril(np.full((3, 3), 0.3), -1)
MESHES = {
    "1-D": pm.Mesh(11, pm.Box(3.1, origin=0.37), offset=0.3),
    "1-D faces": pm.Mesh(11, pm.Box(3.1, origin=-7.7, periodic=False)),
    "2-D": pm.Mesh((11, 5), pm.Box(LENGTHS[:2], periodic=(True, False)), offset=(0.7, 0.5)),
    "3-D": pm.Mesh((11, 7, 6), pm.Box(LENGTHS, origin=1e3, periodic=(True, False, True)), offset=(0, 0.5, -2.25)),
    "triclinic": pm.Mesh((11, 7, 6), pm.Box(TILTED, origin=0.37)),
    "triclinic open": pm.Mesh((11, 7, 6), pm.Box(TILTED, periodic=(False, True, True)), offset=(0.5, 0, 0)),
}


def positions(mesh, real, count=300, seed=3):
    """Return positions far outside periodic axes, on nodes, between them, and one ulp around the ends."""
    rng = np.random.default_rng(seed)
    s = rng.random((count, mesh.ndim))
    s[: count // 4] = rng.integers(0, np.array(mesh.intervals) + 1, (count // 4, mesh.ndim)) / mesh.intervals
    periodic = np.array(mesh.periodic)
    s[:, periodic] += rng.integers(-5, 5, (count, periodic.sum()))
    x = (s @ mesh.box.matrix + mesh.box.origin).astype(real)
    x[count // 4 : count // 3] = np.nextafter(x[: count // 3 - count // 4], real(np.inf))
    if mesh.box.orthorhombic:  # rounding may have moved particles off an open axis
        low, high = mesh.box.origin, mesh.box.origin + mesh.box.lengths
        inner = [np.nextafter(low.astype(real), real(np.inf)), np.nextafter(high.astype(real), real(-np.inf))]
        x = np.where(periodic, x, np.clip(x, *inner))
    elif not periodic.all():
        s = np.where(periodic, s, 0.01 + 0.98 * s)
        x = (s @ mesh.box.matrix + mesh.box.origin).astype(real)
    return x


def located(backend, mesh, window, x):
    """Return first nodes and fractions of a plan's particles (d, N)."""
    with pm.Plan(mesh, window).set_positions(backend.array(x)) as plan:
        arrays = (
            plan.backend.download(a)[3 - mesh.ndim :, : len(x)] for a in (plan.particles.node, plan.particles.fraction)
        )
        return [np.array(a) for a in arrays]


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("name", MESHES)
def test_parts_locate_as_the_whole(backend, name, real):
    mesh = MESHES[name]
    x = positions(mesh, real)
    for window in (pm.bspline(4), pm.bspline(3)):
        whole = pm.locate(backend.array(x), mesh, window=window)
        cells, fractions = backend.host(whole.cells), backend.host(whole.fractions)
        node, fraction = located(backend, mesh, window, x)
        np.testing.assert_array_equal(fraction.T, fractions)
        reach = (window.support - 1) // 2
        turns = np.where(mesh.periodic, mesh.shape, 2**30)
        np.testing.assert_array_equal((node.T + reach) % turns, cells % turns)
        for count in (2, 7) if mesh.ndim == 1 else (4, 7):
            met = np.zeros(len(x), int)
            for part in cut(mesh, count, window):
                mine = owned(part, cells)
                met += mine
                here, in_part = located(backend, part, window, x[mine])
                assert in_part.tobytes() == np.ascontiguousarray(fraction[:, mine]).tobytes()
                shift = np.array([s - g[0] for s, g in zip(part.start, part.ghosts, strict=True)])
                np.testing.assert_array_equal((here.T + shift + reach) % turns, cells[mine] % turns)
                for a in np.flatnonzero(mesh.periodic):
                    if part.cut(a):  # whole stencils
                        assert ((here[a] >= 0) & (here[a] + window.support <= part.field_shape[a])).all()
            assert (met == 1).all()


@pytest.mark.parametrize("name", ["2-D", "triclinic"])
def test_particles_of_other_parts_are_outside(backend, name):
    mesh, window = MESHES[name], pm.bspline(4)
    x = positions(mesh, np.float64)
    cells = backend.host(pm.locate(backend.array(x), mesh, window=window).cells)
    part = cut(mesh, 2, window)[1]
    mine = owned(part, cells)
    with pm.Plan(part, window) as plan:
        plan.set_positions(backend.array(x[mine]))
        first = np.flatnonzero(~mine)[0]
        with pytest.raises(
            ValueError, match=rf"{(~mine).sum()} outside the part of 300; the first is particle {first}\b"
        ):
            plan.set_positions(backend.array(x))
        assert plan.count == mine.sum()
        plan.set_positions(backend.array(x), check=False)
        assert plan.status == (300, 0, (~mine).sum(), first, False)
        q = np.random.default_rng(1).normal(size=300)
        some = backend.host(plan.spread(backend.array(q)))
        np.testing.assert_allclose(some, backend.host(plan.spread(backend.array(np.where(mine, q, np.pi)))), atol=1e-13)


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("shape", [(11, 7), (5, 7)])
def test_without_ghosts_a_part_takes_all_that_reach_it(backend, shape):
    """Ghost particles: a part gets its nodes' whole sums from all particles that reach them."""
    mesh, window, rng = pm.Mesh(shape, (2.0, 3.0)), pm.bspline(4), np.random.default_rng(5)
    x, q = rng.random((200, 2)) * (2.0, 3.0), rng.normal(size=200)
    whole = pm.spread(x, q, mesh, window=window)
    part = mesh.part((1, 0), (3, 7))
    with pm.Plan(part, window) as plan:
        plan.set_positions(x, check=False)
        assert plan.status.outside == 0 if shape[0] == 5 else 0 < plan.status.outside < 200
        np.testing.assert_allclose(plan.spread(q), whole[1:3], atol=1e-13)


@pytest.mark.backends("cpu")
def test_a_field_wider_than_a_period_has_the_images_nearest_to_the_part(backend):
    mesh, window = pm.Mesh(4, 4.0), pm.bspline(6)
    x, q = np.linspace(-3.0, 9.0, 50), np.random.default_rng(2).normal(size=50)
    total = np.zeros(4)
    cells = pm.locate(x, mesh, window=window).cells
    for start in range(4):
        part = mesh.part(start, start + 1, [ghosts_for(window)])
        mine = owned(part, cells)
        add(part, pm.spread(x[mine], q[mine], part, window=window), total)
    np.testing.assert_allclose(total, pm.spread(x, q, mesh, window=window), atol=1e-13)


@pytest.mark.backends("cpu")
def test_what_a_part_is(backend):
    mesh = pm.Mesh((8, 6), (2.0, 3.0), periodic=(True, False), offset=(0, 0.5), ghosts=((3, 3), 0))
    part = mesh.part((2, 0), (5, 6), [(1, 2), 0])
    assert (part.shape, part.start, part.field_shape, part.intervals) == ((3, 6), (2, 0), (6, 6), (8, 6))
    assert (part.is_part, part.whole.is_part, part.whole.ghosts) == (True, False, ((0, 0), (0, 0)))
    assert part.whole.whole == part.whole == mesh.whole
    assert [part.cut(a) for a in range(2)] == [True, False]
    np.testing.assert_array_equal(part.nodes(0, ghosts=True), np.arange(1, 7) * 0.25)
    np.testing.assert_array_equal(part.spacing, mesh.spacing)
    assert part.node_volume == mesh.node_volume
    again = pickle.loads(pickle.dumps(part))
    assert again == part == eval(repr(part), {"Mesh": pm.Mesh, "Box": pm.Box})
    assert hash(again) == hash(part)
    assert part != mesh.part((2, 0), (5, 6)) and part != mesh
    assert part.part((1, 0), (3, 6)) == mesh.part((3, 0), (5, 6))
    assert mesh.part((0, 0), 8 * np.array([1, 0]) + np.array([0, 6])).cut(0) is False
    cells = pm.Mesh(5, 1.0, periodic=False)
    assert cells.part(3, 5).shifted(0.5) == cells.shifted(0.5).part(3, 4)
    assert [len(set(np.concatenate([places(p)[0] for p in cut(mesh.whole, n, pm.bspline(4))]))) for n in (1, 7)] == [
        8,
        8,
    ]
    assert taken(part, np.ones((8, 6))).shape == part.field_shape


@pytest.mark.backends("cpu")
def test_what_a_part_refuses(backend):
    mesh = pm.Mesh((8, 6), (2.0, 3.0))
    with pytest.raises(ValueError, match="start is 2; give 2 integers, one for each axis"):
        mesh.part(2, (5, 6))
    with pytest.raises(ValueError, match=r"stop\[1\] is 7; 1 to 6 is allowed"):
        mesh.part((2, 0), (5, 7))
    with pytest.raises(ValueError, match="nodes 5 to 5 of axis 0; stop must be larger"):
        mesh.part((5, 0), (5, 6))
    with pytest.raises(TypeError, match=r"start\[0\] is 2.0"):
        mesh.part((2.0, 0), (5, 6))
    part = mesh.part((2, 0), (5, 6), (1, 0))
    for verb in (part.wavenumbers, lambda: part.compensation("cic"), lambda: part.fold_ghosts(np.zeros((5, 6)))):
        with pytest.raises(ValueError, match="needs a whole mesh, and this is a part"):
            verb()
    with pytest.raises(ValueError, match=r"ghosts\[0\] is \(1, 1\); a window of support 4 needs \(1, 2\) ghosts"):
        pm.Plan(part, "bspline4")
    with pytest.raises(ValueError, match="systems needs a whole mesh"):
        pm.Plan(mesh.part((2, 0), (5, 6)), systems=2)
    with pytest.raises(ValueError, match="1 not finite of 2; the first is particle 1"):
        pm.locate([[0.5, 0.5], [np.nan, 0.5]], mesh)
    assert pm.locate([[0.5, 0.5], [np.nan, 0.5]], mesh, check=False).cells[:, -1].tolist() == [1, -(2**31)]
